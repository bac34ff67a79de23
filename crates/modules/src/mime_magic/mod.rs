//! mod_mime_magic: the media type of a file whose name does not tell it, by its contents. The
//! pipeline reads the beginning of the file.

mod packed;
mod printed;
mod rules;
mod text;

pub use crate::{NoSettings as Directory, NoSettings as Global};
pub use rules::{Complaint, Rules};

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Position, Shape};
use evenkeel_message::{Content, Level, Notice, Piece, Request, quoted};
use evenkeel_sys::open;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How much of a file is read, in bytes (HOWMANY).
pub(crate) const BEGINNING: usize = 4096;

/// The largest magic file that is read, in bytes.
const LARGEST_FILE: usize = 4 << 20;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("MimeMagicFile", Where::SERVER, Shape::One, "", "Path to MIME Magic file (in file(1) format)", magic_file),
];

/// mod_mime_magic.
pub const MODULE: Module = Module {
    file: "mod_mime_magic.c",
    identifier: "mime_magic_module",
    active: Active::WhenNamed,
    page: "mod_mime_magic",
    subject: "The media type of a file by its contents, where its name does not tell it.",
    remarks: &[
        "A magic file that cannot be read, and each line of it that cannot be parsed, is a message \
         of the error log with file and line at the start. As in Apache, the server starts.",
        "Compressed files are unpacked within the server. Apache runs gzip for each request.",
        "Files that pack(1) has compressed are not unpacked.",
        "A text with escape sequences has no Content-Encoding. Apache sends `Content-Encoding: \
         (with`.",
        "After a bad line, Apache does not read the magic files of the virtual hosts that follow. \
         Here it does.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of one virtual host.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// MimeMagicFile, absolute, and where it stands.
    file: Option<Arc<(PathBuf, Position)>>,
    /// What the file holds; none before [`Server::read`].
    rules: Option<Arc<Rules>>,
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; file, rules)
    }
}

fn magic_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_path(call.first());
    scope.server.mime_magic.file = Some(Arc::new((path, call.position.clone())));
    Ok(())
}

impl Server {
    /// The magic file and the position of the directive that names it.
    #[must_use]
    pub fn file(&self) -> Option<(&Path, &Position)> {
        self.file.as_deref().map(|(path, position)| (path.as_path(), position))
    }

    /// Has these rules act.
    pub fn act_by(&mut self, rules: Arc<Rules>) {
        self.rules = Some(rules);
    }

    /// The rules that act.
    #[must_use]
    pub fn rules(&self) -> Option<&Rules> {
        self.rules.as_deref()
    }
}

/// Reads a magic file.
///
/// # Errors
/// Those of open(2) and read(2).
pub fn read(path: &Path) -> io::Result<(Rules, Vec<Complaint>)> {
    use std::os::unix::ffi::OsStrExt as _;
    let text = open::read_beginning(path.as_os_str().as_bytes(), LARGEST_FILE)?;
    Ok(Rules::parse(&text))
}

/// The name of a file without the suffix of a revision (`@` and digits), whose media type is that
/// of the file (mod_mime_magic.c: revision_suffix).
#[must_use]
pub fn without_revision(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = name.get(..name.len() - digits).filter(|_| digits > 0)?;
    rest.strip_suffix(b"@").filter(|name| !name.is_empty() && !name.ends_with(b"/"))
}

/// Says what a special file is: a pipe, a socket or a device.
pub fn describe_special(content: &mut Content) {
    content.media_type = Some(b"application/octet-stream"[..].into());
}

/// Notes that a file cannot be read. It has no type then.
pub fn tell_unreadable(request: &mut Request, error: &io::Error) {
    let text = format!("can't read `{}'", quoted(request.resource.file.as_bytes()));
    request.notify(Notice::new("mime_magic", Level::Error, 1512, text).because(error));
}

