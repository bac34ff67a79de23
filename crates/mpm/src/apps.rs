//! Pools of application processes. The parent starts a zygote for a pool with its first request,
//! and the zygote forks workers, which accept requests from the pool's listening socket. The law of
//! the server's own children sizes a pool, with one thread a worker. Serving children connect to
//! the socket; what they and the parent know of each other is in an [`ApplicationLine`].

mod bounds;
mod zygote;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_message::{Level, Notice, quoted};
use evenkeel_pool::{Census, Law, Limits, Stage};
use evenkeel_scoreboard::{ApplicationLine, Figure};
use evenkeel_sys::application::{listen_at, refuse_waiting};
use evenkeel_sys::claims::{Claims, MOST_PLACES};
use evenkeel_sys::epoll::Epoll;
use evenkeel_sys::identity::{self, Identity};
use evenkeel_sys::process::{self, End, Pid};
use evenkeel_sys::waker::Waker;
use evenkeel_sys::{clock, random};

pub use bounds::Bounds;
use bounds::Costs;
use zygote::{Death, Event, Zygote};

/// How often a pool that works is sized, and how often one at rest.
const TICK_US: u64 = 100_000;
const REST_US: u64 = 1_000_000;

/// A pool is looked at so long after it was woken, so that several requests count as one.
const POKED_US: u64 = 2_000;

/// A zygote that has not started after this time is ended.
const START_US: u64 = 30_000_000;

/// How long a pool waits after failures of its zygote: this, then twice as long, up to the most.
const LEAST_WAIT_US: u64 = 1_000_000;
const MOST_WAIT_US: u64 = 5_000_000;

/// The least time between the starts of a zygote that was killed and of its successor, as a
/// multiple of the time that the first one took to start. The starts that a script causes by
/// killing each zygote use at most a quarter of a core.
const STARTS: u64 = 4;

/// How long a script may go on between SIGTERM and SIGKILL.
const TERMINATION_US: u64 = 2_000_000;

/// The most workers that the log line about a dead zygote names.
const MOST_NAMED: usize = 8;

/// The kernel's queue of a pool, if net.core.somaxconn allows it.
const BACKLOG: i32 = 4096;

/// What a pool runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its name in messages.
    pub name: String,
    /// The program of the zygote.
    pub program: PathBuf,
    /// Its arguments. The pool adds those that follow from the other fields.
    pub arguments: Vec<String>,
    /// The user that scripts run as; this process's without one.
    pub identity: Option<Identity>,
    /// The user and the group of the serving children, who may connect; root starts the server.
    pub server: Option<(u32, u32)>,
    /// The bounds.
    pub bounds: Bounds,
}

impl Application {
    /// The user that the workers run as.
    fn user(&self) -> u32 {
        self.identity.as_ref().map_or_else(identity::own_uid, |identity| identity.uid)
    }
}

/// A pool. It belongs to the parent; serving children [`Pool::forget`] it.
pub struct Pool {
    path: PathBuf,
    secret: [u8; 16],
    line: Arc<ApplicationLine>,
    claims: Arc<Claims>,
    waker: Arc<Waker>,
    /// The process that opened it.
    owner: Pid,
    inner: RefCell<Inner>,
}

struct Inner {
    application: Application,
    listener: Option<OwnedFd>,
    /// The eventfd by which one worker wakes another.
    nudge: Option<Waker>,
    /// The newest last. More than one only while a renewal lasts.
    zygotes: Vec<Zygote>,
    law: Law,
    costs: Costs,
    /// When it is sized again.
    next_us: u64,
    /// The last time that it had anything to do.
    active_us: u64,
    /// Failures of the zygote in a row, and until when none is started.
    failures: u32,
    wait_until_us: u64,
    /// The time before which no successor of a killed zygote starts. Requests wait until then.
    rest_until_us: u64,
    /// The next number of a worker for the law.
    next_id: u64,
    /// The place at which the search for a free place for claims begins.
    next_place: u32,
    /// Whether a zygote with the new settings is to be started although the old one works.
    renews: bool,
    /// Zygotes that have died, with the workers that answer their last requests.
    orphaned: Vec<Zygote>,
}

