//! The `SSL_*` variables of a session, as mod_ssl has them (ssl_engine_vars.c). Expressions, log
//! formats, rules and environments ask by name; nothing is parsed before somebody asks.

use crate::certificate::{exact_assertion, exports, field, legacy_subject};
use crate::clients::Verdict;
use crate::facts::Facts;
use crate::pem;
use evenkeel_message::{ClientCertificate, Secure};
use rustls::ProtocolVersion;
use rustls::pki_types::CertificateDer;
use std::time::{SystemTime, UNIX_EPOCH};

/// The variables that `SSLOptions +StdEnvVars` puts into the environment, with the parts of names
/// (ssl_engine_kernel.c, ssl_hook_Fixup_vars).
const EXPORTED: &[&str] = &[
    "SSL_VERSION_INTERFACE",
    "SSL_VERSION_LIBRARY",
    "SSL_PROTOCOL",
    "SSL_SECURE_RENEG",
    "SSL_COMPRESS_METHOD",
    "SSL_CIPHER",
    "SSL_CIPHER_EXPORT",
    "SSL_CIPHER_USEKEYSIZE",
    "SSL_CIPHER_ALGKEYSIZE",
    "SSL_CLIENT_VERIFY",
    "SSL_CLIENT_M_VERSION",
    "SSL_CLIENT_M_SERIAL",
    "SSL_CLIENT_V_START",
    "SSL_CLIENT_V_END",
    "SSL_CLIENT_V_REMAIN",
    "SSL_CLIENT_S_DN",
    "SSL_CLIENT_I_DN",
    "SSL_CLIENT_A_KEY",
    "SSL_CLIENT_A_SIG",
    "SSL_CLIENT_CERT_RFC4523_CEA",
    "SSL_SERVER_M_VERSION",
    "SSL_SERVER_M_SERIAL",
    "SSL_SERVER_V_START",
    "SSL_SERVER_V_END",
    "SSL_SERVER_S_DN",
    "SSL_SERVER_I_DN",
    "SSL_SERVER_A_KEY",
    "SSL_SERVER_A_SIG",
    "SSL_SESSION_RESUMED",
];

/// The value of SSL_VERSION_INTERFACE: programs compare it with what mod_ssl says.
const INTERFACE: &str = "mod_ssl/2.4.71";

/// The value of SSL_VERSION_LIBRARY.
const LIBRARY: &str = "rustls/0.23";

impl Secure for Facts {
    fn variable(&self, name: &str, legacy_names: bool) -> Option<String> {
        let upper = name.to_ascii_uppercase();
        let known = upper.strip_prefix("SSL_")?;
        let name = name.get(4..)?;
        let text = |text: &str| Some(text.to_owned());
        match known {
            "VERSION_INTERFACE" => text(INTERFACE),
            "VERSION_LIBRARY" | "VERSION_LIBRARY_INTERFACE" => text(LIBRARY),
            "PROTOCOL" => text(self.version_name()),
            "SESSION_RESUMED" => text(if self.resumed { "Resumed" } else { "Initial" }),
            "CIPHER" => text(self.cipher()?.name),
            "CIPHER_EXPORT" => text("false"),
            "CIPHER_USEKEYSIZE" | "CIPHER_ALGKEYSIZE" => Some(self.cipher()?.bits.to_string()),
            "CLIENT_CERT_RFC4523_CEA" => exact_assertion(self.client.first()?),
            "CLIENT_VERIFY" => Some(match &self.verdict {
                Verdict::None => "NONE".to_owned(),
                Verdict::Success => "SUCCESS".to_owned(),
                // With TLS 1.3 mod_ssl gives OpenSSL's result in place of GENEROUS.
                Verdict::Generous(_) if self.version == ProtocolVersion::TLSv1_2 => {
                    "GENEROUS".to_owned()
                }
                Verdict::Generous(reason) => format!("FAILED:{reason}"),
                Verdict::Failed(reason) => format!("FAILED:{reason}"),
            }),
            "COMPRESS_METHOD" => text("NULL"),
            "TLS_SNI" => self.name.as_deref().and_then(text),
            // TLS 1.3 has no renegotiation.
            "SECURE_RENEG" => {
                let is_old = self.version_name() == "TLSv1.2";
                text(if is_old || self.signals_renegotiation { "true" } else { "false" })
            }
            _ => {
                if let Some(index) = known.strip_prefix("CLIENT_CERT_CHAIN_") {
                    let index: usize = index.parse().ok()?;
                    return Some(pem::write("CERTIFICATE", self.issuers().get(index)?));
                }
                if known.starts_with("CLIENT_") {
                    let der = self.client.first()?;
                    return field(der, name.get(7..)?, legacy_names, now_s());
                }
                known.strip_prefix("SERVER_")?;
                field(self.server_certificate()?, name.get(7..)?, legacy_names, now_s())
            }
        }
    }

    fn exported(&self, legacy_names: bool) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if let Some(name) = &self.name {
            all.push(("SSL_TLS_SNI".to_owned(), name.to_string()));
        }
        if let Some(der) = self.server_certificate() {
            all.extend(exports(der, "SSL_SERVER_", false));
        }
        if let Some(der) = self.client.first() {
            all.extend(exports(der, "SSL_CLIENT_", true));
        }
        let fixed = EXPORTED.iter().filter_map(|name| {
            let value = self.variable(name, legacy_names).filter(|value| !value.is_empty())?;
            Some(((*name).to_owned(), value))
        });
        all.extend(fixed);
        all
    }

    fn exported_certificates(&self) -> Vec<(String, String)> {
        let pem = |der: &[u8]| pem::write("CERTIFICATE", der);
        let server = self.server_certificate().map(pem).unwrap_or_default();
        let client = self.client.first().map(|der| pem(der)).unwrap_or_default();
        let mut all =
            vec![("SSL_SERVER_CERT".to_owned(), server), ("SSL_CLIENT_CERT".to_owned(), client)];
        for (index, der) in self.issuers().iter().enumerate() {
            all.push((format!("SSL_CLIENT_CERT_CHAIN_{index}"), pem(der)));
        }
        all
    }

    fn client_subject(&self) -> Option<String> {
        legacy_subject(self.client.first()?)
    }

    fn client(&self) -> ClientCertificate {
        match self.verdict {
            Verdict::None => ClientCertificate::None,
            Verdict::Success => ClientCertificate::Trusted,
            Verdict::Generous(_) => ClientCertificate::UnknownIssuer,
            Verdict::Failed(_) => ClientCertificate::Untrusted,
        }
    }

    fn server(&self) -> usize {
        self.host.index
    }

    fn server_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }
}

impl Facts {
    /// The version of TLS in OpenSSL's words.
    #[must_use]
    pub fn version_name(&self) -> &'static str {
        match self.version {
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => "TLSv1.3",
        }
    }

    /// What the client has sent besides its own certificate (SSL_get_peer_cert_chain, which on the
    /// server's side lacks the first).
    fn issuers(&self) -> &[CertificateDer<'static>] {
        self.client.get(1..).unwrap_or_default()
    }

    fn server_certificate(&self) -> Option<&[u8]> {
        self.identity.as_ref().map(|identity| identity.leaf())
    }
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or_default()
}
