//! What one virtual host does about TLS, ready for use: made from its settings by the parent,
//! inherited by all children.

use crate::cache::{Cache, HostCache};
use crate::clients::{ClientSettings, Clients, Verdict};
use crate::identity::Identity;
use crate::protocols::Versions;
use crate::secrets::{Seal, Secrets};
use crate::suites::{NEW, OLD, Suite};
use aws_lc_rs::digest::{Context, SHA256};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme, SupportedProtocolVersion};
use std::fmt;
use std::sync::Arc;

/// The groups for the key exchange, OpenSSL's names first.
const GROUPS: &[(&[&str], &dyn SupportedKxGroup)] = &[
    (&["X25519MLKEM768"], kx_group::X25519MLKEM768),
    (&["X25519", "x25519"], kx_group::X25519),
    (&["prime256v1", "P-256", "secp256r1"], kx_group::SECP256R1),
    (&["secp384r1", "P-384"], kx_group::SECP384R1),
];

/// How sessions continue on a later connection.
#[derive(Clone, Debug, Default)]
pub struct Resumption {
    /// The keys. Without them, every handshake is a full one.
    pub secrets: Option<Arc<Secrets>>,
    /// Whether the server sends session tickets, with which a client resumes its session
    /// (SSLSessionTickets).
    pub tickets: bool,
    /// The table of sessions that are resumed without a ticket (SSLSessionCache).
    pub cache: Option<Arc<Cache>>,
    /// How long a session may be continued, in seconds (SSLSessionCacheTimeout).
    pub lifetime_s: u32,
}

/// Application protocols (ALPN).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// Their names, most wanted first.
    pub names: Vec<Vec<u8>>,
    /// Whether the order of the client counts (ProtocolsHonorOrder off).
    pub by_client: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Self { names: vec![b"http/1.1".to_vec()], by_client: false }
    }
}

/// What a host is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which server of the site it is, in the caller's numbering.
    pub index: usize,
    /// The server's name and port, for log lines.
    pub name: String,
    /// The certificates, each with its key; at least one.
    pub identities: Vec<Identity>,
    /// The versions of TLS.
    pub versions: Versions,
    /// The suites of TLS 1.2, most wanted first.
    pub old_suites: Vec<&'static Suite>,
    /// The suites of TLS 1.3, most wanted first.
    pub new_suites: Vec<&'static Suite>,
    /// Names of groups for the key exchange; all if empty.
    pub groups: Vec<String>,
    /// Whether the host's order of suites counts, or the client's (SSLHonorCipherOrder).
    pub honor_order: bool,
    /// The application protocols (ALPN).
    pub protocols: Protocols,
    /// Certificates of clients, if the host asks for them.
    pub clients: Option<ClientSettings>,
    /// How sessions continue.
    pub resumption: Resumption,
}

impl Settings {
    /// The settings of a host of which nothing but certificates is said.
    #[must_use]
    pub fn new(index: usize, name: String, identities: Vec<Identity>) -> Self {
        Self {
            index,
            name,
            identities,
            versions: Versions::all(),
            old_suites: OLD.iter().collect(),
            new_suites: NEW.iter().collect(),
            groups: Vec::new(),
            honor_order: false,
            protocols: Protocols::default(),
            clients: None,
            resumption: Resumption::default(),
        }
    }
}

/// The TLS side of a virtual host.
pub struct Host {
    /// Which server of the site it is, in the caller's numbering.
    pub index: usize,
    /// The server's name and port for log lines, such as `www.example.org:443`.
    pub name: String,
    /// The configuration of rustls, for clients that offer one of the host's application protocols
    /// or that offer none.
    config: Arc<ServerConfig>,
    /// The same with one protocol each, where the order of the client counts.
    first: Vec<Arc<ServerConfig>>,
    /// The same without application protocols. rustls ends a handshake in which none is common;
    /// mod_ssl answers with HTTP/1.1.
    unaware: Arc<ServerConfig>,
    identities: Vec<Identity>,
    clients: Option<Arc<Clients>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("index", &self.index).field("name", &self.name).finish()
    }
}

impl Host {
    /// Makes a host.
    ///
    /// # Errors
    /// What cannot be done with these settings, for the administrator.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let purpose = purpose(&settings);
        let Settings { index, name, identities, versions, honor_order, protocols, .. } = settings;
        if identities.is_empty() {
            return Err("the host has no certificate".to_owned());
        }
        let groups = groups(&settings.groups)?;
        let tls12 = versions.tls12 && !settings.old_suites.is_empty();
        let tls13 = versions.tls13 && !settings.new_suites.is_empty();
        let mut spoken: Vec<&'static SupportedProtocolVersion> = Vec::new();
        if tls13 {
            spoken.push(&rustls::version::TLS13);
        }
        if tls12 {
            spoken.push(&rustls::version::TLS12);
        }
        if spoken.is_empty() {
            return Err("neither TLS 1.2 nor TLS 1.3 is left".to_owned());
        }
        let new = settings.new_suites.iter().filter(|_| tls13);
        let suites = new.chain(settings.old_suites.iter().filter(|_| tls12));
        let cipher_suites = suites.map(|suite| suite.rustls).collect();
        let provider = CryptoProvider { cipher_suites, kx_groups: groups, ..default_provider() };
        let provider = Arc::new(provider);
        let clients = match settings.clients {
            Some(settings) => Some(Arc::new(Clients::new(settings, &provider)?)),
            None => None,
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&spoken)
            .map_err(|error| format!("these versions and ciphers do not work together: {error}"))?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(clients.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut keys = identities.clone();
        // An ECDSA signature costs a tenth of an RSA one.
        keys.sort_by_key(|identity| identity.is_rsa);
        let keys = keys.into_iter().map(|identity| identity.key).collect();
        let mut config = builder.with_cert_resolver(Arc::new(Keys(keys)));
        config.ignore_client_order = honor_order;
        config.send_tls13_tickets = 1;
        config.alpn_protocols = protocols.names;
        resume(&mut config, &settings.resumption, &purpose);
        let mut unaware = config.clone();
        unaware.alpn_protocols.clear();
        // Each protocol alone, for clients that name it first.
        let alone = |name: &Vec<u8>| {
            let mut alone = config.clone();
            alone.alpn_protocols = vec![name.clone()];
            Arc::new(alone)
        };
        let first = match protocols.by_client {
            true => config.alpn_protocols.iter().map(alone).collect(),
            false => Vec::new(),
        };
        let (config, unaware) = (Arc::new(config), Arc::new(unaware));
        Ok(Self { index, name, config, first, unaware, identities, clients })
    }

