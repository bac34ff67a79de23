//! One connection from accept to lingering close. Sockets and the site that is served come in;
//! exchanges go out over the sockets and, once each, to the site's record. What can be answered
//! at once is answered without a task; what must wait becomes one. It does not choose whose turn
//! it is: that is the process model's.

mod connections;
mod exchange;
mod h1;
mod h2;
mod serving;
mod site;
mod thread;
mod transport;

pub use connections::Connections;
pub use exchange::slow_bytes::SlowBytes;
pub use site::{ConnectionSite, Done, Http2, ReadTime, Settings};
pub use thread::Workplace;
