//! Certificates of clients: whether a host asks for them, whom it trusts, and what it makes of a
//! certificate that it does not trust.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use std::sync::Arc;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// How a handshake deals with a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The client must have a certificate that the host trusts (`require`).
    Require,
    /// A certificate must be trusted, if there is one (`optional`).
    Optional,
    /// A certificate whose issuer is unknown is taken too (`optional_no_ca`).
    AnyIssuer,
    /// Every certificate is taken, and the sections of the host decide: a section asks for one.
    Record,
}

/// What of a chain is looked up in revocation lists (SSLCARevocationCheck).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revocation {
    /// Nothing.
    #[default]
    Ignored,
    /// The client's certificate.
    Leaf,
    /// Every certificate of the chain.
    Chain,
}

/// What a host knows about certificates of clients.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// What it asks.
    pub demand: Demand,
    /// The certificates of SSLCACertificateFile and SSLCACertificatePath.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The certificates whose subjects are named to the client (SSLCADNRequestFile and Path); those
    /// of `authorities` if there are none.
    pub named: Vec<CertificateDer<'static>>,
    /// Revocation lists.
    pub lists: Vec<CertificateRevocationListDer<'static>>,
    /// What is looked up in them.
    pub revocation: Revocation,
    /// Whether a certificate whose issuer has no list is good (`no_crl_for_cert_ok`).
    pub lists_may_lack: bool,
    /// The most issuers above the client's certificate (SSLVerifyDepth).
    pub depth: usize,
}

/// What became of a client's certificate (SSL_CLIENT_VERIFY).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is none.
    None,
    /// The host trusts it.
    Success,
    /// Its issuer is unknown, which the host permits; OpenSSL's words for that.
    Generous(&'static str),
    /// The host does not trust it; the reason in OpenSSL's words, where OpenSSL has words for it.
    Failed(String),
}

