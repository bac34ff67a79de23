//! Watches a run without a screen: saves its seconds as they come and shows them in a line on
//! standard error. A signal ends the run, and what was measured until then counts.

use crate::load::{Live, Second};
use crate::numbers::count;
use crate::results::Saving;
use evenkeel_sys::epoll::{Epoll, Events};
use evenkeel_sys::signal::Signals;
use std::io::{self, Write};
use std::time::Duration;

/// The interval between two readings of the progress.
const GLANCE: Duration = Duration::from_millis(50);
/// The seconds between two lines of a log.
const SECONDS_A_LINE: u32 = 10;

/// Watches a run to its end. Returns whether a signal ended it. `rewrites` says whether a line on
/// `err` can be overwritten. An error here ends the run too.
///
/// # Errors
///
/// Those of the system, or why results cannot be saved.
pub(crate) fn watch(
    live: &Live,
    signals: &Signals,
    mut saving: Option<&mut Saving>,
    err: &mut dyn Write,
    rewrites: bool,
) -> Result<bool, String> {
    let mut watched = || -> Result<bool, String> {
        let told = |error: io::Error| format!("the system: {error}");
        let (epoll, mut events) = (Epoll::new().map_err(told)?, Events::with_capacity(1));
        epoll.add(signals, 0).map_err(told)?;
        let (mut interrupted, mut progress) = (false, Progress::default());
        while live.is_running() {
            epoll.wait(&mut events, Some(GLANCE)).map_err(told)?;
            if signals.next().is_some() {
                live.stop();
                interrupted = true;
            }
            let news = live.news();
            if let Some(saving) = &mut saving {
                saving.add(&news)?;
            }
            progress.take(&news, err, rewrites);
        }
        progress.wipe(err, rewrites);
        Ok(interrupted)
    };
    let watched = watched();
    if watched.is_err() {
        live.stop();
    }
    watched
}

/// The line that shows the progress of a run.
#[derive(Default)]
struct Progress {
    answered: u64,
    failed: u64,
    newest: u32,
    told: u32,
}

impl Progress {
    /// Takes parts of seconds and shows them.
    fn take(&mut self, news: &[Second], err: &mut dyn Write, rewrites: bool) {
        for second in news {
            self.answered += second.answered;
            self.failed += second.failed;
            self.newest = self.newest.max(second.number + 1);
        }
        let due = if rewrites { self.told + 1 } else { self.told + SECONDS_A_LINE };
        if self.newest < due {
            return;
        }
        self.told = self.newest;
        let (answered, failed) = (count(self.answered), count(self.failed));
        let line = format!("{} s: {answered} answered, {failed} failed", self.newest);
        // It is not an error if the reader is gone, here and below.
        let _gone = if rewrites { write!(err, "\r\x1b[K{line}") } else { writeln!(err, "{line}") };
        let _gone = err.flush();
    }

    /// Clears the line for the report.
    fn wipe(&self, err: &mut dyn Write, rewrites: bool) {
        if rewrites && self.told > 0 {
            let _gone = write!(err, "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_each_second_or_in_a_log_every_ten() {
        let told = |rewrites| {
            let (mut progress, mut err) = (Progress::default(), Vec::new());
            for number in 0..25 {
                let part = Second { answered: 1000, failed: 1, ..Second::new(number) };
                progress.take(&[part], &mut err, rewrites);
            }
            progress.wipe(&mut err, rewrites);
            String::from_utf8(err).unwrap()
        };
        let lines = "10 s: 10,000 answered, 10 failed\n20 s: 20,000 answered, 20 failed\n";
        assert_eq!(told(false), lines);
        let line = told(true);
        assert!(line.starts_with("\r\x1b[K1 s: 1,000 answered") && line.ends_with("\r\x1b[K"));
        assert_eq!(line.matches("\r\x1b[K").count(), 26);
    }
}