impl Pool {
    /// Opens a pool whose socket is `folder/PID-number.sock`.
    ///
    /// # Errors
    /// The text for the administrator.
    pub fn open(
        application: Application,
        folder: &Path,
        number: usize,
    ) -> Result<Rc<Self>, String> {
        let owner = process::own_pid();
        let path = folder.join(format!("{}-{number}.sock", owner.as_raw_nonzero()));
        let failed = |what: &str, error: io::Error| {
            format!("the pool {} cannot {what}: {error}", application.name)
        };
        let listener = listen_at(&path, BACKLOG, application.server)
            .map_err(|error| failed(&format!("listen at {}", path.display()), error))?;
        let secret = random::bytes().map_err(|error| failed("have a secret", error))?;
        let line = ApplicationLine::new().map_err(|error| failed("have memory", error))?;
        let claims = Claims::new().map_err(|error| failed("have memory", error))?;
        let new_waker = || Waker::new().map_err(|error| failed("have a descriptor", error));
        let (waker, nudge) = (new_waker()?, new_waker()?);
        let inner = Inner {
            costs: Costs::default(),
            application,
            listener: Some(listener),
            nudge: Some(nudge),
            zygotes: Vec::new(),
            law: Law::default(),
            next_us: 0,
            active_us: clock::monotonic_us(),
            failures: 0,
            wait_until_us: 0,
            rest_until_us: 0,
            next_id: 0,
            next_place: 0,
            renews: false,
            orphaned: Vec::new(),
        };
        let waker = Arc::new(waker);
        let inner = RefCell::new(inner);
        Ok(Rc::new(Self { path, secret, line, claims, waker, owner, inner }))
    }

    /// What it runs.
    #[must_use]
    pub fn application(&self) -> Application {
        self.inner.borrow().application.clone()
    }

    /// Where to connect.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What each request must have.
    #[must_use]
    pub fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// The figures.
    #[must_use]
    pub fn line(&self) -> &Arc<ApplicationLine> {
        &self.line
    }

    /// The words by which serving threads claim its workers.
    #[must_use]
    pub fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// What wakes the parent when workers are lacking.
    #[must_use]
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Gives up what belongs to the parent, in another process.
    pub fn forget(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.zygotes.clear();
        inner.orphaned.clear();
        inner.listener = None;
        inner.nudge = None;
    }

    /// Takes over settings that have been read anew. If it runs, its next zygote starts at once,
    /// and the workers of the old one work until those of the new one do.
    pub fn renew(&self, application: Application) {
        let mut inner = self.inner.borrow_mut();
        inner.application = application;
        inner.renews = !inner.zygotes.is_empty();
        inner.next_us = 0;
        (inner.failures, inner.wait_until_us) = (0, 0);
        self.line.set(Figure::DownUntilUs, 0);
    }
}

impl Pool {
    /// Removes the socket, when nobody serves any more.
    pub fn remove_socket(&self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.owner == process::own_pid() {
            self.remove_socket();
            // Nobody is left whom they could answer.
            let inner = self.inner.get_mut();
            inner.orphaned.iter().for_each(Zygote::kill_workers);
            inner.zygotes.iter().for_each(Zygote::end_if_stopped);
        }
    }
}

/// All pools of the parent. Several generations of the configuration may share one.
pub struct Pools {
    set: Epoll,
    pools: Vec<Weak<Pool>>,
    next_us: u64,
}

impl Pools {
    /// No pools. Errors are epoll_create(2)'s.
    pub fn new() -> io::Result<Self> {
        Ok(Self { set: Epoll::new()?, pools: Vec::new(), next_us: u64::MAX })
    }

    /// Looks after a pool from now on. Errors are epoll_ctl(2)'s.
    pub fn add(&mut self, pool: &Rc<Pool>) -> io::Result<()> {
        self.set.add_level_triggered(&*pool.waker, 0)?;
        self.pools.push(Rc::downgrade(pool));
        self.next_us = 0;
        Ok(())
    }

