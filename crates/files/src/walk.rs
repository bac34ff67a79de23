//! Walks from the root to a path, component by component, and checks whether an earlier walk would
//! go the same way again (Apache: ap_directory_walk in request.c). The result is what is at the
//! longest existing part of the path. No file is opened here.

use crate::files::FRESH_MS;
use crate::folder::{Folder, join};
use crate::found::{Found, Kind, Link, Looked, NEVER};
use crate::listed::{ListedFile, ListedFolder};
use crate::resolve::{Passed, all_same, errno, is_same, resolve};
use crate::state::{LONGEST_KEY, RoundFolder, State};
use crate::watches::Dependent;
use evenkeel_sys::inotify::WatchScope;
use evenkeel_sys::open::{self, Stat};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

/// The stat of something that does not exist.
const NOTHING: Stat = Stat {
    device: 0,
    inode: 0,
    mode: 0,
    links: 0,
    uid: 0,
    gid: 0,
    size: 0,
    modified_ns: 0,
    changed_ns: 0,
};

/// One component of the way.
enum Step {
    Folder(Rc<Folder>),
    Leaf(Rc<Found>),
}

/// What shows that a folder is unchanged, apart from checking the folder itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Witness {
    /// An entry in the folder. If the folder was replaced, for example by a mount, the entry has
    /// another inode, and its own check finds that.
    Below,
    /// Nothing. An absent file is also absent if its folder is gone, so the folder must be checked.
    Nothing,
}

/// The target of a link, or the component itself if it is not a link.
struct Target {
    stat: Result<Stat, i32>,
    link: Option<Link>,
    passed: Box<[Passed]>,
    real: Option<Box<[u8]>>,
    watched: bool,
}

impl State {
    /// Walks to a path, using cached steps that still hold.
    pub(crate) fn walk(&mut self, path: &[u8], now_ms: u64) -> Looked {
        if let Some(found) = self.founds.get(path).cloned()
            && self.is_current(&found, now_ms)
        {
            return Looked { found, rest: path.len() };
        }
        let mut key: Vec<u8> = Vec::with_capacity(path.len());
        let mut at = 0;
        let mut folder = match self.round_folder_of(path) {
            Some(folder) => {
                key.extend_from_slice(&folder.path);
                at = key.len();
                folder
            }
            None => self.root(now_ms),
        };
        while let Some((start, end)) = next_component(path, at) {
            let name = path.get(start..end).unwrap_or_default();
            if name != b"." {
                key.push(b'/');
                key.extend_from_slice(name);
                match self.step(&folder, &key, name, now_ms) {
                    Step::Folder(inner) => folder = inner,
                    Step::Leaf(found) => {
                        self.note_round_folder(&folder);
                        return Looked { found, rest: end };
                    }
                }
            }
            at = end;
        }
        Looked { found: self.directory(&folder, now_ms), rest: at }
    }

    /// The folder of the first entry of this round, if the path leads through it.
    fn round_folder_of(&self, path: &[u8]) -> Option<Rc<Folder>> {
        let folder = &self.round_folder.as_ref()?.folder;
        let rest = path.strip_prefix(&*folder.path)?;
        (rest.starts_with(b"/") && folder.valid.get()).then(|| Rc::clone(folder))
    }

    /// Remembers the folder of the first entry of a round.
    fn note_round_folder(&mut self, folder: &Rc<Folder>) {
        if !self.is_round || self.round_folder.is_some() || *folder.path == *b"/" {
            return;
        }
        let is_examined = self.is_large && !self.keeps_large;
        self.round_folder = Some(RoundFolder::new(Rc::clone(folder), is_examined));
    }

