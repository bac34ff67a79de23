//! Requests that are passed on to an HTTP server (mod_proxy_http): reads the beginning of the body,
//! takes a place at the server, sends the request, and makes the response of the server's.

use crate::body;
use crate::proxying::{Waiting, enter, patience, refuse_body, refuse_scheme, spool};
use crate::serve::Pipeline;
use crate::site::Plan;
use bytes::Bytes;
use evenkeel_message::{
    AllowEncodedSlashes, Answer, BodyLength, Level, MayWait, Method, Name, Notice, Proxied,
    Request, Response, Scheme, Source, Status, Version, eq_ignore_case, quoted,
};
use evenkeel_modules::proxy::http::{self, Framing, Sender};
use evenkeel_modules::proxy::{self, Member};
use evenkeel_modules::ssl::{self, NoConnector};
use evenkeel_proto::{OriginHead, OriginLimits, encode_chunk};
use evenkeel_upstream::{
    OriginAnswered, OriginAsk, OriginFailure, OriginFailureKind, Tls, Upload, UploadFraming,
    ask_origin, prefetch,
};
use std::any::Any;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// Passes a request on, and returns the response.
///
/// # Errors
/// The request cannot be sent, the server fails, or its error is replaced by an error document.
pub(crate) async fn pass_on(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    proxied: Proxied,
) -> Result<Response, Answer> {
    if proxied.target.scheme == Scheme::Balancer {
        return Box::pin(balance(pipeline, request, plan, proxied)).await;
    }
    let passed = attempt(pipeline, request, plan, proxied, None, &mut None).await;
    passed.map_err(|failed| failed.answer)
}

/// Why a request was not passed on.
struct Failed {
    answer: Answer,
    cause: Cause,
}

/// What an attempt says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Nothing, or that it has answered with this status.
    Answered(Status),
    /// It could not be reached, and nothing of the request is lost.
    Unreachable,
    /// It could not be reached.
    Lost,
    /// It ended the connection before its response, and the request may be sent twice
    /// (RFC 9110, section 9.2.2).
    Cut,
    /// It was silent for too long.
    Silent,
}

impl From<Answer> for Failed {
    fn from(answer: Answer) -> Self {
        Failed { answer, cause: Cause::Answered(Status::OK) }
    }
}

/// Passes a request on to a member of a balancer, and to others while members cannot be reached
/// (mod_proxy.c: `proxy_handler`).
async fn balance(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    proxied: Proxied,
) -> Result<Response, Answer> {
    let rules = &pipeline.site.server(request.server).settings.proxy;
    let balancer = rules.balancer(&proxied.target.host).cloned();
    let balancer = balancer.filter(|_| pipeline.site.balances);
    let Some(balancer) = balancer else { return Err(refuse_scheme(request, &proxied)) };
    let session = balancer.session(request, &proxied);
    let name = format!("balancer://{}", balancer.name);
    let error = |number, text| Notice::new("proxy_balancer", Level::Error, number, text);
    if let (Some(sticky), Some(route)) = (&session.sticky, &session.route) {
        request.resource.env.set("BALANCER_SESSION_STICKY", sticky.as_bytes());
        request.resource.env.set("BALANCER_SESSION_ROUTE", route);
    }
    let (mut body, mut left) = (None, balancer.attempts());
    loop {
        let Some(choice) = balancer.choose(&session) else {
            let (number, of) = match &session.route {
                Some(route) => (1167, format!(" for route ({})", quoted(route))),
                None => (1170, String::new()),
            };
            request.notify(error(number, format!("{name}: All workers are in error state{of}")));
            return Err(Status::SERVICE_UNAVAILABLE.into());
        };
        let member = choice.member;
        let (target, url) = (&member.worker.target, member.url());
        let env = &mut request.resource.env;
        env.set("BALANCER_NAME", &name);
        env.set("BALANCER_WORKER_NAME", &url);
        env.set("BALANCER_WORKER_ROUTE", member.route().as_bytes());
        if choice.is_changed {
            env.set("BALANCER_ROUTE_CHANGED", "1");
        }
        let path = [target.path.as_bytes(), &proxied.path].concat();
        let one = Proxied { target: Arc::new(target.clone()), path, ..proxied.clone() };
        let passed = attempt(pipeline, request, plan, one, Some(&member), &mut body).await;
        let cause = match &passed {
            Ok(response) => Cause::Answered(response.status),
            Err(failed) => failed.cause,
        };
        let (is_failed, notice) = match cause {
            Cause::Answered(status) if balancer.fails_on(status.code()) => {
                let text = format!(
                    "{name}: Forcing worker ({url}) into error state due to status code {} \
                     matching 'failonstatus' balancer parameter",
                    status.code()
                );
                (true, Some(error(1174, text)))
            }
            Cause::Answered(_) | Cause::Cut => (false, None),
            Cause::Unreachable | Cause::Lost => (true, None),
            Cause::Silent if balancer.fails_on_timeout() => {
                let text = format!(
                    "{name}: Forcing worker ({url}) into error state due to timeout and \
                     'failontimeout' parameter being set"
                );
                (true, Some(error(2460, text)))
            }
            Cause::Silent => (false, None),
        };
        let is_noted = is_failed && member.note_failure();
        if let Some(notice) = notice.filter(|_| is_noted) {
            request.notify(notice);
        }
        let is_next = cause == Cause::Cut || (is_noted && cause == Cause::Unreachable);
        if is_next && left > 0 {
            left -= 1;
            continue;
        }
        return passed.map_err(|failed| failed.answer);
    }
}

