//! What the command lines of all subcommands have in common. Each subcommand declares its options
//! for clap, and the help texts, the completions and the man pages derive from the same
//! declaration.

use crate::load::{Target, Think, parse_time};
use clap::{Arg, Command, CommandFactory, Parser, error::ErrorKind};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

/// Why the words are not acted upon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Help is requested; this is the text.
    Help(String),
    /// The words make no sense, for this reason.
    Wrong(String),
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let is_asked_for = [
            ErrorKind::DisplayHelp,
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ErrorKind::DisplayVersion,
        ];
        if is_asked_for.contains(&error.kind()) {
            return Self::Help(text);
        }
        // The usage and a hint follow after an empty line; --help shows more.
        let first = text.split("\n\n").next().unwrap_or_default();
        Self::Wrong(first.trim_start_matches("error: ").trim_end().to_owned())
    }
}

/// The most columns of a help text.
const WIDTH: usize = 100;

/// Parses the words after the name of a subcommand.
pub(crate) fn parse<T: Parser>(words: &[String]) -> Result<T, Stop> {
    let command = command::<T>().no_binary_name(true);
    let mut matches = command.try_get_matches_from(words)?;
    Ok(T::from_arg_matches_mut(&mut matches)?)
}

/// The declaration of a subcommand. Of repeated options the last one counts, and a value may begin
/// with a dash.
pub(crate) fn command<T: CommandFactory>() -> Command {
    adjust(T::command())
}

fn adjust(command: Command) -> Command {
    let any_value = |arg: Arg| {
        let takes = arg.get_action().takes_values() && !arg.is_positional();
        if takes { arg.allow_hyphen_values(true) } else { arg }
    };
    let names: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = command.args_override_self(true).max_term_width(WIDTH);
    let command = command.mut_args(any_value);
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, adjust))
}

/// Prints why the words of `evenkeel SUBCOMMAND` are not acted upon, and returns the exit status.
pub(crate) fn answer(subcommand: &str, stop: Stop) -> i32 {
    answer_as(&format!("evenkeel {subcommand}"), stop)
}

/// The same for a command with this name.
pub(crate) fn answer_as(name: &str, stop: Stop) -> i32 {
    match stop {
        Stop::Help(text) => say(text.as_bytes()),
        Stop::Wrong(text) => {
            let mut err = io::stderr().lock();
            let _gone = writeln!(err, "{name}: {text}\n{name} --help shows its options");
            2
        }
    }
}

/// Writes to standard output and returns the exit status of success.
pub(crate) fn say(text: &[u8]) -> i32 {
    let mut out = io::stdout().lock();
    // It is not an error if the reader is gone.
    let _gone = out.write_all(text).and_then(|()| out.flush());
    0
}

/// A complaint about words, with a hint.
pub(crate) fn with_hint(subcommand: &str, text: &str) -> String {
    format!("{text}\nevenkeel {subcommand} --help shows its options")
}

/// Parses a number within bounds.
pub(crate) fn number<N>(
    least: N,
    most: N,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Copy + Display + Send + Sync + 'static,
{
    move |text| {
        let found = text.parse::<N>().ok().filter(|found| *found >= least && *found <= most);
        found.ok_or_else(|| format!("it takes a number from {least} to {most}"))
    }
}

/// Parses a time above zero.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let found = parse_time(text).filter(|seconds| *seconds > 0.0);
    // A year is longer than any run. A float may hold more than the type can.
    let found = found.map(|seconds| Duration::from_secs_f64(seconds.min(31_536_000.0)));
    found.ok_or_else(|| "it takes a time, such as 500ms, 10s or 5m".to_owned())
}

/// Parses pauses.
pub(crate) fn think(text: &str) -> Result<Think, String> {
    Think::parse(text)
}

/// Parses the URL to load.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    Target::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries words.
    #[derive(Debug, PartialEq, Parser)]
    #[command(bin_name = "evenkeel trial")]
    struct Trial {
        /// How many
        #[arg(short, long, value_name = "N", value_parser = number::<u8>(1, 9))]
        number: Option<u8>,
        /// A text
        #[arg(short = 'd', long, value_name = "TEXT")]
        text: Option<String>,
        /// Whether
        #[arg(long)]
        flag: bool,
    }

    fn parsed(line: &str) -> Result<Trial, Stop> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_option_holds_and_values_may_begin_with_a_dash() {
        let text = |text: &str| Some(text.to_owned());
        let wanted = Trial { number: Some(2), text: text("--flag"), flag: true };
        assert_eq!(parsed("-n1 --number 2 --flag --flag -d x -d --flag"), Ok(wanted));
        let wanted = Trial { number: None, text: text(""), flag: false };
        assert_eq!(parsed("--text="), Ok(wanted));
    }

    #[test]
    fn a_word_that_makes_no_sense_is_named() {
        for (line, wanted) in [
            ("-n 0", "invalid value '0' for '--number <N>': it takes a number from 1 to 9"),
            ("-n -5", "invalid value '-5' for '--number <N>': it takes a number from 1 to 9"),
            ("--what", "unexpected argument '--what' found"),
            ("-Q", "unexpected argument '-Q' found"),
            ("stray", "unexpected argument 'stray' found"),
            ("-n", "a value is required for '--number <N>' but none was supplied"),
        ] {
            assert_eq!(parsed(line), Err(Stop::Wrong(wanted.to_owned())), "{line}");
        }
        let Err(Stop::Help(text)) = parsed("--flag -h") else { panic!("no help") };
        assert!(text.contains("Usage: evenkeel trial [OPTIONS]\n"), "{text}");
    }
}
