//! The cache behind the handler (mod_cache): stores what the phases have made, as it is sent, and
//! updates or removes what is stored for the URL.

use crate::caching::{
    Caching, Outcome, PROXIED, Purpose, fill, forget, is_guarded, note, seconds, stale_hit, tell,
};
use crate::serve::Pipeline;
use crate::site::{Plan, Server};
use evenkeel_cache::{
    CacheControl, Candidate, Draft, Entry, Opened, Times, Writer, complain, contradicts,
    may_use_on_error, now, refusal, remove, selecting_names, selecting_values, storable, updated,
};
use evenkeel_message::{
    Answer, Body, Fields, MappedBody, Name, Piece, Request, Response, Source, Status, http_date,
};
use std::borrow::Cow;
use std::pin::Pin;
use std::rc::Rc;

/// Lets the cache see the response of a request before ranges are cut out of it (mod_cache.c:
/// `cache_save_filter`).
///
/// # Errors
/// A redirect to the URL itself, because a 304 was about another response than the stored one.
pub(crate) fn conclude(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    response: &mut Response,
) -> Result<(), Answer> {
    let Some(caching) = request.caching.take() else { return Ok(()) };
    let mut caching = match caching.downcast::<Caching>() {
        Ok(caching) => caching,
        Err(hit) => {
            request.caching = Some(hit);
            return Ok(());
        }
    };
    if let Some((opened, staleness)) = caching.stale.take() {
        let stored = Stored { opened, staleness };
        return validated(pipeline, request, plan, caching, &stored, response);
    }
    match caching.purpose {
        Purpose::Invalidate => invalidate(request, &caching, response),
        Purpose::Store => {
            let sent = request.resource.changed_fields.clone();
            store(pipeline, request, plan, &mut caching, response, sent);
        }
        Purpose::Pass => {}
    }
    Ok(())
}

/// A stored response that was stale when the request came.
struct Stored {
    opened: Rc<Opened>,
    staleness: u64,
}

/// The response to a request with the conditions of a stored response (RFC 9111, section 4.3.3).
fn validated(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    mut caching: Box<Caching>,
    stored: &Stored,
    response: &mut Response,
) -> Result<(), Answer> {
    let client = caching.client.clone();
    let sent = std::mem::replace(&mut request.resource.changed_fields, client);
    let status = response.status;
    if status == Status::NOT_MODIFIED {
        return revalidate(pipeline, request, plan, &mut caching, &stored.opened, response);
    }
    let always = plan.cache.uses_stale_on_error();
    let control = &stored.opened.entry.control;
    if status.code() >= 500 && may_use_on_error(control, stored.staleness, always) {
        let server = pipeline.site.server(request.server);
        *response = stale_hit(request, server, plan, &stored.opened, status);
        return Ok(());
    }
    let is_stored = caching.purpose == Purpose::Store
        && store(pipeline, request, plan, &mut caching, response, sent);
    if !is_stored && status.code() < 500 {
        forget(&caching);
    }
    Ok(())
}

/// A 304 says that the stored response is still valid: its fields are updated, and it is sent
/// (RFC 9111, section 4.3.4).
fn revalidate(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    caching: &mut Caching,
    opened: &Opened,
    response: &mut Response,
) -> Result<(), Answer> {
    let server = pipeline.site.server(request.server);
    let settings = &server.settings.cache;
    let entry = &opened.entry;
    let told = dated(request, &merged(response));
    let told = storable(&told, settings.ignored_fields());
    if contradicts(&entry.fields, &told) {
        forget(caching);
        let target = request.head.target().to_vec();
        return Err(Answer::Redirect(target));
    }
    let fields = updated(&entry.fields, &told);
    let control = CacheControl::of_response(&fields);
    let candidate = Candidate {
        status: entry.status,
        fields: &fields,
        control: &control,
        request: request.fields(),
        has_query: has_query(request),
        now: seconds(request.time_us),
    };
    let reason = refusal(&candidate, &rules(plan, server));
    let times = times(request, plan, &fields, &control);
    let mut fields = fields;
    fields.remove(Name::Age);
    let needs_check = needs_check(request, server, plan, caching);
    let updated = Entry { fields: fields.clone(), control, times, needs_check, ..entry.clone() };
    let names = selecting_names(&fields).unwrap_or_default();
    let selects_the_same = names == selecting_names(&entry.fields).unwrap_or_default();
    let is_kept = reason.is_none() && selects_the_same && !(needs_check && caching.is_quick);
    let told = match is_kept {
        true => {
            let draft = draft(plan, caching, updated, names, Some(opened.body.len()));
            if let Some(mut writer) = Writer::new(draft, &pipeline.blocking_pool) {
                writer.add(opened.body.clone());
                writer.finish();
            }
            "conditional cache hit: entity refreshed"
        }
        false => {
            forget(caching);
            "conditional cache hit: entity refresh failed"
        }
    };
    let mut fresh = Response::new(entry.status);
    fresh.fields = fields;
    fresh.status_line.clone_from(&entry.status_line);
    request.resource.notes.set(PROXIED, "1");
    fill(request, opened, &mut fresh);
    tell(request, server, plan, &mut fresh, Outcome::Revalidate, told);
    *response = fresh;
    Ok(())
}

