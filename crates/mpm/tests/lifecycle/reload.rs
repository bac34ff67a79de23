//! Reloads: what is kept, what is refused, what clients lose (nothing).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use evenkeel_mpm::{SignalCommand, SignalOutcome, signal_server};
use evenkeel_sys::signal::Signal;

use crate::runner::{Client, Folder, Running, send};

pub const TESTS: &[(&str, fn())] = &[
    ("a_graceful_reload_answers_open_connections_once_more", keeps_connections),
    ("a_hard_restart_finishes_requests_in_progress", hard_restart),
    ("no_client_loses_anything_over_twenty_reloads", loses_nothing),
    ("a_broken_configuration_is_refused_and_the_old_serves_on", refuses_broken),
    ("a_configuration_whose_reading_crashes_is_refused", refuses_crashing),
    ("a_configuration_whose_logs_cannot_be_opened_is_refused", refuses_unopenable),
    ("a_configuration_whose_port_is_taken_is_refused", refuses_port),
    ("a_configuration_whose_children_do_not_start_is_given_up", gives_up),
    ("the_sender_of_a_reload_receives_its_result", tells_the_sender),
    ("the_sender_of_a_reload_is_told_that_the_server_stops", tells_of_a_stop),
    ("what_a_given_up_configuration_serves_already_is_finished", finishes_given_up),
    ("children_are_told_of_what_waits_while_a_reload_is_under_way", told_meanwhile),
    ("who_goes_while_a_reload_takes_its_time_has_a_successor", replaced_meanwhile),
    ("reloads_that_come_at_once_become_few", merges),
    ("the_number_of_children_follows_the_configuration", follows_number),
    ("another_process_model_is_refused", other_model),
    ("a_drain_after_a_reload_ends_with_its_bound", drain_is_bounded),
    ("a_reload_gets_all_that_the_limits_of_the_start_allow", gets_all),
    ("children_that_retire_take_no_place_from_those_that_serve", retiring_apart),
];

fn keeps_connections() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let mut open = Client::connect(first.address);
    open.ask();
    server.signal(Signal::User1);
    server.await_line("[notice] AH00493: SIGUSR1 received.  Doing graceful restart");
    let second = server.await_serving();
    assert_eq!((second.generation, second.address), (1, first.address));
    server.await_line("[notice] AH00489: Echo/1.0 configured -- resuming normal operations");
    open.ask_until_closed(first.pid);
    assert_eq!(Client::connect(first.address).ask(), (second.pid, 1));
    server.stop();
}

fn hard_restart() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let mut working = Client::connect(first.address);
    working.say("wait");
    working.hear();
    server.signal(Signal::Hangup);
    server.await_line("[notice] AH00494: SIGHUP received.  Attempting to restart");
    server.await_line("AH00489");
    working.say("now");
    assert_eq!(working.hear(), format!("{} 0", first.pid));
    assert_eq!(working.hear(), "");
    assert_eq!(Client::connect(first.address).ask().1, 1);
    server.stop();
}

fn loses_nothing() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2");
    let over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU32::new(0));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (over, answered) = (Arc::clone(&over), Arc::clone(&answered));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    Client::connect(first.address).ask();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..20 {
        server.signal(Signal::User1);
        server.await_line("AH00094");
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("every request is answered");
    }
    assert!(answered.load(Ordering::Relaxed) > 20);
    server.stop();
}

fn refuses_broken() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let mut open = Client::connect(first.address);
    folder.configure("broken");
    server.signal(Signal::User1);
    server.await_line("[error] AH00526: Syntax error on line 1 of echo.conf:");
    server.await_line("[error] broken");
    server.await_line("refused");
    assert_eq!(open.ask(), (first.pid, 0));
    assert_eq!(open.ask(), (first.pid, 0));
    folder.configure("children=1");
    server.signal(Signal::User1);
    assert_eq!(server.await_serving().generation, 1);
    server.stop();
}

fn refuses_crashing() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    folder.configure("abort");
    server.signal(Signal::Hangup);
    server.await_line("reading the configuration ended with signal Abort (6)");
    server.await_line("refused");
    folder.configure("panic");
    server.signal(Signal::User1);
    server.await_line("reading the configuration panicked");
    server.await_line("refused");
    assert_eq!(Client::connect(first.address).ask(), (first.pid, 0));
    server.stop();
}

