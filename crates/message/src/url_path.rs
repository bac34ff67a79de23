//! The path of a request's URL, in the forms that the configuration compares. This is the only
//! place where a client's text becomes a [`UrlPath`]: it is decoded once and its segments are
//! resolved. A [`UrlPath`] contains no `.` or `..` segment and no NUL, so it cannot climb out of a
//! document root.
//!
//! docs/design/paths.md says which section, directive and variable compares which form.

use memchr::{memchr, memrchr};
use std::borrow::Cow;
use std::ops::Deref;

/// The directive AllowEncodedSlashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowEncodedSlashes {
    /// A path with `%2F` is answered with 404.
    #[default]
    Off,
    /// `%2F` is decoded.
    On,
    /// `%2F` is left encoded.
    NoDecode,
}

/// The directives about paths.
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

/// Why a text is not a valid path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// It has a broken escape, climbs above the root, or does not begin with a slash.
    Invalid,
    /// It contains `%00`.
    Nul,
    /// It contains `%2F` and AllowEncodedSlashes is off.
    EncodedSlash,
}

/// The decoded path of a URL (`/a/b`): normalised, with a slash at its beginning. It is empty if a
/// request has no path (CONNECT) or was refused because of it, and `*` in `OPTIONS *`. Doubled
/// slashes occur only under `MergeSlashes Off`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlPath {
    path: Vec<u8>,
    /// The path before its last escapes were decoded; empty if it had none.
    escaped: Vec<u8>,
}

/// A [`UrlPath`] with runs of slashes merged into one: the form that `<Location>` compares (Apache:
/// request.c, ap_location_walk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedPath<'a>(Cow<'a, [u8]>);

impl UrlPath {
    /// Decodes and normalises a path as received.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the path.
    pub fn parse(raw: &[u8], options: UriOptions) -> Result<Self, BadPath> {
        let mut path = Self::default();
        path.read(raw, options).map(|()| path)
    }

    /// Sets the path and reuses the memory. An empty path and `*` stay as they are.
    ///
    /// The order is Apache's (request.c, ap_process_request_internal): decode the escapes of
    /// unreserved characters, resolve segments, decode the other escapes, and resolve segments
    /// again if that produced slashes. Unlike Apache, the second round refuses to climb above the
    /// root (docs/differences.md).
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the text; the path is empty then.
    pub fn read(&mut self, raw: &[u8], options: UriOptions) -> Result<(), BadPath> {
        self.clear();
        self.path.extend_from_slice(raw);
        let read = self.normalise(options);
        if read.is_err() {
            self.clear();
        }
        read
    }

    /// A path that a rule, such as RewriteRule, has made from a decoded path. Parts of it may come
    /// from a client. Returns `None` if the path does not begin with a slash, contains a NUL byte,
    /// or has a segment `.` or `..`.
    #[must_use]
    pub fn of_rule(path: &[u8]) -> Option<Self> {
        let is_plain = |segment: &[u8]| !matches!(segment, b"." | b"..") && !segment.contains(&0);
        let is_sound = path.starts_with(b"/") && path.split(|byte| *byte == b'/').all(is_plain);
        is_sound.then(|| Self { path: path.to_vec(), escaped: Vec::new() })
    }

    /// Makes the path empty.
    pub fn clear(&mut self) {
        self.path.clear();
        self.escaped.clear();
    }

