//! Compiles an expression as a condition, as a text, as a pattern, as wildcards and as a subnet,
//! and evaluates it for a request. The input is the expression, a NUL, and the value of everything
//! in the request. Nothing may panic, hang or grow; no file is read.

use evenkeel_expr::{
    Author, Captures, Condition, Context, Evaluation, FileError, GlobStyle, Pattern,
    PatternOptions, Subnet, Text, Variable, glob,
};
use std::borrow::Cow;
use std::fs::Metadata;
use std::net::{IpAddr, Ipv4Addr};

/// A request in which everything has the same value.
struct Request<'v>(&'v [u8]);

impl Context for Request<'_> {
    fn variable(&self, _variable: Variable) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.0)
    }

    fn request_header(&self, _name: &[u8]) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.0))
    }

    fn response_header(&self, _name: &[u8]) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.0))
    }

    fn request_environment(&self, _name: &[u8]) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.0))
    }

    fn note(&self, _name: &[u8]) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn client_address(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn file_allowed(&self, _path: &[u8]) -> Option<bool> {
        Some(true)
    }

    fn url_allowed(&self, _url: &[u8]) -> Option<bool> {
        Some(false)
    }

    fn metadata(&self, _path: &[u8], _follow: bool) -> Option<Metadata> {
        None
    }

    fn file_contents(&self, _path: &[u8]) -> Result<Vec<u8>, FileError> {
        Ok(self.0.to_vec())
    }
}

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (head, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(text) = std::str::from_utf8(head) else { return };
    let request = Request(value);
    ask(text, &request);
    match_pattern(text, value);
    for path in [false, true] {
        let _ = glob(head, value, GlobStyle { path, ignore_case: !path });
    }
    if let Some(subnet) = Subnet::parse(text) {
        assert!(subnet.contains(subnet.base()), "{text} does not contain its own base");
    }
}

/// Compiles and evaluates. Whatever an .htaccess file may contain, the server's configuration may
/// contain too.
fn ask(text: &str, request: &Request<'_>) {
    let mut evaluation = Evaluation::new(request);
    match Condition::compile(text, Author::Server) {
        Ok(condition) => _ = evaluation.holds(&condition),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(Condition::compile(text, Author::Htaccess).is_err());
        }
    }
    match Text::compile(text, Author::Server) {
        Ok(text) => _ = evaluation.text(&text),
        Err(_) => assert!(Text::compile(text, Author::Htaccess).is_err()),
    }
}

/// Pinning a dollar to the end must change nothing else: what compiled before still compiles, and
/// matches the same if the value has no line ends, unless the pattern defines the end of a line.
fn match_pattern(text: &str, value: &[u8]) {
    let loose = PatternOptions { dollar_end_only: false, ..PatternOptions::default() };
    let loose = Pattern::compile(text, loose);
    let pinned = Pattern::compile(text, PatternOptions::default());
    assert_eq!(loose.is_ok(), pinned.is_ok(), "{text}: {loose:?} {pinned:?}");
    let (Ok(loose), Ok(pinned)) = (loose, pinned) else { return };
    assert_eq!(loose.groups(), pinned.groups());
    let mut captures = Captures::default();
    let found = pinned.capture(value, &mut captures);
    let mut out = Vec::new();
    captures.substitute(text.as_bytes(), &mut out);
    if value.contains(&b'\n') || text.contains("(*") {
        return;
    }
    if let (Ok(found), Ok(loose)) = (found, loose.matches(value)) {
        assert_eq!(found, loose, "{text} on {value:?}");
    }
}
