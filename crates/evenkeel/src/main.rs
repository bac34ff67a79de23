//! The command line of Evenkeel. Under the names httpd and apache2 it is httpd's; under its own
//! name it adds subcommands. This room ties the others together and is the only one that knows
//! them all.

#[cfg(not(target_os = "linux"))]
compile_error!("Evenkeel runs on Linux only: it is built on epoll, inotify and SO_REUSEPORT.");

mod command_line;
mod configuration;
mod dump;
mod explain;
mod httpd;
mod logs;
mod serve;
mod server;
mod serving;
mod settings;
mod simulation;
mod terminal;
mod vocabulary;

use std::path::Path;

/// What `-v` shows as the time of the build: the version, so that a build can be repeated.
pub const BUILT: &str = concat!("Evenkeel ", env!("CARGO_PKG_VERSION"));

fn main() {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let name = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let program =
        Path::new(&name).file_name().map_or(name.as_str().into(), |n| n.to_string_lossy());
    let status = match (&*program, words.first().map(String::as_str)) {
        ("httpd" | "apache2", _) => httpd::run(&program, &words),
        ("ab", _) => evenkeel_lab::ab::run(&words),
        (_, Some("serve")) => serve::run(words.get(1..).unwrap_or_default()),
        (_, Some("lab")) => evenkeel_lab::experiments::run(words.get(1..).unwrap_or_default()),
        (_, Some("report")) => evenkeel_lab::report::run(words.get(1..).unwrap_or_default()),
        (_, Some("surge")) => evenkeel_lab::surge::run(words.get(1..).unwrap_or_default()),
        (_, Some("bench")) => evenkeel_lab::bench::run(words.get(1..).unwrap_or_default()),
        (_, Some("top")) => evenkeel_lab::top::run(words.get(1..).unwrap_or_default()),
        (_, Some("sim")) => simulation::run(words.get(1..).unwrap_or_default()),
        (_, Some("explain")) => explain::run(words.get(1..).unwrap_or_default()),
        (_, Some("replay")) => evenkeel_lab::replay::run(words.get(1..).unwrap_or_default()),
        (_, Some("--version")) => {
            terminal::say(&format!("evenkeel {}", env!("CARGO_PKG_VERSION")));
            0
        }
        (_, None | Some("--help" | "help")) => {
            terminal::say(HELP);
            0
        }
        _ => httpd::run(&program, &words),
    };
    std::process::exit(status);
}

const HELP: &str = "\
evenkeel: a web server that reads Apache's configuration and keeps an even keel

Usage:
  evenkeel serve [DIR] [--listen ADDR]   serve a folder (this one, on 127.0.0.1:8080)
  evenkeel bench [OPTIONS] URL           put a load on a server; bench --help
  evenkeel surge make DIR | run URL      the SURGE workload; surge --help
  evenkeel replay [OPTIONS] URL LOG      ask again what access logs say; replay --help
  evenkeel [httpd's options]             serve an Apache configuration; -h lists them
  evenkeel explain [URL | PID]           what limits a server now; explain --help
  evenkeel lab EXPERIMENT [options]      measure installed servers beside each other
  evenkeel sim [OPTIONS]                 what a pool of workers does under a load; sim --help
  evenkeel top [OPTIONS]                 what this machine and a server do; top --help
  evenkeel report DIR...                 make a page of saved results of the lab
  evenkeel --help | --version

Called as httpd or apache2 it is httpd's command line alone, called as ab it is ab's.
";
