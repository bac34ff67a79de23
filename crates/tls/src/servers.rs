//! Certificates of the servers behind a proxy: whom a client of them trusts (SSLProxyVerify), and
//! whether a certificate is that of the host that was asked (SSLProxyCheckPeerName and its kin).

use crate::clients::{ends, is_unknown_issuer};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// SSLProxyVerify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerTrust {
    /// Every chain is taken (`none`).
    #[default]
    Any,
    /// The chain must end at an authority (`require`, `optional`; a server always has a
    /// certificate).
    Authorities,
    /// So must it, unless its issuer is unknown (`optional_no_ca`).
    AnyIssuer,
}

/// What a client knows about the certificates of servers.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    /// Whom it trusts.
    pub trust: ServerTrust,
    /// The certificates of SSLProxyCACertificateFile and SSLProxyCACertificatePath.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Revocation lists.
    pub lists: Vec<CertificateRevocationListDer<'static>>,
    /// What is looked up in them.
    pub revocation: crate::Revocation,
    /// Whether a certificate whose issuer has no list is good (`no_crl_for_cert_ok`).
    pub lists_may_lack: bool,
    /// The most issuers above the server's certificate (SSLProxyVerifyDepth).
    pub depth: usize,
}

/// The verifier of a client.
#[derive(Debug)]
pub(crate) struct Servers {
    trust: ServerTrust,
    depth: usize,
    trusted: Option<Arc<WebPkiServerVerifier>>,
    /// The authorities themselves: a server may have one of them as its certificate.
    authorities: Vec<CertificateDer<'static>>,
    intermediates: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Servers {
    pub(crate) fn new(
        settings: ServerSettings,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let ServerSettings { trust, authorities, lists, revocation, depth, .. } = settings;
        let (roots, intermediates): (Vec<_>, Vec<_>) = authorities
            .iter()
            .cloned()
            .partition(|der| ends(der).is_some_and(|(subject, issuer)| subject == issuer));
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root).map_err(|error| format!("a CA certificate cannot be used: {error}"))?;
        }
        let trusted = if trust == ServerTrust::Any || store.is_empty() {
            None
        } else {
            let store = Arc::new(store);
            let mut builder = WebPkiServerVerifier::builder_with_provider(store, provider.clone());
            if revocation != crate::Revocation::Ignored {
                if lists.is_empty() && !settings.lists_may_lack {
                    return Err("SSLProxyCARevocationCheck needs lists: SSLProxyCARevocationFile \
                                or SSLProxyCARevocationPath"
                        .to_owned());
                }
                builder = builder.with_crls(lists).enforce_revocation_expiration();
                if revocation == crate::Revocation::Leaf {
                    builder = builder.only_check_end_entity_revocation();
                }
                if settings.lists_may_lack {
                    builder = builder.allow_unknown_revocation_status();
                }
            }
            Some(builder.build().map_err(|error| format!("server certificates: {error}"))?)
        };
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self { trust, depth, trusted, authorities, intermediates, algorithms })
    }

    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let signs_itself = ends(leaf).is_some_and(|(subject, issuer)| subject == issuer);
        if signs_itself && self.authorities.iter().any(|one| **one == **leaf) {
            return match is_current(leaf, now) {
                true => Ok(()),
                false => Err(CertificateError::Expired.into()),
            };
        }
        let unknown = || Error::from(CertificateError::UnknownIssuer);
        let trusted = self.trusted.as_ref().ok_or_else(unknown)?;
        let chain: Vec<_> = rest.iter().chain(&self.intermediates).cloned().collect();
        match trusted.verify_server_cert(leaf, &chain, name, &[], now) {
            // The chain is good: webpki compares names last. `PeerCheck` compares them as Apache
            // does.
            Ok(_)
            | Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => {}
            Err(error) => return Err(error),
        }
        if self.issuers(leaf, &chain) > self.depth {
            let text = format!("certificate chain too long (SSLProxyVerifyDepth {})", self.depth);
            return Err(Error::General(text));
        }
        Ok(())
    }

    /// How many issuers a chain has above its leaf, the authority included.
    fn issuers(&self, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) -> usize {
        let is_anchor = |name: &[u8]| {
            let mut ends_of = self.authorities.iter().filter_map(|der| ends(der));
            ends_of.any(|(subject, issuer)| subject == issuer && subject == name)
        };
        let mut current = leaf;
        for count in 1..=chain.len() + 1 {
            let Some((_, issuer)) = ends(current) else { return usize::MAX };
            if is_anchor(issuer) {
                return count;
            }
            let next = chain.iter().find(|der| ends(der).is_some_and(|(name, _)| name == issuer));
            let Some(next) = next else { return usize::MAX };
            current = next;
        }
        usize::MAX
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = Ok(ServerCertVerified::assertion());
        if self.trust == ServerTrust::Any {
            return verified;
        }
        match self.check(leaf, rest, name, now) {
            Ok(()) => verified,
            Err(error) if self.trust == ServerTrust::AnyIssuer && is_unknown_issuer(&error) => {
                verified
            }
            Err(error) => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// What is compared with the certificate of a server after the handshake, whatever SSLProxyVerify
/// says (ssl_engine_io.c: ssl_io_filter_handshake).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCheck {
    /// SSLProxyCheckPeerExpire.
    pub expire: bool,
    /// How the name is compared.
    pub name: NameCheck,
}

/// How the name of a certificate is compared with that of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCheck {
    /// Not at all.
    None,
    /// With the first common name alone (SSLProxyCheckPeerCN, while SSLProxyCheckPeerName is off).
    CommonName,
    /// With all names: those of DNS in subjectAltName, and the common names.
    All,
}

