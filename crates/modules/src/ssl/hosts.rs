//! Makes the TLS host of a virtual host from its settings. The parent does so before it gives up
//! its privileges, because keys belong to root.

use super::files::{authorities, certificates_of, fault, lists, read};
use super::passphrase::Asking;
use super::{Bound, Global, Named, OfServer, Server, Verify};
use evenkeel_message::{Level, Notice};
use evenkeel_tls::{
    Cache, CertificateDer, ClientSettings, Demand, Host, Identity, Protocols, Resumption,
    Revocation, Secrets, Settings, Versions, has_key, private_key,
};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

/// How long sessions may be continued if SSLSessionCacheTimeout does not say, in seconds
/// (SSL_SESSION_CACHE_TIMEOUT).
const LIFETIME_S: u32 = 300;

/// The number of issuers above a client's certificate if SSLVerifyDepth does not say.
const DEPTH: usize = 1;

/// What the hosts of a process share.
#[derive(Clone, Debug, Default)]
pub struct Sharing {
    /// The keys of tickets and of the table.
    pub secrets: Option<Arc<Secrets>>,
    /// The table of sessions.
    pub cache: Option<Arc<Cache>>,
}

/// A host, and what the administrator should know about it.
#[derive(Debug)]
pub struct Made {
    /// The host.
    pub host: Host,
    /// Warnings.
    pub notices: Vec<Notice>,
}

/// What a host is beside its directives of TLS.
#[derive(Debug)]
pub struct Identified<'a> {
    /// Its number in the site.
    pub index: usize,
    /// Its name with the port.
    pub name: &'a str,
    /// Its name and its aliases as far as they are said.
    pub names: &'a [String],
    /// The application protocols that it offers.
    pub protocols: Protocols,
}

/// Makes the host of a server with `SSLEngine on`. `now_s` is the time in seconds since 1970.
///
/// # Errors
/// What is wrong, with the directive's place.
pub fn make_host(
    server: &Server,
    global: &Global,
    identified: Identified<'_>,
    sharing: &Sharing,
    now_s: i64,
) -> Result<Made, String> {
    let Identified { index, name, names, protocols } = identified;
    let Some(said) = server.0.as_deref() else {
        return Err(format!("{name}: nothing is said about TLS"));
    };
    let here = |text: String| match &said.engine_place {
        Some(place) => format!("{text} ({place})"),
        None => text,
    };
    if said.certificates.is_empty() {
        return Err(here(format!(
            "AH02572: Failed to configure at least one certificate and key for {name}: set \
             SSLCertificateFile"
        )));
    }
    let mut notices = Vec::new();
    let mut identities = identities(said, global, name, &mut notices)?;
    for (identity, named) in identities.iter().zip(&said.certificates) {
        for remark in identity.remarks(name, names, now_s) {
            let text = format!("{} ({}, {})", remark.text, named.path.display(), named.place);
            notices.push(match remark.number {
                Some(number) => Notice::new("ssl", Level::Warn, number, text),
                None => Notice::own("ssl", Level::Warn, text),
            });
        }
    }
    identities.dedup_by(|a, b| a.leaf() == b.leaf());
    let mut settings = Settings::new(index, name.to_owned(), identities);
    settings.protocols = protocols;
    settings.versions = versions(said);
    if let Some(selection) = &said.ciphers {
        settings.old_suites.clone_from(&selection.suites);
    }
    if let Some(selection) = &said.new_ciphers {
        settings.new_suites.clone_from(&selection.suites);
    }
    settings.groups = said.groups.clone().unwrap_or_default();
    settings.honor_order = said.honor_order.unwrap_or(false);
    settings.clients = clients(said, &here)?;
    settings.resumption = Resumption {
        secrets: match &said.ticket_key {
            Some(named) => Some(Arc::new(fixed_key(named)?)),
            None => sharing.secrets.clone(),
        },
        tickets: said.tickets.unwrap_or(true),
        cache: sharing.cache.clone(),
        lifetime_s: said.lifetime_s.unwrap_or(LIFETIME_S),
    };
    let host = Host::new(settings).map_err(|text| here(format!("{name}: {text}")))?;
    Ok(Made { host, notices })
}

