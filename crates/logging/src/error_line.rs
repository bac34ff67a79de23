//! Writes a notice as one line of the error log, in Apache's default form or in that of an
//! ErrorLogFormat (server/log.c: do_errorlog_default, do_errorlog_format). Client data is escaped
//! and the length is bounded. No file is written here.

use crate::clock;
use crate::error_format::{ErrorFormat, ErrorItem, ErrorSegment, ErrorTime, IdScope};
use crate::escape::{For, address, escape, escape_text, number};
use crate::log_id;
use evenkeel_message::{Notice, Peer, Request};
use evenkeel_sys::process::own_tid;
use std::net::SocketAddr;

/// The most bytes of a line, including its end (Apache: MAX_STRING_LEN).
pub(crate) const MOST_BYTES: usize = 8192;

/// The connection and request that a notice is about.
#[derive(Clone, Copy, Default)]
pub struct Origin<'a> {
    /// The connection, if any.
    pub peer: Option<&'a Peer>,
    /// The request, if any.
    pub request: Option<&'a Request>,
    /// The ServerName of the virtual host.
    pub server_name: &'a [u8],
    /// The name under which the server answers (UseCanonicalName).
    pub used_name: &'a [u8],
}

impl<'a> Origin<'a> {
    /// A notice about a request.
    #[must_use]
    pub fn of_request(request: &'a Request) -> Self {
        Self { peer: Some(&request.peer), request: Some(request), ..Self::default() }
    }

    /// A notice about a connection that has no request yet.
    #[must_use]
    pub fn of_connection(peer: &'a Peer) -> Self {
        Self { peer: Some(peer), ..Self::default() }
    }
}

/// Appends a line in the default format. `timed` is false for syslog, which adds its own time.
pub(crate) fn write_default(
    notice: &Notice,
    origin: &Origin<'_>,
    now_us: u64,
    timed: bool,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    if timed {
        out.push(b'[');
        clock::write_error_time(now_us, 6, out);
        out.extend_from_slice(b"] ");
    }
    out.push(b'[');
    out.extend_from_slice(notice.module.as_bytes());
    out.push(b':');
    out.extend_from_slice(notice.level.word().as_bytes());
    out.extend_from_slice(b"] [pid ");
    number(u64::from(std::process::id()), out);
    out.extend_from_slice(b":tid ");
    number(u64::from(own_tid().unsigned_abs()), out);
    out.extend_from_slice(b"] ");
    if let Some(cause) = notice.cause {
        write_cause(cause, out);
        out.extend_from_slice(b": ");
    }
    if let Some(peer) = origin.peer {
        out.extend_from_slice(b"[client ");
        write_end(peer.client, out);
        out.extend_from_slice(b"] ");
    }
    write_message(notice, out);
    let referer = origin.request.and_then(|request| request.fields().first("Referer"));
    if let Some(referer) = referer {
        out.extend_from_slice(b", referer: ");
        escape(For::Error, referer, out);
    }
    end_line(start, out);
}

/// Appends a line of a notice before any log is open: only the cause and the text, as Apache prints
/// them to the terminal.
pub(crate) fn write_startup(notice: &Notice, out: &mut Vec<u8>) {
    let start = out.len();
    if let Some(cause) = notice.cause {
        write_cause(cause, out);
        out.extend_from_slice(b": ");
    }
    if let Some(number) = notice.number {
        write_number(number, out);
    }
    // Text about the administrator's own files may have several lines.
    out.extend_from_slice(notice.text.as_bytes());
    end_line(start, out);
}

impl ErrorFormat {
    /// Appends a line; nothing if a required item has no value. Without a notice, it is a line for
    /// a connection or a request.
    pub(crate) fn write(
        &self,
        notice: Option<&Notice>,
        origin: &Origin<'_>,
        now_us: u64,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let mut field = start;
        let mut skipping = false;
        for segment in &self.segments {
            if segment.starts_field {
                if !skipping {
                    field = out.len();
                }
                skipping = false;
            }
            if segment.item != ErrorItem::Message && skipping {
                continue;
            }
            if segment.is_above(notice) {
                out.truncate(field);
                skipping = true;
                continue;
            }
            let before = out.len();
            write_item(&segment.item, notice, origin, now_us, out);
            if out.len() > before || matches!(segment.item, ErrorItem::Message | ErrorItem::Text(_))
            {
                continue;
            }
            if segment.required {
                out.truncate(start);
                return;
            }
            if segment.hyphen {
                out.push(b'-');
            } else {
                out.truncate(field);
                skipping = true;
            }
        }
        if out.len() > start {
            end_line(start, out);
        }
    }
}

