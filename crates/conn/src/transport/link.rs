//! The transport of a connection while a task serves it, shared by the task and the body of its
//! request: what has come and was not used, and waiting for more.

use crate::h2::session_state::Shared;
use crate::thread::ThreadState;
use crate::transport::pace::Pace;
use crate::transport::{Channel, Received, Side, Transport};
use evenkeel_message::Notice;
use evenkeel_scoreboard::{ClientWait, WaitReason};
use evenkeel_sys::clock;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::task::coop::has_budget_remaining;

/// Bytes that are taken in of what a client sends ahead, to learn whether it ends behind them.
const MOST_AHEAD: usize = 16 << 10;

/// The transport of a connection in a task.
pub(crate) struct Link {
    thread: Rc<ThreadState>,
    /// `None` once the connection was taken out.
    transport: RefCell<Option<Transport>>,
    /// How the client takes what it is sent.
    pace: RefCell<Pace>,
    /// Why the layer of the transport has failed, for the error log.
    pub(crate) notice: Cell<Option<Notice>>,
    /// What has come and was not used yet.
    pub(crate) inbox: RefCell<Inbox>,
    /// Whether the last read may have left something behind.
    pub(crate) more: Cell<bool>,
}

/// Bytes that came and were not used yet.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    at: usize,
}

impl Inbox {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0 }
    }

    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Takes bytes off the front; an empty box keeps no memory.
    pub(crate) fn consume(&mut self, count: usize) {
        self.at += count;
        if self.is_empty() {
            *self = Self::default();
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at.min(self.bytes.len()));
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }
}

