//! Tests of top as a whole: compares saved texts of /proc with the figures of other tools, and runs
//! the command against small servers.

use super::machine::{Counters, Machine, Texts};
use super::serve;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

const APACHE: &[u8] = include_bytes!("samples/apache.auto");
const EVENKEEL: &[u8] = include_bytes!("samples/evenkeel.json");

/// The seconds between the saved moments.
const SAVED_S: f64 = 5.000_107;

/// The texts of a moment, as they were saved under load; long lines that are not used are cut.
fn texts(saved: &str) -> Texts {
    let mut texts = Texts { block: "loop0\nsda\nvda\nzram0".into(), ..Texts::default() };
    for part in saved.split("== ").skip(1) {
        let (name, text) = part.split_once('\n').unwrap();
        let place = match name {
            "stat" => &mut texts.stat,
            "diskstats" => &mut texts.diskstats,
            "net/dev" => &mut texts.net_dev,
            "vmstat" => &mut texts.vmstat,
            "loadavg" => &mut texts.loadavg,
            other => panic!("{other}"),
        };
        text.clone_into(place);
    }
    texts
}

fn close(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 0.06
}

/// The expected figures come from another program's sums over the same texts.
fn assert_saved(machine: &Machine) {
    let shares = [89.6, 9.4, 0.0, 0.0, 0.0, 0.8, 0.2];
    assert!(machine.cpu.values().iter().zip(shares).all(|(a, b)| close(*a, b)));
    let second = [87.575, 11.222, 0.0, 0.0, 0.0, 1.002, 0.2];
    assert!(machine.cores[1].shares.values().iter().zip(second).all(|(a, b)| close(*a, b)));
    assert!(close(machine.cpu.busy(), 100.0));
    assert!(close(machine.interrupts, 2886.538) && close(machine.context_switches, 11536.754));
    assert!(close(machine.forks, 23.2) && (machine.running, machine.blocked) == (12, 0));
    assert_eq!(machine.load, [8.4, 8.5, 8.1]);
    let paging = &machine.paging;
    assert!(close(paging.in_bytes / 1024.0, 8.0) && close(paging.out_bytes / 1024.0, 38287.983));
    assert!(close(paging.faults, 14909.282) && close(paging.major_faults, 0.2));
    let disk = &machine.disks[0];
    assert!(close(disk.reads, 0.4) && close(disk.writes, 84.798) && close(disk.busy, 5.2));
    assert!(close(disk.read_bytes / 1e3, 8.192) && close(disk.written_bytes / 1e3, 39206.894));
    let lo = &machine.network[1];
    assert!(close(lo.received_packets, 12297.538) && close(lo.sent_bytes / 1e3, 8308.197));
    assert_eq!(machine.network_bytes(), (0.0, 0.0));
}

#[test]
fn swapping_is_counted_and_idle_time_may_run_backwards() {
    let moment = |idle: u64, waited: u64, pages: u64| Texts {
        stat: format!("cpu 10 0 10 {idle} {waited} 0 0 0 0 0\n"),
        vmstat: format!("pswpin {pages}\npswpout {}\n", pages * 3),
        ..Texts::default()
    };
    let before = Counters::parse(&moment(100, 50, 7));
    let after = Counters::parse(&moment(175, 75, 27));
    let machine = Machine::between(&before, &after, 2.0);
    assert_eq!((machine.cpu.idl, machine.cpu.wai, machine.cpu.busy()), (75.0, 25.0, 0.0));
    assert_eq!((machine.paging.swapped_in, machine.paging.swapped_out), (10.0, 30.0));
    let back = Machine::between(&after, &before, 2.0);
    assert_eq!((back.cpu.idl, back.paging.swapped_in), (0.0, 0.0));
}

#[test]
fn what_was_saved_is_what_happened() {
    let before = Counters::parse(&texts(include_str!("samples/proc.before")));
    let after = Counters::parse(&texts(include_str!("samples/proc.after")));
    let machine = Machine::between(&before, &after, SAVED_S);
    assert_eq!(machine.cores.len(), 2);
    for shares in machine.cores.iter().map(|core| core.shares).chain([machine.cpu]) {
        assert!(close(shares.values().iter().sum(), 100.0));
    }
    let names = |names: Vec<&str>| names.join(" ");
    assert_eq!(names(machine.disks.iter().map(|it| it.name.as_str()).collect()), "vda");
    assert_eq!(names(machine.network.iter().map(|it| it.name.as_str()).collect()), "eth0 lo");
    assert_saved(&machine);
    // The same moment twice: nothing happened, and there is no division by zero.
    let still = Machine::between(&after, &after, 0.0);
    assert_eq!((still.cpu.idl, still.interrupts, still.network_bytes()), (0.0, 0.0, (0.0, 0.0)));
}

#[test]
fn texts_that_are_missing_or_strange_are_nothing() {
    let strange = Texts {
        stat: "cpu\ncpu0 1 2\nintr\ncpux 1\n".into(),
        diskstats: "8 0 sda 1".into(),
        net_dev: "eth0: x\nlo:".into(),
        vmstat: "pswpin\npswpout x".into(),
        ..texts("")
    };
    let counters = Counters::parse(&strange);
    let machine = Machine::between(&Counters::default(), &counters, 1.0);
    assert!(machine.disks.is_empty() && machine.network.is_empty() && machine.cores.is_empty());
}

