//! Passphrases of encrypted keys (SSLPassPhraseDialog). A passphrase that opened a key is kept
//! until the process ends, so that a reload needs nobody at the terminal.

use super::Dialog;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the terminal is asked for one key (ssl_engine_pphrase.c, BUILTIN_DIALOG_RETRIES).
const ATTEMPTS: usize = 5;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Passphrases that have opened a key of this process.
static KNOWN: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// The passphrases for one key.
pub(super) struct Asking<'a> {
    dialog: &'a Dialog,
    /// `www.example.org:443`.
    host: &'a str,
    /// The number of the key among those of the host, from 0.
    index: usize,
    /// How many passphrases were known before this key.
    known: usize,
}

impl<'a> Asking<'a> {
    pub(super) fn new(dialog: &'a Dialog, host: &'a str, index: usize) -> Self {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).len();
        Self { dialog, host, index, known }
    }

    /// The passphrase for an attempt, from 0; none when there is no other.
    pub(super) fn ask(&self, attempt: usize) -> Result<Option<Vec<u8>>, String> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if attempt < self.known {
            return Ok(known.get(attempt).cloned());
        }
        // What this key was asked for before has not opened it.
        known.truncate(self.known);
        let passphrase = match (self.dialog, attempt - self.known) {
            (Dialog::Builtin, again) if again < ATTEMPTS => self.ask_terminal()?,
            (Dialog::Program(path), 0) => {
                let mut command = Command::new(path);
                command.args([self.host.to_owned(), self.index.to_string()]);
                run(command, None)?
            }
            (Dialog::Pipe(program), 0) => {
                let mut words = program.split_whitespace();
                let mut command = Command::new(words.next().unwrap_or_default());
                command.args(words);
                run(command, Some(&self.prompt()))?
            }
            _ => return Ok(None),
        };
        known.push(passphrase.clone());
        Ok(Some(passphrase))
    }

    fn prompt(&self) -> String {
        format!("Enter pass phrase for the private key of {}:", self.host)
    }

    fn ask_terminal(&self) -> Result<Vec<u8>, String> {
        let line = evenkeel_sys::secret::ask(&format!("{} ", self.prompt()));
        let line = line.map_err(|error| {
            format!(
                "the key is encrypted, and its passphrase cannot be asked for ({error}); \
                 SSLPassPhraseDialog exec: names a program"
            )
        })?;
        Ok(first_line(&line))
    }
}

/// Runs a program and takes the first line that it writes.
fn run(mut command: Command, input: Option<&str>) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let fault = |text: String| format!("the passphrase program {name}: {text}");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| fault(error.to_string()))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        let _ = writeln!(stdin, "{text}");
    }
    let status = wait(&mut child).map_err(&fault)?;
    let mut line = Vec::new();
    if let Some(output) = child.stdout.take() {
        let read = BufReader::new(output).read_until(b'\n', &mut line);
        read.map_err(|error| fault(error.to_string()))?;
    }
    if line.is_empty() {
        return Err(fault(format!("it wrote no passphrase ({status})")));
    }
    Ok(first_line(&line))
}

/// Waits for a program for a bounded time. A passphrase fits into the pipe.
fn wait(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {} seconds", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn first_line(line: &[u8]) -> Vec<u8> {
    let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(line.len());
    line.get(..end).unwrap_or_default().to_vec()
}
