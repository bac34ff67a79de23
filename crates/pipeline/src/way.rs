//! What the sections on the way of a request compare, each with the form of the path or of the
//! file's name that Apache compares (docs/design/paths.md): `<Directory>` and .htaccess by folder,
//! `<DirectoryMatch>`, `<Files>`, `<Location>`. Which plan they make is `walk`'s to find out.

use crate::hosts::is_below;
use crate::htaccess::Grant;
use crate::site::{Server, Site};
use crate::walks::{FolderWalk, OfFolder};
use evenkeel_config::Position;
use evenkeel_expr::{Captures, GlobStyle, glob};
use evenkeel_files::{Found, Looked, SymlinkRule};
use evenkeel_message::{Answer, Level, Notice, Request, Status, UrlPath, quoted};
use evenkeel_modules::Merge;
use evenkeel_modules::core::{AllowOverride, Match, OptionChange, Options, Section};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Wildcards of paths: a slash is matched by a slash alone.
const PATH: GlobStyle = GlobStyle { path: true, ignore_case: false };
const ANY: GlobStyle = GlobStyle { path: false, ignore_case: false };

/// What a walk has come upon so far.
pub(crate) struct Way<'a> {
    pub(crate) site: &'a Site,
    server: &'a Server,
    pub(crate) sections: Vec<Arc<Section>>,
    options: OptionChange,
    overrides: Option<AllowOverride>,
    list: Option<Arc<std::collections::HashSet<Box<str>>>>,
    /// Whether the same path always leads to the same sections.
    pub(crate) constant: bool,
}

impl<'a> Way<'a> {
    pub(crate) fn new(site: &'a Site, server: &'a Server) -> Self {
        let core = &server.defaults.core;
        Self {
            site,
            server,
            sections: Vec::new(),
            options: core.options,
            overrides: core.allow_override,
            list: core.allow_override_list.clone(),
            constant: true,
        }
    }

    /// Begins with what another request's walk has found of the folder.
    pub(crate) fn begin_with(
        &mut self,
        begun: &FolderWalk,
        request: &mut Request,
        looked: &Looked,
    ) -> Result<(), Answer> {
        self.sections.extend_from_slice(begun.sections());
        let OfFolder { options, constant, .. } = begun.walk.of_folder;
        (self.options, self.constant) = (options, constant);
        match self.symlinks().admits(looked.found.link()) {
            true => self.stay_within(request, &looked.found),
            false => Err(forbidden_link(request, looked.found.path())),
        }
    }

    /// Refuses what links on the way have led out of SymLinksWithin.
    pub(crate) fn stay_within(&self, request: &mut Request, found: &Found) -> Result<(), Answer> {
        let Some(folder) = &self.site.global.core.links_within else { return Ok(()) };
        let real = found.real_path();
        match !found.through_link() || Path::new(OsStr::from_bytes(&real)).starts_with(folder) {
            true => Ok(()),
            false => Err(forbidden_link(request, found.path())),
        }
    }

    /// What was found of the folder so far, for looks beside the request's file.
    pub(crate) fn of_folder(&self) -> OfFolder {
        let (options, constant) = (self.options, self.constant);
        OfFolder { sections: self.sections.len(), options, constant }
    }

    /// Adds a section, and what it says of the walk itself.
    pub(crate) fn add(&mut self, section: Arc<Section>) {
        let core = &section.settings.core;
        self.options = Merge::merge(&self.options, &core.options);
        self.overrides.add(&core.allow_override);
        self.list = Merge::merge(&self.list, &core.allow_override_list);
        self.sections.push(section);
    }

    /// Adds the `<Directory>` sections of one folder.
    pub(crate) fn enter(&mut self, folder: &[u8]) {
        let mut path = folder.to_vec();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        for section in self.server.directories.iter() {
            let holds = match &section.matches {
                Match::Exact(exact) => **exact == *path,
                Match::Wild(pattern) => glob(pattern, &path, PATH),
                _ => false,
            };
            if holds {
                self.add(Arc::clone(section));
            }
        }
    }

    /// What an .htaccess file of the next folder may say.
    pub(crate) fn grant(&self) -> Grant {
        Grant { overrides: self.overrides, list: self.list.clone() }
    }

    pub(crate) fn patterns(&mut self, request: &mut Request) {
        for section in self.server.directory_patterns.iter() {
            if pattern_holds(section, request, Subject::File, &mut self.constant) {
                self.add(Arc::clone(section));
            }
        }
    }

