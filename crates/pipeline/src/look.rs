//! A look at another path of the site on behalf of a request (Apache: a sub-request). The request
//! and a path go in; what a request for that path would come upon goes out, and the request takes
//! the path's place or is itself again. No handler runs and nothing is sent.

use crate::frames::{Frames, MaybeReady};
use crate::known;
use crate::phases;
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{
    Admitted, Answer, Content, FileName, Level, Notice, Prepared, Request, Resource, Status,
    Stopped, Translated, UrlPath,
};
use evenkeel_modules::core::AcceptPathInfo;
use evenkeel_modules::dir::{self, Slash};
use evenkeel_modules::negotiation::LIST_NOTE;
use std::rc::Rc;
use std::sync::Arc;

/// Looks that a request may take in all: a list of index files may name folders, whose lists name
/// others, so that their number would grow with a power of the depth.
const LOOKS: u16 = 100;

/// Files that a request may look at to choose one of them.
pub(crate) const VARIANT_LOOKS: u16 = 250;

/// What the copy of a variable costs a request, in steps of its allowance.
const STEPS_A_VARIABLE: u64 = 64;

/// The state of the phases: what a request has become, or why it ended early.
type Phase = Result<Prepared<Plan, Option<Looked>>, Stopped<Plan>>;

/// What a look came upon.
pub(crate) struct Seen {
    pub(crate) plan: Arc<Plan>,
    pub(crate) found: Option<Looked>,
    /// The early answer of a phase.
    answer: Option<Answer>,
}

impl Seen {
    /// The status of the look: 200 where every phase let it pass.
    pub(crate) fn status(&self) -> Status {
        match &self.answer {
            None => Status::OK,
            Some(Answer::Status(status, _)) => *status,
            Some(Answer::Response(response)) => response.status,
            Some(Answer::Redirect(_)) => Status::FOUND,
        }
    }

    /// Whether a regular file was found that may be served.
    pub(crate) fn is_file(&self) -> bool {
        let file = |looked: &Looked| looked.found.kind() == Kind::File;
        self.answer.is_none() && self.found.as_ref().is_some_and(file)
    }

    /// Whether what was found is an index or a fallback: a regular file, or the target of a proxy
    /// (mod_dir.c: fixup_dir, fixup_dflt).
    fn is_index(&self, request: &Request) -> bool {
        self.is_file() || (self.answer.is_none() && request.resource.proxied.is_some())
    }
}

/// The resource of a request that looks at another path.
pub(crate) struct Aside(Resource);

impl Aside {
    /// Makes the request one for another path.
    pub(crate) fn put(request: &mut Request, path: UrlPath, query: Option<Vec<u8>>) -> Self {
        // One that has spent what it may is answered with 500 in the end.
        let variables = request.resource.env.iter().count() as u64;
        let _enough = request.allowance.spend(variables * STEPS_A_VARIABLE);
        let other = request.resource.of_subrequest(path, query);
        Self(std::mem::replace(&mut request.resource, other))
    }

    /// Makes the request what it was before. A list of variants stays: the page that shows it is
    /// the request's (mod_negotiation.c: store_variant_list).
    pub(crate) fn restore(self, request: &mut Request) {
        let found = std::mem::replace(&mut request.resource, self.0);
        if let Some(list) = found.notes.value(LIST_NOTE) {
            request.resource.notes.set(LIST_NOTE, list);
        }
    }

    /// Makes the request what it was before, but for the fields of the answer that the look came
    /// upon, which becomes its own (mod_dir.c: fixup_dir).
    fn restore_to_answer(mut self, request: &mut Request) {
        self.0.fields.extend(&request.resource.fields);
        self.0.always.overlay(&request.resource.always);
        self.restore(request);
    }

    /// Replaces the resource of the request by the one that the subrequest has found.
    /// AcceptPathInfo stays that of the plan of the request (core.c: `core_override_type`, which
    /// runs once).
    pub(crate) fn keep(self, request: &mut Request, plan: &Plan) {
        let found = std::mem::take(&mut request.resource);
        request.resource = self.0.replaced_by(found);
        let says_so = plan.core.accept_path_info == Some(AcceptPathInfo::On);
        request.resource.takes_path.get_or_insert(says_so);
    }
}

