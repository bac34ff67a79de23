//! The temporary folder of a run: the files to serve, and room for configurations and logs. It is
//! removed when the run ends.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The folder. Servers can read it as an ordinary user.
#[derive(Debug)]
pub struct Site(TempDir);

/// The files, with their sizes in bytes.
pub const FILES: [(&str, usize); 7] = [
    ("1k.html", 1 << 10),
    ("1k.png", 1 << 10),
    ("8k.html", 8 << 10),
    ("8k.png", 8 << 10),
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
            let text: Vec<u8> = match name.starts_with("8k") {
                true => page(size),
                false => b"evenkeel\n".iter().copied().cycle().take(size).collect(),
            };
            fs::write(site.path().join("htdocs").join(name), &text).map_err(told)?;
            if name == "8k.html" {
                // For servers that send a file which was compressed before.
                let packed = File::create(site.path().join("htdocs/8k.html.gz")).map_err(told)?;
                let mut packed = GzEncoder::new(packed, Compression::new(6));
                packed.write_all(&text).and_then(|()| packed.finish().map(drop)).map_err(told)?;
            }
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

    /// Adds a certificate with a key of P-256: `site.pem` and `site.key`.
    ///
    /// # Errors
    ///
    /// openssl is not installed, or what it printed.
    pub fn add_certificate(&self) -> Result<(), String> {
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                     -subj /CN=localhost -addext subjectAltName=DNS:localhost \
                     -keyout site.key -out site.pem";
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace()).current_dir(self.path());
        let output = command.output().map_err(|error| format!("openssl: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A text that gzip compresses to about the third that it makes of English: words of a small
/// vocabulary in an order without a pattern.
fn page(size: usize) -> Vec<u8> {
    const WORDS: [&[u8]; 16] = [
        b"<p>",
        b"the ",
        b"of ",
        b"server ",
        b"request ",
        b"keeps ",
        b"an even ",
        b"keel ",
        b"under ",
        b"load ",
        b"and ",
        b"tells ",
        b"its ",
        b"administrator ",
        b"limit ",
        b"</p>\n",
    ];
    let mut state = 7u32;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        WORDS.get((state >> 28) as usize).copied().unwrap_or_default()
    });
    words.flatten().copied().take(size).collect()
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
