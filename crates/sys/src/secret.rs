//! Reads a password from the terminal without echo.

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};

/// Restores the modes of a terminal when it is dropped.
struct Echo<'a> {
    terminal: &'a File,
    modes: Termios,
}

impl Drop for Echo<'_> {
    fn drop(&mut self) {
        // The call fails only if the terminal is gone.
        let _ = termios::tcsetattr(self.terminal, OptionalActions::Flush, &self.modes);
    }
}

/// Prints a prompt on the controlling terminal and returns the line that the user types, without
/// the newline. The terminal does not echo the line.
///
/// # Errors
/// The process has no controlling terminal, the terminal is gone, or the input ends before
/// the newline.
pub fn ask(prompt: &str) -> io::Result<Vec<u8>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let modes = termios::tcgetattr(&terminal)?;
    let mut silent = modes.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    terminal.write_all(prompt.as_bytes())?;
    let input = terminal.try_clone()?;
    let echo = Echo { terminal: &terminal, modes };
    termios::tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let mut line = Vec::new();
    let read = BufReader::new(input).read_until(b'\n', &mut line);
    drop(echo);
    terminal.write_all(b"\n")?;
    read?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal has ended"));
    }
    Ok(line)
}
