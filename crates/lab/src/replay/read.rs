//! Reads a part of the logs, on a thread of its own, and puts entries into the queue in the order
//! and with the times of their replay. Lines that do not match the format are counted and the first
//! ones kept; they do not end the reading.

use super::ask::{Asker, Omission};
use super::lines::{Lines, Part, Stream, open, open_at};
use super::log::{Format, Misfit};
use super::play::SHOWN;
use super::queue::{Entry, Place, Queue};
use super::spread::Spreader;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the readers of a replay share.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) paths: Vec<PathBuf>,
    pub(super) format: Format,
    pub(super) asker: Asker,
    /// The factor by which the log's times are sped up, if they are used.
    pub(super) speed: Option<f64>,
}

/// The result of reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) lines: u64,
    /// The requests that were put into the queue.
    pub(super) requests: u64,
    pub(super) malformed: u64,
    /// The first malformed lines.
    pub(super) first_malformed: Vec<Malformed>,
    /// The lines that are not requests to repeat.
    pub(super) omitted: BTreeMap<Omission, u64>,
    /// The lines whose time came too late to be put in order.
    pub(super) late: u64,
    /// Why the reading ended early.
    pub(super) failure: Option<String>,
}

/// A line that does not match the format.
#[derive(Clone, Debug)]
pub(super) struct Malformed {
    pub(super) place: Place,
    pub(super) reason: String,
    /// The beginning of the line.
    pub(super) excerpt: String,
}

impl Malformed {
    pub(super) fn new(place: Place, misfit: &Misfit, line: &[u8]) -> Self {
        const MOST: usize = 100;
        let mut excerpt: String = line.iter().take(MOST).copied().flat_map(escaped).collect();
        if excerpt.len() > MOST || line.len() > MOST {
            excerpt.truncate(MOST);
            excerpt += "...";
        }
        Self { place, reason: misfit.to_string(), excerpt }
    }
}

fn escaped(byte: u8) -> impl Iterator<Item = char> {
    std::ascii::escape_default(byte).map(char::from)
}

impl Reading {
    /// Adds the result of another reader.
    pub(super) fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.requests += other.requests;
        self.malformed += other.malformed;
        self.first_malformed.extend(other.first_malformed);
        self.first_malformed.sort_by_key(|malformed| malformed.place);
        self.first_malformed.truncate(SHOWN);
        for (omission, count) in other.omitted {
            *self.omitted.entry(omission).or_default() += count;
        }
        self.late += other.late;
        self.failure = self.failure.take().or(other.failure);
    }
}

/// Reads a part to its end, or until no client takes entries any more.
pub(super) struct Reader {
    ground: Arc<Ground>,
    queue: Arc<Queue>,
    spreader: Option<Spreader>,
    /// Shared with the report, because a reader may still be waiting for its log when the run is
    /// over.
    reading: Arc<Mutex<Reading>>,
    /// The entries whose time is settled.
    ready: Vec<Entry>,
}

impl Reader {
    /// A reader that puts entries into the queue, and keeps its result up to date in `reading`.
    pub(super) fn new(
        ground: Arc<Ground>,
        queue: Arc<Queue>,
        reading: Arc<Mutex<Reading>>,
    ) -> Self {
        let spreader = ground.speed.map(Spreader::new);
        Self { ground, queue, spreader, reading, ready: Vec::new() }
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the part. `first` is the file of the part, if it is already open.
    pub(super) fn read(mut self, part: &Part, first: Option<Stream>) {
        let read = self.read_files(part, first);
        if let Some(spreader) = &mut self.spreader {
            spreader.finish(&mut self.ready);
        }
        self.put_ready();
        self.reading().failure = read.err();
    }

    fn read_files(&mut self, part: &Part, mut first: Option<Stream>) -> Result<(), String> {
        let ground = Arc::clone(&self.ground);
        for (file, path) in ground.paths.iter().enumerate().skip(part.file) {
            let shown = path.display();
            let told = |error: io::Error| format!("{shown}: {error}");
            let begins = file == part.file;
            let before = if begins { part.before } else { 0 };
            let stream = match first.take() {
                Some(stream) => stream,
                None if begins && part.offset > 0 => open_at(path, part.offset).map_err(told)?,
                None => open(path).map_err(told)?.0,
            };
            let over = if begins && part.read_over { before } else { 0 };
            let mut lines = Lines::new(stream, before - over);
            for _ in 0..over {
                lines.next().map_err(told)?;
            }
            loop {
                if self.reading().lines >= part.lines {
                    return Ok(());
                }
                let number = lines.number();
                let failed = |error| format!("{shown}: behind line {number}: {error}");
                let Some(line) = lines.next().map_err(failed)? else { break };
                let place = Place { file, line: line.number };
                self.reading().lines += 1;
                match line.bytes {
                    Ok(bytes) => self.take(place, bytes),
                    Err(misfit) => self.count_malformed(place, &misfit, b""),
                }
                if !self.put_ready() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, place: Place, line: &[u8]) {
        let record = match self.ground.format.parse(line) {
            Ok(Some(record)) => record,
            Ok(None) => return,
            Err(misfit) => return self.count_malformed(place, &misfit, line),
        };
        let request = match self.ground.asker.ask(&record) {
            Ok(request) => Arc::new(request),
            Err(omission) => return *self.reading().omitted.entry(omission).or_default() += 1,
        };
        let (status, size) = (record.status, record.size);
        let entry = Entry { request, place, status, size, due_ns: None };
        match (&mut self.spreader, record.stamp) {
            (Some(spreader), Some(stamp)) => spreader.add(entry, stamp, &mut self.ready),
            (Some(_), None) => {
                let misfit = Misfit { column: 1, wanted: "a time somewhere in it".to_owned() };
                self.count_malformed(place, &misfit, line);
            }
            (None, _) => self.ready.push(entry),
        }
    }

    fn count_malformed(&self, place: Place, misfit: &Misfit, line: &[u8]) {
        let mut reading = self.reading();
        reading.malformed += 1;
        if reading.first_malformed.len() < SHOWN {
            reading.first_malformed.push(Malformed::new(place, misfit, line));
        }
    }

    /// Puts the settled entries into the queue. Returns whether clients still take entries.
    fn put_ready(&mut self) -> bool {
        if let Some(spreader) = &self.spreader {
            self.reading().late = spreader.late();
        }
        for entry in self.ready.drain(..) {
            self.reading.lock().unwrap_or_else(PoisonError::into_inner).requests += 1;
            if !self.queue.put(entry) {
                return false;
            }
        }
        true
    }
}

impl Drop for Reader {
    /// However the reading has ended, its clients must not wait for more.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.reading().failure = Some("the reading panicked".to_owned());
        }
        self.queue.end();
    }
}