/// Passes a request on to a server. `body` is read by the first attempt.
async fn attempt(
    pipeline: &Rc<Pipeline>,
    request: &mut Box<Request>,
    plan: &Plan,
    proxied: Proxied,
    member: Option<&Member>,
    body: &mut Option<Outgoing>,
) -> Result<Response, Failed> {
    let server = pipeline.site.server(request.server);
    let keeps_slashes = plan.core.encoded_slashes == Some(AllowEncodedSlashes::NoDecode);
    let target = http::target_text(request, &proxied, keeps_slashes)?;
    let rules = &server.settings.proxy;
    let worker = match member {
        Some(member) => Some(&*member.worker),
        None => proxy::worker_of(rules, &proxied),
    };
    let patience = patience(pipeline, request, worker);
    let says = |request: &Request, name: &str| request.resource.env.contains(name);
    let version = match says(request, "force-proxy-request-1.0") {
        true => Version::Http10,
        false => Version::Http11,
    };
    // A target without parameters has no connections that are kept (proxy_util.c:
    // ap_proxy_pre_request).
    let upgrade = proxy::upgrade_of(request, &proxied, worker)
        .filter(|_| version == Version::Http11 && request.previous.is_none());
    let keeps = worker.is_some_and(|worker| worker.disable_reuse != Some(true))
        && version == Version::Http11
        && !says(request, "proxy-nokeepalive");
    let expects = version == Version::Http11
        && plan.proxy.forward_continue != Some(false)
        && (request.body.is_some() || body.is_some())
        && is_expecting(request);
    let tls = match proxied.target.scheme.is_secure() {
        true => Some(tls(pipeline, request, plan, &proxied)?),
        false => None,
    };
    let may_wait = pipeline.before_wait(request, plan).await;
    let body = match body {
        Some(body) => body,
        None => {
            let read = Outgoing::read(pipeline, request, plan, (version, expects), &may_wait);
            body.insert(read.await?)
        }
    };
    let waiting = Waiting { module: "proxy_http", patience: patience.silence };
    let place = enter(pipeline, request, &proxied, waiting, &may_wait).await?;
    let sender = Sender {
        rules,
        section: &plan.proxy,
        core: server.core(plan),
        software: &pipeline.site.identity.banner,
        framing: body.framing,
        expects,
        upgrade: upgrade.as_deref(),
        keeps,
        version,
    };
    let mut first = http::request_head(request, &proxied, &target, &sender)?;
    let had_rest = body.rest.is_some();
    let upload = body.write(&mut first, expects);
    let sent = first.len() as u64;
    let field = worker.and_then(|worker| worker.field_size);
    let skips_bad = rules.skips_bad_fields == Some(true);
    let limits = OriginLimits { skips_bad, ..OriginLimits::default() };
    let limits = OriginLimits { field: field.unwrap_or(limits.field), ..limits };
    let path = request.resource.path.to_vec();
    if let Some(member) = member {
        member.count(sent);
    }
    let ask = OriginAsk {
        target: proxied.target,
        tls,
        first,
        upload,
        is_head: request.method_name() == b"HEAD",
        is_idempotent: is_idempotent(request.resource.method),
        upgrade: upgrade.clone(),
        keeps,
        ttl: worker.and_then(|worker| worker.ttl),
        limits,
        patience,
        place,
        path: path.clone(),
        guard: member.map(|member| Box::new(member.line().begin()) as Box<dyn Any>),
        member: member.map(|member| member.line().clone()),
    };
    let late = Rc::clone(request.late.get_or_insert_with(Rc::default));
    let departure = Rc::clone(&request.departure);
    let takes_interim = request.head.version >= Version::Http11
        && request.resource.depth == 0
        && request
            .resource
            .env
            .value("proxy-interim-response")
            .is_none_or(|policy| !eq_ignore_case(policy, b"Suppress"));
    let interim = &mut |head: &OriginHead| {
        if takes_interim {
            departure.send_interim(&http::encode_interim(head));
        }
    };
    let asked = ask_origin(&may_wait, ask, &pipeline.blocking_pool, &departure, interim, &late);
    let OriginAnswered { head, body: answered, tunnel } = match asked.await {
        Ok(answered) => answered,
        Err(mut failure) => {
            body.rest = failure.upload.take().map(|upload| upload.source);
            let is_whole = body.rest.is_some() == had_rest;
            let cause = match failure.kind {
                OriginFailureKind::Unreachable(_) if is_whole => Cause::Unreachable,
                OriginFailureKind::Unreachable(_)
                | OriginFailureKind::Unresolved
                | OriginFailureKind::Handshake(_)
                | OriginFailureKind::Peer(..) => Cause::Lost,
                OriginFailureKind::Ended(_)
                    if !had_rest && is_idempotent(request.resource.method) =>
                {
                    Cause::Cut
                }
                OriginFailureKind::Silent => Cause::Silent,
                _ => Cause::Answered(failure.status()),
            };
            return Err(Failed { answer: refuse(request, &failure, &path), cause });
        }
    };
    let may_override = request.resource.depth == 0 && request.previous.is_none();
    let mut response = http::respond(request, head, answered, &sender);
    response.tunnel = tunnel;
    match may_override && plan.proxy.overrides(response.status) {
        true => {
            let cause = Cause::Answered(response.status);
            Err(Failed { answer: replace(request, &response), cause })
        }
        false => Ok(response),
    }
}

