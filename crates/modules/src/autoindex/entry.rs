//! From what a look at an entry came upon to its row in the listing: icon, text, description.
//! It reads the beginning of HTML files where their titles are wanted, and so blocks.

use super::folder::Candidate;
use super::options::Flags;
use super::query::Asked;
use super::rule::{FOLDER, Item, Subject, describe, find};
use super::settings::{Key, Lines, Said};
use super::title::find_title;
use evenkeel_files::ListedFile;
use evenkeel_message::Content;
use evenkeel_sys::open::Stat;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An entry that is listed, with what a look at it came upon.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub candidate: Candidate,
    /// Bytes; those of a folder's index, where a look led there.
    pub size: u64,
    /// The last change of that, nanoseconds since 1970.
    pub modified_ns: i64,
    /// The file that a request for it would be served; none if that is the file with its name in
    /// the folder.
    pub file: Option<PathBuf>,
    /// Where that file really is, without a link on the way, and what stood there; none where no
    /// title is wanted, or the look came upon nothing.
    pub seen: Option<(Vec<u8>, Stat)>,
    /// What that file is.
    pub content: Content,
    /// Whether the client may see it; else it is listed for ShowForbidden's sake.
    pub passed: bool,
}

impl Entry {
    /// The entry of a regular file that the client may see, with what is known of it.
    #[must_use]
    pub fn of_file(candidate: Candidate, file: ListedFile, content: Content) -> Self {
        let ListedFile { size, modified_ns } = file;
        Self { candidate, size, modified_ns, file: None, seen: None, content, passed: true }
    }
}

/// A row of the listing.
#[derive(Clone, Debug, Default)]
pub(super) struct Row<'a> {
    /// The name with a slash behind a folder's; the path of the parent.
    pub name: Vec<u8>,
    pub icon: Option<&'a [u8]>,
    pub text: Option<&'a [u8]>,
    pub description: Option<Cow<'a, [u8]>>,
    /// Bytes; -1 where there is none to show.
    pub size: i64,
    /// Last change, microseconds since 1970; -1 where there is none to show.
    pub modified_us: i64,
    /// Whether it comes before all that does not (FoldersFirst).
    pub leads: bool,
}

/// A media type without its parameters.
fn bare(media_type: &[u8]) -> &[u8] {
    let end = media_type.iter().position(|byte| *byte == b';').unwrap_or(media_type.len());
    media_type.get(..end).unwrap_or_default().trim_ascii_end()
}

impl<'a> Row<'a> {
    /// The row of an entry (mod_autoindex.c: make_autoindex_entry). `folder` is the path of the
    /// folder with its slash.
    pub fn of(mut entry: Entry, folder: &[u8], said: &'a Said, asked: &Asked) -> Self {
        let mut row = Self { size: -1, modified_us: -1, ..Self::default() };
        if asked.flags.has(Flags::FANCY | Flags::TABLE) {
            match entry.file.take() {
                Some(file) => row.fill(&entry, file.as_os_str().as_bytes(), said, asked),
                None => {
                    let file = [folder, &entry.candidate.name].concat();
                    row.fill(&entry, &file, said, asked);
                }
            }
        }
        row.name = std::mem::take(&mut entry.candidate.name);
        if entry.candidate.is_folder {
            row.name.push(b'/');
        }
        if asked.order.key == Key::Modified {
            row.modified_us = row.modified_us.max(0);
        }
        row
    }

    fn fill(&mut self, entry: &Entry, whole: &[u8], said: &'a Said, asked: &Asked) {
        let content = &entry.content;
        let is_folder = entry.candidate.is_folder;
        // A folder is known by its own path, though a look has led to its index.
        let path = if is_folder { above(whole) } else { whole };
        let subject = Subject {
            path,
            media_type: content.media_type.as_deref().map(bare),
            encoding: content.encoding.as_deref(),
            path_only: is_folder,
        };
        let folder = Subject::path(FOLDER);
        let or_folder = |found, items: &'a Lines<Item>| match found {
            None if is_folder => find(items, &folder),
            found => found,
        };
        self.icon = or_folder(find(&said.icons, &subject), &said.icons);
        let text = or_folder(find(&said.texts, &subject), &said.texts);
        self.text = text.or(is_folder.then_some(b"DIR"));
        self.modified_us = entry.modified_ns.div_euclid(1000);
        self.leads = is_folder && asked.flags.has(Flags::FOLDERS_FIRST);
        if !is_folder {
            self.size = i64::try_from(entry.size).unwrap_or(i64::MAX);
        }
        self.description = describe(&said.descriptions, path).map(|text| text.into());
        let scans = asked.flags.has(Flags::SCAN_HTML_TITLES) && !is_folder && entry.passed;
        if self.description.is_none() && scans && content.encoding.is_none() {
            let media_type = content.media_type.as_deref().unwrap_or_default();
            let seen = entry.seen.as_ref();
            let title = seen.and_then(|(path, stat)| find_title(path, stat, media_type));
            self.description = title.map(Cow::Owned);
        }
    }

    /// The row that leads to the folder above; none where there is no such folder, or where it is
    /// left out as `..` (mod_autoindex.c: make_parent_entry).
    pub fn parent(path: &[u8], folder: &Path, said: &'a Said, asked: &Asked) -> Option<Self> {
        let name = parent_path(path)?;
        let mut dots = folder.as_os_str().as_bytes().to_vec();
        if !dots.ends_with(b"/") {
            dots.push(b'/');
        }
        dots.extend_from_slice(b"..");
        if super::rule::is_ignored(&said.ignored, &dots) {
            return None;
        }
        let mut row = Self { name, size: -1, modified_us: -1, ..Self::default() };
        if asked.flags.has(Flags::FANCY) {
            let (up, folder) = (Subject::path(&dots), Subject::path(FOLDER));
            let of = |items: &'a Lines<Item>| find(items, &up).or_else(|| find(items, &folder));
            row.icon = of(&said.icons);
            row.text = of(&said.texts).or(Some(b"PARENTDIR"));
            row.description = describe(&said.descriptions, &dots).map(Into::into);
        }
        Some(row)
    }
}

