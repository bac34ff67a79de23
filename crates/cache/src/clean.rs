//! Cleaning a cache (htcacheclean): walks the files below CacheRoot, lists what they hold, removes
//! what a URL names, and what exceeds a bound: first what is stale, then what is oldest.

use crate::entry::{Content, Entry};
use crate::freshness::now;
use crate::place::is_entry;
use crate::shelf::read_head;
use evenkeel_sys::open::open_to_read;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that is being written has such a name for a moment. An older one was left behind.
const LEFT_AFTER: Duration = Duration::from_secs(3_600);

/// A file of a cache.
#[derive(Debug)]
pub struct Found {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// When it was written.
    pub modified: SystemTime,
    /// What it holds; none if it is damaged.
    pub content: Option<Content>,
}

impl Found {
    /// The response in the file, if it holds one.
    #[must_use]
    pub fn entry(&self) -> Option<&Entry> {
        match &self.content {
            Some(Content::Entry(entry, _)) => Some(entry),
            _ => None,
        }
    }

    /// The URL of the file.
    #[must_use]
    pub fn url(&self) -> Option<&[u8]> {
        match self.content.as_ref()? {
            Content::Entry(entry, _) => Some(entry.key.url()),
            Content::Index(index) => Some(index.key.url()),
        }
    }
}

/// The bounds of a cache; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// All files in bytes.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
    /// Sizes of files count in multiples of this; 0 and 1 for single bytes.
    pub rounding: u64,
}

/// What a run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The bounds.
    pub bounds: Bounds,
    /// Whether it removes nothing.
    pub is_dry: bool,
    /// Whether empty folders are removed.
    pub removes_folders: bool,
    /// How long it rests after each hundredth file.
    pub rest: Duration,
}

/// What a run has found and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The bytes before and after.
    pub bytes: (u64, u64),
    /// The files and folders before and after.
    pub inodes: (u64, u64),
    /// The responses before and after.
    pub entries: (u64, u64),
    /// How many were from the future, stale and fresh when they were removed.
    pub removed: (u64, u64, u64),
}

/// What is walked through.
#[derive(Default)]
struct Walk {
    found: Vec<Found>,
    /// The folders below the root, inner ones first.
    folders: Vec<PathBuf>,
}

/// Calls `visit` with each file of a cache.
///
/// # Errors
/// The root cannot be read. What goes away meanwhile is skipped.
pub fn each(root: &Path, mut visit: impl FnMut(Found)) -> io::Result<()> {
    walk(root, Duration::ZERO).map(|walk| walk.found.into_iter().for_each(&mut visit))
}

/// Removes the responses of a URL, and returns how many files that were.
///
/// # Errors
/// The root cannot be read, or a file cannot be removed.
pub fn remove_url(root: &Path, url: &[u8], is_dry: bool) -> io::Result<u64> {
    let mut removed = 0;
    for found in walk(root, Duration::ZERO)?.found.iter().filter(|it| it.url() == Some(url)) {
        if !is_dry {
            fs::remove_file(&found.path)?;
        }
        removed += 1;
    }
    Ok(removed)
}

/// Removes what exceeds the bounds.
///
/// # Errors
/// The root cannot be read.
pub fn clean(root: &Path, run: &Run) -> io::Result<Report> {
    let Walk { mut found, folders } = walk(root, run.rest)?;
    let size = |it: &Found| it.size.next_multiple_of(run.bounds.rounding.max(1));
    let bytes: u64 = found.iter().map(size).sum();
    let inodes = (found.len() + folders.len()) as u64;
    let entries = found.iter().filter(|it| it.entry().is_some()).count() as u64;
    let mut report = Report {
        bytes: (bytes, bytes),
        inodes: (inodes, inodes),
        entries: (entries, entries),
        removed: (0, 0, 0),
    };
    let now = now();
    found.sort_by_key(|it| (rank(it, now), it.modified));
    for file in &found {
        let Bounds { bytes, inodes, .. } = run.bounds;
        let is_over =
            (bytes > 0 && report.bytes.1 > bytes) || (inodes > 0 && report.inodes.1 > inodes);
        if !is_over && rank(file, now) > Rank::Damaged {
            break;
        }
        if !run.is_dry && fs::remove_file(&file.path).is_err() {
            continue;
        }
        report.bytes.1 = report.bytes.1.saturating_sub(size(file));
        report.inodes.1 = report.inodes.1.saturating_sub(1);
        if file.entry().is_some() {
            report.entries.1 = report.entries.1.saturating_sub(1);
            match rank(file, now) {
                Rank::Damaged | Rank::Future => report.removed.0 += 1,
                Rank::Stale => report.removed.1 += 1,
                Rank::Fresh => report.removed.2 += 1,
            }
        }
    }
    if run.removes_folders && !run.is_dry {
        // A folder that is not empty stays.
        let gone = folders.iter().filter(|path| fs::remove_dir(path).is_ok()).count() as u64;
        report.inodes.1 = report.inodes.1.saturating_sub(gone);
    }
    Ok(report)
}

/// The order in which files are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Damaged,
    Future,
    Stale,
    Fresh,
}

