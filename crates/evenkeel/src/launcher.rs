//! The parent's side of the launcher (`mpm/src/launcher.rs`): starts it for a site that runs
//! programs, and starts it again when it dies. The parent keeps both ends of the socket, so that
//! orders which a dead launcher has not received go to the next one.

use evenkeel_message::{Level, Notice};
use evenkeel_mpm::{Settings, launcher};
use evenkeel_sys::clock;
use evenkeel_sys::process::{End, Pid};
use evenkeel_sys::spawn::packet_pair;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A launcher that ends sooner than this after its start has died early.
const SHORTEST_LIFE_US: u64 = 1_000_000;

/// After so many early deaths in a row, the next launcher waits until the shortest life is over.
const FREE_OF_CHARGE: u32 = 3;

/// The launcher of one site.
pub struct Launcher {
    settings: Settings,
    /// The end of the children.
    orders: Arc<OwnedFd>,
    /// The end of the launcher. `None` in a serving child, which must receive no orders.
    received: RefCell<Option<OwnedFd>>,
    pid: Cell<Option<Pid>>,
    started_us: Cell<u64>,
    /// The number of early deaths in a row.
    early_deaths: Cell<u32>,
}

impl Launcher {
    /// Starts a launcher with the identity of these settings. Errors are those of socketpair(2) and
    /// fork(2).
    pub fn start(settings: Settings) -> io::Result<Self> {
        let (orders, received) = packet_pair()?;
        let launcher = Self {
            settings,
            orders: Arc::new(orders),
            received: RefCell::new(Some(received)),
            pid: Cell::default(),
            started_us: Cell::default(),
            early_deaths: Cell::default(),
        };
        launcher.fork()?;
        Ok(launcher)
    }

    fn fork(&self) -> io::Result<()> {
        self.started_us.set(clock::monotonic_us());
        if let Some(received) = &*self.received.borrow() {
            self.pid.set(Some(launcher::start(&self.settings, received.try_clone()?)?));
        }
        Ok(())
    }

    fn due_us(&self) -> u64 {
        self.started_us.get().saturating_add(SHORTEST_LIFE_US)
    }

    /// The socket on which children send orders. Called in a serving child, which gives up the
    /// other end.
    pub fn orders(&self) -> Arc<OwnedFd> {
        self.received.take();
        Arc::clone(&self.orders)
    }

    /// Handles the end of a process. Returns a notice if it was this launcher.
    pub fn ended(&self, pid: Pid, end: End) -> Option<Notice> {
        if self.pid.get() != Some(pid) {
            return None;
        }
        self.pid.set(None);
        let is_early = clock::monotonic_us() < self.due_us();
        self.early_deaths.set(if is_early { self.early_deaths.get().saturating_add(1) } else { 0 });
        let how = match end {
            End::Exited(status) => format!("exited with status {status}"),
            End::Killed { signal, .. } => format!("was killed by signal {signal}"),
        };
        let text = format!(
            "the launcher of CGI programs (pid {}) {how}; it is started again",
            pid.as_raw_nonzero()
        );
        Some(Notice::own("core", Level::Error, text))
    }

    /// Starts a launcher that has died again, once it is due. The notice is for the error log.
    pub fn turn(&self) -> Option<Notice> {
        let waits = self.early_deaths.get() > FREE_OF_CHARGE;
        if self.pid.get().is_some() || (waits && clock::monotonic_us() < self.due_us()) {
            return None;
        }
        let error = self.fork().err()?;
        self.early_deaths.set(FREE_OF_CHARGE + 1);
        let text = "the launcher of CGI programs cannot be started".to_owned();
        Some(Notice::own("core", Level::Error, text).because(&error))
    }
}
