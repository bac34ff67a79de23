//! The cipher suites that the server has: their names in OpenSSL, their strength, and what rustls
//! calls them.

use rustls::crypto::aws_lc_rs::cipher_suite as suite;
use rustls::{CipherSuite, SupportedCipherSuite};

/// A cipher suite.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// OpenSSL's name.
    pub name: &'static str,
    /// The length of the key, in bits.
    pub bits: u16,
    pub(crate) rustls: SupportedCipherSuite,
}

macro_rules! suites {
    ($($name:literal $bits:literal $suite:ident,)+) => {
        &[$(Suite { name: $name, bits: $bits, rustls: suite::$suite },)+]
    };
}

/// The suites of TLS 1.2, in the order in which OpenSSL lists them before it applies a string.
pub(crate) const OLD: &[Suite] = suites! {
    "ECDHE-ECDSA-AES256-GCM-SHA384" 256 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    "ECDHE-RSA-AES256-GCM-SHA384" 256 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    "ECDHE-ECDSA-CHACHA20-POLY1305" 256 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    "ECDHE-RSA-CHACHA20-POLY1305" 256 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    "ECDHE-ECDSA-AES128-GCM-SHA256" 128 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    "ECDHE-RSA-AES128-GCM-SHA256" 128 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
};

/// The suites of TLS 1.3, in OpenSSL's order.
pub(crate) const NEW: &[Suite] = suites! {
    "TLS_AES_256_GCM_SHA384" 256 TLS13_AES_256_GCM_SHA384,
    "TLS_CHACHA20_POLY1305_SHA256" 256 TLS13_CHACHA20_POLY1305_SHA256,
    "TLS_AES_128_GCM_SHA256" 128 TLS13_AES_128_GCM_SHA256,
};

impl Suite {
    /// The suite with a number of IANA's, if the server has it.
    #[must_use]
    pub fn of(number: CipherSuite) -> Option<&'static Self> {
        OLD.iter().chain(NEW).find(|entry| entry.rustls.suite() == number)
    }

    /// What rustls has for it.
    #[must_use]
    pub fn rustls(&self) -> SupportedCipherSuite {
        self.rustls
    }
}