/// The TLS of the connection to a server. With ProxyPreserveHost, the server is asked for the host
/// of the request (proxy_util.c: `ap_proxy_determine_connection`).
///
/// # Errors
/// 500 if SSLProxyEngine is off or its settings cannot be used.
fn tls(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    proxied: &Proxied,
) -> Result<Tls, Answer> {
    let target = &*proxied.target;
    let asked = match plan.proxy.preserve_host {
        Some(true) => std::str::from_utf8(&request.host).map(str::to_owned).ok(),
        _ => None,
    };
    let asked = asked.filter(|host| !host.is_empty());
    let host = asked.map_or_else(|| target.host.clone(), Into::into);
    let connector = match ssl::connector(&plan.ssl) {
        Ok(connector) => connector,
        Err(why) => {
            let server = pipeline.site.server(request.server).name().to_owned();
            let notice = match why {
                NoConnector::Off => {
                    let text = format!("SSL Proxy requested for {server} but not enabled for us.");
                    Notice::new("ssl", Level::Error, 10272, text)
                }
                NoConnector::Faulty(text) => Notice::own("ssl", Level::Error, text),
            };
            request.notify(notice);
            let (host, port) = (&target.host, target.port);
            let scheme = target.scheme.name().to_ascii_uppercase();
            let text = format!("{scheme}: failed to enable ssl support for {host}:{port} ({host})");
            request.notify(Notice::new("proxy", Level::Error, 961, text));
            return Err(Status::INTERNAL_SERVER_ERROR.into());
        }
    };
    Ok(Tls { connector, host })
}

/// Whether the client waits for `100 Continue`.
fn is_expecting(request: &Request) -> bool {
    request.head.version >= Version::Http11
        && request.fields().tokens(Name::Expect).any(|it| eq_ignore_case(it, b"100-continue"))
}

/// Whether a request with this method may be sent twice (RFC 9110, section 9.2.2).
fn is_idempotent(method: Method) -> bool {
    matches!(
        method,
        Method::Get
            | Method::Head
            | Method::Options
            | Method::Trace
            | Method::Put
            | Method::Delete
            | Method::Propfind
    )
}

