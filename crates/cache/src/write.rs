//! Writes responses, in the blocking pool: the body goes into a file without a name as it comes,
//! and the file gets its name once it is whole. A client never waits for it: if more than 1 MiB
//! waits to be written, the response is not stored.

use crate::entry::{Content, Entry, Index, MOST_HEAD};
use crate::lock::Lock;
use crate::place::Place;
use crate::shelf::read_head;
use evenkeel_message::Piece;
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::open::{Space, link_nameless, nameless, open_to_read, read_at, space_of};
use evenkeel_sys::random;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes that wait to be written.
const MOST_WAITING: u64 = 1 << 20;

/// The bytes that are copied at a time from another file.
const STRETCH: usize = 256 << 10;

/// The most bytes of a file system that a cache leaves free; less on small ones.
const MOST_RESERVE: u64 = 1 << 30;

/// How often the same failure is reported.
const BETWEEN_COMPLAINTS: Duration = Duration::from_secs(60);

/// What is stored.
pub struct Draft {
    /// Where.
    pub place: Place,
    /// All but the body.
    pub entry: Entry,
    /// The fields of the request that select it (Vary).
    pub names: Vec<Box<str>>,
    /// The length of the body in bytes, if it is known.
    pub length: Option<u64>,
    /// CacheMinFileSize.
    pub least: u64,
    /// CacheMaxFileSize.
    pub most: u64,
    /// The lock of the key, which is held until the response is stored or given up.
    pub lock: Option<Lock>,
}

/// Stores one response. Dropping it before [`Writer::finish`] stores nothing.
pub struct Writer {
    shared: Arc<Shared>,
    pool: Arc<BlockingPool>,
    /// The bytes that have come.
    received: u64,
    is_over: bool,
}

struct Shared {
    state: Mutex<State>,
    draft: Draft,
    /// Where the body begins in the file.
    body_start: u64,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Piece>,
    waiting_bytes: u64,
    is_running: bool,
    is_whole: bool,
    is_given_up: bool,
    file: Option<Arc<File>>,
    written: u64,
}

impl Writer {
    /// Begins. None if the length is known and out of bounds.
    #[must_use]
    pub fn new(draft: Draft, pool: &Arc<BlockingPool>) -> Option<Self> {
        let bounds = draft.least..=draft.most;
        if draft.length.is_some_and(|length| !bounds.contains(&length)) {
            return None;
        }
        let body_start = draft.entry.encode().len() as u64;
        let shared = Arc::new(Shared { state: Mutex::default(), body_start, draft });
        Some(Self { shared, pool: Arc::clone(pool), received: 0, is_over: false })
    }

    /// Adds a part of the body.
    pub fn add(&mut self, piece: Piece) {
        if self.is_over || piece.is_empty() {
            return;
        }
        self.received = self.received.saturating_add(piece.len());
        if self.received > self.shared.draft.most {
            return self.give_up();
        }
        let mut state = self.shared.lock();
        state.waiting_bytes += in_memory(&piece);
        state.waiting.push_back(piece);
        let is_late = state.waiting_bytes > MOST_WAITING && state.waiting.len() > 1;
        if is_late || state.is_given_up {
            drop(state);
            return self.give_up();
        }
        self.run(state);
    }

    /// Gives the response its name once all of it is written.
    pub fn finish(mut self) {
        let draft = &self.shared.draft;
        let is_short = draft.length.is_some_and(|length| length != self.received);
        if self.is_over || is_short || self.received < draft.least {
            return;
        }
        self.is_over = true;
        let mut state = self.shared.lock();
        state.is_whole = true;
        self.run(state);
    }

    fn give_up(&mut self) {
        self.is_over = true;
        let mut state = self.shared.lock();
        state.is_given_up = true;
        state.waiting.clear();
    }

    /// Has a thread of the pool write what waits, if none does.
    fn run(&self, mut state: MutexGuard<'_, State>) {
        if std::mem::replace(&mut state.is_running, true) {
            return;
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        self.pool.spawn(move || shared.work()).detach();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up();
        }
    }
}

