//! What becomes of an error: the ErrorDocument that the configuration names for its status, or
//! the standard page (http_request.c: ap_die; http_protocol.c: ap_send_error_response), and the
//! request that an internal redirect makes.

use crate::body;
use crate::error_page::{Facts, error_page};
use crate::filtering;
use crate::phases;
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_expr::Text;
use evenkeel_message::{
    Body, Fields, Level, Malformed, Method, Notice, Previous, Request, Response, Status, Variables,
    quoted,
};
use evenkeel_modules::RequestContext;
use evenkeel_modules::core::ErrorDocument;
use evenkeel_modules::negotiation::LIST_NOTE;
use evenkeel_modules::proxy::STATUS_LINE;
use evenkeel_modules::rewrite::KEEPS_VARY;
use std::any::Any;
use std::sync::Arc;

/// The note of a handler that the request which it leads to begins with its media type: conditions
/// of sections see it (http_request.c, ap_internal_redirect_handler).
pub(crate) const KEEPS_TYPE: &str = "redirect-keeps-type";

/// How an error goes on.
pub(crate) enum Fate {
    /// With this response.
    Respond(Box<Request>, Response),
    /// With the document at this path.
    Redirect(Box<Request>, Vec<u8>),
}

/// Decides what a request that ended with a status is answered.
pub(crate) fn die(
    pipeline: &Pipeline,
    mut request: Box<Request>,
    plan: &Plan,
    status: Status,
    fields: Fields,
) -> Fate {
    // If the connection stays open, the body is read before the error is sent. A body beyond
    // LimitRequestBody replaces the error by 413, and the fields of the error are discarded
    // (http_protocol.c: ap_send_error_response, whose second run finds them cleared).
    if !status.drops_connection()
        && let Err(too_long) = body::check_length(&mut request, plan)
    {
        request.resource.status = too_long;
        request.resource.always = Fields::new();
        let fields = Fields::new();
        if let Some(ErrorDocument::Text(text)) = plan.core.error_documents.of(too_long) {
            return with_text(pipeline, request, plan, status, fields, text);
        }
        let (request, response) = canned(pipeline, request, plan, status, fields);
        return Fate::Respond(request, response);
    }
    let already_failed = request.resource.status != Status::OK;
    let document = plan.core.error_documents.of(status).filter(|_| !already_failed);
    let Some(document) = document else {
        let (request, response) = canned(pipeline, request, plan, status, fields);
        return Fate::Respond(request, response);
    };
    let server = pipeline.site.server(request.server);
    match document {
        ErrorDocument::Standard => {
            let (request, response) = canned(pipeline, request, plan, status, fields);
            Fate::Respond(request, response)
        }
        ErrorDocument::Remote(url) => {
            let mut fields = fields;
            fields.set("Location", &**url);
            // What tells of the error alone is none of the redirect's.
            fields.remove("Allow");
            let (request, mut response) = canned(pipeline, request, plan, Status::FOUND, fields);
            response.close |= status.drops_connection();
            Fate::Respond(request, response)
        }
        ErrorDocument::Text(text) => with_text(pipeline, request, plan, status, fields, text),
        ErrorDocument::Local(path) => {
            let context = RequestContext::new(&request, server.core(plan));
            match path.value(&context) {
                Ok(path) if path.starts_with(b"/") => {
                    request.resource.always.overlay(&fields);
                    fetch_document(request, status, path)
                }
                _ => {
                    request.notify(Notice::new(
                        "core",
                        Level::Error,
                        1579,
                        "Invalid error redirection directive",
                    ));
                    let status = Status::INTERNAL_SERVER_ERROR;
                    let (request, response) = canned(pipeline, request, plan, status, fields);
                    Fate::Respond(request, response)
                }
            }
        }
    }
}

/// Responds with the text of an ErrorDocument. A response without a standard page, such as that to
/// HEAD, has no text either.
fn with_text(
    pipeline: &Pipeline,
    request: Box<Request>,
    plan: &Plan,
    status: Status,
    fields: Fields,
    text: &Text,
) -> Fate {
    let server = pipeline.site.server(request.server);
    let body = text.value(&RequestContext::new(&request, server.core(plan)));
    let (request, mut response) = canned(pipeline, request, plan, status, fields);
    if let Ok(body) = body
        && !matches!(response.body, Body::Empty)
    {
        response.body = Body::from(body);
    }
    Fate::Respond(request, response)
}

