//! The section walk: which sections hold for a request, merged into one plan. A path and a file
//! name go in; the plan and what stands at the file come out (Apache: request.c,
//! ap_directory_walk, ap_file_walk, ap_location_walk, ap_if_walk). Merged plans are kept by the
//! sections they were made of, whole walks as long as nothing on the way has changed.

use crate::frames::MaybeReady;
use crate::htaccess::AccessFiles;
use crate::known::ConditionWalk;
use crate::question;
use crate::serve::Pipeline;
use crate::site::{Plan, Server, Site};
use crate::walks::{FolderWalk, Merged, Plans, Walk, Walks};
use crate::way::{Way, denied, forbidden_link, locations, proxies};
use evenkeel_files::{Files, Kind, Limits, Looked, SymlinkRule};
use evenkeel_message::{Answer, Fields, Level, Notice, Request};
use evenkeel_modules::core::merge_vary;
use evenkeel_modules::core::{Kind as SectionKind, Match, Section};
use evenkeel_modules::{Merge, RequestContext};
use std::rc::Rc;
use std::sync::Arc;

/// Plans kept by the sections that they were merged from.
const PLANS: usize = 16_384;
/// Of so many files one is thought to be a folder's index, to which a walk leads from that of the
/// folder.
const INDEXED: usize = 8;

/// Plans and walks of more sections are made anew for each request: their number and their size
/// are the author's of an .htaccess file.
const KEPT_SECTIONS: usize = 256;
/// The steps that merging one section counts for.
const MERGE_STEPS: usize = 32;

/// The walks of one serving thread.
pub struct Walker {
    pub(crate) files: Files,
    access: AccessFiles,
    plans: Plans,
    /// The key of the plan that was asked for last, for its memory.
    key: Vec<u64>,
    /// Walks to what is there.
    walks: Walks,
    /// Walks that began with what the walk of another request had found of their folder.
    beside: Walks,
    /// Walks to where nothing is: handlers of a `<Location>` stand there, and clients name such
    /// paths without end. Apart, so that those cost the others nothing.
    absent: Walks,
}

/// Where a walk has led.
pub(crate) struct Arrival {
    /// The merged settings, and the sections that they were merged from.
    pub merged: Rc<Merged>,
    /// What stands at the file.
    pub looked: Looked,
}

impl Walker {
    /// A walker that asks these files.
    #[must_use]
    pub fn new(files: Files) -> Self {
        // More would outlive what is remembered of their files.
        let Limits { access_bytes, entries, absent, .. } = files.limits();
        Self {
            files,
            access: AccessFiles::new(access_bytes),
            plans: Plans::new(PLANS, access_bytes),
            key: Vec::new(),
            walks: Walks::new(entries),
            beside: Walks::new(entries / INDEXED),
            absent: Walks::new(absent),
        }
    }

    /// What the `<Location>` sections of a server make of its settings before the path is
    /// translated; none where it has no such section. The `<If>` sections are left to
    /// [`conditions`].
    pub(crate) fn before_translation(
        &mut self,
        server: &Server,
        request: &mut Request,
    ) -> Option<Rc<Merged>> {
        if server.locations.is_empty() {
            return None;
        }
        let (mut sections, mut constant) = (Vec::new(), true);
        locations(server, request, &mut sections, &mut constant);
        Some(self.plan(server, &sections, &[]))
    }

