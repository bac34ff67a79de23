//! Reloads, program upgrades and stops, which signals cause. A reload reads the new configuration
//! in a copy of the parent and starts a new generation of children on the same sockets. The old
//! generation drains only once the new one serves; any failure before that leaves the server as it
//! was.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_sys::process::{End, Pid};
use evenkeel_sys::signal::Signal;
use evenkeel_sys::{clock, listen, process};

use crate::child::Command;
use crate::children::{ChildEntry, START_US};
use crate::config_test::{ConfigTest, TIMEOUT_US};
use crate::descriptors;
use crate::limits::{self, Moment};
use crate::listeners::Listeners;
use crate::notices::ParentEvent;
use crate::oom_score::OomScore;
use crate::parent::Parent;
use crate::pidfile::PidFile;
use crate::settings::{Generation, Loaded, Mode, Server};
use crate::spawn::CHILD_FATAL;
use crate::upgrade::Upgrade;

/// How many new children may fail before the reload is rolled back.
const MOST_FAILURES: u32 = 3;

/// How long requests in progress may take at a stop or a hard restart without
/// GracefulShutdownTimeout: container runtimes kill after 10 s.
pub(crate) const STOP_US: u64 = 8_000_000;

/// A requested reload. Of two requests the larger one is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Restart {
    Graceful,
    Hard,
    /// The program is started anew, which also reads the configuration.
    Upgrade,
}

/// The state of the parent.
pub(crate) enum State<Site> {
    /// Children serve, and nothing changes.
    Serving,
    /// A copy of the parent reads the new configuration.
    Checking(Restart, ConfigTest),
    /// Children of a new configuration start, while those of the old one serve.
    Changing(Change<Site>),
    /// The program starts anew, while the children serve.
    Upgrading(Upgrade),
    /// All children were told to end.
    Stopping { status: i32 },
}

pub(crate) struct Change<Site> {
    restart: Restart,
    since_us: u64,
    /// How many new children must serve before the old ones end.
    pub(crate) wanted: usize,
    failures: u32,
    // What to return to if the new children do not come to serve; none at the first start.
    before: Option<Before<Site>>,
    // The sockets that a predecessor has passed, at the first start: they are closed when old
    // children would end.
    passed: Option<Listeners>,
    // A reload that was requested meanwhile, to be done next.
    next: Option<Restart>,
    // When the new children served, and when to check again whether the old ones may end.
    served_us: Option<u64>,
    check_us: Option<u64>,
}

/// How long old children continue to serve for connections that wait on addresses which are not
/// configured any more, and how often these are checked.
const REMOVED_ADDRESS_GRACE_US: u64 = 10_000_000;
const CHECK_US: u64 = 10_000;

struct Before<Site> {
    base: Base<Site>,
    /// How many children of it served.
    children: usize,
}

/// What children are made from: a configuration and its sockets.
pub(crate) struct Base<Site> {
    pub(crate) generation: Rc<Generation<Site>>,
    pub(crate) listeners: Listeners,
}

impl<Site> Clone for Base<Site> {
    fn clone(&self) -> Self {
        Self { generation: Rc::clone(&self.generation), listeners: self.listeners.clone() }
    }
}

impl<Site> Change<Site> {
    /// The first start, with the sockets that a predecessor has `passed`.
    pub(crate) fn first(now_us: u64, wanted: usize, passed: Option<Listeners>) -> Self {
        Self { passed, ..Self::new(Restart::Graceful, now_us, wanted, None) }
    }

    /// Whether this is the first start.
    pub(crate) fn is_first(&self) -> bool {
        self.before.is_none()
    }

    fn new(restart: Restart, since_us: u64, wanted: usize, before: Option<Before<Site>>) -> Self {
        let (passed, next, served_us, check_us) = (None, None, None, None);
        Self { restart, since_us, wanted, failures: 0, before, passed, next, served_us, check_us }
    }

