//! Runs a server with `-t` on a broken configuration, and returns its messages and exit status
//! without what differs between runs. Nothing is served. The lines of the case are the whole file,
//! so that line numbers are those that a reader sees. What every case needs is passed with `-C`:
//! the modules, a process model, a name. A case that begins with `# modules: none` gets only the
//! name. A case that names a file below `@ROOT@/tls` gets the certificates of
//! [`make_certificates`].

use crate::server::{Kind, command, program};
use crate::tls::make_certificates;
use std::fs;

/// The modules of every case, as their identifiers without `_module`.
const MODULES: [&str; 13] = [
    "mpm_event",
    "authz_core",
    "authz_host",
    "access_compat",
    "alias",
    "autoindex",
    "dir",
    "env",
    "mime",
    "headers",
    "setenvif",
    "reqtimeout",
    "status",
];

/// The messages of a server of this kind about the configuration, and its exit status in the last
/// line.
pub fn check(kind: Kind, name: &str, text: &str) -> Result<String, String> {
    let scratch = tempfile::Builder::new().prefix("broken-").tempdir();
    let scratch = scratch.map_err(|error| error.to_string())?;
    let root = scratch.path();
    let place = root.to_string_lossy();
    let told = |error: std::io::Error| format!("{place}: {error}");
    fs::create_dir(root.join("logs")).map_err(told)?;
    fs::create_dir(root.join("htdocs")).map_err(told)?;
    fs::write(root.join("file.txt"), "text\n").map_err(told)?;
    fs::write(root.join("mime.types"), "text/html html\n").map_err(told)?;
    if text.contains("@ROOT@/tls/") {
        make_certificates(&root.join("tls"))?;
    }
    let file = root.join(format!("{name}.conf"));
    fs::write(&file, text.replace("@ROOT@", &place)).map_err(told)?;

    let mut lines = vec!["ServerName localhost".to_owned()];
    if !text.starts_with("# modules: none") {
        let load =
            |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so");
        lines.extend(MODULES.map(load));
        lines.push(format!("TypesConfig {place}/mime.types"));
        lines.push(format!("DocumentRoot {place}/htdocs"));
    }
    let file = file.to_string_lossy();
    let mut arguments = vec!["-t", "-d", &place, "-f", &file];
    arguments.extend(lines.iter().flat_map(|line| ["-C", line.as_str()]));
    // The name under which a server was called is the first word of some of its messages.
    let program = program(kind, root)?;
    let output = command(&program, &arguments).output().map_err(told)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).replace(&*place, "@ROOT@");
    let status = output.status.code().map_or("killed".to_owned(), |code| code.to_string());
    Ok(said.lines().map(without_moment).collect::<String>() + &format!("status {status}\n"))
}

/// A line of an error log without its time, process and thread; any other line unchanged.
pub fn without_moment(line: &str) -> String {
    let parts = line.strip_prefix('[').and_then(|rest| {
        let (_, rest) = rest.split_once("] [")?;
        let (level, rest) = rest.split_once("] [pid ")?;
        let (_, text) = rest.split_once("] ")?;
        Some(format!("[{level}] {text}\n"))
    });
    parts.unwrap_or_else(|| format!("{line}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_taken_out() {
        let line = "[Sat Nov 21 02:42:09.1 2026] [core:warn] [pid 1:tid 2] AH00111: text [x] y";
        assert_eq!(without_moment(line), "[core:warn] AH00111: text [x] y\n");
        assert_eq!(without_moment("Syntax OK"), "Syntax OK\n");
    }

    #[test]
    fn a_case_is_told_from_a_good_file() {
        let said = check(Kind::Apache, "x", "Timeout 5\n").unwrap();
        assert_eq!(said, "Syntax OK\nstatus 0\n");
        let said = check(Kind::Apache, "x", "\nKeepAlive long\n").unwrap();
        assert!(said.contains("line 2 of @ROOT@/x.conf"), "{said}");
        assert!(said.ends_with("status 1\n"));
    }
}