    /// Walks the sections of a request whose file is known. The `<If>` sections are left to
    /// [`conditions`].
    ///
    /// # Errors
    /// The answer where a folder or link on the way may not be passed, or an .htaccess file is
    /// wrong.
    pub(crate) fn map(&mut self, site: &Site, request: &mut Request) -> Result<Arrival, Answer> {
        let server = site.server(request.server);
        let begun = FolderWalk::of(request);
        if !self.files.examines_each()
            && let Some((walk, merged)) = self.kept(request, begun.as_ref())
        {
            let looked = walk.looked.clone();
            FolderWalk::note(request, walk, &merged);
            place(request, &looked);
            return Ok(Arrival { merged, looked });
        }
        let looked = self.files.look_up(request.resource.file.as_bytes());
        if let Some(notice) = self.files.take_notice() {
            request.notify(notice);
        }
        let begun = begun.filter(|begun| begun.fits(request, &looked));
        // A walk that began with another's is no beginning itself, and is made to be kept.
        let is_walk_wanted = begun.is_none() || looked.found.is_kept();
        let file = is_walk_wanted.then(|| request.resource.file.clone());
        let mut way = Way::new(site, server);
        match &begun {
            Some(begun) => way.begin_with(begun, request, &looked)?,
            None => {
                let walked = self.directories(&mut way, request, &looked);
                // What was made of .htaccess files that were edited or let go.
                self.plans.let_go(self.access.take_outdated());
                walked?;
            }
        }
        place(request, &looked);
        if begun.is_none() {
            way.patterns(request);
        }
        let of_folder = way.of_folder();
        way.files(request);
        let (sections, constant) = (&mut way.sections, &mut way.constant);
        locations(server, request, sections, constant);
        let merged = match begun.as_ref().and_then(|begun| begun.merged_of(&way.sections)) {
            Some(merged) => merged,
            None => self.plan(server, &way.sections, &[]),
        };
        let Some(file) = file else { return Ok(Arrival { merged, looked }) };
        let walks = match (&begun, looked.found.kind()) {
            (Some(_), _) => &mut self.beside,
            (None, Kind::Absent) => &mut self.absent,
            (None, _) => &mut self.walks,
        };
        let begun = begun.map(|begun| begun.walk);
        let walk = Walk::new(request, file.as_bytes(), &looked, of_folder, &merged, begun);
        let walk = Rc::new(walk);
        FolderWalk::note(request, &walk, &merged);
        if way.constant
            && is_plan_kept(&self.plans, &merged.sections)
            && looked.found.is_kept()
            && is_worth_keeping(&request.resource.path_info, looked.found.kind())
        {
            walks.keep(walk);
        }
        Ok(Arrival { merged, looked })
    }

    /// The settings of a request that is passed on: `<Proxy>` sections take the place of folders
    /// and files (mod_proxy.c: proxy_walk). The `<If>` sections are left to [`conditions`].
    pub(crate) fn map_proxied(&mut self, server: &Server, request: &mut Request) -> Rc<Merged> {
        let (mut sections, mut constant) = (Vec::new(), true);
        proxies(server, request, &mut sections);
        locations(server, request, &mut sections, &mut constant);
        self.plan(server, &sections, &[])
    }

    /// The settings with the `<Location>` sections of others in place of their own.
    pub(crate) fn with_locations(
        &mut self,
        server: &Server,
        merged: &Merged,
        others: &Merged,
    ) -> Rc<Merged> {
        let sections = [merged.folders(), others.locations()].concat();
        self.plan(server, &sections, &[])
    }

