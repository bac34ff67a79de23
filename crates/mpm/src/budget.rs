//! The budget of requests in progress for `MaxRequestWorkers auto`, which the pool's law
//! adjusts once a second. In event the children get it as credits. In prefork and worker it bounds
//! the number of children, and surplus children are parked. If prefork and worker have a number
//! instead, memory bounds how many children are started.

use evenkeel_pool::{Account, Auto, BudgetBounds, Constraint, Figure};
use evenkeel_scoreboard::{Counter, Phase};
use evenkeel_sys::clock;

use crate::limits::{Limits, Model};
use crate::notices::ParentEvent;
use crate::parent::Parent;
use crate::settings::Server;
use crate::sizing::claimed;

/// The assumed memory of a request in progress, in bytes, if it is not measured: more than this
/// server needs, so that memory does not run out first.
const fn bytes_each(model: Model) -> u64 {
    match model {
        Model::Event => 64 << 10,
        Model::Worker => 1 << 20,
        Model::Prefork => 8 << 20,
    }
}

/// The share of the available memory that may be used.
const OF_MEMORY: f64 = 0.8;

/// A request has its connection and a file to read from.
const DESCRIPTORS_EACH: u64 = 2;

/// The budget, and what was logged about it.
#[derive(Default)]
pub(crate) struct Budget {
    law: Option<Auto>,
    /// How many workers the memory allows, if fewer than the directive.
    memory_limit: Option<usize>,
    /// Whether that was logged.
    told: bool,
    /// The last generation that has logged that MaxRequestWorkers was reached.
    reached_in: Option<u32>,
    /// The bound that it has reached.
    constraint: Option<Constraint>,
}

impl Budget {
    /// What keeps the budget from growing.
    pub(crate) fn constraint(&self) -> Constraint {
        self.constraint.unwrap_or(Constraint::None)
    }

    /// The most requests in progress; none if a directive gives the number and the memory allows
    /// it.
    pub(crate) fn most(&self) -> Option<usize> {
        self.law.as_ref().map(Auto::budget).or(self.memory_limit)
    }

    /// Adjusts the budget to the account of a second: by the law with `auto`, otherwise only
    /// to the memory. `child_bytes` is the measured memory of a child. Returns an event to log.
    fn follow(
        &mut self,
        limits: &Limits,
        account: &Account,
        child_bytes: Option<u64>,
    ) -> Option<ParentEvent<'static>> {
        if !limits.auto {
            return self.bound_by_memory(limits, account, child_bytes);
        }
        let law = self.law.get_or_insert_with(|| Auto::new(limits.first_budget()));
        let (room, constraint) = room(limits, account, child_bytes);
        let most = law.decide(&for_law(limits.model, account), &room);
        self.constraint = (most >= room.most).then_some(constraint);
        None
    }

    /// If there were more children than the memory allows, the kernel would kill them as fast as
    /// others start.
    fn bound_by_memory(
        &mut self,
        limits: &Limits,
        account: &Account,
        child_bytes: Option<u64>,
    ) -> Option<ParentEvent<'static>> {
        let memory_limit = memory_limit(limits, account, child_bytes);
        *self = Self { law: None, constraint: None, memory_limit, ..*self };
        let (most, bytes) = memory_limit.zip(child_bytes)?;
        let threads = limits.threads_per_child.max(1);
        let active = usize::try_from(account.of(Figure::Active).unwrap_or(0)).unwrap_or(0);
        if active < most / threads {
            return None;
        }
        self.constraint = Some(Constraint::Memory);
        let (configured, each) = (limits.max_request_workers, bytes / threads as u64);
        let was_told = std::mem::replace(&mut self.told, true);
        (!was_told).then_some(ParentEvent::MemoryBinds { configured, most, each })
    }

    /// An event to log, once a generation, when requests need as many workers as MaxRequestWorkers.
    /// None if the number is adjusted or the memory allows fewer.
    fn note_reached(
        &mut self,
        limits: &Limits,
        account: &Account,
        generation: u32,
    ) -> Option<ParentEvent<'static>> {
        let wanted = account.of(Figure::Demand).unwrap_or(0);
        let is_free = wanted < limits.max_request_workers as u64;
        if limits.auto || is_free || self.memory_limit.is_some() {
            return None;
        }
        let last = self.reached_in.replace(generation);
        (last != Some(generation)).then_some(ParentEvent::WorkersReached)
    }

    /// Whether trying more brought nothing.
    pub(crate) fn is_growth_refused(&self) -> bool {
        self.law.as_ref().is_some_and(Auto::is_growth_refused)
    }
}

