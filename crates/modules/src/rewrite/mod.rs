//! mod_rewrite: rules that rewrite the path and the query of a request. [`translate`] applies the
//! rules of a server, [`fix_up`] those of sections. Both return an [`Outcome`], which `pipeline`
//! acts on; `pipeline` also implements [`Surroundings`] for subrequests and expressions.

#[macro_use]
mod trace;

mod arguments;
mod condition;
mod cookie;
mod directives;
mod engine;
mod expand;
mod flags;
mod folder;
mod map;
mod rule;
mod server;
mod substitution;
mod template;
mod test;
mod uri;
mod variable;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use engine::{Ahead, Look, Surroundings, Verdict};
pub use folder::{KEEPS_VARY, fix_up};
pub use map::ProgramMap;
pub use server::translate;
pub use trace::force_content;

use crate::Merge;
use condition::Condition;
use evenkeel_message::Answer;
use map::Map;
use rule::Rule;
use std::collections::HashMap;
use std::sync::Arc;

/// The result of the rules for a request.
#[derive(Debug)]
pub enum Outcome {
    /// The request is not changed by a substitution, and the next modules process it.
    Declined,
    /// The next modules process this path instead of the request's path (flag PT).
    Passed(Vec<u8>),
    /// The request is mapped to a file, which is set in the request.
    Mapped,
    /// The request is redirected internally to this path. The query is in the request.
    Redirected(Vec<u8>),
    /// The request is passed on to this URI as a proxy (flag P).
    Proxied(Proxied),
    /// The request is answered.
    Answered(Answer),
}

/// The target of a rule with the flag P.
#[derive(Debug, PartialEq, Eq)]
pub struct Proxied {
    /// The URI without `proxy:`, with the path info appended.
    pub uri: Vec<u8>,
    /// The part of the URI before its path. Empty if the rule's text does not contain all of it, so
    /// that a part comes from the request.
    pub origin: Vec<u8>,
    /// Whether the URI is sent without canonicalization and contains the query (flag NE; Apache:
    /// proxy-nocanon).
    pub is_raw: bool,
}

/// RewriteOptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Options(u16);

impl Options {
    const INHERIT: Options = Options(1);
    const INHERIT_BEFORE: Options = Options(1 << 1);
    const NO_SLASH: Options = Options(1 << 2);
    const ANY_URI: Options = Options(1 << 3);
    const MERGE_BASE: Options = Options(1 << 4);
    const INHERIT_DOWN: Options = Options(1 << 5);
    const INHERIT_DOWN_BEFORE: Options = Options(1 << 6);
    const IGNORE_INHERIT: Options = Options(1 << 7);
    const IGNORE_CONTEXT_INFO: Options = Options(1 << 8);
    const LEGACY_PREFIX_DOC_ROOT: Options = Options(1 << 9);
    const UNSAFE_PREFIX_STAT: Options = Options(1 << 10);

    /// Parses one option.
    fn parse(word: &str) -> Option<Options> {
        Some(match word.to_ascii_lowercase().as_str() {
            "inherit" => Options::INHERIT,
            "inheritbefore" => Options::INHERIT_BEFORE,
            "inheritdown" => Options::INHERIT_DOWN,
            "inheritdownbefore" => Options::INHERIT_DOWN_BEFORE,
            "ignoreinherit" => Options::IGNORE_INHERIT,
            "allownoslash" => Options::NO_SLASH,
            "allowanyuri" => Options::ANY_URI,
            "mergebase" => Options::MERGE_BASE,
            "ignorecontextinfo" => Options::IGNORE_CONTEXT_INFO,
            "legacyprefixdocroot" => Options::LEGACY_PREFIX_DOC_ROOT,
            "unsafeprefixstat" => Options::UNSAFE_PREFIX_STAT,
            _ => return None,
        })
    }

    fn has(self, other: Options) -> bool {
        self.0 & other.0 != 0
    }

    fn add(&mut self, other: Options) {
        self.0 |= other.0;
    }
}

/// RewriteEngine and RewriteOptions.
#[derive(Clone, Copy, Debug, Default)]
struct Switches {
    engine: Option<bool>,
    options: Option<Options>,
}

impl Switches {
    fn merge(base: Self, over: Self) -> Self {
        let Self { engine, options } = over;
        Self { engine: engine.or(base.engine), options: options.or(base.options) }
    }

    fn is_on(self) -> bool {
        self.engine == Some(true)
    }

    fn options(self) -> Options {
        self.options.unwrap_or_default()
    }

    /// How the rules of `base` are inherited when these settings are merged over it.
    fn inheritance(self, base: Self) -> Inheritance {
        let (own, outer) = (self.options(), base.options());
        let is_passed_down = |option| outer.has(option) && !own.has(Options::IGNORE_INHERIT);
        if own.has(Options::INHERIT) || is_passed_down(Options::INHERIT_DOWN) {
            Inheritance::Behind
        } else if own.has(Options::INHERIT_BEFORE) || is_passed_down(Options::INHERIT_DOWN_BEFORE) {
            Inheritance::Before
        } else {
            Inheritance::Nothing
        }
    }
}

/// The position of inherited rules relative to the section's own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inheritance {
    Behind,
    Before,
    Nothing,
}

/// Rules in the order of the configuration.
type Rules = Arc<Vec<Arc<Rule>>>;

