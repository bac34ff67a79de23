//! The phases of a request in order, and in each the modules that act, in the order in which they
//! act. A module is called here and nowhere else.

use crate::body;
use crate::caching;
use crate::cgi;
use crate::die::KEEPS_TYPE;
use crate::fcgid;
use crate::filtering;
use crate::form_login;
use crate::frames::MaybeReady;
use crate::handler::{Handler, choose};
use crate::handlers::{
    default_handler, digest_and_serve, send_as_is, server_info, server_status, shed,
};
use crate::hosts::is_below;
use crate::known;
use crate::listing;
use crate::login;
use crate::look;
use crate::magic;
use crate::negotiate;
use crate::proxying;
use crate::question;
use crate::rewriting::{self, Translation};
use crate::serve::{Concluded, Pipeline};
use crate::sessions;
use crate::site::{Plan, Server};
use crate::spelling;
use crate::trace;
use crate::walk::{Arrival, conditions};
use crate::walks::Merged;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{
    Admitted, Answer, Departure, FileName, Level, Mapped, Method, Notice, Prepared, Received,
    Request, Status, Stopped, Translated, Undecided, Version, WantedNames, quoted,
};
use evenkeel_modules::access_compat::Satisfy;
use evenkeel_modules::authz_core::Refusal;
use evenkeel_modules::core::{Tristate, look_up_names};
use evenkeel_modules::headers::Around;
use evenkeel_modules::{
    alias, allowmethods, auth_basic, authz_core, core, env, headers, http2, include, lab, mime,
    negotiation, remoteip, rewrite, setenvif, speling, ssl, unique_id, userdir, usertrack,
    vhost_alias,
};
use std::future::poll_fn;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// A request after the section walk, with what stands at its file.
pub(crate) type Walked = Mapped<Plan, Option<Looked>>;

/// A request that may be answered.
pub(crate) type Access = Admitted<Plan, Option<Looked>>;

/// A request whose content and handler are known.
pub(crate) type Ready = Prepared<Plan, Option<Looked>>;

/// The longest name of a file that Apache walks to: APR_PATH_MAX, less the end of the text and what
/// apr_filepath_merge keeps free behind it.
const LONGEST_FILE: usize = 4092;

type Phase<T> = Result<T, Stopped<Plan>>;

fn stop<T>(request: Box<Request>, plan: Arc<Plan>, answer: impl Into<Answer>) -> Phase<T> {
    Err(Stopped { request, plan, answer: answer.into() })
}

/// Early changes to the request, before anything is asked of its path.
pub(crate) async fn receive(
    pipeline: &Pipeline,
    mut request: Box<Request>,
) -> Phase<Received<Plan>> {
    act_early(pipeline, &mut request);
    if let Err(status) = check_session(pipeline, &mut request) {
        let plan = Arc::clone(&pipeline.site.server(request.server).defaults);
        return stop(request, plan, status);
    }
    if pipeline.site.caches {
        let defaults = &pipeline.site.server(request.server).defaults;
        if let Some(answer) = caching::look_up(pipeline, &mut request, defaults, true) {
            return stop(request, Arc::clone(defaults), answer);
        }
    }
    locate(pipeline, request).await
}

/// Whether the TLS session of a request may be used for its host.
fn check_session(pipeline: &Pipeline, request: &mut Request) -> Result<(), Status> {
    let Some(handshake) = request.secure.as_ref().map(|secure| secure.server()) else {
        return Ok(());
    };
    let site = &pipeline.site;
    let settings = &site.server(request.server).settings.ssl;
    let handshake = &site.server(handshake).settings.ssl;
    let has_hosts = site.hosts.at(request.peer.local).is_some();
    ssl::check_host_name(request, &site.global, settings, handshake, has_hosts)
}

