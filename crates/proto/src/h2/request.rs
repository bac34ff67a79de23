//! Builds the head of a request, or a trailer section, from the fields of a header block (RFC 9113,
//! section 8). The stream of a malformed request is reset. A request that exceeds a limit of the
//! server is answered with an error status.

use super::priority::Priority;
use super::settings::EngineSettings;
use crate::line::is_token;
use crate::refusal::{Refusal, excerpt};
use crate::target;
use evenkeel_message::{
    BodyLength, Fields, Level, Method, Name, Notice, RequestHead, Status, Version, eq_ignore_case,
};

/// The connection ends if a request has this many fields more than LimitRequestFields allows
/// (Apache: `h2_stream.c`).
const FIELDS_BEYOND: usize = 100;

/// The bytes that RFC 7541 counts for a field in addition to its name and its value.
const FIELD_OVERHEAD: usize = 32;

/// The connection ends if a header list is this many times larger than allowed.
const FAR_BEYOND: usize = 4;

/// Buffers for the texts of a head, which the next head reuses.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    method: Vec<u8>,
    scheme: Vec<u8>,
    authority: Vec<u8>,
    path: Vec<u8>,
    cookies: Vec<u8>,
    name: Vec<u8>,
}

impl Scratch {
    fn clear(&mut self) {
        let Self { method, scheme, authority, path, cookies, name } = self;
        for text in [method, scheme, authority, path, cookies, name] {
            text.clear();
        }
    }
}

/// The properties of a complete head.
pub(crate) struct Made {
    /// Why the request is refused.
    pub(crate) refusal: Option<Refusal>,
    /// Content-Length.
    pub(crate) length: Option<u64>,
    pub(crate) priority: Priority,
    /// The size of the fields as RFC 7541 counts it.
    pub(crate) size: usize,
}

/// Why a request is malformed, so that its stream is reset.
pub(crate) type Flaw = &'static str;

/// Receives the fields of a request one by one.
pub(crate) struct HeadMaker<'a> {
    head: &'a mut RequestHead,
    scratch: &'a mut Scratch,
    settings: &'a EngineSettings,
    size: usize,
    count: usize,
    has_fields: bool,
    /// The pseudo-fields that were received, as bits.
    pseudo: u8,
    priority: Priority,
    flaw: Option<Flaw>,
    refusal: Option<Refusal>,
}

const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const AUTHORITY: u8 = 4;
const PATH: u8 = 8;

impl<'a> HeadMaker<'a> {
    /// Builds the head in `head`.
    pub(crate) fn new(
        head: &'a mut RequestHead,
        scratch: &'a mut Scratch,
        settings: &'a EngineSettings,
    ) -> Self {
        head.clear();
        scratch.clear();
        head.version = Version::Http2;
        Self {
            head,
            scratch,
            settings,
            size: 0,
            count: 0,
            has_fields: false,
            pseudo: 0,
            priority: Priority::default(),
            flaw: None,
            refusal: None,
        }
    }

    /// Takes a field. Returns false if the header list is so large that the connection must end.
    pub(crate) fn take(&mut self, known: Name, name: &[u8], value: &[u8]) -> bool {
        self.size = self.size.saturating_add(name.len() + value.len() + FIELD_OVERHEAD);
        if self.size > self.settings.header_list.saturating_mul(FAR_BEYOND) {
            return false;
        }
        if self.flaw.is_none() {
            self.flaw = match name.first() {
                Some(b':') => self.take_pseudo(name, value).err(),
                _ => self.take_field(known, name, value).err(),
            };
        }
        let most = self.settings.limits.fields;
        most == 0 || self.count <= most.saturating_add(FIELDS_BEYOND)
    }

    fn refuse(&mut self, status: Status, number: u16, text: String) {
        if self.refusal.is_none() {
            let notice = Notice::new("http2", Level::Info, number, text);
            self.refusal = Some(Refusal { status, notice, detail: "" });
        }
    }

