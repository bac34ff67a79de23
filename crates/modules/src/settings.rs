//! How settings are kept and merged: what applies to the whole server, to one virtual host and to
//! one directory, and the scope that directives fill while the tree is walked. Nothing here knows
//! what a setting means.

use crate::{DirectorySettings, GlobalSettings, OutputFilter, ServerSettings};
use evenkeel_config::GlobalCall;
use evenkeel_expr::{Condition, Pattern, PatternError, SyntaxError, Text};
use evenkeel_message::{MethodSet, Request, canonical_path, unquoted};
use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of an outer section with those of an inner one over them. An implementation names every
/// field, by [`inherit!`], by a literal or by a pattern, neither of them with `..`, so that a new
/// field that it forgets does not compile.
pub trait Merge {
    /// What holds where `over` was said inside of `base`; what `over` leaves unsaid is `base`'s.
    #[must_use]
    fn merge(base: &Self, over: &Self) -> Self;

    /// Puts `over` over this, as [`Merge::merge`] does. What has lists copies nothing of its own
    /// here: a request may have thousands of sections, and each would copy all before it.
    fn add(&mut self, over: &Self)
    where
        Self: Sized,
    {
        *self = Self::merge(self, over);
    }
}

impl<T: Clone> Merge for Option<T> {
    fn merge(base: &Self, over: &Self) -> Self {
        over.as_ref().or(base.as_ref()).cloned()
    }

    fn add(&mut self, over: &Self) {
        if over.is_some() {
            self.clone_from(over);
        }
    }
}

/// What merges by adding to a copy of the outer section's settings.
pub(crate) fn merged<T: Merge + Clone>(base: &T, over: &T) -> T {
    let mut merged = base.clone();
    merged.add(over);
    merged
}

/// Merges two values field by field: `inherit!(base, over; a, b)` builds `Self { a: .., b: .. }`.
///
/// ```
/// # use evenkeel_modules::{Merge, inherit};
/// struct Directory {
///     slash: Option<bool>,
///     names: Option<String>,
/// }
///
/// impl Merge for Directory {
///     fn merge(base: &Self, over: &Self) -> Self {
///         inherit!(base, over; slash, names)
///     }
/// }
/// ```
///
/// A merge that forgets a field does not compile:
///
/// ```compile_fail
/// # use evenkeel_modules::{Merge, inherit};
/// struct Directory {
///     slash: Option<bool>,
///     names: Option<String>,
/// }
///
/// impl Merge for Directory {
///     fn merge(base: &Self, over: &Self) -> Self {
///         inherit!(base, over; slash)
///     }
/// }
/// ```
#[macro_export]
macro_rules! inherit {
    ($base:expr, $over:expr; $($field:ident),+ $(,)?) => {
        Self { $($field: $crate::Merge::merge(&$base.$field, &$over.$field)),+ }
    };
}

/// Declares one kind of settings: a field for each module.
macro_rules! settings {
    ($(#[$attribute:meta])* $name:ident: $level:ident; $($module:ident)*) => {
        $(#[$attribute])*
        #[derive(Clone, Default)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $module: $module::$level),* }

        impl Merge for $name {
            fn merge(base: &Self, over: &Self) -> Self {
                Self { $($module: Merge::merge(&base.$module, &over.$module)),* }
            }

            fn add(&mut self, over: &Self) {
                $(self.$module.add(&over.$module);)*
            }
        }
    };
}

/// The settings of a module that has none of a kind. They take no memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSettings;

impl Merge for NoSettings {
    fn merge(_: &Self, _: &Self) -> Self {
        Self
    }
}

/// Where a directive stands, as far as its meaning depends on it (Apache: cmd->path).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In no section, or directly in `<VirtualHost>`.
    #[default]
    Server,
    /// In `<Directory>` of that path, or in one of its .htaccess file.
    Directory(Box<str>),
    /// In `<Location>` of that URL path.
    Location(Box<str>),
    /// In `<LocationMatch>` of that pattern.
    LocationMatch(Box<str>),
    /// In `<Proxy>` or `<ProxyMatch>` of that URL or pattern.
    Proxy(Box<str>),
    /// In another section that has a pattern in place of a path, or in `<Files>` and `<If>`.
    Pattern,
}

impl Place {
    /// The path of the section, where it is one path and no pattern.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Place::Directory(path) | Place::Location(path) => Some(path),
            Place::Server | Place::LocationMatch(_) | Place::Proxy(_) | Place::Pattern => None,
        }
    }
}

/// The methods to which `<Limit>` or `<LimitExcept>` restricts what stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// `<Limit>`: these.
    Only(Arc<MethodSet>),
    /// `<LimitExcept>`: all but these.
    Except(Arc<MethodSet>),
}

