//! The fields of a response in HTTP/2: those of HTTP/1.1 without connection-specific fields (RFC
//! 9113, section 8.2.2).

use super::hpack::{Encoder, FieldMemo};
use crate::line::is_token;
use evenkeel_message::{Fields, Name, Response, trim};
use memchr::memchr;
use std::cell::RefCell;

/// What the head of a response contains besides the response's own fields.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    /// The date; see [`crate::http_date`].
    pub date: &'a [u8; 29],
    /// The value of the Server field; empty for none.
    pub server: &'a [u8],
    /// The length of the body, if it is known.
    pub length: Option<u64>,
    /// Whether Date and Server of the response are kept, because another server made it.
    pub proxied: bool,
    /// What the thread has encoded before, if it keeps that.
    pub memo: Option<&'a RefCell<FieldMemo>>,
}

/// Appends the status and the fields of a response. A field that contains a line end is left out,
/// because an intermediary that translates it to HTTP/1 would make several fields of it.
pub fn encode_response(encoder: &mut Encoder<'_>, response: &Response, frames: &Frames<'_>) {
    encoder.status(response.status);
    let own = |name: Name| if frames.proxied { response.fields.first(name) } else { None };
    encoder.field(Name::Date, b"date", own(Name::Date).unwrap_or(frames.date));
    let server = own(Name::Server).unwrap_or(frames.server);
    if !server.is_empty() {
        encoder.field(Name::Server, b"server", server);
    }
    if let Some(length) = frames.length {
        let mut text = itoa::Buffer::new();
        encoder.field(Name::ContentLength, b"content-length", text.format(length).as_bytes());
    }
    let has_content = !response.status.is_bodiless();
    for fields in [&response.always, &response.fields] {
        encode(encoder, fields, |known| match known {
            Name::Date | Name::Server | Name::ContentLength => false,
            Name::ContentType | Name::ContentEncoding | Name::ContentLanguage => has_content,
            _ => true,
        });
    }
}

/// Appends the fields of an interim response or of trailers.
pub fn encode_fields(encoder: &mut Encoder<'_>, fields: &Fields) {
    encode(encoder, fields, |_| true);
}

fn encode(encoder: &mut Encoder<'_>, fields: &Fields, is_wanted: impl Fn(Name) -> bool) {
    for (known, line) in fields.lines() {
        if is_of_connection(known) || !is_wanted(known) {
            continue;
        }
        let Some((name, value)) = memchr(b':', line).and_then(|at| line.split_at_checked(at))
        else {
            continue;
        };
        // `Fields::lines` leaves in names that are not tokens, which HTTP/1 tolerates.
        if known != Name::Other || name.iter().all(|byte| is_token(*byte)) {
            let value = value.get(2..value.len().saturating_sub(2)).unwrap_or_default();
            encoder.field(known, name, trim(value));
        }
    }
}

fn is_of_connection(name: Name) -> bool {
    matches!(
        name,
        Name::Connection
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::TransferEncoding
            | Name::Upgrade
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::Decoder;
    use evenkeel_message::Status;

    #[test]
    fn fields_of_the_connection_and_broken_ones_are_left_out() {
        let mut response = Response::new(Status::OK);
        for (name, value) in [
            ("Connection", "Upgrade"),
            ("Upgrade", "h2c"),
            ("X-Split", "a\r\nSet-Cookie: b"),
            ("X(y)", "1"),
            ("Content-Type", "text/html"),
            ("X-Own", "  a b "),
            ("Date", "never"),
            ("Content-Length", "7"),
        ] {
            response.fields.add(name, value);
        }
        response.always.add("Set-Cookie", "a");
        let date = crate::http_date(0);
        let frames =
            Frames { date: &date, server: b"Apache", length: Some(3), proxied: false, memo: None };
        let mut out = Vec::new();
        encode_response(&mut Encoder::new(&mut out), &response, &frames);
        let mut text = String::new();
        let decoded = Decoder::new().decode(&out, |name, value| {
            let line = [name, b": ", value, b"\n"].concat();
            text.push_str(std::str::from_utf8(&line).unwrap());
            true
        });
        assert_eq!(decoded, Ok(()));
        assert_eq!(
            text,
            ":status: 200\ndate: Thu, 01 Jan 1970 00:00:00 GMT\nserver: Apache\n\
             content-length: 3\nset-cookie: a\ncontent-type: text/html\nx-own: a b\n"
        );
    }
}
