//! Buckets of listening sockets: all are served, whatever their number was before, and a client
//! notices nothing when it changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use evenkeel_sys::signal::Signal;

use crate::runner::{Client, Folder, Running, send};

pub const TESTS: &[(&str, fn())] = &[
    ("every_bucket_is_served_and_by_children_of_its_own", all_served),
    ("no_client_loses_anything_while_the_number_of_buckets_changes", loses_nothing),
    ("buckets_of_a_configuration_that_is_given_up_are_served", given_up),
    ("no_client_loses_anything_while_more_buckets_are_given_up", given_up_under_load),
    ("what_waits_while_more_buckets_are_refused_is_served", refused_buckets),
    ("a_reload_asked_for_while_one_fails_is_done_after_it", asked_meanwhile),
    ("an_address_that_is_no_longer_configured_is_closed", address_gone),
];

/// Who answers so many clients, each on a connection of its own.
fn who_answers(address: SocketAddr, clients: usize) -> Vec<i32> {
    let mut open: Vec<Client> = (0..clients).map(|_| Client::connect(address)).collect();
    let mut pids: Vec<i32> = open.iter_mut().map(|client| client.ask().0).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn all_served() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=4 buckets=2");
    for _ in 0..3 {
        let pids = who_answers(first.address, 64);
        assert!(pids.len() >= 2, "one child for two buckets: {pids:?}");
        server.signal(Signal::User1);
        server.await_line("AH00489");
    }
    server.stop();
}

/// A client that asks on a connection after another until it is told to stop, and how many answers
/// it had.
pub fn load(address: SocketAddr, over: &Arc<AtomicBool>) -> JoinHandle<u32> {
    let over = Arc::clone(over);
    std::thread::spawn(move || {
        let mut answered = 0;
        while !over.load(Ordering::Relaxed) {
            Client::connect(address).ask();
            answered += 1;
        }
        answered
    })
}

fn loses_nothing() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=8 buckets=2");
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4).map(|_| load(first.address, &over)).collect();
    for round in 0..18 {
        let buckets = [4, 1, 3, 2, 1, 4][round % 6];
        folder.configure(&format!("children=8 buckets={buckets}"));
        server.signal(Signal::User1);
        server.await_line("AH00094");
    }
    over.store(true, Ordering::Relaxed);
    let answered: Vec<u32> =
        clients.into_iter().map(|client| client.join().expect("all are answered")).collect();
    assert!(answered.iter().all(|count| *count > 18), "{answered:?}");
    server.stop();
}

fn given_up() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2");
    folder.configure("children=8 buckets=4 dies");
    server.signal(Signal::User1);
    server.await_line("no child of the new configuration came to serve");
    // Whatever waits in the new buckets is answered by new children of the old configuration.
    let pids = who_answers(first.address, 64);
    assert!(!pids.is_empty());
    server.await_line("AH00489");
    // The old children may be still about to hear that they are old.
    while Client::connect(first.address).ask().1 != 2 {}
    server.stop();
}

fn given_up_under_load() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2");
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..2).map(|_| load(first.address, &over)).collect();
    for buckets in [2, 4, 8] {
        let pipe = folder.pipe();
        let until = pipe.display();
        folder.configure(&format!("children=16 buckets={buckets} one-serves-until={until}"));
        server.signal(Signal::User1);
        server.await_serving();
        let mut waiting: Vec<Client> = (0..64).map(|_| Client::connect(first.address)).collect();
        let dying = std::fs::File::options().write(true).open(&pipe).unwrap();
        server.await_line("no child of the new configuration came to serve");
        waiting.iter_mut().for_each(|client| assert!(client.ask().0 > 0));
        server.await_line("AH00489");
        drop(dying);
        std::fs::remove_file(pipe).unwrap();
        std::fs::remove_file(folder.configuration().with_extension("pipe.taken")).unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("all are answered") > 0);
    }
    server.stop();
}

fn refused_buckets() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2");
    let pipe = folder.pipe();
    let words = format!("children=8 buckets=4 unopenable unopenable-after={}", pipe.display());
    folder.configure(&words);
    server.signal(Signal::User1);
    // Opened once the parent reads, which then waits in the middle of the change.
    let held = std::fs::File::options().write(true).open(pipe).unwrap();
    let mut clients: Vec<Client> = (0..64).map(|_| Client::connect(first.address)).collect();
    drop(held);
    server.await_line("refused");
    assert!(clients.iter_mut().all(|client| client.ask().1 == 0));
    server.stop();
}

fn asked_meanwhile() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2");
    let pipe = folder.pipe();
    folder.configure(&format!("children=8 buckets=4 one-serves-until={}", pipe.display()));
    server.signal(Signal::User1);
    assert_eq!(server.await_serving().generation, 1);
    folder.configure("broken");
    server.signal(Signal::User1);
    // The parent reads the signals in the order of their numbers: once it has noted the end of an
    // old child, it notes the reload that was asked for before.
    send(first.pid, Signal::Kill);
    server.await_line(&format!("child pid {} exit signal Kill", first.pid));
    let _dying = std::fs::File::options().write(true).open(pipe).unwrap();
    server.await_line("no child of the new configuration came to serve");
    // First the buckets of the failed one get children, then the second is looked at.
    server.await_line("AH00489");
    server.await_line("[error] broken");
    assert_eq!(Client::connect(first.address).ask().1, 2);
    server.stop();
}

fn address_gone() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2 buckets=1");
    let mut kept = Client::connect(first.address);
    kept.ask();
    kept.say("wait");
    kept.hear();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    folder.configure(&format!("children=2 port={port}"));
    server.signal(Signal::User1);
    let second = server.await_serving();
    server.await_line("AH00489");
    assert_eq!(Client::connect(second.address).ask().1, 1);
    // The request in progress is answered, and then nobody listens.
    kept.say("now");
    assert!(kept.hear().ends_with(" 0"));
    while let Ok(late) = std::net::TcpStream::connect(first.address) {
        drop(late);
    }
    server.stop();
}
