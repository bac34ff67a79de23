//! Reading a password from the terminal without echo.

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};

/// Gives a terminal its echo back.
struct Echo<'a> {
    terminal: &'a File,
    modes: Termios,
}

impl Drop for Echo<'_> {
    fn drop(&mut self) {
        // A terminal that has gone needs none.
        let _ = termios::tcsetattr(self.terminal, OptionalActions::Flush, &self.modes);
    }
}

/// Asks at the terminal of the process and returns the line that is typed there, without its end.
///
/// # Errors
/// The process has no terminal, or the terminal has gone.
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
    if line.pop().is_some_and(|last| last != b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal has ended"));
    }
    Ok(line)
}
