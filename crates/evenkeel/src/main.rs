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
mod lab;
mod limits;
mod logs;
mod serve;
mod server;
mod serving;
mod settings;
mod terminal;
mod vocabulary;

use std::path::Path;

/// What `-v` shows as the time of the build: the version, so that a build can be repeated.
pub const BUILT: &str = concat!("Evenkeel ", env!("CARGO_PKG_VERSION"));

fn main() {
    let mut given = std::env::args_os();
    let name = given.next().unwrap_or_default();
    let given: Vec<_> = given.collect();
    let words: Vec<String> = given.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = Path::new(&name).file_name().unwrap_or(&name).to_string_lossy();
    let rest = words.get(1..).unwrap_or_default();
    let status = match (&*program, words.first().map(String::as_str)) {
        ("httpd" | "apache2", _) => httpd::run(&program, &words),
        (_, Some("serve")) => serve::run(rest),
        (_, Some("explain")) => explain::run(rest),
        (_, Some("limits")) => limits::run(rest),
        (_, Some(word)) if lab::SUBCOMMANDS.contains(&word) => lab::run(&given),
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
  evenkeel [httpd's options]             serve an Apache configuration; -h lists them
  evenkeel explain [URL | PID]           what limits a server now; explain --help
  evenkeel limits [-f FILE]              the pool's directives as a server obeys them
  evenkeel --help | --version

Subcommands of the load lab, which the program evenkeel-lab runs:
  evenkeel bench [OPTIONS] URL           put a load on a server; bench --help
  evenkeel surge make DIR | run URL      the SURGE workload; surge --help
  evenkeel replay [OPTIONS] URL LOG      ask again what access logs say; replay --help
  evenkeel lab EXPERIMENT [options]      measure installed servers beside each other
  evenkeel sim [OPTIONS]                 what a pool of workers does under a load; sim --help
  evenkeel top [OPTIONS]                 what this machine and a server do; top --help
  evenkeel report DIR...                 make a page of saved results of the lab

Called as httpd or apache2 it is httpd's command line alone; evenkeel-lab called as ab is ab's.
";
