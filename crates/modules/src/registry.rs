//! The list of all modules: which there are, which are always active as in Debian's apache2, and
//! the tables of those that a configuration makes active.

use crate::{
    Scope, Table, access_compat, alias, authz_core, authz_host, autoindex, core, deflate, dir, env,
    filter, headers, lab, log_config, mime, mpm, negotiation, reqtimeout, setenvif, status, unixd,
    watchdog,
};
use evenkeel_config::{ModuleSet, Offer, Tables};

const fn builtin(file: &'static str, identifier: &'static str) -> Offer {
    Offer { file, identifier, builtin: true, default: true }
}

/// A module that is active where the configuration names none.
const fn usual(file: &'static str, identifier: &'static str) -> Offer {
    Offer { file, identifier, builtin: false, default: true }
}

/// A module that is active only where the configuration names it.
const fn extra(file: &'static str, identifier: &'static str) -> Offer {
    Offer { file, identifier, builtin: false, default: false }
}

/// Every module that this server has.
pub const OFFERS: &[Offer] = &[
    builtin("core.c", "core_module"),
    builtin("mod_so.c", "so_module"),
    builtin("mod_watchdog.c", "watchdog_module"),
    builtin("http_core.c", "http_module"),
    builtin("mod_log_config.c", "log_config_module"),
    builtin("mod_logio.c", "logio_module"),
    builtin("mod_version.c", "version_module"),
    builtin("mod_unixd.c", "unixd_module"),
    usual("mod_alias.c", "alias_module"),
    usual("mod_env.c", "env_module"),
    usual("mod_setenvif.c", "setenvif_module"),
    usual("mod_dir.c", "dir_module"),
    usual("mod_mime.c", "mime_module"),
    usual("mod_reqtimeout.c", "reqtimeout_module"),
    usual("mod_status.c", "status_module"),
    usual("mod_lab.c", "lab_module"),
    usual("event.c", "mpm_event_module"),
    usual("mod_access_compat.c", "access_compat_module"),
    usual("mod_authz_core.c", "authz_core_module"),
    usual("mod_authz_host.c", "authz_host_module"),
    usual("mod_headers.c", "headers_module"),
    usual("mod_autoindex.c", "autoindex_module"),
    usual("mod_negotiation.c", "negotiation_module"),
    usual("mod_filter.c", "filter_module"),
    usual("mod_deflate.c", "deflate_module"),
    extra("worker.c", "mpm_worker_module"),
    extra("prefork.c", "mpm_prefork_module"),
    extra("mod_macro.c", "macro_module"),
];

/// The tables of every module, the core's first.
pub(crate) fn tables() -> impl Iterator<Item = Table> {
    let own = [
        access_compat::TABLE,
        alias::TABLE,
        authz_core::TABLE,
        authz_host::TABLE,
        autoindex::TABLE,
        deflate::TABLE,
        dir::TABLE,
        env::TABLE,
        filter::TABLE,
        headers::TABLE,
        lab::TABLE,
        log_config::TABLE,
        log_config::LOGIO_TABLE,
        mime::TABLE,
        negotiation::TABLE,
        reqtimeout::TABLE,
        setenvif::TABLE,
        status::TABLE,
        unixd::TABLE,
        watchdog::TABLE,
    ];
    core::TABLES.into_iter().chain(own).chain(mpm::TABLES.iter().copied())
}

/// The modules that are process models; one of them is active, event where none is named.
pub const MODELS: [&str; 3] = ["mpm_event_module", "mpm_worker_module", "mpm_prefork_module"];

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
    let active: Vec<Table> = tables().filter(|t| is_active(modules, t.identifier)).collect();
    let present: Vec<&'static str> = OFFERS.iter().map(|offer| offer.file).collect();
    Tables::new(&active, &present)
}

#[cfg(test)]
mod tests {
    use super::{OFFERS, tables};
    use std::{fs, path::Path};

    /// One that is forgotten in a list above would not be missed by the compiler.
    #[test]
    fn every_folder_is_a_module_with_its_table() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let folders = fs::read_dir(source).unwrap().map(Result::unwrap);
        for folder in folders.filter(|entry| entry.file_type().unwrap().is_dir()) {
            let file = match folder.file_name().to_str().unwrap() {
                "core" => "core.c".to_owned(),
                "mpm" => "event.c".to_owned(),
                name => format!("mod_{name}.c"),
            };
            let has_table = tables().any(|table| table.module == file);
            assert!(has_table, "{file} is missing in `tables` of crates/modules/src/registry.rs");
        }
    }

    #[test]
    fn every_table_belongs_to_a_module_that_is_offered() {
        for table in tables() {
            let (file, identifier) = (table.module, table.identifier);
            let is_offered = OFFERS.iter().any(|o| o.file == file && o.identifier == identifier);
            let which = format!("{file} ({identifier})");
            assert!(is_offered, "{which} is missing in OFFERS of crates/modules/src/registry.rs");
        }
    }
}