    /// What old children are made from, and how many there should be, until the new ones serve: an
    /// old child that ends is replaced, however long the new ones take to start.
    pub(crate) fn old(&self) -> Option<(Base<Site>, usize)> {
        let before = self.before.as_ref().filter(|_| self.served_us.is_none())?;
        Some((before.base.clone(), before.children))
    }

    /// Whether the old children must continue although the new ones serve, because only they accept
    /// connections on an address that is not configured any more.
    fn must_wait(&mut self, after: &Listeners, now_us: u64) -> bool {
        let old =
            self.before.as_ref().map(|before| &before.base.listeners).or(self.passed.as_ref());
        let waits = old.map_or(0, |old| old.queue_of_removed(after));
        let served_us = *self.served_us.get_or_insert(now_us);
        self.check_us = Some(now_us.saturating_add(CHECK_US));
        waits > 0 && now_us.saturating_sub(served_us) < REMOVED_ADDRESS_GRACE_US
    }
}

impl<Site> State<Site> {
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self, Self::Stopping { .. })
    }

    /// The generation that a change is to replace.
    pub(crate) fn generation_before(&self) -> Option<&Rc<Generation<Site>>> {
        match self {
            Self::Changing(change) => change.before.as_ref().map(|before| &before.base.generation),
            _ => None,
        }
    }

    /// Forgets what belongs to the parent, in a process that is not the parent.
    pub(crate) fn forget(&mut self) {
        *self = Self::Serving;
    }

    /// Records the end of a process; true if it was the configuration test.
    pub(crate) fn note_test_end(&mut self, pid: Pid, end: End) -> bool {
        match self {
            Self::Checking(_, test) => test.note_end(pid, end),
            _ => false,
        }
    }

    /// When the state changes by itself.
    pub(crate) fn next_us(&self) -> Option<u64> {
        match self {
            Self::Checking(_, test) => Some(test.since_us.saturating_add(TIMEOUT_US)),
            Self::Changing(change) => {
                let late_us = change.since_us.saturating_add(START_US);
                Some(change.check_us.map_or(late_us, |check_us| check_us.min(late_us)))
            }
            Self::Upgrading(upgrade) => Some(upgrade.late_us),
            Self::Serving | Self::Stopping { .. } => None,
        }
    }
}