/// What acts on requests that are refused for their path too.
pub(crate) fn act_early(pipeline: &Pipeline, request: &mut Request) {
    let server = pipeline.site.server(request.server);
    remoteip::find_client(request, &server.settings.remoteip);
    if pipeline.site.identifies {
        unique_id::identify(request);
    }
    headers::act_early(request, around(pipeline, server, &server.defaults));
    let core = server.core(&server.defaults);
    setenvif::set_by_server(request, &server.settings.setenvif, core);
}

/// The settings that hold before translation. The sections of the path are walked twice before it,
/// and once more when the file is known; the first walk compares the path before it is decoded, and
/// what it finds is compared with other walks and serves nothing else (request.c,
/// ap_process_request_internal: walk_location_and_if before pre_translate_name and translate_name).
pub(crate) async fn locate(
    pipeline: &Pipeline,
    mut request: Box<Request>,
) -> Phase<Received<Plan>> {
    let server = pipeline.site.server(request.server);
    let find =
        |request: &mut Request| pipeline.walker.borrow_mut().before_translation(server, request);
    let located = match request.resource.path.before_decoding() {
        None => {
            let located = find(&mut request);
            walk_path(pipeline, &mut request, located.as_ref()).await;
            located
        }
        Some(undecoded) => {
            let path = std::mem::replace(&mut request.resource.path, undecoded);
            let located = find(&mut request);
            walk_path(pipeline, &mut request, located.as_ref()).await;
            request.resource.path = path;
            find(&mut request)
        }
    };
    let plan = walk_path(pipeline, &mut request, located.as_ref()).await;
    Ok(Received { request, plan })
}

/// Walks the sections of the path: the `<Location>` sections that hold, none where the server has
/// none, and `<If>` outside of folders and files.
fn walk_path<'a>(
    pipeline: &'a Pipeline,
    request: &'a mut Request,
    located: Option<&Rc<Merged>>,
) -> MaybeReady<'a, Arc<Plan>> {
    known::begin(request);
    let Some(merged) = located else {
        let plan = Arc::clone(&pipeline.site.server(request.server).defaults);
        return conditions(pipeline, request, plan, &[]);
    };
    let merged = note_locations(pipeline, request, Rc::clone(merged));
    let plan = Arc::clone(&merged.plan);
    match plan.core.conditions.is_empty() {
        true => MaybeReady::now(plan),
        false => {
            MaybeReady::later(
                async move { conditions(pipeline, request, plan, &merged.sections).await },
            )
        }
    }
}

/// Notes the `<Location>` sections among those that hold for a request. Where the walk that this
/// one is compared with was for the same path but for doubled slashes, its sections hold instead
/// (request.c: ap_location_walk).
fn note_locations(pipeline: &Pipeline, request: &mut Request, merged: Rc<Merged>) -> Rc<Merged> {
    let site = &pipeline.site;
    let place = known::place_of_path(site, request);
    let merged = match known::locations_of(request, place.as_deref()) {
        Some(known) if !known.has_locations_of(&merged) => {
            let server = site.server(request.server);
            pipeline.walker.borrow_mut().with_locations(server, &merged, &known)
        }
        _ => merged,
    };
    known::note_locations(request, &merged, place, site.compares_sections);
    merged
}