/// How a look begins.
pub(crate) enum Start {
    /// With the path of the request.
    Path,
    /// With its file, which is known. What sections of the path say comes with the walk.
    File,
}

/// The frames of looks, which may lead to others.
pub(crate) type Looks = Frames<(Rc<Pipeline>, Box<Request>, Start), (Box<Request>, Seen)>;

/// Runs the phases before the handler for the request's path.
pub(crate) async fn see(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    start: Start,
) -> (Box<Request>, Seen) {
    request.looks = request.looks.saturating_add(1);
    pipeline.looks.call((Rc::clone(pipeline), request, start)).await
}

/// The same for a request whose file is known, since it stands beside that of the request before.
/// Such looks are counted apart: a choice may be among hundreds of files.
pub(crate) async fn see_file(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
) -> (Box<Request>, Seen) {
    request.variant_looks = request.variant_looks.saturating_add(1);
    request.resource.is_of_file = true;
    pipeline.looks.call((Rc::clone(pipeline), request, Start::File)).await
}

/// Whether a subrequest of this depth is nested too deep (http_request.c:
/// ap_is_recursion_limit_exceeded).
pub(crate) fn is_too_deep(pipeline: &Pipeline, request: &Request, depth: u8) -> bool {
    usize::from(depth) > pipeline.site.server(request.server).look_limit()
}

/// Whether the request is the last of as many internal redirects as there may be: such a one may
/// not look at other paths either (http_request.c: ap_is_recursion_limit_exceeded counts both).
pub(crate) fn may_not_look(pipeline: &Pipeline, request: &Request) -> bool {
    let limit = pipeline.site.server(request.server).redirect_limit();
    request.previous.is_some() && request.redirects() >= limit
}

/// What the log says of a request that was redirected too often.
pub(crate) fn too_many_redirects(limit: usize) -> Notice {
    let text = format!(
        "Request exceeded the limit of {limit} internal redirects due to probable configuration \
         error. Use 'LimitInternalRecursion' to increase the limit if necessary. Use 'LogLevel \
         debug' to get a backtrace."
    );
    Notice::new("core", Level::Error, 124, text)
}

/// Runs the phases for a look that was counted, unless there were too many.
pub(crate) async fn look(
    (pipeline, request, start): (Rc<Pipeline>, Box<Request>, Start),
) -> (Box<Request>, Seen) {
    let request = match refuse_too_many(&pipeline, request) {
        Ok(request) => request,
        Err(refused) => return refused,
    };
    match prepare(&pipeline, request, start).await {
        Ok(Prepared { request, plan, found }) => (request, Seen { plan, found, answer: None }),
        Err(Stopped { request, plan, answer }) => {
            (request, Seen { plan, found: None, answer: Some(answer) })
        }
    }
}

/// The phases of a look.
async fn prepare(pipeline: &Rc<Pipeline>, request: Box<Request>, start: Start) -> Phase {
    let translated = match start {
        Start::Path => {
            let received = phases::locate(pipeline, request).await?;
            phases::translate(pipeline, received).await?
        }
        Start::File => {
            let plan = Arc::clone(&pipeline.site.server(request.server).defaults);
            Translated { request, plan }
        }
    };
    let admitted = admit(pipeline, translated).await?;
    phases::prepare(pipeline, admitted).await
}

