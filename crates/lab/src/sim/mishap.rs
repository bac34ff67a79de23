//! Faults and reloads of the simulated server: reloads, deaths of children, stalled children.
//! Children end and start, and requests are lost and sent again.

use super::parent::Which;
use super::setup::Mishap;
use super::world::{Event, Kid, World, ns};
use evenkeel_pool::Stage;
use rand::Rng as _;

/// The seconds after which a stalled child is replaced (mpm/src/stall_detector.rs). Apache never
/// replaces one.
const STILL_S: f64 = 30.0;

/// The time in nanoseconds after which a client whose connection broke sends its request again.
const AGAIN_NS: u64 = 1_000_000;

impl World<'_> {
    /// Handles a fault or a reload.
    pub(super) fn befall(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Reload => self.reload(),
            Mishap::Kill => {
                if let Some(id) = self.victim() {
                    self.kill(id);
                }
            }
            Mishap::Hang => {
                let Some(id) = self.victim() else { return };
                if let Some(kid) = self.kids.get_mut(&id) {
                    kid.hung = true;
                }
                if self.setup.law == Which::Evenkeel {
                    self.at(self.now + ns(STILL_S), Event::Still(id));
                }
            }
        }
    }

    fn victim(&mut self) -> Option<u64> {
        let serving: Vec<u64> = self
            .kids
            .iter()
            .filter(|(_, kid)| kid.stage == Stage::Serving)
            .map(|it| *it.0)
            .collect();
        let chosen = self.random.random_range(0..serving.len().max(1));
        serving.get(chosen).copied()
    }

    /// Removes a child with everything that it had.
    pub(super) fn kill(&mut self, id: u64) {
        let Some(kid) = self.kids.remove(&id) else { return };
        self.bury(Some(&kid));
        for index in 0..self.clients.len() {
            let Some(client) = self.clients.get_mut(index) else { break };
            if client.child != Some(id) {
                continue;
            }
            (client.child, client.kept, client.reads) = (None, false, false);
            if !std::mem::take(&mut client.asking) {
                continue;
            }
            client.turn += 1;
            self.outcome.lost += 1;
            if client.waits {
                self.wait_ends(index);
            }
            self.at(self.now + AGAIN_NS, Event::Ask(index));
        }
        if self.buckets.first().is_some_and(|bucket| bucket.parent.wakes_within().is_some()) {
            self.wake_parent(self.now);
        }
    }

    /// Records how many connections a removed child accepted.
    pub(super) fn bury(&mut self, kid: Option<&Kid>) {
        self.most_accepted = self.most_accepted.max(kid.map_or(0, |kid| kid.accepted));
    }

    /// Evenkeel has as many new children ready as the work needs before the old ones go. Apache
    /// ends the old ones at once and starts StartServers (worker.c: ap_worker_pod_killpg).
    fn reload(&mut self) {
        self.generation += 1;
        let limits = self.setup.directives.limits;
        let working: usize = self.kids.values().map(|kid| kid.working + kid.line.len()).sum();
        let queued: usize = self.buckets.iter().map(|bucket| bucket.queue.len()).sum();
        let ours = self.setup.law == Which::Evenkeel;
        let wanted = if ours {
            (working + queued + limits.min_spare).div_ceil(limits.threads)
        } else {
            self.setup.directives.start_servers
        };
        let count = wanted.clamp(self.buckets.len(), limits.children.max(self.buckets.len()));
        for number in 0..count {
            let id = self.fork(number % self.buckets.len());
            self.at(self.now + ns(self.setup.start_s), Event::Ready(id));
        }
        self.outcome.forks += count;
        self.reloading = ours.then_some(count);
        if !ours {
            self.send_home();
        }
    }

    /// Ends the old children once enough of the new ones are ready.
    pub(super) fn hand_over(&mut self) {
        let generation = self.generation;
        let ready = |kid: &&Kid| kid.generation == generation && kid.stage == Stage::Serving;
        let Some(wanted) = self.reloading else { return };
        if self.kids.values().filter(ready).count() >= wanted {
            self.reloading = None;
            self.send_home();
        }
    }

    fn send_home(&mut self) {
        let old: Vec<u64> = self
            .kids
            .iter()
            .filter(|(_, kid)| kid.generation < self.generation && kid.stage != Stage::Draining)
            .map(|(id, _)| *id)
            .collect();
        for id in old {
            if let Some(kid) = self.kids.get_mut(&id) {
                (kid.stage, kid.since) = (Stage::Draining, self.now);
            }
            self.end_if_done(id);
        }
    }
}
