//! The event model with an echo service, on threads of the test: accepting, resting, credits,
//! draining, expiry. The clients are blocking sockets; what can be awaited is awaited by reading.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use evenkeel_message::Notice;
use evenkeel_mpm::event;
use evenkeel_mpm::service::Service;
use evenkeel_mpm::setup::Setup;
use evenkeel_scoreboard::{ChildLine, Counter, Credit, Gate};
use evenkeel_sys::channel::Channel;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ParkRequest, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::Socket;
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Answers a line with the number of lines before it on the connection and the line itself.
/// `bye` closes, `rest N` rests N milliseconds at most, `block` waits in a task until the test
/// lets it go, `queue` stands in line for a credit in a task and tells how many requests were
/// begun before it had one, `where` tells the thread, and `hang` has it stand still as long as
/// the test wants.
struct Echo {
    thread: usize,
    begun: Rc<Cell<u64>>,
    ticks: mpsc::Sender<usize>,
    hang: Arc<Mutex<()>>,
    retiring: bool,
    contended: bool,
    pause_ms: u32,
    blocks: mpsc::Sender<tokio::sync::oneshot::Sender<()>>,
    gate: Arc<Gate>,
    held: Arc<AtomicBool>,
}

impl Echo {
    fn rest(socket: Socket, count: u64, pause_ms: u32) -> Outcome {
        let state = [count, 0, 0, 0];
        Outcome::Park(
            socket,
            ParkRequest { reason: ParkReason::KeepAlive, timeout_ms: pause_ms, state },
        )
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
        let (mut count, hangup) = match event {
            ReadyEvent::Accepted { .. } => (0, false),
            ReadyEvent::Readable { state: [count, ..], hangup, .. } => (count, hangup),
        };
        let mut buffer = [0; 1024];
        let read = match socket.receive(&mut buffer) {
            Ok(0) => return Outcome::Closed,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Self::rest(socket, count, self.pause_ms);
            }
            Err(_) => return Outcome::Closed,
        };
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let contended = self.contended && count > 0;
        let closing = self.retiring || contended || text == "bye\n";
        let answer = format!("{count} {}{text}", if closing { "last " } else { "" });
        count += 1;
        let pause_ms =
            text.strip_prefix("rest ").map_or(self.pause_ms, |ms| ms.trim().parse().unwrap());
        self.begun.set(self.begun.get() + 1);
        if text == "queue\n" {
            let (waiting, begun) = (self.gate.wait(), Rc::clone(&self.begun));
            return Outcome::Task(Box::pin(async move {
                let _credit = waiting.await;
                let answer = begun.get().to_string();
                socket.send(&[IoSlice::new(answer.as_bytes())], false).unwrap();
                Self::rest(socket, count, pause_ms)
            }));
        }
        if text == "where\n" {
            socket.send(&[IoSlice::new(self.thread.to_string().as_bytes())], false).unwrap();
            return Self::rest(socket, count, pause_ms);
        }
        if text == "hang\n" {
            self.blocks.send(tokio::sync::oneshot::channel().0).unwrap();
            drop(self.hang.lock().unwrap());
        }
        if text == "block\n" {
            let (free, freed) = tokio::sync::oneshot::channel();
            self.blocks.send(free).unwrap();
            let credit = credit.take();
            return Outcome::Task(Box::pin(async move {
                freed.await.unwrap();
                socket.send(&[IoSlice::new(answer.as_bytes())], false).unwrap();
                drop(credit);
                Self::rest(socket, count, pause_ms)
            }));
        }
        socket.send(&[IoSlice::new(answer.as_bytes())], false).unwrap();
        if closing || hangup {
            return Outcome::Closed;
        }
        Self::rest(socket, count, pause_ms)
    }

    fn shed(&mut self, socket: Socket, event: ReadyEvent, requests_left: &mut u32) -> Outcome {
        assert!(*requests_left > 0);
        let ReadyEvent::Readable { state: [count, ..], .. } = event else {
            panic!("it stood in line")
        };
        let mut buffer = [0; 1024];
        let read = socket.receive(&mut buffer).unwrap();
        socket.send(&[IoSlice::new(b"shed "), IoSlice::new(&buffer[..read])], false).unwrap();
        Self::rest(socket, count, self.pause_ms)
    }

    fn expire(&mut self, _: Socket, _: ParkReason, _: ParkedState, _: bool) {}

    fn retire(&mut self, retiring: bool) {
        self.retiring = retiring;
    }

    fn set_contended(&mut self, contended: bool) {
        self.contended = contended;
    }

    fn tick(&mut self) {
        // The test may have ended.
        let _ = self.ticks.send(self.thread);
    }

    fn may_begin(&self) -> bool {
        !self.held.load(Relaxed)
    }

    fn notify(&mut self, notice: Notice) {
        assert!(notice.text.contains("(OverloadShedding)"), "{notice:?}");
    }
}