/// The verifier of a host.
#[derive(Debug)]
pub(crate) struct Clients {
    demand: Demand,
    /// Whether a certificate whose issuer is unknown is taken (`optional_no_ca`). As in mod_ssl it
    /// is not where revocation is checked, because no list is known for that issuer.
    takes_unknown: bool,
    depth: usize,
    trusted: Option<Arc<dyn ClientCertVerifier>>,
    /// Subjects of the certificates that end a chain.
    anchors: Vec<Vec<u8>>,
    /// Authorities that are not self-issued: they continue a chain and do not end it.
    intermediates: Vec<CertificateDer<'static>>,
    names: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    pub(crate) fn new(
        settings: ClientSettings,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let ClientSettings { demand, authorities, named, lists, revocation, depth, .. } = settings;
        let takes_unknown = demand == Demand::AnyIssuer
            && (revocation == Revocation::Ignored || settings.lists_may_lack);
        let subjects = |list: &[CertificateDer<'static>]| -> Vec<_> {
            list.iter().filter_map(|der| Some(ends(der)?.0.to_vec())).collect()
        };
        let names = subjects(if named.is_empty() { &authorities } else { &named });
        // OpenSSL ends a chain at a self-issued certificate only, webpki at any trust anchor.
        let (roots, intermediates): (Vec<_>, Vec<_>) = authorities
            .into_iter()
            .partition(|der| ends(der).is_some_and(|(subject, issuer)| subject == issuer));
        let anchors = subjects(&roots);
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root).map_err(|error| format!("a CA certificate cannot be used: {error}"))?;
        }
        let trusted = if store.is_empty() {
            None
        } else {
            let store = Arc::new(store);
            let mut builder = WebPkiClientVerifier::builder_with_provider(store, provider.clone());
            if revocation != Revocation::Ignored {
                if lists.is_empty() && !settings.lists_may_lack {
                    return Err("SSLCARevocationCheck needs lists: SSLCARevocationFile or \
                                SSLCARevocationPath"
                        .to_owned());
                }
                builder = builder.with_crls(lists).enforce_revocation_expiration();
                if revocation == Revocation::Leaf {
                    builder = builder.only_check_end_entity_revocation();
                }
                if settings.lists_may_lack {
                    builder = builder.allow_unknown_revocation_status();
                }
            }
            Some(builder.build().map_err(|error| format!("client certificates: {error}"))?)
        };
        let algorithms = provider.signature_verification_algorithms;
        let names = names.into_iter().map(DistinguishedName::from).collect();
        Ok(Self {
            demand,
            takes_unknown,
            depth,
            trusted,
            anchors,
            intermediates,
            names,
            algorithms,
        })
    }

    /// What became of the certificates of a session.
    pub(crate) fn verdict(&self, chain: &[CertificateDer<'_>]) -> Verdict {
        let Some((leaf, rest)) = chain.split_first() else { return Verdict::None };
        match self.check(leaf, rest, UnixTime::now()) {
            Ok(()) => Verdict::Success,
            Err(error) if self.takes_unknown && is_unknown_issuer(&error) => {
                Verdict::Generous(untrusted(leaf, rest))
            }
            Err(error) => Verdict::Failed(reason(&error)),
        }
    }

    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let Some(trusted) = &self.trusted else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let chain: Vec<_> = rest.iter().chain(&self.intermediates).cloned().collect();
        trusted.verify_client_cert(leaf, &chain, now)?;
        if self.issuers(leaf, &chain) > self.depth {
            let text = format!("certificate chain too long (SSLVerifyDepth {})", self.depth);
            return Err(Error::General(text));
        }
        Ok(())
    }

    /// How many issuers a chain has above its leaf, the trust anchor included.
    fn issuers(&self, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) -> usize {
        let mut current = leaf;
        for count in 1..=chain.len() + 1 {
            let Some((subject, issuer)) = ends(current) else { return usize::MAX };
            if self.anchors.iter().any(|anchor| anchor == issuer) {
                // A self-issued client certificate that is its own anchor.
                return if subject == issuer { 0 } else { count };
            }
            let next = chain.iter().find(|der| ends(der).is_some_and(|(name, _)| name == issuer));
            let Some(next) = next else { return usize::MAX };
            current = next;
        }
        usize::MAX
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.demand == Demand::Require
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match (self.check(leaf, rest, now), self.demand) {
            (Ok(()), _) | (Err(_), Demand::Record) => Ok(ClientCertVerified::assertion()),
            (Err(error), _) if self.takes_unknown && is_unknown_issuer(&error) => {
                Ok(ClientCertVerified::assertion())
            }
            (Err(error), _) => Err(error),
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

pub(crate) fn is_unknown_issuer(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer))
}

/// OpenSSL's words for a chain whose issuer is unknown.
fn untrusted(leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> &'static str {
    let signs_itself = |der: &CertificateDer<'_>| ends(der).is_some_and(|(a, b)| a == b);
    if signs_itself(leaf) {
        "self-signed certificate"
    } else if rest.iter().any(signs_itself) {
        "self-signed certificate in certificate chain"
    } else if rest.is_empty() {
        "unable to verify the first certificate"
    } else {
        "unable to get local issuer certificate"
    }
}

/// OpenSSL's words for a fault of a certificate (X509_verify_cert_error_string).
fn reason(error: &Error) -> String {
    use CertificateError as Fault;
    let Error::InvalidCertificate(fault) = error else {
        return match error {
            Error::General(text) => text.clone(),
            other => other.to_string(),
        };
    };
    let text = match fault {
        Fault::Expired | Fault::ExpiredContext { .. } => "certificate has expired",
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => "certificate is not yet valid",
        Fault::Revoked => "certificate revoked",
        Fault::UnknownIssuer => "unable to get local issuer certificate",
        Fault::UnknownRevocationStatus => "unable to get certificate CRL",
        Fault::ExpiredRevocationList | Fault::ExpiredRevocationListContext { .. } => {
            "CRL has expired"
        }
        Fault::BadSignature => "certificate signature failure",
        Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
            "unsupported certificate purpose"
        }
        Fault::UnhandledCriticalExtension => "unhandled critical extension",
        other => return format!("{other:?}"),
    };
    text.to_owned()
}