/// From the URL path to a file name.
pub(crate) async fn translate(
    pipeline: &Pipeline,
    received: Received<Plan>,
) -> Phase<Translated<Plan>> {
    let Received { mut request, plan } = received;
    let server = pipeline.site.server(request.server);
    if plan.rewrite.is_on() && server.settings.rewrite.has_rules() {
        match Box::pin(rewriting::translate(pipeline, &mut request, &plan)).await {
            Ok(Translation::Open) => {}
            Ok(Translation::Mapped) => return bounded(request, plan),
            Err(answer) => return stop(request, plan, answer),
        }
    }
    if &*request.resource.path == b"*" && request.resource.method == Method::Options {
        return Ok(Translated { request, plan });
    }
    match proxying::translate(pipeline, &mut request, &plan) {
        Ok(false) => {}
        Ok(true) => return Ok(Translated { request, plan }),
        Err(answer) => return stop(request, plan, answer),
    }
    let settings = &server.settings;
    let (rules, core) = (&settings.alias, server.core(&plan));
    if let Err(answer) = alias::redirect_first(&mut request, rules, &plan.alias, core) {
        return stop(request, plan, answer);
    }
    let root = &pipeline.site.server_root;
    match alias::translate(&mut request, rules, &plan.alias, core, root) {
        Ok(None) => {}
        Ok(Some(file)) => {
            request.resource.file = FileName::new(file);
            return bounded(request, plan);
        }
        Err(answer) => return stop(request, plan, answer),
    }
    let home = match userdir::wanted_home(&request, &settings.userdir).map(str::to_owned) {
        Some(user) => Box::pin(find_home(pipeline, &mut request, &plan, user)).await,
        None => None,
    };
    match userdir::translate(&mut request, &settings.userdir, home.as_deref()) {
        Ok(None) => {}
        Ok(Some(file)) => {
            request.resource.file = file;
            return bounded(request, plan);
        }
        Err(answer) => return stop(request, plan, answer),
    }
    if request.resource.path.first() != Some(&b'/') {
        let line = quoted(&request.head.line).into_owned();
        let text = format!("Invalid URI in request '{line}'");
        request.notify(Notice::new("core", Level::Error, 126, text));
        return stop(request, plan, Status::BAD_REQUEST);
    }
    match vhost_alias::translate(&mut request, &settings.vhost_alias, core) {
        Some(file) => request.resource.file = file,
        None => {
            let path = std::mem::take(&mut request.resource.path);
            below_document_root(&mut request, server, &path);
            request.resource.path = path;
        }
    }
    bounded(request, plan)
}

/// Looks up the home folder of a user. It waits only if the cache of this thread lacks the user.
async fn find_home(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    user: String,
) -> Option<Box<[u8]>> {
    let now_us = request.time_us;
    if let Some(known) = pipeline.homes.known(&user, now_us) {
        return known;
    }
    let may_wait = pipeline.before_wait(request, plan).await;
    pipeline.homes.look_up(&may_wait, &pipeline.blocking_pool, user, now_us).await
}

/// Refuses a name that is too long for the kernel, whatever part of it a file may have (core.c:
/// ap_core_translate).
fn bounded(mut request: Box<Request>, plan: Arc<Plan>) -> Phase<Translated<Plan>> {
    if request.resource.file.as_bytes().len() <= LONGEST_FILE {
        return Ok(Translated { request, plan });
    }
    request.resource.file.clear();
    tell_unmapped(&mut request);
    stop(request, plan, Status::FORBIDDEN)
}

/// Logs that a path does not map to a file.
pub(crate) fn tell_unmapped(request: &mut Request) {
    let text = format!("Cannot map {} to file", quoted(&request.head.line));
    request.notify(Notice::new("core", Level::Error, 127, text));
}

/// The file is the path below DocumentRoot, without the ServerPath that it may begin with (core.c:
/// ap_core_translate). The path does not lead above its root.
pub(crate) fn below_document_root(request: &mut Request, server: &Server, path: &[u8]) {
    let core = &server.settings.core;
    let server_path = core.aliases.as_ref().and_then(|it| it.path.as_deref()).map(str::as_bytes);
    let below = server_path.and_then(|prefix| is_below(path, prefix)).unwrap_or(path);
    let root = core.document_root.as_deref().unwrap_or(Path::new(""));
    request.resource.file.set(root.as_os_str().as_bytes(), below);
}

/// Whether a request is answered by [`show`].
pub(crate) fn is_trace(request: &Request) -> bool {
    request.resource.method == Method::Trace
        && &*request.resource.path != b"*"
        && request.resource.proxied.is_none()
}

