//! TLS for scripts: certificates in the scratch folder, made once for both servers, and the
//! client's side of a connection. The client trusts every server: scripts compare what servers
//! answer, and the name of the certificate that they chose.

use crate::house::PATIENCE;
use evenkeel_tls::trusting_client;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    RevocationReason, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, StreamOwned, SupportedProtocolVersion, version,
};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// How an exchange speaks TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The name that the client asks for (SNI); none if it asks for none.
    pub name: Option<String>,
    /// Whose certificate the client has, such as `user`.
    pub client: Option<String>,
    /// Whether the client speaks TLS 1.2 alone.
    pub is_old: bool,
}

impl Tls {
    /// Parses `NAME|- [client=WHO] [version=1.2]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tls = Tls::default();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("client", who)) => tls.client = Some(who.to_owned()),
                Some(("version", "1.2")) => tls.is_old = true,
                None if word == "-" => tls.name = None,
                None => tls.name = Some(word.to_owned()),
                _ => return Err(format!("{word} is no option of tls")),
            }
        }
        Ok(tls)
    }
}

/// One end of a connection.
pub enum Stream {
    /// In clear text.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Speaks TLS on a socket. The handshake takes place with the first write.
    pub fn over(stream: TcpStream, tls: &Tls, root: &Path) -> Result<Self, String> {
        let told = |error: rustls::Error| format!("TLS: {error}");
        let versions = if tls.is_old { &[&version::TLS12] } else { &[&version::TLS13] };
        let identity = tls.client.as_ref().map(|who| {
            let file = |end: &str| root.join(format!("tls/{who}.{end}"));
            let chain = CertificateDer::pem_file_iter(file("pem")).and_then(Iterator::collect);
            let key = PrivateKeyDer::from_pem_file(file("key"));
            chain.and_then(|chain| Ok((chain, key?))).map_err(|error| format!("{who}: {error}"))
        });
        let mut config = trusting_client(versions, identity.transpose()?).map_err(told)?;
        config.enable_sni = tls.name.is_some();
        let name = tls.name.clone().unwrap_or_else(|| "localhost".to_owned());
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(told)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// Ends the sending direction, over TLS with `close_notify`.
    pub fn half_close(&mut self) {
        match self {
            Stream::Plain(stream) => {
                let _ = stream.shutdown(Shutdown::Write);
            }
            Stream::Tls(stream) => {
                stream.conn.send_close_notify();
                while stream.conn.wants_write() {
                    if stream.conn.write_tls(&mut stream.sock).is_err() {
                        break;
                    }
                }
                let _ = stream.sock.shutdown(Shutdown::Write);
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => match stream.read(buffer) {
                // The server has refused the handshake: there is no answer.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(0),
                result => result,
            },
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// A client that comes several times and keeps its session, as a browser does.
pub struct Guest(Arc<ClientConfig>);

impl Guest {
    /// A client of TLS 1.2.
    pub fn old() -> Result<Self, String> {
        Self::of(&version::TLS12)
    }

    /// A client of TLS 1.3.
    pub fn new() -> Result<Self, String> {
        Self::of(&version::TLS13)
    }

    fn of(version: &'static SupportedProtocolVersion) -> Result<Self, String> {
        let config = trusting_client(&[version], None).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(config)))
    }

    /// Asks for `/small.txt` on a connection of its own. Returns whether the handshake resumed a
    /// session.
    pub fn visit(&self, address: SocketAddr) -> Result<bool, String> {
        let told = |error: &dyn std::fmt::Display| format!("a visit to {address}: {error}");
        let name = ServerName::try_from("localhost").map_err(|error| told(&error))?;
        let connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(|error| told(&error))?;
        let socket = TcpStream::connect(address).map_err(|error| told(&error))?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(|error| told(&error))?;
        let mut stream = StreamOwned::new(connection, socket);
        let request = b"GET /small.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).map_err(|error| told(&error))?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(|error| told(&error))?;
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            return Err(told(&String::from_utf8_lossy(&answer)));
        }
        Ok(stream.conn.handshake_kind() == Some(HandshakeKind::Resumed))
    }
}

/// The configuration of a server with one of these certificates. With `asks`, it also wants a
/// certificate of a client, issued by `ca`.
pub fn server_config(
    folder: &Path,
    name: &str,
    asks: bool,
) -> Result<Arc<rustls::ServerConfig>, String> {
    let told = |error: &dyn std::fmt::Display| format!("the certificate {name}: {error}");
    let read = |name: &str| fs::read(folder.join(name)).map_err(|error| told(&error));
    let chain = evenkeel_tls::certificates(&read(&format!("{name}.pem"))?)?;
    let key = read(&format!("{name}.key"))?;
    let key = evenkeel_tls::private_key(&key, &mut |_| Ok(None))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| told(&error))?;
    let builder = match asks {
        false => builder.with_no_client_auth(),
        true => {
            let mut roots = rustls::RootCertStore::empty();
            for authority in evenkeel_tls::certificates(&read("ca.pem")?)? {
                roots.add(authority).map_err(|error| told(&error))?;
            }
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots),
                provider,
            );
            builder.with_client_cert_verifier(verifier.build().map_err(|error| told(&error))?)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| told(&error))?;
    Ok(Arc::new(config))
}