/// The error document in place of the response (ProxyErrorOverride).
fn replace(request: &mut Request, response: &Response) -> Answer {
    if response.status == Status::UNAUTHORIZED
        && let Some(challenge) = response.fields.first(Name::WwwAuthenticate)
    {
        request.resource.always.set(Name::WwwAuthenticate, challenge);
    }
    request.resource.notes.unset("proxied");
    if let Some(line) = &response.status_line {
        request.resource.notes.set(proxy::STATUS_LINE, line.as_bytes());
    }
    Answer::from(response.status)
}

/// Logs the failure of an exchange, and returns the answer to the client.
fn refuse(request: &mut Request, failure: &OriginFailure, path: &[u8]) -> Answer {
    for notice in failure.notices(path, false) {
        request.notify(notice);
    }
    if let OriginFailureKind::Body(error) = &failure.kind {
        return body::refuse(request, error).into();
    }
    // The page of 504 says it all.
    if let Some(reason) = failure.reason().filter(|_| failure.status() != Status::GATEWAY_TIMEOUT) {
        proxy::note_reason(request, failure.status(), &reason);
    }
    Answer::from(failure.status())
}

/// The body of a request on its way to the server.
struct Outgoing {
    framing: Framing,
    /// The beginning.
    first: Bytes,
    /// The rest, if there is any.
    rest: Option<Pin<Box<dyn Source>>>,
}

impl Outgoing {
    const EMPTY: Outgoing = Outgoing { framing: Framing::None, first: Bytes::new(), rest: None };

    /// Reads the beginning of the body, unless the server is asked for it first. A length that is
    /// not known, or that an input filter may change, is not sent.
    async fn read(
        pipeline: &Pipeline,
        request: &mut Request,
        plan: &Plan,
        (version, expects): (Version, bool),
        may_wait: &MayWait,
    ) -> Result<Outgoing, Answer> {
        let length = request.head.length;
        let Some(source) = request.body.take() else {
            // An error document has the length of the request that led to it.
            let is_empty = length == BodyLength::Exact(0)
                && request.resource.depth == 0
                && request.previous.is_none();
            let framing = if is_empty { Framing::Exact(0) } else { Framing::None };
            return Ok(Outgoing { framing, ..Outgoing::EMPTY });
        };
        let is_filtered =
            request.resource.content.input_filters.is_some() || plan.core.input_filters.is_some();
        let framing = match length {
            BodyLength::Exact(length) if !is_filtered => Framing::Exact(length),
            _ => Framing::Chunked,
        };
        if expects {
            return Ok(Outgoing { framing, first: Bytes::new(), rest: Some(source) });
        }
        let needs_length =
            version == Version::Http10 || request.resource.env.contains("proxy-sendcl");
        if needs_length && framing == Framing::Chunked {
            let pool: &Arc<_> = &pipeline.blocking_pool;
            let spooled = spool(may_wait, source, pool)
                .await
                .map_err(|error| refuse_body(request, "proxy_http", error))?;
            let framing = Framing::Exact(spooled.length());
            let rest = Some(spooled.into_source(pool));
            return Ok(Outgoing { framing, first: Bytes::new(), rest });
        }
        let ahead = prefetch(may_wait, source).await;
        let ahead = ahead.map_err(|error| Answer::from(body::refuse(request, &error)))?;
        let framing = match ahead.rest {
            None => Framing::Exact(ahead.first.len() as u64),
            Some(_) => framing,
        };
        Ok(Outgoing { framing, first: ahead.first, rest: ahead.rest })
    }

    /// Appends the beginning to the head, and takes out what follows.
    fn write(&mut self, out: &mut Vec<u8>, expects: bool) -> Option<Upload> {
        let Outgoing { framing, first, rest } = self;
        let held = first.len() as u64;
        match framing {
            Framing::Chunked if !first.is_empty() => {
                encode_chunk(out, first.len());
                out.extend_from_slice(first);
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(first),
        }
        let framing = match framing {
            Framing::Chunked => UploadFraming::Chunked,
            Framing::Exact(length) => UploadFraming::Exact(length.saturating_sub(held)),
            Framing::None => return None,
        };
        rest.take().map(|source| Upload { source, framing, is_held: expects })
    }
}
