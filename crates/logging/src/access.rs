//! The access logs of a site. Each serving thread has a recorder, which writes the lines of
//! finished exchanges in batches to files and programs. The lines wait in memory that outlives the
//! process. A recorder never waits for a disk or a program.

use crate::error_log::ErrorLogs;
use crate::exchange::LoggedExchange;
use crate::format::LineFormat;
use crate::program::Programs;
use crate::sink::{Queue, Sink};
use crate::target::Target;
use crate::turns::Turns;
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::LineWriter;
use evenkeel_sys::clock;
use evenkeel_sys::pipe::WHOLE_WRITE;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The bytes of the shared buffer that holds the unwritten lines of one serving thread.
pub const BUFFER_BYTES: usize = 64 * 1024;

/// This many bytes are written at once, before the buffer is full.
const BATCH_BYTES: usize = 32 * 1024;

/// A buffer of more bytes than this is written even while another thread writes to the log, because
/// another line of the greatest length might not fit.
const MOST_BEFORE_TURN: usize = BATCH_BYTES + BATCH_BYTES / 2;

/// The most bytes of one line. A longer line has its longest item cut.
const MOST_LINE_BYTES: usize = 32 * 1024;

/// The most bytes that wait until a disk has room. Further lines are counted and lost.
const MOST_WAITING_BYTES: usize = 1024 * 1024;

/// The shortest time between two messages about failures and losses in the error log.
const TELL_EVERY_US: u64 = 1_000_000;

/// The time after which a log that could not be written is tried again.
const RETRY_EVERY_US: u64 = 50_000;

/// One access log of a site.
#[derive(Clone)]
pub struct AccessLog {
    /// The destination of its lines.
    pub target: Target,
    /// The format of its lines.
    pub format: LineFormat,
    /// The exchanges that it records.
    pub condition: Condition,
}

/// Which exchanges a log records.
#[derive(Clone, Default)]
pub enum Condition {
    /// All.
    #[default]
    Always,
    /// `env=NAME`: exchanges with this variable in their environment.
    Set(Box<[u8]>),
    /// `env=!NAME`: exchanges without it.
    Unset(Box<[u8]>),
    /// `expr=EXPRESSION`: exchanges for which the expression holds.
    Holds(Arc<Test>),
}

