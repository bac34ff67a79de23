//! Writes the log line of an exchange from a compiled format. This runs for every request: it
//! allocates nothing but the line, looks nothing up by name, and reads a clock only if the format
//! requires it.

use crate::clock;
use crate::escape::{For, address, escape, number, padded};
use crate::format::{DurationUnit, Item, LineFormat, Moment, PortKind, ProcessKind, Segment};
use crate::format::{Statuses, TimeShape};
use crate::{LoggedExchange, log_id};
use evenkeel_message::{
    FieldName, Fields, Name, Named as _, Status, Version, eq_ignore_case, trim,
};
use evenkeel_sys::process::own_tid;

impl LineFormat {
    /// Appends the line of one exchange, with its line end.
    pub fn write(&self, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
        for segment in &self.segments {
            match &segment.item {
                // Every other segment is text, which always has a value.
                Item::Text(text) => out.extend_from_slice(text),
                _ => segment.write(exchange, out),
            }
        }
    }
}

impl Segment {
    pub(crate) fn write(&self, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
        if self.statuses.as_ref().is_some_and(|list| !list.allow(exchange)) {
            out.push(b'-');
            return;
        }
        let before = out.len();
        write_item(&self.item, self.original, exchange, out);
        // A missing value is a hyphen; an empty value stays empty.
        if out.len() == before && !present(&self.item, exchange) {
            out.push(b'-');
        }
    }
}

impl Statuses {
    fn allow(&self, exchange: &LoggedExchange<'_>) -> bool {
        let status = u32::from(exchange.final_status().code());
        self.codes.contains(&status) != self.negated
    }
}

/// Whether an item that wrote nothing has an empty value.
fn present(item: &Item, exchange: &LoggedExchange<'_>) -> bool {
    let request = exchange.request;
    match item {
        Item::Text(_) | Item::Query | Item::ServerName | Item::UsedName => true,
        Item::RequestField(name) => request.fields().contains(name),
        Item::ResponseField(name) if is_framing(name.name()) => false,
        Item::ResponseField(name) => {
            exchange.response.fields.contains(name) || exchange.response.always.contains(name)
        }
        Item::RequestTrailer(name) => request.trailers.contains(name),
        Item::ResponseTrailer(name) => exchange.response.trailers.contains(name),
        Item::Environment(name) => request.resource.env.contains(name),
        Item::Note(name) => request.resource.notes.contains(name),
        Item::Cookie(name) => cookie(request.fields(), name).is_some(),
        _ => false,
    }
}

/// A variable of the TLS session (mod_ssl: ssl_var_log_handler_x).
fn write_session(name: &str, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let session = exchange.request.secure.as_ref();
    if name.eq_ignore_ascii_case("HTTPS") {
        out.extend_from_slice(if session.is_some() { b"on" } else { b"off" });
    } else if let Some(value) = session.and_then(|session| session.variable(name, false)) {
        escape(For::Access, value.as_bytes(), out);
    }
}

