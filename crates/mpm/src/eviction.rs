//! Which children the parent asks to make room while connections wait, in the models where a
//! connection holds a worker: idle children accept a connection, and without idle ones prefork's
//! children evict a client that keeps them waiting. The listener of a worker child does that for
//! its own threads. Only numbers that the children report go into the choice.

use std::collections::BTreeSet;

use evenkeel_scoreboard::{ClientWait, Counter, Phase, WaitReason};

use crate::Command;
use crate::dedicated::contention::{Contention, Eviction};
use crate::limits::Model;
use crate::parent::Parent;
use crate::settings::Server;

/// How often children whose connections are neither idle nor stalled are asked again. They close
/// their connection with the next response.
const AGAIN_US: u64 = 100_000;

/// What is remembered of a bucket's accept queue.
#[derive(Default)]
pub(crate) struct QueueHistory {
    had_queue: bool,
    repeated_us: u64,
    /// The idle children that were asked since connections began to wait. A child that is idle
    /// although it was asked accepts nothing, for whatever reason.
    asked: BTreeSet<u64>,
}

/// What the choice depends on of a child.
#[derive(Clone, Copy, Debug)]
struct ChildState {
    number: u64,
    is_idle: bool,
    /// What it waits for at its client, and since when (prefork).
    waits: Option<(WaitReason, u64)>,
}

/// The children to ask, by number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    /// Those that can make room at once.
    now: Vec<u64>,
    /// The same, where clients like theirs hold most of the workers.
    urgent: Vec<u64>,
    /// Those that make room with their next response.
    later: Vec<u64>,
}

/// Chooses children for `queue` connections: idle ones, or else those whose clients have kept them
/// waiting the longest, idle connections first, and then others in turn. Idle children that were
/// `asked` before and accepted nothing are asked again, but not relied on.
fn choose(queue: usize, children: &[ChildState], asked: &BTreeSet<u64>, now_us: u64) -> Chosen {
    let (idle, busy): (Vec<&ChildState>, Vec<&ChildState>) =
        children.iter().partition(|child| child.is_idle);
    let idle = idle.into_iter().map(|child| child.number);
    let (unresponsive, idle): (Vec<u64>, Vec<u64>) =
        idle.partition(|number| asked.contains(number));
    if !idle.is_empty() {
        return Chosen { now: idle.into_iter().take(queue).collect(), ..Chosen::default() };
    }
    let waits = busy.iter().filter_map(|child| child.waits);
    let contention = Contention::of(waits, children.len(), queue, 1, now_us);
    let (mut evicted, mut others) = (Vec::new(), Vec::new());
    for child in busy {
        let eviction = child.waits.and_then(|(wait, since_us)| {
            let eviction = contention.eviction(wait, since_us, now_us)?;
            Some(((wait, since_us, child.number), eviction))
        });
        match eviction {
            Some(eviction) => evicted.push(eviction),
            None => others.push(child.number),
        }
    }
    evicted.sort_unstable_by_key(|(order, _)| *order);
    evicted.truncate(queue);
    let with = |wanted| {
        let evicted = evicted.iter().filter(move |(_, eviction)| *eviction == wanted);
        evicted.map(|((_, _, number), _)| *number)
    };
    let mut now: Vec<u64> = with(Eviction::Normal).collect();
    let first = usize::try_from(now_us / AGAIN_US).unwrap_or(0) % others.len().max(1);
    others.rotate_left(first);
    others.truncate(queue - evicted.len());
    now.extend(unresponsive.into_iter().take(queue));
    Chosen { now, urgent: with(Eviction::Urgent).collect(), later: others }
}