impl Link {
    pub(crate) fn new(
        thread: &Rc<ThreadState>,
        transport: Transport,
        inbox: Inbox,
        more: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            transport: RefCell::new(Some(transport)),
            pace: RefCell::default(),
            notice: Cell::default(),
            inbox: RefCell::new(inbox),
            more: Cell::new(more),
            thread: Rc::clone(thread),
        })
    }

    /// The link of a connection that is closed.
    pub(crate) fn gone(thread: &Rc<ThreadState>) -> Rc<Self> {
        Rc::new(Self {
            transport: RefCell::default(),
            pace: RefCell::default(),
            notice: Cell::default(),
            inbox: RefCell::default(),
            more: Cell::new(false),
            thread: Rc::clone(thread),
        })
    }

    /// Reads more into the inbox; 0 at the end of the stream. `TimedOut` where others wait for
    /// the worker that this client keeps waiting.
    pub(crate) fn poll_fill(&self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.poll_read(context);
        self.track_wait(read, Side::Read)
    }

    /// The same without a note of who waits for whom, unless `is_tracked`: the task has other
    /// things to do meanwhile.
    pub(crate) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        is_tracked: bool,
    ) -> Poll<io::Result<usize>> {
        match is_tracked {
            true => self.poll_fill(context),
            false => self.poll_read(context),
        }
    }

    /// Has frames of HTTP/2 sent, as far as the socket takes them now. Says whether some were sent.
    pub(crate) fn try_send(&self, shared: &mut Shared) -> bool {
        let before = shared.total_sent;
        // The error is not lost: the session gets it again from its next send.
        let _sent = self.ask(|transport| shared.send(&mut transport.channel()?));
        shared.total_sent > before
    }

    fn poll_read(&self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buffer = self.thread.take_buffer();
        let read = self.poll_io(context, Side::Read, |channel| channel.receive(&mut buffer));
        let read = read.map_ok(|received| self.take_in(&buffer, received));
        if let Poll::Ready(Err(_)) = read {
            self.note_failure();
        }
        self.thread.give_buffer(buffer);
        read
    }

    /// Reads what has come by now into the inbox; 0 at the end of the stream, `WouldBlock` where
    /// nothing has come. The socket is asked, for the runtime also has a task wait that has used up
    /// its turn.
    pub(crate) fn fill_now(&self) -> io::Result<usize> {
        let mut buffer = self.thread.take_buffer();
        let read = self.ask(|transport| transport.receive(&mut buffer));
        let read = read.map(|received| self.take_in(&buffer, received));
        self.thread.give_buffer(buffer);
        read
    }

    /// Sends what of so few bytes there is room for now, whether or not the task has used up its
    /// turn; `WouldBlock` where there is none.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<()> {
        self.ask(|transport| {
            let mut channel = transport.channel()?;
            channel.send(&[IoSlice::new(bytes)], false)?;
            channel.flush()
        })
    }

    /// Sends the heads of interim responses, if there is room for them now. If there is room for a
    /// part of them alone, the connection is reset, because nothing else could follow that part.
    pub(crate) fn send_interim(&self, heads: &[u8]) {
        let sent = self.ask(|transport| {
            let mut channel = transport.channel()?;
            let count = channel.send(&[IoSlice::new(heads)], false)?;
            match channel.flush() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                _ => Ok(count),
            }
        });
        if sent.is_ok_and(|count| count < heads.len())
            && let Some(transport) = self.take()
        {
            transport.reset_on_close();
        }
    }

    /// Whether a record of TLS has come in part.
    pub(crate) fn has_partial(&self) -> bool {
        self.transport.borrow_mut().as_mut().is_some_and(Transport::has_partial)
    }

    /// Whether the transport has taken bytes that it has not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.transport.borrow().as_ref().is_some_and(Transport::has_unsent)
    }

    /// Asks the transport itself.
    fn ask<R>(&self, ask: impl FnOnce(&mut Transport) -> io::Result<R>) -> io::Result<R> {
        match &mut *self.transport.borrow_mut() {
            Some(transport) => ask(transport),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Keeps the reason of a failure.
    fn note_failure(&self) {
        let mut transport = self.transport.borrow_mut();
        if let Some(notice) = transport.as_mut().and_then(|one| one.tls()?.take_notice()) {
            self.notice.set(Some(notice));
        }
    }

    /// Takes in what was read into a buffer; says how much that was.
    fn take_in(&self, buffer: &[u8], received: Received) -> usize {
        let Received { count, more } = received;
        self.more.set(more);
        self.inbox.borrow_mut().append(buffer.get(..count).unwrap_or_default());
        count
    }

    /// Whether the client has ended its side or the connection is broken; if not, the task is
    /// woken when that may change. What the client sends ahead is taken in up to a bound; one that
    /// has sent more is there, and is not asked.
    pub(crate) fn has_ended(&self, context: &mut Context<'_>) -> bool {
        while self.inbox.borrow().rest().len() < MOST_AHEAD {
            match self.poll_read(context) {
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => return false,
            }
        }
        false
    }

    /// Sends with `send`, which says `WouldBlock` where it must wait. `TimedOut` as for
    /// [`Link::poll_fill`].
    pub(crate) fn poll_send<R>(
        &self,
        context: &mut Context<'_>,
        send: impl FnMut(&mut Channel<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let sent = self.poll_io(context, Side::Write, send);
        self.track_wait(sent, Side::Write)
    }

    /// Notes whether the client keeps a worker waiting that is held by its connection.
    fn track_wait<R>(&self, polled: Poll<io::Result<R>>, side: Side) -> Poll<io::Result<R>> {
        let Some(client_wait) = &self.thread.place.client_wait else { return polled };
        if polled.is_pending() && !waits_for_client() {
            return polled;
        }
        if polled.is_ready() {
            client_wait.stop();
            return polled;
        }
        match side {
            Side::Read => client_wait.start(WaitReason::SlowRequest, clock::monotonic_us()),
            Side::Write => self.watch_progress(client_wait),
        }
        if client_wait.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }

    /// Waits for a client that takes a response: for as long as it keeps pace, it keeps nobody
    /// waiting. The kernel is asked, for what is written here comes in large and rare pieces.
    fn watch_progress(&self, client_wait: &ClientWait) {
        let now_us = clock::monotonic_us();
        let transport = self.transport.borrow();
        let progress = transport.as_ref().map(Transport::send_progress).unwrap_or_default();
        let begins = client_wait.current().is_none();
        let (wait, since_us) = self.pace.borrow_mut().look(progress, begins, now_us);
        client_wait.start(wait, since_us);
        client_wait.postpone(wait, since_us);
    }

    fn poll_io<R>(
        &self,
        context: &mut Context<'_>,
        side: Side,
        act: impl FnMut(&mut Channel<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        match &mut *self.transport.borrow_mut() {
            Some(transport) => transport.poll(context, side, act),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Reads for a tunnel, first what was taken in before; 0 at the end of the stream. A tunnel
    /// keeps its worker, if it holds one, although others wait.
    pub(crate) fn poll_tunnel_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox.borrow_mut();
        if !inbox.is_empty() {
            let count = inbox.rest().len().min(buffer.len());
            let (now, _) = inbox.rest().split_at_checked(count).unwrap_or_default();
            buffer.get_mut(..count).unwrap_or_default().copy_from_slice(now);
            inbox.consume(count);
            return Poll::Ready(Ok(count));
        }
        self.poll_io(context, Side::Read, |channel| channel.receive(buffer))
            .map_ok(|received| received.count)
    }

    /// Writes for a tunnel.
    pub(crate) fn poll_tunnel_write<R>(
        &self,
        context: &mut Context<'_>,
        send: impl FnMut(&mut Channel<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_io(context, Side::Write, send)
    }

    /// Ends the direction to the client.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        self.ask(Transport::end_writing)
    }

    /// Takes the transport out; whoever else has the link finds it gone.
    pub(crate) fn take(&self) -> Option<Transport> {
        self.transport.take()
    }
}

/// Whether a read or a write that is pending waits for the client: the runtime also has a task wait
/// that has used up its turn, and then says nothing of the socket.
pub(crate) fn waits_for_client() -> bool {
    has_budget_remaining()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::exchange::slow_bytes::SlowBytes;
    use crate::thread::Workplace;
    use evenkeel_scoreboard::{Gate, Layout, Scoreboard};
    use evenkeel_sys::blocking_pool::BlockingPool;
    use evenkeel_sys::socket::Socket;
    use std::future::Future;
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::sync::Arc;
    use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
    use tokio::task::coop::consume_budget;

    /// A client and its socket, neither of which blocks.
    pub(crate) fn pair() -> (UnixStream, Transport) {
        let (client, server) = UnixStream::pair().unwrap();
        for end in [&client, &server] {
            end.set_nonblocking(true).unwrap();
        }
        (client, Transport::of(Socket::new(server.into()), &Rc::default()))
    }

    pub(crate) fn runtime() -> LocalRuntime {
        let options = LocalOptions::default();
        Builder::new_current_thread().enable_all().build_local(options).unwrap()
    }

    /// Uses up the turn of the task that calls.
    pub(crate) fn use_up_turn(context: &mut Context<'_>) {
        while pin!(consume_budget()).poll(context).is_ready() {}
    }

    pub(crate) fn thread() -> Rc<ThreadState> {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        Rc::new(ThreadState::new(Workplace {
            gate: Gate::new(1, line),
            bulkhead: Arc::clone(BlockingPool::new(1).bulkhead()),
            slots: None,
            client_wait: None,
            permits: None,
            line,
            ports: Arc::from([]),
            addresses: Arc::default(),
            slow_bytes: SlowBytes::new(0),
            handshakes: SlowBytes::new(0),
            long_steps: None,
        }))
    }

    #[test]
    fn what_has_come_is_found_by_a_task_that_has_used_up_its_turn() {
        let (mut client, socket) = pair();
        let link = Link::new(&thread(), socket, Inbox::default(), true);
        runtime().block_on(poll_fn(|context| {
            assert!(link.poll_fill(context).is_pending(), "nothing has come");
            client.write_all(b"hello").unwrap();
            use_up_turn(context);
            assert_eq!(link.fill_now().unwrap(), 5);
            assert_eq!(link.inbox.borrow().rest(), b"hello");
            assert_eq!(link.fill_now().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            Poll::Ready(())
        }));
    }
}
