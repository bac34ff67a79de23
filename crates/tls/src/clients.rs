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
    /// Its issuer is unknown, which the host permits.
    Generous,
    /// The host does not trust it; the reason in OpenSSL's words, where OpenSSL has words for it.
    Failed(String),
}

/// The verifier of a host.
#[derive(Debug)]
pub(crate) struct Clients {
    demand: Demand,
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
        Ok(Self { demand, depth, trusted, anchors, intermediates, names, algorithms })
    }

    /// What became of the certificates of a session.
    pub(crate) fn verdict(&self, chain: &[CertificateDer<'_>]) -> Verdict {
        let Some((leaf, rest)) = chain.split_first() else { return Verdict::None };
        match self.check(leaf, rest, UnixTime::now()) {
            Ok(()) => Verdict::Success,
            Err(error) if self.demand == Demand::AnyIssuer && is_unknown_issuer(&error) => {
                Verdict::Generous
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
            (Err(error), Demand::AnyIssuer) if is_unknown_issuer(&error) => {
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

fn is_unknown_issuer(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer))
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
fn ends<'a>(der: &'a CertificateDer<'_>) -> Option<(&'a [u8], &'a [u8])> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate;
    Some((certificate.subject.as_raw(), certificate.issuer.as_raw()))
}
