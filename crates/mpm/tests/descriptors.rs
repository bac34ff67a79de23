//! What happens where descriptors run out: accepting pauses and the connections that have been
//! idle longest are closed for those that come. Each case has its turn and nothing else stands in
//! this process, so that nobody else uses descriptors meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use evenkeel_message::Notice;
use evenkeel_mpm::Command;
use evenkeel_mpm::event::serve_with;
use evenkeel_mpm::service::Service;
use evenkeel_mpm::setup::{Control, Setup};
use evenkeel_scoreboard::{Credit, Layout, Scoreboard};
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::listen;
use evenkeel_sys::shelf::Memo;
use evenkeel_sys::socket::Socket;
use evenkeel_sys::turn::{Class, Outcome, Pause, Turn};
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Sends back what comes and lets the connection rest.
struct Echo;

impl Service for Echo {
    fn serve(
        &mut self,
        socket: Socket,
        turn: Turn,
        _: &mut Option<Credit>,
        _: &mut u32,
    ) -> Outcome {
        let mut class = Class::KeepAlive;
        let mut buffer = [0; 64];
        match socket.receive(&mut buffer) {
            Ok(count) if count > 0 => {
                socket.send(&[IoSlice::new(&buffer[..count])], false).unwrap();
            }
            Ok(_) => return Outcome::Closed,
            Err(_) if matches!(turn, Turn::Accepted { .. }) => class = Class::Fresh,
            Err(_) => {}
        }
        let pause = Pause { class, timeout_ms: 60_000, memo: [0; 4] };
        Outcome::Rest(socket, pause)
    }

    fn shed(&mut self, _: Socket, _: Turn, _: &mut u32) -> Outcome {
        Outcome::Closed
    }

    fn expire(&mut self, _: Socket, _: Class, _: Memo, late: bool) {
        assert!(!late, "its time is not over");
    }

    fn retire(&mut self, _: bool) {}

    fn tick(&mut self) {}

    fn notify(&mut self, notice: Notice) {
        let is_near = notice.text.contains("all but a few of the 60 descriptors");
        assert!(is_near || notice.number == Some(2176), "{}", notice.text);
        assert!(notice.text.contains("(ulimit -n "), "{}", notice.text);
    }
}

struct Wire(Channel);

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Control for Wire {
    fn next(&mut self) -> Option<Command> {
        matches!(self.0.receive(), Received::Byte(_)).then_some(Command::Exit)
    }

    fn ready(&self) {}
}

static TURN: Mutex<()> = Mutex::new(());

#[test]
fn the_oldest_idle_make_room() {
    make_room(30, |client| {
        client.write_all(b"hi").unwrap();
        let mut answer = [0; 2];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hi");
    });
}

#[test]
fn the_oldest_that_never_asked_make_room_where_too_few_are_idle() {
    make_room(30, |_| {});
}

/// Connects so many clients one after another, each greeted in its way, and waits for the first
/// to be closed for the others.
fn make_room(count: usize, greet: impl Fn(&mut TcpStream)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let any = "127.0.0.1:0".parse().unwrap();
    let socket = listen::bind(any, listen::Options::default()).unwrap();
    listen::listen(&socket, 128).unwrap();
    let address = listen::local_address(&socket).unwrap();
    let (wire, control) = Channel::pair().unwrap();
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: 4 }).unwrap();
    let line = board.child_line(0).unwrap();
    let setup = Setup {
        ports: vec![Arc::new(socket)],
        control: Box::new(Wire(control)),
        credits: 4,
        threads: 1,
        most_connections: 0,
        descriptors: 60,
        blocking_threads: 1,
        most_children: 1,
        async_factor: None,
        slots: None,
        line,
        shedding: None,
        parting: Duration::ZERO,
    };
    let thread = std::thread::spawn(move || serve_with(setup, |_| Echo));
    // Each connection takes two descriptors here, one for each end; from 45 on they are kept.
    let mut clients: Vec<TcpStream> = Vec::new();
    for _ in 0..count {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        greet(&mut client);
        clients.push(client);
    }
    assert_eq!(clients[0].read(&mut [0; 1]).unwrap(), 0, "the oldest has made room");
    assert!(wire.send(b'x').unwrap());
    thread.join().unwrap().unwrap();
}
