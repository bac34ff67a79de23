//! Requests that are passed on (mod_proxy). One for an application that speaks FastCGI, SCGI or
//! uWSGI is handled here (mod_proxy_fcgi, mod_proxy_scgi, mod_proxy_uwsgi): reads the body of the
//! request, takes a place at the application, asks it, and makes the response of its answer. One
//! for an HTTP server is handled in `origin`.

use crate::body;
use crate::die::KEEPS_TYPE;
use crate::frames::Frames;
use crate::look::{Aside, Start, beside, see};
use crate::origin;
use crate::serve::Pipeline;
use crate::site::Plan;
use crate::trace;
use evenkeel_files::Kind;
use evenkeel_message::{
    Answer, BodyLength, Level, MayWait, Method, Notice, Proxied, Request, RequestHead, Response,
    Scheme, Source, Status, Variables, quoted,
};
use evenkeel_modules::core::TraceEnable;
use evenkeel_modules::gateway::Script;
use evenkeel_modules::lab::BlockingPool;
use evenkeel_modules::script::{self, Output, Program};
use evenkeel_modules::{proxy, proxy_fcgi, proxy_scgi, proxy_uwsgi};
use evenkeel_upstream::{
    Ask, Failure, FailureKind, NoPlace, Patience, Place, Spool, SpoolError, exchange,
};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The folder of spooled request bodies.
const SPOOL_FOLDER: &str = "/var/tmp";

/// The beginning of the name of a handler that is an application.
const HANDLER: &[u8] = b"proxy:";

/// Whether a request is passed on to an application.
pub(crate) fn is_wanted(pipeline: &Pipeline, request: &Request) -> bool {
    let handler = request.resource.content.handler.as_deref().unwrap_or_default();
    pipeline.site.passes_on && (request.resource.proxied.is_some() || handler.starts_with(HANDLER))
}

/// Returns the target that the handler of a request names, and `None` if the handler is no proxy.
///
/// # Errors
/// 500 if the target is malformed or has another scheme than fcgi.
pub(crate) fn target(
    pipeline: &Pipeline,
    request: &mut Request,
) -> Result<Option<Box<Proxied>>, Answer> {
    if !pipeline.site.passes_on {
        return Ok(None);
    }
    Ok(proxy::of_handler(request, &pipeline.site.runtime_dir, &pipeline.known_target)?
        .map(Box::new))
}

/// A request that is passed on, with its plan and its target.
pub(crate) type Passing = (Rc<Pipeline>, Box<Request>, Arc<Plan>, Box<Proxied>);

/// The frames of requests that are passed on.
pub(crate) type PassedOn = Frames<Passing, (Box<Request>, Result<Response, Answer>)>;

/// Passes a request on and returns the response of its application.
pub(crate) async fn pass_on(
    (pipeline, mut request, plan, proxied): Passing,
) -> (Box<Request>, Result<Response, Answer>) {
    let result = try_to_pass_on(&pipeline, &mut request, &plan, *proxied).await;
    (request, result)
}

