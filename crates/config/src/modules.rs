//! Determines which modules are active, from the modules that the server has and the LoadModule
//! lines. Nothing is loaded: every module is built into the binary, and LoadModule only says which
//! of them take part.

use crate::fault::Notice;
use crate::known::{replacement_of, standard_module};
use crate::missing::Missing;

/// A module that the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The source file, such as `mod_alias.c`.
    pub file: &'static str,
    /// The identifier, such as `alias_module`.
    pub identifier: &'static str,
    /// Whether Debian's apache2 has it built in (`apache2 -l`), so that it is always active. A
    /// LoadModule line for it changes nothing, because other distributions load it.
    pub builtin: bool,
    /// Whether it is active if no LoadModule line says which modules are.
    pub default: bool,
}

/// The active modules. If a configuration has a LoadModule line for anything but a process model,
/// the active modules are those that such lines name and the built-in ones; otherwise they are the
/// default ones. Conditions before the first such line depend on that, so the text is read with
/// [`ModuleSet::preset`] first, and once more with [`ModuleSet::named`] if [`ModuleSet::is_named`]
/// turns out to be true.
#[derive(Debug, Clone)]
pub struct ModuleSet {
    offers: Vec<Offer>,
    active: Vec<Offer>,
    named: bool,
    from_lines: Vec<&'static str>,
    paths: Vec<String>,
    missing: Missing,
}

impl ModuleSet {
    /// The built-in and the default modules.
    #[must_use]
    pub fn preset(offers: Vec<Offer>) -> Self {
        let active =
            offers.iter().filter(|offer| offer.builtin || offer.default).copied().collect();
        let missing = Missing::all_but(offers.iter().map(|offer| offer.file).collect());
        Self { offers, active, named: false, from_lines: Vec::new(), paths: Vec::new(), missing }
    }

    /// Only the built-in modules; LoadModule adds the others.
    #[must_use]
    pub fn named(offers: Vec<Offer>) -> Self {
        let active = offers.iter().filter(|offer| offer.builtin).copied().collect();
        let missing = Missing::default();
        Self { offers, active, named: true, from_lines: Vec::new(), paths: Vec::new(), missing }
    }

    /// Whether LoadModule lines say which modules are active.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Whether the module `name` is active, where `name` is its source file or its identifier.
    #[must_use]
    pub fn is_active(&self, name: &str) -> bool {
        self.active.iter().any(|offer| offer.file == name || offer.identifier == name)
    }

    /// The active modules: the built-in and default ones, then the others in the order of their
    /// LoadModule lines.
    #[must_use]
    pub fn active(&self) -> &[Offer] {
        &self.active
    }

    /// Whether a LoadModule line named the module (`-M` calls such a module shared).
    #[must_use]
    pub fn is_shared(&self, identifier: &str) -> bool {
        self.from_lines.contains(&identifier)
    }

    /// The file that a LoadModule line names for a module.
    #[must_use]
    pub fn path_of(&self, identifier: &str) -> Option<&str> {
        let at = self.from_lines.iter().position(|known| *known == identifier)?;
        self.paths.get(at).map(String::as_str)
    }

    /// The missing modules: those of Apache that the configuration loads and this server lacks.
    #[must_use]
    pub fn missing(&self) -> &Missing {
        &self.missing
    }

    /// Executes LoadModule. A module of Apache that this server lacks becomes a missing module and
    /// not a fault, because stock configurations load dozens of modules that they never use.
    ///
    /// # Errors
    ///
    /// The text of the fault: the module is neither one of Apache's nor one that this server has.
    pub fn load(
        &mut self,
        identifier: &str,
        written: &str,
        path: &str,
    ) -> Result<Option<Notice>, String> {
        let Some(offer) = self.offers.iter().find(|offer| offer.identifier == identifier) else {
            return self.load_unknown(identifier, written, path).map(|()| None);
        };
        if offer.builtin {
            self.named = true;
            return Ok(None);
        }
        if self.from_lines.contains(&offer.identifier) {
            let text = format!("module {identifier} is already loaded, skipping");
            return Ok(Some(Notice::warn("so", 1574, text)));
        }
        self.named |= !is_process_model(identifier);
        self.from_lines.push(offer.identifier);
        self.paths.push(path.to_owned());
        if !self.is_active(identifier) {
            self.active.push(*offer);
        }
        Ok(None)
    }

    fn load_unknown(&mut self, identifier: &str, written: &str, path: &str) -> Result<(), String> {
        if let Some(standard) = standard_module(identifier) {
            self.named |= !is_process_model(identifier);
            self.missing.add(standard);
            return Ok(());
        }
        let why = match replacement_of(identifier) {
            Some(replacement) => format!("this server does not have {identifier}: {replacement}"),
            None if std::fs::metadata(path).is_ok() => format!(
                "no module of Apache httpd is called {identifier}, and others cannot be loaded"
            ),
            None => {
                format!("{path}: cannot open shared object file: No such file or directory")
            }
        };
        Err(format!("Cannot load {written} into server: {why}"))
    }
}

fn is_process_model(identifier: &str) -> bool {
    identifier.starts_with("mpm_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn offer(
        file: &'static str,
        identifier: &'static str,
        builtin: bool,
        default: bool,
    ) -> Offer {
        Offer { file, identifier, builtin, default }
    }

    static OFFERS: &[Offer] = &[
        offer("core.c", "core_module", true, true),
        offer("event.c", "mpm_event_module", false, true),
        offer("mod_alias.c", "alias_module", false, true),
        offer("mod_env.c", "env_module", false, false),
    ];

    #[test]
    fn lines_replace_the_default_set() {
        let mut set = ModuleSet::preset(OFFERS.to_vec());
        assert!(set.is_active("mod_alias.c") && !set.is_active("env_module"));
        assert_eq!(set.load("mpm_event_module", "x.so", "/x.so"), Ok(None));
        assert!(!set.is_named());
        assert_eq!(set.load("env_module", "x.so", "/x.so"), Ok(None));
        assert!(set.is_named());
        let mut set = ModuleSet::named(OFFERS.to_vec());
        assert!(set.is_active("core.c") && !set.is_active("alias_module"));
        assert_eq!(set.load("env_module", "x.so", "/x.so"), Ok(None));
        assert!(set.is_active("mod_env.c") && set.is_shared("env_module"));
    }

    #[test]
    fn odd_lines_are_remarked_on_noted_or_refused() {
        let mut set = ModuleSet::named(OFFERS.to_vec());
        assert_eq!(set.load("core_module", "x.so", "/x.so"), Ok(None));
        set.load("env_module", "x.so", "/x.so").unwrap();
        let notice = set.load("env_module", "x.so", "/x.so").unwrap().unwrap();
        let want = "AH01574: module env_module is already loaded, skipping";
        assert_eq!(notice.to_string(), want);
        assert_eq!(set.load("dav_module", "x.so", "/x.so"), Ok(None));
        assert!(!set.is_active("mod_dav.c") && set.missing().is_loaded("mod_dav.c"));
        let text = set.load("foo_module", "m/foo.so", "/nonexistent/m/foo.so").unwrap_err();
        let want = "Cannot load m/foo.so into server: /nonexistent/m/foo.so: cannot open shared \
                    object file: No such file or directory";
        assert_eq!(text, want);
        let text = set.load("wsgi_module", "w.so", "/w.so").unwrap_err();
        assert!(text.ends_with("gunicorn or uwsgi replaces it, behind a proxy"), "{text}");
    }
}
