//! Tests each option by what the server received or by the figures.

use super::{Server, bench, bench_with, json};
use serde_json::json;

#[test]
fn what_is_sent_is_what_was_asked_for() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, "from a file").unwrap();
    let file = file.display();
    let heard = |line: &str| {
        assert_eq!(bench(&format!("-n 1 -c 1 {line} {}", server.url("/p?q"))).status, 0, "{line}");
        server.heard().pop().unwrap()
    };
    let has = |text: &str, part: &str| assert!(text.contains(part), "{part}:\n{text}");
    let plain = heard("");
    has(&plain, &format!("GET /p?q HTTP/1.1\r\nHost: {}\r\nUser-Agent: ", server.address()));
    assert!(!plain.contains("Content-") && !plain.contains("Connection"), "{plain}");
    let fields =
        heard("-m PUT -A text/x -T text/y --cookie a=b --cookie c=d -a Aladdin:opensesame");
    has(&fields, "PUT /p?q HTTP/1.1\r\n");
    has(&fields, "\r\nAccept: text/x\r\n");
    has(&fields, "\r\nContent-Type: text/y\r\n");
    has(&fields, "\r\nCookie: a=b; c=d\r\n");
    has(&fields, "\r\nAuthorization: Basic QWxhZGRpbjpvcGVuc2VzYW1l\r\n");
    let typed = heard("-H X-A:1 -H X-A:2 -H User-Agent:me --host other");
    has(&typed, "\r\nX-A: 1\r\nX-A: 2\r\n");
    has(&typed, "\r\nUser-Agent: me\r\n");
    has(&typed, "\r\nHost: other\r\n");
    assert_eq!((typed.matches("User-Agent").count(), typed.matches("Host:").count()), (1, 1));
    let posted = heard("-d a=b");
    has(&posted, "POST /p?q ");
    has(&posted, "\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n");
    assert!(posted.ends_with("\r\n\r\na=b"), "{posted}");
    assert!(heard(&format!("-d @{file}")).ends_with("\r\n\r\nfrom a file"));
    assert!(heard(&format!("-D {file} -m PATCH")).starts_with("PATCH "));
}

#[test]
fn long_names_are_the_short_ones() {
    let server = Server::start();
    let line = format!(
        "--requests=2 --clients=1 --method=PUT --data=x --header=A:b --accept=c --content-type=d \
         --auth=e:f --timeout=5s {}",
        server.url("/")
    );
    assert_eq!(bench(&line).status, 0);
    let heard = server.heard();
    assert_eq!(heard.len(), 2);
    for part in ["PUT / ", "\r\nA: b\r\n", "Accept: c\r\n", "Content-Type: d\r\n", "Basic ZTpm"] {
        assert!(heard[0].contains(part), "{part}");
    }
}

#[test]
fn a_value_may_have_blanks() {
    let server = Server::start();
    let url = server.url("/");
    let words = ["-n1", "-c1", "-H", "X: a b", "-d", "c d", &url].map(str::to_owned);
    assert_eq!(bench_with(&words).status, 0);
    let heard = server.heard();
    assert!(heard[0].contains("\r\nX: a b\r\n") && heard[0].ends_with("\r\n\r\nc d"));
}

#[test]
fn head_has_no_body_to_wait_for() {
    let server = Server::start();
    // This server sends a body all the same, which is not HTTP.
    let said = bench(&format!("-n 1 -m HEAD {}", server.url("/")));
    assert_eq!((said.status, said.out.contains("Failed: malformed")), (1, true));
}

#[test]
fn connections_are_kept_or_made_anew() {
    let server = Server::start();
    let kept = json(&format!("-n 20 -c 2 {}", server.url("/")));
    // One client may complete all requests before the other begins.
    let (made, reused) = (kept["connections"].as_u64(), kept["reused"].as_u64());
    assert!(matches!((made, reused), (Some(2), Some(18)) | (Some(1), Some(19))));
    for option in ["--disable-keepalive", "-disable-keepalive"] {
        let once = json(&format!("-n 20 -c 2 {option} {}", server.url("/")));
        assert_eq!((&once["connections"], &once["answered"]), (&json!(20), &json!(20)));
    }
    assert!(server.heard().last().unwrap().contains("\r\nConnection: close\r\n"));
}

#[test]
fn a_proxy_is_asked_in_absolute_form() {
    let (server, proxy) = (Server::refused(), Server::start());
    let url = server.url("/a?b");
    let line = format!("-n 1 -x http://{} --proxy-auth me:pw {url}", proxy.address());
    assert_eq!(bench(&line).status, 0);
    let heard = proxy.heard().pop().unwrap();
    let begins = format!("GET {url} HTTP/1.1\r\nHost: {}\r\n", server.address());
    assert!(heard.starts_with(&begins), "{heard}");
    assert!(heard.contains("\r\nProxy-Authorization: Basic bWU6cHc=\r\n"), "{heard}");
}