struct Running {
    address: SocketAddr,
    wire: Channel,
    line: ChildLine,
    blocks: mpsc::Receiver<tokio::sync::oneshot::Sender<()>>,
    thread: JoinHandle<io::Result<()>>,
    held: Arc<AtomicBool>,
    /// Which threads have ticked.
    ticks: mpsc::Receiver<usize>,
    hang: Arc<Mutex<()>>,
}

/// What a child is made of, its address and the parent's end of its channel.
fn parts(credits: u32, threads: usize, most_connections: u64) -> (Setup, SocketAddr, Channel) {
    let (setup, parent) = support::child(threads, 4);
    (Setup { credits, most_connections, ..setup }, parent.address, parent.wire)
}

impl Running {
    fn start(credits: u32, threads: usize, pause_ms: u32, most_connections: u64) -> Self {
        Self::of(parts(credits, threads, most_connections), pause_ms)
    }

    fn of((setup, address, wire): (Setup, SocketAddr, Channel), pause_ms: u32) -> Self {
        let line = setup.line;
        let (sender, blocks) = mpsc::channel();
        let held = Arc::new(AtomicBool::new(false));
        let holding = Arc::clone(&held);
        let (ticking, ticks) = mpsc::channel();
        let hang = Arc::new(Mutex::new(()));
        let hanging = Arc::clone(&hang);
        let thread = std::thread::spawn(move || {
            let sender = Mutex::new((sender, ticking));
            event::serve_with(setup, |context| {
                let (blocks, ticks) = sender.lock().unwrap().clone();
                Echo {
                    thread: context.thread,
                    begun: Rc::default(),
                    ticks,
                    hang: Arc::clone(&hanging),
                    retiring: false,
                    contended: false,
                    pause_ms,
                    blocks,
                    gate: context.gate,
                    held: Arc::clone(&holding),
                }
            })
        });
        Self { address, wire, line, blocks, thread, held, ticks, hang }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn command(&self, byte: u8) {
        assert!(self.wire.send(byte).unwrap());
    }

    fn end(self) {
        self.thread.join().unwrap().unwrap();
        assert_eq!(self.line.read(Counter::Connections), 0);
        assert_eq!(self.line.read(Counter::KeepAlive), 0);
        assert_eq!(self.line.read(Counter::Busy), 0);
        assert_eq!(self.line.read(Counter::Runnable), 0);
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

#[test]
fn nothing_begins_while_the_service_holds_it_back() {
    let running = Running::start(4, 1, 60_000, 0);
    let mut client = running.connect();
    assert_eq!(ask(&mut client, "hi\n"), "0 hi\n");
    running.held.store(true, Relaxed);
    client.write_all(b"held\n").unwrap();
    let mut late = running.connect();
    late.write_all(b"late\n").unwrap();
    // It has been seen and stands in line.
    while running.line.read(Counter::Runnable) == 0 {
        std::thread::yield_now();
    }
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    assert_eq!(running.line.read(Counter::Connections), 1);
    running.held.store(false, Relaxed);
    assert_eq!(hear(&mut client), "1 held\n");
    assert_eq!(hear(&mut late), "0 late\n");
    drop((client, late));
    running.command(b'd');
    running.end();
}

#[test]
fn connections_are_bounded_where_a_factor_says_so_and_a_fraction_counts() {
    let (mut setup, address, wire) = parts(2, 2, 0);
    // Two credits, both of them free: 2 + 0.5 x 2.
    setup.async_factor = Some(0.5);
    let port = Arc::clone(&setup.listeners[0]);
    let running = Running::of((setup, address, wire), 60_000);
    let mut clients: Vec<_> = (0..3).map(|_| running.connect()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "hi\n"), "0 hi\n");
    }
    let mut late = running.connect();
    late.write_all(b"late\n").unwrap();
    for client in &mut clients {
        assert_eq!(ask(client, "hi\n"), "1 hi\n");
    }
    let queue = || evenkeel_sys::socket::accept_queue(&*port).unwrap().length;
    assert_eq!((queue(), running.line.read(Counter::Connections)), (1, 3));
    // One of them lies idle for longer than its turn.
    assert_eq!(hear(&mut late), "0 late\n");
    drop((clients, late));
    running.command(b'd');
    running.end();
}

#[test]
fn a_full_child_takes_the_next_connection_when_it_has_room() {
    // One credit, and half of one besides: two connections.
    let (mut setup, address, wire) = parts(1, 1, 0);
    setup.async_factor = Some(0.5);
    let port = Arc::clone(&setup.listeners[0]);
    let queue = || evenkeel_sys::socket::accept_queue(&*port).unwrap().length;
    let running = Running::of((setup, address, wire), 60_000);
    let mut kept = running.connect();
    let mut other = running.connect();
    assert_eq!(ask(&mut other, "hi\n"), "0 hi\n");
    assert_eq!(ask(&mut kept, "hi\n"), "0 hi\n");
    for _ in 0..50 {
        let mut late = running.connect();
        late.write_all(b"late\n").unwrap();
        while queue() == 0 {
            std::thread::yield_now();
        }
        // The end of a connection lets the next one in.
        drop(std::mem::replace(&mut other, late));
        assert_eq!(hear(&mut other), "0 late\n");
        while running.line.read(Counter::Connections) > 2 {
            std::thread::yield_now();
        }
    }
    drop((kept, other));
    running.command(b'd');
    running.end();
}

#[test]
fn greedy_clients_of_a_full_child_keep_nobody_out() {
    for threads in [1, 2] {
        let (mut setup, address, wire) = parts(4, threads, 0);
        setup.async_factor = Some(0.5);
        let running = Running::of((setup, address, wire), 60_000);
        let mut greedy: Vec<_> = (0..6).map(|_| running.connect()).collect();
        greedy.iter_mut().for_each(|client| assert_eq!(ask(client, "hi\n"), "0 hi\n"));
        let mut late = running.connect();
        late.write_all(b"late\n").unwrap();
        late.set_nonblocking(true).unwrap();
        // None of them is ever idle for long, unless this process stands still.
        let goes_on = |client: &mut TcpStream| {
            let mut answer = [0; 64];
            let asked = client.write_all(b"more\n").and_then(|()| client.read(&mut answer));
            asked.is_ok_and(|read| read > 0 && !String::from_utf8_lossy(&answer).contains("last"))
        };
        while late.peek(&mut [0]).is_err() {
            greedy.retain_mut(goes_on);
        }
        assert_eq!(hear(&mut late), "0 late\n");
        drop((greedy, late));
        running.command(b'd');
        running.end();
    }
}

#[test]
fn an_idle_connection_of_a_full_child_has_its_time_before_it_makes_room() {
    let (mut setup, address, wire) = parts(1, 1, 0);
    setup.async_factor = Some(0.5);
    let running = Running::of((setup, address, wire), 60_000);
    let mut kept = [(); 2].map(|()| running.connect());
    kept.iter_mut().for_each(|client| assert_eq!(ask(client, "hi\n"), "0 hi\n"));
    let mut late = running.connect();
    let begun = Instant::now();
    assert_eq!(ask(&mut late, "late\n"), "0 late\n");
    assert!(begun.elapsed() >= Duration::from_millis(750), "{:?}", begun.elapsed());
    drop((kept, late));
    running.command(b'd');
    running.end();
}

#[test]
fn connections_rest_and_keep_their_state() {
    for threads in [1, 3] {
        let running = Running::start(4, threads, 60_000, 0);
        let mut clients: Vec<_> = (0..20).map(|_| running.connect()).collect();
        for round in 0..5 {
            for client in &mut clients {
                assert_eq!(ask(client, "hi\n"), format!("{round} hi\n"));
            }
        }
        assert_eq!(running.line.read(Counter::Connections), 20);
        assert_eq!(ask(&mut clients[0], "bye\n"), "5 last bye\n");
        assert_eq!(hear(&mut clients[0]), "");
        drop(clients);
        running.command(b'd');
        running.end();
    }
}

#[test]
fn requests_that_wait_too_long_are_turned_away_without_a_credit() {
    let (setup, address, wire) = parts(1, 1, 0);
    let shedding = Some(Duration::from_millis(1));
    let running = Running::of((Setup { shedding, ..setup }, address, wire), 60_000);
    let mut clients: Vec<_> = (0..5).map(|_| running.connect()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "hi\n"), "0 hi\n");
    }
    let mut blocked = running.connect();
    blocked.write_all(b"block\n").unwrap();
    let free = running.blocks.recv().unwrap();
    for _ in 0..2 {
        for client in &mut clients {
            client.write_all(b"later\n").unwrap();
        }
        for client in &mut clients {
            assert_eq!(hear(client), "shed later\n");
        }
    }
    free.send(()).unwrap();
    assert_eq!(hear(&mut blocked), "0 block\n");
    for client in &mut clients {
        assert_eq!(ask(client, "on\n"), "1 on\n");
    }
    drop((clients, blocked));
    running.command(b'd');
    running.end();
}

