//! A certificate with its chain and its private key, made from the texts of PEM files.

use crate::certificate::key_bits;
use crate::clients::ends;
use crate::pem::{Block, blocks};
use pkcs8::EncryptedPrivateKeyInfo;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm};
use std::sync::Arc;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    /// Whether the key is an RSA key.
    pub is_rsa: bool,
    /// Whether a signature takes milliseconds of CPU time, so that a pool's thread makes it and the
    /// serving thread answers other connections meanwhile.
    pub(crate) signs_slowly: bool,
}

/// The longest RSA key, in bits, that signs while other connections wait. A signature with 3072
/// bits takes three times as long, one with 4096 bits five times (aws-lc without AVX-512).
const LONGEST_QUICK_RSA: usize = 2048;

/// A remark on a certificate that works: the caller adds the place in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Apache's number of the message, if it has one.
    pub number: Option<u16>,
    /// The text.
    pub text: String,
}

/// How a passphrase is obtained: called once for each attempt, with the number of earlier attempts.
/// `None` ends the attempts.
pub type AskPassphrase<'a> = &'a mut dyn FnMut(usize) -> Result<Option<Vec<u8>>, String>;

/// The certificates of a PEM file, in its order. Parameters and keys are skipped.
///
/// # Errors
/// The file is damaged, with the line.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let blocks = blocks(text).map_err(|error| format!("line {}: {}", error.line, error.text))?;
    let mut certificates = Vec::new();
    for block in blocks {
        let trusted = block.label == "TRUSTED CERTIFICATE";
        if !trusted && !matches!(&block.label[..], "CERTIFICATE" | "X509 CERTIFICATE") {
            continue;
        }
        let (rest, _) = X509Certificate::from_der(&block.der).map_err(|error| {
            format!("line {}: the certificate cannot be parsed ({error})", block.line)
        })?;
        // OpenSSL's trusted certificates have their settings behind the certificate.
        let length = block.der.len() - if trusted { rest.len() } else { 0 };
        let der = block.der.get(..length).unwrap_or_default();
        certificates.push(CertificateDer::from(der.to_vec()));
    }
    Ok(certificates)
}

/// Whether a PEM file has a private key.
#[must_use]
pub fn has_key(text: &[u8]) -> bool {
    blocks(text).is_ok_and(|blocks| blocks.iter().any(is_key))
}

fn is_key(block: &Block) -> bool {
    block.label.ends_with("PRIVATE KEY")
}