/// The document of an error is fetched with GET, and told what went wrong in its environment.
fn fetch_document(mut request: Box<Request>, status: Status, path: Vec<u8>) -> Fate {
    let method = request.head.method_text().to_vec();
    request.resource.env.set("REQUEST_METHOD", &method);
    if let Some(notes) = request.resource.notes.value("error-notes").map(<[u8]>::to_vec) {
        request.resource.env.set("ERROR_NOTES", notes);
    }
    request.resource.status = status;
    if request.resource.method != Method::Head {
        request.resource.method = Method::Get;
    }
    Fate::Redirect(request, path)
}

/// The standard page of a status, filtered as an error's. Where its fields may not be sent it is
/// that of 500, and where that may not be sent either, a response without fields and page
/// (http_filters.c: check_headers_recursion).
pub(crate) fn canned(
    pipeline: &Pipeline,
    mut request: Box<Request>,
    plan: &Plan,
    status: Status,
    fields: Fields,
) -> (Box<Request>, Response) {
    const LAST: Status = Status::INTERNAL_SERVER_ERROR;
    let mut response = standard(pipeline, &mut request, plan, status, fields);
    let mut may_be_sent = is_sound(pipeline, &mut request, &response);
    if !may_be_sent && response.status != LAST {
        request.resource.status = LAST;
        response = standard(pipeline, &mut request, plan, LAST, Fields::new());
        may_be_sent = is_sound(pipeline, &mut request, &response);
    }
    if !may_be_sent {
        response = Response::new(LAST);
    }
    pipeline.keep_notices(&mut request, plan);
    pipeline.settle_name(&mut request, plan);
    (request, response)
}

/// Whether the fields of a response may be sent; what may not is told to the administrator
/// (http_filters.c: check_headers).
pub(crate) fn is_sound(pipeline: &Pipeline, request: &mut Request, response: &Response) -> bool {
    let lenient = !pipeline.site.server(request.server).protocol_options().strict;
    let all = [&response.fields, &response.always, &response.trailers];
    let Some(fault) = all.into_iter().find_map(|fields| fields.malformed(lenient)) else {
        return true;
    };
    let (number, what) = match fault {
        Malformed::Name(name) => (2429, format!("name '{}'", quoted(name))),
        Malformed::Value(name, value) => {
            (2430, format!("'{}' value of '{}'", quoted(name), quoted(value)))
        }
    };
    let text = format!("Response header {what} contains invalid characters, aborting request");
    request.notify(Notice::new("http", Level::Error, number, text));
    false
}

fn standard(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    status: Status,
    fields: Fields,
) -> Response {
    // Where the document of an error failed, the first error is what the client is told.
    let has_failed = request.previous.is_some() || request.resource.status != status;
    let first = (request.resource.status != Status::OK && has_failed).then_some(status);
    let status = if first.is_some() { request.resource.status } else { status };
    let mut response = Response::new(status);
    response.status_line = status_line(request, status);
    response.always = std::mem::take(&mut request.resource.always);
    response.always.overlay(&fields);
    if !status.is_redirect() && status != Status::CREATED {
        response.always.remove("Location");
    }
    response.close =
        status.drops_connection() || first.is_some_and(|status| status.drops_connection());
    if !status.is_bodiless() {
        if matches!(status, Status::METHOD_NOT_ALLOWED | Status::NOT_IMPLEMENTED)
            && !response.always.contains("Allow")
        {
            response.always.set("Allow", phases::allowed_methods(pipeline, request));
        }
        let charset = if request.resource.env.contains("suppress-error-charset") {
            "text/html"
        } else {
            "text/html; charset=iso-8859-1"
        };
        response.fields.set("Content-Type", charset);
        // For HEAD there is no page, and so no length of one (http_protocol.c:
        // ap_send_error_response).
        if !request.is_head() {
            response.body = Body::from(page(pipeline, request, plan, &response, first));
        }
    }
    let Some(mut failed) = first_failed(request) else {
        return filtering::filter_error(pipeline, request, plan, response);
    };
    let own = failed.plan.take();
    let plan = own.as_deref().and_then(|own| own.downcast_ref()).unwrap_or(plan);
    std::mem::swap(&mut failed.resource, &mut request.resource);
    let response = filtering::filter_error(pipeline, request, plan, response);
    let is_last = request.resource.env.contains("nokeepalive");
    std::mem::swap(&mut failed.resource, &mut request.resource);
    if is_last {
        request.resource.env.set("nokeepalive", "1");
    }
    response
}

