//! What a line of a log says: what was asked, when, and what the server answered. All texts are
//! as they came over the wire: a log's escapes are undone.

use super::stamp::Stamp;
use std::fmt;

/// A line that was understood. What its format has no item for is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Record {
    /// The request line, where it is logged as a whole.
    pub(in super::super) line: Option<Vec<u8>>,
    /// The method, where it stands alone.
    pub(in super::super) method: Option<Vec<u8>>,
    /// The target: path and query as they are sent.
    pub(in super::super) target: Option<Vec<u8>>,
    /// The host that was asked, with its port where that is not 80 or 443.
    pub(in super::super) host: Option<Vec<u8>>,
    /// Further fields of the request that are logged.
    pub(in super::super) fields: Vec<(String, Vec<u8>)>,
    /// The status of the answer.
    pub(in super::super) status: Option<u16>,
    /// Its size in bytes.
    pub(in super::super) size: Option<u64>,
    /// When the request came.
    pub(in super::super) stamp: Option<Stamp>,
}

/// What a log's sizes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Sizes {
    /// There are none.
    None,
    /// Bodies (%b, %B).
    Bodies,
    /// All that was sent, heads included (%O).
    Whole,
    /// One of the two: answers tell which.
    Unknown,
}

/// Why a line does not fit its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Misfit {
    /// The byte where it departs, from 1.
    pub(in super::super) column: usize,
    /// What is expected there.
    pub(in super::super) wanted: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "column {}: {} is expected", self.column, self.wanted)
    }
}
