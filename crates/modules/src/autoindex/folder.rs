//! Reading a folder: its path and what the request asks for go in, the names that may be listed
//! come out, each a file or a folder. It blocks, and runs beside the serving threads.

use super::query::Asked;
use super::rule::is_ignored;
use super::settings::Said;
use crate::beside::SMALL;
use evenkeel_sys::blocking_pool::Progress;
use evenkeel_sys::open::{EntryType, Name, Names};
use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Entries that one listing shows; the rest of a folder that has more is left out.
const MOST: usize = 100_000;

/// A name in a folder, before anyone has looked whether the client may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name.
    pub name: Vec<u8>,
    /// Whether it is a folder, or a link to one.
    pub is_folder: bool,
}

/// What a folder holds.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    /// Files and folders in the order of the file system.
    pub candidates: Vec<Candidate>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// Reads the names that settings and query let through. Links that lead nowhere, and what is
/// neither file nor folder, are left out. Errors are those of opening the folder; one that can be
/// read only in part is listed so. None where nobody wants a large one any more.
pub(super) fn read(
    path: &Path,
    said: &Said,
    asked: &Asked,
    progress: &Progress,
) -> Option<io::Result<Folder>> {
    let names = match Names::of(path.as_os_str().as_bytes()) {
        Ok(names) => names,
        Err(error) => return Some(Err(error)),
    };
    // A path of each, which only lives while it is compared.
    let mut whole = path.join("").into_os_string().into_vec();
    let start = whole.len();
    let mut folder = Folder::default();
    let (mut number, mut is_unwanted) = (0, false);
    // What can be read of the folder is listed.
    let _partly_read = names.each(|name| {
        if !progress.report() && number >= SMALL {
            is_unwanted = true;
            return ControlFlow::Break(());
        }
        number += 1;
        whole.truncate(start);
        whole.extend_from_slice(name.bytes());
        if !asked.names(name.bytes()) || is_ignored(&said.ignored, &whole) {
            return ControlFlow::Continue(());
        }
        let Some(is_folder) = is_folder(name) else { return ControlFlow::Continue(()) };
        if folder.candidates.len() >= MOST {
            folder.is_cut = true;
            return ControlFlow::Break(());
        }
        folder.candidates.push(Candidate { name: name.bytes().to_vec(), is_folder });
        ControlFlow::Continue(())
    });
    (!is_unwanted).then_some(Ok(folder))
}

/// Whether a name is a folder's; none if it is neither a folder's nor a file's. Only links cost a
/// system call: the look at an entry asks for its attributes anyway.
fn is_folder(name: &Name<'_>) -> Option<bool> {
    match name.entry_type() {
        EntryType::File => Some(false),
        EntryType::Folder => Some(true),
        EntryType::Other => None,
        EntryType::Unresolved => {
            let found = name.stat().ok()?;
            (found.is_folder() || found.is_file()).then(|| found.is_folder())
        }
    }
}

/// Whether the folder can be read. Errors are those of opening it.
pub(super) fn open(path: &Path) -> io::Result<()> {
    Names::of(path.as_os_str().as_bytes()).map(drop)
}

impl Candidate {
    /// Its name as the last part of a path: with a slash behind it where it is a folder.
    #[must_use]
    pub fn segment(&self) -> Cow<'_, [u8]> {
        match self.is_folder {
            true => [self.name.as_slice(), b"/"].concat().into(),
            false => self.name.as_slice().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::MODULE;
    use super::*;
    use crate::testing::apply;

    fn listed(root: &Path, directives: &str, query: &str) -> Vec<String> {
        let said = apply(MODULE, directives).unwrap().directory.autoindex.said();
        let asked = Asked::parse(&said, Some(query.as_bytes()));
        let folder = read(root, &said, &asked, &Progress::new("a test")).unwrap().unwrap();
        let name = |found: &Candidate| String::from_utf8(found.segment().into()).unwrap();
        let mut names: Vec<String> = folder.candidates.iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn names_are_chosen_and_links_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        std::fs::create_dir(root.join("d")).unwrap();
        for name in ["a.txt", "b~", ".h"] {
            std::fs::write(root.join(name), "12345").unwrap();
        }
        std::os::unix::fs::symlink("d", root.join("to-d")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("broken")).unwrap();
        assert_eq!(listed(root, "", ""), [".h", "a.txt", "b~", "d/", "to-d/"]);
        assert_eq!(listed(root, "IndexIgnore .??* .? *~", ""), ["a.txt", "d/", "to-d/"]);
        assert_eq!(listed(root, "", "P=*t*"), ["a.txt", "to-d/"]);
        let asked = Asked::parse(&Said::default(), Some(b"P=a*"));
        let progress = Progress::new("a test");
        let folder = read(root, &Said::default(), &asked, &progress).unwrap();
        let found = folder.unwrap().candidates.remove(0);
        assert!(!found.is_folder);
        assert_eq!(&*found.segment(), b"a.txt");
    }

    #[test]
    fn what_cannot_be_opened_is_an_error() {
        let nowhere = Path::new("/nonexistent/folder");
        assert!(open(nowhere).is_err());
        let progress = Progress::new("a test");
        assert!(read(nowhere, &Said::default(), &Asked::default(), &progress).unwrap().is_err());
    }

    #[test]
    fn a_large_folder_is_not_read_to_its_end_for_a_client_that_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let read = || {
            let progress = Progress::new("a test");
            progress.cancel();
            read(root.path(), &Said::default(), &Asked::default(), &progress)
        };
        for number in 0..SMALL {
            std::fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(read().unwrap().unwrap().candidates.len(), SMALL);
        std::fs::write(root.path().join("one more"), "").unwrap();
        assert!(read().is_none());
    }
}
