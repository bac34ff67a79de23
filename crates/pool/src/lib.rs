//! How large a pool of children should be: the law decides from a census of the pool which children
//! to start, park and drain. It is pure, without clock or I/O, and the simulator runs the same
//! function. Beside it stand the law of `MaxRequestWorkers auto`, the account of what a pool did,
//! and the verdict on what limits it.
//!
//! Times are counted from a moment that the caller chooses, such as the start of the server.

mod account;
mod auto;
mod census;
mod law;
mod limit;
mod limits;
mod peak;
mod plateau;
mod queue;
mod service_time;
mod shedding;

pub use account::{Account, Constraint, Figure};
pub use auto::{Auto, BudgetBounds};
pub use census::{Census, Child, Stage};
pub use law::{Decision, Law, Reading};
pub use limit::{Cost, Limit, Verdict, cores_left, verdict};
pub use limits::Limits;
pub use plateau::Plateau;
pub use shedding::Shedding;
