//! The error logs of a site: writes notices at once as lines to files, programs and syslog.
//! LogLevel has already decided which notices are written. A log that cannot be written never stops
//! the server.

use crate::error_format::ErrorFormat;
use crate::error_line::{MOST_BYTES, Origin, write_default, write_startup};
use crate::program::Programs;
use crate::sink::{Queue, Sink};
use crate::syslog::Syslog;
use crate::target::Target;
use evenkeel_message::{Level, Notice, Told};
use evenkeel_sys::clock::realtime_us;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

/// The most bytes that wait for a disk or a program. Further lines are counted and lost.
const MOST_WAITING_BYTES: usize = 64 * 1024;

/// One error log of a site.
#[derive(Clone, Debug)]
pub struct ErrorLog {
    /// The destination of its lines.
    pub target: Target,
    /// The format of its lines; none for Apache's default.
    pub format: Option<ErrorFormat>,
    /// Lines before the first line of a connection.
    pub connection: Vec<ErrorFormat>,
    /// Lines before the first line of a request.
    pub request: Vec<ErrorFormat>,
}

/// The open error logs of a site. The parent opens them before it forks children.
pub struct ErrorLogs {
    outlets: Vec<Outlet>,
    logs: Vec<(usize, ErrorLog)>,
    /// The log of each virtual host.
    servers: Vec<usize>,
}

enum Outlet {
    Sink(Sink, Mutex<Waiting>),
    Syslog(Syslog),
}

#[derive(Default)]
struct Waiting {
    queue: Queue,
    lost: u64,
}

impl ErrorLogs {
    /// Opens every file and starts every program. The first log is the main server's, and `servers`
    /// holds the index of each virtual host's log. `name` is the name under which the server was
    /// started, for messages and syslog. The error is a notice for the administrator.
    pub fn open(
        logs: Vec<ErrorLog>,
        servers: Vec<usize>,
        name: &str,
        programs: &mut Programs,
    ) -> Result<ErrorLogs, Notice> {
        let mut targets: Vec<Target> = Vec::new();
        let mut outlets: Vec<Outlet> = Vec::new();
        let mut open = Vec::with_capacity(logs.len());
        for log in logs {
            let known = targets.iter().position(|target| *target == log.target);
            let outlet = match known {
                Some(outlet) => outlet,
                None => {
                    let main = outlets.first().and_then(Outlet::sink);
                    let outlet = open_outlet(&log.target, name, programs, main)?;
                    outlets.push(outlet);
                    targets.push(log.target.clone());
                    outlets.len() - 1
                }
            };
            open.push((outlet, log));
        }
        Ok(ErrorLogs { outlets, logs: open, servers })
    }

    /// The log before any other is open: standard error.
    #[must_use]
    pub fn standard_error() -> ErrorLogs {
        let outlet = Sink::standard_error().map(|sink| Outlet::Sink(sink, Mutex::default()));
        let target = Target::File("/dev/stderr".into());
        let log = ErrorLog { target, format: None, connection: Vec::new(), request: Vec::new() };
        ErrorLogs {
            outlets: outlet.into_iter().collect(),
            logs: vec![(0, log)],
            servers: Vec::new(),
        }
    }

    /// Writes a notice to the log of a virtual host, after the lines of its connection and its
    /// request if it is their first. `told` records that.
    pub fn write(&self, server: usize, notice: &Notice, origin: &Origin<'_>, told: &mut Told) {
        let index = self.servers.get(server).copied().unwrap_or_default();
        let Some((outlet, log)) = self.logs.get(index).or(self.logs.first()) else { return };
        let Some(outlet) = self.outlets.get(*outlet) else { return };
        let now_us = realtime_us();
        let mut lines = Vec::with_capacity(256);
        if origin.peer.is_some() && !told.connection {
            told.connection = true;
            let connection = Origin { request: None, ..*origin };
            for format in &log.connection {
                format.write(None, &connection, now_us, &mut lines);
            }
        }
        if origin.request.is_some() && !told.request {
            told.request = true;
            for format in &log.request {
                format.write(None, origin, now_us, &mut lines);
            }
        }
        let timed = !matches!(outlet, Outlet::Syslog(_));
        match &log.format {
            Some(format) => format.write(Some(notice), origin, now_us, &mut lines),
            None => write_default(notice, origin, now_us, timed, &mut lines),
        }
        outlet.write(notice.level, now_us, &lines);
    }