/// Adds to the content what the contents of a file say (mod_mime_magic.c: magic_process). It stays
/// as it is where they say nothing.
///
/// # Errors
/// Those of read(2).
pub fn describe(content: &mut Content, contents: &Piece, rules: &Rules) -> io::Result<()> {
    if contents.is_empty() {
        content.media_type = Some(b"text/plain"[..].into());
        return Ok(());
    }
    let mut beginning = match contents {
        Piece::Bytes(bytes) => bytes.get(..BEGINNING).unwrap_or(bytes).to_vec(),
        Piece::File { file, offset, .. } => {
            let mut beginning = vec![0; BEGINNING];
            let read = open::read_at(file, &mut beginning, *offset)?;
            beginning.truncate(read);
            beginning
        }
    };
    beginning.push(0);
    if let Some(encoding) = packed::encoding(&beginning) {
        let mut unpacked = packed::unpack(&beginning, encoding);
        // Apache has a NUL in place of the last byte.
        let Some(last) = unpacked.last_mut() else { return Ok(()) };
        *last = 0;
        content.encoding = Some(encoding.as_bytes().into());
        if let Some(result) = examine(&unpacked, rules) {
            apply(content, &result);
            return Ok(());
        }
    }
    if let Some(result) = examine(&beginning, rules) {
        apply(content, &result);
    }
    Ok(())
}

fn examine(beginning: &[u8], rules: &Rules) -> Option<Vec<u8>> {
    rules.find(beginning).or_else(|| text::find(beginning).map(|it| it.as_bytes().to_vec()))
}

/// Sets the type and the encoding that a result has, separated by spaces (magic_rsl_to_request).
fn apply(content: &mut Content, result: &[u8]) {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let mut words = result.split(is_space).filter(|word| !word.is_empty());
    let Some(media_type) = words.next().filter(|word| word.contains(&b'/')) else { return };
    content.media_type = Some(media_type.to_ascii_lowercase().into());
    if let Some(encoding) = words.next() {
        content.encoding = Some(encoding.to_ascii_lowercase().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn described(rules: &str, bytes: &[u8]) -> (String, String) {
        let (rules, _) = Rules::parse(rules.as_bytes());
        let mut content = Content::default();
        let contents = Piece::Bytes(Bytes::copy_from_slice(bytes));
        describe(&mut content, &contents, &rules).unwrap();
        let text = |part: Option<Box<[u8]>>| {
            String::from_utf8(part.map_or_else(|| b"-".to_vec(), Vec::from)).unwrap()
        };
        (text(content.media_type), text(content.encoding))
    }

    fn told(media_type: &str, encoding: &str) -> (String, String) {
        (media_type.into(), encoding.into())
    }

    #[test]
    fn contents_say_type_and_encoding() {
        let long = |text: &str| [text.as_bytes(), &[b'.'; 80]].concat();
        assert_eq!(
            described("0 string %PDF- Application/PDF", &long("%PDF-1.4")),
            told("application/pdf", "-")
        );
        assert_eq!(described("0 string A a/b X-Enc\\ more", &long("A")), told("a/b", "x-enc\\"));
        assert_eq!(described("0 string A noslash", &long("A")), told("-", "-"));
        assert_eq!(described("", b""), told("text/plain", "-"));
        assert_eq!(described("", b"<html>\n"), told("text/html", "-"));
        assert_eq!(described("", b"nothing"), told("-", "-"));
    }

    #[test]
    fn compressed_contents_are_looked_into() {
        let pack = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(described("", &pack(b"<html> a")), told("text/html", "x-gzip"));
        assert_eq!(described("", &pack(b"nothing")), told("-", "x-gzip"));
        assert_eq!(described("", b"\x1f\x8bno"), told("-", "-"));
        let rule = "0 string \\037\\213 application/octet-stream x-gzip";
        let long = pack(&(0..=255).collect::<Vec<u8>>());
        assert_eq!(described(rule, &long), told("application/octet-stream", "x-gzip"));
    }

    #[test]
    fn a_revision_has_the_type_of_its_file() {
        assert_eq!(without_revision(b"/a/b.html@12"), Some(&b"/a/b.html"[..]));
        for name in [&b"/a/b@"[..], b"/a/b12", b"/a/@1", b"@1", b""] {
            assert_eq!(without_revision(name), None);
        }
    }
}