/// The request whose error the client is told, where its document failed: the page is that
/// request's, with the fields that its sections set (http_request.c: ap_die_r, `r_1st_err`).
fn first_failed(request: &Request) -> Option<Previous> {
    let mut first = None;
    let mut next = request.previous.as_deref();
    while let Some(previous) = next.filter(|it| it.resource.status != Status::OK) {
        first = Some(previous);
        next = previous.previous.as_deref();
    }
    first.cloned()
}

/// The status line that the module with the error has chosen, if it is one for this status.
fn status_line(request: &Request, status: Status) -> Option<Box<str>> {
    let line = request.resource.notes.value(STATUS_LINE)?;
    let line = std::str::from_utf8(line).ok()?;
    let code = line.split(' ').next().and_then(|code| code.parse().ok());
    (code == Some(status.code())).then(|| line.into())
}

fn page(
    pipeline: &Pipeline,
    request: &Request,
    plan: &Plan,
    response: &Response,
    first: Option<Status>,
) -> Vec<u8> {
    let server = pipeline.site.server(request.server);
    let signature = pipeline.site.signature(request, plan);
    let expect = request.fields().whole("Expect");
    let facts = Facts {
        method: request.head.method_text(),
        line: response.status_line.as_deref(),
        location: response.always.first("Location"),
        notes: request.resource.notes.value("error-notes"),
        variants: request.resource.notes.value(LIST_NOTE),
        expect: expect.as_deref(),
        admin: server.admin(),
        first_error: first,
        signature: &signature,
    };
    error_page(response.status, &facts)
}

/// The request for another path that takes the place of this one (http_request.c:
/// internal_internal_redirect).
///
/// # Errors
/// The request and 400 where the path cannot be a path.
pub(crate) fn redirected(
    pipeline: &Pipeline,
    mut request: Box<Request>,
    plan: &Arc<Plan>,
    target: &[u8],
) -> Result<Box<Request>, (Box<Request>, Status)> {
    let (path, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(mark) => (target.get(..mark), target.get(mark + 1..).map(<[u8]>::to_vec)),
        None => (Some(target), None),
    };
    let path = match pipeline.site.path(&request, path.unwrap_or_default()) {
        Ok(path) => path,
        Err(refusal) => {
            request.notify(refusal.notice);
            return Err((request, refusal.status));
        }
    };
    let mut env = renamed(&request.resource.env);
    env.set("REDIRECT_STATUS", request.resource.status.code().to_string());
    let before = request.resource.redirect(path, query, env);
    if before.notes.contains(KEEPS_VARY)
        && let Some(vary) = before.fields.joined(b"Vary")
    {
        request.resource.fields.set("Vary", vary);
    }
    if before.notes.contains(KEEPS_TYPE) {
        request.resource.content.media_type.clone_from(&before.content.media_type);
    }
    let previous = Previous {
        resource: before,
        method: request.head.method_text().to_vec(),
        plan: Some(Arc::clone(plan) as Arc<dyn Any>),
        told: std::mem::take(&mut request.told.request),
        previous: request.previous.take(),
    };
    request.previous = Some(Box::new(previous));
    Ok(request)
}

/// The environment of the request before, each name with `REDIRECT_` in front.
fn renamed(env: &Variables) -> Variables {
    let mut renamed = Variables::new();
    for (name, value) in env.iter() {
        renamed.set([b"REDIRECT_", name].concat(), value);
    }
    renamed
}
