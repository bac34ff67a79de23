//! `evenkeel replay URL LOG...`: repeats the requests of access logs, as fast as the server answers
//! or at the times in the log, and compares the responses with the log. Logs are streamed: a long
//! log takes no more memory than a short one.

mod ask;
mod guess;
mod lines;
mod log;
mod options;
mod play;
mod prepare;
mod queue;
mod read;
mod report;
mod spread;

use crate::load::{Figures, Run, Source};
use crate::results::{About, Saving};
use crate::watching::watch;
use crate::words::with_hint;
use ask::Asker;
use evenkeel_message::http_date;
use evenkeel_sys::clock;
use evenkeel_sys::signal::{Signal, Signals};
use lines::{Part, Stream};
use log::Format;
pub use options::command;
use options::{Options, Wish};
use play::{Player, Tally};
use queue::Queue;
use read::{Ground, Reader, Reading};
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// The approximate bytes in all queues together.
const QUEUES_BYTES: usize = 8 << 20;

/// Why nothing is done.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    text: String,
    status: i32,
}

impl Complaint {
    /// A complaint about something other than the command line.
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 1 }
    }
}

/// A complaint about the command line.
fn usage(text: impl Into<String>) -> Complaint {
    Complaint { text: text.into(), status: 2 }
}

/// The result of a run.
struct Seen {
    format: Format,
    figures: Figures,
    reading: Reading,
    tally: Tally,
    /// Whether the user ended it.
    interrupted: bool,
}

/// Replays logs. The exit status is 0 if requests were answered and the logs were read to their
/// end, 1 if not, 2 if the words make no sense.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let rewrites = io::stderr().is_terminal();
    serve(words, &mut io::stdout(), &mut io::stderr(), rewrites)
}

/// `rewrites` says whether a line on `err` can be overwritten.
fn serve(words: &[String], out: &mut dyn Write, err: &mut dyn Write, rewrites: bool) -> i32 {
    let outcome = match options::parse(words) {
        Ok(Wish::Run(options)) => replay(&options, words, err, rewrites).map(|seen| {
            let report = if options.json { report::json } else { report::text };
            (report(&options, &seen), i32::from(failed(&seen)))
        }),
        Ok(Wish::Help(text)) => Ok((text, 0)),
        Err(complaint) => Err(complaint),
    };
    match outcome {
        // It is not an error if the reader is gone, here and below.
        Ok((text, status)) => {
            let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            status
        }
        Err(Complaint { text, status }) => {
            let text = if status == 2 { with_hint("replay", &text) } else { text };
            let _gone = writeln!(err, "evenkeel replay: {text}");
            status
        }
    }
}

fn failed(seen: &Seen) -> bool {
    seen.figures.answered() == 0 || seen.reading.failure.is_some()
}

fn replay(
    options: &Options,
    words: &[String],
    err: &mut dyn Write,
    rewrites: bool,
) -> Result<Seen, Complaint> {
    let (ground, parts, first) = look(options)?;
    let clients = options.clients * u32::try_from(parts.len()).unwrap_or(1);
    let plan = prepare::prepare(options, clients)?;
    let mut saving = save(options, words, &ground.format, clients)?;
    let system = |error: io::Error| Complaint::plain(format!("the system: {error}"));
    // The threads inherit the mask, so that this one receives ^C.
    let signals = Signals::catch(&[Signal::Interrupt, Signal::Terminate]).map_err(system)?;
    let format = ground.format.clone();
    let (queues, readings) = start_readers(ground, parts, first).map_err(system)?;
    // The run begins when there is a request to send.
    if !queues.iter().all(|queue| queue.wait_for_first(&|| signals.next().is_some())) {
        return Err(Complaint::plain("interrupted before the first request of the log"));
    }
    let tallies: Vec<Arc<Mutex<Tally>>> = (0..plan.threads).map(|_| Arc::default()).collect();
    let source = |number: u32| -> Box<dyn Source> {
        let number = number as usize;
        // The clients of one thread share a tally, so that none waits for another thread's.
        let tally = tallies.get(number % tallies.len().max(1)).cloned().unwrap_or_default();
        let queue = queues.get(number % queues.len().max(1));
        let queue = queue.cloned().unwrap_or_else(|| Arc::new(Queue::new(0)));
        Box::new(Player::new(queue, tally))
    };
    let run = Run::start(plan, source).map_err(system)?;
    let live = run.live();
    let interrupted = watch(&live, &signals, saving.as_mut(), err, rewrites);
    let figures = run.wait();
    queues.iter().for_each(|queue| queue.leave());
    let interrupted = interrupted.map_err(Complaint::plain)?;
    let figures = figures.map_err(system)?;
    if let Some(mut saving) = saving {
        let saved = saving.add(&live.news()).and_then(|()| saving.finish(&figures));
        saved.map_err(Complaint::plain)?;
    }
    let mut reading = Reading::default();
    for part in readings {
        // A reader may be waiting for a log that does not grow, so do not wait for it.
        reading.add(part.lock().unwrap_or_else(PoisonError::into_inner).clone());
    }
    let mut tally = Tally::default();
    for part in tallies {
        tally.add(std::mem::take(&mut *part.lock().unwrap_or_else(PoisonError::into_inner)));
    }
    Ok(Seen { format, figures, reading, tally, interrupted })
}

