//! Plays every script of `tests/wire` to Debian's apache2 and to Evenkeel and prints the
//! differences, and then one result line in the form of Rust's test programs. With `--oracle` it
//! plays them only to apache2 and, if scripts are chosen, shows its responses. Arguments choose
//! scripts by a part of their name, and `event`, `worker` or `prefork` choose the process model;
//! otherwise scripts are played under all three.
#![expect(clippy::print_stdout, reason = "a test program's output is its result")]

use evenkeel_tests::play::{Cast, Verdict, play, whole};
use evenkeel_tests::script::{Script, parse};
use evenkeel_tests::server::Kind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The process models. The first one is the default.
const MODELS: [&str; 3] = ["event", "worker", "prefork"];

/// The number of scripts that are played at once. The servers mostly wait for the runner.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let oracle = arguments.iter().any(|argument| argument == "--oracle");
    let named: Vec<&str> =
        MODELS.into_iter().filter(|model| arguments.iter().any(|it| it == model)).collect();
    let is_choice = |it: &&String| !it.starts_with('-') && !MODELS.contains(&it.as_str());
    let chosen: Vec<&String> = arguments.iter().filter(is_choice).collect();
    let cast = if oracle { Cast::Oracle } else { Cast::Both(Kind::Evenkeel, "") };
    let scripts = match read(Path::new(env!("CARGO_MANIFEST_DIR")), &named) {
        Ok(scripts) => scripts,
        Err(reason) => {
            println!("{reason}\ntest result: FAILED. 0 passed; 1 failed");
            return ExitCode::FAILURE;
        }
    };
    let wanted = |script: &Script| {
        chosen.is_empty() || chosen.iter().any(|part| script.name.contains(part.as_str()))
    };
    let scripts: Vec<Script> = scripts.into_iter().filter(wanted).collect();
    let show_answers = oracle && !chosen.is_empty();
    let totals = play_all(&scripts, cast, show_answers);
    println!("{} scripts, {} known differences", scripts.len(), totals.differing);
    let word = if totals.failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {} failed", totals.passed, totals.failed);
    if totals.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The scripts ordered by name, each with its process models.
fn read(package: &Path, named: &[&str]) -> Result<Vec<Script>, String> {
    let folder = package.join("wire");
    let entries = std::fs::read_dir(&folder).map_err(|it| format!("{}: {it}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "wire"));
    paths.sort();
    let mut scripts = Vec::new();
    for path in paths {
        let text =
            std::fs::read_to_string(&path).map_err(|it| format!("{}: {it}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        for model in MODELS {
            if named.is_empty() || named.contains(&model) {
                scripts.push(Script { model, ..parse(&name, &text)? });
            }
        }
    }
    Ok(scripts)
}

#[derive(Default)]
struct Totals {
    passed: usize,
    failed: usize,
    differing: usize,
}

fn play_all(scripts: &[Script], cast: Cast, show_answers: bool) -> Totals {
    let next = AtomicUsize::new(0);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = play(script, cast);
                    // Reports are printed as a whole, under the lock.
                    if let Ok(mut totals) = totals.lock() {
                        report(script, played, show_answers, &mut totals);
                    }
                }
            });
        }
    });
    totals.into_inner().unwrap_or_default()
}

fn report(
    script: &Script,
    played: Result<Vec<Verdict>, String>,
    show_answers: bool,
    totals: &mut Totals,
) {
    let verdicts = match played {
        Ok(verdicts) => verdicts,
        Err(reason) => {
            // Nothing of the script could be judged, so each of its exchanges has failed.
            totals.failed += script.exchanges.len().max(1);
            println!("FAILED {} ({}): {reason}", script.name, script.model);
            return;
        }
    };
    let failed = verdicts.iter().filter(|verdict| !verdict.differences.is_empty()).count();
    totals.failed += failed;
    totals.passed += verdicts.len() - failed;
    totals.differing += verdicts.iter().filter(|verdict| verdict.differs).count();
    println!(
        "{}: {} of {} well. {}",
        script.name,
        verdicts.len() - failed,
        verdicts.len(),
        script.what
    );
    for verdict in &verdicts {
        if show_answers {
            println!("--- {}\n{}", verdict.title, whole(&verdict.oracle));
        }
        if !verdict.differences.is_empty() {
            println!("FAILED {} ({})", verdict.title, script.model);
        }
        for difference in &verdict.differences {
            println!("  {}", difference.replace('\n', "\n  "));
        }
    }
}
