//! Follows a symbolic link step by step, and watches each step before it reads it. The result is
//! the real path, what is there, and every step on the way. Nothing is opened.

use crate::folder::join;
use crate::watches::Watches;
use evenkeel_sys::inotify::WatchScope;
use evenkeel_sys::open::{self, Stat};
use std::io;

/// The kernel's own bound on links in one path (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// One component on the way of a link.
#[derive(Debug)]
pub(crate) struct Passed {
    /// The watch of the folder that contains it.
    pub(crate) watch: Option<i32>,
    /// The path without links.
    pub(crate) path: Box<[u8]>,
    /// The result of lstat.
    pub(crate) own: Result<Stat, i32>,
}

impl Passed {
    /// The last component of the path.
    pub(crate) fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

/// The target of a link.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The path without links.
    pub(crate) real: Vec<u8>,
    /// What is there, or the errno of the first step that failed.
    pub(crate) target: Result<Stat, i32>,
    /// Every component on the way.
    pub(crate) passed: Vec<Passed>,
    /// Whether each of them is watched.
    pub(crate) watched: bool,
}

/// Follows a link in the folder `real` with the text `text`.
pub(crate) fn resolve(watches: &mut Watches, real: &[u8], text: &[u8]) -> Resolved {
    let mut at = real.to_vec();
    let mut passed = Vec::new();
    let mut watched = true;
    let mut links = 1;
    // The components still to follow, the next one last.
    let mut ahead: Vec<Vec<u8>> = Vec::new();
    push(&mut ahead, &mut at, text);
    let mut last = None;
    while let Some(name) = ahead.pop() {
        if name == b".." {
            // `at` contains no link, so its parent is the one in its text.
            let end = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            at.truncate(end.max(1));
            last = None;
            continue;
        }
        let watch = watches.watch_folder(&at, WatchScope::Contents).ok();
        watched &= watch.is_some();
        let path = join(&at, &name);
        let own = open::lstat(&path).map_err(errno);
        passed.push(Passed { watch, path: path.clone().into(), own });
        match own {
            Err(error) => return Resolved { real: path, target: Err(error), passed, watched },
            Ok(stat) if stat.is_link() => {
                links += 1;
                let text = open::read_link(&path).map_err(errno);
                match text {
                    Ok(text) if links <= MOST_LINKS => push(&mut ahead, &mut at, &text),
                    Ok(_) => {
                        let target = Err(ELOOP);
                        return Resolved { real: path, target, passed, watched };
                    }
                    Err(error) => {
                        return Resolved { real: path, target: Err(error), passed, watched };
                    }
                }
                last = None;
            }
            Ok(stat) => {
                at = path;
                last = Some(stat);
            }
        }
    }
    let target = last.map_or_else(|| open::lstat(&at).map_err(errno), Ok);
    Resolved { real: at, target, passed, watched }
}

/// Puts the components of a link's text before those that are still to follow.
fn push(ahead: &mut Vec<Vec<u8>>, at: &mut Vec<u8>, text: &[u8]) {
    if text.first() == Some(&b'/') {
        at.clear();
        at.push(b'/');
    }
    let names = text.split(|byte| *byte == b'/').rev();
    ahead.extend(names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec));
}

/// Too many links (errno(3)).
const ELOOP: i32 = 40;

/// The errno of an error; EIO if it has none.
pub(crate) fn errno(error: io::Error) -> i32 {
    const EIO: i32 = 5;
    error.raw_os_error().unwrap_or(EIO)
}

/// Whether a component is unchanged. For files and links everything is compared; for folders only
/// what identifies a folder, because its times change with its contents.
pub(crate) fn is_same(old: &Result<Stat, i32>, new: &Result<Stat, i32>) -> bool {
    match (old, new) {
        (Ok(old), Ok(new)) if old.is_folder() => {
            (old.device, old.inode, old.mode, old.uid, old.gid)
                == (new.device, new.inode, new.mode, new.uid, new.gid)
        }
        _ => old == new,
    }
}

/// Whether every component on the way of a link is unchanged.
pub(crate) fn all_same(passed: &[Passed]) -> bool {
    passed.iter().all(|step| is_same(&step.own, &open::lstat(&step.path).map_err(errno)))
}