    /// The regular file with that path in the folder of a large round whose files are not cached.
    /// None for whatever else is there, and outside of such a round.
    pub(crate) fn file_of_round(&self, path: &[u8]) -> Option<Rc<Found>> {
        let (folder, stat) = self.stat_in_round(path)?;
        Some(Rc::new(Found {
            path: path.into(),
            kind: Kind::File,
            folder: Rc::clone(folder),
            own: Ok(stat),
            stat,
            link: None,
            passed: Box::new([]),
            real: None,
            file_watch: Cell::new(None),
            trusted: false,
            valid: Cell::new(false),
            used: Cell::new(false),
            voided: Cell::new(NEVER),
            checked_ms: Cell::new(folder.checked_ms.get()),
            slot: Cell::new(None),
            held: RefCell::default(),
        }))
    }

    /// The folder and the attributes of that file.
    pub(crate) fn stat_in_round(&self, path: &[u8]) -> Option<(&Rc<Folder>, Stat)> {
        let round_folder = self.round_folder.as_ref()?;
        let name = name_in_round(round_folder, path)?;
        let stat = open::lstat_in(round_folder.descriptor()?, name).ok().filter(Stat::is_file)?;
        Some((&round_folder.folder, stat))
    }

    /// What a listing shows of the regular file with that path in the folder of a large round. None
    /// for whatever else is there, and outside of such a round.
    pub(crate) fn listed_in_round(
        &mut self,
        of: &Rc<Folder>,
        path: &[u8],
        now_ms: u64,
    ) -> Option<ListedFile> {
        let round_folder = self.round_folder.as_ref().filter(|it| Rc::ptr_eq(&it.folder, of))?;
        let name = name_in_round(round_folder, path)?;
        if self.listed.as_ref().is_none_or(|listed| !listed.is_for(of, now_ms)) {
            self.listed = None;
            if let Some(watch) = of.watch.get().filter(|_| of.trusted)
                && self.watches.widen(watch, &of.real).is_ok()
            {
                self.listed = Some(ListedFolder::new(Rc::clone(of), now_ms));
            }
        }
        if let Some(file) = self.listed.as_ref().and_then(|listed| listed.file(name)) {
            return Some(file);
        }
        let stat = open::lstat_in(round_folder.descriptor()?, name).ok().filter(Stat::is_file)?;
        if let Some(listed) = &mut self.listed {
            listed.add(name, &stat);
        }
        Some(stat.into())
    }

    /// The attributes of the name in the folder. `path` is the path of both.
    fn lstat_in(&self, folder: &Rc<Folder>, name: &[u8], path: &[u8]) -> Result<Stat, i32> {
        let noted = self.round_folder.as_ref().filter(|noted| Rc::ptr_eq(&noted.folder, folder));
        match noted.and_then(RoundFolder::descriptor) {
            Some(opened) => open::lstat_in(opened, name).map_err(errno),
            None => open::lstat(path).map_err(errno),
        }
    }

    /// Whether the same would be found again. Trusted entries are checked once a second, others
    /// each time.
    pub(crate) fn is_current(&mut self, found: &Found, now_ms: u64) -> bool {
        if found.is_fresh(now_ms, self.voided) {
            return true;
        }
        if !found.valid.get() {
            return false;
        }
        let witness = match found.kind {
            Kind::File | Kind::Other => Witness::Below,
            Kind::Directory | Kind::Absent | Kind::Denied(_) => Witness::Nothing,
        };
        let Some(oldest_ms) = self.same_way_since(&found.folder, witness, now_ms) else {
            return false;
        };
        let holds = found.kind == Kind::Directory || {
            // The links on this path were checked with their folders.
            is_same(&found.own, &open::lstat(&found.path).map_err(errno))
                && all_same(&found.passed)
                && (found.link.is_none() || self.is_same_target(found))
        };
        if !holds {
            self.forget(found);
            return false;
        }
        found.checked_ms.set(oldest_ms);
        true
    }

    fn is_same_target(&self, found: &Found) -> bool {
        match &found.real {
            Some(real) => open::lstat(real).map_err(errno).ok() == found.stat(),
            None => true,
        }
    }

