//! The state of the server, for modules that show it or send it. The binary supplies it.

use evenkeel_monitor::{Snapshot, View};

/// The state of the server as the scoreboard has it.
pub trait ServerState: Send + Sync {
    /// The state at this moment, as much of it as the view shows.
    fn snapshot(&self, view: View) -> Snapshot;
}