impl Access {
    /// What an inner `<Limit>` leaves of an outer one; none where no method is left.
    #[must_use]
    pub fn within(self, outer: Option<&Access>) -> Option<Access> {
        let cut = |methods: &MethodSet, other: &MethodSet, wanted| {
            let mut methods = methods.clone();
            methods.retain(other, wanted);
            Access::Only(Arc::new(methods))
        };
        let left = match (&self, outer) {
            (_, None) => self,
            (Access::Only(inner), Some(Access::Only(outer))) => cut(inner, outer, true),
            (Access::Only(inner), Some(Access::Except(outer))) => cut(inner, outer, false),
            (Access::Except(inner), Some(Access::Only(outer))) => cut(outer, inner, false),
            (Access::Except(inner), Some(Access::Except(outer))) => {
                let mut methods = MethodSet::clone(inner);
                methods.add_all(outer);
                Access::Except(Arc::new(methods))
            }
        };
        (!matches!(&left, Access::Only(methods) if methods.is_empty())).then_some(left)
    }

    /// Whether a request of this method is meant.
    #[must_use]
    pub fn covers(&self, request: &Request) -> bool {
        let (method, text) = (request.resource.method, request.head.method_text());
        let has = |methods: &MethodSet| methods.contains(method, text);
        match self {
            Access::Only(methods) => has(methods),
            Access::Except(methods) => !has(methods),
        }
    }
}

/// Settings of which it is known whether any was said: what says nothing may share what is around
/// it.
#[derive(Clone, Default)]
pub struct Said<T> {
    settings: T,
    is_said: bool,
}

impl<T> Said<T> {
    /// Whether anything may have been said.
    #[must_use]
    pub fn is_said(&self) -> bool {
        self.is_said
    }

    /// The settings alone.
    #[must_use]
    pub fn into_settings(self) -> T {
        self.settings
    }
}

impl<T> Deref for Said<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.settings
    }
}

impl<T> DerefMut for Said<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_said = true;
        &mut self.settings
    }
}

/// Settings of which a virtual host seldom says any: where it says none, it shares the main
/// server's, of which there may be those of ten thousand hosts.
#[derive(Debug)]
pub struct Shared<T>(Option<Arc<T>>);

/// What is said where nothing is.
pub trait Unsaid: Default + 'static {
    /// The value that is its default.
    fn unsaid() -> &'static Self;
}

/// Implements [`Unsaid`].
#[macro_export]
macro_rules! unsaid {
    ($type:ty) => {
        impl $crate::Unsaid for $type {
            fn unsaid() -> &'static Self {
                static NOTHING: std::sync::LazyLock<$type> =
                    std::sync::LazyLock::new(Default::default);
                &NOTHING
            }
        }
    };
}

impl<T> Shared<T> {
    /// Whether another server has these very ones.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Unsaid> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(said) => said,
            None => T::unsaid(),
        }
    }
}

impl<T: Unsaid + Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: Unsaid + Merge> Merge for Shared<T> {
    fn merge(base: &Self, over: &Self) -> Self {
        match over.0 {
            None => base.clone(),
            Some(_) => Self(Some(Arc::new(T::merge(base, over)))),
        }
    }
}

/// What the directives of a configuration or of one .htaccess file fill, one after another.
#[derive(Default)]
pub struct Scope {
    /// Settings of the whole server. .htaccess files share what the configuration has said.
    global: Arc<GlobalSettings>,
    /// Settings of the virtual host at hand.
    pub server: ServerSettings,
    /// Settings of the section at hand.
    pub directory: Said<DirectorySettings>,
    /// The section at hand.
    pub place: Place,
    /// The path, name or pattern of the current section, or `*If` for a condition. `None` outside
    /// sections (Apache: cmd->path).
    pub section_path: Option<Box<str>>,
    /// `<Limit>` around the directive.
    pub limit: Option<Access>,
    /// Whether the directives stand in a <VirtualHost>.
    pub in_virtual_host: bool,
    /// Whether the directives stand in an .htaccess file.
    pub in_htaccess: bool,
    /// Whether a DocumentRoot need not be there (`-T`).
    pub roots_unchecked: bool,
    /// Paths that are not absolute begin here (ServerRoot).
    pub server_root: PathBuf,
    /// The last number that was given to a section.
    pub sections: u64,
}

impl Scope {
    /// An empty scope whose relative paths begin at `server_root`, with settings of the whole
    /// server to begin with.
    #[must_use]
    pub fn new(server_root: &Path, global: Arc<GlobalSettings>) -> Self {
        Self { server_root: server_root.to_owned(), global, ..Self::default() }
    }

    /// Settings of the whole server as they are so far.
    #[must_use]
    pub fn global(&self) -> &GlobalSettings {
        &self.global
    }

    /// Settings of the whole server, to be changed by a directive that stands in no virtual host
    /// and in no section: the call is the proof of that.
    pub fn global_mut(&mut self, _: &GlobalCall<'_>) -> &mut GlobalSettings {
        Arc::make_mut(&mut self.global)
    }

    /// The settings of the whole server, when all directives have been applied.
    #[must_use]
    pub fn take_global(&mut self) -> GlobalSettings {
        Arc::unwrap_or_clone(std::mem::take(&mut self.global))
    }

