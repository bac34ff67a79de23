//! What a module is: its declaration, and the macro that makes of one list of modules what has to
//! name them all.

use crate::{Directive, Provided, Table};
use evenkeel_config::Offer;

/// The declaration of a module. `-l`, `-M`, `-L` and the manual say what stands in it.
#[derive(Clone, Copy)]
pub struct Module {
    /// Its source file, by which `<IfModule>` and Apache's texts name it: `mod_alias.c`.
    pub file: &'static str,
    /// The name that LoadModule gives it: `alias_module`.
    pub identifier: &'static str,
    /// When it is active.
    pub active: Active,
    /// The page of the manual on which it stands, which may be that of several.
    pub page: &'static str,
    /// What that page is about; empty where another module of the page says it.
    pub subject: &'static str,
    /// What an administrator who knows Apache should know besides.
    pub remarks: &'static [&'static str],
    /// Its directives.
    pub directives: &'static [&'static [Directive]],
    /// What other modules can ask it for by name.
    pub provides: &'static [Provided],
}

/// When a module is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// Always: Debian's apache2 has it built in.
    Always,
    /// Where the configuration names no modules, or names it.
    Usually,
    /// Where the configuration names it.
    WhenNamed,
}

impl Module {
    /// The module as LoadModule sees it.
    pub(crate) const fn offer(self) -> Offer {
        Offer {
            file: self.file,
            identifier: self.identifier,
            builtin: matches!(self.active, Active::Always),
            default: !matches!(self.active, Active::WhenNamed),
        }
    }

    /// Its directives under its name.
    pub(crate) fn tables(self) -> impl Iterator<Item = Table> {
        let Module { file, identifier, directives, .. } = self;
        directives.iter().map(move |directives| Table { module: file, identifier, directives })
    }
}

/// Declares the modules. `mod alias;` is one with a folder: `alias::MODULE` is its declaration, and
/// the types `Directory`, `Server` and `Global` are its settings of a section, a server and the
/// process. `#[every_request]` puts those of a server to the head of [`crate::ServerSettings`].
/// `use mpm::WORKER;` is one that is declared beside another and has no settings of its own.
macro_rules! modules {
    ([$($folder:ident)*] [$($module:path,)*]) => {
        $(pub mod $folder;)*

        /// Every module that this server has.
        pub const MODULES: &[Module] = &[$($module),*];

        /// The modules as LoadModule sees them.
        pub const OFFERS: &[evenkeel_config::Offer] = &[$($module.offer()),*];

        settings! {
            /// What one section (`<Directory>`, `<Location>`, `<Files>`, `<If>`, .htaccess) says.
            DirectorySettings: Directory; $($folder)*
        }

        settings! {
            /// What one virtual host, or the main server, says for itself.
            #[repr(C)]
            ServerSettings: Server; $($folder)*
        }

        /// What is said once for the whole process.
        #[derive(Clone, Default)]
        #[allow(missing_docs)]
        pub struct GlobalSettings {
            /// The active modules.
            pub active: crate::ActiveModules,
            $(pub $folder: $folder::Global),*
        }
    };
    ([$($folders:ident)*] [$($modules:path,)*]
        #[every_request] mod $folder:ident; $($rest:tt)*) => {
        modules! { [$folder $($folders)*] [$($modules,)* $folder::MODULE,] $($rest)* }
    };
    ([$($folders:ident)*] [$($modules:path,)*] mod $folder:ident; $($rest:tt)*) => {
        modules! { [$($folders)* $folder] [$($modules,)* $folder::MODULE,] $($rest)* }
    };
    ([$($folders:ident)*] [$($modules:path,)*] use $folder:ident::$module:ident; $($rest:tt)*) => {
        modules! { [$($folders)*] [$($modules,)* $folder::$module,] $($rest)* }
    };
    (#[every_request] $($list:tt)*) => {
        modules! { [] [] #[every_request] $($list)* }
    };
}
