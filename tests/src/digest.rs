//! A client of Digest authentication that computes its responses itself, so that a test can send
//! any parameter wrong (RFC 7616 with MD5, and RFC 2069).

use crate::answer::{Parsed, Response, parse};
use crate::load::connect;
use md5::{Digest as _, Md5};
use std::borrow::Cow;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

/// MD5 in hexadecimal digits.
pub fn md5(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line of a file of users, as htdigest writes it.
pub fn line(user: &str, realm: &str, password: &str) -> String {
    format!("{user}:{realm}:{}\n", md5(&format!("{user}:{realm}:{password}")))
}

/// Sends one request on a connection of its own. `lines` are header lines without their ends.
pub fn send(
    address: SocketAddr,
    method: &str,
    target: &str,
    lines: &[String],
    body: &str,
) -> Result<Response, String> {
    let mut stream = connect(address)?;
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    for line in lines {
        text.push_str(&format!("{line}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str(&format!("Connection: close\r\n\r\n{body}"));
    stream.write_all(text.as_bytes()).map_err(|error| format!("sending: {error}"))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(|error| format!("reading: {error}"))?;
    match parse(&bytes, method == "HEAD", true) {
        Parsed::Whole(response, _) => Ok(response),
        Parsed::Part => Err(format!("no response: {}", String::from_utf8_lossy(&bytes))),
    }
}

/// The parameters of a challenge that a client needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// The nonce.
    pub nonce: String,
    /// The opaque value, if there is one.
    pub opaque: Option<String>,
}

/// The value of a quoted parameter.
pub fn quoted(field: &str, name: &str) -> Option<String> {
    let start = format!("{name}=\"");
    Some(field.split_once(&start)?.1.split('"').next()?.to_owned())
}

impl Challenge {
    /// The challenge in a response. Without one, its nonce is empty.
    pub fn of(response: &Response) -> Self {
        let field = response.header("WWW-Authenticate").unwrap_or_default();
        Self {
            nonce: quoted(field, " nonce").unwrap_or_default(),
            opaque: quoted(field, " opaque"),
        }
    }
}

/// What a client puts into its Authorization field.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The method.
    pub method: &'a str,
    /// The request target.
    pub uri: &'a str,
    /// The user name.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
    /// The realm.
    pub realm: &'a str,
    /// The nonce count; `None` for a response of RFC 2069, without qop.
    pub count: Option<&'a str>,
}

impl Login<'_> {
    fn hash(&self) -> String {
        md5(&format!("{}:{}:{}", self.user, self.realm, self.password))
    }

    /// The line of the Authorization field.
    pub fn line(&self, challenge: &Challenge) -> String {
        let Login { method, uri, user, realm, .. } = self;
        let Challenge { nonce, opaque } = challenge;
        let (hash, request_hash) = (self.hash(), md5(&format!("{method}:{uri}")));
        let (middle, more) = match self.count {
            Some(count) => {
                (format!("{count}:cn:auth:"), format!(", qop=auth, nc={count}, cnonce=\"cn\""))
            }
            None => (String::new(), String::new()),
        };
        let response = md5(&format!("{hash}:{nonce}:{middle}{request_hash}"));
        let opaque = opaque.as_ref().map(|it| format!(", opaque=\"{it}\"")).unwrap_or_default();
        let (user, realm) = (user.replace('"', "\\\""), realm.replace('"', "\\\""));
        format!(
            "Authorization: Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", \
             uri=\"{uri}\", response=\"{response}\"{more}{opaque}"
        )
    }

    /// The `rspauth` of a server that knows the password.
    pub fn proof(&self, nonce: &str) -> String {
        let uri_hash = md5(&format!(":{}", self.uri));
        let count = self.count.unwrap_or_default();
        md5(&format!("{}:{nonce}:{count}:cn:auth:{uri_hash}", self.hash()))
    }
}

/// The bytes of a request in which `@DIGEST USER PASSWORD@`, the value of an Authorization field,
/// is replaced by a login to the realm `here`.
pub fn with_login<'a>(request: &'a [u8], challenge: &Challenge, count: u32) -> Cow<'a, [u8]> {
    let login = || {
        let text = std::str::from_utf8(request).ok()?;
        let (before, rest) = text.split_once("Authorization: @DIGEST ")?;
        let (words, after) = rest.split_once('@')?;
        let (user, password) = words.split_once(' ')?;
        let mut line = text.split(' ');
        let (method, uri) = (line.next()?, line.next()?);
        let count = format!("{count:08x}");
        let login = Login { method, uri, user, password, realm: "here", count: Some(&count) };
        Some([before, &login.line(challenge), after].concat().into_bytes())
    };
    login().map_or(Cow::Borrowed(request), Cow::Owned)
}

/// A text with its nonces and opaque values replaced.
pub fn without_nonces(text: &str) -> String {
    let mut clean = text.to_owned();
    for name in [" nonce", "nextnonce", " opaque"] {
        if let Some(value) = quoted(text, name) {
            clean = clean.replace(&format!("{name}=\"{value}\""), &format!("{name}=\"*\""));
        }
    }
    let words = clean.split(' ').map(|word| {
        let (word, end) = word.split_at(word.find(';').unwrap_or(word.len()));
        let is_nonce = word.len() == 52 && word.as_bytes().get(11) == Some(&b'=');
        if is_nonce { format!("*{end}") } else { format!("{word}{end}") }
    });
    let clean = words.collect::<Vec<_>>().join(" ");
    // Apache's message ends with the hash that would be valid.
    match clean.split_once(" hash is not ") {
        Some((start, _)) => format!("{start} hash is not *"),
        None => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_filled_in() {
        let challenge = Challenge { nonce: "n".to_owned(), opaque: None };
        let request = b"GET /x HTTP/1.1\r\nAuthorization: @DIGEST ann secret@\r\n\r\n";
        let filled = with_login(request, &challenge, 1);
        let text = String::from_utf8_lossy(&filled);
        let response = "a0e5c6e967cb96af96e17a87f6a6ca1c:n:00000001:cn:auth:";
        let response = md5(&format!("{response}{}", md5("GET:/x")));
        assert!(text.contains(&format!("uri=\"/x\", response=\"{response}\"")), "{text}");
        assert!(text.ends_with("cnonce=\"cn\"\r\n\r\n"), "{text}");
        assert_eq!(&*with_login(b"GET / HTTP/1.1\r\n\r\n", &challenge, 1).len().to_string(), "18");
    }

    #[test]
    fn nonces_are_not_compared() {
        let nonce = format!("AAAAAAAAAAA={}", "0".repeat(40));
        let text = format!("Digest realm=\"x\", nonce=\"{nonce}\", opaque=\"1\", qop=\"auth\"");
        let want = "Digest realm=\"x\", nonce=\"*\", opaque=\"*\", qop=\"auth\"";
        assert_eq!(without_nonces(&text), want);
        assert_eq!(without_nonces(&format!("nonce {nonce} received")), "nonce * received");
        assert_eq!(without_nonces("Basic realm=\"a nonce\""), "Basic realm=\"a nonce\"");
    }
}