impl<S: Server> Parent<'_, S> {
    /// Asks children of a bucket to make room if connections have waited since the last check.
    /// True if all workers of the bucket are busy, so that its queue must be watched.
    pub(crate) fn make_room(
        &mut self,
        bucket: usize,
        queue: usize,
        history: &mut QueueHistory,
        now_us: u64,
    ) -> bool {
        let model = self.current.limits.model;
        if model == Model::Event {
            return false;
        }
        let is_contended = std::mem::replace(&mut history.had_queue, queue > 0) && queue > 0;
        let children = self.child_states(bucket, model == Model::Prefork);
        if is_contended {
            let Chosen { now, urgent, later } = choose(queue, &children, &history.asked, now_us);
            self.children.send(&now, Command::MakeRoom);
            self.children.send(&urgent, Command::MakeRoomUrgently);
            let is_asked = |child: &&ChildState| child.is_idle && now.contains(&child.number);
            history.asked.extend(children.iter().filter(is_asked).map(|child| child.number));
            let busy = children.iter().filter(|child| !child.is_idle);
            busy.for_each(|child| _ = history.asked.remove(&child.number));
            if now_us.saturating_sub(history.repeated_us) >= AGAIN_US && !later.is_empty() {
                history.repeated_us = now_us;
                self.children.send(&later, Command::MakeRoom);
            }
        } else {
            history.asked.clear();
        }
        model == Model::Prefork && children.iter().all(|child| !child.is_idle)
    }

    /// The serving children of a bucket; only the idle ones, unless `all` is true.
    fn child_states(&self, bucket: usize, all: bool) -> Vec<ChildState> {
        let count = self.listeners.buckets();
        let own = self.children.all().filter(|entry| entry.bucket % count == bucket);
        let serving = own.filter(|entry| entry.phase == Phase::Running);
        let states = serving.filter_map(|entry| {
            let line = self.board.child_line(entry.index)?;
            let is_idle = !entry.is_full(self.board);
            let waits = ClientWait::parse(line.read(Counter::ClientWait));
            (all || is_idle).then_some(ChildState { number: entry.number, is_idle, waits })
        });
        states.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 10_000_000;

    fn child(number: u64, waits: Option<(WaitReason, u64)>) -> ChildState {
        let waits = waits.map(|(wait, ago_us)| (wait, NOW_US - ago_us));
        ChildState { number, is_idle: false, waits }
    }

    #[test]
    fn idle_children_are_chosen_before_any_that_would_evict_a_client() {
        let idle = |number| ChildState { is_idle: true, ..child(number, None) };
        let all = [child(1, Some((WaitReason::Idle, 900_000))), idle(2), idle(3)];
        assert_eq!(
            choose(1, &all, &BTreeSet::new(), NOW_US),
            Chosen { now: vec![2], ..Chosen::default() }
        );
        assert_eq!(
            choose(9, &all, &BTreeSet::new(), NOW_US),
            Chosen { now: vec![2, 3], ..Chosen::default() }
        );
    }

    #[test]
    fn the_longest_waits_are_evicted_first_and_idle_connections_before_them() {
        let all = [
            child(1, Some((WaitReason::SlowRequest, 5_000_000))),
            child(2, Some((WaitReason::Idle, 1_200_000))),
            child(3, Some((WaitReason::Idle, 1_300_000))),
            child(4, Some((WaitReason::Idle, 700_000))),
            child(5, Some((WaitReason::SlowRequest, 900_000))),
            child(6, None),
        ];
        assert_eq!(
            choose(2, &all, &BTreeSet::new(), NOW_US),
            Chosen { now: vec![3, 2], ..Chosen::default() }
        );
        let four = choose(4, &all, &BTreeSet::new(), NOW_US);
        assert_eq!((four.now, four.later.len()), (vec![3, 2, 1], 1));
        let mut everyone = choose(99, &all, &BTreeSet::new(), NOW_US);
        everyone.later.sort_unstable();
        assert_eq!(
            everyone,
            Chosen { now: vec![3, 2, 1], later: vec![4, 5, 6], ..Chosen::default() }
        );
        let rotated = |now_us| choose(4, &all, &BTreeSet::new(), now_us).later;
        assert_ne!(rotated(NOW_US), rotated(NOW_US + AGAIN_US));
    }

    #[test]
    fn an_idle_child_that_accepts_nothing_does_not_keep_others_from_evicting() {
        let idle = |number| ChildState { is_idle: true, ..child(number, None) };
        let all = [idle(1), child(2, Some((WaitReason::Idle, 1_200_000))), child(3, None), idle(4)];
        let asked = |numbers: &[u64]| numbers.iter().copied().collect::<BTreeSet<u64>>();
        let chosen = |asked| choose(1, &all, &asked, NOW_US);
        assert_eq!(chosen(asked(&[])), Chosen { now: vec![1], ..Chosen::default() });
        assert_eq!(chosen(asked(&[1])), Chosen { now: vec![4], ..Chosen::default() });
        assert_eq!(chosen(asked(&[1, 4])), Chosen { now: vec![2, 1], ..Chosen::default() });
        let both = choose(2, &all, &asked(&[1, 4]), NOW_US);
        assert_eq!(both, Chosen { now: vec![2, 1, 4], later: vec![3], ..Chosen::default() });
    }

    #[test]
    fn many_clients_that_show_no_progress_are_evicted_urgently_and_readers_stay() {
        let mut all: Vec<ChildState> =
            (1..=9).map(|n| child(n, Some((WaitReason::LargeWindow, 900_000)))).collect();
        all.push(child(10, Some((WaitReason::SlowReader, 300_000))));
        all.push(child(11, None));
        let asked = BTreeSet::new();
        let chosen = choose(99, &all, &asked, NOW_US);
        assert_eq!((chosen.now, chosen.urgent), (vec![], (1..=9).collect()));
        assert_eq!(choose(5, &all, &asked, NOW_US).urgent, [1, 2, 3, 4, 5]);
        let few = choose(99, &all[1..], &asked, NOW_US);
        assert_eq!((few.now, few.urgent), (vec![], vec![]));
    }

    #[test]
    fn no_child_is_asked_without_need() {
        assert_eq!(choose(0, &[child(1, None)], &BTreeSet::new(), NOW_US), Chosen::default());
        assert_eq!(choose(3, &[], &BTreeSet::new(), NOW_US), Chosen::default());
    }
}