    /// A walk that was made before and holds, with its plan: one that began with the same walk of
    /// its folder where this one would, and one from the root elsewhere.
    fn kept<'a>(
        &'a self,
        request: &Request,
        begun: Option<&FolderWalk>,
    ) -> Option<(&'a Rc<Walk>, Rc<Merged>)> {
        let file = request.resource.file.as_bytes();
        let from = |walks: &'a Walks, begun: Option<&Rc<Walk>>| {
            let walk = walks.get(request.server, &request.resource.path)?;
            (walk.is_of(file, begun) && self.files.holds(&walk.looked.found)).then_some(walk)
        };
        let planned = |walk: &'a Rc<Walk>| Some((walk, walk.plan()?));
        if let Some(begun) = begun
            && let Some(walk) = from(&self.beside, Some(&begun.walk))
        {
            return planned(walk);
        }
        let from_root =
            |walk: &&Rc<Walk>| !begun.is_some_and(|begun| begun.fits(request, &walk.looked));
        let walk = from(&self.walks, None).or_else(|| from(&self.absent, None));
        walk.filter(from_root).and_then(planned)
    }

    /// The merged settings of a list of sections over the server's. Servers that share what holds
    /// outside of sections share these too. At the `levels`, which are places in the list, begin
    /// the conditions that are nested in those before.
    fn plan(&mut self, server: &Server, sections: &[Arc<Section>], levels: &[usize]) -> Rc<Merged> {
        let defaults = Arc::as_ptr(&server.defaults) as u64;
        self.key.clear();
        self.key.push(defaults);
        self.key.extend(sections.iter().map(|section| section.id));
        if let Some(merged) = self.plans.get(&self.key) {
            return Rc::clone(merged);
        }
        let plan = match sections {
            [] => Arc::clone(&server.defaults),
            _ => Arc::new(merge(&server.defaults, sections, levels)),
        };
        let merged = Merged::new(&self.key, plan, sections);
        if is_plan_kept(&self.plans, sections) {
            self.plans.keep(&merged);
        }
        merged
    }

    /// Walks from the root to the file: sections by path, .htaccess files, symbolic links.
    fn directories(
        &mut self,
        way: &mut Way<'_>,
        request: &mut Request,
        looked: &Looked,
    ) -> Result<(), Answer> {
        for folder in looked.found.folders() {
            if !way.symlinks().admits(folder.link()) {
                return Err(forbidden_link(request, folder.path()));
            }
            way.enter(folder.path());
            let grant = way.grant();
            let found = self.access.section(way.site, grant, &self.files, &folder, request)?;
            if let Some(section) = found {
                way.add(section);
            }
        }
        let found = &looked.found;
        way.stay_within(request, found)?;
        let is_whole = looked.rest == request.resource.file.as_bytes().len();
        match found.kind() {
            Kind::Denied(errno) => Err(denied(request, found, errno)),
            Kind::Directory => Ok(()),
            _ if !way.symlinks().admits(found.link()) => Err(forbidden_link(request, found.path())),
            // Where no link is looked at, Apache takes the file for the last folder of its walk
            // (request.c, ap_directory_walk: "First optimization").
            Kind::File | Kind::Other if is_whole && way.symlinks() == SymlinkRule::Follow => {
                way.enter(found.path());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Adds the `<If>` sections whose conditions hold, and those within them. A condition may ask
/// about other paths, so that the walker is borrowed only for what it merges.
pub(crate) fn conditions<'a>(
    pipeline: &'a Pipeline,
    request: &'a mut Request,
    plan: Arc<Plan>,
    sections: &'a [Arc<Section>],
) -> MaybeReady<'a, Arc<Plan>> {
    match plan.core.conditions.is_empty() {
        true => MaybeReady::now(plan),
        false => MaybeReady::later(add_conditions(pipeline, request, plan, sections)),
    }
}

async fn add_conditions(
    pipeline: &Pipeline,
    request: &mut Request,
    mut plan: Arc<Plan>,
    sections: &[Arc<Section>],
) -> Arc<Plan> {
    let site = &pipeline.site;
    let server = site.server(request.server);
    let mut applied: Vec<Arc<Section>> = sections.to_vec();
    let mut levels = Vec::new();
    let mut open: Vec<Arc<Section>> = plan.core.conditions.clone();
    while !open.is_empty() {
        // All that hold are merged, and again with every level of those within.
        if !request.allowance.spend(((applied.len() + open.len()) * MERGE_STEPS) as u64) {
            request.undecided = true;
            break;
        }
        let mut walk = ConditionWalk::begin(request, site.compares_sections);
        let matched = matching_conditions(pipeline, request, &plan, &open, &mut walk).await;
        let is_known = walk.end(request);
        let within = matched.iter().filter(|_| !is_known);
        open = within.flat_map(|section| section.settings.core.conditions.clone()).collect();
        if applied.len() > sections.len() {
            levels.push(applied.len());
        }
        applied.extend(matched);
        plan = Arc::clone(&pipeline.walker.borrow_mut().plan(server, &applied, &levels).plan);
    }
    plan
}

/// Whether a walk may be wanted again.
fn is_worth_keeping(path_info: &[u8], kind: Kind) -> bool {
    match kind {
        Kind::Directory | Kind::Absent => true,
        // What stands behind a file is the client's to choose.
        Kind::File => path_info.is_empty(),
        Kind::Other | Kind::Denied(_) => false,
    }
}

/// Whether a plan of these sections is kept, and walks that lead to it.
fn is_plan_kept(plans: &Plans, sections: &[Arc<Section>]) -> bool {
    sections.len() <= KEPT_SECTIONS && plans.has_room_for(sections)
}

/// The settings of a server with those of sections over them. AuthMerging tells whether a walk's
/// sections were merged among themselves first.
pub(crate) fn merge(defaults: &Plan, sections: &[Arc<Section>], levels: &[usize]) -> Plan {
    let mut plan = defaults.clone();
    let (mut rest, mut begin) = (sections, 0);
    for end in levels.iter().copied().chain([sections.len()]) {
        let (level, behind) = rest.split_at_checked(end - begin).unwrap_or((rest, &[]));
        // Apache merges each `<Proxy>` section with the settings before it (proxy_walk).
        let is_one = |one: &Arc<Section>, next: &Arc<Section>| {
            one.kind == next.kind && one.kind != SectionKind::Proxy
        };
        let walks = level.chunk_by(is_one);
        walks.filter_map(together).for_each(|walk| plan.add(&walk));
        (rest, begin) = (behind, end);
    }
    plan
}

/// What the sections that one walk has found say together.
fn together(sections: &[Arc<Section>]) -> Option<Plan> {
    let (first, others) = sections.split_first()?;
    let mut together = first.settings.clone();
    others.iter().for_each(|section| together.add(&section.settings));
    Some(together)
}

async fn matching_conditions(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    sections: &[Arc<Section>],
    walk: &mut ConditionWalk,
) -> Vec<Arc<Section>> {
    let mut matched = Vec::new();
    let mut held = false;
    for section in sections {
        let holds = match &section.matches {
            Match::If(condition) => evaluate(pipeline, request, plan, condition).await,
            Match::ElseIf(_) | Match::Else if held => continue,
            Match::ElseIf(condition) => evaluate(pipeline, request, plan, condition).await,
            _ => true,
        };
        held = holds;
        if holds {
            walk.note(request, section.id);
            matched.push(Arc::clone(section));
        }
    }
    matched
}

/// The log tells of a condition that cannot be evaluated. One that asks for a file which cannot be
/// read does not hold, as in Apache; any other leaves the request undecided.
async fn evaluate(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    condition: &evenkeel_expr::Condition,
) -> bool {
    let server = pipeline.site.server(request.server);
    let evaluation = |request: &mut Request| {
        let mut vary = Fields::new();
        let context = RequestContext::new(request, server.core(plan));
        (context.holds(condition, &mut vary), vary)
    };
    let (answer, vary) = question::evaluate(pipeline, request, plan, evaluation).await;
    merge_vary(&mut request.resource.fields, &vary);
    match answer {
        Ok(holds) => holds,
        Err(error) => {
            let text = format!("Failed to evaluate <If > condition: {error}");
            request.notify(Notice::new("core", Level::Error, 39, text));
            request.undecided |= !error.is_of_file();
            false
        }
    }
}

/// Puts into the request what was found: the file without the path behind it, and that path.
fn place(request: &mut Request, looked: &Looked) {
    if looked.found.kind() != Kind::Directory
        && looked.rest < request.resource.file.as_bytes().len()
    {
        request.resource.path_info = request.resource.file.split_off(looked.rest);
    }
}

#[cfg(test)]
mod tests;
