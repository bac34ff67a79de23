//! The benchmarks: measure the scenarios and contenders on the command line, and print a table in
//! Markdown with ratios to the ceiling and to the peers. All servers run on this machine, on
//! loopback addresses and from a temporary folder; nothing else is changed.

mod application;
mod ceiling;
mod contender;
mod count;
mod idle;
mod load;
mod memory;
mod passwords;
mod plan;
mod scenario;
mod spread;
mod table;

use plan::Plan;
use std::io::Write as _;
use std::process::ExitCode;

/// The result of a step of a benchmark, or why it failed, in one sentence.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first == "ceiling" => ceiling::serve(rest),
        Some((first, rest)) if first == "count" => count::run(rest),
        _ => measure(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "bench: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what the command line requests, and writes the tables.
fn measure(arguments: &[String]) -> Result<()> {
    let plan = Plan::parse(arguments)?;
    let mut page = table::heading(&plan, arguments);
    for scenario in &plan.scenarios {
        let section = scenario::run(scenario, &plan)?;
        let _ = writeln!(std::io::stderr(), "{section}");
        page.push('\n');
        page.push_str(&section);
    }
    match &plan.out {
        Some(file) => {
            let told = |error| format!("{}: {error}", file.display());
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder).map_err(told)?;
            }
            std::fs::write(file, page).map_err(told)
        }
        None => std::io::stdout().write_all(page.as_bytes()).map_err(|error| error.to_string()),
    }
}