/// The request, unless it is nested too deep or has taken too many looks.
fn refuse_too_many(
    pipeline: &Pipeline,
    mut request: Box<Request>,
) -> Result<Box<Request>, (Box<Request>, Seen)> {
    let limit = pipeline.site.server(request.server).look_limit();
    let too_many = request.looks > LOOKS || request.variant_looks > VARIANT_LOOKS;
    let too_deep = is_too_deep(pipeline, &request, request.resource.depth);
    let is_last = may_not_look(pipeline, &request);
    request.doubtful |= too_many;
    if !(too_deep || too_many || is_last) {
        return Ok(request);
    }
    request.notify(if is_last {
        too_many_redirects(pipeline.site.server(request.server).redirect_limit())
    } else if too_deep {
        let text = format!(
            "Request exceeded the limit of {limit} subrequest nesting levels due to probable \
             configuration error. Use 'LimitInternalRecursion' to increase the limit if \
             necessary. Use 'LogLevel debug' to get a backtrace."
        );
        Notice::new("core", Level::Error, 125, text)
    } else {
        let text = format!(
            "one request may look at {LOOKS} paths and at {VARIANT_LOOKS} files of one name; \
             this one has looked at more"
        );
        Notice::own("core", Level::Error, text)
    });
    let plan = Arc::clone(&pipeline.site.server(request.server).defaults);
    let answer = Some(Status::INTERNAL_SERVER_ERROR.into());
    Err((request, Seen { plan, found: None, answer }))
}

/// What a look came upon that only looks: the request is itself again.
pub(crate) struct Glance {
    /// 200 where every phase let it pass.
    pub status: Status,
    /// What was found; none where a phase ended it.
    pub found: Option<Looked>,
    /// The file that would be served.
    pub file: FileName,
    /// What that file is.
    pub content: Content,
    /// Whether its path goes on behind that file, and the file is not one that takes a path.
    pub is_beyond: bool,
    /// How many looks it took, those within it included.
    pub looks: u16,
    /// The settings that held.
    pub plan: Arc<Plan>,
    /// Whether it was let in because it is in the very settings of its requester.
    pub is_known: bool,
}

/// Looks at a path whose file is known, as that of what stands in a folder (request.c:
/// ap_sub_req_lookup_dirent). It has looks of its own, and its requester counts them.
pub(crate) async fn at_file(
    pipeline: &Rc<Pipeline>,
    request: Box<Request>,
    path: UrlPath,
    file: FileName,
) -> (Box<Request>, Glance) {
    glance(pipeline, request, (path, None), Some(file)).await
}

/// Looks at a path that a name means that was configured for a folder; none where it can mean
/// none (request.c: ap_sub_req_lookup_uri).
pub(crate) async fn at_name(
    pipeline: &Rc<Pipeline>,
    request: Box<Request>,
    name: &[u8],
) -> (Box<Request>, Option<Glance>) {
    let Ok(target) = beside(pipeline, &request, name) else { return (request, None) };
    let (request, glance) = glance(pipeline, request, target, None).await;
    (request, Some(glance))
}

/// What stands at a URL, where the client may see it: a look that goes no further than that
/// decision, and so leads to no other. It leaves nothing in the log, since the request itself is
/// for something else.
pub(crate) async fn admitted(
    pipeline: &Pipeline,
    mut request: Box<Request>,
    url: &[u8],
) -> (Box<Request>, Option<Looked>) {
    let Ok((path, query)) = beside(pipeline, &request, url) else { return (request, None) };
    let told = request.notices.len();
    let aside = Aside::put(&mut request, path, query);
    let (mut request, found) = match admit_path(pipeline, request).await {
        Ok(Admitted { request, found, .. }) => (request, found),
        Err(Stopped { request, .. }) => (request, None),
    };
    aside.restore(&mut request);
    request.notices.truncate(told);
    (request, found)
}

/// The phases up to the decision about access, for a path.
async fn admit_path(
    pipeline: &Pipeline,
    request: Box<Request>,
) -> Result<phases::Access, Stopped<Plan>> {
    let received = phases::locate(pipeline, request).await?;
    let translated = phases::translate(pipeline, received).await?;
    admit(pipeline, translated).await
}

/// The phases from the section walk to the decision about access.
pub(crate) async fn admit(
    pipeline: &Pipeline,
    translated: Translated<Plan>,
) -> Result<phases::Access, Stopped<Plan>> {
    phases::admit(pipeline, phases::map(pipeline, translated).await?).await
}

