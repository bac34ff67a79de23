//! The section walk: which sections hold for a request, merged into one plan. A path and a file
//! name go in; the plan and what stands at the file come out (Apache: request.c,
//! ap_directory_walk, ap_file_walk, ap_location_walk, ap_if_walk). Merged plans are kept by the
//! sections they were made of, whole walks as long as nothing on the way has changed.

use crate::htaccess::{AccessFiles, Grant, Outdated};
use crate::kept::{Gone, Kept};
use crate::site::{Plan, Server, Site};
use crate::walks::{Walk, Walks};
use evenkeel_config::Position;
use evenkeel_expr::{Captures, GlobStyle, glob};
use evenkeel_files::{Files, Found, Kind, Looked, SymlinkRule};
use evenkeel_message::{Answer, Fields, Level, Notice, Request, Status};
use evenkeel_modules::core::merge_vary;
use evenkeel_modules::core::{AllowOverride, Match, OptionChange, Options, Section};
use evenkeel_modules::{Merge, RequestContext};
use std::cell::RefCell;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Plans kept by the sections that they were merged from; beyond this all are made anew.
const PLANS: usize = 4096;
/// Whole walks kept by server and path; beyond this all are made anew.
const WALKS: usize = 16_384;
/// Walks of longer paths are not kept, in bytes.
const LONGEST_PATH: usize = 512;

/// Plans and walks of more sections are made anew for each request: their number and their size
/// are the author's of an .htaccess file.
const KEPT_SECTIONS: usize = 256;
/// The steps that merging one section counts for.
const MERGE_STEPS: usize = 32;

/// Wildcards of paths: a slash is matched by a slash alone.
const PATH: GlobStyle = GlobStyle { path: true, ignore_case: false };

/// The walks of one serving thread.
pub struct Walker {
    pub(crate) files: Files,
    access: AccessFiles,
    /// Each weighs what the .htaccess files do that it was merged from.
    plans: Kept<Box<[u64]>, Arc<Plan>>,
    /// Walks to what is there.
    walks: Walks,
    /// Walks to where nothing is: handlers of a `<Location>` stand there, and clients name such
    /// paths without end. Apart, so that those cost the others nothing.
    absent: Walks,
}

/// Where a walk has led.
pub(crate) struct Arrival {
    /// The merged settings.
    pub plan: Arc<Plan>,
    /// What stands at the file.
    pub looked: Looked,
    /// The sections that the settings were merged from.
    pub sections: Rc<[Arc<Section>]>,
}

/// What a walk has come upon so far.
struct Way<'a> {
    site: &'a Site,
    server: &'a Server,
    sections: Vec<Arc<Section>>,
    options: OptionChange,
    overrides: Option<AllowOverride>,
    list: Option<Arc<std::collections::HashSet<Box<str>>>>,
    /// Whether the same path always leads to the same sections.
    constant: bool,
}

impl Walker {
    /// A walker that asks these files.
    #[must_use]
    pub fn new(files: Files) -> Self {
        let (access_bytes, absent) = (files.limits().access_bytes, files.limits().absent);
        Self {
            files,
            access: AccessFiles::new(access_bytes),
            plans: Kept::new(PLANS, access_bytes),
            walks: Walks::new(WALKS),
            absent: Walks::new(absent),
        }
    }

    /// What holds before the path is translated: the server's settings with those of the
    /// `<Location>` sections over them.
    pub fn before_translation(&mut self, server: &Server, request: &mut Request) -> Arc<Plan> {
        if server.locations.is_empty() {
            return Arc::clone(&server.defaults);
        }
        let mut sections = Vec::new();
        let mut constant = true;
        locations(server, request, &mut sections, &mut constant);
        self.plan(request.server, server, &sections)
    }