/// The certificates with their keys (ssl_engine_init.c, ssl_init_server_certs).
fn identities(
    said: &OfServer,
    global: &Global,
    name: &str,
    notices: &mut Vec<Notice>,
) -> Result<Vec<Identity>, String> {
    let mut all = Vec::new();
    for (index, named) in said.certificates.iter().enumerate() {
        let text = read(named)?;
        let mut chain = certificates_of(named, &text)?;
        if let Some(extra) = said.chain.as_ref().filter(|_| index == 0 && chain.len() == 1) {
            chain.extend(certificates_of(extra, &read(extra)?)?);
            dedup(&mut chain);
        }
        let (key_place, key_text) = match said.keys.get(index) {
            Some(key) => (key, read(key)?),
            None if has_key(&text) => (named, text),
            None => {
                let text =
                    "there is no private key for this certificate: set SSLCertificateKeyFile";
                return Err(fault(named, text));
            }
        };
        note_readers(key_place, notices);
        let asking = Asking::new(&global.dialog, name, index);
        let key = private_key(&key_text, &mut |attempt| asking.ask(attempt))
            .map_err(|text| fault(key_place, &text))?;
        let identity = Identity::new(chain, &key).map_err(|text| {
            let text = format!("{text} (certificate: {})", named.path.display());
            format!("AH02565: {}", fault(key_place, &text))
        })?;
        all.push(identity);
    }
    Ok(all)
}

/// A chain file often begins with the certificate itself.
fn dedup(chain: &mut Vec<CertificateDer<'static>>) {
    let mut kept: Vec<CertificateDer<'static>> = Vec::new();
    for certificate in chain.drain(..) {
        if !kept.contains(&certificate) {
            kept.push(certificate);
        }
    }
    *chain = kept;
}

fn note_readers(key: &Named, notices: &mut Vec<Notice>) {
    if std::fs::metadata(&key.path).is_ok_and(|it| it.mode() & 0o004 != 0) {
        let text = format!(
            "every user of this machine can read the private key {} ({})",
            key.path.display(),
            key.place
        );
        notices.push(Notice::own("ssl", Level::Warn, text));
    }
}

impl Server {
    /// The host behind the first hosts of its addresses: without a SSLProtocol of its own it speaks
    /// the versions that all of these speak (ssl_engine_kernel.c: ssl_find_vhost).
    #[must_use]
    pub fn behind<'a>(&self, firsts: impl Iterator<Item = &'a Self>) -> Self {
        let Some(said) = self.0.as_deref().filter(|said| said.versions.is_none()) else {
            return self.clone();
        };
        let mut shared = Versions::all();
        for first in firsts.filter_map(|first| first.0.as_deref()) {
            let spoken = versions(first);
            shared.tls12 &= spoken.tls12;
            shared.tls13 &= spoken.tls13;
        }
        Self(Some(Arc::new(OfServer { versions: Some(shared), ..said.clone() })))
    }
}

fn versions(said: &OfServer) -> Versions {
    let mut versions = said.versions.clone().unwrap_or_else(Versions::all);
    let least = said.least_version.unwrap_or(Bound::Older);
    let most = said.most_version.unwrap_or(Bound::New);
    versions.tls12 &= least <= Bound::Old && Bound::Old <= most;
    versions.tls13 &= least <= Bound::New && Bound::New <= most;
    versions
}

/// What the handshake asks of clients. Where only sections ask, every certificate passes it.
fn clients(
    said: &OfServer,
    here: &dyn Fn(String) -> String,
) -> Result<Option<ClientSettings>, String> {
    let in_sections = said.asks_in_sections == Some(true);
    let demand = match said.verify.unwrap_or(Verify::None) {
        Verify::Require => Demand::Require,
        Verify::Optional if in_sections => Demand::Record,
        Verify::Optional => Demand::Optional,
        Verify::OptionalNoCa if in_sections => Demand::Record,
        Verify::OptionalNoCa => Demand::AnyIssuer,
        Verify::None if in_sections => Demand::Record,
        Verify::None => return Ok(None),
    };
    let authorities_ = authorities(said.authority_file.as_ref(), said.authority_path.as_ref())?;
    if authorities_.is_empty() && demand == Demand::Require {
        let text = "AH01897: SSLVerifyClient require: no CA certificate is known; set \
                    SSLCACertificateFile or SSLCACertificatePath";
        return Err(here(text.to_owned()));
    }
    let (revocation, lists_may_lack) = said.revocation.unwrap_or((Revocation::Ignored, false));
    let depth = said.depth.unwrap_or(DEPTH);
    Ok(Some(ClientSettings {
        demand,
        authorities: authorities_,
        named: authorities(said.name_file.as_ref(), said.name_path.as_ref())?,
        lists: lists(said.list_file.as_ref(), said.list_path.as_ref())?,
        revocation,
        lists_may_lack,
        depth: said.least_depth.map_or(depth, |least| depth.min(least)),
    }))
}

/// The key of SSLSessionTicketKeyFile.
fn fixed_key(named: &Named) -> Result<Secrets, String> {
    let bytes = read(named)?;
    let key = <[u8; 48]>::try_from(&bytes[..]);
    key.map(|key| Secrets::Fixed(Box::new(key))).map_err(|_| {
        let text = format!("the file must have 48 bytes, it has {}", bytes.len());
        format!("AH02286: {}", fault(named, &text))
    })
}
