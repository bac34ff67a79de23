//! Encodes requests from method, target, fields and body as they were typed or logged, for every
//! command of the lab. Nothing that was typed can end a line and begin another, except whole lines,
//! which ab accepts.

use crate::load::{Request, Target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// A request that is being assembled.
#[derive(Clone, Debug)]
pub struct Draft {
    method: String,
    target: String,
    version: &'static str,
    authority: String,
    /// The names, and the lines without their ends.
    fields: Vec<(String, Vec<u8>)>,
    body: Option<Bytes>,
    close: bool,
}

impl Draft {
    /// A request for a URL, with the target in origin form (RFC 9112, section 3.2.1).
    #[must_use]
    pub fn new(method: &str, url: &Target) -> Self {
        Self {
            method: method.to_owned(),
            target: url.path.clone(),
            version: "HTTP/1.1",
            authority: url.authority(),
            fields: Vec::new(),
            body: None,
            close: false,
        }
    }

    /// The same request with another target: a path with its query, or what is in a log.
    #[must_use]
    pub fn with_target(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// The same request for a proxy: the target in absolute form (section 3.2.2).
    #[must_use]
    pub fn through_proxy(mut self, url: &Target) -> Self {
        self.target = url.to_string();
        self
    }

    /// The same request in HTTP/1.0.
    #[must_use]
    pub fn of_http_1_0(mut self) -> Self {
        self.version = "HTTP/1.0";
        self
    }

    /// The same request with a body, and with Content-Length for it.
    #[must_use]
    pub fn with_body(mut self, body: Bytes) -> Self {
        self.body = Some(body);
        self
    }

    /// The same request with `Connection: close`.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// The same request with a field in place of all fields of that name.
    ///
    /// # Errors
    ///
    /// The name is not a token, or the value contains a control byte.
    pub fn with_field(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, String> {
        self.fields.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self.with_another_field(name, value)
    }

    /// The same request with another field, in addition to those of that name.
    ///
    /// # Errors
    ///
    /// As for [`Draft::with_field`].
    pub fn with_another_field(
        mut self,
        name: &str,
        value: impl AsRef<[u8]>,
    ) -> Result<Self, String> {
        check_field(name, value.as_ref())?;
        let line = [name.as_bytes(), b": ", value.as_ref()].concat();
        self.fields.push((name.to_owned(), line));
        Ok(self)
    }

    /// The same request with a line as it was typed, whatever it is.
    #[must_use]
    pub fn with_line(mut self, line: &str) -> Self {
        let name = line.split_once(':').map_or(line, |(name, _)| name).trim();
        self.fields.push((name.to_owned(), line.as_bytes().to_vec()));
        self
    }

    /// Whether it has a field with that name.
    #[must_use]
    pub fn has_field(&self, name: &str) -> bool {
        self.fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    }

    /// The bytes: Host first, unless a field replaces it; then the fields in order, Content-Length
    /// if there is a body, and Connection if the connection is to end.
    ///
    /// # Errors
    ///
    /// The method is not a token, or the target contains a space or a control byte.
    pub fn encode(&self) -> Result<Request, String> {
        if !is_token(&self.method) {
            return Err(format!("{:?}: no method's name", self.method));
        }
        if self.target.is_empty() || self.target.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!("{:?}: a target has no spaces or control bytes", self.target));
        }
        let body = self.body.as_deref().unwrap_or_default();
        let mut bytes = Vec::with_capacity(256 + body.len());
        let mut put = |line: &[u8]| {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        };
        put(format!("{} {} {}", self.method, self.target, self.version).as_bytes());
        if !self.has_field("host") {
            put(format!("Host: {}", self.authority).as_bytes());
        }
        for (_, line) in &self.fields {
            put(line);
        }
        let framed = self.has_field("content-length") || self.has_field("transfer-encoding");
        if self.body.is_some() && !framed {
            put(format!("Content-Length: {}", body.len()).as_bytes());
        }
        if self.close && !self.has_field("connection") {
            put(b"Connection: close");
        }
        put(b"");
        bytes.extend_from_slice(body);
        let no_body = self.method == "HEAD";
        Ok(Request { bytes: Bytes::from(bytes), no_body, ..Request::default() })
    }
}

/// The two parts of a field as it was typed, `Name: value`.
///
/// # Errors
///
/// There is no colon, or as for [`Draft::with_field`].
pub fn parse_field(text: &str) -> Result<(&str, &str), String> {
    let (name, value) =
        text.split_once(':').ok_or_else(|| format!("{text:?}: a field is \"Name: value\""))?;
    let (name, value) = (name.trim_end(), value.trim());
    check_field(name, value.as_bytes())?;
    Ok((name, value))
}

/// The value of (Proxy-)Authorization for `name:password` (RFC 7617).
#[must_use]
pub fn basic_credentials(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

fn check_field(name: &str, value: &[u8]) -> Result<(), String> {
    if !is_token(name) {
        return Err(format!("{name:?}: no field's name"));
    }
    if value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
        return Err(format!("{name}: its value holds a control byte"));
    }
    Ok(())
}

/// Whether it is a token (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(draft: &Draft) -> String {
        String::from_utf8(draft.encode().unwrap().bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_request_is_encoded() {
        let url = Target::parse("http://[::1]:81/a?b").unwrap();
        let draft = Draft::new("GET", &url);
        assert_eq!(text(&draft), "GET /a?b HTTP/1.1\r\nHost: [::1]:81\r\n\r\n");
        let posted = Draft::new("POST", &url).with_body(Bytes::from_static(b"xy")).closing();
        assert!(text(&posted).ends_with("Content-Length: 2\r\nConnection: close\r\n\r\nxy"));
        let proxied = text(&draft.clone().through_proxy(&url));
        assert!(proxied.starts_with("GET http://[::1]:81/a?b HTTP/1.1\r\n"));
        assert!(Draft::new("HEAD", &url).encode().unwrap().no_body);
        assert!(text(&draft.with_target("*")).starts_with("GET * "));
    }

    #[test]
    fn what_was_typed_takes_the_place_of_what_is_usual() {
        let url = Target::parse("http://a/").unwrap();
        let draft = Draft::new("GET", &url).closing().with_body(Bytes::new());
        let draft = draft.with_field("host", "b").unwrap().with_field("Host", "c").unwrap();
        let draft = draft.with_field("Connection", "keep-alive").unwrap();
        let draft = draft.with_another_field("X", "1").unwrap();
        let draft = draft.with_another_field("X", "2").unwrap();
        let wanted = "GET / HTTP/1.1\r\nHost: c\r\nConnection: keep-alive\r\nX: 1\r\nX: 2\r\n\
                      Content-Length: 0\r\n\r\n";
        assert_eq!(text(&draft), wanted);
    }

    #[test]
    fn a_line_may_be_as_it_was_typed() {
        let url = Target::parse("http://a/").unwrap();
        let draft = Draft::new("GET", &url).of_http_1_0().with_line("host:b").with_line("odd");
        assert!(draft.has_field("Host") && draft.has_field("odd"));
        assert_eq!(text(&draft), "GET / HTTP/1.0\r\nhost:b\r\nodd\r\n\r\n");
    }

    #[test]
    fn nothing_ends_a_line_and_begins_another() {
        let url = Target::parse("http://a/").unwrap();
        let draft = Draft::new("GET", &url);
        assert!(draft.clone().with_field("A", "b\r\nC: d").is_err());
        assert!(draft.clone().with_field("A\r\nB", "c").is_err());
        assert!(draft.clone().with_target("/ HTTP/1.1\r\nA:").encode().is_err());
        assert!(Draft::new("GET /", &url).encode().is_err());
        assert!(parse_field("no colon").is_err() && parse_field(": v").is_err());
        assert_eq!(parse_field("A:  b c "), Ok(("A", "b c")));
        assert_eq!(basic_credentials("Aladdin:open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}
