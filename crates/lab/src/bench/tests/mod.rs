//! Runs bench from its words to its report, against small servers in the test.

mod options;
mod server;
mod truth;

use super::{Desk, serve};
use serde_json::Value;
use server::Server;

/// The output of bench.
struct Said {
    status: i32,
    out: String,
    err: String,
}

/// Runs bench with words and values separated by blanks.
fn bench(line: &str) -> Said {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    bench_with(&words)
}

fn bench_with(words: &[String]) -> Said {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut desk = Desk { out: &mut out, err: &mut err, screen: false, rewrites: false };
    let status = serve(words, &mut desk);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status, out: text(out), err: text(err) }
}

/// Runs bench with `--json` and returns what it wrote.
fn json(line: &str) -> Value {
    let said = bench(&format!("--json {line}"));
    assert_eq!((said.status, said.err.as_str()), (0, ""), "{line}");
    serde_json::from_str(&said.out).unwrap()
}

#[test]
fn a_report_tells_what_was_asked_and_what_came_of_it() {
    let server = Server::start();
    let said = bench(&format!("-n 300 -c 3 --threads 2 {}", server.url("/a")));
    assert_eq!((said.status, said.err.as_str()), (0, ""));
    let has = |text: &str| assert!(said.out.contains(text), "{text}:\n{}", said.out);
    has(&format!("{}\n3 clients on 2 threads, closed loop without pauses\n", server.url("/a")));
    has("Answered             300");
    has("Failed                 0");
    has("Status 200           300  100.0 %");
    has("  99 %");
    // One client may have sent every request before the next one has connected.
    has(" of 3 clients never served");
    assert!(!said.out.contains("99.9 %") && !said.out.contains("service"), "{}", said.out);
    assert_eq!(server.heard().len(), 300);
}

#[test]
fn a_refused_target_ends_at_once_with_one_line() {
    let server = Server::refused();
    let said = bench(&server.url("/"));
    assert_eq!((said.status, said.out.as_str()), (1, ""));
    let line = format!("evenkeel bench: {}: Connection refused (os error 111)\n", server.address());
    assert_eq!(said.err, line);
    let said = bench("--unix-socket /nowhere/at/all http://a/");
    assert_eq!(said.status, 1);
    assert!(said.err.starts_with("evenkeel bench: /nowhere/at/all: No such file"), "{}", said.err);
}

#[test]
fn other_machines_are_loaded_only_where_they_are_ones_own() {
    let said = bench("http://192.0.2.1/");
    assert_eq!((said.status, said.err.contains("--yes-this-is-my-server")), (2, true));
    let server = Server::start();
    let proxied = format!("-n 1 -x {} http://192.0.2.1/", server.address());
    assert_eq!(bench(&proxied).status, 2);
    assert_eq!(bench(&format!("--yes-this-is-my-server {proxied}")).status, 0);
    assert_eq!(server.heard().len(), 1);
}

#[test]
fn words_that_make_no_sense_are_told_with_status_2() {
    for (line, wanted) in [
        ("", "<URL>"),
        ("ftp://a/", "neither http nor https"),
        ("http://a/ http://b/", "unexpected argument 'http://b/'"),
        ("--nonsense http://a/", "unexpected argument '--nonsense'"),
        ("-Q http://a/", "unexpected argument '-Q'"),
        ("-n 0 http://a/", "'0' for '--requests <N>': it takes a number from 1"),
        ("-c x http://a/", "'x' for '--clients <N>': it takes a number from 1"),
        ("-z soon http://a/", "it takes a time"),
        ("-q -5 http://a/", "'-5' for '--rate <RATE>': it takes requests a second"),
        ("--think slowly http://a/", "slowly: a pause is"),
        ("--partly 5 http://a/", "it takes clients a second"),
        ("--partly 5,0 http://a/", "it takes clients a second"),
        ("--ramp 5 http://a/", "5: a ramp is"),
        ("--steps 5 http://a/", "5: steps are"),
        ("-c 5 --steps 5:1s http://a/", "both say how many"),
        ("-q 5 --ramp 0..5/1s http://a/", "closed loops"),
        ("-q 5 --partly 5,5 http://a/", "two kinds of loop"),
        ("-q 5 --think 1s http://a/", "nobody who thinks"),
        ("--even http://a/", "open loop of -q"),
        ("-a me http://a/", "USER:PASSWORD"),
        ("-H nothing http://a/", "a field is"),
        ("-x b:1 https://a/", "CONNECT"),
        ("-x b:1 --unix-socket s http://a/", "both say where"),
        ("--http2 http://a/", "HTTP/2 is not there"),
        ("-n", "a value is required for '--requests <N>'"),
    ] {
        let said = bench(line);
        assert_eq!((said.status, said.out.as_str()), (2, ""), "{line}");
        let begins = said.err.starts_with("evenkeel bench: ");
        assert!(begins && said.err.contains(wanted), "{line}: {}", said.err);
    }
    let said = bench("-D /nowhere http://127.0.0.1/");
    assert_eq!((said.status, said.err.contains("/nowhere: No such file")), (1, true));
    assert_eq!(bench("-h").status, 0);
}
