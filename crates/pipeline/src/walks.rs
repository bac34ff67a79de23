//! What is kept of walks: where one has led, by server and path, as long as what it found holds,
//! and the plans that the sections on the way make together. A plan owns its sections; a walk holds
//! neither, so that an edited .htaccess file costs no look at the walks below it.

use crate::clock::{Clock, Entry};
use crate::site::Plan;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::Request;
use evenkeel_modules::core::{self, OptionChange, Section};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// What a walk may weigh on average, in bytes: a table of short paths is full by its number.
const WALK_BYTES: u64 = 512;

/// As many plans that are of no more use are let go with one walk.
const LET_GO_AT_ONCE: usize = 64;

/// Where a walk has led: what it found, and what looks beside its file begin with. What every
/// request for it reads stands first.
#[repr(C)]
pub(crate) struct Walk {
    server: usize,
    /// The path and, behind it, the file that the path was mapped to.
    names: Box<[u8]>,
    /// Where the path ends in `names`.
    path: usize,
    pub looked: Looked,
    /// The walk of its folder that it began with.
    begun: Option<Rc<Walk>>,
    plan: Weak<Merged>,
    used: Cell<bool>,
    /// Where the folder of the file ends in `names`.
    folder: usize,
    pub of_folder: OfFolder,
}

/// What a walk has found of the folder that its file stands in.
#[derive(Clone, Copy)]
pub(crate) struct OfFolder {
    /// How many of the walk's sections are the folder's.
    pub sections: usize,
    pub options: OptionChange,
    /// Whether the same path always leads to the same sections.
    pub constant: bool,
}

impl Walk {
    /// The walk of a request, to whose path the file was mapped.
    pub(crate) fn new(
        request: &Request,
        file: &[u8],
        looked: &Looked,
        of_folder: OfFolder,
        merged: &Rc<Merged>,
        begun: Option<Rc<Walk>>,
    ) -> Self {
        let path: &[u8] = &request.resource.path;
        let folder = match looked.found.kind() {
            Kind::Directory => request.resource.file.as_bytes().len(),
            _ => parent(request).len(),
        };
        Self {
            server: request.server,
            names: [path, file].concat().into(),
            path: path.len(),
            folder: path.len() + folder,
            used: Cell::new(false),
            of_folder,
            plan: Rc::downgrade(merged),
            looked: looked.clone(),
            begun,
        }
    }

    fn path(&self) -> &[u8] {
        self.names.get(..self.path).unwrap_or_default()
    }

    fn file(&self) -> &[u8] {
        self.names.get(self.path..).unwrap_or_default()
    }

    /// The folder with its slash; that of a folder which was asked for without its slash has none,
    /// and fits nothing.
    fn folder(&self) -> &[u8] {
        self.names.get(self.path..self.folder).unwrap_or_default()
    }

    /// Whether it was for that file and began with that walk of the folder.
    pub(crate) fn is_of(&self, file: &[u8], begun: Option<&Rc<Walk>>) -> bool {
        self.begun.as_ref().map(Rc::as_ptr) == begun.map(Rc::as_ptr) && self.file() == file
    }

    /// The plan that it has led to; none where that was let go.
    pub(crate) fn plan(&self) -> Option<Rc<Merged>> {
        self.plan.upgrade().inspect(|merged| merged.used.set(true))
    }

    fn weight(&self) -> u64 {
        (size_of::<Self>() + self.names.len()) as u64
    }

    /// Whether a walk to what was found begins with it: to a file in the folder, or to the folder
    /// itself.
    fn fits(&self, request: &Request, looked: &Looked) -> bool {
        let file = request.resource.file.as_bytes();
        match looked.found.kind() {
            Kind::File if looked.rest == file.len() => parent(request) == self.folder(),
            Kind::Directory => match self.folder().strip_suffix(b"/") {
                Some(folder) => file.strip_suffix(b"/").unwrap_or(file) == folder,
                None => false,
            },
            _ => false,
        }
    }
}

/// The folder of a request's file, with its slash.
pub(crate) fn parent(request: &Request) -> &[u8] {
    let file = request.resource.file.as_bytes();
    file.get(..file.len() - request.resource.file.last().len()).unwrap_or_default()
}

impl Entry for Rc<Walk> {
    type Key<'a> = (usize, &'a [u8]);

    fn key(&self) -> (usize, &[u8]) {
        (self.server, self.path())
    }

    fn is(&self, (server, path): (usize, &[u8])) -> bool {
        self.server == server && self.path() == path
    }

    fn used(&self) -> &Cell<bool> {
        &self.used
    }
}

/// What a request's walk has found of the folder that its file stands in: the sections of
/// `<Directory>`, .htaccess and `<DirectoryMatch>`. A look or an internal redirect to a file of the
/// same folder begins with it, and does not walk again, so that an index file gets what its folder
/// got (Apache: the walk cache of request.c, prep_walk_cache).
pub(crate) struct FolderWalk {
    pub walk: Rc<Walk>,
    merged: Rc<Merged>,
}

