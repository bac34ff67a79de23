//! What a handshake has agreed: one value a connection, shared by its requests.

use crate::clients::Verdict;
use crate::host::Host;
use crate::identity::Identity;
use crate::suites::Suite;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, UnbufferedServerConnection};
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use std::sync::Arc;

/// The facts of a session.
#[derive(Debug)]
pub struct Facts {
    /// The host whose certificate the session has.
    pub host: Arc<Host>,
    /// The name that the client asked for (SNI), in lower case.
    pub name: Option<Box<str>>,
    /// The application protocol that was agreed (ALPN).
    pub protocol: Option<Box<[u8]>>,
    /// The version of TLS.
    pub(crate) version: ProtocolVersion,
    pub(crate) suite: Option<SupportedCipherSuite>,
    /// Whether the session continues an earlier one.
    pub resumed: bool,
    /// Whether the client signals by a cipher suite that it knows secure renegotiation (RFC 5746,
    /// section 3.3).
    pub(crate) signals_renegotiation: bool,
    /// The certificate of the client and those of its issuers, in this order. Empty if the host
    /// does not trust the client's certificate ([`Verdict::Failed`]).
    pub(crate) client: Box<[CertificateDer<'static>]>,
    pub(crate) identity: Option<Identity>,
    /// What became of them.
    pub verdict: Verdict,
}

impl Facts {
    pub(crate) fn begin(host: Arc<Host>, hello: &ClientHello<'_>) -> Self {
        let name = hello.server_name();
        let identity = host.identity(hello.signature_schemes()).cloned();
        let signal = CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV;
        let signals_renegotiation = hello.cipher_suites().contains(&signal);
        Self {
            host,
            name: name.map(|name| name.to_ascii_lowercase().into()),
            protocol: None,
            version: ProtocolVersion::TLSv1_3,
            suite: None,
            resumed: false,
            client: Box::default(),
            identity,
            signals_renegotiation,
            verdict: Verdict::None,
        }
    }

    /// The cipher suite.
    #[must_use]
    pub fn cipher(&self) -> Option<&'static Suite> {
        self.suite.and_then(|suite| Suite::of(suite.suite()))
    }

    /// Whether the server has signed the handshake with an RSA key, unless it resumed a session.
    pub(crate) fn signs_by_rsa(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.is_rsa)
    }

    /// Whether such a signature takes so much CPU time that other connections must not wait for it.
    pub(crate) fn signs_slowly(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.signs_slowly)
    }

    pub(crate) fn finish(&mut self, connection: &UnbufferedServerConnection) {
        self.protocol = connection.alpn_protocol().map(Into::into);
        self.version = connection.protocol_version().unwrap_or(ProtocolVersion::TLSv1_3);
        self.suite = connection.negotiated_cipher_suite();
        self.resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let certificates = connection.peer_certificates().unwrap_or_default();
        self.verdict = self.host.verdict(certificates);
        // The handshake takes every certificate where a section decides about it. The content of
        // one that is not trusted is the client's invention: no section may see it, not even one
        // that asks for none.
        if !matches!(self.verdict, Verdict::Failed(_)) {
            self.client = certificates.into();
        }
    }
}
