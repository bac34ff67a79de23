//! Where the files of a cache stand: their names are hashes of keys, spread over folders.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::path::{Path, PathBuf};

/// What the name of each file ends with.
pub const EXTENSION: &str = ".entry";

/// The folder of a cache and its levels of folders (CacheRoot, CacheDirLevels, CacheDirLength).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// CacheRoot.
    pub root: PathBuf,
    /// CacheDirLevels.
    pub levels: usize,
    /// CacheDirLength.
    pub length: usize,
}

impl Place {
    /// The file for a key.
    #[must_use]
    pub fn path_of(&self, key: &[u8]) -> PathBuf {
        let name = name_of(key);
        let (mut path, mut rest) = (self.root.clone(), name.as_str());
        for _ in 0..self.levels {
            let Some((level, after)) = rest.split_at_checked(self.length) else { break };
            path.push(level);
            rest = after;
        }
        path.push(format!("{rest}{EXTENSION}"));
        path
    }

    /// The folder of the locks, unless CacheLockPath names one.
    #[must_use]
    pub fn lock_folder(&self) -> PathBuf {
        self.root.join(".locks")
    }
}

/// The hash of a key, in characters that a file name may have.
#[must_use]
pub fn name_of(key: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, key))
}

/// Whether a file, by its name, is one of a cache.
#[must_use]
pub fn is_entry(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(EXTENSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_spread_over_folders() {
        let place = |levels, length| Place { root: "/c".into(), levels, length };
        let flat = place(0, 2).path_of(b"key");
        let name = flat.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name.len(), 43 + EXTENSION.len());
        let deep = place(2, 3).path_of(b"key");
        let (first, second, rest) = (&name[..3], &name[3..6], &name[6..]);
        assert_eq!(deep, Path::new("/c").join(first).join(second).join(rest));
        assert!(is_entry(&deep) && !is_entry(Path::new("/c/.locks")));
        assert_ne!(flat, place(0, 2).path_of(b"other"));
    }
}
