//! Makes a response from the head and the body that a worker has sent. Unlike the fields of other
//! programs, those of PHP are ordinary fields of the response, which mod_headers can change
//! (sapi_apache2.c: `php_apache_sapi_header_handler`).

use evenkeel_message::{
    Answer, Body, Chunk, Level, Notice, Request, Response, Source, Status, quoted,
};
use evenkeel_proto::script::ScriptHead;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Makes the response.
///
/// # Errors
/// 500 if the script has set a status that is none.
pub fn respond(request: &mut Request, head: ScriptHead, body: Body) -> Result<Response, Answer> {
    let (number, line) = head.status.unwrap_or((200, b"200".to_vec()));
    let Some(status) = Status::new_final(number) else {
        let text = format!(
            "Invalid status line from script '{}': {}",
            quoted(request.resource.file.last()),
            quoted(line.get(..line.len().min(30)).unwrap_or_default())
        );
        request.notify(Notice::own("php", Level::Error, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    let mut response = Response::new(status);
    // A status without a phrase gets the standard phrase.
    let line = std::str::from_utf8(&line).ok().filter(|line| line.trim().contains(' '));
    response.status_line = line.map(Into::into);
    response.body = body;
    response.is_own_body = true;
    response.is_whole = true;
    if let Some(media_type) = head.media_type {
        request.resource.content.media_type = Some(media_type.into());
    }
    for (name, value) in head.fields.iter() {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("Content-Length") {
            state_length(request, &mut response, value);
        } else if !is("Transfer-Encoding") {
            response.fields.add(name, value);
        }
    }
    if response.status.is_bodiless() {
        response.body = Body::Empty;
    }
    Ok(response)
}

/// Sets the length that the script has stated, where the length of the body is not known, and
/// where only the head is wanted.
fn state_length(request: &Request, response: &mut Response, stated: &[u8]) {
    let stated = std::str::from_utf8(stated).ok().and_then(|text| text.trim().parse().ok());
    let Some(stated) = stated else { return };
    match &mut response.body {
        Body::Stream(_, length @ None) => *length = Some(stated),
        body if request.is_head() => *body = Body::Stream(Box::pin(Nothing), Some(stated)),
        _ => {}
    }
}

/// The body of a response to HEAD.
struct Nothing;

impl Source for Nothing {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        Poll::Ready(None)
    }
}
