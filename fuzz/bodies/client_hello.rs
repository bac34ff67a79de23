//! Passes the input to a TLS session as what a client sends first, whole and in pieces, which must
//! come to the same. The first byte chooses the size of the pieces. A session that waits for more
//! holds no more than it has been sent, and one that fails stays so.

use evenkeel_tls::{Door, Hello, Host, Identity, Outgoing, PrivateKeyDer, Session, Settings};
use std::sync::{Arc, LazyLock};

/// Two hosts, of which the first takes names that nobody has.
#[derive(Debug)]
struct Two([Arc<Host>; 2]);

impl Door for Two {
    fn host(&self, hello: &Hello<'_>) -> Option<Arc<Host>> {
        let named = self.0.iter().find(|host| Some(host.name.as_str()) == hello.name);
        named.or_else(|| self.0.first()).cloned()
    }
}

static DOOR: LazyLock<Arc<dyn Door>> =
    LazyLock::new(|| Arc::new(Two(["a.example", "b.example"].map(host))));

fn host(name: &str) -> Arc<Host> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let identity = Identity::new(vec![made.cert.der().clone()], &key).expect("they match");
    Arc::new(Host::new(Settings::new(0, name.to_owned(), vec![identity])).expect("a host"))
}

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let whole = pass(bytes, bytes.len().max(1));
    assert_eq!(whole, pass(bytes, usize::from(*choice) + 1));
}

/// The chosen host or the failure, and whether something was sent back.
fn pass(bytes: &[u8], piece: usize) -> (Option<String>, Option<String>, bool) {
    let mut session = Session::accept(Arc::clone(&DOOR));
    let (mut plain, mut out) = (Vec::new(), Outgoing::new());
    let mut failure = None;
    for part in bytes.chunks(piece) {
        if let Err(found) = session.receive(&mut part.to_vec(), &mut plain, &mut out) {
            assert!(session.receive(&mut [22], &mut plain, &mut out).is_err());
            failure = Some(format!("{:?}", found.kind));
            break;
        }
    }
    assert!(plain.is_empty(), "nobody can know the keys");
    assert!(session.is_handshaking() && session.send(b"x", &mut out).is_err());
    assert!(out.memory() < 64 << 10);
    (session.host().map(|host| host.name.clone()), failure, !out.is_empty())
}
