//! The declarations of directives, and the table that finds a declaration by its name. `apply`
//! calls the functions in them.

use std::collections::HashMap;
use std::fmt;

use crate::apply::{Block, Call, GlobalCall};
use crate::fault::Fault;
use crate::missing::Missing;

/// The places where a directive may stand, and exceptions from them, as a set of flags.
///
/// As in Apache, a directive is allowed if one of its contexts or override classes is among those
/// of the place. The `NOT_IN` rules are checked after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contexts(u16);

impl Contexts {
    /// Only where the override classes allow it.
    pub const NONE: Self = Self(0);
    /// The main server and virtual hosts (RSRC_CONF).
    pub const SERVER: Self = Self(1);
    /// Sections such as Directory, Location, Files, If (ACCESS_CONF). For [`Block::walk`]: the
    /// children are in such a section.
    pub const DIRECTORY: Self = Self(1 << 1);
    /// Not within VirtualHost.
    pub const NOT_IN_VIRTUALHOST: Self = Self(1 << 2);
    /// Not within Limit or LimitExcept.
    pub const NOT_IN_LIMIT: Self = Self(1 << 3);
    /// Not within Directory or DirectoryMatch.
    pub const NOT_IN_DIRECTORY: Self = Self(1 << 4);
    /// Not within Location or LocationMatch.
    pub const NOT_IN_LOCATION: Self = Self(1 << 5);
    /// Not within Files or FilesMatch.
    pub const NOT_IN_FILES: Self = Self(1 << 6);
    /// Not within If, ElseIf or Else.
    pub const NOT_IN_IF: Self = Self(1 << 7);
    /// Not within Proxy or ProxyMatch.
    pub const NOT_IN_PROXY: Self = Self(1 << 8);
    /// Not in .htaccess files.
    pub const NOT_IN_HTACCESS: Self = Self(1 << 9);
    /// Not within any section that a request is matched with.
    pub const NOT_IN_DIR_CONTEXT: Self = Self(0b1_1111_1000);
    /// Only the main server.
    pub const GLOBAL_ONLY: Self = Self(0b1_1111_1100);
    /// Only for [`Block::walk`]: the children are in a virtual host.
    pub const VHOST: Self = Self(1 << 10);
    /// Only for [`Block::walk`]: the children are in a Limit section and otherwise in the same
    /// place.
    pub const LIMIT: Self = Self(1 << 11);
    /// Only for [`Block::walk`]: the children are in RequireAll or a similar section, which allows
    /// only what AuthConfig allows.
    pub const AUTHORIZATION: Self = Self(1 << 12);
    /// Only for [`Block::walk`]: the children are in the same place.
    pub const SAME: Self = Self(0);

    /// The union with `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this set contains all of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The classes of directives that AllowOverride permits in .htaccess files, as a set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides(u8);

impl Overrides {
    /// No class: never in .htaccess.
    pub const NONE: Self = Self(0);
    /// Authentication and authorization.
    pub const AUTH_CONFIG: Self = Self(1);
    /// Document types, headers, rewriting.
    pub const FILE_INFO: Self = Self(1 << 1);
    /// Listings of folders.
    pub const INDEXES: Self = Self(1 << 2);
    /// Access by host.
    pub const LIMIT: Self = Self(1 << 3);
    /// Options and XBitHack.
    pub const OPTIONS: Self = Self(1 << 4);
    /// Every class.
    pub const ALL: Self = Self(0b1_1111);

    /// The union with `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the two sets have a class in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The class with the name `name` in AllowOverride, compared without case. None for any other
    /// word.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let known = CLASSES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, class)| *class)
    }
}

/// The classes in the order in which `apache2 -L` lists them.
const CLASSES: &[(&str, Overrides)] = &[
    ("AuthConfig", Overrides::AUTH_CONFIG),
    ("Limit", Overrides::LIMIT),
    ("Options", Overrides::OPTIONS),
    ("FileInfo", Overrides::FILE_INFO),
    ("Indexes", Overrides::INDEXES),
];

impl fmt::Display for Overrides {
    /// Prints it like `AuthConfig or Limit`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, class) in CLASSES {
            if self.meets(*class) {
                write!(out, "{between}{name}")?;
                between = " or ";
            }
        }
        Ok(())
    }
}

/// How many arguments a directive takes, and how. A wrong number is refused with Apache's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// No arguments.
    None,
    /// The text as it is, in [`Call::raw`].
    Raw,
    /// One argument.
    One,
    /// Two arguments.
    Two,
    /// Three arguments.
    Three,
    /// One or two arguments.
    OneOrTwo,
    /// One to three arguments.
    OneTwoOrThree,
    /// Two or three arguments.
    TwoOrThree,
    /// One or three arguments.
    OneOrThree,
    /// One or more arguments: the function is called for each.
    Iterate,
    /// Two or more arguments: the function is called with the first and each of the others.
    IterateTwo,
    /// On or Off, in [`Call::flag`].
    Flag,
    /// Any number of arguments, in one call.
    Argv,
}

