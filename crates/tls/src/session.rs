//! One TLS connection of a client, as bytes in and bytes out. A session waits for the ClientHello,
//! lets the [`Door`] choose the host, and then is rustls's connection without its buffers. Between
//! requests a session holds no buffer at all.

use crate::facts::Facts;
use crate::failure::Failure;
use crate::host::{Door, Hello, Host};
use crate::outgoing::Outgoing;
use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{AlertDescription, HandshakeKind, ProtocolVersion};
use std::sync::Arc;

/// The largest ClientHello that is taken, in bytes. Those of browsers with a post-quantum key share
/// have about 1,800.
const LARGEST_HELLO: usize = 64 * 1024;

/// What a record costs beyond its payload, at most: its header, the explicit nonce of TLS 1.2 or
/// the type of TLS 1.3, and the tag.
const RECORD_OVERHEAD: usize = 5 + 8 + 1 + 16;

/// The payload of a full record (RFC 8446, section 5.1).
pub const RECORD: usize = 16 * 1024;

/// Where a session is after it has taken some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The handshake needs more bytes of the client.
    Handshaking,
    /// The next step of the handshake takes milliseconds of CPU time and has not been done.
    /// [`Session::take_step`] hands it out, to be done in any thread.
    Due,
    /// The handshake ended with these bytes. [`Session::facts`] says what was agreed.
    Established,
    /// The session is open, as it was before.
    Open,
    /// The client has closed its side with `close_notify`. What it sent before is valid; the
    /// session can still send.
    Closed,
}

/// A TLS session.
pub struct Session {
    stage: Stage,
    /// Bytes that the client has sent and that are no complete message yet.
    pending: Vec<u8>,
    /// How far this ClientHello has been passed to the acceptor.
    seen: usize,
    effort: u32,
    closed: bool,
    peer_closed: bool,
    is_due: bool,
}

/// A step of a handshake that takes long, with the session: it is absent until
/// [`Session::finish_step`] brings it back. Whoever is not interested any more drops it.
#[derive(Debug)]
pub struct Step(Session);

/// What has come of a step.
#[derive(Debug)]
pub struct StepDone {
    session: Session,
    plain: Vec<u8>,
    out: Outgoing,
    result: Result<Progress, Failure>,
}

impl Step {
    /// Does the step, in whatever thread.
    #[must_use]
    pub fn run(self) -> StepDone {
        let Self(mut session) = self;
        let (mut plain, mut out) = (Vec::new(), Outgoing::new());
        let result = session.process(&mut [], &mut plain, &mut out);
        StepDone { session, plain, out, result }
    }
}

enum Stage {
    Hello {
        door: Arc<dyn Door>,
        acceptor: Option<Box<Acceptor>>,
    },
    Handshake {
        connection: Box<UnbufferedServerConnection>,
        host: Arc<Host>,
        facts: Box<Facts>,
        /// Whether the next message of the client may be answered with a signature that takes long.
        signs_next: bool,
    },
    Open {
        connection: Box<UnbufferedServerConnection>,
        facts: Arc<Facts>,
    },
    Failed,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match &self.stage {
            Stage::Hello { .. } => "hello",
            Stage::Handshake { .. } => "handshake",
            Stage::Open { .. } => "open",
            Stage::Failed => "failed",
        };
        f.debug_struct("Session")
            .field("stage", &stage)
            .field("pending", &self.pending.len())
            .finish()
    }
}

impl Session {
    /// A session of a connection that has just been accepted.
    #[must_use]
    pub fn accept(door: Arc<dyn Door>) -> Self {
        Self::at(Stage::Hello { door, acceptor: None })
    }

    const fn at(stage: Stage) -> Self {
        Self {
            stage,
            pending: Vec::new(),
            seen: 0,
            effort: 0,
            closed: false,
            peer_closed: false,
            is_due: false,
        }
    }

