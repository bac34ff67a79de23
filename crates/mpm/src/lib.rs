//! The parent and the process models. [`run`] starts a [`Server`], owns the listening sockets, the
//! scoreboard and the children, and returns the exit status once the server has ended. The modules
//! `event`, `prefork` and `worker` serve in a child. Nothing here knows HTTP.

mod accounting;
pub mod apps;
pub mod auxiliary;
mod budget;
mod change;
mod child;
mod children;
mod config_test;
mod dedicated;
mod descriptors;
mod detach;
pub mod event;
mod eviction;
pub mod launcher;
mod limits;
mod listen;
mod listeners;
mod memory_sampling;
mod notices;
mod oom_score;
mod parent;
mod pidfile;
pub mod prefork;
mod reload_record;
pub mod service;
mod settings;
pub mod setup;
mod signal_server;
mod sizing;
mod spawn;
mod stall_detector;
mod start_barrier;
mod supervisor;
mod upgrade;
pub mod worker;

pub use child::{Child, Command, Control, DemandSignal, Listener};
pub use limits::{Configured, Limits, Model, Moment, check as check_limits};
pub use listen::Listen;
pub use parent::run;
pub use pidfile::{Running, running};
pub use reload_record::PendingReload;
pub use settings::{Loaded, Mode, Server, Settings, Start};
pub use signal_server::{SignalCommand, SignalOutcome, signal_server};
