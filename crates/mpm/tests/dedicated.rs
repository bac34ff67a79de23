//! Prefork and worker with an echo service, on threads of the test: what is accepted and what is
//! not, who gets it, parking, draining, making room, slots. The clients are blocking sockets; what
//! can be awaited is awaited by reading.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use evenkeel_message::Notice;
use evenkeel_mpm::service::{Service, ServiceContext};
use evenkeel_mpm::setup::Setup;
use evenkeel_mpm::{prefork, worker};
use evenkeel_scoreboard::{
    ChildLine, ClientWait, Counter, Credit, Phase, Request, Scoreboard, SlotState, Slots,
    WaitReason,
};
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::dispatch::{Outcome, ParkReason, ParkRequest, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::{self, Socket};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::Parent;

/// Lets a blocked request go on.
type Free = tokio::sync::oneshot::Sender<()>;

/// Answers a line with the thread's number, `last` where the connection ends with it, and the line.
/// `bye` closes, `block` waits in a task until the test lets it go, `linger` rests as after our
/// end, `short` rests for a moment only.
struct Echo {
    thread: usize,
    slots: Slots,
    retiring: bool,
    blocks: mpsc::Sender<Free>,
    held: Arc<AtomicBool>,
    /// So many ticks have something to do.
    ticks: Arc<AtomicUsize>,
    expired: mpsc::Sender<bool>,
}

impl Echo {
    fn rest(socket: Socket, reason: ParkReason, timeout_ms: u32) -> Outcome {
        Outcome::Park(socket, ParkRequest { reason, timeout_ms, state: [7; 4] })
    }
}

impl Service for Echo {
    fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        credit: &mut Option<Credit>,
        requests_left: &mut u32,
    ) -> Outcome {
        assert!(credit.is_some() && *requests_left > 0);
        let reason = match event {
            ReadyEvent::Accepted { .. } => ParkReason::FirstRequest,
            ReadyEvent::Readable { reason, state, .. } => {
                assert_eq!(state, [7; 4]);
                reason
            }
        };
        let mut buffer = [0; 1024];
        let read = match socket.receive(&mut buffer) {
            Ok(0) => return Outcome::Closed,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Self::rest(socket, reason, 60_000);
            }
            Err(_) => return Outcome::Closed,
        };
        let slot = self.slots.take(SlotState::Writing, &Request::default(), 1).unwrap();
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        if text == "block\n" {
            let (free, freed) = tokio::sync::oneshot::channel();
            self.blocks.send(free).unwrap();
            let credit = credit.take();
            return Outcome::Task(Box::pin(async move {
                freed.await.unwrap();
                socket.send(&[IoSlice::new(b"freed\n")], false).unwrap();
                drop((credit, slot));
                Self::rest(socket, ParkReason::KeepAlive, 60_000)
            }));
        }
        let closing = self.retiring || text == "bye\n";
        let answer = format!("{} {}{text}", self.thread, if closing { "last " } else { "" });
        drop(slot);
        socket.send(&[IoSlice::new(answer.as_bytes())], false).unwrap();
        match text.as_str() {
            _ if closing => Outcome::Closed,
            "linger\n" => Self::rest(socket, ParkReason::LingeringClose, 60_000),
            "short\n" => Self::rest(socket, ParkReason::KeepAlive, 20),
            _ => Self::rest(socket, ParkReason::KeepAlive, 60_000),
        }
    }

    fn shed(&mut self, _: Socket, _: ReadyEvent, _: &mut u32) -> Outcome {
        panic!("nothing waits for a worker");
    }

    fn expire(&mut self, _: Socket, _: ParkReason, state: ParkedState, late: bool) {
        assert_eq!(state, [7; 4]);
        // The test may have ended.
        let _ = self.expired.send(late);
    }

    fn retire(&mut self, retiring: bool) {
        self.retiring = retiring;
    }

    fn tick(&mut self) {
        let _none_left = self.ticks.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    }

    fn awaits_tick(&self) -> bool {
        self.ticks.load(SeqCst) > 0
    }

    fn may_begin(&self) -> bool {
        !self.held.load(SeqCst)
    }

    fn notify(&mut self, notice: Notice) {
        panic!("{notice:?}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Prefork,
    /// With so many threads.
    Worker(usize),
}

struct Running {
    address: SocketAddr,
    port: Arc<OwnedFd>,
    wire: Channel,
    board: Scoreboard,
    line: ChildLine,
    blocks: mpsc::Receiver<Free>,
    /// How resting connections ended whose client did not end them.
    expired: mpsc::Receiver<bool>,
    held: Arc<AtomicBool>,
    ticks: Arc<AtomicUsize>,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    fn start(model: Model, most_connections: u64) -> Self {
        Self::start_with_grace(model, most_connections, Duration::ZERO)
    }

    fn start_with_grace(model: Model, most_connections: u64, drain_grace: Duration) -> Self {
        let threads = if let Model::Worker(threads) = model { threads } else { 1 };
        let (setup, Parent { address, port, wire, board }) = support::child(threads, threads);
        board.assign(0, 0, 0, threads, 0);
        board.parent_line(0).unwrap().set_phase(Phase::Running);
        let line = setup.line;
        let slots = Some(Slots::new(board, 0, threads));
        let setup = Setup { credits: 0, most_connections, slots, drain_grace, ..setup };
        let (sender, blocks) = mpsc::channel();
        let (expiring, expired) = mpsc::channel();
        let held = Arc::new(AtomicBool::new(false));
        let holding = Arc::clone(&held);
        let ticks = Arc::<AtomicUsize>::default();
        let ticking = Arc::clone(&ticks);
        let thread = std::thread::spawn(move || {
            let senders = Mutex::new((sender, expiring));
            let make = |context: ServiceContext| {
                let (blocks, expired) = senders.lock().unwrap().clone();
                let slots = context.worker.unwrap().slot.unwrap();
                let (held, ticks) = (Arc::clone(&holding), Arc::clone(&ticking));
                Echo {
                    thread: context.thread,
                    slots,
                    retiring: false,
                    blocks,
                    held,
                    ticks,
                    expired,
                }
            };
            match model {
                Model::Prefork => prefork::serve_with(setup, make),
                Model::Worker(_) => worker::serve_with(setup, make),
            }
        });
        let running =
            Self { address, port, wire, board, line, blocks, expired, held, ticks, thread };
        running.await_report(b'R');
        running
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends a command; a wire that is full of earlier ones takes it as soon as the child has
    /// read some.
    fn command(&self, byte: u8) {
        await_it(|| self.wire.send(byte).unwrap());
    }

    fn await_report(&self, report: u8) {
        await_it(|| matches!(self.wire.receive(), Received::Byte(byte) if byte == report));
    }

    fn queue(&self) -> u32 {
        socket::accept_queue(self.port.as_fd()).unwrap().length
    }

    fn letters(&self) -> String {
        let record = self.board.snapshot();
        record.children[0].workers.iter().map(|worker| worker.state.letter()).collect()
    }

    fn end(self) {
        self.thread.join().unwrap().unwrap();
        for counter in [Counter::Connections, Counter::KeepAlive, Counter::Busy, Counter::Reserved]
        {
            assert_eq!(self.line.read(counter), 0, "{counter:?}");
        }
    }
}

/// Waits for what is sure to come: a minute is longer than any machine stands still.
fn await_it(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::yield_now();
    }
}

fn ask(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).unwrap();
    hear(stream)
}

