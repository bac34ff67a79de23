//! Whom the parent tells to hurry while connections wait, where a connection holds a worker. Who
//! is idle takes one; where nobody is, prefork's children make room, while the listeners of worker
//! see to their own threads. What children claim comes in as numbers, commands go out.

use std::collections::BTreeSet;

use evenkeel_scoreboard::{ClientWait, Counter, Phase, WaitReason};

use crate::Command;
use crate::held::crowd::{Crowd, Press};
use crate::limits::Model;
use crate::parent::Parent;
use crate::settings::Server;

/// How often those are told again whose connections are neither idle nor stalled: they end them
/// with their next response.
const AGAIN_US: u64 = 100_000;

/// What is remembered of a bucket's queue.
#[derive(Default)]
pub(crate) struct Pressure {
    had_queue: bool,
    told_us: u64,
    /// Who was told as idle since this queue stands. One that still is does not take any, whatever
    /// the reason.
    told: BTreeSet<u64>,
}

/// A child as it is seen here.
#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u64,
    is_idle: bool,
    /// What its client keeps it waiting for, and since when (prefork).
    waits: Option<(WaitReason, u64)>,
}

/// Who is told, by number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    /// Who can act on it at once.
    now: Vec<u64>,
    /// The same, whose clients are of a crowd.
    crowd: Vec<u64>,
    /// Who acts with its next response.
    then: Vec<u64>,
}

/// Chooses for so many connections: idle children, or where there are none those whose clients have
/// kept them waiting for longest, idle connections first, and then any others in turn. Idle ones
/// that were `told` before and took nothing are told again, and not relied on.
fn choose(queue: usize, seen: &[Seen], told: &BTreeSet<u64>, now_us: u64) -> Chosen {
    let (idle, busy): (Vec<&Seen>, Vec<&Seen>) = seen.iter().partition(|one| one.is_idle);
    let idle = idle.into_iter().map(|one| one.number);
    let (still, idle): (Vec<u64>, Vec<u64>) = idle.partition(|number| told.contains(number));
    if !idle.is_empty() {
        return Chosen { now: idle.into_iter().take(queue).collect(), ..Chosen::default() };
    }
    let crowd = Crowd::of(busy.iter().filter_map(|o| o.waits), seen.len(), queue, 1, now_us);
    let (mut waiting, mut others) = (Vec::new(), Vec::new());
    for one in busy {
        let pressed = one.waits.and_then(|(wait, since_us)| {
            let press = crowd.press(wait, since_us, now_us)?;
            Some(((wait, since_us, one.number), press))
        });
        match pressed {
            Some(pressed) => waiting.push(pressed),
            None => others.push(one.number),
        }
    }
    waiting.sort_unstable_by_key(|(order, _)| *order);
    waiting.truncate(queue);
    let of = |wanted| {
        let pressed = waiting.iter().filter(move |(_, press)| *press == wanted);
        pressed.map(|((_, _, number), _)| *number)
    };
    let mut now: Vec<u64> = of(Press::Hurry).collect();
    let turn = usize::try_from(now_us / AGAIN_US).unwrap_or(0) % others.len().max(1);
    others.rotate_left(turn);
    others.truncate(queue - waiting.len());
    now.extend(still.into_iter().take(queue));
    Chosen { now, crowd: of(Press::Crowd).collect(), then: others }
}

