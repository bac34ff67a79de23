//! Answers what the configuration language asks while a text is read: which modules are active,
//! which directives they have, which version the server claims.

use evenkeel_config::{Missing, ModuleSet, Notice, Tables, Vocabulary};
use evenkeel_expr::{Pattern, PatternOptions};
use evenkeel_modules::{SERVER_VERSION, Scope, active_tables, is_active};

/// The active modules with their directives.
pub struct Words {
    modules: ModuleSet,
    tables: Tables<Scope>,
}

impl Words {
    /// The vocabulary of a set of modules.
    pub fn new(modules: ModuleSet) -> Self {
        let tables = active_tables(&modules);
        Self { modules, tables }
    }

    /// The modules that are active now.
    pub fn modules(&self) -> &ModuleSet {
        &self.modules
    }
}

impl Vocabulary for Words {
    fn module_loaded(&self, name: &str) -> bool {
        is_active(&self.modules, name)
    }

    fn missing(&self) -> &Missing {
        self.modules.missing()
    }

    fn load_module(
        &mut self,
        identifier: &str,
        written: &str,
        path: &str,
    ) -> Result<Option<Notice>, String> {
        let notice = self.modules.load(identifier, written, path)?;
        self.tables = active_tables(&self.modules);
        Ok(notice)
    }

    fn directive_exists(&self, name: &str) -> bool {
        self.tables.has(name)
    }

    fn server_version(&self) -> (u32, u32, u32) {
        SERVER_VERSION
    }

    fn version_matches(&self, pattern: &str) -> Option<bool> {
        let (major, minor, patch) = SERVER_VERSION;
        let pattern = Pattern::compile(pattern, PatternOptions::default()).ok()?;
        pattern.matches(format!("{major}.{minor}.{patch}").as_bytes()).ok()
    }
}