impl FolderWalk {
    /// That of the request that led to this one.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let (walk, merged) = request.resource.walked.clone()?;
        let walk = walk.downcast::<Walk>().ok()?;
        let merged = merged.downcast::<Merged>().ok()?;
        (walk.server == request.server).then_some(Self { walk, merged })
    }

    /// Has the looks of a request begin with its walk. One that began with another's passes that on
    /// (request.c: ap_directory_walk leaves the copied cache as it is).
    pub(crate) fn note(request: &mut Request, walk: &Rc<Walk>, merged: &Rc<Merged>) {
        if walk.begun.is_some() {
            return;
        }
        request.resource.walked = Some((Rc::<Walk>::clone(walk), Rc::<Merged>::clone(merged)));
    }

    /// Whether a walk to what was found begins with it.
    pub(crate) fn fits(&self, request: &Request, looked: &Looked) -> bool {
        self.walk.fits(request, looked)
    }

    /// The plan of the walk, if it was made of these sections.
    pub(crate) fn merged_of(&self, sections: &[Arc<Section>]) -> Option<Rc<Merged>> {
        let own = &self.merged.sections;
        let is_same = own.len() == sections.len()
            && own.iter().zip(sections).all(|(own, other)| own.id == other.id);
        is_same.then(|| {
            self.merged.used.set(true);
            Rc::clone(&self.merged)
        })
    }

    /// Whether it is the walk of the folder with that file name, which ends with a slash.
    pub(crate) fn is_of_folder(&self, folder: &[u8]) -> bool {
        self.walk.folder() == folder
    }

    /// Whether a `<Location>` section holds for the folder.
    pub(crate) fn has_locations(&self) -> bool {
        !self.merged.has_no_locations()
    }

    /// The plan of the folder.
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.merged.plan
    }

    /// The sections of the folder.
    pub(crate) fn sections(&self) -> &[Arc<Section>] {
        self.merged.sections.get(..self.walk.of_folder.sections).unwrap_or_default()
    }
}

/// Whole walks by server and path.
pub(crate) struct Walks(Clock<Rc<Walk>>);

impl Walks {
    pub(crate) fn new(most: usize) -> Self {
        Self(Clock::new(most, most as u64 * WALK_BYTES))
    }

    pub(crate) fn get(&self, server: usize, path: &[u8]) -> Option<&Rc<Walk>> {
        self.0.get((server, path))
    }

    pub(crate) fn keep(&mut self, walk: Rc<Walk>) {
        let weight = walk.weight();
        self.0.insert(walk, weight);
    }
}

/// Settings of sections that were merged, with these sections.
pub(crate) struct Merged {
    /// The address of the server's settings, which live as long as the site, and the numbers of the
    /// sections, of which none is given twice.
    key: Box<[u64]>,
    used: Cell<bool>,
    pub plan: Arc<Plan>,
    pub sections: Box<[Arc<Section>]>,
    /// How many of the sections are those of folders and files; behind them stand those of
    /// `<Location>`.
    folders: usize,
}

impl Merged {
    pub(crate) fn new(key: &[u64], plan: Arc<Plan>, sections: &[Arc<Section>]) -> Rc<Self> {
        let folders =
            sections.iter().take_while(|section| section.kind != core::Kind::Location).count();
        let (key, used, sections) = (key.into(), Cell::new(false), sections.into());
        Rc::new(Self { key, used, plan, sections, folders })
    }

    /// The numbers of the sections of folders and files, and of those of `<Location>`.
    fn numbers(&self) -> (&[u64], &[u64]) {
        let numbers = self.key.get(1..).unwrap_or_default();
        numbers.split_at_checked(self.folders).unwrap_or((numbers, &[]))
    }

    /// The sections of folders and files.
    pub(crate) fn folders(&self) -> &[Arc<Section>] {
        self.sections.get(..self.folders).unwrap_or_default()
    }

    /// The `<Location>` sections.
    pub(crate) fn locations(&self) -> &[Arc<Section>] {
        self.sections.get(self.folders..).unwrap_or_default()
    }

    pub(crate) fn has_no_folders(&self) -> bool {
        self.folders == 0
    }

    /// Whether no `<Files>` section is among them.
    pub(crate) fn has_no_files(&self) -> bool {
        self.sections.iter().all(|section| section.kind != core::Kind::Files)
    }

    pub(crate) fn has_no_locations(&self) -> bool {
        self.folders == self.sections.len()
    }

    /// Whether the sections of folders and files are those of the other, whatever server's settings
    /// lie below.
    pub(crate) fn has_folders_of(&self, other: &Self) -> bool {
        self.numbers().0 == other.numbers().0
    }