    /// Registers the name of a method for the whole server, as any section of the configuration may
    /// that names one (http_protocol.c: ap_method_register).
    pub fn register_method(&mut self, name: &str) {
        let methods = &mut Arc::make_mut(&mut self.global).core.methods;
        methods.push(name.into());
    }

    /// Sets the folder of php.ini for the whole server, as any virtual host may. False if it is
    /// set already.
    pub fn set_ini_dir(&mut self, path: PathBuf) -> bool {
        let ini_dir = &mut Arc::make_mut(&mut self.global).php.ini_dir;
        let is_first = ini_dir.is_none();
        ini_dir.get_or_insert(path);
        is_first
    }

    /// A number for a section that no other section of this scope has.
    pub fn number_section(&mut self) -> u64 {
        self.sections += 1;
        self.sections
    }

    /// The canonical absolute path for one that may be relative to ServerRoot (Apache:
    /// ap_server_root_relative).
    #[must_use]
    pub fn server_path(&self, path: &str) -> PathBuf {
        canonical_path(&self.server_root.join(OsStr::from_bytes(&unquoted(path))))
    }

    /// Compiles a pattern with the options that RegexDefaultOptions has set so far.
    ///
    /// # Errors
    /// What is wrong with the pattern.
    pub fn compile_pattern(&self, text: &str) -> Result<Pattern, PatternError> {
        Pattern::compile(text, self.global.core.pattern_options)
    }

    /// Compiles a condition; in an .htaccess file without the functions that read files.
    ///
    /// # Errors
    /// What is wrong with the expression.
    pub fn compile_condition(&self, text: &str) -> Result<Condition, SyntaxError> {
        Condition::compile_with(text, self.expression_author(), self.global.core.pattern_options)
    }

    /// Compiles a condition in the language of SSLRequire, as [`Scope::compile_condition`].
    ///
    /// # Errors
    /// What is wrong with the expression.
    pub fn compile_requirement(&self, text: &str) -> Result<Condition, SyntaxError> {
        let options = self.global.core.pattern_options;
        Condition::compile_requirement(text, self.expression_author(), options)
    }

    /// Compiles a text with variables, as [`Scope::compile_condition`].
    ///
    /// # Errors
    /// What is wrong with the expression.
    pub fn compile_text(&self, text: &str) -> Result<Text, SyntaxError> {
        Text::compile(text, self.expression_author())
    }

    /// The external output filter of this name (ExtFilterDefine) in the virtual host at hand.
    #[must_use]
    pub fn external_filter(&self, name: &str) -> Option<OutputFilter> {
        self.server.ext_filter.output_filter(name)
    }

    /// Whether the configuration says `Suexec Off`.
    #[must_use]
    pub fn switches_suexec_off(&self) -> bool {
        self.global.unixd.suexec == Some(false)
    }

    fn expression_author(&self) -> evenkeel_expr::Author {
        if self.in_htaccess {
            evenkeel_expr::Author::Htaccess
        } else {
            evenkeel_expr::Author::Server
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use crate::{env, headers, mime, setenvif};

    /// Where the lists of settings stand in memory.
    fn places(settings: &DirectorySettings) -> [*const (); 8] {
        [
            Arc::as_ptr(&settings.env.variables).cast(),
            Arc::as_ptr(&settings.env.unset).cast(),
            Arc::as_ptr(&settings.mime.extensions).cast(),
            settings.headers.success.as_ptr().cast(),
            settings.headers.always.as_ptr().cast(),
            settings.headers.request.as_ptr().cast(),
            settings.setenvif.list.as_ptr().cast(),
            settings.core.cgi_variables.as_ptr().cast(),
        ]
    }

    /// What adding a section costs must not depend on how much was added before.
    #[test]
    fn adding_copies_nothing_of_what_was_there() {
        let lines = [
            (env::MODULE, "SetEnv A 1\nUnsetEnv B"),
            (mime::MODULE, "AddType a/b .x"),
            (headers::MODULE, "Header set A 1\nHeader always set A 1\nRequestHeader set A 1"),
        ];
        let mut over = DirectorySettings::default();
        for (table, text) in lines {
            over.add(&apply(table, text).unwrap().directory);
        }
        over.core.cgi_variables.push(("REQUEST_URI".into(), "original-uri".into()));
        let place = Place::Location("/".into());
        let rules = "SetEnvIf A b c";
        let scope = crate::testing::apply_in(setenvif::MODULE, place, rules).unwrap();
        over.add(&scope.directory);
        let mut settings = DirectorySettings::default();
        settings.add(&over);
        settings.add(&over);
        settings.headers.success.reserve(100);
        settings.headers.always.reserve(100);
        settings.headers.request.reserve(100);
        Arc::make_mut(&mut settings.setenvif.list).reserve(100);
        settings.core.cgi_variables.reserve(100);
        let before = places(&settings);
        for _ in 0..100 {
            settings.add(&over);
        }
        assert_eq!(places(&settings), before);
        assert_eq!((settings.headers.success.len(), settings.setenvif.list.len()), (102, 102));
    }
}
