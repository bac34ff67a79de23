//! The entry point of the load lab. Called as ab, its command line is ab's; under its own name it
//! has the subcommands that `evenkeel` passes to it.

use std::path::Path;

fn main() {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let name = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let is_ab = Path::new(&name).file_name().is_some_and(|name| name == "ab");
    let run = if is_ab { evenkeel_lab::ab::run } else { evenkeel_lab::program::run };
    std::process::exit(run(&words));
}