    /// Walks the sections of a request whose file is known. The `<If>` sections are left to
    /// [`conditions`].
    ///
    /// # Errors
    /// The answer where a folder or link on the way may not be passed, or an .htaccess file is
    /// wrong.
    pub(crate) fn map(&mut self, site: &Site, request: &mut Request) -> Result<Arrival, Answer> {
        let server = site.server(request.server);
        let kept = [&self.walks, &self.absent];
        let mut kept = kept.iter().filter_map(|it| it.of(request.server, &request.path));
        let holds =
            |walk: &&Walk| walk.file == request.file && self.files.holds(&walk.looked.found);
        if let Some(walk) = kept.find(holds) {
            let (plan, looked) = (Arc::clone(&walk.plan), walk.looked.clone());
            let sections = Rc::clone(&walk.sections);
            place(request, &looked);
            return Ok(Arrival { plan, looked, sections });
        }
        let file = request.file.clone();
        let looked = self.files.look_up(request.file.as_os_str().as_bytes());
        if let Some(notice) = self.files.take_notice() {
            request.notify(notice);
        }
        let mut way = Way::new(site, server);
        let walked = self.directories(&mut way, request, &looked);
        self.let_go_outdated();
        walked?;
        place(request, &looked);
        way.patterns(request);
        way.files(request);
        let (sections, constant) = (&mut way.sections, &mut way.constant);
        locations(server, request, sections, constant);
        let plan = self.plan(request.server, server, &way.sections);
        let sections: Rc<[Arc<Section>]> = way.sections.into();
        if way.constant && self.keeps(&sections) && is_worth_keeping(&request.path, &looked) {
            let walk = Walk {
                file,
                plan: Arc::clone(&plan),
                sections: Rc::clone(&sections),
                looked: looked.clone(),
            };
            let is_absent = looked.found.kind() == Kind::Absent;
            let walks = if is_absent { &mut self.absent } else { &mut self.walks };
            walks.keep(request.server, &request.path, walk);
        }
        Ok(Arrival { plan, looked, sections })
    }

    /// The merged settings of a list of sections over the server's.
    fn plan(&mut self, index: usize, server: &Server, sections: &[Arc<Section>]) -> Arc<Plan> {
        if sections.is_empty() {
            return Arc::clone(&server.defaults);
        }
        let key: Vec<u64> =
            std::iter::once(index as u64).chain(sections.iter().map(|s| s.id)).collect();
        if let Some(plan) = self.plans.of(key.as_slice()) {
            return Arc::clone(plan);
        }
        // AuthMerging tells whether a walk's sections were merged among themselves first.
        let walks = sections.chunk_by(|one, next| one.kind == next.kind);
        let mut merged_walks = (*server.defaults).clone();
        walks.filter_map(merged).for_each(|walk| merged_walks.add(&walk));
        let plan = Arc::new(merged_walks);
        if !self.keeps(sections) {
            return plan;
        }
        let gone = self.plans.keep(key.into(), Arc::clone(&plan), weight(sections));
        if matches!(gone, Gone::All) {
            // They hold plans too.
            self.forget_walks();
        }
        plan
    }

    /// Whether a plan and a walk of these sections are kept.
    fn keeps(&self, sections: &[Arc<Section>]) -> bool {
        sections.len() <= KEPT_SECTIONS && self.plans.has_room_for(weight(sections))
    }

    /// Lets plans and walks go whose .htaccess files were edited or let go: nobody would ask for
    /// them again.
    fn let_go_outdated(&mut self) {
        match self.access.take_outdated() {
            Outdated::These(ids) if ids.is_empty() => {}
            Outdated::These(ids) => {
                self.plans.let_go(|key| ids.iter().any(|id| key.contains(id)));
                self.walks.let_go(&ids);
                self.absent.let_go(&ids);
            }
            Outdated::All => {
                self.plans.clear();
                self.forget_walks();
            }
        }
    }

    fn forget_walks(&mut self) {
        self.walks.clear();
        self.absent.clear();
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
        match found.kind() {
            Kind::Denied(errno) => Err(denied(request, found, errno)),
            Kind::Directory => Ok(()),
            _ if !way.symlinks().admits(found.link()) => Err(forbidden_link(request, found.path())),
            _ => Ok(()),
        }
    }
}

/// Adds the `<If>` sections whose conditions hold, and those within them. A condition may ask
/// about other paths, so that the walker is borrowed only for what it merges.
pub(crate) fn conditions(
    walker: &RefCell<Walker>,
    site: &Site,
    request: &mut Request,
    mut plan: Arc<Plan>,
    sections: &[Arc<Section>],
) -> Arc<Plan> {
    if plan.core.conditions.is_empty() {
        return plan;
    }
    let server = site.server(request.server);
    let mut applied: Vec<Arc<Section>> = sections.to_vec();
    let mut open: Vec<Arc<Section>> = plan.core.conditions.clone();
    while !open.is_empty() {
        // What is merged grows with every section within another.
        if !request.allowance.spend((applied.len() * MERGE_STEPS) as u64) {
            request.undecided = true;
            break;
        }
        let matched = matching_conditions(server, request, &plan, &open);
        open = matched.iter().flat_map(|s| s.settings.core.conditions.clone()).collect();
        applied.extend(matched);
        plan = walker.borrow_mut().plan(request.server, server, &applied);
    }
    plan
}

