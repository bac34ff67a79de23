//! Tests of mod_auth_digest with a client that computes its responses itself.

use super::*;
use crate::testing::core_settings;
use evenkeel_message::{Method, Peer, Request, RequestHead};

const USER: &str = "ann";
const REALM: &str = "here";
const HASH: &str = "a0e5c6e967cb96af96e17a87f6a6ca1c";

fn section(change: impl FnOnce(&mut Said)) -> Directory {
    prepare(&Global::default()).unwrap();
    let mut said = Said::default();
    change(&mut said);
    Directory { said: Some(Arc::new(said)) }
}

fn request(target: &str, field: Option<&str>) -> Request {
    let address = "127.0.0.1:80".parse().unwrap();
    let mut head = RequestHead {
        line: format!("GET {target} HTTP/1.1").into_bytes(),
        method: Method::Get,
        method_end: 3,
        target: (4, 4 + target.len()),
        ..RequestHead::default()
    };
    if let Some(field) = field {
        head.fields.set("Authorization", field);
    }
    let mut request =
        Request::new(head, Peer { client: address, local: address }, 1_700_000_000_000_000);
    request.host = b"localhost".to_vec();
    request
}

/// The parameters that a client has learnt from a challenge.
#[derive(Clone, Debug)]
struct Client {
    nonce: String,
    opaque: Option<String>,
}

fn between(text: &str, start: &str) -> Option<String> {
    Some(text.split_once(start)?.1.split('"').next()?.to_owned())
}

