//! .htaccess files: the text of one goes in, a section like any other comes out, kept for as long
//! as the text is the same and there is room. What the configuration does not allow there is an
//! error that names the file and the line (Apache: config.c, ap_parse_htaccess).

use crate::clock::{Clock, Entry, Gone};
use crate::site::Site;
use bytes::Bytes;
use evenkeel_files::{AccessFile, Files, Folder};
use evenkeel_message::{Answer, Level, Notice, Request, Status, quoted};
use evenkeel_modules::core::{AllowOverride, Kind, Match, Section};
use evenkeel_modules::{Place, Scope};
use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// Parsed files kept by path.
const KEPT: usize = 4096;

/// The .htaccess files that one thread has parsed.
pub(crate) struct AccessFiles {
    parsed: Clock<Parsed>,
    /// The sections that will not be met again, by their numbers: what was made of them is of no
    /// use. Those since this was last asked for.
    outdated: Vec<u64>,
    /// The last number given to a section of an .htaccess file.
    sections: u64,
}

struct Parsed {
    path: Box<[u8]>,
    used: Cell<bool>,
    serial: u64,
    text: Bytes,
    grant: Grant,
    result: Result<Arc<Section>, Box<str>>,
}

impl Entry for Parsed {
    type Key<'a> = &'a [u8];

    fn key(&self) -> &[u8] {
        &self.path
    }

    fn is(&self, path: &[u8]) -> bool {
        *self.path == *path
    }

    fn used(&self) -> &Cell<bool> {
        &self.used
    }
}

/// What an .htaccess file may say, as the sections around it have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// None where no section has AllowOverride.
    pub overrides: Option<AllowOverride>,
    pub list: Option<Arc<HashSet<Box<str>>>>,
}

impl Grant {
    /// Whether there is no use in looking for the file. Where AllowOverride is said nowhere, it is
    /// read and no directive is allowed in it (core.c, create_core_dir_config: OR_UNSET is not
    /// OR_NONE).
    fn is_nothing(&self) -> bool {
        self.overrides.is_some_and(AllowOverride::is_none)
            && self.list.as_ref().is_none_or(|list| list.is_empty())
    }

    fn names(&self) -> Vec<String> {
        self.list.iter().flat_map(|list| list.iter()).map(|name| name.to_string()).collect()
    }
}

