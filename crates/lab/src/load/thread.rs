//! The loop of one thread of clients: waits for events and times, lets each client take its next
//! step, and counts. The plan says when requests begin.

use super::client::{Client, Ground, Outcome, State};
use super::exchange::{Exchange, Failure};
use super::figures::{Figures, Sample, Second, news};
use super::pace::{Pace, Think, clients_at, to_ns};
use super::plan::Plan;
use super::run::Shared;
use super::source::Step;
use evenkeel_sys::clock;
use evenkeel_sys::epoll::Events;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::Exp1;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
/// The interval of checking which clients wait too long, and how many should be active.
const SWEEP_NS: u64 = 20_000_000;
/// The thread spins instead of sleeping if a time is this near, because waking up takes longer.
const SPIN_NS: u64 = 30_000;
/// The longest pause after failures in a row.
const MOST_BACKOFF_NS: u64 = 100_000_000;

pub(super) struct Thread {
    ground: Ground,
    shared: Arc<Shared>,
    clients: Vec<Client>,
    events: Events,
    /// When each client continues.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// The clients of an open loop that have nothing to do.
    free: VecDeque<u32>,
    /// When the arrivals that no client has taken yet were due.
    arrivals: VecDeque<u64>,
    next_arrival_ns: u64,
    /// The number of this thread in the run.
    number: u64,
    next_sweep_ns: u64,
    random: ChaCha8Rng,
    figures: Figures,
    second: Second,
    /// The counts that the seconds so far have reported.
    told: (BTreeMap<u16, u64>, BTreeMap<Failure, u64>),
    /// The number of clients that are over.
    over: usize,
    last_end_ns: u64,
}

