//! Tests pages and texts of saved runs.

use super::*;
use crate::load::{Failure, Figures, Second};
use crate::results::{About, Sampling, Saving};

/// Saves a run of ten seconds.
fn save(folder: &Path, title: &str, each_second: u64, busiest: f64) {
    let mut figures = Figures {
        statuses: [(200, each_second * 10), (404, 3)].into(),
        failures: [(Failure::Timeout, 2)].into(),
        by_client: vec![each_second * 10 + 3, 0],
        elapsed_ns: 10_000_000_000,
        busiest,
        ..Figures::default()
    };
    for number in 0..10 {
        let mut second = Second { answered: each_second, clients: 2, ..Second::new(number) };
        for answer in 0..each_second {
            let ns = 1_000_000 + answer * 10_000;
            second.response.record(ns);
            figures.times.response.record(ns).unwrap();
            figures.times.service.record(ns).unwrap();
        }
        figures.seconds.push(second);
    }
    let about = About { title: title.into(), ..About::now("bench", "http://a/<i>", &[]) };
    let saving = Saving::begin(folder, &about).unwrap();
    saving.finish(&figures).unwrap();
    let mut sampling = Sampling::begin(folder).unwrap();
    for second in 0..10 {
        let value = ("CPU of the server in %/user".to_owned(), 50.0);
        sampling.sample(f64::from(second), [value].into()).unwrap();
    }
}

fn options(line: &str) -> Options {
    words::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
}

#[test]
fn one_run_is_a_page_that_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), "small <files>", 100, 0.95);
    let said = report(&options(&folder.path().display().to_string())).unwrap();
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(said.ends_with("report.html\n"));
    for plot in [
        "Throughput",
        "Response time by second",
        "Time by percentile",
        "Answers by response time",
        "Answers by status, failures by kind",
        "Answers by client",
        "CPU of the server in %",
    ] {
        assert!(html.contains(&format!("aria-label=\"{plot}\"")), "{plot}");
    }
    assert!(html.contains("The client was the bottleneck") && html.contains("1 of 2 clients"));
    let foreign = ["<script", "href=", "src=", "@import", "url(", "<files>", "NaN"];
    assert!(foreign.iter().all(|text| !html.contains(text)));
    assert!(html.len() < 60_000, "{}", html.len());
}

#[test]
fn text_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), "small", 100, 0.5);
    let text = report(&options(&format!("--text {}", folder.path().display()))).unwrap();
    for line in ["Requests a second", "100", "Answers", "1,003", "200", "1,000", "time-out"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("2 of 1,005 exchanges failed (0.2 %)"), "{text}");
    assert!(!folder.path().join("report.html").exists());
}

#[test]
fn several_runs_have_ratios_to_the_first() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder.path().join("a"), "same", 100, 0.5);
    save(&folder.path().join("b"), "same", 200, 0.5);
    let text = report(&options(&format!("--text {}", folder.path().display()))).unwrap();
    let row = text.lines().find(|line| line.starts_with("Requests a second")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().skip(3).collect();
    assert_eq!(cells, ["100", "200", "2.00"]);
    let heading = text.lines().find(|line| line.trim_start().starts_with("a ")).unwrap();
    assert_eq!(heading.split_whitespace().collect::<Vec<_>>(), ["a", "b", "×"]);
    report(&options(&folder.path().display().to_string())).unwrap();
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("<td>2.00</td>") && html.contains("Time by percentile"));
}

#[test]
fn runs_add_up_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder.path().join("a"), "one", 100, 0.5);
    save(&folder.path().join("b"), "two", 200, 0.5);
    let text = report(&options(&format!("--text --merge {}", folder.path().display()))).unwrap();
    assert!(text.contains("sum of 2 runs") && text.contains("3,006"), "{text}");
}

#[test]
fn what_was_only_watched_has_no_figures_of_a_load() {
    let folder = tempfile::tempdir().unwrap();
    let about = About::now("top", "this machine", &[]);
    let saving = Saving::begin(folder.path(), &about).unwrap();
    saving.finish(&Figures { elapsed_ns: 2_000_000_000, ..Figures::default() }).unwrap();
    let mut sampling = Sampling::begin(folder.path()).unwrap();
    for second in 0..3 {
        sampling.sample(f64::from(second), [("CPU in %/usr".to_owned(), 50.0)].into()).unwrap();
    }
    let shown = folder.path().display().to_string();
    report(&options(&shown)).unwrap();
    let html = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("aria-label=\"CPU in %\"") && !html.contains("Answers"), "{html}");
    let text = report(&options(&format!("--text {shown}"))).unwrap();
    assert!(text.contains("CPU in %/usr: mean 50.00") && !text.contains("Answers"), "{text}");
    assert!(!text.contains("Requests a second"), "{text}");
}

#[test]
fn words_that_make_no_sense_are_told_from_folders_that_hold_nothing() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(run(&words("--colour red")), 2);
    assert_eq!(run(&[]), 2);
    assert_eq!(run(&words("/nowhere/at/all")), 1);
}
