//! `evenkeel-lab` under its own name: the list of its subcommands, its help and its completions.

use crate::words::{self, Stop, answer};
use crate::{bench, experiments, explain, replay, report, sim, surge, top};
use clap::{Command, CommandFactory as _, Parser};
use clap_complete::Shell;

/// A subcommand: its declaration, and the function that runs it and returns the exit status.
type Subcommand = (fn() -> Command, fn(&[String]) -> i32);

const SUBCOMMANDS: [Subcommand; 9] = [
    (bench::command, bench::run),
    (surge::command, surge::run),
    (replay::command, replay::run),
    (experiments::command, experiments::run),
    (sim::command, sim::run),
    (top::command, top::run),
    (report::command, report::run),
    (explain::command, explain::run),
    (words::command::<Completions>, complete),
];

/// The load lab of Evenkeel: puts a load on a web server and tells what it bears
#[derive(Debug, Parser)]
#[command(
    name = "evenkeel-lab",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "`evenkeel bench` and so on run it with the same words. Called as ab it is ab's \
                  command line."
)]
struct Words {}

/// Writes the completions for a shell to standard output
#[derive(Debug, Parser)]
#[command(name = "completions", bin_name = "evenkeel-lab completions")]
struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The declaration of the whole command line.
#[must_use]
pub fn command() -> Command {
    SUBCOMMANDS.iter().fold(Words::command(), |whole, (command, _)| whole.subcommand(command()))
}

/// Runs the named subcommand and returns its exit status; 2 if the words name none.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let named = words.split_first().and_then(|(first, rest)| {
        let found = SUBCOMMANDS.iter().find(|(command, _)| command().get_name() == first);
        found.map(|(_, run)| run(rest))
    });
    named.unwrap_or_else(|| {
        let parsed = command().no_binary_name(true).try_get_matches_from(words);
        parsed.map_or_else(|error| words::answer_as("evenkeel-lab", Stop::from(error)), |_| 0)
    })
}

fn complete(words: &[String]) -> i32 {
    match words::parse::<Completions>(words) {
        Ok(Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command(), "evenkeel-lab", &mut text);
            words::say(&text)
        }
        Err(stop) => answer("completions", stop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_holds() {
        command().debug_assert();
        for (command, _) in SUBCOMMANDS {
            command().debug_assert();
        }
    }
}