/// # Errors
/// The body cannot be spooled, no place is free in time, or the exchange fails.
async fn try_to_pass_on(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    proxied: Proxied,
) -> Result<Response, Answer> {
    if let Some(response) = answer_here(pipeline, request)? {
        return Ok(response);
    }
    let site = &pipeline.site;
    let is_spoken = match proxied.target.scheme {
        Scheme::Fcgi => site.speaks_fcgi,
        Scheme::Scgi => site.speaks_scgi,
        Scheme::Uwsgi => site.speaks_uwsgi,
        Scheme::Http => site.speaks_http,
        // Its members are servers whose scheme is looked at when one is chosen.
        Scheme::Balancer => site.speaks_http,
        Scheme::Https => site.speaks_http && site.speaks_tls,
        Scheme::Ws => site.speaks_http || site.speaks_websocket,
        Scheme::Wss => (site.speaks_http || site.speaks_websocket) && site.speaks_tls,
    };
    if !is_spoken {
        return Err(refuse_scheme(request, &proxied));
    }
    proxy::check_host(request, &proxied)?;
    if proxied.target.scheme.is_http() {
        return Box::pin(origin::pass_on(pipeline, request, plan, proxied)).await;
    }
    let mut uwsgi_path = None;
    let (module, script) = match proxied.target.scheme {
        Scheme::Scgi => ("proxy_scgi", proxy_scgi::script(request, &proxied)),
        Scheme::Uwsgi => {
            let (script, path) = proxy_uwsgi::script(request, &proxied)?;
            uwsgi_path = Some(path);
            ("proxy_uwsgi", script)
        }
        _ => {
            let mut script = proxy_fcgi::script(request, &proxied, &plan.proxy_fcgi)?;
            if let Some(path) = proxy_fcgi::path_of_file(request, &proxied) {
                find_file(pipeline, request, &path, &mut script);
            }
            ("proxy_fcgi", script)
        }
    };
    // Both modules check the length of the body (http_filters.c: ap_setup_client_block). A body in
    // chunks, which they refuse, is bounded while it is read.
    if matches!(proxied.target.scheme, Scheme::Scgi | Scheme::Uwsgi) {
        body::begin(request, plan, false)?;
    }
    let may_wait = pipeline.before_wait(request, plan).await;
    let length = request.head.length;
    let body = match request.body.take() {
        Some(source) => spool(&may_wait, source, &pipeline.blocking_pool)
            .await
            .map_err(|error| refuse_body(request, module, error))?,
        None => Spool::default(),
    };
    let worker = proxy::worker_of(&pipeline.site.server(request.server).settings.proxy, &proxied);
    let patience = patience(pipeline, request, worker);
    let waiting = Waiting { module, patience: patience.silence };
    let place = enter(pipeline, request, &proxied, waiting, &may_wait).await?;
    let body_length = (length != BodyLength::None).then(|| body.length());
    let path_info = &script.path_info;
    let translated = match path_info.is_empty() {
        true => None,
        false => Box::pin(translated(pipeline, request, path_info)).await,
    };
    let sent = Sent { script: &script, translated: translated.as_deref(), body_length };
    let mut variables = variables(pipeline, request, plan, &proxied, &sent);
    // A target without parameters has no connections that are kept (proxy_util.c:
    // ap_proxy_pre_request).
    if worker.is_none() {
        variables.set("proxy-nokeepalive", "1");
    }
    if let Some(path) = &uwsgi_path {
        proxy_uwsgi::fix_variables(request, &mut variables, path);
    }
    let scheme = proxied.target.scheme;
    if scheme == Scheme::Fcgi {
        let core = pipeline.site.server(request.server).core(plan);
        variables = proxy_fcgi::fix_variables(request, variables, &plan.proxy_fcgi, core)?;
    }
    let (target, file) = (proxied.target, script.file);
    let ask = Ask {
        target,
        variables,
        body,
        patience,
        script: file.clone(),
        place,
        pool: None,
        lease: None,
    };
    let late = Rc::clone(request.late.get_or_insert_with(Rc::default));
    let (departure, mut notices) = (Rc::clone(&request.departure), Vec::new());
    let pool = &pipeline.blocking_pool;
    let asked = exchange(&may_wait, ask, pool, &departure, &mut notices, &late).await;
    notices.into_iter().for_each(|notice| request.notify(notice));
    let mut answered = match asked {
        Ok(answered) => answered,
        Err(failure) => return Err(refuse(request, &failure, module, &file)),
    };
    if scheme == Scheme::Scgi
        && let Some(answer) = proxy_scgi::redirect(request, &mut answered.head, &plan.proxy_scgi)
    {
        request.resource.notes.set(KEEPS_TYPE, "");
        return Err(answer);
    }
    // A status that the conditions of the request lead to is not the application's.
    let may_override = scheme != Scheme::Scgi
        && answered.head.status.is_some()
        && request.resource.depth == 0
        && request.previous.is_none();
    let output = Output { head: answered.head, body: answered.body, module };
    let response = script::respond(request, output)?;
    match may_override && plan.proxy.overrides(response.status) {
        true => Err(Answer::from(response.status)),
        false => Ok(response),
    }
}

