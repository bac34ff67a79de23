//! The range filter: a whole response comes in, the part of it that the request asked for goes
//! out (byterange_filter.c). It is the last to look at a body whose length is known, whatever
//! handler made it; a body that is a stream is never cut.

use super::directory::Directory;
use evenkeel_message::{
    Answer, Body, Fields, Method, Name, Part, Piece, RangeLimits, Ranges, Request, Response,
    Status, Validators, parse_http_date, parse_ranges, range_holds,
};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

/// Applies MaxRanges and the Range field of a GET to a response.
///
/// # Errors
/// 416 where nothing that was asked for exists, with the length that there is (RFC 9110, section
/// 15.5.17; Apache leaves the field out).
pub fn cut_to_ranges(
    request: &Request,
    response: Response,
    settings: &Directory,
) -> Result<Response, Answer> {
    // RFC 9110, section 14.2: ranges are defined for GET alone.
    if request.resource.method != Method::Get || response.status != Status::OK {
        return Ok(response);
    }
    let Some(range) = request.fields().joined(Name::Range) else { return Ok(response) };
    if request.resource.status != Status::OK || response.fields.contains("Content-Range") {
        return Ok(response);
    }
    let pieces = match &response.body {
        Body::Bytes(bytes) => vec![Piece::Bytes(bytes.clone())],
        Body::File(piece) => vec![piece.clone()],
        Body::Pieces(pieces) => pieces.clone(),
        Body::Empty | Body::Stream(..) => return Ok(response),
    };
    let now = i64::try_from(request.time_us / 1_000_000).unwrap_or(i64::MAX);
    if !range_holds(request.fields(), &validators(&response.fields, now), now) {
        return Ok(response);
    }
    let length = pieces.iter().map(Piece::len).sum();
    match parse_ranges(&range, length, &limits(settings)) {
        Ranges::Whole => Ok(response),
        Ranges::Unsatisfiable => {
            let mut fields = Fields::new();
            fields.add("Content-Range", format!("bytes */{length}"));
            Err(Answer::with_fields(Status::RANGE_NOT_SATISFIABLE, fields))
        }
        Ranges::Parts(parts) => Ok(partial(response, &pieces, length, &parts)),
    }
}

/// The validators that the response tells.
fn validators(fields: &Fields, now: i64) -> Validators<'_> {
    let modified = fields.first(Name::LastModified).and_then(|date| parse_http_date(date, now));
    Validators { etag: fields.first(Name::ETag), modified }
}

fn limits(settings: &Directory) -> RangeLimits {
    let defaults = RangeLimits::default();
    RangeLimits {
        ranges: settings.max_ranges.unwrap_or(defaults.ranges),
        overlaps: settings.max_range_overlaps.unwrap_or(defaults.overlaps),
        reversals: settings.max_range_reversals.unwrap_or(defaults.reversals),
    }
}

/// The 206 with one part, or several with a head each.
fn partial(mut response: Response, pieces: &[Piece], length: u64, parts: &[Part]) -> Response {
    response.status = Status::PARTIAL_CONTENT;
    if let [part] = parts {
        response.fields.set("Content-Range", content_range(*part, length));
        response.body = match slice(pieces, *part).as_slice() {
            [Piece::Bytes(bytes)] => Body::Bytes(bytes.clone()),
            [piece] => Body::File(piece.clone()),
            several => Body::Pieces(several.to_vec()),
        };
        return response;
    }
    let boundary = boundary();
    let media_type = response.fields.first("Content-Type").map(<[u8]>::to_vec);
    let mut body = Vec::with_capacity(2 * parts.len() + 1);
    for part in parts {
        let mut head = format!("\r\n--{boundary}\r\n").into_bytes();
        if let Some(media_type) = &media_type {
            head.extend_from_slice(b"Content-type: ");
            head.extend_from_slice(media_type);
            head.extend_from_slice(b"\r\n");
        }
        let range = content_range(*part, length);
        head.extend_from_slice(format!("Content-range: {range}\r\n\r\n").as_bytes());
        body.push(Piece::Bytes(head.into()));
        body.extend(slice(pieces, *part));
    }
    body.push(Piece::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes().into()));
    response.body = Body::Pieces(body);
    let media_type = format!("multipart/byteranges; boundary={boundary}");
    response.fields.set("Content-Type", media_type);
    response
}

fn content_range(part: Part, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end)
}

