//! The registry of items that modules provide to each other by name: filters,
//! authentication providers and authorization providers. A module declares its items in
//! [`Module::provides`]. A directive that names an item looks it up among the active modules, so
//! that no module depends on another. Apache: ap_register_output_filter,
//! ap_register_auth_provider.

use crate::{DirectorySettings, InputFilter, MODULES, Module, OutputFilter, RequestContext, Scope};
use evenkeel_message::{Job, Lookup, Notice, Undecided};
use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// An item that a module provides to others.
#[derive(Clone)]
pub enum Provided {
    /// An output filter, for SetOutputFilter, AddOutputFilter and mod_filter.
    OutputFilter(OutputFilter),
    /// An input filter, for SetInputFilter and AddInputFilter.
    InputFilter(InputFilter),
    /// An authorization provider, for Require.
    Require(RequireProvider),
    /// An authentication provider, for AuthBasicProvider and AuthDigestProvider.
    Authn(AuthnProvider),
}

/// The merged settings of all sections that match a request. Each module reads its own part.
pub type Sections = DirectorySettings;

/// The inputs of a provider.
pub struct Asked<'a> {
    /// The request.
    pub context: RequestContext<'a>,
    /// The merged settings of the request.
    pub sections: &'a Sections,
}

impl Asked<'_> {
    /// The result of work that blocks. The blocking pool does the work while the request waits;
    /// the result is valid for this evaluation of the rules. `key` identifies it, `what` is the
    /// name of the work in the error log.
    ///
    /// # Errors
    /// The work is not done yet, or it could not be done.
    pub fn find<T: Any + Send + Sync>(
        &self,
        key: &[u8],
        what: impl FnOnce() -> String,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Arc<T>, Undecided> {
        let lookups = &self.context.request.lookups;
        if let Some(found) = lookups.found(key)? {
            return Arc::clone(found).downcast().map_err(|_| Undecided);
        }
        let work = Box::new(|| -> evenkeel_message::Finding { Arc::new(work()) });
        Err(lookups.leave_open(Lookup::Job(Job { key: key.into(), what: what(), work })))
    }
}

/// An authentication provider.
#[derive(Clone, Copy, Debug)]
pub struct AuthnProvider {
    /// The name in AuthBasicProvider and AuthDigestProvider.
    pub name: &'static str,
    /// Returns the file with the user's password, or a verdict.
    pub check: CheckLogin,
    /// Returns the file with the hash that htdigest has written for the user in a realm, or a
    /// verdict (Apache: get_realm_hash). AuthDigestProvider and AuthBasicUseDigestAlgorithm need
    /// it. `None` if the provider does not support such hashes.
    pub check_realm: Option<CheckLogin>,
}

/// The function of an authentication provider.
pub type CheckLogin = fn(&Asked<'_>, &Credentials<'_>, &mut Vec<Notice>) -> Credential;

/// The user name and the password of a request.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The user name.
    pub user: &'a [u8],
    /// The password.
    pub password: &'a [u8],
}

/// The result of an authentication provider.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The provider has checked the login itself.
    Decided(Verdict),
    /// The caller must compare the password with the user's entry in this file.
    InFile(Arc<Path>),
}

/// The result of an authentication (mod_auth.h: authn_status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// AUTH_GRANTED: the user is authenticated.
    Granted,
    /// AUTH_DENIED: the password is wrong.
    Denied,
    /// AUTH_USER_NOT_FOUND: the user is unknown, and the next provider is tried.
    NotFound,
    /// AUTH_GENERAL_ERROR: the provider failed.
    Failed,
}

/// An authentication provider under its configured name: that of a module or of an
/// AuthnProviderAlias.
#[derive(Clone)]
pub struct AuthnSource {
    /// The name.
    pub name: Cow<'static, str>,
    /// The provider.
    pub provider: AuthnProvider,
    /// The settings in AuthnProviderAlias, which override the settings of a request. `None` if the
    /// alias has no settings, or if it is no alias.
    pub settings: Option<Arc<Sections>>,
}

/// An authorization provider.
#[derive(Clone, Copy)]
pub struct RequireProvider {
    /// The name in Require.
    pub name: &'static str,
    /// Compiles the arguments.
    pub parse: fn(&Scope, &str) -> ParsedRequirement,
}

/// The compiled arguments of an authorization provider, or Apache's message about an error in them.
pub type ParsedRequirement = Result<Arc<dyn Requirement>, String>;