/// The function of an ordinary directive. An error is the message to print at the directive's
/// position.
pub type Set<T> = fn(&mut T, &Call<'_>) -> Result<(), String>;

/// The function of a directive that sets something for the whole server.
pub type SetGlobal<T> = fn(&mut T, &GlobalCall<'_>) -> Result<(), String>;

/// The function of a section.
pub type Enter<T> = fn(&mut T, &Block<'_, T>) -> Result<(), Fault>;

/// The function of a section that sets something for the whole server.
pub type EnterGlobal<T> = fn(&mut T, &Block<'_, T>, &GlobalCall<'_>) -> Result<(), Fault>;

/// The effect of a directive on the target `T`.
pub enum Act<T: 'static> {
    /// An ordinary directive, which sets something.
    Set(Set<T>),
    /// A directive of the main server alone. [`Contexts::GLOBAL_ONLY`] applies even if the
    /// declaration does not say so.
    SetGlobal(SetGlobal<T>),
    /// A section, which decides for itself and then walks its children.
    Section(Enter<T>),
    /// A section of the main server alone, as [`Act::SetGlobal`].
    GlobalSection(EnterGlobal<T>),
}

impl<T> Clone for Act<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Act<T> {}

/// The declaration of one directive: everything that the language, the manual and `-L` need to
/// know.
pub struct Directive<T: 'static> {
    /// The name in Apache's spelling. A section begins with `<` and has no closing bracket:
    /// `<Directory`.
    pub name: &'static str,
    /// Where it may stand.
    pub contexts: Contexts,
    /// What AllowOverride must permit for the directive to be allowed in .htaccess.
    pub overrides: Overrides,
    /// How it takes its arguments.
    pub shape: Shape,
    /// The default, as the manual shows it; empty if there is none.
    pub default: &'static str,
    /// What the directive is for, in one line. The message about a wrong number of arguments ends
    /// with it.
    pub doc: &'static str,
    /// Whether its function converts its arguments to bytes with `message::unquoted`. The lines of
    /// other directives must be UTF-8.
    pub takes_bytes: bool,
    /// The effect of the directive where an .htaccess file may not contain it and it is skipped
    /// (`Nonfatal=Override`). In Apache, the module's settings of the section exist by then.
    pub left_out: Option<fn(&mut T)>,
    /// The effect.
    pub act: Act<T>,
}

impl<T> Directive<T> {
    /// The places where the directive may not stand.
    pub(crate) const fn rules(&self) -> Contexts {
        match self.act {
            Act::Set(_) | Act::Section(_) => self.contexts,
            Act::SetGlobal(_) | Act::GlobalSection(_) => self.contexts.with(Contexts::GLOBAL_ONLY),
        }
    }

    /// The same directive, with arguments that need not be UTF-8.
    #[must_use]
    pub const fn of_bytes(self) -> Self {
        Self { takes_bytes: true, ..self }
    }

    /// The same directive, which has this effect where it is skipped.
    #[must_use]
    pub const fn or_left_out(self, act: fn(&mut T)) -> Self {
        Self { left_out: Some(act), ..self }
    }
}

/// The directives of one module.
pub struct Table<T: 'static> {
    /// The module's source file, such as `mod_alias.c`.
    pub module: &'static str,
    /// The module's identifier, such as `alias_module`.
    pub identifier: &'static str,
    /// What it declares.
    pub directives: &'static [Directive<T>],
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Table<T> {}

/// The tables of the active modules, with a look-up by name.
pub struct Tables<T: 'static> {
    by_name: HashMap<String, Vec<(&'static str, &'static Directive<T>)>>,
    present: Vec<&'static str>,
    missing: Missing,
}