/// What is wrong with the certificate of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// The certificate has expired or is not valid yet.
    Expired,
    /// None of its names is that of the host.
    Name,
    /// Its common name, which is given, is not that of the host.
    CommonName(String),
}

impl PeerCheck {
    /// Compares the certificate of a server with the clock and with the name of its host.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(
        &self,
        leaf: Option<&CertificateDer<'_>>,
        host: &str,
        now: UnixTime,
    ) -> Result<(), PeerFault> {
        if self.expire && !leaf.is_some_and(|leaf| is_current(leaf, now)) {
            return Err(PeerFault::Expired);
        }
        let (dns, common) = leaf.map(names).unwrap_or_default();
        match self.name {
            NameCheck::None => Ok(()),
            NameCheck::All => match dns.iter().chain(&common).any(|name| fits(name, host)) {
                true => Ok(()),
                false => Err(PeerFault::Name),
            },
            NameCheck::CommonName => {
                let name = common.into_iter().next().unwrap_or_default();
                if fits(&name, host) { Ok(()) } else { Err(PeerFault::CommonName(name)) }
            }
        }
    }
}

/// Whether a name of a certificate is that of a host; `*.` stands for one label.
fn fits(name: &str, host: &str) -> bool {
    let wild = || {
        let (_, domain) = host.split_once('.')?;
        Some(name.strip_prefix("*.")?.eq_ignore_ascii_case(domain))
    };
    name.eq_ignore_ascii_case(host) || wild() == Some(true)
}

fn is_current(leaf: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return false };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    validity.not_before.timestamp() < now && now < validity.not_after.timestamp()
}

/// The names of DNS and the common names of a certificate.
fn names(leaf: &CertificateDer<'_>) -> (Vec<String>, Vec<String>) {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return Default::default() };
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let dns = alternative.into_iter().flat_map(|extension| &extension.value.general_names);
    let dns = dns.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let common = certificate.subject().iter_common_name();
    let common = common.filter_map(|name| name.as_str().ok().map(str::to_owned));
    (dns.collect(), common.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Party;

    #[test]
    fn a_name_fits_a_host_as_in_apache() {
        for (name, host, want) in [
            ("a.example", "A.example", true),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", false),
            ("*.b.example", "a.b.example", true),
            ("*.example", "example", false),
            ("*", "a", false),
            ("", "a", false),
            ("127.0.0.1", "127.0.0.1", true),
        ] {
            assert_eq!(fits(name, host), want, "{name} {host}");
        }
    }

    #[test]
    fn a_certificate_is_compared_with_clock_and_name() {
        let party = Party::server(&["a.example", "*.b.example"]);
        let leaf = party.chain.first().unwrap();
        let now = UnixTime::now();
        let check = |name, host| PeerCheck { expire: true, name }.check(Some(leaf), host, now);
        assert_eq!(check(NameCheck::All, "a.example"), Ok(()));
        assert_eq!(check(NameCheck::All, "x.b.example"), Ok(()));
        assert_eq!(check(NameCheck::All, "c.example"), Err(PeerFault::Name));
        assert_eq!(check(NameCheck::None, "c.example"), Ok(()));
        let late = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1 << 40));
        let expired = PeerCheck { expire: true, name: NameCheck::None };
        assert_eq!(expired.check(Some(leaf), "x", late), Err(PeerFault::Expired));
        let lenient = PeerCheck { expire: false, name: NameCheck::None };
        assert_eq!(lenient.check(Some(leaf), "x", late), Ok(()));
        assert_eq!(lenient.check(None, "x", late), Ok(()));
        assert_eq!(expired.check(None, "x", now), Err(PeerFault::Expired));
    }
}
