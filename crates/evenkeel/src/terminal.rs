//! Writes to the terminal for the person who typed the command. Nothing else in the server writes
//! to standard output or standard error.

use std::io::Write;

/// Writes to standard output. It is not an error if the reader is gone.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _gone = out.write_all(with_end(text).as_bytes()).and_then(|()| out.flush());
}

/// Writes to standard error.
pub fn complain(text: &str) {
    let _gone = std::io::stderr().lock().write_all(with_end(text).as_bytes());
}

fn with_end(text: &str) -> String {
    if text.ends_with('\n') || text.is_empty() { text.to_owned() } else { format!("{text}\n") }
}