fn write_item(item: &Item, original: bool, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let request = exchange.request;
    let transfer = exchange.transfer;
    let quote = |bytes: &[u8], out: &mut Vec<u8>| escape(For::Access, bytes, out);
    match item {
        Item::Text(text) => out.extend_from_slice(text),
        Item::RemoteHost => match exchange.remote_host {
            Some(name) => quote(name, out),
            None => address(request.peer.client.ip(), out),
        },
        Item::ClientAddress => address(request.peer.client.ip(), out),
        Item::PeerAddress => address(request.connected().ip(), out),
        Item::LocalAddress => address(request.peer.local.ip(), out),
        Item::User => match user(original, exchange) {
            Some(b"") => out.extend_from_slice(b"\"\""),
            Some(user) => quote(user, out),
            None => {}
        },
        Item::Time(shape, moment) => write_time(shape, *moment, exchange, out),
        Item::RequestLine => write_request_line(exchange, out),
        Item::Status if original => number(u64::from(exchange.original_status().code()), out),
        Item::Status => number(u64::from(exchange.final_status().code()), out),
        Item::BodyBytesOrHyphen if transfer.body_sent == 0 => {}
        Item::BodyBytesOrHyphen | Item::BodyBytes => number(transfer.body_sent, out),
        Item::RequestField(name) => write_fields(request.fields(), name, out),
        Item::ResponseField(name) => write_response_field(exchange, name, out),
        Item::RequestTrailer(name) => write_fields(&request.trailers, name, out),
        Item::ResponseTrailer(name) => write_fields(&exchange.response.trailers, name, out),
        Item::Session(name) => write_session(name, exchange, out),
        Item::Cookie(name) => {
            if let Some(value) = cookie(request.fields(), name) {
                quote(value, out);
            }
        }
        Item::Environment(name) => quote(request.resource.env.value(name).unwrap_or_default(), out),
        Item::Note(name) => quote(request.resource.notes.value(name).unwrap_or_default(), out),
        Item::File => quote(&request.resource.file_name(), out),
        Item::Protocol => write_protocol(exchange, out),
        Item::Method => write_method(original, exchange, out),
        Item::Query => write_query(original, exchange, out),
        Item::Path if original => write_path(exchange.original_path(), exchange, out),
        Item::Path => write_path(&request.resource.path, exchange, out),
        Item::ServerName => quote(exchange.server_name, out),
        Item::UsedName => quote(exchange.used_name, out),
        Item::Port(kind) => number(u64::from(port(kind, exchange)), out),
        Item::Process(kind) => write_process(kind, out),
        Item::KeepAlives => number(u64::from(request.keepalives), out),
        Item::LogId { connection } => write_id(*connection, original, exchange, out),
        Item::Handler => {
            quote(request.resource.content.handler.as_deref().unwrap_or_default(), out)
        }
        Item::ConnectionStatus => out.push(match (transfer.aborted, exchange.keep_alive) {
            (true, _) => b'X',
            (false, true) => b'+',
            (false, false) => b'-',
        }),
        Item::Duration(unit) => number(transfer.duration_us / unit.micros(), out),
        Item::BytesReceived => number(transfer.received, out),
        Item::BytesSent => number(transfer.sent, out),
        Item::BytesMoved => number(transfer.received.saturating_add(transfer.sent), out),
        Item::FirstByte => {
            if let (true, Some(micros)) = (exchange.track_first_byte, transfer.first_byte_us) {
                number(micros, out);
            }
        }
    }
}

impl DurationUnit {
    const fn micros(self) -> u64 {
        match self {
            DurationUnit::Seconds => 1_000_000,
            DurationUnit::Millis => 1_000,
            DurationUnit::Micros => 1,
        }
    }
}

fn write_time(shape: &TimeShape, moment: Moment, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let begin = exchange.request.time_us;
    let time_us = match moment {
        Moment::Begin => begin,
        Moment::End => begin.saturating_add(exchange.transfer.duration_us),
    };
    match shape {
        TimeShape::Common => clock::write_access_time(time_us, out),
        TimeShape::Seconds => number(time_us / 1_000_000, out),
        TimeShape::Millis => number(time_us / 1_000, out),
        TimeShape::Micros => number(time_us, out),
        TimeShape::MillisOfSecond => padded(time_us / 1_000 % 1_000, 3, out),
        TimeShape::MicrosOfSecond => padded(time_us % 1_000_000, 6, out),
        TimeShape::Custom(format) => format.write(time_us, out),
    }
}

/// %r: the request line as received, without a password in the absolute form of the target, which
/// no log may keep (mod_log_config.c: log_request_line).
fn write_request_line(exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let line = &exchange.request.head.line;
    match password(exchange.request.head.target()) {
        Some(secret) => {
            let start = exchange.request.head.target.0;
            let (before, rest) = line.split_at(line.len().min(start + secret.start));
            escape(For::Access, before, out);
            out.extend_from_slice(b"XXXXXXXX");
            escape(For::Access, rest.get(secret.len()..).unwrap_or_default(), out);
        }
        None => escape(For::Access, line, out),
    }
}

/// The place of the password in `http://user:password@host/`.
fn password(target: &[u8]) -> Option<std::ops::Range<usize>> {
    if target.first() == Some(&b'/') {
        return None;
    }
    let authority = target.windows(3).position(|window| window == b"://")? + 3;
    let after = target.get(authority..)?;
    let end = after.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let after = after.get(..end.unwrap_or(after.len()))?;
    let at = after.iter().rposition(|byte| *byte == b'@')?;
    let colon = after.get(..at)?.iter().position(|byte| *byte == b':')?;
    Some(authority + colon + 1..authority + at)
}