    /// Writes a notice that is not about a connection to the main server's log.
    pub fn write_plain(&self, notice: &Notice) {
        self.write(0, notice, &Origin::default(), &mut Told::default());
    }

    /// Makes the main server's log the standard error of the process, so that it gets what
    /// libraries, panics and programs print (Apache: ap_open_logs). Errors are those of dup3(2).
    pub fn take_standard_error(&self) -> io::Result<()> {
        match self.main_sink() {
            Some(sink) => sink.replace_standard_error(),
            // Syslog has no file descriptor, and the caller's standard error must be closed.
            None => {
                let null = std::fs::File::options().write(true).open("/dev/null")?;
                evenkeel_sys::process::replace_standard(2, &null)
            }
        }
    }

    /// The file or pipe of the main server's error log. Returns `None` if that log is syslog.
    pub(crate) fn main_sink(&self) -> Option<&Sink> {
        let (outlet, _) = self.logs.first()?;
        self.outlets.get(*outlet)?.sink()
    }

    /// Tries again to write what a program or a disk has not taken. Call it about once a second.
    pub fn retry(&self) {
        for outlet in &self.outlets {
            outlet.write(Level::Notice, 0, b"");
        }
    }

    /// The descriptors of the open files, pipes and sockets, which a process that is to write
    /// notices keeps open.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.outlets.iter().filter_map(Outlet::descriptor).collect()
    }

    /// Whether something must be tried again.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.outlets.iter().any(Outlet::is_waiting)
    }
}

/// The line of a notice in the default form, including its end, for a terminal.
#[must_use]
pub fn terminal_text(notice: &Notice) -> String {
    let mut line = Vec::with_capacity(MOST_BYTES);
    write_default(notice, &Origin::default(), realtime_us(), true, &mut line);
    String::from_utf8_lossy(&line).into_owned()
}

/// The text of a notice for the terminal while the server starts, including its line end (Apache:
/// APLOG_STARTUP).
#[must_use]
pub fn startup_text(notice: &Notice) -> String {
    let mut line = Vec::with_capacity(MOST_BYTES);
    write_startup(notice, &mut line);
    String::from_utf8_lossy(&line).into_owned()
}

/// Opens an error log. `main` is the main server's log, which becomes the standard error of a
/// program. It is `None` while the main server's log is being opened, and if that log is syslog.
fn open_outlet(
    target: &Target,
    name: &str,
    programs: &mut Programs,
    main: Option<&Sink>,
) -> Result<Outlet, Notice> {
    let failure = |number, text: String| Notice::new("core", Level::Error, number, text);
    if let Target::Syslog { facility, tag } = target {
        let tag = tag.as_deref().unwrap_or(name);
        let open = Syslog::open(facility.as_deref(), tag).map(Outlet::Syslog);
        return open.ok_or_else(|| {
            let facility = facility.as_deref().unwrap_or_default();
            failure(10036, format!("{name}: could not open syslog error log {facility}."))
        });
    }
    let path = target.describe();
    match Sink::open(target, programs, main) {
        Some(Ok(sink)) => Ok(Outlet::Sink(sink, Mutex::default())),
        Some(Err(error)) if matches!(target, Target::Program(_)) => {
            Err(failure(89, format!("Couldn't start ErrorLog process '{path}'.")).because(&error))
        }
        Some(Err(error)) => {
            Err(failure(91, format!("{name}: could not open error log file {path}."))
                .because(&error))
        }
        None => Err(failure(91, format!("{name}: could not open error log file {path}."))),
    }
}

impl Outlet {
    fn sink(&self) -> Option<&Sink> {
        match self {
            Outlet::Sink(sink, _) => Some(sink),
            Outlet::Syslog(_) => None,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Outlet::Sink(sink, _) => Some(sink.descriptor()),
            Outlet::Syslog(syslog) => syslog.descriptor(),
        }
    }

    fn write(&self, level: Level, now_us: u64, lines: &[u8]) {
        match self {
            Outlet::Syslog(syslog) => {
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    syslog.send(level, now_us, line);
                }
            }
            Outlet::Sink(sink, waiting) => {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.write(sink, lines);
            }
        }
    }

    fn is_waiting(&self) -> bool {
        let Outlet::Sink(_, waiting) = self else { return false };
        waiting.lock().unwrap_or_else(PoisonError::into_inner).is_waiting()
    }
}