fn hear(stream: &mut TcpStream) -> String {
    let mut buffer = [0; 1024];
    let read = stream.read(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

const MODELS: [Model; 3] = [Model::Prefork, Model::Worker(1), Model::Worker(3)];

#[test]
fn one_connection_after_another_is_served_by_the_same_worker() {
    let running = Running::start(Model::Worker(8), 0);
    let mut first = running.connect();
    let answer = ask(&mut first, "bye\n");
    let number = answer.split(' ').next().unwrap().to_owned();
    assert_eq!(hear(&mut first), "");
    for _ in 0..20 {
        await_it(|| running.line.read(Counter::Busy) == 0);
        let mut client = running.connect();
        assert_eq!(ask(&mut client, "hi\n"), format!("{number} hi\n"));
        assert_eq!(ask(&mut client, "bye\n"), format!("{number} last bye\n"));
        assert_eq!(hear(&mut client), "");
    }
    running.command(b'd');
    running.end();
}

#[test]
fn nothing_is_accepted_without_an_idle_worker() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let workers = if let Model::Worker(threads) = model { threads } else { 1 };
        let mut busy: Vec<_> = (0..workers).map(|_| running.connect()).collect();
        let mut frees = Vec::new();
        for client in &mut busy {
            client.write_all(b"block\n").unwrap();
            frees.push(running.blocks.recv().unwrap());
        }
        let mut late: Vec<_> = (0..3).map(|_| running.connect()).collect();
        for client in &mut late {
            client.write_all(b"bye\n").unwrap();
        }
        await_it(|| running.queue() == 3);
        assert_eq!(running.line.read(Counter::Connections), workers as u64);
        assert_eq!(running.line.read(Counter::Busy), workers as u64);
        frees.pop().unwrap().send(()).unwrap();
        assert_eq!(hear(busy.last_mut().unwrap()), "freed\n");
        drop(busy.pop());
        for client in &mut late {
            assert!(hear(client).ends_with("bye\n"));
        }
        frees.into_iter().for_each(|free| free.send(()).unwrap());
        drop(busy);
        running.command(b'd');
        running.end();
    }
}