/// Writes all values of a field as one list, because Apache joins repeated request fields when it
/// receives them.
fn write_fields(fields: &Fields, name: &FieldName, out: &mut Vec<u8>) {
    let mut first = true;
    for value in fields.all(name) {
        if !first {
            out.extend_from_slice(b", ");
        }
        first = false;
        escape(For::Access, value, out);
    }
}

/// %o: the media type is written without its parameters (mod_log_config.c: log_header_out).
fn write_response_field(exchange: &LoggedExchange<'_>, name: &FieldName, out: &mut Vec<u8>) {
    let response = exchange.response;
    let fields = if response.fields.contains(name) { &response.fields } else { &response.always };
    if write_framing_field(exchange, name.name(), out) {
        // These fields are determined when the response is sent, and are in no list of fields.
    } else if name.name() == Name::ContentType {
        let value = fields.first(name).unwrap_or_default();
        let bare = value.split(|byte| *byte == b';').next().unwrap_or_default();
        escape(For::Access, trim(bare), out);
    } else {
        write_fields(fields, name, out);
    }
}

/// Whether a field is determined by the connection, whatever the response has under that name.
fn is_framing(name: Name) -> bool {
    use Name::{Connection, ContentLength, KeepAlive, TransferEncoding};
    matches!(name, ContentLength | TransferEncoding | KeepAlive | Connection)
}

/// Writes the fields about the end of the response and of the connection; returns false for any
/// other name.
fn write_framing_field(exchange: &LoggedExchange<'_>, name: Name, out: &mut Vec<u8>) -> bool {
    if name == Name::ContentLength {
        if let Some(length) = exchange.content_length {
            number(length, out);
        }
        return true;
    }
    if name == Name::TransferEncoding {
        if exchange.chunked {
            out.extend_from_slice(b"chunked");
        }
        return true;
    }
    if name == Name::KeepAlive {
        if let Some(told) = exchange.keep_alive_told {
            out.extend_from_slice(b"timeout=");
            number(told.timeout_s, out);
            if let Some(max) = told.max {
                out.extend_from_slice(b", max=");
                number(u64::from(max), out);
            }
        }
        return true;
    }
    if name == Name::Connection {
        write_connection(exchange, out);
        return true;
    }
    false
}

/// Writes the options of modules, then what the client was told about the end of the connection.
fn write_connection(exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let response = exchange.response;
    let last: &[u8] = match (exchange.keep_alive_told, exchange.keep_alive) {
        (Some(_), _) => b"Keep-Alive",
        (None, true) => b"",
        (None, false) => b"close",
    };
    let ours = |token: &[u8]| {
        eq_ignore_case(token, b"close") || eq_ignore_case(token, b"keep-alive") || token.is_empty()
    };
    let own = [&response.always, &response.fields].into_iter();
    let own = own.flat_map(|fields| fields.tokens(b"Connection")).filter(|token| !ours(token));
    let mut first = true;
    for token in own.chain(std::iter::once(last).filter(|last| !last.is_empty())) {
        if !std::mem::take(&mut first) {
            out.extend_from_slice(b", ");
        }
        escape(For::Access, token, out);
    }
}

/// Whether the request line was too long to be parsed, so that none of its parts is known.
fn is_unread(exchange: &LoggedExchange<'_>) -> bool {
    let head = &exchange.request.head;
    exchange.original_status() == Status::URI_TOO_LONG && head.target.1 == 0
}

fn write_method(original: bool, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let head = &exchange.request.head;
    if is_unread(exchange) && (original || exchange.first().is_none()) {
        return;
    }
    let method = match (exchange.first(), head.method) {
        (Some(first), _) if original => &*first.method,
        // The text is the client's. An ErrorDocument is fetched with a method of the server's.
        (Some(_), method) if !method.text().is_empty() => method.text().as_bytes(),
        _ if head.method_end == 0 => word(&head.line, 0),
        _ => head.method_text(),
    };
    escape(For::Access, method, out);
}

