//! Who reads slowly while others wait for its worker, where a connection holds one: who reads on is
//! served to the end, who stands still makes room. The clients are blocking sockets; what the one
//! who waits is not told within a moment sets the pace of the one who reads.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
#![allow(clippy::print_stderr, reason = "a test")]

mod stub;
#[path = "../../mpm/tests/support/mod.rs"]
mod support;

use evenkeel_conn::{Connections, Settings, SlowBytes, Workplace};
use evenkeel_mpm::service::ServiceContext;
use evenkeel_mpm::setup::Setup;
use evenkeel_mpm::{prefork, worker};
use evenkeel_scoreboard::{Phase, Slots};
use evenkeel_sys::channel::Channel;
use evenkeel_sys::connect::{self, Local, Remote};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::Parent;

/// A child with one worker.
struct Running {
    address: SocketAddr,
    wire: Channel,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn start(is_prefork: bool) -> Self {
        let (setup, Parent { address, wire, board, .. }) = support::child(1, 1);
        board.assign(0, 0, 0, 1, 0);
        board.parent_line(0).unwrap().set_phase(Phase::Running);
        let (line, slots) = (setup.line, Slots::new(board, 0, 1));
        let setup = Setup { credits: 0, slots: Some(slots), ..setup };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'f'; 16 << 20]).unwrap();
        let file = Arc::new(file.into());
        let thread = std::thread::spawn(move || {
            let make = |context: ServiceContext| {
                let log = Arc::<Mutex<Vec<String>>>::default();
                let mut site = stub::Stub::new(Settings::default(), log);
                (site.file, site.line) = (Some(Arc::clone(&file)), Some(line));
                let place = Workplace {
                    gate: context.gate,
                    bulkhead: Arc::clone(context.blocking_pool.bulkhead()),
                    slots: Some(slots),
                    client_wait: context.worker.map(|worker| worker.client_wait),
                    permits: None,
                    line,
                    ports: Arc::from([address]),
                    addresses: Arc::default(),
                    slow_bytes: SlowBytes::new(40 << 20),
                    handshakes: SlowBytes::new(SlowBytes::USUAL),
                    long_steps: None,
                };
                stub::Adapter(Connections::new(site, place))
            };
            match is_prefork {
                true => prefork::serve_with(setup, make),
                false => worker::serve_with(setup, make),
            }
        });
        Self { address, wire, thread }
    }

    /// Asks for the large file; the client's system takes no more than `window` ahead of it.
    fn download(&self, window: Option<usize>) -> TcpStream {
        let local = Local { window, ..Local::default() };
        let socket = connect::begin(&Remote::Internet(self.address), &local).unwrap();
        let mut client = TcpStream::from(socket.into_descriptor());
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
        client
    }

    /// One more, for whom there is no worker.
    fn wait(&self) -> TcpStream {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        client.write_all(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client
    }

    /// Whether the one who waits is answered within a moment, in which the worker is told to hurry
    /// as a parent would.
    fn is_answered(&self, waits: &mut TcpStream) -> bool {
        // What does not fit is said again; a listener sees for itself that there is a queue.
        let _ = self.wire.send(b'h');
        match waits.read(&mut [0; 1024]) {
            Ok(read) => read > 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }

    fn end(self) {
        assert!(self.wire.send(b'x').unwrap());
        self.thread.join().unwrap().unwrap();
    }
}

#[test]
fn a_download_that_goes_on_slowly_is_never_cut_however_long_others_wait() {
    for is_prefork in [true, false] {
        let running = Running::start(is_prefork);
        let mut slow = running.download(None);
        let mut waits = running.wait();
        let begun = Instant::now();
        let mut piece = [0; 8 << 10];
        while begun.elapsed() < Duration::from_secs(5) {
            assert!(!running.is_answered(&mut waits), "prefork: {is_prefork}");
            slow.read_exact(&mut piece).unwrap();
        }
        // All that is left comes as well.
        let mut left = 16 << 20;
        while left > (12 << 20) {
            slow.read_exact(&mut piece).unwrap();
            left -= piece.len();
        }
        drop(slow);
        while !running.is_answered(&mut waits) {}
        drop(waits);
        running.end();
    }
}

#[test]
fn a_download_that_stands_still_makes_room() {
    for is_prefork in [true, false] {
        let running = Running::start(is_prefork);
        let mut still = running.download(Some(4096));
        let mut waits = running.wait();
        while !running.is_answered(&mut waits) {}
        let error = still.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "prefork: {is_prefork}");
        drop(waits);
        running.end();
    }
}

#[test]
fn in_a_crowd_who_has_shown_nothing_makes_room_at_once_and_who_reads_goes_on() {
    let running = Running::start(true);
    let mut slow = running.download(None);
    let mut piece = [0; 64 << 10];
    // It reads until its system has said twice that there is room again, each time for 64 KiB and
    // more; what is on the way from the beginning is less than 6 MiB.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_500) {
        slow.read_exact(&mut piece).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut waits = running.wait();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        assert!(running.wire.send(b'c').unwrap());
        assert!(!running.is_answered(&mut waits), "who reads was cut off");
        slow.read_exact(&mut piece[..8 << 10]).unwrap();
    }
    drop(slow);
    while !running.is_answered(&mut waits) {}
    drop(waits);
    let mut still = running.download(None);
    let mut waits = running.wait();
    // Where others are few it has 3 s: twice that many moments of 200 ms have not passed.
    let asked =
        |waits: &mut TcpStream| running.wire.send(b'c').unwrap() && running.is_answered(waits);
    assert!((0..10).any(|_| asked(&mut waits)), "who stands still keeps its worker");
    still.read_to_end(&mut Vec::new()).unwrap_err();
    drop(waits);
    running.end();
}