fn challenged(section: &Directory, request: &Request, is_stale: bool) -> (Client, String) {
    let fields = challenge(request, section, REALM.as_bytes(), is_stale);
    let text = String::from_utf8(fields.joined("WWW-Authenticate").unwrap()).unwrap();
    let nonce = between(&text, "nonce=\"").unwrap();
    (Client { nonce, opaque: between(&text, "opaque=\"") }, text)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

impl Client {
    fn of(section: &Directory) -> Self {
        challenged(section, &request("/", None), false).0
    }

    fn field(&self, count: &str) -> String {
        let request_hash = text(md5(&[b"GET:/x"]));
        let nonce = &self.nonce;
        let joined = format!("{HASH}:{nonce}:{count}:c:auth:{request_hash}");
        let response = text(md5(&[joined.as_bytes()]));
        let opaque =
            self.opaque.as_ref().map(|it| format!(", opaque=\"{it}\"")).unwrap_or_default();
        format!(
            "Digest username=\"{USER}\", realm=\"{REALM}\", nonce=\"{nonce}\", uri=\"/x\", \
             response=\"{response}\", qop=auth, nc={count}, cnonce=\"c\"{opaque}"
        )
    }
}

/// Logs in with a field. Returns the denial, the numbers of the messages, and Authentication-Info.
fn log_in_at(
    section: &Directory,
    request: &mut Request,
) -> (Result<(), Denial>, Vec<Option<u16>>, String) {
    let result = begin(request, REALM.as_bytes(), core_settings()).and_then(|proof| {
        conclude(request, section, &proof, Found::Hash(HASH.as_bytes()), &String::new)
    });
    let info = request.resource.fields.joined("Authentication-Info").unwrap_or_default();
    (result, request.notices.iter().map(|notice| notice.number).collect(), text(info))
}

fn log_in(section: &Directory, field: &str) -> (Result<(), Denial>, Vec<Option<u16>>) {
    let (result, notices, _) = log_in_at(section, &mut request("/x", Some(field)));
    (result, notices)
}

const DENIED: Result<(), Denial> = Err(Denial::Challenge { is_stale: false });
const STALE: Result<(), Denial> = Err(Denial::Challenge { is_stale: true });

#[test]
fn a_right_response_logs_in_and_a_changed_one_does_not() {
    let section = section(|_| {});
    let field = Client::of(&section).field("00000001");
    assert_eq!(log_in(&section, &field), (Ok(()), vec![]));
    assert_eq!(log_in(&section, &field), (Ok(()), vec![]), "counts are not checked");
    for (old, new, result, number) in [
        ("\"ann\"", "\"bob\"", Ok(()), None),
        ("\"here\"", "\"there\"", DENIED, Some(1788)),
        (
            "uri=\"/x\"",
            "uri=\"/y\"",
            Err(Denial::Status(evenkeel_message::Status::BAD_REQUEST)),
            Some(1786),
        ),
        ("nc=00000001", "nc=00000002", DENIED, Some(1794)),
        ("cnonce=\"c\"", "cnonce=\"d\"", DENIED, Some(1794)),
        ("qop=auth,", "qop=auth-int,", DENIED, Some(10560)),
        ("qop=auth,", "algorithm=SHA-256, qop=auth,", DENIED, Some(1789)),
        ("qop=auth,", "opaque=\"x\", qop=auth,", DENIED, Some(1787)),
        ("qop=auth,", "opaque=\"5\", qop=auth,", STALE, Some(1776)),
        ("qop=auth, nc=00000001, cnonce=\"c\"", "x=y", DENIED, Some(10560)),
        ("cnonce=", "other=", DENIED, Some(1782)),
        ("username=", "other=", DENIED, Some(1782)),
        ("uri=", "other=", DENIED, Some(1782)),
        ("realm=", "other=", DENIED, Some(1782)),
        ("nonce=\"", "nonce=\"x", DENIED, Some(1782)),
        ("response=\"", "response=\"x", DENIED, Some(1782)),
        ("Digest", "Basic", DENIED, Some(1781)),
    ] {
        let changed = field.replacen(old, new, 1);
        assert_ne!(changed, field, "{old}");
        let numbers = number.map(Some).into_iter().collect();
        assert_eq!(log_in(&section, &changed), (result, numbers), "{changed}");
    }
    let (result, numbers, _) = log_in_at(&section, &mut request("/x", None));
    assert_eq!((result, numbers), (DENIED, vec![]));
}

#[test]
fn a_nonce_expires_and_the_next_one_is_announced_before() {
    let section = section(|_| {});
    let client = Client::of(&section);
    for (age_s, result, has_next) in
        [(0, Ok(()), false), (269, Ok(()), false), (271, Ok(()), true), (301, STALE, false)]
    {
        let mut request = request("/x", Some(&client.field("1")));
        request.time_us += age_s * 1_000_000;
        let (got, _, info) = log_in_at(&section, &mut request);
        assert_eq!((got, info.contains("nextnonce=")), (result, has_next), "{age_s}");
    }
    let mut early = request("/x", Some(&client.field("1")));
    early.time_us -= 1;
    let (result, numbers, _) = log_in_at(&section, &mut early);
    assert_eq!((result, numbers), (STALE, vec![Some(1777)]));
    let eternal = self::section(|said| said.lifetime_us = -1);
    let mut late = request("/x", Some(&client.field("1")));
    late.time_us *= 2;
    let (result, _, info) = log_in_at(&eternal, &mut late);
    assert!(result.is_ok() && !info.contains("nextnonce="), "{info}");
}

#[test]
fn authentication_info_proves_the_hash_to_the_client() {
    let section = section(|_| {});
    let client = Client::of(&section);
    let mut asked = request("/x", Some(&client.field("0a")));
    let (_, _, info) = log_in_at(&section, &mut asked);
    let joined = format!("{HASH}:{}:0a:c:auth:{}", client.nonce, text(md5(&[b":/x"])));
    let response = text(md5(&[joined.as_bytes()]));
    assert_eq!(info, format!("rspauth=\"{response}\", cnonce=\"c\", nc=0a, qop=auth"));
    let mut subrequest = request("/x", Some(&client.field("0a")));
    subrequest.resource.depth = 1;
    assert_eq!(log_in_at(&section, &mut subrequest).2, "");
}

#[test]
fn a_count_is_accepted_once_under_nc_check() {
    let section = section(|said| said.checks_count = true);
    let client = Client::of(&section);
    let used = |count: &str| log_in(&section, &client.field(count));
    assert_eq!(used("00000001"), (Ok(()), vec![]));
    assert_eq!(used("00000001"), (DENIED, vec![Some(1774)]));
    assert_eq!(used("00000003"), (Ok(()), vec![]));
    assert_eq!(used("00000002"), (Ok(()), vec![]));
    assert_eq!(used("00000002"), (DENIED, vec![Some(1774)]));
    assert_eq!(used("x"), (DENIED, vec![Some(1773)]));
    assert_eq!(used("-1"), (DENIED, vec![Some(1773)]));
    // A request checks several sections with the same field, as for a listing.
    let mut asked = request("/x", Some(&client.field("00000004")));
    assert!(log_in_at(&section, &mut asked).0.is_ok());
    assert!(log_in_at(&section, &mut asked).0.is_ok());
    assert_eq!(used("00000004").0, DENIED);
    // A nonce of a section that does not count has no client.
    let uncounted = Client::of(&self::section(|_| {}));
    assert_eq!(log_in(&section, &uncounted.field("00000001")), (STALE, vec![Some(10618)]));
    let once = Client::of(&self::section(|said| said.lifetime_us = 0));
    assert_ne!(log_in(&section, &once.field("00000001")).0, Ok(()));
}

#[test]
fn a_nonce_is_accepted_once_where_it_has_no_lifetime() {
    let section = section(|said| said.lifetime_us = 0);
    let mut client = Client::of(&section);
    for _ in 0..3 {
        let field = client.field("00000001");
        let (result, _, info) = log_in_at(&section, &mut request("/x", Some(&field)));
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(log_in(&section, &field), (STALE, vec![Some(1779)]));
        client.nonce = between(&info, "nextnonce=\"").unwrap();
    }
    let mut asked = request("/x", Some(&client.field("00000001")));
    let first = log_in_at(&section, &mut asked).2;
    asked.resource.fields = Default::default();
    assert_eq!(log_in_at(&section, &mut asked).2, first);
    let timed = Client::of(&self::section(|_| {}));
    assert_eq!(log_in(&section, &timed.field("00000001")), (STALE, vec![Some(10618)]));
}

#[test]
fn a_challenge_is_apaches() {
    let plain = section(|_| {});
    let (client, text) = challenged(&plain, &request("/", None), false);
    let nonce = &client.nonce;
    let want = format!("Digest realm=\"here\", nonce=\"{nonce}\", algorithm=MD5, qop=\"auth\"");
    assert_eq!(text, want);
    let rich = section(|said| {
        said.checks_count = true;
        said.domains = vec!["/a".into(), "/b".into()];
    });
    let (client, text) = challenged(&rich, &request("/", None), true);
    let (nonce, opaque) = (&client.nonce, client.opaque.unwrap());
    let want = format!(
        "Digest realm=\"here\", nonce=\"{nonce}\", algorithm=MD5, opaque=\"{opaque}\", \
         domain=\"/a /b\", stale=true, qop=\"auth\""
    );
    assert_eq!(text, want);
    // A client that the table has forgotten starts anew.
    let known = Client { nonce: String::new(), opaque: Some(opaque.clone()) };
    let text = challenged(&plain, &request("/", Some(&known.field("1"))), false).1;
    assert!(text.contains(&format!("opaque=\"{opaque}\"")) && !text.contains("stale"), "{text}");
    let forgotten = Client { nonce: String::new(), opaque: Some("ffffffffff".into()) };
    let text = challenged(&plain, &request("/", Some(&forgotten.field("1"))), false).1;
    assert!(text.contains("opaque=") && text.contains("stale=true"), "{text}");
}
