//! What the command line prints about a configuration: virtual hosts, run-time settings, modules,
//! files, directives. The texts have the form that existing tools parse (vhost.c: ap_vhost_dump;
//! core.c: core_dump_config; mod_so.c: dump_loaded_modules).

use crate::command_line::{CommandLine, Show};
use crate::configuration::Configuration;
use evenkeel_config::{Included, ModuleSet, Offer, allowed_text, print_tree, reserved};
use evenkeel_modules::{MODELS, OFFERS, active_tables, is_active, model};
use evenkeel_pipeline::{AddressHosts, Site};
use std::fmt::Write;
use std::net::IpAddr;

/// Everything that the command line requests, in Apache's order.
pub fn dump(line: &CommandLine, configuration: &Configuration) -> String {
    let asked = |show: Show, name: &str| line.show.contains(&show) || line.is_defined(name);
    let mut text = includes(line, &configuration.includes);
    if asked(Show::Settings, "DUMP_VHOSTS") {
        virtual_hosts(&configuration.site, &mut text);
    }
    if asked(Show::Settings, "DUMP_RUN_CFG") {
        run_settings(configuration, line, &mut text);
    }
    if asked(Show::Loaded, "DUMP_MODULES") {
        modules(configuration, &mut text);
    }
    if line.is_defined("DUMP_CONFIG") {
        let _infallible = print_tree(&configuration.tree.nodes, &mut text);
    }
    text
}

/// The files that were read, if requested. Apache prints each file when it reads it, hence before
/// everything else and even if the configuration is refused.
pub fn includes(line: &CommandLine, includes: &[Included]) -> String {
    let mut text = String::new();
    if line.is_defined("DUMP_INCLUDES") && !includes.is_empty() {
        text.push_str("Included configuration files:\n");
        for included in includes {
            let _infallible = writeln!(text, "{included}");
        }
    }
    text
}

/// Whether the command line requests anything that is printed instead of `Syntax OK`.
pub fn is_asked(line: &CommandLine) -> bool {
    stands_alone(line) || line.is_defined("DUMP_CONFIG")
}

/// Whether the command line requests one of the dumps that are printed without `Syntax OK`, with or
/// without `-t`.
pub fn stands_alone(line: &CommandLine) -> bool {
    let names = ["DUMP_VHOSTS", "DUMP_RUN_CFG", "DUMP_MODULES", "DUMP_INCLUDES"];
    let shown = [Show::Settings, Show::Loaded];
    names.into_iter().any(|name| line.is_defined(name))
        || line.show.iter().any(|show| shown.contains(show))
}

fn virtual_hosts(site: &Site, text: &mut String) {
    text.push_str("VirtualHost configuration:\n");
    let mut by_ip: Vec<&AddressHosts> = site.hosts.by_ip.iter().collect();
    by_ip.sort_by_key(|entry| bucket(entry.address.ip));
    for entry in by_ip.into_iter().chain(&site.hosts.any) {
        address(entry, text);
    }
}

/// The address's bucket in Apache's hash table, which determines the order of the dump (vhost.c:
/// hash_inaddr).
fn bucket(ip: Option<IpAddr>) -> u32 {
    let last = match ip {
        Some(IpAddr::V4(ip)) => ip.octets(),
        Some(IpAddr::V6(ip)) => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d]
        }
        None => [0; 4],
    };
    let key = u32::from_ne_bytes(last);
    let key = key ^ (key >> 16);
    ((key >> 8) ^ key) % 256
}

fn address(entry: &AddressHosts, text: &mut String) {
    let ip = match entry.address.ip {
        Some(ip) if ip.is_ipv6() => format!("[{ip}]"),
        Some(ip) => ip.to_string(),
        None => "*".to_owned(),
    };
    let port = entry.address.port.map_or_else(|| "*".to_owned(), |port| port.to_string());
    let name = format!("{ip}:{port}");
    let Some(first) = entry.hosts.first() else { return };
    if entry.hosts.len() == 1 {
        let _infallible = writeln!(text, "{name:<22} {} ({})", first.name, first.position);
        return;
    }
    let _infallible = writeln!(text, "{name:<22} is a NameVirtualHost");
    let _infallible = writeln!(text, "{:8} default server {} ({})", "", first.name, first.position);
    for host in &entry.hosts {
        let _infallible =
            writeln!(text, "{:8} port {port} namevhost {} ({})", "", host.name, host.position);
        let Some(aliases) = &host.aliases else { continue };
        for alias in &aliases.exact {
            let _infallible = writeln!(text, "{:16} alias {alias}", "");
        }
        for alias in &aliases.wild {
            let _infallible = writeln!(text, "{:16} wild alias {alias}", "");
        }
    }
}

