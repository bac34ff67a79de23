//! What an event child does with a connection on which another request may be on its way when the
//! child is told to end. How long it waits is the test's to say: nothing is timed.
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
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Answers each byte with `a`, or with `z` where that is the last.
struct Letters {
    retiring: bool,
}

impl Service for Letters {
    fn serve(
        &mut self,
        socket: Socket,
        _: ReadyEvent,
        _: &mut Option<Credit>,
        _: &mut u32,
    ) -> Outcome {
        let pause =
            ParkRequest { reason: ParkReason::KeepAlive, timeout_ms: 600_000, state: [0; 4] };
        match socket.receive(&mut [0]) {
            Ok(0) => Outcome::Closed,
            Ok(_) => {
                let letter = if self.retiring { b"z" } else { b"a" };
                socket.send(&[IoSlice::new(letter)], false).unwrap();
                if self.retiring { Outcome::Closed } else { Outcome::Park(socket, pause) }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Outcome::Park(socket, pause),
            Err(_) => Outcome::Closed,
        }
    }

    fn shed(&mut self, _: Socket, _: ReadyEvent, _: &mut u32) -> Outcome {
        Outcome::Closed
    }

    fn expire(&mut self, _: Socket, _: ParkReason, _: ParkedState, late: bool) {
        assert!(!late);
    }

    fn retire(&mut self, retiring: bool) {
        self.retiring = retiring;
    }

    fn tick(&mut self) {}

    fn notify(&mut self, notice: Notice) {
        assert!(notice.text.is_empty(), "{notice:?}");
    }
}

/// Tells a child to end that keeps two connections; what each of them gets from then on, the first
/// as long as it asks.
fn end(drain_grace: Duration) -> [Vec<u8>; 2] {
    let (setup, parent) = support::child(2, 4);
    let setup = Setup { drain_grace, ..setup };
    let thread = std::thread::spawn(move || serve_with(setup, |_| Letters { retiring: false }));
    let mut both = [(); 2].map(|()| {
        let mut client = TcpStream::connect(parent.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        client
    });
    assert!(parent.wire.send(b'x').unwrap());
    let got = both.each_mut().map(|client| {
        let (mut got, mut letter) = (Vec::new(), [0]);
        if drain_grace.is_zero() {
            assert_eq!(client.read(&mut letter).unwrap_or(0), 0);
        }
        while !drain_grace.is_zero() && client.write_all(b"x").is_ok() {
            match client.read(&mut letter) {
                Ok(count) if count > 0 => got.push(letter[0]),
                _ => break,
            }
        }
        got
    });
    drop(both);
    thread.join().unwrap().unwrap();
    got
}

#[test]
fn what_is_asked_on_kept_connections_when_the_child_ends_is_answered_with_a_last_answer() {
    for got in end(Duration::from_secs(600)) {
        let (last, others) = got.split_last().unwrap();
        assert!(*last == b'z' && others.iter().all(|letter| *letter == b'a'), "{got:?}");
    }
    // A child that waits for nobody closes what rests by itself.
    end(Duration::ZERO);
}
