//! Compares the messages for broken configurations with those of `apache2 -t`. Every
//! tests/broken/NN-name.conf is read and applied with a small table of directives; NN-name.want
//! beside it holds the text that tests/oracle took from Debian's apache2.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod stub;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_config::{Faults, Main, Start, Variables, apply, read};

/// The additions of the command line: the `-C` lines of the prelude and the arguments of the case.
fn start(dir: &Path, conf: &Path, text: &str) -> Start {
    let lines = fs::read_to_string(dir.join("prelude")).unwrap();
    let mut before: Vec<String> = lines.lines().map(str::to_owned).collect();
    let (mut after, mut names) = (Vec::new(), Vec::new());
    for argument in text.lines().filter_map(|line| line.strip_prefix("# args: ")) {
        let (option, value) = argument.split_once(' ').unwrap();
        let list = match option {
            "-C" => &mut before,
            "-c" => &mut after,
            "-D" => &mut names,
            _ => panic!("{option}"),
        };
        list.push(value.to_owned());
    }
    let main = Main::File { path: conf.to_str().unwrap().to_owned(), default: false };
    let variables = Variables::new(names, []);
    Start { server_root: dir.to_str().unwrap().to_owned(), main, before, after, variables }
}

/// What a server would print on standard error.
fn check(dir: &Path, conf: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(conf).unwrap()).into_owned();
    let mut words = stub::Words::default();
    let mut notices = Vec::new();
    let result = read(start(dir, conf, &text), &mut words, &mut notices, &mut Vec::new())
        .map_err(Faults::from)
        .and_then(|tree| match tree.refused.is_empty() {
            true => apply(&words.tables(), &tree.nodes, &mut stub::Nothing, &mut notices),
            false => Err(tree.refused),
        });
    let mut out = String::new();
    for notice in notices.iter().filter(|notice| notice.number.is_some()) {
        writeln!(out, "[{}:warn] {notice}", notice.module).unwrap();
    }
    match result {
        Ok(()) => out.push_str("Syntax OK\n"),
        // Apache stops at the first fault.
        Err(faults) => writeln!(out, "{}", faults.kept().first().unwrap()).unwrap(),
    }
    out.replace(dir.to_str().unwrap(), "@DIR@")
}

#[test]
fn every_broken_configuration_is_refused_as_by_apache() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|end| end == "conf"));
    cases.sort();
    assert!(cases.len() >= 100, "only {} cases", cases.len());
    let mut failures = String::new();
    for conf in &cases {
        let want = fs::read_to_string(conf.with_extension("want")).unwrap();
        let found = check(&dir, conf);
        if found != want {
            let name = conf.file_name().unwrap().display();
            write!(failures, "{name}\n  apache2: {want}  ours:    {found}").unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
}
