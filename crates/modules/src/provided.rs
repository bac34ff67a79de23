//! What modules provide to one another: output filters and providers of authentication and
//! authorization, each under the name by which a configuration asks for it. A module declares its
//! own in [`crate::MODULE`]; the module that reads the name finds them among those of the active
//! modules and knows no other module. Apache: ap_register_output_filter, ap_register_auth_provider.

use crate::core::WantedNames;
use crate::{DirectorySettings, MODULES, Module, RequestContext, Scope};
use evenkeel_message::{Notice, OutputFilter};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Something that a module provides to others.
#[derive(Clone, Copy)]
pub enum Provided {
    /// An output filter: SetOutputFilter, AddOutputFilter, mod_filter.
    OutputFilter(OutputFilter),
    /// An authorization provider: Require.
    Require(RequireProvider),
    /// A provider of authentication: AuthBasicProvider, AuthDigestProvider.
    Authn(AuthnProvider),
}

/// The merged settings of the sections that hold for a request. A module reads its own of them.
pub type Sections = DirectorySettings;

/// What a provider is asked with.
pub struct Asked<'a> {
    /// The request.
    pub context: RequestContext<'a>,
    /// The settings that hold for it.
    pub sections: &'a Sections,
}

/// A provider of authentication.
#[derive(Clone, Copy, Debug)]
pub struct AuthnProvider {
    /// The word behind AuthBasicProvider.
    pub name: &'static str,
    /// Says where a password is to be compared, or decides itself.
    pub check: fn(&Asked<'_>, &Credentials<'_>, &mut Vec<Notice>) -> Credential,
    /// Whether it has the hashes of htdigest, which AuthDigestProvider and
    /// AuthBasicUseDigestAlgorithm need.
    pub has_realms: bool,
}

/// A user and a password as a client sends them.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The user.
    pub user: &'a [u8],
    /// The password; empty where a digest takes its place.
    pub password: &'a [u8],
}

/// Where a password is to be compared.
#[derive(Clone, Debug)]
pub enum Credential {
    /// Nowhere: the provider has decided.
    Decided(Verdict),
    /// With the entry of the user in this file of users.
    InFile(Arc<Path>),
}

/// What comes of a login (mod_auth.h: authn_status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// AUTH_GRANTED.
    Granted,
    /// AUTH_DENIED: it is not the user's password.
    Denied,
    /// AUTH_USER_NOT_FOUND: the next provider is asked.
    NotFound,
    /// AUTH_GENERAL_ERROR.
    Failed,
}

/// A provider as a configuration names it: one of a module, or an AuthnProviderAlias.
#[derive(Clone)]
pub struct AuthnSource {
    /// The name.
    pub name: Box<str>,
    /// The provider.
    pub provider: AuthnProvider,
    /// What stands in AuthnProviderAlias: it goes over the settings of a request.
    pub settings: Option<Arc<Sections>>,
}

/// A provider of Require.
#[derive(Clone, Copy)]
pub struct RequireProvider {
    /// The word behind Require.
    pub name: &'static str,
    /// Compiles the arguments.
    pub parse: fn(&Scope, &str) -> ParsedRequirement,
}

/// What the arguments of a provider compile to. An error is Apache's message about them.
pub type ParsedRequirement = Result<Arc<dyn Requirement>, String>;

/// A compiled Require line.
pub trait Requirement: fmt::Debug + Send + Sync {
    /// Whether the request meets the requirement. Where that cannot be found out, the answer is no.
    fn is_met(&self, asked: &Asked<'_>, notices: &mut Vec<Notice>) -> bool;

    /// Whether only a user that has logged in can meet the requirement: before the login it is not
    /// asked (AUTHZ_DENIED_NO_USER).
    fn needs_user(&self) -> bool {
        false
    }

    /// Adds the names that must be looked up before the requirement can be checked.
    fn add_wanted_names(&self, _: &RequestContext<'_>, _: &mut WantedNames) {}
}

/// The active modules.
#[derive(Clone)]
pub struct ActiveModules(Arc<[&'static Module]>, Arc<HashMap<Box<str>, AuthnSource>>);

impl ActiveModules {
    /// The modules for which `is_active` says so.
    #[must_use]
    pub fn new(is_active: impl Fn(&Module) -> bool) -> Self {
        Self(MODULES.iter().filter(|module| is_active(module)).collect(), Arc::default())
    }

    /// Whether the module of that source file is active.
    #[must_use]
    pub fn has(&self, file: &str) -> bool {
        self.0.iter().any(|module| module.file == file)
    }

    /// The provider of authentication of that name.
    #[must_use]
    pub fn authn_source(&self, name: &str) -> Option<AuthnSource> {
        if let Some(alias) = self.1.get(name) {
            return Some(alias.clone());
        }
        self.provided().find_map(|provided| match provided {
            Provided::Authn(provider) if provider.name == name => {
                Some(AuthnSource { name: name.into(), provider: *provider, settings: None })
            }
            _ => None,
        })
    }

    /// The same for a directive that names it.
    ///
    /// # Errors
    /// Apache's message about a name that no active module provides, with the reason where no
    /// module of this server does.
    pub fn named_authn_source(&self, name: &str) -> Result<AuthnSource, String> {
        let text = || format!("Unknown Authn provider: {name}");
        self.authn_source(name).ok_or_else(|| match name {
            "dbm" | "dbd" => format!(
                "{}: this server reads passwords of text files alone (AuthUserFile); it has no \
                 database drivers",
                text()
            ),
            _ => text(),
        })
    }

    /// Adds a provider under another name (AuthnProviderAlias).
    pub fn add_authn_source(&mut self, source: AuthnSource) {
        Arc::make_mut(&mut self.1).insert(source.name.clone(), source);
    }

    /// The output filter of that name.
    #[must_use]
    pub fn output_filter(&self, name: &str) -> Option<OutputFilter> {
        self.provided().find_map(|provided| match provided {
            Provided::OutputFilter(filter) if filter.name.eq_ignore_ascii_case(name) => {
                Some(*filter)
            }
            _ => None,
        })
    }

    /// The provider of Require of that name.
    #[must_use]
    pub fn require_provider(&self, name: &str) -> Option<RequireProvider> {
        self.provided().find_map(|provided| match provided {
            Provided::Require(provider) if provider.name == name => Some(*provider),
            _ => None,
        })
    }

    fn provided(&self) -> impl Iterator<Item = &'static Provided> {
        self.0.iter().flat_map(|module| module.provides)
    }
}

impl Default for ActiveModules {
    /// All modules.
    fn default() -> Self {
        Self::new(|_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_provides_is_found_while_it_is_active() {
        let all = ActiveModules::default();
        assert_eq!(all.output_filter("deflate").unwrap().name, "DEFLATE");
        assert!(all.output_filter("Byterange").is_some() && all.output_filter("none").is_none());
        assert!(all.require_provider("ip").is_some() && all.require_provider("IP").is_none());
        let few = ActiveModules::new(|module| module.file == "core.c");
        assert!(few.output_filter("DEFLATE").is_none() && few.output_filter("CORE").is_some());
        assert!(few.require_provider("ip").is_none());
    }
}