/// Whether a walk may be wanted again: clients name what is long without end.
fn is_worth_keeping(path: &[u8], looked: &Looked) -> bool {
    let may_be_wanted = match looked.found.kind() {
        Kind::Directory | Kind::Absent => true,
        // What stands behind a file is the client's to choose.
        Kind::File => looked.rest >= path.len(),
        _ => false,
    };
    may_be_wanted && path.len() <= LONGEST_PATH
}

/// Bytes of the .htaccess files among the sections. What a plan or a section takes in memory is
/// many times that: a line becomes settings of its own.
fn weight(sections: &[Arc<Section>]) -> u64 {
    sections.iter().map(|section| section.bytes).sum()
}

/// What the sections that one walk has found say together.
fn merged(sections: &[Arc<Section>]) -> Option<Plan> {
    let (first, others) = sections.split_first()?;
    let mut together = first.settings.clone();
    others.iter().for_each(|section| together.add(&section.settings));
    Some(together)
}

fn matching_conditions(
    server: &Server,
    request: &mut Request,
    plan: &Plan,
    sections: &[Arc<Section>],
) -> Vec<Arc<Section>> {
    let mut matched = Vec::new();
    let mut held = false;
    for section in sections {
        let holds = match &section.matches {
            Match::If(condition) => evaluate(server, request, plan, condition),
            Match::ElseIf(_) | Match::Else if held => continue,
            Match::ElseIf(condition) => evaluate(server, request, plan, condition),
            _ => true,
        };
        held = holds;
        if holds {
            matched.push(Arc::clone(section));
        }
    }
    matched
}

/// A condition that cannot be evaluated leaves the request undecided, and the log tells why.
fn evaluate(
    server: &Server,
    request: &mut Request,
    plan: &Plan,
    condition: &evenkeel_expr::Condition,
) -> bool {
    let mut vary = Fields::new();
    let context = RequestContext::new(request, &server.settings, plan);
    let answer = context.holds(condition, &mut vary);
    merge_vary(&mut request.fields, &vary);
    match answer {
        Ok(holds) => holds,
        Err(error) => {
            let text = format!("Failed to evaluate <If > condition: {error}");
            request.notify(Notice::new("core", Level::Error, 39, text));
            request.undecided = true;
            false
        }
    }
}

/// Puts into the request what was found: the file without the path behind it, and that path.
fn place(request: &mut Request, looked: &Looked) {
    let rest = match looked.found.kind() {
        Kind::Directory => request.file.as_os_str().len(),
        _ => looked.rest,
    };
    let whole = request.file.as_os_str().as_bytes();
    if rest < whole.len() {
        let mut bytes = std::mem::take(&mut request.file).into_os_string().into_vec();
        request.path_info = bytes.split_off(rest);
        request.file = PathBuf::from(std::ffi::OsString::from_vec(bytes));
    }
}

/// The `<Location>` sections that hold for the request's path.
fn locations(
    server: &Server,
    request: &mut Request,
    sections: &mut Vec<Arc<Section>>,
    constant: &mut bool,
) {
    for section in &server.locations {
        let path = request.path.as_slice();
        let holds = match &section.matches {
            Match::Exact(prefix) => {
                let prefix = prefix.as_bytes();
                path.starts_with(prefix)
                    && (prefix.ends_with(b"/")
                        || matches!(path.get(prefix.len()), None | Some(b'/')))
            }
            Match::Wild(pattern) => glob(pattern.as_bytes(), path, PATH),
            Match::Pattern(_) => pattern_holds(section, request, Subject::Path, constant),
            _ => false,
        };
        if holds {
            sections.push(Arc::clone(section));
        }
    }
}

/// What a section's pattern is matched against.
#[derive(Clone, Copy)]
enum Subject {
    Path,
    File,
    Name,
}

/// Whether a section's pattern matches; its named groups become MATCH_NAME in the environment.
fn pattern_holds(
    section: &Section,
    request: &mut Request,
    subject: Subject,
    constant: &mut bool,
) -> bool {
    let Match::Pattern(pattern) = &section.matches else { return false };
    let text = match subject {
        Subject::Path => request.path.clone(),
        Subject::File => request.file.as_os_str().as_bytes().to_vec(),
        Subject::Name => file_name(request).to_vec(),
    };
    let mut captures = Captures::default();
    match pattern.capture_within(&request.allowance, &text, &mut captures) {
        Ok(false) => false,
        Ok(true) => {
            for (number, name) in pattern.names() {
                *constant = false;
                let name = format!("MATCH_{}", name.to_ascii_uppercase());
                request.env.set(name, captures.group(number));
            }
            true
        }
        Err(error) => {
            let Position { file, line } = &section.position;
            let text = format!("section on line {line} of {file} not matched: {error}");
            request.notify(Notice::own("core", Level::Error, text));
            request.undecided = true;
            *constant = false;
            false
        }
    }
}