    /// Whether the `<Location>` sections are those of the other.
    pub(crate) fn has_locations_of(&self, other: &Self) -> bool {
        self.numbers().1 == other.numbers().1
    }
}

impl Entry for Rc<Merged> {
    type Key<'a> = &'a [u64];

    fn key(&self) -> &[u64] {
        &self.key
    }

    fn is(&self, key: &[u64]) -> bool {
        *self.key == *key
    }

    fn used(&self) -> &Cell<bool> {
        &self.used
    }
}

/// Plans by the sections that they were merged from.
pub(crate) struct Plans {
    /// Each weighs what the .htaccess files do that it was merged from.
    plans: Clock<Rc<Merged>>,
    /// Those that the section of an .htaccess file has a part in, by the section's number.
    of_section: HashMap<u64, Vec<Weak<Merged>>>,
    /// Those of which a section will not be met again.
    outdated: Vec<Weak<Merged>>,
}

impl Plans {
    pub(crate) fn new(most: usize, most_bytes: u64) -> Self {
        let plans = Clock::new(most, most_bytes);
        Self { plans, of_section: HashMap::new(), outdated: Vec::new() }
    }

    pub(crate) fn get(&self, key: &[u64]) -> Option<&Rc<Merged>> {
        self.plans.get(key)
    }

    /// Whether a plan of these sections is kept.
    pub(crate) fn has_room_for(&self, sections: &[Arc<Section>]) -> bool {
        self.plans.has_room_for(weight(sections))
    }

    pub(crate) fn keep(&mut self, merged: &Rc<Merged>) {
        for section in merged.sections.iter().filter(|section| section.bytes > 0) {
            self.make_room(section.id);
            let made = self.of_section.entry(section.id).or_default();
            if made.len() == made.capacity() {
                made.retain(|plan| plan.strong_count() > 0);
            }
            made.push(Rc::downgrade(merged));
        }
        self.plans.insert(Rc::clone(merged), weight(&merged.sections));
    }

    /// Forgets the sections of which no plan is left, before another one would make the table grow.
    fn make_room(&mut self, id: u64) {
        let table = &mut self.of_section;
        if table.len() == table.capacity() && !table.contains_key(&id) {
            table.retain(|_, made| made.iter().any(|plan| plan.strong_count() > 0));
            // As much room again, so that a full table is not looked through at each section.
            table.reserve(table.len() + 1);
        }
    }