    /// The pools in use.
    pub fn all(&self) -> impl Iterator<Item = Rc<Pool>> {
        self.pools.iter().filter_map(Weak::upgrade)
    }

    /// Readable when [`Pools::turn`] has something to do.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// When [`Pools::turn`] has something to do in any case, in microseconds of the monotonic
    /// clock.
    #[must_use]
    pub fn next_us(&self) -> Option<u64> {
        (!self.pools.is_empty()).then_some(self.next_us)
    }

    /// Does what is due. The notices are for the error log.
    pub fn turn(&mut self) -> Vec<Notice> {
        let now_us = clock::monotonic_us();
        let mut notices = Vec::new();
        self.pools.retain(|pool| pool.strong_count() > 0);
        self.next_us = u64::MAX;
        for pool in self.pools.iter().filter_map(Weak::upgrade) {
            let next_us = pool.turn(&self.set, now_us, &mut notices);
            self.next_us = self.next_us.min(next_us);
        }
        notices
    }

    /// Handles the end of a process; false if it is no zygote.
    pub fn ended(&mut self, pid: Pid, end: End, notices: &mut Vec<Notice>) -> bool {
        let now_us = clock::monotonic_us();
        let found = self.all().any(|pool| pool.zygote_ended(&self.set, pid, end, now_us, notices));
        if found {
            self.next_us = 0;
        }
        found
    }

    /// A serving child has ended. Its requests no longer count.
    pub fn child_ended(&self, child: usize) {
        self.all().for_each(|pool| pool.line.forget_child(child));
    }
}

impl Pool {
    /// Does what is due, and returns when it is called again at the latest.
    fn turn(&self, set: &Epoll, now_us: u64, notices: &mut Vec<Notice>) -> u64 {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        self.waker.reset();
        let is_poked = self.line.read(Figure::IsPoked) != 0;
        self.line.set(Figure::IsPoked, 0);
        if is_poked {
            inner.next_us = inner.next_us.min(now_us + POKED_US);
        }
        inner.hear(self, set, now_us, notices);
        if now_us < inner.next_us {
            return inner.next_us;
        }
        inner.size(self, set, now_us, notices);
        inner.next_us
    }

    fn zygote_ended(
        &self,
        set: &Epoll,
        pid: Pid,
        end: End,
        now_us: u64,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Some(at) = inner.zygotes.iter().position(|zygote| zygote.pid == pid) else {
            return false;
        };
        inner.hear(self, set, now_us, notices);
        let mut zygote = inner.zygotes.remove(at);
        zygote.let_go(set);
        let (was_told, started_us) = (zygote.is_told(), zygote.started_us);
        let start_took_us = zygote.start_took_us();
        let left = zygote.orphan(inner.application.user());
        if !was_told {
            let name = &inner.application.name;
            let how = match end {
                End::Exited(status) => format!("exited with status {status}"),
                End::Killed { signal, .. } => format!("was killed by signal {signal}"),
            };
            let pid = pid.as_raw_nonzero();
            let text = format!("pool {name}: the zygote (pid {pid}) {how}{}", named(&left));
            notices.push(Notice::own("php", Level::Error, text));
            match (start_took_us, end) {
                (Some(took_us), End::Killed { .. }) => {
                    let rest_us = took_us.saturating_mul(STARTS).min(MOST_WAIT_US);
                    inner.rest_until_us = started_us.saturating_add(rest_us);
                }
                (Some(_), _) if now_us.saturating_sub(started_us) >= LEAST_WAIT_US => {}
                _ => inner.fail(&self.line, now_us),
            }
        }
        inner.orphaned.push(zygote);
        inner.next_us = 0;
        true
    }
}

