//! Lines that mean some files: icons and texts by name, type or encoding, names that are left
//! out, descriptions. A rule and a file go in, whether they fit goes out. Nothing here looks at
//! the file.

use super::settings::Lines;
use crate::Place;
use evenkeel_expr::{Glob, GlobStyle, glob};
use evenkeel_message::unquoted;

/// A slash is as any other byte.
const ANY: GlobStyle = GlobStyle { path: false, ignore_case: false };
const ANY_CASE: GlobStyle = GlobStyle { path: false, ignore_case: true };

/// What stands for folders, and for the icon of a listing's head, where a path is asked for.
pub(super) const FOLDER: &[u8] = b"^^DIRECTORY^^";
pub(super) const BLANK: &[u8] = b"^^BLANKICON^^";

/// What of a file a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its path.
    Path,
    /// Its media type.
    Type,
    /// Its encoding.
    Encoding,
}

/// Where files must be for a rule to fit: below the path of the section it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Within {
    Everywhere,
    Below(Glob),
    /// Apache compares a section's pattern as if it were a path, which no file fits.
    Nowhere,
}

impl Within {
    fn of(place: &Place) -> Self {
        match place {
            Place::Server => Within::Everywhere,
            Place::Directory(path) | Place::Location(path) => {
                let mut pattern = wildcards_alone(path);
                pattern.push(b'*');
                Within::Below(Glob::new(pattern, ANY))
            }
            Place::LocationMatch(_) | Place::Proxy(_) | Place::Pattern => Within::Nowhere,
        }
    }

    fn admits(&self, path: &[u8]) -> bool {
        match self {
            Within::Everywhere => true,
            Within::Below(pattern) => pattern.matches(path),
            Within::Nowhere => false,
        }
    }
}

/// A pattern in which `*` and `?` alone mean something (Apache: ap_strcmp_match), as one for
/// [`Glob`].
fn wildcards_alone(text: &str) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(text.len() + 1);
    for &byte in &*unquoted(text) {
        if matches!(byte, b'[' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern
}

/// One icon, text or left out name, with the files that it is for (Apache: struct item).
#[derive(Clone, Debug)]
pub struct Item {
    by: By,
    within: Within,
    pattern: Glob,
    /// What a file gets; empty for IndexIgnore.
    pub value: Box<[u8]>,
}

/// What is known of a file whose icon or text is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub path: &'a [u8],
    pub media_type: Option<&'a [u8]>,
    pub encoding: Option<&'a [u8]>,
    /// Whether rules by type and encoding are left aside.
    pub path_only: bool,
}

impl<'a> Subject<'a> {
    /// A path of which nothing else counts.
    pub fn path(path: &'a [u8]) -> Self {
        Self { path, media_type: None, encoding: None, path_only: true }
    }
}

impl Item {
    /// A rule for icons or texts. A path without wildcards fits at the end.
    pub(super) fn new(by: By, place: &Place, to: &str, value: &str) -> Self {
        let to = match by {
            By::Path if to == "**DIRECTORY**" => "^^DIRECTORY^^".to_owned(),
            By::Path | By::Type => to.to_owned(),
            By::Encoding => to.to_ascii_lowercase(),
        };
        let mut pattern = wildcards_alone(&to);
        if by == By::Path && !to.contains(['*', '?']) {
            pattern.insert(0, b'*');
        }
        let style = if by == By::Path { ANY } else { ANY_CASE };
        Self {
            by,
            within: Within::of(place),
            pattern: Glob::new(pattern, style),
            value: unquoted(value).into(),
        }
    }

    /// A rule for names that are left out: what follows the last slash is compared.
    pub(super) fn ignoring(place: &Place, to: &str) -> Self {
        let name = to.rsplit('/').next().unwrap_or_default();
        Self {
            by: By::Path,
            within: Within::of(place),
            pattern: Glob::new(wildcards_alone(name), ANY),
            value: Box::default(),
        }
    }

    /// Whether a file gets it (mod_autoindex.c: find_item).
    fn fits(&self, subject: &Subject<'_>) -> bool {
        let special = subject.path.starts_with(b"^");
        if !special && !self.within.admits(subject.path) {
            return false;
        }
        if self.pattern.pattern().is_empty() {
            return true;
        }
        let matches = |text: Option<&[u8]>| {
            text.is_some_and(|text| self.pattern.matches(text)) && !subject.path_only
        };
        match self.by {
            _ if special => glob(self.pattern.pattern(), subject.path, ANY),
            By::Path => self.pattern.matches(subject.path),
            By::Type => subject.encoding.is_none() && matches(subject.media_type),
            By::Encoding => matches(subject.encoding),
        }
    }

    /// Whether it leaves a file out (mod_autoindex.c: ignore_entry).
    fn ignores(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.pattern.matches(name) && self.within.admits(path)
    }
}

/// What the first rule that fits gives a file.
pub(super) fn find<'a>(items: &'a Lines<Item>, subject: &Subject<'_>) -> Option<&'a [u8]> {
    items.iter().find(|item| item.fits(subject)).map(|item| &*item.value)
}

/// Whether a path is left out of listings.
pub(super) fn is_ignored(items: &Lines<Item>, path: &[u8]) -> bool {
    items.iter().any(|item| item.ignores(path))
}