/// The answer to a request that may go no further (mod_proxy.c: `proxy_handler`). `None` if it is
/// passed on.
///
/// # Errors
/// Max-Forwards or TraceEnable does not let the request be passed on.
fn answer_here(pipeline: &Pipeline, request: &mut Request) -> Result<Option<Response>, Answer> {
    let settings = &pipeline.site.server(request.server).settings;
    let enabled = settings.core.conduct.trace_enable;
    let is_last = proxy::count_forward(request, &settings.proxy)?;
    let is_trace = request.resource.method == Method::Trace;
    // An extended TRACE may have a body, which goes to the application.
    if is_trace && (is_last || enabled != Some(TraceEnable::Extended)) {
        trace::check(request, enabled)?;
    }
    Ok(match (is_last, is_trace) {
        (false, _) => None,
        (true, true) => Some(trace::show(request)),
        (true, false) => {
            let allowed = if enabled == Some(TraceEnable::Off) { "" } else { "TRACE" };
            let mut response = Response::new(Status::OK);
            response.fields.set("Allow", allowed);
            Some(response)
        }
    })
}

/// The answer to a request whose target needs a module that is not loaded (mod_proxy.c:
/// `proxy_handler`).
pub(crate) fn refuse_scheme(request: &mut Request, proxied: &Proxied) -> Answer {
    let url = proxied.target.url(&proxied.path);
    let (url, scheme) = (quoted(&url), proxied.target.scheme.name());
    let text = format!(
        "No protocol handler was valid for the URL {url} (scheme '{scheme}'). If you are using a \
         DSO version of mod_proxy, make sure the proxy submodules are included in the \
         configuration using LoadModule."
    );
    request.notify(Notice::new("proxy", Level::Warn, 1144, text));
    Status::INTERNAL_SERVER_ERROR.into()
}

/// What waits for a place.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// The module, for the error log.
    pub(crate) module: &'static str,
    /// How long it waits.
    pub(crate) patience: Duration,
}

/// Waits for a place at the target.
pub(crate) async fn enter(
    pipeline: &Pipeline,
    request: &mut Request,
    proxied: &Proxied,
    Waiting { module, patience }: Waiting,
    may_wait: &MayWait,
) -> Result<Place, Answer> {
    if request.shares_place {
        return Ok(Place::default());
    }
    request.has_place = true;
    let (departure, address) = (Rc::clone(&request.departure), &proxied.target.address);
    let entered = pipeline.places.enter_queue(may_wait, address, patience, &departure);
    entered.await.map_err(|why| {
        if why == NoPlace::Late {
            let text = format!(
                "no place at {} became free within {} s: it has as many requests as a thread may \
                 send",
                proxied.target,
                patience.as_secs()
            );
            request.notify(Notice::own(module, Level::Error, text));
        }
        Answer::from(Status::SERVICE_UNAVAILABLE)
    })
}

/// The timeouts of an exchange: those of the worker, ProxyTimeout, or Timeout.
pub(crate) fn patience(
    pipeline: &Pipeline,
    request: &Request,
    worker: Option<&proxy::Worker>,
) -> Patience {
    let server = pipeline.site.server(request.server);
    let silence = worker.and_then(|worker| worker.timeout).or(server.settings.proxy.timeout);
    let silence = silence.unwrap_or_else(|| server.timeout());
    let connect = worker.and_then(|worker| worker.connection_timeout).unwrap_or(silence);
    Patience { connect, silence, queue: None }
}

/// Looks the path of a target up in the file system, as it is and below DocumentRoot, and names the
/// regular file that it leads to as the script. The rest of the path is PATH_INFO
/// (mod_proxy_fcgi.c: send_environment, `dirwalk_uri_path`).
fn find_file(pipeline: &Pipeline, request: &mut Request, path: &[u8], script: &mut Script) {
    let server = pipeline.site.server(request.server);
    let root = server.settings.core.document_root.as_deref().unwrap_or(Path::new(""));
    let below_root = [root.as_os_str().as_encoded_bytes(), path].concat();
    for path in [path, &below_root] {
        let looked = pipeline.walker.borrow_mut().files.look_up(path);
        if looked.found.kind() == Kind::File {
            let (file, path_info) = path.split_at_checked(looked.rest).unwrap_or((path, b""));
            (script.file, script.path_info) = (file.to_vec(), path_info.to_vec());
            return;
        }
    }
}