/// The last component of the file's name.
fn file_name(request: &Request) -> &[u8] {
    let file = request.file.as_os_str().as_bytes();
    file.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

impl<'a> Way<'a> {
    fn new(site: &'a Site, server: &'a Server) -> Self {
        let core = &server.defaults.core;
        Self {
            site,
            server,
            sections: Vec::new(),
            options: core.options,
            overrides: core.allow_override.clone(),
            list: core.allow_override_list.clone(),
            constant: true,
        }
    }

    /// Adds a section, and what it says of the walk itself.
    fn add(&mut self, section: Arc<Section>) {
        let core = &section.settings.core;
        self.options = Merge::merge(&self.options, &core.options);
        self.overrides = Merge::merge(&self.overrides, &core.allow_override);
        self.list = Merge::merge(&self.list, &core.allow_override_list);
        self.sections.push(section);
    }

    /// Adds the `<Directory>` sections of one folder.
    fn enter(&mut self, folder: &[u8]) {
        let mut path = folder.to_vec();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        for section in &self.server.directories {
            let holds = match &section.matches {
                Match::Exact(exact) => exact.as_bytes() == path,
                Match::Wild(pattern) => glob(pattern.as_bytes(), &path, PATH),
                _ => false,
            };
            if holds {
                self.add(Arc::clone(section));
            }
        }
    }

    /// What an .htaccess file of the next folder may say.
    fn grant(&self) -> Grant {
        Grant { overrides: self.overrides.clone().unwrap_or_default(), list: self.list.clone() }
    }

    fn patterns(&mut self, request: &mut Request) {
        for section in &self.server.directory_patterns {
            if pattern_holds(section, request, Subject::File, &mut self.constant) {
                self.add(Arc::clone(section));
            }
        }
    }

    /// Adds the `<Files>` sections of all sections so far that match the file's name.
    fn files(&mut self, request: &mut Request) {
        let candidates: Vec<Arc<Section>> = std::iter::once(&self.server.defaults.core.files)
            .chain(self.sections.iter().map(|section| &section.settings.core.files))
            .flatten()
            .cloned()
            .collect();
        for section in candidates {
            let name = file_name(request);
            let holds = match &section.matches {
                Match::Exact(exact) => exact.as_bytes() == name,
                Match::Wild(pattern) => glob(pattern.as_bytes(), name, PATH),
                Match::Pattern(_) => {
                    pattern_holds(&section, request, Subject::Name, &mut self.constant)
                }
                _ => false,
            };
            if holds {
                self.add(section);
            }
        }
    }

    fn symlinks(&self) -> SymlinkRule {
        let options = self.options.effective();
        if options.has(Options::FOLLOW_SYM_LINKS) {
            SymlinkRule::Follow
        } else if options.has(Options::SYM_LINKS_IF_OWNER_MATCH) {
            SymlinkRule::IfOwnerMatch
        } else {
            SymlinkRule::Refuse
        }
    }
}

fn forbidden_link(request: &mut Request, path: &[u8]) -> Answer {
    let path = String::from_utf8_lossy(path);
    let text = format!("Symbolic link not allowed or link target not accessible: {path}");
    request.notify(Notice::new("core", Level::Error, 37, text));
    Answer::Status(Status::FORBIDDEN, Fields::new())
}

fn denied(request: &mut Request, found: &Found, errno: i32) -> Answer {
    const ENOENT: i32 = 2;
    const ENOTDIR: i32 = 20;
    const EACCES: i32 = 13;
    let uri = String::from_utf8_lossy(&request.path).into_owned();
    let path = String::from_utf8_lossy(found.path());
    match errno {
        ENOENT | ENOTDIR => Status::NOT_FOUND.into(),
        EACCES => {
            let text = format!(
                "access to {uri} denied (filesystem path '{path}') because search permissions are \
                 missing on a component of the path"
            );
            request.notify(Notice::new("core", Level::Error, 35, text));
            Status::FORBIDDEN.into()
        }
        _ => {
            let reason = std::io::Error::from_raw_os_error(errno);
            let text = format!("access to {uri} failed (filesystem path '{path}'): {reason}");
            request.notify(Notice::new("core", Level::Error, 36, text));
            Status::FORBIDDEN.into()
        }
    }
}
