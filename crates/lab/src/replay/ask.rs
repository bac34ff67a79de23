//! Makes a request from a record of a log, or says why there is none: a log also records what was
//! not a request.

use super::log::Record;
use crate::load::{Request, Target};
use crate::request::Draft;
use bytes::Bytes;
use std::fmt::Write as _;

/// Makes requests from records.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// The server that they are sent to.
    pub(super) url: Target,
    /// The value of Host in place of the log's.
    pub(super) host: Option<String>,
    /// The fields of every request.
    pub(super) fields: Vec<(String, String)>,
    /// The methods to replay; empty for all.
    pub(super) methods: Vec<String>,
    /// Whether each request has its own connection.
    pub(super) closing: bool,
    /// An HTTP date that is not before the last change of any file.
    pub(super) now: String,
}

/// Why a record is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Omission {
    /// A hyphen: the connection ended or timed out before a request.
    Nothing,
    /// Bytes of TLS or of another protocol, or a request that no client can send.
    NoHttp,
    /// CONNECT: the bytes that follow it are not logged.
    Tunnel,
    /// The method is not one of those to replay.
    Method,
}

impl Omission {
    /// The name in a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Omission::Nothing => "no request (-)",
            Omission::NoHttp => "no HTTP",
            Omission::Tunnel => "CONNECT",
            Omission::Method => "other methods",
        }
    }
}

/// Fields that belong to the connection or to a body and are not repeated (RFC 9110, section
/// 7.6.1).
const NOT_REPEATED: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Asker {
    /// Makes a request.
    ///
    /// # Errors
    ///
    /// Why the record is not replayed.
    pub(super) fn ask(&self, record: &Record) -> Result<Request, Omission> {
        let (method, target) = match (&record.line, &record.target) {
            (Some(line), _) => take_apart(line, record.status)?,
            (None, Some(target)) => {
                let method = record.method.as_deref().unwrap_or(b"GET");
                (text(method)?, encode_target(target, record.status)?)
            }
            (None, None) => return Err(Omission::Nothing),
        };
        if method == "CONNECT" {
            return Err(Omission::Tunnel);
        }
        if !self.methods.is_empty() && !self.methods.contains(&method) {
            return Err(Omission::Method);
        }
        let mut draft = Draft::new(&method, &self.url).with_target(&target);
        draft = self.with_fields(draft, record);
        // The log has no bodies. A method that requires a body gets an empty one.
        if matches!(method.as_str(), "POST" | "PUT" | "PATCH") {
            draft = draft.with_body(Bytes::new());
        }
        if self.closing {
            draft = draft.closing();
        }
        draft.encode().map_err(|_| Omission::NoHttp)
    }

    fn with_fields(&self, mut draft: Draft, record: &Record) -> Draft {
        let mut put = |name: &str, value: &[u8]| {
            // A logged value that no client may send is left out.
            if let Ok(more) = draft.clone().with_field(name, value) {
                draft = more;
            }
        };
        let logged = record.host.as_deref().filter(|host| is_host(host));
        if let Some(host) = self.host.as_ref().map(String::as_bytes).or(logged) {
            put("Host", host);
        }
        put("User-Agent", concat!("evenkeel-replay/", env!("CARGO_PKG_VERSION")).as_bytes());
        for (name, value) in &record.fields {
            if !NOT_REPEATED.contains(&name.to_ascii_lowercase().as_str()) {
                put(name, value);
            }
        }
        // The log does not say which condition or range the client sent, only that it sent one.
        match (record.status, record.size) {
            (Some(304), _) => put("If-Modified-Since", self.now.as_bytes()),
            (Some(206), Some(size)) if size > 0 => {
                put("Range", format!("bytes=0-{}", size - 1).as_bytes());
            }
            _ => {}
        }
        for (name, value) in &self.fields {
            put(name, value.as_bytes());
        }
        draft
    }
}

/// The method and target of a request line.
fn take_apart(line: &[u8], status: Option<u16>) -> Result<(String, String), Omission> {
    if matches!(line, b"-" | b"") {
        return Err(Omission::Nothing);
    }
    let at = memchr::memchr(b' ', line).ok_or(Omission::NoHttp)?;
    let (method, rest) = line.split_at(at);
    let rest = rest.trim_ascii();
    let target = match memchr::memmem::rfind(rest, b" HTTP/") {
        Some(at) => rest.get(..at).unwrap_or_default(),
        None => rest,
    };
    // The preface of an HTTP/2 connection is not a request.
    if target.is_empty() || method == b"PRI" {
        return Err(Omission::NoHttp);
    }
    Ok((text(method)?, encode_target(target, status)?))
}

