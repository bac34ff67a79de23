//! A client of Digest authentication that computes its responses itself, so that a test can send
//! any parameter wrong (RFC 7616 with MD5, and RFC 2069).

use crate::answer::{Parsed, Response, parse};
use crate::load::connect;
use md5::{Digest as _, Md5};
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
