//! The path of a request: escapes come in, a path decoded once and normalised goes out, in
//! place. What comes out has no `.` or `..` segment and no NUL, so that nothing behind it can
//! climb out of a document root.

use crate::refusal::Refusal;
use evenkeel_message::{Level, Notice, Status};
use memchr::{memchr, memrchr};

/// The directive AllowEncodedSlashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowEncodedSlashes {
    /// A path with `%2F` is not found.
    #[default]
    Off,
    /// `%2F` is decoded.
    On,
    /// `%2F` is left as it is.
    NoDecode,
}

/// What the configuration says about paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UriOptions {
    /// AllowEncodedSlashes.
    pub encoded_slashes: AllowEncodedSlashes,
    /// MergeSlashes.
    pub merge_slashes: bool,
}

impl Default for UriOptions {
    fn default() -> Self {
        Self { encoded_slashes: AllowEncodedSlashes::Off, merge_slashes: true }
    }
}

/// Decodes and normalises a path in place; `target` is what the notice quotes. An empty path and
/// `*` are left alone.
///
/// Apache's order (request.c, `ap_process_request_internal`): escapes of unreserved characters
/// are decoded, segments resolved, the other escapes decoded, and where that made slashes, the
/// segments are resolved again. Unlike Apache the second round refuses to climb above the root.
///
/// # Errors
/// 400 for a broken escape and a path above the root, 404 for `%00` and, by the option, `%2F`.
pub fn normalise(path: &mut Vec<u8>, target: &[u8], options: UriOptions) -> Result<(), Refusal> {
    if is_clean(path) || path.is_empty() || path == b"*" {
        return Ok(());
    }
    let escaped = memchr(b'%', path).is_some();
    if !path.starts_with(b"/") || (escaped && !decode_unreserved(path)) {
        return Err(invalid(target));
    }
    if !resolve_segments(path, options.merge_slashes) {
        return Err(invalid(target));
    }
    if escaped && memchr(b'%', path).is_some() {
        let slashes =
            decode_rest(path, options.encoded_slashes).map_err(|found| found.at(target))?;
        if slashes && !resolve_segments(path, options.merge_slashes) {
            return Err(invalid(target));
        }
    }
    Ok(())
}

/// Whether nothing is to be done: the usual path.
fn is_clean(path: &[u8]) -> bool {
    let mut previous = 0;
    for byte in path {
        if *byte == b'%' || (previous == b'/' && matches!(byte, b'/' | b'.')) {
            return false;
        }
        previous = *byte;
    }
    path.starts_with(b"/")
}

