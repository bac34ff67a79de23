//! What the workers of this server's own pools say beside their responses: messages for the error
//! log with their level, and a report of what the request has cost, with the notes and variables
//! that the script has set, and what the worker calls the connection if it keeps it
//! (`php/evenkeel-php.c`: `end_request`).

use crate::failure::FailureKind;
use evenkeel_message::{Late, Level, Notice, Variables, quoted};
use evenkeel_sys::claims::{Claims, Link};
use std::sync::Arc;
use std::time::Instant;

/// The most bytes of a report.
const MOST_REPORT: usize = 32 << 10;

/// A pool of this server, as an exchange sees it.
pub struct OwnPool {
    /// Its name.
    pub name: Box<str>,
    /// Gets the time in microseconds that the request has waited for a worker.
    pub note_line_us: Box<dyn Fn(u64)>,
    /// The words by which its idle workers are claimed.
    pub claims: Arc<Claims>,
    /// Whether the request may claim one.
    pub may_claim: bool,
    /// How many workers it has.
    pub workers: usize,
}

/// The report of a request in progress.
pub(crate) struct Reports {
    pool: OwnPool,
    begun: Instant,
    /// Time from the connection to the head of the response.
    head_us: u64,
    bytes: Vec<u8>,
}

/// The message of a worker: `<N>` with the level of syslog(3), and the text.
pub(crate) fn message(text: &[u8]) -> Notice {
    let (level, text) = match text {
        [b'<', digit, b'>', text @ ..] => (digit.wrapping_sub(b'0'), text),
        text => (3, text),
    };
    let level = match level {
        0 => Level::Emerg,
        1 => Level::Alert,
        2 => Level::Crit,
        4 => Level::Warn,
        5 => Level::Notice,
        6 => Level::Info,
        7 => Level::Debug,
        _ => Level::Error,
    };
    Notice::own("php", level, quoted(text).into_owned())
}

/// The notice of a failed exchange with a pool of this server.
#[must_use]
pub fn pool_failure(pool: &str, kind: &FailureKind, script: &[u8]) -> Notice {
    let script = quoted(script);
    let (level, text) = match kind {
        FailureKind::ClientGone => {
            (Level::Debug, format!("{script}: the client has disconnected, pool {pool}"))
        }
        FailureKind::Silent => {
            (Level::Error, format!("{script}: no answer of the pool {pool} in time"))
        }
        FailureKind::Late => {
            (Level::Error, format!("{script}: no worker of the pool {pool} was free in time"))
        }
        FailureKind::Ended(_) => (
            Level::Error,
            format!("{script}: the worker of the pool {pool} has ended before the response did"),
        ),
        FailureKind::Unreachable(error) | FailureKind::Unsent(error) => {
            (Level::Error, format!("{script}: the pool {pool} cannot be reached: {error}"))
        }
        FailureKind::LargeHead => {
            (Level::Error, format!("{script}: the head of the response is too large, pool {pool}"))
        }
        FailureKind::NoColon(line) => {
            let line = quoted(line.get(..line.len().min(30)).unwrap_or_default()).into_owned();
            (Level::Error, format!("{script}: malformed field of the response: {line}"))
        }
        FailureKind::HalfHead(true) => (
            Level::Error,
            format!("{script}: the worker of the pool {pool} has sent a part of a head alone"),
        ),
        FailureKind::Unresolved
        | FailureKind::Garbage(_)
        | FailureKind::LargeRequest(_)
        | FailureKind::HalfHead(false) => {
            (Level::Error, format!("{script}: the worker of the pool {pool} has sent no response"))
        }
    };
    Notice::own("php", level, text)
}

impl Reports {
    pub(crate) fn new(pool: OwnPool) -> Self {
        Self { pool, begun: Instant::now(), head_us: 0, bytes: Vec::new() }
    }

    pub(crate) fn pool(&self) -> &OwnPool {
        &self.pool
    }