/// The answer to TRACE, which takes the place of the section walk (Apache's hook map_to_storage).
///
/// # Errors
/// The request with what refuses it.
pub(crate) async fn show(pipeline: &Pipeline, translated: Translated<Plan>) -> Phase<Concluded> {
    let mut request = translated.request;
    let server = pipeline.site.server(request.server);
    // What sections said before the path was translated holds no longer, and they are not asked
    // again (request.c: ap_process_request_internal).
    known::begin(&mut request);
    let plan = Arc::clone(&server.defaults);
    let enabled = server.settings.core.conduct.trace_enable;
    if let Err(answer) = trace::check(&mut request, enabled) {
        return stop(request, plan, answer);
    }
    let result = match request.body {
        None => Ok(trace::show(&request)),
        Some(_) => {
            let may_wait = pipeline.before_wait(&mut request, &plan).await;
            trace::show_whole(&mut request, &plan, &may_wait).await.map_err(Answer::from)
        }
    };
    Ok(Concluded { request, plan, result })
}

/// The section walk.
pub(crate) async fn map(pipeline: &Pipeline, translated: Translated<Plan>) -> Phase<Walked> {
    let Translated { mut request, plan } = translated;
    if &*request.resource.path == b"*" {
        return Ok(Mapped { request, plan, found: None });
    }
    known::begin(&mut request);
    if request.resource.proxied.is_some() {
        return Ok(map_proxied(pipeline, request).await);
    }
    let walked = pipeline.walker.borrow_mut().map(&pipeline.site, &mut request);
    let server = pipeline.site.server(request.server);
    let Arrival { mut merged, looked } = match walked {
        Ok(walked) => walked,
        // What the sections of the path say is known to a walk that has come to its end alone.
        Err(answer) => return stop(request, Arc::clone(&server.defaults), answer),
    };
    let place = known::place_of_file(&pipeline.site, &request, &looked, &merged);
    known::note_folders(&mut request, &merged, place);
    if !server.locations.is_empty() {
        merged = note_locations(pipeline, &mut request, merged);
    }
    let plan = Arc::clone(&merged.plan);
    let plan = conditions(pipeline, &mut request, plan, &merged.sections).await;
    // Apache's header_parser runs for requests of clients alone.
    if request.resource.depth == 0 {
        setenvif::set_by_sections(&mut request, &plan.setenvif, server.core(&plan));
    }
    Ok(Mapped { request, plan, found: Some(looked) })
}

/// The section walk of a request that is passed on. It has no file (mod_proxy.c:
/// proxy_map_location).
async fn map_proxied(pipeline: &Pipeline, mut request: Box<Request>) -> Walked {
    let server = pipeline.site.server(request.server);
    let mut merged = pipeline.walker.borrow_mut().map_proxied(server, &mut request);
    if !server.locations.is_empty() {
        merged = note_locations(pipeline, &mut request, merged);
    }
    let plan = Arc::clone(&merged.plan);
    let plan = conditions(pipeline, &mut request, plan, &merged.sections).await;
    if request.resource.depth == 0 {
        setenvif::set_by_sections(&mut request, &plan.setenvif, server.core(&plan));
    }
    Mapped { request, plan, found: None }
}

/// The names that HostnameLookups wants for the log and for expressions. The access rules look up
/// what they need when they need it.
fn wants_names(mapped: &Walked) -> Option<WantedNames> {
    let Mapped { request, plan, .. } = mapped;
    let is_presumed = request.resource.depth > 0 && known::are_settings_known(request);
    if is_presumed {
        return None;
    }
    let lookups = plan.core.hostname_lookups.unwrap_or_default();
    let mut wanted = WantedNames {
        client: lookups == Tristate::On,
        only_verified: lookups == Tristate::Third,
        ..WantedNames::default()
    };
    if let Some(known) = &request.names {
        wanted = wanted.unless_known(known);
    }
    (!wanted.is_nothing()).then_some(wanted)
}