#[test]
fn a_child_that_ends_answers_what_is_on_its_way_and_what_waits_to_be_accepted() {
    for model in MODELS {
        let running = Running::start_with_grace(model, 0, Duration::from_secs(60));
        let workers = if let Model::Worker(threads) = model { threads } else { 1 };
        let mut all: Vec<_> = (0..workers).map(|_| running.connect()).collect();
        let mut frees = Vec::new();
        for client in &mut all {
            client.write_all(b"block\n").unwrap();
            frees.push(running.blocks.recv().unwrap());
        }
        let mut late: Vec<_> = (0..3).map(|_| running.connect()).collect();
        late.iter_mut().for_each(|client| client.write_all(b"hi\n").unwrap());
        await_it(|| running.queue() == 3);
        running.command(b'x');
        frees.into_iter().for_each(|free| free.send(()).unwrap());
        for client in &mut all {
            assert_eq!(hear(client), "freed\n");
            client.write_all(b"hi\n").unwrap();
        }
        for client in all.iter_mut().chain(&mut late) {
            let mut answer = hear(client);
            while !answer.contains(" last ") {
                assert!(answer.ends_with(" hi\n"), "{answer:?}: {model:?}");
                answer = ask(client, "hi\n");
            }
        }
        running.end();
    }
}

/// How many answers a client has that asks as often as it may.
fn ask_until_the_last(client: &mut TcpStream) -> usize {
    let answers = (0..5_000_000).map(|_| ask(client, "hi\n"));
    1 + answers.take_while(|answer| !answer.contains(" last ")).count()
}

#[test]
fn a_worker_sees_by_itself_that_others_wait_and_a_turn_ends_after_a_few_requests() {
    for model in [Model::Prefork, Model::Worker(1)] {
        let running = Running::start(model, 0);
        let mut greedy = running.connect();
        assert_eq!(ask(&mut greedy, "hi\n"), "0 hi\n");
        let mut others = [(); 3].map(|()| running.connect());
        others.iter_mut().for_each(|client| client.write_all(b"hi\n").unwrap());
        // Nobody tells it to hurry.
        assert!(ask_until_the_last(&mut greedy) < 5_000_000, "{model:?}");
        for client in others.iter_mut().take(2) {
            let first = hear(client);
            assert!(first.ends_with(" hi\n"));
            // On a machine that stands still a tenth of a second is over before.
            let count = if first.contains(" last ") { 0 } else { ask_until_the_last(client) };
            assert!(count <= 8, "{count} more: {model:?}");
        }
        drop((greedy, others));
        running.command(b'd');
        running.end();
    }
}

#[test]
fn a_client_that_pauses_is_not_left_resting_while_others_wait() {
    for model in [Model::Prefork, Model::Worker(1)] {
        let running = Running::start(model, 0);
        let mut first = running.connect();
        assert_eq!(ask(&mut first, "hi\n"), "0 hi\n");
        let mut others = [(); 3].map(|()| running.connect());
        others.iter_mut().for_each(|client| client.write_all(b"hi\n").unwrap());
        let mut ask_after_a_pause = || {
            let answered = Instant::now();
            await_it(|| answered.elapsed() > Duration::from_millis(40));
            ask(&mut first, "hi\n")
        };
        while !ask_after_a_pause().contains(" last ") {}
        // The last of them has nobody behind it.
        for client in others.iter_mut().take(2) {
            assert!(hear(client).contains(" last hi\n"), "{model:?}");
        }
        drop((first, others));
        running.command(b'd');
        running.end();
    }
}

