//! The temporary folder of a run: the files to serve, and room for configurations and logs. It is
//! removed when the run ends.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The folder. Servers can read it as an ordinary user.
#[derive(Debug)]
pub struct Site(TempDir);

/// The files, with their sizes in bytes.
pub const FILES: [(&str, usize); 5] = [
    ("1k.html", 1 << 10),
    ("1k.png", 1 << 10),
    ("100k.bin", 100 << 10),
    ("1m.bin", 1 << 20),
    ("10m.bin", 10 << 20),
];

impl Site {
    /// Creates the folder with its files.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn new() -> Result<Self, String> {
        let told = |error: std::io::Error| format!("the temporary folder: {error}");
        let site = Self(tempfile::Builder::new().prefix("evenkeel-").tempdir().map_err(told)?);
        fs::create_dir(site.path().join("htdocs")).map_err(told)?;
        fs::create_dir(site.path().join("logs")).map_err(told)?;
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        open(site.path(), 0o755).map_err(told)?;
        open(&site.path().join("logs"), 0o777).map_err(told)?;
        for (name, size) in FILES {
            let text: Vec<u8> = b"evenkeel\n".iter().copied().cycle().take(size).collect();
            fs::write(site.path().join("htdocs").join(name), text).map_err(told)?;
        }
        Ok(site)
    }

    /// Adds the folders of `count` virtual hosts, each with the picture of 1 KiB.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn add_hosts(&self, count: usize) -> Result<(), String> {
        let told = |error: std::io::Error| format!("the folders of the hosts: {error}");
        let picture = self.path().join("htdocs/1k.png");
        for number in 0..count {
            let folder = host_folder(self.path(), number);
            fs::create_dir_all(&folder).map_err(told)?;
            fs::copy(&picture, folder.join("1k.png")).map_err(told)?;
        }
        Ok(())
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The name of a virtual host.
#[must_use]
pub fn host_name(number: usize) -> String {
    format!("h{number:05}.test")
}

/// The folder with the files of a virtual host.
pub(super) fn host_folder(root: &Path, number: usize) -> PathBuf {
    root.join("htdocs/hosts").join(host_name(number))
}

/// The size of a file of the site, in bytes.
#[must_use]
pub fn size_of(path: &str) -> usize {
    let name = path.trim_start_matches('/');
    FILES.iter().find(|(other, _)| *other == name).map_or(0, |(_, size)| *size)
}
