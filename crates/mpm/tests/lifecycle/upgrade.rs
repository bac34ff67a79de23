//! Changes of the program, sockets passed by a supervisor, and what a supervisor is told.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_mpm::SignalCommand;
use evenkeel_sys::signal::Signal;

use crate::buckets::load;
use crate::reload::ask_for;
use crate::runner::{Client, Folder, Running, send};

pub const TESTS: &[(&str, fn())] = &[
    ("five_changes_of_the_program_lose_nothing", five),
    ("who_asks_for_a_change_of_the_program_is_told_how_it_went", tells_the_sender),
    ("what_waits_where_the_new_program_does_not_listen_is_served", leaves),
    ("a_program_that_fails_leaves_the_old_one_serving", fails),
    ("no_client_loses_anything_to_a_program_that_fails_with_more_buckets", fails_with_buckets),
    ("what_is_asked_during_a_change_of_the_program_is_done_after_it", merges),
    ("a_stop_during_a_change_of_the_program_ends_both", stops),
    ("a_passed_socket_is_used_with_what_waits_on_it", activated),
    ("passed_sockets_and_listen_lines_must_be_for_each_other", mismatched),
    ("a_supervisor_hears_of_starts_reloads_and_stops", notified),
    ("a_supervisor_that_watches_hears_that_the_parent_lives", watched),
];

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn pid_in(folder: &Folder) -> i32 {
    fs::read_to_string(folder.pid_file()).unwrap().trim().parse().unwrap()
}

/// Has the server changed and gives the pid of the new one.
fn change(server: &mut Running, pid: i32) -> i32 {
    send(pid, Signal::User2);
    let line = server.await_line("serves now, this one ends with its last connection");
    let text = line.split_once("process ").unwrap().1;
    text.split(' ').next().unwrap().parse().unwrap()
}

fn five() {
    let folder = Folder::new();
    let port = free_port();
    let words = |buckets| format!("children=4 buckets={buckets} port={port}");
    let (mut server, first) = Running::serving(&folder, &words(1));
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4).map(|_| load(first.address, &over)).collect();
    let mut pid = server.pid();
    for buckets in [2, 1, 2, 2, 1] {
        folder.configure(&words(buckets));
        let new = change(&mut server, pid);
        assert_ne!(new, pid);
        assert_eq!(pid_in(&folder), new);
        pid = new;
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("every request is answered") > 0);
    }
    send(pid, Signal::Terminate);
    assert!(server.await_end().success());
    assert!(!folder.pid_file().exists());
}

fn tells_the_sender() {
    let folder = Folder::new();
    let words = format!("children=1 port={}", free_port());
    let (mut server, _) = Running::serving(&folder, &words);
    folder.configure("dies");
    let told = ask_for(&folder, SignalCommand::Upgrade).unwrap_err();
    assert!(told.contains("the new program did not come to serve"), "{told}");
    folder.configure(&words);
    assert_eq!(ask_for(&folder, SignalCommand::Upgrade), Ok(()));
    let new = pid_in(&folder);
    assert_ne!(new, server.pid());
    assert_eq!(ask_for(&folder, SignalCommand::Graceful), Ok(()));
    send(new, Signal::Terminate);
    assert!(server.await_end().success());
}

/// Has a process stand still, or go on.
fn suspend(pid: i32, how: &str) {
    assert!(Command::new("kill").args([how, &pid.to_string()]).status().unwrap().success());
}

fn leaves() {
    let folder = Folder::new();
    let (mut server, first) =
        Running::serving(&folder, &format!("hasty children=1 port={}", free_port()));
    suspend(first.pid, "-STOP");
    let mut waiting = Client::connect(first.address);
    folder.configure(&format!("children=1 port={}", free_port()));
    server.signal(Signal::User2);
    let second = server.await_serving();
    // The new program serves, and time enough goes by to end the old one too early.
    for _ in 0..200 {
        Client::connect(second.address).ask();
    }
    suspend(first.pid, "-CONT");
    assert_eq!(waiting.ask(), (first.pid, 0));
    drop(waiting);
    let line = server.await_line("serves now, this one ends");
    let new = line.split_once("process ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    while let Ok(late) = std::net::TcpStream::connect(first.address) {
        drop(late);
    }
    send(new, Signal::Terminate);
    assert!(server.await_end().success());
}

fn fails() {
    let folder = Folder::new();
    let port = free_port();
    let good = format!("children=2 port={port}");
    let (mut server, first) = Running::serving(&folder, &good);
    for (bad, told) in [("broken", "AH00526"), ("dies", "AH02324"), ("abort", "not come to serve")]
    {
        folder.configure(&format!("{good} {bad}"));
        server.signal(Signal::User2);
        server.await_line("[error] the new program did not come to serve, this one goes on");
        if !server.seen.iter().any(|line| line.contains(told)) {
            server.await_line(told);
        }
        assert_eq!(pid_in(&folder), server.pid());
        assert_eq!(Client::connect(first.address).ask().1, 0);
    }
    folder.configure(&good);
    server.signal(Signal::User1);
    server.await_line("AH00489");
    server.stop();
}

