//! Judges every configuration of `tests/broken` with Debian's `apache2 -t` and with Evenkeel under
//! the same name. The `.want` file beside it is what apache2 said: it must still say so, and
//! Evenkeel must say the same. Where Evenkeel differs by design, a `.ours` file gives the reason,
//! in lines with `# `, followed by Evenkeel's text. `--write` writes the `.want` files again from
//! the oracle; other arguments choose cases by a part of their name.
#![expect(clippy::print_stdout, reason = "a test program's output is its result")]

use evenkeel_tests::broken::check;
use evenkeel_tests::server::Kind;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of cases that are judged at once.
const AT_ONCE: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let write = arguments.iter().any(|argument| argument == "--write");
    let chosen: Vec<&String> = arguments.iter().filter(|it| !it.starts_with('-')).collect();
    let mut cases = cases();
    cases.retain(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        chosen.is_empty() || chosen.iter().any(|part| name.contains(part.as_str()))
    });
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(path) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let judged = if write { record(path) } else { judge(path) };
                    if let (Err(reason), Ok(mut failed)) = (judged, failed.lock()) {
                        *failed += 1;
                        println!("FAILED {}\n{reason}", path.display());
                    }
                }
            });
        }
    });
    // An empty folder is a fault of the checkout, not a success.
    let failed = failed.into_inner().unwrap_or(cases.len()).max(usize::from(cases.is_empty()));
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {failed} failed", cases.len().saturating_sub(failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The cases, ordered by name.
fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("broken");
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "conf"));
    paths.sort();
    paths
}

fn judge(path: &Path) -> Result<(), String> {
    let want = read(&path.with_extension("want"))?;
    let oracle = said(Kind::Apache, path)?;
    if oracle != want {
        return Err(format!(
            "  apache2 says   {}  the case wants {}",
            indent(&oracle),
            indent(&want)
        ));
    }
    let ours = said(Kind::Evenkeel, path)?;
    let expected = match fs::read_to_string(path.with_extension("ours")) {
        Ok(text) => without_reason(&text),
        Err(_) => want.clone(),
    };
    if ours != expected {
        return Err(format!("  expected {}  came     {}", indent(&expected), indent(&ours)));
    }
    if ours == want && path.with_extension("ours").exists() {
        return Err("  we do not differ, but there is a reason why we should".to_owned());
    }
    Ok(())
}

fn record(path: &Path) -> Result<(), String> {
    let text = said(Kind::Apache, path)?;
    let want = path.with_extension("want");
    fs::write(&want, text).map_err(|error| format!("{}: {error}", want.display()))
}

fn said(kind: Kind, path: &Path) -> Result<String, String> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    check(kind, &name, &read(path)?)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Evenkeel's text, after the lines with the reason.
fn without_reason(text: &str) -> String {
    text.lines().skip_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// The text, with its later lines indented below the first one.
fn indent(text: &str) -> String {
    text.trim_end().replace('\n', "\n           ") + "\n"
}
