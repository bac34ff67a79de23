//! Tests the parent and its listening sockets with the real server: buckets of sockets, and that
//! clients lose nothing while these change. Requests and responses are counted.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, Successor, wait_for};
use evenkeel_tests::load::{Load, REQUEST, connect, exchange, probe};
use evenkeel_tests::server::{command, free_port};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpStream};

/// Room for eight children, so that four buckets have two each.
const EIGHT: &str = "\
ServerLimit 8
StartServers 2
ThreadsPerChild 4
MinSpareThreads 4
MaxSpareThreads 8
MaxRequestWorkers 32
";

/// A server that already serves, so that a reload is a second start.
fn settled(more: &str) -> House {
    let house = House::open(more, &[]).unwrap();
    wait_for("the first start", || house.error_log().contains("resuming")).unwrap();
    house
}

/// Waits until the load has `more` further answers.
fn wait_for_answers(load: &Load, more: u64) {
    let before = load.answered();
    wait_for("an answer under load", || load.answered() >= before + more).unwrap();
}

#[test]
fn reloads_that_change_the_number_of_buckets_lose_nothing() {
    let house = settled(EIGHT);
    let kept = Load::start(house.address, 8, true);
    let short = Load::start(house.address, 4, false);
    for round in 0..18 {
        let buckets = [4, 1, 3, 2, 1, 4][round % 6];
        house.configure(&format!("ListenBuckets {buckets}\n")).unwrap();
        house.reload().unwrap_or_else(|error| panic!("{error}: {}", house.error_log()));
        wait_for_answers(&kept, 50);
        wait_for_answers(&short, 20);
    }
    for tally in [kept.stop(), short.stop()] {
        assert!(tally.lost.is_empty(), "lost: {:?}", tally.lost);
        assert_eq!(tally.refused, 0);
    }
    assert!(!house.error_log().contains("buckets of listening sockets need"));
}

#[test]
fn changes_of_the_program_under_load_lose_nothing() {
    let house = settled(EIGHT);
    let successor = Successor(&house);
    let kept = Load::start(house.address, 8, true);
    let short = Load::start(house.address, 4, false);
    for buckets in [2, 1, 4, 4, 1] {
        house.configure(&format!("ListenBuckets {buckets}\n")).unwrap();
        let old = house.named_parent();
        let file = house.path("httpd.conf").to_string_lossy().into_owned();
        let words = ["-f", &file, "-k", "upgrade"];
        let asked = command(&house.path("apache2"), &words).output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
        house.await_successor_of(old).unwrap();
        wait_for_answers(&kept, 50);
        wait_for_answers(&short, 20);
    }
    for tally in [kept.stop(), short.stop()] {
        assert!(tally.lost.is_empty(), "lost: {:?}", tally.lost);
        assert_eq!(tally.refused, 0);
    }
    drop(successor);
    assert!(connect(house.address).is_err(), "the last one has ended");
}

#[test]
fn in_every_model_a_killed_parents_children_leave_the_port_to_the_next_server() {
    for model in ["event", "worker", "prefork"] {
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        let mut house = settled(&module);
        let mut kept = connect(house.address).unwrap();
        exchange(&mut kept, REQUEST).unwrap();
        drop(kept);
        let children = house.children();
        assert!(!children.is_empty(), "{model}");
        house.signal(Signal::KILL);
        house.server = None;
        let alive = |pid: &u32| std::fs::exists(format!("/proc/{pid}")).unwrap_or(true);
        wait_for("the children's end", || !children.iter().any(alive)).unwrap();
        house.start(&[]).unwrap();
        probe(house.address).unwrap();
        house.stop().unwrap();
    }
}

#[test]
fn a_bucket_for_each_core_serves_every_client() {
    let house = settled("ListenCoresBucketsRatio 1\n");
    for _ in 0..64 {
        probe(house.address).unwrap();
    }
    house.reload().unwrap();
    for _ in 0..64 {
        probe(house.address).unwrap();
    }
}

#[test]
fn more_buckets_than_pairs_of_children_are_told_and_lowered() {
    let house = settled(EIGHT);
    house.configure("ListenBuckets 5\n").unwrap();
    house.reload().unwrap();
    let text = "5 buckets of listening sockets need 10 children, and 8 may be: decreasing to 4";
    assert!(house.error_log().contains(text), "{}", house.error_log());
    probe(house.address).unwrap();
}

#[test]
fn an_address_that_is_no_longer_configured_is_closed_beside_an_open_connection() {
    for model in ["event", "worker", "prefork"] {
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        address_gone(&settled(&module));
    }
}

fn address_gone(house: &House) {
    let port = free_port().unwrap();
    let more = format!("Listen 127.0.0.1:{port}\n");
    house.configure(&more).unwrap();
    house.reload().unwrap();
    let other = SocketAddr::from(([127, 0, 0, 1], port));
    let mut kept = connect(other).unwrap();
    assert!(!exchange(&mut kept, REQUEST).unwrap());
    house.configure("").unwrap();
    house.reload().unwrap();
    // The old children still have an open connection.
    wait_for("the end of the address", || TcpStream::connect(other).is_err()).unwrap();
    assert!(exchange(&mut kept, REQUEST).unwrap(), "the connection ends with this answer");
    probe(house.address).unwrap();
}
