//! Tests how a worker waits for its client: no request and no eviction is lost in between.

use super::*;
use evenkeel_scoreboard::{Layout, Scoreboard};
use evenkeel_sys::idle_table::ParkedState;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

/// What a worker is told in a test.
#[derive(Default)]
struct Told {
    wake: Option<UnixStream>,
    eviction: Option<Eviction>,
    /// Whether the worker learns of the eviction without receiving anything.
    knows_at_once: bool,
    /// How often it has received something.
    received: usize,
    /// The client, if its next request arrives while the worker receives something.
    client: Option<UnixStream>,
}

impl WorkerControl for Told {
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(|wake| wake.as_fd())
    }

    fn watch(&self) -> io::Result<Option<Watch>> {
        Ok(None)
    }

    fn runtime(&self) -> Option<Handle> {
        None
    }

    fn receive(&mut self) {
        self.received += 1;
        if let Some(client) = &mut self.client {
            client.write_all(b"GET").unwrap();
        }
    }

    fn knows_at_once(&self) -> bool {
        self.knows_at_once
    }

    fn mode(&self) -> Mode {
        Mode::Run
    }

    fn take_eviction(&mut self) -> Option<Eviction> {
        self.eviction.take_if(|_| self.received > 0 || self.knows_at_once)
    }

    fn is_contended(&mut self) -> bool {
        false
    }
}

/// Closes each connection at once.
struct Closing;

impl Service for Closing {
    fn serve(
        &mut self,
        _: Socket,
        _: ReadyEvent,
        _: &mut Option<evenkeel_scoreboard::Credit>,
        _: &mut u32,
    ) -> Outcome {
        Outcome::Closed
    }

    fn shed(&mut self, _: Socket, _: ReadyEvent, _: &mut u32) -> Outcome {
        Outcome::Closed
    }

    fn expire(&mut self, _: Socket, _: ParkReason, _: ParkedState, _: bool) {
        panic!("no connection is parked")
    }

    fn retire(&mut self, _: bool) {
        panic!("no connection is asked to end")
    }

    fn tick(&mut self) {}

    fn notify(&mut self, notice: Notice) {
        panic!("{notice:?}")
    }
}

#[test]
fn a_request_that_arrives_just_before_the_connection_is_closed_is_answered() {
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
    let line = board.child_line(0).unwrap();
    // It has timed out, or it is evicted.
    for (timeout_ms, eviction) in [(0, None), (60_000, Some(Eviction::Normal))] {
        let dedicated = DedicatedWorker {
            client_wait: Arc::new(ClientWait::new(None)),
            slot: None,
            permits: None,
        };
        dedicated.client_wait.start(WaitReason::Idle, 1);
        let (client, server) = UnixStream::pair().unwrap();
        let (mut waker, wake) = UnixStream::pair().unwrap();
        waker.write_all(b"1").unwrap();
        let (wake, client) = (Some(wake), Some(client));
        let control = Told { wake, client, eviction, ..Told::default() };
        let mut worker = Worker::new(Closing, control, line, dedicated, Duration::ZERO);
        let request = ParkRequest { reason: ParkReason::KeepAlive, timeout_ms, state: [0; 4] };
        let since_us = clock::monotonic_us();
        let mut socket = Socket::new(server.into());
        let next = worker.wait_for_event(&mut socket, &request, since_us).unwrap();
        assert!(matches!(next, AfterWait::Event(ReadyEvent::Readable { hangup: false, .. })));
    }
}

/// A worker whose client usually sends its next request at once, with the client and the socket.
/// The worker has just polled its wake descriptor, and an eviction was requested after that.
fn woken(board: &Scoreboard) -> (Worker<Closing, Told>, UnixStream, Socket) {
    let dedicated =
        DedicatedWorker { client_wait: Arc::new(ClientWait::new(None)), slot: None, permits: None };
    dedicated.client_wait.start(WaitReason::Idle, 1);
    let (client, server) = UnixStream::pair().unwrap();
    let (mut waker, wake) = UnixStream::pair().unwrap();
    waker.write_all(b"1").unwrap();
    let eviction = Some(Eviction::Normal);
    let control = Told { wake: Some(wake), eviction, ..Told::default() };
    let line = board.child_line(0).unwrap();
    let mut worker = Worker::new(Closing, control, line, dedicated, Duration::ZERO);
    (worker.events, worker.polled_us) = (2, clock::monotonic_us());
    (worker, client, Socket::new(server.into()))
}

const KEPT: ParkRequest =
    ParkRequest { reason: ParkReason::KeepAlive, timeout_ms: 60_000, state: [0; 4] };

#[test]
fn an_eviction_before_the_read_that_waits_is_not_lost() {
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
    let (mut worker, _client, mut socket) = woken(&board);
    assert!(worker.expects_request(&KEPT, worker.polled_us));
    let next = worker.wait_for_event(&mut socket, &KEPT, worker.polled_us).unwrap();
    assert!(matches!(next, AfterWait::Close { late: false }));
    assert!(worker.evict_requested && worker.control.received == 1);
}