    /// Takes all of `bytes`, which the socket has delivered; they are decrypted in place. Appends
    /// what the client has said to `plain`, never more bytes than have come, and what must be sent
    /// to it to `out`.
    ///
    /// # Errors
    /// The session is over. `out` has the alert for the client, if there is one.
    pub fn receive(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Outgoing,
    ) -> Result<Progress, Failure> {
        let result = self.take(bytes, plain, out);
        self.note(result)
    }

    fn note(&mut self, result: Result<Progress, Failure>) -> Result<Progress, Failure> {
        if result.is_err() {
            self.stage = Stage::Failed;
            self.pending = Vec::new();
        }
        result
    }

    /// Takes the step that [`Progress::Due`] has announced. Until it is brought back the session
    /// is absent: it neither receives nor sends.
    pub fn take_step(&mut self) -> Option<Step> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        Some(Step(std::mem::replace(self, Self::at(Stage::Failed))))
    }

    /// Goes on behind a step, as [`Session::receive`] does behind bytes.
    ///
    /// # Errors
    /// As for [`Session::receive`].
    pub fn finish_step(
        &mut self,
        done: StepDone,
        plain: &mut Vec<u8>,
        out: &mut Outgoing,
    ) -> Result<Progress, Failure> {
        *self = done.session;
        plain.extend_from_slice(&done.plain);
        out.extend(done.out.bytes());
        self.note(done.result)
    }

    /// Whether the session is not open: its handshake has not ended, a step of it is done
    /// elsewhere, or the session has failed.
    #[must_use]
    pub const fn is_handshaking(&self) -> bool {
        !matches!(self.stage, Stage::Open { .. })
    }

    /// Whether the client has begun a message and not ended it. A session with such a rest is not
    /// at rest: it holds a buffer.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the client has sent any byte of a handshake.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_partial() || !matches!(self.stage, Stage::Hello { .. })
    }

    /// What was agreed in the handshake, once it has ended.
    #[must_use]
    pub fn facts(&self) -> Option<&Arc<Facts>> {
        match &self.stage {
            Stage::Open { facts, .. } => Some(facts),
            _ => None,
        }
    }

    /// The host that the ClientHello chose.
    #[must_use]
    pub fn host(&self) -> Option<&Arc<Host>> {
        match &self.stage {
            Stage::Handshake { host, .. } => Some(host),
            Stage::Open { facts, .. } => Some(&facts.host),
            _ => None,
        }
    }

    /// The CPU time that the handshake has used since the last call, in units of about 5
    /// microseconds: what a turn of a serving thread subtracts from its allowance.
    pub fn take_effort(&mut self) -> u32 {
        std::mem::take(&mut self.effort)
    }

    /// Seals `plain` and appends the records to `out`. All of it is taken.
    ///
    /// # Errors
    /// The session is not open, or its keys are used up.
    pub fn send(&mut self, plain: &[u8], out: &mut Outgoing) -> Result<(), Failure> {
        let Stage::Open { connection, .. } = &mut self.stage else {
            return Err(Failure::closed());
        };
        if plain.is_empty() {
            return Ok(());
        }
        let mut needed = plain.len() + plain.len().div_ceil(RECORD) * RECORD_OVERHEAD;
        drive(connection, &mut self.pending, out, |writer, out| {
            loop {
                match writer.encrypt(plain, out.room(needed)) {
                    Ok(written) => {
                        out.wrote(written);
                        return Ok(());
                    }
                    Err(EncryptError::InsufficientSize(size)) if size.required_size > needed => {
                        needed = size.required_size;
                    }
                    Err(_) => return Err(Failure::exhausted()),
                }
            }
        })
        .map(drop)
    }

    /// Appends `close_notify` to `out`, once. Nothing can be sent after it; what the client still
    /// sends can be received.
    pub fn close(&mut self, out: &mut Outgoing) {
        let Stage::Open { connection, .. } = &mut self.stage else { return };
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        // A session that cannot be closed any more has failed or has sent its alert.
        let _ = drive(connection, &mut self.pending, out, |writer, out| {
            let mut needed = 2 + RECORD_OVERHEAD;
            loop {
                match writer.queue_close_notify(out.room(needed)) {
                    Ok(written) => {
                        out.wrote(written);
                        return Ok(());
                    }
                    Err(EncryptError::InsufficientSize(size)) if size.required_size > needed => {
                        needed = size.required_size;
                    }
                    Err(_) => return Err(Failure::exhausted()),
                }
            }
        });
    }

    fn take(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Outgoing,
    ) -> Result<Progress, Failure> {
        if let Stage::Hello { .. } = self.stage {
            self.pending.extend_from_slice(bytes);
            if !self.meet(out)? {
                return Ok(Progress::Handshaking);
            }
            if self.signs_next() {
                self.is_due = true;
                return Ok(Progress::Due);
            }
            // The acceptor has only looked: the connection reads the ClientHello again.
            return self.process(&mut [], plain, out);
        }
        if self.signs_next() && !bytes.is_empty() {
            self.pending.extend_from_slice(bytes);
            self.is_due = true;
            return Ok(Progress::Due);
        }
        self.process(bytes, plain, out)
    }

    const fn signs_next(&self) -> bool {
        matches!(&self.stage, Stage::Handshake { signs_next: true, .. })
    }

    /// Looks at what there is of the ClientHello. `true` once it is complete and a host is chosen.
    fn meet(&mut self, out: &mut Outgoing) -> Result<bool, Failure> {
        let Stage::Hello { door, acceptor } = &mut self.stage else { return Ok(true) };
        match speaks_http(&self.pending) {
            Some(true) => return Err(Failure::plain_http()),
            Some(false) => {}
            None => return Ok(false),
        }
        if self.pending.len() > LARGEST_HELLO {
            return Err(Failure::hello_too_large());
        }
        let looking = acceptor.get_or_insert_default();
        while let Some(mut rest) = self.pending.get(self.seen..).filter(|rest| !rest.is_empty()) {
            match looking.read_tls(&mut rest) {
                Ok(0) => break,
                Ok(count) => self.seen += count,
                Err(_) => return Err(Failure::hello_too_large()),
            }
            let accepted = match looking.accept() {
                Ok(None) => continue,
                Ok(Some(accepted)) => accepted,
                Err((error, mut alert)) => {
                    let mut bytes = Vec::new();
                    let _ = alert.write_all(&mut bytes);
                    // The extension came with TLS 1.2; rustls says `handshake_failure`.
                    if is_too_old(&error) {
                        bytes = self::alert(AlertDescription::ProtocolVersion).to_vec();
                    }
                    out.extend(&bytes);
                    return Err(Failure::of(&error, None));
                }
            };
            let hello = accepted.client_hello();
            let protocols = hello.alpn().map(Iterator::collect).unwrap_or_default();
            let seen = Hello { name: hello.server_name(), protocols };
            let Some(host) = door.host(&seen) else {
                out.extend(&alert(AlertDescription::UnrecognisedName));
                return Err(Failure::no_host(seen.name));
            };
            let connection = UnbufferedServerConnection::new(host.config(&seen))
                .map_err(|error| Failure::of(&error, Some(&host)))?;
            let facts = Box::new(Facts::begin(host.clone(), &hello));
            self.seen = 0;
            let (connection, signs_next) = (Box::new(connection), facts.signs_slowly());
            self.stage = Stage::Handshake { connection, host, facts, signs_next };
            return Ok(true);
        }
        Ok(false)
    }

    fn process(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Outgoing,
    ) -> Result<Progress, Failure> {
        let (connection, host) = match &mut self.stage {
            Stage::Handshake { connection, host, .. } => (connection, host.clone()),
            Stage::Open { connection, facts } => (connection, facts.host.clone()),
            Stage::Hello { .. } | Stage::Failed => return Err(Failure::closed()),
        };
        let was_known = connection.negotiated_cipher_suite().is_some();
        let sent = out.len();
        let mut pending = std::mem::take(&mut self.pending);
        let whole = pending.is_empty();
        if !whole {
            pending.extend_from_slice(bytes);
        }
        let (incoming, kept) =
            if whole { (bytes, &mut pending) } else { (pending.as_mut_slice(), &mut Vec::new()) };
        let (used, closed) = read(connection, incoming, plain, out)
            .map_err(|error| Failure::of(&error, Some(&host)))?;
        // A part of a message stays as it is now: rustls may have decrypted it in place.
        kept.extend_from_slice(incoming.get(used..).unwrap_or_default());
        self.pending = std::mem::take(kept);
        self.peer_closed |= closed;
        if !was_known && connection.negotiated_cipher_suite().is_some() {
            self.effort += match (connection.handshake_kind(), &self.stage) {
                (Some(HandshakeKind::Resumed), _) => 12,
                (_, Stage::Handshake { facts, .. }) if facts.signs_slowly() => 500,
                (_, Stage::Handshake { facts, .. }) if facts.signs_by_rsa() => 48,
                _ => 16,
            };
        }
        if out.len() > sent
            && let Stage::Handshake { connection, signs_next, .. } = &mut self.stage
        {
            // The answer has the signature, unless it asks for another ClientHello (RFC 8446,
            // section 4.1.4).
            let asks_again = Some(HandshakeKind::FullWithHelloRetryRequest);
            *signs_next &= !was_known && connection.handshake_kind() == asks_again;
        }
        Ok(self.settle())
    }

    /// Turns a handshake that has ended into an open session.
    fn settle(&mut self) -> Progress {
        let done = match &self.stage {
            Stage::Handshake { connection, .. } => !connection.is_handshaking(),
            _ => false,
        };
        if done {
            match std::mem::replace(&mut self.stage, Stage::Failed) {
                Stage::Handshake { connection, mut facts, .. } => {
                    facts.finish(&connection);
                    self.stage = Stage::Open { connection, facts: Arc::from(facts) };
                }
                other => self.stage = other,
            }
        }
        match (&self.stage, self.peer_closed, done) {
            (Stage::Open { .. }, false, true) => Progress::Established,
            (Stage::Open { .. }, true, _) => Progress::Closed,
            (Stage::Open { .. }, false, false) => Progress::Open,
            (_, true, _) => Progress::Closed,
            _ => Progress::Handshaking,
        }
    }
}

