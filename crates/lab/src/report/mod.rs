//! `evenkeel report`: makes one HTML page of saved results, which needs no network and no script,
//! or text. A single run is shown in full, several are compared with the first, and with `--merge`
//! several count as one: machines that loaded a server together.

mod charts;
mod compare;
mod facts;
pub(crate) mod page;
mod single;
pub(crate) mod text;

pub(crate) use facts::origin;
pub(crate) use text::table as text_table;

use crate::results::{self, Saved};
use crate::sweep::Sweep;
use crate::words;
use clap::Parser;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Makes one page of saved results
#[derive(Debug, Default, PartialEq, Eq, Parser)]
#[command(
    name = "report",
    bin_name = "evenkeel report",
    after_help = "bench, replay, surge and top save results with their options --save and \
                  --record. A DIR is the folder of a run, or of several. Several runs are held \
                  against the first of them."
)]
struct Options {
    /// Folders of results
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Where the page goes (report.html in the first DIR)
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Adds the runs up: several machines that loaded a server together
    #[arg(long)]
    merge: bool,
    /// Writes text to standard output in place of the page
    #[arg(long)]
    text: bool,
    /// What the page is called
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Options>()
}

/// Runs `evenkeel report` and returns its exit status: 0, 1 if results cannot be read or the page
/// cannot be written, 2 for words that make no sense.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let options: Options = match words::parse(words) {
        Ok(options) => options,
        Err(stop) => return words::answer("report", stop),
    };
    match report(&options) {
        Ok(text) => say(&text),
        Err(text) => complain(&text, 1),
    }
}

fn say(text: &str) -> i32 {
    let mut out = io::stdout().lock();
    // It is not an error if the reader is gone.
    let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    0
}

fn complain(text: &str, status: i32) -> i32 {
    let _gone = writeln!(io::stderr().lock(), "evenkeel report: {text}");
    status
}

/// Reads the results, and returns what to print on standard output.
fn report(options: &Options) -> Result<String, String> {
    let mut runs = Vec::new();
    for folder in &options.folders {
        for run in results::find(folder)? {
            runs.push(results::read(&run)?);
        }
    }
    if options.merge {
        runs = results::merge(runs).into_iter().collect();
    }
    let title = options.title.clone().unwrap_or_else(|| title_of(&runs));
    name_apart(&mut runs);
    if options.text {
        return Ok(text::report(&title, &runs));
    }
    let out = match (&options.out, options.folders.first()) {
        (Some(out), _) => out.clone(),
        (None, first) => first.map_or_else(PathBuf::new, |it| it.join("report.html")),
    };
    write_page(&out, &html(&title, &runs))?;
    Ok(format!("{}\n", out.display()))
}

/// The page of runs that have been read.
#[must_use]
pub fn html(title: &str, runs: &[Saved]) -> String {
    match runs {
        [one] => single::page(title, one),
        several => match (Sweep::of(several), several.first()) {
            (Some(sweep), Some(first)) => sweep.html(title, &facts::origin(first)),
            _ => compare::page(title, several),
        },
    }
}

/// Writes a page or a plot.
pub(crate) fn write_page(out: &Path, text: &str) -> Result<(), String> {
    std::fs::write(out, text).map_err(|error| format!("{}: {error}", out.display()))
}

fn title_of(runs: &[Saved]) -> String {
    match runs {
        [] => "No run".to_owned(),
        [one] => format!("{} {}", one.about.command, one.about.title),
        [first, ..] if Sweep::of(runs).is_some() => {
            format!(
                "{} {}, {} pairs of a sweep",
                first.about.command,
                first.about.target,
                runs.len()
            )
        }
        several => format!("{} runs beside each other", several.len()),
    }
}

/// Makes runs with the same title distinguishable by their folders.
fn name_apart(runs: &mut [Saved]) {
    let titles: Vec<String> = runs.iter().map(|run| run.about.title.clone()).collect();
    for run in runs {
        let same = titles.iter().filter(|title| **title == run.about.title).count();
        if same > 1
            && let Some(name) = run.folder.file_name()
        {
            run.about.title = name.to_string_lossy().into_owned();
        }
    }
}

#[cfg(test)]
mod tests;
