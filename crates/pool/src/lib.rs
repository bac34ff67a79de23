//! How large a pool of children should be. A census of the pool comes in, what to start, park and
//! drain goes out. Pure: no clock, no input or output. One law for the server's own children and
//! for the processes of applications; the simulator runs this very function. Beside it stands what
//! such a pool did, as a row of figures, and what it says of the limit that binds.
//!
//! Times are counted from one moment that the caller chooses, such as the server's start.

mod account;
mod auto;
mod census;
mod law;
mod limit;
mod limits;
mod pace;
mod peak;
mod plateau;
mod queue;
mod shedding;

pub use account::{Account, Bar, Figure};
pub use auto::{Auto, Room};
pub use census::{Census, Child, Stage};
pub use law::{Decision, Law, Reading};
pub use limit::{Cost, Limit, Verdict, cores_left, verdict};
pub use limits::Limits;
pub use plateau::Plateau;
pub use shedding::Shedding;