/// Whether the request may be answered at all (request.c: ap_process_request_internal).
pub(crate) async fn admit(pipeline: &Pipeline, mut mapped: Walked) -> Phase<Access> {
    if let Some(wanted) = wants_names(&mapped) {
        let Mapped { request, plan, .. } = &mut mapped;
        let names = async {
            let may_wait = pipeline.before_wait(request, plan).await;
            look_up_names(request, wanted, &may_wait).await;
        };
        Box::pin(names).await;
    }
    let Mapped { mut request, plan, found } = mapped;
    if std::mem::take(&mut request.undecided) {
        request.doubtful = true;
        known::forget(&mut request);
        return stop(request, plan, Status::INTERNAL_SERVER_ERROR);
    }
    if found.is_some() || request.resource.proxied.is_some() {
        if found.is_some() && known::are_settings_known(&request) {
            note_presumed(pipeline, &mut request, &plan).await;
            request.resource.keep_login();
        } else if let Err(answer) = decide(pipeline, &mut request, &plan).await {
            return stop(request, plan, answer);
        }
    }
    Ok(Admitted { request, plan, found })
}

/// Tells a question that was let in by the sections of its asker where these would refuse it.
async fn note_presumed(pipeline: &Pipeline, request: &mut Request, plan: &Plan) {
    let Some(beyond) = request.beyond.clone() else { return };
    let told = request.notices.len();
    let refused = decide(pipeline, request, plan).await.is_err();
    request.notices.truncate(told);
    beyond.is_presumed.set(beyond.is_presumed.get() || refused);
}

fn decide<'a>(
    pipeline: &'a Pipeline,
    request: &'a mut Request,
    plan: &'a Plan,
) -> MaybeReady<'a, Result<(), Answer>> {
    if request.caching.is_some() {
        caching::note_guard(pipeline, request, plan);
    }
    let checked = match check_host(pipeline, &mut *request, plan) {
        MaybeReady::Now(checked) => checked,
        MaybeReady::Later(_) => None,
    };
    match checked {
        Some(checked) => decide_by_rules(pipeline, request, plan, checked),
        // The client's name is looked up. `check_host` begins again.
        None => MaybeReady::later(async move {
            let checked = check_host(pipeline, request, plan).await;
            decide_by_rules(pipeline, request, plan, checked).await
        }),
    }
}

/// Checks the method and the rules of mod_access_compat (Apache's hook access_checker).
fn check_host<'a>(
    pipeline: &'a Pipeline,
    request: &'a mut Request,
    plan: &'a Plan,
) -> MaybeReady<'a, Result<(), Answer>> {
    if allowmethods::check(request, &plan.allowmethods).is_err() {
        return MaybeReady::now(Err(allowmethods::refusal(&plan.allowmethods)));
    }
    let server = pipeline.site.server(request.server);
    let asks_session = request.secure.is_some() || plan.ssl.is_said();
    if !plan.access_compat.has_rules() && !asks_session {
        return MaybeReady::now(Ok(()));
    }
    let core = server.core(plan);
    question::evaluate(pipeline, request, plan, move |request| {
        if asks_session {
            ssl::check_access(request, &plan.ssl, &server.settings.ssl, core)?;
        }
        match plan.access_compat.admits(request, core) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::FORBIDDEN.into()),
            Err(Undecided) => Err(Status::SERVICE_UNAVAILABLE.into()),
        }
    })
}

/// Decides about access after `check_host`.
fn decide_by_rules<'a>(
    pipeline: &'a Pipeline,
    request: &'a mut Request,
    plan: &'a Plan,
    checked: Result<(), Answer>,
) -> MaybeReady<'a, Result<(), Answer>> {
    let any = plan.access_compat.satisfy(request) == Satisfy::Any;
    match checked {
        Ok(()) if any => return MaybeReady::now(Ok(())),
        Err(answer) if !any => return MaybeReady::now(Err(answer)),
        _ => {}
    }
    let auth_type = login::auth_type(pipeline, request, plan);
    let has_auth_type = auth_type.is_some();
    let first = match authorize(pipeline, &mut *request, plan, has_auth_type, false) {
        MaybeReady::Now(first) => first,
        // The rules must wait, for example for the name of the client. `decide_by_user` evaluates
        // them again.
        MaybeReady::Later(_) => None,
    };
    match first {
        Some(Ok(())) => MaybeReady::now(Ok(())),
        Some(Err(Refusal::Status(status))) => MaybeReady::now(Err(status.into())),
        Some(Err(Refusal::NeedsUser | Refusal::Login)) | None => {
            MaybeReady::later(decide_by_user(pipeline, request, plan, auth_type, any, first))
        }
    }
}

