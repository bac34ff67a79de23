//! What the core says of content: SetHandler and ForceType over what mod_mime found, and the
//! fields that describe content in a response (core.c: core_override_type, ap_make_content_type).

use super::{CoreSettings, Directory, RequestContext};
use evenkeel_message::{Level, Name, Notice, Request, Response, Status, quoted};

/// Lets SetHandler and ForceType have the last word.
///
/// # Errors
/// 500 where the handler's expression cannot be evaluated: without it a program would be sent as a
/// file.
pub fn override_type(request: &mut Request, core: CoreSettings<'_>) -> Result<(), Status> {
    if let Some(Some(media_type)) = &core.directory.force_type {
        request.resource.content.media_type = Some(media_type.as_bytes().into());
    }
    let Some(Some(handler)) = &core.directory.handler else { return Ok(()) };
    let value = match handler.constant() {
        Some(name) if name.eq_ignore_ascii_case(b"none") => return Ok(()),
        Some(name) => Ok(name.to_vec()),
        None => handler.value(&RequestContext::new(request, core)),
    };
    match value {
        // The target of a proxied request must be constant, so that no client can choose it
        // (CVE-2021-40438).
        Ok(name)
            if handler.constant().is_none()
                && name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"proxy:")) =>
        {
            let text = format!(
                "SetHandler: the expression gives {}, and an expression names no target of a proxy",
                quoted(&name)
            );
            request.notify(Notice::own("core", Level::Error, text));
            Err(Status::INTERNAL_SERVER_ERROR)
        }
        // What an expression gives is a handler's name, also an empty text and "none".
        Ok(name) => {
            request.resource.content.handler = Some(name.into());
            Ok(())
        }
        Err(error) => {
            let text = format!("Can't evaluate handler expression: {error}");
            request.notify(Notice::new("core", Level::Error, 3154, text));
            Err(Status::INTERNAL_SERVER_ERROR)
        }
    }
}

/// Puts the media type into a response that does not say it.
pub fn name_type(request: &Request, response: &mut Response) {
    if !response.status.is_bodiless()
        && !response.fields.contains(Name::ContentType)
        && let Some(media_type) = &request.resource.content.media_type
    {
        response.fields.set(Name::ContentType, media_type);
    }
}

/// Puts charset, encoding and languages of the content into a response.
pub fn describe_content(request: &Request, directory: &Directory, response: &mut Response) {
    let content = &request.resource.content;
    if request.resource.notes.contains("no-etag") {
        response.fields.remove("ETag");
        response.always.remove("ETag");
    }
    if response.status.is_bodiless() {
        return;
    }
    add_charset(directory, response);
    if let Some(encoding) = &content.encoding {
        response.fields.set("Content-Encoding", encoding);
    }
    if !content.languages.is_empty() {
        response.fields.set("Content-Language", content.languages.join(&b","[..]));
    }
}

/// AddDefaultCharset: for text/plain and text/html that name no charset.
fn add_charset(directory: &Directory, response: &mut Response) {
    let Some(Some(charset)) = &directory.default_charset else { return };
    let Some(media_type) = response.fields.first(Name::ContentType) else { return };
    let lower = media_type.to_ascii_lowercase();
    let bare = lower.split(|byte| *byte == b';').next().unwrap_or_default();
    let has_charset = lower.windows(8).any(|window| window == b"charset=");
    if has_charset || !matches!(bare, b"text/plain" | b"text/html") {
        return;
    }
    let value = [media_type, b"; charset=", charset.as_bytes()].concat();
    response.fields.set("Content-Type", value);
}