fn in_memory(piece: &Piece) -> u64 {
    match piece {
        Piece::Bytes(bytes) => bytes.len() as u64,
        Piece::File { .. } => 0,
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits, until nothing does.
    fn work(&self) {
        loop {
            let mut state = self.lock();
            if state.is_given_up {
                state.file = None;
                return;
            }
            let Some(piece) = state.waiting.pop_front() else {
                state.is_running = false;
                if !state.is_whole {
                    return;
                }
                let (file, written) = (state.file.take(), state.written);
                drop(state);
                if let Err(error) = self.complete(file, written) {
                    complain(&self.draft.place.root, &error);
                }
                return;
            };
            let (file, written) = (state.file.clone(), state.written);
            drop(state);
            let done = self.write(file, &piece, written);
            let mut state = self.lock();
            state.waiting_bytes = state.waiting_bytes.saturating_sub(in_memory(&piece));
            match done {
                Ok(file) => {
                    state.written += piece.len();
                    state.file = Some(file);
                }
                Err(error) => {
                    state.is_given_up = true;
                    state.waiting.clear();
                    state.file = None;
                    drop(state);
                    complain(&self.draft.place.root, &error);
                    return;
                }
            }
        }
    }

    fn write(&self, file: Option<Arc<File>>, piece: &Piece, at: u64) -> io::Result<Arc<File>> {
        let file = self.file(file, piece.len())?;
        let at = at + self.body_start;
        match piece {
            Piece::Bytes(bytes) => file.write_all_at(bytes, at)?,
            Piece::File { file: from, offset, length } => copy(from, *offset, *length, &file, at)?,
        }
        Ok(file)
    }

    /// The file, which is made if there is none.
    fn file(&self, file: Option<Arc<File>>, bytes: u64) -> io::Result<Arc<File>> {
        let file = match file {
            Some(file) => file,
            None => Arc::new(File::from(new_file(&self.draft.place.root)?)),
        };
        match leaves_reserve(&space_of(&*file)?, bytes) {
            true => Ok(file),
            false => Err(ErrorKind::StorageFull.into()),
        }
    }

    /// Writes the head, and gives the file its name.
    fn complete(&self, file: Option<Arc<File>>, length: u64) -> io::Result<()> {
        let file = self.file(file, 0)?;
        let Draft { place, entry, names, .. } = &self.draft;
        let entry = Entry { body_length: length, ..entry.clone() };
        let head = entry.encode();
        if head.len() > MOST_HEAD {
            return Ok(());
        }
        file.write_all_at(&head, 0)?;
        let text = match names.is_empty() {
            true => entry.key.text().to_vec(),
            false => index(place, &entry, names)?.variant_text(&entry.selecting),
        };
        name(&file, &place.path_of(&text))
    }
}

/// The index of an entry's URL: the one that is there if it names the same fields, else a new one.
fn index(place: &Place, entry: &Entry, names: &[Box<str>]) -> io::Result<Index> {
    let path = place.path_of(entry.key.text());
    if let Ok(file) = open_to_read(&path)
        && let Some(Content::Index(index)) = read_head(&file)
        && index.names == names
        && index.key == entry.key
    {
        return Ok(index);
    }
    let index = Index { key: entry.key.clone(), names: names.to_vec(), nonce: random::bytes()? };
    let file = File::from(new_file(&place.root)?);
    file.write_all_at(&index.encode(), 0)?;
    name(&file, &path)?;
    Ok(index)
}

/// A file without a name in the folder of a cache, which is made if it is not there.
fn new_file(root: &Path) -> io::Result<OwnedFd> {
    match nameless(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(root)?;
            nameless(root)
        }
        file => file,
    }
}

/// Gives a file its name, in place of a file that has it.
fn name(file: &File, path: &Path) -> io::Result<()> {
    let link = || link_nameless(file, path);
    let linked = match link() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            link()
        }
        linked => linked,
    };
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // Readers find the old file or the new one.
            let number = u64::from_le_bytes(random::bytes()?);
            let other = path.with_file_name(format!(".{number:016x}"));
            link_nameless(file, &other)?;
            fs::rename(&other, path).inspect_err(|_| drop(fs::remove_file(&other)))
        }
        linked => linked,
    }
}

fn copy(from: &OwnedFd, offset: u64, length: u64, to: &File, at: u64) -> io::Result<()> {
    let mut buffer = vec![0; STRETCH];
    let mut done = 0;
    while done < length {
        let wanted = usize::try_from(length - done).unwrap_or(STRETCH).min(STRETCH);
        let part = buffer.get_mut(..wanted).unwrap_or_default();
        let read = read_at(from, part, offset + done)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        to.write_all_at(part.get(..read).unwrap_or_default(), at + done)?;
        done += read as u64;
    }
    Ok(())
}

/// Whether a twentieth of a file system, or 1 GiB of a large one, stays free if so many bytes are
/// written to it.
fn leaves_reserve(space: &Space, bytes: u64) -> bool {
    space.free.saturating_sub(bytes) >= (space.total / 20).min(MOST_RESERVE)
}

/// Removes what is stored for a key, with all responses that differ by fields of the request.
///
/// # Errors
/// The file is there and cannot be removed.
pub fn remove(place: &Place, key: &[u8]) -> io::Result<()> {
    match fs::remove_file(place.path_of(key)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What the error log is to be told, and when the last message was.
static COMPLAINT: Mutex<(Option<String>, Option<Instant>)> = Mutex::new((None, None));

/// Reports that the cache cannot be written to.
pub fn complain(root: &Path, error: &io::Error) {
    let mut complaint = COMPLAINT.lock().unwrap_or_else(PoisonError::into_inner);
    let (text, last) = &mut *complaint;
    if last.is_some_and(|last| last.elapsed() < BETWEEN_COMPLAINTS) {
        return;
    }
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => {
            ": the user of the server (User) must be able to write to it"
        }
        ErrorKind::StorageFull => ": less than a twentieth or 1 GiB of its file system is free",
        _ => "",
    };
    *text = Some(format!(
        "CacheRoot {}: responses cannot be stored and are served without the cache: {error}{hint}",
        root.display()
    ));
    *last = Some(Instant::now());
}

/// The message for the error log, once.
#[must_use]
pub fn take_complaint() -> Option<String> {
    COMPLAINT.lock().unwrap_or_else(PoisonError::into_inner).0.take()
}
