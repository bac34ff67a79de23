//! The modules: one directory per mod_*, each with its directives, its settings and their merge,
//! and what it does in its phase. What comes in is a directive or a request, what goes out is a
//! setting or an answer. No module calls another's phase; `pipeline` lists who acts when.

#[macro_use]
mod settings;
#[macro_use]
mod module;

pub mod beside;
pub mod context;
mod language;
mod manual;
mod registry;
#[cfg(test)]
mod testing;

// Every module, in the order in which `-l` and `-M` list them. rustfmt does not see the folders
// that stand here: `cargo xtask tidy` does. What every request reads of its host stands together
// in memory: a site of many hosts waits for each cache line.
modules! {
    #[every_request]
    mod core;
    use language::SO;
    mod watchdog;
    use core::HTTP;
    #[every_request]
    mod log_config;
    use log_config::LOGIO;
    use language::VERSION;
    mod unixd;
    #[every_request]
    mod alias;
    mod env;
    #[every_request]
    mod setenvif;
    mod dir;
    mod mime;
    mod reqtimeout;
    mod status;
    mod lab;
    mod mpm;
    mod access_compat;
    mod authz_core;
    mod authz_host;
    mod headers;
    mod autoindex;
    mod negotiation;
    mod filter;
    mod deflate;
    use mpm::WORKER;
    use mpm::PREFORK;
    use language::MACRO;
}

use evenkeel_config::{Act, Contexts, Overrides, Shape};

pub use context::RequestContext;
pub use manual::{Page, manual};
pub use module::{Active, Module};
pub use registry::{MODELS, active_tables, is_active, model};
pub use settings::{Access, Merge, NoSettings, Place, Said, Scope, Shared, Unsaid};

/// The version of Apache httpd whose configuration, command line and answers are spoken.
pub const SERVER_VERSION: (u32, u32, u32) = (2, 4, 71);

/// The declaration of a directive that fills a [`Scope`].
pub type Directive = evenkeel_config::Directive<Scope>;
/// The directives of one module.
pub type Table = evenkeel_config::Table<Scope>;

/// Where a directive may stand: contexts and the override classes that let it into .htaccess.
#[derive(Clone, Copy)]
pub struct Where(Contexts, Overrides);

impl Where {
    /// In the server and in virtual hosts (Apache: RSRC_CONF).
    pub const SERVER: Where = Where(Contexts::SERVER, Overrides::NONE);
    /// In the main server alone.
    pub const GLOBAL: Where = Where(Contexts::SERVER.with(Contexts::GLOBAL_ONLY), Overrides::NONE);
    /// In sections only (ACCESS_CONF).
    pub const SECTION: Where = Where(Contexts::DIRECTORY, Overrides::NONE);
    /// In the server and in sections (RSRC_CONF | ACCESS_CONF).
    pub const CONFIG: Where = Where(Contexts::SERVER.with(Contexts::DIRECTORY), Overrides::NONE);
    /// Everywhere, and in .htaccess under FileInfo (OR_FILEINFO).
    pub const FILE_INFO: Where = Where(Contexts::NONE, Overrides::FILE_INFO);
    /// In sections, and in .htaccess under AuthConfig (OR_AUTHCFG).
    pub const AUTH_CONFIG: Where = Where(Contexts::NONE, Overrides::AUTH_CONFIG);
    /// In sections, and in .htaccess under Limit (OR_LIMIT).
    pub const LIMIT: Where = Where(Contexts::NONE, Overrides::LIMIT);
    /// Everywhere, and in .htaccess under Indexes (OR_INDEXES).
    pub const INDEXES: Where = Where(Contexts::NONE, Overrides::INDEXES);
    /// Everywhere, and in .htaccess under Options (OR_OPTIONS).
    pub const OPTIONS: Where = Where(Contexts::NONE, Overrides::OPTIONS);
    /// Everywhere, and in .htaccess under any class (OR_ALL).
    pub const ANYWHERE: Where = Where(Contexts::NONE, Overrides::ALL);

    /// The same with a rule about contexts added.
    #[must_use]
    pub const fn with(self, contexts: Contexts) -> Where {
        Where(self.0.with(contexts), self.1)
    }

    /// The same, and in .htaccess under these classes.
    #[must_use]
    pub const fn or(self, overrides: Overrides) -> Where {
        Where(self.0, self.1.with(overrides))
    }
}

/// Declares a directive that sets something: name, place, shape, default, documentation, action.
#[must_use]
pub const fn directive(
    name: &'static str,
    place: Where,
    shape: Shape,
    default: &'static str,
    doc: &'static str,
    set: evenkeel_config::Set<Scope>,
) -> Directive {
    Directive {
        name,
        contexts: place.0,
        overrides: place.1,
        shape,
        default,
        doc,
        takes_bytes: false,
        left_out: None,
        act: Act::Set(set),
    }
}

/// Declares a section: its name begins with `<`.
#[must_use]
pub const fn section(
    name: &'static str,
    place: Where,
    doc: &'static str,
    enter: evenkeel_config::Enter<Scope>,
) -> Directive {
    Directive {
        name,
        contexts: place.0,
        overrides: place.1,
        shape: Shape::Raw,
        default: "",
        doc,
        takes_bytes: false,
        left_out: None,
        act: Act::Section(enter),
    }
}

/// An argument of a directive by its index; empty where there is none.
#[must_use]
pub fn argument<'a>(call: &evenkeel_config::Call<'a>, index: usize) -> &'a str {
    call.words.get(index).map_or("", String::as_str)
}