    pub(crate) fn note_head(&mut self) {
        self.head_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() <= MOST_REPORT {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The notice of a failure in the body.
    pub(crate) fn failed(&self, kind: &FailureKind, script: &[u8]) -> Notice {
        pool_failure(&self.pool.name, kind, script)
    }

    /// Sets the notes and variables of the report. Returns the pool and the link of the connection,
    /// if the worker keeps the connection.
    pub(crate) fn end(self, late: &mut Late) -> Option<(OwnPool, Link)> {
        let all_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (costs, mut rest) = self.bytes.split_at_checked(32)?;
        let costs: Vec<u64> = costs
            .chunks_exact(8)
            .filter_map(|number| number.try_into().ok().map(u64::from_le_bytes))
            .collect();
        let &[cpu_us, ready_us, wall_us, _peak] = &*costs else { return None };
        let mut link = None;
        // The worker sees nothing of the time before it accepts.
        let line_us = all_us.saturating_sub(wall_us).min(self.head_us);
        (self.pool.note_line_us)(line_us);
        let wait_us = wall_us.saturating_sub(cpu_us).saturating_sub(ready_us);
        while let Some((kind, name, value)) = next_pair(&mut rest) {
            match kind {
                b'n' => late.notes.set(name, value),
                b'e' => late.env.set(name, value),
                b'k' => link = Link::read(value),
                _ => {}
            }
        }
        for (name, value) in [
            ("app-cpu-us", cpu_us),
            ("app-ready-us", ready_us),
            ("app-wait-us", wait_us),
            ("app-line-us", line_us),
        ] {
            late.notes.set(name, value.to_string());
        }
        Some((self.pool, link?))
    }
}

/// Reads the report before the head: the variables that the script has set.
pub(crate) fn read_variables(mut report: &[u8], env: &mut Variables) {
    while let Some((kind, name, value)) = next_pair(&mut report) {
        if kind == b'e' {
            env.set(name, value);
        }
    }
}

/// Takes the next pair: a letter, two lengths of 16 bits, name and value.
fn next_pair<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8], &'a [u8])> {
    let ([kind, a, b, c, d], after) = rest.split_first_chunk::<5>()?;
    let (name, after) = after.split_at_checked(u16::from_be_bytes([*a, *b]).into())?;
    let (value, after) = after.split_at_checked(u16::from_be_bytes([*c, *d]).into())?;
    *rest = after;
    Some((*kind, name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn messages_have_the_level_of_their_digit() {
        let notice = message(b"<4>PHP Warning:  x\n");
        assert_eq!((notice.module, notice.level), ("php", Level::Warn));
        assert_eq!(message(b"<7>x").level, Level::Debug);
        for odd in [&b"<9>x"[..], b"<", b"plain", b""] {
            assert_eq!(message(odd).level, Level::Error);
        }
    }

    #[test]
    fn a_report_becomes_notes_and_a_short_one_none() {
        let line = Rc::new(Cell::new(0));
        let reports = |bytes: &[u8]| {
            let told = Rc::clone(&line);
            let note_line_us = Box::new(move |us| told.set(us));
            let (claims, may_claim) = (Claims::new().unwrap(), false);
            let name = "php".into();
            let pool = OwnPool { name, note_line_us, claims, may_claim, workers: 1 };
            let mut reports = Reports::new(pool);
            reports.add(bytes);
            let mut late = Late::default();
            let link = reports.end(&mut late).map(|(_, link)| link);
            (late, link)
        };
        let mut bytes: Vec<u8> = [7_u64, 2, 19, 0].iter().flat_map(|it| it.to_le_bytes()).collect();
        bytes.extend(b"n\0\x01\0\x02abce\0\x01\0\x01XYn\0\xff");
        let (late, link) = reports(&bytes);
        assert_eq!(link, None);
        let note = |name: &str| late.notes.value(name).map(<[u8]>::to_vec);
        assert_eq!(note("app-cpu-us"), Some(b"7".to_vec()));
        assert_eq!(note("app-wait-us"), Some(b"10".to_vec()));
        assert_eq!(note("a"), Some(b"bc".to_vec()));
        assert_eq!(late.env.value("X"), Some(&b"Y"[..]));
        assert!(!reports(&bytes[..31]).0.notes.contains("app-cpu-us"));
        bytes.truncate(32);
        bytes.extend(b"k\0\0\0\x0c\x01\0\0\0\x02\0\0\0\x03\0\0\0");
        let kept = reports(&bytes).1;
        assert!(kept.is_some() && kept == Link::read(&bytes[37..]));
    }
}
