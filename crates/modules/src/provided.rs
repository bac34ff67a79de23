//! What modules provide to one another: output filters and authorization providers, each under the
//! name by which a configuration asks for it. A module declares its own in [`crate::MODULE`]; the
//! module that reads the name finds them among those of the active modules and knows no other
//! module. Apache: ap_register_output_filter, ap_register_auth_provider.

use crate::core::WantedNames;
use crate::{MODULES, Module, RequestContext, Scope};
use evenkeel_message::{Notice, OutputFilter};
use std::fmt;
use std::sync::Arc;

/// Something that a module provides to others.
#[derive(Clone, Copy)]
pub enum Provided {
    /// An output filter: SetOutputFilter, AddOutputFilter, mod_filter.
    OutputFilter(OutputFilter),
    /// An authorization provider: Require.
    Require(RequireProvider),
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
    fn is_met(&self, context: &RequestContext<'_>, notices: &mut Vec<Notice>) -> bool;

    /// Adds the names that must be looked up before the requirement can be checked.
    fn add_wanted_names(&self, _: &RequestContext<'_>, _: &mut WantedNames) {}
}

/// The active modules.
#[derive(Clone)]
pub struct ActiveModules(Arc<[&'static Module]>);

impl ActiveModules {
    /// The modules for which `is_active` says so.
    #[must_use]
    pub fn new(is_active: impl Fn(&Module) -> bool) -> Self {
        Self(MODULES.iter().filter(|module| is_active(module)).collect())
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
