//! Writes the head of a response and the framing of its body to a buffer, in Apache's order of the
//! lines (http_filters.c, `ap_http_header_filter`). It sends nothing.

use crate::state::Persistence;
use evenkeel_message::{Body, Fields, Name, Response, Status, Version, trim};
use memchr::memchr2;
use std::io::Write as _;

/// The interim response that asks for the body (RFC 9110, section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How the client finds the end of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body and no field about its length.
    Nothing,
    /// By Content-Length. For HEAD it is the length of the body that GET would send.
    Exact(u64),
    /// By Transfer-Encoding: chunked.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// Chooses how a client of that version finds the end of the body.
#[must_use]
pub fn body_framing(response: &Response, version: Version, is_head: bool) -> BodyFraming {
    if response.status.is_bodiless() {
        return BodyFraming::Nothing;
    }
    match (response.body.length(), version) {
        // A handler need not make the body for HEAD: if the response states a length, that is used,
        // and for an empty body none is stated, as in Apache (HttpContentLengthHeadZero Off).
        (Some(0), _) if is_head => {
            stated_length(response).map_or(BodyFraming::Nothing, BodyFraming::Exact)
        }
        (Some(length), _) => BodyFraming::Exact(length),
        (None, _) if is_head => BodyFraming::Nothing,
        (None, Version::Http11 | Version::Http2) => BodyFraming::Chunked,
        (None, _) => BodyFraming::UntilClose,
    }
}

fn stated_length(response: &Response) -> Option<u64> {
    if !matches!(response.body, Body::Empty) {
        return None;
    }
    let text = response.fields.first(Name::ContentLength)?;
    std::str::from_utf8(trim(text)).ok()?.parse().ok().filter(|length| *length > 0)
}

/// What the head of a response contains besides the response's own fields.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The date; see [`crate::http_date`].
    pub date: &'a [u8; 29],
    /// The value of the Server field; empty for none.
    pub server: &'a [u8],
    /// How the client finds the end of the body.
    pub transfer: BodyFraming,
    /// What the head says about the connection.
    pub persistence: Persistence,
    /// Whether the status line says HTTP/1.0, for a client that misunderstands 1.1
    /// (`force-response-1.0`).
    pub http10: bool,
    /// Whether Date and Server of the response are kept, because another server made it.
    pub proxied: bool,
}

/// The place of a field in the order of the lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// Among the other fields, in their order.
    Middle,
    /// Date or Server: written first.
    Origin,
    /// Written by this module: framing and Keep-Alive.
    Ours,
    /// Written by this module, unless the response has its own.
    Length,
    Connection,
    /// After all others: type, encoding and language of the content, in that order.
    Content(usize),
}

fn rank(name: Name) -> Rank {
    match name {
        Name::Date | Name::Server => Rank::Origin,
        Name::Connection => Rank::Connection,
        Name::KeepAlive | Name::TransferEncoding => Rank::Ours,
        Name::ContentType => Rank::Content(0),
        Name::ContentLength => Rank::Length,
        Name::ContentEncoding => Rank::Content(1),
        Name::ContentLanguage => Rank::Content(2),
        _ => Rank::Middle,
    }
}

