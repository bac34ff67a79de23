//! php-fpm, if it is installed: a pool of children with two pages, one that waits and one that
//! burns CPU time, for servers with FastCGI. It is started and stopped like the servers.

use super::{Server, Setup, Site};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The pages by name. Both take `ms` from the query.
const PAGES: [(&str, &str); 2] = [
    ("wait.php", "<?php usleep(1000 * (int) $_GET['ms']); echo \"waited\\n\";\n"),
    (
        "burn.php",
        "<?php\n\
         function spent() { $u = getrusage(); return $u['ru_utime.tv_sec'] * 1e6 + \
         $u['ru_utime.tv_usec'] + $u['ru_stime.tv_sec'] * 1e6 + $u['ru_stime.tv_usec']; }\n\
         $end = spent() + 1000 * (int) $_GET['ms'];\n\
         while (spent() < $end) { for ($i = 0; $i < 2000; $i++) { sqrt($i); } }\n\
         echo \"burned\\n\";\n",
    ),
];

/// Starts it with `children` children; none if it is not installed.
///
/// # Errors
///
/// Those of the system, or what it printed when it did not serve.
pub fn php(site: &Site, setup: &Setup, children: usize) -> Result<Option<Server>, String> {
    let Some(program) = program() else { return Ok(None) };
    let root = site.path();
    for (name, text) in PAGES {
        write(&root.join("htdocs").join(name), text)?;
    }
    let server = Server::start("php-fpm", site, &setup.cores, |port| {
        let own = root.join("php-fpm.conf");
        write(&own, &configuration(root, port, children))?;
        let mut command = Command::new(&program);
        command.args(["--nodaemonize", "--fpm-config"]).arg(own);
        Ok(command)
    })?;
    Ok(Some(server))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Debian has the version in the name of the program.
fn program() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"))
    };
    entries.map(|entry| entry.path()).filter(named).max()
}

fn configuration(root: &Path, port: u16, children: usize) -> String {
    let root = root.display();
    let user = super::configuration::as_user("user = @\ngroup = @\n");
    format!(
        "[global]\nerror_log = {root}/logs/php-fpm.log\n[pages]\n{user}\
         listen = 127.0.0.1:{port}\nlisten.backlog = 4096\npm = static\n\
         pm.max_children = {children}\n"
    )
}