fn rank(found: &Found, now: i64) -> Rank {
    match &found.content {
        None => Rank::Damaged,
        Some(Content::Index(_)) => Rank::Fresh,
        Some(Content::Entry(entry, _)) if entry.times.received > now => Rank::Future,
        Some(Content::Entry(entry, _)) => match entry.times.age(now) < entry.times.lifetime {
            true => Rank::Fresh,
            false => Rank::Stale,
        },
    }
}

fn walk(root: &Path, rest: Duration) -> io::Result<Walk> {
    let mut walk = Walk::default();
    walk_folder(root, rest, &mut walk)?;
    Ok(walk)
}

fn walk_folder(folder: &Path, rest: Duration, walk: &mut Walk) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        let path = entry.path();
        if metadata.is_dir() {
            // A folder that went away holds nothing.
            if walk_folder(&path, rest, walk).is_ok() {
                walk.folders.push(path);
            }
        } else if is_entry(&path) || is_left_behind(&path, &metadata) {
            let content = open_to_read(&path).ok().and_then(|it| read_head(&it));
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            walk.found.push(Found { path, size: metadata.len(), modified, content });
            if !rest.is_zero() && walk.found.len().is_multiple_of(100) {
                std::thread::sleep(rest);
            }
        }
    }
    Ok(())
}

/// Whether a file was to replace another when its process died.
fn is_left_behind(path: &Path, metadata: &Metadata) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let digits = name.strip_prefix('.').unwrap_or_default();
    let is_named = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let age = metadata.modified().ok().and_then(|it| it.elapsed().ok());
    is_named && age.is_some_and(|age| age > LEFT_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::entry;
    use crate::place::Place;
    use crate::{Entry, Times};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    struct Cache(tempfile::TempDir);

    impl Cache {
        fn put(&self, url: &str, lifetime: u64, minutes_ago: u64) {
            let place = Place { root: self.0.path().into(), levels: 1, length: 1 };
            let times = Times { received: now() - 60, lifetime, ..Times::default() };
            let entry = Entry { times, body_length: 1_000, ..entry(url) };
            let path = place.path_of(entry.key.text());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = File::create(path).unwrap();
            let head = entry.encode();
            file.write_all_at(&head, 0).unwrap();
            file.set_len(head.len() as u64 + 1_000).unwrap();
            let time = SystemTime::now() - Duration::from_secs(60 * minutes_ago);
            file.set_modified(time).unwrap();
        }

        fn urls(&self) -> Vec<String> {
            let mut urls = Vec::new();
            each(self.0.path(), |found| {
                urls.push(String::from_utf8_lossy(found.url().unwrap()).into_owned());
            })
            .unwrap();
            urls.sort();
            urls
        }
    }

    fn cache() -> Cache {
        let cache = Cache(tempfile::tempdir().unwrap());
        for (url, lifetime, minutes_ago) in
            [("http://a/old", 9_999, 3), ("http://a/new", 9_999, 1), ("http://a/stale", 1, 2)]
        {
            cache.put(url, lifetime, minutes_ago);
        }
        cache
    }

    #[test]
    fn what_is_stale_goes_first_and_then_what_is_oldest() {
        let cache = cache();
        let size = clean(cache.0.path(), &Run::default()).unwrap().bytes.0 / 3;
        for (files, left) in [
            (3, &["http://a/new", "http://a/old", "http://a/stale"][..]),
            (2, &["http://a/new", "http://a/old"]),
            (1, &["http://a/new"]),
        ] {
            let bounds = Bounds { bytes: files * size, ..Bounds::default() };
            clean(cache.0.path(), &Run { bounds, ..Run::default() }).unwrap();
            assert_eq!(cache.urls(), left);
        }
    }

    #[test]
    fn a_dry_run_reports_and_removes_nothing() {
        let cache = cache();
        let bounds = Bounds { bytes: 1, ..Bounds::default() };
        let run = Run { bounds, is_dry: true, ..Run::default() };
        let report = clean(cache.0.path(), &run).unwrap();
        assert_eq!((report.entries, report.removed), ((3, 0), (0, 1, 2)));
        assert_eq!(cache.urls().len(), 3);
    }

    #[test]
    fn a_url_and_empty_folders_are_removed() {
        let cache = cache();
        assert_eq!(remove_url(cache.0.path(), b"http://a/new", true).unwrap(), 1);
        assert_eq!(remove_url(cache.0.path(), b"http://a/new", false).unwrap(), 1);
        assert_eq!(remove_url(cache.0.path(), b"http://a/new", false).unwrap(), 0);
        let bounds = Bounds { inodes: 1, ..Bounds::default() };
        let run = Run { bounds, removes_folders: true, ..Run::default() };
        clean(cache.0.path(), &run).unwrap();
        assert_eq!(fs::read_dir(cache.0.path()).unwrap().count(), 0);
    }

    #[test]
    fn damaged_files_are_removed_whatever_the_bounds_and_others_files_stay() {
        let cache = cache();
        fs::write(cache.0.path().join("x.entry"), "damaged").unwrap();
        fs::write(cache.0.path().join("x.header"), "of apache2").unwrap();
        clean(cache.0.path(), &Run::default()).unwrap();
        assert_eq!(cache.urls().len(), 3);
        assert!(cache.0.path().join("x.header").exists());
        assert!(each(&cache.0.path().join("none"), |_| ()).is_err());
    }
}
