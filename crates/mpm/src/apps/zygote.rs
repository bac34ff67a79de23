//! The parent's side of a zygote (`php/evenkeel-php.c`): starts it, has workers forked, reads their
//! pages, and ends those that take too long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use evenkeel_pool::{Child, Stage};
use evenkeel_scoreboard::PoolWorker;
use evenkeel_sys::application::{
    Grandchild, Heard, Page, PageContent, WorkerState, ZygoteChannel, ZygoteSays,
};
use evenkeel_sys::claims::Claims;
use evenkeel_sys::epoll::Epoll;
use evenkeel_sys::identity;
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;
use evenkeel_sys::spawn::{Order, Standard, spawn};
use evenkeel_sys::waker::Waker;

use super::{Application, Bounds, TERMINATION_US};

/// The beginning of the name of a worker. Until a worker has set its name, it has the zygote's,
/// which begins with this too.
const WORKER: &str = "php ";

/// The parent ends a zygote that is stopped twice within this time, in microseconds.
const STOPPED_US: u64 = 60_000_000;

/// Workers of a zygote (php/evenkeel-php.c: MOST_SEATS).
const MOST_SEATS: u32 = 4096;

/// The most backtraces that are requested for one slow request. A worker writes a backtrace only
/// while it runs code of the script, so a request that waits is asked again at each check.
const MOST_TRACES: u32 = 50;

/// A zygote.
pub(super) struct Zygote {
    pub(super) pid: Pid,
    /// `None` once it was let go.
    channel: Option<ZygoteChannel>,
    pub(super) started_us: u64,
    phase: Phase,
    /// How long the start of PHP in it took.
    start_took_us: Option<u64>,
    /// Whether it was told to end.
    is_told: bool,
    /// When it was found stopped last.
    stopped_us: Option<u64>,
    seats: BTreeMap<u32, Seat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    /// Its workers end after their requests, and then it does.
    Ending,
    /// It has died. Its workers end after their requests.
    Dead,
}

/// The place of a worker.
struct Seat {
    /// The number of the worker for the law: the larger, the newer.
    id: u64,
    page: Page,
    /// The place of its word for claims.
    place: u32,
    content: PageContent,
    pid: i32,
    process: Option<Grandchild>,
    stage: Stage,
    since_us: u64,
    /// When SIGTERM was sent to the worker.
    terminated_us: Option<u64>,
    /// Whether SIGKILL was sent to it.
    is_killed: bool,
    /// The start time of the request whose backtrace was requested last, and the number of times.
    traced: (u64, u32),
}

/// Something that a zygote has said, acted on.
pub(super) enum Event {
    Ready,
    Born,
    NotBorn,
    Failed(String),
    Died(Death),
    End,
}

/// The end of a worker.
pub(super) struct Death {
    pub(super) pid: i32,
    /// The place of its word for claims.
    pub(super) place: u32,
    /// The status of wait(2); `None` if the zygote died before it could tell.
    status: Option<i32>,
    pub(super) page: PageContent,
    pub(super) script: Vec<u8>,
    is_late: bool,
}

/// Sums over workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) requests: u64,
    pub(super) cpu_us: u64,
    pub(super) ready_us: u64,
    pub(super) wait_us: u64,
}

impl Totals {
    pub(super) fn add(&mut self, page: &PageContent) {
        self.requests = self.requests.saturating_add(page.requests);
        self.cpu_us = self.cpu_us.saturating_add(page.cpu_us);
        self.ready_us = self.ready_us.saturating_add(page.ready_us);
        self.wait_us = self.wait_us.saturating_add(page.wait_us);
    }
}

impl Death {
    /// Ends what the worker could be claimed for.
    pub(super) fn forget_claims(&self, claims: &Claims) {
        if let Ok(pid) = u32::try_from(self.pid) {
            claims.forget(self.place, pid);
        }
    }

    /// Whether the worker has neither been told to end nor reached one of its bounds.
    pub(super) fn is_unasked(&self) -> bool {
        self.status != Some(0)
    }

