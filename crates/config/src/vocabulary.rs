//! What the reader of a text must ask the rest of the server: which modules are loaded and which
//! directives exist. Only LoadModule lines of the text change the answers.

use crate::fault::Notice;
use crate::missing::Missing;

/// The names that are known while a text is read.
pub trait Vocabulary {
    /// Whether the module `name` is loaded, where `name` is a source file (`mod_alias.c`,
    /// `worker.c`) or an identifier (`alias_module`). Case matters.
    fn module_loaded(&self, name: &str) -> bool;

    /// The missing modules: those of Apache that the configuration loads and this server lacks.
    /// `<IfModule>` treats them as loaded.
    fn missing(&self) -> &Missing {
        &crate::missing::NONE
    }

    /// Loads the module `identifier`. Its object file is ignored; `written` is its path in the
    /// configuration, which is also passed in absolute form.
    ///
    /// # Errors
    ///
    /// The text of the fault at the LoadModule line.
    fn load_module(
        &mut self,
        identifier: &str,
        written: &str,
        path: &str,
    ) -> Result<Option<Notice>, String>;

    /// Whether `name` is a directive, or a section if it has an opening bracket (`<Directory`),
    /// compared without case. [`crate::Tables::has`] answers this for the tables.
    fn directive_exists(&self, name: &str) -> bool;

    /// The version of Apache httpd that the server claims, such as (2, 4, 71).
    fn server_version(&self) -> (u32, u32, u32);

    /// Whether the text of the version matches the regular expression `pattern`; None if the
    /// pattern does not compile.
    fn version_matches(&self, pattern: &str) -> Option<bool>;
}