/// A server that answers `query` with one page, and anything else with another.
fn server(query: &'static str, page: &'static [u8], other: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 1024];
            let count = stream.read(&mut head).unwrap_or_default();
            let wanted = format!("GET /server-status?{query} HTTP/1.1\r\n");
            let is_wanted = head[..count].starts_with(wanted.as_bytes());
            let body = if is_wanted { page } else { other };
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            let _gone = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    url
}

fn top(line: &str) -> (String, String, i32) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = serve(&words, &mut out, &mut err, false);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(out), text(err), status)
}

#[test]
fn once_as_json_has_all_sides() {
    let own = std::process::id();
    for (query, page, other) in
        [("json", EVENKEEL, &b"<html>"[..]), ("auto", APACHE, b"<!DOCTYPE HTML>")]
    {
        let url = server(query, page, other);
        let (out, err, status) = top(&format!("--once --json -i 100ms -s {url} -p {own}"));
        assert_eq!((err.as_str(), status), ("", 0));
        let sample: serde_json::Value = serde_json::from_str(&out).unwrap();
        let machine = &sample["machine"];
        assert!(machine["cores"][0]["usr"].is_f64() && machine["cpu"]["stl"].is_f64());
        assert!(machine["context_switches"].is_f64());
        assert_eq!(sample["processes"]["pid"], own);
        assert_eq!(sample["server"]["mpm"], "event");
        assert_eq!(sample["server"]["busy"], 2);
        assert_eq!(sample["server"]["requests"], 0.0);
        assert_eq!(sample["server"]["tells_workers"], query == "json");
        assert!(sample["server"]["url"].as_str().unwrap().ends_with(query));
        assert_eq!(sample["problems"], serde_json::json!([]));
    }
}

#[test]
fn text_and_csv_have_their_lines() {
    let url = server("json", EVENKEEL, b"");
    let own = std::process::id();
    let (out, err, status) = top(&format!("--once -i 100ms -s {url} -p {own}"));
    assert_eq!((err.as_str(), status), ("", 0));
    for part in [
        "core    usr   sys   idl   wai   hiq   siq   stl\nall ",
        " and below: ",
        "Apache/2.4.71 (Evenkeel)  event  up 100 s",
        "0 requests/s, 0 B/s, ",
        "slots: 2 busy, 2 idle, 4 open; 2 children, 0 stopping",
        "limit: none that the scoreboard tells",
        "\n  W_R_....\n",
        "busiest URLs\n  100.0 %  /a?[31mred\n",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert!(!out.contains('\x1b'));
    let (out, err, status) = top("--csv -n 2 -i 100ms");
    assert_eq!((err.as_str(), status), ("", 0));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3);
    let columns = |line: &str| line.split(',').count();
    assert!(lines[0].starts_with("time_s,interval_s,CPU in %/usr,"), "{out}");
    assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{out}");
}

#[test]
fn a_recording_can_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("run");
    let url = server("auto", APACHE, b"<html>");
    let line = format!("-n 2 -i 100ms --record {} -s {url} --pid 1", to.display());
    let (_, err, status) = top(&line);
    assert_eq!((err.as_str(), status), ("", 0));
    let saved = crate::results::read(&to).unwrap();
    assert!(saved.whole && saved.about.command == "top" && saved.about.target == url);
    let plots = saved.series.plots();
    assert_eq!(plots["CPU in %"].len(), 7);
    assert_eq!(plots["scoreboard"].len(), 11);
    assert_eq!(saved.series.mean("scoreboard/writing"), Some(1.0));
    assert!(plots.contains_key("cores busy in %") && !plots.contains_key("core 0 in %"));
    // A second run cannot be saved in the same folder.
    let (_, err, status) = top(&line);
    assert!(err.contains("holds another run") && status == 1, "{err}");
}

#[test]
fn what_is_not_there_is_told_in_a_line() {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let absent = server("none", b"", b"");
    let other = server("json", b"", b"<html>not a status page</html>");
    for (line, told) in [
        (format!("-s {refused}"), "?json: Connection refused (os error 111)"),
        (format!("-s {absent}"), "?json: status 404; no status page there (SetHandler"),
        (format!("-s {other}"), "?json: status 404"),
        (format!("-s {other}/x"), "/x?auto: not a status page: no Scoreboard on it"),
        ("-s ftp://a/".to_owned(), "ftp is neither http nor https"),
        ("--pid 2147483647".to_owned(), "2147483647: no such process"),
    ] {
        let (out, err, status) = top(&format!("--once {line}"));
        assert_eq!((out.as_str(), status), ("", 1), "{line}");
        assert!(err.starts_with("evenkeel top: ") && err.contains(told), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (_, err, status) = top("--jsn");
    assert!(err.contains("--help") && status == 2, "{err}");
}
