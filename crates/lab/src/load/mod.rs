//! The engine of the load: clients that send requests, as many and as fast as a [`Plan`] says.
//! [`run`] drives them on threads of their own and returns [`Figures`]. Each client gets its
//! requests from a [`Source`]. Nothing here prints or saves.

mod client;
mod exchange;
mod fetch;
mod figures;
mod pace;
mod plan;
mod reach;
mod receive;
mod run;
mod sketch;
mod source;
mod target;
mod thread;
mod tls;
mod transport;

pub use exchange::{Exchange, Failure, Request};
pub use fetch::{Fetched, fetch};
pub use figures::{Fairness, Figures, Sample, Second, Times};
pub use pace::{Pace, Stretch, Think, parse_time};
pub use plan::{Bounds, Keep, Plan, Timeouts, Trust, Wishes};
pub use reach::{check_descriptors, check_owner, put_reachable_first};
pub use run::{Interrupt, Live, Run};
pub use sketch::Sketch;
pub use source::{Same, Source, Step};
pub use target::{Scheme, Target};
pub use tls::Agreed;