/// Lets rustls read `incoming` to its end. Returns how many bytes it has used up, and whether the
/// client has closed the session.
fn read(
    connection: &mut UnbufferedServerConnection,
    incoming: &mut [u8],
    plain: &mut Vec<u8>,
    out: &mut Outgoing,
) -> Result<(usize, bool), rustls::Error> {
    let (mut used, mut closed) = (0, false);
    loop {
        let rest = incoming.get_mut(used..).unwrap_or_default();
        let UnbufferedStatus { discard, state } = connection.process_tls_records(rest);
        let mut discard = discard;
        let again = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                true
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut data, out);
                true
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                true
            }
            Ok(ConnectionState::PeerClosed) => {
                closed = true;
                true
            }
            Ok(ConnectionState::Closed) => {
                closed = true;
                false
            }
            Ok(_) => false,
            Err(error) => {
                used += discard;
                let is_old = connection.protocol_version() == Some(ProtocolVersion::TLSv1_2);
                if is_old && error == rustls::Error::NoCertificatesPresented {
                    // `certificate_required`, which rustls has ready, came with TLS 1.3 (RFC 5246,
                    // section 7.4.6).
                    out.extend(&alert(AlertDescription::HandshakeFailure));
                    return Err(error);
                }
                alerts(connection, incoming.get_mut(used..).unwrap_or_default(), out);
                return Err(error);
            }
        };
        used += discard;
        if !again {
            return Ok((used, closed));
        }
    }
}

