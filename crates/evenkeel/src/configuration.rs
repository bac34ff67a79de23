//! Turns the command line's choice of a configuration into a site: reads and applies the text.
//! Nothing is opened or changed.

use crate::applications;
use crate::vocabulary::Words;
use evenkeel_config::{
    Fault, Faults, Included, Main, Missing, ModuleSet, Notice, Offer, Stage, Start, Tree, Variables,
};
use evenkeel_message::Level;
use evenkeel_modules::{MODELS, OFFERS, active_tables};
use evenkeel_pipeline::{Language, Site};
use evenkeel_sys::host;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// The configuration to read.
#[derive(Clone, Debug)]
pub struct Choice {
    /// ServerRoot, until a directive sets it (`-d`).
    pub server_root: String,
    /// The main file (`-f`), or a text of the program's own.
    pub main: Main,
    /// Directives to read before it (`-C`).
    pub before: Vec<String>,
    /// Directives to read after it (`-c`).
    pub after: Vec<String>,
    /// Names to define (`-D`).
    pub defines: Vec<String>,
    /// The program's name in messages.
    pub program: String,
    /// The least urgent level of notices that are printed (`-e`).
    pub start_level: Level,
    /// Whether to omit the notice that a DocumentRoot does not exist (`-T`).
    pub skip_root_check: bool,
}

/// A configuration that was read completely.
pub struct Configuration {
    /// The site that it describes.
    pub site: Arc<Site>,
    /// Its tree of directives.
    pub tree: Tree,
    /// The files that it was read from.
    pub includes: Vec<Included>,
    /// The modules that it makes active.
    pub modules: ModuleSet,
    /// Notices to the administrator about it.
    pub notices: Vec<Notice>,
}

/// A configuration that cannot be used, with the notices about it.
pub struct Refused {
    /// The reasons.
    pub faults: Faults,
    /// The modules that it loads and this server lacks.
    pub missing: Missing,
    /// The files that were read.
    pub includes: Vec<Included>,
    /// The notices.
    pub notices: Vec<Notice>,
}

/// The modules that the LoadModule lines of a configuration name.
pub struct Named {
    /// The modules that are active as a result. If the text cannot be read completely, they follow
    /// from the part before the fault.
    pub modules: ModuleSet,
    /// Why the text cannot be read completely.
    pub fault: Option<Fault>,
}

impl Choice {
    /// A configuration that consists of this text.
    #[cfg(test)]
    pub(crate) fn of_text(text: Vec<u8>) -> Self {
        Self {
            server_root: "/".into(),
            main: Main::Text { name: "t".into(), text },
            before: Vec::new(),
            after: Vec::new(),
            defines: Vec::new(),
            program: "t".into(),
            start_level: Level::Warn,
            skip_root_check: true,
        }
    }

    /// Reads and applies the configuration.
    ///
    /// # Errors
    /// The faults, each with its file and line. After a fault in the structure of the text, the
    /// directives are not applied, so that their faults are not found.
    pub fn read(&self) -> Result<Configuration, Box<Refused>> {
        let (mut notices, mut includes) = (Vec::new(), Vec::new());
        let (tree, modules) = self.read_text(&mut notices, &mut includes);
        let tree = tree.and_then(|tree| self.one_model(&modules).map(|()| tree));
        let read = tree.map_err(Faults::from).and_then(|mut tree| {
            let mut refused = std::mem::take(&mut tree.refused);
            if let Some(fault) = lacks_php(&modules) {
                refused.add(fault);
            }
            match self.compile(&tree, &modules, &mut notices) {
                Ok(site) if refused.is_empty() => Ok((site, tree)),
                Ok(_) => Err(refused),
                Err(faults) => {
                    refused.extend(faults);
                    Err(refused)
                }
            }
        });
        notices.retain(|notice| self.is_worth_saying(notice));
        match read {
            Ok((site, tree)) => {
                notices.extend(unused(modules.missing()));
                let site = Arc::new(site);
                Ok(Configuration { site, tree, includes, modules, notices })
            }
            Err(faults) => {
                let missing = modules.missing().clone();
                Err(Box::new(Refused { faults, missing, includes, notices }))
            }
        }
    }

    /// Applies a tree that was read.
    fn compile(
        &self,
        tree: &Tree,
        modules: &ModuleSet,
        notices: &mut Vec<Notice>,
    ) -> Result<Site, Faults> {
        let language = Language {
            tables: active_tables(modules),
            variables: tree.variables.clone(),
            runtime_dir: tree.runtime_dir.as_deref().map(Into::into),
            roots_unchecked: self.skip_root_check,
            vocabulary: Box::new(Words::new(modules.clone())),
        };
        let root = Path::new(&tree.server_root);
        let unnamed = Cell::new(None);
        let own_name = || own_name(&self.program, &unnamed);
        let site = Site::compile(&tree.nodes, language, root, &own_name, notices);
        notices.extend(unnamed.take());
        site
    }