impl Inner {
    /// Receives what the zygotes say.
    fn hear(&mut self, pool: &Pool, set: &Epoll, now_us: u64, notices: &mut Vec<Notice>) {
        let line = &*pool.line;
        let name = self.application.name.clone();
        let mut failed = false;
        for zygote in &mut self.zygotes {
            while let Some(event) = zygote.hear(now_us) {
                // The births of a step come one by one, and count as one.
                let wait_us = if matches!(event, Event::Born) { POKED_US } else { 0 };
                self.next_us = self.next_us.min(now_us + wait_us);
                match event {
                    Event::Ready => self.failures = 0,
                    Event::Born => {}
                    Event::NotBorn => {
                        let text = format!("pool {name}: a worker could not be forked");
                        notices.push(Notice::own("php", Level::Error, text));
                        failed = true;
                    }
                    Event::Failed(why) => {
                        let text = format!("pool {name}: the start has failed: {why}");
                        notices.push(Notice::own("php", Level::Error, text));
                        failed = true;
                    }
                    Event::Died(death) => {
                        self.costs.retire(&death.page);
                        death.forget_claims(&pool.claims);
                        if death.is_unasked() {
                            line.add(Figure::Deaths, 1);
                            notices.push(of_death(&name, &death));
                            failed |= death.is_stillborn();
                        }
                    }
                    Event::End => {
                        zygote.let_go(set);
                        break;
                    }
                }
            }
        }
        if failed {
            self.fail(line, now_us);
        }
    }

    /// Waits before the next start, and refuses what waits meanwhile.
    fn fail(&mut self, line: &ApplicationLine, now_us: u64) {
        let is_served = self.zygotes.iter().any(Zygote::is_ready);
        self.renews = false;
        let wait_us = LEAST_WAIT_US.saturating_mul(1 << self.failures.min(8)).min(MOST_WAIT_US);
        self.failures = self.failures.saturating_add(1);
        self.wait_until_us = now_us.saturating_add(wait_us);
        if !is_served {
            line.set(Figure::DownUntilUs, self.wait_until_us);
            if let Some(listener) = &self.listener {
                let _count = refuse_waiting(listener.as_fd());
            }
        }
    }

