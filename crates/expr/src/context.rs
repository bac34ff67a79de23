//! What an expression can ask about the request that it is evaluated for. By default, questions
//! about files go to the operating system.

use crate::variable::Variable;
use evenkeel_message::{Allowance, quoted};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// The size in bytes of the largest file that `file()` reads; Apache's limit.
pub const FILE_MOST: u64 = 10 * 1024 * 1024;

/// One request, as an expression sees it. Values are bytes; an unknown value is empty or None.
pub trait Context {
    /// The value of a variable; empty if it has none, or none yet in this phase.
    fn variable(&self, variable: Variable) -> Cow<'_, [u8]>;

    /// An `SSL_*` variable of the connection's TLS session, by its whole name; none without TLS.
    fn session_variable(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// A header of the request. Several values are joined by `, `.
    fn request_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// A header of the response, if it is already set.
    fn response_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// A variable of the request's environment (SetEnvIf, RewriteRule's E flag, ...).
    fn request_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// A note that one module leaves for another.
    fn note(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// The client's address as set by mod_remoteip.
    fn client_address(&self) -> Option<IpAddr>;

    /// Whether a request for this file would be allowed and find a file (`-F`); none if that cannot
    /// be known.
    fn file_allowed(&self, path: &[u8]) -> Option<bool>;

    /// Whether a request for this URL would be allowed and succeed (`-U`, `-A`); none if that
    /// cannot be known.
    fn url_allowed(&self, url: &[u8]) -> Option<bool>;

    /// The steps of the request that the expression uses; none if the expression is not evaluated
    /// for a request.
    fn allowance(&self) -> Option<&Allowance> {
        None
    }

    /// A variable of the server's environment.
    fn process_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        std::env::var_os(OsStr::from_bytes(name)).map(|value| Cow::Owned(value.into_vec()))
    }

    /// The metadata of a path; of a symbolic link itself if `follow` is false.
    fn metadata(&self, path: &[u8], follow: bool) -> Option<Metadata> {
        let path = Path::new(OsStr::from_bytes(path));
        match follow {
            true => std::fs::metadata(path).ok(),
            false => std::fs::symlink_metadata(path).ok(),
        }
    }

    /// The contents of a file of at most [`FILE_MOST`] bytes. Empty for files whose reported size
    /// is 0, such as devices and files below /proc.
    ///
    /// # Errors
    ///
    /// Why the file cannot be read, as text for the error log.
    fn file_contents(&self, path: &[u8]) -> Result<Vec<u8>, FileError> {
        read(path)
    }
}

/// Why a file cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileError {
    /// The reason, as text for the error log.
    pub text: String,
    /// Whether the file itself is the reason: it does not exist, may not be read, is a folder or is
    /// too large. Otherwise a resource ran out for the moment, or the file is of a kind that is not
    /// read.
    pub is_of_file: bool,
}

impl FileError {
    fn new(text: String, error: &io::Error) -> Self {
        use io::ErrorKind::{
            FileTooLarge, InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        };
        let is_of_file = matches!(
            error.kind(),
            FileTooLarge
                | InvalidFilename
                | IsADirectory
                | NotADirectory
                | NotFound
                | PermissionDenied
        );
        Self { text, is_of_file }
    }
}

fn read(path: &[u8]) -> Result<Vec<u8>, FileError> {
    let shown = quoted(path);
    let path = Path::new(OsStr::from_bytes(path));
    let cannot = |what, error| FileError::new(format!("Cannot {what} file {shown}"), &error);
    let facts = std::fs::metadata(path).map_err(|error| cannot("open", error))?;
    if facts.is_dir() {
        return Err(cannot("read from", io::ErrorKind::IsADirectory.into()));
    }
    // Opening a FIFO would wait.
    if !facts.is_file() && !facts.file_type().is_char_device() {
        return Err(cannot("open", io::ErrorKind::Unsupported.into()));
    }
    let file = File::open(path).map_err(|error| cannot("open", error))?;
    if facts.len() == 0 {
        return Ok(Vec::new());
    }
    let mut contents = Vec::new();
    match file.take(FILE_MOST + 1).read_to_end(&mut contents) {
        Err(error) => Err(cannot("read from", error)),
        Ok(length) if length as u64 > FILE_MOST => {
            let text = format!("File {shown} too large");
            Err(FileError::new(text, &io::ErrorKind::FileTooLarge.into()))
        }
        Ok(_) => Ok(contents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_itself_to_blame_leaves_a_condition_decided() {
        let folder = tempfile::tempdir().unwrap();
        let asked = |name: &str| {
            let path = folder.path().join(name);
            read(path.as_os_str().as_bytes()).map_err(|error| error.is_of_file)
        };
        assert_eq!((asked("none"), asked("")), (Err(true), Err(true)));
        assert_eq!(asked(&"x".repeat(300)), Err(true));
        std::fs::write(folder.path().join("file"), "text").unwrap();
        assert_eq!((asked("file"), asked("file/x")), (Ok(b"text".to_vec()), Err(true)));
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("it")).unwrap();
        assert_eq!(asked("it"), Err(false), "a socket cannot be opened");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Both ends are open, so that reading would return the end at once, as for an empty file.
        let _ends = File::options().read(true).write(true).open(&pipe).unwrap();
        assert_eq!(asked("pipe"), Err(false), "a pipe is not opened");
        for empty in ["/dev/null", "/dev/zero", "/proc/version"] {
            assert_eq!(read(empty.as_bytes()), Ok(Vec::new()), "{empty}");
        }
        let exhausted = io::Error::from_raw_os_error(24);
        assert!(!FileError::new(String::new(), &exhausted).is_of_file);
    }
}
