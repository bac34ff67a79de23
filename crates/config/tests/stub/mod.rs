//! A small table of Apache's directives and the vocabulary over it, for tests of the language. The
//! directives set nothing: the tests check which directives may stand where, and with how many
//! arguments.

#![allow(dead_code, clippy::unwrap_used, missing_docs)]

use evenkeel_config::{
    Act, Block, Call, Contexts, Directive, Fault, ModuleSet, Notice, Offer, Overrides, Shape,
    Table, Tables, Vocabulary,
};

pub struct Nothing;

fn set(_: &mut Nothing, _: &Call<'_>) -> Result<(), String> {
    Ok(())
}

fn directory(nothing: &mut Nothing, block: &Block<'_, Nothing>) -> Result<(), Fault> {
    block.argument()?;
    block.walk(nothing, Contexts::DIRECTORY)
}

fn virtual_host(nothing: &mut Nothing, block: &Block<'_, Nothing>) -> Result<(), Fault> {
    block.argument()?;
    block.walk(nothing, Contexts::VHOST)
}

fn limit(nothing: &mut Nothing, block: &Block<'_, Nothing>) -> Result<(), Fault> {
    block.argument()?;
    block.walk(nothing, Contexts::LIMIT)
}

type Enter = fn(&mut Nothing, &Block<'_, Nothing>) -> Result<(), Fault>;

const fn plain(
    name: &'static str,
    contexts: Contexts,
    overrides: Overrides,
    shape: Shape,
    doc: &'static str,
) -> Directive<Nothing> {
    let (default, act) = ("", Act::Set(set));
    Directive {
        name,
        contexts,
        overrides,
        shape,
        default,
        doc,
        takes_bytes: false,
        left_out: None,
        act,
    }
}

const fn section(
    name: &'static str,
    contexts: Contexts,
    overrides: Overrides,
    enter: Enter,
) -> Directive<Nothing> {
    let (shape, default, doc, act) = (Shape::Raw, "", "", Act::Section(enter));
    Directive {
        name,
        contexts,
        overrides,
        shape,
        default,
        doc,
        takes_bytes: false,
        left_out: None,
        act,
    }
}

const SERVER: Contexts = Contexts::SERVER.with(Contexts::NOT_IN_DIR_CONTEXT);
const GLOBAL: Contexts = Contexts::SERVER.with(Contexts::GLOBAL_ONLY);
const NONE: Overrides = Overrides::NONE;

static CORE: &[Directive<Nothing>] = &[
    section("<Directory", Contexts::SERVER, NONE, directory),
    section("<Location", Contexts::SERVER, NONE, directory),
    section("<Files", Contexts::NONE, Overrides::ALL, directory),
    section("<VirtualHost", GLOBAL, NONE, virtual_host),
    section("<Limit", Contexts::NONE, Overrides::AUTH_CONFIG.with(Overrides::LIMIT), limit),
    plain("Timeout", SERVER, NONE, Shape::One, "Timeout duration (sec)"),
    plain("ServerName", SERVER, NONE, Shape::One, "The hostname and port of the server"),
    plain("KeepAlive", SERVER, NONE, Shape::Flag, ""),
    plain("DocumentRoot", SERVER, NONE, Shape::One, "Root directory of the document tree"),
    plain("Listen", GLOBAL, NONE, Shape::Argv, ""),
    plain("PidFile", GLOBAL, NONE, Shape::One, "A file for logging the server process ID"),
    plain("AllowOverride", Contexts::DIRECTORY, NONE, Shape::Raw, ""),
    plain(
        "LogLevel",
        Contexts::SERVER.with(Contexts::DIRECTORY),
        NONE,
        Shape::Iterate,
        "Level of verbosity in error logging",
    ),
];

static LOG_CONFIG: &[Directive<Nothing>] = &[plain(
    "LogFormat",
    Contexts::SERVER,
    NONE,
    Shape::OneOrTwo,
    "a log format string (see docs) and an optional format name",
)];

static ALIAS: &[Directive<Nothing>] = &[plain(
    "Redirect",
    Contexts::NONE,
    Overrides::FILE_INFO,
    Shape::OneTwoOrThree,
    "an optional status, then document to be redirected and destination URL",
)];

static MIME: &[Directive<Nothing>] = &[plain(
    "AddType",
    Contexts::NONE,
    Overrides::FILE_INFO,
    Shape::IterateTwo,
    "a mime type followed by one or more file extensions",
)];

const fn table(
    module: &'static str,
    identifier: &'static str,
    directives: &'static [Directive<Nothing>],
) -> Table<Nothing> {
    Table { module, identifier, directives }
}

static TABLES: &[Table<Nothing>] = &[
    table("core.c", "core_module", CORE),
    table("mod_log_config.c", "log_config_module", LOG_CONFIG),
    table("mod_alias.c", "alias_module", ALIAS),
    table("mod_mime.c", "mime_module", MIME),
];

const fn offer(file: &'static str, identifier: &'static str, builtin: bool) -> Offer {
    Offer { file, identifier, builtin, default: builtin }
}

static OFFERS: &[Offer] = &[
    offer("core.c", "core_module", true),
    offer("mod_so.c", "so_module", true),
    offer("mod_version.c", "version_module", true),
    offer("mod_log_config.c", "log_config_module", true),
    offer("mod_macro.c", "macro_module", false),
    offer("mod_alias.c", "alias_module", false),
    offer("mod_mime.c", "mime_module", false),
    offer("event.c", "mpm_event_module", false),
];

pub struct Words {
    pub modules: ModuleSet,
}

impl Default for Words {
    fn default() -> Self {
        Self { modules: ModuleSet::named(OFFERS.to_vec()) }
    }
}

impl Words {
    pub fn tables(&self) -> Tables<Nothing> {
        let active: Vec<_> =
            TABLES.iter().filter(|table| self.modules.is_active(table.module)).copied().collect();
        let present: Vec<_> = OFFERS.iter().map(|offer| offer.file).collect();
        Tables::new(&active, &present, evenkeel_config::Missing::default())
    }
}

impl Vocabulary for Words {
    fn module_loaded(&self, name: &str) -> bool {
        self.modules.is_active(name)
    }

    fn load_module(
        &mut self,
        identifier: &str,
        written: &str,
        path: &str,
    ) -> Result<Option<Notice>, String> {
        self.modules.load(identifier, written, path)
    }

    fn directive_exists(&self, name: &str) -> bool {
        self.tables().has(name)
    }

    fn server_version(&self) -> (u32, u32, u32) {
        (2, 4, 71)
    }

    /// Implements just enough of a regular expression for the tests: `^` and escaped dots.
    fn version_matches(&self, pattern: &str) -> Option<bool> {
        let plain = pattern.replace('\\', "");
        let found = match plain.strip_prefix('^') {
            Some(start) => "2.4.71".starts_with(start),
            None => "2.4.71".contains(&plain),
        };
        (pattern != "(").then_some(found)
    }
}