/// Evaluates the Require rules, before or after the client has logged in.
fn authorize<'a>(
    pipeline: &'a Pipeline,
    request: &'a mut Request,
    plan: &'a Plan,
    has_auth_type: bool,
    is_after_login: bool,
) -> MaybeReady<'a, Result<(), Refusal>> {
    let core = pipeline.site.server(request.server).core(plan);
    let inquest = authz_core::Inquest { sections: plan, core, has_auth_type, is_after_login };
    let authorize = move |request: &mut Request| authz_core::authorize(request, inquest);
    question::evaluate(pipeline, request, plan, authorize)
}

/// Decides about access if that may have to wait. `first` is the result of the rules before a
/// login, if they were evaluated without waiting.
async fn decide_by_user(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    auth_type: Option<Arc<[u8]>>,
    any: bool,
    first: Option<Result<(), Refusal>>,
) -> Result<(), Answer> {
    let has_auth_type = auth_type.is_some();
    let first = match first {
        Some(first) => first,
        None => authorize(pipeline, request, plan, has_auth_type, false).await,
    };
    match first {
        Ok(()) => return Ok(()),
        Err(Refusal::Status(status)) => return Err(status.into()),
        Err(Refusal::NeedsUser | Refusal::Login) => {}
    }
    if pipeline.site.has_tls {
        if ssl::forbids_strictly(request, &plan.ssl) {
            return Err(Status::FORBIDDEN.into());
        }
        ssl::fake_login(request, &plan.ssl)?;
    }
    login::log_in(pipeline, request, plan, auth_type.as_ref(), any).await?;
    match authorize(pipeline, request, plan, has_auth_type, true).await {
        Ok(()) => Ok(()),
        Err(Refusal::Status(status)) => Err(status.into()),
        Err(Refusal::Login | Refusal::NeedsUser) => {
            Err(login::refusal(pipeline, request, plan, auth_type.as_deref()))
        }
    }
}

