//! Starts and stops, pid files, ports in use, deaths of children and of the parent.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use evenkeel_sys::identity;
use evenkeel_sys::signal::Signal;

use crate::runner::{Client, Folder, PATIENCE, Running, send};

pub const TESTS: &[(&str, fn())] = &[
    ("a_server_answers_and_term_ends_it_in_good_order", answers_and_ends),
    ("term_lets_a_request_in_progress_finish", term_finishes),
    ("term_ends_what_takes_longer_than_its_bound", term_is_bounded),
    ("winch_from_a_process_stops_gracefully", winch_stops),
    ("a_graceful_stop_ends_with_its_bound", winch_is_bounded),
    ("a_killed_child_is_replaced_and_costs_its_own_connections_only", killed_child),
    ("a_child_that_crashes_is_told_of_and_replaced", crashed_child),
    ("term_to_a_child_drains_it_and_another_takes_its_place", term_to_child),
    ("lines_that_a_dead_child_left_are_written_out", salvaged),
    ("lines_that_find_no_room_are_told_once_a_child_that_died", unsalvaged),
    ("a_port_in_use_is_told_and_refused", port_in_use),
    ("a_second_server_with_the_same_pid_file_is_refused", second_server),
    ("a_stale_pid_file_is_replaced", stale_pid_file),
    ("after_the_parents_death_orphans_leave_and_a_start_succeeds", orphans),
    ("a_configuration_that_is_broken_never_starts", broken_start),
    ("children_that_cannot_start_end_the_server", nothing_starts),
    ("a_fatal_child_ends_the_server_at_its_start", fatal_start),
    ("the_caller_of_a_detached_server_hears_how_the_start_went", detached),
    ("who_reads_what_the_caller_of_a_detached_server_writes_hears_its_end", read_to_the_end),
    ("one_process_serves_alone", alone),
    ("children_have_no_rights_left", no_rights),
    ("for_an_ordinary_user_user_is_ignored_with_a_notice", ordinary_user),
];

fn answers_and_ends() {
    let folder = Folder::new();
    let (mut server, serving) = Running::serving(&folder, "children=3");
    assert_eq!(Client::connect(serving.address).ask().1, 0);
    let written = fs::read_to_string(folder.pid_file()).unwrap();
    assert_eq!(written, format!("{}\n", server.pid()));
    server.signal(Signal::Terminate);
    assert!(server.await_end().success());
    assert!(
        server.seen.iter().any(|line| line == "[notice] AH00491: caught SIGTERM, shutting down")
    );
    assert_eq!(server.seen.iter().filter(|line| line.starts_with("serving ")).count(), 3);
    assert!(!folder.pid_file().exists());
    assert!(TcpStream::connect(serving.address).is_err());
}

fn term_finishes() {
    let folder = Folder::new();
    let (mut server, serving) = Running::serving(&folder, "");
    let mut working = Client::connect(serving.address);
    working.say("wait");
    assert_eq!(working.hear(), "waiting");
    server.signal(Signal::Terminate);
    server.await_line("AH00491");
    working.say("now");
    assert_ne!(working.hear(), "");
    assert!(server.await_end().success());
}

fn term_is_bounded() {
    let folder = Folder::new();
    let (mut server, serving) = Running::serving(&folder, "bound=1");
    let mut working = Client::connect(serving.address);
    working.say("wait");
    assert_eq!(working.hear(), "waiting");
    server.signal(Signal::Terminate);
    server.await_line("did not end in the time it had, killing it");
    assert_eq!(working.hear(), "");
    assert!(server.await_end().success());
}

fn winch_stops() {
    let folder = Folder::new();
    let (mut server, serving) = Running::serving(&folder, "");
    let mut idle = Client::connect(serving.address);
    let (pid, _) = idle.ask();
    server.signal(Signal::WindowChange);
    server.await_line("[notice] AH00492: caught SIGWINCH, shutting down gracefully");
    idle.ask_until_closed(pid);
    assert!(server.await_end().success());
}

fn winch_is_bounded() {
    let folder = Folder::new();
    let (mut server, serving) = Running::serving(&folder, "bound=1");
    let mut idle = Client::connect(serving.address);
    let (pid, _) = idle.ask();
    server.signal(Signal::WindowChange);
    server.await_line(&format!("child pid {pid} did not end in the time it had"));
    assert!(server.await_end().success());
}

