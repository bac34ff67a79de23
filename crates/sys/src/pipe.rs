//! Pipes to and from programs: a blocking end for the program, and a non-blocking one for the
//! server.

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The most bytes that one write puts into a pipe atomically (PIPE_BUF of limits.h); longer writes
/// may be mixed with others.
pub const WHOLE_WRITE: usize = 4096;

/// A pipe as (reading end, writing end), both close-on-exec. The writing end returns `WouldBlock`
/// while the reader does not keep up. Errors are pipe2(2)'s.
pub fn log_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&writer, OFlags::NONBLOCK)?;
    // If this is refused, the usual 64 KiB do as well, with more calls.
    let _size = fcntl_setpipe_size(&writer, 256 * 1024);
    Ok((reader, writer))
}

/// A pipe as (reading end, writing end), both close-on-exec, whose writing end does not block. A
/// program reads the other end. Errors are pipe2(2)'s.
pub fn input_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&writer, OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

/// A pipe as (reading end, writing end), both close-on-exec, whose reading end does not block. A
/// program writes the other end. Errors are pipe2(2)'s.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

/// Reads from a pipe that does not block. `Ok(0)` is its end; errors are read(2)'s.
pub fn read(pipe: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut *buffer))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_full_pipe_refuses_and_takes_whole_writes_only() {
        let (reader, writer) = log_pipe().unwrap();
        let mut writer = std::fs::File::from(writer);
        let line = [b'x'; WHOLE_WRITE];
        let mut written = 0;
        while let Ok(count) = writer.write(&line) {
            assert_eq!(count, WHOLE_WRITE);
            written += count;
        }
        assert!(written >= 64 * 1024);
        let mut reader = std::fs::File::from(reader);
        let mut page = [0; WHOLE_WRITE];
        reader.read_exact(&mut page).unwrap();
        assert_eq!(writer.write(&line).unwrap(), WHOLE_WRITE);
    }
}