#[test]
fn certificates_are_checked_unless_any_will_do() {
    let server = Server::start_tls();
    let any = json(&format!("-n 10 -c 2 --insecure {}", server.url("/")));
    assert_eq!((&any["answered"], &any["failed"]), (&json!(10), &json!(0)));
    assert_eq!(any["handshakes"], json!({ "full": any["connections"], "resumed": 0 }));
    let said = bench(&format!("-n 2 -c 1 {}", server.url("/")));
    assert_eq!((said.status, said.out.as_str()), (1, ""));
    assert!(said.err.contains("invalid peer certificate"), "{}", said.err);
    assert!(said.err.ends_with("; --insecure takes any\n"), "{}", said.err);
    assert_eq!(server.heard().len(), 10);
}

#[test]
fn a_client_resumes_its_own_sessions_unless_handshakes_are_to_be_full() {
    let server = Server::start_tls();
    let line = format!("-n 20 -c 2 --insecure --disable-keepalive {}", server.url("/"));
    let resumed = json(&line);
    let fresh = resumed["handshakes"]["full"].as_u64().unwrap();
    assert!((1..=2).contains(&fresh), "{resumed}");
    assert_eq!(resumed["handshakes"]["resumed"], 20 - fresh);
    assert_eq!(resumed["handshake"]["count"], 20);
    let seconds = resumed["seconds"].as_array().unwrap().iter();
    let sum: u64 = seconds.map(|second| second["resumed_handshakes"].as_u64().unwrap()).sum();
    assert_eq!(sum, 20 - fresh);
    let full = json(&format!("--full-handshakes {line}"));
    assert_eq!(full["handshakes"], json!({ "full": 20, "resumed": 0 }));
    let text = bench(&line).out;
    let row = text.lines().find(|line| line.trim_start().starts_with("Handshakes")).unwrap();
    assert!(row.contains("90.0 % of them") || row.contains("95.0 % of them"), "{row}");
    assert!(row.contains("p50 ") && row.contains("p99 "), "{row}");
    let plain = bench(&format!("-n 1 {}", Server::start().url("/"))).out;
    assert!(!plain.contains("andshake"), "{plain}");
}

#[test]
fn unix_sockets_and_ipv6_are_spoken_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Server::start_unix(&path);
    let line = format!("-n 5 -c 1 --unix-socket {} http://somewhere/x", path.display());
    assert_eq!(json(&line)["answered"], 5);
    assert!(server.heard()[0].starts_with("GET /x HTTP/1.1\r\nHost: somewhere\r\n"));
    let server = Server::start_at("[::1]:0");
    assert_eq!(json(&format!("-6 -n 5 -c 1 {}", server.url("/")))["answered"], 5);
    assert_eq!(bench(&format!("-4 -n 5 -c 1 {}", server.url("/"))).status, 1);
    assert!(server.heard()[0].contains(&format!("\r\nHost: {}\r\n", server.address())));
}

#[test]
fn a_name_is_tried_at_each_of_its_addresses() {
    let server = Server::start();
    let url = format!("http://localhost:{}/", server.address().port());
    assert_eq!(json(&format!("-n 5 -c 1 {url}"))["answered"], 5);
    assert_eq!(json(&format!("-4 -n 5 -c 1 {url}"))["answered"], 5);
    assert_eq!(bench(&format!("-6 -n 5 -c 1 {url}")).status, 1);
}

#[test]
fn a_run_ends_with_its_time_or_its_number() {
    let server = Server::start();
    let timed = json(&format!("-z 200ms -c 2 {}", server.url("/")));
    let elapsed_ns = timed["elapsed_ns"].as_u64().unwrap();
    assert!(elapsed_ns >= 200_000_000 && timed["answered"].as_u64().unwrap() > 0);
    let both = json(&format!("-z 1h -n 10 -c 2 {}", server.url("/")));
    assert_eq!(both["answered"], 10);
    let usual = json(&server.url("/"));
    assert_eq!((&usual["answered"], &usual["fairness"]["clients"]), (&json!(200), &json!(50)));
    let few = json(&format!("-n 3 {}", server.url("/")));
    assert_eq!(few["fairness"]["clients"], 3);
}

