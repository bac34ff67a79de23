//! The files of a folder whose looks would all run alike: after one look in full, the next files of
//! a listing need no more of the phases than what depends on their names, which is the sections of
//! `<Files>` and `<Location>` and the media type. What is not certain to be alike gets a look.

use crate::look::Glance;
use crate::serve::Pipeline;
use crate::site::Plan;
use crate::walks::FolderWalk;
use crate::way::Way;
use evenkeel_files::{Folder, Kind};
use evenkeel_message::{Content, Request, Status};
use evenkeel_modules::autoindex::{Candidate, Entry};
use evenkeel_modules::mime;
use std::rc::Rc;

/// The files of one folder.
pub(crate) struct Alike {
    folder: Rc<Folder>,
    walk: FolderWalk,
    /// The name of the folder with its slash, and behind it that of a file.
    path: Vec<u8>,
    /// Where the name of the file begins.
    start: usize,
}

impl Alike {
    /// The files that are as the one at which a look was taken on behalf of a request for their
    /// folder; none where they may differ. `plan` is that of the request.
    pub(crate) fn to(
        pipeline: &Pipeline,
        request: &Request,
        plan: &Plan,
        folder: &Rc<Folder>,
        glance: &Glance,
    ) -> Option<Self> {
        let found = &glance.found.as_ref()?.found;
        let is_usual = glance.status == Status::OK
            && glance.is_known
            && found.kind() == Kind::File
            && found.link().is_none()
            && Rc::ptr_eq(found.folder(), folder)
            && std::ptr::eq(&*glance.plan, plan)
            && acts_by_name_alone(pipeline, request, plan);
        if !is_usual {
            return None;
        }
        let path = request.resource.file.as_bytes().to_vec();
        let walk = FolderWalk::of(request)?;
        let is_of_folder =
            walk.is_of_folder(&path) && std::ptr::eq(&**walk.plan(), plan) && !walk.has_locations();
        let start = path.len();
        is_of_folder.then(|| Self { folder: Rc::clone(folder), walk, path, start })
    }

    /// The entry that a look at a name would lead to.
    ///
    /// # Errors
    /// The name, where a look has to be taken.
    pub(crate) fn entry(
        &mut self,
        pipeline: &Pipeline,
        request: &Request,
        candidate: Candidate,
    ) -> Result<Entry, Candidate> {
        if candidate.is_folder {
            return Err(candidate);
        }
        let name = &*candidate.name;
        let server = pipeline.site.server(request.server);
        let has_sections = Way::may_have_files(server, self.walk.sections(), request, name)
            || (!server.locations.is_empty() && {
                let path = request.resource.path.beside(name, b"");
                Way::may_have_locations(server, request, &path)
            });
        if has_sections {
            return Err(candidate);
        }
        let mut content = Content::default();
        let types = &pipeline.site.types;
        mime::describe(&mut content, name, true, &self.walk.plan().mime, types);
        // A handler may give the content a type, and negotiation the encoding another spelling.
        if content.handler.is_some() || content.encoding.is_some() {
            return Err(candidate);
        }
        // The contents tell the type (mod_mime_magic).
        if content.media_type.is_none() && server.settings.mime_magic.rules().is_some() {
            return Err(candidate);
        }
        self.path.truncate(self.start);
        self.path.extend_from_slice(name);
        match pipeline.walker.borrow().files.file_in(&self.folder, &self.path) {
            Some(file) => Ok(Entry::of_file(candidate, file, content)),
            None => Err(candidate),
        }
    }
}

/// Whether the phases of a look under this plan depend on nothing of a file but its name and that
/// it is one.
fn acts_by_name_alone(pipeline: &Pipeline, request: &Request, plan: &Plan) -> bool {
    plan.core.conditions.is_empty()
        && !matches!(plan.core.force_type, Some(Some(_)))
        && !matches!(plan.core.handler, Some(Some(_)))
        && !plan.rewrite.has_rules()
        && plan.alias.redirects.is_empty()
        && plan.alias.redirect.is_none()
        && !plan.auth_basic.is_faking()
        && pipeline.site.global.core.links_within.is_none()
        && request.beyond.is_none()
}