#[test]
fn requests_beyond_the_credits_wait_in_order_and_none_is_lost() {
    for threads in [1, 2] {
        let running = Running::start(2, threads, 60_000, 0);
        let mut idle: Vec<_> = (0..8).map(|_| running.connect()).collect();
        for client in &mut idle {
            assert_eq!(ask(client, "hi\n"), "0 hi\n");
        }
        let mut blocked: Vec<_> = (0..2).map(|_| running.connect()).collect();
        let mut frees = Vec::new();
        for client in &mut blocked {
            client.write_all(b"block\n").unwrap();
            frees.push(running.blocks.recv().unwrap());
        }
        // Every credit is taken: neither a resting connection nor a new one is served.
        for client in &mut idle {
            client.write_all(b"later\n").unwrap();
        }
        let mut fresh = running.connect();
        fresh.write_all(b"new\n").unwrap();
        fresh.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(fresh.read(&mut [0; 8]).is_err());
        fresh.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        frees.pop().unwrap().send(()).unwrap();
        for client in &mut idle {
            assert_eq!(hear(client), "1 later\n");
        }
        assert_eq!(hear(&mut fresh), "0 new\n");
        frees.pop().unwrap().send(()).unwrap();
        for client in &mut blocked {
            assert_eq!(hear(client), "0 block\n");
            assert_eq!(ask(client, "on\n"), "1 on\n");
        }
        drop((idle, blocked, fresh));
        running.command(b'd');
        running.end();
    }
}

