//! The parent's life: it starts the server, then goes round one loop (reap, hear, act on one
//! signal, keep the count, sleep) until the last child has ended. Nothing in here serves, waits
//! for a child, or panics; what happens while it starts a child is in `spawn`, what a signal
//! changes in `change`.

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
use crate::announce::Event;
use crate::budget::Budget;
use crate::change::{Change, Restart, STOP_US, State};
use crate::child::Command;
use crate::children::{Children, Entry, StalledChildren};
use crate::descriptors;
use crate::detach::{self, Detached, Outcome};
use crate::limits::{self, Limits, Model, Moment};
use crate::listeners::Listeners;
use crate::oom_score::OomScore;
use crate::pidfile::{self, PidFile, Running};
use crate::settings::{Generation, Mode, Server, Settings, Start};
use crate::sizing::Sizing;
use crate::spawn::{self, BackOff};
use crate::stall_detector::TICK_US;
use crate::supervisor::Supervisor;
use crate::upgrade::{self, Invocation, Predecessor};

/// The signals that the parent acts on.
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

/// How long a start waits for an address that the orphans of a killed parent still have.
const ORPHANS_LEAVE: Duration = Duration::from_millis(900);

/// Runs the server until it ends. The status is the process's exit status; the error is one or
/// more lines for standard error, and status 1.
pub fn run<S: Server>(server: &mut S, start: &Start) -> Result<i32, String> {
    let inherited = Inherited::take();
    match start.mode {
        Mode::Foreground => Parent::begin(server, start, None, inherited)?.live(),
        // The program that this one takes over from has left the terminal, and its caller.
        Mode::Detached if inherited.predecessor.is_some() => {
            Parent::begin(server, start, None, inherited)?.live()
        }
        Mode::OneProcess => spawn::serve_alone(server, start, inherited.sockets),
        Mode::Detached => match detach::detach() {
            Ok(Detached::Caller(status)) => Ok(status),
            Ok(Detached::Server(outcome)) => {
                Parent::begin(server, start, Some(outcome), inherited)?.live()
            }
            Err(error) => Err(format!("could not detach from the terminal: {error}")),
        },
    }
}

pub(crate) struct Parent<'a, S: Server> {
    pub(crate) server: &'a mut S,
    pub(crate) start: &'a Start,
    pub(crate) board: Scoreboard,
    // None in a process that was forked off and is the parent no more.
    pub(crate) signals: Option<Signals>,
    pub(crate) listeners: Listeners,
    pub(crate) current: Rc<Generation<S::Site>>,
    // The number last given to a configuration, be it one that failed.
    pub(crate) last_number: u32,
    pub(crate) children: Children<S::Site>,
    pub(crate) state: State<S::Site>,
    pub(crate) back_off: BackOff,
    pub(crate) sizing: Sizing,
    pub(crate) accounting: Accounting,
    pub(crate) budget: Budget,
    last_tick_us: u64,
    /// What children of this process had used before it became a server: a shell or a build tool
    /// may have become it.
    pub(crate) inherited_cpu_us: (u64, u64),
    pub(crate) pid_file: Option<PidFile>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) invocation: Invocation,
    pub(crate) supervisor: Supervisor,
    /// The parent that goes once this one serves.
    pub(crate) predecessor: Option<Predecessor>,
}

/// What the process that started this one has passed to it.
struct Inherited {
    sockets: Vec<(OwnedFd, String)>,
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
        Self { sockets, supervisor, predecessor }
    }
}

/// Everything that a start makes before the first child: the same for a parent and for a server
/// that serves alone.
pub(crate) struct Prepared<Site> {
    pub(crate) generation: Generation<Site>,
    pub(crate) listeners: Listeners,
    /// All that a predecessor has passed, be it configured no more.
    pub(crate) passed: Option<Listeners>,
    pub(crate) board: Scoreboard,
    /// None where a predecessor's is taken over once the children serve.
    pub(crate) pid_file: Option<PidFile>,
}