#[test]
fn clients_pause_and_visit() {
    let server = Server::start();
    let think = json(&format!("-n 6 -c 2 --think 20ms {}", server.url("/")));
    assert!(think["pause"]["least_ns"].as_u64().unwrap() >= 19_900_000);
    let said = bench(&format!("-n 6 -c 2 --think 20ms {}", server.url("/")));
    assert!(said.out.contains("Pauses: asked 20.0 ms; came about mean "), "{}", said.out);
    let line = format!("-n 60 -c 4 --partly 500,3 --think 1ms {}", server.url("/"));
    let partly = json(&line);
    assert_eq!(partly["answered"], 60);
    let visits = partly["connections"].as_u64().unwrap();
    assert!((5..=50).contains(&visits), "{visits}");
    assert!(partly["pause"]["least_ns"].as_u64().unwrap() >= 990_000);
}

#[test]
fn the_same_seed_draws_the_same() {
    let server = Server::start();
    let arrivals = |seed: &str| {
        let line = format!("--csv -n 40 -c 1 -q 2000 {seed} {}", server.url("/"));
        let said = bench(&line);
        let mut times: Vec<String> = said.out.lines().skip(1).map(intended).collect();
        times.sort();
        times
    };
    fn intended(line: &str) -> String {
        line.split(',').nth(1).unwrap().to_owned()
    }
    assert_eq!(arrivals("--seed 7").len(), 40);
    assert_eq!(arrivals("--seed 7"), arrivals("--seed 7"));
    assert_ne!(arrivals("--seed 7"), arrivals("--seed 8"));
    assert_eq!(arrivals("--even")[0], "0.000500000");
}

#[test]
fn clients_come_and_go() {
    let server = Server::start();
    let clients = |line: &str| {
        let it = json(&format!("{line} {}", server.url("/")));
        let served = &it["fairness"];
        (served["clients"].clone(), served["never_served"].clone(), it["elapsed_ns"].clone())
    };
    // The last client has most of a second to be served, on a machine that does much else.
    let (all, never, elapsed_ns) = clients("--steps 1:200ms,4:800ms");
    assert_eq!((all, never), (json!(4), json!(0)));
    assert!(elapsed_ns.as_u64().unwrap() >= 1_000_000_000);
    let (all, never, elapsed_ns) = clients("--ramp 0..4/100ms -z 1s");
    assert_eq!((all, never), (json!(4), json!(0)));
    assert!(elapsed_ns.as_u64().unwrap() >= 1_000_000_000);
    assert!(clients("--ramp 1..2/100ms").2.as_u64().unwrap() >= 100_000_000);
}

#[test]
fn every_answer_is_a_line_of_csv() {
    let server = Server::start();
    let said = bench(&format!("--csv -n 25 -c 5 --no-tui {}", server.url("/")));
    assert_eq!((said.status, said.out.lines().count()), (0, 26));
    let columns = said.out.lines().next().unwrap().split(',').count();
    assert!(said.out.lines().all(|line| line.split(',').count() == columns));
}

#[test]
fn a_run_is_saved_without_its_secrets() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("run");
    let line = format!("-n 30 -c 3 -a me:secret --save {} {}", saved.display(), server.url("/"));
    assert_eq!(bench(&line).status, 0);
    let read = crate::results::read(&saved).unwrap();
    assert_eq!((read.figures.answered(), read.about.target), (30, server.url("/")));
    assert!(!std::fs::read_to_string(saved.join("run.json")).unwrap().contains("secret"));
    let again = bench(&line);
    assert_eq!((again.status, again.err.contains("holds another run")), (1, true));
}

#[test]
fn a_sweep_goes_through_clients_and_pauses() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let grid = format!("-n 20 --sweep c=1,2 --sweep think=0,1ms --html {}", page.display());
    let said = bench(&format!("{grid} {}", server.url("/")));
    assert_eq!((said.status, said.err.lines().count()), (0, 4), "{}", said.err);
    assert!(said.out.contains("never served"), "{}", said.out);
    assert_eq!(server.heard().len(), 80);
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    for both in ["-c 5", "-q 5", "--think 1s", "--json", "--server 1"] {
        let said = bench(&format!("--sweep c=1 {both} http://a/"));
        assert_eq!((said.status, said.err.contains("by itself")), (2, true), "{both}");
    }
    assert_eq!(bench("--html x http://a/").status, 2);
}

#[test]
fn the_servers_side_is_looked_at() {
    let server = Server::start();
    let own = std::process::id();
    let it = json(&format!("-n 50 -c 2 --no-strace --server {own} {}", server.url("/")));
    assert!(it["server"]["most_processes"].as_u64().unwrap() >= 1, "{it}");
    let said = bench(&format!("-n 50 -c 2 --no-strace --server {own} {}", server.url("/")));
    assert!(said.out.contains("CPU of the server: "), "{}", said.out);
    let said = bench(&format!("--server 4194305 {}", server.url("/")));
    assert_eq!((said.status, said.err.contains("no such process")), (1, true));
}
