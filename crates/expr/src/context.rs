//! What an expression asks of the world: one request as it stands when the expression is
//! evaluated. Files are asked of the operating system unless the implementor knows better.

use crate::variable::Variable;
use evenkeel_message::{Allowance, quoted};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// The largest file that `file()` reads, in bytes; Apache's limit.
pub const FILE_MOST: u64 = 10 * 1024 * 1024;

/// One request as an expression sees it. Values are bytes; what is not known is empty or None.
pub trait Context {
    /// The value of a variable; empty where it has none, or none yet in this phase.
    fn variable(&self, variable: Variable) -> Cow<'_, [u8]>;

    /// A header of the request, its values joined by `, ` where it came several times.
    fn request_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// A header of the response as far as it is set.
    fn response_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// A variable of the request's environment (SetEnvIf, RewriteRule's E flag, ...).
    fn request_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// A note that one module left for another.
    fn note(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// The client's address, as mod_remoteip leaves it.
    fn client_address(&self) -> Option<IpAddr>;

    /// Whether a request for this file would be allowed and find a file (`-F`); none where that
    /// is not known.
    fn file_allowed(&self, path: &[u8]) -> Option<bool>;

    /// Whether a request for this URL would be allowed and succeed (`-U`, `-A`); none where
    /// that is not known.
    fn url_allowed(&self, url: &[u8]) -> Option<bool>;

    /// What the expression may take of the request's steps; none where it is asked apart.
    fn allowance(&self) -> Option<&Allowance> {
        None
    }

    /// A variable of the server's own environment.
    fn process_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        std::env::var_os(OsStr::from_bytes(name)).map(|value| Cow::Owned(value.into_vec()))
    }

    /// What the file system says of a path, of a symbolic link itself if `follow` is false.
    fn metadata(&self, path: &[u8], follow: bool) -> Option<Metadata> {
        let path = Path::new(OsStr::from_bytes(path));
        match follow {
            true => std::fs::metadata(path).ok(),
            false => std::fs::symlink_metadata(path).ok(),
        }
    }

    /// The contents of a regular file of at most [`FILE_MOST`] bytes.
    ///
    /// # Errors
    ///
    /// Why the file cannot be read, in words for the error log.
    fn file_contents(&self, path: &[u8]) -> Result<Vec<u8>, String> {
        let shown = quoted(path);
        let facts = self.metadata(path, true);
        if facts.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(format!("Cannot read from file {shown}"));
        }
        let regular = facts.is_some_and(|facts| facts.is_file());
        let file = File::open(Path::new(OsStr::from_bytes(path)));
        let (true, Ok(file)) = (regular, file) else {
            return Err(format!("Cannot open file {shown}"));
        };
        let mut contents = Vec::new();
        match file.take(FILE_MOST + 1).read_to_end(&mut contents) {
            Err(_) => Err(format!("Cannot read from file {shown}")),
            Ok(length) if length as u64 > FILE_MOST => Err(format!("File {shown} too large")),
            Ok(_) => Ok(contents),
        }
    }
}
