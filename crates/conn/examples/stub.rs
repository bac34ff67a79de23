//! Serves a page of 1 KiB from memory on 127.0.0.1: the path of a connection alone, to be
//! measured with a load generator. Usage: stub PORT [THREADS [CREDITS]]; ends with its terminal.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "an example")]

#[path = "../tests/stub/mod.rs"]
mod stub;

use evenkeel_conn::{Connections, Settings, SlowBytes, Workplace};
use evenkeel_mpm::Command;
use evenkeel_mpm::event::serve_with;
use evenkeel_mpm::setup::{Control, Setup};
use evenkeel_scoreboard::{Layout, Scoreboard, Slots};
use evenkeel_sys::channel::Channel;
use evenkeel_sys::listen;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Silent(Channel, #[allow(dead_code, reason = "keeps the other end open")] Channel);

impl AsFd for Silent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Control for Silent {
    fn next(&mut self) -> Option<Command> {
        None
    }

    fn ready(&self) {}
}

fn main() -> std::io::Result<()> {
    let number = |index, default| {
        std::env::args().nth(index).map_or(default, |word| word.parse::<usize>().unwrap())
    };
    let (port, threads, credits) = (number(1, 8080), number(2, 1), number(3, 400));
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    let socket = listen::bind(address, listen::Options::default())?;
    listen::defer_accept(&socket, Duration::from_secs(30))?;
    listen::listen(&socket, 4096)?;
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: credits })?;
    let line = board.child_line(0).unwrap();
    let slots = Slots::new(board, 0, credits);
    let (ours, theirs) = Channel::pair()?;
    let setup = Setup {
        listeners: vec![Arc::new(socket)],
        control: Box::new(Silent(ours, theirs)),
        credits: credits as u32,
        threads,
        most_connections: 0,
        descriptors: 1 << 20,
        blocking_threads: 1,
        most_children: 1,
        async_factor: None,
        slots: None,
        permits: None,
        line,
        shedding: None,
        drain_grace: Duration::ZERO,
        stop_grace: Duration::ZERO,
    };
    let (addresses, log) = (Arc::default(), Arc::<Mutex<Vec<String>>>::default());
    serve_with(setup, move |context| {
        let mut settings = Settings::default();
        settings.keep_alive.max = 0;
        let mut site = stub::Stub::new(settings, Arc::clone(&log));
        site.keeps_log = false;
        let place = Workplace {
            gate: context.gate,
            bulkhead: Arc::clone(context.blocking_pool.bulkhead()),
            slots: Some(slots),
            client_wait: None,
            permits: None,
            line,
            ports: Arc::from([address]),
            addresses: Arc::clone(&addresses),
            slow_bytes: SlowBytes::new(SlowBytes::USUAL),
            handshakes: SlowBytes::new(SlowBytes::USUAL),
            long_steps: None,
        };
        stub::Adapter(Connections::new(site, place))
    })
}