    /// Checks the folder and its parents, the outermost first. Returns the time of the oldest check
    /// that the result relies on, or `None` if something has changed.
    fn same_way_since(
        &mut self,
        folder: &Rc<Folder>,
        witness: Witness,
        now_ms: u64,
    ) -> Option<u64> {
        let oldest_ms = match &folder.parent {
            Some(parent) => self.same_way_since(parent, Witness::Below, now_ms)?,
            None => now_ms,
        };
        if !self.is_same_folder(folder, now_ms, witness) {
            return None;
        }
        let is_telling = witness != Witness::Below || folder.is_exchangeable();
        Some(if is_telling { oldest_ms.min(folder.checked_ms.get()) } else { oldest_ms })
    }

    /// Whether a folder is unchanged, provided that those around it are.
    fn is_same_folder(&mut self, folder: &Rc<Folder>, now_ms: u64, witness: Witness) -> bool {
        if !folder.valid.get() {
            return false;
        }
        if self.is_round && folder.checked_in.get() == self.round {
            return true;
        }
        folder.used.set(true);
        let due = now_ms.saturating_sub(folder.checked_ms.get()) > FRESH_MS;
        let is_looked_at = match witness {
            Witness::Nothing => due || !folder.trusted,
            Witness::Below => (due || !folder.trusted) && folder.is_exchangeable(),
        };
        if !is_looked_at {
            return true;
        }
        let own_path = match &folder.parent {
            Some(parent) => parent.member(folder.name()),
            None => folder.path.to_vec(),
        };
        let same = |old: Stat, path: &[u8]| is_same(&Ok(old), &open::lstat(path).map_err(errno));
        let holds = same(folder.own, &own_path)
            && (folder.link.is_none() || same(folder.stat, &folder.real))
            && all_same(&folder.passed)
            && folder.access.borrow().iter().all(|access| access.is_same(folder));
        if holds {
            folder.checked_ms.set(now_ms);
            folder.checked_in.set(self.round);
        } else {
            self.drop_folder(folder);
        }
        holds
    }

    fn root(&mut self, now_ms: u64) -> Rc<Folder> {
        if let Some(root) = self.folders.get(&b"/"[..]).cloned()
            && self.is_same_folder(&root, now_ms, Witness::Nothing)
        {
            return root;
        }
        let own = open::lstat(b"/").unwrap_or(NOTHING);
        let target =
            Target { stat: Ok(own), link: None, passed: Box::new([]), real: None, watched: true };
        self.enter(None, b"/", b"/", own, own, target, now_ms)
    }

    /// One step of the walk, from the tables or from the file system.
    fn step(&mut self, folder: &Rc<Folder>, key: &[u8], name: &[u8], now_ms: u64) -> Step {
        if let Some(inner) = self.folders.get(key).cloned()
            && self.is_same_folder(&inner, now_ms, Witness::Nothing)
        {
            return Step::Folder(inner);
        }
        if let Some(found) = self.founds.get(key).cloned()
            && found.kind != Kind::Directory
            && self.is_current(&found, now_ms)
        {
            found.used.set(true);
            return Step::Leaf(found);
        }
        if name == b".." {
            // Paths are normalised at this point. What is above a folder is never served by its
            // name.
            let target = Target::absent(EACCES);
            return Step::Leaf(self.leaf(folder, key, Err(EACCES), target, now_ms));
        }
        self.examine(folder, key, name, now_ms)
    }

    /// Examines a component that is not cached.
    fn examine(&mut self, folder: &Rc<Folder>, key: &[u8], name: &[u8], now_ms: u64) -> Step {
        let path = folder.member(name);
        let mut own = self.lstat_in(folder, name, &path);
        let is_folder = |own: &Result<Stat, i32>| own.is_ok_and(|stat| stat.is_folder());
        if !is_folder(&own)
            && let Some(watch) = folder.watch.get()
        {
            match self.watches.widen(watch, &folder.real) {
                // A change of the contents between lstat and the wider watch was not reported.
                Ok(true) => own = open::lstat(&path).map_err(errno),
                Ok(false) => {}
                Err(_) => self.drop_folder(folder),
            }
        }
        let target = match own {
            Ok(stat) if stat.is_link() => self.follow(folder, &path, stat),
            _ => Target { stat: own, link: None, passed: Box::new([]), real: None, watched: true },
        };
        match (own, target.stat) {
            (Ok(own), Ok(stat)) if stat.is_folder() => {
                let real = target.real.clone().unwrap_or_else(|| path.into());
                Step::Folder(self.enter(Some(folder), key, &real, own, stat, target, now_ms))
            }
            _ => Step::Leaf(self.leaf(folder, key, own, target, now_ms)),
        }
    }

