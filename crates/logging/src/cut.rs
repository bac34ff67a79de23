//! Shortens a line that is too long for its log: cuts the longest items that a client or a handler
//! chose, so that every field of the format stays and the line can still be parsed. Only lines that
//! are too long come here.

use crate::LoggedExchange;
use crate::format::{Item, LineFormat};
use std::ops::Range;

/// The longest end of a request line, ` HTTP/1.1`, that is kept when its middle is cut.
const PROTOCOL_BYTES: usize = 12;

impl LineFormat {
    /// Appends the line of an exchange, with its line end, in at most `most` bytes. The longest
    /// item is shortened first, then the next. Text of the format itself is only cut if it alone is
    /// too long.
    pub fn write_within(&self, exchange: &LoggedExchange<'_>, most: usize, out: &mut Vec<u8>) {
        let start = out.len();
        self.write(exchange, out);
        if out.len() - start > most {
            out.truncate(start);
            self.write_shortened(exchange, most, out);
        }
    }

    fn write_shortened(&self, exchange: &LoggedExchange<'_>, most: usize, out: &mut Vec<u8>) {
        let mut line = Vec::new();
        let mut parts = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let start = line.len();
            segment.write(exchange, &mut line);
            parts.push(Part::new(&segment.item, start..line.len(), &line));
        }
        let mut excess = line.len().saturating_sub(most);
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(parts.get(*index).map_or(0, Part::spare)));
        for index in order {
            if let Some(part) = parts.get_mut(index).filter(|_| excess > 0) {
                excess = excess.saturating_sub(part.shorten(excess, &line));
            }
        }
        let start = out.len();
        for part in &parts {
            out.extend_from_slice(line.get(part.kept.clone()).unwrap_or_default());
            out.extend_from_slice(line.get(part.tail.clone()).unwrap_or_default());
        }
        if excess > 0 {
            out.truncate((start + most).saturating_sub(1));
            out.push(b'\n');
        }
    }
}

/// One item of the line that is too long.
struct Part {
    /// What remains of its beginning.
    kept: Range<usize>,
    /// What remains of its end.
    tail: Range<usize>,
    /// Whether `kept` may be shortened.
    is_free: bool,
}

impl Part {
    fn new(item: &Item, whole: Range<usize>, line: &[u8]) -> Part {
        let text = line.get(whole.clone()).unwrap_or_default();
        let tail = match item {
            // Programs that read logs expect the protocol after the target.
            Item::RequestLine => text.iter().rposition(|byte| *byte == b' '),
            _ => None,
        };
        let tail = tail.filter(|at| text.len() - at <= PROTOCOL_BYTES);
        let end = tail.map_or(whole.end, |at| whole.start + at);
        Part { kept: whole.start..end, tail: end..whole.end, is_free: is_free(item) }
    }

    /// How many bytes can be removed.
    fn spare(&self) -> usize {
        if self.is_free { self.kept.len().saturating_sub(1) } else { 0 }
    }

    /// Removes `excess` bytes, or as many as there are, and returns their number. The first byte
    /// stays, so that no field becomes empty, and no escape is cut in half.
    fn shorten(&mut self, excess: usize, line: &[u8]) -> usize {
        if self.spare() == 0 {
            return 0;
        }
        let before = self.kept.len();
        let wanted = before.saturating_sub(excess).max(1);
        let text = line.get(self.kept.clone()).unwrap_or_default();
        self.kept.end = self.kept.start + whole_escapes(text, wanted);
        before - self.kept.len()
    }
}

/// The end of the last byte or escape that ends within `most`. The first one is kept whole.
fn whole_escapes(text: &[u8], most: usize) -> usize {
    let mut end = 0;
    while let Some(byte) = text.get(end) {
        let length = match (byte, text.get(end + 1)) {
            (b'\\', Some(b'x')) => 4,
            (b'\\', Some(_)) => 2,
            _ => 1,
        };
        if end > 0 && end + length > most {
            break;
        }
        end += length;
    }
    end.min(text.len())
}