/// The range that memory, descriptors and directives leave for the budget, and which of them is the
/// bound. `child_bytes` is the measured memory of a child.
fn room(
    limits: &Limits,
    account: &Account,
    child_bytes: Option<u64>,
) -> (BudgetBounds, Constraint) {
    let threads = limits.threads_per_child.max(1) as u64;
    let (there, each) = match limits.model {
        Model::Event => {
            let busy = account.of(Figure::BusyMilli).unwrap_or(0) / 1000;
            (busy, bytes_each(Model::Event))
        }
        // Idle workers take memory too, and parked children are used before others start. If they
        // did not count, each child that is parked for lack of memory would cause another to be
        // parked.
        model => {
            let count = |figure| account.of(figure).unwrap_or(0);
            let active = count(Figure::Active).saturating_add(count(Figure::Parked));
            let measured = child_bytes.map(|bytes| (bytes / threads).max(1));
            (active.saturating_mul(threads), measured.unwrap_or(bytes_each(model)))
        }
    };
    // A share of what would be free without them, so that the bound stays the same while more are
    // started.
    let by_memory = account.of(Figure::MemoryFree).map_or(u64::MAX, |free| {
        let without = free.saturating_add(there.saturating_mul(each));
        (without as f64 * OF_MEMORY) as u64 / each
    });
    let by_descriptors = match limits.model {
        // A process or a thread has no more connections than requests.
        Model::Prefork | Model::Worker => u64::MAX,
        Model::Event => account.of(Figure::Descriptors).unwrap_or(u64::MAX) / DESCRIPTORS_EACH,
    };
    let constraint =
        if by_memory <= by_descriptors { Constraint::Memory } else { Constraint::Descriptors };
    let most = usize::try_from(by_memory.min(by_descriptors)).unwrap_or(usize::MAX);
    let constraint = if most < limits.max_request_workers { constraint } else { Constraint::None };
    let least = match limits.model {
        // CPU-bound work has as many threads as there are cores, whatever the budget.
        Model::Event => limits.first_budget() / 8 * 5,
        Model::Worker | Model::Prefork => {
            limits.min_spare.saturating_add(limits.threads_per_child.saturating_mul(2))
        }
    };
    (BudgetBounds { least, most: most.min(limits.max_request_workers) }, constraint)
}

/// How many workers the memory allows, if connections hold workers and that is fewer than the
/// directive.
fn memory_limit(limits: &Limits, account: &Account, child_bytes: Option<u64>) -> Option<usize> {
    if limits.model == Model::Event {
        return None;
    }
    let (room, constraint) = room(limits, account, child_bytes);
    (constraint == Constraint::Memory).then_some(room.most.max(limits.threads_per_child))
}

/// The account that the law sees. In event the number of serving threads does not depend on
/// the budget: if they wait for a core, others cause it, and a smaller budget would not help.
fn for_law(model: Model, account: &Account) -> Account {
    match model {
        Model::Event => account.with(Figure::RunQueueUs, 0),
        Model::Worker | Model::Prefork => *account,
    }
}