/// `sockets` were passed to this process, by its predecessor where it has one.
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
    let stale = !succeeds && look_for_other_server(&settings, program)?;
    let patience = if stale { ORPHANS_LEAVE } else { Duration::ZERO };
    let passed = Listeners::passed(sockets, &settings.listen, succeeds)?;
    let listeners = Listeners::open(&settings, limits.buckets, &passed, patience)?;
    let passed = succeeds.then_some(passed);
    let most = process::raise_descriptor_limit();
    // Now where the caller reads it, and once more when all logs are open.
    descriptors::check(&settings, &limits, process::open_descriptors(), most)?;
    let board = Scoreboard::new(layout(&limits))
        .map_err(|error| format!("AH00004: Unable to create the scoreboard: {error}"))?;
    let site = Rc::new(loaded.site);
    server.activate(&site)?;
    descriptors::check(&settings, &limits, process::open_descriptors(), most)?;
    // As late as can be, and not alone: what waits on a socket is reset with the last who has it.
    let bound = listeners.bound();
    predecessor.iter().try_for_each(|predecessor| predecessor.hold(&bound))?;
    listeners.listen(&settings)?;
    let tell = |event: Event<'_>| {
        event.notice(limits.model).iter().for_each(|notice| server.log(notice));
    };
    if let Some(path) = settings.pid_file.as_ref().filter(|_| stale) {
        tell(Event::StalePidFile(&path.display().to_string()));
    }
    if settings.identity.is_some() && !identity::is_root() {
        tell(Event::UserIgnored);
    }
    let lines = settings.line_store()?;
    let path = settings.pid_file.as_ref().filter(|_| !succeeds);
    let pid_file = path.map(|path| PidFile::write(path)).transpose()?;
    let (settings, oom_score) = (Arc::new(settings), OomScore::for_children());
    let generation = Generation { number: 0, site, settings, limits, lines, oom_score };
    Ok(Prepared { generation, listeners, passed, board, pid_file })
}

