//! The parent process. It starts the server and then runs one loop (reap, read reports, act on a
//! signal, keep the number of children, sleep) until the last child has ended. It serves nothing,
//! never waits for a child and does not panic. `spawn` starts children, and `change` handles
//! reloads and stops.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::{Layout, MOST_SLOTS, Scoreboard};
use evenkeel_sys::activation::Passed;
use evenkeel_sys::channel::wait_readable;
use evenkeel_sys::signal::{Caught, Signal, Signals};
use evenkeel_sys::{clock, identity, listen, process};

use crate::accounting::Accounting;
use crate::budget::Budget;
use crate::change::{Change, Restart, STOP_US, State};
use crate::child::Command;
use crate::children::{ChildEntry, Children, StalledChildren};
use crate::descriptors;
use crate::detach::{self, Detached, StartReport};
use crate::limits::{self, Limits, Model, Moment};
use crate::listeners::Listeners;
use crate::notices::ParentEvent;
use crate::oom_score::OomScore;
use crate::pidfile::{self, PidFile, Running};
use crate::reload_record::ReloadRecord;
use crate::settings::{Generation, Mode, Server, Settings, Start};
use crate::sizing::Sizing;
use crate::spawn::{self, BackOff};
use crate::stall_detector::TICK_US;
use crate::supervisor::Supervisor;
use crate::upgrade::{self, Invocation, Predecessor};

/// The signals that the parent handles.
const SIGNALS: [Signal; 7] = [
    Signal::Terminate,
    Signal::Interrupt,
    Signal::Hangup,
    Signal::User1,
    Signal::User2,
    Signal::WindowChange,
    Signal::Child,
];

/// How long the parent sleeps when nothing happens.
const REST: Duration = Duration::from_secs(1);

/// How long a start waits for an address that orphans of a killed parent still have.
const ORPHAN_GRACE: Duration = Duration::from_millis(900);

/// Runs the server until it ends. The result is the exit status of the process. An error is one or
/// more lines for standard error, with status 1.
pub fn run<S: Server>(server: &mut S, start: &Start) -> Result<i32, String> {
    let inherited = Inherited::take();
    match start.mode {
        Mode::Foreground => Parent::start(server, start, None, inherited)?.run(),
        // The program from which this one takes over has left the terminal and its caller.
        Mode::Detached if inherited.predecessor.is_some() => {
            Parent::start(server, start, None, inherited)?.run()
        }
        Mode::OneProcess => spawn::serve_alone(server, start, inherited.sockets),
        Mode::Detached => match detach::detach() {
            Ok(Detached::Caller(status)) => Ok(status),
            Ok(Detached::Server(start_report)) => {
                Parent::start(server, start, Some(start_report), inherited)?.run()
            }
            Err(error) => Err(format!("could not detach from the terminal: {error}")),
        },
    }
}

pub(crate) struct Parent<'a, S: Server> {
    pub(crate) server: &'a mut S,
    pub(crate) start: &'a Start,
    pub(crate) board: Scoreboard,
    // None in a forked process that is not the parent.
    pub(crate) signals: Option<Signals>,
    pub(crate) listeners: Listeners,
    pub(crate) current: Rc<Generation<S::Site>>,
    // The number of the last configuration, including those that failed.
    pub(crate) last_number: u32,
    pub(crate) children: Children<S::Site>,
    pub(crate) state: State<S::Site>,
    pub(crate) back_off: BackOff,
    pub(crate) sizing: Sizing,
    pub(crate) accounting: Accounting,
    pub(crate) budget: Budget,
    last_tick_us: u64,
    /// The CPU time of children that the process had before it became a server, such as those of a
    /// shell.
    pub(crate) inherited_cpu_us: (u64, u64),
    pub(crate) pid_file: Option<PidFile>,
    pub(crate) reload_record: ReloadRecord,
    pub(crate) start_report: Option<StartReport>,
    pub(crate) invocation: Invocation,
    pub(crate) supervisor: Supervisor,
    /// The parent that ends once this one serves.
    pub(crate) predecessor: Option<Predecessor>,
}

/// What the starting process has passed to this one.
struct Inherited {
    sockets: Vec<(OwnedFd, String)>,
    /// What the predecessor passes beside its sockets.
    bequest: Vec<(OwnedFd, String)>,
    supervisor: Supervisor,
    predecessor: Option<Predecessor>,
}