/// The bytes of one part, out of all pieces of the body.
fn slice(pieces: &[Piece], part: Part) -> Vec<Piece> {
    let mut cut = Vec::with_capacity(1);
    let (mut at, mut left) = (part.start, part.length());
    for piece in pieces {
        if at >= piece.len() {
            at -= piece.len();
            continue;
        }
        let taken = piece.slice(at, left);
        (at, left) = (0, left.saturating_sub(taken.len()));
        cut.push(taken);
        if left == 0 {
            break;
        }
    }
    cut
}

/// The line between parts: chosen by chance when the process starts, so that no content can have
/// been made to hold it.
fn boundary() -> &'static str {
    static BOUNDARY: OnceLock<String> = OnceLock::new();
    BOUNDARY.get_or_init(|| format!("{:x}", RandomState::new().hash_one(std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead};

    fn cut(method: Method, fields: &[(&str, &str)], body: Body) -> Result<(u16, String), Fields> {
        let mut head = RequestHead { method, ..RequestHead::default() };
        for (name, value) in fields {
            head.fields.add(name, value);
        }
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let request = Request::new(head, peer, 1_800_000_000_000_000);
        let mut response = Response::new(Status::OK);
        response.fields.add("ETag", "\"a\"");
        response.fields.add("Content-Type", "text/plain");
        response.body = body;
        match cut_to_ranges(&request, response, &Directory::default()) {
            Ok(mut response) => {
                let mut text = Vec::new();
                response.fields.write(&mut text);
                let pieces = match std::mem::take(&mut response.body) {
                    Body::Bytes(bytes) => vec![Piece::Bytes(bytes)],
                    Body::Pieces(pieces) => pieces,
                    other => panic!("{other:?}"),
                };
                for piece in pieces {
                    let Piece::Bytes(bytes) = piece else { panic!("a file") };
                    text.extend_from_slice(&bytes);
                }
                Ok((response.status.code(), String::from_utf8(text).unwrap()))
            }
            Err(Answer::Status(Status::RANGE_NOT_SATISFIABLE, Some(fields))) => Err(*fields),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn digits() -> Body {
        Body::from(b"0123456789".to_vec())
    }

    #[test]
    fn one_range_is_cut_out() {
        let (status, text) = cut(Method::Get, &[("Range", "bytes=2-4")], digits()).unwrap();
        let expected = "ETag: \"a\"\r\nContent-Type: text/plain\r\n\
                        Content-Range: bytes 2-4/10\r\n234";
        assert_eq!((status, &*text), (206, expected));
        let missing = cut(Method::Get, &[("Range", "bytes=10-")], digits()).unwrap_err();
        assert_eq!(missing.first("Content-Range"), Some(&b"bytes */10"[..]));
    }

    #[test]
    fn several_ranges_are_parts_between_lines() {
        let (status, text) = cut(Method::Get, &[("Range", "bytes=0-1,-2")], digits()).unwrap();
        let line = boundary();
        let expected = format!(
            "ETag: \"a\"\r\nContent-Type: multipart/byteranges; boundary={line}\r\n\
             \r\n--{line}\r\nContent-type: text/plain\r\nContent-range: bytes 0-1/10\r\n\r\n01\
             \r\n--{line}\r\nContent-type: text/plain\r\nContent-range: bytes 8-9/10\r\n\r\n89\
             \r\n--{line}--\r\n"
        );
        assert_eq!((status, text), (206, expected));
    }

    #[test]
    fn ranges_reach_over_the_pieces_of_a_body() {
        let piece = |text: &'static str| Piece::Bytes(text.into());
        let body = Body::Pieces(vec![piece("012"), piece("345"), piece("6789")]);
        let (_, text) = cut(Method::Get, &[("Range", "bytes=2-6")], body).unwrap();
        assert!(text.ends_with("\r\n23456"));
    }

    #[test]
    fn other_methods_and_other_bytes_get_all() {
        for (method, fields) in [
            (Method::Post, &[("Range", "bytes=0-1")][..]),
            (Method::Get, &[("Range", "bytes=0-1"), ("If-Range", "\"b\"")]),
            (Method::Get, &[("Range", "bytes=0-1"), ("Range", "bytes=3-4")]),
            (Method::Get, &[]),
        ] {
            assert_eq!(cut(method, fields, digits()).unwrap().0, 200);
        }
        let same = [("Range", "bytes=0-1"), ("If-Range", "\"a\"")];
        assert_eq!(cut(Method::Get, &same, digits()).unwrap().0, 206);
    }
}