async fn glance(
    pipeline: &Rc<Pipeline>,
    mut request: Box<Request>,
    (path, query): (UrlPath, Option<Vec<u8>>),
    file: Option<FileName>,
) -> (Box<Request>, Glance) {
    let before = std::mem::take(&mut request.looks);
    let variants = std::mem::take(&mut request.variant_looks);
    let aside = Aside::put(&mut request, path, query);
    let start = match file {
        None => Start::Path,
        Some(file) => {
            (request.resource.file, request.resource.is_of_file) = (file, true);
            Start::File
        }
    };
    let (mut request, seen) = see(pipeline, request, start).await;
    let is_known = known::are_settings_known(&request);
    let takes_path = seen.plan.core.accept_path_info == Some(AcceptPathInfo::On);
    let glance = Glance {
        status: seen.status(),
        is_beyond: !request.resource.path_info.is_empty() && !takes_path,
        found: seen.found,
        file: std::mem::take(&mut request.resource.file),
        content: std::mem::take(&mut request.resource.content),
        looks: std::mem::replace(&mut request.looks, before)
            .saturating_add(std::mem::replace(&mut request.variant_looks, variants)),
        plan: seen.plan,
        is_known,
    };
    aside.restore(&mut request);
    (request, glance)
}

/// What mod_dir makes of a request at the end of its preparation: a folder's index takes its
/// place, a fallback that of nothing (mod_dir.c: dir_fixups).
pub(crate) fn find_index(
    pipeline: &Rc<Pipeline>,
    prepared: phases::Ready,
) -> MaybeReady<'_, Phase> {
    let kind = prepared.found.as_ref().map(|looked| looked.found.kind());
    match kind.filter(|_| pipeline.site.folders_have_indexes) {
        Some(Kind::Directory) => MaybeReady::later(folder(pipeline, prepared)),
        Some(Kind::Absent) if !has_handler(&prepared.request) => {
            MaybeReady::later(fallback(pipeline, prepared))
        }
        _ => MaybeReady::now(Ok(prepared)),
    }
}

/// Whether a request has a handler, which keeps FallbackResource away (mod_dir.c: dir_fixups).
fn has_handler(request: &Request) -> bool {
    request.resource.content.handler.is_some() || request.resource.proxied.is_some()
}

async fn folder(pipeline: &Rc<Pipeline>, prepared: phases::Ready) -> Phase {
    let Prepared { mut request, plan, found } = prepared;
    let server = pipeline.site.server(request.server);
    match dir::slash(&request, &plan.dir, server.core(&plan)) {
        Slash::There => {}
        Slash::Missing => return Ok(Prepared { request, plan, found }),
        Slash::Redirect(answer) => return Err(Stopped { request, plan, answer }),
    }
    if plan.dir.leaves_to(request.resource.content.handler.as_deref()) {
        request.resource.content.media_type = None;
        return Ok(Prepared { request, plan, found });
    }
    let mut refused = None;
    for number in 0.. {
        let Some(name) = plan.dir.index_name(number) else { break };
        let target = match beside(pipeline, &request, name.as_bytes()) {
            Ok(target) => target,
            Err(status) => {
                refused = Some(status).filter(|it| *it != Status::NOT_FOUND).or(refused);
                continue;
            }
        };
        let (path, query) = with_query(&request, target);
        let aside = Aside::put(&mut request, path, query);
        let (back, seen) = see(pipeline, request, Start::Path).await;
        request = back;
        let status = seen.status();
        if seen.is_index(&request) {
            if let Some(status) = plan.dir.redirect_status() {
                let mut index = Vec::new();
                evenkeel_proto::escape_uri(&mut index, &request.resource.path);
                aside.restore(&mut request);
                let core = server.core(&plan);
                let answer = dir::redirect_to_index(&request, core, &index, status);
                return Err(Stopped { request, plan, answer });
            }
            aside.keep(&mut request, &plan);
            return Ok(Prepared { request, plan: seen.plan, found: seen.found });
        }
        let is_last = plan.dir.index_name(number + 1).is_none();
        let is_final = matches!(status, Status::NOT_ACCEPTABLE | Status::UNAUTHORIZED) && is_last;
        if status.is_redirect() || is_final {
            aside.restore_to_answer(&mut request);
        } else {
            aside.restore(&mut request);
        }
        match seen.answer {
            Some(answer) if status.is_redirect() || is_final => {
                return Err(Stopped { request, plan, answer });
            }
            Some(_) if status != Status::NOT_FOUND => refused = Some(status),
            _ => {}
        }
    }
    match refused {
        Some(status) => Err(Stopped { request, plan, answer: status.into() }),
        None => Ok(Prepared { request, plan, found }),
    }
}