/// The byte of an escape's two digits.
fn escape_at(path: &[u8], at: usize) -> Option<u8> {
    let digit = |index: usize| char::from(*path.get(index)?).to_digit(16);
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

/// Decodes letters, digits and `-._~` (RFC 3986, section 2.3); false for a broken escape.
fn decode_unreserved(path: &mut Vec<u8>) -> bool {
    let (mut from, mut to) = (0, 0);
    while let Some(byte) = path.get(from).copied() {
        let mut length = 1;
        let mut decoded = byte;
        if byte == b'%' {
            let Some(value) = escape_at(path, from) else { return false };
            length = 3;
            decoded = value;
        }
        let unreserved =
            decoded.is_ascii_alphanumeric() || matches!(decoded, b'-' | b'.' | b'_' | b'~');
        if length == 3 && !unreserved {
            path.copy_within(from..from + 3, to);
            to += 3;
        } else {
            put(path, to, decoded);
            to += 1;
        }
        from += length;
    }
    path.truncate(to);
    true
}

/// What no path may hold.
enum Found {
    Nul,
    Slash,
}

impl Found {
    fn at(self, target: &[u8]) -> Refusal {
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let path = String::from_utf8_lossy(path);
        let notice = match self {
            Found::Slash => {
                let text = format!("found %2f (encoded '/') in URI path ({path}), returning 404");
                Notice::new("core", Level::Info, 26, text)
            }
            Found::Nul => {
                let text = format!("found %00 in URI path ({path}), returning 404");
                Notice::own("core", Level::Info, text)
            }
        };
        Refusal { status: Status::NOT_FOUND, notice, detail: "" }
    }
}

/// Decodes what is still escaped; says whether slashes were among it.
fn decode_rest(path: &mut Vec<u8>, slashes: AllowEncodedSlashes) -> Result<bool, Found> {
    let (mut from, mut to, mut decoded_slash) = (0, 0, false);
    while let Some(byte) = path.get(from).copied() {
        let value = match byte {
            b'%' => escape_at(path, from),
            _ => None,
        };
        match (value, slashes) {
            (None, _) => {
                put(path, to, byte);
                (from, to) = (from + 1, to + 1);
            }
            (Some(0), _) => return Err(Found::Nul),
            (Some(b'/'), AllowEncodedSlashes::Off) => return Err(Found::Slash),
            (Some(b'/'), AllowEncodedSlashes::NoDecode) => {
                path.copy_within(from..from + 3, to);
                (from, to) = (from + 3, to + 3);
            }
            (Some(value), _) => {
                decoded_slash |= value == b'/';
                put(path, to, value);
                (from, to) = (from + 3, to + 1);
            }
        }
    }
    path.truncate(to);
    Ok(decoded_slash)
}

fn put(path: &mut [u8], at: usize, byte: u8) {
    if let Some(slot) = path.get_mut(at) {
        *slot = byte;
    }
}

/// Takes out `.` and empty segments and lets `..` take out the one before it (RFC 3986, section
/// 5.2.4); false where there is none.
fn resolve_segments(path: &mut Vec<u8>, merge: bool) -> bool {
    // What was written always ends behind a slash while segments remain.
    let (mut from, mut to) = (1, 1);
    while from < path.len() {
        let rest = path.get(from..).unwrap_or_default();
        let slash = memchr(b'/', rest);
        let length = slash.unwrap_or(rest.len());
        match rest.get(..length).unwrap_or_default() {
            b"." => {}
            b".." => {
                let Some(parent) = path.get(..to - 1).filter(|_| to > 1) else { return false };
                to = memrchr(b'/', parent).map_or(1, |at| at + 1);
            }
            b"" if merge => {}
            _ => {
                let whole = length + usize::from(slash.is_some());
                path.copy_within(from..from + whole, to);
                to += whole;
            }
        }
        from += length + 1;
    }
    path.truncate(to);
    true
}

fn invalid(target: &[u8]) -> Refusal {
    let text = format!("invalid URI path ({})", String::from_utf8_lossy(target));
    Refusal::new(Status::BAD_REQUEST, Level::Error, 10244, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape_uri;
    use AllowEncodedSlashes::{NoDecode, Off, On};
    use proptest::prelude::*;

    fn outcome(path: &str, encoded_slashes: AllowEncodedSlashes) -> Result<String, u16> {
        with(path, UriOptions { encoded_slashes, merge_slashes: true })
    }

    fn with(path: &str, options: UriOptions) -> Result<String, u16> {
        let mut bytes = path.as_bytes().to_vec();
        normalise(&mut bytes, path.as_bytes(), options).map_err(|r| r.status.code())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn segments_are_resolved() {
        for (path, want) in [
            ("/", "/"),
            ("*", "*"),
            ("/a/b.html", "/a/b.html"),
            ("/a/../b", "/b"),
            ("/a/..", "/"),
            ("/.", "/"),
            ("/a/.", "/a/"),
            ("/./a", "/a"),
            ("//a///b//", "/a/b/"),
            ("/a//../b", "/b"),
            ("/...", "/..."),
            ("/.../../a", "/a"),
            ("/a/./b/../../c", "/c"),
            ("/.hidden", "/.hidden"),
            ("/%2e/a", "/a"),
            ("/a/%2E%2e/b", "/b"),
            ("/%69", "/i"),
            ("/%2569", "/%69"),
            ("/%252e%252e/", "/%2e%2e/"),
            ("/a%5c..", "/a\\.."),
            ("/a/..;/b", "/a/..;/b"),
        ] {
            assert_eq!(outcome(path, Off).as_deref(), Ok(want), "{path}");
        }
    }

    #[test]
    fn what_climbs_or_breaks_is_refused() {
        for path in [
            "/..",
            "/../a",
            "/%2e%2e/a",
            "/.%2e/a",
            "/a/../..",
            "/%",
            "/%4",
            "/%zz",
            "/%%32%65",
            "a",
        ] {
            for slashes in [Off, On, NoDecode] {
                assert_eq!(outcome(path, slashes), Err(400), "{path}");
            }
        }
        for slashes in [Off, On, NoDecode] {
            assert_eq!(outcome("/a%00b", slashes), Err(404));
        }
    }

    #[test]
    fn encoded_slashes_follow_the_directive() {
        assert_eq!(outcome("/a%2fb", Off), Err(404));
        assert_eq!(outcome("/a%2fb%25", On).as_deref(), Ok("/a/b%"));
        assert_eq!(outcome("/a%2Fb%25", NoDecode).as_deref(), Ok("/a%2Fb%"));
        assert_eq!(outcome("/x%2f..%2fa", On).as_deref(), Ok("/a"));
        assert_eq!(outcome("/x%2f..%2f..%2fa", On), Err(400));
        let apart = UriOptions { encoded_slashes: Off, merge_slashes: false };
        assert_eq!(with("//a//b", apart).as_deref(), Ok("//a//b"));
        assert_eq!(with("/a//../b", apart).as_deref(), Ok("/a/b"));
    }

    proptest! {
        /// Nothing that comes out can climb, and coming in again it stays what it is.
        #[test]
        fn the_result_is_safe_and_stable(path in "[/.a%205fF\u{e4}]{0,24}", merge: bool) {
            let path = format!("/{path}");
            let options = UriOptions { encoded_slashes: On, merge_slashes: merge };
            let mut once = path.clone().into_bytes();
            if normalise(&mut once, b"", options).is_ok() {
                prop_assert!(!once.contains(&0));
                prop_assert!(!once.split(|b| *b == b'/').any(|s| s == b"." || s == b".."));
                let mut again = Vec::new();
                escape_uri(&mut again, &once);
                normalise(&mut again, b"", options).unwrap();
                prop_assert_eq!(once, again);
            }
        }
    }
}