impl<S: Server> Parent<'_, S> {
    /// Advances whatever is in progress.
    pub(crate) fn advance(&mut self) {
        let now_us = clock::monotonic_us();
        for pid in self.children.kill_overdue(now_us) {
            self.log_event(&ParentEvent::Overdue(pid));
        }
        if !self.state.is_stopping() {
            self.kill_surplus();
        }
        match &mut self.state {
            State::Checking(restart, test) => {
                let restart = *restart;
                if now_us >= test.since_us.saturating_add(TIMEOUT_US) {
                    test.kill();
                }
                match test.verdict() {
                    None => {}
                    Some(Ok(())) => self.load_and_start(restart, now_us),
                    Some(Err(text)) => self.refuse(&text),
                }
            }
            State::Changing(change) => {
                let is_late = now_us >= change.since_us.saturating_add(START_US);
                let serving = self.children.count(self.current.number).served;
                if serving >= change.wanted {
                    if !change.must_wait(&self.listeners, now_us) {
                        self.complete(now_us);
                    }
                } else if is_late {
                    self.roll_back();
                }
            }
            State::Upgrading(_) => self.watch_upgrade(now_us),
            State::Serving | State::Stopping { .. } => {}
        }
    }

    /// Kills surplus children: retiring children have a table of their own, as large as that of the
    /// serving ones. When it is full, its oldest generation is killed.
    fn kill_surplus(&mut self) {
        let table = self.children.table();
        for pid in self.children.kill_surplus(table, self.current.number) {
            self.log_event(&ParentEvent::Surplus(pid, table));
        }
    }

    /// HUP, USR1 and USR2. One reload runs at a time; requests that come meanwhile become one.
    pub(crate) fn request_restart(&mut self, asked: Restart) {
        match &mut self.state {
            State::Serving => self.check(asked),
            // The file may have changed after the copy read it, so it is read again.
            State::Checking(restart, test) => {
                let asked = asked.max(*restart);
                test.kill();
                self.check(asked);
            }
            State::Changing(change) => change.next = change.next.max(Some(asked)),
            State::Upgrading(upgrade) => upgrade.next = upgrade.next.max(Some(asked)),
            State::Stopping { .. } => self.reload_record.close(),
        }
    }

    /// TERM: requests in progress are finished, within bounds.
    pub(crate) fn stop(&mut self) {
        let now_us = clock::monotonic_us();
        self.log_event(&ParentEvent::Stopping);
        if !self.state.is_stopping() {
            self.begin_stop(0);
        }
        // A child may serve although its report was not read yet. Other children have nothing to
        // finish.
        self.children.receive_now();
        self.receive_reports();
        self.children.kill(|entry| !entry.served);
        let end_by_us = self.kill_deadline_us(now_us).unwrap_or(now_us.saturating_add(STOP_US));
        self.children.retire(Command::ExitLast, Some(end_by_us), |_| true);
    }

    /// WINCH: open connections are served until they close.
    pub(crate) fn stop_gracefully(&mut self) {
        if self.state.is_stopping() {
            return;
        }
        self.log_event(&ParentEvent::StoppingGracefully);
        self.begin_stop(0);
        let end_by_us = self.kill_deadline_us(clock::monotonic_us());
        self.children.retire(Command::DrainLast, end_by_us, |entry| !entry.phase.is_stopping());
    }

    /// Handles the death of a child that never served, during a change.
    pub(crate) fn note_failed_start(&mut self, entry: &ChildEntry<S::Site>, end: End) {
        let State::Changing(change) = &mut self.state else { return };
        if entry.generation.number != self.current.number {
            return;
        }
        change.failures += 1;
        let is_first = change.is_first();
        if end == End::Exited(CHILD_FATAL) || change.failures >= MOST_FAILURES {
            if end == End::Exited(CHILD_FATAL) && is_first {
                self.log_event(&ParentEvent::FatalChild(entry.pid));
            }
            self.roll_back();
        }
    }

    /// Starts a reload: a copy of the parent reads the configuration.
    pub(crate) fn check(&mut self, restart: Restart) {
        self.supervisor.reloading();
        self.reload_record.begin();
        self.log_event(&match restart {
            Restart::Graceful => ParentEvent::RestartingGracefully,
            Restart::Hard => ParentEvent::Restarting,
            Restart::Upgrade => return self.begin_upgrade(),
        });
        let Self { server, children, state, signals, listeners, predecessor, .. } = self;
        let started = ConfigTest::start(*server, clock::monotonic_us(), || {
            children.forget();
            state.forget();
            *signals = None;
            *predecessor = None;
            *listeners = Listeners::none();
        });
        match started {
            Ok(test) => self.state = State::Checking(restart, test),
            Err(error) => {
                self.log_event(&ParentEvent::ForkFailed(&error));
                self.refuse("");
            }
        }
    }

    fn refuse(&mut self, text: &str) {
        self.log_lines(text);
        self.give_up_reload(&ParentEvent::Refused, text);
        self.supervisor.ready(self.current.number);
        self.state = State::Serving;
    }

    /// Logs that the server continues with its old configuration, and records the reason for the
    /// sender of the reload.
    pub(crate) fn give_up_reload(&mut self, event: &ParentEvent<'_>, reason: &str) {
        self.log_event(event);
        if let Some(notice) = event.notice(self.current.limits.model) {
            let own =
                format!("httpd (pid {}): {}", process::own_pid().as_raw_nonzero(), notice.text);
            let reason = reason.trim_end();
            let separator = if reason.is_empty() { "" } else { "\n" };
            self.reload_record.end(Err(&[reason, separator, &own].concat()));
        }
    }

    /// Reads the configuration that the copy has accepted, and starts its children.
    fn load_and_start(&mut self, restart: Restart, now_us: u64) {
        let loaded = catch_unwind(AssertUnwindSafe(|| self.server.load()));
        let loaded = loaded.unwrap_or_else(|_| Err("reading the configuration panicked".into()));
        match loaded.and_then(|loaded| self.install(loaded)) {
            Ok(before) => {
                let wanted = self.wanted_at_first();
                let change = Change::new(restart, now_us, wanted, Some(before));
                self.state = State::Changing(change);
            }
            Err(text) => self.refuse(&text),
        }
    }

    /// Activates a new configuration, completely or not at all.
    fn install(&mut self, loaded: Loaded<S::Site>) -> Result<Before<S::Site>, String> {
        let Loaded { site, settings } = loaded;
        if settings.configured.model != self.current.limits.model {
            // Apache ends with these words (core.c). A new program may have another model.
            return Err(format!(
                "AH00534: {}: Configuration error: The MPM cannot be changed during restart.",
                self.start.program
            ));
        }
        let moment = Moment::Restart(&self.current.limits);
        let cores = process::usable_cores();
        let (mut limits, notices) =
            limits::check(&settings.configured, moment, cores, listen::somaxconn());
        notices.iter().for_each(|notice| self.server.log(notice));
        limits.start_servers = limits.start_servers.min(self.children.table());
        let listeners =
            Listeners::open(&settings, limits.buckets, &self.listeners, Duration::ZERO)?;
        // Each child has a channel in the parent, and none of the others'.
        let open = process::open_descriptors().saturating_sub(self.children.all().count() as u64);
        descriptors::check(&settings, &limits, open, process::raise_descriptor_limit())?;
        let lines = settings.line_store()?;
        let site = Rc::new(site);
        self.server.activate(&site)?;
        // Last of all: connections that wait on the sockets of a rejected configuration would be
        // reset.
        if let Err(text) = listeners.listen(&settings) {
            let site = Rc::clone(&self.current.site);
            self.server.activate(&site)?;
            return Err(text);
        }
        self.last_number = self.last_number.wrapping_add(1);
        let number = self.last_number;
        let (settings, oom_score) = (Arc::new(settings), OomScore::for_children());
        let generation = Rc::new(Generation { number, site, settings, limits, lines, oom_score });
        let children = self.children.count(self.current.number).active;
        let base = Base {
            generation: std::mem::replace(&mut self.current, generation),
            listeners: std::mem::replace(&mut self.listeners, listeners),
        };
        Ok(Before { base, children })
    }

    /// Completes the change: the new children serve, and the old ones may end.
    fn complete(&mut self, now_us: u64) {
        let State::Changing(change) = std::mem::replace(&mut self.state, State::Serving) else {
            return;
        };
        let number = self.current.number;
        let is_old = |entry: &ChildEntry<S::Site>| entry.generation.number != number;
        let kill_deadline_us = self.kill_deadline_us(now_us);
        match change.restart {
            Restart::Graceful | Restart::Upgrade => {
                self.children.retire(Command::Drain, kill_deadline_us, |entry| {
                    is_old(entry) && !entry.phase.is_stopping()
                });
            }
            Restart::Hard => {
                let end_by_us = kill_deadline_us.unwrap_or(now_us.saturating_add(STOP_US));
                self.children.retire(Command::Exit, Some(end_by_us), is_old);
            }
        }
        self.move_pid_file();
        self.reload_record.follow(self.pid_file.as_ref().map(PidFile::path));
        let own_pid = process::own_pid().as_raw_nonzero().get();
        let most = self.current.limits.most_children();
        self.board.note_start(clock::realtime_us(), number, own_pid, most);
        self.log_event(&ParentEvent::Resuming(&self.current.settings.server_text));
        self.log_event(&ParentEvent::CommandLine(&self.start.command_line));
        if let Some(report) = self.start_report.take()
            && let Err(error) = report.success()
        {
            self.log_lines(&format!("could not let go of the terminal: {error}"));
        }
        self.supervisor.ready(number);
        self.reload_record.end(Ok(()));
        if let Some(predecessor) = self.predecessor.take() {
            if self.start.mode == Mode::Detached {
                // The program that was detached has left its folder; no other one is kept busy for
                // ever.
                let _ = std::env::set_current_dir("/");
            }
            predecessor.end();
        }
        if let Some(next) = change.next {
            self.check(next);
        }
    }

    /// Rolls back to the old children, because the new ones do not come to serve; at the first
    /// start the server ends.
    fn roll_back(&mut self) {
        // A child may serve although its report was not read yet.
        self.children.receive_now();
        self.receive_reports();
        let State::Changing(change) = std::mem::replace(&mut self.state, State::Serving) else {
            return;
        };
        let failed = self.current.number;
        let is_failed = |entry: &ChildEntry<S::Site>| entry.generation.number == failed;
        // Those that serve already have connections, and finish them.
        self.children.kill(|entry| is_failed(entry) && !entry.served);
        let kill_deadline_us = self.kill_deadline_us(clock::monotonic_us());
        self.children.retire(Command::Drain, kill_deadline_us, |entry| {
            is_failed(entry) && entry.served && !entry.phase.is_stopping()
        });
        let Some(before) = change.before else {
            self.log_event(&ParentEvent::NothingStarts);
            self.begin_stop(1);
            return;
        };
        let tried = std::mem::replace(&mut self.listeners, before.base.listeners);
        self.current = before.base.generation;
        let site = Rc::clone(&self.current.site);
        if let Err(text) = self.server.activate(&site) {
            self.log_lines(&text);
        }
        self.give_up_reload(&ParentEvent::Unchanged, "");
        self.supervisor.ready(self.current.number);
        if self.listeners.adopt(&tried) {
            self.restart_children(change.next);
        } else if let Some(next) = change.next {
            self.check(next);
        }
    }

    /// Starts children of the current configuration anew in place of the present ones: the kernel
    /// queues connections on sockets that only new children can get. `next` is a reload that was
    /// requested meanwhile.
    pub(crate) fn restart_children(&mut self, next: Option<Restart>) {
        self.last_number = self.last_number.wrapping_add(1);
        let Generation { site, settings, limits, lines, oom_score, .. } = &*self.current;
        let (site, settings) = (Rc::clone(site), Arc::clone(settings));
        let (number, limits, lines) = (self.last_number, *limits, Rc::clone(lines));
        let again = Generation { number, site, settings, limits, lines, oom_score: *oom_score };
        let generation = std::mem::replace(&mut self.current, Rc::new(again));
        let children = self.children.count(generation.number).active;
        let base = Base { generation, listeners: self.listeners.clone() };
        let before = Before { base, children };
        let wanted = self.wanted_at_first();
        let now_us = clock::monotonic_us();
        let change = Change::new(Restart::Graceful, now_us, wanted, Some(before));
        self.state = State::Changing(Change { next, ..change });
    }

    /// Writes a new pid file if the configuration has another path for it.
    fn move_pid_file(&mut self) {
        let Some(path) = &self.current.settings.pid_file else { return };
        if self.pid_file.as_ref().is_some_and(|file| file.path() == path) {
            return;
        }
        match PidFile::write(path) {
            Ok(file) => {
                if let Some(old) = self.pid_file.replace(file) {
                    old.remove();
                }
            }
            Err(text) => self.log_lines(&text),
        }
    }

    /// Closes the listening sockets and starts no more children.
    fn begin_stop(&mut self, status: i32) {
        match &mut self.state {
            State::Checking(_, test) => test.kill(),
            State::Upgrading(upgrade) => upgrade.end(Signal::Terminate),
            _ => {}
        }
        self.supervisor.stopping();
        self.reload_record.close();
        // A predecessor continues, and serves what waits, without waiting for the last connection
        // to end.
        if self.predecessor.take().is_none() {
            self.listeners.drop_new();
        }
        self.listeners = Listeners::none();
        self.state = State::Stopping { status };
    }
}