#[test]
fn what_comes_while_a_task_has_the_socket_is_not_lost() {
    let running = Running::start(2, 2, 60_000, 0);
    let mut client = running.connect();
    assert_eq!(ask(&mut client, "hi\n"), "0 hi\n");
    client.write_all(b"block\n").unwrap();
    let free = running.blocks.recv().unwrap();
    client.write_all(b"meanwhile\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    free.send(()).unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "1 block\n2 meanwhile\n");
    running.command(b'd');
    running.end();
}

#[test]
fn a_draining_child_answers_once_more_and_ends() {
    let running = Running::start(2, 2, 60_000, 0);
    let mut clients: Vec<_> = (0..4).map(|_| running.connect()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "hi\n"), "0 hi\n");
    }
    running.command(b'p');
    for client in &mut clients[..2] {
        let answer = ask(client, "hi\n");
        // The command and the request may cross on the way.
        if answer == "1 hi\n" {
            continue;
        }
        assert_eq!(answer, "1 last hi\n");
    }
    running.command(b'r');
    let mut late = running.connect();
    assert_eq!(ask(&mut late, "bye\n"), "0 last bye\n");
    running.command(b'd');
    running.command(b'x');
    for client in &mut clients {
        assert_eq!(hear(client), "", "idle connections are closed at once");
    }
    running.end();
}

