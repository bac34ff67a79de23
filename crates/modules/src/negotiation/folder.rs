//! Reads a folder for the files that a name without its extensions may mean: those whose names go
//! on behind it with a dot. Reading blocks, so a small folder is read at once and a large one in
//! the blocking pool.

use crate::beside::{Beside, SMALL};
use evenkeel_message::quoted_path;
use std::fs::read_dir;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Entries up to which a folder is read.
const MOST: usize = 100_000;

/// What came of reading a folder.
#[derive(Debug, PartialEq, Eq)]
enum Names {
    All(Vec<Vec<u8>>),
    TooMany,
    /// It was broken off.
    Unwanted,
}

/// The names of the files of a folder that go on behind a name with a dot, in no order; or why the
/// folder cannot be read.
pub type Siblings = Result<Vec<Vec<u8>>, Box<str>>;

/// The siblings of a name in a folder that is small; none for a larger one.
#[must_use]
pub fn few_siblings(folder: &Path, base: &[u8]) -> Option<Siblings> {
    match read(folder, base, SMALL, || true) {
        Ok(Names::All(names)) => Some(Ok(names)),
        Ok(_) => None,
        Err(error) => Some(Err(error.to_string().into())),
    }
}

/// The same of any folder, read beside the serving thread; none where nothing comes of that (see
/// [`Beside::perform`]).
pub async fn siblings(beside: &Beside, folder: PathBuf, base: Vec<u8>) -> Option<Siblings> {
    let what = format!("reading the folder {} for MultiViews", quoted_path(&folder));
    let work = beside.perform(what, move |progress| {
        match read(&folder, &base, MOST, || progress.report()) {
            Ok(Names::All(names)) => Some(Ok(names)),
            Ok(Names::TooMany) => Some(Err(format!("it has more than {MOST} entries").into())),
            Ok(Names::Unwanted) => None,
            Err(error) => Some(Err(error.to_string().into())),
        }
    });
    work.await
}

/// Whether a file is one of those that a name may mean: its own goes on with a dot.
fn goes_on(name: &[u8], base: &[u8]) -> bool {
    name.strip_prefix(base).is_some_and(|rest| rest.starts_with(b"."))
}

/// `is_wanted` is called at each entry. Errors are those of opening the folder; one that can be
/// read only in part has no other names.
fn read(
    folder: &Path,
    base: &[u8],
    most: usize,
    mut is_wanted: impl FnMut() -> bool,
) -> io::Result<Names> {
    let mut names = Vec::new();
    for (number, entry) in read_dir(folder)?.enumerate() {
        if number >= most {
            return Ok(Names::TooMany);
        }
        if !is_wanted() && number >= SMALL {
            return Ok(Names::Unwanted);
        }
        let Ok(entry) = entry else { break };
        let name = entry.file_name().into_vec();
        if goes_on(&name, base) && !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(name);
        }
    }
    Ok(Names::All(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::MayWait;
    use evenkeel_sys::blocking_pool::BlockingPool;
    use std::rc::Rc;
    use std::sync::Arc;

    #[test]
    fn names_go_on_with_a_dot_and_no_more_is_read_than_was_said() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        for name in ["page.en", "page.de", "pages.en", "page", "other.x", "else.y"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        std::fs::create_dir(folder.join("page.d")).unwrap();
        let Ok(Names::All(mut names)) = read(folder, b"page", 7, || true) else { panic!("7 fit") };
        names.sort();
        assert_eq!(names, [b"page.de", b"page.en"]);
        assert_eq!(read(folder, b"page", 6, || true).unwrap(), Names::TooMany);
        assert!(read(folder, b"page", 7, || false).is_ok_and(|it| it != Names::Unwanted));
        let absent = few_siblings(Path::new("/nonexistent"), b"page").unwrap();
        assert!(absent.unwrap_err().starts_with("No such file"));
    }

    #[test]
    fn a_large_folder_is_read_beside_the_serving_thread() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..SMALL {
            std::fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        assert!(few_siblings(root.path(), b"7").is_some());
        std::fs::write(root.path().join("7.txt"), "").unwrap();
        assert!(few_siblings(root.path(), b"7").is_none());
        let beside =
            Beside::new(&MayWait::in_task(), Arc::new(BlockingPool::new(1)), Rc::default());
        let reading = siblings(&beside, root.path().into(), b"7".to_vec());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(reading).unwrap();
        assert_eq!(found.unwrap(), [b"7.txt"]);
        assert_eq!(read(root.path(), b"", MOST, || false).unwrap(), Names::Unwanted);
    }
}