fn refuses_unopenable() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    folder.configure("unopenable");
    server.signal(Signal::User1);
    server.await_line("AH00091: could not open error log");
    server.await_line("refused");
    assert_eq!(Client::connect(first.address).ask(), (first.pid, 0));
    server.stop();
}

fn refuses_port() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    folder.configure(&format!("port={port}"));
    server.signal(Signal::User1);
    server.await_line("AH00072: make_sock: could not bind to address");
    server.await_line("refused");
    drop(other);
    server.signal(Signal::User1);
    let second = server.await_serving();
    assert_eq!(second.address.port(), port);
    server.await_line("AH00489");
    Client::connect(second.address).ask();
    assert_ne!(first.address, second.address);
    server.stop();
}

fn gives_up() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2");
    for bad in ["dies", "fatal"] {
        folder.configure(bad);
        server.signal(Signal::User1);
        server.await_line("no child of the new configuration came to serve");
        assert_eq!(Client::connect(first.address).ask().1, 0);
    }
    folder.configure("children=2");
    server.signal(Signal::User1);
    let second = server.await_serving();
    server.await_line("AH00489");
    assert!(second.generation > 0);
    Client::connect(first.address).ask();
    server.stop();
}

/// What `-k` says of a reload once it has ended.
pub fn ask_for(folder: &Folder, command: SignalCommand) -> Result<(), String> {
    match signal_server(&folder.pid_file(), command) {
        SignalOutcome::Reloads(pending) => pending.wait(),
        other => panic!("{other:?}"),
    }
}

fn tells_the_sender() {
    let folder = Folder::new();
    let (mut server, _) = Running::serving(&folder, "children=2");
    for (bad, why) in
        [("dies", "no child of the new"), ("fatal", "no child"), ("broken", "AH00526")]
    {
        folder.configure(bad);
        let told = ask_for(&folder, SignalCommand::Graceful).unwrap_err();
        let ends = told.ends_with("the server goes on with the old one");
        assert!(told.contains(why) && ends, "{bad}: {told}");
    }
    folder.configure("children=2");
    for command in [SignalCommand::Graceful, SignalCommand::Restart] {
        assert_eq!(ask_for(&folder, command), Ok(()));
        server.await_line("AH00489");
    }
    server.stop();
    assert!(!folder.pid_file().with_extension("pid.reload").exists());
}

fn tells_of_a_stop() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let mut open = Client::connect(first.address);
    open.say("wait");
    assert_eq!(open.hear(), "waiting");
    let pipe = folder.pipe();
    folder.configure(&format!("children=1 starts-after={}", pipe.display()));
    let told = std::thread::scope(|scope| {
        let sender = scope.spawn(|| ask_for(&folder, SignalCommand::Graceful));
        server.await_line("starting 1");
        server.signal(Signal::WindowChange);
        sender.join().unwrap()
    });
    let is_told = |told: Result<(), String>| told == Err("the server is stopping".to_owned());
    assert!(is_told(told));
    assert!(is_told(ask_for(&folder, SignalCommand::Restart)));
    open.say("go on");
    assert_eq!(open.hear(), format!("{} 0", first.pid));
    server.stop();
}

fn finishes_given_up() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let pipe = folder.pipe();
    // An address of its own, so that the old children do not take the client.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    drop(other);
    folder.configure(&format!("port={port} children=2 one-serves-until={}", pipe.display()));
    server.signal(Signal::User1);
    let second = server.await_serving();
    let mut client = Client::connect(second.address);
    client.say("wait");
    assert_eq!(client.hear(), "waiting");
    let _dying = std::fs::File::options().write(true).open(pipe).unwrap();
    server.await_line("no child of the new configuration came to serve");
    client.say("go on");
    assert_eq!(client.hear(), format!("{} {}", second.pid, second.generation));
    assert_eq!(Client::connect(first.address).ask().1, 0);
    server.stop();
}

fn told_meanwhile() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "worker lazy children=1");
    assert_eq!(Client::connect(first.address).ask().1, 0);
    let pipe = folder.pipe();
    let words = format!("worker lazy children=2 one-serves-until={}", pipe.display());
    folder.configure(&words);
    server.signal(Signal::User1);
    assert_eq!(server.await_serving().generation, 1);
    Client::connect(first.address).ask();
    let _dying = std::fs::File::options().write(true).open(pipe).unwrap();
    server.await_line("no child of the new configuration came to serve");
    server.stop();
}