#[test]
fn idle_connections_expire() {
    let running = Running::start(2, 2, 100, 0);
    let mut clients: Vec<_> = (0..10).map(|_| running.connect()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "hi\n"), "0 hi\n");
    }
    for client in &mut clients {
        assert_eq!(hear(client), "");
    }
    running.command(b'd');
    running.end();
}

#[test]
fn idle_connections_expire_without_a_credit() {
    let running = Running::start(1, 1, 60_000, 0);
    let mut idle: Vec<_> = (0..9).map(|_| running.connect()).collect();
    for (number, client) in (1..).zip(&mut idle) {
        let text = format!("rest {}\n", number * 50);
        assert_eq!(ask(client, &text), format!("0 {text}"));
    }
    let mut holder = running.connect();
    holder.write_all(b"block\n").unwrap();
    let free = running.blocks.recv().unwrap();
    // Each of these is another sweep.
    for client in &mut idle {
        assert_eq!(hear(client), "");
    }
    assert_eq!(running.line.read(Counter::Runnable), 0);
    free.send(()).unwrap();
    assert_eq!(hear(&mut holder), "0 block\n");
    drop(holder);
    running.command(b'd');
    running.end();
}

#[test]
fn a_busy_thread_gives_way_to_a_task_that_waits_for_its_credit() {
    let running = Running::start(1, 1, 60_000, 0);
    let mut clients: Vec<_> = (0..301).map(|_| running.connect()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "hi\n"), "0 hi\n");
    }
    let (queue, others) = clients.split_first_mut().unwrap();
    running.held.store(true, Relaxed);
    queue.write_all(b"queue\n").unwrap();
    while running.line.read(Counter::Runnable) < 1 {
        std::thread::yield_now();
    }
    for client in &mut *others {
        client.write_all(b"hi\n").unwrap();
    }
    while running.line.read(Counter::Runnable) < 301 {
        std::thread::yield_now();
    }
    running.held.store(false, Relaxed);
    let before: u64 = hear(queue).parse().unwrap();
    assert!(before - 301 < 150, "{} of the 300 came before it", before - 302);
    for client in others {
        assert_eq!(hear(client), "1 hi\n");
    }
    drop(clients);
    running.command(b'd');
    running.end();
}

#[test]
fn the_threads_of_a_child_share_one_blocking_pool() {
    let (setup, _, wire) = parts(4, 3, 0);
    let pools = Mutex::new(Vec::new());
    assert!(wire.send(b'd').unwrap());
    event::serve_with(setup, |context| {
        pools.lock().unwrap().push(context.blocking_pool);
        Falls
    })
    .unwrap();
    let pools = pools.into_inner().unwrap();
    assert_eq!(pools.len(), 3);
    assert!(pools.iter().all(|pool| Arc::ptr_eq(pool, &pools[0])));
}

