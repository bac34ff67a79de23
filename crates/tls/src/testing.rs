//! Clients and hosts for the tests of this crate.

use crate::any_server::trusting_client;
use crate::cache::Cache;
use crate::host::{Door, Hello, Host, Resumption, Settings};
use crate::identity::Identity;
use crate::secrets::{Secrets, Words};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A client that trusts everybody.
pub(crate) struct Client {
    connection: ClientConnection,
    closed: bool,
    received: Vec<u8>,
    fault: String,
}

impl Client {
    /// A client that asks for `name` in `version`.
    pub(crate) fn new(name: &str, version: &'static SupportedProtocolVersion) -> Self {
        Self::of(Self::config(version), name)
    }

    /// A client that asks for no name.
    pub(crate) fn without_name(version: &'static SupportedProtocolVersion) -> Self {
        let mut config = Self::config(version);
        config.enable_sni = false;
        Self::of(config, "a.example")
    }

    /// The configuration of these clients, to be changed.
    pub(crate) fn config(version: &'static SupportedProtocolVersion) -> ClientConfig {
        Self::config_as(version, None)
    }

    /// The same, with the certificate of a party.
    pub(crate) fn config_as(
        version: &'static SupportedProtocolVersion,
        party: Option<&Party>,
    ) -> ClientConfig {
        trusting_client(&[version], party.map(|party| (party.chain.clone(), party.key()))).unwrap()
    }

    /// What ended the client, if anything did.
    pub(crate) fn fault(&self) -> String {
        self.fault.clone()
    }

    /// A client with a configuration of its own.
    pub(crate) fn of(config: impl Into<Arc<ClientConfig>>, name: &str) -> Self {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = ClientConnection::new(config.into(), name).unwrap();
        connection.set_buffer_limit(None);
        Self { connection, closed: false, received: Vec::new(), fault: String::new() }
    }

    pub(crate) fn write(&mut self, plain: &[u8]) {
        self.connection.writer().write_all(plain).unwrap();
    }

    /// What the client sends now.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Takes what the server sends. A fault ends the client; its alert is its next output.
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Ok(count) = self.connection.read_tls(&mut bytes) else { return };
            match self.connection.process_new_packets() {
                Ok(state) => self.closed |= state.peer_has_closed(),
                Err(error) => {
                    self.fault = format!("{error:?}");
                    return;
                }
            }
            if count == 0 {
                return;
            }
            self.drain();
        }
    }

    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(count) = self.connection.reader().read(&mut buffer) {
            if count == 0 {
                return;
            }
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    /// What the client has received since the last call.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}

/// Hosts with these names and certificates of their own.
pub(crate) fn door(names: &[&str]) -> Arc<dyn Door> {
    door_of(names.iter().enumerate().map(|(index, name)| settings(index, name)).collect())
}

/// A host with a certificate of its own for `name`.
pub(crate) fn settings(index: usize, name: &str) -> Settings {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let identity = Identity::new(vec![made.cert.der().clone()], &key).unwrap();
    Settings::new(index, name.to_owned(), vec![identity])
}

/// The same with an RSA key whose signatures take long.
pub(crate) fn slow_settings(index: usize, name: &str) -> Settings {
    let size = rcgen::RsaKeySize::_3072;
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size).unwrap();
    let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let identity = Identity::new(vec![certificate], &key).unwrap();
    Settings::new(index, name.to_owned(), vec![identity])
}

/// An authority or a client with its certificate.
pub(crate) struct Party {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    is_root: bool,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Party {
    /// An authority, self-signed or below another one.
    pub(crate) fn authority(above: Option<&Party>) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self::of(params, above)
    }

    /// A client of an authority.
    pub(crate) fn client(authority: &Party, is_expired: bool) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        if is_expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        Self::of(params, Some(authority))
    }

    /// A server with a certificate that it has signed itself.
    pub(crate) fn server(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Self::of(rcgen::CertificateParams::new(names).unwrap(), None)
    }

    fn of(mut params: rcgen::CertificateParams, above: Option<&Party>) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let name = format!("{:?}", key.public_key_raw());
        params.distinguished_name = rcgen::DistinguishedName::new();
        let name = name.chars().take(60).collect::<String>();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let der = match above {
            Some(above) => params.signed_by(&key, &above.issuer).unwrap(),
            None => params.self_signed(&key).unwrap(),
        };
        let mut chain = vec![der.der().clone()];
        // The root is not sent.
        if let Some(above) = above.filter(|above| !above.is_root) {
            chain.extend(above.chain.iter().cloned());
        }
        let is_root = above.is_none();
        Self { chain, is_root, issuer: rcgen::Issuer::new(params, key) }
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.chain[0].clone()
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.issuer.key().serialize_der()).unwrap()
    }
}

/// Words of this process alone.
#[derive(Debug)]
pub(crate) struct Memory(Vec<AtomicU64>);

impl Memory {
    pub(crate) fn new(words: usize) -> Arc<Self> {
        Arc::new(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Words for Memory {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Resumption by tickets or by a table.
pub(crate) fn resumption(tickets: bool) -> Resumption {
    let secrets = Arc::new(Secrets::Fixed(Box::new([7; 48])));
    let cache = (!tickets).then(|| Arc::new(Cache::new(Memory::new(Cache::words(100_000)))));
    Resumption { secrets: Some(secrets), tickets, cache, lifetime_s: 300 }
}

/// A door with these hosts.
pub(crate) fn door_of(settings: Vec<Settings>) -> Arc<dyn Door> {
    let hosts = settings.into_iter().map(|settings| Arc::new(Host::new(settings).unwrap()));
    Arc::new(Hosts(hosts.collect()))
}

#[derive(Debug)]
struct Hosts(Vec<Arc<Host>>);

impl Door for Hosts {
    fn host(&self, hello: &Hello<'_>) -> Option<Arc<Host>> {
        let named = self.0.iter().find(|host| Some(host.name.as_str()) == hello.name);
        named.or_else(|| self.0.first()).cloned()
    }
}
