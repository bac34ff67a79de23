//! mod_rewrite: paths and queries that rules turn into others. A request and the rules of its
//! server ([`translate`]) or of its sections ([`fix_up`]) go in; a file, another path, a redirect
//! or a refusal comes out as an [`Outcome`]. `pipeline` acts on it, and answers what the rules ask
//! about other paths ([`Surroundings`]).

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
pub use server::translate;
pub use trace::force_content;

use crate::Merge;
use condition::Condition;
use evenkeel_message::Answer;
use map::Map;
use rule::Rule;
use std::collections::HashMap;
use std::sync::Arc;

/// What rules make of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing: it goes on as it is.
    Declined,
    /// The next modules see this path in place of the request's (flag PT).
    Passed(Vec<u8>),
    /// Its file is known, and in the request.
    Mapped,
    /// It is redirected internally to this path, without its query.
    Redirected(Vec<u8>),
    /// A module for proxies has to get it from this URI (flag P).
    Proxied(Proxied),
    /// It is answered.
    Answered(Answer),
}

/// Where a request is to be got from.
#[derive(Debug, PartialEq, Eq)]
pub struct Proxied {
    /// The URI without `proxy:`, and with the path behind the file.
    pub uri: Vec<u8>,
    /// The beginning of the URI up to its path, where the rule itself names all of that; empty
    /// where a part of it comes from the request.
    pub origin: Vec<u8>,
    /// Whether the URI is sent as it is and has its query (flag NE; Apache: proxy-nocanon).
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

    /// The option of a word.
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

    /// How rules are inherited where these are merged over `base`.
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

/// Where the rules of the outer settings go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inheritance {
    Behind,
    Before,
    Nothing,
}

/// Rules in their order.
type Rules = Arc<Vec<Arc<Rule>>>;

fn inherit_rules(inheritance: Inheritance, base: &Rules, over: &Rules) -> Rules {
    match inheritance {
        Inheritance::Behind => Arc::new([over.as_slice(), base].concat()),
        Inheritance::Before => Arc::new([base.as_slice(), over].concat()),
        Inheritance::Nothing => Arc::clone(over),
    }
}

/// What a section says; none where it has no directive of this module.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<Section>>);

/// What a section with directives of this module says.
#[derive(Clone, Debug, Default)]
struct Section {
    switches: Switches,
    rules: Rules,
    /// The conditions of the rule that comes next.
    conditions: Vec<Arc<Condition>>,
    /// RewriteBase.
    base: Option<Box<[u8]>>,
    /// Whether RewriteBase was said here, or inherited under MergeBase.
    is_base_set: bool,
    /// The folder or path that the rules begin from, with a slash at its end; none outside of
    /// sections.
    folder: Option<Box<[u8]>>,
}

impl Directory {
    /// Whether rules are on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|section| section.switches.is_on())
    }

    /// Whether the rules of sections may act on a request.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.0.as_ref().is_some_and(|section| section.switches.is_on() && section.folder.is_some())
    }
}

impl Merge for Directory {
    /// As in mod_rewrite.c: config_perdir_merge. A section without rules of its own that says
    /// anything else has none.
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

/// What a server says outside of its sections.
#[derive(Clone, Debug)]
pub struct Server {
    said: Option<Arc<Host>>,
    /// Whether the host itself has a directive of this module, in whatever section. Where it has
    /// none, Apache leaves it the main server's settings and runs no rules (mod_rewrite.c:
    /// hook_uri2file compares `conf->server`).
    is_own: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self { said: None, is_own: true }
    }
}

/// What a server with directives of this module says.
#[derive(Clone, Debug, Default)]
struct Host {
    switches: Switches,
    rules: Rules,
    conditions: Vec<Arc<Condition>>,
    maps: Arc<HashMap<Box<str>, Arc<Map>>>,
}

impl Server {
    /// Whether the rules of the server may act on its requests.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.is_own && self.said.is_some()
    }

    fn options(&self) -> Options {
        self.said.as_ref().map(|host| host.switches.options()).unwrap_or_default()
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
            // What the inner one says of a map holds when it comes first.
            Inheritance::Behind => overlay(&inner.maps, &outer.maps),
            Inheritance::Before => overlay(&outer.maps, &inner.maps),
        };
        let rules = inherit_rules(inheritance, &outer.rules, &inner.rules);
        let host = Host { switches, rules, conditions: Vec::new(), maps };
        Self { said: Some(Arc::new(host)), is_own: true }
    }
}

type Maps = HashMap<Box<str>, Arc<Map>>;

/// The maps of both, those of `first` where both have one of a name.
fn overlay(first: &Maps, second: &Maps) -> Arc<Maps> {
    let mut maps = second.clone();
    maps.extend(first.iter().map(|(name, map)| (name.clone(), Arc::clone(map))));
    Arc::new(maps)
}

#[cfg(test)]
mod tests;