/// What may not be had of the fallback keeps the request too. One that is not there falls back
/// upon itself until that has a limit, as in Apache (mod_dir.c: fixup_dflt).
async fn fallback(pipeline: &Rc<Pipeline>, prepared: phases::Ready) -> Phase {
    let Prepared { mut request, plan, found } = prepared;
    let Some(target) = plan.dir.fallback() else { return Ok(Prepared { request, plan, found }) };
    let target = match beside(pipeline, &request, target.as_bytes()) {
        Ok(target) => target,
        Err(Status::NOT_FOUND) => return Ok(Prepared { request, plan, found }),
        Err(status) => return Err(Stopped { request, plan, answer: status.into() }),
    };
    let (path, query) = with_query(&request, target);
    let aside = Aside::put(&mut request, path, query);
    let (mut request, seen) = see(pipeline, request, Start::Path).await;
    if seen.is_index(&request) {
        aside.keep(&mut request, &plan);
        return Ok(Prepared { request, plan: seen.plan, found: seen.found });
    }
    let status = seen.status();
    let answer = match seen.answer {
        Some(answer) if status.is_redirect() => {
            aside.restore_to_answer(&mut request);
            return Err(Stopped { request, plan, answer });
        }
        answer => answer.filter(|_| status != Status::NOT_FOUND).map(|_| status.into()),
    };
    aside.restore(&mut request);
    match answer {
        Some(answer) => Err(Stopped { request, plan, answer }),
        None => Ok(Prepared { request, plan, found }),
    }
}

/// The target with the query of the request behind its own (mod_dir.c: fixup_dir, fixup_dflt).
fn with_query(
    request: &Request,
    (path, own): (UrlPath, Option<Vec<u8>>),
) -> (UrlPath, Option<Vec<u8>>) {
    let query = match (own, &request.resource.query) {
        (Some(own), Some(asked)) => Some([&own[..], b"?", asked].concat()),
        (own, asked) => own.or_else(|| asked.clone()),
    };
    (path, query)
}

/// The path and query of a name that was configured for a folder: the name may be a path of its
/// own, and may hold escapes and a query.
///
/// # Errors
/// The status of a request for an invalid path.
pub(crate) fn beside(
    pipeline: &Pipeline,
    request: &Request,
    name: &[u8],
) -> Result<(UrlPath, Option<Vec<u8>>), Status> {
    let mut parts = name.splitn(2, |byte| *byte == b'?');
    let (name, own) = (parts.next().unwrap_or_default(), parts.next());
    let query = own.map(<[u8]>::to_vec);
    let folder = match name.first() {
        Some(b'/') => &b""[..],
        _ => request.resource.path.folder(),
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    // Neither has escapes, before the path is decoded and behind that.
    let is_plain_folder = || folder.iter().all(|byte| is_plain(byte) || b"./".contains(byte));
    let is_file_name = name.first().is_some_and(is_plain)
        && name.iter().all(|byte| is_plain(byte) || *byte == b'.');
    if is_file_name && is_plain_folder() {
        return Ok((request.resource.path.beside(name, b""), query));
    }
    let mut target = Vec::new();
    evenkeel_proto::escape_uri(&mut target, folder);
    target.extend_from_slice(name);
    let path = pipeline.site.path(request, &target).map_err(|refusal| refusal.status)?;
    Ok((path, query))
}
