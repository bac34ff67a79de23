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
    Tables::new(&active, &present, modules.missing().clone())
}

#[cfg(test)]
mod tests {
    use crate::MODULES;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// A folder that is forgotten in the list would not be missed by the compiler.
    #[test]
    fn every_folder_is_a_module() {
        for folder in folders() {
            let file = match folder.file_name().unwrap().to_str().unwrap() {
                "core" => "core.c".to_owned(),
                "mpm" => "event.c".to_owned(),
                name => format!("mod_{name}.c"),
            };
            let is_listed = MODULES.iter().any(|module| module.file == file);
            assert!(is_listed, "{file} is missing in `modules!` of crates/modules/src/lib.rs");
        }
    }

    /// The folders of the modules.
    fn folders() -> Vec<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let entries = fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path());
        // What modules of logins, sessions, programs and codings have in common is no module.
        let shared = ["compression", "passwords", "script", "sessions"];
        let is_shared = |path: &Path| shared.iter().any(|name| path.ends_with(name));
        entries.filter(|path| path.is_dir() && !is_shared(path)).collect()
    }

    /// The part of a source file that is not for tests.
    fn code_of(file: &Path) -> String {
        let text = fs::read_to_string(file).unwrap();
        text.split("#[cfg(test)]").next().unwrap().to_owned()
    }

    /// Whether code imports or reaches into `name`, by the paths that lead to modules and their
    /// settings.
    fn names(code: &str, name: &str) -> bool {
        let is_word = |text: &str| {
            let rest = text.strip_prefix(name);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        let roots = ["crate::", "directory.", "server.", "global().", "global_mut(call)."];
        let reaches = |root| code.split(root).skip(1).any(is_word);
        let mut lists = code.split("use crate::{").skip(1);
        let in_list = |list: &str| {
            list.split("};").next().unwrap().split([',', ' ', '\n']).any(|item| item == name)
        };
        roots.into_iter().any(reaches) || lists.any(in_list)
    }

    /// Apart from the core, a module knows what is common to all, and no other module. Modules that
    /// have to do with one another share a type of `message` or a trait. Tests may use any module.
    #[test]
    fn no_module_names_another() {
        let folders = folders();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut faults = Vec::new();
        for folder in folders.iter().filter(|folder| name(folder) != "core") {
            let others = folders.iter().map(|other| name(other));
            let others = others.filter(|other| *other != name(folder) && other != "core");
            let whole = ["DirectorySettings".to_owned(), "ServerSettings".to_owned()];
            let barred: Vec<String> = others.chain(whole).collect();
            for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let code = code_of(&file);
                let found = barred.iter().filter(|other| names(&code, other));
                faults.extend(found.map(|other| format!("{} names {other}", file.display())));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// With `..`, a merge that forgets a new field would compile.
    #[test]
    fn every_merge_names_its_fields() {
        let (mut files, mut merges) = (folders(), 0);
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            for merge in code_of(&path).split(" Merge for ").skip(1) {
                let body = merge.split("\n}\n").next().unwrap();
                let has_rest =
                    body.contains(".. }") || body.contains(" ..") || body.contains("..\n");
                assert!(!has_rest, "{}: {body}", path.display());
                merges += 1;
            }
        }
        assert!(merges > 20, "{merges}");
    }

    #[test]
    fn a_name_is_found_by_all_ways_that_lead_to_it() {
        for code in ["crate::dir::FOLDER", "use crate::{Merge, dir};", "scope.directory.dir.slash"]
        {
            assert!(names(code, "dir"), "{code}");
        }
        assert!(!names("crate::directive, use crate::{director, dirs};", "dir"));
    }
}
