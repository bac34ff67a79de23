//! `evenkeel bench URL`: puts a load on the named server and reports the results. The engine
//! (`load`) makes the load; this module decides what it is, watches it and shows the results.

mod csv;
mod json;
mod options;
mod prepare;
mod progress;
mod screen;
mod stretches;
mod swept;
mod text;
mod watch;

#[cfg(test)]
mod tests;

use crate::load::{Bounds, Figures, Plan, Request, Run, Same};
use crate::results::{About, Saving};
use crate::server_side::{self, Side};
use crate::words::with_hint;
use evenkeel_sys::signal::{Signal, Signals};
pub(crate) use json::figures_json;
pub use options::command;
pub(crate) use options::field;
use options::{Options, Output, Wish};
use prepare::{Prepared, prepare};
use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::time::Duration;
use watch::Watch;

/// How long a server is traced. It is slow during that time.
const TRACED: Duration = Duration::from_secs(1);

/// The figures of a load as text, for every command of the lab.
pub(crate) fn figures_text(figures: &Figures) -> String {
    text::figures(figures)
}

/// Why nothing is done.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    text: String,
    status: i32,
    /// Whether to mention `--help`.
    hint: bool,
}

impl Complaint {
    /// A complaint about something other than the command line.
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 1, hint: false }
    }
}

/// A complaint about the command line.
fn usage(text: impl Into<String>) -> Complaint {
    Complaint { text: text.into(), status: 2, hint: true }
}

/// Where bench writes.
struct Desk<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Whether a live screen can be shown.
    screen: bool,
    /// Whether a line on `err` can be overwritten.
    rewrites: bool,
}

/// The result of a run.
struct Seen {
    figures: Figures,
    /// Whether the user ended it.
    interrupted: bool,
    /// The server's side, if it was observed.
    server: Option<server_side::Seen>,
}

/// Puts a load on a server. The exit status is 0 if there was a response, 1 if there was none or
/// the load could not begin, 2 if the words make no sense.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let (screen, rewrites) = (out.is_terminal(), err.is_terminal());
    serve(words, &mut Desk { out: &mut out, err: &mut err, screen, rewrites })
}

fn serve(words: &[String], desk: &mut Desk<'_>) -> i32 {
    let outcome = match options::parse(words) {
        Ok(Wish::Run(options)) => bench(&options, words, desk),
        // It is not an error if the reader is gone, here and below.
        Ok(Wish::Help(text)) => {
            let _gone = desk.out.write_all(text.as_bytes());
            Ok(0)
        }
        Err(complaint) => Err(complaint),
    };
    outcome.unwrap_or_else(|Complaint { text, status, hint }| {
        let text = if hint { with_hint("bench", &text) } else { text };
        let _gone = writeln!(desk.err, "evenkeel bench: {text}");
        status
    })
}

fn bench(options: &Options, words: &[String], desk: &mut Desk<'_>) -> Result<i32, Complaint> {
    let prepared = prepare(options)?;
    if let Some(grid) = &options.sweep {
        return swept::sweep(options, grid, &prepared, words, desk);
    }
    let threads = prepared.plan.threads;
    let side = options.server.as_deref().map(|text| {
        // No server listens on port 0: the accept queue behind a Unix socket cannot be observed.
        let port = if options.unix_socket.is_some() { 0 } else { options.url.port };
        Side::find(text, port, !options.insecure)
    });
    let side = side.transpose().map_err(Complaint::plain)?;
    let saving = options.save.as_deref().map(|folder| {
        let about = About::now("bench", &options.url.to_string(), words)
            .with("load", text::asked(options, threads))
            .with("seed", options.seed);
        Saving::begin(folder, &about)
    });
    let mut saving = saving.transpose().map_err(Complaint::plain)?;
    let system = |error: io::Error| Complaint::plain(format!("the system: {error}"));
    // The threads of the load inherit the mask, so that this thread receives ^C.
    let signals = Signals::catch(&[Signal::Interrupt, Signal::Terminate]).map_err(system)?;
    let looking = side.clone().map(|side| side.watch(options.save.as_deref())).transpose();
    let looking = looking.map_err(Complaint::plain)?;
    let run = start(&prepared.plan, &prepared.request).map_err(system)?;
    let watch = Watch { live: run.live(), signals, saving: saving.as_mut() };
    let interrupted = watch.over(threads, options, desk).map_err(system)?;
    let figures = run.wait().map_err(system)?;
    let server = looking.map(server_side::Watch::end);
    let mut seen = Seen { figures, interrupted, server };
    if options.strace && !interrupted && seen.figures.answered() > 0 {
        count_calls(&prepared, side.as_ref(), &mut seen);
    }
    if let Some(saving) = saving {
        saving.finish(&seen.figures).map_err(Complaint::plain)?;
    }
    let report = match options.output {
        Output::Text => text::report(options, threads, &seen),
        Output::Csv => csv::report(&seen.figures),
        Output::Json => json::report(options, threads, &seen),
    };
    let _gone = desk.out.write_all(report.as_bytes()).and_then(|()| desk.out.flush());
    Ok(i32::from(seen.figures.answered() == 0))
}

fn start(plan: &Plan, request: &Arc<Request>) -> io::Result<Run> {
    Run::start(plan.clone(), |_| Box::new(Same(Arc::clone(request))))
}

/// Counts the server's system calls under a short load of the same kind.
fn count_calls(prepared: &Prepared, side: Option<&Side>, seen: &mut Seen) {
    let (Some(side), Some(server)) = (side, &mut seen.server) else { return };
    let plan = Plan {
        bounds: Bounds { time: Some(TRACED), ..Bounds::default() },
        stretches: Vec::new(),
        keep_exchanges: false,
        ..prepared.plan.clone()
    };
    let load = || {
        let figures = start(&plan, &prepared.request).and_then(Run::wait);
        figures.map(|figures| figures.answered()).map_err(|error| error.to_string())
    };
    side.count_calls(load, server);
}
