//! `evenkeel top`: shows what this machine does, and a web server on it or elsewhere, as a live
//! screen or as text, JSON or CSV for each interval, and records it if wanted. It changes nothing,
//! and requests only the status page from a server.

mod machine;
mod options;
mod processes;
mod sample;
mod screen;
mod server;
mod text;
mod watch;

#[cfg(test)]
mod tests;

use crate::load::Figures;
use crate::results::{About, Sampling, Saving};
use crate::words::{Stop, with_hint};
use evenkeel_sys::clock;
use evenkeel_sys::epoll::{Epoll, Events};
use evenkeel_sys::signal::{Signal, Signals};
pub use options::command;
use options::{Form, Options};
use sample::{Csv, Sample};
use screen::Screen;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;
use watch::Watch;

/// Why nothing is done, or why it ends.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    text: String,
    status: i32,
}

impl Complaint {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 1 }
    }
}

/// Shows the activity. The exit status is 0 if it was shown, also until ^C; 1 if the server or its
/// status page is not there; 2 if the words make no sense.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let is_terminal = out.is_terminal();
    serve(words, &mut out, &mut err, is_terminal)
}

fn serve(words: &[String], out: &mut dyn Write, err: &mut dyn Write, is_terminal: bool) -> i32 {
    let outcome = match options::parse(words) {
        Ok(options) => top(&options, words, out, is_terminal),
        // It is not an error if the reader is gone, here and below.
        Err(Stop::Help(text)) => {
            let _gone = out.write_all(text.as_bytes());
            Ok(())
        }
        Err(Stop::Wrong(text)) => Err(Complaint { text: with_hint("top", &text), status: 2 }),
    };
    outcome.map_or_else(
        |Complaint { text, status }| {
            let _gone = writeln!(err, "evenkeel top: {text}");
            status
        },
        |()| 0,
    )
}

fn top(
    options: &Options,
    words: &[String],
    out: &mut dyn Write,
    is_terminal: bool,
) -> Result<(), Complaint> {
    let system = |error: io::Error| Complaint::plain(format!("the system: {error}"));
    let mut watch = Watch::begin(options).map_err(Complaint::plain)?;
    let mut record = options.record.as_ref().map(|_| Record::begin(options, words)).transpose()?;
    let signals = Signals::catch(&[Signal::Interrupt, Signal::Terminate]).map_err(system)?;
    let mut clock = Ticks::begin(options.interval);
    let mut show = if is_terminal && options.screen {
        Show::Screen(Box::new(Screen::open().map_err(system)?))
    } else {
        let (epoll, csv) = (Epoll::new().map_err(system)?, Csv::default());
        epoll.add(&signals, 0).map_err(system)?;
        Show::Stream { epoll, csv, is_first: true }
    };
    let mut shown = 0;
    while options.count.is_none_or(|count| shown < count) {
        if !show.wait(&clock, &signals).map_err(system)? {
            break;
        }
        clock.advance();
        let sample = watch.sample().map_err(Complaint::plain)?;
        if let Some(record) = &mut record {
            record.take(&sample)?;
        }
        if shown == 0
            && options.count == Some(1)
            && !sample.problems.is_empty()
            && lost(options, &sample)
        {
            return Err(Complaint::plain(sample.problems.join("; ")));
        }
        match show.show(&sample, options.form, out) {
            Ok(()) => shown += 1,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(system(error)),
        }
    }
    drop(show);
    record.map_or(Ok(()), Record::finish)
}

/// Whether something that the options request is missing.
fn lost(options: &Options, sample: &Sample) -> bool {
    (options.status.is_some() && sample.server.is_none())
        || (options.pid.is_some() && sample.processes.is_none())
}

/// The ends of intervals, which do not drift.
struct Ticks {
    next_ns: u64,
    interval_ns: u64,
}

impl Ticks {
    fn begin(interval: Duration) -> Self {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Self { next_ns: clock::monotonic_ns().saturating_add(interval_ns), interval_ns }
    }

    /// The time until the end of the current interval.
    fn left(&self) -> Duration {
        Duration::from_nanos(self.next_ns.saturating_sub(clock::monotonic_ns()))
    }

    /// Begins the next interval. Those that have already passed are left out.
    fn advance(&mut self) {
        let late_ns = clock::monotonic_ns().saturating_sub(self.next_ns);
        let intervals = late_ns / self.interval_ns.max(1) + 1;
        self.next_ns += intervals.saturating_mul(self.interval_ns);
    }
}

/// Where samples are shown.
enum Show {
    Screen(Box<Screen>),
    Stream { epoll: Epoll, csv: Csv, is_first: bool },
}

impl Show {
    /// Waits for the end of the interval. Returns false if the program is to end.
    fn wait(&mut self, clock: &Ticks, signals: &Signals) -> io::Result<bool> {
        loop {
            let left = clock.left();
            if signals.next().is_some() {
                return Ok(false);
            }
            if left.is_zero() {
                return Ok(true);
            }
            match self {
                Show::Screen(screen) => {
                    if !screen.listen(left)? {
                        return Ok(false);
                    }
                }
                Show::Stream { epoll, .. } => {
                    epoll.wait(&mut Events::with_capacity(1), Some(left))?;
                }
            }
        }
    }

    fn show(&mut self, sample: &Sample, form: Form, out: &mut dyn Write) -> io::Result<()> {
        let Show::Stream { csv, is_first, .. } = self else {
            let Show::Screen(screen) = self else { return Ok(()) };
            return screen.take(sample);
        };
        let text = match form {
            Form::Csv => csv.line(sample),
            Form::Json => serde_json::to_string(sample)? + "\n",
            Form::Text if *is_first => text::report(sample),
            Form::Text => format!("\n{}", text::report(sample)),
        };
        *is_first = false;
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// What is saved for `evenkeel report`.
struct Record {
    saving: Saving,
    sampling: Sampling,
    began_ns: u64,
}

impl Record {
    fn begin(options: &Options, words: &[String]) -> Result<Self, Complaint> {
        let folder = options.record.clone().unwrap_or_default();
        let target = options.status.as_deref().unwrap_or("this machine");
        let mut about = About::now("top", target, words);
        about = about.with("interval", format!("{} s", options.interval.as_secs_f64()));
        let saving = Saving::begin(&folder, &about).map_err(Complaint::plain)?;
        let sampling = Sampling::begin(&folder).map_err(Complaint::plain)?;
        Ok(Self { saving, sampling, began_ns: clock::monotonic_ns() })
    }

    fn elapsed_ns(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.began_ns)
    }

    fn take(&mut self, sample: &Sample) -> Result<(), Complaint> {
        let mut values: BTreeMap<String, f64> = sample.values().into_iter().collect();
        // A report has a plot for the first part of each name, so that all cores fit into one.
        values.retain(|name, _| !name.starts_with("core "));
        let cores = sample.machine.cores.iter();
        values.extend(
            cores.map(|it| (format!("cores busy in %/core {}", it.core), it.shares.busy())),
        );
        let at_s = self.elapsed_ns() as f64 / 1e9;
        self.sampling.sample(at_s, values).map_err(Complaint::plain)
    }

    fn finish(self) -> Result<(), Complaint> {
        let elapsed_ns = self.elapsed_ns();
        let figures = Figures { elapsed_ns, ..Figures::default() };
        self.saving.finish(&figures).map_err(Complaint::plain)
    }
}