impl Inherited {
    /// Takes it, once, before anything else is opened.
    fn take() -> Self {
        let Passed { sockets, notifier, watchdog } = Passed::take();
        let supervisor = Supervisor::new(notifier, watchdog);
        let is_channel = |(_, name): &(OwnedFd, String)| name == upgrade::NAME;
        let (channel, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().partition(is_channel);
        let predecessor = channel.into_iter().next().map(|(socket, _)| Predecessor::new(socket));
        // Sockets of a service manager have names of its own.
        let is_socket =
            |(_, name): &(OwnedFd, String)| predecessor.is_none() || name == upgrade::SOCKET;
        let (sockets, bequest) = sockets.into_iter().partition(is_socket);
        Self { sockets, bequest, supervisor, predecessor }
    }
}

/// What a start prepares before the first child, for a parent or for a server in one process.
pub(crate) struct Prepared<Site> {
    pub(crate) generation: Generation<Site>,
    pub(crate) listeners: Listeners,
    /// All sockets that a predecessor has passed, even if they are not configured any more.
    pub(crate) passed: Option<Listeners>,
    pub(crate) board: Scoreboard,
    /// None if the predecessor's file is taken over once the children serve.
    pub(crate) pid_file: Option<PidFile>,
}

/// Prepares the start. `sockets` were passed to this process, by its predecessor if it has one.
pub(crate) fn prepare<S: Server>(
    server: &mut S,
    program: &str,
    sockets: Vec<(OwnedFd, String)>,
    predecessor: Option<&Predecessor>,
) -> Result<Prepared<S::Site>, String> {
    let loaded = server.load()?;
    let settings = loaded.settings;
    let cores = process::usable_cores();
    let (limits, notices) =
        limits::check(&settings.configured, Moment::Start, cores, listen::somaxconn());
    notices.iter().for_each(|notice| server.log(notice));
    let succeeds = predecessor.is_some();
    let stale = !succeeds && check_other_server(&settings, program)?;
    let retry_for = if stale { ORPHAN_GRACE } else { Duration::ZERO };
    let passed = Listeners::passed(sockets, &settings.listen, succeeds)?;
    let listeners = Listeners::open(&settings, limits.buckets, &passed, retry_for)?;
    let passed = succeeds.then_some(passed);
    let most = process::raise_descriptor_limit();
    // Checked now, while the caller reads the error, and again when all logs are open.
    descriptors::check(&settings, &limits, process::open_descriptors(), most)?;
    let board = Scoreboard::new(layout(&limits))
        .map_err(|error| format!("AH00004: Unable to create the scoreboard: {error}"))?;
    let site = Rc::new(loaded.site);
    server.activate(&site)?;
    descriptors::check(&settings, &limits, process::open_descriptors(), most)?;
    // As late as possible, and with the predecessor holding them too: connections that wait on a
    // socket are reset when its last owner closes it.
    let bound = listeners.bound();
    predecessor.iter().try_for_each(|predecessor| predecessor.hold(&bound))?;
    listeners.listen(&settings)?;
    let tell = |event: ParentEvent<'_>| {
        event.notice(limits.model).iter().for_each(|notice| server.log(notice));
    };
    if let Some(path) = settings.pid_file.as_ref().filter(|_| stale) {
        tell(ParentEvent::StalePidFile(&path.display().to_string()));
    }
    if settings.identity.is_some() && !identity::is_root() {
        tell(ParentEvent::UserIgnored);
    }
    let lines = settings.line_store()?;
    let path = settings.pid_file.as_ref().filter(|_| !succeeds);
    let pid_file = path.map(|path| PidFile::write(path)).transpose()?;
    let (settings, oom_score) = (Arc::new(settings), OomScore::for_children());
    let generation = Generation { number: 0, site, settings, limits, lines, oom_score };
    Ok(Prepared { generation, listeners, passed, board, pid_file })
}

