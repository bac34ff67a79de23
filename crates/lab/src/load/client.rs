//! One client: its connection, and the exchange in progress on it. Its thread decides when it sends
//! a request and what it does between requests.

use super::exchange::{Exchange, Failure, Request};
use super::figures::Handshakes;
use super::plan::{Keep, Plan};
use super::receive::{Answer, Progress};
use super::source::Source;
use super::tls::{Agreed, Trust};
use super::transport::Transport;
use evenkeel_sys::clock;
use evenkeel_sys::epoll::{Epoll, Ready};
use std::io;
use std::sync::Arc;

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It should not be active.
    Away,
    /// It waits for something to do, or for its time.
    Idle,
    /// Its connection is being established.
    Connecting,
    /// The TLS handshake is in progress.
    Shaking,
    /// Its request is being sent.
    Sending,
    /// It waits for the response.
    Receiving,
    /// The server is closing the connection.
    Farewell,
    /// It has nothing more to do.
    Over,
}

/// The result of an event.
#[derive(Debug)]
pub(super) enum Outcome {
    /// More events must follow.
    Pending,
    /// The exchange was answered. The client is free, or waits for the server to close the
    /// connection.
    Answered(Exchange),
    /// The exchange failed, and its connection is closed.
    Failed(Failure),
    /// The connection was closed while no request was in progress.
    ClosedIdle,
    /// The server has closed the connection, and the client is free.
    Free,
}

pub(super) struct Client {
    pub(super) number: u32,
    pub(super) source: Box<dyn Source>,
    pub(super) state: State,
    /// The end of its last exchange, for pauses.
    pub(super) ended_ns: u64,
    /// When it gives up waiting.
    pub(super) deadline_ns: u64,
    /// When its timer wakes it. A timer with another time belongs to something that is over.
    pub(super) wakes_ns: Option<u64>,
    /// Whether it is in its thread's queue of clients that wait for an arrival.
    pub(super) queued: bool,
    /// The request to send when its time comes, and when it was due.
    pub(super) due: Option<(u64, Arc<Request>)>,
    /// Whether it pauses after a response. Its next request determines how long that was.
    pub(super) thinks: bool,
    /// The remaining requests of its visit, in a partly open loop.
    pub(super) visit: u64,
    /// The failures since its last response.
    pub(super) failures: u32,
    /// Counts its connections, to recognise events of a previous one.
    epoch: u32,
    transport: Option<Transport>,
    /// Its own trust with its own sessions, from its first connection on.
    trust: Option<Trust>,
    /// When the handshake began.
    shakes_ns: u64,
    used: bool,
    request: Arc<Request>,
    sent: usize,
    answer: Answer,
    exchange: Exchange,
}

/// What the clients of a thread share.
pub(super) struct Ground {
    pub(super) plan: Arc<Plan>,
    pub(super) epoll: Epoll,
    pub(super) buffer: Vec<u8>,
    /// The reading of the clock at the beginning of the run.
    pub(super) origin_ns: u64,
    pub(super) connections: u64,
    pub(super) sent_bytes: u64,
    pub(super) read_bytes: u64,
    /// The negotiated TLS parameters of the first connection.
    pub(super) agreed: Option<Agreed>,
    pub(super) handshakes: Handshakes,
}

impl Ground {
    /// The nanoseconds since the beginning of the run.
    pub(super) fn now_ns(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.origin_ns)
    }
}

/// How long a client waits for the server to close a connection that it announced to close.
const FAREWELL_NS: u64 = 1_000_000_000;

impl Client {
    pub(super) fn new(number: u32, source: Box<dyn Source>, sample: bool) -> Self {
        Self {
            number,
            source,
            state: State::Away,
            ended_ns: 0,
            deadline_ns: 0,
            wakes_ns: None,
            queued: false,
            due: None,
            thinks: false,
            visit: 0,
            failures: 0,
            epoch: 0,
            transport: None,
            trust: None,
            shakes_ns: 0,
            used: false,
            request: Arc::default(),
            sent: 0,
            answer: Answer::new(sample),
            exchange: Exchange::default(),
        }
    }

    /// Whether an exchange, or the closing of a connection, is in progress.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.state, State::Away | State::Idle | State::Over)
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The head of the first response, if it is wanted. Returned once.
    pub(super) fn take_sample(&mut self) -> Option<Vec<u8>> {
        self.answer.sample.take()
    }

