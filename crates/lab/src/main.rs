//! The command line of the load lab. Called as ab it is ab's; under its own name it has the
//! subcommands that `evenkeel` passes on to it.

use evenkeel_lab::{ab, bench, experiments, explain, replay, report, sim, surge, top};
use std::io::Write as _;
use std::path::Path;

fn main() {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let name = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    if Path::new(&name).file_name().is_some_and(|name| name == "ab") {
        std::process::exit(ab::run(&words));
    }
    let rest = words.get(1..).unwrap_or_default();
    let status = match words.first().map_or("--help", String::as_str) {
        "bench" => bench::run(rest),
        "replay" => replay::run(rest),
        "surge" => surge::run(rest),
        "top" => top::run(rest),
        "sim" => sim::run(rest),
        "report" => report::run(rest),
        "lab" => experiments::run(rest),
        "explain" => explain::run(rest),
        "--version" => say(concat!("evenkeel-lab ", env!("CARGO_PKG_VERSION"), "\n")),
        "-h" | "--help" | "help" => say(HELP),
        word => {
            let text = format!("evenkeel-lab: there is no subcommand {word}\n{HELP}");
            let _gone = std::io::stderr().lock().write_all(text.as_bytes());
            2
        }
    };
    std::process::exit(status);
}

fn say(text: &str) -> i32 {
    let mut out = std::io::stdout().lock();
    // A reader that went away has what it wanted.
    let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    0
}

const HELP: &str = "\
evenkeel-lab: the load lab of Evenkeel, which puts a load on a web server and tells what it bears

Usage:
  evenkeel-lab bench [OPTIONS] URL           put a load on a server; bench --help
  evenkeel-lab surge make DIR | run URL      the SURGE workload; surge --help
  evenkeel-lab replay [OPTIONS] URL LOG      ask again what access logs say; replay --help
  evenkeel-lab lab EXPERIMENT [options]      measure installed servers beside each other
  evenkeel-lab sim [OPTIONS]                 what a pool of workers does under a load; sim --help
  evenkeel-lab top [OPTIONS]                 what this machine and a server do; top --help
  evenkeel-lab report DIR...                 make a page of saved results
  evenkeel-lab explain URL                   what limits the server with this status page
  evenkeel-lab --help | --version

`evenkeel bench` and so on run it with the same words. Called as ab it is ab's command line.
";
