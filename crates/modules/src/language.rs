//! The modules whose directives are the language's own, LoadModule, `<IfVersion>` and `<Macro>`:
//! `config` carries them out while it reads (`evenkeel_config::reserved`).

use crate::{Active, Module};

/// mod_so.
pub const SO: Module = Module {
    file: "mod_so.c",
    identifier: "so_module",
    active: Active::Always,
    page: "mod_so",
    subject: "Which modules are active. Nothing is loaded from a file: the modules are part of \
              the server, and LoadModule lines say which of them are to act. A configuration with \
              such a line, other than for a process model, has the modules that its lines name \
              and those that are always active. Any other has the usual ones as well; `-l` and \
              `-M` show them as static.",
    remarks: &[
        "A module of Apache that the server lacks may be loaded as long as nothing uses it. A \
                module of others is refused.",
    ],
    directives: &[],
    provides: &[],
};

/// mod_version.
pub const VERSION: Module = Module {
    file: "mod_version.c",
    identifier: "version_module",
    active: Active::Always,
    page: "mod_version",
    subject: "Configuration that depends on the version spoken: `<IfVersion>`.",
    remarks: &[],
    directives: &[],
    provides: &[],
};

/// mod_macro.
pub const MACRO: Module = Module {
    file: "mod_macro.c",
    identifier: "macro_module",
    active: Active::WhenNamed,
    page: "mod_macro",
    subject: "Pieces of configuration with parameters.",
    remarks: &[],
    directives: &[],
    provides: &[],
};