    /// Takes a pseudo-field (section 8.3.1).
    fn take_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Flaw> {
        if self.has_fields {
            return Err("a pseudo-field after a field");
        }
        let (bit, text) = match name {
            b":method" => (METHOD, &mut self.scratch.method),
            b":scheme" => (SCHEME, &mut self.scratch.scheme),
            b":authority" => (AUTHORITY, &mut self.scratch.authority),
            b":path" => (PATH, &mut self.scratch.path),
            _ => return Err("an unknown pseudo-field"),
        };
        if self.pseudo & bit != 0 {
            return Err("a pseudo-field that comes twice");
        }
        self.pseudo |= bit;
        if is_any(value, |byte| (byte <= b' ') | (byte == 0x7f)) {
            return Err("a pseudo-field with a space or a control byte");
        }
        let most = self.settings.limits.line.saturating_add(1);
        text.extend_from_slice(value.get(..most).unwrap_or(value));
        if value.len() > most {
            let text = "Request pseudo header exceeds LimitRequestFieldSize: ";
            let text = format!("{text}{}", excerpt(name));
            self.refuse(Status::URI_TOO_LONG, 10178, text);
        }
        Ok(())
    }

    fn take_field(&mut self, known: Name, name: &[u8], value: &[u8]) -> Result<(), Flaw> {
        self.has_fields = true;
        check_field(known, name, value)?;
        if self.size > self.settings.header_list {
            let text = "Request header exceeds the size that SETTINGS allow".to_owned();
            self.refuse(Status::HEADER_FIELDS_TOO_LARGE, 10180, text);
            return Ok(());
        }
        let limits = self.settings.limits;
        if name.len() + 2 + value.len() > limits.field_size.saturating_add(1) {
            let (most, name) = (limits.field_size, excerpt(name));
            let text = format!("Request header exceeds LimitRequestFieldSize({most}): {name}");
            self.refuse(Status::HEADER_FIELDS_TOO_LARGE, 10180, text);
            return Ok(());
        }
        if known == Name::Cookie && !self.scratch.cookies.is_empty() {
            // Cookie fields are joined (section 8.2.3). The limit applies to the result.
            self.scratch.cookies.extend_from_slice(b"; ");
            self.scratch.cookies.extend_from_slice(value);
            if self.scratch.cookies.len() > limits.field_size {
                let text = format!(
                    "Request header exceeds LimitRequestFieldSize({}): cookie",
                    limits.field_size
                );
                self.refuse(Status::HEADER_FIELDS_TOO_LARGE, 10180, text);
            }
            return Ok(());
        }
        self.count += 1;
        if limits.fields > 0 && self.count > limits.fields {
            let most = limits.fields;
            let text = format!("Number of request headers exceeds LimitRequestFields({most})");
            self.refuse(Status::HEADER_FIELDS_TOO_LARGE, 10181, text);
            return Ok(());
        }
        match known {
            Name::Cookie => self.scratch.cookies.extend_from_slice(value),
            known => {
                if known == Name::Priority {
                    self.priority.read(value);
                }
                add(&mut self.head.fields, &mut self.scratch.name, known, name, value);
            }
        }
        Ok(())
    }

    /// Completes the head. `end` means that there is no body.
    pub(crate) fn finish(mut self, end: bool) -> Result<Made, Flaw> {
        if let Some(flaw) = self.flaw {
            return Err(flaw);
        }
        let Self { head, scratch, settings, pseudo, refusal, .. } = &mut self;
        let is_connect = scratch.method == b"CONNECT";
        let needed = if is_connect { METHOD | AUTHORITY } else { METHOD | SCHEME | PATH };
        if *pseudo & needed != needed || (is_connect && *pseudo != needed) {
            return Err("a missing pseudo-field");
        }
        if !scratch.method.iter().all(|byte| is_token(*byte)) || scratch.method.is_empty() {
            return Err("an invalid method");
        }
        if !scratch.cookies.is_empty() {
            head.fields.add(Name::Cookie, &scratch.cookies);
        }
        set_host(&mut head.fields, &scratch.authority)?;
        head.method = Method::parse(&scratch.method);
        let is_asterisk = head.method == Method::Options && scratch.path == b"*";
        if !is_connect && !scratch.path.starts_with(b"/") && !is_asterisk {
            return Err("a path that does not begin with a slash");
        }
        head.line.extend_from_slice(&scratch.method);
        head.method_end = scratch.method.len();
        head.line.push(b' ');
        for part in target_parts(scratch, is_connect) {
            head.line.extend_from_slice(part);
        }
        head.target = (head.method_end + 1, head.line.len());
        head.line.extend_from_slice(b" HTTP/2.0");
        let length = content_length(&head.fields)?;
        if end && length.is_some_and(|length| length > 0) {
            return Err("content-length without a body");
        }
        head.length = match (end, length) {
            (true, _) => BodyLength::None,
            (false, Some(length)) => BodyLength::Exact(length),
            (false, None) => BodyLength::Chunked,
        };
        if refusal.is_none() {
            let strict = settings.options.strict;
            *refusal = target::check(head.method, head.target(), strict).err();
        }
        let Self { refusal, priority, size, .. } = self;
        Ok(Made { refusal, length, priority, size })
    }
}