/// A description, with the files that it is for.
#[derive(Clone, Debug)]
pub struct Description {
    pattern: Box<[u8]>,
    whole_path: bool,
    wildcards: bool,
    text: Box<[u8]>,
}

impl Description {
    /// A name without wildcards fits wherever it stands in a file's; one with a slash is compared
    /// with the whole path (mod_autoindex.c: add_desc).
    pub(super) fn new(to: &str, text: &str) -> Self {
        let whole_path = to.contains('/');
        let wildcards = whole_path || has_wildcards(&unquoted(to));
        let pattern = match (wildcards, whole_path) {
            (false, _) => to.to_owned(),
            (true, true) => format!("*/{to}*"),
            (true, false) => format!("*{to}*"),
        };
        let (pattern, text) = (unquoted(&pattern).into(), unquoted(text).into());
        Self { pattern, whole_path, wildcards, text }
    }

    fn fits(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let subject = if self.whole_path { path } else { name };
        if self.wildcards {
            return glob(&self.pattern, subject, ANY);
        }
        let part = &*self.pattern;
        part.is_empty() || subject.windows(part.len()).any(|window| window == part)
    }
}

/// What the first description that fits says of a path.
pub(super) fn describe<'a>(descriptions: &'a Lines<Description>, path: &[u8]) -> Option<&'a [u8]> {
    descriptions.iter().find(|description| description.fits(path)).map(|found| &*found.text)
}

/// Whether a text is a pattern at all (apr_fnmatch_test): a backslash takes the meaning of what
/// follows it, a bracket counts where it is closed.
fn has_wildcards(text: &[u8]) -> bool {
    let mut open = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'*' | b'?' => return true,
            b'\\' if bytes.next().is_none() => return false,
            b'[' => open = true,
            b']' if open => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<T: Clone>(of: impl IntoIterator<Item = T>) -> Lines<T> {
        let mut lines = Lines::default();
        of.into_iter().for_each(|line| lines.push(line));
        lines
    }

    fn gif<'a>(path: &'a [u8], media_type: &'a [u8], encoding: Option<&'a [u8]>) -> Subject<'a> {
        Subject { path, media_type: Some(media_type), encoding, path_only: false }
    }

    #[test]
    fn paths_types_and_encodings_fit() {
        let server = Place::Server;
        let items = lines([
            Item::new(By::Encoding, &server, "X-GZIP", "packed"),
            Item::new(By::Type, &server, "image/*", "image"),
            Item::new(By::Path, &server, ".txt", "text"),
            Item::new(By::Path, &server, "**DIRECTORY**", "folder"),
            Item::new(By::Path, &server, "/core", "bomb"),
        ]);
        let plain = |path| find(&items, &gif(path, b"x/y", None));
        assert_eq!(find(&items, &gif(b"/a.gif", b"Image/gif", None)), Some(&b"image"[..]));
        // An encoding keeps rules by type out.
        assert_eq!(find(&items, &gif(b"/a.gif", b"image/gif", Some(b"br"))), None);
        assert_eq!(
            find(&items, &gif(b"/a.gif", b"image/gif", Some(b"x-gzip"))),
            Some(&b"packed"[..])
        );
        assert_eq!((plain(b"/a.txt"), plain(b"/a.txt.x")), (Some(&b"text"[..]), None));
        assert_eq!((plain(b"/a/core"), plain(b"/a/score")), (Some(&b"bomb"[..]), None));
        assert_eq!(find(&items, &Subject::path(FOLDER)), Some(&b"folder"[..]));
        assert_eq!(find(&items, &Subject::path(BLANK)), None);
        let image = Subject { path_only: true, ..gif(b"/a", b"image/gif", None) };
        assert_eq!(find(&items, &image), None);
    }

    #[test]
    fn rules_hold_below_their_section() {
        let below = Place::Directory("/srv/*/a/".into());
        let items = lines([Item::ignoring(&below, "x/*.b[k]")]);
        assert!(is_ignored(&items, b"/srv/1/a/c/f.b[k]"));
        assert!(!is_ignored(&items, b"/srv/1/a/c/f.bk"));
        assert!(!is_ignored(&items, b"/srv/1/b/f.b[k]"));
        let nowhere = lines([Item::new(By::Path, &Place::Pattern, "^^DIRECTORY^^", "i")]);
        assert_eq!(find(&nowhere, &Subject::path(b"/^^DIRECTORY^^")), None);
        assert_eq!(find(&nowhere, &Subject::path(FOLDER)), Some(&b"i"[..]));
    }

    #[test]
    fn descriptions_fit_by_part_wildcard_or_path() {
        let rules = lines(["tar", "*.[ch]", "d/e", "a[b"].map(|to| Description::new(to, to)));
        assert_eq!(describe(&rules, b"/x/start"), Some(&b"tar"[..]));
        assert_eq!(describe(&rules, b"/tar/x"), None);
        assert_eq!(describe(&rules, b"/x/m.cc"), Some(&b"*.[ch]"[..]));
        assert_eq!(describe(&rules, b"/x/d/efg"), Some(&b"d/e"[..]));
        assert_eq!(describe(&rules, b"/x/cd/e"), None);
        assert_eq!(describe(&rules, b"/x/ca[bd"), Some(&b"a[b"[..]));
    }
}