impl<S: Server> Parent<'_, S> {
    /// Tells children of a bucket to hurry, where connections have waited since the last look.
    /// Whether all of its workers are taken, so that the queue must be watched.
    pub(crate) fn press(
        &mut self,
        bucket: usize,
        queue: usize,
        pressure: &mut Pressure,
        now_us: u64,
    ) -> bool {
        let model = self.current.limits.model;
        if model == Model::Event {
            return false;
        }
        let stands = std::mem::replace(&mut pressure.had_queue, queue > 0) && queue > 0;
        let seen = self.seen(bucket, model == Model::Prefork);
        if stands {
            let Chosen { now, crowd, then } = choose(queue, &seen, &pressure.told, now_us);
            self.children.hurry(&now, Command::Hurry);
            self.children.hurry(&crowd, Command::Crowd);
            let is_told = |one: &&Seen| one.is_idle && now.contains(&one.number);
            pressure.told.extend(seen.iter().filter(is_told).map(|one| one.number));
            let busy = seen.iter().filter(|one| !one.is_idle);
            busy.for_each(|one| _ = pressure.told.remove(&one.number));
            if now_us.saturating_sub(pressure.told_us) >= AGAIN_US && !then.is_empty() {
                pressure.told_us = now_us;
                self.children.hurry(&then, Command::Hurry);
            }
        } else {
            pressure.told.clear();
        }
        model == Model::Prefork && seen.iter().all(|one| !one.is_idle)
    }

    /// The children that serve a bucket; where they see to their own threads, the idle alone.
    fn seen(&self, bucket: usize, all: bool) -> Vec<Seen> {
        let count = self.listeners.buckets();
        let own = self.children.all().filter(|entry| entry.bucket % count == bucket);
        let serving = own.filter(|entry| entry.phase == Phase::Running);
        let seen = serving.filter_map(|entry| {
            let line = self.board.child_line(entry.index)?;
            let is_idle = !entry.is_full(self.board);
            let waits = ClientWait::parse(line.read(Counter::ClientWait));
            (all || is_idle).then_some(Seen { number: entry.number, is_idle, waits })
        });
        seen.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 10_000_000;

    fn seen(number: u64, waits: Option<(WaitReason, u64)>) -> Seen {
        let waits = waits.map(|(wait, ago_us)| (wait, NOW_US - ago_us));
        Seen { number, is_idle: false, waits }
    }

    #[test]
    fn idle_children_come_before_any_that_would_have_to_make_room() {
        let idle = |number| Seen { is_idle: true, ..seen(number, None) };
        let all = [seen(1, Some((WaitReason::Idle, 900_000))), idle(2), idle(3)];
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
    fn room_is_made_by_the_longest_waits_and_idle_connections_first() {
        let all = [
            seen(1, Some((WaitReason::SlowRequest, 5_000_000))),
            seen(2, Some((WaitReason::Idle, 1_200_000))),
            seen(3, Some((WaitReason::Idle, 1_300_000))),
            seen(4, Some((WaitReason::Idle, 700_000))),
            seen(5, Some((WaitReason::SlowRequest, 900_000))),
            seen(6, None),
        ];
        assert_eq!(
            choose(2, &all, &BTreeSet::new(), NOW_US),
            Chosen { now: vec![3, 2], ..Chosen::default() }
        );
        let four = choose(4, &all, &BTreeSet::new(), NOW_US);
        assert_eq!((four.now, four.then.len()), (vec![3, 2, 1], 1));
        let mut everybody = choose(99, &all, &BTreeSet::new(), NOW_US);
        everybody.then.sort_unstable();
        assert_eq!(
            everybody,
            Chosen { now: vec![3, 2, 1], then: vec![4, 5, 6], ..Chosen::default() }
        );
        let in_turn = |now_us| choose(4, &all, &BTreeSet::new(), now_us).then;
        assert_ne!(in_turn(NOW_US), in_turn(NOW_US + AGAIN_US));
    }

    #[test]
    fn an_idle_child_that_takes_nothing_does_not_keep_others_from_making_room() {
        let idle = |number| Seen { is_idle: true, ..seen(number, None) };
        let all = [idle(1), seen(2, Some((WaitReason::Idle, 1_200_000))), seen(3, None), idle(4)];
        let told = |numbers: &[u64]| numbers.iter().copied().collect::<BTreeSet<u64>>();
        let chosen = |told| choose(1, &all, &told, NOW_US);
        assert_eq!(chosen(told(&[])), Chosen { now: vec![1], ..Chosen::default() });
        assert_eq!(chosen(told(&[1])), Chosen { now: vec![4], ..Chosen::default() });
        assert_eq!(chosen(told(&[1, 4])), Chosen { now: vec![2, 1], ..Chosen::default() });
        let both = choose(2, &all, &told(&[1, 4]), NOW_US);
        assert_eq!(both, Chosen { now: vec![2, 1, 4], then: vec![3], ..Chosen::default() });
    }

    #[test]
    fn a_crowd_of_clients_that_show_nothing_makes_room_at_once_and_who_reads_stays() {
        let mut all: Vec<Seen> =
            (1..=9).map(|n| seen(n, Some((WaitReason::LargeWindow, 900_000)))).collect();
        all.push(seen(10, Some((WaitReason::SlowReader, 300_000))));
        all.push(seen(11, None));
        let told = BTreeSet::new();
        let chosen = choose(99, &all, &told, NOW_US);
        assert_eq!((chosen.now, chosen.crowd), (vec![], (1..=9).collect()));
        assert_eq!(choose(5, &all, &told, NOW_US).crowd, [1, 2, 3, 4, 5]);
        let few = choose(99, &all[1..], &told, NOW_US);
        assert_eq!((few.now, few.crowd), (vec![], vec![]));
    }

    #[test]
    fn nobody_is_told_for_nothing() {
        assert_eq!(choose(0, &[seen(1, None)], &BTreeSet::new(), NOW_US), Chosen::default());
        assert_eq!(choose(3, &[], &BTreeSet::new(), NOW_US), Chosen::default());
    }
}
