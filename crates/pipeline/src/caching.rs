//! The cache before the handler (mod_cache): looks a request up before or after the access rules,
//! answers it with a stored response, or has a stale one validated. `storing.rs` sees the response.
//! The rules and the files are those of the room `cache`.

use crate::serve::Pipeline;
use crate::site::{Plan, Server};
use evenkeel_cache::{
    CacheControl, Entry, Key, Lock, Opened, Place, Target, Verdict, complain, judge,
    may_use_on_error, may_use_while_validated, remove,
};
use evenkeel_message::{
    Answer, Body, Fields, Name, Piece, Request, Response, Status, Validators, evaluate,
    parse_http_date,
};
use evenkeel_modules::cache::{is_cacheable, is_enabled, is_unsafe};
use evenkeel_modules::{authz_core, ssl};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

/// The store of CacheEnable that mod_cache_disk provides.
pub(crate) const DISK: &str = "disk";

/// The note of a request whose response keeps its Date and Server.
pub(crate) const PROXIED: &str = "proxied";

/// What the cache knows of a request that it may answer, now or the next time.
pub(crate) struct Caching {
    pub(crate) key: Key,
    pub(crate) place: Arc<Place>,
    pub(crate) purpose: Purpose,
    /// Whether the request was looked up before the access rules.
    pub(crate) is_quick: bool,
    /// Whether access rules that do not admit everybody have been asked.
    pub(crate) is_guarded: bool,
    /// The changed fields of the request before conditions were put into it.
    pub(crate) client: Option<Rc<Fields>>,
    /// The response that is being validated, and for how many seconds it has been stale.
    pub(crate) stale: Option<(Rc<Opened>, u64)>,
    pub(crate) lock: Option<Lock>,
}

/// Stands in the place of [`Caching`] where the response is a stored one. It takes no memory.
pub(crate) struct Hit;

/// What the cache does with the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is stored.
    Store,
    /// Another request stores it, or it has no body.
    Pass,
    /// It makes the stored response invalid if it is a success.
    Invalidate,
}

/// How a request was answered, for CacheHeader, CacheDetailHeader and the environment.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Hit,
    Miss,
    Revalidate,
    Invalidate,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Hit => "HIT",
            Outcome::Miss => "MISS",
            Outcome::Revalidate => "REVALIDATE",
            Outcome::Invalidate => "INVALIDATE",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Outcome::Hit => "cache-hit",
            Outcome::Miss => "cache-miss",
            Outcome::Revalidate => "cache-revalidate",
            Outcome::Invalidate => "cache-invalidate",
        }
    }
}

fn state(request: &mut Request) -> Option<&mut Caching> {
    request.caching.as_mut()?.downcast_mut()
}

/// Whether the response of a request is a stored one, which no filter changes.
pub(crate) fn is_hit(request: &Request) -> bool {
    request.caching.as_ref().is_some_and(|caching| caching.is::<Hit>())
}

/// Looks a request up; `is_quick` says that no access rule has been asked yet. The answer is a
/// stored response, or 504 to a client that wants no other (mod_cache.c: `cache_quick_handler`,
/// `cache_handler`).
pub(crate) fn look_up(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    is_quick: bool,
) -> Option<Answer> {
    let server = pipeline.site.server(request.server);
    let settings = &server.settings.cache;
    let is_first = request.resource.depth == 0 && request.previous.is_none();
    if settings.is_quick() != is_quick || !is_first {
        return None;
    }
    let place = server.settings.cache_disk.place()?;
    let (path, query) = split_target(request.head.target());
    if !is_enabled(DISK, request, path, settings, &plan.cache) {
        return None;
    }
    let control = CacheControl::of_request(request.fields());
    let ignores_request = settings.ignores_requests();
    let declines = control.no_store && !ignores_request;
    if declines || (is_quick && request.fields().contains(Name::Authorization)) {
        return None;
    }
    let unsafe_method = is_unsafe(request);
    if !unsafe_method && !is_cacheable(request) {
        return None;
    }
    let key = Key::of(
        &Target {
            scheme: request.scheme(),
            host: if request.host.is_empty() { server.name().as_bytes() } else { &request.host },
            port: request.port.unwrap_or(request.default_port()),
            path,
            query,
            place: &server.cache_place,
            fields: request.fields(),
        },
        settings.key_rules(),
    );
    let mut caching = Caching {
        key,
        place: Arc::clone(place),
        purpose: if request.is_head() { Purpose::Pass } else { Purpose::Store },
        is_quick,
        is_guarded: !is_quick && is_guarded(server, plan),
        client: request.resource.changed_fields.clone(),
        stale: None,
        lock: None,
    };
    if unsafe_method {
        caching.purpose = Purpose::Invalidate;
        request.caching = Some(Box::new(caching));
        return None;
    }
    let found = pipeline.shelf.find(place, &caching.key, request.fields());
    // What was stored behind access rules is not used without asking them.
    let found = found.filter(|opened| !(is_quick && opened.entry.needs_check));
    let Some(opened) = found else {
        if control.only_if_cached {
            return Some(Status::GATEWAY_TIMEOUT.into());
        }
        if settings.locks() && caching.purpose == Purpose::Store {
            caching.lock = take_lock(server, &caching).unwrap_or_else(|()| {
                caching.purpose = Purpose::Pass;
                None
            });
        }
        request.caching = Some(Box::new(caching));
        return None;
    };
    let now = seconds(request.time_us);
    let entry = &opened.entry;
    match judge(&entry.times, &entry.control, &control, ignores_request, now) {
        Verdict::Use { age, is_stale, is_guessed } => {
            let warnings = [
                is_stale.then_some("110 Response is stale"),
                is_guessed.then_some("113 Heuristic expiration"),
            ];
            request.caching = Some(Box::new(Hit));
            let hit = hit(request, &opened, age, warnings.into_iter().flatten());
            Some(told(request, server, plan, hit, Outcome::Hit, "cache hit"))
        }
        Verdict::Validate { .. } if control.only_if_cached => Some(Status::GATEWAY_TIMEOUT.into()),
        Verdict::Validate { age, staleness } => {
            let is_asked_for = control.no_cache && !ignores_request;
            let while_validated = may_use_while_validated(&entry.control, staleness);
            let may_be_stale = !is_asked_for && staleness > 0 && entry.control.lets_stale_be_used();
            if may_be_stale && (settings.locks() || while_validated) {
                match take_lock(server, &caching) {
                    Ok(lock) => caching.lock = lock,
                    Err(()) => {
                        request.caching = Some(Box::new(Hit));
                        let hit = hit(request, &opened, age, ["110 Response is stale"].into_iter());
                        return Some(told(request, server, plan, hit, Outcome::Hit, "cache hit"));
                    }
                }
            }
            validate(request, entry);
            caching.stale = Some((opened, staleness));
            request.caching = Some(Box::new(caching));
            None
        }
    }
}