/// The folder of a path, without its slash.
fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.get(..end).unwrap_or_default()
}

/// The path above one, with its slash; none above the root.
fn parent_path(path: &[u8]) -> Option<Vec<u8>> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let end = path.iter().rposition(|byte| *byte == b'/')?;
    path.get(..=end).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::super::MODULE;
    use super::*;
    use crate::testing::apply;
    use std::sync::Arc;

    fn entry(name: &str, is_folder: bool, file: &str, media_type: &str) -> Entry {
        let candidate = Candidate { name: name.into(), is_folder };
        let media_type = Some(media_type.as_bytes().into());
        let content = Content { media_type, ..Content::default() };
        let (size, modified_ns) = (7, 1_500_000_001);
        let file = Some(file.into());
        Entry { candidate, size, modified_ns, file, seen: None, content, passed: true }
    }

    fn said(directives: &str) -> Arc<Said> {
        apply(MODULE, directives).unwrap().directory.autoindex.said()
    }

    fn row(entry: Entry, said: &Said) -> Row<'_> {
        Row::of(entry, b"/d/", said, &Asked::parse(said, None))
    }

    const FANCY: &str = "IndexOptions FancyIndexing FoldersFirst\nAddIcon /f ^^DIRECTORY^^\n\
        AddIconByType (HTM,/h) text/html\nAddDescription sub s\nAddAlt up ..\n";

    #[test]
    fn files_are_described_by_what_the_look_found() {
        let (fancy, bare) = (said(FANCY), said(""));
        let got = row(entry("a", false, "/d/a", "text/html; charset=x"), &fancy);
        assert_eq!((got.icon, got.text), (Some(&b"/h"[..]), Some(&b"HTM"[..])));
        assert_eq!((got.size, got.modified_us, got.leads), (7, 1_500_000, false));
        let beside = Entry { file: None, ..entry("a", false, "", "image/gif") };
        let described = said("IndexOptions FancyIndexing\nAddDescription it d/a");
        let text = |entry| row(entry, &described).description.map(Cow::into_owned);
        assert_eq!((text(beside), text(entry("a", false, "/e/a", ""))), (Some(b"it".into()), None));
        let plain = row(entry("a", false, "/d/a", "text/html"), &bare);
        assert_eq!((plain.icon, plain.size, plain.modified_us), (None, -1, -1));
    }

    #[test]
    fn folders_are_known_by_their_own_path() {
        let said = said(FANCY);
        let got = row(entry("s", true, "/d/s/index.html", "text/html"), &said);
        assert_eq!((got.icon, got.text), (Some(&b"/f"[..]), Some(&b"DIR"[..])));
        assert_eq!(got.description.as_deref(), Some(&b"sub"[..]));
        assert_eq!((got.name.as_slice(), got.size, got.leads), (&b"s/"[..], -1, true));
    }

    #[test]
    fn the_parent_is_found_by_its_dots() {
        fn parent<'a>(path: &str, said: &'a Said) -> Option<Row<'a>> {
            Row::parent(path.as_bytes(), Path::new("/d"), said, &Asked::parse(said, None))
        }
        let (fancy, bare) = (said(FANCY), said(""));
        let got = parent("/x/y/", &fancy).unwrap();
        assert_eq!((got.name.as_slice(), got.text), (&b"/x/"[..], Some(&b"up"[..])));
        assert_eq!(got.icon, Some(&b"/f"[..]));
        assert_eq!(parent("/x", &bare).unwrap().name, b"/");
        assert!(parent("/", &bare).is_none());
        assert!(parent("/x/", &said("IndexIgnore ..")).is_none());
    }
}
