//! Notifies the service manager that started the server of the parent's states (sd_notify(3)).
//! Without one, nothing happens, and an error here never keeps the server from serving.

use std::time::Duration;

use evenkeel_sys::activation::Notifier;
use evenkeel_sys::clock;
use evenkeel_sys::process::Pid;

/// The service manager, if there is one.
#[derive(Default)]
pub(crate) struct Supervisor {
    notifier: Option<Notifier>,
    watchdog: Option<Duration>,
    /// When it is notified again that the parent is alive, in microseconds of the monotonic clock.
    next_us: u64,
}

impl Supervisor {
    pub(crate) fn new(notifier: Option<Notifier>, watchdog: Option<Duration>) -> Self {
        Self { notifier, watchdog, next_us: 0 }
    }

    /// The server serves; `number` is that of its configuration.
    pub(crate) fn ready(&self, number: u32) {
        self.tell(&format!("READY=1\nSTATUS=Serving, configuration {number}\n"));
    }

    /// A new configuration is being read.
    pub(crate) fn reloading(&self) {
        let now_us = clock::monotonic_us();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=Reloading\n"));
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Finishing what is in progress\n");
    }

    /// Another process is the server from now on.
    pub(crate) fn succeeded_by(&self, pid: Pid) {
        self.tell(&format!("MAINPID={}\nREADY=1\n", pid.as_raw_nonzero()));
    }

    /// Called each time the parent wakes.
    pub(crate) fn keep_alive(&mut self, now_us: u64) {
        let Some(watchdog) = self.watchdog else { return };
        if now_us >= self.next_us {
            self.tell("WATCHDOG=1\n");
            // Half the interval, as sd_watchdog_enabled(3) advises.
            let half_us = u64::try_from(watchdog.as_micros() / 2).unwrap_or(u64::MAX);
            self.next_us = now_us.saturating_add(half_us);
        }
    }

    /// When the next notification is due; `None` without a watchdog.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.watchdog.map(|_| self.next_us)
    }

    /// What the program that takes over needs to notify it too.
    pub(crate) fn for_successor(&self) -> (Option<&Notifier>, Option<Duration>) {
        (self.notifier.as_ref(), self.watchdog)
    }

    fn tell(&self, text: &str) {
        if let Some(notifier) = &self.notifier {
            let _nobody_listens = notifier.notify(text);
        }
    }
}
