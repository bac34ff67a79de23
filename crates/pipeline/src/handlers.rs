//! The handlers that answer without another program: the file itself, files with header fields of
//! their own, the pages of mod_status and mod_info, and the refusal under load.

use crate::serve::Pipeline;
use crate::site::Plan;
use bytes::Bytes;
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{Answer, Body, Request, Response, Status, quoted};
use evenkeel_modules::{MODELS, asis, core, info, status};

/// The answer to a request that has waited too long for a worker (OverloadShedding): the same for
/// all of them, and little work. The client may come again in a second.
pub(crate) fn shed() -> Response {
    const TEXT: &str = "The server has more to do than it can do in time. Try again.\n";
    let mut response = Response::new(Status::SERVICE_UNAVAILABLE);
    response.fields.set("Retry-After", "1");
    response.fields.set("Content-Type", "text/plain");
    response.body = Body::Bytes(Bytes::from_static(TEXT.as_bytes()));
    response
}

/// The status page.
pub(crate) fn server_status(pipeline: &Pipeline, request: &Request, plan: &Plan) -> Response {
    let Some(source) = pipeline.status.as_deref() else { return Response::new(Status::NOT_FOUND) };
    let server = pipeline.site.server(request.server);
    let name = core::public_name(request, server.core(plan));
    // mod_status ends its page in XHTML.
    let signature = pipeline.site.signature(request, plan).replacen("<hr>", "<hr />", 1);
    status::page(request, source, &String::from_utf8_lossy(&name), &signature)
}

/// The page about the configuration and the modules.
pub(crate) fn server_info(pipeline: &Pipeline, request: &Request, plan: &Plan) -> Response {
    let site = &pipeline.site;
    let server = site.server(request.server);
    let name = core::public_name(request, server.core(plan));
    let port = core::public_port(request, server.core(plan));
    let modules: Vec<_> = site.global.active.iter().collect();
    let model = modules.iter().find(|module| MODELS.contains(&module.identifier));
    let facts = info::Facts {
        model: model.map_or("", |module| {
            let name = module.identifier.trim_end_matches("_module");
            name.trim_start_matches("mpm_")
        }),
        modules,
        nodes: site.directives.as_deref().unwrap_or_default(),
        banner: &site.identity.banner,
        name: (&String::from_utf8_lossy(&name), port),
        timeouts_s: (server.timeout().as_secs(), server.keep_alive_timeout().as_secs()),
        server_root: site.server_root.display().to_string(),
        settings: &server.settings.info,
        signature: &site.signature(request, plan),
    };
    info::page(request, &facts)
}

/// Sends a file that has its own header fields.
pub(crate) fn send_as_is(
    pipeline: &Pipeline,
    request: &mut Request,
    looked: &Looked,
) -> Result<Response, Answer> {
    if looked.found.kind() == Kind::Absent {
        return Err(asis::absent(request));
    }
    let contents = pipeline.walker.borrow().files.contents(&looked.found);
    let contents = contents.map_err(|error| asis::unreadable(request, &error))?;
    asis::respond_as_is(request, &contents.piece)
}

/// Has a large file digested beside the serving thread before it is sent.
pub(crate) async fn digest_and_serve(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    looked: &Looked,
) -> Result<Response, Answer> {
    let now_us = request.time_us;
    let file = core::undigested(&pipeline.walker.borrow().files, looked, &plan.core, now_us);
    let Some(file) = file else {
        return default_handler(pipeline, request, plan, Some(looked), None);
    };
    let what = format!("the digest of {}", quoted(request.resource.file.as_bytes()));
    let may_wait = pipeline.before_wait(request, plan).await;
    let beside = pipeline.beside(request, &may_wait);
    let digested = beside.perform(what, move |progress| file.digest(progress)).await;
    // A file that cannot be read is refused where it is sent.
    let digests = digested.ok_or(Status::SERVICE_UNAVAILABLE)?.ok();
    default_handler(pipeline, request, plan, Some(looked), digests)
}

/// What answers where no handler is named: the file itself.
pub(crate) fn default_handler(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    looked: Option<&Looked>,
    digests: Option<core::Digests>,
) -> Result<Response, Answer> {
    let Some(looked) = looked else { return Ok(Response::new(request.resource.status)) };
    let server = &pipeline.site.server(request.server).settings.core;
    let files = &pipeline.walker.borrow().files;
    core::serve_file(request, files, looked, server, &plan.core, digests)
}
