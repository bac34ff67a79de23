//! mod_ssl: HTTPS. The directives say what a host does about TLS; [`make_host`] reads the files and
//! makes the host of the room `tls`; [`check_host_name`], [`check_access`] and [`export`] act on
//! requests. How sessions are made and moved is the business of `tls` and `conn`.

mod access;
mod directives;
mod files;
mod hosts;
mod ignored;
mod passphrase;
mod proxy;

pub use access::{
    check_access, check_host_name, export, fake_login, forbids_strictly, is_guarded, misdirects,
};
pub use directives::MODULE;
pub use hosts::{Identified, Made, Sharing, make_host};
pub use proxy::{NoConnector, connector};

use crate::Merge;
use evenkeel_expr::Condition;
use evenkeel_tls::{Revocation, Selection, Versions};
use std::path::PathBuf;
use std::sync::Arc;

/// The settings of a server. `None` if the server has no directive of this module.
#[derive(Clone, Debug, Default)]
pub struct Server(Option<Arc<OfServer>>);

impl Server {
    /// Whether connections to the server speak TLS (SSLEngine).
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|said| said.engine == Some(true))
    }

    fn said(&mut self) -> &mut OfServer {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        match (&base.0, &over.0) {
            (_, None) => base.clone(),
            (None, Some(_)) => over.clone(),
            (Some(base), Some(over)) => Self(Some(Arc::new(OfServer::merge(base, over)))),
        }
    }
}

/// A file that a directive names, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    path: PathBuf,
    /// `line 3 of /etc/apache2/ssl.conf`.
    place: Arc<str>,
}

#[derive(Clone, Debug, Default)]
struct OfServer {
    engine: Option<bool>,
    /// The place of SSLEngine, for what is wrong with the host as a whole.
    engine_place: Option<Arc<str>>,
    certificates: Vec<Named>,
    keys: Vec<Named>,
    chain: Option<Named>,
    versions: Option<Versions>,
    /// The oldest and the newest version by SSLOpenSSLConfCmd.
    least_version: Option<Bound>,
    most_version: Option<Bound>,
    ciphers: Option<Selection>,
    new_ciphers: Option<Selection>,
    groups: Option<Vec<String>>,
    honor_order: Option<bool>,
    tickets: Option<bool>,
    ticket_key: Option<Named>,
    lifetime_s: Option<u32>,
    authority_file: Option<Named>,
    authority_path: Option<Named>,
    name_file: Option<Named>,
    name_path: Option<Named>,
    list_file: Option<Named>,
    list_path: Option<Named>,
    revocation: Option<(Revocation, bool)>,
    verify: Option<Verify>,
    depth: Option<usize>,
    strict_names: Option<bool>,
    /// Whether a section of the server asks for a certificate, and the least depth that one names.
    asks_in_sections: Option<bool>,
    least_depth: Option<usize>,
}

/// TLS 1.2 is `Old`, TLS 1.3 is `New`. Versions before those are below all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    Older,
    Old,
    New,
}

impl Merge for Bound {
    fn merge(_: &Self, over: &Self) -> Self {
        *over
    }
}

impl Merge for OfServer {
    fn merge(base: &Self, over: &Self) -> Self {
        // Files of the virtual host replace those of the main server at the same place in the list
        // (ssl_engine_config.c, modssl_ctx_cfg_merge_certkeys_array).
        let list = |base: &[Named], over: &[Named]| {
            over.iter().chain(base.iter().skip(over.len())).cloned().collect()
        };
        macro_rules! said {
            ($($field:ident),* $(,)?) => {
                Self {
                    certificates: list(&base.certificates, &over.certificates),
                    keys: list(&base.keys, &over.keys),
                    $($field: over.$field.clone().or_else(|| base.$field.clone())),*
                }
            };
        }
        said! {
            engine, engine_place, chain, versions, least_version, most_version, ciphers,
            new_ciphers, groups, honor_order, tickets, ticket_key, lifetime_s, authority_file,
            authority_path, name_file, name_path, list_file, list_path, revocation, verify, depth,
            strict_names, asks_in_sections, least_depth,
        }
    }
}

/// SSLVerifyClient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verify {
    None,
    Optional,
    Require,
    OptionalNoCa,
}

/// The settings of a section.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<OfSection>>, Option<Arc<proxy::OfProxy>>);

impl Directory {
    /// Whether a section has said anything.
    #[must_use]
    pub const fn is_said(&self) -> bool {
        self.0.is_some()
    }

