//! TLS on a client's socket without blocking. What is trusted is decided when the plan is made.

use super::target::{Scheme, Target};
use evenkeel_sys::socket::Socket;
use evenkeel_tls::{AnyServer, Suite, key_bits};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, ProtocolVersion, RootCertStore,
    SupportedProtocolVersion,
};
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// The system's trusted certificates on Debian and most other systems.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Which server is trusted, and the parameters of the connection.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    resumes: bool,
}

/// What client and server have agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The version in OpenSSL's form, such as `TLSv1.3`.
    pub version: String,
    /// OpenSSL's name of the cipher suite.
    pub suite: &'static str,
    /// The length of the suite's key in bits.
    pub bits: u16,
    /// The length of the key in the server's certificate in bits.
    pub key_bits: usize,
    /// The server's ephemeral key in OpenSSL's form, such as `X25519 253 bits`; none if a session
    /// without one was resumed.
    pub group: Option<String>,
}

/// The options of a TLS connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes<'a> {
    /// Whether to check the server's certificate.
    pub verify: bool,
    /// The versions to offer; empty for all.
    pub versions: &'a [&'static SupportedProtocolVersion],
    /// The cipher suites of TLS 1.2 to offer; none for all.
    pub suites: Option<&'a [&'static Suite]>,
    /// A file with the client's own certificate and key (PEM).
    pub identity: Option<&'a Path>,
    /// Whether to omit the server's name from the handshake (SNI).
    pub no_sni: bool,
    /// Whether every handshake is a full one. Otherwise a client resumes its own sessions.
    pub full: bool,
}

impl Trust {
    /// The trust for a server, if it uses TLS.
    ///
    /// # Errors
    ///
    /// As for [`Trust::new`].
    pub fn of(target: &Target, wishes: &Wishes<'_>) -> Result<Option<Self>, String> {
        match target.scheme {
            Scheme::Http => Ok(None),
            Scheme::Https => Self::new(&target.host, wishes).map(Some),
        }
    }

    /// The trust for the server at `host`.
    ///
    /// # Errors
    ///
    /// What cannot be used: the roots, the name, the suites, the client's certificate.
    pub fn new(host: &str, wishes: &Wishes<'_>) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host}: no name that TLS can ask for"))?;
        let mut provider = aws_lc_rs::default_provider();
        if let Some(suites) = wishes.suites {
            provider.cipher_suites.retain(|suite| suite.tls13().is_some());
            provider.cipher_suites.extend(suites.iter().map(|suite| suite.rustls()));
        }
        let provider = Arc::new(provider);
        let versions =
            if wishes.versions.is_empty() { rustls::ALL_VERSIONS } else { wishes.versions };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| format!("TLS: {error}"))?;
        let builder = if wishes.verify {
            builder.with_root_certificates(system_roots()?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(AnyServer::new(provider))
        };
        let mut config = match wishes.identity {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let told = |what: String| format!("{}: {what}", file.display());
                let chain = CertificateDer::pem_file_iter(file)
                    .and_then(Iterator::collect)
                    .map_err(|error| told(format!("certificate: {error:?}")))?;
                let key = PrivateKeyDer::from_pem_file(file)
                    .map_err(|error| told(format!("key: {error:?}")))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| told(error.to_string()))?
            }
        };
        config.enable_sni = !wishes.no_sni;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name, resumes: !wishes.full })
    }

    /// The same for one client, which keeps its own sessions and never sees those of others.
    pub(super) fn for_one_client(&self) -> Self {
        let mut own = self.clone();
        if self.resumes {
            // The store rounds the number of sessions up to those of one server.
            let mut config = ClientConfig::clone(&self.config);
            config.resumption = Resumption::in_memory_sessions(1);
            own.config = Arc::new(config);
        }
        own
    }

    pub(super) fn begin(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let told = |error: &dyn std::fmt::Debug| {
        format!("{SYSTEM_ROOTS}: {error:?}; without it no server's certificate can be checked")
    };
    let found = CertificateDer::pem_file_iter(SYSTEM_ROOTS).map_err(|error| told(&error))?;
    // A root that the library cannot parse is not trusted.
    let (taken, _) = roots.add_parsable_certificates(found.filter_map(Result::ok));
    if taken == 0 { Err(told(&"no certificate in it")) } else { Ok(roots) }
}

/// A socket in the form that rustls reads and writes.
struct Wire<'a>(&'a Socket);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.receive(buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(bytes)], false)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send(parts, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends what the connection has to send. Returns `false` if the socket accepts no more now.
fn push(session: &mut ClientConnection, socket: &Socket) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(&mut Wire(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads records from the socket. Returns `false` if there are none now. The reader handles the end
/// of the stream.
fn pull(session: &mut ClientConnection, socket: &Socket) -> io::Result<bool> {
    match session.read_tls(&mut Wire(socket)) {
        Ok(0) => Ok(false),
        Ok(_) => {
            let taken = session.process_new_packets();
            taken.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Continues the handshake. Returns whether it is complete.
pub(super) fn shake(session: &mut ClientConnection, socket: &Socket) -> io::Result<bool> {
    loop {
        push(session, socket)?;
        if !session.is_handshaking() {
            return Ok(true);
        }
        if !pull(session, socket)? {
            // The peer's last message may require a response, or may have been its last one.
            push(session, socket)?;
            return Ok(!session.is_handshaking());
        }
    }
}

/// Takes plain bytes, and returns how many. Everything that is taken is sent, now or with the next
/// call.
pub(super) fn send(
    session: &mut ClientConnection,
    socket: &Socket,
    bytes: &[u8],
) -> io::Result<usize> {
    let taken = session.writer().write(bytes)?;
    push(session, socket)?;
    if taken == 0 && !bytes.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
}

/// Reads plain bytes; 0 at the end of the stream, even if it was cut off: the response itself shows
/// whether it is complete.
pub(super) fn receive(
    session: &mut ClientConnection,
    socket: &Socket,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match session.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            read => return read,
        }
        match session.read_tls(&mut Wire(socket)) {
            Ok(0) => return Ok(0),
            Ok(_) => {
                let taken = session.process_new_packets();
                taken.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                push(session, socket)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the handshake, which is complete, resumed a session.
pub(super) fn is_resumed(session: &ClientConnection) -> bool {
    session.handshake_kind() == Some(HandshakeKind::Resumed)
}

/// What the handshake, which is complete, has agreed on.
pub(super) fn agreed(session: &ClientConnection) -> Agreed {
    let version = match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
        other => other.map_or_else(String::new, |it| format!("{it:?}")),
    };
    let suite = session.negotiated_cipher_suite().and_then(|it| Suite::of(it.suite()));
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let group = session.negotiated_key_exchange_group().map(|group| match group.name() {
        NamedGroup::X25519 => "X25519 253 bits".to_owned(),
        NamedGroup::secp256r1 => "ECDH prime256v1 256 bits".to_owned(),
        NamedGroup::secp384r1 => "ECDH secp384r1 384 bits".to_owned(),
        other => format!("{other:?}"),
    });
    Agreed {
        version,
        suite: suite.map_or("", |suite| suite.name),
        bits: suite.map_or(0, |suite| suite.bits),
        key_bits: certificate.and_then(|der| key_bits(der)).unwrap_or_default(),
        group,
    }
}