/// The parts of the target: the path, or the absolute form if the scheme is neither http nor https
/// (Apache: `h2_create_request_rec`).
fn target_parts(scratch: &Scratch, is_connect: bool) -> [&[u8]; 4] {
    let Scratch { scheme, authority, path, .. } = scratch;
    if is_connect {
        return [authority, b"", b"", b""];
    }
    match eq_ignore_case(scheme, b"http") || eq_ignore_case(scheme, b"https") {
        true => [path, b"", b"", b""],
        false => [scheme, b"://", authority, path],
    }
}

/// Sets the field Host to `:authority`. If both are present, they must be equal (section 8.3.1).
fn set_host(fields: &mut Fields, authority: &[u8]) -> Result<(), Flaw> {
    let mut hosts = fields.all(Name::Host);
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err("Host comes twice"),
        (Some(host), None) if !authority.is_empty() && !eq_ignore_case(host, authority) => {
            return Err("Host and :authority name different hosts");
        }
        (None, None) if authority.is_empty() => return Err("neither Host nor :authority"),
        _ => {}
    }
    drop(hosts);
    if !authority.is_empty() {
        if authority.contains(&b'@') {
            return Err(":authority with a user");
        }
        fields.set(Name::Host, authority);
    }
    Ok(())
}

fn content_length(fields: &Fields) -> Result<Option<u64>, Flaw> {
    let mut values = fields.all(Name::ContentLength);
    let length = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(text), None) if text.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok())
        }
        _ => None,
    };
    let length = length.filter(|length| *length <= i64::MAX as u64);
    length.map(Some).ok_or("an invalid content-length")
}

/// Checks the name and the value of a field (sections 8.2.1 and 8.2.2).
fn check_field(known: Name, name: &[u8], value: &[u8]) -> Result<(), Flaw> {
    // A known name is a token.
    let is_name =
        known != Name::Other || (!name.is_empty() && name.iter().all(|byte| is_token(*byte)));
    if !is_name || is_any(name, |byte| byte.is_ascii_uppercase()) {
        return Err("a field name that is not a token in lower case");
    }
    if is_any(value, |byte| ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f)) {
        return Err("a value with a control byte");
    }
    if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value {
        return Err("a value with white space around it");
    }
    match known {
        Name::Connection
        | Name::KeepAlive
        | Name::ProxyConnection
        | Name::TransferEncoding
        | Name::Upgrade => Err("a connection-specific field"),
        Name::Te if value != b"trailers" => Err("a connection-specific field"),
        _ => Ok(()),
    }
}

/// Whether a condition holds for any byte. The loop does not end at the first such byte: they are
/// rare, and the compiler can only vectorise a loop without an early end.
fn is_any(bytes: &[u8], condition: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(false, |found, byte| found | condition(*byte))
}

/// Adds a field. Each word of an unknown name is capitalised, as in Apache.
fn add(fields: &mut Fields, spelled: &mut Vec<u8>, known: Name, name: &[u8], value: &[u8]) {
    if known != Name::Other {
        return fields.add(known, value);
    }
    spelled.clear();
    let mut is_first = true;
    for byte in name {
        spelled.push(if is_first { byte.to_ascii_uppercase() } else { *byte });
        is_first = *byte == b'-';
    }
    fields.add(spelled.as_slice(), value);
}

/// Receives the fields of a trailer section. Fields that exceed a limit are left out.
pub(crate) struct TrailerMaker<'a> {
    settings: &'a EngineSettings,
    fields: Fields,
    name: Vec<u8>,
    size: usize,
    flaw: Option<Flaw>,
}