/// An expression. The room that can evaluate it for an exchange compiles it.
pub type Test = dyn Fn(&LoggedExchange<'_>) -> bool + Send + Sync;

impl Condition {
    /// Parses `NAME` or `!NAME`, the part of `env=NAME` after the equals sign.
    #[must_use]
    pub fn of_variable(name: &str) -> Condition {
        match name.strip_prefix('!') {
            Some(name) => Condition::Unset(name.as_bytes().into()),
            None => Condition::Set(name.as_bytes().into()),
        }
    }

    fn holds(&self, exchange: &LoggedExchange<'_>) -> bool {
        match self {
            Condition::Always => true,
            Condition::Set(name) => exchange.request.resource.env.contains(name),
            Condition::Unset(name) => !exchange.request.resource.env.contains(name),
            Condition::Holds(test) => test(exchange),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Always => f.write_str("Always"),
            Condition::Set(name) => write!(f, "Set({})", String::from_utf8_lossy(name)),
            Condition::Unset(name) => write!(f, "Unset({})", String::from_utf8_lossy(name)),
            Condition::Holds(_) => f.write_str("Holds"),
        }
    }
}

/// The open access logs of a site. The parent opens them before it forks children.
pub struct AccessLogs {
    sinks: Vec<Sink>,
    logs: Vec<(usize, AccessLog)>,
    /// The logs of each virtual host.
    servers: Vec<Arc<[usize]>>,
    buffered: bool,
    /// Which thread may write to each sink.
    turns: Turns,
    /// Lines of dead children that a program has not yet taken.
    salvaged: Mutex<Vec<Queue>>,
}

impl AccessLogs {
    /// Opens every file and starts every program. `servers` lists for each virtual host the indices
    /// of its logs. The error is a notice for the administrator.
    pub fn open(
        logs: Vec<AccessLog>,
        servers: Vec<Arc<[usize]>>,
        buffered: bool,
        programs: &mut Programs,
        errors: Option<&ErrorLogs>,
    ) -> Result<AccessLogs, Notice> {
        let mut targets: Vec<Target> = Vec::new();
        let mut sinks = Vec::new();
        let mut open = Vec::with_capacity(logs.len());
        for log in logs {
            let known = targets.iter().position(|target| *target == log.target);
            let sink = match known {
                Some(sink) => sink,
                None => {
                    sinks.push(open_sink(&log.target, programs, errors)?);
                    targets.push(log.target.clone());
                    sinks.len() - 1
                }
            };
            open.push((sink, log));
        }
        let salvaged = Mutex::new(sinks.iter().map(|_| Queue::default()).collect());
        let turns = Turns::new(sinks.len()).map_err(|error| {
            let text = "no memory for the turns of transfer logs";
            Notice::own("log_config", Level::Error, text).because(&error)
        })?;
        Ok(AccessLogs { sinks, logs: open, servers, buffered, turns, salvaged })
    }

    /// Writes what a dead child left in its buffer; called by the parent. Nothing in the buffer is
    /// trusted: reading ends at the first byte that is not a record. If a program or a disk has
    /// taken nothing for long and there is no room, lines are lost; returns their bytes.
    #[must_use]
    pub fn salvage(&self, left: &[u8]) -> usize {
        let mut lost = 0;
        let mut waiting = self.salvaged.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = left;
        while let Some((sink, lines, after)) = read_record(rest) {
            // Only complete lines, whatever happened to the writer.
            if let Some(queue) = waiting.get_mut(sink)
                && lines.ends_with(b"\n")
            {
                if queue.lines.len() + lines.len() <= MOST_WAITING_BYTES {
                    queue.lines.extend_from_slice(lines);
                } else {
                    lost += lines.len();
                }
            }
            rest = after;
        }
        self.write_waiting(&mut waiting);
        lost
    }

    /// Tries again to write lines of dead children that a program or a disk did not take. The
    /// parent calls it about once a second.
    pub fn retry(&self) {
        let mut waiting = self.salvaged.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_waiting(&mut waiting);
    }

    fn write_waiting(&self, waiting: &mut [Queue]) {
        for (sink, queue) in self.sinks.iter().zip(waiting) {
            // What is left is tried again later.
            let _later = sink.drain(queue);
        }
    }
}

fn open_sink(
    target: &Target,
    programs: &mut Programs,
    errors: Option<&ErrorLogs>,
) -> Result<Sink, Notice> {
    let name = target.describe();
    match Sink::open(target, programs, errors.and_then(ErrorLogs::main_sink)) {
        Some(Ok(sink)) => Ok(sink),
        Some(Err(error)) if matches!(target, Target::Program(_)) => {
            let text = format!("unable to start piped log program '{name}'");
            Err(Notice::new("core", Level::Error, 104, text).because(&error))
        }
        Some(Err(error)) => {
            let text = format!("could not open transfer log file {name}.");
            Err(Notice::new("log_config", Level::Error, 649, text).because(&error))
        }
        None => {
            let text = format!("invalid transfer log path {name}.");
            Err(Notice::new("log_config", Level::Error, 648, text))
        }
    }
}

/// The head of a record in the shared buffer: the sink and the number of bytes of the lines that
/// follow.
const RECORD_HEAD: usize = 8;

/// Copies lines to the shared buffer if it has room. The buffer is larger than a batch, so only
/// lines that a stalled program or a full disk holds back can find no room.
fn append_record(safe: &mut LineWriter, sink: usize, lines: &[u8]) {
    let room = safe.capacity().saturating_sub(safe.len());
    if lines.is_empty() || room < RECORD_HEAD + lines.len() {
        return;
    }
    let word = (sink as u64) << 32 | (lines.len() as u64 & u64::from(u32::MAX));
    // If the process dies between the two, a head without lines remains, which ends the parent's
    // reading.
    let _fits = safe.append(&word.to_le_bytes()) && safe.append(lines);
}

fn read_record(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD>()?;
    let word = u64::from_le_bytes(*head);
    let length = (word & u64::from(u32::MAX)) as usize;
    let lines = rest.get(..length)?;
    Some(((word >> 32) as usize, lines, rest.get(length..)?))
}

/// The recorder of one serving thread.
pub struct Recorder {
    logs: Arc<AccessLogs>,
    errors: Arc<ErrorLogs>,
    /// The copy of the queues that the parent finds if this process dies.
    safe: Option<LineWriter>,
    queues: Vec<Queue>,
    waiting: usize,
    blocked: bool,
    failing: bool,
    lost: u64,
    told_us: u64,
    flushed_us: u64,
}

impl Recorder {
    /// A recorder for one thread. Without a buffer, unwritten lines are lost with the process.
    #[must_use]
    pub fn new(
        logs: Arc<AccessLogs>,
        errors: Arc<ErrorLogs>,
        safe: Option<LineWriter>,
    ) -> Recorder {
        let queues = logs.sinks.iter().map(|_| Queue::default()).collect();
        Recorder {
            logs,
            errors,
            safe,
            queues,
            waiting: 0,
            blocked: false,
            failing: false,
            lost: 0,
            told_us: 0,
            flushed_us: 0,
        }
    }

    /// Records an exchange in each log of its virtual host whose condition holds.
    pub fn record(&mut self, exchange: &LoggedExchange<'_>) {
        let (server, mut at) = (exchange.request.server, 0);
        while let Some(log) = self.logs.servers.get(server).and_then(|logs| logs.get(at)) {
            self.append(*log, exchange);
            at += 1;
        }
        let is_buffered = self.logs.buffered;
        if !is_buffered || self.waiting >= BATCH_BYTES {
            let end_us = exchange.request.time_us.saturating_add(exchange.transfer.duration_us);
            // If the last write failed, do not try again with every request.
            let held_back = self.blocked || self.failing;
            if !held_back || end_us.abs_diff(self.flushed_us) >= RETRY_EVERY_US {
                let now = !is_buffered || self.waiting >= MOST_BEFORE_TURN;
                self.write(end_us, now);
            }
        }
    }

    /// Writes the waiting lines, except those for a log that another thread is writing to. Call it
    /// at least once a second while lines wait, and when the thread has nothing to do. `now_us` is
    /// the time since 1970.
    pub fn flush(&mut self, now_us: u64) {
        self.write(now_us, false);
    }

    /// The same. With `now` it waits for another thread that writes to the log.
    fn write(&mut self, now_us: u64, now: bool) {
        if self.waiting == 0 {
            return;
        }
        let logs = Arc::clone(&self.logs);
        let (mut problem, mut had_turn) = (None, false);
        let was_blocked = std::mem::take(&mut self.blocked);
        self.flushed_us = now_us;
        self.waiting = 0;
        for (at, (sink, queue)) in logs.sinks.iter().zip(&mut self.queues).enumerate() {
            if queue.lines.is_empty() {
                continue;
            }
            let turn = logs.turns.take(at, clock::monotonic_coarse_us());
            if now || turn.is_some() {
                had_turn = true;
                match sink.drain(queue) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
                    Err(error) => problem = Some((sink.name.clone(), error)),
                }
            } else {
                self.blocked |= was_blocked;
            }
            self.waiting += queue.lines.len();
        }
        if had_turn {
            self.copy_queues();
            self.tell(problem, now_us);
        }
    }

    /// Whether lines wait to be written, so that [`Recorder::flush`] is due within a second.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a program has stopped reading and its lines fill the buffer. No request may then
    /// begin until calls of [`Recorder::flush`] have emptied it. The lines of requests in progress
    /// still find room.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked && self.waiting >= BATCH_BYTES
    }

    /// Appends the line of an exchange to the queue of a log, if the log records it.
    fn append(&mut self, log: usize, exchange: &LoggedExchange<'_>) {
        let Some((sink, log)) = self.logs.logs.get(log) else { return };
        let (Some(queue), Some(place)) = (self.queues.get_mut(*sink), self.logs.sinks.get(*sink))
        else {
            return;
        };
        if !log.condition.holds(exchange) {
            return;
        }
        let start = queue.lines.len();
        if self.failing && start >= MOST_WAITING_BYTES {
            self.lost += 1;
            return;
        }
        let most = if place.piped { WHOLE_WRITE } else { MOST_LINE_BYTES };
        log.format.write_within(exchange, most, &mut queue.lines);
        let line = queue.lines.get(start..).unwrap_or_default();
        self.waiting += line.len();
        if let Some(safe) = &mut self.safe {
            append_record(safe, *sink, line);
        }
    }

    /// Makes the shared copy equal to the queues, after something was written.
    fn copy_queues(&mut self) {
        let Some(safe) = &mut self.safe else { return };
        safe.clear();
        for (sink, queue) in self.queues.iter().enumerate() {
            let mut lines = &*queue.lines;
            // As many complete lines as fit.
            let room = safe.capacity().saturating_sub(safe.len() + RECORD_HEAD);
            if let Some(first) = lines.get(..room) {
                let end = first.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                lines = first.get(..end).unwrap_or_default();
            }
            append_record(safe, sink, lines);
        }
    }

    /// Reports in the error log that a log cannot be written, or that it can be written again.
    fn tell(&mut self, problem: Option<(String, io::Error)>, now_us: u64) {
        match problem {
            Some((name, error)) => {
                self.failing = true;
                if now_us.saturating_sub(self.told_us) >= TELL_EVERY_US {
                    self.told_us = now_us;
                    let text = format!("Error writing to {name}");
                    let notice = Notice::new("log_config", Level::Warn, 646, text);
                    self.errors.write_plain(&notice.because(&error));
                }
            }
            None if self.failing => {
                let text = format!("access logs are written again, {} lines were lost", self.lost);
                self.errors.write_plain(&Notice::own("log_config", Level::Notice, text));
                (self.failing, self.lost) = (false, 0);
            }
            None => {}
        }
    }
}

