//! Applies the rules of a server, before the path is mapped to a file (mod_rewrite.c:
//! hook_uri2file).

use super::engine::{Change, Run, Surroundings};
use super::rule::Rule;
use super::uri::{is_visible, scheme};
use super::{Directory, Options, Outcome, Proxied, Server};
use crate::core::{TraceEnable, public_url};
use crate::{CoreSettings, RequestContext};
use evenkeel_expr::{Context as _, Variable as Known};
use evenkeel_message::{Answer, Fields, Level, Notice, Request, Status, quoted};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Environment variables: the path of the request before any rewriting, and the same as an absolute
/// URL.
const SCRIPT_URL: &str = "SCRIPT_URL";
const SCRIPT_URI: &str = "SCRIPT_URI";
const REDIRECT_SCRIPT_URL: &str = "REDIRECT_SCRIPT_URL";

/// Applies the rules of a server if RewriteEngine is on.
pub async fn translate(
    request: &mut Box<Request>,
    server: &Server,
    section: &Directory,
    core: CoreSettings<'_>,
    around: &dyn Surroundings,
) -> Outcome {
    let (Some(host), Some(said)) = (&server.said, &section.0) else { return Outcome::Declined };
    if !server.is_own || !said.switches.is_on() {
        return Outcome::Declined;
    }
    let is_over = request.resource.is_rewriting_over;
    let asked = request.resource.query.clone();
    let mut run = Run::new(request, around, core, server);
    if is_over {
        trace_plain!(run, 8, "Declining, no further rewriting due to END flag");
        return Outcome::Declined;
    }
    let path = &run.request.resource.path;
    if !path.starts_with(b"/") && !said.switches.options().has(Options::ANY_URI) {
        trace_plain!(
            run,
            8,
            "Declining, request-URI '{}' is not a URL-path. Consult the manual entry for the \
             RewriteOptions directive for options and caveats about matching other strings.",
            quoted(&run.request.resource.path)
        );
        return Outcome::Declined;
    }
    set_script_variables(run.request, core);
    run.filename = run.request.resource.path.to_vec();
    trace_plain!(run, 2, "init rewrite engine with requested uri {}", quoted(&run.filename));
    let (change, last) = run.apply_all(&host.rules).await;
    match change {
        Change::Nothing => {
            trace_plain!(run, 1, "pass through {}", quoted(&run.filename));
            Outcome::Declined
        }
        _ if !is_query_sound(&mut run, change, 10410) => answered(Status::FORBIDDEN),
        Change::Answered => answer(run.status, core),
        Change::Refused(status) => answered(status),
        Change::Substituted { is_raw } => substituted(&mut run, is_raw, asked.as_deref(), last),
    }
}

/// Sets SCRIPT_URL and SCRIPT_URI. A subrequest inherits SCRIPT_URL from its main request.
fn set_script_variables(request: &mut Request, core: CoreSettings<'_>) {
    let env = &request.resource.env;
    if request.resource.depth == 0 {
        let first = env.value(REDIRECT_SCRIPT_URL).map(<[u8]>::to_vec);
        let path = first.unwrap_or_else(|| request.resource.path.to_vec());
        request.resource.env.set(SCRIPT_URL, path);
    }
    let path = request.resource.env.value(SCRIPT_URL).unwrap_or_default().to_vec();
    let uri = public_url(request, core, &path);
    request.resource.env.set(SCRIPT_URI, uri);
}

/// Turns a substituted path into an outcome.
fn substituted(
    run: &mut Run<'_>,
    is_raw: bool,
    asked: Option<&[u8]>,
    last: Option<&Rule>,
) -> Outcome {
    if run.is_passed {
        return Outcome::Passed(std::mem::take(&mut run.filename));
    }
    if run.is_proxied {
        return proxied(run, is_raw);
    }
    if scheme(&run.filename).is_some() {
        return redirect(run, is_raw, asked);
    }
    local(run, last)
}

/// Maps the substituted path to a file: the path itself if [`is_file_name`] accepts it, otherwise
/// the path below DocumentRoot.
fn local(run: &mut Run<'_>, last: Option<&Rule>) -> Outcome {
    run.keep_status();
    expand_tilde(run);
    trace_plain!(run, 2, "local path result: {}", quoted(&run.filename));
    if !run.filename.starts_with(b"/") {
        return answered(Status::BAD_REQUEST);
    }
    let is_lenient = run.server.options().has(Options::UNSAFE_PREFIX_STAT);
    let is_file = is_file_name(run, last.filter(|_| !is_lenient));
    if is_file && !run.is_reduced {
        run.request.resource.file.set(b"", &run.filename);
    } else {
        if let Err(status) = run.around.map_below_root(run.request, &run.filename) {
            let filename = quoted(&run.filename);
            trace_plain!(run, 1, "prefixing with document_root of {filename} FAILED");
            return answered(status);
        }
        run.filename = run.request.resource.file.as_bytes().to_vec();
        trace_plain!(run, 2, "prefixed with document_root to {}", quoted(&run.filename));
    }
    trace_plain!(run, 1, "go-ahead with {} [OK]", quoted(&run.filename));
    Outcome::Mapped
}

