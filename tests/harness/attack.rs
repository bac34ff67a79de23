//! Tests the differential attack: it finds a difference that was made on purpose, and shrinks it.

#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::attack::accepted;
use evenkeel_tests::attack::client::Client;
use evenkeel_tests::attack::compose::Mix;
use evenkeel_tests::attack::judge::{Class, Difference};
use evenkeel_tests::attack::pair::Pair;
use evenkeel_tests::attack::run::{Plan, Totals, run};
use evenkeel_tests::attack::site::{Entry, Kind as Entries, Node, Site};
use evenkeel_tests::house::{children_of, send, wait_for};
use evenkeel_tests::server::Kind;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The plan of the tests. The seed is fixed here, so that changing another one does not affect it.
fn plan(seed: u64, sites: u64, cases: usize) -> Plan {
    let (classes, accepted) = (Vec::new(), Vec::new());
    Plan { seed, mix: Mix::All, from: 0, sites, cases, classes, state: None, accepted }
}

/// Runs a plan on two instances of apache2, each with additional lines of configuration.
fn apaches(plan: &Plan, twists: [&'static str; 2]) -> Totals {
    let mut pair = Pair::of([Kind::Apache, Kind::Apache], "event", twists).unwrap();
    let totals = run(&mut pair, plan, &mut |_| {}).unwrap();
    pair.stop().unwrap();
    totals
}

#[test]
fn a_server_does_not_differ_from_itself() {
    let totals = apaches(&plan(3, 40, 0), ["", ""]);
    assert!(totals.is_clean(), "{}", totals.summary());
    assert!(totals.requests > 800 && totals.statuses[&2] > 100, "{}", totals.summary());
}

#[test]
fn what_one_server_denies_and_the_other_gives_is_found_and_shrunk() {
    let denied = "<Files \"secret.txt\">\nRequire all denied\n</Files>\n";
    let totals = apaches(&plan(3, 40, 1), [denied, ""]);
    let given = Difference { class: Class::Given, detail: "403 -> 200".to_owned() };
    assert!(totals.found.contains_key(&given), "{}", totals.summary());
    let report = totals.reports.iter().find(|report| report.starts_with("== given 403 -> 200"));
    let report = report.unwrap();
    // Only the host and the file are left.
    let sections = report.matches("\n  <").count() + report.matches(".htaccess").count();
    assert_eq!(sections, 0, "{report}");
    assert!(report.contains("secret.txt"), "{report}");
}

/// What Apache protects is protected here, and nothing else differs except what is accepted, on a
/// thousand random sites. The command `cargo xtask attack --seed 5` shows more of them.
#[test]
fn nothing_is_given_that_apache_denies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let accepted = accepted::read(root, "tests/attack/accepted").unwrap();
    let mut pair = Pair::new("event").unwrap();
    let totals = run(&mut pair, &Plan { accepted, ..plan(5, 1000, 1) }, &mut |_| {}).unwrap();
    pair.stop().unwrap();
    assert!(totals.is_clean(), "{}\n{}", totals.summary(), totals.reports.join("\n"));
    assert!(totals.requests > 20_000 && totals.statuses[&4] > 2_000, "{}", totals.summary());
}

#[test]
fn what_one_server_withholds_is_found() {
    let denied = "<Files \"secret.txt\">\nRequire all denied\n</Files>\n";
    let totals = apaches(&plan(3, 40, 0), ["", denied]);
    let is_withheld = |it: &&Difference| it.class == Class::Withheld;
    assert!(totals.found.keys().any(|it| is_withheld(&it)), "{}", totals.summary());
    assert!(totals.found.keys().all(|it| it.class != Class::Given), "{}", totals.summary());
}