#[test]
fn a_parked_child_leaves_what_comes_in_the_queue_until_it_is_called_back() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let mut kept = running.connect();
        assert!(ask(&mut kept, "hi\n").ends_with(" hi\n"));
        running.command(b'p');
        while !ask(&mut kept, "hi\n").contains("last") {}
        let mut late = running.connect();
        late.write_all(b"late\n").unwrap();
        assert_eq!(hear(&mut kept), "");
        await_it(|| running.line.read(Counter::Busy) == 0);
        assert_eq!((running.queue(), running.line.read(Counter::Connections)), (1, 0));
        running.command(b'r');
        assert!(hear(&mut late).ends_with(" late\n"));
        drop(late);
        running.command(b'd');
        running.end();
    }
}

#[test]
fn a_draining_child_answers_once_more_and_an_exiting_one_closes_what_is_idle() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let mut kept = running.connect();
        assert!(ask(&mut kept, "hi\n").ends_with(" hi\n"));
        running.command(b'd');
        while !ask(&mut kept, "hi\n").contains("last") {}
        assert_eq!(hear(&mut kept), "");
        running.end();
        let running = Running::start(model, 0);
        let mut kept = running.connect();
        assert!(ask(&mut kept, "hi\n").ends_with(" hi\n"));
        running.command(b'd');
        running.command(b'x');
        assert_eq!(hear(&mut kept), "");
        assert!(!running.expired.recv().unwrap());
        running.end();
        let Running { wire, thread, .. } = Running::start(model, 0);
        drop(wire);
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn a_request_in_progress_outlives_the_command_to_exit() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let mut client = running.connect();
        client.write_all(b"block\n").unwrap();
        let free = running.blocks.recv().unwrap();
        running.command(b'x');
        free.send(()).unwrap();
        assert_eq!(hear(&mut client), "freed\n");
        assert_eq!(hear(&mut client), "");
        running.end();
    }
}

#[test]
fn a_child_ends_by_itself_after_its_share_of_connections() {
    for model in MODELS {
        let running = Running::start(model, 3);
        for _ in 0..3 {
            let mut client = running.connect();
            let answer = ask(&mut client, "hi\n");
            if !answer.contains("last") {
                drop(client);
            }
        }
        running.await_report(b'E');
        running.end();
    }
}

#[test]
fn a_child_tells_that_it_has_had_its_share_however_many_threads_claim_the_last() {
    for _ in 0..60 {
        let running = Running::start(Model::Worker(8), 12);
        let barrier = std::sync::Barrier::new(6);
        let address = running.address;
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..2 {
                        // A share that was claimed in vain may leave the last one to a sibling.
                        let Ok(mut client) = TcpStream::connect(address) else { return };
                        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                        let _ = client.write_all(b"bye\n");
                        let _ = client.read(&mut [0; 64]);
                    }
                });
            }
        });
        running.await_report(b'E');
        running.end();
    }
}

#[test]
fn letters_tell_what_each_worker_does() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let shows = |letter: char| {
            let others = |other: char| other == letter || other == '_';
            let letters = running.letters();
            letters.contains(letter) && letters.chars().all(others)
        };
        await_it(|| shows('_'));
        let mut client = running.connect();
        await_it(|| shows('R'));
        assert!(ask(&mut client, "hi\n").ends_with("hi\n"));
        await_it(|| shows('K'));
        client.write_all(b"block\n").unwrap();
        let free = running.blocks.recv().unwrap();
        assert!(shows('W'), "{}", running.letters());
        free.send(()).unwrap();
        assert_eq!(hear(&mut client), "freed\n");
        assert!(ask(&mut client, "linger\n").ends_with("linger\n"));
        await_it(|| shows('C'));
        drop(client);
        await_it(|| !shows('C') && shows('_'));
        running.command(b'd');
        running.end();
    }
}