/// Subject and issuer of a certificate, in DER.
pub(crate) fn ends<'a>(der: &'a CertificateDer<'_>) -> Option<(&'a [u8], &'a [u8])> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate;
    Some((certificate.subject.as_raw(), certificate.issuer.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::Outgoing;
    use crate::session::{Progress, Session};
    use crate::testing::{Client, Party, door_of, settings};

    /// Connects a client with these certificates to a host with these settings. Returns the verdict
    /// on the certificates, or the alert that the host sends.
    fn meet(party: Option<&Party>, settings_of_clients: ClientSettings, old: bool) -> String {
        let version = if old { &rustls::version::TLS12 } else { &rustls::version::TLS13 };
        let mut host = settings(0, "a.example");
        host.clients = Some(settings_of_clients);
        let mut session = Session::accept(door_of(vec![host]));
        let mut client = Client::of(Client::config_as(version, party), "a.example");
        let (mut plain, mut out) = (Vec::new(), Outgoing::new());
        for _ in 0..4 {
            let result = session.receive(&mut client.take_output(), &mut plain, &mut out);
            client.receive(out.bytes());
            out.clear();
            match result {
                Err(failure) => {
                    assert!(client.fault().contains("AlertReceived"), "{}", client.fault());
                    assert!(failure.notice.number.is_some());
                    return client.fault();
                }
                Ok(Progress::Established) => {
                    return format!("{:?}", session.facts().unwrap().verdict);
                }
                Ok(_) => {}
            }
        }
        panic!("no end");
    }

    fn asks(demand: Demand, ca: &Party) -> ClientSettings {
        ClientSettings {
            demand,
            authorities: vec![ca.der()],
            named: Vec::new(),
            lists: Vec::new(),
            revocation: Revocation::Ignored,
            lists_may_lack: false,
            depth: 1,
        }
    }

    #[test]
    fn each_demand_admits_its_own_in_both_versions() {
        let (ca, unknown) = (Party::authority(None), Party::authority(None));
        let below = Party::authority(Some(&ca));
        let user = Party::client(&ca, false);
        let (stranger, expired) = (Party::client(&unknown, false), Party::client(&ca, true));
        let deep = Party::client(&below, false);
        for old in [false, true] {
            let meet = |party: Option<&Party>, demand| meet(party, asks(demand, &ca), old);
            assert_eq!(meet(Some(&user), Demand::Require), "Success");
            assert_eq!(meet(Some(&user), Demand::Optional), "Success");
            assert_eq!(meet(None, Demand::Optional), "None");
            assert!(meet(None, Demand::Require).contains("Alert"));
            assert!(meet(Some(&stranger), Demand::Optional).contains("UnknownCA"));
            assert!(meet(Some(&expired), Demand::Optional).contains("CertificateExpired"));
            assert!(meet(Some(&deep), Demand::Require).contains("Alert"), "too deep");
            assert!(meet(Some(&stranger), Demand::AnyIssuer).contains("Generous"));
            assert!(meet(Some(&expired), Demand::AnyIssuer).contains("CertificateExpired"));
            let failed = "Failed(\"certificate has expired\")";
            assert_eq!(meet(Some(&expired), Demand::Record), failed);
            let deeper = ClientSettings { depth: 2, ..asks(Demand::Require, &ca) };
            assert_eq!(super::tests::meet(Some(&deep), deeper, old), "Success");
            // An authority that is not self-issued ends no chain.
            let half =
                ClientSettings { authorities: vec![below.der()], ..asks(Demand::Record, &ca) };
            assert!(super::tests::meet(Some(&deep), half, old).contains("unable to get"));
        }
    }
}
