//! The scoreboard: what every process of the server knows of the others, in memory that the parent
//! maps and all share. There are one line of counters and several slots for each child, which the
//! child writes, and one line about each child, which the parent writes. Any process reads them.
//!
//! Everything is an atomic word, and no reader trusts a length or an index that it finds here: a
//! hostile or dying writer can make a reader see wrong numbers, but never touch other memory.

mod application;
mod board;
mod child;
mod client_wait;
mod gate;
mod history;
mod lines;
mod permits;
mod slots;
mod snapshot;
mod state;

pub use application::{ApplicationLine, Figure, InFlight, PoolWorker, Room};
pub use board::{Layout, MOST_SLOTS, ParentLine, Scoreboard, Totals};
pub use child::{ChildLine, Counter};
pub use client_wait::{ClientWait, WaitReason};
pub use gate::{Credit, Gate, Waiting};
pub use history::{READING_WORDS, READINGS, Reading};
pub use lines::{LineBuffers, LineStore, LineWriter};
pub use permits::{PermitWait, SharedPermit, SharedPermits, WorkerPermits};
pub use slots::{Request, SlotGuard, Slots};
pub use snapshot::{ChildRecord, Snapshot, WorkerRecord};
pub use state::{Phase, SlotState};