    /// Checks that there is at most one process model. If none is named, it is event
    /// (mpm_common.c).
    fn one_model(&self, modules: &ModuleSet) -> Result<(), Fault> {
        if MODELS.iter().filter(|model| modules.is_shared(model)).count() < 2 {
            return Ok(());
        }
        let text =
            format!("AH00534: {}: Configuration error: More than one MPM loaded.", self.program);
        Err(Fault { position: None, text, trail: Vec::new(), stage: Stage::Apply })
    }

    /// Whether to print a notice. The level notice is always printed, as in Apache's
    /// log_error_core.
    fn is_worth_saying(&self, notice: &Notice) -> bool {
        let level = notice.to_message().level;
        level == Level::Notice || level <= self.start_level
    }

    /// The modules that the configuration makes active, as far as its text can be read.
    pub fn modules(&self) -> Named {
        let (tree, modules) = self.read_text(&mut Vec::new(), &mut Vec::new());
        let fault = match tree {
            Ok(tree) => tree.refused.kept().first().cloned(),
            Err(fault) => Some(fault),
        };
        Named { modules, fault }
    }

    /// Reads the text. Conditions before the first LoadModule line depend on the active modules, so
    /// a text that names its modules is read a second time with exactly those.
    fn read_text(
        &self,
        notices: &mut Vec<Notice>,
        includes: &mut Vec<Included>,
    ) -> (Result<Tree, Fault>, ModuleSet) {
        let mut preset = offers();
        // A text of `evenkeel serve` names no modules; PHP runs where its program is.
        let runs_php = matches!(self.main, Main::Text { .. }) && applications::has_php();
        for offer in preset.iter_mut().filter(|offer| offer.identifier == applications::PHP) {
            offer.default = runs_php;
        }
        let mut words = Words::new(ModuleSet::preset(preset));
        let mut tree = evenkeel_config::read(self.start(), &mut words, notices, includes);
        if words.modules().is_named() {
            notices.clear();
            includes.clear();
            words = Words::new(ModuleSet::named(offers()));
            tree = evenkeel_config::read(self.start(), &mut words, notices, includes);
        }
        (tree, words.modules().clone())
    }

    fn start(&self) -> Start {
        Start {
            server_root: self.server_root.clone(),
            main: self.main.clone(),
            before: self.before.clone(),
            after: self.after.clone(),
            variables: Variables::new(self.defines.clone(), environment()),
        }
    }
}

/// The modules that this server has. In a debug build, the environment variable EVENKEEL_WITHOUT
/// lists source files of modules to leave out, so that tests can make any module a missing one.
fn offers() -> Vec<Offer> {
    let mut offers = OFFERS.to_vec();
    if cfg!(debug_assertions)
        && let Ok(without) = std::env::var("EVENKEEL_WITHOUT")
    {
        offers.retain(|offer| !without.split(',').any(|file| file == offer.file));
    }
    offers
}

/// The fault of a LoadModule line for PHP whose program is missing.
fn lacks_php(modules: &ModuleSet) -> Option<Fault> {
    let library = modules.path_of(applications::PHP)?;
    let why = applications::program_of(Some(library)).err()?;
    let text = format!("Cannot load {library} into server: {why}");
    Some(Fault { position: None, text, trail: Vec::new(), stage: Stage::Apply })
}

/// The warning about missing modules that nothing in the configuration needs.
fn unused(missing: &Missing) -> Option<Notice> {
    let names: Vec<&str> = missing.loaded().iter().map(|module| &*module.file).collect();
    let text = format!(
        "LoadModule names modules that this server does not have, and nothing in the \
         configuration needs them: {}",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Notice { number: None, ..Notice::warn("so", 0, text) })
}

/// The machine's name with its domain. If it has none, its address, with a notice.
fn own_name(program: &str, unnamed: &Cell<Option<Notice>>) -> String {
    if let Some(name) = host::full_host_name() {
        return name;
    }
    let address = host::host_address().map_or_else(|| "127.0.0.1".into(), |ip| ip.to_string());
    let text = format!(
        "{program}: Could not reliably determine the server's fully qualified domain name, using \
         {address}. Set the 'ServerName' directive globally to suppress this message"
    );
    unnamed.set(Some(Notice::warn("core", 558, text)));
    address
}

/// The environment, without what is not UTF-8, because no configuration can name that.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