    pub(super) fn was_busy(&self) -> bool {
        self.page.state == WorkerState::Busy
    }

    /// Whether it has died before its first request: the next one may do so too.
    pub(super) fn is_stillborn(&self) -> bool {
        self.page.requests == 0 && !self.was_busy()
    }

    pub(super) fn how(&self) -> String {
        match self.status {
            _ if self.is_late => "was ended after AppRequestTimeout".into(),
            None => "has died after its zygote".into(),
            Some(status) if status & 0x7f == 0 => {
                format!("has ended with status {}", (status >> 8) & 0xff)
            }
            Some(status) => format!("was killed by signal {}", status & 0x7f),
        }
    }
}

impl Zygote {
    /// Starts a zygote on the listening socket of its pool.
    pub(super) fn start(
        application: &Application,
        listener: &OwnedFd,
        (secret, claims, nudge): (&[u8; 16], &Claims, &Waker),
        slow_log: Option<File>,
        now_us: u64,
    ) -> io::Result<Self> {
        let (channel, other) = ZygoteChannel::pair()?;
        channel.send_secret(secret)?;
        channel.send_claims(claims.as_fd(), nudge.as_fd())?;
        if let Some(file) = slow_log {
            channel.send_slow_log(file.as_fd())?;
        }
        let variables = std::env::vars_os();
        let order = Order {
            question: None,
            service: None,
            program: application.program.as_os_str().as_bytes().to_vec(),
            arguments: arguments(application),
            variables: variables.map(|(name, it)| (name.into_vec(), it.into_vec())).collect(),
            folder: b"/".to_vec(),
            limits: [None; 3],
        };
        let standard = Standard {
            input: listener.try_clone()?,
            output: other,
            error: io::stderr().as_fd().try_clone_to_owned()?,
        };
        let pid = spawn(&order, standard)?;
        Ok(Self {
            pid,
            channel: Some(channel),
            started_us: now_us,
            phase: Phase::Starting,
            start_took_us: None,
            is_told: false,
            stopped_us: None,
            seats: BTreeMap::new(),
        })
    }

    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// How long the start of PHP in it took; `None` if it never was ready.
    pub(super) fn start_took_us(&self) -> Option<u64> {
        self.start_took_us
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Dead)
    }

    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Has its messages wake whoever waits for `set`. Errors are epoll_ctl(2)'s.
    pub(super) fn watch(&self, set: &Epoll) -> io::Result<()> {
        self.channel.as_ref().map_or(Ok(()), |channel| set.add_level_triggered(channel, 0))
    }

    /// Continues the zygote if a signal has stopped it, and ends it if it was stopped within
    /// [`STOPPED_US`] before. Returns what was done, for the error log.
    pub(super) fn keep_going(&mut self, now_us: u64) -> Option<&'static str> {
        if self.phase == Phase::Dead || !process::has_stopped(self.pid) {
            return None;
        }
        let before_us = self.stopped_us.replace(now_us);
        if before_us.is_some_and(|at| now_us.saturating_sub(at) < STOPPED_US) {
            self.kill();
            return Some("was stopped again and is ended");
        }
        let _gone = process::kill(self.pid, Signal::Continue);
        Some("was stopped and is continued")
    }

    /// Ends the zygote and its workers at once if it is stopped, or was: it may not end by itself.
    pub(super) fn end_if_stopped(&self) {
        if self.stopped_us.is_some() || process::has_stopped(self.pid) {
            self.kill_workers();
            self.kill();
        }
    }

    /// Acts on the next message, if there is one.
    pub(super) fn hear(&mut self, now_us: u64) -> Option<Event> {
        loop {
            let said = match self.channel.as_ref()?.hear() {
                Heard::Nothing => return None,
                Heard::Noise => continue,
                Heard::End => return (self.phase != Phase::Ending).then(|| self.note_end()),
                Heard::Said(said) => said,
            };
            return Some(match said {
                ZygoteSays::Ready if self.phase == Phase::Starting => {
                    self.phase = Phase::Ready;
                    self.start_took_us = Some(now_us.saturating_sub(self.started_us));
                    Event::Ready
                }
                ZygoteSays::Ready => continue,
                ZygoteSays::Born { seat, pid } => {
                    let Some(seat) = self.seats.get_mut(&seat) else { continue };
                    (seat.pid, seat.process) = (pid, Grandchild::of(pid, self.pid));
                    Event::Born
                }
                ZygoteSays::NotBorn(seat) => {
                    self.seats.remove(&seat);
                    Event::NotBorn
                }
                ZygoteSays::Failed(why) => Event::Failed(why),
                ZygoteSays::Died { seat, status, .. } => {
                    let Some(seat) = self.seats.remove(&seat) else { continue };
                    Event::Died(Death {
                        pid: seat.pid,
                        place: seat.place,
                        status: Some(status),
                        page: seat.page.read(),
                        script: seat.page.script(),
                        is_late: seat.terminated_us.is_some_and(|at| at <= now_us),
                    })
                }
            });
        }
    }

    fn note_end(&mut self) -> Event {
        self.phase = Phase::Ending;
        Event::End
    }

    /// Reads the pages, ends what takes too long, and adds the workers to the census.
    pub(super) fn look(&mut self, now_us: u64, bounds: &Bounds, children: &mut Vec<Child>) {
        let (ends, channel) = (self.is_ending(), self.channel.as_ref());
        let is_dead = self.phase == Phase::Dead;
        let signal = |number, process: &Option<Grandchild>, kill| match process {
            Some(process) if is_dead => process.signal(kill).is_ok(),
            _ => channel.is_some_and(|it| it.signal(number, kill).is_ok()),
        };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let most_us = bounds.request_timeout.map(micros);
        let slow_us = bounds.slow.as_ref().map(|(time, _)| micros(*time));
        for (&number, seat) in &mut self.seats {
            seat.content = seat.page.read();
            let is_busy = seat.content.state == WorkerState::Busy;
            let stage = match (seat.stage, seat.content.state) {
                (Stage::Draining, _) | (_, WorkerState::Draining) => Stage::Draining,
                _ if ends => Stage::Draining,
                (_, WorkerState::Starting) => Stage::Starting,
                _ => Stage::Serving,
            };
            if stage != seat.stage {
                (seat.stage, seat.since_us) = (stage, now_us);
            }
            if let Some(most_us) = most_us.filter(|_| is_busy) {
                let runs_us = now_us.saturating_sub(seat.content.began_us);
                // A message that cannot be sent is sent at the next tick.
                match seat.terminated_us {
                    None if runs_us > most_us && signal(number, &seat.process, false) => {
                        seat.terminated_us = Some(now_us);
                    }
                    Some(at) if now_us.saturating_sub(at) > TERMINATION_US && !seat.is_killed => {
                        seat.is_killed = signal(number, &seat.process, true);
                    }
                    // The zygote has not sent SIGKILL, so the parent does.
                    Some(at) if now_us.saturating_sub(at) > 2 * TERMINATION_US => {
                        let _gone = seat.process.as_ref().map(|process| process.signal(true));
                    }
                    _ => {}
                }
            }
            let began_us = seat.content.began_us;
            if is_busy && slow_us.is_some_and(|slow_us| now_us.saturating_sub(began_us) > slow_us) {
                let (traced_us, times) = seat.traced;
                let times = if traced_us == began_us { times } else { 0 };
                // A page that cannot be written leads to no backtrace, and nothing else.
                let asks = times == 0 && seat.page.ask_for_trace(began_us).is_ok();
                if asks || (1..MOST_TRACES).contains(&times) {
                    let _full = channel.map(|channel| channel.trace(number));
                    seat.traced = (began_us, times + 1);
                }
            }
            children.push(Child {
                id: seat.id,
                // Workers of a dead zygote do not keep the next one from having as many.
                generation: if is_dead { u64::MAX } else { u64::from(!ends) },
                stage,
                since: Duration::from_micros(seat.since_us),
                working: usize::from(is_busy),
                kept: 0,
            });
        }
    }

    /// Has a worker forked, with this place for claims. Errors are those of its page and of the
    /// channel.
    pub(super) fn fork(&mut self, id: u64, place: u32, now_us: u64) -> io::Result<()> {
        let number = (0..MOST_SEATS).find(|number| !self.seats.contains_key(number));
        let number = number.ok_or(io::ErrorKind::StorageFull)?;
        let page = Page::new()?;
        let channel = self.channel.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        channel.fork(number, place, page.as_fd())?;
        let seat = Seat {
            id,
            page,
            place,
            content: PageContent::default(),
            pid: 0,
            process: None,
            stage: Stage::Starting,
            since_us: now_us,
            terminated_us: None,
            is_killed: false,
            traced: (0, 0),
        };
        self.seats.insert(number, seat);
        Ok(())
    }

    /// Lets the workers with these numbers of the law end. Returns how many there are.
    pub(super) fn drain(&mut self, ids: &[u64], now_us: u64) -> usize {
        let mut count = 0;
        let Some(channel) = &self.channel else { return 0 };
        for (&number, seat) in &mut self.seats {
            let is_meant = ids.contains(&seat.id) && seat.stage != Stage::Draining;
            if is_meant && channel.drain(number).is_ok() {
                (seat.stage, seat.since_us) = (Stage::Draining, now_us);
                count += 1;
            }
        }
        count
    }

    /// Lets all workers end, and then the zygote.
    pub(super) fn end(&mut self) {
        if self.phase == Phase::Starting {
            self.kill();
        }
        (self.phase, self.is_told) = (Phase::Ending, true);
        let Some(channel) = &self.channel else { return };
        for (&number, seat) in &mut self.seats {
            if seat.stage != Stage::Draining && channel.drain(number).is_ok() {
                seat.stage = Stage::Draining;
            }
        }
    }

    /// Whether it has no worker.
    pub(super) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Whether it is to be let go: it is ending, and no worker is left.
    pub(super) fn is_spent(&self) -> bool {
        self.phase == Phase::Ending && self.seats.is_empty()
    }

    /// Closes the channel, upon which the zygote ends. It is reaped later.
    pub(super) fn let_go(&mut self, set: &Epoll) {
        if let Some(channel) = self.channel.take() {
            let _closed = set.remove(&channel);
        }
    }

    /// Ends the zygote at once.
    pub(super) fn kill(&self) {
        let _gone = process::kill(self.pid, Signal::Kill);
    }

    /// Workers that serve, and those of them that work.
    pub(super) fn serving(&self) -> usize {
        self.seats.values().filter(|seat| seat.stage == Stage::Serving).count()
    }

    pub(super) fn busy(&self) -> usize {
        let is_busy = |seat: &&Seat| seat.content.state == WorkerState::Busy;
        self.seats.values().filter(is_busy).count()
    }

    /// The memory of all workers in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.seats.values().map(|seat| seat.content.memory).sum()
    }

    /// The workers, for the status page.
    pub(super) fn list(&self) -> impl Iterator<Item = PoolWorker> {
        self.seats.values().map(|seat| {
            let PageContent { state, began_us, requests, cpu_us, memory, .. } = seat.content;
            let is_busy = state == WorkerState::Busy;
            PoolWorker {
                pid: u64::try_from(seat.pid).unwrap_or(0),
                state: match (seat.stage, state) {
                    (_, WorkerState::Busy) => b'W',
                    (Stage::Draining, _) | (_, WorkerState::Draining) => b'G',
                    (_, WorkerState::Starting) => b'S',
                    (_, WorkerState::Idle) => b'_',
                },
                requests,
                cpu_us,
                memory,
                began_us: if is_busy { began_us } else { 0 },
                script: if is_busy { seat.page.script() } else { Vec::new() },
            }
        })
    }

    /// The places of its workers' words for claims.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.seats.values().map(|seat| seat.place)
    }

    pub(super) fn pages(&self) -> impl Iterator<Item = &PageContent> {
        self.seats.values().map(|seat| &seat.content)
    }

    /// Notes that it has died; its workers run as `user`. Returns the processes and the scripts of
    /// the workers that are busy.
    pub(super) fn orphan(&mut self, user: u32) -> Vec<(i32, Vec<u8>)> {
        self.phase = Phase::Dead;
        self.seats.retain(|_, seat| {
            // The zygote may have died before the parent read the message about this worker's
            // birth.
            if seat.process.is_none() {
                seat.process = Grandchild::of_user(seat.pid, user, WORKER);
            }
            seat.process.is_some()
        });
        let is_busy = |seat: &&Seat| seat.page.read().state == WorkerState::Busy;
        let busy = self.seats.values().filter(is_busy);
        busy.map(|seat| (seat.pid, seat.page.script())).collect()
    }

    /// Forgets the workers of a dead zygote that have ended.
    pub(super) fn bury(&mut self) -> Vec<Death> {
        let mut deaths = Vec::new();
        self.seats.retain(|_, seat| {
            let is_alive = seat.process.as_ref().is_some_and(|process| !process.has_ended());
            if !is_alive {
                deaths.push(Death {
                    pid: seat.pid,
                    place: seat.place,
                    status: None,
                    page: seat.page.read(),
                    script: seat.page.script(),
                    is_late: seat.terminated_us.is_some(),
                });
            }
            is_alive
        });
        deaths
    }

    /// Ends the workers at once, without the zygote.
    pub(super) fn kill_workers(&self) {
        for process in self.seats.values().filter_map(|seat| seat.process.as_ref()) {
            let _gone = process.signal(true);
        }
    }
}

