//! The temporary folder of a run: the files that every contender serves and room for its
//! configuration and logs. It is gone when the run ends.

use crate::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

/// The folder. Servers read it as an ordinary user.
pub struct Place(TempDir);

/// The files, with their sizes in bytes.
const FILES: [(&str, usize); 4] =
    [("1k.html", 1 << 10), ("100k.bin", 100 << 10), ("1m.bin", 1 << 20), ("10m.bin", 10 << 20)];

impl Place {
    /// Makes the folder with its files.
    pub fn new() -> Result<Self> {
        let told = |error: std::io::Error| format!("the temporary folder: {error}");
        let place = Self(tempfile::Builder::new().prefix("bench-").tempdir().map_err(told)?);
        fs::create_dir(place.path().join("htdocs")).map_err(told)?;
        fs::create_dir(place.path().join("logs")).map_err(told)?;
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        open(place.path(), 0o755).map_err(told)?;
        open(&place.path().join("logs"), 0o777).map_err(told)?;
        for (name, size) in FILES {
            let text: Vec<u8> = b"evenkeel\n".iter().copied().cycle().take(size).collect();
            fs::write(place.path().join("htdocs").join(name), text).map_err(told)?;
        }
        Ok(place)
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The size of a file of the site, in bytes.
pub fn size_of(path: &str) -> usize {
    let name = path.trim_start_matches('/');
    FILES.iter().find(|(other, _)| *other == name).map_or(0, |(_, size)| *size)
}
