//! Requests that are passed on to an application (mod_proxy, mod_proxy_fcgi): reads the body of the
//! request, takes a place at the application, asks it, and makes the response of its answer.

use crate::body;
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_message::{
    Answer, BodyLength, Level, Notice, Proxied, Request, Response, Status, quoted,
};
use evenkeel_modules::script::{self, Output, Program};
use evenkeel_modules::{proxy, proxy_fcgi};
use evenkeel_upstream::{Ask, Failure, FailureKind, NoPlace, Patience, Place, Spool, SpoolError};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Where the body of a request waits for its application if it does not fit into memory.
const SPOOL_FOLDER: &str = "/var/tmp";

/// The target that the handler of a request names; none for other requests.
///
/// # Errors
/// 500 where the handler names a target that cannot be one.
pub(crate) fn target(
    pipeline: &Pipeline,
    request: &mut Request,
) -> Result<Option<Box<Proxied>>, Answer> {
    if !pipeline.site.passes_on {
        return Ok(None);
    }
    Ok(proxy::of_handler(request, &pipeline.site.runtime_dir)?.map(Box::new))
}

/// Passes a request on and returns the response of its application.
///
/// # Errors
/// The status of a request that cannot be passed on, or that the application does not answer.
pub(crate) async fn pass_on(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    proxied: Proxied,
) -> Result<Response, Answer> {
    let script = proxy_fcgi::script(request, &proxied, &plan.proxy_fcgi)?;
    let may_wait = pipeline.before_wait(request, plan).await;
    let length = request.head.length;
    let body = match request.body.take() {
        Some(source) => {
            let spool =
                Spool::read(&may_wait, source, Path::new(SPOOL_FOLDER), &pipeline.blocking_pool);
            spool.await.map_err(|error| refuse_body(request, error))?
        }
        None => Spool::default(),
    };
    let patience = patience(pipeline, request, &proxied);
    let place = enter(pipeline, request, &proxied, patience.silence).await?;
    let body_length = (length != BodyLength::None).then(|| body.length());
    let variables = variables(pipeline, request, plan, &proxied, &script, body_length)?;
    let (target, file) = (proxied.target, script.file);
    let variables = variables.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
    let ask = Ask {
        target: (*target).clone(),
        variables: variables.collect(),
        body,
        patience,
        script: file.clone(),
    };
    let late = Rc::clone(request.late.get_or_insert_with(Rc::default));
    let (departure, mut notices) = (Rc::clone(&request.departure), Vec::new());
    let asked = evenkeel_upstream::exchange(
        ask,
        &pipeline.blocking_pool,
        &departure,
        &mut notices,
        &late,
        place,
    );
    let asked = asked.await;
    notices.into_iter().for_each(|notice| request.notify(notice));
    let answered = match asked {
        Ok(answered) => answered,
        Err(failure) => return Err(refuse(request, &failure, &file)),
    };
    let output = Output { head: answered.head, body: answered.body, module: "proxy_fcgi" };
    let response = script::respond(request, output)?;
    let is_initial = request.resource.depth == 0 && request.previous.is_none();
    match is_initial && plan.proxy.overrides(response.status) {
        true => Err(Answer::from(response.status)),
        false => Ok(response),
    }
}

/// Waits for a place at the application.
async fn enter(
    pipeline: &Pipeline,
    request: &mut Request,
    proxied: &Proxied,
    patience: Duration,
) -> Result<Place, Answer> {
    let departure = Rc::clone(&request.departure);
    let entered = pipeline.places.enter(&proxied.target.address, patience, &departure).await;
    entered.map_err(|why| {
        if why == NoPlace::Late {
            let text = format!(
                "no place at {} was free within {} s: so many requests wait for it that others \
                 keep their share of the workers",
                proxied.target,
                patience.as_secs()
            );
            request.notify(Notice::own("proxy_fcgi", Level::Error, text));
        }
        Answer::from(Status::SERVICE_UNAVAILABLE)
    })
}

/// How long the application is waited for: its own timeout, ProxyTimeout, or Timeout.
fn patience(pipeline: &Pipeline, request: &Request, proxied: &Proxied) -> Patience {
    let server = pipeline.site.server(request.server);
    let rules = &server.settings.proxy;
    let worker = proxy::worker_of(rules, proxied);
    let silence = worker.and_then(|worker| worker.timeout).or(rules.timeout);
    let silence = silence.unwrap_or_else(|| server.timeout());
    let connect = worker.and_then(|worker| worker.connection_timeout).unwrap_or(silence);
    Patience { connect, silence }
}

/// What the application is told of the request.
fn variables(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    proxied: &Proxied,
    script: &proxy_fcgi::Script,
    body_length: Option<u64>,
) -> Result<evenkeel_message::Variables, Answer> {
    let server = pipeline.site.server(request.server);
    let core = server.core(plan);
    let signature = pipeline.site.signature(request, plan);
    let root = server.settings.core.document_root.as_deref().unwrap_or(Path::new(""));
    let translated = [root.as_os_str().as_encoded_bytes(), &script.path_info].concat();
    let program = Program {
        file: &script.file,
        path_info: &script.path_info,
        path_translated: Some(&translated),
        body_length,
        signature: signature.strip_prefix("<hr>\n").unwrap_or(&signature),
        software: &pipeline.site.identity.banner,
    };
    let mut variables = script::variables(request, core, &program);
    // A target without parameters has no connections that are kept (proxy_util.c:
    // ap_proxy_pre_request).
    if proxy::worker_of(&server.settings.proxy, proxied).is_none() {
        variables.set("proxy-nokeepalive", "1");
    }
    if proxied.without_query {
        variables.set("QUERY_STRING", "");
    }
    proxy_fcgi::fix_variables(request, variables, &plan.proxy_fcgi, core)
}

/// The answer where the application has given none.
fn refuse(request: &mut Request, failure: &Failure, script: &[u8]) -> Answer {
    for notice in failure.notices(script) {
        request.notify(notice);
    }
    if matches!(failure.kind, FailureKind::ClientGone) {
        let text = format!("{}: the client has disconnected", quoted(script));
        request.notify(Notice::own("proxy_fcgi", Level::Debug, text));
    }
    Answer::from(failure.status())
}

/// The answer where the body of the request could not be read or kept.
fn refuse_body(request: &mut Request, error: SpoolError) -> Answer {
    match error {
        SpoolError::Client(error) => body::refuse(request, &error).into(),
        SpoolError::System(error) => {
            let text = format!("the body of the request cannot be kept in {SPOOL_FOLDER}: {error}");
            request.notify(Notice::own("proxy_fcgi", Level::Error, text));
            Status::SERVICE_UNAVAILABLE.into()
        }
    }
}

/// The rules of ProxyPass for the path of a request. A request that one of them holds for has no
/// file.
///
/// # Errors
/// 500 where a pattern cannot be matched.
pub(crate) fn translate(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Arc<Plan>,
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
