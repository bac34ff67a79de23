//! Parses a head as a whole and in two pieces, which must give the same result, and determines the
//! host and the normalised path of the request. The first byte of the input chooses the options and
//! where to split. Nothing may panic, and the result must contain nothing that a head may not
//! contain.

use evenkeel_message::{BodyLength, Peer, Request, RequestHead, UriOptions, UrlPath, Version};
use evenkeel_proto::{
    HeadParser, HttpProtocolOptions, KnownHost, Limits, Parsed, Refusal, address, raw_path,
};
use std::net::{Ipv4Addr, SocketAddr};

/// Small limits, so that the fuzzer reaches them.
const LIMITS: Limits = Limits { line: 200, field_size: 100, fields: 8 };

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let options = HttpProtocolOptions {
        strict: choice & 1 == 0,
        registered_methods: choice & 2 != 0,
        allow_http09: choice & 4 == 0,
    };
    let split = bytes.len() * usize::from(choice >> 3) / 31;
    let (whole, head) = read(bytes, &[bytes.len()], &options);
    let (pieces, other) = read(bytes, &[split, bytes.len()], &options);
    assert_eq!(whole, pieces);
    assert_eq!(head.line, other.line);
    assert_eq!(format!("{:?}", head.fields), format!("{:?}", other.fields));
    if let Ok(Parsed::Complete(used)) = whole {
        assert!(used <= bytes.len() && used == head.wire_bytes);
        check(&head, &options);
        follow(head, &options);
    }
}

/// Parses the bytes up to each of the ends in turn.
fn read(
    bytes: &[u8],
    ends: &[usize],
    options: &HttpProtocolOptions,
) -> (Result<Parsed, Refusal>, RequestHead) {
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::default());
    for end in ends {
        let result = parser.parse(&mut head, &bytes[..*end], &LIMITS, options);
        if result != Ok(Parsed::Partial) {
            return (result, head);
        }
    }
    (Ok(Parsed::Partial), head)
}

fn check(head: &RequestHead, options: &HttpProtocolOptions) {
    assert!(!head.method_text().is_empty() && !head.target().is_empty());
    assert!(head.line.len() <= LIMITS.line + 1 && head.fields.len() <= LIMITS.fields);
    assert!(head.line.iter().all(|byte| *byte >= b' '));
    for (name, value) in head.fields.iter() {
        assert!(!name.is_empty() && !name.contains(&b':'));
        let whole = [name, value].concat();
        assert!(!whole.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        if options.strict {
            assert!(!whole.iter().any(|byte| *byte < b' ' && *byte != b'\t'));
        }
    }
    let lengths = head.fields.all(b"Content-Length").count();
    let codings = head.fields.all(b"Transfer-Encoding").count();
    let expected = match (head.version, head.length) {
        (Version::Http09, length) => length == BodyLength::None && head.fields.is_empty(),
        (_, BodyLength::None) => (lengths, codings) == (0, 0),
        (_, BodyLength::Exact(_)) => (lengths, codings) == (1, 0),
        (_, BodyLength::Chunked) => lengths == 0 && codings > 0,
    };
    assert!(expected, "{:?} of {lengths} and {codings}", head.length);
}

fn follow(head: RequestHead, options: &HttpProtocolOptions) {
    let end = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
    let mut request = Request::new(head, Peer { client: end, local: end }, 0);
    if address(&mut request, options, &KnownHost::default()).is_err() {
        return;
    }
    assert!(request.host.iter().all(|byte| !byte.is_ascii_uppercase()));
    let raw = raw_path(&request.head);
    if let Ok(path) = UrlPath::parse(raw, UriOptions::default()) {
        assert!(!path.split(|byte| *byte == b'/').any(|segment| segment == b".."));
    }
}
