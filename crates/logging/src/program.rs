//! The programs that logs are piped to. The parent starts them. A program that ends is started
//! again on the same pipe, so that its successor gets what it had not yet read. A pipe that no site
//! uses any more is closed, which makes its program end.

use crate::sink::Start;
use crate::target::Program;
use evenkeel_message::{Level, Notice};
use evenkeel_sys::pipe::log_pipe;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Weak};

/// The running programs. Their processes are children of the parent, which reaps them and reports
/// that here.
#[derive(Debug, Default)]
pub struct Programs {
    running: Vec<Running>,
    /// Whether the server detaches from its caller. A program must then not keep the caller's
    /// standard output open.
    detached: bool,
}

#[derive(Debug)]
struct Running {
    program: Program,
    reader: OwnedFd,
    /// Whether its standard error is the error log. Otherwise it is its standard output.
    complains: bool,
    /// Only sites own the writing end: a child that has dropped the site of another generation must
    /// not keep that site's programs from ending.
    writer: Weak<File>,
    /// None while the program is not running.
    pid: Option<u32>,
    started_us: u64,
}

/// A program that ends sooner than this after its start is not started again before this time.
const SHORTEST_LIFE_US: u64 = 1_000_000;

impl Start for Programs {
    fn start(&mut self, program: &Program, errors: Option<&File>) -> io::Result<Arc<File>> {
        let (reader, writer) = log_pipe()?;
        let writer = Arc::new(File::from(writer));
        let complaints = match errors {
            Some(errors) => Some(Stdio::from(errors.try_clone()?)),
            None => None,
        };
        let pid = spawn(program, &reader, self.detached, complaints)?;
        self.running.push(Running {
            program: program.clone(),
            reader,
            complains: errors.is_some(),
            writer: Arc::downgrade(&writer),
            pid: Some(pid),
            started_us: evenkeel_sys::clock::monotonic_us(),
        });
        Ok(writer)
    }
}

impl Programs {
    /// Creates an empty list. `detached` is whether the server detaches from its caller.
    #[must_use]
    pub fn new(detached: bool) -> Self {
        Self { running: Vec::new(), detached }
    }

    /// Handles the end of a process. The notice is for the error log, if the process was a program
    /// that is still needed.
    pub fn ended(&mut self, pid: u32) -> Option<Notice> {
        let ended = self.running.iter_mut().find(|running| running.pid == Some(pid))?;
        ended.pid = None;
        if ended.writer.strong_count() == 0 {
            return None;
        }
        let text = format!("piped log program '{}' failed unexpectedly", ended.program.command);
        Some(Notice::new("core", Level::Error, 106, text))
    }

    /// Starts programs again that have ended and are due, and closes pipes that no site uses. Call
    /// it about once a second and after the end of each process. The notices are for the error log.
    pub fn turn(&mut self) -> Vec<Notice> {
        self.running.retain(|running| running.writer.strong_count() > 0);
        let now_us = evenkeel_sys::clock::monotonic_us();
        let mut notices = Vec::new();
        for running in &mut self.running {
            let due = running.started_us.saturating_add(SHORTEST_LIFE_US) <= now_us;
            if running.pid.is_some() || !due {
                continue;
            }
            running.started_us = now_us;
            // The parent's standard error is the main error log at this point.
            let errors = running.complains.then(Stdio::inherit);
            match spawn(&running.program, &running.reader, self.detached, errors) {
                Ok(pid) => running.pid = Some(pid),
                Err(error) => {
                    let command = &running.program.command;
                    let text = format!("unable to start piped log program '{command}'");
                    notices.push(Notice::new("core", Level::Error, 104, text).because(&error));
                }
            }
        }
        notices
    }

    /// The processes that are running.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.running.iter().filter_map(|running| running.pid).collect()
    }
}

/// Starts the program with the pipe as its standard input. Its standard output is /dev/null if
/// `detached`, and that of the server otherwise. Its standard error is `errors`, or its standard
/// output if `errors` is `None`. The standard library uses posix_spawn and closes all descriptors
/// except the first three.
fn spawn(
    program: &Program,
    reader: &OwnedFd,
    detached: bool,
    errors: Option<Stdio>,
) -> io::Result<u32> {
    let words = program.words();
    let Some((name, arguments)) = words.split_first() else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let output = || match detached {
        true => Ok(Stdio::null()),
        false => io::stdout().as_fd().try_clone_to_owned().map(Stdio::from),
    };
    let errors = match errors {
        Some(errors) => errors,
        None => output()?,
    };
    let child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::from(reader.try_clone()?))
        .stdout(output()?)
        .stderr(errors)
        .spawn()?;
    Ok(child.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn shell(command: String) -> Program {
        Program { command, shell: true }
    }

    #[test]
    fn a_successor_reads_on_where_the_program_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut programs = Programs::default();
        // Reads one line, writes it to the file and ends.
        let command = format!("read line; echo \"$line\" >> '{}'", path.display());
        let pipe = programs.start(&shell(command), None).unwrap();
        (&*pipe).write_all(b"one\n").unwrap();
        let pid = programs.pids()[0];
        assert!(wait(pid));
        let notice = programs.ended(pid).unwrap();
        assert_eq!(notice.number, Some(106));
        (&*pipe).write_all(b"two\n").unwrap();
        // It is not started before its minimum lifetime is over.
        programs.running[0].started_us = evenkeel_sys::clock::monotonic_us();
        assert!(programs.turn().is_empty() && programs.pids().is_empty());
        programs.running[0].started_us = 0;
        assert!(programs.turn().is_empty());
        assert!(wait(programs.pids()[0]));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_pipe_that_nobody_uses_is_closed() {
        let mut programs = Programs::default();
        let pipe = programs.start(&shell("cat > /dev/null".into()), None).unwrap();
        let pid = programs.pids()[0];
        drop(pipe);
        assert!(programs.turn().is_empty() && programs.pids().is_empty());
        // It ends at the end of its input.
        assert!(wait(pid));
        assert_eq!(programs.ended(pid), None);
    }

    #[test]
    fn a_command_that_does_not_exist_is_an_error() {
        let program = Program { command: "/nonexistent/logger x".into(), shell: false };
        let error = Programs::default().start(&program, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    /// Waits for the end of a child.
    fn wait(pid: u32) -> bool {
        let pid = evenkeel_sys::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        evenkeel_sys::process::wait(pid).is_ok()
    }
}
