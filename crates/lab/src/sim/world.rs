//! The state of the simulation: clients, accept queues, children with their workers, cores, and the
//! parent with its ticks. Events are handled in the order of their times, and everything random
//! follows from one seed. `serving.rs` has the life of a connection.

use super::cpu::Cpu;
use super::parent::Parent;
use super::record::{Outcome, Sample};
use super::setup::{Mishap, Model, Setup};
use super::station::Station;
use evenkeel_pool::{Census, Child, Decision, Limits, Stage};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// The rows of the outcome.
const SAMPLES: f64 = 600.0;

/// A queue that lasts no longer than this is due to workers that are waking up.
const LONG_WAIT_NS: u64 = 100_000_000;

/// A pool that was full for this long counts as full, whatever happens after that.
const SETTLED_NS: u64 = 1_000_000_000;

/// The longest time between two rows.
const LONGEST_SAMPLE_S: f64 = 10.0;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The number of clients changes.
    Level,
    /// A request of an open load.
    Arrival,
    /// A client sends a request.
    Ask(usize),
    /// A client whose connection found the queue full tries again.
    Again(usize, u32),
    /// A job on the cores may be done. If the number is not the last one, other jobs have begun
    /// since.
    Cpu(u64),
    /// What a request waited for has arrived. If the turn is not the client's, it belongs to
    /// another request.
    Waited(usize, u32),
    /// The script of a request is done.
    Script(usize, u32),
    /// A client has read its answer slowly.
    Read(usize, u32),
    /// A connection was accepted after its child had to wait for the lock of the queue.
    Accepted(usize, u32),
    /// A fault or a reload.
    Mishap(Mishap),
    /// A child has stalled for too long.
    Still(u64),
    /// A child's start is over.
    Ready(u64),
    /// The parent's tick. If the number is not the last one, the tick is obsolete.
    Tick(u64),
    /// A row of the outcome.
    Sample,
    /// A kept connection was idle for too long, if it is still in the same wait.
    Idle(usize, u64),
}

/// Work on the cores.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// A client's request, with the client's turn.
    Request(usize, u32),
    /// The script of a request, likewise.
    Script(usize, u32),
    /// A child that woke for a connection that another one accepted.
    Wake,
    /// A child's start.
    Start(u64),
}

/// A client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub(super) asked: u64,
    pub(super) served: u64,
    pub(super) since: u64,
    pub(super) bucket: usize,
    /// The child that serves it or holds its kept connection.
    pub(super) child: Option<u64>,
    /// When its connection was accepted.
    pub(super) accepted: u64,
    /// Increased when something is cut off, so that events for it are ignored.
    pub(super) turn: u32,
    /// The remaining requests of its visit, if clients come at a rate.
    pub(super) visit: u64,
    /// The CPU time that accepting it costs its request.
    pub(super) toll: u64,
    /// Whether it waits for a worker.
    pub(super) waits: bool,
    /// Whether it reads its answer slowly.
    pub(super) reads: bool,
    /// Whether it waits for an answer.
    pub(super) asking: bool,
    /// Whether its connection is idle in a child.
    pub(super) kept: bool,
    /// Whether it stays once it was answered.
    pub(super) wanted: bool,
    /// Whether any event for it is pending.
    pub(super) alive: bool,
}

/// A child.
#[derive(Clone, Debug)]
pub(super) struct Kid {
    pub(super) stage: Stage,
    pub(super) since: u64,
    pub(super) bucket: usize,
    /// The workers that are taken.
    pub(super) working: usize,
    /// The connections that it has accepted and no worker has taken.
    pub(super) line: VecDeque<usize>,
    /// The idle kept connections that hold no worker.
    pub(super) kept: usize,
    pub(super) accepted: u64,
    /// The number of its configuration.
    pub(super) generation: u64,
    /// Whether it has stalled.
    pub(super) hung: bool,
    /// When it last accepted a connection.
    pub(super) used: u64,
}