fn replaced_meanwhile() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let pipe = folder.pipe();
    folder.configure(&format!("children=1 starts-after={}", pipe.display()));
    server.signal(Signal::User1);
    server.await_line("starting 1");
    send(first.pid, Signal::Kill);
    let second = server.await_serving();
    assert_eq!((second.generation, second.address), (0, first.address));
    assert_eq!(Client::connect(first.address).ask(), (second.pid, 0));
    // One that is asked to end goes too.
    send(second.pid, Signal::Terminate);
    let third = server.await_serving();
    assert_eq!(third.generation, 0);
    let mut open = Client::connect(first.address);
    assert_eq!(open.ask(), (third.pid, 0));
    let _started = std::fs::File::options().write(true).open(pipe).unwrap();
    let new = server.await_serving();
    assert_eq!(new.generation, 1);
    server.await_line("AH00489");
    open.ask_until_closed(third.pid);
    assert_eq!(Client::connect(first.address).ask(), (new.pid, 1));
    server.stop();
}

fn merges() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    for _ in 0..50 {
        server.signal(Signal::User1);
        Client::connect(first.address).ask();
    }
    server.await_line("AH00489");
    Client::connect(first.address).ask();
    server.stop();
}

fn follows_number() {
    let folder = Folder::new();
    let (mut server, _) = Running::serving(&folder, "children=1");
    folder.configure("children=5");
    server.signal(Signal::User1);
    for _ in 0..5 {
        assert_eq!(server.await_serving().generation, 1);
    }
    server.await_line("AH00489");
    server.stop();
}

fn other_model() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    folder.configure("children=1 worker");
    server.signal(Signal::User1);
    server.await_line("AH00534: echo: Configuration error: The MPM cannot be changed");
    server.await_line("refused");
    assert_eq!(Client::connect(first.address).ask(), (first.pid, 0));
    server.stop();
}

fn drain_is_bounded() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1 bound=1");
    let mut working = Client::connect(first.address);
    working.say("wait");
    assert_eq!(working.hear(), "waiting");
    server.signal(Signal::User1);
    server.await_line("AH00489");
    server.await_line(&format!("child pid {} did not end in the time it had", first.pid));
    assert_eq!(working.hear(), "");
    Client::connect(first.address).ask();
    server.stop();
}

fn gets_all() {
    let folder = Folder::new();
    let (mut server, _) = Running::serving(&folder, "children=1 servers=9");
    folder.configure("children=9 servers=9");
    server.signal(Signal::User1);
    for _ in 0..9 {
        assert_eq!(server.await_serving().generation, 1);
    }
    server.await_line("AH00489");
    // The table of children was made at the start.
    folder.configure("children=20 servers=20");
    server.signal(Signal::User1);
    let text = "[warn] AH00501: changing ServerLimit to 20 from original value of 9 not allowed \
                during restart";
    server.await_line(text);
    server.await_line("MaxRequestWorkers of 500 would require 20 servers and exceed ServerLimit");
    for _ in 0..9 {
        assert_eq!(server.await_serving().generation, 2);
    }
    server.await_line("AH00489");
    server.stop();
}

/// A connection to each of so many children of a generation, with a request in progress. An old
/// child may be still about to hear that it is old.
fn held(address: std::net::SocketAddr, children: usize, generation: u32) -> Vec<(i32, Client)> {
    let mut held: Vec<(i32, Client)> = Vec::new();
    while held.len() < children {
        let mut client = Client::connect(address);
        let (pid, of) = client.ask();
        if of == generation && held.iter().all(|(other, _)| *other != pid) {
            client.say("wait");
            assert_eq!(client.hear(), "waiting");
            held.push((pid, client));
        }
    }
    held
}

fn retiring_apart() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=3 servers=3");
    let mut generations = Vec::new();
    for generation in 0..2 {
        generations.push(held(first.address, 3, generation));
        server.signal(Signal::User1);
        server.await_line("AH00489");
    }
    // As many retire as may, and as many serve beside them. Six would be too many.
    for (pid, _) in &generations[0] {
        let text = format!("child pid {pid} still serves connections, but only 3 children");
        if !server.seen.iter().any(|line| line.contains(&text)) {
            server.await_line(&text);
        }
    }
    assert_eq!(held(first.address, 3, 2).len(), 3);
    for (_, client) in &mut generations[0] {
        assert_eq!(client.hear(), "");
    }
    for (pid, client) in &mut generations[1] {
        client.say("now");
        assert_eq!(client.hear(), format!("{pid} 1"));
    }
    server.stop();
}