    fn said(&mut self) -> &mut OfSection {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        Self(merge_shared(&base.0, &over.0), merge_shared(&base.1, &over.1))
    }
}

fn merge_shared<T: Merge>(base: &Option<Arc<T>>, over: &Option<Arc<T>>) -> Option<Arc<T>> {
    match (base, over) {
        (base, None) => base.clone(),
        (None, Some(_)) => over.clone(),
        (Some(base), Some(over)) => Some(Arc::new(T::merge(base, over))),
    }
}

#[derive(Clone, Debug, Default)]
struct OfSection {
    options: Options,
    requires_tls: bool,
    requirements: Vec<Arc<Required>>,
    ciphers: Option<Vec<&'static str>>,
    verify: Option<Verify>,
    user_name: Option<Box<str>>,
}

/// One SSLRequire.
#[derive(Debug)]
struct Required {
    text: Box<str>,
    condition: Condition,
}

impl Merge for OfSection {
    fn merge(base: &Self, over: &Self) -> Self {
        let requirements = base.requirements.iter().chain(&over.requirements).cloned().collect();
        Self {
            options: Options::merge(&base.options, &over.options),
            requires_tls: base.requires_tls || over.requires_tls,
            requirements,
            ciphers: over.ciphers.clone().or_else(|| base.ciphers.clone()),
            verify: over.verify.or(base.verify),
            user_name: over.user_name.clone().or_else(|| base.user_name.clone()),
        }
    }
}

/// SSLOptions, as sets of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    all: u8,
    added: u8,
    removed: u8,
    /// Whether they are relative to those of the outer section.
    relative: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { all: 0, added: 0, removed: 0, relative: true }
    }
}

impl Options {
    const VARIABLES: u8 = 1;
    const CERTIFICATES: u8 = 1 << 1;
    const FAKE_LOGIN: u8 = 1 << 2;
    const STRICT: u8 = 1 << 3;
    const RENEGOTIATE: u8 = 1 << 4;
    const LEGACY_NAMES: u8 = 1 << 5;

    const fn has(self, option: u8) -> bool {
        self.all & option != 0
    }
}

impl Merge for Options {
    fn merge(base: &Self, over: &Self) -> Self {
        if !over.relative {
            return *over;
        }
        let added = (base.added & !over.removed) | over.added;
        let removed = (base.removed & !over.added) | over.removed;
        Self { all: (base.all & !removed) | added, added, removed, relative: base.relative }
    }
}

/// What is said once for the whole server.
#[derive(Clone, Debug, Default)]
pub struct Global {
    dialog: Dialog,
    cache: Option<Store>,
    policy: Policy,
}

impl Global {
    /// The size of the table that SSLSessionCache asks for, in bytes; none without a table.
    #[must_use]
    pub fn cache_bytes(&self) -> Option<usize> {
        match self.cache {
            Some(Store::Table(bytes)) => Some(bytes),
            Some(Store::Nothing) | None => None,
        }
    }
}

/// SSLSessionCache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Nothing,
    Table(usize),
}

/// SSLPassPhraseDialog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Dialog {
    /// The terminal.
    #[default]
    Builtin,
    /// A program that writes the passphrase.
    Program(PathBuf),
    /// A program that gets a prompt and writes the passphrase.
    Pipe(Box<str>),
}

/// SSLVHostSNIPolicy: which hosts a connection may ask for that was made to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Policy {
    Strict,
    #[default]
    Secure,
    AuthOnly,
    Insecure,
}

impl Policy {
    const fn word(self) -> &'static str {
        match self {
            Policy::Strict => "strict",
            Policy::Secure => "secure",
            Policy::AuthOnly => "authonly",
            Policy::Insecure => "insecure",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_relative_to_the_outer_section_unless_a_word_has_no_sign() {
        let plus = |option| Options { all: option, added: option, removed: 0, relative: true };
        let minus = |option| Options { all: 0, added: 0, removed: option, relative: true };
        let only = |option| Options { all: option, added: option, removed: 0, relative: false };
        let (variables, strict) = (Options::VARIABLES, Options::STRICT);
        let merge = |a: Options, b: Options| Options::merge(&a, &b).all;
        assert_eq!(merge(plus(variables), plus(strict)), variables | strict);
        assert_eq!(merge(only(variables), minus(variables)), 0);
        assert_eq!(merge(plus(variables), only(strict)), strict);
        let unsaid = Options::default();
        assert_eq!(merge(only(variables), unsaid), variables);
    }
}
