//! Runs whole experiments of the lab in their smallest form: servers are started, loaded and
//! stopped, and the reports name them. Figures are not checked.

use evenkeel_tests::server::evenkeel;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `evenkeel lab` with these words and an output folder, and returns that folder.
fn lab(words: &str) -> Result<tempfile::TempDir, String> {
    lab_with(words, &[0])
}

/// The same, where the exit status may be one of these, because figures from very short turns may
/// look wrong.
fn lab_with(words: &str, statuses: &[i32]) -> Result<tempfile::TempDir, String> {
    let told = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(told)?;
    let mut command = Command::new(evenkeel());
    command.arg("lab").args(words.split(' ')).arg("-o").arg(folder.path().join("out"));
    let output = command.stdin(Stdio::null()).output().map_err(told)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let is_well = output.status.code().is_some_and(|status| statuses.contains(&status));
    match is_well && said.ends_with("out/report.html\n") {
        true => Ok(folder),
        false => Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A file of the output; empty if it does not exist.
fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join("out").join(name)).unwrap_or_default()
}

/// The names in the first column of a report's tables.
fn measured(markdown: &str) -> Vec<&str> {
    let rows = markdown.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let mut names: Vec<&str> = rows.filter(|name| *name != "server").collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn static_files_beside_a_peer() {
    let folder = lab("static --against nginx --rounds 1 --seconds 400ms").unwrap();
    let markdown = read(folder.path(), "README.md");
    assert!(markdown.contains("## Where Evenkeel does worse"));
    assert_eq!(measured(&markdown), ["evenkeel", "nginx"]);
    for scenario in ["small", "unchanged", "connections", "medium", "large", "huge"] {
        assert!(read(folder.path(), &format!("{scenario}-rate.svg")).contains(">nginx</text>"));
        let run = format!("runs/{scenario}/evenkeel-1/figures.json");
        let figures = read(folder.path(), &run);
        assert!(figures.contains("\"failed\": 0") && !figures.contains("\"answered\": 0"), "{run}");
        let status = if scenario == "unchanged" { "\"304\":" } else { "\"200\":" };
        assert!(figures.contains(status), "{figures}");
    }
    // An experiment saves what a report can read.
    let runs = folder.path().join("out/runs/small");
    let report = Command::new(evenkeel()).arg("report").arg("--text").arg(runs).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(text.contains("evenkeel /1k.html") && text.contains("nginx /1k.html"), "{text}");
}

#[test]
fn greedy_clients_beside_paused_ones() {
    let words = "greedy --against nginx --rounds 1 --seconds 50ms --clients 1,2 --think 0,1us \
                 --long 50ms";
    let folder = lab(words).unwrap();
    let markdown = read(folder.path(), "README.md");
    assert!(markdown.contains("| evenkeel | ") && markdown.contains("| nginx | "), "{markdown}");
    assert!(read(folder.path(), "surface-evenkeel.svg").contains("pause \\ clients"));
    let html = read(folder.path(), "report.html");
    assert!(html.contains("Greedy clients over time") && !html.contains("<script"));
    assert!(folder.path().join("out/runs/nginx/round-1").read_dir().unwrap().count() == 4);
}

#[test]
fn system_calls_are_counted() {
    let are_counted = |seconds: &&str| {
        let folder =
            lab(&format!("syscalls --against nginx --rounds 1 --seconds {seconds}")).unwrap();
        let markdown = read(folder.path(), "README.md");
        assert_eq!(measured(&markdown), ["evenkeel", "nginx"]);
        assert!(markdown.contains("A request on a connection of one request"));
        let row = markdown.lines().find(|line| line.starts_with("| evenkeel | ")).unwrap();
        let cells: Vec<&str> = row.split(" | ").collect();
        cells[1] != "0" && cells[2].parse::<f64>().unwrap() >= 1.0
    };
    // A traced server on a busy machine may answer nothing in a short time.
    assert!(["100ms", "1s", "10s"].iter().any(are_counted));
}

#[test]
fn a_pool_grows_under_the_load_of_2002() {
    let words = "ramp --against apache2-worker --seconds 1500ms --clients 40 --start-delay 100ms";
    let folder = lab(words).unwrap();
    let markdown = read(folder.path(), "README.md");
    let rows = ["| evenkeel-worker | ", "| apache2-worker | ", "| 2002 | ", "| 2.4 | "];
    assert!(rows.iter().all(|row| markdown.contains(row)), "{markdown}");
    assert!(read(folder.path(), "workers-evenkeel-worker.svg").contains(">accept queue</text>"));
    let series = read(folder.path(), "runs/ramp/apache2-worker/series.jsonl");
    assert!(series.contains("Children/children") && series.contains("Workers/busy"), "{series}");
    let figures = read(folder.path(), "runs/ramp/evenkeel-worker/figures.json");
    assert!(figures.contains("\"failed\": 0") && !figures.contains("\"answered\": 0"), "{figures}");
}

#[test]
fn servers_are_overloaded() {
    let words = "overload --against nginx --mpm event --seconds 100ms --levels 1,2 --workers 4 \
                 --wait 5ms --burn 1ms";
    let folder = lab(words).unwrap();
    let markdown = read(folder.path(), "README.md");
    assert_eq!(measured(&markdown), ["evenkeel", "nginx"]);
    assert!(markdown.contains("| evenkeel | 2× | 8 | "), "{markdown}");
    assert!(read(folder.path(), "burn-rate.svg").contains(">nginx</text>"));
    let step = lab("overload --step --against nginx --mpm event --seconds 1200ms --clients 9");
    let markdown = read(step.unwrap().path(), "README.md");
    assert!(markdown.contains("children started") && markdown.contains("| nginx | "), "{markdown}");
}

#[test]
fn greedy_clients_share_the_workers() {
    let words = "starvation --against nginx --mpm event --seconds 200ms --workers 2 --clients 3,8 \
                 --wait 5ms";
    let folder = lab(words).unwrap();
    let markdown = read(folder.path(), "README.md");
    for row in ["| evenkeel | 3 | ", "| evenkeel | 8 | ", "| nginx | 8 | "] {
        assert!(markdown.contains(row), "{markdown}");
    }
    assert!(markdown.contains("## Where Evenkeel does worse"));
}

#[test]
fn reloads_and_deaths_are_counted() {
    for (words, changes) in [
        ("reload --against nginx --mpm event --reloads 2", "2"),
        ("reload --kill --against nginx --mpm event --reloads 1", "1"),
        ("reload --buckets --against nginx --mpm event --reloads 3", "3"),
    ] {
        let folder = lab(words).unwrap();
        let markdown = read(folder.path(), "README.md");
        for peer in ["evenkeel", "nginx"] {
            assert!(markdown.contains(&format!("| {peer} | {changes} | ")), "{words}: {markdown}");
        }
    }
    let upgrade = lab("reload --upgrade --mpm event --reloads 2").unwrap();
    assert!(read(upgrade.path(), "README.md").contains("| evenkeel | 2 | "));
    let words = "reload --slow --against nginx --mpm event --seconds 300ms --clients 20";
    let markdown = read(lab(words).unwrap().path(), "README.md");
    for row in ["| evenkeel | heads | ", "| evenkeel | bodies | ", "| nginx | reading | "] {
        assert!(markdown.contains(row), "{markdown}");
    }
}

#[test]
fn queues_are_compared() {
    let folder = lab("buckets --mpm event --seconds 100ms --burn 1ms").unwrap();
    let markdown = read(folder.path(), "README.md");
    let row = "| evenkeel | one a core | 1 KiB, 64 clients, kept | ";
    assert!(markdown.contains(row), "{markdown}");
    assert!(markdown.contains("\n| 128 | ") && markdown.contains("\n| 12 | "), "{markdown}");
}

#[test]
fn pages_burn_and_wait() {
    // With php-fpm if it is installed, or without it.
    let words = "cpu-wait --clients 2,5 --workers 4 --burn 2ms --wait 10ms --seconds";
    let all_answer = |seconds: &&str| {
        let folder = lab(&format!("{words} {seconds}")).unwrap();
        let markdown = read(folder.path(), "README.md");
        let answers = |peer: &&str| {
            for row in ["burn | 2", "burn | 5", "wait | 5"] {
                assert!(markdown.contains(&format!("| {peer} | {row} | ")), "{markdown}");
            }
            let figures = read(folder.path(), &format!("runs/{peer}-wait/5/figures.json"));
            figures.contains("\"200\":")
        };
        ["evenkeel", "apache2-prefork", "nginx"].iter().all(answers)
    };
    // On a busy machine a server may answer nothing in a short time.
    assert!(["200ms", "2s", "10s"].iter().any(all_answer));
}

#[test]
fn limits_are_staged_and_explained() {
    let words = "explain --only idle,workers-prefork,application,backlog --seconds 200ms";
    let folder = lab_with(words, &[0, 1]).unwrap();
    let markdown = read(folder.path(), "README.md");
    assert!(markdown.contains("## What it gets wrong"), "{markdown}");
    for row in
        ["| idle | none | ", "| workers-prefork | workers | ", "| application | ", "| backlog"]
    {
        assert!(markdown.contains(row), "{row}: {markdown}");
    }
    assert!(lab("explain --only idle --seconds 10ms").is_err(), "it names nothing so soon");
}

#[test]
fn a_number_that_moves_by_itself_stands_beside_a_sweep() {
    let words = "auto --mpm event --seconds 100ms --sweep 4 --clients 8 --burn 1ms --wait 5ms";
    let folder = lab_with(words, &[0, 1]).unwrap();
    let markdown = read(folder.path(), "README.md");
    for work in ["burn", "wait", "mixed", "gate"] {
        assert!(markdown.contains(&format!("| evenkeel | {work} | ")), "{work}: {markdown}");
    }
    assert!(read(folder.path(), "sweep-wait.svg").contains(">evenkeel auto</text>"));
    assert!(read(folder.path(), "bound-gate.svg").contains("gate: the number of workers"));
}

#[test]
fn an_interrupted_experiment_stops_its_servers() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut command = Command::new(evenkeel());
    command.args("lab static --against nginx --seconds 30s -o".split(' ')).arg(&out);
    command.env("TMPDIR", folder.path()).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // The first run has begun when its folder exists; the servers are running then.
    let begun = Instant::now();
    while !out.join("runs/small/evenkeel-1/run.json").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the first run did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let servers: Vec<u32> = children_of(child.id());
    assert_eq!(servers.len(), 2);
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    for pid in servers {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "server {pid} still runs");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left, [out]);
}

fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let words = texts.flat_map(|text| {
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    words.collect()
}
