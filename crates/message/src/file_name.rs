//! The name of the file that a request's path was translated to. Only this type makes it canonical,
//! before any section or condition compares it (Apache: request.c, ap_directory_walk; APR:
//! apr_filepath_merge).

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// An absolute file name without `.`, `..` and empty segments. A slash at the end stays, because
/// sections distinguish a folder whose URL had its slash from one without. It is empty if a request
/// has no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileName(OsString);

impl FileName {
    /// The canonical form of a name. `..` at the root stays at the root. A relative name begins at
    /// the root.
    #[must_use]
    pub fn new(name: impl Into<OsString>) -> Self {
        let mut file = Self::default();
        file.set(name.into().as_bytes(), b"");
        file
    }

    /// Sets the name to `path` below `root`, and reuses the memory.
    pub fn set(&mut self, root: &[u8], path: &[u8]) {
        let name = &mut self.0;
        name.clear();
        name.reserve(root.len() + 1 + path.len());
        name.push(OsStr::from_bytes(root));
        if !path.starts_with(b"/") && !path.is_empty() {
            name.push("/");
        }
        name.push(OsStr::from_bytes(path));
        if !is_canonical(name.as_bytes()) {
            *name = canonical(name.as_bytes());
        }
    }

    /// The name of a file in this folder. `path` is its path from there.
    #[must_use]
    pub fn below(&self, path: &[u8]) -> Self {
        let own = self.as_bytes();
        let mut file = Self::default();
        file.set(own.strip_suffix(b"/").unwrap_or(own), path);
        file
    }

    /// The name of another file in the same folder, with a path after it.
    #[must_use]
    pub fn beside(&self, name: &[u8], behind: &[u8]) -> Self {
        let own = self.as_bytes();
        let folder = own.len().saturating_sub(self.last().len() + 1);
        let mut file = Self::default();
        file.set(own.get(..folder).unwrap_or_default(), &[name, behind].concat());
        file
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// What follows the last slash, which `<Files>` compares; empty for a folder with its slash.
    #[must_use]
    pub fn last(&self) -> &[u8] {
        self.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Cuts the name after `length` bytes and returns the rest (PATH_INFO).
    pub fn split_off(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.0).into_vec();
        let behind = bytes.split_off(length.min(bytes.len()));
        self.0 = OsString::from_vec(bytes);
        behind
    }

    /// Makes the name that of a folder, with a slash at its end.
    pub fn end_with_slash(&mut self) {
        if !self.as_bytes().ends_with(b"/") {
            self.0.push("/");
        }
    }

    /// The capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Makes the name empty, for a request without a file.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Deref for FileName {
    type Target = Path;

    fn deref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl From<FileName> for PathBuf {
    fn from(file: FileName) -> Self {
        file.0.into()
    }
}

/// The canonical, absolute form of a file system path in the configuration.
#[must_use]
pub fn canonical_path(path: &Path) -> PathBuf {
    FileName::new(path).0.into()
}

/// Whether the name is already canonical, which is the usual case.
fn is_canonical(name: &[u8]) -> bool {
    let Some((b'/', rest)) = name.split_first() else { return false };
    // A dot after a slash may begin a name; resolving the segments decides that. The pairs are
    // compared without branches between them, so that the compiler can vectorise the loop.
    let is_odd = |(one, next): (&u8, &u8)| (*one == b'/') & ((*next == b'/') | (*next == b'.'));
    !name.iter().zip(rest).fold(false, |odd, pair| odd | is_odd(pair))
}

fn canonical(name: &[u8]) -> OsString {
    let mut path = Vec::with_capacity(name.len() + 1);
    path.push(b'/');
    for segment in name.split_inclusive(|byte| *byte == b'/') {
        match segment.strip_suffix(b"/").unwrap_or(segment) {
            b"" | b"." => {}
            b".." => {
                // What was written ends after a slash while segments remain.
                path.pop();
                let parent = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                path.truncate(parent);
                if path.is_empty() {
                    path.push(b'/');
                }
            }
            _ => path.extend_from_slice(segment),
        }
    }
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_canonical_as_in_apr() {
        for (name, want) in [
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b//", "/a/b/"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/../../a", "/a"),
            ("/..", "/"),
            ("/", "/"),
            ("/a/.hidden/..x/...", "/a/.hidden/..x/..."),
            ("a/b", "/a/b"),
        ] {
            let file = FileName::new(name);
            assert_eq!(file.as_bytes(), want.as_bytes(), "{name}");
            assert_eq!(FileName::new(file.as_os_str()), file, "{name} again");
        }
    }

    #[test]
    fn parts_of_a_name() {
        let mut file = FileName::new("/a/b.txt/rest/x");
        assert_eq!(file.split_off(8), b"/rest/x");
        assert_eq!((file.as_bytes(), file.last()), (&b"/a/b.txt"[..], &b"b.txt"[..]));
        assert_eq!(file.beside(b"c", b"/d").as_bytes(), b"/a/c/d");
        assert_eq!(FileName::new("/a/").last(), b"");
        for folder in ["/a", "/a/"] {
            assert_eq!(FileName::new(folder).below(b"b/").as_bytes(), b"/a/b/");
        }
        assert_eq!(FileName::new("/").below(b"..b").as_bytes(), b"/..b");
        assert_ne!(FileName::new("/a/"), FileName::new("/a"));
        file.set(b"/base/", b"/x//y");
        assert_eq!(file.as_bytes(), b"/base/x/y");
        file.set(b"/base", b"x");
        assert_eq!(file.as_bytes(), b"/base/x");
        file.clear();
        assert!(file.as_bytes().is_empty());
    }
}
