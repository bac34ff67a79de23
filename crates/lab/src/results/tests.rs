//! Saves runs, reads them back, cuts them short and adds them.

use super::*;
use crate::load::{Failure, Figures, Second};
use std::fs;
use std::path::Path;

const SECOND_NS: u64 = 1_000_000_000;

/// Three seconds of answers, with a failure.
fn figures() -> Figures {
    let mut figures = Figures {
        statuses: [(200, 5), (404, 1)].into(),
        failures: [(Failure::Reset, 1)].into(),
        by_client: vec![4, 2, 0],
        elapsed_ns: 3 * SECOND_NS,
        read_bytes: 600,
        busiest: 0.5,
        ..Figures::default()
    };
    for number in 0..3 {
        let mut second = Second { answered: 2, read_bytes: 200, clients: 3, ..Second::new(number) };
        for value in [1_000_000, 250_000_000] {
            figures.times.response.record(value + u64::from(number)).unwrap();
            figures.times.service.record(value).unwrap();
            second.response.record(value);
        }
        figures.seconds.push(second);
    }
    figures
}

fn about(started_us: u64) -> About {
    About { started_us, ..About::now("bench", "http://127.0.0.1:1/", &[]).with("clients", 3) }
}

fn save(folder: &Path, started_us: u64) {
    let figures = figures();
    let mut saving = Saving::begin(folder, &about(started_us)).unwrap();
    saving.add(&figures.seconds).unwrap();
    saving.finish(&figures).unwrap();
}

fn numbers(figures: &Figures) -> Vec<(u32, u64, u64)> {
    let numbers = figures.seconds.iter();
    numbers.map(|it| (it.number, it.answered, it.response.len())).collect()
}

#[test]
fn a_run_is_read_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    save(&run, 5);
    let saved = read(&run).unwrap();
    let (own, read) = (figures(), &saved.figures);
    assert!(saved.whole && saved.about == about(5));
    assert_eq!(read.times.response, own.times.response);
    assert_eq!(read.times.service, own.times.service);
    assert!(read.times.connect.is_empty());
    assert_eq!((&read.statuses, &read.failures), (&own.statuses, &own.failures));
    assert_eq!((read.fairness(), read.elapsed_ns), (own.fairness(), own.elapsed_ns));
    assert_eq!(numbers(read), [(0, 2, 2), (1, 2, 2), (2, 2, 2)]);
    assert!((read.busiest - 0.5).abs() < 1e-9);
    let again = Saving::begin(&run, &about(5)).err().unwrap();
    assert!(again.contains("holds another run"), "{again}");
}

#[test]
fn what_a_run_that_is_cut_short_had_written_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut saving = Saving::begin(folder.path(), &about(5)).unwrap();
    let seconds = figures().seconds;
    // Two threads report the same second; the third second may not be over.
    saving.add(&[seconds[0].clone(), seconds[1].clone()]).unwrap();
    saving.add(&[seconds[0].clone(), seconds[2].clone()]).unwrap();
    let saved = read(folder.path()).unwrap();
    assert!(!saved.whole);
    assert_eq!(numbers(&saved.figures), [(0, 4, 4)]);
    assert_eq!((saved.figures.times.response.len(), saved.figures.elapsed_ns), (4, SECOND_NS));
    let path = folder.path().join(SECONDS);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"second\":1,\"ans")).unwrap();
    assert_eq!(numbers(&read(folder.path()).unwrap().figures), [(0, 4, 4)]);
}

#[test]
fn runs_of_several_machines_add_up_on_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder.path().join("a"), 10_000_000);
    save(&folder.path().join("jobs/b"), 11_100_000);
    let found = find(folder.path()).unwrap();
    assert_eq!(found, [folder.path().join("a"), folder.path().join("jobs/b")]);
    let runs = found.iter().map(|folder| read(folder).unwrap()).collect();
    let sum = merge(runs).unwrap();
    assert_eq!((sum.parts, sum.figures.answered(), sum.figures.failed()), (2, 12, 2));
    assert_eq!(numbers(&sum.figures), [(0, 2, 2), (1, 4, 4), (2, 4, 4), (3, 2, 2)]);
    assert_eq!(sum.figures.elapsed_ns, 4_100_000_000);
    assert_eq!(sum.figures.times.response.len(), 12);
    assert_eq!(sum.figures.fairness().never, 2);
}

#[test]
fn runs_at_different_times_are_laid_over_each_other() {
    let folder = tempfile::tempdir().unwrap();
    save(&folder.path().join("a"), 10_000_000);
    save(&folder.path().join("b"), 60_000_000);
    let runs = find(folder.path()).unwrap();
    let sum = merge(runs.iter().map(|folder| read(folder).unwrap()).collect()).unwrap();
    assert_eq!(numbers(&sum.figures), [(0, 4, 4), (1, 4, 4), (2, 4, 4)]);
    assert_eq!(sum.figures.elapsed_ns, 3 * SECOND_NS);
}

#[test]
fn what_is_no_run_is_told_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = find(folder.path()).unwrap_err();
    assert!(error.ends_with("no saved run (there is no run.json)"), "{error}");
    save(folder.path(), 5);
    fs::write(folder.path().join("response.hlog"), "0.0,1.0,1.0,AAAA\n").unwrap();
    let error = read(folder.path()).unwrap_err();
    assert!(error.contains("response.hlog: interval 1"), "{error}");
    fs::write(folder.path().join(RUN), "{").unwrap();
    let error = read(folder.path()).unwrap_err();
    assert!(error.contains("run.json: EOF"), "{error}");
}