impl ErrorSegment {
    /// Whether the notice is too urgent for this item: a level keeps details out of more urgent
    /// messages. (Apache's manual says the reverse of what Apache does.)
    fn is_above(&self, notice: Option<&Notice>) -> bool {
        notice.is_some_and(|notice| (notice.level as u32) < self.least_level)
    }
}

fn write_item(
    item: &ErrorItem,
    notice: Option<&Notice>,
    origin: &Origin<'_>,
    now_us: u64,
    out: &mut Vec<u8>,
) {
    let quote = |bytes: &[u8], out: &mut Vec<u8>| escape(For::Error, bytes, out);
    match item {
        ErrorItem::Text(text) => out.extend_from_slice(text),
        ErrorItem::Message => {
            if let Some(notice) = notice {
                write_message(notice, out);
            }
        }
        ErrorItem::ClientAddress => {
            if let Some(peer) = origin.peer {
                write_end(peer.client, out);
            }
        }
        ErrorItem::LocalAddress => {
            if let Some(peer) = origin.peer {
                write_end(peer.local, out);
            }
        }
        ErrorItem::SystemError => {
            if let Some(cause) = notice.and_then(|notice| notice.cause) {
                write_cause(cause, out);
            }
        }
        ErrorItem::SourcePlace => {}
        ErrorItem::Level => {
            if let Some(notice) = notice {
                out.extend_from_slice(notice.level.word().as_bytes());
            }
        }
        ErrorItem::Module => {
            if let Some(notice) = notice {
                out.extend_from_slice(notice.module.as_bytes());
            }
        }
        ErrorItem::LogId(scope) => write_id(*scope, origin, out),
        ErrorItem::Process => number(u64::from(std::process::id()), out),
        ErrorItem::Thread => number(u64::from(own_tid().unsigned_abs()), out),
        ErrorItem::Time(time) => write_time(time, now_us, out),
        ErrorItem::ServerName => quote(origin.server_name, out),
        ErrorItem::UsedName => quote(origin.used_name, out),
        ErrorItem::Environment(_)
        | ErrorItem::RequestField(_)
        | ErrorItem::KeepAlives
        | ErrorItem::Note(_) => {
            if let Some(request) = origin.request {
                write_request_item(item, request, out);
            }
        }
    }
}

fn write_request_item(item: &ErrorItem, request: &Request, out: &mut Vec<u8>) {
    let value = match item {
        ErrorItem::Environment(name) => request.resource.env.value(name),
        ErrorItem::RequestField(name) => request.fields().first(name),
        ErrorItem::Note(name) => request.resource.notes.value(name),
        _ => return number(u64::from(request.keepalives), out),
    };
    escape(For::Error, value.unwrap_or_default(), out);
}

fn write_id(scope: IdScope, origin: &Origin<'_>, out: &mut Vec<u8>) {
    let of_connection = match scope {
        IdScope::Request => false,
        IdScope::Connection => true,
        IdScope::ConnectionOnly if origin.request.is_some() => return,
        IdScope::ConnectionOnly => true,
    };
    match (origin.request, origin.peer) {
        (Some(request), _) if !of_connection => out.extend_from_slice(&log_id::of_request(request)),
        (_, Some(peer)) if of_connection => out.extend_from_slice(&log_id::of_connection(peer)),
        _ => {}
    }
}

fn write_time(time: &ErrorTime, now_us: u64, out: &mut Vec<u8>) {
    match time {
        ErrorTime::Named { fraction, compact, zone } => {
            if *compact {
                clock::write_compact_time(now_us, *fraction, out);
            } else {
                clock::write_error_time(now_us, *fraction, out);
            }
            if *zone {
                clock::write_zone(now_us, out);
            }
        }
        ErrorTime::Custom(format) => format.write(now_us, out),
    }
}

fn write_message(notice: &Notice, out: &mut Vec<u8>) {
    if let Some(number) = notice.number {
        write_number(number, out);
    }
    escape_text(&notice.text, out);
}

/// `AH00526: `
fn write_number(notice: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(b"AH");
    crate::escape::padded(u64::from(notice), 5, out);
    out.extend_from_slice(b": ");
}

/// `(13)Permission denied`
fn write_cause(cause: i32, out: &mut Vec<u8>) {
    let text = std::io::Error::from_raw_os_error(cause).to_string();
    // The standard library appends the number, which is already at the front.
    let text = text.split(" (os error ").next().unwrap_or_default();
    out.push(b'(');
    number(u64::from(cause.unsigned_abs()), out);
    out.push(b')');
    out.extend_from_slice(text.as_bytes());
}