fn text(method: &[u8]) -> Result<String, Omission> {
    String::from_utf8(method.to_vec()).map_err(|_| Omission::NoHttp)
}

/// A target that can be sent. Old servers accepted spaces in it. A request that was refused for its
/// spaces (400) cannot be repeated, because its encoded form would be answered.
fn encode_target(target: &[u8], status: Option<u16>) -> Result<String, Omission> {
    let mut out = String::with_capacity(target.len());
    for byte in target {
        match byte {
            b'!'..=b'~' => out.push(char::from(*byte)),
            ..=b' ' | 0x7f if status == Some(400) => return Err(Omission::NoHttp),
            // Writing to a string cannot fail.
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    Ok(out)
}

fn is_host(host: &[u8]) -> bool {
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]%~".contains(byte);
    !host.is_empty() && host.iter().all(known)
}

#[cfg(test)]
mod tests {
    use super::super::log::Format;
    use super::*;

    fn asker() -> Asker {
        Asker {
            url: Target::parse("http://h:81/").unwrap(),
            host: None,
            fields: Vec::new(),
            methods: Vec::new(),
            closing: false,
            now: "Tue, 10 Oct 2000 20:55:36 GMT".into(),
        }
    }

    fn ask(asker: &Asker, format: &str, line: &str) -> Result<String, Omission> {
        let record = Format::new(format).unwrap().parse(line.as_bytes()).unwrap().unwrap();
        let request = asker.ask(&record)?;
        assert_eq!(request.no_body, line.contains("HEAD"));
        Ok(String::from_utf8(request.bytes.to_vec()).unwrap())
    }

    const AGENT: &str = concat!("evenkeel-replay/", env!("CARGO_PKG_VERSION"));

    #[test]
    fn what_is_logged_is_asked_again() {
        let format = "%V \"%r\" %>s %b \"%{User-Agent}i\" %{Content-Length}i";
        let asked = ask(&asker(), format, "www \"POST /a?b HTTP/1.0\" 200 5 \"x y\" 17").unwrap();
        let wanted =
            "POST /a?b HTTP/1.1\r\nHost: www\r\nUser-Agent: x y\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(asked, wanted);
        let asked = ask(&asker(), format, "- \"HEAD /\" 304 - \"a\\nb\" -").unwrap();
        let wanted = format!(
            "HEAD / HTTP/1.1\r\nHost: h:81\r\nUser-Agent: {AGENT}\r\nIf-Modified-Since: {}\r\n\r\n",
            asker().now
        );
        assert_eq!(asked, wanted);
        let asked = ask(&asker(), format, "a b \"GET /\\xe4 b HTTP/1.1\" 206 5 \"-\" -").unwrap();
        assert!(asked.starts_with("GET /%E4%20b HTTP/1.1\r\nHost: h:81\r\n"));
        assert!(asked.ends_with("\r\nRange: bytes=0-4\r\n\r\n"));
    }

    #[test]
    fn what_was_typed_comes_before_what_was_logged() {
        let typed = Asker {
            host: Some("typed".into()),
            fields: vec![("user-agent".into(), "me".into())],
            methods: vec!["GET".into()],
            closing: true,
            ..asker()
        };
        let asked = ask(&typed, "urls", "http://logged/").unwrap();
        let wanted = "GET / HTTP/1.1\r\nHost: typed\r\nuser-agent: me\r\nConnection: close\r\n\r\n";
        assert_eq!(asked, wanted);
        assert_eq!(ask(&typed, "urls", "POST /"), Err(Omission::Method));
    }

    #[test]
    fn what_was_no_request_is_told_apart() {
        let omitted = |line| ask(&asker(), "\"%r\" %>s", line).unwrap_err();
        assert_eq!(omitted("\"-\" 408"), Omission::Nothing);
        for line in [
            r#""\x16\x03\x01" 400"#,
            r#""\x16 \x03" 400"#,
            "\"GET\" 400",
            "\"GET /a b HTTP/1.1\" 400",
            "\"PRI * HTTP/2.0\" 505",
            "\"G(T / HTTP/1.1\" 200",
        ] {
            assert_eq!(omitted(line), Omission::NoHttp, "{line}");
        }
        assert_eq!(omitted("\"CONNECT a:443 HTTP/1.1\" 405"), Omission::Tunnel);
    }
}
