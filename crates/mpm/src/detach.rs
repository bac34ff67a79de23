//! Detaches from the caller's terminal by forking: the caller's process waits until the server
//! serves or fails, and the new one becomes the parent of the server.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};

use evenkeel_sys::process::{self, Side};

/// The side of the fork.
pub(crate) enum Detached {
    /// The calling process, with the status that it should end with.
    Caller(i32),
    /// The new process, which becomes the server.
    Server(StartReport),
}

/// Reports to the caller how the start went. Dropping it reports a failure.
pub(crate) struct StartReport {
    pipe: PipeWriter,
}

/// Forks. The caller's side returns once the other has reported success or ended.
pub(crate) fn detach() -> io::Result<Detached> {
    let (mut reader, pipe) = io::pipe()?;
    match process::fork()? {
        Side::Parent(pid) => {
            drop(pipe);
            let mut status = [1_u8; 1];
            let told = reader.read(&mut status).unwrap_or(0);
            if told == 1 {
                return Ok(Detached::Caller(i32::from(status[0])));
            }
            // The server has failed. Its last words are written once it has ended.
            let _status_unused = process::wait(pid);
            Ok(Detached::Caller(1))
        }
        Side::Child => {
            process::leave_terminal()?;
            Ok(Detached::Server(StartReport { pipe }))
        }
    }
}

impl StartReport {
    /// Reports that the server serves, and leaves the caller. Standard error belongs to the error
    /// log.
    pub(crate) fn success(mut self) -> io::Result<()> {
        leave_caller()?;
        self.pipe.write_all(&[0])
    }
}

/// Closes what the caller gave: standard input and output, and the working folder. A child that is
/// forked before the parent has done so calls it itself: otherwise a reader of the caller's output
/// would wait for the end of that child.
pub(crate) fn leave_caller() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    process::replace_standard(0, &null)?;
    process::replace_standard(1, &null)?;
    std::env::set_current_dir("/")
}