/// An accept queue with the parent's state for it.
pub(super) struct Bucket {
    pub(super) queue: VecDeque<usize>,
    /// The idle kept connections that hold a worker each, oldest first.
    pub(super) resting: VecDeque<(usize, u64)>,
    /// When the lock of the queue's socket is free.
    pub(super) locked_until: u64,
    /// The demand that its parent last saw, in workers.
    demand: usize,
    pub(super) parent: Parent,
}

/// The state of the simulation.
pub(super) struct World<'a> {
    pub(super) setup: &'a Setup,
    pub(super) random: ChaCha8Rng,
    pub(super) now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    pub(super) cpu: Cpu<Job>,
    cpu_turn: u64,
    pub(super) clients: Vec<Client>,
    free: Vec<usize>,
    pub(super) kids: BTreeMap<u64, Kid>,
    next_kid: u64,
    pub(super) generation: u64,
    /// How many children of a new configuration must be ready before the old ones go.
    pub(super) reloading: Option<usize>,
    /// The most connections that a removed child accepted.
    pub(super) most_accepted: u64,
    pub(super) all_accepted: u64,
    pub(super) buckets: Vec<Bucket>,
    tick_turn: u64,
    last_tick: u64,
    next_tick: u64,
    /// The pool of application processes.
    pub(super) station: Station,
    pub(super) outcome: Outcome,
    answered_before: u64,
    /// The connections that wait for a worker, including those that found no room in the queue.
    pub(super) waiting: usize,
    rise: u64,
    /// Since when connections have been waiting.
    line_since: u64,
    full: Option<u64>,
    /// The greatest demand that the parent has seen.
    greatest: usize,
}