/// A request with an unsafe method has succeeded: what is stored for its URL, and for those that
/// its response names on the same host, is not valid any more (RFC 9111, section 4.4).
fn invalidate(request: &mut Request, caching: &Caching, response: &Response) {
    if !response.status.is_success() && !response.status.is_redirect() {
        return;
    }
    forget(caching);
    let origin = caching.key.url().split(|byte| *byte == b'/').take(3).collect::<Vec<_>>();
    let origin = origin.join(&b'/');
    for name in [&b"Location"[..], b"Content-Location"] {
        let fields = [&response.fields, &response.always];
        let Some(url) = fields.into_iter().find_map(|fields| fields.first(name)) else { continue };
        let path = match url.first() {
            Some(b'/') if url.get(1) != Some(&b'/') => url,
            _ => match path_on(url, &origin) {
                Some(path) => path,
                None => continue,
            },
        };
        let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
        if let Err(error) = remove(&caching.place, caching.key.with_path(path).text()) {
            complain(&caching.place.root, &error);
        }
    }
    // Apache tells this in the environment alone: the head is already made.
    let method = String::from_utf8_lossy(request.method_name());
    let reason = format!("cache invalidated by {method}");
    note(request, Outcome::Invalidate, &reason);
}

/// The path of a URL on the same host. The port of a key is always there, that of a URL may not be.
fn path_on<'a>(url: &'a [u8], origin: &[u8]) -> Option<&'a [u8]> {
    let without_port = origin.iter().rposition(|byte| *byte == b':').unwrap_or(origin.len());
    let is_default = origin.ends_with(b":80") || origin.ends_with(b":443");
    let short = origin.get(..without_port).filter(|_| is_default);
    [Some(origin), short].into_iter().flatten().find_map(|origin| {
        let start = url.get(..origin.len())?;
        let rest = url.get(origin.len()..)?;
        (start.eq_ignore_ascii_case(origin) && rest.starts_with(b"/")).then_some(rest)
    })
}

/// Stores a response while it is sent, if it may be stored. `sent` are the changed fields of the
/// request as its handler has seen them.
fn store(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    caching: &mut Caching,
    response: &mut Response,
    sent: Option<Rc<Fields>>,
) -> bool {
    let server = pipeline.site.server(request.server);
    match try_to_store(pipeline, request, plan, caching, response, sent) {
        Ok(()) => {
            let reason = "cache miss: attempting entity save";
            tell(request, server, plan, response, Outcome::Miss, reason);
            true
        }
        Err(reason) => {
            tell(request, server, plan, response, Outcome::Miss, &reason);
            false
        }
    }
}