    /// Follows a link at `path` in a folder.
    fn follow(&mut self, folder: &Rc<Folder>, path: &[u8], own: Stat) -> Target {
        let text = match open::read_link(path) {
            Ok(text) => text,
            Err(error) => return Target::absent(errno(error)),
        };
        let resolved = resolve(&mut self.watches, &folder.real, &text);
        let owner_matches = resolved.target.is_ok_and(|stat| stat.uid == own.uid);
        Target {
            stat: resolved.target,
            link: Some(Link { owner_matches, broken: resolved.target.is_err() }),
            passed: resolved.passed.into(),
            real: Some(resolved.real.into()),
            watched: resolved.watched,
        }
    }

    /// Creates a folder of the tree. It is watched before anything in it is read.
    #[expect(clippy::too_many_arguments, reason = "the facts of one folder, each of its own type")]
    fn enter(
        &mut self,
        parent: Option<&Rc<Folder>>,
        key: &[u8],
        real: &[u8],
        own: Stat,
        stat: Stat,
        target: Target,
        now_ms: u64,
    ) -> Rc<Folder> {
        let may_trust = parent.is_none_or(|parent| parent.trusted)
            && target.watched
            && self.is_local(stat.device, real);
        let watch = match may_trust {
            true => self.watches.watch_folder(real, WatchScope::Names).ok(),
            false => None,
        };
        // The folder that is watched must be the one that was examined.
        let same = is_same(&Ok(stat), &open::lstat(real).map_err(errno));
        let alive = parent.is_none_or(|parent| parent.valid.get()) && same;
        let folder = Rc::new(Folder {
            path: key.into(),
            real: real.into(),
            parent: parent.cloned(),
            children: RefCell::default(),
            own,
            stat,
            link: target.link,
            passed: target.passed,
            watch: Cell::new(watch),
            trusted: watch.is_some(),
            valid: Cell::new(alive),
            used: Cell::new(false),
            checked_ms: Cell::new(now_ms),
            checked_in: Cell::new(self.round),
            slot: Cell::new(None),
            access: RefCell::default(),
        });
        if let Some(watch) = watch {
            self.watches.attach_folder(watch, &folder);
        }
        self.watches.depend(&folder.passed, &Dependent::Folder(Rc::downgrade(&folder)));
        if alive && key.len() <= LONGEST_KEY {
            if let Some(old) = self.folders.get(key).cloned() {
                self.drop_folder(&old);
            }
            self.keep_folder(&folder);
        } else {
            folder.valid.set(false);
            self.watches.detach_folder(&folder);
        }
        folder
    }

    /// Creates an entry for the last component of a walk.
    fn leaf(
        &mut self,
        folder: &Rc<Folder>,
        key: &[u8],
        own: Result<Stat, i32>,
        target: Target,
        now_ms: u64,
    ) -> Rc<Found> {
        let kind = match target.stat {
            Ok(stat) if stat.is_file() => Kind::File,
            Ok(_) => Kind::Other,
            Err(ENOENT | ENOTDIR) => Kind::Absent,
            Err(error) => Kind::Denied(error),
        };
        let stat = target.stat.unwrap_or(NOTHING);
        // A link may lead to a file system that another machine writes to.
        let local = stat.device == folder.stat.device
            || target.stat.is_err()
            || target.real.as_ref().is_none_or(|real| self.is_local(stat.device, real));
        let mut found = Found {
            path: key.into(),
            kind,
            folder: Rc::clone(folder),
            own,
            stat,
            link: target.link,
            passed: target.passed,
            real: target.real,
            file_watch: Cell::new(None),
            trusted: folder.trusted && target.watched && local,
            valid: Cell::new(true),
            used: Cell::new(false),
            voided: Cell::new(NEVER),
            checked_ms: Cell::new(folder.checked_ms.get().min(now_ms)),
            slot: Cell::new(None),
            held: RefCell::default(),
        };
        if kind == Kind::File && stat.links > 1 && found.trusted {
            found = self.watch_inode(found);
        }
        self.register(found)
    }

