//! Shows what the server is doing, for people and for machines: makes one snapshot of the
//! scoreboard and /proc, and the status page in every form from that. It changes nothing, and a
//! page is a pure function of its snapshot.

mod application;
mod auto;
mod clock;
mod collect;
mod draw;
mod html;
mod listener;
mod number;
mod page;
mod pool;
pub mod process;
mod snapshot;
mod view;
mod words;

pub use application::{Application, Process};
pub use collect::collect;
pub use listener::Listener;
pub use page::{Letterhead, render};
pub use pool::{Next, Pool, Split};
pub use snapshot::{Child, Connections, Counts, Cpu, Facts, Snapshot, Worker};
pub use view::{Form, View};
