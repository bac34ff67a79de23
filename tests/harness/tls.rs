//! TLS over the life of a server: sessions continue in another child, after a reload and after a
//! change of the program, and a reload with a broken certificate leaves everything as it was.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, Successor, children_of, halt, send, wait_for};
use evenkeel_tests::tls::Guest;
use rustix::process::Signal;
use std::fs;

/// Two children, which stay.
const TWO: &str = "ThreadsPerChild 4\nServerLimit 2\nStartServers 2\nMaxRequestWorkers 8\n\
                   MinSpareThreads 8\nMaxSpareThreads 8\n";

/// A guest of each version, each with a session of its own.
fn guests(house: &House) -> [Guest; 2] {
    let guests = [Guest::old(), Guest::new()].map(Result::unwrap);
    for guest in &guests {
        assert!(!guest.visit(house.address).unwrap(), "the first handshake is a full one");
    }
    guests
}

fn all_resume(guests: &[Guest], house: &House, when: &str) {
    for (guest, version) in guests.iter().zip(["TLS 1.2", "TLS 1.3"]) {
        assert!(guest.visit(house.address).unwrap(), "{version}, {when}");
    }
}

/// Lets each child in turn serve alone, with the sessions that the other one has begun.
fn across_children(guests: &[Guest], house: &House) {
    for (index, child) in children_of(house.named_parent()).into_iter().enumerate() {
        halt(&[child]).unwrap();
        all_resume(guests, house, &format!("child {index} is halted"));
        send(child, Signal::CONT);
    }
}

fn sessions_continue(more: &str) {
    let house = House::open_tls(&format!("{TWO}{more}")).unwrap();
    wait_for("both children", || house.children().len() == 2).unwrap();
    let guests = guests(&house);
    all_resume(&guests, &house, "at once");
    across_children(&guests, &house);
    house.reload().unwrap();
    all_resume(&guests, &house, "after a reload");
    let _successor = Successor(&house);
    for when in ["after a change of the program", "after another one"] {
        house.change_program().unwrap();
        all_resume(&guests, &house, when);
        let children = || children_of(house.named_parent()).len();
        wait_for("both children", || children() == 2).unwrap();
        across_children(&guests, &house);
    }
    house.reload().unwrap();
    all_resume(&guests, &house, "after a reload of the new program");
    house_is_not_open_to_others(&house, &guests);
}

/// A server that does not share the keys does not know the sessions.
fn house_is_not_open_to_others(house: &House, guests: &[Guest; 2]) {
    let other = House::open_tls(TWO).unwrap();
    assert_ne!(other.address, house.address);
    for guest in guests {
        assert!(!guest.visit(other.address).unwrap(), "the keys of another server");
    }
}

#[test]
fn tickets_continue_sessions_across_children_reloads_and_programs() {
    sessions_continue("SSLSessionTickets on\n");
}

#[test]
fn the_session_cache_continues_sessions_across_children_reloads_and_programs() {
    sessions_continue("SSLSessionTickets off\n");
}

#[test]
fn a_reload_with_a_certificate_that_does_not_match_changes_nothing() {
    let house = House::open_tls(TWO).unwrap();
    let key = house.path("tls/localhost.key");
    let good = fs::read(&key).unwrap();
    let guest = Guest::new().unwrap();
    guest.visit(house.address).unwrap();
    let generations =
        |house: &House| house.error_log().matches("resuming normal operations").count();
    let (before, children) = (generations(&house), house.children());
    fs::copy(house.path("tls/user.key"), &key).unwrap();
    house.signal(Signal::USR1);
    let text = fs::read_to_string(house.path("httpd.conf")).unwrap();
    let line = text.lines().position(|line| line.starts_with("SSLCertificateKeyFile")).unwrap() + 1;
    let place = format!("(line {line} of {})", house.path("httpd.conf").display());
    let is_told = || {
        let log = house.error_log();
        log.lines().any(|line| line.contains("AH02565") && line.contains(&place))
    };
    wait_for("the refusal", is_told).unwrap();
    assert!(guest.visit(house.address).unwrap(), "the session continues");
    // The keys in memory are the old ones: a full handshake succeeds, whose signature is checked.
    assert!(!Guest::new().unwrap().visit(house.address).unwrap());
    assert_eq!((generations(&house), house.children()), (before, children));
    fs::write(&key, good).unwrap();
    house.reload().unwrap();
    assert!(guest.visit(house.address).unwrap(), "and after the next reload too");
}
