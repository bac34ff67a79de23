//! A child's parent as the tests play it, here and in the room `conn`: the listening socket, the
//! scoreboard and the channel, over which a letter is a command.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it")]

use evenkeel_mpm::Command;
use evenkeel_mpm::setup::{Control, Setup};
use evenkeel_scoreboard::{Layout, Scoreboard};
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::listen;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The child's end of its channel: it hears a command in each letter, and says `R` when it is ready
/// and `E` when it leaves.
struct Wire(Channel);

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Control for Wire {
    fn next(&mut self) -> Option<Command> {
        match self.0.receive() {
            Received::Byte(b'r') => Some(Command::Run),
            Received::Byte(b'p') => Some(Command::Park),
            Received::Byte(b'h') => Some(Command::MakeRoom),
            Received::Byte(b'c') => Some(Command::MakeRoomUrgently),
            Received::Byte(b'x') => Some(Command::Exit),
            Received::Byte(b'l') => Some(Command::DrainLast),
            Received::Byte(b'e') => Some(Command::ExitLast),
            Received::Byte(_) => Some(Command::Drain),
            Received::Empty => None,
            Received::Closed => Some(Command::Orphaned),
        }
    }

    fn ready(&self) {
        self.0.send(b'R').unwrap();
    }

    fn leaving(&self) {
        self.0.send(b'E').unwrap();
    }
}

/// What the parent has of a child.
pub struct Parent {
    pub address: SocketAddr,
    pub port: Arc<OwnedFd>,
    pub wire: Channel,
    pub board: Scoreboard,
}

/// The only child of a parent, with so many threads and slots and as many credits; and its parent.
pub fn child(threads: usize, slots: usize) -> (Setup, Parent) {
    child_at(listen::Options::default(), threads, slots)
}

/// The same with other options of its listening socket.
pub fn child_at(options: listen::Options, threads: usize, slots: usize) -> (Setup, Parent) {
    let any = "127.0.0.1:0".parse().unwrap();
    let port = Arc::new(listen::bind(any, options).unwrap());
    listen::listen(&port, 128).unwrap();
    let address = listen::local_address(&port).unwrap();
    let (wire, control) = Channel::pair().unwrap();
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: slots }).unwrap();
    let setup = Setup {
        listeners: vec![Arc::clone(&port)],
        control: Box::new(Wire(control)),
        credits: slots.try_into().unwrap(),
        threads,
        most_connections: 0,
        most_children: 1,
        async_factor: None,
        descriptors: 20_000,
        blocking_threads: 1,
        line: board.child_line(0).unwrap(),
        slots: None,
        permits: None,
        shedding: None,
        drain_grace: Duration::ZERO,
        stop_grace: Duration::from_secs(60),
    };
    (setup, Parent { address, port, wire, board })
}