fn killed_child() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2");
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(first.address)).collect();
    let served_by: Vec<i32> = clients.iter_mut().map(|client| client.ask().0).collect();
    let victim = served_by[0];
    send(victim, Signal::Kill);
    server.await_line(&format!("[notice] AH00052: child pid {victim} exit signal Killed (9)"));
    let new = server.await_serving();
    assert_ne!(new.pid, victim);
    for (client, pid) in clients.iter_mut().zip(served_by) {
        if pid == victim {
            assert_eq!(client.hear(), "");
        } else {
            assert_eq!(client.ask().0, pid);
        }
    }
    server.stop();
}

fn crashed_child() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    for _ in 0..3 {
        let mut client = Client::connect(first.address);
        client.say("abort");
        assert_eq!(client.hear(), "");
        server.await_line("exit signal Abort (6)");
        server.await_serving();
    }
    Client::connect(first.address).ask();
    server.stop();
}

fn term_to_child() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    let mut client = Client::connect(first.address);
    client.ask();
    send(first.pid, Signal::Terminate);
    let second = server.await_serving();
    client.ask_until_closed(first.pid);
    assert_eq!(Client::connect(first.address).ask().0, second.pid);
    server.stop();
}

fn salvaged() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=1");
    send(first.pid, Signal::Kill);
    server.await_line(&format!("salvaged 0: a line of {}", first.pid));
    server.await_serving();
    // Who has answered has told the parent that it serves; before, it is killed at a stop.
    Client::connect(first.address).ask();
    server.signal(Signal::Terminate);
    server.await_end();
    let salvaged = server.seen.iter().filter(|line| line.starts_with("salvaged"));
    assert_eq!(salvaged.count(), 1, "who ends in good order leaves nothing");
}

fn unsalvaged() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, "children=2 logs=3 full-disk");
    send(first.pid, Signal::Kill);
    let text = "found no room";
    let line = server.await_line(text);
    let lost = 3 * format!("a line of {}\n", first.pid).len();
    let of = format!("{lost} bytes of log lines that child {} had not written", first.pid);
    assert!(line.contains(&of), "{line}");
    server.await_line("exit signal Killed (9)");
    server.await_serving();
    // Each answers, so that none is killed at the stop before it was heard to serve.
    let mut pids = std::collections::BTreeSet::new();
    while pids.len() < 2 {
        pids.insert(Client::connect(first.address).ask().0);
    }
    server.signal(Signal::Terminate);
    server.await_end();
    let told = server.seen.iter().filter(|line| line.contains(text));
    assert_eq!(told.count(), 1, "{:#?}", server.seen);
}

fn port_in_use() {
    let folder = Folder::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    folder.configure(&format!("port={}", address.port()));
    let mut server = Running::start(&folder, "foreground");
    assert_eq!(server.await_end().code(), Some(1));
    assert_eq!(
        server.seen[0],
        format!(
            "(98)Address already in use: AH00072: make_sock: could not bind to address {address}"
        )
    );
    assert!(!folder.pid_file().exists());
}

fn second_server() {
    let folder = Folder::new();
    let (server, serving) = Running::serving(&folder, "");
    let mut second = Running::start(&folder, "foreground");
    assert_eq!(second.await_end().code(), Some(1));
    assert_eq!(second.seen, [format!("echo (pid {}) already running", server.pid())]);
    Client::connect(serving.address).ask();
    server.stop();
}

fn stale_pid_file() {
    for text in ["2147483000\n", "1\n", "rubbish"] {
        let folder = Folder::new();
        fs::write(folder.pid_file(), text).unwrap();
        let (server, _) = Running::serving(&folder, "");
        assert!(server.seen.iter().any(|line| line.contains("AH00098: pid file")));
        server.stop();
    }
}

fn orphans() {
    let folder = Folder::new();
    let (mut server, serving) = Running::serving(&folder, "children=2");
    let mut client = Client::connect(serving.address);
    let (pid, _) = client.ask();
    server.signal(Signal::Kill);
    // Its end is seen by waiting for the process; the orphans still hold its standard error.
    let (second, again) = {
        let port = serving.address.port();
        drop(std::mem::replace(&mut server, Running::start(&Folder::new(), "foreground")));
        Running::serving(&folder, &format!("port={port}"))
    };
    assert_eq!(again.address, serving.address);
    assert_ne!(Client::connect(again.address).ask().0, pid);
    client.ask_until_closed(pid);
    second.stop();
}