impl Drop for Recorder {
    /// Writes what is left when the thread ends. If a program does not read, the parent finds the
    /// lines in the shared copy.
    fn drop(&mut self) {
        self.write(clock::realtime_us(), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{
        Peer, Request, RequestHead, Response, Status, Transfer, UriOptions, UrlPath,
    };
    use evenkeel_scoreboard::LineBuffers;
    use std::path::Path;

    struct Case {
        request: Request,
        response: Response,
        transfer: Transfer,
    }

    impl Case {
        fn new(server: usize) -> Case {
            let peer = Peer {
                client: "192.0.2.1:4000".parse().unwrap(),
                local: "192.0.2.2:80".parse().unwrap(),
            };
            let mut request = Request::new(RequestHead::default(), peer, 1_000_000);
            request.server = server;
            request.resource.path = UrlPath::parse(b"/x", UriOptions::default()).unwrap();
            let response = Response::new(Status::OK);
            Case { request, response, transfer: Transfer::default() }
        }

        fn exchange(&self) -> LoggedExchange<'_> {
            LoggedExchange {
                request: &self.request,
                response: &self.response,
                transfer: &self.transfer,
                server_name: b"",
                used_name: b"",
                server_port: 80,
                remote_host: None,
                content_length: Some(700),
                keep_alive: false,
                keep_alive_told: None,
                chunked: false,
                track_first_byte: false,
            }
        }
    }

    fn log(folder: &Path, name: &str, format: &str, condition: Condition) -> AccessLog {
        let target = Target::of_access_log(name, folder);
        AccessLog { target, format: LineFormat::compile(format).unwrap(), condition }
    }

    fn open(logs: Vec<AccessLog>, servers: Vec<Vec<usize>>, buffered: bool) -> Arc<AccessLogs> {
        let servers = servers.into_iter().map(Into::into).collect();
        Arc::new(AccessLogs::open(logs, servers, buffered, &mut Programs::default(), None).unwrap())
    }

    fn recorder(logs: &Arc<AccessLogs>, safe: Option<LineWriter>) -> Recorder {
        let silent = crate::ErrorLog {
            target: Target::File("/dev/null".into()),
            format: None,
            connection: Vec::new(),
            request: Vec::new(),
        };
        let errors =
            ErrorLogs::open(vec![silent], vec![0], "test", &mut Programs::default()).unwrap();
        Recorder::new(Arc::clone(logs), Arc::new(errors), safe)
    }

    fn read(folder: &Path, name: &str) -> String {
        std::fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn each_host_writes_its_logs_where_the_condition_holds() {
        let folder = tempfile::tempdir().unwrap();
        let logs = vec![
            log(folder.path(), "a", "a %U", Condition::Always),
            log(folder.path(), "b", "set %U", Condition::of_variable("mark")),
            log(folder.path(), "b", "unset %U", Condition::of_variable("!mark")),
            log(folder.path(), "c", "c", Condition::Holds(Arc::new(|e| e.request.server == 1))),
        ];
        let logs = open(logs, vec![vec![0, 3], vec![1, 2, 3]], false);
        let mut recorder = recorder(&logs, None);
        recorder.record(&Case::new(0).exchange());
        let mut case = Case::new(1);
        recorder.record(&case.exchange());
        case.request.resource.env.set("mark", "");
        recorder.record(&case.exchange());
        // A host that does not exist has no log.
        recorder.record(&Case::new(2).exchange());
        assert_eq!(read(folder.path(), "a"), "a /x\n");
        assert_eq!(read(folder.path(), "b"), "unset /x\nset /x\n");
        assert_eq!(read(folder.path(), "c"), "c\nc\n");
        assert!(!recorder.is_waiting());
    }

    #[test]
    fn buffered_lines_are_written_at_the_flush_and_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let logs = vec![
            log(folder.path(), "a", "a %U", Condition::Always),
            log(folder.path(), "b", "b", Condition::Always),
        ];
        let logs = open(logs, vec![vec![0, 1]], true);
        let buffers = LineBuffers::new(1, BUFFER_BYTES).unwrap();
        let mut recorder = recorder(&logs, buffers.writer(0));
        recorder.record(&Case::new(0).exchange());
        assert!(recorder.is_waiting());
        assert_eq!(read(folder.path(), "a"), "");
        // A killed process does not run its destructors.
        std::mem::forget(recorder);
        let _lost = logs.salvage(&buffers.leftover(0));
        assert_eq!(
            (read(folder.path(), "a"), read(folder.path(), "b")),
            ("a /x\n".into(), "b\n".into())
        );

        let mut recorder = self::recorder(&logs, buffers.writer(0));
        recorder.record(&Case::new(0).exchange());
        recorder.flush(2_000_000);
        assert_eq!(read(folder.path(), "a"), "a /x\na /x\n");
        assert!(buffers.leftover(0).is_empty() && !recorder.is_waiting());
        recorder.record(&Case::new(0).exchange());
        drop(recorder);
        assert_eq!(read(folder.path(), "a").lines().count(), 3);
    }

    #[test]
    fn lines_wait_while_another_writes_to_the_log_until_the_buffer_is_nearly_full() {
        let folder = tempfile::tempdir().unwrap();
        let line = "x".repeat(99);
        let mut logs =
            open(vec![log(folder.path(), "a", &line, Condition::Always)], vec![vec![0]], true);
        Arc::get_mut(&mut logs).unwrap().turns.longest_us = u64::MAX;
        let buffers = LineBuffers::new(1, BUFFER_BYTES).unwrap();
        let mut recorder = recorder(&logs, buffers.writer(0));
        let case = Case::new(0);
        // Another process is stopped while it writes.
        let turn = logs.turns.take(0, 1).unwrap();
        let mut count = 0;
        while read(folder.path(), "a").is_empty() {
            recorder.record(&case.exchange());
            recorder.flush(0);
            count += 1;
            assert!(buffers.leftover(0).len() >= recorder.waiting);
        }
        assert_eq!(count, MOST_BEFORE_TURN.div_ceil(100));
        recorder.record(&case.exchange());
        recorder.flush(0);
        assert!(recorder.is_waiting());
        drop(turn);
        recorder.flush(0);
        assert_eq!(read(folder.path(), "a").lines().count(), count + 1);
    }

    #[test]
    fn a_forged_buffer_writes_nothing_that_is_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let logs = open(vec![log(folder.path(), "a", "a", Condition::Always)], vec![vec![0]], true);
        let _lost = logs.salvage(&[0xff; 64]);
        let record = |sink: u64, text: &[u8]| {
            let mut bytes = (sink << 32 | text.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(text);
            bytes
        };
        let _lost =
            logs.salvage(&[record(9, b"x\n"), record(0, b"cut"), record(0, b"ok\n")].concat());
        let _lost = logs.salvage(&record(0, b"short\n")[..10]);
        assert_eq!(read(folder.path(), "a"), "ok\n");
    }

    #[test]
    fn a_batch_is_written_before_the_buffer_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let line = "x".repeat(99);
        let logs =
            open(vec![log(folder.path(), "a", &line, Condition::Always)], vec![vec![0]], true);
        let buffers = LineBuffers::new(1, BUFFER_BYTES).unwrap();
        let mut recorder = recorder(&logs, buffers.writer(0));
        let case = Case::new(0);
        for _ in 0..1000 {
            recorder.record(&case.exchange());
            assert!(buffers.leftover(0).len() >= recorder.waiting);
        }
        assert!(recorder.waiting < BATCH_BYTES);
        assert!(read(folder.path(), "a").lines().count() >= 1000 - BATCH_BYTES / 100);
    }