/// Replaces `/~user` with the home directory of the user.
fn expand_tilde(run: &mut Run<'_>) {
    let Some(rest) = run.filename.strip_prefix(b"/~") else { return };
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (user, path) = rest.split_at_checked(end).unwrap_or((rest, b""));
    let Ok(name) = std::str::from_utf8(user) else { return };
    if name.is_empty() {
        return;
    }
    let Ok(Some(user)) = evenkeel_sys::identity::user_named(name) else { return };
    let home = user.home.as_bytes();
    let home = if path.is_empty() { home } else { home.strip_suffix(b"/").unwrap_or(home) };
    run.filename = [home, path].concat();
}

/// Whether the path is a file name: its first segment exists, and the substitution of the last rule
/// begins with it or the path begins with DocumentRoot (mod_rewrite.c: prefix_stat). A client thus
/// cannot choose a file outside of DocumentRoot (CVE-2024-38475).
fn is_file_name(run: &mut Run<'_>, last: Option<&Rule>) -> bool {
    let path = run.filename.clone();
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    let rest = path.get(slashes..).unwrap_or_default();
    let first = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
    let first = match first {
        b".." => return false,
        b"." => b"/".to_vec(),
        name => [b"/", name].concat(),
    };
    if std::fs::metadata(Path::new(OsStr::from_bytes(&first))).is_err() {
        return false;
    }
    let Some(last) = last else {
        trace_plain!(run, 3, "prefix_stat no lastsub subst prefix {}", quoted(&first));
        return true;
    };
    let is_lenient = last.flags.prefix_stat;
    trace_plain!(
        run,
        3,
        "prefix_stat compare statpath {} and lastsub output {} STATOK {} ",
        quoted(&first),
        quoted(&last.written),
        // The bit of the flag (RULEFLAG_UNSAFE_PREFIX_STAT).
        u32::from(is_lenient) << 22
    );
    if is_lenient || begins_with(run, &last.written, &first) {
        return true;
    }
    let root = variable(run, Known::DocumentRoot);
    let context_root = variable(run, Known::ContextDocumentRoot);
    begins_with(run, &path, &root)
        || (root != context_root && begins_with(run, &path, &context_root))
}

fn variable(run: &Run<'_>, variable: Known) -> Vec<u8> {
    RequestContext::new(run.request, run.core).variable(variable).into_owned()
}

fn begins_with(run: &mut Run<'_>, text: &[u8], prefix: &[u8]) -> bool {
    let begins = text.starts_with(prefix);
    trace_plain!(
        run,
        5,
        "prefix_stat startsWith({}, {}) {}",
        quoted(text),
        quoted(prefix),
        u8::from(begins)
    );
    begins
}

/// Whether the rewritten query is valid. A space or control character in it means that a rule did
/// not escape it (CVE-2023-25690). The query of a redirect is not checked, because it is escaped
/// later, unless the rule has the flag NE.
pub(super) fn is_query_sound(run: &mut Run<'_>, change: Change, number: u16) -> bool {
    let is_raw = change == Change::Substituted { is_raw: true };
    let is_escaped = scheme(&run.filename).is_some() && !run.is_passed && !run.is_proxied;
    let query = run.request.resource.query.as_deref().unwrap_or_default();
    if is_escaped && !is_raw || query.iter().all(|byte| is_visible(*byte)) {
        return true;
    }
    let text = "Rewritten query string contains control characters or spaces";
    run.request.notify(Notice::new("rewrite", Level::Error, number, text));
    false
}

/// Returns the URI for a proxy. `pipeline` passes the request on.
pub(super) fn proxied(run: &mut Run<'_>, is_raw: bool) -> Outcome {
    let mut uri = std::mem::take(&mut run.filename);
    if run.base.is_none() {
        uri.extend_from_slice(&run.request.resource.path_info);
    }
    if let Some(query) = run.request.resource.query.as_ref().filter(|_| is_raw) {
        uri.push(b'?');
        uri.extend_from_slice(query);
    }
    let origin = std::mem::take(&mut run.proxy_origin);
    Outcome::Proxied(Proxied { uri, origin, is_raw })
}

/// Returns a redirect to the rewritten URI.
pub(super) fn redirect(run: &mut Run<'_>, is_raw: bool, asked: Option<&[u8]>) -> Outcome {
    let target = run.redirect_target(is_raw, asked);
    let status = Status::new(run.status).filter(|status| status.is_redirect());
    let status = status.unwrap_or(Status::FOUND);
    trace!(run, 1, "redirect to {} [REDIRECT/{}]", quoted(&target), status.code());
    let mut fields = Fields::new();
    fields.set("Location", target);
    Outcome::Answered(Answer::with_fields(status, fields))
}

pub(super) fn answered(status: Status) -> Outcome {
    Outcome::Answered(status.into())
}

/// Returns a response with the status of a rule. For 405 and 501 the Allow field lists only TRACE,
/// because no handler has declared its methods (http_protocol.c: make_allow).
pub(super) fn answer(status: u16, core: CoreSettings<'_>) -> Outcome {
    let status = Status::new(status).unwrap_or(Status::INTERNAL_SERVER_ERROR);
    if !matches!(status, Status::METHOD_NOT_ALLOWED | Status::NOT_IMPLEMENTED) {
        return answered(status);
    }
    let is_traced = core.server.conduct.trace_enable != Some(TraceEnable::Off);
    let mut fields = Fields::new();
    fields.set("Allow", if is_traced { "TRACE" } else { "" });
    Outcome::Answered(Answer::with_fields(status, fields))
}
