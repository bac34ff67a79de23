//! The modules: one directory per mod_*, each with its directives, its settings and their merge,
//! and what it does in its phase. What comes in is a directive or a request, what goes out is a
//! setting or an answer. No module calls another's phase; `pipeline` lists who acts when.

#[macro_use]
mod settings;
#[macro_use]
mod module;

pub mod beside;
mod command_words;
pub mod compression;
pub mod external;
mod filters;
pub mod gateway;
mod language;
mod manual;
mod ownership;
pub mod passwords;
mod prefix;
mod provided;
mod registry;
pub mod script;
pub mod sessions;
mod size;
mod state;
#[cfg(test)]
mod testing;
pub mod wrapper;

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
    mod userdir;
    mod vhost_alias;
    mod env;
    #[every_request]
    mod setenvif;
    mod remoteip;
    mod unique_id;
    mod usertrack;
    mod dir;
    mod mime;
    mod mime_magic;
    mod reqtimeout;
    mod request;
    mod session;
    mod session_cookie;
    mod session_crypto;
    mod status;
    mod info;
    mod lab;
    mod mpm;
    mod access_compat;
    mod authn_core;
    mod authn_file;
    mod authn_anon;
    mod authn_socache;
    use authn_socache::SHMCB;
    mod auth_basic;
    mod auth_digest;
    mod auth_form;
    mod authz_core;
    mod authz_host;
    mod authz_user;
    mod authz_groupfile;
    mod authz_owner;
    mod allowmethods;
    mod ssl;
    mod http2;
    mod proxy;
    use proxy::HCHECK;
    mod proxy_fcgi;
    mod proxy_scgi;
    mod proxy_uwsgi;
    mod proxy_http;
    mod proxy_wstunnel;
    mod proxy_balancer;
    use proxy_balancer::BYREQUESTS;
    use proxy_balancer::BYTRAFFIC;
    use proxy_balancer::BYBUSYNESS;
    use proxy_balancer::SLOTMEM;
    mod cache;
    mod cache_disk;
    mod php;
    mod fcgid;
    mod cgi;
    use cgi::CGID;
    mod asis;
    mod actions;
    mod suexec;
    mod headers;
    mod expires;
    mod autoindex;
    mod negotiation;
    mod speling;
    mod filter;
    mod ext_filter;
    mod include;
    mod deflate;
    mod brotli;
    mod substitute;
    mod data;
    mod ratelimit;
    mod rewrite;
    use mpm::WORKER;
    use mpm::PREFORK;
    use language::MACRO;
}

use evenkeel_config::{Act, Contexts, Overrides, Shape};

pub use self::core::{CoreSettings, RequestContext};
pub use filters::{Effect, InputFilter, Means, OutputFilter, RequestBody, Stat, Subrequests};
pub use manual::{Page, manual};
pub use module::{Active, Module};
pub use provided::{
    ActiveModules, Asked, AuthnProvider, AuthnSource, CheckLogin, Credential, Credentials,
    ParsedRequirement, Provided, RequireProvider, Requirement, Sections, Verdict,
};
pub use registry::{MODELS, active_tables, is_active, model};
pub use settings::{Access, Merge, NoSettings, Place, Said, Scope, Shared, Unsaid};
pub use state::ServerState;

/// The version of Apache httpd whose configuration, command line and answers are spoken.
pub const SERVER_VERSION: (u32, u32, u32) = (2, 4, 71);

/// What the function of a directive returns: on an error, the text to show at its position.
pub type DirectiveResult = Result<(), String>;

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
    /// In the main server alone ([`global_directive`]).
    const GLOBAL: Where = Where(Contexts::SERVER.with(Contexts::GLOBAL_ONLY), Overrides::NONE);
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

/// Declares a directive that sets something for a server or a section: name, place, shape, default,
/// documentation, action.
///
/// ```
/// # use evenkeel_config::{Call, Shape};
/// # use evenkeel_modules::{Directive, DirectiveResult, Scope, Where, directive};
/// const STATUS: Directive =
///     directive("Status", Where::SERVER, Shape::Flag, "Off", "Says how it is", status);
///
/// fn status(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
///     scope.server.core.conduct.keep_alive = Some(call.flag);
///     Ok(())
/// }
/// ```
///
/// It cannot set what holds for the whole server: one virtual host would change all others.
///
/// ```compile_fail
/// # use evenkeel_config::{Call, Shape};
/// # use evenkeel_modules::{Directive, DirectiveResult, Scope, Where, directive};
/// const STATUS: Directive =
///     directive("Status", Where::SERVER, Shape::Flag, "Off", "Says how it is", status);
///
/// fn status(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
///     scope.global_mut(call).core.extended_status = Some(call.flag);
///     Ok(())
/// }
/// ```
#[must_use]
pub const fn directive(
    name: &'static str,
    place: Where,
    shape: Shape,
    default: &'static str,
    doc: &'static str,
    set: evenkeel_config::Set<Scope>,
) -> Directive {
    declared(name, place, shape, default, doc, Act::Set(set))
}

/// Declares a directive that stands in the main server alone and may set what holds for the whole
/// server.
///
/// ```
/// # use evenkeel_config::{GlobalCall, Shape};
/// # use evenkeel_modules::{Directive, DirectiveResult, Scope, global_directive};
/// const STATUS: Directive =
///     global_directive("Status", Shape::Flag, "Off", "Says how it is", status);
///
/// fn status(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
///     scope.global_mut(call).core.extended_status = Some(call.flag);
///     Ok(())
/// }
/// ```
///
/// Its function is not that of a directive that stands elsewhere:
///
/// ```compile_fail
/// # use evenkeel_config::{GlobalCall, Shape};
/// # use evenkeel_modules::{Directive, DirectiveResult, Scope, Where, directive};
/// const STATUS: Directive =
///     directive("Status", Where::SERVER, Shape::Flag, "Off", "Says how it is", status);
///
/// fn status(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
///     scope.global_mut(call).core.extended_status = Some(call.flag);
///     Ok(())
/// }
/// ```
#[must_use]
pub const fn global_directive(
    name: &'static str,
    shape: Shape,
    default: &'static str,
    doc: &'static str,
    set: evenkeel_config::SetGlobal<Scope>,
) -> Directive {
    declared(name, Where::GLOBAL, shape, default, doc, Act::SetGlobal(set))
}

/// Declares a section: its name begins with `<`.
#[must_use]
pub const fn section(
    name: &'static str,
    place: Where,
    doc: &'static str,
    enter: evenkeel_config::Enter<Scope>,
) -> Directive {
    declared(name, place, Shape::Raw, "", doc, Act::Section(enter))
}

/// Declares a section of the main server alone, as [`global_directive`].
#[must_use]
pub const fn global_section(
    name: &'static str,
    doc: &'static str,
    enter: evenkeel_config::EnterGlobal<Scope>,
) -> Directive {
    declared(name, Where::GLOBAL, Shape::Raw, "", doc, Act::GlobalSection(enter))
}

const fn declared(
    name: &'static str,
    place: Where,
    shape: Shape,
    default: &'static str,
    doc: &'static str,
    act: Act<Scope>,
) -> Directive {
    let Where(contexts, overrides) = place;
    let (takes_bytes, left_out) = (false, None);
    Directive { name, contexts, overrides, shape, default, doc, takes_bytes, left_out, act }
}

/// An argument of a directive by its index; empty where there is none.
#[must_use]
pub fn argument<'a>(call: &evenkeel_config::Call<'a>, index: usize) -> &'a str {
    call.words.get(index).map_or("", String::as_str)
}