/// The stored response as an answer.
fn told(
    request: &mut Request,
    server: &Server,
    plan: &Plan,
    mut response: Response,
    outcome: Outcome,
    reason: &str,
) -> Answer {
    tell(request, server, plan, &mut response, outcome, reason);
    Answer::Response(Box::new(response))
}

/// Takes the lock of CacheLock. An error says that another request has it. A lock that cannot be
/// made is reported and not needed.
fn take_lock(server: &Server, caching: &Caching) -> Result<Option<Lock>, ()> {
    let settings = &server.settings.cache;
    let folder = match settings.lock_path() {
        Some(path) => Cow::Borrowed(path),
        None => Cow::Owned(caching.place.lock_folder()),
    };
    match Lock::take(&folder, caching.key.text(), settings.lock_age()) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(()),
        Err(error) => {
            complain(&folder, &error);
            Ok(None)
        }
    }
}

/// The path and the query of a request target in origin or absolute form.
pub(crate) fn split_target(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let path_and_query = match target.first() {
        Some(b'/') => target,
        _ => {
            let authority = target.windows(3).position(|it| it == b"://").map_or(0, |at| at + 3);
            let rest = target.get(authority..).unwrap_or_default();
            let start = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
            start.and_then(|start| rest.get(start..)).unwrap_or_default()
        }
    };
    match path_and_query.iter().position(|byte| *byte == b'?') {
        Some(at) => (path_and_query.get(..at).unwrap_or_default(), path_and_query.get(at + 1..)),
        None => (path_and_query, None),
    }
}

pub(crate) fn seconds(us: u64) -> i64 {
    i64::try_from(us / 1_000_000).unwrap_or(i64::MAX)
}

/// Puts the conditions of a stored response into a request, in place of its own (RFC 9111, section
/// 4.3.1).
fn validate(request: &mut Request, entry: &Entry) {
    let fields = request.fields_mut();
    for name in [
        Name::IfMatch,
        Name::IfNoneMatch,
        Name::IfModifiedSince,
        Name::IfUnmodifiedSince,
        Name::IfRange,
        Name::Range,
    ] {
        fields.remove(name);
    }
    if let Some(tag) = entry.fields.first(Name::ETag) {
        fields.set(Name::IfNoneMatch, tag);
    }
    if let Some(modified) = entry.fields.first(Name::LastModified) {
        fields.set(Name::IfModifiedSince, modified);
    }
}

/// The response that an entry stands for.
fn hit(
    request: &mut Request,
    opened: &Opened,
    age: u64,
    warnings: impl Iterator<Item = &'static str>,
) -> Response {
    let entry = &opened.entry;
    let mut response = request.spare.take().unwrap_or_else(|| Response::new(Status::OK));
    response.fields.clone_from(&entry.fields);
    let mut number = itoa::Buffer::new();
    response.fields.set(Name::Age, number.format(age));
    warnings.for_each(|warning| response.fields.merge("Warning", warning));
    response.status = entry.status;
    response.status_line.clone_from(&entry.status_line);
    request.resource.notes.set(PROXIED, "1");
    fill(request, opened, &mut response);
    response
}