    /// Counts, and starts and ends what the law says.
    fn size(&mut self, pool: &Pool, set: &Epoll, now_us: u64, notices: &mut Vec<Notice>) {
        let line = &*pool.line;
        let (mut children, mut busy, mut memory) = (Vec::new(), 0, 0);
        self.bury(pool, notices);
        self.keep_going(now_us, notices);
        for zygote in self.zygotes.iter_mut().chain(&mut self.orphaned) {
            zygote.look(now_us, &self.application.bounds, &mut children);
        }
        for child in &children {
            busy += u64::from(child.working > 0);
        }
        let all = || self.zygotes.iter().chain(&self.orphaned);
        for zygote in all() {
            memory += zygote.memory();
        }
        let totals = self.costs.totals(all());
        let in_flight = line.read(Figure::InFlight);
        let queue = in_flight.saturating_sub(busy);
        if in_flight > 0 || busy > 0 || totals.requests != line.read(Figure::Requests) {
            self.active_us = now_us;
        }
        self.costs.note(now_us, &totals);
        let most = self.application.bounds.most(&self.costs, children.len(), memory);
        let [each_cpu_us, each_ready_us, each_wait_us] = self.costs.each();
        for (figure, value) in [
            (Figure::EachCpuUs, each_cpu_us),
            (Figure::EachReadyUs, each_ready_us),
            (Figure::EachWaitUs, each_wait_us),
            (Figure::Busy, busy),
            (Figure::Queue, queue),
            (Figure::Most, most.workers as u64),
            (Figure::IsMemoryBound, u64::from(most.is_memory)),
            (Figure::Memory, memory),
            (Figure::Requests, totals.requests),
            (Figure::CpuUs, totals.cpu_us),
            (Figure::ReadyUs, totals.ready_us),
            (Figure::WaitUs, totals.wait_us),
        ] {
            line.set(figure, value);
        }
        line.publish_workers(all().flat_map(Zygote::list));
        self.start_zygote(pool, set, queue > 0, now_us, notices);
        let ready = self.zygotes.iter().rposition(Zygote::is_ready);
        let generation = ready.map_or(0, |at| at as u64);
        let now = Duration::from_micros(now_us);
        let queue = usize::try_from(queue).unwrap_or(usize::MAX);
        let census =
            Census { now, generation, children: &children, queue, answered: totals.requests };
        let limits = Limits {
            threads: 1,
            min_spare: self.application.bounds.min_spare,
            max_spare: self.application.bounds.max_spare,
            children: most.workers,
            slots: most.workers,
        };
        let decision = self.law.decide(&census, &limits);
        let mut supply = children.iter().filter(|child| child.stage != Stage::Draining).count();
        let min_spare = self.application.bounds.min_spare;
        let taken: HashSet<u32> = match decision.fork > 0 || self.zygotes.len() > 1 {
            true => {
                let all = self.zygotes.iter().chain(&self.orphaned);
                all.flat_map(Zygote::places).collect()
            }
            false => HashSet::new(),
        };
        if let Some(zygote) = ready.and_then(|at| self.zygotes.get_mut(at)) {
            // A renewal brings as many workers as work, whatever the old zygote has.
            let renewed = match zygote.is_empty() && ready > Some(0) {
                true => usize::try_from(busy).unwrap_or(0).saturating_add(min_spare).max(1),
                false => 0,
            };
            for _ in 0..decision.fork.max(renewed.min(most.workers)) {
                self.next_id += 1;
                supply += 1;
                let place = free_place(&mut self.next_place, &taken);
                if let Err(error) = zygote.fork(self.next_id, place, now_us) {
                    let name = &self.application.name;
                    let text = format!("pool {name}: a worker could not be forked");
                    notices.push(Notice::own("php", Level::Error, text).because(&error));
                    break;
                }
            }
        }
        for zygote in &mut self.zygotes {
            supply -= zygote.drain(&decision.park, now_us).min(supply);
        }
        self.finish_renewal(ready);
        self.rest(line, now_us);
        for zygote in self.zygotes.iter_mut().filter(|zygote| zygote.is_spent()) {
            zygote.let_go(set);
        }
        line.set(Figure::Supply, supply as u64);
        let newest = self.zygotes.last().map_or(0, |it| it.pid.as_raw_nonzero().get());
        line.set(Figure::Zygote, u64::try_from(newest).unwrap_or_default());
        let is_moving = now_us.saturating_sub(self.active_us) < REST_US
            || children.iter().any(|child| child.stage == Stage::Starting)
            || !self.orphaned.is_empty()
            || self.zygotes.iter().any(|zygote| !zygote.is_ready() || zygote.is_ending());
        self.next_us = now_us.saturating_add(if is_moving { TICK_US } else { REST_US });
        if queue > 0 && self.rest_until_us > now_us {
            self.next_us = self.next_us.min(self.rest_until_us);
        }
    }

    /// Continues or ends stopped zygotes. A script can stop the zygote, which has the same user.
    fn keep_going(&mut self, now_us: u64, notices: &mut Vec<Notice>) {
        for zygote in &mut self.zygotes {
            if let Some(done) = zygote.keep_going(now_us) {
                let (name, pid) = (&self.application.name, zygote.pid.as_raw_nonzero());
                let text = format!("pool {name}: the zygote (pid {pid}) {done}");
                notices.push(Notice::own("php", Level::Error, text));
            }
        }
    }

    /// Forgets workers without a zygote that have ended, and names those that died in a request.
    fn bury(&mut self, pool: &Pool, notices: &mut Vec<Notice>) {
        for zygote in &mut self.orphaned {
            for death in zygote.bury() {
                self.costs.retire(&death.page);
                death.forget_claims(&pool.claims);
                if death.was_busy() {
                    pool.line.add(Figure::Deaths, 1);
                    notices.push(of_death(&self.application.name, &death));
                }
            }
        }
        self.orphaned.retain(|zygote| !zygote.is_empty());
    }

