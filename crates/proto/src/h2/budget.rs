//! Token buckets that protect a connection from floods. Each frame that costs the server work and
//! is not part of a useful exchange takes a token. Time and completed work refill the buckets. The
//! connection ends when a bucket is empty.

use super::frame::ErrorCode;

/// The initial and maximum number of tokens of each kind.
const MOST: u32 = 100;

/// The number of tokens of each kind that are refilled in a second.
const PER_SECOND: u64 = 10;

/// The number of WINDOW_UPDATE tokens that each DATA frame sent adds: the client acknowledges it to
/// the stream and to the connection.
const UPDATES_PER_FRAME: u32 = 8;

/// DATA frames with fewer bytes than this count as tiny.
pub(crate) const TINY: usize = 256;

/// The kind of frame or event that takes a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expense {
    /// A stream that is reset before its response is complete, by the client or by the server
    /// because of a client error (CVE-2023-44487, CVE-2025-8671).
    Reset,
    Ping,
    Settings,
    Priority,
    /// Frames of unknown types, and frames for closed streams.
    Ignored,
    WindowUpdate,
    /// DATA frames below [`TINY`] bytes.
    Tiny,
}

/// The number of kinds.
const KINDS: usize = 7;

/// The tokens that are left.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: [u32; KINDS],
    /// The number of streams that the server has reset because of a client error.
    faults: u32,
    /// When tokens were last refilled by time, in milliseconds.
    filled_ms: u64,
}

/// A connection error: the code for GOAWAY, and the text for the error log.
pub(crate) type Flood = (ErrorCode, &'static str);

impl Budget {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { tokens: [MOST; KINDS], faults: 0, filled_ms: now_ms }
    }

    /// Refills tokens for the time since the last call.
    pub(crate) fn pass(&mut self, now_ms: u64) {
        let earned = now_ms.saturating_sub(self.filled_ms) * PER_SECOND / 1000;
        if earned == 0 {
            return;
        }
        self.filled_ms += earned * 1000 / PER_SECOND;
        let earned = u32::try_from(earned).unwrap_or(MOST);
        for tokens in &mut self.tokens {
            // WINDOW_UPDATE may exceed the usual maximum, because each DATA frame sent adds tokens.
            *tokens = (*tokens).max(tokens.saturating_add(earned).min(MOST));
        }
    }

    /// Takes a token.
    pub(crate) fn take(&mut self, expense: Expense) -> Result<(), Flood> {
        let left = self.tokens.get_mut(expense as usize);
        match left.and_then(|left| left.checked_sub(1).map(|less| *left = less)) {
            Some(()) => Ok(()),
            None => Err((ErrorCode::EnhanceYourCalm, text(expense))),
        }
    }

    /// Counts a stream that the server resets because of a client error. More than `most` of them
    /// end the connection (H2MaxStreamErrors).
    pub(crate) fn note_fault(&mut self, most: u32) -> Result<(), Flood> {
        self.faults = self.faults.saturating_add(1);
        if self.faults > most {
            return Err((ErrorCode::EnhanceYourCalm, "too many malformed streams"));
        }
        self.take(Expense::Reset)
    }

    /// Refills a token for a response that was sent completely.
    pub(crate) fn note_response(&mut self) {
        self.add(Expense::Reset, 1, MOST);
    }

    /// Refills tokens for a DATA frame that was sent.
    pub(crate) fn note_data_sent(&mut self) {
        self.add(Expense::WindowUpdate, UPDATES_PER_FRAME, 1 << 20);
    }

    /// Takes or refills a token for a DATA frame that was received, depending on its length.
    pub(crate) fn note_data(&mut self, length: usize) -> Result<(), Flood> {
        if length < TINY {
            return self.take(Expense::Tiny);
        }
        self.add(Expense::Tiny, 1, MOST);
        Ok(())
    }

    fn add(&mut self, expense: Expense, more: u32, most: u32) {
        if let Some(tokens) = self.tokens.get_mut(expense as usize) {
            *tokens = (*tokens).max(tokens.saturating_add(more).min(most));
        }
    }
}

fn text(expense: Expense) -> &'static str {
    match expense {
        Expense::Reset => "too many streams that were reset",
        Expense::Ping => "too many PING frames",
        Expense::Settings => "too many SETTINGS frames",
        Expense::Priority => "too many priority frames",
        Expense::Ignored => "too many frames of unknown kinds or for closed streams",
        Expense::WindowUpdate => "too many WINDOW_UPDATE frames",
        Expense::Tiny => "too many tiny DATA frames",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_work_bring_tokens_back() {
        let mut budget = Budget::new(1_000);
        for _ in 0..100 {
            budget.take(Expense::Ping).unwrap();
        }
        assert!(budget.take(Expense::Ping).is_err());
        assert!(budget.take(Expense::Settings).is_ok(), "each kind has its own");
        budget.pass(1_050);
        assert!(budget.take(Expense::Ping).is_err());
        budget.pass(1_100);
        assert!(budget.take(Expense::Ping).is_ok());
        budget.pass(1_000_000);
        for _ in 0..100 {
            budget.take(Expense::Ping).unwrap();
        }
        assert!(budget.take(Expense::Ping).is_err(), "no more than at the beginning");
    }

    #[test]
    fn a_window_update_is_paid_for_by_data() {
        let mut budget = Budget::new(0);
        for _ in 0..10_000 {
            budget.note_data_sent();
            for _ in 0..8 {
                budget.take(Expense::WindowUpdate).unwrap();
            }
        }
        budget.pass(10);
        for _ in 0..100 {
            budget.take(Expense::WindowUpdate).unwrap();
        }
        assert!(budget.take(Expense::WindowUpdate).is_err());
    }

    #[test]
    fn malformed_streams_are_counted_for_good() {
        let mut budget = Budget::new(0);
        for at in 0..8 {
            budget.pass(at * 10_000);
            budget.note_response();
            budget.note_fault(8).unwrap();
        }
        assert!(budget.note_fault(8).is_err());
    }
}