/// `192.0.2.1:4711`. An IPv6 address has no brackets, as in Apache.
fn write_end(end: SocketAddr, out: &mut Vec<u8>) {
    address(end.ip(), out);
    out.push(b':');
    number(u64::from(end.port()), out);
}

fn end_line(start: usize, out: &mut Vec<u8>) {
    out.truncate(start + MOST_BYTES - 1);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_format::ErrorFormatKind;
    use evenkeel_message::{Level, RequestHead};

    const TIME: u64 = 1_374_355_489_453_232;

    fn request() -> Request {
        let peer = Peer {
            client: "[::ffff:192.0.2.1]:4000".parse().unwrap(),
            local: "192.0.2.2:80".parse().unwrap(),
        };
        let mut head = RequestHead::default();
        head.fields.add("Referer", "http://a/\n\"x\"");
        Request::new(head, peer, TIME)
    }

    fn default(notice: &Notice, origin: &Origin<'_>) -> String {
        let mut out = Vec::new();
        write_default(notice, origin, TIME, true, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn formatted(kind: ErrorFormatKind, format: &str, notice: &Notice, o: &Origin<'_>) -> String {
        let mut out = Vec::new();
        let notice = (kind == ErrorFormatKind::Main).then_some(notice);
        ErrorFormat::compile(kind, format).unwrap().write(notice, o, TIME, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn notice() -> Notice {
        Notice::new("authz_core", Level::Error, 1630, "client denied: /x\x1b")
    }

    #[test]
    fn the_default_line_has_apaches_shape() {
        let request = request();
        let line = default(&notice(), &Origin::of_request(&request));
        let ids = format!("[pid {}:tid {}] ", std::process::id(), own_tid());
        let (time, rest) = line.split_at(line.find("] ").unwrap() + 2);
        assert_eq!(time.len(), "[Sat Jul 20 21:34:49.453232 2013] ".len());
        assert!(time.ends_with(".453232 2013] "), "{time}");
        assert_eq!(
            rest,
            format!(
                "[authz_core:error] {ids}[client 192.0.2.1:4000] AH01630: client denied: \
                 /x\\x1b, referer: http://a/\\n\"x\"\n"
            )
        );
    }

    #[test]
    fn the_cause_stands_before_the_client() {
        let error = std::io::Error::from_raw_os_error(13);
        let peer = request().peer;
        let line = default(&notice().because(&error), &Origin::of_connection(&peer));
        assert!(line.contains("] (13)Permission denied: [client 192.0.2.1:4000] AH01630"));
        let mut out = Vec::new();
        write_startup(&Notice::new("core", Level::Crit, 72, "x").because(&error), &mut out);
        assert_eq!(out, b"(13)Permission denied: AH00072: x\n");
    }

    #[test]
    fn fields_without_a_value_go() {
        let origin = Origin::default();
        let format = r"[%-m:%l] [%a] [client\ %a] %E: %M% ,\ referer\ %{Referer}i";
        let main = ErrorFormatKind::Main;
        assert_eq!(
            formatted(main, format, &notice(), &origin),
            "[authz_core:error] AH01630: client denied: /x\\x1b\n"
        );
        let request = request();
        let with = formatted(main, format, &notice(), &Origin::of_request(&request));
        assert!(with.starts_with("[authz_core:error] [192.0.2.1:4000] [client 192"), "{with}");
        assert!(with.ends_with("x\\x1b, referer http://a/\\n\"x\"\n"), "{with}");
    }

    #[test]
    fn levels_choose_items_and_required_ones_the_line() {
        let main = ErrorFormatKind::Main;
        let origin = Origin::default();
        assert_eq!(
            formatted(main, "%4l %3l %M", &notice(), &origin),
            " error AH01630: client denied: /x\\x1b\n"
        );
        let request = request();
        let origin = Origin::of_request(&request);
        let once = ErrorFormatKind::Request;
        assert_eq!(formatted(once, "UA:'%+{User-Agent}i'", &notice(), &origin), "");
        assert!(
            formatted(once, "R:%L C:%{c}L %-{User-Agent}i", &notice(), &origin).ends_with(" -\n")
        );
    }

    #[test]
    fn a_line_is_bounded() {
        let notice = Notice::own("core", Level::Error, "x".repeat(20_000));
        let line = default(&notice, &Origin::default());
        assert_eq!((line.len(), line.ends_with("x\n")), (MOST_BYTES, true));
    }
}