fn broken_start() {
    let folder = Folder::new();
    folder.configure("broken");
    let mut server = Running::start(&folder, "foreground");
    assert_eq!(server.await_end().code(), Some(1));
    assert_eq!(server.seen, ["AH00526: Syntax error on line 1 of echo.conf:", "broken"]);
}

fn nothing_starts() {
    let folder = Folder::new();
    folder.configure("dies");
    let mut server = Running::start(&folder, "foreground");
    assert_eq!(server.await_end().code(), Some(1));
    assert!(server.seen.iter().any(|line| line.contains("AH02324: A resource shortage")));
    assert!(!folder.pid_file().exists());
}

fn fatal_start() {
    let folder = Folder::new();
    folder.configure("fatal");
    let mut server = Running::start(&folder, "foreground");
    assert_eq!(server.await_end().code(), Some(1));
    assert!(server.seen.iter().any(|line| line.contains("AH00050: Child ")));
}

fn detached() {
    let folder = Folder::new();
    folder.configure("children=1");
    let mut caller = Running::start(&folder, "detached");
    let serving = caller.await_serving();
    caller.await_line("AH00094");
    Client::connect(serving.address).ask();
    let pid: i32 = fs::read_to_string(folder.pid_file()).unwrap().trim().parse().unwrap();
    assert_ne!(pid, caller.pid());
    send(pid, Signal::Terminate);
    assert!(caller.await_end().success());
    folder.configure("broken");
    let mut caller = Running::start(&folder, "detached");
    assert_eq!(caller.await_end().code(), Some(1));
    assert_eq!(caller.seen[1], "broken");
}

fn read_to_the_end() {
    let folder = Folder::new();
    folder.configure("children=2");
    let (mut output, theirs) = std::io::pipe().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.stdin(Stdio::null()).stdout(theirs);
    let mut caller = Running::start_as_is(command, &folder, "detached");
    let serving = caller.await_serving();
    caller.await_line("AH00094");
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(output.read_to_end(&mut Vec::new()).is_ok()));
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(true));
    Client::connect(serving.address).ask();
    let pid = fs::read_to_string(folder.pid_file()).unwrap();
    send(pid.trim().parse().unwrap(), Signal::Terminate);
    assert!(caller.await_end().success());
}

fn alone() {
    let folder = Folder::new();
    folder.configure("children=4");
    let mut server = Running::start(&folder, "alone");
    let serving = server.await_serving();
    assert_eq!(serving.pid, server.pid());
    assert_eq!(Client::connect(serving.address).ask(), (server.pid(), 0));
    server.signal(Signal::Interrupt);
    assert!(server.await_end().success());
    assert!(!folder.pid_file().exists());
}

fn no_rights() {
    if !identity::is_root() {
        return;
    }
    let nobody = identity::user_named("nobody").unwrap().unwrap();
    let folder = Folder::new();
    let (server, serving) = Running::serving(&folder, "children=1 user=nobody");
    let status = fs::read_to_string(format!("/proc/{}/status", serving.pid)).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_else(|| panic!("no {name}")).trim().to_owned()
    };
    let (uid, gid) = (nobody.uid, nobody.gid);
    assert_eq!(field("Uid"), format!("{uid}\t{uid}\t{uid}\t{uid}"));
    assert_eq!(field("Gid"), format!("{gid}\t{gid}\t{gid}\t{gid}"));
    assert_eq!(field("Groups"), gid.to_string());
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&field(set), 16).unwrap(), 0, "{set}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    server.stop();
}

fn ordinary_user() {
    if !identity::is_root() {
        return;
    }
    let nobody = identity::user_named("nobody").unwrap().unwrap();
    let folder = Folder::new();
    folder.configure("children=1 user=www-data");
    let mut server = Running::start_as(&folder, nobody.uid, "foreground");
    server.await_line("[notice] User and Group are ignored");
    let serving = server.await_serving();
    server.await_line("AH00094");
    let status = fs::read_to_string(format!("/proc/{}/status", serving.pid)).unwrap();
    assert!(status.contains(&format!("\nUid:\t{}\t", nobody.uid)));
    assert!(status.contains("\nNoNewPrivs:\t1\n"));
    server.stop();
}