impl Waiting {
    fn is_waiting(&self) -> bool {
        self.lost > 0 || !self.queue.lines.is_empty()
    }

    fn write(&mut self, sink: &Sink, lines: &[u8]) {
        if self.queue.lines.len() + lines.len() > MOST_WAITING_BYTES {
            self.lost += 1;
        } else {
            self.queue.lines.extend_from_slice(lines);
        }
        let drained: io::Result<()> = sink.drain(&mut self.queue);
        if drained.is_ok() && self.lost > 0 {
            let text = format!("{} lines of this log were lost", self.lost);
            self.lost = 0;
            let notice = Notice::own("core", Level::Warn, text);
            write_default(&notice, &Origin::default(), realtime_us(), true, &mut self.queue.lines);
            // What is not taken now is written with the next line.
            let _later = sink.drain(&mut self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_format::ErrorFormatKind;
    use evenkeel_message::{Peer, Request, RequestHead};

    fn open(folder: &std::path::Path, names: &[&str], connection: &str) -> ErrorLogs {
        let log = |name: &&str| ErrorLog {
            target: Target::File(folder.join(name)),
            format: Some(ErrorFormat::compile(ErrorFormatKind::Main, "[%l] %M").unwrap()),
            connection: vec![
                ErrorFormat::compile(ErrorFormatKind::Connection, connection).unwrap(),
            ],
            request: vec![ErrorFormat::compile(ErrorFormatKind::Request, "R %P").unwrap()],
        };
        let logs = names.iter().map(log).collect();
        ErrorLogs::open(logs, vec![0, 1], "evenkeel", &mut Programs::default()).unwrap()
    }

    #[test]
    fn each_host_has_its_log_and_connections_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let logs = open(folder.path(), &["main", "host"], "C %a");
        let peer = Peer {
            client: "192.0.2.1:4000".parse().unwrap(),
            local: "192.0.2.2:80".parse().unwrap(),
        };
        let request = Request::new(RequestHead::default(), peer, 1);
        let mut told = Told::default();
        let notice = Notice::new("core", Level::Info, 128, "File does not exist: /x");
        logs.write(1, &notice, &Origin::of_request(&request), &mut told);
        logs.write(1, &notice, &Origin::of_request(&request), &mut told);
        assert!(told.connection && told.request);
        logs.write_plain(&notice);
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let line = "[info] AH00128: File does not exist: /x\n";
        let pid = std::process::id();
        assert_eq!(read("host"), format!("C 192.0.2.1:4000\nR {pid}\n{line}{line}"));
        assert_eq!(read("main"), line);
    }

    #[test]
    fn a_log_that_cannot_be_opened_has_apaches_text() {
        let folder = tempfile::tempdir().unwrap();
        let log = ErrorLog {
            target: Target::File(folder.path().to_owned()),
            format: None,
            connection: Vec::new(),
            request: Vec::new(),
        };
        let open = |log| ErrorLogs::open(vec![log], vec![0], "apache2", &mut Programs::default());
        let notice = open(log.clone()).err().unwrap();
        assert_eq!(
            startup_text(&notice),
            format!(
                "(21)Is a directory: AH00091: apache2: could not open error log file {}.\n",
                folder.path().display()
            )
        );
        let syslog = Target::Syslog { facility: Some("nofac".into()), tag: None };
        let notice = open(ErrorLog { target: syslog, ..log }).err().unwrap();
        assert_eq!(notice.number, Some(10036));
    }

    #[test]
    fn lines_beyond_a_stalled_program_are_counted_and_told() {
        let (reader, writer) = evenkeel_sys::pipe::log_pipe().unwrap();
        let sink = Sink::of_pipe(writer.into());
        let mut waiting = Waiting::default();
        let line = format!("{}\n", "x".repeat(4000));
        for _ in 0..200 {
            waiting.write(&sink, line.as_bytes());
        }
        assert!(waiting.lost > 0 && waiting.queue.lines.len() <= MOST_WAITING_BYTES);
        let lost = waiting.lost;
        let reading = std::thread::spawn(move || io::read_to_string(std::fs::File::from(reader)));
        while waiting.is_waiting() {
            waiting.write(&sink, b"");
            std::thread::yield_now();
        }
        drop(sink);
        let text = reading.join().unwrap().unwrap();
        assert!(text.ends_with(&format!("{lost} lines of this log were lost\n")), "{lost}");
        assert_eq!(text.matches(&line).count() as u64, 200 - lost);
    }
}