fn try_to_store(
    pipeline: &Pipeline,
    request: &Request,
    plan: &Plan,
    caching: &mut Caching,
    response: &mut Response,
    sent: Option<Rc<Fields>>,
) -> Result<(), Cow<'static, str>> {
    let server = pipeline.site.server(request.server);
    if response.tunnel.is_some() {
        return Err("Response status 101".into());
    }
    let all = dated(request, &merged(response));
    let fields = storable(&all, server.settings.cache.ignored_fields());
    let control = CacheControl::of_response(&fields);
    let client = caching.client.as_deref().unwrap_or(&request.head.fields);
    let candidate = Candidate {
        status: response.status,
        fields: &fields,
        control: &control,
        request: client,
        has_query: has_query(request),
        now: seconds(request.time_us),
    };
    if let Some(reason) = refusal(&candidate, &rules(plan, server)) {
        return Err(reason);
    }
    let env = &request.resource.env;
    let negotiated = request.resource.negotiated.as_ref();
    let needs_check = needs_check(request, server, plan, caching);
    let reason = match () {
        () if needs_check && caching.is_quick => "access rules other than Require all granted",
        () if plan.cache.is_disabled() => "CacheDisable",
        () if env.contains("no-cache") => "environment variable 'no-cache' is set",
        () if negotiated.is_some_and(|choice| choice.uncached) || env.contains("force-no-vary") => {
            "r->no_cache present"
        }
        () => "",
    };
    if !reason.is_empty() {
        return Err(reason.into());
    }
    let names = selecting_names(&fields).unwrap_or_default();
    let selecting = selecting_values(&names, client);
    let sent = sent.as_deref().unwrap_or(&request.head.fields);
    if selecting != selecting_values(&names, sent) {
        return Err("RequestHeader changes a field that Vary names".into());
    }
    let times = times(request, plan, &fields, &control);
    let mut fields = fields;
    fields.remove(Name::Age);
    let entry = Entry {
        key: caching.key.clone(),
        selecting,
        status: response.status,
        status_line: response.status_line.clone(),
        fields,
        control,
        times,
        needs_check,
        body_length: 0,
    };
    let stated = response.fields.first(Name::ContentLength);
    let stated = stated.and_then(|text| std::str::from_utf8(text).ok()?.trim().parse().ok());
    let length = match &response.body {
        Body::Stream(_, length) => length.or(stated),
        body => body.length(),
    };
    let draft = draft(plan, caching, entry, names, length);
    let Some(mut writer) = Writer::new(draft, &pipeline.blocking_pool) else {
        return Err("cache miss: cache unwilling to store response".into());
    };
    match std::mem::take(&mut response.body) {
        Body::Stream(source, length) => {
            response.body = Body::Stream(Box::pin(stored(source, writer)), length);
        }
        body => {
            match &body {
                Body::Bytes(bytes) => writer.add(Piece::Bytes(bytes.clone())),
                Body::File(piece) => writer.add(piece.clone()),
                Body::Pieces(pieces) => pieces.iter().for_each(|it| writer.add(it.clone())),
                Body::Empty | Body::Stream(..) => {}
            }
            writer.finish();
            response.body = body;
        }
    }
    Ok(())
}

/// Whether access rules have been asked about a request: those that it met on its way, and those of
/// the file that answers it, which may be the index of a folder.
fn needs_check(request: &Request, server: &Server, plan: &Plan, caching: &Caching) -> bool {
    caching.is_guarded || is_guarded(server, plan) || request.resource.user.is_some()
}

fn draft(
    plan: &Plan,
    caching: &mut Caching,
    entry: Entry,
    names: Vec<Box<str>>,
    length: Option<u64>,
) -> Draft {
    let (least, most) = plan.cache_disk.bounds();
    let (place, lock) = ((*caching.place).clone(), caching.lock.take());
    Draft { place, entry, names, length, least, most, lock }
}

fn rules(plan: &Plan, server: &Server) -> evenkeel_cache::StoringRules {
    plan.cache.storing_rules(&server.settings.cache)
}

fn times(request: &Request, plan: &Plan, fields: &Fields, control: &CacheControl) -> Times {
    let sent = seconds(request.time_us);
    Times::of(fields, control, &plan.cache.lifetime_rules(), (sent, now()))
}

fn has_query(request: &Request) -> bool {
    request.head.target().contains(&b'?')
}

/// All fields of a response (util_script.c: `ap_cache_cacheable_headers_out`).
fn merged(response: &Response) -> Fields {
    let mut fields = response.fields.clone();
    fields.overlay(&response.always);
    fields
}

/// The fields with a Date. That of a response of this server is now.
fn dated(request: &Request, fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    let is_kept = request.resource.notes.contains(PROXIED) && fields.contains(Name::Date);
    if !is_kept {
        fields.set(Name::Date, http_date(now()));
    }
    fields
}

/// A body that is stored while it is sent.
fn stored(source: Pin<Box<dyn Source>>, writer: Writer) -> impl Source {
    let mut writer = Some(writer);
    MappedBody::new(source, move |chunk| {
        match &chunk {
            Some(Ok(bytes)) => {
                if let Some(writer) = &mut writer {
                    writer.add(Piece::Bytes(bytes.clone()));
                }
            }
            Some(Err(_)) => writer = None,
            None => {
                if let Some(writer) = writer.take() {
                    writer.finish();
                }
            }
        }
        chunk
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_on_the_same_host_has_a_path() {
        for (url, origin, path) in [
            ("http://h/a", "http://h:80", Some("/a")),
            ("http://h:80/a", "http://h:80", Some("/a")),
            ("HTTP://H/a", "http://h:80", Some("/a")),
            ("http://h:81/a", "http://h:80", None),
            ("http://h/a", "http://h:81", None),
            ("http://h.evil/a", "http://h:80", None),
            ("https://h/a", "http://h:80", None),
            ("//h/a", "http://h:80", None),
        ] {
            let found = path_on(url.as_bytes(), origin.as_bytes());
            assert_eq!(found, path.map(str::as_bytes), "{url} {origin}");
        }
    }
}