#[test]
fn a_configuration_that_one_server_refuses_is_found_and_the_others_are_served() {
    let twists = ["Define Odd\n", ""];
    let mut pair = Pair::of([Kind::Apache, Kind::Apache], "event", twists).unwrap();
    let line = |text: &str| Node::Line(text.to_owned());
    let host = |more: Node| {
        let names = ["ServerName @HOST@", "DocumentRoot @SITE@/htdocs"].map(line);
        let lines = names.into_iter().chain([more]).collect();
        let hosts = vec![Node::Section("<VirtualHost *:@PORT@>".to_owned(), lines)];
        let path = "htdocs/b.txt".to_owned();
        let entries = vec![Entry { path, kind: Entries::File, mode: None }];
        Site { main: Vec::new(), hosts, entries, asks: Vec::new() }
    };
    let odd = Node::Section("<IfDefine Odd>".to_owned(), vec![line("NothingSuch")]);
    // For this fault Apache reports neither the file nor the line.
    let negative = Node::Section("<RequireAll>".to_owned(), vec![line("Require not local")]);
    let negative = Node::Section("<Location /x>".to_owned(), vec![negative]);
    let good = || host(line("Options None"));
    let sites = [(1, good()), (2, host(odd)), (3, good()), (4, host(negative)), (5, good())];
    let refusals = pair.load(&BTreeMap::from(sites)).unwrap();
    let refused: Vec<_> = refusals.iter().map(|it| (it.number, it.is_oracles)).collect();
    assert_eq!(refused, [(Some(2), true)]);
    let mut client = Client::new(pair.addresses());
    for (number, status) in [(1, 200), (2, 404), (3, 200), (4, 404), (5, 200)] {
        let request = format!("GET /b.txt HTTP/1.1\r\nHost: s{number}.test\r\n\r\n");
        for answer in client.ask(request.as_bytes(), false).unwrap() {
            assert_eq!(answer.map(|it| it.status()), Ok(status), "site {number}");
        }
    }
    pair.stop().unwrap();
}

/// The command on three batches of sites. It keeps its state in this folder, and everything else
/// below `scratch` in it.
fn command(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_attack"))
        .args(["--seed", "77", "--sites", "120", "--cases", "0", "--state", "state"])
        .env("TMPDIR", folder.join("scratch"))
        .current_dir(folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// All processes below this one.
fn descendants(pid: u32) -> Vec<u32> {
    let children = children_of(pid);
    let further: Vec<u32> = children.iter().copied().flat_map(descendants).collect();
    [children, further].concat()
}

#[test]
fn a_run_that_is_killed_leaves_nothing_and_goes_on_where_it_was() {
    let whole = tempfile::tempdir().unwrap();
    let stopped = tempfile::tempdir().unwrap();
    for folder in [&whole, &stopped] {
        fs::create_dir(folder.path().join("scratch")).unwrap();
    }
    let is_left = || fs::read_dir(stopped.path().join("scratch")).unwrap().count() > 0;
    for (signal, kept) in [(Signal::KILL, "next 40\n"), (Signal::TERM, "next 80\n")] {
        let mut child = command(stopped.path());
        let state = stopped.path().join("state");
        while !fs::read_to_string(&state).is_ok_and(|text| text.contains(kept)) {
            assert_eq!(child.try_wait().unwrap(), None, "{kept}");
            std::thread::sleep(Duration::from_millis(4));
        }
        let servers = descendants(child.id());
        assert!(servers.len() > 3 && is_left(), "{servers:?}");
        send(child.id(), signal);
        child.wait().unwrap();
        let lives = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        wait_for("the end of the servers", || !servers.iter().any(lives)).unwrap();
        wait_for("the end of the folder", || !is_left()).unwrap();
    }
    let said = |folder: &Path| {
        let output = command(folder).wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let resumed = said(stopped.path());
    // Sites that the server refuses to start with are not counted.
    let sites = resumed.split(' ').next().and_then(|count| count.parse::<u32>().ok());
    assert!(sites.is_some_and(|sites| (100..=120).contains(&sites)), "{resumed}");
    assert_eq!(resumed, said(whole.path()));
}