pub(super) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        let buckets = (0..setup.buckets.max(1)).map(|_| Bucket {
            queue: VecDeque::new(),
            resting: VecDeque::new(),
            locked_until: 0,
            demand: 0,
            parent: Parent::new(setup.law),
        });
        let mut world = Self {
            setup,
            random: ChaCha8Rng::seed_from_u64(setup.seed),
            now: 0,
            events: BinaryHeap::new(),
            number: 0,
            cpu: Cpu::new(setup.cores),
            cpu_turn: 0,
            clients: Vec::new(),
            free: Vec::new(),
            kids: BTreeMap::new(),
            next_kid: 0,
            generation: 0,
            reloading: None,
            most_accepted: 0,
            all_accepted: 0,
            buckets: buckets.collect(),
            tick_turn: 0,
            last_tick: 0,
            next_tick: 0,
            station: Station::default(),
            outcome: Outcome::new(),
            answered_before: 0,
            waiting: 0,
            rise: ns(setup.load.first_rise_s()),
            line_since: 0,
            full: None,
            greatest: 0,
        };
        // The children of StartServers exist from the beginning.
        for index in 0..setup.directives.start_servers {
            let id = world.fork(index % world.buckets.len());
            if let Some(kid) = world.kids.get_mut(&id) {
                kid.stage = Stage::Serving;
            }
        }
        world
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> Outcome {
        self.at(0, Event::Level);
        self.at(self.sample_ns(), Event::Sample);
        self.wake_parent(0);
        for (second, mishap) in &self.setup.mishaps {
            self.at(ns(*second), Event::Mishap(*mishap));
        }
        let end = ns(self.setup.seconds);
        while let Some(Reverse((when, _, event))) = self.events.pop() {
            if when > end {
                break;
            }
            self.now = when;
            self.happen(event);
        }
        self.now = end;
        self.finish();
        self.outcome
    }

    pub(super) fn at(&mut self, when: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((when, self.number, event)));
    }

    fn sample_ns(&self) -> u64 {
        ns((self.setup.seconds / SAMPLES).min(LONGEST_SAMPLE_S)).max(1)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Level => self.level(),
            Event::Arrival => self.arrival(),
            Event::Ask(client) => self.ask(client),
            Event::Again(client, attempt) => self.connect(client, attempt),
            Event::Cpu(turn) => self.cpu_done(turn),
            Event::Waited(client, turn) => self.pass_on(client, turn),
            Event::Script(client, turn) => self.script_ends(client, turn),
            Event::Read(client, turn) if self.is_turn(client, turn) => self.answered(client),
            Event::Accepted(client, turn) if self.is_turn(client, turn) => self.taken(client),
            Event::Read(..) | Event::Accepted(..) => {}
            Event::Mishap(mishap) => self.befall(mishap),
            Event::Still(kid) => self.kill(kid),
            Event::Ready(kid) => {
                let work = ns(self.setup.start_cpu_s);
                self.begin_work(work, Job::Start(kid));
            }
            Event::Tick(turn) if turn == self.tick_turn => self.tick(),
            Event::Tick(_) => {}
            Event::Sample => self.sample(),
            Event::Idle(client, since) => self.idle_too_long(client, since),
        }
    }

    /// Sets the number of clients, or the rate, to that of the load.
    fn level(&mut self) {
        let (level, next) = self.setup.load.at(self.now as f64 / 1e9);
        if let Some(next) = next {
            self.at(ns(next).max(self.now + 1), Event::Level);
        }
        if self.setup.load.open {
            if level > 0.0 {
                self.next_arrival(level);
            }
            return;
        }
        let level = level as usize;
        while self.clients.len() < level {
            self.clients.push(Client::default());
        }
        for index in 0..self.clients.len() {
            let Some(client) = self.clients.get_mut(index) else { break };
            client.wanted = index < level;
            if client.wanted && !client.alive {
                (client.alive, client.since) = (true, self.now);
                let pause = self.setup.think.draw_ns(&mut self.random);
                self.at(self.now + pause, Event::Ask(index));
            }
        }
    }

    fn next_arrival(&mut self, rate: f64) {
        let pause = Exp::new(rate).map_or(1.0, |pause| pause.sample(&mut self.random));
        // The next level begins its own arrivals.
        let (_, until) = self.setup.load.at(self.now as f64 / 1e9);
        let when = self.now + ns(pause);
        if until.is_none_or(|until| when < ns(until)) {
            self.at(when, Event::Arrival);
        }
    }

    fn arrival(&mut self) {
        let (rate, _) = self.setup.load.at(self.now as f64 / 1e9);
        if rate > 0.0 {
            self.next_arrival(rate);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.clients.push(Client::default());
            self.clients.len() - 1
        });
        if let Some(client) = self.clients.get_mut(index) {
            let (turn, since) = (client.turn + 1, self.now);
            *client = Client { alive: true, since, turn, visit: 1, ..Client::default() };
            let leaves = 1.0 / self.setup.load.visit;
            while self.setup.load.visit > 1.0 && self.random.random::<f64>() > leaves {
                client.visit += 1;
            }
        }
        self.ask(index);
    }

    /// Whether an event for a client is still valid.
    pub(super) fn is_turn(&self, index: usize, turn: u32) -> bool {
        self.clients.get(index).is_some_and(|client| client.turn == turn)
    }

    /// Removes a client that is no longer wanted. In an open load it always is removed.
    pub(super) fn leave(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.alive = false;
            if self.setup.load.open {
                self.free.push(index);
            }
        }
    }

    pub(super) fn begin_work(&mut self, work: u64, job: Job) {
        self.cpu.begin(self.now, work, job);
        self.watch_cpu();
    }

    fn watch_cpu(&mut self) {
        self.cpu_turn += 1;
        if let Some(when) = self.cpu.next() {
            self.at(when, Event::Cpu(self.cpu_turn));
        }
    }

    fn cpu_done(&mut self, turn: u64) {
        if turn != self.cpu_turn {
            return;
        }
        let mut done = Vec::new();
        while let Some(job) = self.cpu.done(self.now) {
            done.push(job);
        }
        for job in done {
            match job {
                Job::Wake => {}
                Job::Request(client, turn) => {
                    let wait = self.setup.wait.draw_ns(&mut self.random);
                    if wait == 0 {
                        self.pass_on(client, turn);
                    } else {
                        self.at(self.now + wait, Event::Waited(client, turn));
                    }
                }
                Job::Script(client, turn) => self.script_waits(client, turn),
                Job::Start(id) => {
                    let Some(kid) = self.kids.get_mut(&id) else { continue };
                    if kid.stage == Stage::Starting {
                        (kid.stage, kid.since) = (Stage::Serving, self.now);
                        let bucket = kid.bucket;
                        self.hand_over();
                        self.serve_queue(bucket);
                    }
                }
            }
        }
        self.watch_cpu();
    }

    pub(super) fn fork(&mut self, bucket: usize) -> u64 {
        let id = self.next_kid;
        self.next_kid += 1;
        let kid = Kid {
            stage: Stage::Starting,
            since: self.now,
            bucket,
            working: 0,
            line: VecDeque::new(),
            kept: 0,
            accepted: 0,
            generation: self.generation,
            hung: false,
            used: 0,
        };
        let _new = self.kids.insert(id, kid);
        self.outcome.most_children = self.outcome.most_children.max(self.kids.len());
        id
    }

    /// Makes the parent look at once, if it can be woken.
    pub(super) fn poke(&mut self) {
        let Some(within) = self.buckets.first().and_then(|bucket| bucket.parent.wakes_within())
        else {
            return;
        };
        let soonest = (self.last_tick + nanos(within)).max(self.now);
        if soonest < self.next_tick {
            self.wake_parent(soonest);
        }
    }

    pub(super) fn wake_parent(&mut self, when: u64) {
        self.tick_turn += 1;
        self.next_tick = when;
        self.at(when, Event::Tick(self.tick_turn));
    }

    fn tick(&mut self) {
        self.weigh();
        let needs: Vec<usize> = self.buckets.iter().map(|bucket| bucket.demand).collect();
        for bucket in 0..self.buckets.len() {
            let limits = self.setup.directives.limits.share(&needs, bucket);
            let decision = self.decide(bucket, &limits);
            self.act(bucket, &decision);
        }
        self.last_tick = self.now;
        let waiting = self.buckets.iter().any(|bucket| !bucket.queue.is_empty());
        let tick = self.buckets.first().map_or(Duration::from_secs(1), |b| b.parent.tick(waiting));
        self.wake_parent(self.now + nanos(tick));
    }

    /// Records by how much the number of workers exceeds the greatest demand.
    fn weigh(&mut self) {
        let busy: usize = self.kids.values().map(|kid| kid.working).sum();
        let serving = self.kids.values().filter(|kid| kid.stage == Stage::Serving).count();
        self.greatest = self.greatest.max(busy + self.waiting);
        let there = serving * self.setup.directives.limits.threads;
        let beyond = there as i64 - self.greatest as i64;
        self.outcome.most_beyond = self.outcome.most_beyond.max(beyond);
    }

    fn decide(&mut self, index: usize, limits: &Limits) -> Decision {
        let kids = self.kids.iter().filter(|(_, kid)| kid.bucket == index);
        let children: Vec<Child> = kids
            .map(|(&id, kid)| Child {
                id,
                generation: kid.generation,
                stage: kid.stage,
                since: Duration::from_nanos(kid.since),
                working: kid.working + kid.line.len(),
                kept: kid.kept,
            })
            .collect();
        let Some(bucket) = self.buckets.get_mut(index) else { return Decision::default() };
        if self.reloading.is_some() {
            return Decision::default();
        }
        let census = Census {
            now: Duration::from_nanos(self.now),
            generation: self.generation,
            children: &children,
            queue: bucket.queue.len(),
            answered: self.outcome.answered / self.setup.buckets.max(1) as u64,
        };
        let decision = bucket.parent.decide(&census, limits, &mut self.random);
        bucket.demand = decision.reading.demand;
        decision
    }

    fn act(&mut self, bucket: usize, decision: &Decision) {
        for _ in 0..decision.fork {
            let id = self.fork(bucket);
            self.at(self.now + ns(self.setup.start_s), Event::Ready(id));
        }
        self.outcome.forks += decision.fork;
        for (ids, stage) in [
            (&decision.unpark, Stage::Serving),
            (&decision.park, Stage::Parked),
            (&decision.drain, Stage::Draining),
        ] {
            for id in ids {
                let Some(kid) = self.kids.get_mut(id) else { continue };
                let parked = kid.stage == Stage::Parked;
                (kid.stage, kid.since) = (stage, self.now);
                match stage {
                    Stage::Serving => self.outcome.called_back += 1,
                    Stage::Draining if parked => {}
                    _ => self.outcome.retired += 1,
                }
                self.end_if_done(*id);
            }
        }
        if !decision.unpark.is_empty() {
            self.serve_queue(bucket);
        }
    }

    /// Ends a draining child without a request. Its idle connections are closed.
    pub(super) fn end_if_done(&mut self, id: u64) {
        let done = self.kids.get(&id).is_some_and(|kid| {
            kid.stage == Stage::Draining && kid.working == 0 && kid.line.is_empty()
        });
        if done {
            let ended = self.kids.remove(&id);
            self.bury(ended.as_ref());
        }
    }

    fn sample(&mut self) {
        let mut sample = Sample {
            second: self.now as f64 / 1e9,
            asking: self.clients.iter().filter(|client| client.asking).count(),
            waiting: self.waiting,
            ..Sample::default()
        };
        for kid in self.kids.values() {
            match kid.stage {
                Stage::Serving => {
                    sample.serving += 1;
                    sample.workers += self.setup.directives.limits.threads;
                }
                Stage::Starting => sample.starting += 1,
                Stage::Parked | Stage::Draining => sample.leaving += 1,
            }
            sample.busy += kid.working;
        }
        let answers = self.outcome.answered - self.answered_before;
        sample.rate = answers as f64 / (self.sample_ns() as f64 / 1e9);
        self.answered_before = self.outcome.answered;
        self.outcome.samples.push(sample);
        self.at(self.now + self.sample_ns(), Event::Sample);
    }

    /// A connection begins to wait for a worker.
    pub(super) fn wait_begins(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.waits = true;
        }
        if self.waiting == 0 {
            self.line_since = self.now;
        }
        self.waiting += 1;
    }

    /// A connection gets a worker. The pool is full from the first moment after the load's rise
    /// when no connection waits, if for a second after that none waits long.
    pub(super) fn wait_ends(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.waits = false;
        }
        self.waiting -= 1;
        if self.waiting > 0 || self.now < self.rise {
            return;
        }
        let stood = self.now - self.line_since.max(self.rise) > LONG_WAIT_NS;
        let settled =
            self.full.is_some_and(|full| self.line_since.saturating_sub(full) > SETTLED_NS);
        if self.full.is_none() || (stood && !settled) {
            self.full = Some(self.now);
        }
    }

    fn finish(&mut self) {
        let hung = |client: &&Client| {
            let kid = client.child.and_then(|id| self.kids.get(&id));
            client.asking && kid.is_some_and(|kid| kid.hung)
        };
        self.outcome.lost += self.clients.iter().filter(hung).count() as u64;
        let most = self.kids.values().map(|kid| kid.accepted).max().unwrap_or(0);
        let most = most.max(self.most_accepted);
        self.outcome.busiest_share = most as f64 / self.all_accepted.max(1) as f64;
        let long_there = |client: &&Client| client.alive && self.now - client.since >= ns(10.0);
        let never = self.clients.iter().filter(long_there).filter(|client| client.served == 0);
        self.outcome.never_served = never.count();
        // A queue at the end has lasted since the pool was considered full.
        let stands = self.waiting > 0
            && self.now - self.line_since > LONG_WAIT_NS
            && self.full.is_none_or(|full| self.line_since.saturating_sub(full) <= SETTLED_NS);
        let full = self.full.filter(|_| !stands);
        self.outcome.full_s = full.map(|full| (full - self.rise) as f64 / 1e9);
        let all = self.setup.cores * self.now as f64;
        if let Some(pool) = &self.setup.application {
            self.outcome.pool_utilisation = self.station.utilisation(pool, self.now);
        }
        self.outcome.utilisation = self.cpu.used() / all.max(1.0);
    }

    /// Whether an idle kept connection holds a worker.
    pub(super) fn idle_holds_worker(&self) -> bool {
        self.setup.directives.model != Model::Event
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
