//! The digests of a file for `FileETag Digest` and `ContentDigest`. A digest reads the whole file.
//! A thread of the blocking pool reads a large one, so that the serving thread goes on meanwhile.

use super::directory::{Directory, EtagParts};
use super::static_handler::{is_settled, mark};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_files::{Contents, Files, Kind, Looked};
use evenkeel_message::Piece;
use evenkeel_sys::blocking_pool::Progress;
use evenkeel_sys::open::{self, Stat};
use md5::Md5;
use sha1::{Digest as _, Sha1};
use std::io;

/// Bytes that are read at once.
const AT_ONCE: usize = 64 << 10;

/// The digests of a file, in base64.
#[derive(Debug)]
pub struct Digests {
    of: Stat,
    pub(super) sha1: Option<String>,
    pub(super) md5: Option<String>,
}

/// A large file whose digests are asked for and not known.
#[derive(Debug)]
pub struct Undigested {
    piece: Piece,
    stat: Stat,
    asked: Asked,
}

/// Which digests are asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    sha1: bool,
    md5: bool,
}

/// Whether responses have digests of the file that they send.
#[must_use]
pub fn wants_digests(settings: &Directory) -> bool {
    let Asked { sha1, md5 } = Asked::by(settings);
    sha1 || md5
}

/// A file whose digests take long enough that other clients of the thread would notice; none if
/// the file is small, or its digests are known.
#[must_use]
pub fn undigested(
    files: &Files,
    looked: &Looked,
    settings: &Directory,
    now_us: u64,
) -> Option<Undigested> {
    if !wants_digests(settings) || looked.found.kind() != Kind::File {
        return None;
    }
    let contents = files.contents(&looked.found).ok()?;
    let now_ns = i64::try_from(now_us).unwrap_or(i64::MAX).saturating_mul(1000);
    let is_known = is_settled(&contents, now_ns) && contents.has_head(mark(settings));
    if is_known || contents.piece.len() <= AT_ONCE as u64 {
        return None;
    }
    let asked = Asked::by(settings);
    Some(Undigested { piece: contents.piece.clone(), stat: contents.stat, asked })
}

impl Undigested {
    /// Digests the file. None if that is cancelled.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn digest(self, progress: &Progress) -> Option<io::Result<Digests>> {
        Digests::read(&self.piece, self.stat, self.asked, || progress.report()).transpose()
    }
}

impl Digests {
    /// The digests that the settings ask for. Errors are those of reading the file.
    pub(super) fn of(contents: &Contents, settings: &Directory) -> io::Result<Self> {
        let (none, asked) =
            (Self { of: contents.stat, sha1: None, md5: None }, Asked::by(settings));
        if !wants_digests(settings) {
            return Ok(none);
        }
        Ok(Self::read(&contents.piece, contents.stat, asked, || true)?.unwrap_or(none))
    }

    /// Whether these are the digests of this version of the file.
    pub(super) fn are_of(&self, contents: &Contents) -> bool {
        self.of == contents.stat
    }

    /// Reads a piece to its end, and asks before each read whether to go on.
    fn read(
        piece: &Piece,
        of: Stat,
        asked: Asked,
        goes_on: impl Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let (mut sha1, mut md5) = (asked.sha1.then(Sha1::new), asked.md5.then(Md5::new));
        let mut update = |bytes: &[u8]| {
            if let Some(sha1) = &mut sha1 {
                sha1.update(bytes);
            }
            if let Some(md5) = &mut md5 {
                md5.update(bytes);
            }
        };
        match piece {
            Piece::Bytes(bytes) => update(bytes),
            Piece::File { file, offset, length } => {
                let mut buffer = vec![0; AT_ONCE];
                let mut done = 0;
                while done < *length {
                    if !goes_on() {
                        return Ok(None);
                    }
                    let count = open::read_at(file, &mut buffer, offset + done)?;
                    if count == 0 {
                        break;
                    }
                    update(buffer.get(..count).unwrap_or_default());
                    done += count as u64;
                }
            }
        }
        let sha1 = sha1.map(|digest| BASE64.encode(digest.finalize()));
        let md5 = md5.map(|digest| BASE64.encode(digest.finalize()));
        Ok(Some(Self { of, sha1, md5 }))
    }
}

impl Asked {
    fn by(settings: &Directory) -> Self {
        Self {
            sha1: settings.etag.effective() & EtagParts::DIGEST != 0,
            md5: settings.content_digest == Some(true),
        }
    }
}