fn fails_with_buckets() {
    let folder = Folder::new();
    let port = free_port();
    let few = format!("children=2 port={port}");
    let (mut server, first) = Running::serving(&folder, &few);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..2).map(|_| load(first.address, &over)).collect();
    for (buckets, killed) in [(4, false), (8, true)] {
        let pipe = folder.pipe();
        let until = pipe.display();
        let more = format!("children=16 buckets={buckets} one-serves-until={until}");
        folder.configure(&format!("{more} port={port}"));
        server.signal(Signal::User2);
        let new = server.await_serving();
        assert_ne!(parent_of(new.pid), server.pid());
        // The kernel divides them among all sockets, and children serve few of the new ones.
        let mut waiting: Vec<Client> = (0..64).map(|_| Client::connect(first.address)).collect();
        if killed {
            send(parent_of(new.pid), Signal::Kill);
        }
        let dying = fs::File::options().read(true).write(true).open(&pipe).unwrap();
        server.await_line("[error] the new program did not come to serve, this one goes on");
        waiting.iter_mut().for_each(|client| assert!(client.ask().0 > 0));
        server.await_line("AH00489");
        drop(dying);
        fs::remove_file(pipe).unwrap();
        fs::remove_file(folder.configuration().with_extension("pipe.taken")).unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("every request is answered") > 0);
    }
    // The sockets are passed on to a program that has fewer buckets.
    folder.configure(&few);
    let pid = server.pid();
    let new = change(&mut server, pid);
    (0..64).for_each(|_| assert!(Client::connect(first.address).ask().0 > 0));
    send(new, Signal::Terminate);
    assert!(server.await_end().success());
}

fn parent_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(1).unwrap().parse().unwrap()
}

fn merges() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, &format!("port={}", free_port()));
    server.signal(Signal::User2);
    server.await_line("SIGUSR2 received.");
    server.signal(Signal::User1);
    let new = server.await_line("serves now, this one ends");
    let new: i32 =
        new.split_once("process ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    // The reload is the new program's.
    server.await_line("SIGUSR1 received.");
    assert_eq!(server.await_serving().generation, 1);
    server.await_line("AH00094");
    Client::connect(first.address).ask();
    send(new, Signal::Terminate);
    assert!(server.await_end().success());
}

fn stops() {
    let folder = Folder::new();
    let (mut server, first) = Running::serving(&folder, &format!("port={}", free_port()));
    server.signal(Signal::User2);
    server.signal(Signal::Terminate);
    assert!(server.await_end().success(), "{:#?}", server.seen);
    assert!(std::net::TcpStream::connect(first.address).is_err());
}

/// The program with a socket as descriptor 3, as systemd passes it.
fn passing(socket: TcpListener) -> Command {
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=echo.socket; \
                  exec \"$0\" \"$@\" 3<&0 0</dev/null";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap());
    command.stdin(Stdio::from(OwnedFd::from(socket)));
    command
}

fn activated() {
    let folder = Folder::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut early = Client::connect(address);
    folder.configure(&format!("children=4 buckets=2 port={}", address.port()));
    let mut server = Running::start_as_is(passing(socket), &folder, "foreground");
    server.await_line("AH00094");
    assert_eq!(early.ask().1, 0);
    drop(early);
    for _ in 0..16 {
        Client::connect(address).ask();
    }
    // It stays over a reload and a change of the program.
    server.signal(Signal::User1);
    server.await_line("AH00094");
    // The old children may be still about to hear that they are old.
    while Client::connect(address).ask().1 != 1 {}
    let pid = server.pid();
    let new = change(&mut server, pid);
    Client::connect(address).ask();
    send(new, Signal::Terminate);
    assert!(server.await_end().success());
}

fn mismatched() {
    let folder = Folder::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = socket.local_addr().unwrap();
    folder.configure(&format!("port={}", free_port()));
    let mut server = Running::start_as_is(passing(socket), &folder, "foreground");
    assert_eq!(server.await_end().code(), Some(1));
    let text = format!(
        "Socket activation is used, and no Listen line is for the passed socket \"echo.socket\" \
         ({address})"
    );
    assert_eq!(server.seen, [text]);
}

/// The program with a supervisor that listens at this address.
fn supervised(notify: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("NOTIFY_SOCKET", notify);
    command
}

/// The next message with this line; others come before it.
fn await_message(socket: &UnixDatagram, line: &str) -> String {
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = [0; 512];
    loop {
        let count = socket.recv(&mut bytes).expect("a message in time");
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        if text.lines().any(|own| own == line) {
            return text;
        }
    }
}

fn notified() {
    let folder = Folder::new();
    let name = format!("evenkeel-lifecycle-{}", std::process::id());
    let path = folder.configuration().with_extension("notify");
    let abstract_address = UnixAddress::from_abstract_name(&name).unwrap();
    for (socket, address) in [
        (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
        (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}")),
    ] {
        folder.configure(&format!("port={}", free_port()));
        let mut server = Running::start_as_is(supervised(&address), &folder, "foreground");
        assert!(await_message(&socket, "READY=1").contains("STATUS=Serving"));
        server.signal(Signal::User1);
        assert!(await_message(&socket, "RELOADING=1").contains("MONOTONIC_USEC="));
        await_message(&socket, "READY=1");
        folder.configure("broken");
        server.signal(Signal::User1);
        await_message(&socket, "RELOADING=1");
        await_message(&socket, "READY=1");
        folder.configure(&format!("port={}", free_port()));
        let pid = server.pid();
        let new = change(&mut server, pid);
        await_message(&socket, &format!("MAINPID={new}"));
        send(new, Signal::Terminate);
        await_message(&socket, "STOPPING=1");
        assert!(server.await_end().success());
    }
}

fn watched() {
    let folder = Folder::new();
    let path = folder.configuration().with_extension("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    folder.configure("");
    let mut command = supervised(path.to_str().unwrap());
    command.env("WATCHDOG_USEC", "200000");
    let mut server = Running::start_as_is(command, &folder, "foreground");
    server.await_line("AH00094");
    for _ in 0..5 {
        await_message(&socket, "WATCHDOG=1");
    }
    server.stop();
}