/// The first private key of a PEM file.
///
/// # Errors
/// There is none, its kind is unknown, or no passphrase opens it.
pub fn private_key(text: &[u8], ask: AskPassphrase<'_>) -> Result<PrivateKeyDer<'static>, String> {
    let blocks = blocks(text).map_err(|error| format!("line {}: {}", error.line, error.text))?;
    match blocks.into_iter().find(is_key) {
        Some(block) => key_of(block, ask),
        None => Err("the file has no private key".to_owned()),
    }
}

/// The certificates of a PEM file with their keys: a key stands before or behind its certificate
/// (SSLProxyMachineCertificateFile; ssl_engine_init.c: ssl_init_proxy_certs).
///
/// # Errors
/// The file is damaged, or a certificate has no key or another's.
pub fn identities(text: &[u8]) -> Result<Vec<Identity>, String> {
    let incomplete = || "a certificate has no private key, or an encrypted one".to_owned();
    let blocks = blocks(text).map_err(|error| format!("line {}: {}", error.line, error.text))?;
    let (mut identities, mut certificate, mut key) = (Vec::new(), None, None);
    for block in blocks {
        if is_key(&block) {
            key = Some(key_of(block, &mut |_| Ok(None)).map_err(|_| incomplete())?);
        } else if matches!(&block.label[..], "CERTIFICATE" | "X509 CERTIFICATE") {
            if certificate.replace(CertificateDer::from(block.der)).is_some() {
                return Err(incomplete());
            }
        } else {
            continue;
        }
        if let (Some(chain), Some(own)) = (&certificate, &key) {
            identities.push(Identity::new(vec![CertificateDer::clone(chain)], own)?);
            (certificate, key) = (None, None);
        }
    }
    match certificate {
        Some(_) => Err(incomplete()),
        None => Ok(identities),
    }
}

fn key_of(block: Block, ask: AskPassphrase<'_>) -> Result<PrivateKeyDer<'static>, String> {
    if block.old_encryption {
        return Err(format!(
            "line {}: the key is encrypted in the form of OpenSSL before 1.0; convert it with \
             'openssl pkcs8 -topk8 -in OLD -out NEW'",
            block.line
        ));
    }
    match &block.label[..] {
        "PRIVATE KEY" => Ok(PrivatePkcs8KeyDer::from(block.der).into()),
        "RSA PRIVATE KEY" => Ok(PrivatePkcs1KeyDer::from(block.der).into()),
        "EC PRIVATE KEY" => Ok(PrivateSec1KeyDer::from(block.der).into()),
        "ENCRYPTED PRIVATE KEY" => open(&block, ask),
        label => Err(format!("line {}: a key of the kind {label} is not supported", block.line)),
    }
}

fn open(block: &Block, ask: AskPassphrase<'_>) -> Result<PrivateKeyDer<'static>, String> {
    let sealed = EncryptedPrivateKeyInfo::try_from(&block.der[..]).map_err(|error| {
        format!("line {}: the encrypted key cannot be parsed ({error})", block.line)
    })?;
    for attempt in 0.. {
        let Some(passphrase) = ask(attempt)? else { break };
        if let Ok(document) = sealed.decrypt(passphrase) {
            return Ok(PrivatePkcs8KeyDer::from(document.as_bytes().to_vec()).into());
        }
    }
    Err("no passphrase opens the key".to_owned())
}

impl Identity {
    /// Joins a certificate, its chain and its key.
    ///
    /// # Errors
    /// The key is of an unsupported kind, or belongs to another certificate.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'static>,
    ) -> Result<Self, String> {
        let signing = any_supported_type(key).map_err(|_| {
            "the private key is not supported: RSA of 2048 to 8192 bits, P-256, P-384, P-521 and \
             Ed25519 are"
                .to_owned()
        })?;
        let is_rsa = signing.algorithm() == SignatureAlgorithm::RSA;
        let key = CertifiedKey::new(chain, signing);
        match key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => return Err("the certificate and the private key do not match".to_owned()),
        }
        let leaf = key.cert.first().map(AsRef::as_ref).unwrap_or_default();
        let bits = key_bits(leaf).unwrap_or(usize::MAX);
        let signs_slowly = is_rsa && bits > LONGEST_QUICK_RSA;
        Ok(Self { key: Arc::new(key), is_rsa, signs_slowly })
    }

    /// The identity with the issuers of its certificate behind it, if `authorities` has them.
    #[must_use]
    pub fn with_issuers(&self, authorities: &[CertificateDer<'static>]) -> Self {
        let mut chain = self.key.cert.clone();
        while let Some((subject, issuer)) = chain.last().and_then(ends)
            && subject != issuer
            && let Some(next) =
                authorities.iter().find(|der| ends(der).is_some_and(|(name, _)| name == issuer))
            && !chain.contains(next)
        {
            chain.push(next.clone());
        }
        let key = Arc::new(CertifiedKey::new(chain, Arc::clone(&self.key.key)));
        Self { key, ..self.clone() }
    }

    /// The certificate of the server itself.
    #[must_use]
    pub fn leaf(&self) -> &[u8] {
        self.key.cert.first().map(AsRef::as_ref).unwrap_or_default()
    }

    /// What an administrator should know of a certificate for the host `name` at `now_s` (seconds
    /// since 1970) (ssl_engine_init.c, ssl_check_public_cert).
    #[must_use]
    pub fn remarks(&self, name: &str, names: &[String], now_s: i64) -> Vec<Remark> {
        let Ok((_, certificate)) = X509Certificate::from_der(self.leaf()) else {
            return Vec::new();
        };
        let mut remarks = Vec::new();
        let mut add = |number, text| remarks.push(Remark { number, text });
        if certificate.is_ca() {
            let text = "server certificate is a CA certificate (BasicConstraints: CA == TRUE !?)";
            add(Some(1906), text.to_owned());
        }
        let covered = names.is_empty() || names.iter().any(|name| covers(&certificate, name));
        if !covered {
            let text = "server certificate does NOT include an ID which matches the server name";
            add(Some(1909), format!("{name} {text}"));
        }
        let validity = certificate.validity();
        if validity.not_after.timestamp() < now_s {
            add(None, format!("the certificate has expired ({})", validity.not_after));
        } else if validity.not_before.timestamp() > now_s {
            add(None, format!("the certificate is not valid before {}", validity.not_before));
        }
        remarks
    }
}

/// Whether a certificate is for `name` (RFC 6125; as Apache, also by its common name).
fn covers(certificate: &X509Certificate<'_>, name: &str) -> bool {
    let matches = |pattern: &str| match pattern.strip_prefix("*.") {
        Some(domain) => {
            name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain))
        }
        None => pattern.eq_ignore_ascii_case(name),
    };
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternatives.is_some_and(|extension| {
        extension.value.general_names.iter().any(|general| match general {
            GeneralName::DNSName(pattern) => matches(pattern),
            GeneralName::IPAddress(bytes) => is_address(bytes, name),
            _ => false,
        })
    });
    let mut common = certificate.subject().iter_common_name();
    alternative || common.any(|attribute| attribute.as_str().is_ok_and(matches))
}

fn is_address(bytes: &[u8], name: &str) -> bool {
    let address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    address.is_ok_and(|address| match address {
        std::net::IpAddr::V4(address) => address.octets() == bytes,
        std::net::IpAddr::V6(address) => address.octets() == bytes,
    })
}