    #[test]
    fn a_full_disk_loses_only_what_finds_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let line = "x".repeat(9_999);
        let full = log(folder.path(), "/dev/full", &line, Condition::Always);
        let logs = open(vec![full], vec![vec![0]], true);
        let mut recorder = recorder(&logs, None);
        let case = Case::new(0);
        for _ in 0..200 {
            recorder.record(&case.exchange());
        }
        assert!(recorder.failing && !recorder.is_blocked());
        let kept = recorder.waiting as u64 / 10_000;
        assert_eq!((kept, recorder.lost), (105, 95));
    }

    #[test]
    fn a_program_that_does_not_read_blocks_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let line = "y".repeat(999);
        let gate = folder.path().join("gate");
        let out = folder.path().join("out");
        let command = format!(
            "|$while [ ! -e '{}' ]; do sleep 0.02; done; exec cat > '{}'",
            gate.display(),
            out.display()
        );
        let mut programs = Programs::default();
        let logs = vec![log(folder.path(), &command, &line, Condition::Always)];
        let logs = AccessLogs::open(logs, vec![[0].into()], true, &mut programs, None).unwrap();
        let logs = Arc::new(logs);
        let mut recorder = recorder(&logs, None);
        let mut case = Case::new(0);
        let mut count = 0;
        while !recorder.is_blocked() {
            recorder.record(&case.exchange());
            case.request.time_us += RETRY_EVERY_US;
            count += 1;
        }
        // Requests in progress still find room.
        recorder.record(&case.exchange());
        std::fs::write(&gate, "").unwrap();
        while recorder.is_waiting() {
            recorder.flush(0);
            std::thread::yield_now();
        }
        assert!(!recorder.is_blocked());
        drop((recorder, logs));
        let pid = i32::try_from(programs.pids()[0]).unwrap();
        drop(programs.turn());
        let pid = evenkeel_sys::process::Pid::from_raw(pid).unwrap();
        evenkeel_sys::process::wait(pid).unwrap();
        assert_eq!(read(folder.path(), "out"), format!("{line}\n").repeat(count + 1));
    }

    #[test]
    fn long_lines_are_cut_to_one_write() {
        let folder = tempfile::tempdir().unwrap();
        let line = "z".repeat(50_000);
        let logs =
            open(vec![log(folder.path(), "a", &line, Condition::Always)], vec![vec![0]], false);
        recorder(&logs, None).record(&Case::new(0).exchange());
        let text = read(folder.path(), "a");
        assert_eq!((text.len(), text.lines().count()), (MOST_LINE_BYTES, 1));
    }
}
