//! Leaving the caller's terminal. One process comes in, two go out: the caller, which waits to
//! hear whether the server serves, and the parent of the server, which tells it.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};

use evenkeel_sys::process::{self, Side};

/// On which side of the detachment the caller finds itself.
pub(crate) enum Detached {
    /// The process that called; the status that it should end with.
    Caller(i32),
    /// The new process, which is to become the server.
    Server(StartReport),
}

/// The promise to tell the caller how the start went. Dropped untold, it tells of a failure.
pub(crate) struct StartReport {
    pipe: PipeWriter,
}

/// Forks. The caller's side returns once the other has told the outcome or has ended.
pub(crate) fn detach() -> io::Result<Detached> {
    let (mut reader, pipe) = io::pipe()?;
    match process::fork()? {
        Side::Parent(_) => {
            drop(pipe);
            let mut status = [1_u8; 1];
            let told = reader.read(&mut status).unwrap_or(0);
            Ok(Detached::Caller(if told == 1 { i32::from(status[0]) } else { 1 }))
        }
        Side::Child => {
            process::leave_terminal()?;
            Ok(Detached::Server(StartReport { pipe }))
        }
    }
}

impl StartReport {
    /// Tells that the server serves and lets go of standard input and output, and of the folder
    /// in which it was started. Standard error is the error log's affair.
    pub(crate) fn success(mut self) -> io::Result<()> {
        leave_caller()?;
        self.pipe.write_all(&[0])
    }
}

/// Lets go of what the caller gave: standard input and output, and the folder in which it was. A
/// child that is forked before the parent has done so does it itself: else whoever reads what the
/// caller writes would wait for its end as long as that child lives.
pub(crate) fn leave_caller() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    process::replace_standard(0, &null)?;
    process::replace_standard(1, &null)?;
    std::env::set_current_dir("/")
}
