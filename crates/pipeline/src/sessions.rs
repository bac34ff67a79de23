//! The session of a request (mod_session): it is loaded when something asks for it, and saved with
//! the response.

use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_message::{Level, Notice, Request, Response, quoted};
use evenkeel_modules::sessions::{Cookies, Derivation, Kept, Secrets, Session};
use std::cell::RefCell;
use std::rc::Rc;

/// A session that the subrequests and internal redirects of a request share.
pub(crate) type Shared = Rc<RefCell<Session>>;

/// The fields of a response that depends on a session (mod_session_cookie.c: session_cookie_load).
const UNCACHED: (&str, &str) = ("Cache-Control", "no-cache, private");

/// A session, and whether its cookie was read at this moment.
struct Loaded {
    session: Shared,
    is_first: bool,
}

/// Loads the session of a request; none if the section has none (mod_session.c: ap_session_load). A
/// key that is not known is derived in the blocking pool.
pub(crate) async fn load(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Option<Shared> {
    if !plan.session.is_on() {
        return None;
    }
    if let Some(derivation) = open_derivation(request, plan) {
        let may_wait = pipeline.before_wait(request, plan).await;
        let beside = pipeline.beside(request, &may_wait);
        let what = "deriving the key of a session".to_owned();
        let derived = beside.perform(what, move |_| {
            derivation.perform();
            Some(())
        });
        // Without a thread, the key is derived where it is needed.
        let _done = derived.await;
    }
    load_now(request, plan).map(|loaded| {
        if loaded.is_first {
            request.resource.fields.add(UNCACHED.0, UNCACHED.1);
        }
        loaded.session
    })
}

/// The derivation of the key that opens the cookie of a request, if it is to be done.
fn open_derivation(request: &mut Request, plan: &Plan) -> Option<Derivation> {
    let (name, secrets) = (plan.session_cookie.name()?, plan.session_crypto.secrets()?);
    if !plan.session.covers(&request.resource.path) {
        return None;
    }
    let kept = Kept::of(request);
    if kept.session(name, Some(&secrets)).is_some() {
        return None;
    }
    let value = match kept.cookie(name) {
        Some(value) => value,
        None => Cookies::find(request.fields(), name).value,
    };
    secrets.derivation(&value?)
}

fn load_now(request: &mut Request, plan: &Plan) -> Option<Loaded> {
    if !plan.session.is_on() || !plan.session.covers(&request.resource.path) {
        return None;
    }
    let Some(name) = plan.session_cookie.name() else {
        let text = format!(
            "session is enabled but no session modules have been configured, session not loaded: {}",
            quoted(&request.resource.path)
        );
        request.notify(Notice::new("session", Level::Warn, 1815, text));
        return None;
    };
    let secrets = plan.session_crypto.secrets();
    let kept = Kept::of(request);
    let (session, is_first) = match kept.session(name, secrets.as_ref()) {
        Some(session) => (session, false),
        None => {
            let (value, is_first) = read_cookie(request, plan, &kept, name);
            let session = decode(request, value.as_deref(), secrets.as_ref());
            (kept.keep_session(name, secrets.as_ref(), session), is_first)
        }
    };
    let max_age_s = plan.session.max_age_s();
    if max_age_s != 0 {
        let mut session = session.borrow_mut();
        if session.expiry_us == 0 {
            session.expiry_us = now_us(request).saturating_add(microseconds(max_age_s));
        }
        session.max_age_s = max_age_s;
    }
    Some(Loaded { session, is_first })
}

/// The value of a cookie, and whether it was read at this moment.
fn read_cookie(
    request: &mut Request,
    plan: &Plan,
    kept: &Kept,
    name: &str,
) -> (Option<Vec<u8>>, bool) {
    if let Some(value) = kept.cookie(name) {
        return (value, false);
    }
    let cookies = Cookies::find(request.fields(), name);
    if cookies.is_ambiguous {
        let path = quoted(&request.resource.path);
        let text = format!("client submitted cookie '{name}' more than once: {path}");
        request.notify(Notice::new("core", Level::Error, 11, text));
        kept.keep_cookie(name, None);
        return (None, true);
    }
    let is_sent = request.fields().contains("Cookie") || request.fields().contains("Cookie2");
    if plan.session_cookie.removes() && is_sent {
        cookies.remove(request.fields_mut());
    }
    kept.keep_cookie(name, cookies.value.clone());
    (cookies.value, true)
}

/// The session in the value of a cookie; an empty one if the value cannot be opened or if the
/// session has expired.
fn decode(request: &mut Request, value: Option<&[u8]>, secrets: Option<&Secrets>) -> Session {
    let mut session = Session::default();
    let Some(value) = value.filter(|value| !value.is_empty()) else { return session };
    let opened = match secrets {
        Some(secrets) => secrets.open(value),
        None => Some(value.to_vec()),
    };
    let Some(text) = opened else {
        let text = "decrypt session failed, wrong passphrase?";
        request.notify(Notice::new("session_crypto", Level::Error, 1842, text));
        let text = format!(
            "error while decoding the session, session not loaded: {}",
            quoted(&request.resource.path)
        );
        request.notify(Notice::new("session", Level::Error, 1817, text));
        return session;
    };
    session.decode(&text);
    match session.expiry_us != 0 && session.expiry_us < now_us(request) {
        true => Session::default(),
        false => session,
    }
}

/// Loads the session before the handler runs, and shows it to applications (mod_session.c:
/// session_fixups).
pub(crate) async fn fix_up(pipeline: &Pipeline, request: &mut Request, plan: &Plan) {
    let session = load(pipeline, request, plan).await;
    if plan.session.env() {
        if let Some(session) = session {
            let text = session.borrow_mut().encode();
            request.resource.env.set("HTTP_SESSION", text);
        }
        request.fields_mut().remove("Session");
    }
}

/// Saves the session with a response (mod_session.c: session_output_filter).
pub(crate) fn save(request: &mut Request, plan: &Plan, response: &mut Response) {
    let Some(Loaded { session, is_first }) = load_now(request, plan) else { return };
    if is_first {
        response.fields.add(UNCACHED.0, UNCACHED.1);
    }
    let mut session = session.borrow_mut();
    if session.is_written {
        return;
    }
    if let Some(header) = plan.session.header() {
        let own = response.always.first(header).or_else(|| response.fields.first(header));
        if let Some(text) = own.map(<[u8]>::to_vec) {
            response.always.remove(header);
            response.fields.remove(header);
            session.is_dirty = true;
            session.decode(&text);
        }
    }
    write(request, plan, &mut session, response);
}

/// Puts a session into a response if it has changed or is renewed (mod_session.c: ap_session_save).
fn write(request: &mut Request, plan: &Plan, session: &mut Session, response: &mut Response) {
    let (now_us, before_us) = (now_us(request), session.expiry_us);
    if before_us != 0 && before_us < now_us {
        let text = format!(
            "attempt made to save a session when the session had already expired, session not \
             saved: {}",
            quoted(&request.resource.path)
        );
        request.notify(Notice::new("session", Level::Warn, 1819, text));
        return;
    }
    let max_age_s = plan.session.max_age_s();
    if max_age_s != 0 {
        session.max_age_s = max_age_s;
    }
    if max_age_s != 0 || (session.is_dirty && session.max_age_s != 0) {
        session.expiry_us = now_us.saturating_add(microseconds(session.max_age_s));
    }
    let interval_us = plan.session.update_interval_us();
    let is_recent = interval_us != 0 && session.expiry_us - before_us < interval_us;
    if !session.is_dirty && (is_recent || session.max_age_s == 0) {
        return;
    }
    let text = session.encode();
    let text = match plan.session_crypto.secrets().filter(|_| !text.is_empty()) {
        None => text,
        Some(secrets) => match secrets.seal(&text) {
            Ok(sealed) => sealed,
            Err(error) => {
                let text = format!(
                    "error while encoding the session, session not saved: {}",
                    quoted(&request.resource.path)
                );
                request.notify(Notice::new("session", Level::Error, 1820, text).because(&error));
                return;
            }
        },
    };
    plan.session_cookie.write(response, &text, session.max_age_s);
    session.is_written = true;
}

fn now_us(request: &Request) -> i64 {
    i64::try_from(request.time_us).unwrap_or(i64::MAX)
}

fn microseconds(seconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000)
}