fn run_settings(configuration: &Configuration, line: &CommandLine, text: &mut String) {
    let site = &configuration.site;
    let core = &site.server(0).settings.core;
    let root = core.document_root.as_ref().map(|root| root.display().to_string());
    let error_log = core.error_log.as_ref().map_or("logs/error_log", |log| &log.0);
    let plain = !error_log.starts_with('|') && !error_log.starts_with("syslog");
    let error_log = if plain {
        site.server_root.join(error_log).display().to_string()
    } else {
        error_log.into()
    };
    let _infallible = writeln!(text, "ServerRoot: \"{}\"", site.server_root.display());
    let root = root.unwrap_or_default();
    let _infallible = writeln!(text, "Main DocumentRoot: \"{root}\"");
    let _infallible = writeln!(text, "Main ErrorLog: \"{error_log}\"");
    let runtime = configuration.tree.runtime_dir.as_deref();
    let settings = crate::settings::of_parent(site, &configuration.modules, runtime);
    let pid_file = settings.ok().and_then(|settings| settings.pid_file).unwrap_or_default();
    let pid_file = pid_file.display();
    let _infallible = writeln!(text, "PidFile: \"{pid_file}\"");
    defines(configuration, line, text);
    let unixd = &site.global.unixd;
    let (uid, user) = unixd.user.clone().unwrap_or((u32::MAX, "#-1".into()));
    let (gid, group) = unixd.group.clone().unwrap_or((u32::MAX, "#-1".into()));
    let _infallible = writeln!(text, "User: name=\"{user}\" id={uid}");
    let _infallible = writeln!(text, "Group: name=\"{group}\" id={gid}");
}

/// The defined names. `-S` implies two of its own (main.c).
fn defines(configuration: &Configuration, line: &CommandLine, text: &mut String) {
    if line.show.contains(&Show::Settings) {
        text.push_str("Define: DUMP_VHOSTS\nDefine: DUMP_RUN_CFG\n");
    }
    for (name, value) in configuration.tree.variables.defines() {
        let _infallible = match value {
            Some(value) => writeln!(text, "Define: {name}={value}"),
            None => writeln!(text, "Define: {name}"),
        };
    }
}

fn modules(configuration: &Configuration, text: &mut String) {
    text.push_str("Loaded Modules:\n");
    let modules = &configuration.modules;
    for offer in active(modules) {
        let how = if offer.builtin { "static" } else { "shared" };
        let _infallible = writeln!(text, " {} ({how})", offer.identifier);
    }
}

/// The active modules, with only the process model that is active.
fn active(modules: &ModuleSet) -> impl Iterator<Item = &Offer> {
    let own = model(modules);
    let event = OFFERS.iter().filter(move |offer| {
        offer.identifier == own && !modules.active().iter().any(|a| a.identifier == own)
    });
    let is_apart =
        move |offer: &&Offer| MODELS.contains(&offer.identifier) && offer.identifier != own;
    modules.active().iter().filter(move |offer| !is_apart(offer)).chain(event)
}

/// `-l`: the modules that are active whatever the configuration says. Those that are active because
/// no LoadModule line names any are not among them: `-M` calls them shared.
pub fn compiled_in() -> String {
    let mut text = "Compiled in modules:\n".to_owned();
    for offer in OFFERS.iter().filter(|offer| offer.builtin) {
        let _infallible = writeln!(text, "  {}", offer.file);
    }
    text
}

/// `-L`: every directive of the active modules, and where it may stand.
pub fn directives(modules: &ModuleSet) -> String {
    let mut text = String::new();
    let tables = active_tables(modules);
    for (module, directive) in tables.all() {
        let place = allowed_text(directive.contexts, directive.overrides);
        let _infallible =
            writeln!(text, "{} ({module})\n\t{}\n{place}", directive.name, directive.doc);
    }
    for word in reserved().iter().filter(|word| is_active(modules, word.module)) {
        let place = allowed_text(word.contexts, word.overrides);
        let _infallible =
            writeln!(text, "{} ({})\n\t{}\n{place}", word.name, word.module, word.doc);
    }
    text
}

/// `-v`.
pub fn version() -> String {
    let (major, minor, patch) = evenkeel_modules::SERVER_VERSION;
    format!(
        "Server version: Apache/{major}.{minor}.{patch} (Evenkeel)\nServer built:   {}\n",
        crate::BUILT
    )
}

/// `-V`.
pub fn build(modules: &ModuleSet) -> String {
    let model = model(modules);
    let name = model.trim_start_matches("mpm_").trim_end_matches("_module");
    let threaded = if name == "prefork" { "no" } else { "yes (fixed thread count)" };
    format!(
        "{}Server's Module Magic Number: 20120211:142\nArchitecture:   {}-bit\n\
         Server MPM:     {name}\n  threaded:     {threaded}\n    \
         forked:     yes (variable process count)\nServer compiled with....\n \
         -D APR_HAS_SENDFILE\n -D APR_HAVE_IPV6 (IPv4-mapped addresses enabled)\n \
         -D AP_HAVE_RELIABLE_PIPED_LOGS\n -D HTTPD_ROOT=\"{}\"\n \
         -D DEFAULT_PIDLOG=\"logs/httpd.pid\"\n -D DEFAULT_ERRORLOG=\"logs/error_log\"\n \
         -D AP_TYPES_CONFIG_FILE=\"conf/mime.types\"\n -D SERVER_CONFIG_FILE=\"{}\"\n",
        version(),
        usize::BITS,
        crate::httpd::SERVER_ROOT,
        crate::httpd::FILE,
    )
}
