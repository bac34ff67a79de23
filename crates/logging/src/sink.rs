//! The file or pipe that log lines are written to. Each write consists of complete lines. What
//! cannot be written stays in the queue, from the beginning of the line that was cut; nothing is
//! dropped here.

use crate::target::{Program, Target};
use evenkeel_sys::pipe::WHOLE_WRITE;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// Opens a file for appending, with the mode that Apache gives to logs. Standard output and
/// standard error are already open, which matters if their names cannot be opened because they are
/// another user's terminal, or a socket. Apache does not start in that case.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o644).open(path);
    opened.or_else(|error| match standard_descriptor(path) {
        Some(1) => duplicate(&io::stdout()),
        Some(_) => duplicate(&io::stderr()),
        None => Err(error),
    })
}

/// The number of the standard descriptor (1 for output, 2 for errors) that a path names, directly
/// or through symbolic links, as log files in containers do. Returns `None` for all other paths.
fn standard_descriptor(path: &Path) -> Option<i32> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match path.to_str() {
            Some("/dev/stdout" | "/proc/self/fd/1") => return Some(1),
            Some("/dev/stderr" | "/proc/self/fd/2") => return Some(2),
            _ => {}
        }
        let target = path.read_link().ok()?;
        path = path.parent()?.join(target);
    }
    None
}

/// The most symbolic links that the kernel follows in a path (path_resolution(7)).
const MOST_LINKS: usize = 40;

fn duplicate(open: &impl AsFd) -> io::Result<File> {
    Ok(File::from(open.as_fd().try_clone_to_owned()?))
}

/// Starts the programs that logs are piped to. The parent implements it.
pub(crate) trait Start {
    /// Starts a program and returns the pipe to it and its successors. `errors` becomes the
    /// program's standard error. If it is `None`, standard error is the same as standard output, so
    /// that the program of an error log does not keep the pipe of the previous error log open.
    fn start(&mut self, program: &Program, errors: Option<&File>) -> io::Result<Arc<File>>;
}

/// An open file or pipe.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Arc<File>,
    /// The path or the command.
    pub name: String,
    /// Whether it is a pipe, so that a write must not be larger than what is written atomically.
    pub piped: bool,
}

/// Lines that wait to be written to a sink.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Complete lines.
    pub lines: Vec<u8>,
    /// Whether the last write ended within a line, which is then written again on a line of its
    /// own.
    torn: bool,
}

impl Sink {
    /// Opens the file or starts the program. Syslog is not a sink of lines: `None`.
    /// `errors` becomes the standard error of a program ([`Start::start`]).
    pub(crate) fn open(
        target: &Target,
        programs: &mut dyn Start,
        errors: Option<&Sink>,
    ) -> Option<io::Result<Sink>> {
        let opened = match target {
            Target::File(path) => open_file(path).map(|file| (Arc::new(file), false)),
            Target::Program(program) => {
                let errors = errors.map(|sink| &*sink.file);
                programs.start(program, errors).map(|pipe| (pipe, true))
            }
            Target::Syslog { .. } => return None,
        };
        Some(opened.map(|(file, piped)| Sink { file, name: target.describe(), piped }))
    }

    /// A duplicate of the process's standard error.
    pub(crate) fn standard_error() -> io::Result<Sink> {
        let file = duplicate(&io::stderr())?;
        Ok(Sink { file: Arc::new(file), name: "standard error".into(), piped: false })
    }

    /// The descriptor of the file or pipe.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Makes this sink the process's standard error.
    pub(crate) fn replace_standard_error(&self) -> io::Result<()> {
        evenkeel_sys::process::replace_standard(2, &*self.file)
    }

    /// A pipe whose reader is in the test.
    #[cfg(test)]
    pub(crate) fn of_pipe(writer: File) -> Sink {
        Sink { file: Arc::new(writer), name: "pipe".into(), piped: true }
    }

