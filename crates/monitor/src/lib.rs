//! What the server does now, for people and for machines: the scoreboard and /proc come in, one
//! snapshot goes out, and from that the status page in every form. It changes nothing, and a page
//! is a pure function of its snapshot.

mod auto;
mod clock;
mod collect;
mod draw;
mod html;
mod number;
mod page;
mod pool;
pub mod process;
mod snapshot;
mod view;
mod words;

pub use collect::collect;
pub use page::{Letterhead, render};
pub use pool::{Next, Pool, Split};
pub use snapshot::{Child, Connections, Counts, Cpu, Facts, Snapshot, Worker};
pub use view::{Form, View};
