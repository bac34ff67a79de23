//! What happens where descriptors run out: accepting pauses and the connections that have been
//! idle longest are closed for those that come. Each case has its turn and nothing else stands in
//! this process, so that nobody else uses descriptors meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support;

use evenkeel_message::Notice;
use evenkeel_mpm::event::serve_with;
use evenkeel_mpm::service::Service;
use evenkeel_mpm::setup::Setup;
use evenkeel_scoreboard::Credit;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ParkRequest, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::Socket;
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Sends back what comes and lets the connection rest.
struct Echo;

impl Service for Echo {
    fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        _: &mut Option<Credit>,
        _: &mut u32,
    ) -> Outcome {
        let mut reason = ParkReason::KeepAlive;
        let mut buffer = [0; 64];
        match socket.receive(&mut buffer) {
            Ok(count) if count > 0 => {
                socket.send(&[IoSlice::new(&buffer[..count])], false).unwrap();
            }
            Ok(_) => return Outcome::Closed,
            Err(_) if matches!(event, ReadyEvent::Accepted { .. }) => {
                reason = ParkReason::FirstRequest
            }
            Err(_) => {}
        }
        let pause = ParkRequest { reason, timeout_ms: 60_000, state: [0; 4] };
        Outcome::Park(socket, pause)
    }

    fn shed(&mut self, _: Socket, _: ReadyEvent, _: &mut u32) -> Outcome {
        Outcome::Closed
    }

    fn expire(&mut self, _: Socket, _: ParkReason, _: ParkedState, late: bool) {
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
    let (setup, parent) = support::child(1, 4);
    let setup = Setup { descriptors: 60, ..setup };
    let thread = std::thread::spawn(move || serve_with(setup, |_| Echo));
    // Each connection takes two descriptors here, one for each end; from 45 on they are kept.
    let mut clients: Vec<TcpStream> = Vec::new();
    for _ in 0..count {
        let mut client = TcpStream::connect(parent.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        greet(&mut client);
        clients.push(client);
    }
    assert_eq!(clients[0].read(&mut [0; 1]).unwrap(), 0, "the oldest has made room");
    assert!(parent.wire.send(b'x').unwrap());
    thread.join().unwrap().unwrap();
}