/// Writes the path, or for a request that was refused before it had one, the text in its line.
fn write_path(path: &[u8], exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let mut shown = path;
    if path.is_empty() && !is_unread(exchange) {
        shown = word(&exchange.request.head.line, 1);
        if let Some(scheme) = shown.windows(3).position(|window| window == b"://") {
            let rest = shown.get(scheme + 3..).unwrap_or_default();
            let slash = rest.iter().position(|byte| *byte == b'/');
            shown = slash.and_then(|at| rest.get(at..)).unwrap_or_default();
        }
        shown = shown.split(|byte| *byte == b'?').next().unwrap_or_default();
        if shown.is_empty() && !exchange.request.head.line.is_empty() {
            shown = b"/";
        }
    }
    escape(For::Access, shown, out);
}

/// Writes the protocol as the client named it. Without one it is HTTP/0.9 if such a request was
/// served, and HTTP/1.0 if it was refused.
fn write_protocol(exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let head = &exchange.request.head;
    let named = word(&head.line, 2);
    match head.version {
        _ if named.get(..5).is_some_and(|start| eq_ignore_case(start, b"HTTP/")) => {
            escape(For::Access, named, out)
        }
        Version::Http09 => out.extend_from_slice(b"HTTP/0.9"),
        _ => out.extend_from_slice(b"HTTP/1.0"),
    }
}

/// A word of the request line, numbered from 0.
fn word(line: &[u8], at: usize) -> &[u8] {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(at).unwrap_or_default()
}

/// The user of the original request may be another one than that of its error document.
fn user<'a>(original: bool, exchange: &'a LoggedExchange<'_>) -> Option<&'a [u8]> {
    let first = exchange.first().filter(|_| original).map(|first| &first.resource);
    first.unwrap_or(&exchange.request.resource).user.as_deref()
}

fn write_query(original: bool, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let query = match exchange.first() {
        Some(first) if original => first.resource.query.as_deref(),
        _ if exchange.request.resource.path.is_empty() => {
            let target = word(&exchange.request.head.line, 1);
            let mark = target.iter().position(|byte| *byte == b'?');
            mark.and_then(|at| target.get(at + 1..))
        }
        _ => exchange.request.resource.query.as_deref(),
    };
    if let Some(query) = query {
        out.push(b'?');
        escape(For::Access, query, out);
    }
}

fn port(kind: &PortKind, exchange: &LoggedExchange<'_>) -> u16 {
    match kind {
        PortKind::Canonical => exchange.server_port,
        PortKind::Local => exchange.request.peer.local.port(),
        PortKind::Remote => exchange.request.peer.client.port(),
    }
}

fn write_process(kind: &ProcessKind, out: &mut Vec<u8>) {
    match kind {
        ProcessKind::Process => number(u64::from(std::process::id()), out),
        ProcessKind::Thread => number(u64::from(own_tid().unsigned_abs()), out),
        ProcessKind::HexThread => {
            out.extend_from_slice(format!("{:x}", own_tid()).as_bytes());
        }
    }
}

/// %L: an id is useful only if it is also in the error log.
fn write_id(connection: bool, original: bool, exchange: &LoggedExchange<'_>, out: &mut Vec<u8>) {
    let told = exchange.request.told;
    let first = exchange.first().filter(|_| original);
    if connection && told.connection {
        out.extend_from_slice(&log_id::of_connection(&exchange.request.peer));
    } else if !connection && first.map_or(told.request, |first| first.told) {
        out.extend_from_slice(&log_id::of_request(exchange.request));
    }
}

