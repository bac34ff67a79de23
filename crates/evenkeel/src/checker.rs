//! The parent's side of the process that checks the members of balancers: starts it for a site that
//! has such members, and starts it again when it dies. It ends when another configuration is
//! served, and when the parent ends.

use crate::server::Running;
use evenkeel_logging::{ErrorLogs, Origin};
use evenkeel_message::{Level, Notice, Told};
use evenkeel_mpm::{Settings, auxiliary};
use evenkeel_pipeline::{Site, check_balancers};
use evenkeel_sys::clock;
use evenkeel_sys::process::{self, End, Pid};
use evenkeel_sys::signal::Signal;
use std::io;
use std::sync::Arc;

/// A checker that ends sooner than this after its start has died early. The next one waits until
/// this time is over.
const SHORTEST_LIFE_US: u64 = 1_000_000;

/// The checker of the site that is served.
pub struct Checker {
    site: Arc<Site>,
    errors: Arc<ErrorLogs>,
    settings: Settings,
    /// The process that ends the checker: a forked copy of it must not.
    parent: Pid,
    pid: Option<Pid>,
    started_us: u64,
}

impl Checker {
    /// Starts the checker of a site whose logs are open. `None` if nothing of it can be checked.
    ///
    /// # Errors
    /// Those of fork(2).
    pub fn start(running: &Running, settings: &Settings) -> io::Result<Option<Self>> {
        let Some((_, errors)) = running.logs().filter(|_| running.site.checks_members()) else {
            return Ok(None);
        };
        let (site, settings) = (Arc::clone(&running.site), settings.clone());
        let parent = process::own_pid();
        let mut checker = Self { site, errors, settings, parent, pid: None, started_us: 0 };
        checker.fork()?;
        Ok(Some(checker))
    }

    fn fork(&mut self) -> io::Result<()> {
        self.started_us = clock::monotonic_us();
        let kept = self.errors.descriptors();
        let pid =
            auxiliary::start(&self.settings, "health checks", &kept, |prepared| {
                match prepared.and_then(|()| self.check()) {
                    Ok(()) => 0,
                    Err(error) => {
                        let text = "the process that checks members of balancers cannot work";
                        let notice = Notice::own("proxy_hcheck", Level::Error, text.to_owned());
                        self.errors.write_plain(&notice.because(&error));
                        1
                    }
                }
            })?;
        self.pid = Some(pid);
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        let (site, errors) = (Arc::clone(&self.site), Arc::clone(&self.errors));
        let tell = move |server: usize, notice: &Notice| {
            let core = &site.server(server).settings.core;
            if core.is_logged(None, notice.module, notice.level) {
                errors.write(server, notice, &Origin::default(), &mut Told::default());
            }
        };
        check_balancers(&self.site, Box::new(tell))
    }

    /// Handles the end of a process. Returns a notice if it was the checker.
    pub fn ended(&mut self, pid: Pid, end: End) -> Option<Notice> {
        self.pid.take_if(|own| *own == pid)?;
        let how = match end {
            End::Exited(status) => format!("exited with status {status}"),
            End::Killed { signal, .. } => format!("was killed by signal {signal}"),
        };
        let text = format!(
            "the process that checks members of balancers (pid {}) {how}; it is started again",
            pid.as_raw_nonzero()
        );
        Some(Notice::own("proxy_hcheck", Level::Error, text))
    }

    /// Starts a checker that has died again, once it is due. The notice is for the error log.
    pub fn turn(&mut self) -> Option<Notice> {
        let due_us = self.started_us.saturating_add(SHORTEST_LIFE_US);
        if self.pid.is_some() || clock::monotonic_us() < due_us {
            return None;
        }
        let error = self.fork().err()?;
        let text = "the process that checks members of balancers cannot be started".to_owned();
        Some(Notice::own("proxy_hcheck", Level::Error, text).because(&error))
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        if let Some(pid) = self.pid.filter(|_| process::own_pid() == self.parent) {
            // It may have ended.
            let _ended = process::kill(pid, Signal::Terminate);
        }
    }
}