impl Thread {
    /// A thread of these clients. `number` selects its random stream.
    pub(super) fn new(
        ground: Ground,
        shared: Arc<Shared>,
        clients: Vec<Client>,
        number: u64,
    ) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(ground.plan.seed);
        random.set_stream(number);
        Self {
            figures: Figures { by_client: vec![0; clients.len()], ..Figures::default() },
            ground,
            shared,
            clients,
            events: Events::with_capacity(512),
            timers: BinaryHeap::new(),
            free: VecDeque::new(),
            arrivals: VecDeque::new(),
            next_arrival_ns: 0,
            number,
            next_sweep_ns: 0,
            random,
            second: Second::new(0),
            told: <_>::default(),
            over: 0,
            last_end_ns: 0,
        }
    }

    /// Drives its clients until the end of the run.
    pub(super) fn run(mut self) -> io::Result<Figures> {
        let cpu_us = clock::thread_cpu_us();
        let plan = Arc::clone(&self.ground.plan);
        let end_ns =
            plan.bounds.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.next_arrival_ns = self.first_arrival(&plan);
        loop {
            let now_ns = self.ground.now_ns();
            if self.is_over() || end_ns.is_some_and(|end| now_ns >= end) {
                break;
            }
            self.keep_time(&plan, now_ns);
            let wait = self.until_next(now_ns, end_ns);
            self.ground.epoll.wait(&mut self.events, Some(wait))?;
            self.take_events(&plan);
        }
        Ok(self.conclude(cpu_us))
    }

    fn is_over(&self) -> bool {
        let done = self.over == self.clients.len();
        done || self.shared.stop.load(Relaxed)
    }

    fn take_events(&mut self, plan: &Plan) {
        let mut at = 0;
        while let Some(ready) = self.events.at(at) {
            at += 1;
            let (epoch, index) = ((ready.token >> 32) as u32, ready.token as u32);
            let Some(client) = self.clients.get_mut(index as usize) else { continue };
            if client.epoch() == epoch {
                let outcome = client.wake(&mut self.ground, ready);
                self.settle(plan, index, outcome);
            }
        }
    }

    /// Does everything that is due.
    fn keep_time(&mut self, plan: &Plan, now_ns: u64) {
        while now_ns >= (u64::from(self.second.number) + 1) * SECOND_NS {
            self.turn_second(now_ns);
        }
        if now_ns >= self.next_sweep_ns {
            self.next_sweep_ns = now_ns + SWEEP_NS;
            self.sweep(plan, now_ns);
        }
        while now_ns >= self.next_arrival_ns {
            let due = self.next_arrival_ns;
            self.arrivals.push_back(due);
            self.next_arrival_ns = self.draw_arrival(plan, due).unwrap_or(u64::MAX);
        }
        while !self.arrivals.is_empty() {
            let Some(index) = self.free.pop_front() else { break };
            let Some(client) = self.clients.get_mut(index as usize) else { continue };
            client.queued = false;
            // A client that left and came back may be in a pause.
            if client.wakes_ns.is_none() {
                self.go_on(plan, index, now_ns);
            }
        }
        let waiting = self.arrivals.len() as u64;
        self.figures.most_waiting = self.figures.most_waiting.max(waiting);
        while let Some(Reverse((due, index))) = self.timers.peek().copied() {
            if due > now_ns {
                break;
            }
            self.timers.pop();
            let Some(client) = self.clients.get_mut(index as usize) else { continue };
            if client.wakes_ns == Some(due) {
                client.wakes_ns = None;
                self.go_on(plan, index, now_ns);
            }
        }
    }

    /// Sets the time at which a client continues, in place of any other time.
    fn wake_at(&mut self, index: u32, due_ns: u64) {
        if let Some(client) = self.clients.get_mut(index as usize) {
            client.wakes_ns = Some(due_ns);
            self.timers.push(Reverse((due_ns, index)));
        }
    }

    fn until_next(&self, now_ns: u64, end_ns: Option<u64>) -> Duration {
        let timer = self.timers.peek().map_or(u64::MAX, |Reverse((due, _))| *due);
        let next = timer.min(self.next_arrival_ns);
        if next <= now_ns.saturating_add(SPIN_NS) {
            return Duration::ZERO;
        }
        let next = next.min(self.next_sweep_ns).min(end_ns.unwrap_or(u64::MAX));
        Duration::from_nanos(next.saturating_sub(now_ns))
    }

    fn turn_second(&mut self, now_ns: u64) {
        let next = Second::new(self.second.number + 1);
        // Count the clients of its last moment, because a step may send them away at its end.
        let last_ns = (u64::from(self.second.number) + 1) * SECOND_NS - 1;
        let wanted = wanted(&self.ground.plan, last_ns.min(now_ns));
        let is_at_work = |it: &&Client| it.number < wanted && it.state != State::Over;
        let at_work = self.clients.iter().filter(is_at_work).count();
        self.second.clients = u32::try_from(at_work).unwrap_or(u32::MAX);
        self.second.waiting = self.arrivals.len() as u64;
        self.second.statuses = news(&self.figures.statuses, &mut self.told.0);
        self.second.failures = news(&self.figures.failures, &mut self.told.1);
        (self.second.full_handshakes, self.second.resumed_handshakes) =
            self.ground.handshakes.news();
        let second = std::mem::replace(&mut self.second, next);
        self.shared.tell(&second);
        self.figures.seconds.push(second);
    }

    /// Gives up where a client has waited too long, and makes clients come and go.
    fn sweep(&mut self, plan: &Plan, now_ns: u64) {
        let wanted = wanted(plan, now_ns);
        for index in 0..self.clients.len() as u32 {
            let Some(client) = self.clients.get_mut(index as usize) else { continue };
            if client.is_busy() && now_ns >= client.deadline_ns {
                let outcome = client.give_up();
                self.settle(plan, index, outcome);
                continue;
            }
            if client.state == State::Away && client.number < wanted {
                client.come_back(now_ns);
                self.go_on(plan, index, now_ns);
            } else if client.state == State::Idle && client.number >= wanted {
                client.leave();
            }
        }
    }

    /// Handles the result of a client's exchange.
    fn settle(&mut self, plan: &Plan, index: u32, outcome: Outcome) {
        let Some(client) = self.clients.get_mut(index as usize) else { return };
        match outcome {
            Outcome::Pending => {}
            Outcome::ClosedIdle => self.figures.closed_idle += 1,
            Outcome::Answered(exchange) => {
                client.source.heed(Ok(&exchange));
                (client.ended_ns, client.failures) = (exchange.end_ns, 0);
                let free = !client.is_busy();
                self.count(index, &exchange);
                if free {
                    self.rest(plan, index, exchange.end_ns);
                }
            }
            Outcome::Free => {
                let now_ns = self.ground.now_ns();
                self.rest(plan, index, now_ns);
            }
            Outcome::Failed(failure) => {
                client.source.heed(Err(failure));
                client.failures = client.failures.saturating_add(1);
                let backoff_ns = (1_000_000 * u64::from(client.failures)).min(MOST_BACKOFF_NS);
                self.fail(failure);
                let now_ns = self.ground.now_ns();
                self.wake_at(index, now_ns + backoff_ns);
            }
        }
    }

    fn count(&mut self, index: u32, exchange: &Exchange) {
        self.figures.count(exchange);
        if let Some(count) = self.figures.by_client.get_mut(index as usize) {
            *count += 1;
        }
        if self.figures.sample.is_none()
            && let Some(client) = self.clients.get_mut(index as usize)
            && let Some(head) = client.take_sample()
        {
            let (body_bytes, tls) = (exchange.body_bytes, self.ground.agreed.clone());
            self.figures.sample = Some(Sample { head, body_bytes, tls });
        }
        self.second.answered += 1;
        self.second.read_bytes += exchange.read_bytes;
        let response_ns = exchange.end_ns.saturating_sub(exchange.intended_ns);
        self.second.response.record(response_ns);
        self.last_end_ns = exchange.end_ns;
        if self.ground.plan.keep_exchanges {
            self.figures.exchanges.push(*exchange);
        }
    }

    fn fail(&mut self, failure: Failure) {
        *self.figures.failures.entry(failure).or_default() += 1;
        self.second.failed += 1;
        let answered = matches!(failure, Failure::Truncated | Failure::Malformed);
        if self.ground.plan.bounds.at_failure && !answered {
            self.shared.stop.store(true, Relaxed);
        }
    }

    /// A client was answered: it pauses, waits for an arrival, or sends its next request.
    fn rest(&mut self, plan: &Plan, index: u32, now_ns: u64) {
        let Some(client) = self.clients.get_mut(index as usize) else { return };
        if client.number >= wanted(plan, now_ns) {
            return client.leave();
        }
        let think = match &plan.pace {
            Pace::Greedy | Pace::Open { .. } => Think::None,
            Pace::Think(think) => *think,
            Pace::PartlyOpen { think, .. } => {
                client.visit = client.visit.saturating_sub(1);
                if client.visit == 0 {
                    client.hang_up();
                    Think::None
                } else {
                    *think
                }
            }
        };
        if think.is_none() {
            self.go_on(plan, index, now_ns);
        } else {
            let pause_ns = think.draw_ns(&mut self.random);
            client.thinks = true;
            self.wake_at(index, now_ns.saturating_add(pause_ns));
        }
    }

    /// A client is free and its time has come.
    fn go_on(&mut self, plan: &Plan, index: u32, now_ns: u64) {
        let Some(client) = self.clients.get_mut(index as usize) else { return };
        if client.state != State::Idle {
            return;
        }
        if let Some((due_ns, _)) = client.due.as_ref().filter(|(due_ns, _)| *due_ns > now_ns) {
            let due_ns = *due_ns;
            return self.wake_at(index, due_ns);
        }
        if let Some((intended_ns, request)) = client.due.take() {
            let outcome = client.begin(&mut self.ground, index, request, intended_ns, now_ns);
            return self.settle(plan, index, outcome);
        }
        let mut intended_ns = now_ns;
        let open = matches!(plan.pace, Pace::Open { .. });
        if open || matches!(plan.pace, Pace::PartlyOpen { .. }) && client.visit == 0 {
            let Some(due) = self.arrivals.pop_front() else {
                if !std::mem::replace(&mut client.queued, true) {
                    self.free.push_back(index);
                }
                return;
            };
            intended_ns = due;
            client.visit = draw_visit(plan, &mut self.random);
        }
        self.ask(plan, index, intended_ns, now_ns);
    }

    fn ask(&mut self, plan: &Plan, index: u32, intended_ns: u64, now_ns: u64) {
        let Some(client) = self.clients.get_mut(index as usize) else { return };
        let (intended_ns, request) = match client.source.next(now_ns) {
            Step::Wait(until_ns) => {
                client.thinks = true;
                return self.wake_at(index, until_ns.max(now_ns + 1));
            }
            Step::Send(request) if self.shared.may_begin() => (intended_ns, request),
            Step::SendAt(due_ns, request) if self.shared.may_begin() => {
                if due_ns > now_ns {
                    client.due = Some((due_ns, request));
                    return self.wake_at(index, due_ns);
                }
                (due_ns, request)
            }
            Step::Send(_) | Step::SendAt(..) | Step::Over => {
                client.hang_up();
                client.state = State::Over;
                self.over += 1;
                return;
            }
        };
        if std::mem::take(&mut client.thinks) {
            let pause_ns = now_ns.saturating_sub(client.ended_ns);
            self.figures.times.pause.saturating_record(pause_ns);
        }
        let outcome = client.begin(&mut self.ground, index, request, intended_ns, now_ns);
        self.settle(plan, index, outcome);
    }

    /// The first arrival. Even arrivals of several threads are interleaved, not simultaneous.
    fn first_arrival(&mut self, plan: &Plan) -> u64 {
        match plan.pace {
            Pace::Open { rate, even: true } => to_ns((self.number + 1) as f64 / rate).max(1),
            _ => self.draw_arrival(plan, 0).unwrap_or(u64::MAX),
        }
    }

    /// When the next arrival is due, in a loop with arrivals. Each thread draws its part of the
    /// rate: a Poisson stream that is split is Poisson.
    fn draw_arrival(&mut self, plan: &Plan, last_ns: u64) -> Option<u64> {
        let (rate, even) = match plan.pace {
            Pace::Open { rate, even } => (rate, even),
            Pace::PartlyOpen { rate, .. } => (rate, false),
            Pace::Greedy | Pace::Think(_) => return None,
        };
        let own = rate / self.shared.threads.max(1) as f64;
        let gap = if even { 1.0 } else { self.random.sample::<f64, _>(Exp1) };
        Some(last_ns.saturating_add(to_ns(gap / own).max(1)))
    }

    fn conclude(mut self, cpu_us: u64) -> Figures {
        let now_ns = self.ground.now_ns();
        let all_over = self.over == self.clients.len();
        self.figures.elapsed_ns =
            if all_over && self.last_end_ns > 0 { self.last_end_ns } else { now_ns };
        self.turn_second(now_ns);
        self.figures.left_waiting = self.arrivals.len() as u64;
        self.figures.connections = self.ground.connections;
        self.ground.handshakes.conclude(&mut self.figures);
        self.figures.sent_bytes = self.ground.sent_bytes;
        self.figures.read_bytes = self.ground.read_bytes;
        self.figures.cpu_us = clock::thread_cpu_us().saturating_sub(cpu_us);
        self.figures.busiest = self.figures.cpu_us as f64 * 1e3 / now_ns.max(1) as f64;
        self.figures
    }
}

/// The number of clients that should be active.
fn wanted(plan: &Plan, now_ns: u64) -> u32 {
    match plan.stretches.as_slice() {
        [] => plan.clients,
        stretches => clients_at(stretches, now_ns as f64 / 1e9),
    }
}

/// The number of requests of a visit: geometric, at least one.
fn draw_visit(plan: &Plan, random: &mut ChaCha8Rng) -> u64 {
    let Pace::PartlyOpen { requests, .. } = plan.pace else { return 1 };
    let leave = 1.0 / requests.max(1.0);
    let mut count = 1;
    while random.random::<f64>() > leave {
        count += 1;
    }
    count
}