    /// Starts a zygote if requests come and there is none, or for a renewal.
    fn start_zygote(
        &mut self,
        pool: &Pool,
        set: &Epoll,
        is_asked: bool,
        now_us: u64,
        notices: &mut Vec<Notice>,
    ) {
        let is_starting = self.zygotes.iter().any(|zygote| !zygote.is_ready());
        for zygote in self.zygotes.iter().filter(|zygote| !zygote.is_ready()) {
            if now_us.saturating_sub(zygote.started_us) > START_US {
                zygote.kill();
            }
        }
        let lacks = is_asked && self.zygotes.iter().all(Zygote::is_ending);
        let waits = now_us < self.wait_until_us.max(self.rest_until_us);
        if is_starting || waits || !(lacks || self.renews) {
            return;
        }
        self.renews = false;
        let (Some(listener), Some(nudge)) = (&self.listener, &self.nudge) else { return };
        let slow_log = self.application.bounds.slow.as_ref().and_then(|(_, path)| {
            open_log(path)
                .inspect_err(|error| {
                    let name = &self.application.name;
                    let text = format!("pool {name}: AppSlowLog {} is not kept", path.display());
                    notices.push(Notice::own("php", Level::Error, text).because(error));
                })
                .ok()
        });
        let shared = (&pool.secret, &*pool.claims, nudge);
        let started = Zygote::start(&self.application, listener, shared, slow_log, now_us);
        let started = started.and_then(|zygote| {
            zygote.watch(set)?;
            Ok(zygote)
        });
        match started {
            Ok(zygote) => {
                pool.line.set(Figure::DownUntilUs, 0);
                self.zygotes.push(zygote);
            }
            Err(error) => {
                let Application { name, program, .. } = &self.application;
                let text = format!("pool {name}: {} cannot be started", program.display());
                notices.push(Notice::own("php", Level::Error, text).because(&error));
                self.fail(&pool.line, now_us);
            }
        }
    }

    /// Ends the old zygotes once the new one has as many workers as they had work.
    fn finish_renewal(&mut self, ready: Option<usize>) {
        let Some(ready) = ready else { return };
        let (old, new) = self.zygotes.split_at_mut_checked(ready).unwrap_or_default();
        let serving = new.first().map_or(0, Zygote::serving);
        let busy: usize = old.iter().map(Zygote::busy).sum();
        if serving > 0 && serving >= busy.min(self.application.bounds.max_spare.max(1)) {
            old.iter_mut().for_each(Zygote::end);
        }
    }

    /// Ends everything after a long time without a request.
    fn rest(&mut self, line: &ApplicationLine, now_us: u64) {
        let idle_us = now_us.saturating_sub(self.active_us);
        let most_us = self.application.bounds.idle_timeout.as_micros();
        if u128::from(idle_us) >= most_us && line.read(Figure::InFlight) == 0 {
            self.zygotes.iter_mut().for_each(Zygote::end);
        }
    }
}

/// The next place for claims that no worker has. It is used again as late as possible, because
/// whoever has claimed a worker that has died looks for the claim there. A worker without a place,
/// where all are taken, is not claimed, and requests reach it by new connections.
fn free_place(next: &mut u32, taken: &HashSet<u32>) -> u32 {
    for _ in 0..MOST_PLACES {
        let place = *next;
        *next = (place + 1) % MOST_PLACES;
        if !taken.contains(&place) {
            return place;
        }
    }
    u32::MAX
}

/// Opens a log for appending.
///
/// # Errors
/// open(2)'s.
pub fn open_log(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// The end of the line about a dead zygote: the busy workers that it has left, with their scripts.
fn named(left: &[(i32, Vec<u8>)]) -> String {
    let one = |(pid, script): &(i32, Vec<u8>)| format!("pid {pid} in {}", quoted(script));
    let more = left.len().saturating_sub(MOST_NAMED);
    let mut names: Vec<String> = left.iter().take(MOST_NAMED).map(one).collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    match names.is_empty() {
        true => String::new(),
        false => format!("; its workers finish their requests: {}", names.join(", ")),
    }
}

fn of_death(pool: &str, death: &Death) -> Notice {
    let script = match death.script.is_empty() {
        true => String::from("before its first request"),
        false if death.was_busy() => format!("in {}", quoted(&death.script)),
        false => format!("after {}", quoted(&death.script)),
    };
    let text = format!("pool {pool}: the worker (pid {}) {} {script}", death.pid, death.how());
    Notice::own("php", Level::Error, text)
}