#[test]
fn the_last_child_evicts_idle_clients_for_those_that_wait() {
    for model in MODELS {
        for command in [b'l', b'e'] {
            // Idle connections outlive the grace period of a child that exits.
            let running = Running::start_with_grace(model, 0, Duration::from_secs(60));
            let workers = if let Model::Worker(threads) = model { threads } else { 1 };
            let mut kept: Vec<_> = (0..workers).map(|_| running.connect()).collect();
            for client in &mut kept {
                assert!(ask(client, "hi\n").ends_with(" hi\n"));
            }
            let mut late: Vec<_> = (0..5).map(|_| running.connect()).collect();
            late.iter_mut().for_each(|client| client.write_all(b"late\n").unwrap());
            running.command(command);
            for client in &mut late {
                assert!(hear(client).ends_with(" last late\n"), "{model:?}");
            }
            drop(kept);
            running.end();
        }
    }
}

#[test]
fn a_connection_that_rests_too_long_is_closed() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let mut client = running.connect();
        assert!(ask(&mut client, "short\n").ends_with("short\n"));
        assert_eq!(hear(&mut client), "");
        assert!(running.expired.recv().unwrap());
        running.command(b'd');
        running.end();
    }
}

#[test]
fn nothing_begins_while_the_service_holds_it_back() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let mut kept = running.connect();
        assert!(ask(&mut kept, "hi\n").ends_with(" hi\n"));
        running.held.store(true, SeqCst);
        kept.write_all(b"held\n").unwrap();
        kept.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
        assert!(kept.read(&mut [0; 8]).is_err());
        kept.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        running.held.store(false, SeqCst);
        assert!(hear(&mut kept).ends_with(" held\n"));
        drop(kept);
        running.command(b'd');
        running.end();
    }
}

#[test]
fn an_idle_worker_comes_back_to_what_its_service_has_left() {
    for model in [Model::Prefork, Model::Worker(1)] {
        let running = Running::start(model, 0);
        running.ticks.store(3, SeqCst);
        let mut client = running.connect();
        assert!(ask(&mut client, "bye\n").ends_with(" last bye\n"));
        await_it(|| running.ticks.load(SeqCst) == 0);
        running.command(b'd');
        running.end();
    }
}

#[test]
fn an_idle_connection_makes_room_for_one_that_waits() {
    for model in MODELS {
        let running = Running::start(model, 0);
        let workers = if let Model::Worker(threads) = model { threads } else { 1 };
        let mut kept = Vec::new();
        for _ in 0..workers {
            let mut client = running.connect();
            assert!(ask(&mut client, "hi\n").ends_with(" hi\n"));
            await_it(|| running.line.read(Counter::KeepAlive) == kept.len() as u64 + 1);
            kept.push(client);
        }
        let mut late = running.connect();
        late.write_all(b"late\n").unwrap();
        if model == Model::Prefork {
            // What the parent would do while the queue stands.
            assert!(matches!(
                ClientWait::parse(running.line.read(Counter::ClientWait)),
                Some((WaitReason::Idle, _))
            ));
            await_it(|| {
                // What does not fit is said again.
                let _ = running.wire.send(b'h');
                running.queue() == 0
            });
        }
        assert!(hear(&mut late).ends_with(" late\n"));
        assert_eq!(hear(&mut kept[0]), "", "the oldest of the idle ones goes first");
        assert!(!running.expired.recv().unwrap());
        drop((kept, late));
        running.command(b'd');
        running.end();
    }
}

#[test]
fn a_greedy_client_shares_its_worker() {
    for model in [Model::Prefork, Model::Worker(1)] {
        let running = Running::start(model, 0);
        let mut greedy = running.connect();
        assert!(ask(&mut greedy, "hi\n").ends_with(" hi\n"));
        let mut late = running.connect();
        late.write_all(b"late\n").unwrap();
        loop {
            if model == Model::Prefork {
                running.command(b'h');
            }
            let answer = ask(&mut greedy, "hi\n");
            if answer.is_empty() || answer.contains("last") {
                break;
            }
        }
        assert!(hear(&mut late).ends_with(" late\n"));
        drop((greedy, late));
        running.command(b'd');
        running.end();
    }
}

#[test]
fn a_child_that_is_told_to_hurry_takes_what_waits() {
    for model in MODELS {
        let running = Running::start(model, 0);
        running.command(b'h');
        let mut client = running.connect();
        running.command(b'h');
        assert!(ask(&mut client, "bye\n").ends_with(" last bye\n"));
        running.command(b'd');
        running.end();
    }
}
