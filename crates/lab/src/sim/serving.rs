//! The life of a connection in the simulation: it is made, waits in an accept queue, is accepted by
//! a child with a free worker, served, and kept or closed.

use super::setup::Wake;
use super::world::{Event, Job, World, ns};
use evenkeel_pool::Stage;
use rand::Rng as _;

/// The time after which a kept connection is closed while others wait, once it was answered.
const TURN_NS: u64 = 100_000_000;

/// The first repetition of a SYN comes after a second, and each further one after twice the time.
const FIRST_SYN_S: f64 = 1.0;

/// The repetitions of a SYN, as in Linux (tcp_syn_retries). The client begins anew after that.
const SYN_RETRIES: u32 = 6;

impl World<'_> {
    /// A client sends a request, over its connection or a new one.
    pub(super) fn ask(&mut self, index: usize) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(index) else { return };
        (client.asking, client.asked) = (true, now);
        let kept = client.kept;
        client.kept = false;
        let holder = client.child.filter(|id| kept && self.kids.contains_key(id));
        let Some(id) = holder else {
            self.wait_begins(index);
            self.connect(index, 0);
            return;
        };
        if self.idle_holds_worker() {
            self.serve(index);
            return;
        }
        self.wait_begins(index);
        let threads = self.setup.directives.limits.threads;
        let Some(kid) = self.kids.get_mut(&id) else { return };
        kid.kept = kid.kept.saturating_sub(1);
        if kid.working < threads {
            kid.working += 1;
            self.taken(index);
        } else {
            kid.line.push_back(index);
            self.poke();
        }
    }

    /// A connection arrives at a queue.
    pub(super) fn connect(&mut self, index: usize, attempt: u32) {
        let bucket = match self.buckets.len() {
            1 => 0,
            count => self.random.random_range(0..count),
        };
        let Some(place) = self.buckets.get_mut(bucket) else { return };
        if place.queue.len() >= self.setup.directives.backlog {
            self.outcome.overflows += 1;
            let pause = FIRST_SYN_S * f64::from(1_u32 << attempt.min(SYN_RETRIES));
            let attempt = if attempt >= SYN_RETRIES { 0 } else { attempt + 1 };
            self.at(self.now + ns(pause), Event::Again(index, attempt));
            return;
        }
        place.queue.push_back(index);
        if let Some(client) = self.clients.get_mut(index) {
            client.bucket = bucket;
        }
        self.wake_herd(bucket);
        self.serve_queue(bucket);
    }

    /// Idle children wake for a connection that one of them will accept.
    fn wake_herd(&mut self, bucket: usize) {
        let herd = self.setup.accept.herd;
        if herd == 0 {
            return;
        }
        let threads = self.setup.directives.limits.threads;
        let idle = self.kids.values().filter(|kid| {
            kid.bucket == bucket && kid.stage == Stage::Serving && kid.working < threads
        });
        // One of them accepts it.
        let woken = idle.take(herd + 1).count().saturating_sub(1);
        for _ in 0..woken {
            self.begin_work(ns(self.setup.accept.wake_s), Job::Wake);
        }
    }

    /// Children accept connections from a queue for as long as there are both.
    pub(super) fn serve_queue(&mut self, bucket: usize) {
        while self.buckets.get(bucket).is_some_and(|place| !place.queue.is_empty()) {
            let Some(id) = self.taker(bucket) else {
                if self.setup.law.is_fair() && self.make_way(bucket) {
                    continue;
                }
                self.poke();
                return;
            };
            let place = self.buckets.get_mut(bucket);
            let Some(index) = place.and_then(|place| place.queue.pop_front()) else { return };
            self.accept(id, index);
        }
    }

    /// One of the children that can accept: any of them, as if all wake up, or the one that worked
    /// last.
    fn taker(&mut self, bucket: usize) -> Option<u64> {
        let threads = self.setup.directives.limits.threads;
        let gates = self.setup.law.gates();
        let takers = || {
            self.kids.iter().filter(move |(_, kid)| {
                let room = kid.working < threads || (!gates && kid.line.len() < threads);
                kid.bucket == bucket && kid.stage == Stage::Serving && room && !kid.hung
            })
        };
        if self.setup.wake == Wake::Warm {
            return takers().max_by_key(|(_, kid)| kid.used).map(|(id, _)| *id);
        }
        let count = takers().count();
        if count == 0 {
            return None;
        }
        let chosen = self.random.random_range(0..count);
        takers().nth(chosen).map(|(id, _)| *id)
    }

    fn accept(&mut self, id: u64, index: usize) {
        let now = self.now;
        if let Some(client) = self.clients.get_mut(index) {
            (client.child, client.accepted) = (Some(id), now);
        }
        let threads = self.setup.directives.limits.threads;
        let most = self.setup.directives.most_connections;
        let Some(kid) = self.kids.get_mut(&id) else { return };
        kid.accepted += 1;
        kid.used = now;
        self.all_accepted += 1;
        if most.is_some_and(|most| kid.accepted >= most) {
            (kid.stage, kid.since) = (Stage::Draining, now);
            self.outcome.worn_out += 1;
        }
        if kid.working < threads {
            kid.working += 1;
            self.wait_for_lock(index);
        } else {
            kid.line.push_back(index);
        }
    }

    /// Accepts of one queue follow each other if the lock of its socket costs anything.
    fn wait_for_lock(&mut self, index: usize) {
        let Some(client) = self.clients.get(index) else { return };
        let (turn, bucket) = (client.turn, client.bucket);
        let cost = &self.setup.accept;
        let sharing = (self.setup.cores / self.buckets.len().max(1) as f64 - 1.0).max(0.0);
        let toll = ns(cost.line_cpu_s * sharing);
        let held = ns(cost.lock_s + cost.mutex_s + cost.line_s * sharing);
        if let Some(client) = self.clients.get_mut(index) {
            client.toll = toll;
        }
        let Some(place) = self.buckets.get_mut(bucket).filter(|_| held > 0) else {
            return self.taken(index);
        };
        place.locked_until = place.locked_until.max(self.now) + held;
        let when = place.locked_until;
        self.at(when, Event::Accepted(index, turn));
    }

    /// A worker has taken a request that waited.
    pub(super) fn taken(&mut self, index: usize) {
        self.wait_ends(index);
        self.serve(index);
    }

    fn serve(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let (asked, turn, toll) = (client.asked, client.turn, std::mem::take(&mut client.toll));
        self.outcome.waited.saturating_record((self.now - asked).max(1));
        let work = self.setup.cpu.draw_ns(&mut self.random);
        self.begin_work(work + toll, Job::Request(index, turn));
    }

    /// The answer to a request is made. It is sent at once, or as slowly as its client reads.
    pub(super) fn made(&mut self, index: usize, turn: u32) {
        if !self.is_turn(index, turn) {
            return;
        }
        let Some((share, time)) = self.setup.slow else { return self.answered(index) };
        if self.random.random::<f64>() >= share {
            return self.answered(index);
        }
        let long = time.draw_ns(&mut self.random);
        self.at(self.now + long, Event::Read(index, turn));
        let Some(client) = self.clients.get_mut(index) else { return };
        client.reads = true;
        // In event, no worker waits for a client.
        if let Some(id) = client.child.filter(|_| !self.idle_holds_worker()) {
            self.release(id);
        }
    }

    /// The answer to a request was sent.
    pub(super) fn answered(&mut self, index: usize) {
        let (now, holds_always) = (self.now, self.idle_holds_worker());
        let Some(client) = self.clients.get_mut(index) else { return };
        if client.child.is_some_and(|id| self.kids.get(&id).is_some_and(|kid| kid.hung)) {
            return;
        }
        client.asking = false;
        client.served += 1;
        client.visit = client.visit.saturating_sub(1);
        let holds = !std::mem::take(&mut client.reads) || holds_always;
        let (asked, accepted, bucket) = (client.asked, client.accepted, client.bucket);
        let stays = if self.setup.load.open { client.visit > 0 } else { client.wanted };
        let child = client.child;
        self.outcome.answered += 1;
        self.outcome.response.saturating_record((now - asked).max(1));
        let Some(id) = child else { return };
        let serving = self.kids.get(&id).is_some_and(|kid| kid.stage == Stage::Serving);
        let keep = self.setup.keep_alive && stays && serving && {
            let queued = self.buckets.get(bucket).is_some_and(|place| !place.queue.is_empty());
            !(self.setup.law.is_fair() && queued && now - accepted >= TURN_NS)
        };
        if keep {
            self.keep(index, id, bucket);
        }
        // If idle connections hold workers, a kept one holds its own.
        if holds && !(keep && holds_always) {
            self.release(id);
        }
        if stays {
            let pause = self.setup.think.draw_ns(&mut self.random);
            self.at(now + pause, Event::Ask(index));
        } else {
            self.leave(index);
        }
    }

    /// A connection is idle until its client sends the next request.
    fn keep(&mut self, index: usize, id: u64, bucket: usize) {
        let now = self.now;
        if let Some(client) = self.clients.get_mut(index) {
            client.kept = true;
        }
        let idle = ns(self.setup.directives.keep_alive_timeout_s);
        let rests = self.clients.get(index).map_or(0, |client| client.served);
        if self.idle_holds_worker() {
            if let Some(place) = self.buckets.get_mut(bucket) {
                place.resting.push_back((index, rests));
            }
        } else if let Some(kid) = self.kids.get_mut(&id) {
            kid.kept += 1;
        }
        if !self.setup.think.is_none() {
            self.at(now + idle, Event::Idle(index, rests));
        }
    }

    /// Closes a connection that was idle for too long, if it is still idle for the same reason.
    pub(super) fn idle_too_long(&mut self, index: usize, rests: u64) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if !client.kept || client.served != rests {
            return;
        }
        client.kept = false;
        let Some(id) = client.child else { return };
        if self.idle_holds_worker() {
            self.release(id);
        } else if let Some(kid) = self.kids.get_mut(&id) {
            kid.kept = kid.kept.saturating_sub(1);
        }
    }

    /// Closes the oldest idle connection that holds a worker of this bucket.
    fn make_way(&mut self, bucket: usize) -> bool {
        while let Some((index, rests)) =
            self.buckets.get_mut(bucket).and_then(|place| place.resting.pop_front())
        {
            let Some(client) = self.clients.get_mut(index) else { continue };
            if client.kept && client.served == rests {
                client.kept = false;
                let Some(id) = client.child else { continue };
                if let Some(kid) = self.kids.get_mut(&id) {
                    kid.working = kid.working.saturating_sub(1);
                    return true;
                }
            }
        }
        false
    }

    /// A worker is free: connections that wait in its child come first, then the queue.
    pub(super) fn release(&mut self, id: u64) {
        let Some(kid) = self.kids.get_mut(&id) else { return };
        let bucket = kid.bucket;
        if let Some(next) = kid.line.pop_front() {
            self.taken(next);
            return;
        }
        kid.working = kid.working.saturating_sub(1);
        self.end_if_done(id);
        self.serve_queue(bucket);
    }
}
