//! The entry point of Evenkeel. Under the names httpd and apache2 the command line is httpd's;
//! under its own name the program adds subcommands. This room connects the others and is the only
//! one that knows them all.

#[cfg(not(target_os = "linux"))]
compile_error!("Evenkeel runs on Linux only: it is built on epoll, inotify and SO_REUSEPORT.");

mod applications;
mod checker;
mod command_line;
mod configuration;
mod dump;
mod explain;
mod htcacheclean;
mod htdigest;
mod htpasswd;
mod httpd;
mod lab;
mod launcher;
mod limits;
mod local_certificate;
mod logs;
mod serve;
mod server;
mod serving;
mod settings;
mod terminal;
mod tls;
mod vocabulary;

use evenkeel::{LAB, Limits, Own, Stop};
use std::path::Path;

/// The time of the build in `-v`: the version, so that builds are reproducible.
pub const BUILT: &str = concat!("Evenkeel ", env!("CARGO_PKG_VERSION"));

fn main() {
    evenkeel_sys::memory::bound_freed();
    let mut given = std::env::args_os();
    let name = given.next().unwrap_or_default();
    let given: Vec<_> = given.collect();
    let words: Vec<String> = given.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = Path::new(&name).file_name().unwrap_or(&name).to_string_lossy();
    let status = match (&*program, words.first().map(String::as_str)) {
        ("httpd" | "apache2", _) => httpd::run(&program, &words),
        ("htcacheclean", _) => htcacheclean::run(&words),
        (_, Some("htcacheclean")) => htcacheclean::run(words.get(1..).unwrap_or_default()),
        ("htpasswd", _) => htpasswd::run(&words),
        ("htdigest", _) => htdigest::run(&words),
        (_, Some("htdigest")) => htdigest::run(words.get(1..).unwrap_or_default()),
        (_, Some("htpasswd")) => htpasswd::run(words.get(1..).unwrap_or_default()),
        (_, Some("serve" | "explain" | "limits" | "completions")) => own(&words),
        (_, Some(word)) if LAB.iter().any(|(name, _)| *name == word) => lab::run(&given),
        (_, Some("--version")) => {
            terminal::say(&format!("evenkeel {}", env!("CARGO_PKG_VERSION")));
            0
        }
        (_, None | Some("--help" | "help")) => {
            terminal::say(&evenkeel::command().render_help().to_string());
            0
        }
        _ => httpd::run(&program, &words),
    };
    std::process::exit(status);
}

/// Runs one of the server's own subcommands.
fn own(words: &[String]) -> i32 {
    match evenkeel::parse(words) {
        Ok(Own::Serve(asked)) => serve::run(&asked),
        Ok(Own::Explain(asked)) => explain::run(asked),
        Ok(Own::Limits(Limits { file })) => limits::run(file),
        Ok(Own::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut evenkeel::command(), "evenkeel", &mut text);
            terminal::say(&String::from_utf8_lossy(&text));
            0
        }
        Err(Stop::Help(text)) => {
            terminal::say(&text);
            0
        }
        Err(Stop::Wrong(text)) => {
            let subcommand = words.first().map_or("", String::as_str);
            let hint = format!("evenkeel {subcommand} --help shows its options");
            terminal::complain(&format!("evenkeel {subcommand}: {text}\n{hint}"));
            2
        }
    }
}