fn inherit_rules(inheritance: Inheritance, base: &Rules, over: &Rules) -> Rules {
    match inheritance {
        Inheritance::Behind => Arc::new([over.as_slice(), base].concat()),
        Inheritance::Before => Arc::new([base.as_slice(), over].concat()),
        Inheritance::Nothing => Arc::clone(over),
    }
}

/// The settings of one section. `None` if the section has no directive of this module.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<Section>>);

/// The settings of a section that has directives of this module.
#[derive(Clone, Debug, Default)]
struct Section {
    switches: Switches,
    rules: Rules,
    /// The RewriteCond lines for the next RewriteRule.
    conditions: Vec<Arc<Condition>>,
    /// RewriteBase.
    base: Option<Box<[u8]>>,
    /// Whether sections below inherit `base` under MergeBase (Apache: baseurl_set).
    is_base_set: bool,
    /// The directory or path of the section, with a slash at the end. `None` outside of sections.
    folder: Option<Box<[u8]>>,
}

impl Directory {
    /// Whether RewriteEngine is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|section| section.switches.is_on())
    }

    /// Whether RewriteEngine is on in a section, so that the rules of sections apply.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.0.as_ref().is_some_and(|section| section.switches.is_on() && section.folder.is_some())
    }
}

impl Merge for Directory {
    /// As in mod_rewrite.c: config_perdir_merge. An inner section with any directive of this module
    /// replaces the rules of the outer section, even if it has no rules, unless RewriteOptions
    /// inherits them.
    fn merge(base: &Self, over: &Self) -> Self {
        let (Some(outer), Some(inner)) = (&base.0, &over.0) else {
            return if over.0.is_some() { over.clone() } else { base.clone() };
        };
        let switches = Switches::merge(outer.switches, inner.switches);
        let inheritance = switches.inheritance(outer.switches);
        let merges_base = switches.options().has(Options::MERGE_BASE);
        let (base, is_base_set) = match merges_base {
            true if inner.is_base_set => (inner.base.clone(), true),
            true => (outer.base.clone(), outer.is_base_set),
            false => (inner.base.clone(), false),
        };
        Self(Some(Arc::new(Section {
            switches,
            rules: inherit_rules(inheritance, &outer.rules, &inner.rules),
            conditions: Vec::new(),
            base,
            is_base_set,
            folder: inner.folder.clone(),
        })))
    }
}

/// The settings of a server outside of its sections.
#[derive(Clone, Debug)]
pub struct Server {
    said: Option<Arc<Host>>,
    /// Whether the virtual host has a directive of this module, in any section. If it has none,
    /// Apache uses the main server's settings and applies no rules (mod_rewrite.c: hook_uri2file
    /// compares `conf->server`).
    is_own: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self { said: None, is_own: true }
    }
}

/// The settings of a server that has directives of this module.
#[derive(Clone, Debug, Default)]
struct Host {
    switches: Switches,
    rules: Rules,
    conditions: Vec<Arc<Condition>>,
    maps: Arc<HashMap<Box<str>, Arc<Map>>>,
}

impl Server {
    /// Whether the server's rules may apply to its requests.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.is_own && self.said.is_some()
    }

    fn options(&self) -> Options {
        self.said.as_ref().map(|host| host.switches.options()).unwrap_or_default()
    }

    /// Whether a map of the server is a program that runs.
    #[must_use]
    pub fn has_programs(&self) -> bool {
        if !self.runs_programs() {
            return false;
        }
        let maps = self.said.iter().flat_map(|said| said.maps.values());
        maps.into_iter().any(|map| matches!(**map, Map::Program(_)))
    }

    /// Whether the programs of the server's maps run (mod_rewrite.c: run_rewritemap_programs). A
    /// rule of an .htaccess file gets no value from them if they do not.
    fn runs_programs(&self) -> bool {
        self.said.as_ref().is_some_and(|host| host.switches.is_on())
    }

    fn map(&self, name: &str) -> Option<&Arc<Map>> {
        self.said.as_ref()?.maps.get(name)
    }
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        let Some(inner) = &over.said else {
            return Self { said: base.said.clone(), is_own: false };
        };
        let nothing = Arc::default();
        let outer = base.said.as_ref().unwrap_or(&nothing);
        let switches = Switches::merge(outer.switches, inner.switches);
        let inheritance = switches.inheritance(outer.switches);
        let maps = match inheritance {
            Inheritance::Nothing => Arc::clone(&inner.maps),
            // If both servers define a map, the server whose rules come first takes precedence.
            Inheritance::Behind => overlay(&inner.maps, &outer.maps),
            Inheritance::Before => overlay(&outer.maps, &inner.maps),
        };
        let rules = inherit_rules(inheritance, &outer.rules, &inner.rules);
        let host = Host { switches, rules, conditions: Vec::new(), maps };
        Self { said: Some(Arc::new(host)), is_own: true }
    }
}

type Maps = HashMap<Box<str>, Arc<Map>>;

/// Merges two sets of maps. `first` takes precedence if both define a name.
fn overlay(first: &Maps, second: &Maps) -> Arc<Maps> {
    let mut maps = second.clone();
    maps.extend(first.iter().map(|(name, map)| (name.clone(), Arc::clone(map))));
    Arc::new(maps)
}

#[cfg(test)]
mod tests;