    /// Adds the `<Files>` sections of all sections so far that match the file's name.
    pub(crate) fn files(&mut self, request: &mut Request) {
        let candidates: Vec<Arc<Section>> =
            files_of(self.server, &self.sections).cloned().collect();
        for section in candidates {
            let name = request.resource.file.last();
            let holds = match &section.matches {
                Match::Exact(exact) => **exact == *name,
                Match::Wild(pattern) => glob(pattern, name, PATH),
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

    /// Whether a `<Files>` section of the server or of these sections holds for a name. One that
    /// cannot be compared counts as one that does.
    pub(crate) fn may_have_files(
        server: &Server,
        sections: &[Arc<Section>],
        request: &Request,
        name: &[u8],
    ) -> bool {
        files_of(server, sections).any(|section| may_hold(section, request, name))
    }

    /// The same of a `<Location>` section of the server and a path.
    pub(crate) fn may_have_locations(server: &Server, request: &Request, path: &UrlPath) -> bool {
        server.locations.iter().any(|section| match &section.matches {
            Match::Exact(prefix) => is_below(&path.merged(), prefix).is_some(),
            Match::Wild(_) => may_hold(section, request, &path.merged()),
            _ => may_hold(section, request, path),
        })
    }

    pub(crate) fn symlinks(&self) -> SymlinkRule {
        symlink_rule(self.options)
    }
}

/// The `<Files>` sections of the server and of sections.
fn files_of<'a>(
    server: &'a Server,
    sections: &'a [Arc<Section>],
) -> impl Iterator<Item = &'a Arc<Section>> {
    let own = sections.iter().map(|section| &section.settings.core.files);
    std::iter::once(&server.defaults.core.files).chain(own).flatten()
}

/// Whether a section may hold for a text, by the name or the pattern that it has.
fn may_hold(section: &Section, request: &Request, text: &[u8]) -> bool {
    match &section.matches {
        Match::Exact(exact) => **exact == *text,
        Match::Wild(pattern) => glob(pattern, text, PATH),
        Match::Pattern(pattern) => {
            let mut captures = Captures::default();
            !matches!(pattern.capture_within(&request.allowance, text, &mut captures), Ok(false))
        }
        _ => false,
    }
}

/// Which links may be followed. Where both options are set, the stricter one holds (request.c:
/// resolve_symlink).
pub(crate) fn symlink_rule(options: OptionChange) -> SymlinkRule {
    let options = options.effective();
    if options.has(Options::SYM_LINKS_IF_OWNER_MATCH) {
        SymlinkRule::IfOwnerMatch
    } else if options.has(Options::FOLLOW_SYM_LINKS) {
        SymlinkRule::Follow
    } else {
        SymlinkRule::Refuse
    }
}

/// The `<Location>` sections that hold for the request's path.
pub(crate) fn locations(
    server: &Server,
    request: &mut Request,
    sections: &mut Vec<Arc<Section>>,
    constant: &mut bool,
) {
    for section in server.locations.iter() {
        let holds = match &section.matches {
            Match::Exact(prefix) => is_below(&request.resource.path.merged(), prefix).is_some(),
            Match::Wild(pattern) => glob(pattern, &request.resource.path.merged(), PATH),
            Match::Pattern(_) => pattern_holds(section, request, Subject::Path, constant),
            _ => false,
        };
        if holds {
            sections.push(Arc::clone(section));
        }
    }
}

/// Adds the `<Proxy>` and `<ProxyMatch>` sections of a request that is passed on, in their order. A
/// section without a pattern applies to each URL that begins with its text (mod_proxy.c:
/// proxy_walk).
pub(crate) fn proxies(server: &Server, request: &mut Request, sections: &mut Vec<Arc<Section>>) {
    for section in &server.settings.proxy.sections {
        let Some(proxied) = &request.resource.proxied else { return };
        let holds = match &section.matches {
            Match::Exact(prefix) => proxied.name.starts_with(prefix),
            Match::Wild(pattern) => glob(pattern, &proxied.name, ANY),
            Match::Pattern(_) => pattern_holds(section, request, Subject::Proxied, &mut true),
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
    Proxied,
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
        Subject::Proxied => request.resource.proxied.as_ref().map_or(&b""[..], |it| &it.name),
        Subject::Path => &*request.resource.path,
        Subject::File => request.resource.file.as_bytes(),
        Subject::Name => request.resource.file.last(),
    };
    let mut captures = Captures::default();
    match pattern.capture_within(&request.allowance, text, &mut captures) {
        Ok(false) => false,
        Ok(true) => {
            for (number, name) in pattern.names() {
                *constant = false;
                let name = format!("MATCH_{}", name.to_ascii_uppercase());
                request.resource.env.set(name, captures.group(number));
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

pub(crate) fn forbidden_link(request: &mut Request, path: &[u8]) -> Answer {
    let path = quoted(path);
    let text = format!("Symbolic link not allowed or link target not accessible: {path}");
    request.notify(Notice::new("core", Level::Error, 37, text));
    Status::FORBIDDEN.into()
}

pub(crate) fn denied(request: &mut Request, found: &Found, errno: i32) -> Answer {
    const ENOENT: i32 = 2;
    const ENOTDIR: i32 = 20;
    const EACCES: i32 = 13;
    const ELOOP: i32 = 40;
    let reason = std::io::Error::from_raw_os_error(errno);
    let uri = quoted(&request.resource.path).into_owned();
    let path = quoted(found.path());
    match errno {
        ENOENT | ENOTDIR => Status::NOT_FOUND.into(),
        // A link that leads nowhere (request.c: resolve_symlink).
        ELOOP => forbidden_link(request, found.path()),
        EACCES => {
            let text = format!(
                "access to {uri} denied (filesystem path '{path}') because search permissions are \
                 missing on a component of the path"
            );
            request.notify(Notice::new("core", Level::Error, 35, text).because(&reason));
            Status::FORBIDDEN.into()
        }
        _ => {
            let text = format!("access to {uri} failed (filesystem path '{path}')");
            request.notify(Notice::new("core", Level::Error, 36, text).because(&reason));
            Status::FORBIDDEN.into()
        }
    }
}
