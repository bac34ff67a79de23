//! What every process of the server knows of every other: one line of counters per child, one per
//! worker slot, in memory that the parent makes and all share. A child writes its own lines, the
//! parent writes one line about each child, anyone reads. It decides nothing, and a reader
//! trusts no length and no index that it finds here.
//!
//! Everything is an atomic word: a hostile or dying writer can make a reader see nonsense
//! numbers, never touch memory that is not the scoreboard's.

mod board;
mod child;
mod client_wait;
mod gate;
mod history;
mod lines;
mod slots;
mod snapshot;
mod state;

pub use board::{Layout, MOST_SLOTS, ParentLine, Scoreboard, Totals};
pub use child::{ChildLine, Counter};
pub use client_wait::{ClientWait, WaitReason};
pub use gate::{Credit, Gate, Waiting};
pub use history::{Moment, READING_WORDS, READINGS};
pub use lines::{LineBuffers, LineStore, LineWriter};
pub use slots::{Request, SlotGuard, Slots};
pub use snapshot::{ChildRecord, Snapshot, WorkerRecord};
pub use state::{Phase, SlotState};