/// Returns the file that PATH_INFO leads to as the path of a URL, with what follows it. A
/// subrequest finds it (util_script.c: ap_add_cgi_vars).
pub(crate) async fn translated(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    path_info: &[u8],
) -> Option<Vec<u8>> {
    let mut target = Vec::new();
    evenkeel_proto::escape_uri(&mut target, path_info);
    let (path, query) = beside(pipeline, request, &target).ok()?;
    let was_doubtful = std::mem::take(&mut request.doubtful);
    let stand_in = Box::new(Request::new(RequestHead::default(), request.peer, request.time_us));
    let mut asked = std::mem::replace(request, stand_in);
    let aside = Aside::put(&mut asked, path, query);
    let (mut asked, _) = see(pipeline, asked, Start::Path).await;
    let resource = &mut asked.resource;
    let file = match (&resource.content.redirect, &resource.proxied) {
        (Some(target), _) => [b"redirect:", &**target].concat(),
        (None, Some(proxied)) => [HANDLER, &proxied.name].concat(),
        (None, None) => std::mem::take(&mut resource.file).as_bytes().to_vec(),
    };
    let file = (!file.is_empty()).then(|| [&*file, &resource.path_info].concat());
    aside.restore(&mut asked);
    asked.doubtful = was_doubtful;
    *request = asked;
    file
}

/// What the variables of a request depend on, beside the request.
struct Sent<'a> {
    script: &'a Script,
    /// PATH_TRANSLATED.
    translated: Option<&'a [u8]>,
    /// The length of the body in bytes, if there is one.
    body_length: Option<u64>,
}

/// The variables of a request, before ProxyFCGISetEnvIf changes them.
fn variables(
    pipeline: &Pipeline,
    request: &Request,
    plan: &Plan,
    proxied: &Proxied,
    sent: &Sent<'_>,
) -> Variables {
    let core = pipeline.site.server(request.server).core(plan);
    let signature = pipeline.site.signature(request, plan);
    let program = Program {
        file: &sent.script.file,
        path_info: &sent.script.path_info,
        path_translated: sent.translated,
        body_length: sent.body_length,
        signature: signature.strip_prefix("<hr>\n").unwrap_or(&signature),
        software: &pipeline.site.identity.banner,
    };
    let mut variables = script::variables(request, core, &program);
    if proxied.without_query {
        variables.set("QUERY_STRING", "");
    }
    variables
}

/// Logs the failure of an exchange, and returns the answer to the client.
fn refuse(request: &mut Request, failure: &Failure, module: &'static str, script: &[u8]) -> Answer {
    for notice in failure.notices(script) {
        request.notify(notice);
    }
    if matches!(failure.kind, FailureKind::ClientGone) {
        let text = format!("{}: the client has disconnected", quoted(script));
        request.notify(Notice::own(module, Level::Debug, text));
    }
    Answer::from(failure.status())
}

/// Reads the body of a request, into memory or into a file.
///
/// # Errors
/// The client does not send it, or the file cannot be written.
pub(crate) async fn spool(
    may_wait: &MayWait,
    source: Pin<Box<dyn Source>>,
    blocking_pool: &Arc<BlockingPool>,
) -> Result<Spool, SpoolError> {
    Spool::read(may_wait, source, Path::new(SPOOL_FOLDER), blocking_pool).await
}

/// Logs why a body could not be spooled, and returns the answer to the client.
pub(crate) fn refuse_body(
    request: &mut Request,
    module: &'static str,
    error: SpoolError,
) -> Answer {
    match error {
        SpoolError::Client(error) => body::refuse(request, &error).into(),
        SpoolError::System(error) => {
            let text =
                format!("the body of the request cannot be spooled to {SPOOL_FOLDER}: {error}");
            request.notify(Notice::own(module, Level::Error, text));
            Status::SERVICE_UNAVAILABLE.into()
        }
    }
}

/// Applies the rules of ProxyPass to the path of a request. Returns whether a rule matches; such a
/// request has a target in place of a file.
///
/// # Errors
/// 500 if a pattern exceeds the bounds of a match.
pub(crate) fn translate(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Result<bool, Answer> {
    if !pipeline.site.passes_on {
        return Ok(false);
    }
    let rules = &pipeline.site.server(request.server).settings.proxy;
    let proxied = proxy::translate(request, rules, &plan.proxy)?;
    let Some(proxied) = proxied else { return Ok(false) };
    request.resource.file.clear();
    request.resource.proxied = Some(Box::new(proxied));
    Ok(true)
}
