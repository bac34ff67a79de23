//! Reads and applies any bytes as an .htaccess file with the directives of every module and with
//! all overrides granted, as the pipeline does. The result is merged with itself and with nothing,
//! and so are the sections within it. Nothing may panic, hang or grow, and what is logged stays on
//! its lines, one for each section that is not closed.

use evenkeel_config::{
    Fault, Grant, ModuleSet, Notice, Overrides, Tables, Variables, Vocabulary, apply_htaccess,
    read_htaccess,
};
use evenkeel_expr::{Pattern, PatternOptions};
use evenkeel_modules::core::Options;
use evenkeel_modules::{
    DirectorySettings, Merge, OFFERS, Place, SERVER_VERSION, Scope, active_tables, is_active,
};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Sections are nested to at most this depth, including the settings around them.
const DEPTH: usize = 257;

/// The modules that are active without LoadModule lines, and their directives.
struct Words {
    modules: ModuleSet,
    tables: Tables<Scope>,
}

impl Words {
    fn new() -> Self {
        let modules = ModuleSet::preset(OFFERS.to_vec());
        Self { tables: active_tables(&modules), modules }
    }
}

impl Vocabulary for Words {
    fn module_loaded(&self, name: &str) -> bool {
        is_active(&self.modules, name)
    }

    fn load_module(&mut self, _: &str, _: &str, _: &str) -> Result<Option<Notice>, String> {
        Err("a .htaccess file loads no module".to_owned())
    }

    fn directive_exists(&self, name: &str) -> bool {
        self.tables.has(name)
    }

    fn server_version(&self) -> (u32, u32, u32) {
        SERVER_VERSION
    }

    fn version_matches(&self, pattern: &str) -> Option<bool> {
        let pattern = Pattern::compile(pattern, PatternOptions::default()).ok()?;
        pattern.matches(b"2.4.71").ok()
    }
}

/// One run of the fuzzer, or one file of the corpus. Returns whether the text is a valid .htaccess
/// file.
pub fn run(data: &[u8]) -> bool {
    static WORDS: OnceLock<Words> = OnceLock::new();
    let words = WORDS.get_or_init(Words::new);
    let every = Options::EVERY.bits();
    let strict = Grant { overrides: Overrides::ALL, options: every, ..Grant::default() };
    let lenient = Grant { nonfatal_override: true, nonfatal_unknown: true, ..strict.clone() };
    let usual = Grant { options: Options::ALL.bits(), ..strict.clone() };
    let good = settings(data, words, &strict);
    for grant in [lenient, usual] {
        let _ = settings(data, words, &grant);
    }
    if let Some(own) = &good {
        merge(own, DEPTH);
    }
    good.is_some()
}

/// What the text sets under that grant; none if it is refused.
fn settings(data: &[u8], words: &Words, grant: &Grant) -> Option<DirectorySettings> {
    let mut notices = Vec::new();
    let result = apply(data, words, grant, &mut notices);
    assert!(notices.iter().all(|notice| notice.to_string().lines().count() <= 1));
    match result {
        Ok(settings) => Some(settings),
        Err(fault) => {
            assert!(!fault.text.is_empty(), "a fault without a text");
            let unclosed = |line: &str| line.ends_with(" was not closed.");
            let text = &fault.text;
            assert!(text.lines().count() == 1 || text.lines().all(unclosed), "{text:?}");
            None
        }
    }
}

fn apply(
    data: &[u8],
    words: &Words,
    grant: &Grant,
    notices: &mut Vec<Notice>,
) -> Result<DirectorySettings, Fault> {
    let mut scope = Scope::new(Path::new("/srv"), Arc::default());
    scope.place = Place::Directory("/srv/www/".into());
    scope.in_htaccess = true;
    let variables = Variables::new(["Foo".to_owned()], [("HOME".to_owned(), "/root".to_owned())]);
    let nodes = read_htaccess(data, "fuzz", "/srv", grant, &variables, words, notices)?;
    apply_htaccess(&words.tables, &nodes, &mut scope, grant, notices)?;
    assert!(scope.limit.is_none(), "a <Limit> was left open");
    assert_eq!(scope.place.path(), Some("/srv/www/"));
    Ok(scope.directory.into_settings())
}

/// Merges with itself and with nothing, and then does so for the sections within.
fn merge(own: &DirectorySettings, depth: usize) {
    assert!(depth > 0, "sections nest too deep");
    let nothing = DirectorySettings::default();
    let twice = DirectorySettings::merge(own, own);
    let _ = DirectorySettings::merge(&nothing, &twice);
    let _ = DirectorySettings::merge(&twice, &nothing);
    for section in own.core.files.iter().chain(&own.core.conditions) {
        merge(&section.settings, depth - 1);
    }
}