/// Appends the alert that rustls has ready for a client which broke the protocol. `rest` is what it
/// has not used up: rustls remembers positions in it.
fn alerts(connection: &mut UnbufferedServerConnection, rest: &mut [u8], out: &mut Outgoing) {
    while connection.wants_write() {
        match connection.process_tls_records(rest).state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
            _ => return,
        }
    }
}

fn encode<D>(data: &mut rustls::unbuffered::EncodeTlsData<'_, D>, out: &mut Outgoing) {
    let mut needed = 0;
    loop {
        match data.encode(out.room(needed)) {
            Ok(written) => return out.wrote(written),
            Err(EncodeError::InsufficientSize(size)) if size.required_size > needed => {
                needed = size.required_size;
            }
            Err(_) => return,
        }
    }
}

type Writer<'a> = rustls::unbuffered::WriteTraffic<'a, rustls::server::ServerConnectionData>;

/// Brings an open connection to where it can write, and lets `act` write.
fn drive<T>(
    connection: &mut UnbufferedServerConnection,
    pending: &mut [u8],
    out: &mut Outgoing,
    act: impl FnOnce(&mut Writer<'_>, &mut Outgoing) -> Result<T, Failure>,
) -> Result<T, Failure> {
    loop {
        match connection.process_tls_records(pending).state {
            Ok(ConnectionState::WriteTraffic(mut writer)) => return act(&mut writer, out),
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
            Ok(ConnectionState::TransmitTlsData(mut data)) => match data.may_encrypt_app_data() {
                Some(mut writer) => return act(&mut writer, out),
                None => data.done(),
            },
            Ok(ConnectionState::PeerClosed) => {}
            Ok(_) => return Err(Failure::closed()),
            Err(error) => return Err(Failure::of(&error, None)),
        }
    }
}

/// Whether a client speaks no version after TLS 1.1.
fn is_too_old(error: &rustls::Error) -> bool {
    use rustls::PeerIncompatible::{SignatureAlgorithmsExtensionRequired, Tls12NotOffered};
    matches!(
        error,
        rustls::Error::PeerIncompatible(SignatureAlgorithmsExtensionRequired | Tls12NotOffered)
    )
}

/// Whether the first bytes of a connection are those of an HTTP request: an upper-case method, as
/// OpenSSL looks for (ssl/record, SSL_R_HTTP_REQUEST), but any method. `None` if there are too few
/// bytes to say.
fn speaks_http(bytes: &[u8]) -> Option<bool> {
    let could = bytes.iter().take(4).all(|byte| byte.is_ascii_uppercase() || *byte == b' ');
    if could && bytes.len() < 4 { None } else { Some(could) }
}

/// A fatal alert in a record of its own, before any key is agreed (RFC 8446, section 6).
fn alert(description: AlertDescription) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description.into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;
    use crate::testing::{Client, door, door_of, resumption, settings, slow_settings};
    use proptest::prelude::*;

    /// Passes bytes between a client and a session, in pieces of `step` bytes, until both wait.
    fn exchange(
        client: &mut Client,
        session: &mut Session,
        step: usize,
    ) -> Result<Vec<u8>, Failure> {
        let (mut plain, mut out) = (Vec::new(), Outgoing::new());
        loop {
            let sent = client.take_output();
            let mut last = session.has_partial();
            for piece in sent.chunks(step.max(1)) {
                let result = session.receive(&mut piece.to_vec(), &mut plain, &mut out);
                client.receive(out.bytes());
                out.clear();
                last = true;
                result?;
            }
            if sent.is_empty() || !last {
                return Ok(plain);
            }
        }
    }

    #[test]
    fn a_request_and_its_response_pass_in_both_versions() {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut client = Client::new("a.example", version);
            let mut session = Session::accept(door(&["a.example", "b.example"]));
            client.write(b"GET / HTTP/1.1\r\n\r\n");
            let plain = exchange(&mut client, &mut session, 100_000).unwrap();
            assert_eq!(plain, b"GET / HTTP/1.1\r\n\r\n");
            let facts = session.facts().unwrap().clone();
            assert_eq!((facts.host.index, facts.name.as_deref()), (0, Some("a.example")));
            assert_eq!(session.take_effort(), 16);
            let body = vec![b'x'; 100_000];
            let mut out = Outgoing::new();
            session.send(&body, &mut out).unwrap();
            session.close(&mut out);
            session.close(&mut out);
            client.receive(out.bytes());
            assert_eq!(client.read(), body);
            assert!(client.is_closed());
            assert!(!session.has_partial());
        }
    }

    #[test]
    fn the_name_chooses_the_host_and_a_foreign_name_the_first() {
        for (name, index) in [("a.example", 0), ("b.example", 1), ("B.Example", 1)] {
            let mut client = Client::new(name, &rustls::version::TLS13);
            let mut session = Session::accept(door(&["a.example", "b.example"]));
            exchange(&mut client, &mut session, 1).unwrap();
            assert_eq!(session.facts().unwrap().host.index, index);
        }
        let mut client = Client::without_name(&rustls::version::TLS13);
        let mut session = Session::accept(door(&["a.example", "b.example"]));
        exchange(&mut client, &mut session, 7).unwrap();
        assert_eq!(session.facts().unwrap().host.index, 0);
    }

    #[test]
    fn a_client_that_offers_only_foreign_protocols_is_served_all_the_same() {
        for (offer, agreed) in [("http/1.1", Some("http/1.1")), ("spdy/1", None)] {
            let mut config = Client::config(&rustls::version::TLS13);
            config.alpn_protocols = vec![offer.into()];
            let mut client = Client::of(config, "a.example");
            let mut session = Session::accept(door(&["a.example"]));
            exchange(&mut client, &mut session, 100_000).unwrap();
            let facts = session.facts().unwrap();
            assert_eq!(facts.protocol.as_deref(), agreed.map(str::as_bytes));
        }
    }

    #[test]
    fn sessions_continue_by_ticket_and_by_the_table_but_not_at_another_host() {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            for tickets in [true, false] {
                let hosts = |_: usize| {
                    let mut all = vec![settings(0, "a.example"), settings(1, "b.example")];
                    for host in &mut all {
                        host.resumption = resumption(tickets);
                    }
                    door_of(all)
                };
                let door = hosts(0);
                let config = Arc::new(Client::config(version));
                let mut resumed = Vec::new();
                for _ in 0..3 {
                    let mut client = Client::of(config.clone(), "a.example");
                    let mut session = Session::accept(door.clone());
                    exchange(&mut client, &mut session, 100_000).unwrap();
                    resumed.push(session.facts().unwrap().resumed);
                }
                assert_eq!(resumed, [false, true, true], "{version:?} {tickets}");
                // Certificates differ, and so does the purpose of the keys.
                let mut client = Client::of(config, "a.example");
                let mut session = Session::accept(hosts(1));
                exchange(&mut client, &mut session, 100_000).unwrap();
                assert!(!session.facts().unwrap().resumed);
            }
        }
    }

    #[test]
    fn a_signature_that_takes_long_is_a_step_of_its_own() {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            // With other groups than the client's first one, TLS 1.3 asks for a second ClientHello,
            // which comes in two pieces here.
            for groups in [&[][..], &["P-384".to_owned()]] {
                let mut host = slow_settings(0, "a.example");
                host.groups = groups.to_vec();
                let asks_again = version.version == ProtocolVersion::TLSv1_3 && !groups.is_empty();
                let mut client = Client::new("a.example", version);
                let mut session = Session::accept(door_of(vec![host]));
                let (mut plain, mut out) = (Vec::new(), Outgoing::new());
                let mut steps = 0;
                while session.facts().is_none() {
                    let sent = client.take_output();
                    let half = if steps == 0 { sent.len() } else { sent.len() / 2 };
                    for piece in [&sent[..half], &sent[half..]] {
                        let mut piece = piece.to_vec();
                        session.receive(&mut piece, &mut plain, &mut out).unwrap();
                        let Some(step) = session.take_step() else { continue };
                        steps += 1;
                        assert!(out.is_empty() && session.take_step().is_none());
                        assert!(session.facts().is_none() && session.is_handshaking());
                        let done = std::thread::spawn(|| step.run()).join().unwrap();
                        session.finish_step(done, &mut plain, &mut out).unwrap();
                    }
                    client.receive(out.bytes());
                    out.clear();
                    assert_eq!(client.fault(), "");
                }
                // The half of a second ClientHello is a step, too, that comes to nothing.
                assert_eq!(steps, if asks_again { 3 } else { 1 });
                client.write(b"hello");
                let plain = exchange(&mut client, &mut session, 100_000).unwrap();
                assert_eq!(plain, b"hello");
            }
        }
    }

    #[test]
    fn clear_text_http_is_recognized() {
        let mut session = Session::accept(door(&["a.example"]));
        let (mut plain, mut out) = (Vec::new(), Outgoing::new());
        let failure =
            session.receive(&mut b"GET / HTTP/1.1\r\n".to_vec(), &mut plain, &mut out).unwrap_err();
        assert_eq!((failure.kind, failure.notice.number), (Kind::PlainHttp, Some(1996)));
        assert!(out.is_empty() && plain.is_empty());
        // Also if its first bytes come one by one.
        let mut session = Session::accept(door(&["a.example"]));
        for byte in b"GET" {
            session.receive(&mut [*byte], &mut plain, &mut out).unwrap();
        }
        let failure = session.receive(&mut [b' '], &mut plain, &mut out).unwrap_err();
        assert_eq!(failure.kind, Kind::PlainHttp);
        assert!(out.is_empty());
    }

    #[test]
    fn a_damaged_record_ends_the_session_with_an_alert() {
        let mut client = Client::new("a.example", &rustls::version::TLS13);
        let mut session = Session::accept(door(&["a.example"]));
        exchange(&mut client, &mut session, 100_000).unwrap();
        client.write(b"hello");
        let mut sent = client.take_output();
        *sent.last_mut().unwrap() ^= 1;
        let (mut plain, mut out) = (Vec::new(), Outgoing::new());
        let failure = session.receive(&mut sent, &mut plain, &mut out).unwrap_err();
        assert_eq!(failure.kind, Kind::Broken);
        assert!(!out.is_empty() && plain.is_empty());
        assert!(session.receive(&mut [0], &mut plain, &mut out).is_err());
    }

    #[test]
    fn a_hello_without_an_end_is_bounded() {
        let mut session = Session::accept(door(&["a.example"]));
        let (mut plain, mut out) = (Vec::new(), Outgoing::new());
        // Records of a handshake message that announces 16 MiB.
        let mut total = 0;
        let failure = loop {
            let mut record = vec![22, 3, 1, 0x40, 0];
            record.extend([1, 0xff, 0xff, 0xff]);
            record.resize(5 + 16384, 0);
            total += record.len();
            match session.receive(&mut record, &mut plain, &mut out) {
                Ok(_) => assert!(total < 100_000, "no bound"),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure.kind, Kind::Broken);
    }

    /// A ClientHello of TLS 1.0 with one suite of that time.
    #[test]
    fn a_client_of_another_age_gets_the_alert_for_its_version() {
        let mut body = vec![3, 1];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
        let mut hello = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
        hello.extend(body);
        let mut session = Session::accept(door(&["a.example"]));
        let (mut plain, mut out) = (Vec::new(), Outgoing::new());
        assert!(session.receive(&mut hello, &mut plain, &mut out).is_err());
        assert_eq!(out.bytes(), [21, 3, 3, 0, 2, 2, 70]);
    }

    #[test]
    fn an_idle_session_is_small() {
        let size = std::mem::size_of::<Session>();
        assert!(size <= 96, "{size}");
        let size = std::mem::size_of::<UnbufferedServerConnection>();
        assert!(size <= 1400, "{size}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn splitting_the_input_changes_nothing(
            step in 1usize..4000,
            body in proptest::collection::vec(any::<u8>(), 0..40_000),
            old in any::<bool>(),
        ) {
            let version = if old { &rustls::version::TLS12 } else { &rustls::version::TLS13 };
            let mut client = Client::new("a.example", version);
            let mut session = Session::accept(door(&["a.example"]));
            client.write(&body);
            let plain = exchange(&mut client, &mut session, step).unwrap();
            prop_assert_eq!(plain, body);
        }
    }
}
