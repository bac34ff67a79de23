//! The content of a log line: the request, its time, and the response. All texts are as they were
//! sent, without the escapes of the log.

use super::stamp::Stamp;
use std::fmt;

/// A parsed line. What its format does not contain is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Record {
    /// The request line, if it is logged as a whole.
    pub(in super::super) line: Option<Vec<u8>>,
    /// The method, if it is logged separately.
    pub(in super::super) method: Option<Vec<u8>>,
    /// The target: path and query as sent.
    pub(in super::super) target: Option<Vec<u8>>,
    /// The host, with its port unless that is 80 or 443.
    pub(in super::super) host: Option<Vec<u8>>,
    /// Further fields of the request.
    pub(in super::super) fields: Vec<(String, Vec<u8>)>,
    /// The status of the response.
    pub(in super::super) status: Option<u16>,
    /// The size in bytes.
    pub(in super::super) size: Option<u64>,
    /// The time of the request.
    pub(in super::super) stamp: Option<Stamp>,
}

/// What the sizes of a log count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Sizes {
    /// There are no sizes.
    None,
    /// Bodies (%b, %B).
    Bodies,
    /// Everything that was sent, including heads (%O).
    Whole,
    /// One of the two; the responses show which.
    Unknown,
}

/// Why a line does not match its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Misfit {
    /// The byte where it differs, from 1.
    pub(in super::super) column: usize,
    /// What is expected there.
    pub(in super::super) wanted: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "column {}: {} is expected", self.column, self.wanted)
    }
}
