//! What reading the text must ask of the rest of the server: which modules are loaded and which
//! directives exist. A name comes in, an answer goes out; the answers never depend on the text
//! but for LoadModule.

use crate::fault::Notice;

/// The words that are known while a text is read.
pub trait Vocabulary {
    /// Whether the module called `name` is loaded; `name` is a source file (`mod_alias.c`,
    /// `worker.c`) or an identifier (`alias_module`), and case matters.
    fn module_loaded(&self, name: &str) -> bool;

    /// Whether a LoadModule line has named the module of Apache whose source file is `name`, and
    /// this server does not have it.
    fn is_left_out(&self, _name: &str) -> bool {
        false
    }

    /// Loads the module `identifier` in place of an object file, whose path is given as it is
    /// `written` and made absolute.
    ///
    /// # Errors
    /// The text of the fault at the LoadModule line.
    fn load_module(
        &mut self,
        identifier: &str,
        written: &str,
        path: &str,
    ) -> Result<Option<Notice>, String>;

    /// Whether `name` is a directive, or with its opening bracket a section (`<Directory`), case
    /// aside. [`crate::Tables::has`] answers this for the tables.
    fn directive_exists(&self, name: &str) -> bool;

    /// The version of Apache httpd that is spoken, as (2, 4, 71).
    fn server_version(&self) -> (u32, u32, u32);

    /// Whether the version's text matches the regular expression `pattern`; None when the pattern
    /// cannot be compiled.
    fn version_matches(&self, pattern: &str) -> Option<bool>;
}
