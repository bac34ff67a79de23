//! The log of scripts (ScriptLog): an [`Entry`] for a program that cannot be run or whose output is
//! malformed (mod_cgi.c: `log_script`, `log_scripterror`). [`append`] writes it.

use evenkeel_message::Request;
use evenkeel_upstream::Remains;
use jiff::Zoned;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// The text of an entry.
pub struct Entry(Vec<u8>);

impl Entry {
    /// The entry of a file that is not run.
    #[must_use]
    pub fn of_error(request: &Request, status: u16, error: &str) -> Self {
        let mut entry = Self::begin(request, status);
        entry.line(&[b"%error"]);
        entry.line(&[error.as_bytes()]);
        entry
    }

    /// The entry of a program whose output is of no use.
    #[must_use]
    pub fn of_run(request: &Request, status: u16, remains: &Remains) -> Self {
        let mut entry = Self::begin(request, status);
        entry.line(&[b"%request"]);
        for (name, value) in request.fields().iter() {
            entry.line(&[name, b": ", value]);
        }
        if !remains.body.is_empty() {
            entry.line(&[b""]);
            entry.line(&[&remains.body]);
        }
        entry.line(&[b"%response"]);
        for (name, value) in request.resource.always.iter() {
            entry.line(&[name, b": ", value]);
        }
        if !remains.output.is_empty() {
            entry.line(&[b"%stdout"]);
            entry.line(&[&remains.output]);
        }
        if !remains.errors.is_empty() {
            entry.line(&[b"%stderr"]);
            remains.errors.iter().for_each(|line| entry.line(&[line]));
            entry.line(&[b""]);
        }
        entry
    }

    fn begin(request: &Request, status: u16) -> Self {
        let mut entry = Self(Vec::new());
        let resource = &request.resource;
        let now = Zoned::now().strftime("%a %b %d %H:%M:%S %Y").to_string();
        let (mark, query) = match &resource.query {
            Some(query) => (&b"?"[..], &**query),
            None => (&b""[..], &b""[..]),
        };
        entry.line(&[
            b"%% [",
            now.as_bytes(),
            b"] ",
            request.method_name(),
            b" ",
            &resource.path,
            mark,
            query,
            b" ",
            request.head.version.text().as_bytes(),
        ]);
        entry.line(&[b"%% ", status.to_string().as_bytes(), b" ", resource.file.as_bytes()]);
        entry
    }

    fn line(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.push(b'\n');
    }
}

/// Appends an entry to the log, unless the log is longer than `length` bytes or cannot be opened.
/// Apache reports neither. The call may block.
pub fn append(log: &Path, length: u64, entry: &Entry) {
    if std::fs::metadata(log).is_ok_and(|log| log.len() > length) {
        return;
    }
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(log) {
        let _unwritten = file.write_all(&entry.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_long_enough_gets_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("cgi.log");
        append(&log, 3, &Entry(b"12345".to_vec()));
        append(&log, 3, &Entry(b"6".to_vec()));
        assert_eq!(std::fs::read(&log).unwrap(), b"12345");
        append(&log, 5, &Entry(b"6".to_vec()));
        assert_eq!(std::fs::read(&log).unwrap(), b"123456");
        append(folder.path(), 1 << 40, &Entry(b"6".to_vec()));
    }
}