impl<'a> TrailerMaker<'a> {
    pub(crate) fn new(settings: &'a EngineSettings) -> Self {
        Self { settings, fields: Fields::new(), name: Vec::new(), size: 0, flaw: None }
    }

    /// Takes a field. Returns false if the header list is so large that the connection must end.
    pub(crate) fn take(&mut self, known: Name, name: &[u8], value: &[u8]) -> bool {
        self.size = self.size.saturating_add(name.len() + value.len() + FIELD_OVERHEAD);
        if self.size > self.settings.header_list.saturating_mul(FAR_BEYOND) {
            return false;
        }
        if self.flaw.is_some() {
            return true;
        }
        match check_field(known, name, value) {
            Err(_) if name.first() == Some(&b':') => {
                self.flaw = Some("a pseudo-field in a trailer section");
            }
            Err(flaw) => self.flaw = Some(flaw),
            Ok(()) if is_no_trailer(known) => {}
            Ok(()) => {
                let limits = self.settings.limits;
                let is_few = limits.fields == 0 || self.fields.len() < limits.fields;
                let is_short = name.len() + value.len() <= limits.field_size;
                if is_few && is_short && self.size <= self.settings.header_list {
                    add(&mut self.fields, &mut self.name, known, name, value);
                }
            }
        }
        true
    }

    pub(crate) fn finish(self) -> Result<Fields, Flaw> {
        self.flaw.map_or(Ok(self.fields), Err)
    }
}

