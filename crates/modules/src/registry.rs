//! Which modules are active, and the directives of those. The list of them all stands in `lib.rs`.

use crate::{MODULES, Module, OFFERS, Scope, Table, mpm};
use evenkeel_config::{ModuleSet, Tables};

/// The modules that are process models; one of them is active, event where none is named.
pub const MODELS: [&str; 3] =
    [mpm::MODULE.identifier, mpm::WORKER.identifier, mpm::PREFORK.identifier];

/// The identifier of the active process model.
#[must_use]
pub fn model(modules: &ModuleSet) -> &'static str {
    let [event, others @ ..] = MODELS;
    others.into_iter().find(|model| modules.is_shared(model)).unwrap_or(event)
}

/// Whether a module, named by its source file or its identifier, is active.
#[must_use]
pub fn is_active(modules: &ModuleSet, name: &str) -> bool {
    let offer = OFFERS.iter().find(|offer| offer.file == name || offer.identifier == name);
    match offer {
        Some(offer) if MODELS.contains(&offer.identifier) => offer.identifier == model(modules),
        Some(_) => modules.is_active(name),
        None => false,
    }
}

/// The directives of the active modules.
#[must_use]
pub fn active_tables(modules: &ModuleSet) -> Tables<Scope> {
    let active = MODULES.iter().filter(|module| is_active(modules, module.identifier));
    let active: Vec<Table> = active.copied().flat_map(Module::tables).collect();
    let present: Vec<&'static str> = OFFERS.iter().map(|offer| offer.file).collect();
    Tables::new(&active, &present)
}

#[cfg(test)]
mod tests {
    use crate::MODULES;
    use std::{fs, path::Path};

    /// A folder that is forgotten in the list would not be missed by the compiler.
    #[test]
    fn every_folder_is_a_module() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let folders = fs::read_dir(source).unwrap().map(Result::unwrap);
        for folder in folders.filter(|entry| entry.file_type().unwrap().is_dir()) {
            let file = match folder.file_name().to_str().unwrap() {
                "core" => "core.c".to_owned(),
                "mpm" => "event.c".to_owned(),
                name => format!("mod_{name}.c"),
            };
            let is_listed = MODULES.iter().any(|module| module.file == file);
            assert!(is_listed, "{file} is missing in `modules!` of crates/modules/src/lib.rs");
        }
    }
}
