//! The table of the directives that belong to the language itself, for the look-up of names and for
//! the manual. Most of them act in `read`, while the text is read. Error acts when the tree is
//! applied; it is listed here because no module owns it.

use crate::directive::{Contexts, Overrides, Shape};

/// A directive that belongs to the language.
#[derive(Debug)]
pub struct Reserved {
    /// The name in Apache's spelling.
    pub name: &'static str,
    /// The source file of the module that must be loaded for it.
    pub module: &'static str,
    /// Where it may stand.
    pub contexts: Contexts,
    /// What AllowOverride must permit for it to be allowed in .htaccess.
    pub overrides: Overrides,
    /// How it takes its arguments.
    pub shape: Shape,
    /// What it is for. The message about a wrong number of arguments ends with it.
    pub doc: &'static str,
    pub(crate) keyword: Keyword,
}

/// Identifies a directive of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    IfModule,
    IfDefine,
    IfFile,
    IfDirective,
    IfSection,
    IfVersion,
    Include,
    IncludeOptional,
    Define,
    UnDefine,
    ServerRoot,
    DefaultRuntimeDir,
    LoadModule,
    LoadFile,
    Macro,
    Use,
    UndefMacro,
    MacroIgnoreEmptyArgs,
    MacroIgnoreBadNesting,
    Error,
}

impl Keyword {
    /// Whether it only selects which lines are read, and has no effect of its own.
    pub(crate) fn only_selects(self) -> bool {
        matches!(
            self,
            Self::IfModule
                | Self::IfDefine
                | Self::IfFile
                | Self::IfDirective
                | Self::IfSection
                | Self::IfVersion
                | Self::Include
                | Self::IncludeOptional
                | Self::Use
        )
    }

    /// Whether its arguments are file names. Such names must be UTF-8.
    pub(crate) fn names_file(self) -> bool {
        matches!(
            self,
            Self::IfFile
                | Self::Include
                | Self::IncludeOptional
                | Self::ServerRoot
                | Self::DefaultRuntimeDir
                | Self::LoadModule
                | Self::LoadFile
        )
    }
}

/// All directives of the language.
#[must_use]
pub fn reserved() -> &'static [Reserved] {
    RESERVED
}

/// The directive of the language with the name `name`, compared without case.
pub(crate) fn find(name: &str) -> Option<&'static Reserved> {
    RESERVED.iter().find(|reserved| reserved.name.eq_ignore_ascii_case(name))
}

const fn anywhere(
    name: &'static str,
    module: &'static str,
    shape: Shape,
    doc: &'static str,
    keyword: Keyword,
) -> Reserved {
    let (contexts, overrides) = (Contexts::NONE, Overrides::ALL);
    Reserved { name, module, contexts, overrides, shape, doc, keyword }
}

const fn server(
    name: &'static str,
    module: &'static str,
    shape: Shape,
    doc: &'static str,
    keyword: Keyword,
) -> Reserved {
    let (contexts, overrides) = (Contexts::SERVER.with(Contexts::GLOBAL_ONLY), Overrides::NONE);
    Reserved { name, module, contexts, overrides, shape, doc, keyword }
}

const fn conf(
    name: &'static str,
    module: &'static str,
    shape: Shape,
    doc: &'static str,
    keyword: Keyword,
) -> Reserved {
    let contexts = Contexts::SERVER.with(Contexts::DIRECTORY);
    Reserved { name, module, contexts, overrides: Overrides::NONE, shape, doc, keyword }
}

const fn define(name: &'static str, shape: Shape, doc: &'static str, keyword: Keyword) -> Reserved {
    let reserved = conf(name, "core.c", shape, doc, keyword);
    Reserved { contexts: reserved.contexts.with(Contexts::NOT_IN_HTACCESS), ..reserved }
}

#[rustfmt::skip]
const RESERVED: &[Reserved] = &[
    anywhere("<IfModule", "core.c", Shape::Raw,
        "Container for directives based on existence of specified modules", Keyword::IfModule),
    anywhere("<IfDefine", "core.c", Shape::Raw,
        "Container for directives based on existence of command line defines", Keyword::IfDefine),
    anywhere("<IfFile", "core.c", Shape::Raw,
        "Container for directives based on existence of files on disk", Keyword::IfFile),
    anywhere("<IfDirective", "core.c", Shape::Raw,
        "Container for directives based on existence of named directive", Keyword::IfDirective),
    anywhere("<IfSection", "core.c", Shape::Raw,
        "Container for directives based on existence of named section", Keyword::IfSection),
    anywhere("<IfVersion", "mod_version.c", Shape::OneTwoOrThree,
        "a comparison operator, a version (and a delimiter)", Keyword::IfVersion),
    conf("Include", "core.c", Shape::One,
        "Name(s) of the config file(s) to be included; fails if the wildcard does not match at \
         least one file", Keyword::Include),
    conf("IncludeOptional", "core.c", Shape::One,
        "Name or pattern of the config file(s) to be included; ignored if the file does not exist \
         or the pattern does not match any files", Keyword::IncludeOptional),
    define("Define", Shape::OneOrTwo,
        "Define a variable, optionally to a value.  Same as passing -D to the command line.",
        Keyword::Define),
    define("UnDefine", Shape::One,
        "Undefine the existence of a variable. Undo a Define.", Keyword::UnDefine),
    server("ServerRoot", "core.c", Shape::One,
        "Common directory of server-related files (logs, confs, etc.)", Keyword::ServerRoot),
    server("DefaultRuntimeDir", "core.c", Shape::One,
        "Common directory for run-time files (shared memory, locks, etc.)",
        Keyword::DefaultRuntimeDir),
    server("LoadModule", "mod_so.c", Shape::Two,
        "a module name and the name of a shared object file to load it from", Keyword::LoadModule),
    server("LoadFile", "mod_so.c", Shape::Iterate,
        "shared object file or library to load into the server at runtime", Keyword::LoadFile),
    anywhere("<Macro", "mod_macro.c", Shape::Raw,
        "Beginning of a macro definition section.", Keyword::Macro),
    anywhere("Use", "mod_macro.c", Shape::Raw, "Use of a macro.", Keyword::Use),
    anywhere("UndefMacro", "mod_macro.c", Shape::One,
        "Remove a macro definition.", Keyword::UndefMacro),
    anywhere("MacroIgnoreEmptyArgs", "mod_macro.c", Shape::Raw,
        "Globally ignore warnings about empty arguments.", Keyword::MacroIgnoreEmptyArgs),
    anywhere("MacroIgnoreBadNesting", "mod_macro.c", Shape::Raw,
        "Globally ignore warnings about bad nesting.", Keyword::MacroIgnoreBadNesting),
    anywhere("Error", "core.c", Shape::Raw,
        "Generate error message from within configuration", Keyword::Error),
];
