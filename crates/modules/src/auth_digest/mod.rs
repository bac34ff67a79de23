//! mod_auth_digest: authentication with a hash of the user name, the realm, the password and a
//! nonce of the server (RFC 7616 with MD5). This module reads no file: the pipeline checks the
//! field with [`begin`], asks the providers for the user's hash, and ends with [`conclude`].

mod answer;
mod clients;
mod directives;
mod login;
mod nonce;
mod uri;

pub use crate::NoSettings as Server;
pub use answer::challenge;
pub use directives::MODULE;
pub use login::{Denial, Found, Proof, begin, conclude};

use crate::{AuthnSource, Merge};
use clients::Clients;
use evenkeel_sys::random;
use md5::{Digest as _, Md5};
use nonce::Secret;
use std::io;
use std::sync::{Arc, LazyLock, OnceLock};

/// The provider if AuthDigestProvider is not set (AUTHN_DEFAULT_PROVIDER).
pub const DEFAULT_PROVIDER: &str = "file";

/// The lifetime of a nonce in microseconds, if AuthDigestNonceLifetime is not set.
const LIFETIME_US: i64 = 300_000_000;

/// The fewest clients that the table holds.
const CLIENTS: usize = 4096;

/// The most clients that the table holds: 256 MiB.
const MOST_CLIENTS: usize = 1 << 24;

/// The smallest AuthDigestShmemSize in bytes: Apache's table with one client.
const LEAST_SIZE: i64 = 88;

/// The size of a client in Apache's table, in bytes.
const CLIENT_BYTES: usize = 32;

/// The settings of one section. `said` is `None` if the section has no directive of this module;
/// otherwise it replaces the settings of the outer sections as a whole, because Apache's module has
/// no function that merges them.
#[derive(Clone, Default)]
pub struct Directory {
    said: Option<Arc<Said>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; said)
    }
}

/// The settings of the process.
#[derive(Clone, Default)]
pub struct Global {
    /// AuthDigestShmemSize, in bytes.
    size: Option<usize>,
}

/// The settings of a section that has a directive of this module.
#[derive(Clone)]
struct Said {
    /// AuthDigestProvider.
    providers: Vec<AuthnSource>,
    /// AuthDigestNonceLifetime in microseconds. Negative: nonces do not expire. 0: a nonce is valid
    /// for one request.
    lifetime_us: i64,
    /// AuthDigestNcCheck.
    checks_count: bool,
    /// AuthDigestDomain.
    domains: Vec<Box<str>>,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            lifetime_us: LIFETIME_US,
            checks_count: false,
            domains: Vec::new(),
        }
    }
}

impl Said {
    /// Whether the nonces of clients are counted or used once.
    fn needs_clients(&self) -> bool {
        self.checks_count || self.lifetime_us == 0
    }
}

/// The settings of a section without directives of this module.
static UNSAID: LazyLock<Said> = LazyLock::new(Said::default);

impl Directory {
    fn said(&self) -> &Said {
        self.said.as_deref().unwrap_or(&UNSAID)
    }

    /// The providers of AuthDigestProvider, in order. Empty if AuthDigestProvider is not set.
    #[must_use]
    pub fn providers(&self) -> &[AuthnSource] {
        self.said.as_ref().map_or(&[], |said| &said.providers)
    }
}

/// What all child processes have in common: the secret of the nonces, and the table of clients.
struct Common {
    secret: Secret,
    clients: Clients,
}

/// It exists from the first configuration on that has this module, and stays over reloads.
static COMMON: OnceLock<Common> = OnceLock::new();

/// Makes the secret of the nonces and the table of clients, unless they exist. The parent process
/// calls this before it forks the children that shall accept each other's nonces.
///
/// # Errors
/// getrandom(2) or mmap(2) fails.
pub fn prepare(settings: &Global) -> io::Result<()> {
    if COMMON.get().is_none() {
        let wanted = settings.size.unwrap_or_default() / CLIENT_BYTES;
        let clients = Clients::new(wanted.clamp(CLIENTS, MOST_CLIENTS))?;
        let _ = COMMON.set(Common { secret: Secret(random::bytes()?), clients });
    }
    Ok(())
}

/// MD5 in hexadecimal digits.
fn md5(parts: &[&[u8]]) -> Vec<u8> {
    let mut hasher = Md5::new();
    for part in parts {
        hasher.update(part);
    }
    hexadecimal(&hasher.finalize())
}

fn hexadecimal(bytes: &[u8]) -> Vec<u8> {
    let digits = b"0123456789abcdef";
    let digit = |value: u8| digits.get(usize::from(value)).copied().unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

#[cfg(test)]
mod tests;