    /// Closes its connection.
    pub(super) fn hang_up(&mut self) {
        if self.transport.take().is_some() {
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    /// Makes the client inactive. Nothing that it waited for wakes it any more.
    pub(super) fn leave(&mut self) {
        self.hang_up();
        self.state = State::Away;
        (self.wakes_ns, self.thinks, self.visit) = (None, false, 0);
    }

    /// Makes the client active again, like a new one.
    pub(super) fn come_back(&mut self, now_ns: u64) {
        self.state = State::Idle;
        self.ended_ns = now_ns;
    }

    /// Begins an exchange. `index` is the client's place in its thread.
    pub(super) fn begin(
        &mut self,
        ground: &mut Ground,
        index: u32,
        request: Arc<Request>,
        intended_ns: u64,
        now_ns: u64,
    ) -> Outcome {
        self.answer.begin(request.no_body);
        self.exchange = Exchange {
            client: self.number,
            label: request.label,
            intended_ns,
            start_ns: now_ns,
            connected_ns: now_ns,
            sent_ns: now_ns,
            reused: self.transport.is_some() && self.used,
            ..Exchange::default()
        };
        (self.request, self.sent) = (request, 0);
        if self.transport.is_some() {
            self.deadline_ns = after(now_ns, ground.plan.timeouts.answer.as_nanos());
            return self.send(ground);
        }
        self.deadline_ns = after(now_ns, ground.plan.timeouts.connect.as_nanos());
        match self.connect(ground, index) {
            Ok(()) => {
                self.state = State::Connecting;
                Outcome::Pending
            }
            Err(error) => self.fail(Failure::of_connect(&error)),
        }
    }

    fn connect(&mut self, ground: &mut Ground, index: u32) -> io::Result<()> {
        let plan = &ground.plan;
        let remote = plan.remotes.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        if self.trust.is_none() {
            self.trust = plan.trust.as_ref().map(Trust::for_one_client);
        }
        let transport = Transport::begin(remote, &plan.local, self.trust.as_ref())?;
        self.epoch = self.epoch.wrapping_add(1);
        let token = u64::from(self.epoch) << 32 | u64::from(index);
        ground.epoll.add_read_write(&transport, token)?;
        (self.transport, self.used) = (Some(transport), false);
        Ok(())
    }

    /// Handles an event of its connection.
    pub(super) fn wake(&mut self, ground: &mut Ground, ready: Ready) -> Outcome {
        match self.state {
            State::Connecting if ready.writable || ready.hangup => self.connected(ground),
            State::Shaking => self.shake(ground),
            State::Sending if ready.readable || ready.hangup => {
                // A server may refuse a body before it has received all of it.
                match self.receive(ground, ready.hangup) {
                    Outcome::Pending if ready.writable => self.send(ground),
                    outcome => outcome,
                }
            }
            State::Sending => self.send(ground),
            State::Receiving => {
                if ready.writable
                    && let Some(Err(error)) = self.transport.as_mut().map(Transport::flush)
                {
                    return self.fail(Failure::of_transfer(&error));
                }
                if ready.readable || ready.hangup {
                    self.receive(ground, ready.hangup)
                } else {
                    Outcome::Pending
                }
            }
            State::Farewell => self.part(ground),
            State::Idle | State::Away if ready.readable || ready.hangup => {
                self.hang_up();
                Outcome::ClosedIdle
            }
            _ => Outcome::Pending,
        }
    }

    /// Gives up what it has waited for too long.
    pub(super) fn give_up(&mut self) -> Outcome {
        match self.state {
            State::Connecting | State::Shaking => self.fail(Failure::ConnectTimeout),
            State::Sending | State::Receiving => self.fail(Failure::Timeout),
            State::Farewell => {
                self.hang_up();
                self.state = State::Idle;
                Outcome::Free
            }
            _ => Outcome::Pending,
        }
    }

    fn fail(&mut self, failure: Failure) -> Outcome {
        self.hang_up();
        self.state = State::Idle;
        Outcome::Failed(failure)
    }

    fn connected(&mut self, ground: &mut Ground) -> Outcome {
        match self.transport.as_ref().map(Transport::outcome) {
            Some(Ok(())) => {
                self.shakes_ns = ground.now_ns();
                self.shake(ground)
            }
            Some(Err(error)) => self.fail(Failure::of_connect(&error)),
            None => self.fail(Failure::Connect),
        }
    }

    fn shake(&mut self, ground: &mut Ground) -> Outcome {
        self.state = State::Shaking;
        match self.transport.as_mut().map(Transport::shake) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Outcome::Pending,
            Some(Err(_)) | None => return self.fail(Failure::Tls),
        }
        ground.connections += 1;
        if ground.agreed.is_none() {
            ground.agreed = self.transport.as_ref().and_then(Transport::agreed);
        }
        let now_ns = ground.now_ns();
        if let Some(resumed) = self.transport.as_ref().and_then(Transport::is_resumed) {
            self.exchange.handshake_ns = now_ns.saturating_sub(self.shakes_ns).max(1);
            ground.handshakes.count(self.exchange.handshake_ns, resumed);
        }
        (self.exchange.connected_ns, self.exchange.sent_ns) = (now_ns, now_ns);
        self.deadline_ns = after(now_ns, ground.plan.timeouts.answer.as_nanos());
        self.send(ground)
    }

    fn send(&mut self, ground: &mut Ground) -> Outcome {
        self.state = State::Sending;
        let Some(transport) = &mut self.transport else { return self.fail(Failure::Connect) };
        let mut whole = true;
        while let Some(rest) = self.request.bytes.get(self.sent..).filter(|it| !it.is_empty()) {
            match transport.send(rest) {
                Ok(count) => {
                    self.sent += count;
                    ground.sent_bytes += count as u64;
                    whole &= count == rest.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Outcome::Pending,
                // The response that explains the error may have arrived before the reset.
                Err(_) => return self.receive(ground, true),
            }
        }
        if !whole {
            self.exchange.sent_ns = ground.now_ns();
        }
        self.state = State::Receiving;
        Outcome::Pending
    }

    fn receive(&mut self, ground: &mut Ground, hangup: bool) -> Outcome {
        loop {
            let Some(transport) = &mut self.transport else { return self.fail(Failure::Reset) };
            let count = match transport.receive(&mut ground.buffer) {
                Ok(0) => {
                    let end = self.answer.end();
                    let now_ns = ground.now_ns();
                    return match end {
                        Ok(()) => self.finish(ground, now_ns, true),
                        Err(failure) => self.fail(failure),
                    };
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Outcome::Pending;
                }
                Err(error) => return self.fail(Failure::of_transfer(&error)),
            };
            let now_ns = ground.now_ns();
            if self.answer.is_untouched() {
                self.exchange.first_ns = now_ns;
            }
            ground.read_bytes += count as u64;
            self.exchange.read_bytes += count as u64;
            self.deadline_ns = after(now_ns, ground.plan.timeouts.answer.as_nanos());
            let short = count < ground.buffer.len() && transport.reads_short() && !hangup;
            let received = ground.buffer.get(..count).unwrap_or_default();
            if ground.plan.hear {
                self.source.hear(received);
            }
            match self.answer.take(received) {
                Ok(Progress::Whole) => return self.finish(ground, now_ns, hangup),
                Ok(Progress::More) if short => return Outcome::Pending,
                Ok(Progress::More) => {}
                Err(failure) => return self.fail(failure),
            }
        }
    }

    /// Completes the response. `hangup` says that the server has closed the connection.
    fn finish(&mut self, ground: &mut Ground, now_ns: u64, hangup: bool) -> Outcome {
        let unsent = self.sent < self.request.bytes.len();
        let exchange = &mut self.exchange;
        exchange.end_ns = now_ns;
        exchange.status = self.answer.status;
        exchange.head_bytes = self.answer.head_bytes;
        exchange.body_bytes = self.answer.body_bytes;
        exchange.kept = self.answer.kept && !unsent;
        self.used = true;
        if exchange.kept && ground.plan.keep == Keep::Kept && !hangup {
            self.state = State::Idle;
        } else if exchange.kept || hangup || unsent {
            self.hang_up();
            self.state = State::Idle;
        } else {
            self.state = State::Farewell;
            self.deadline_ns = now_ns.saturating_add(FAREWELL_NS);
            // Usually the end has arrived with the last bytes of the response.
            let _whether_over = self.part(ground);
        }
        Outcome::Answered(self.exchange)
    }

    /// Waits for the server to close the connection, so that the port does not remain in use on
    /// this side.
    fn part(&mut self, ground: &mut Ground) -> Outcome {
        while let Some(transport) = &mut self.transport {
            match transport.receive(&mut ground.buffer) {
                Ok(0) => break,
                Ok(count) => ground.read_bytes += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Outcome::Pending;
                }
                Err(_) => break,
            }
        }
        self.hang_up();
        self.state = State::Idle;
        Outcome::Free
    }
}

fn after(now_ns: u64, wait_ns: u128) -> u64 {
    now_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX))
}