/// Appends the head: status line, Date, Server, the response's fields, framing, Keep-Alive and
/// Connection, and the type of the content. A field that contains a line end is left out, so that
/// no value can split the response.
pub fn encode_head(out: &mut Vec<u8>, response: &Response, head: &Head<'_>) {
    out.extend_from_slice(if head.http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    write_status(out, response);
    write_origin(out, response, head);
    let has_content = !response.status.is_bodiless();
    let mut length = match head.transfer {
        BodyFraming::Exact(length) => Some(length),
        _ => None,
    };
    let (mut content, mut connection) = ([None; 3], false);
    for fields in [&response.always, &response.fields] {
        for (name, line) in fields.lines() {
            match rank(name) {
                Rank::Middle => out.extend_from_slice(line),
                Rank::Length => write_length(out, length.take()),
                Rank::Connection => connection = true,
                Rank::Content(rank) if has_content => {
                    if let Some(slot) = content.get_mut(rank) {
                        *slot = Some(line);
                    }
                }
                Rank::Origin | Rank::Ours | Rank::Content(_) => {}
            }
        }
    }
    write_length(out, length);
    let others = if connection { connection_values(response) } else { Vec::new() };
    write_connection(out, &others, head.persistence);
    if head.transfer == BodyFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    for line in content.into_iter().flatten() {
        out.extend_from_slice(line);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the status with its phrase, or the response's own line if it is for that status.
fn write_status(out: &mut Vec<u8>, response: &Response) {
    let status = response.status;
    let start = out.len();
    write_decimal(out, u64::from(status.code()));
    let own = response.status_line.as_deref().map(str::as_bytes).filter(|line| {
        let code = out.get(start..).unwrap_or_default();
        line.strip_prefix(code).is_some_and(|rest| matches!(rest, [] | [b' ', ..]))
            && !line.iter().any(u8::is_ascii_control)
    });
    match (own, status.reason()) {
        (Some(line), _) => out.extend_from_slice(line.get(3..).unwrap_or_default()),
        (None, Some(reason)) => {
            out.push(b' ');
            out.extend_from_slice(reason.as_bytes());
        }
        (None, None) => {
            out.truncate(start);
            out.extend_from_slice(Status::line(status).as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_origin(out: &mut Vec<u8>, response: &Response, head: &Head<'_>) {
    let own = |name: &str| if head.proxied { response.fields.first(name) } else { None };
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(own("Date").unwrap_or(head.date));
    out.extend_from_slice(b"\r\n");
    let server = own("Server").unwrap_or(head.server);
    if !server.is_empty() {
        out.extend_from_slice(b"Server: ");
        out.extend_from_slice(server);
        out.extend_from_slice(b"\r\n");
    }
}

/// The options that modules add to Connection, such as `Upgrade`.
fn connection_values(response: &Response) -> Vec<u8> {
    let mut values = Vec::new();
    for fields in [&response.always, &response.fields] {
        for token in fields.tokens(b"Connection") {
            let ours = token.eq_ignore_ascii_case(b"close")
                || token.eq_ignore_ascii_case(b"keep-alive")
                || memchr2(b'\r', b'\n', token).is_some();
            if !ours {
                values.extend_from_slice(token);
                values.extend_from_slice(b", ");
            }
        }
    }
    values
}

/// Writes Keep-Alive and Connection. `others` are options, each followed by a comma and a space.
fn write_connection(out: &mut Vec<u8>, others: &[u8], persistence: Persistence) {
    let option: &[u8] = match persistence {
        Persistence::Close => b"close",
        Persistence::Keep => b"",
        Persistence::KeepTold { timeout_s, max } => {
            out.extend_from_slice(b"Keep-Alive: timeout=");
            write_decimal(out, timeout_s);
            if let Some(max) = max {
                out.extend_from_slice(b", max=");
                write_decimal(out, u64::from(max));
            }
            out.extend_from_slice(b"\r\n");
            b"Keep-Alive"
        }
    };
    let others =
        if option.is_empty() { others.strip_suffix(b", ").unwrap_or(others) } else { others };
    if option.is_empty() && others.is_empty() {
        return;
    }
    out.extend_from_slice(b"Connection: ");
    out.extend_from_slice(others);
    out.extend_from_slice(option);
    out.extend_from_slice(b"\r\n");
}

fn write_length(out: &mut Vec<u8>, length: Option<u64>) {
    if let Some(length) = length {
        out.extend_from_slice(b"Content-Length: ");
        write_decimal(out, length);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the line before a chunk of `length` bytes. The caller appends the data and a line end.
/// `length` must not be 0, because an empty chunk ends the body.
pub fn encode_chunk(out: &mut Vec<u8>, length: usize) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{length:x}\r\n");
}

/// Appends the end of a chunked body, with trailer fields.
pub fn encode_end(out: &mut Vec<u8>, trailers: &Fields) {
    out.extend_from_slice(b"0\r\n");
    for (_, line) in trailers.lines() {
        out.extend_from_slice(line);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn encoded(response: &Response, transfer: BodyFraming, persistence: Persistence) -> String {
        let mut out = Vec::new();
        let head = Head {
            date: DATE,
            server: b"Apache",
            transfer,
            persistence,
            http10: persistence == Persistence::Close && response.close,
            proxied: false,
        };
        encode_head(&mut out, response, &head);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_stand_in_apaches_order() {
        let mut response = Response::new(Status::OK);
        response.fields.add("Content-Type", "text/html");
        response.fields.add("Content-Language", "en");
        response.fields.add("ETag", "\"6\"");
        response.fields.add("Content-Length", "9");
        response.fields.add("X-Late", "2");
        response.fields.add("Server", "other");
        response.always.add("X-Always", "1");
        let told = Persistence::KeepTold { timeout_s: 5, max: Some(100) };
        assert_eq!(
            encoded(&response, BodyFraming::Exact(6), told),
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: Apache\r\n\
             X-Always: 1\r\nETag: \"6\"\r\nContent-Length: 6\r\nX-Late: 2\r\n\
             Keep-Alive: timeout=5, max=100\r\nConnection: Keep-Alive\r\n\
             Content-Type: text/html\r\nContent-Language: en\r\n\r\n"
        );
        let chunked = encoded(&response, BodyFraming::Chunked, Persistence::Close);
        assert!(chunked.contains(
            "X-Late: 2\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nContent-Type"
        ));
    }

    #[test]
    fn a_response_without_content_says_nothing_of_it() {
        let mut response = Response::new(Status::NOT_MODIFIED);
        response.fields.add("Content-Type", "text/html");
        response.fields.add("Content-Length", "9");
        response.fields.add("ETag", "\"6\"");
        let transfer = body_framing(&response, Version::Http11, false);
        let text = encoded(&response, transfer, Persistence::Keep);
        assert!(text.ends_with("Server: Apache\r\nETag: \"6\"\r\n\r\n"), "{text}");
    }

    #[test]
    fn no_value_splits_the_response() {
        let mut response = Response::new(Status::OK);
        response.fields.add("A", "b\r\nX: y");
        response.fields.add("Connection", "Upgrade, x\ny");
        response.status_line = Some("200 OK\r\nX: y".into());
        let text = encoded(&response, BodyFraming::Exact(0), Persistence::Close);
        assert!(!text.contains("X: y") && text.starts_with("HTTP/1.1 200 OK\r\nDate"), "{text}");
    }

    #[test]
    fn status_lines_and_connection_options() {
        let mut response = Response::new(Status::new(299).unwrap());
        response.fields.add("Connection", "Upgrade, close");
        let text = encoded(&response, BodyFraming::Exact(0), Persistence::Keep);
        assert!(text.starts_with("HTTP/1.1 299 Status 299\r\n"), "{text}");
        assert!(text.contains("\r\nConnection: Upgrade\r\n"), "{text}");
        response.status_line = Some("299 Foo".into());
        let text = encoded(&response, BodyFraming::Exact(0), Persistence::Close);
        assert!(text.starts_with("HTTP/1.1 299 Foo\r\n"), "{text}");
        assert!(text.contains("\r\nConnection: Upgrade, close\r\n"), "{text}");
        response.close = true;
        response.status_line = Some("404 Foo".into());
        let text = encoded(&response, BodyFraming::Exact(0), Persistence::Close);
        assert!(text.starts_with("HTTP/1.0 299 Status 299\r\n"), "{text}");
    }

    #[test]
    fn the_end_of_the_body_is_told_as_the_client_understands_it() {
        let mut response = Response::new(Status::OK);
        assert_eq!(body_framing(&response, Version::Http10, false), BodyFraming::Exact(0));
        assert_eq!(body_framing(&response, Version::Http11, true), BodyFraming::Nothing);
        response.fields.set("Content-Length", "7");
        assert_eq!(body_framing(&response, Version::Http11, true), BodyFraming::Exact(7));
        response.body = Body::Stream(Box::pin(Never), None);
        assert_eq!(body_framing(&response, Version::Http11, false), BodyFraming::Chunked);
        assert_eq!(body_framing(&response, Version::Http11, true), BodyFraming::Nothing);
        assert_eq!(body_framing(&response, Version::Http10, false), BodyFraming::UntilClose);
        response.status = Status::NO_CONTENT;
        assert_eq!(body_framing(&response, Version::Http11, false), BodyFraming::Nothing);
    }

    #[test]
    fn chunks_are_framed() {
        let mut out = Vec::new();
        encode_chunk(&mut out, 31);
        let mut trailers = Fields::new();
        trailers.add("A", "b");
        encode_end(&mut out, &trailers);
        assert_eq!(out, b"1f\r\n0\r\nA: b\r\n\r\n");
    }

    struct Never;

    impl evenkeel_message::Source for Never {
        fn poll_chunk(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<evenkeel_message::Chunk> {
            std::task::Poll::Ready(None)
        }
    }
}