/// A compiled Require line.
pub trait Requirement: fmt::Debug + Send + Sync {
    /// Whether the request meets the requirement. A requirement that lacks a fact returns false, or
    /// has it looked up ([`Asked::find`], [`crate::core::known_names`]).
    ///
    /// # Errors
    /// A look-up is open, after which the requirement is checked again, or it has failed.
    fn is_met(&self, asked: &Asked<'_>, notices: &mut Vec<Notice>) -> Result<bool, Undecided>;

    /// The reason why a request does not meet the requirement, if the Require line does not contain
    /// it: for example the line of a group file. It is written to the error log, behind the Require
    /// line.
    fn explain(&self, _: &Asked<'_>) -> Option<String> {
        None
    }

    /// Whether the requirement needs an authenticated user. In that case it is not checked before
    /// the login (AUTHZ_DENIED_NO_USER).
    fn needs_user(&self) -> bool {
        false
    }
}

/// The active modules, and the aliases of authentication providers (AuthnProviderAlias).
#[derive(Clone)]
pub struct ActiveModules {
    modules: Arc<[&'static Module]>,
    authn_aliases: Arc<HashMap<Box<str>, AuthnSource>>,
    /// The filters of the modules, which requests name.
    output_filters: Arc<[&'static OutputFilter]>,
    input_filters: Arc<[&'static InputFilter]>,
}

impl ActiveModules {
    /// The modules for which `is_active` returns true.
    #[must_use]
    pub fn new(is_active: impl Fn(&Module) -> bool) -> Self {
        let modules: Arc<[_]> = MODULES.iter().filter(|module| is_active(module)).collect();
        let (mut output_filters, mut input_filters) = (Vec::new(), Vec::new());
        for provided in modules.iter().flat_map(|module| module.provides) {
            match provided {
                Provided::OutputFilter(filter) => output_filters.push(filter),
                Provided::InputFilter(filter) => input_filters.push(filter),
                _ => {}
            }
        }
        Self {
            modules,
            authn_aliases: Arc::default(),
            output_filters: output_filters.into(),
            input_filters: input_filters.into(),
        }
    }

    /// Whether the module with this source file is active.
    #[must_use]
    pub fn has(&self, file: &str) -> bool {
        self.modules.iter().any(|module| module.file == file)
    }

    /// The active modules.
    pub fn iter(&self) -> impl Iterator<Item = &'static Module> {
        self.modules.iter().copied()
    }

    /// The authentication provider with this name. Aliases take precedence.
    #[must_use]
    pub fn authn_source(&self, name: &str) -> Option<AuthnSource> {
        if let Some(alias) = self.authn_aliases.get(name) {
            return Some(alias.clone());
        }
        self.provided().find_map(|provided| match provided {
            Provided::Authn(provider) if provider.name == name => Some(AuthnSource {
                name: provider.name.into(),
                provider: *provider,
                settings: None,
            }),
            _ => None,
        })
    }

    /// The authentication provider that a directive names.
    ///
    /// # Errors
    /// Apache's message about an unknown provider. For `dbm` and `dbd`, it also gives the reason.
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

    /// Adds an alias of an authentication provider (AuthnProviderAlias).
    pub fn add_authn_source(&mut self, source: AuthnSource) {
        Arc::make_mut(&mut self.authn_aliases).insert((*source.name).into(), source);
    }

    /// The output filter with this name, which is case-insensitive.
    #[must_use]
    pub fn output_filter(&self, name: &str) -> Option<OutputFilter> {
        let named = |filter: &&&OutputFilter| filter.name.eq_ignore_ascii_case(name);
        self.output_filters.iter().find(named).map(|filter| OutputFilter::clone(filter))
    }

    /// The input filter with this name, which is case-insensitive.
    #[must_use]
    pub fn input_filter(&self, name: &str) -> Option<InputFilter> {
        let named = |filter: &&&InputFilter| filter.name.eq_ignore_ascii_case(name);
        self.input_filters.iter().find(named).map(|filter| InputFilter::clone(filter))
    }

    /// The authorization provider with this name.
    #[must_use]
    pub fn require_provider(&self, name: &str) -> Option<RequireProvider> {
        self.provided().find_map(|provided| match provided {
            Provided::Require(provider) if provider.name == name => Some(*provider),
            _ => None,
        })
    }

    fn provided(&self) -> impl Iterator<Item = &'static Provided> {
        self.modules.iter().flat_map(|module| module.provides)
    }
}

impl Default for ActiveModules {
    /// All modules are active.
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
        assert_eq!(all.input_filter("Deflate").unwrap().name, "DEFLATE");
        assert!(all.input_filter("INFLATE").is_none());
        assert!(all.require_provider("ip").is_some() && all.require_provider("IP").is_none());
        let few = ActiveModules::new(|module| module.file == "core.c");
        assert!(few.output_filter("DEFLATE").is_none() && few.output_filter("CORE").is_some());
        assert!(few.require_provider("ip").is_none());
    }
}