/// What the content is and who handles it.
pub(crate) async fn prepare(pipeline: &Rc<Pipeline>, admitted: Access) -> Phase<Ready> {
    let (prepared, is_variant) = negotiate::find_variant(pipeline, admitted).await?;
    let Prepared { mut request, plan, found } = prepared;
    if plan.expires.needs_change_time() {
        let stat = found.as_ref().and_then(|looked| looked.found.stat());
        request.resource.content.changed_us = stat.map(|stat| stat.modified_ns / 1000);
    }
    let is_directory = found.as_ref().is_some_and(|looked| looked.found.kind() == Kind::Directory);
    let server = pipeline.site.server(request.server);
    // The look at a variant has told its type.
    if !is_variant {
        if request.previous.as_ref().is_some_and(|it| it.resource.notes.contains(KEEPS_TYPE)) {
            // The sections have seen it. It does not choose the handler again.
            request.resource.content.media_type = None;
        }
        mime::find_type(&mut request, &plan.mime, &pipeline.site.types, is_directory);
    }
    if let Some(looked) = &found
        && !is_variant
        && magic::is_wanted(pipeline, &request, looked)
    {
        let result;
        (request, result) = Box::pin(magic::find_type(pipeline, request, looked)).await;
        if let Err(status) = result {
            return stop(request, plan, status);
        }
    }
    if let Err(status) = core::override_type(&mut request, server.core(&plan)) {
        return stop(request, plan, status);
    }
    usertrack::track(&mut request, &plan.usertrack, &server.settings.usertrack);
    if plan.rewrite.has_rules() {
        let rewritten = rewriting::fix_up(pipeline, &mut request, &plan, found.as_ref());
        if let Err(answer) = Box::pin(rewritten).await {
            return stop(request, plan, answer);
        }
    }
    if let Err(answer) = alias::redirect_last(&mut request, &plan.alias, server.core(&plan)) {
        return stop(request, plan, answer);
    }
    env::set_variables(&mut request, &plan.env);
    ssl::export(&mut request, &plan.ssl);
    if pipeline.site.has_sessions && (plan.session.is_on() || plan.session.env()) {
        Box::pin(sessions::fix_up(pipeline, &mut request, &plan)).await;
    }
    http2::prepare(&mut request, &server.settings.http2, &plan.http2);
    if pipeline.site.parses_pages {
        let stat = found.as_ref().and_then(|looked| looked.found.stat());
        include::choose(&mut request, &plan.include, stat);
    }
    if pipeline.site.negotiates {
        negotiation::spell_encoding(&mut request);
    }
    if let Err(status) = auth_basic::fake(&mut request, &plan.auth_basic, server.core(&plan)) {
        return stop(request, plan, status);
    }
    let Prepared { mut request, plan, found } =
        look::find_index(pipeline, Prepared { request, plan, found }).await?;
    if pipeline.site.rewrites {
        rewrite::force_content(&mut request, server.core(&plan));
    }
    if found.as_ref().is_some_and(|looked| looked.found.kind() == Kind::Absent)
        && let Some(misspelled) = speling::wanted(&request, plan.speling)
    {
        let corrected = spelling::correct(pipeline, &mut request, &plan, misspelled);
        if let Some(answer) = Box::pin(corrected).await {
            return stop(request, plan, answer);
        }
    }
    // A look changes no fields: the request that it is taken for does so once.
    if request.resource.depth == 0 {
        headers::act_on_request(&mut request, around(pipeline, server, &plan));
        if std::mem::take(&mut request.undecided) {
            return stop(request, plan, Status::INTERNAL_SERVER_ERROR);
        }
    }
    Ok(Prepared { request, plan, found })
}