/// Examines the logs: their format, their parts, and the first log if it is read on from there.
fn look(options: &Options) -> Result<(Ground, Vec<Part>, Option<Stream>), Complaint> {
    let path = options.logs.first().ok_or_else(|| usage("a log is missing"))?;
    let name = path.display().to_string();
    let opened = lines::open(path);
    let (stream, _) = opened.map_err(|error| Complaint::plain(format!("{name}: {error}")))?;
    for path in options.logs.iter().skip(1) {
        // Report a file that cannot be read before the load, not during it.
        lines::open(path)
            .map_err(|error| Complaint::plain(format!("{}: {error}", path.display())))?;
    }
    let guessed = guess::guess(&name, stream, options.format.clone()).map_err(Complaint::plain)?;
    if options.speed.is_some() && !guessed.format.has_times() {
        let text = format!("--timing log: {name} has no times ({})", guessed.format.name());
        return Err(Complaint::plain(text));
    }
    let seconds = i64::try_from(clock::realtime_us() / 1_000_000).unwrap_or(0);
    let asker = Asker {
        url: options.url.clone(),
        host: options.host.clone(),
        fields: options.fields.clone(),
        methods: options.methods.clone(),
        closing: !options.keep_alive,
        now: String::from_utf8_lossy(&http_date(seconds)).into_owned(),
    };
    let (paths, speed) = (options.logs.clone(), options.speed);
    let ground = Ground { paths, format: guessed.format, asker, speed };
    if options.parts == 1 {
        let whole = Part::whole(options.lines.unwrap_or(u64::MAX));
        return Ok((ground, vec![whole], Some(guessed.stream)));
    }
    let parts =
        lines::cut(&options.logs, options.parts, options.lines).map_err(Complaint::plain)?;
    Ok((ground, parts, None))
}

fn save(
    options: &Options,
    words: &[String],
    format: &Format,
    clients: u32,
) -> Result<Option<Saving>, Complaint> {
    let begin = |folder: &std::path::PathBuf| {
        let timing = options.speed.map_or("as answers come".to_owned(), |speed| {
            format!("the log's, {speed} times as fast")
        });
        let about = About::now("replay", &options.url.to_string(), words)
            .with("format", format.name())
            .with("clients", clients)
            .with("timing", timing);
        Saving::begin(folder, &about)
    };
    options.save.as_ref().map(begin).transpose().map_err(Complaint::plain)
}

type Readers = (Vec<Arc<Queue>>, Vec<Arc<Mutex<Reading>>>);

/// Starts a reader for each part.
fn start_readers(
    ground: Ground,
    parts: Vec<Part>,
    mut first: Option<Stream>,
) -> io::Result<Readers> {
    let ground = Arc::new(ground);
    let each = QUEUES_BYTES / parts.len().max(1);
    let (mut queues, mut readings) = (Vec::new(), Vec::new());
    for part in parts {
        let (queue, reading) = (Arc::new(Queue::new(each)), Arc::default());
        let reader = Reader::new(Arc::clone(&ground), Arc::clone(&queue), Arc::clone(&reading));
        let first = first.take();
        let named = std::thread::Builder::new().name("log".into());
        named.spawn(move || reader.read(&part, first))?;
        queues.push(queue);
        readings.push(reading);
    }
    Ok((queues, readings))
}
