//! The client's side of TLS, for connections to the servers behind a proxy (mod_ssl's SSLProxy*). A
//! [`Connector`] is made once for equal settings and makes a [`ServerSession`] for each connection.
//! Sessions resume if the server lets them.

use crate::clients::ends;
use crate::identity::Identity;
use crate::protocols::Versions;
use crate::servers::{PeerCheck, PeerFault, ServerSettings, Servers};
use crate::suites::{NEW, OLD, Suite};
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, SignatureScheme, SupportedProtocolVersion};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// The settings of a connector.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// SSLProxyProtocol.
    pub versions: Versions,
    /// The suites of TLS 1.2 (SSLProxyCipherSuite); all if it is none.
    pub old_suites: Option<Vec<&'static Suite>>,
    /// Those of TLS 1.3.
    pub new_suites: Option<Vec<&'static Suite>>,
    /// Whom the client trusts.
    pub servers: ServerSettings,
    /// What is compared with the certificate of the server.
    pub check: PeerCheck,
    /// The certificates of the client (SSLProxyMachineCertificateFile).
    pub identities: Vec<Identity>,
}

/// What connections to servers have in common.
#[derive(Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    check: PeerCheck,
}

impl Connector {
    /// A connector with these settings.
    ///
    /// # Errors
    /// No version has a suite, or an authority or a list cannot be used.
    pub fn new(settings: ConnectorSettings) -> Result<Self, String> {
        let ConnectorSettings { versions, old_suites, new_suites, servers, check, .. } = settings;
        let old = old_suites.unwrap_or_else(|| OLD.iter().collect());
        let new = new_suites.unwrap_or_else(|| NEW.iter().collect());
        let suites = |suites: &[&Suite]| suites.iter().map(|one| one.rustls).collect::<Vec<_>>();
        let mut spoken: Vec<&'static SupportedProtocolVersion> = Vec::new();
        let mut cipher_suites = Vec::new();
        if versions.tls13 {
            spoken.push(&rustls::version::TLS13);
            cipher_suites.extend(suites(&new));
        }
        if versions.tls12 && !old.is_empty() {
            spoken.push(&rustls::version::TLS12);
            cipher_suites.extend(suites(&old));
        }
        if spoken.is_empty() {
            return Err("SSLProxyProtocol and SSLProxyCipherSuite leave no version of TLS".into());
        }
        let provider = Arc::new(CryptoProvider { cipher_suites, ..default_provider() });
        let verifier = Arc::new(Servers::new(servers, &provider)?);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&spoken)
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let keys: Vec<_> = settings.identities.iter().map(|one| Arc::clone(&one.key)).collect();
        let config = match keys.is_empty() {
            true => builder.with_no_client_auth(),
            false => builder.with_client_cert_resolver(Arc::new(Machines(keys))),
        };
        Ok(Self { config: Arc::new(config), check })
    }

    /// Begins a session with a host, which is named to it unless it is an address.
    ///
    /// # Errors
    /// The host is neither a name nor an address.
    pub fn connect(&self, host: &str) -> io::Result<ServerSession> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name)
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        Ok(ServerSession { connection, check: self.check, host: host.into() })
    }
}

/// The certificates of the client, of which the server may name the issuers that it accepts
/// (ssl_engine_kernel.c: ssl_callback_proxy_cert).
#[derive(Debug)]
struct Machines(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for Machines {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| {
            let mut issuers = key.cert.iter().filter_map(ends).map(|(_, issuer)| issuer);
            hints.is_empty() || issuers.any(|issuer| hints.contains(&issuer))
        };
        self.0.iter().find(fits).cloned()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The session of one connection. It has no socket: the transport passes in what reads and writes,
/// which must not block.
#[derive(Debug)]
pub struct ServerSession {
    connection: ClientConnection,
    check: PeerCheck,
    host: Box<str>,
}

impl ServerSession {
    /// Whether the handshake has not ended.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Compares the certificate of the server with the settings, once the handshake has ended.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_peer(&self) -> Result<(), PeerFault> {
        let leaf = self.connection.peer_certificates().and_then(<[_]>::first);
        self.check.check(leaf, &self.host, UnixTime::now())
    }

    /// Takes in what the server has sent; false at the end of the stream. All plaintext was read
    /// before ([`ServerSession::read`]).
    ///
    /// # Errors
    /// Those of `from`, and `InvalidData` if the server breaks the protocol or is not trusted.
    pub fn receive(&mut self, from: &mut dyn Read) -> io::Result<bool> {
        let mut reader = from;
        let count = self.connection.read_tls(&mut reader)?;
        let processed = self.connection.process_new_packets();
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        Ok(count > 0)
    }

    /// Reads plaintext; 0 if the server has ended the session in good order.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, `UnexpectedEof` if the stream ended without `close_notify`.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.connection.reader().read(buffer)
    }

    /// Takes plaintext to be sent, as much as there is room for.
    ///
    /// # Errors
    /// None that a caller can meet.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(bytes)
    }

    /// Whether something waits to be sent.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn flush(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let mut writer = to;
        while self.connection.wants_write() {
            self.connection.write_tls(&mut writer)?;
        }
        Ok(())
    }

    /// Appends `close_notify` to what is to be sent.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }
}