/// Whether a client, a handler or the author of a file name determines the item's length.
fn is_free(item: &Item) -> bool {
    match item {
        Item::RemoteHost
        | Item::User
        | Item::RequestLine
        | Item::RequestField(_)
        | Item::ResponseField(_)
        | Item::RequestTrailer(_)
        | Item::ResponseTrailer(_)
        | Item::Cookie(_)
        | Item::Session(_)
        | Item::Environment(_)
        | Item::Note(_)
        | Item::File
        | Item::Protocol
        | Item::Method
        | Item::Query
        | Item::Path
        | Item::UsedName => true,
        Item::Text(_)
        | Item::ClientAddress
        | Item::PeerAddress
        | Item::LocalAddress
        | Item::Time(..)
        | Item::Status
        | Item::BodyBytesOrHyphen
        | Item::BodyBytes
        | Item::ServerName
        | Item::Port(_)
        | Item::Process(_)
        | Item::KeepAlives
        | Item::LogId { .. }
        | Item::Handler
        | Item::ConnectionStatus
        | Item::Duration(_)
        | Item::BytesReceived
        | Item::BytesSent
        | Item::BytesMoved
        | Item::FirstByte => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, Request, RequestHead, Response, Status, Transfer};

    fn line(format: &str, most: usize, request_line: &str, agent: &str) -> String {
        let client = "192.0.2.1:4000".parse().unwrap();
        let mut head = RequestHead { line: request_line.into(), ..RequestHead::default() };
        head.fields.add("User-Agent", agent.as_bytes());
        let request = Request::new(head, Peer { client, local: client }, 0);
        let exchange = LoggedExchange {
            request: &request,
            response: &Response::new(Status::OK),
            transfer: &Transfer::default(),
            server_name: b"a",
            used_name: b"a",
            server_port: 80,
            remote_host: None,
            content_length: None,
            keep_alive: true,
            keep_alive_told: None,
            chunked: false,
            track_first_byte: false,
        };
        let mut out = b"before\n".to_vec();
        LineFormat::compile(format).unwrap().write_within(&exchange, most, &mut out);
        let line = String::from_utf8(out).unwrap();
        line.strip_prefix("before\n").unwrap().to_owned()
    }

    #[test]
    fn a_line_that_fits_is_left_alone() {
        assert_eq!(line("%r %{User-Agent}i", 17, "GET / HTTP/1.1", "a"), "GET / HTTP/1.1 a\n");
    }

    #[test]
    fn the_longest_item_is_cut_and_every_field_stays() {
        let target = "/".repeat(60);
        let request = format!("GET {target} HTTP/1.1");
        let format = "%h \"%r\" %>s \"%{User-Agent}i\" end";
        let cut = line(format, 80, &request, "agent");
        assert_eq!(cut.len(), 80);
        let (before, after) = cut.split_once("\"GET /").unwrap();
        assert_eq!(before, "192.0.2.1 ");
        let after = after.trim_start_matches('/');
        assert_eq!(after, " HTTP/1.1\" 200 \"agent\" end\n");
        let cut = line(format, 80, "GET / HTTP/1.1", &"a".repeat(90));
        assert_eq!(cut.len(), 80);
        assert!(cut.starts_with("192.0.2.1 \"GET / HTTP/1.1\" 200 \"aaaa"), "{cut}");
        assert!(cut.ends_with("aaaa\" end\n"), "{cut}");
    }

    #[test]
    fn where_one_item_is_not_enough_the_next_is_cut_too() {
        let format = "%{User-Agent}i %r -";
        let request = format!("GET /{} HTTP/1.1", "b".repeat(20));
        let cut = line(format, 24, &request, &"a".repeat(100));
        assert_eq!(cut, format!("a GET /{} HTTP/1.1 -\n", "b".repeat(5)));
    }

    #[test]
    fn escapes_stay_whole() {
        for most in 10..30 {
            let cut = line("%{User-Agent}i|", most, "GET / HTTP/1.1", &"\x01\n\"".repeat(20));
            let text = cut.strip_suffix("|\n").unwrap();
            let rest = text.replace("\\x01", "").replace("\\n", "").replace("\\\"", "");
            assert!(cut.len() <= most && cut.len() + 4 > most && rest.is_empty(), "{cut}");
        }
    }

    #[test]
    fn a_format_that_is_too_long_by_itself_is_cut_at_its_end() {
        assert_eq!(line("a text that is long %m", 8, "GET / HTTP/1.1", ""), "a text \n");
    }
}
