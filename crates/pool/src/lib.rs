//! How large a pool of children should be. A census of the pool comes in, what to start, park and
//! drain goes out. Pure: no clock, no input or output. One law for the server's own children and
//! for the processes of applications; the simulator runs this very function.
//!
//! Times are counted from one moment that the caller chooses, such as the server's start.

mod census;
mod law;
mod limits;
mod peak;
mod queue;

pub use census::{Census, Child, Stage};
pub use law::{Decision, Law, Reading};
pub use limits::{Limits, divide};