fn arguments(application: &Application) -> Vec<Vec<u8>> {
    let Application { name, program, arguments, identity, server, bounds } = application;
    let own = program.file_name().unwrap_or(program.as_os_str());
    let mut all = vec![own.as_bytes().to_vec()];
    let mut say = |name: &str, value: String| all.extend([name.into(), value.into_bytes()]);
    say("--name", name.clone());
    let peer = server.map_or_else(identity::own_uid, |(uid, _)| uid);
    say("--peer", peer.to_string());
    if let Some(identity) = identity {
        let others = identity.groups.iter().filter(|group| **group != identity.gid);
        let groups: Vec<String> =
            std::iter::once(&identity.gid).chain(others).map(u32::to_string).collect();
        say("--user", format!("{}:{}", identity.uid, groups.join(",")));
    }
    if bounds.slow.is_some() {
        say("--traces", "1".into());
    }
    if let Some((soft, hard)) = bounds.processes {
        // The largest number is RLIM_INFINITY.
        let [soft, hard] = [soft, hard].map(|limit| limit.unwrap_or(u64::MAX));
        say("--processes", format!("{soft}:{hard}"));
    }
    if let Some(nice) = bounds.nice {
        say("--nice", nice.to_string());
    }
    if bounds.most_requests > 0 {
        say("--requests", bounds.most_requests.to_string());
    }
    if bounds.most_memory > 0 {
        say("--memory", bounds.most_memory.to_string());
    }
    all.extend(arguments.iter().map(|argument| argument.clone().into_bytes()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_zygote_is_told_the_nice_value_only_where_one_is_set() {
        let told = |nice| {
            let application = Application {
                name: "php".into(),
                program: PathBuf::from("/bin/evenkeel-php8.2"),
                arguments: Vec::new(),
                identity: None,
                server: Some((33, 33)),
                bounds: Bounds { nice, ..Bounds::default() },
            };
            arguments(&application).join(&b' ')
        };
        assert_eq!(told(None), b"evenkeel-php8.2 --name php --peer 33");
        assert_eq!(told(Some(7)), b"evenkeel-php8.2 --name php --peer 33 --nice 7");
    }
}