#[test]
fn a_worker_whose_client_never_pauses_polls_its_waker_now_and_then() {
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
    let (mut worker, mut client, mut socket) = woken(&board);
    let mut since_us = worker.polled_us;
    let mut requests = 0;
    while worker.control.received == 0 {
        client.write_all(b"GET").unwrap();
        let next = worker.wait_for_event(&mut socket, &KEPT, since_us).unwrap();
        assert!(matches!(next, AfterWait::Event(ReadyEvent::Readable { .. })));
        assert_eq!(socket.receive(&mut [0; 16]).unwrap(), 3);
        (requests, since_us) = (requests + 1, since_us + READ_AHEAD_US / 10);
    }
    assert_eq!(requests, 11, "the first ten were read ahead");
    // The connection is to end after its next response, so the worker does not read ahead any more.
    assert!(worker.evict_requested && !worker.expects_request(&KEPT, worker.polled_us));
}

#[test]
fn an_eviction_that_is_known_without_the_waker_holds_for_the_request_that_is_read_ahead() {
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
    let (mut worker, mut client, mut socket) = woken(&board);
    worker.control.knows_at_once = true;
    let since_us = worker.polled_us + READ_AHEAD_US;
    client.write_all(b"GET").unwrap();
    let next = worker.wait_for_event(&mut socket, &KEPT, since_us).unwrap();
    assert!(matches!(next, AfterWait::Event(ReadyEvent::Readable { .. })));
    assert!(worker.evict_requested && worker.control.received == 0);
}

#[test]
fn an_eviction_meant_for_the_last_connection_does_not_end_the_next() {
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
    let dedicated =
        DedicatedWorker { client_wait: Arc::new(ClientWait::new(None)), slot: None, permits: None };
    let line = board.child_line(0).unwrap();
    let mut worker = Worker::new(Closing, Told::default(), line, dedicated, Duration::ZERO);
    for eviction in [Eviction::Normal, Eviction::Urgent] {
        // The request came when the last connection had just been closed.
        let eviction = Some(eviction);
        worker.control = Told { eviction, knows_at_once: true, ..Told::default() };
        worker.evict_requested = true;
        let (_client, server) = UnixStream::pair().unwrap();
        let client = "127.0.0.1:1".parse().unwrap();
        let socket = Socket::new(server.into());
        worker.serve_connection(Connection { socket, client, listener: 0 });
        assert!(worker.control.eviction.is_none() && !worker.evict_requested);
    }
}

/// Answers the first request of an idle connection at once, and the second one in a task.
struct Answering {
    requests: usize,
}

impl Service for Answering {
    fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        _: &mut Option<evenkeel_scoreboard::Credit>,
        _: &mut u32,
    ) -> Outcome {
        assert!(matches!(event, ReadyEvent::Readable { reason: ParkReason::KeepAlive, .. }));
        assert_eq!(socket.receive(&mut [0; 16]).unwrap(), 3);
        self.requests += 1;
        match self.requests {
            1 => Outcome::Park(socket, KEPT),
            _ => Outcome::Task(Box::pin(async move {
                socket.send(&[io::IoSlice::new(b"200")], false).unwrap();
                Outcome::Closed
            })),
        }
    }

    fn shed(&mut self, _: Socket, _: ReadyEvent, _: &mut u32) -> Outcome {
        panic!("no request is turned away")
    }

    fn expire(&mut self, _: Socket, _: ParkReason, _: ParkedState, _: bool) {
        panic!("no connection has timed out")
    }

    fn retire(&mut self, _: bool) {}

    fn tick(&mut self) {}

    fn notify(&mut self, notice: Notice) {
        panic!("{notice:?}")
    }
}

#[test]
fn the_requests_of_an_idle_connection_on_the_shelf_are_answered() {
    let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
    let dedicated =
        DedicatedWorker { client_wait: Arc::new(ClientWait::new(None)), slot: None, permits: None };
    let line = board.child_line(0).unwrap();
    line.add(Counter::Connections, 1);
    let service = Answering { requests: 0 };
    let mut worker = Worker::new(service, Told::default(), line, dedicated, Duration::ZERO);
    let (mut client, server) = UnixStream::pair().unwrap();
    worker.linger(Socket::new(server.into()), KEPT);
    worker.check_lingering();
    assert!(worker.service.requests == 0 && worker.has_shelved(), "the client has sent nothing");

    for requests in 1..=2 {
        client.write_all(b"GET").unwrap();
        worker.shelf.lingering_checked_us = 0;
        worker.check_lingering();
        assert_eq!(worker.service.requests, requests);
        // After the first response the connection is idle again, and the second request is a task.
        assert_eq!(worker.shelf.has_no_request(), requests == 1);
    }
    worker.resume();
    assert!(!worker.has_shelved() && line.read(Counter::Connections) == 0);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "200");
}