#[test]
fn a_child_that_exits_needs_no_credit_to_close_what_is_idle() {
    let running = Running::start(1, 1, 60_000, 0);
    let mut idle: Vec<_> = (0..100).map(|_| running.connect()).collect();
    for client in &mut idle {
        assert_eq!(ask(client, "hi\n"), "0 hi\n");
    }
    let mut asking = idle.pop().unwrap();
    let mut holder = running.connect();
    holder.write_all(b"block\n").unwrap();
    let free = running.blocks.recv().unwrap();
    asking.write_all(b"late\n").unwrap();
    while running.line.read(Counter::Runnable) == 0 {
        std::thread::yield_now();
    }
    running.command(b'x');
    for client in &mut idle {
        assert_eq!(hear(client), "");
    }
    assert_eq!(running.line.read(Counter::Runnable), 1);
    free.send(()).unwrap();
    assert_eq!(hear(&mut holder), "0 block\n");
    assert_eq!(hear(&mut asking), "1 last late\n");
    drop((holder, asking));
    running.end();
}

#[test]
fn a_child_ends_after_its_most_connections() {
    let running = Running::start(2, 1, 60_000, 3);
    let mut clients: Vec<_> = (0..3).map(|_| running.connect()).collect();
    let firsts: Vec<_> = clients.iter_mut().map(|client| ask(client, "hi\n")).collect();
    for (client, first) in clients.iter_mut().zip(firsts) {
        // The request of the last one may come before or after the child has taken notice.
        if first == "0 hi\n" {
            assert_eq!(ask(client, "hi\n"), "1 last hi\n");
        } else {
            assert_eq!(first, "0 last hi\n");
        }
    }
    running.end();
}

/// Which kind of client has an answer now: a kept or a new one, which is taken out.
fn answered(kept: &mut Vec<TcpStream>, fresh: &mut Vec<TcpStream>) -> char {
    loop {
        for (kind, clients) in [('k', &mut *kept), ('n', &mut *fresh)] {
            for index in 0..clients.len() {
                clients[index].set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                if clients[index].read(&mut [0; 64]).is_ok() {
                    clients.remove(index);
                    return kind;
                }
            }
        }
    }
}

/// In which order kept connections (`k`) and new ones (`n`) get the credits, one or three of them,
/// where three of the first sort have asked a while before three of the other.
fn order_at_scarce_credits(first: char, credits: u32) -> String {
    let running = Running::start(credits, 1, 60_000, 0);
    let mut kept: Vec<_> = (0..3).map(|_| running.connect()).collect();
    for client in &mut kept {
        assert_eq!(ask(client, "hi\n"), "0 hi\n");
    }
    let mut holders: Vec<_> = (0..credits).map(|_| running.connect()).collect();
    for holder in &mut holders {
        holder.write_all(b"block\n").unwrap();
    }
    let next = || (0..credits).map(|_| running.blocks.recv().unwrap()).collect::<Vec<_>>();
    let held = next();
    // Whoever comes to its turn holds a credit until the test lets it go.
    let mut fresh = Vec::new();
    for sort in [first, if first == 'k' { 'n' } else { 'k' }] {
        if sort == 'n' {
            fresh.extend((0..3).map(|_| running.connect()));
        }
        for client in if sort == 'k' { &mut kept } else { &mut fresh } {
            client.write_all(b"block\n").unwrap();
        }
        // Nothing happens but that they wait: the clock is some 4 ms coarse.
        std::thread::sleep(Duration::from_millis(60));
    }
    held.into_iter().for_each(|free| free.send(()).unwrap());
    let mut order = String::new();
    for _ in 0..6 / credits {
        next().into_iter().for_each(|free| free.send(()).unwrap());
        (0..credits).for_each(|_| order.push(answered(&mut kept, &mut fresh)));
    }
    drop((kept, fresh, holders));
    running.command(b'x');
    running.end();
    order
}