/// Puts the stored body into a response, unless the conditions of the request make it one without.
pub(crate) fn fill(request: &Request, opened: &Opened, response: &mut Response) {
    let now = seconds(request.time_us);
    let verdict = match response.status {
        Status::OK => {
            let modified = response.fields.first(Name::LastModified);
            let validators = Validators {
                etag: response.fields.first(Name::ETag),
                modified: modified.and_then(|date| parse_http_date(date, now)),
            };
            evaluate(request.resource.method, request.fields(), &validators, now)
        }
        _ => evenkeel_message::Verdict::Proceed,
    };
    let status = match verdict {
        evenkeel_message::Verdict::Proceed => {
            response.body = match &opened.body {
                Piece::Bytes(bytes) => Body::Bytes(bytes.clone()),
                piece @ Piece::File { .. } => Body::File(piece.clone()),
            };
            return;
        }
        evenkeel_message::Verdict::NotModified => Status::NOT_MODIFIED,
        evenkeel_message::Verdict::Failed => Status::PRECONDITION_FAILED,
    };
    (response.status, response.status_line) = (status, None);
}

/// Tells what the cache has done, in the environment and where the configuration says so in the
/// response (mod_cache.c: `cache_status`).
pub(crate) fn tell(
    request: &mut Request,
    server: &Server,
    plan: &Plan,
    response: &mut Response,
    outcome: Outcome,
    reason: &str,
) {
    note(request, outcome, reason);
    let settings = &server.settings.cache;
    if plan.cache.tells_result(settings) {
        response.fields.set("X-Cache", format!("{} from {}", outcome.word(), server.name()));
    }
    if plan.cache.tells_reason(settings) {
        response.fields.set("X-Cache-Detail", format!("\"{reason}\" from {}", server.name()));
    }
}

/// Tells what the cache has done in the environment alone.
pub(crate) fn note(request: &mut Request, outcome: Outcome, reason: &str) {
    let env = &mut request.resource.env;
    env.set(outcome.variable(), reason);
    env.set("cache-status", reason);
}

/// Whether the configuration asks who may see a URL, by anything but `Require all granted`.
pub(crate) fn is_guarded(server: &Server, plan: &Plan) -> bool {
    authz_core::is_guarded(&plan.authz_core)
        || plan.access_compat.is_guarded()
        || ssl::is_guarded(&plan.ssl, &server.settings.ssl)
}

/// Notes the access rules that a request is about to be compared with.
pub(crate) fn note_guard(pipeline: &Pipeline, request: &mut Request, plan: &Plan) {
    let guarded = is_guarded(pipeline.site.server(request.server), plan);
    if let Some(caching) = state(request) {
        caching.is_guarded |= guarded;
    }
}

/// A request ends with an error status. The answer is the stale response that it was to validate,
/// if that may be used (mod_cache.c: `cache_insert_error_filter`).
pub(crate) fn fail(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    status: Status,
) -> Option<Response> {
    let caching = state(request)?;
    let (opened, staleness) = caching.stale.take()?;
    let always = plan.cache.uses_stale_on_error();
    if status.code() >= 500 && may_use_on_error(&opened.entry.control, staleness, always) {
        let server = pipeline.site.server(request.server);
        return Some(stale_hit(request, server, plan, &opened, status));
    }
    if status.code() < 500 {
        forget(caching);
    }
    caching.purpose = Purpose::Pass;
    restore(request);
    None
}

pub(crate) fn stale_hit(
    request: &mut Request,
    server: &Server,
    plan: &Plan,
    opened: &Opened,
    status: Status,
) -> Response {
    restore(request);
    request.caching = Some(Box::new(Hit));
    let age = opened.entry.times.age(seconds(request.time_us));
    let mut response = hit(request, opened, age, ["111 Revalidation failed"].into_iter());
    let reason = format!("cache hit: {} status; stale content returned", status.code());
    tell(request, server, plan, &mut response, Outcome::Hit, &reason);
    response
}

/// Takes the conditions of the stored response out of the request.
fn restore(request: &mut Request) {
    let Some(client) = state(request).map(|caching| caching.client.clone()) else { return };
    request.resource.changed_fields = client;
}

/// Removes what is stored for a request.
pub(crate) fn forget(caching: &Caching) {
    if let Err(error) = remove(&caching.place, caching.key.text()) {
        complain(&caching.place.root, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_split_in_origin_and_in_absolute_form() {
        for (target, path, query) in [
            ("/a/b?c=d?e", "/a/b", Some("c=d?e")),
            ("/", "/", None),
            ("/a?", "/a", Some("")),
            ("http://h:80/a?b", "/a", Some("b")),
            ("http://h?b", "", Some("b")),
            ("http://h", "", None),
            ("*", "", None),
        ] {
            let split = (path.as_bytes(), query.map(str::as_bytes));
            assert_eq!(split_target(target.as_bytes()), split, "{target}");
        }
    }
}