    /// The configuration for a client.
    pub(crate) fn config(&self, hello: &Hello<'_>) -> Arc<ServerConfig> {
        let known = |offer: &&[u8]| self.config.alpn_protocols.iter().any(|one| one == offer);
        let Some(first) = hello.protocols.iter().find(|offer| known(offer)) else {
            let is_silent = hello.protocols.is_empty();
            return if is_silent { self.config.clone() } else { self.unaware.clone() };
        };
        let is_first = |one: &&Arc<ServerConfig>| one.alpn_protocols.iter().any(|p| p == first);
        self.first.iter().find(is_first).unwrap_or(&self.config).clone()
    }

    /// Which of the host's identities a client that offers these signature schemes gets.
    pub(crate) fn identity(&self, schemes: &[SignatureScheme]) -> Option<&Identity> {
        let fits = |identity: &&Identity| identity.key.key.choose_scheme(schemes).is_some();
        let mut fitting = self.identities.iter().filter(fits);
        fitting.clone().find(|identity| !identity.is_rsa).or_else(|| fitting.next())
    }

    /// What became of a client's certificates.
    pub(crate) fn verdict(&self, chain: &[CertificateDer<'_>]) -> Verdict {
        match &self.clients {
            Some(clients) => clients.verdict(chain),
            None => Verdict::None,
        }
    }

    /// Whether the handshake asks clients for a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.clients.is_some()
    }
}

/// The first key whose signature scheme the client offers. A client that has no suite for any key
/// gets the first one, so that rustls answers with `handshake_failure`.
#[derive(Debug)]
struct Keys(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let fitting = self.0.iter().find(|key| key.key.choose_scheme(schemes).is_some());
        fitting.or_else(|| self.0.first()).cloned()
    }
}

fn groups(names: &[String]) -> Result<Vec<&'static dyn SupportedKxGroup>, String> {
    if names.is_empty() {
        return Ok(GROUPS.iter().map(|(_, group)| *group).collect());
    }
    let known = |name: &String| GROUPS.iter().find(|(names, _)| names.contains(&name.as_str()));
    let groups: Vec<_> = names.iter().filter_map(known).map(|(_, group)| *group).collect();
    if groups.is_empty() {
        let names = names.join(":");
        return Err(format!("none of the groups {names} is known: X25519, P-256 and P-384 are"));
    }
    Ok(groups)
}

/// Distinguishes the sessions of this host from those of others and of other settings. What a
/// client has proved to one set of settings says nothing to another (CVE-2025-23048).
fn purpose(settings: &Settings) -> Vec<u8> {
    let mut digest = Context::new(&SHA256);
    digest.update(settings.name.as_bytes());
    for identity in &settings.identities {
        digest.update(&[0]);
        digest.update(identity.leaf());
    }
    if let Some(clients) = &settings.clients {
        let ClientSettings { authorities, lists, demand, revocation, depth, .. } = clients;
        digest.update(format!("{demand:?} {revocation:?} {depth}").as_bytes());
        digest.update(&[u8::from(clients.lists_may_lack)]);
        authorities.iter().for_each(|der| digest.update(der));
        lists.iter().for_each(|der| digest.update(der));
    }
    digest.finish().as_ref().to_vec()
}

fn resume(config: &mut ServerConfig, resumption: &Resumption, purpose: &[u8]) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    let Some(secrets) = &resumption.secrets else {
        config.send_tls13_tickets = 0;
        return;
    };
    let seal = || Seal::new(secrets.clone(), purpose.to_vec(), resumption.lifetime_s);
    if resumption.tickets {
        config.ticketer = Arc::new(Tickets(seal()));
    }
    if let Some(cache) = &resumption.cache {
        config.session_storage = Arc::new(HostCache { cache: cache.clone(), seal: seal() });
    }
}

/// Session tickets (RFC 5077; RFC 8446, section 4.6.1).
#[derive(Debug)]
struct Tickets(Seal);

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime_s()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(plain, b"ticket")
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.open(cipher, b"ticket")
    }
}

/// What a client says in its ClientHello.
#[derive(Debug)]
pub struct Hello<'a> {
    /// The name of the server that the client wants (RFC 6066, section 3), in lower case.
    pub name: Option<&'a str>,
    /// The application protocols that the client offers (RFC 7301), in its order.
    pub protocols: Vec<&'a [u8]>,
}

/// The virtual hosts of one local address. The rules of name-based virtual hosts are the caller's.
pub trait Door: fmt::Debug + Send + Sync {
    /// The host for a ClientHello. Without a name, or with a name that no host has, this is the
    /// address's first host. `None` refuses the connection (alert `unrecognized_name`).
    fn host(&self, hello: &Hello<'_>) -> Option<Arc<Host>>;
}