    /// Watches the inode of a file with several names. Without a watch the entry is not trusted.
    fn watch_inode(&mut self, found: Found) -> Found {
        let real = found.real_path();
        let watch = self.watches.watch_file(&real).ok();
        // A change between lstat and the watch was not reported.
        let same = open::lstat(&real).is_ok_and(|stat| stat == found.stat);
        found.file_watch.set(watch);
        Found { trusted: watch.is_some() && same, ..found }
    }

    /// The entry of a folder itself.
    fn directory(&mut self, folder: &Rc<Folder>, now_ms: u64) -> Rc<Found> {
        if let Some(found) = self.founds.get(&folder.path).cloned()
            && Rc::ptr_eq(&found.folder, folder)
            && self.is_current(&found, now_ms)
        {
            found.used.set(true);
            return found;
        }
        self.register(Found {
            path: folder.path.clone(),
            kind: Kind::Directory,
            folder: Rc::clone(folder),
            own: Ok(folder.own),
            stat: folder.stat,
            link: None,
            passed: Box::new([]),
            real: None,
            file_watch: Cell::new(None),
            trusted: folder.trusted,
            valid: Cell::new(true),
            used: Cell::new(false),
            voided: Cell::new(NEVER),
            checked_ms: Cell::new(folder.checked_ms.get().min(now_ms)),
            slot: Cell::new(None),
            held: RefCell::default(),
        })
    }

    /// Caches an entry, unless its folder is already invalid, its path is too long, or it is one of
    /// so many in a round that they would evict others for nothing.
    fn register(&mut self, found: Found) -> Rc<Found> {
        let found = Rc::new(found);
        self.watches.attach_found(&found);
        let is_useful = !self.is_large || found.trusted && self.keeps_large;
        if is_useful && found.folder.valid.get() && found.path.len() <= LONGEST_KEY {
            self.keep(&found);
        } else {
            self.forget(&found);
        }
        found
    }

    fn is_local(&mut self, device: u64, real: &[u8]) -> bool {
        *self.local.entry(device).or_insert_with(|| open::is_local(real).unwrap_or(false))
    }
}

impl Target {
    fn absent(error: i32) -> Self {
        let passed = Box::new([]);
        Self { stat: Err(error), link: None, passed, real: None, watched: true }
    }
}

impl crate::folder::Access {
    /// Whether the file with that name in the folder is unchanged.
    fn is_same(&self, folder: &Folder) -> bool {
        !self.racy
            && is_same(&self.own, &open::lstat(&join(&folder.real, &self.name)).map_err(errno))
            && all_same(&self.passed)
    }
}

/// The name of an entry in the folder of a large round whose files are not cached, if the path has
/// no more than that below the folder.
fn name_in_round<'a>(round_folder: &RoundFolder, path: &'a [u8]) -> Option<&'a [u8]> {
    let RoundFolder { folder, is_examined, .. } = round_folder;
    let name = path.strip_prefix(&*folder.path)?.strip_prefix(b"/")?;
    let is_name = !name.contains(&b'/') && !matches!(name, b"" | b"." | b"..");
    (*is_examined && is_name && folder.valid.get()).then_some(name)
}

/// The start and end of the next component of a path, without slashes.
fn next_component(path: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = path.get(at..)?;
    let start = at + rest.iter().position(|byte| *byte != b'/')?;
    let length = path.get(start..)?.iter().position(|byte| *byte == b'/');
    Some((start, length.map_or(path.len(), |length| start + length)))
}