impl<S: Server> Parent<'_, S> {
    /// Adjusts the budget and gives it to the children.
    pub(crate) fn move_budget(&mut self, account: &Account) {
        let limits = self.current.limits;
        let event = self.budget.follow(&limits, account, self.accounting.child_bytes());
        let reached = self.budget.note_reached(&limits, account, self.current.number);
        event.iter().chain(&reached).for_each(|event| self.log_event(event));
        // If the administrator has set the number, existing children stay.
        let Some(most) = self.budget.most().filter(|_| limits.auto) else { return };
        match limits.model {
            Model::Event => self.distribute_credits(most),
            Model::Worker | Model::Prefork => self.park_beyond(most),
        }
    }

    fn distribute_credits(&self, most: usize) {
        let limits = Limits { max_request_workers: most, ..self.current.limits };
        for entry in self.children.active(self.current.number) {
            if let Some(line) = self.board.parent_line(entry.index) {
                line.set_credits(limits.credits(entry.rank));
            }
        }
    }

    /// Parks the children beyond the budget that have the least to do. The law starts none
    /// beyond it.
    fn park_beyond(&mut self, most: usize) {
        let threads = self.current.limits.threads_per_child.max(1);
        let running = self.children.active(self.current.number);
        let mut running: Vec<(u64, u64)> = running
            .filter(|entry| entry.phase == Phase::Running)
            .map(|entry| {
                let line = self.board.child_line(entry.index);
                (line.map_or(0, |line| claimed(line, Counter::Busy)), entry.number)
            })
            .collect();
        let beyond = running.len().saturating_sub((most / threads).max(1));
        running.sort_unstable();
        let now_us = clock::monotonic_us();
        for (_, number) in running.into_iter().take(beyond) {
            self.children.park(number, true, now_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Configured, Moment, check};
    use crate::sizing::bounded;

    fn limits(model: Model) -> Limits {
        let configured = Configured { model, auto: true, ..Configured::default() };
        check(&configured, Moment::Start, 4, 4096).0
    }

    #[test]
    fn memory_and_descriptors_bound_the_budget() {
        let account = Account::default()
            .with(Figure::BusyMilli, 100_000)
            .with(Figure::Active, 4)
            .with(Figure::MemoryFree, 80 << 20)
            .with(Figure::Descriptors, 1_000);
        let (event, constraint) = room(&limits(Model::Event), &account, None);
        assert_eq!((event.most, constraint), (500, Constraint::Descriptors));
        // Four processes exist, of 8 MiB as assumed, or of 2 MiB as measured.
        let prefork = |child_bytes| room(&limits(Model::Prefork), &account, child_bytes).0.most;
        assert_eq!((prefork(None), prefork(Some(2 << 20))), (11, 35));
        // While more of them are started, the bound stays.
        let later = account.with(Figure::Active, 24).with(Figure::MemoryFree, 40 << 20);
        assert_eq!(room(&limits(Model::Prefork), &later, Some(2 << 20)).0.most, 35);
        // It does not fall because some are parked.
        let parked = later.with(Figure::Active, 19).with(Figure::Parked, 5);
        assert_eq!(room(&limits(Model::Prefork), &parked, Some(2 << 20)).0.most, 35);
        let (worker, constraint) = room(&limits(Model::Worker), &account, None);
        assert_eq!((worker.most, constraint), (144, Constraint::Memory));
        let (unknown, constraint) = room(&limits(Model::Event), &Account::default(), None);
        assert_eq!(
            (unknown.most, constraint),
            (limits(Model::Event).max_request_workers, Constraint::None)
        );
    }

    #[test]
    fn memory_bounds_a_number_of_the_administrators_where_connections_hold_workers() {
        let limits = |model| {
            let configured =
                Configured { model, max_request_workers: Some(150), ..Configured::default() };
            check(&configured, Moment::Start, 4, 4096).0
        };
        let small = Account::default().with(Figure::Active, 5).with(Figure::MemoryFree, 40 << 20);
        let prefork = limits(Model::Prefork);
        assert_eq!(memory_limit(&prefork, &small, None), Some(8));
        assert_eq!(memory_limit(&prefork, &small, Some(512 << 10)), Some(68));
        assert_eq!(
            memory_limit(&prefork, &small.with(Figure::MemoryFree, 1 << 30), Some(512 << 10)),
            None
        );
        assert_eq!(memory_limit(&prefork, &Account::default(), None), None);
        // One child is the least.
        let none = small.with(Figure::MemoryFree, 0).with(Figure::Active, 0);
        assert_eq!(memory_limit(&limits(Model::Worker), &none, None), Some(25));
        assert_eq!(memory_limit(&limits(Model::Event), &none, None), None);
    }

    #[test]
    fn no_more_children_are_started_than_memory_bears_and_the_administrator_is_told_once() {
        let configured = Configured {
            model: Model::Prefork,
            max_request_workers: Some(150),
            ..Configured::default()
        };
        let limits = check(&configured, Moment::Start, 4, 4096).0;
        let mut budget = Budget::default();
        let small = Account::default().with(Figure::Active, 5).with(Figure::MemoryFree, 40 << 20);
        let children = |budget: &Budget| bounded(limits.pool(), budget.most(), 1_000).children;
        assert_eq!(children(&budget), 150);
        // Before a child is measured it is assumed to be large, and nothing is logged.
        assert!(budget.follow(&limits, &small, None).is_none());
        assert_eq!((children(&budget), budget.constraint()), (8, Constraint::None));
        let each = 512 << 10;
        assert!(budget.follow(&limits, &small, Some(each)).is_none());
        assert_eq!((children(&budget), budget.constraint()), (68, Constraint::None));
        // As many exist, and the memory that they take is not free any more.
        let full = small.with(Figure::Active, 68).with(Figure::MemoryFree, (40 << 20) - 63 * each);
        let event = budget.follow(&limits, &full, Some(each));
        let told = ParentEvent::MemoryBinds { configured: 150, most: 68, each };
        let text = |event: ParentEvent<'_>| event.notice(Model::Prefork).map(|notice| notice.text);
        assert_eq!(event.and_then(text), text(told));
        assert_eq!((children(&budget), budget.constraint()), (68, Constraint::Memory));
        assert!(budget.follow(&limits, &full, Some(each)).is_none(), "it is told once");
        let more = full.with(Figure::MemoryFree, 1 << 30);
        assert!(budget.follow(&limits, &more, Some(each)).is_none());
        assert_eq!((children(&budget), budget.constraint()), (150, Constraint::None));
    }

    #[test]
    fn a_number_that_is_reached_is_told_once_a_generation() {
        let number =
            |most, auto| Limits { max_request_workers: most, auto, ..limits(Model::Event) };
        let wanted = |workers: u64| Account::default().with(Figure::Demand, workers);
        let mut budget = Budget::default();
        let mut is_told = |limits: &Limits, workers, generation| {
            budget.note_reached(limits, &wanted(workers), generation).is_some()
        };
        assert!(!is_told(&number(150, true), 1_000, 0), "it moves by itself");
        assert!(!is_told(&number(150, false), 149, 0));
        assert!(is_told(&number(150, false), 150, 0));
        assert!(!is_told(&number(150, false), 1_000, 0), "it was told");
        assert!(is_told(&number(150, false), 150, 1));
        budget.memory_limit = Some(100);
        assert!(budget.note_reached(&number(150, false), &wanted(200), 2).is_none());
    }

    #[test]
    fn others_on_the_cores_are_no_reason_for_a_smaller_budget_in_event() {
        let contended = Account::default()
            .with(Figure::SpanUs, 1_000_000)
            .with(Figure::CpuUs, 300_000)
            .with(Figure::RunQueueUs, 900_000)
            .with(Figure::BusyMilli, 1_000)
            .with(Figure::CoresMilli, 1_000);
        let after = |model| {
            let (limits, mut auto) = (limits(model), Auto::new(12_000));
            (0..30).for_each(|_| {
                let _ =
                    auto.decide(&for_law(model, &contended), &room(&limits, &contended, None).0);
            });
            auto.budget()
        };
        assert_eq!(after(Model::Event), 12_000);
        assert!(after(Model::Worker) < 1_000);
    }

    #[test]
    fn every_model_has_a_budget_to_begin_with_and_room_to_grow() {
        for model in [Model::Event, Model::Worker, Model::Prefork] {
            let limits = limits(model);
            assert!(limits.auto && limits.first_budget() <= limits.max_request_workers);
            assert!(limits.max_request_workers >= 1_000, "{limits:?}");
        }
        // Ten thousand requests that wait for 200 ms each are no more than event starts with.
        assert!(limits(Model::Event).first_budget() > 10_000);
    }
}