/// An error if the server of the pid file runs; true if it has died without removing the file.
fn check_other_server(settings: &Settings, program: &str) -> Result<bool, String> {
    let Some(path) = &settings.pid_file else { return Ok(false) };
    match pidfile::running(path) {
        Ok(Running::No) => Ok(false),
        Ok(Running::Stale(_)) => Ok(true),
        Ok(Running::Yes(pid)) => {
            Err(format!("{program} (pid {}) already running", pid.as_raw_nonzero()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(true),
        Err(error) => {
            let path = path.display();
            Err(format!("{error}: AH00058: Error retrieving pid file {path}"))
        }
    }
}

/// The size of the scoreboard for the life of the server. It has room for all that a reload may
/// configure within ServerLimit and ThreadLimit; unused room costs no memory. During a reload two
/// generations serve, and as many children may retire. If there are too few slots for all, the
/// status page shows fewer of each child; nothing else needs them.
fn layout(limits: &Limits) -> Layout {
    let children = (limits.table() * 3).min(MOST_SLOTS);
    let wanted = match limits.model {
        Model::Event => (limits.credits(0) * 2).max(limits.thread_limit).max(1024),
        Model::Worker | Model::Prefork => limits.thread_limit,
    };
    Layout { children, slots_per_child: wanted.clamp(1, MOST_SLOTS / children) }
}

impl<'a, S: Server> Parent<'a, S> {
    fn start(
        server: &'a mut S,
        start: &'a Start,
        start_report: Option<StartReport>,
        mut inherited: Inherited,
    ) -> Result<Self, String> {
        // Before anything can be waited for: a signal during the start is handled after it.
        let signals = Signals::catch(&SIGNALS)
            .map_err(|error| format!("could not take charge of the signals: {error}"))?;
        let invocation = Invocation::take();
        let supervisor = std::mem::take(&mut inherited.supervisor);
        let predecessor = inherited.predecessor.take();
        server.inherit(inherited.bequest);
        let sockets = inherited.sockets;
        let prepared = prepare(server, &start.program, sockets, predecessor.as_ref())?;
        let now_us = clock::monotonic_us();
        let wanted = prepared.generation.limits.start_servers;
        let table = prepared.generation.limits.table();
        let children = Children::new(prepared.board, table)
            .map_err(|error| format!("could not make the table of children: {error}"))?;
        Ok(Self {
            server,
            start,
            board: prepared.board,
            signals: Some(signals),
            listeners: prepared.listeners,
            current: Rc::new(prepared.generation),
            last_number: 0,
            children,
            state: State::Changing(Change::first(now_us, wanted, prepared.passed)),
            back_off: BackOff::default(),
            sizing: Sizing::default(),
            accounting: Accounting::default(),
            budget: Budget::default(),
            last_tick_us: now_us,
            inherited_cpu_us: clock::reaped_children_cpu_us(),
            reload_record: ReloadRecord::new(prepared.pid_file.as_ref().map(PidFile::path)),
            pid_file: prepared.pid_file,
            start_report,
            invocation,
            supervisor,
            predecessor,
        })
    }

    fn run(mut self) -> Result<i32, String> {
        loop {
            if let Some(caught) = self.take_signal_and_reap() {
                self.act_on(caught);
            }
            self.receive_reports();
            self.advance();
            self.detect_stalls();
            self.maintain_children();
            self.size_pool();
            if let Some(account) = self.update_accounting() {
                self.move_budget(&account);
            }
            if let State::Stopping { status } = self.state
                && self.children.is_empty()
            {
                if let Some(file) = self.pid_file.take().filter(PidFile::remove) {
                    self.reload_record.remove();
                    self.log_event(&ParentEvent::RemovedPidFile(file.path()));
                }
                return Ok(status);
            }
            self.server.turn();
            self.supervisor.keep_alive(clock::monotonic_us());
            self.sleep();
        }
    }

    /// Several deaths may be one signal. Children are reaped after the signal was taken, since
    /// otherwise a death in between would be noticed late.
    fn take_signal_and_reap(&mut self) -> Option<Caught> {
        let signals = self.signals.take();
        let caught = signals.as_ref().and_then(|signals| signals.next_then(|| self.reap()));
        self.signals = signals;
        caught
    }

    fn reap(&mut self) {
        let reaped_us = || {
            let (user_us, system_us) = clock::reaped_children_cpu_us();
            user_us.saturating_add(system_us)
        };
        let mut before_us = reaped_us();
        while let Some((pid, end)) = process::reap() {
            let now_us = reaped_us();
            let used_us = now_us.saturating_sub(std::mem::replace(&mut before_us, now_us));
            if let Some(entry) = self.children.remove(pid) {
                self.record_exit(entry, end, used_us);
            } else if !self.state.note_test_end(pid, end) {
                self.server.reaped(pid, end);
            }
        }
    }

    pub(crate) fn receive_reports(&mut self) {
        let now_us = clock::monotonic_us();
        let reports = self.children.receive(now_us);
        if reports.has_demand {
            self.sizing.run_soon();
        }
        // A child that ends may have to be replaced.
        let goes = |entry: &&ChildEntry<S::Site>| {
            reports.end_requested.contains(&entry.number) && !entry.phase.is_stopping()
        };
        let going: Vec<u64> = match reports.end_requested.is_empty() {
            true => Vec::new(),
            false => self.children.all().filter(goes).map(|entry| entry.number).collect(),
        };
        if !going.is_empty() {
            self.sizing.run_soon();
            let end_by_us = self.kill_deadline_us(now_us);
            self.children.retire_these(Command::Drain, end_by_us, &going);
        }
    }

    /// Replaces children that hang. Their requests get as much time as at a stop.
    fn detect_stalls(&mut self) {
        let now_us = clock::monotonic_us();
        if now_us.saturating_sub(self.last_tick_us) < TICK_US {
            return;
        }
        self.last_tick_us = now_us;
        let count = self.listeners.buckets();
        let waits: Vec<bool> =
            (0..count).map(|bucket| self.listeners.queue_of(bucket) > 0).collect();
        let StalledChildren { reported, replaced, starving } = self.children.detect_stalls(&waits);
        reported.into_iter().for_each(|pid| self.log_event(&ParentEvent::Stalled(pid)));
        let starving = starving.into_iter().map(|pid| (pid, ParentEvent::StarvingReplaced(pid)));
        let replaced = replaced.into_iter().map(|pid| (pid, ParentEvent::StalledReplaced(pid)));
        for (pid, event) in replaced.chain(starving) {
            self.log_event(&event);
            let end_by_us = self.kill_deadline_us(now_us).unwrap_or(now_us.saturating_add(STOP_US));
            self.children.retire(Command::Exit, Some(end_by_us), |entry| entry.pid == pid);
        }
    }

    fn act_on(&mut self, caught: Caught) {
        match caught.signal {
            Signal::Terminate | Signal::Interrupt => self.stop(),
            Signal::Hangup => self.request_restart(Restart::Hard),
            Signal::User1 => self.request_restart(Restart::Graceful),
            Signal::User2 => self.request_restart(Restart::Upgrade),
            Signal::WindowChange if caught.by_process => self.stop_gracefully(),
            Signal::WindowChange | Signal::Child | Signal::Continue | Signal::Kill => {}
        }
    }

    fn sleep(&self) {
        let now_us = clock::monotonic_us();
        let next = [
            self.children.next_deadline_us(),
            self.children.receive_due_us(now_us),
            self.back_off.until_us(),
            self.state.next_us(),
            self.next_sizing_us(),
            self.supervisor.next_us(),
            self.accounting.next_us(),
            self.server.next_us(),
        ];
        let next = next.into_iter().flatten().min();
        let until_next = next.map(|at| Duration::from_micros(at.saturating_sub(now_us)));
        let timeout = until_next.map_or(REST, |wait| wait.min(REST));
        let signals = self.signals.iter().map(AsFd::as_fd);
        let upgrade = match &self.state {
            State::Upgrading(upgrade) => Some(upgrade.descriptor()),
            _ => None,
        };
        let own = signals.chain(upgrade).chain(self.children.descriptor(now_us));
        let descriptors: Vec<_> = own.chain(self.server.descriptor()).collect();
        if wait_readable(&descriptors, Some(timeout)).is_err() {
            // If poll fails for lack of memory, the loop must still not spin.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// When a child that is told to end now is killed, by GracefulShutdownTimeout; `None` is never.
    pub(crate) fn kill_deadline_us(&self, now_us: u64) -> Option<u64> {
        let bound = self.current.settings.graceful_shutdown_timeout;
        let bound = bound.filter(|bound| !bound.is_zero())?;
        Some(now_us.saturating_add(u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn log_event(&self, event: &ParentEvent<'_>) {
        if let Some(notice) = event.notice(self.current.limits.model) {
            self.server.log(&notice);
        }
    }

    /// Logs a text of several lines, one notice each.
    pub(crate) fn log_lines(&self, text: &str) {
        for line in text.lines().filter(|line| !line.is_empty()) {
            self.server.log(&Notice::own("core", Level::Error, line.to_owned()));
        }
    }
}