    /// Writes as much of the queue as the sink takes. `WouldBlock` means that a program is too
    /// slow; other errors are the disk's.
    pub(crate) fn drain(&self, queue: &mut Queue) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            let rest = queue.lines.get(done..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            if queue.torn {
                match self.write(b"\n") {
                    Ok(_) => queue.torn = false,
                    Err(error) => break Err(error),
                }
            }
            let lines = if self.piped { whole_lines(rest, WHOLE_WRITE) } else { rest };
            match self.write(lines) {
                Ok(count) if count == lines.len() => done += count,
                Ok(count) => {
                    let kept = lines.get(..count).map_or(0, end_of_last_line);
                    queue.torn = kept != count;
                    done += kept;
                }
                Err(error) => break Err(error),
            }
        };
        queue.lines.drain(..done);
        result
    }

    /// One write, repeated after an interruption by a signal. Writing nothing is an error, because
    /// a loop over it would not end.
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&*self.file).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

/// The complete lines of `bytes` that fit into `most`. A single longer line is cut there, since its
/// length was bounded when it was written.
fn whole_lines(bytes: &[u8], most: usize) -> &[u8] {
    let Some(first) = bytes.get(..most) else { return bytes };
    let end = end_of_last_line(first);
    first.get(..end).filter(|lines| !lines.is_empty()).unwrap_or(first)
}

/// The end of the last complete line.
fn end_of_last_line(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn queue(text: &str) -> Queue {
        Queue { lines: text.as_bytes().to_vec(), torn: false }
    }

    #[test]
    fn a_link_to_a_standard_descriptor_is_that_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let link = |name: &str, to: &str| {
            let path = folder.path().join(name);
            std::os::unix::fs::symlink(to, &path).unwrap();
            path
        };
        assert_eq!(standard_descriptor(&link("error.log", "/dev/stderr")), Some(2));
        assert_eq!(standard_descriptor(&link("access.log", "/proc/self/fd/1")), Some(1));
        assert_eq!(standard_descriptor(&link("further.log", "error.log")), Some(2));
        assert_eq!(standard_descriptor(&link("loop", "loop")), None);
        assert_eq!(standard_descriptor(&link("null", "/dev/null")), None);
    }

    #[test]
    fn a_full_disk_keeps_the_queue() {
        let file = Arc::new(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let sink = Sink { file, name: "full".into(), piped: false };
        let mut lines = queue("one\ntwo\n");
        let error = sink.drain(&mut lines).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(lines.lines, b"one\ntwo\n");
    }

    #[test]
    fn a_line_that_was_cut_is_written_again_on_a_line_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = Arc::new(open_file(&path).unwrap());
        (&*file).write_all(b"one\ntw").unwrap();
        let sink = Sink { file, name: "log".into(), piped: false };
        let mut lines = queue("two\n");
        lines.torn = true;
        sink.drain(&mut lines).unwrap();
        assert!(!lines.torn && lines.lines.is_empty());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntw\ntwo\n");
    }

    #[test]
    fn a_program_gets_whole_lines_and_the_rest_when_it_has_read() {
        let (reader, writer) = evenkeel_sys::pipe::log_pipe().unwrap();
        let sink = Sink { file: Arc::new(writer.into()), name: "p".into(), piped: true };
        let line = format!("{}\n", "x".repeat(999));
        let mut lines = queue(&line.repeat(1000));
        let error = sink.drain(&mut lines).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!lines.lines.is_empty() && lines.lines.len().is_multiple_of(1000));
        let mut reader = File::from(reader);
        let mut read = 0;
        let mut page = vec![0; 1 << 20];
        while sink.drain(&mut lines).is_err() {
            read += reader.read(&mut page).unwrap();
        }
        drop(sink);
        read += reader.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(read, 1_000_000);
    }

    #[test]
    fn writes_to_a_pipe_end_at_lines() {
        assert_eq!(whole_lines(b"one\ntwo\nthree\n", 9), b"one\ntwo\n");
        assert_eq!(whole_lines(b"one\n", 9), b"one\n");
        assert_eq!(whole_lines(b"a line that is too long\n", 9), b"a line th");
    }
}