#[test]
fn who_came_first_has_the_scarce_credit_first() {
    // The age of those who wait in the kernel is known from the first that was accepted on: one may
    // come before its time.
    for credits in [1, 3] {
        for first in ['k', 'n'] {
            let order = order_at_scarce_credits(first, credits);
            let early = order.chars().take(3).filter(|sort| *sort == first).count();
            assert!(early >= 2, "{order} of {credits} where {first} was first");
        }
    }
}

#[test]
fn the_heart_of_a_child_stands_still_when_any_of_its_threads_hangs() {
    for hanging in [1, 0] {
        let running = Running::start(4, 2, 60_000, 0);
        let mut clients: Vec<_> = (0..6).map(|_| running.connect()).collect();
        for client in &mut clients {
            ask(client, "hi\n");
        }
        let place = hanging.to_string();
        let at = clients.iter_mut().position(|client| ask(client, "where\n") == place).unwrap();
        let beat = || running.line.read(Counter::HeartbeatUs);
        while beat() == 0 {
            running.ticks.recv().unwrap();
        }
        let held = running.hang.lock().unwrap();
        clients[at].write_all(b"hang\n").unwrap();
        running.blocks.recv().unwrap();
        running.ticks.try_iter().for_each(drop);
        let await_the_other = || while running.ticks.recv().unwrap() == hanging {};
        // It may show a beat once more that came before the thread hung.
        await_the_other();
        let still = beat();
        await_the_other();
        assert!(beat() == still && still > 0);
        drop(held);
        while beat() == still {
            running.ticks.recv().unwrap();
        }
        drop(clients);
        running.command(b'd');
        running.end();
    }
}

/// Not a test by itself: the process that the next one starts, with room for the descriptors of
/// some serving threads only.
#[test]
#[ignore = "it needs few descriptors"]
fn a_process_that_lacks_a_serving_thread() {
    let (setup, _, _wire) = parts(4, 24, 0);
    let error = event::serve_with(setup, |_| Falls).unwrap_err();
    assert!(error.to_string().starts_with("serving thread "), "{error}");
}

#[test]
fn a_child_that_lacks_a_serving_thread_ends_before_it_serves() {
    let me = std::env::current_exe().unwrap();
    // One set for each of 24 threads is made first; a runtime takes three descriptors more.
    let ended = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 64; exec timeout 60 \"$0\" --exact \"$1\" --ignored"])
        .arg(me)
        .arg("a_process_that_lacks_a_serving_thread")
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Falls over at what comes first, on whichever thread that is.
struct Falls;

impl Service for Falls {
    fn serve(&mut self, _: Socket, _: ReadyEvent, _: &mut Option<Credit>, _: &mut u32) -> Outcome {
        panic!("as asked");
    }

    fn shed(&mut self, _: Socket, _: ReadyEvent, _: &mut u32) -> Outcome {
        Outcome::Closed
    }

    fn expire(&mut self, _: Socket, _: ParkReason, _: ParkedState, _: bool) {}

    fn retire(&mut self, _: bool) {}

    fn tick(&mut self) {}

    fn notify(&mut self, _: Notice) {}
}

/// Not a test by itself: the process that the next one starts. It ends by a signal, or never.
#[test]
#[ignore = "it ends its process"]
fn a_process_whose_service_panics() {
    let (setup, address, _wire) = parts(4, 2, 0);
    let _client = std::thread::spawn(move || TcpStream::connect(address));
    event::serve_with(setup, |_| Falls).unwrap();
}

#[test]
fn a_serving_thread_that_unwinds_ends_the_process() {
    let me = std::env::current_exe().unwrap();
    let ended = std::process::Command::new(me)
        .args(["--exact", "a_process_whose_service_panics", "--ignored"])
        .output()
        .unwrap();
    // SIGABRT; a test that merely fails has an exit status.
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
}
