//! Budgets of a connection against floods. Each frame that costs the server something and brings it
//! nothing takes a token. Time and useful work bring tokens back; a client that has none left is
//! sent away.

use super::frame::ErrorCode;

/// Tokens of a kind at the beginning, and at most.
const MOST: u32 = 100;

/// Tokens of a kind that a second brings back.
const PER_SECOND: u64 = 10;

/// Window updates that each frame of data pays for.
const UPDATES_PER_FRAME: u32 = 8;

/// DATA frames below so many bytes are tiny.
pub(crate) const TINY: usize = 256;

/// The kind of frame or event that a token pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expense {
    /// A stream that was begun for nothing: the client resets it, or we do for its fault
    /// (CVE-2023-44487, CVE-2025-8671).
    Reset,
    Ping,
    Settings,
    Priority,
    /// Frames of unknown kinds, and those for streams that are closed.
    Ignored,
    WindowUpdate,
    /// DATA frames with little in them.
    Tiny,
}

/// The number of kinds.
const KINDS: usize = 7;

/// The tokens that are left.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: [u32; KINDS],
    /// Streams that we have reset for the client's fault.
    faults: u32,
    /// When time last brought tokens, in milliseconds.
    filled_ms: u64,
}

/// A flood, as the code that ends the connection and what the error log is told.
pub(crate) type Flood = (ErrorCode, &'static str);

impl Budget {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { tokens: [MOST; KINDS], faults: 0, filled_ms: now_ms }
    }

    /// Brings back what the time since the last call does.
    pub(crate) fn pass(&mut self, now_ms: u64) {
        let earned = now_ms.saturating_sub(self.filled_ms) * PER_SECOND / 1000;
        if earned == 0 {
            return;
        }
        self.filled_ms += earned * 1000 / PER_SECOND;
        let earned = u32::try_from(earned).unwrap_or(MOST);
        for tokens in &mut self.tokens {
            // Window updates may have more, because each frame of data brings some.
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

    /// Notes that we reset a stream for the client's fault; the connection ends with more than
    /// `most` of these (H2MaxStreamErrors).
    pub(crate) fn note_fault(&mut self, most: u32) -> Result<(), Flood> {
        self.faults = self.faults.saturating_add(1);
        if self.faults > most {
            return Err((ErrorCode::EnhanceYourCalm, "too many malformed streams"));
        }
        self.take(Expense::Reset)
    }

    /// Notes a response that was sent whole.
    pub(crate) fn note_response(&mut self) {
        self.add(Expense::Reset, 1, MOST);
    }

    /// Notes a frame of data that was sent.
    pub(crate) fn note_data_sent(&mut self) {
        self.add(Expense::WindowUpdate, UPDATES_PER_FRAME, 1 << 20);
    }

    /// Notes a frame of data that was received.
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
        Expense::Tiny => "too many DATA frames with next to no data",
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
