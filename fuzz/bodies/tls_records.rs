//! A TLS client sends the input through a session and receives it back, with the stream of either
//! side split as the first eight bytes say. What arrives is what was sent; after damage to a byte
//! it is a beginning of that. The ninth byte chooses the version and whether there is damage, the
//! tenth where.

use evenkeel_tls::{
    Door, Hello, Host, Identity, Outgoing, PrivateKeyDer, Session, Settings, trusting_client,
};
use rustls::{ClientConnection, version};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, LazyLock};

#[derive(Debug)]
struct One(Arc<Host>);

impl Door for One {
    fn host(&self, _: &Hello<'_>) -> Option<Arc<Host>> {
        Some(Arc::clone(&self.0))
    }
}

static DOOR: LazyLock<Arc<dyn Door>> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let identity = Identity::new(vec![made.cert.der().clone()], &key).expect("they match");
    let settings = Settings::new(0, "a.example".to_owned(), vec![identity]);
    Arc::new(One(Arc::new(Host::new(settings).expect("a host"))))
});

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((sizes, rest)) = data.split_first_chunk::<8>() else { return };
    let Some(([choice, place], body)) = rest.split_first_chunk::<2>() else { return };
    let version = if choice & 1 == 0 { &version::TLS13 } else { &version::TLS12 };
    let config = trusting_client(&[version], None).expect("a client");
    let name = "a.example".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    client.set_buffer_limit(None);
    let mut session = Session::accept(Arc::clone(&DOOR));
    let mut pieces = Pieces { sizes: *sizes, at: 0 };
    // The handshake.
    let mut plain = Vec::new();
    for _ in 0..4 {
        let sent = take_output(&mut client);
        let answer = pass(&mut session, sent, &mut pieces, &mut plain).expect("a good handshake");
        give(&mut client, &answer, &mut pieces);
    }
    assert!(!client.is_handshaking() && !session.is_handshaking() && plain.is_empty());
    // The body there and back.
    client.writer().write_all(body).expect("room without a limit");
    let mut sent = take_output(&mut client);
    let is_damaged = choice & 2 != 0 && !sent.is_empty();
    if is_damaged {
        let at = usize::from(*place) * sent.len() / 256;
        if let Some(byte) = sent.get_mut(at) {
            *byte ^= 1 << (choice >> 5);
        }
    }
    let passed = pass(&mut session, sent, &mut pieces, &mut plain);
    // The version in a record's header is of no meaning (RFC 8446, section 5.1).
    if is_damaged {
        assert!(body.starts_with(&plain), "what was not authenticated is not given out");
        return;
    }
    assert!(passed.is_ok() && plain == body);
    assert!(!session.has_partial(), "a session at rest holds no buffer");
    let mut out = Outgoing::new();
    session.send(&plain, &mut out).expect("an open session");
    let mut back = give(&mut client, out.bytes(), &mut pieces);
    back.extend(read(&mut client));
    assert_eq!(back, body);
}

/// The sizes of the pieces, again and again.
struct Pieces {
    sizes: [u8; 8],
    at: usize,
}

impl Pieces {
    /// The next size; the upper half of the numbers counts in steps of 64.
    fn next(&mut self) -> usize {
        let size = self.sizes.get(self.at % 8).copied().map_or(0, usize::from);
        self.at += 1;
        if size < 128 { size + 1 } else { (size - 127) * 64 }
    }

    fn split<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(self.next().min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

fn take_output(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("a vector takes everything");
    }
    bytes
}

/// Passes bytes to the session, and returns what it sends.
fn pass(
    session: &mut Session,
    bytes: Vec<u8>,
    pieces: &mut Pieces,
    plain: &mut Vec<u8>,
) -> Result<Vec<u8>, ()> {
    let mut out = Outgoing::new();
    for piece in pieces.split(&bytes) {
        session.receive(&mut piece.to_vec(), plain, &mut out).map_err(drop)?;
    }
    Ok(out.bytes().to_vec())
}

/// Passes bytes to the client, and returns what it reads.
fn give(client: &mut ClientConnection, bytes: &[u8], pieces: &mut Pieces) -> Vec<u8> {
    let mut plain = Vec::new();
    for mut piece in pieces.split(bytes) {
        while !piece.is_empty() {
            client.read_tls(&mut piece).expect("a slice gives everything");
            client.process_new_packets().expect("good records");
            plain.extend(read(client));
        }
    }
    plain
}

fn read(client: &mut ClientConnection) -> Vec<u8> {
    let mut plain = Vec::new();
    // The end is "would block", because the client may receive more.
    let _more = client.reader().read_to_end(&mut plain);
    plain
}