/// Whether a field has no meaning in a trailer section, or would change how a request was processed
/// (RFC 9110, section 6.5.1; h2_util.c: h2_ignore_req_trailer). Such fields are left out.
fn is_no_trailer(name: Name) -> bool {
    matches!(
        name,
        Name::Te
            | Name::Host
            | Name::Range
            | Name::Cookie
            | Name::Expect
            | Name::Pragma
            | Name::MaxForwards
            | Name::CacheControl
            | Name::Authorization
            | Name::ContentLength
            | Name::ProxyAuthorization
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    type Field<'a> = (&'a str, &'a str);

    const GET: [Field<'_>; 4] =
        [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/x?y")];

    fn made(fields: &[Field<'_>], end: bool) -> Result<(RequestHead, Made), Flaw> {
        let (mut head, mut scratch) = (RequestHead::default(), Scratch::default());
        let settings = EngineSettings::default();
        let mut maker = HeadMaker::new(&mut head, &mut scratch, &settings);
        for (name, value) in fields {
            assert!(maker.take(Name::of(name.as_bytes()), name.as_bytes(), value.as_bytes()));
        }
        let made = maker.finish(end)?;
        Ok((head, made))
    }

    #[test]
    fn a_head_looks_as_if_it_came_in_a_line() {
        let more = [("accept", "*/*"), ("x-own-name", "1"), ("cookie", "a=1"), ("cookie", "b=2")];
        let (head, made) = made(&[&GET[..], &more].concat(), true).unwrap();
        assert_eq!(head.line, b"GET /x?y HTTP/2.0");
        assert_eq!((head.method_text(), head.target()), (&b"GET"[..], &b"/x?y"[..]));
        assert_eq!((head.version, head.length), (Version::Http2, BodyLength::None));
        let mut text = Vec::new();
        head.fields.write(&mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "Accept: */*\r\nX-Own-Name: 1\r\nCookie: a=1; b=2\r\nHost: a\r\n"
        );
        assert!(made.refusal.is_none());
        assert_eq!(made.size, 8 * 32 + 79);
    }

    #[test]
    fn malformed_requests_are_told_from_others() {
        let with = |more: &[Field<'_>]| made(&[&GET[..], more].concat(), false).map(|_| ());
        assert_eq!(with(&[("te", "trailers"), ("host", "A")]), Ok(()));
        for bad in [
            ("Accept", "x"),
            ("a b", "x"),
            ("", "x"),
            ("x", "a\nb"),
            ("x", "a\0"),
            ("x", " a"),
            ("x", "a\t"),
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("te", "gzip"),
            ("host", "b"),
            ("content-length", "x"),
            ("content-length", ""),
            (":status", "200"),
            (":method", "GET"),
        ] {
            assert!(with(&[bad]).is_err(), "{bad:?}");
        }
        assert!(with(&[("x", "1"), (":method", "GET")]).is_err());
        assert!(with(&[("content-length", "1"), ("content-length", "1")]).is_err());
        for without in 0..4 {
            let mut fields = GET.to_vec();
            fields.remove(without);
            assert!(made(&fields, true).is_err(), "{without}");
        }
        let path = |path| made(&[GET[0], GET[1], GET[2], (":path", path)], true).map(|_| ());
        assert!(path("").is_err() && path("x").is_err() && path("/a b").is_err());
        assert!(path("*").is_err());
        let length = [&GET[..], &[("content-length", "3")]].concat();
        assert!(made(&length, true).is_err());
        assert_eq!(made(&length, false).unwrap().0.length, BodyLength::Exact(3));
        assert_eq!(made(&GET, false).unwrap().0.length, BodyLength::Chunked);
    }

    #[test]
    fn connect_names_an_authority_alone() {
        let connect = [(":method", "CONNECT"), (":authority", "a:1")];
        let (head, _) = made(&connect, true).unwrap();
        assert_eq!(head.line, b"CONNECT a:1 HTTP/2.0");
        assert!(made(&[&connect[..], &[(":path", "/")]].concat(), true).is_err());
    }

    #[test]
    fn what_is_too_large_is_refused_and_counted() {
        let long = "a".repeat(9_000);
        let status = |fields: &[Field<'_>]| {
            let (_, made) = made(fields, true).unwrap();
            made.refusal.map(|refusal| refusal.status)
        };
        let with = |more: &[Field<'_>]| status(&[&GET[..], more].concat());
        assert_eq!(with(&[("x", &long)]), Some(Status::HEADER_FIELDS_TOO_LARGE));
        let cookies = [("cookie", &long[..5_000]), ("cookie", &long[..5_000])];
        assert_eq!(with(&cookies), Some(Status::HEADER_FIELDS_TOO_LARGE));
        assert_eq!(with(&[("x", &long[..1_000]); 70]), Some(Status::HEADER_FIELDS_TOO_LARGE));
        assert_eq!(with(&[("x", "1"); 101]), Some(Status::HEADER_FIELDS_TOO_LARGE));
        assert_eq!(with(&[("x", "1"); 100]), None);
        let path = format!("/{long}");
        let uri = [GET[0], GET[1], GET[2], (":path", path.as_str())];
        assert_eq!(status(&uri), Some(Status::URI_TOO_LONG));
        assert_eq!(status(&[GET[0], GET[1], GET[2], (":path", "/#x")]), Some(Status::BAD_REQUEST));
        let (mut head, mut scratch) = (RequestHead::default(), Scratch::default());
        let settings = EngineSettings::default();
        let mut maker = HeadMaker::new(&mut head, &mut scratch, &settings);
        let taken =
            (0..1_000).take_while(|_| maker.take(Name::Other, b"x", &[b'a'; 8_000])).count();
        assert_eq!(taken, 32, "four times 64 KiB");
        let mut maker = HeadMaker::new(&mut head, &mut scratch, &settings);
        assert_eq!((0..1_000).take_while(|_| maker.take(Name::Other, b"x", b"")).count(), 200);
        assert!(head.memory() < 128 << 10);
    }

    #[test]
    fn trailers_are_fields_only() {
        let settings = EngineSettings::default();
        let trailers = |fields: &[Field<'_>]| {
            let mut maker = TrailerMaker::new(&settings);
            for (name, value) in fields {
                assert!(maker.take(Name::of(name.as_bytes()), name.as_bytes(), value.as_bytes()));
            }
            maker.finish().map(|fields| fields.len())
        };
        assert_eq!(trailers(&[("x", "1"), ("y", "2")]), Ok(2));
        assert_eq!(trailers(&[("host", "a"), ("x", "1"), ("authorization", "b")]), Ok(1));
        assert!(trailers(&[(":path", "/")]).is_err() && trailers(&[("X", "1")]).is_err());
        let long = "a".repeat(9_000);
        assert_eq!(trailers(&[("x", &long), ("y", "2")]), Ok(1));
    }
}