/// The handler is chosen, and gets the body of the request. If the handler does not want the body,
/// it is read to its end first.
pub(crate) async fn generate(pipeline: &Rc<Pipeline>, prepared: Ready) -> Phase<Concluded> {
    let Prepared { mut request, plan, found } = prepared;
    if pipeline.site.caches
        && let Some(answer) = caching::look_up(pipeline, &mut request, &plan, false)
    {
        return stop(request, plan, answer);
    }
    // The body is left to the request that the redirect makes.
    if let Some(target) = rewriting::redirect_target(&request) {
        return stop(request, plan, Answer::Redirect(target));
    }
    let kind = found.as_ref().map_or(Kind::Absent, |looked| looked.found.kind());
    if let Some(answer) = rewriting::overridden_redirect(&mut request, kind) {
        return stop(request, plan, answer);
    }
    let is_passed_on = proxying::is_wanted(pipeline, &request);
    if let Err(status) = body::begin(&mut request, &plan, is_passed_on) {
        return stop(request, plan, status);
    }
    if let Err(status) = evenkeel_modules::request::bound(&mut request, plan.request) {
        return stop(request, plan, status);
    }
    if pipeline.site.parses_pages && plan.request.keeps_bodies() && request.body.is_some() {
        let kept = async {
            let may_wait = pipeline.before_wait(&mut request, &plan).await;
            body::keep(&mut request, &may_wait).await
        };
        if let Err(status) = Box::pin(kept).await {
            return stop(request, plan, status);
        }
    }
    let handler = match choose(pipeline, &mut request, &plan, found.as_ref()) {
        Ok(handler) => handler,
        Err(answer) => return stop(request, plan, answer),
    };
    if request.body.is_some() && !matches!(handler, Handler::Shed) {
        filtering::filter_input(pipeline, &mut request, &plan);
    }
    let is_unread = !matches!(handler, Handler::Shed) && !handler.reads_body();
    if is_unread && request.head.version == Version::Http2 {
        // The next request does not follow the body, as it does in HTTP/1. The client is told to
        // stop sending it (h2_c2.c: the connection of a request is not kept).
        request.body = None;
    }
    if request.body.is_some() && is_unread {
        let discard = async {
            let may_wait = pipeline.before_wait(&mut request, &plan).await;
            body::discard(&mut request, &may_wait).await
        };
        if let Err(status) = Box::pin(discard).await {
            return stop(request, plan, status);
        }
    }
    filtering::begin(pipeline, &mut request, &plan);
    let result = match (handler, &found) {
        (Handler::Shed, _) => Ok(shed()),
        (Handler::Listing, Some(folder)) => {
            let listed = Box::pin(listing::generate(pipeline, request, &plan, folder));
            let (request, result) = listed.await;
            return Ok(Concluded { request, plan, result });
        }
        (Handler::Map, Some(map)) => {
            let served = Box::pin(negotiate::serve_map(pipeline, request, &plan, map));
            let (request, result) = served.await;
            return Ok(Concluded { request, plan, result });
        }
        (Handler::Lab(work), _) => {
            let performed = async {
                let may_wait = pipeline.before_wait(&mut request, &plan).await;
                lab::perform(work, &mut request, &pipeline.blocking_pool, &may_wait).await
            };
            Box::pin(performed).await
        }
        (Handler::Proxy(proxied), _) => {
            let passing = (Rc::clone(pipeline), request, Arc::clone(&plan), proxied);
            let (request, result) = pipeline.passed_on.call(passing).await;
            take_credit(&request.departure).await;
            return Ok(Concluded { request, plan, result });
        }
        (Handler::AsIs, Some(looked)) => send_as_is(pipeline, &mut request, looked),
        (Handler::Cgi, Some(script)) => {
            Box::pin(cgi::run(pipeline, &mut request, &plan, script)).await
        }
        (Handler::Fcgid, Some(script)) => {
            Box::pin(fcgid::run(pipeline, &mut request, &plan, script)).await
        }
        (Handler::Php(wanted), _) => {
            let scripted = (Rc::clone(pipeline), request, Arc::clone(&plan), wanted, found);
            let (request, result) = pipeline.scripts.call(scripted).await;
            take_credit(&request.departure).await;
            return Ok(Concluded { request, plan, result });
        }
        (Handler::Status, _) => Ok(server_status(pipeline, &request, &plan)),
        (Handler::Form(work), _) => {
            Err(Box::pin(form_login::perform(work, pipeline, &mut request, &plan)).await)
        }
        (Handler::Info, _) => Ok(server_info(pipeline, &request, &plan)),
        (Handler::File, Some(file)) if core::wants_digests(&plan.core) => {
            Box::pin(digest_and_serve(pipeline, &mut request, &plan, file)).await
        }
        (
            Handler::Listing
            | Handler::Map
            | Handler::AsIs
            | Handler::Cgi
            | Handler::Fcgid
            | Handler::File,
            found,
        ) => default_handler(pipeline, &mut request, &plan, found.as_ref(), None),
    };
    Ok(Concluded { request, plan, result })
}

/// Waits for a credit if the request has returned its own while it was at an application.
async fn take_credit(departure: &Departure) {
    poll_fn(|_| departure.poll_credit()).await;
}

/// What the lines of mod_headers depend on.
pub(crate) fn around<'a>(pipeline: &'a Pipeline, server: &'a Server, plan: &'a Plan) -> Around<'a> {
    Around { lines: &plan.headers, core: server.core(plan), state: pipeline.source.as_deref() }
}

/// The Allow field: what methods the resource answers to.
pub(crate) fn allowed_methods(pipeline: &Pipeline, request: &Request) -> &'static str {
    core::allowed_methods(&pipeline.site.server(request.server).settings.core)
}