/// Writes the certificates of a script below `folder`: of the authority (`ca`), of the servers
/// `localhost` and `other.example` and of the wildcard `*.wild.example` (`wild`), and of the
/// clients `user`, `expired`, `revoked`, `deep` (below an authority of its own) and `stranger` (of
/// an unknown authority). `ca.crl` revokes `revoked`.
pub fn make_certificates(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    make(folder, false).map_err(|error| format!("certificates: {error}"))
}

/// The same, and certificates with RSA keys for the servers `localhost` (`localhost-rsa`) and
/// `other.example` (`other.example-rsa`).
pub fn make_all_certificates(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    make(folder, true).map_err(|error| format!("certificates: {error}"))
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority(name: &str, above: Option<&Authority>) -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    describe(&mut params, name, 1);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let der = match above {
        Some(above) => params.clone().signed_by(&key, &above.issuer)?,
        None => params.clone().self_signed(&key)?,
    };
    let pem = pem("CERTIFICATE", der.der());
    Ok(Authority { issuer: Issuer::new(params, key), pem })
}

fn describe(params: &mut CertificateParams, name: &str, serial: u64) {
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CountryName, "DE");
    params.distinguished_name.push(DnType::OrganizationName, "Evenkeel, Tests");
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    params.not_before = date_time_ymd(2024, 2, 1);
    params.not_after = date_time_ymd(2039, 12, 31);
}

fn make(folder: &Path, with_rsa: bool) -> Result<(), Box<dyn std::error::Error>> {
    let ca = authority("Test CA", None)?;
    let below = authority("Test CA below", Some(&ca))?;
    let unknown = authority("Unknown CA", None)?;
    fs::write(folder.join("ca.pem"), &ca.pem)?;
    for (serial, name, names, by, chain) in [
        (0x0a01, "localhost", vec!["localhost"], &ca, ""),
        (0x0a02, "other.example", vec!["other.example"], &ca, ""),
        (0x0a03, "wild", vec!["*.wild.example"], &ca, ""),
        (0x0b01, "user", vec!["user.example"], &ca, ""),
        (0x0b02, "expired", vec![], &ca, ""),
        (0x0b03, "revoked", vec![], &ca, ""),
        (0x0b04, "deep", vec![], &below, below.pem.as_str()),
        (0x0b05, "stranger", vec![], &unknown, ""),
    ] {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names)?;
        describe(&mut params, name, serial);
        if name == "expired" {
            params.not_after = date_time_ymd(2025, 1, 1);
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let der = params.signed_by(&key, &by.issuer)?;
        write(folder, name, pem("CERTIFICATE", der.der()) + chain, &key)?;
        if with_rsa && ["localhost", "other.example"].contains(&name) {
            let key = KeyPair::generate_for(&PKCS_RSA_SHA256)?;
            let der = params.signed_by(&key, &by.issuer)?;
            write(folder, &format!("{name}-rsa"), pem("CERTIFICATE", der.der()), &key)?;
        }
    }
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 2, 1),
        next_update: date_time_ymd(2039, 12, 31),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(0x0b03_u64),
            revocation_time: date_time_ymd(2024, 3, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&ca.issuer)?;
    fs::write(folder.join("ca.crl"), pem("X509 CRL", list.der()))?;
    Ok(())
}

fn write(folder: &Path, name: &str, certificates: String, key: &KeyPair) -> std::io::Result<()> {
    fs::write(folder.join(format!("{name}.pem")), certificates)?;
    let file = folder.join(format!("{name}.key"));
    fs::write(&file, pem("PRIVATE KEY", &key.serialize_der()))?;
    // A key that everybody may read earns a warning.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|it| str::from_utf8(it).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
