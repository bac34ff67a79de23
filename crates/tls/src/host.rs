//! What one virtual host does about TLS, ready for use: made from its settings by the parent,
//! inherited by all children.

use rustls::{ServerConfig, SignatureScheme};
use std::fmt;
use std::sync::Arc;

/// The TLS side of a virtual host.
pub struct Host {
    /// Which server of the site it is, in the caller's numbering.
    pub index: usize,
    /// The server's name and port for log lines, such as `www.example.org:443`.
    pub name: String,
    /// The configuration of rustls.
    pub(crate) config: Arc<ServerConfig>,
    /// Whether the host has keys other than RSA keys.
    pub(crate) has_ecdsa: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("index", &self.index).field("name", &self.name).finish()
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

/// Whether a signature scheme is of a key on a curve.
pub(crate) fn is_ecdsa(scheme: SignatureScheme) -> bool {
    matches!(
        scheme,
        SignatureScheme::ECDSA_NISTP256_SHA256
            | SignatureScheme::ECDSA_NISTP384_SHA384
            | SignatureScheme::ECDSA_NISTP521_SHA512
            | SignatureScheme::ED25519
    )
}