impl AccessFiles {
    /// None parsed yet; of those that will be, so many bytes of text are kept.
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self { parsed: Clock::new(KEPT, most_bytes), outdated: Vec::new(), sections: 0 }
    }

    /// The numbers of the sections that have been let go since this was last asked for.
    pub(crate) fn take_outdated(&mut self) -> impl Iterator<Item = u64> {
        self.outdated.drain(..)
    }

    /// How many are parsed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.parsed.len()
    }

    /// The section of the .htaccess file in a folder, if there is one and it may say anything.
    ///
    /// # Errors
    /// 500 where the file is wrong, 403 where it cannot be read: an unread rule might have
    /// forbidden the request.
    pub(crate) fn section(
        &mut self,
        site: &Site,
        grant: Grant,
        files: &Files,
        folder: &Rc<Folder>,
        request: &mut Request,
    ) -> Result<Option<Arc<Section>>, Answer> {
        if grant.is_nothing() {
            return Ok(None);
        }
        let server = site.server(request.server);
        for name in server.access_file_names() {
            match files.access_file(folder, name.as_bytes()) {
                Ok(None) => {}
                Ok(Some(file)) => return self.parse(site, grant, &file, folder, request).map(Some),
                Err(error) => {
                    let folder = quoted(folder.path());
                    let folder = folder.trim_end_matches('/');
                    let text = format!(
                        "{folder}/{name} pcfg_openfile: unable to check htaccess file, ensure it \
                         is readable and that '{folder}/' is executable"
                    );
                    let notice = Notice::new("core", Level::Crit, 529, text);
                    request.notify(notice.because(&error));
                    let note = "Server unable to read htaccess file, denying access to be safe";
                    request.resource.notes.set("error-notes", note);
                    return Err(Status::FORBIDDEN.into());
                }
            }
        }
        Ok(None)
    }

    fn parse(
        &mut self,
        site: &Site,
        grant: Grant,
        file: &AccessFile,
        folder: &Folder,
        request: &mut Request,
    ) -> Result<Arc<Section>, Answer> {
        let known = self.parsed.get(&file.path);
        // The same text makes the same section, also where the file was written anew: the page of
        // an error is known by the sections of the refusal.
        let is_same = |p: &&Parsed| p.serial == file.serial || p.text == file.text;
        let usable = known.filter(is_same).filter(|p| p.grant == grant);
        let result = match usable {
            Some(parsed) => parsed.result.clone(),
            None => {
                let mut notices = Vec::new();
                let result = self.compile(site, &grant, file, folder, &mut notices);
                for notice in &notices {
                    request.notify(notice.to_message());
                }
                let parsed = Parsed {
                    path: file.path.clone(),
                    used: Cell::new(false),
                    serial: file.serial,
                    text: file.text.clone(),
                    grant,
                    result: result.clone(),
                };
                let bytes = file.text.len() as u64;
                let Gone { old, evicted } = self.parsed.insert(parsed, bytes);
                let sections = old.into_iter().chain(evicted).filter_map(|it| it.result.ok());
                self.outdated.extend(sections.map(|section| section.id));
                result
            }
        };
        result.map_err(|text| {
            request.notify(Notice::own("core", Level::Alert, text.into_string()));
            Status::INTERNAL_SERVER_ERROR.into()
        })
    }

    fn compile(
        &mut self,
        site: &Site,
        grant: &Grant,
        file: &AccessFile,
        folder: &Folder,
        notices: &mut Vec<evenkeel_config::Notice>,
    ) -> Result<Arc<Section>, Box<str>> {
        let path = quoted(&file.path);
        let mut scope = Scope::new(&site.server_root, Arc::clone(&site.global));
        let mut directory = quoted(folder.path()).into_owned();
        if !directory.ends_with('/') {
            directory.push('/');
        }
        scope.section_path = Some(directory.as_str().into());
        scope.place = Place::Directory(directory.into());
        scope.in_htaccess = true;
        scope.sections = site.section_base + self.sections;
        let AllowOverride { overrides, options, nonfatal_override, nonfatal_unknown } =
            grant.overrides.unwrap_or(AllowOverride::NONE);
        let allowed = evenkeel_config::Grant {
            overrides,
            directives: grant.names(),
            nonfatal_override,
            nonfatal_unknown,
            options: options.bits(),
        };
        let fail =
            |fault: evenkeel_config::Fault| -> Box<str> { fault.report_in_htaccess(&path).into() };
        let nodes = evenkeel_config::read_htaccess(
            &file.text,
            &path,
            &site.server_root.to_string_lossy(),
            &allowed,
            &site.language.variables,
            &*site.language.vocabulary,
            notices,
        )
        .map_err(fail)?;
        evenkeel_config::apply_htaccess(
            &site.language.tables,
            &nodes,
            &mut scope,
            &allowed,
            notices,
        )
        .map_err(fail)?;
        let is_of_core = |module: &str| module == "core.c";
        let find = |node: &evenkeel_config::Node| site.language.tables.find(&node.name);
        if !nodes.iter().flat_map(find).any(|(module, _)| is_of_core(module)) {
            scope.directory.core.options.leave();
        }
        let id = scope.number_section();
        self.sections = scope.sections - site.section_base;
        let position = evenkeel_config::Position { file: path.as_ref().into(), line: 1 };
        let matches = Match::Else;
        Ok(Arc::new(Section {
            id,
            kind: Kind::Directory,
            matches,
            settings: scope.directory.into_settings(),
            position,
            // Also an empty one is known by what it weighs.
            bytes: file.text.len().max(1) as u64,
        }))
    }
}
