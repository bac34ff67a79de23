//! Simulates the pool: Evenkeel's law and Apache's laws under a load, hours of it in a second. The
//! output is what the pool did over time, as text, JSON or a page with plots.

mod configured;
mod cpu;
mod load;
mod many_cores;
mod mishap;
mod options;
mod parent;
mod record;
mod serving;
mod setup;
mod shown;
mod station;
mod world;

#[cfg(test)]
mod contrasts;
#[cfg(test)]
mod tests;

pub use load::Load;
pub use many_cores::{Taking, load_many_cores, load_twelve_workers};
pub use options::command;
pub use parent::Which;
pub use record::{Outcome, Sample};
pub use setup::{Accept, Application, Directives, Mishap, Model, Setup, Wake};

use crate::words::answer;
use options::Refusal;
use std::io::{self, Write as _};

/// Runs `evenkeel sim` and returns its exit status: 0, 1 if the configuration cannot be read or the
/// page cannot be written, 2 for words that make no sense.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let complain = |text: &str, status| {
        let _gone = writeln!(io::stderr().lock(), "evenkeel sim: {text}");
        status
    };
    let say = |text: &str| {
        let mut out = io::stdout().lock();
        // It is not an error if the reader is gone.
        let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        0
    };
    let options = match options::parse(words, &configured::directives) {
        Ok(options) => options,
        Err(Refusal::Words(stop)) => return answer("sim", stop),
        Err(Refusal::Configuration(text)) => return complain(&text, 1),
    };
    let setups = options::setups(&options);
    let runs: Vec<_> = setups
        .into_iter()
        .map(|setup| {
            let outcome = simulate(&setup);
            (setup, outcome)
        })
        .collect();
    if let Some(file) = &options.html
        && let Err(error) = std::fs::write(file, shown::as_page(&runs))
    {
        return complain(&format!("{}: {error}", file.display()), 1);
    }
    say(&if options.json { shown::as_json(&runs) } else { shown::as_text(&runs) })
}

/// Runs a simulation to its end.
#[must_use]
pub fn simulate(setup: &Setup) -> Outcome {
    world::World::new(setup).run()
}
