//! Makes a response from the output of a program (util_script.c:
//! `ap_scan_script_header_err_core_ex`).

use evenkeel_message::{
    Answer, Body, Level, Method, Name, Notice, Request, Response, Status, Validators, Verdict,
    evaluate, http_date, parse_http_date, quoted,
};
use evenkeel_proto::script::ScriptHead;
use evenkeel_sys::clock;

/// If this variable is set, the Content-Length of a program is used (CVE-2024-24795).
const TRUSTED_LENGTH: &str = "ap_trust_cgilike_cl";

/// The output of a program.
pub struct Output {
    /// The head.
    pub head: ScriptHead,
    /// The body.
    pub body: Body,
    /// The module that ran the program, for the error log.
    pub module: &'static str,
}

/// Makes a response from the output of a program.
///
/// # Errors
/// 500 if the output has an invalid status.
pub fn respond(request: &mut Request, output: Output) -> Result<Response, Answer> {
    let Output { head, body, module } = output;
    let mut response = Response::new(request.resource.status);
    if let Some((number, line)) = &head.status {
        let Some(status) = Status::new_final(*number) else {
            let line = line.get(..line.len().min(30)).unwrap_or_default();
            let text = format!(
                "Invalid status line from script '{}': {}",
                quoted(request.resource.file.last()),
                quoted(line)
            );
            request.notify(Notice::own(module, Level::Error, text));
            return Err(Status::INTERNAL_SERVER_ERROR.into());
        };
        response.status = status;
        // A status without a phrase gets the standard phrase.
        let line = std::str::from_utf8(line).ok().filter(|line| line.trim().contains(' '));
        response.status_line = line.map(Into::into);
    }
    response.body = body;
    response.is_own_body = true;
    response.is_whole = true;
    if let Some(media_type) = head.media_type {
        request.resource.content.media_type = Some(lower_type(media_type).into());
    }
    let modified = add_modified(request, &mut response, head.last_modified.as_deref(), module);
    let trusts_length = request.resource.env.contains(TRUSTED_LENGTH);
    for (name, value) in head.fields.iter() {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("Transfer-Encoding") || is("Content-Length") {
            continue;
        }
        response.fields.add(name, value);
    }
    if trusts_length {
        state_length(&mut response, head.fields.first("Content-Length"));
    }
    let mut always = head.always;
    for cookie in &head.cookies {
        always.add("Set-Cookie", cookie);
    }
    response.always = always;
    // The document of an error has no conditions (http_request.c: ap_die_r).
    let is_conditional = head.status.is_none()
        && request.resource.status == Status::OK
        && !request.resource.is_unconditional;
    if is_conditional && matches!(request.resource.method, Method::Get | Method::Head) {
        settle_conditions(request, &mut response, modified);
    }
    if response.status.is_bodiless() {
        response.body = Body::Empty;
    }
    Ok(response)
}

/// Converts a media type to lower case, but not its parameters.
fn lower_type(mut media_type: Vec<u8>) -> Vec<u8> {
    let end = media_type.iter().position(|byte| *byte == b';').unwrap_or(media_type.len());
    if let Some(bare) = media_type.get_mut(..end) {
        bare.make_ascii_lowercase();
    }
    media_type
}

/// Sets the length of a stream to the Content-Length of the program.
fn state_length(response: &mut Response, stated: Option<&[u8]>) {
    let stated = stated.and_then(|text| std::str::from_utf8(text).ok()?.trim().parse().ok());
    if let (Body::Stream(_, length @ None), Some(stated)) = (&mut response.body, stated) {
        *length = Some(stated);
    }
}

/// Sets Last-Modified, at most to the current time. Returns it in seconds since 1970.
fn add_modified(
    request: &mut Request,
    response: &mut Response,
    value: Option<&[u8]>,
    module: &'static str,
) -> Option<i64> {
    let value = value?;
    let now = now_seconds();
    let Some(modified) = parse_http_date(value, now) else {
        let text = format!("Ignored invalid header value: Last-Modified: '{}'", quoted(value));
        request.notify(Notice::new(module, Level::Info, 10247, text));
        return None;
    };
    let modified = modified.min(now);
    response.fields.set("Last-Modified", http_date(modified));
    Some(modified)
}

/// Evaluates the conditions of the request (RFC 9110, section 13) for a program that sets no
/// status. The response becomes 304 or 412 if they require it. A response without Last-Modified has
/// been modified just now for If-Unmodified-Since (http_protocol.c:
/// ap_condition_if_unmodified_since).
fn settle_conditions(request: &Request, response: &mut Response, modified: Option<i64>) {
    let etag = response.fields.first(Name::ETag).map(<[u8]>::to_vec);
    let validators = Validators { etag: etag.as_deref(), modified };
    let (fields, now) = (request.fields(), now_seconds());
    let is_changed = || {
        let since = fields.first(Name::IfUnmodifiedSince).and_then(|it| parse_http_date(it, now));
        since.is_some_and(|since| since < now)
    };
    let verdict = match modified {
        None if !fields.contains(Name::IfMatch) && is_changed() => Verdict::Failed,
        _ => evaluate(request.resource.method, fields, &validators, now),
    };
    response.status = match verdict {
        Verdict::Proceed => return,
        Verdict::NotModified => Status::NOT_MODIFIED,
        Verdict::Failed => Status::PRECONDITION_FAILED,
    };
    response.body = Body::Empty;
}

fn now_seconds() -> i64 {
    i64::try_from(clock::realtime_us() / 1_000_000).unwrap_or(i64::MAX)
}
