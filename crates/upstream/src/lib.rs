//! Applications and servers behind this one: where they are ([`Target`]), connections to them, and
//! what is exchanged with them. A module passes what an application is to be told; the head of its
//! response and a body that is streamed come back. Everything stays on one serving thread.

mod connect;
mod conversation;
mod failure;
mod fcgi;
mod places;
mod spool;

pub use connect::Patience;
pub use evenkeel_message::{Address, BadTarget, Target};
pub use failure::{Failure, FailureKind};
pub use fcgi::{Answered, Ask, exchange};
pub use places::{NoPlace, Place, Places};
pub use spool::{MOST_IN_MEMORY, Spool, SpoolError};