impl<T: 'static> Tables<T> {
    /// The directives of `active`. `present` lists the source files of all modules that this server
    /// has, active or not. The refusal of a directive that belongs to any other module names that
    /// module. `missing` are the modules that the configuration loads and the server lacks.
    #[must_use]
    pub fn new(active: &[Table<T>], present: &[&'static str], missing: Missing) -> Self {
        let mut by_name: HashMap<String, Vec<_>> = HashMap::new();
        for table in active {
            for directive in table.directives {
                let entry = by_name.entry(directive.name.to_ascii_lowercase()).or_default();
                entry.push((table.module, directive));
            }
        }
        Self { by_name, present: present.to_vec(), missing }
    }

    /// The modules that the configuration loads and the server lacks.
    #[must_use]
    pub fn missing(&self) -> &Missing {
        &self.missing
    }

    /// The declarations of `name` with their modules, compared without case. Two modules may
    /// declare the same name.
    #[must_use]
    pub fn find(&self, name: &str) -> &[(&'static str, &'static Directive<T>)] {
        self.by_name.get(&name.to_ascii_lowercase()).map_or(&[], Vec::as_slice)
    }

    /// Every declaration with its module, ordered by module and name.
    #[must_use]
    pub fn all(&self) -> Vec<(&'static str, &'static Directive<T>)> {
        let mut all: Vec<_> = self.by_name.values().flatten().copied().collect();
        all.sort_by_key(|(module, directive)| (*module, directive.name));
        all
    }

    /// Whether an active module declares `name`, or the language itself does.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        !self.find(name).is_empty() || crate::keyword::find(name).is_some()
    }

    /// The message for an unknown `name`. It is Apache's if the name is misspelled or its module is
    /// not loaded; otherwise it names the module of Apache that this server does not have.
    #[must_use]
    pub fn refusal(&self, name: &str) -> String {
        let lacking = crate::known::module_of(name).filter(|module| !self.is_present(module));
        match lacking {
            Some(module) => format!(
                "Invalid command '{name}', defined by {module}, a module that this server does \
                 not have"
            ),
            None => format!(
                "Invalid command '{name}', perhaps misspelled or defined by a module not included \
                 in the server configuration"
            ),
        }
    }

    /// Whether this server has `module` (`mod_alias`, or `core`, `event`, `mpm_common`).
    fn is_present(&self, module: &str) -> bool {
        let always = !module.starts_with("mod_");
        always || self.present.iter().any(|file| file.strip_suffix(".c") == Some(module))
    }
}

/// Where a directive is allowed, as `apache2 -L` prints it (server/config.c, show_overrides).
#[must_use]
pub fn allowed_text(contexts: Contexts, overrides: Overrides) -> String {
    let open = Overrides::OPTIONS.with(Overrides::FILE_INFO).with(Overrides::INDEXES);
    let closed = Overrides::AUTH_CONFIG.with(Overrides::LIMIT);
    let server = contexts.contains(Contexts::SERVER);
    let access = contexts.contains(Contexts::DIRECTORY);
    let place = if overrides.meets(open) || (server && (access || overrides.meets(closed))) {
        "anywhere"
    } else if server {
        "only outside <Directory>, <Files>, <Location>, or <If>"
    } else {
        "only inside <Directory>, <Files>, <Location>, or <If>"
    };
    let mut text = format!("\tAllowed in *.conf {place}");
    if overrides == Overrides::ALL {
        text.push_str(" and in .htaccess\n\twhen AllowOverride isn't None");
    } else if !overrides.is_none() {
        text.push_str(&format!(" and in .htaccess\n\twhen AllowOverride includes {overrides}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_directive_reads_as_in_apache() {
        let server = allowed_text(Contexts::SERVER, Overrides::NONE);
        let want = "\tAllowed in *.conf only outside <Directory>, <Files>, <Location>, or <If>";
        assert_eq!(server, want);
        let auth = allowed_text(Contexts::NONE, Overrides::AUTH_CONFIG.with(Overrides::LIMIT));
        assert!(auth.contains("only inside") && auth.ends_with("includes AuthConfig or Limit"));
        let all = allowed_text(Contexts::NONE, Overrides::ALL);
        assert!(all.contains("anywhere and in .htaccess\n\twhen AllowOverride isn't None"));
    }

    #[test]
    fn classes_have_names() {
        assert_eq!(Overrides::named("fileinfo"), Some(Overrides::FILE_INFO));
        assert_eq!(Overrides::named("All"), None);
        assert_eq!(Overrides::ALL.without(Overrides::ALL), Overrides::NONE);
    }

    #[test]
    fn composite_rules_hold_their_parts() {
        assert!(Contexts::GLOBAL_ONLY.contains(Contexts::NOT_IN_DIR_CONTEXT));
        assert!(Contexts::GLOBAL_ONLY.contains(Contexts::NOT_IN_VIRTUALHOST));
        assert!(Contexts::NOT_IN_DIR_CONTEXT.contains(Contexts::NOT_IN_PROXY));
        assert!(!Contexts::NOT_IN_DIR_CONTEXT.contains(Contexts::NOT_IN_VIRTUALHOST));
        assert!(!Contexts::GLOBAL_ONLY.contains(Contexts::SERVER));
    }

    #[test]
    fn a_refusal_names_the_module_that_is_lacking() {
        let tables: Tables<()> = Tables::new(&[], &["mod_alias.c"], Missing::default());
        assert!(tables.refusal("DavLockDB").contains("defined by mod_dav_fs, a module"));
        assert!(tables.refusal("Redirect").contains("perhaps misspelled"));
        assert!(tables.refusal("Foo").contains("perhaps misspelled"));
        assert!(tables.has("ifmodule") || tables.has("<IfModule"));
    }
}