    /// The capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.path.capacity() + self.escaped.capacity()
    }

    /// The path with its segments resolved and only unreserved characters decoded, if that form
    /// differs. The first walk of `<Location>` and `<If>` compares it (request.c,
    /// ap_process_request_internal: the walk before pre_translate_name).
    #[must_use]
    pub fn before_decoding(&self) -> Option<Self> {
        let is_other = !self.escaped.is_empty();
        is_other.then(|| Self { path: self.escaped.clone(), escaped: Vec::new() })
    }

    /// The path with single slashes.
    #[must_use]
    pub fn merged(&self) -> MergedPath<'_> {
        if !self.starts_with(b"/") || !self.windows(2).any(|pair| pair == b"//") {
            return MergedPath(Cow::Borrowed(&self.path));
        }
        let mut merged = self.path.clone();
        merged.dedup_by(|next, before| *next == b'/' && *before == b'/');
        MergedPath(Cow::Owned(merged))
    }

    /// The path up to its last slash.
    #[must_use]
    pub fn folder(&self) -> &[u8] {
        self.get(..self.folder_end(self.len())).unwrap_or_default()
    }

    /// The folder of the file that the path names, with its slash. PATH_INFO after the file is left
    /// out.
    #[must_use]
    pub fn file_folder(&self, path_info: &[u8]) -> &[u8] {
        match self.get(..self.folder_end(self.file_end(path_info))) {
            Some(folder @ [_, ..]) => folder,
            _ => b"/",
        }
    }

    /// The path of another file in the same folder, followed by PATH_INFO, parsed as a target is
    /// (request.c: ap_sub_req_lookup_dirent). The name is one segment other than `.` and `..`; the
    /// name of a folder ends with a slash.
    #[must_use]
    pub fn beside(&self, name: &[u8], path_info: &[u8]) -> Self {
        let mut path = [self.file_folder(path_info), name, path_info].concat();
        let doubled = path.len() - without_doubled_slash(&path).len();
        path.drain(..doubled);
        Self { path, escaped: Vec::new() }
    }

    fn normalise(&mut self, options: UriOptions) -> Result<(), BadPath> {
        let path = &mut self.path;
        if is_clean(path) || path.is_empty() || path == b"*" {
            return Ok(());
        }
        let has_escapes = memchr(b'%', path).is_some();
        if !path.starts_with(b"/") || (has_escapes && !decode_unreserved(path)) {
            return Err(BadPath::Invalid);
        }
        if !resolve_segments(path, options.merge_slashes) {
            return Err(BadPath::Invalid);
        }
        if has_escapes && memchr(b'%', path).is_some() {
            self.escaped.extend_from_slice(path);
            let has_slashes = decode_rest(path, options.encoded_slashes)?;
            if has_slashes && !resolve_segments(path, options.merge_slashes) {
                return Err(BadPath::Invalid);
            }
        }
        Ok(())
    }

    /// The index where PATH_INFO begins. Its slashes are single, and each stands for one or more
    /// slashes of the path (server/util.c: ap_find_path_info).
    fn file_end(&self, path_info: &[u8]) -> usize {
        let mut own = &self[..];
        for byte in path_info.iter().rev() {
            let Some(before) = own.strip_suffix(&[*byte]) else { break };
            own = before;
            while let (b'/', [before @ .., b'/']) = (*byte, own) {
                own = before;
            }
        }
        let behind = self.get(own.len()..).unwrap_or_default();
        own.len() + memchr(b'/', behind).unwrap_or(behind.len())
    }

    fn folder_end(&self, length: usize) -> usize {
        let own = self.get(..length).unwrap_or_default();
        memrchr(b'/', own).map_or(0, |at| at + 1)
    }
}

impl Deref for UrlPath {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.path
    }
}

impl Deref for MergedPath<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The target with a single slash at its beginning: `//x/y` is a path and not a network location
/// (Apache: util.c, ap_parse_uri), whatever MergeSlashes says.
#[must_use]
pub fn without_doubled_slash(text: &[u8]) -> &[u8] {
    let slashes = text.iter().take_while(|byte| **byte == b'/').count();
    text.get(slashes.saturating_sub(1)..).unwrap_or_default()
}

/// Whether the path is already normalised, which is the usual case.
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

