//! Tests logs that are piped to programs: lines are compared with the number of responses while the
//! program is killed and the server is reloaded and stopped. Each program records its start and
//! end, which the tests wait for.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, send, wait_for};
use evenkeel_tests::load::{Load, text};
use rustix::process::Signal;
use std::collections::HashSet;
use std::fs;

/// Reads a line at a time, so that a program that is killed while it waits has not read another
/// one.
const LOGGER: &str = r#"
logs=${0%/*}/logs
echo $$ >> "$logs/$1.came"
while IFS= read -r line; do printf '%s\n' "$line" >> "$logs/$1.lines"; done
echo $$ >> "$logs/$1.went"
"#;

/// The same line for each request of the load.
const FORMAT: &str = "LogFormat \"%r %>s\" line\n";

/// The line of a request of the load.
const LINE: &str = "GET /small.txt HTTP/1.1 200";

fn open(more: &str) -> House {
    let mut house = House::lay_out(more).unwrap();
    fs::write(house.path("logger.sh"), LOGGER).unwrap();
    house.start(&[]).unwrap();
    house
}

/// The lines of a file below `logs`; empty if it does not exist.
fn lines(house: &House, name: &str) -> Vec<String> {
    let text = fs::read_to_string(house.path("logs").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Sends some hundred requests on kept connections, and returns how many were answered.
fn work(house: &House) -> usize {
    let load = Load::start(house.address, 4, true);
    wait_for("answers", || load.answered() >= 300).unwrap();
    let tally = load.stop();
    assert!(tally.lost.is_empty(), "lost: {:?}", tally.lost);
    usize::try_from(tally.answered).unwrap()
}

#[test]
fn a_program_gets_every_line_and_so_do_its_successors() {
    let log = "CustomLog \"|/bin/sh @ROOT@/logger.sh access\" line\n";
    let mut house = open(&format!("{FORMAT}{log}"));
    let came = |count: usize| lines(&house, "access.came").len() == count;
    let has_ended = |pid: &String| lines(&house, "access.went").contains(pid);
    let mut answered = work(&house);
    wait_for("the lines", || lines(&house, "access.lines").len() == answered).unwrap();

    // Lines of responses that no program reads wait in the pipe for the next program.
    let first = lines(&house, "access.came")[0].clone();
    send(first.parse().unwrap(), Signal::KILL);
    wait_for("word of its end", || house.error_log().contains("AH00106: piped log program"))
        .unwrap();
    answered += work(&house);
    wait_for("a successor", || came(2)).unwrap();
    wait_for("the lines", || lines(&house, "access.lines").len() == answered).unwrap();
    assert!(!has_ended(&first));

    // A reload starts a program of its own, and the previous one reads to the end.
    let second = lines(&house, "access.came")[1].clone();
    house.reload().unwrap();
    wait_for("a program of the new generation", || came(3)).unwrap();
    wait_for("the end of the old one's input", || has_ended(&second)).unwrap();
    answered += work(&house);

    let third = lines(&house, "access.came")[2].clone();
    let server = house.server.take().unwrap();
    server.stop().unwrap();
    wait_for("the end of its input", || lines(&house, "access.went").contains(&third)).unwrap();
    let lines = lines(&house, "access.lines");
    assert!(lines.iter().all(|line| line == LINE), "{lines:?}");
    assert_eq!(lines.len(), answered);
}

#[test]
fn the_error_log_goes_to_a_program_to_its_last_line() {
    let log = "ErrorLog \"|/bin/sh @ROOT@/logger.sh error\"\n";
    let closed = "<Location /closed>\nRequire all denied\n</Location>\n";
    let mut house = open(&format!("{log}{closed}"));
    for number in 0..50 {
        let page = text(house.address, &format!("/closed/{number}")).unwrap();
        assert!(page.contains("403 Forbidden"), "{page}");
    }
    house.stop().unwrap();
    wait_for("the end of its input", || lines(&house, "error.went").len() == 1).unwrap();
    let lines = lines(&house, "error.lines");
    let client =
        |line: &String| Some(line.split_once("] AH01630: ")?.0.rsplit_once(':')?.1.to_owned());
    let ports: Vec<String> = lines.iter().filter_map(client).collect();
    let different: HashSet<&String> = ports.iter().collect();
    assert_eq!((ports.len(), different.len()), (50, 50), "{lines:#?}");
    assert!(lines.last().unwrap().contains("AH00491: caught SIGTERM, shutting down"), "{lines:#?}");
}

#[test]
fn a_reload_ends_the_program_of_the_error_log() {
    let house = open("ErrorLog \"|/bin/sh @ROOT@/logger.sh error\"\n");
    for reload in 1..=3 {
        // Without an error log in a file, the programs tell of the reload.
        house.signal(Signal::USR1);
        wait_for("a successor", || lines(&house, "error.came").len() == reload + 1).unwrap();
        wait_for("the end of the one before", || lines(&house, "error.went").len() == reload)
            .unwrap();
    }
}

/// Apache's own program, as in real configurations.
#[test]
fn rotatelogs_gets_every_line() {
    let log = "CustomLog \"|/usr/bin/rotatelogs @ROOT@/logs/rotated 86400\" line\n";
    let mut house = open(&format!("{FORMAT}{log}"));
    let answered = work(&house);
    house.stop().unwrap();
    let rotated = || {
        let folder = fs::read_dir(house.path("logs")).unwrap().map(|entry| entry.unwrap());
        let names = folder.map(|entry| entry.file_name().into_string().unwrap());
        let logs = names.filter(|name| name.starts_with("rotated"));
        logs.flat_map(|name| lines(&house, &name)).collect::<Vec<_>>()
    };
    wait_for("the lines", || rotated().len() == answered).unwrap();
    assert!(rotated().iter().all(|line| line == LINE));
}