/// Refuses to start where the pid file's server lives; true where it has died untidily.
fn look_for_other_server(settings: &Settings, program: &str) -> Result<bool, String> {
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

/// The scoreboard's size holds for the life of the server, so it has room for all that a reload
/// may ask for within ServerLimit and ThreadLimit; what is not used costs no memory. While a
/// reload is under way there are two generations that serve, and as many may retire. Where the
/// slots do not suffice for all, the status page shows fewer of each child; nothing else needs one.
fn layout(limits: &Limits) -> Layout {
    let children = (limits.table() * 3).min(MOST_SLOTS);
    let wanted = match limits.model {
        Model::Event => (limits.credits(0) * 2).max(limits.thread_limit).max(1024),
        Model::Worker | Model::Prefork => limits.thread_limit,
    };
    Layout { children, slots_per_child: wanted.clamp(1, MOST_SLOTS / children) }
}

impl<'a, S: Server> Parent<'a, S> {
    fn begin(
        server: &'a mut S,
        start: &'a Start,
        outcome: Option<Outcome>,
        mut inherited: Inherited,
    ) -> Result<Self, String> {
        // Before anything can be waited for: a signal during the start is acted on after it.
        let signals = Signals::catch(&SIGNALS)
            .map_err(|error| format!("could not take charge of the signals: {error}"))?;
        let invocation = Invocation::take();
        let supervisor = std::mem::take(&mut inherited.supervisor);
        let predecessor = inherited.predecessor.take();
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
            pid_file: prepared.pid_file,
            outcome,
            invocation,
            supervisor,
            predecessor,
        })
    }

    fn live(mut self) -> Result<i32, String> {
        loop {
            if let Some(caught) = self.take_signal_and_reap() {
                self.act_on(caught);
            }
            self.hear();
            self.advance();
            self.detect_stalls();
            self.keep_count();
            self.size_pool();
            if let Some(account) = self.update_accounting() {
                self.move_budget(&account);
            }
            if let State::Stopping { status } = self.state
                && self.children.is_empty()
            {
                if let Some(file) = self.pid_file.take().filter(PidFile::remove) {
                    self.tell(&Event::RemovedPidFile(file.path()));
                }
                return Ok(status);
            }
            self.server.turn();
            self.supervisor.keep_alive(clock::monotonic_us());
            self.sleep();
        }
    }

    /// Deaths of children that follow each other are one signal: who has ended is asked for after
    /// it was taken, else one of them is not noticed before the next turn.
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
            } else if !self.state.note_probe_end(pid, end) {
                self.server.reaped(pid, end);
            }
        }
    }

    pub(crate) fn hear(&mut self) {
        let now_us = clock::monotonic_us();
        let heard = self.children.hear(now_us);
        if heard.has_demand {
            self.sizing.hurry();
        }
        // Who goes may have to be replaced.
        let goes = |entry: &&Entry<S::Site>| {
            heard.end_requested.contains(&entry.number) && !entry.phase.is_stopping()
        };
        let going: Vec<u64> = match heard.end_requested.is_empty() {
            true => Vec::new(),
            false => self.children.all().filter(goes).map(|entry| entry.number).collect(),
        };
        if !going.is_empty() {
            self.sizing.hurry();
            let end_by_us = self.bound_us(now_us);
            self.children.retire_these(Command::Drain, end_by_us, &going);
        }
    }

    /// A child whose threads hang is replaced; what it works on gets as long as at a stop.
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
        reported.into_iter().for_each(|pid| self.tell(&Event::Still(pid)));
        let starving = starving.into_iter().map(|pid| (pid, Event::Starving(pid)));
        let replaced = replaced.into_iter().map(|pid| (pid, Event::Lost(pid)));
        for (pid, event) in replaced.chain(starving) {
            self.tell(&event);
            let end_by_us = self.bound_us(now_us).unwrap_or(now_us.saturating_add(STOP_US));
            self.children.retire(Command::Exit, Some(end_by_us), |entry| entry.pid == pid);
        }
    }

    fn act_on(&mut self, caught: Caught) {
        match caught.signal {
            Signal::Terminate | Signal::Interrupt => self.stop(),
            Signal::Hangup => self.ask_restart(Restart::Hard),
            Signal::User1 => self.ask_restart(Restart::Graceful),
            Signal::User2 => self.ask_restart(Restart::Upgrade),
            Signal::WindowChange if caught.by_process => self.stop_gracefully(),
            Signal::WindowChange | Signal::Child | Signal::Kill => {}
        }
    }

    fn sleep(&self) {
        let now_us = clock::monotonic_us();
        let next = [
            self.children.next_deadline_us(),
            self.children.next_hearing_us(now_us),
            self.back_off.until_us(),
            self.state.next_us(),
            self.next_sizing_us(),
            self.supervisor.next_us(),
            self.accounting.next_us(),
        ];
        let next = next.into_iter().flatten().min();
        let until_next = next.map(|at| Duration::from_micros(at.saturating_sub(now_us)));
        let timeout = until_next.map_or(REST, |wait| wait.min(REST));
        let signals = self.signals.iter().map(AsFd::as_fd);
        let upgrade = match &self.state {
            State::Upgrading(upgrade) => Some(upgrade.descriptor()),
            _ => None,
        };
        let descriptors: Vec<_> =
            signals.chain(upgrade).chain(self.children.descriptor(now_us)).collect();
        if wait_readable(&descriptors, Some(timeout)).is_err() {
            // Without memory for a poll the loop must still not spin.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// When a child that is to end now is killed, by GracefulShutdownTimeout; `None` is never.
    pub(crate) fn bound_us(&self, now_us: u64) -> Option<u64> {
        let bound = self.current.settings.graceful_shutdown_timeout;
        let bound = bound.filter(|bound| !bound.is_zero())?;
        Some(now_us.saturating_add(u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Some(notice) = event.notice(self.current.limits.model) {
            self.server.log(&notice);
        }
    }

    /// Logs a text of several lines, one notice each.
    pub(crate) fn tell_lines(&self, text: &str) {
        for line in text.lines().filter(|line| !line.is_empty()) {
            self.server.log(&Notice::own("core", Level::Error, line.to_owned()));
        }
    }
}