    /// Lets the plans go, some now and the others with the next walks, that were made of a section
    /// which will not be met again: nobody would ask for them.
    pub(crate) fn let_go(&mut self, outdated: impl Iterator<Item = u64>) {
        self.outdated.extend(outdated.filter_map(|id| self.of_section.remove(&id)).flatten());
        let kept = self.outdated.len().saturating_sub(LET_GO_AT_ONCE);
        for plan in self.outdated.drain(kept..) {
            if let Some(merged) = plan.upgrade() {
                self.plans.remove(&merged.key);
            }
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.plans.len()
    }
}

/// Bytes of the .htaccess files among the sections. What a plan or a section takes in memory is
/// many times that: a line becomes settings of its own.
fn weight(sections: &[Arc<Section>]) -> u64 {
    sections.iter().map(|section| section.bytes).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use evenkeel_config::Position;
    use evenkeel_files::{Files, Limits, Policy};
    use evenkeel_message::{FileName, Peer, RequestHead, UriOptions, UrlPath};
    use evenkeel_modules::DirectorySettings;

    fn section(id: u64, bytes: u64) -> Arc<Section> {
        of_kind(core::Kind::Directory, id, bytes)
    }

    fn of_kind(kind: core::Kind, id: u64, bytes: u64) -> Arc<Section> {
        Arc::new(Section {
            id,
            kind,
            matches: core::Match::Else,
            settings: DirectorySettings::default(),
            position: Position { file: "test".into(), line: 1 },
            bytes,
        })
    }

    fn merged_from(sections: &[Arc<Section>]) -> Rc<Merged> {
        let key: Vec<u64> = sections.iter().map(|section| section.id).collect();
        Merged::new(&key, Arc::default(), sections)
    }

    /// Sections of folders, and behind them those of `<Location>`, over a server's settings.
    pub(crate) fn merged(folders: &[u64], locations: &[u64]) -> Rc<Merged> {
        merged_over(1, folders, locations)
    }

    fn merged_over(server: u64, folders: &[u64], locations: &[u64]) -> Rc<Merged> {
        let located = |id: &u64| of_kind(core::Kind::Location, *id, 0);
        let sections: Vec<_> = (folders.iter().map(|id| section(*id, 0)))
            .chain(locations.iter().map(located))
            .collect();
        let key = [&[server], folders, locations].concat();
        Merged::new(&key, Arc::default(), &sections)
    }

    #[test]
    fn sections_are_the_same_by_their_numbers_whatever_server_they_are_of() {
        let of = merged_over;
        assert!(of(1, &[5, 6], &[]).has_folders_of(&of(2, &[5, 6], &[7])));
        assert!(of(1, &[], &[7, 8]).has_locations_of(&of(2, &[5], &[7, 8])));
        assert!(of(1, &[], &[7]).has_folders_of(&of(2, &[], &[])));
        assert!(of(1, &[5], &[]).has_locations_of(&of(2, &[6], &[])));
        for other in [&[5][..], &[6, 5], &[5, 6, 7], &[]] {
            assert!(!of(1, &[5, 6], &[]).has_folders_of(&of(1, other, &[])), "{other:?}");
            assert!(!of(1, &[], &[5, 6]).has_locations_of(&of(1, &[], other)), "{other:?}");
        }
    }

    #[test]
    fn an_edited_section_takes_its_own_plans_along_and_a_few_at_once() {
        let mut plans = Plans::new(1000, 1000);
        let (edited, other) = (section(1, 1), section(2, 1));
        let made = 3 * LET_GO_AT_ONCE;
        for id in 0..made as u64 {
            plans.keep(&merged_from(&[Arc::clone(&edited), section(1000 + id, 0)]));
            plans.keep(&merged_from(&[Arc::clone(&other), section(5000 + id, 0)]));
        }
        for left in (0..=5).map(|turns| made.saturating_sub(turns * LET_GO_AT_ONCE)) {
            assert_eq!(plans.len(), made + left);
            plans.let_go([1].into_iter().filter(|_| left == made));
        }
        assert!(plans.get(&[1, 1000]).is_none() && plans.get(&[2, 5000]).is_some());
    }

    #[test]
    fn what_a_section_had_a_part_in_is_forgotten_with_it() {
        let mut plans = Plans::new(4, 1000);
        for id in 0..1000 {
            plans.keep(&merged_from(&[section(1, 1), section(1000 + id, 0)]));
        }
        assert!(plans.len() == 4 && plans.of_section.get(&1).is_some_and(|made| made.len() <= 16));
        plans.let_go([1].into_iter());
        assert!(plans.len() == 0 && plans.of_section.is_empty());
    }

    #[test]
    fn sections_of_which_no_plan_is_left_take_no_more_room() {
        let mut plans = Plans::new(4, 1000);
        for id in 1..1000 {
            plans.keep(&merged_from(&[section(id, 1)]));
        }
        assert!(plans.of_section.len() <= 32, "{}", plans.of_section.len());
    }

    #[test]
    fn a_plan_that_walks_lead_to_stays_and_one_that_was_let_go_leaves_them() {
        let (files, _) = Files::new(Limits::default(), Policy::PerRequest);
        let looked = files.look_up(b"/");
        let mut request = request();
        request.resource.path = UrlPath::parse(b"/d/", UriOptions::default()).unwrap();
        request.resource.file = FileName::new("/d/");
        let mut plans = Plans::new(4, 1000);
        let wanted = merged_from(&[section(1, 1)]);
        plans.keep(&wanted);
        let folder = OfFolder { sections: 1, options: OptionChange::default(), constant: true };
        let walk = Walk::new(&request, b"/d/", &looked, folder, &wanted, None);
        drop(wanted);
        for id in 2..100 {
            assert!(walk.plan().is_some(), "{id}");
            plans.keep(&merged_from(&[section(id, 0)]));
        }
        assert_eq!(walk.plan().map(|merged| merged.sections.len()), Some(1));
        plans.let_go([1].into_iter());
        assert!(walk.plan().is_none());
    }

    #[test]
    fn kept_walks_are_bounded_by_what_they_weigh() {
        let (files, _) = Files::new(Limits::default(), Policy::PerRequest);
        let looked = files.look_up(b"/");
        let plan = merged_from(&[]);
        let folder = OfFolder { sections: 0, options: OptionChange::default(), constant: true };
        let kept = |most: usize, length: usize| {
            let mut walks = Walks::new(most);
            for number in 0..2 * most {
                let mut request = request();
                let path = format!("/{number:0length$}");
                request.resource.path =
                    UrlPath::parse(path.as_bytes(), UriOptions::default()).unwrap();
                let walk = Walk::new(&request, path.as_bytes(), &looked, folder, &plan, None);
                walks.keep(Rc::new(walk));
            }
            walks.0.len()
        };
        // Short ones are bounded by their number, of long ones there are fewer.
        assert_eq!(kept(100, 50), 100);
        assert!((10..30).contains(&kept(100, 1000)), "{}", kept(100, 1000));
    }

    pub(crate) fn request() -> Request {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        Request::new(RequestHead::default(), Peer { client: address, local: address }, 0)
    }
}
