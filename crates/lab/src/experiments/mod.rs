//! `evenkeel lab NAME`: whole experiments. They start installed servers on this machine from a
//! temporary folder and on loopback addresses, load them in turns, and stop them. The output is a
//! report in HTML and in Markdown with SVG plots, and the results that it was made from.

mod auto;
mod buckets;
mod confine;
mod cpu_wait;
mod explain;
mod greedy;
mod ground;
mod options;
mod overload;
mod paper;
mod peers_beside;
mod pool_watch;
mod ramp;
mod reload;
mod slow_peers;
mod starvation;
mod syscalls;
mod upgrade;

use crate::peers::{self, Peer};
use crate::sim::Model;
use crate::words::answer;
use ground::Ground;
pub use options::command;
use options::{Experiment, Options, parse};
use paper::Paper;
use reload::Part;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Runs an experiment and returns its exit status: 0; 1 if it could not be done or shows what
/// should not be; 2 for words that make no sense; 130 if it was interrupted.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let options = match parse(words) {
        Ok(options) => options,
        Err(stop) => return answer("lab", stop),
    };
    match perform(&options) {
        Ok((out, failure)) => {
            let _gone = writeln!(io::stdout().lock(), "{}", out.join("report.html").display());
            match failure {
                Some(text) => {
                    complain(&text);
                    1
                }
                None => 0,
            }
        }
        Err(Fault::Interrupted) => {
            complain("interrupted: the servers are stopped, nothing is reported");
            130
        }
        Err(Fault::Told(text)) => {
            complain(&text);
            1
        }
    }
}

fn complain(text: &str) {
    let _gone = writeln!(io::stderr().lock(), "evenkeel lab: {text}");
}

/// Why an experiment has no report.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Interrupted,
    Told(String),
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Told(text)
    }
}

/// The folder of the report, and what it shows that should not be.
fn perform(options: &Options) -> Result<(PathBuf, Option<String>), Fault> {
    let name = options.experiment.name();
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from(format!("lab-{name}")));
    let told = |error: io::Error| format!("{}: {error}", out.display());
    if out.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{}: is not empty; name a new folder", out.display()).into());
    }
    let (mut here, mut missing) = peers::installed(&who(options))?;
    if let Some(name) = missing.iter().find(|name| name.starts_with("evenkeel")) {
        return Err(
            format!("{name}: the program evenkeel is neither beside this one nor in PATH").into()
        );
    }
    here.dedup();
    missing.sort_unstable();
    std::fs::create_dir_all(&out).map_err(told)?;
    let mut ground = Ground::prepare(here, missing, &out, options)?;
    let paper: Paper = match options.experiment {
        Experiment::Static => peers_beside::run(&mut ground, options)?,
        Experiment::Greedy => greedy::run(&mut ground, options)?,
        Experiment::Syscalls => syscalls::run(&mut ground, options)?,
        Experiment::Ramp => ramp::run(&mut ground, options)?,
        Experiment::Overload => overload::run(&mut ground, options)?,
        Experiment::Starvation => starvation::run(&mut ground, options)?,
        Experiment::Reload => reload::run(&mut ground, options)?,
        Experiment::Buckets => buckets::run(&mut ground, options)?,
        Experiment::CpuWait => cpu_wait::run(&mut ground, options)?,
        Experiment::Explain => explain::run(&mut ground, options)?,
        Experiment::Auto => auto::run(&mut ground, options)?,
    };
    paper.write(&out)?;
    Ok((out, paper.failure().map(str::to_owned)))
}

/// The process models, in the order of comparison.
const MODELS: [Model; 3] = [Model::Event, Model::Worker, Model::Prefork];

/// The names of the servers that take part, Evenkeel first.
fn who(options: &Options) -> String {
    let others = |usual: String| options.against.clone().unwrap_or(usual);
    match options.experiment {
        Experiment::Static | Experiment::Greedy | Experiment::Syscalls => {
            format!("evenkeel,{}", others(Peer::others()))
        }
        Experiment::Ramp => {
            let models = options.models_or(&[Model::Worker]);
            let apaches = names(models.iter().map(|model| Peer::apache(*model)));
            format!("{},{}", names(models.into_iter().map(Peer::ours)), others(apaches))
        }
        Experiment::Buckets => {
            let models = options.models_or(&[Model::Event, Model::Worker]);
            format!("{},{}", names(models.into_iter().map(Peer::ours)), others(String::new()))
        }
        Experiment::CpuWait => {
            let models = options.models_or(&[Model::Event]);
            let usual = names([Peer::ApachePrefork, Peer::Nginx].into_iter());
            format!("{},{}", names(models.into_iter().map(Peer::ours)), others(usual))
        }
        Experiment::Explain => names(MODELS.into_iter().map(Peer::ours)),
        Experiment::Auto => names(options.models_or(&MODELS).into_iter().map(Peer::ours)),
        Experiment::Reload if options.part == Part::Upgrade => {
            let models = options.models_or(&MODELS);
            format!("{},{}", names(models.into_iter().map(Peer::ours)), others(String::new()))
        }
        Experiment::Overload | Experiment::Starvation | Experiment::Reload => {
            let models = options.models_or(&MODELS);
            let apaches = names(MODELS.into_iter().map(Peer::apache));
            let usual = format!("{apaches},{}", Peer::Nginx.name());
            format!("{},{}", names(models.into_iter().map(Peer::ours)), others(usual))
        }
    }
}

fn names(peers: impl Iterator<Item = Peer>) -> String {
    peers.map(Peer::name).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn words_that_make_no_sense_end_it() {
        assert_eq!(run(&words("nothing")), 2);
        assert_eq!(run(&words("static --against iis")), 1);
    }

    #[test]
    fn models_name_those_that_take_part() {
        let named = |line| who(&parse(&words(line)).unwrap());
        assert_eq!(
            named("ramp --mpm worker,event"),
            "evenkeel-worker,evenkeel,apache2-worker,apache2"
        );
        assert_eq!(named("ramp --against nginx"), "evenkeel-worker,nginx");
        assert_eq!(named("starvation --mpm prefork --against nginx"), "evenkeel-prefork,nginx");
        assert!(named("reload").ends_with(",apache2-prefork,nginx"));
        assert!(named("static").starts_with("evenkeel,apache2,"));
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let line = format!("static -o {}", folder.path().display());
        let fault = perform(&parse(&words(&line)).unwrap()).unwrap_err();
        assert!(matches!(fault, Fault::Told(text) if text.contains("is not empty")));
    }
}
