//! The TLS session of a connection, as far as its requests ask about it. The room `tls` has the
//! sessions; requests carry them under this trait, so that no module needs that room.

use std::fmt;

/// A TLS session. Values that nobody asks for cost nothing.
pub trait Secure: fmt::Debug + Send + Sync {
    /// The value of an `SSL_*` variable, by its whole name and without regard to case. Names of
    /// owners and issuers are in OpenSSL's old form if `legacy_names` is set (SSLOptions
    /// +LegacyDNStringFormat).
    fn variable(&self, name: &str, legacy_names: bool) -> Option<String>;

    /// The variables of SSLOptions +StdEnvVars.
    fn exported(&self, legacy_names: bool) -> Vec<(String, String)>;

    /// The variables of SSLOptions +ExportCertData.
    fn exported_certificates(&self) -> Vec<(String, String)>;

    /// The owner of the client's certificate in OpenSSL's old form (`/C=DE/CN=x`); none without a
    /// certificate.
    fn client_subject(&self) -> Option<String>;

    /// What became of the client's certificate.
    fn client(&self) -> ClientCertificate;

    /// The server whose certificate the session has, in the site's numbering.
    fn server(&self) -> usize;

    /// The name of the server that the client asked for (SNI), in lower case.
    fn server_name(&self) -> Option<&str>;

    /// The application protocol that was agreed (ALPN).
    fn protocol(&self) -> Option<&[u8]>;
}

/// What became of a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// The client has none.
    None,
    /// The server trusts it.
    Trusted,
    /// The server does not know its issuer, and takes it all the same (`optional_no_ca`).
    UnknownIssuer,
    /// The server does not trust it.
    Untrusted,
}