/// The value of the cookie with that name, compared without case as in mod_log_config.
fn cookie<'a>(fields: &'a Fields, name: &[u8]) -> Option<&'a [u8]> {
    fields.all(Name::Cookie).flat_map(|value| value.split(|byte| *byte == b';')).find_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = pair.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        eq_ignore_case(trim(key), name).then(|| trim(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{
        FileName, Peer, Previous, Request, RequestHead, Resource, Response, Status, Transfer,
        UriOptions, UrlPath,
    };

    /// An exchange with a value for everything that a format can name.
    struct Case {
        request: Request,
        response: Response,
        transfer: Transfer,
    }

    impl Case {
        fn new(line: &str) -> Case {
            let peer = Peer {
                client: "[::ffff:192.0.2.1]:4000".parse().unwrap(),
                local: "198.51.100.2:8080".parse().unwrap(),
            };
            let mut head = RequestHead { line: line.into(), ..RequestHead::default() };
            head.method_end = line.find(' ').unwrap();
            let end = line.rfind(' ').unwrap();
            head.target = (head.method_end + 1, end);
            head.fields.add("Cookie", "a=1; B = two ;c=");
            head.fields.add("X-Twice", "one");
            head.fields.add("x-twice", "two");
            head.fields.add("Empty", "");
            let mut request = Request::new(head, peer, 971_211_336_012_345);
            request.resource.path = UrlPath::parse(b"/final", UriOptions::default()).unwrap();
            request.resource.query = Some(b"q=\xff".to_vec());
            request.resource.file = FileName::new("/srv/www/final");
            request.keepalives = 3;
            request.resource.env.set("VAR", "value");
            request.resource.notes.set("note", "said");
            let mut response = Response::new(Status::NOT_FOUND);
            response.fields.add("Content-Type", "text/html; charset=utf-8");
            response.always.add("Set-Cookie", "x=1");
            response.always.add("Set-Cookie", "y=2");
            response.trailers.add("Sum", "abc");
            let transfer = Transfer {
                received: 100,
                sent: 900,
                body_sent: 700,
                duration_us: 1_234_567,
                first_byte_us: Some(77),
                aborted: false,
            };
            Case { request, response, transfer }
        }

        fn line(&self, format: &str) -> String {
            self.changed(format, |_| ())
        }

        fn changed(&self, format: &str, change: impl FnOnce(&mut LoggedExchange<'_>)) -> String {
            let mut exchange = LoggedExchange {
                request: &self.request,
                response: &self.response,
                transfer: &self.transfer,
                server_name: b"example.org",
                used_name: b"used.example.org",
                server_port: 80,
                remote_host: None,
                content_length: Some(700),
                keep_alive: true,
                keep_alive_told: None,
                chunked: false,
                track_first_byte: true,
            };
            change(&mut exchange);
            let mut out = Vec::new();
            LineFormat::compile(format).unwrap().write(&exchange, &mut out);
            let line = String::from_utf8(out).unwrap();
            line.strip_suffix('\n').unwrap().to_owned()
        }
    }

    #[test]
    fn every_directive_writes_its_value() {
        let case = Case::new("GET /first?q HTTP/1.1");
        let pid = std::process::id();
        for (format, expected) in [
            ("%h %a %{c}a %A %l %u", "192.0.2.1 192.0.2.1 192.0.2.1 198.51.100.2 - -"),
            ("\"%r\" %s %>s %b %B", "\"GET /first?q HTTP/1.1\" 404 404 700 700"),
            ("%{X-Twice}i|%{Empty}i|%{None}i", "one, two||-"),
            ("%{Content-Type}o|%{Set-Cookie}o|%{None}o", "text/html|x=1, y=2|-"),
            ("%{Content-length}o|%{Connection}o", "700|-"),
            ("%{Sum}^to %{Sum}^ti", "abc -"),
            ("%{A}C|%{b}C|%{c}C|%{d}C", "1|two||-"),
            ("%{VAR}e %{var}e %{note}n", "value - said"),
            ("%f %H %m %U%q %U", "/srv/www/final HTTP/1.1 GET /final?q=\\xff /final"),
            ("%v %V %p %{local}p %{remote}p", "example.org used.example.org 80 8080 4000"),
            ("%D %T %{ms}T %{us}T", "1234567 1 1234 1234567"),
            ("%I %O %S %^FB %k %X %R", "100 900 1000 77 3 + -"),
            ("%{sec}t %{msec}t %{usec_frac}t", "971211336 971211336012 012345"),
            ("%{end:msec_frac}t %{msec_frac}t", "246 012"),
            ("%404r %!404r %200,404s", "GET /first?q HTTP/1.1 - 404"),
            ("%L 100%%", "- 100%"),
            ("%P", pid.to_string().as_str()),
        ] {
            assert_eq!(case.line(format), expected, "{format}");
        }
    }

    #[test]
    fn the_fields_of_the_connection_are_what_was_sent() {
        let mut case = Case::new("GET / HTTP/1.1");
        let format = "%{Keep-Alive}o|%{Connection}o|%{Transfer-Encoding}o|%{Content-Length}o";
        assert_eq!(case.line(format), "-|-|-|700");
        case.response.fields.set("Connection", "Upgrade, close");
        case.response.fields.set("Keep-Alive", "own");
        case.response.fields.set("Transfer-Encoding", "own");
        assert_eq!(case.line(format), "-|Upgrade|-|700");
        let told = |max| Some(crate::KeepAliveTold { timeout_s: 5, max });
        let of = |told, chunked| {
            let line = |exchange: &mut LoggedExchange<'_>| {
                exchange.keep_alive_told = told;
                exchange.chunked = chunked;
                exchange.content_length = None;
            };
            case.changed(format, line)
        };
        assert_eq!(of(told(Some(7)), true), "timeout=5, max=7|Upgrade, Keep-Alive|chunked|-");
        assert_eq!(of(told(None), false), "timeout=5|Upgrade, Keep-Alive|-|-");
        let closed = |exchange: &mut LoggedExchange<'_>| exchange.keep_alive = false;
        assert_eq!(case.changed("%{connection}o", closed), "Upgrade, close");
    }

    #[test]
    fn of_a_line_that_is_too_long_only_the_line_is_told() {
        let mut case = Case::new("GET /much HTTP/1.0");
        case.response.status = Status::URI_TOO_LONG;
        case.request.resource.path.clear();
        case.request.resource.query = None;
        let head = case.request.head.receive();
        (head.target, head.method_end) = ((0, 0), 0);
        assert_eq!(case.line("%r|%m|%U|%q"), "GET /much HTTP/1.0|-|-|");
    }

    #[test]
    fn the_original_request_is_told_from_the_final_one() {
        let mut case = Case::new("POST /first HTTP/1.1");
        let resource = Resource {
            path: UrlPath::parse(b"/first", UriOptions::default()).unwrap(),
            query: Some(b"one".to_vec()),
            status: Status::FORBIDDEN,
            user: Some(b"ann"[..].into()),
            ..Resource::default()
        };
        let first = Previous {
            resource,
            method: b"POST".to_vec(),
            plan: None,
            told: false,
            previous: None,
        };
        let mut second = first.clone();
        second.resource.status = Status::OK;
        case.request.previous = Some(Box::new(Previous { previous: Some(first.into()), ..second }));
        assert_eq!(case.line("%s %>s %U %>U %<m %<q"), "403 404 /first /final POST ?one");
        assert_eq!(case.line("%404s %403s"), "403 -");
        assert_eq!(case.line("%u %<u %>u"), "- ann -");
        // Only the second request has a line in the error log.
        case.request.told.request = true;
        assert!(case.line("%L %>L").starts_with("- ") && !case.line("%>L").starts_with('-'));
    }

    #[test]
    fn nothing_sent_is_a_hyphen_and_an_abort_a_cross() {
        let mut case = Case::new("HEAD / HTTP/1.0");
        case.transfer = Transfer { aborted: true, ..Transfer::default() };
        assert_eq!(case.line("%b %B %X %^FB"), "- 0 X -");
        case.request.resource.path.clear();
        let head = case.request.head.receive();
        (head.method_end, head.line) = (0, b"BAD\x01 http://h/x?y 1".into());
        assert_eq!(case.line("%m %U%q"), "BAD\\x01 /x?y");
        case.request.head.receive().line = b"NONSENSE".into();
        assert_eq!(case.line("%m %U %H"), "NONSENSE / HTTP/1.0");
        case.request.resource.user = Some(Box::from(&b""[..]));
        *case.request.head.receive() = RequestHead::default();
        assert_eq!(case.line("\"%r\" %m %U"), "\"-\" - -");
        assert_eq!(case.line("%u"), "\"\"");
    }

    #[test]
    fn passwords_are_not_logged() {
        let case = Case::new("GET http://me:secret@host/a:b@c HTTP/1.1");
        assert_eq!(case.line("%r"), "GET http://me:XXXXXXXX@host/a:b@c HTTP/1.1");
        let case = Case::new("GET /http://me:kept@host HTTP/1.1");
        assert_eq!(case.line("%r"), "GET /http://me:kept@host HTTP/1.1");
    }
}
