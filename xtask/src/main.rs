//! The tasks of the repository. `cargo xtask tidy` reads the sources and `cargo metadata` and
//! prints every departure from the rules of ARCHITECTURE.md and CONTRIBUTING.md, one in each line.
//! `cargo xtask manual` writes the pages of docs/manual, `cargo xtask man` those of docs/man, and
//! `cargo xtask attack` runs the differential attack of `tests`. No other file is changed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's output is its result")]

mod documents;
mod man;
mod manifest;
mod manual;
mod pages;
mod rooms;
mod sources;

use pages::Pages;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    match task.as_str() {
        "manual" => write(Ok(manual::manual())),
        "man" => write(man::man()),
        "tidy" => show_departures(),
        "attack" => attack(),
        _ => {
            eprintln!("usage: cargo xtask manual|man|tidy|attack");
            ExitCode::from(2)
        }
    }
}

fn write(pages: Result<Pages, String>) -> ExitCode {
    match pages.and_then(|pages| Ok((pages.write(&root())?, pages.folder))) {
        Ok((count, folder)) => {
            println!("{count} pages in {folder}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the server and the attack, and runs the attack with the words that follow.
fn attack() -> ExitCode {
    match build_and_attack() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("attack: {reason}");
            ExitCode::from(2)
        }
    }
}

fn build_and_attack() -> Result<bool, String> {
    // Builds the whole workspace, because selecting some of its packages would build their crates
    // again.
    let words = ["build", "--quiet", "--workspace", "--bins"];
    run(&root(), "cargo", &words)?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name("attack");
    let status = Command::new(&program).args(std::env::args().skip(2)).status();
    status.map(|status| status.success()).map_err(|error| format!("{}: {error}", program.display()))
}

fn show_departures() -> ExitCode {
    match tidy(&root()) {
        Ok(faults) if faults.is_empty() => {
            println!("tidy: nothing to say");
            ExitCode::SUCCESS
        }
        Ok(faults) => {
            for fault in &faults {
                println!("{fault}");
            }
            println!("tidy: {} departures", faults.len());
            ExitCode::FAILURE
        }
        Err(reason) => {
            eprintln!("tidy: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Every departure from the rules, in the order of the checks. It is an error if the repository
/// itself cannot be read.
fn tidy(root: &Path) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    let table = rooms::parse(&read(&root.join("ARCHITECTURE.md"))?);
    let metadata = run(root, "cargo", &["metadata", "--format-version=1", "--no-deps"])?;
    rooms::check(&table, &rooms::crates(&metadata)?, &mut faults);
    manual::manual().check(root, &mut faults);
    man::man()?.check(root, &mut faults);
    manifest::check(&read(&root.join("Cargo.toml"))?, &mut faults);
    let listed = run(root, "git", &["ls-files", "-co", "--exclude-standard"])?;
    // A deleted file that is not yet committed is still listed.
    let files: Vec<&str> = listed.lines().filter(|path| root.join(path).exists()).collect();
    check_format(root, &files, &mut faults)?;
    for path in files.iter().copied() {
        if let Ok(bytes) = std::fs::read(root.join(path)) {
            let text = String::from_utf8_lossy(&bytes);
            sources::check(path, &text, &mut faults);
            documents::check(path, &text, &files, &mut faults);
        }
    }
    Ok(faults)
}

/// Adds the files that rustfmt would change and `cargo fmt` does not find, because a macro such as
/// `modules!` makes their `mod`s.
fn check_format(root: &Path, files: &[&str], faults: &mut Vec<String>) -> Result<(), String> {
    let hidden = |path: &&&str| path.starts_with("crates/modules/src/") && path.ends_with(".rs");
    let output = Command::new("rustfmt")
        .args(["--check", "--files-with-diff"])
        .args(files.iter().filter(hidden))
        .current_dir(root)
        .output()
        .map_err(|error| format!("rustfmt: {error}"))?;
    let unlike = String::from_utf8_lossy(&output.stdout).into_owned();
    let before = faults.len();
    faults.extend(unlike.lines().map(|path| format!("{path}: `rustfmt {path}` would change it")));
    if output.status.success() || faults.len() > before {
        return Ok(());
    }
    Err(format!("rustfmt: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The root of the repository: the folder above this package.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The standard output of a command. It is an error if the command cannot run or fails.
fn run(root: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {}: {text}", arguments.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
