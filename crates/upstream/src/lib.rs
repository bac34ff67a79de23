//! Applications behind this server: connections to them, the FastCGI exchange, the places that
//! bound how many requests an application has in progress, and the spool for bodies of requests.
//! All of it belongs to one serving thread; [`exchange`] is the entry.

mod connect;
mod conversation;
mod failure;
mod fcgi;
mod places;
mod spool;

pub use connect::Patience;
pub use failure::{Failure, FailureKind};
pub use fcgi::{Answered, Ask, exchange};
pub use places::{NoPlace, Place, Places};
pub use spool::{Spool, SpoolError};