/// The byte that the two digits of an escape stand for.
fn escape_at(path: &[u8], at: usize) -> Option<u8> {
    let digit = |index: usize| char::from(*path.get(index)?).to_digit(16);
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

/// Decodes letters, digits and `-._~` (RFC 3986, section 2.3). Returns false for a broken escape.
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

/// Decodes the remaining escapes. Returns whether there were slashes among them.
fn decode_rest(path: &mut Vec<u8>, slashes: AllowEncodedSlashes) -> Result<bool, BadPath> {
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
            (Some(0), _) => return Err(BadPath::Nul),
            (Some(b'/'), AllowEncodedSlashes::Off) => return Err(BadPath::EncodedSlash),
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

/// Removes `.` and empty segments, and removes with each `..` the segment before it (RFC 3986,
/// section 5.2.4). Returns false if there is none.
fn resolve_segments(path: &mut Vec<u8>, merge: bool) -> bool {
    // What was written always ends after a slash while segments remain.
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

#[cfg(test)]
mod tests {
    use super::*;
    use AllowEncodedSlashes::{NoDecode, Off, On};
    use proptest::prelude::*;

    fn outcome(path: &str, encoded_slashes: AllowEncodedSlashes) -> Result<String, BadPath> {
        with(path, UriOptions { encoded_slashes, merge_slashes: true })
    }

    fn with(path: &str, options: UriOptions) -> Result<String, BadPath> {
        let parsed = UrlPath::parse(path.as_bytes(), options)?;
        Ok(String::from_utf8_lossy(&parsed).into_owned())
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
                assert_eq!(outcome(path, slashes), Err(BadPath::Invalid), "{path}");
            }
        }
        for slashes in [Off, On, NoDecode] {
            assert_eq!(outcome("/a%00b", slashes), Err(BadPath::Nul));
        }
    }

    #[test]
    fn encoded_slashes_follow_the_directive() {
        assert_eq!(outcome("/a%2fb", Off), Err(BadPath::EncodedSlash));
        assert_eq!(outcome("/a%2fb%25", On).as_deref(), Ok("/a/b%"));
        assert_eq!(outcome("/a%2Fb%25", NoDecode).as_deref(), Ok("/a%2Fb%"));
        assert_eq!(outcome("/x%2f..%2fa", On).as_deref(), Ok("/a"));
        assert_eq!(outcome("/x%2f..%2f..%2fa", On), Err(BadPath::Invalid));
        let apart = UriOptions { encoded_slashes: Off, merge_slashes: false };
        assert_eq!(with("//a//b", apart).as_deref(), Ok("//a//b"));
        assert_eq!(with("/a//../b", apart).as_deref(), Ok("/a/b"));
    }

    #[test]
    fn the_path_before_it_is_decoded_has_its_segments_resolved() {
        let before = |raw: &str| {
            let path = UrlPath::parse(raw.as_bytes(), UriOptions::default()).unwrap();
            path.before_decoding().map(|it| String::from_utf8_lossy(&it).into_owned())
        };
        assert_eq!(before("/a/../b"), None);
        assert_eq!(before("/%61/b"), None);
        assert_eq!(before("/x/../%61%20b%25").as_deref(), Some("/a%20b%25"));
    }

    #[test]
    fn doubled_slashes_are_merged_for_sections_alone() {
        let apart = UriOptions { encoded_slashes: On, merge_slashes: false };
        for (raw, path, merged) in [
            ("/a/b", "/a/b", "/a/b"),
            ("/a//b/", "/a//b/", "/a/b/"),
            ("///", "///", "/"),
            ("/%2fa", "//a", "/a"),
            ("*", "*", "*"),
        ] {
            let parsed = UrlPath::parse(raw.as_bytes(), apart).unwrap();
            assert_eq!((&*parsed, &*parsed.merged()), (path.as_bytes(), merged.as_bytes()));
        }
    }

    #[test]
    fn a_slash_of_path_info_stands_for_several() {
        let apart = UriOptions { merge_slashes: false, ..UriOptions::default() };
        for (raw, path_info, beside) in [
            ("/a/x//y", "/y", "/a/n/y"),
            ("/a/x/y//z", "/y/z", "/a/n/y/z"),
            ("/a/x//", "/", "/a/n/"),
            ("/a//x//y", "/y", "/a//n/y"),
            ("/a/x.html", "/other", "/a/n/other"),
        ] {
            let path = UrlPath::parse(raw.as_bytes(), apart).unwrap();
            let made = path.beside(b"n", path_info.as_bytes());
            assert_eq!(String::from_utf8_lossy(&made), beside, "{raw}");
        }
        let path = UrlPath::parse(b"//i/x", apart).unwrap();
        assert_eq!(&*path.beside(b"n", b""), b"/i/n");
    }

    #[test]
    fn a_path_that_is_refused_leaves_nothing() {
        let mut path = UrlPath::parse(b"/old", UriOptions::default()).unwrap();
        assert_eq!(path.read(b"/a/../..", UriOptions::default()), Err(BadPath::Invalid));
        assert!(path.is_empty());
    }

    #[test]
    fn other_names_take_the_place_of_the_last() {
        let path = UrlPath::parse(b"/a/b/c/d", UriOptions::default()).unwrap();
        assert_eq!(&*path.beside(b"x", b""), b"/a/b/c/x");
        assert_eq!(&*path.beside(b"x", b"/c/d"), b"/a/x/c/d");
        assert_eq!(&*path.beside(b"x/", b""), b"/a/b/c/x/");
        assert_eq!(path.folder(), b"/a/b/c/");
        assert_eq!(&*UrlPath::default().beside(b"x", b""), b"/x");
    }

    proptest! {
        /// No result can climb.
        #[test]
        fn the_result_is_safe(path in "[/.a%205fF\u{e4}]{0,24}", merge: bool) {
            let options = UriOptions { encoded_slashes: On, merge_slashes: merge };
            if let Ok(path) = UrlPath::parse(format!("/{path}").as_bytes(), options) {
                prop_assert!(!path.contains(&0));
                prop_assert!(!path.split(|b| *b == b'/').any(|s| s == b"." || s == b".."));
                prop_assert!(!path.merged().windows(2).any(|pair| pair == b"//"));
                prop_assert!(!merge || path.merged() == MergedPath(Cow::Borrowed(&path)));
            }
        }
    }
}
