//! One connection from accept to lingering close. Sockets and the site that is served come in;
//! exchanges go out over the sockets and, once each, to the site's record. What can be answered
//! at once is answered without a task; what must wait becomes one. It does not choose whose turn
//! it is: that is the process model's.

mod body;
mod connection;
mod introduction;
mod link;
mod output;
mod pace;
mod reply;
mod shown;
mod site;
mod slow;
mod task;
mod thread;
mod worker;

pub use site::{Done, ReadTime, Served, Settings, Site};
pub use slow::SlowBytes;
pub use thread::{Addresses, Workplace};
pub use worker::Worker;
