//! The parent's notices for the error log, with Apache's texts and numbers of each process model
//! where Apache has them.

use std::io;
use std::path::Path;

use evenkeel_message::{Level, Notice};
use evenkeel_sys::process::{self, End, Pid};
use evenkeel_sys::signal;

use crate::limits::Model;
use crate::listeners::as_apr;

/// An event that the parent logs.
pub(crate) enum ParentEvent<'a> {
    /// The server serves, for the first time or again.
    Resuming(&'a str),
    CommandLine(&'a str),
    Stopping,
    StoppingGracefully,
    RestartingGracefully,
    Restarting,
    ForkFailed(&'a io::Error),
    Ended(Pid, End),
    FatalChild(Pid),
    NothingStarts,
    Overdue(Pid),
    /// More children retire than may at a time.
    Surplus(Pid, usize),
    Stalled(Pid),
    StalledReplaced(Pid),
    /// The same, sooner: connections wait, and no child that could accept them is alive.
    StarvingReplaced(Pid),
    /// A child has ended before so many bytes of its log lines were written.
    LinesLost(Pid, usize),
    /// The configured workers exceed the memory: how many of how many bytes each it allows.
    MemoryBinds {
        configured: usize,
        most: usize,
        each: u64,
    },
    /// As many requests as MaxRequestWorkers need a worker.
    WorkersReached,
    /// Children are killed from outside as fast as they are started.
    KilledAgain,
    StalePidFile(&'a str),
    /// The pid file was removed.
    RemovedPidFile(&'a Path),
    UserIgnored,
    Refused,
    Unchanged,
    /// A new program is started beside this one.
    Upgrading,
    Upgraded(Pid),
    NotUpgraded,
    Root(&'a str),
}

impl ParentEvent<'_> {
    /// The notice; `None` for a normal end.
    pub(crate) fn notice(&self, model: Model) -> Option<Notice> {
        let at = |event, worker, prefork| match model {
            Model::Event => event,
            Model::Worker => worker,
            Model::Prefork => prefork,
        };
        let of_model =
            |level, number, text: String| Notice::new(model.module(), level, number, text);
        let own = |level, text: String| Notice::own(model.module(), level, text);
        Some(match *self {
            Self::Resuming(name) => of_model(
                Level::Notice,
                at(489, 292, 163),
                format!("{name} configured -- resuming normal operations"),
            ),
            Self::CommandLine(line) => {
                Notice::new("core", Level::Notice, 94, format!("Command line: '{line}'"))
            }
            Self::Stopping => {
                let text = "caught SIGTERM, shutting down".into();
                of_model(Level::Notice, at(491, 295, 169), text)
            }
            Self::StoppingGracefully => {
                let text = "caught SIGWINCH, shutting down gracefully".into();
                of_model(Level::Notice, at(492, 296, 170), text)
            }
            Self::RestartingGracefully => {
                let text = if model == Model::Prefork {
                    "Graceful restart requested, doing restart"
                } else {
                    "SIGUSR1 received.  Doing graceful restart"
                };
                of_model(Level::Notice, at(493, 297, 171), text.into())
            }
            Self::Restarting => {
                let text = "SIGHUP received.  Attempting to restart".into();
                of_model(Level::Notice, at(494, 298, 173), text)
            }
            Self::ForkFailed(error) => of_model(
                Level::Error,
                at(481, 283, 159),
                format!(
                    "{}: fork: Unable to fork new process{}",
                    as_apr(error),
                    process::descriptor_limit(error)
                ),
            ),
            Self::Ended(pid, end) => return ended(pid, end, model),
            Self::FatalChild(pid) => Notice::new(
                "core",
                Level::Alert,
                50,
                format!("Child {} returned a Fatal error... Apache is exiting!", number(pid)),
            ),
            Self::NothingStarts => of_model(
                Level::Alert,
                at(2324, 2325, 2325),
                "A resource shortage or other unrecoverable failure was encountered before any \
                 child process initialized successfully... httpd is exiting!"
                    .into(),
            ),
            Self::Overdue(pid) => own(
                Level::Warn,
                format!("child pid {} did not end in the time it had, killing it", number(pid)),
            ),
            Self::Surplus(pid, most) => own(
                Level::Warn,
                format!(
                    "child pid {} still serves connections, but only {most} children may retire \
                     at a time (ServerLimit): killing the oldest",
                    number(pid)
                ),
            ),
            Self::Stalled(pid) => {
                own(Level::Error, format!("child pid {} has not come round for 10 s", number(pid)))
            }
            Self::StarvingReplaced(pid) => own(
                Level::Error,
                format!(
                    "child pid {} does not come round while connections wait and no other child \
                     takes them, another takes its place",
                    number(pid)
                ),
            ),
            Self::StalledReplaced(pid) => own(
                Level::Error,
                format!(
                    "child pid {} has not come round for 30 s, another takes its place",
                    number(pid)
                ),
            ),
            Self::LinesLost(pid, lost) => {
                let pid = pid.as_raw_nonzero();
                let text = format!(
                    "{lost} bytes of log lines that child {pid} had not written when it ended \
                     found no room"
                );
                Notice::own("log_config", Level::Error, text)
            }
            Self::MemoryBinds { configured, most, each } => own(
                Level::Warn,
                format!(
                    "MaxRequestWorkers {configured} is more than memory bears: {most} workers of \
                     {} KiB each, and no more are started while that is so",
                    each / 1024
                ),
            ),
            Self::WorkersReached => of_model(
                Level::Error,
                at(484, 286, 161),
                "server reached MaxRequestWorkers setting, consider raising the MaxRequestWorkers \
                 setting"
                    .into(),
            ),
            Self::KilledAgain => own(
                Level::Error,
                "children are killed from outside (SIGKILL) as fast as others take their place, \
                 as the kernel does where memory has run out: the next ones must wait"
                    .into(),
            ),
            Self::RemovedPidFile(path) => {
                let (path, pid) = (path.display(), number(process::own_pid()));
                let text = format!("removed PID file {path} (pid={pid})");
                Notice::new("core", Level::Info, 96, text)
            }
            Self::StalePidFile(path) => Notice::new(
                "core",
                Level::Warn,
                98,
                format!("pid file {path} overwritten -- Unclean shutdown of previous Apache run?"),
            ),
            Self::UserIgnored => own(
                Level::Notice,
                "User and Group are ignored: only root can start children as someone else".into(),
            ),
            Self::Refused => own(
                Level::Error,
                "the new configuration is refused, the server goes on with the old one".into(),
            ),
            Self::Unchanged => own(
                Level::Error,
                "no child of the new configuration came to serve, the server goes on with the \
                 old one"
                    .into(),
            ),
            Self::Upgrading => own(
                Level::Notice,
                "SIGUSR2 received.  Starting the program anew beside this one".into(),
            ),
            Self::Upgraded(pid) => own(
                Level::Notice,
                format!(
                    "process {} serves now, this one ends with its last connection",
                    number(pid)
                ),
            ),
            Self::NotUpgraded => {
                own(Level::Error, "the new program did not come to serve, this one goes on".into())
            }
            Self::Root(what) => own(Level::Crit, what.to_owned()),
        })
    }
}

/// Apache's parent logs nothing for a child killed by SIGKILL (mpm_common.c,
/// ap_process_child_status), which the kernel uses when memory is short; this one does.
fn ended(pid: Pid, end: End, model: Model) -> Option<Notice> {
    let pid = number(pid);
    match end {
        End::Exited(0) => None,
        End::Exited(status) => Some(Notice::own(
            model.module(),
            Level::Error,
            format!("child pid {pid} exited with status {status}"),
        )),
        End::Killed { signal, core_dumped: false } => Some(Notice::new(
            "core",
            Level::Notice,
            52,
            format!("child pid {pid} exit signal {} ({signal})", signal::describe(signal)),
        )),
        End::Killed { signal, core_dumped: true } => Some(Notice::new(
            "core",
            Level::Notice,
            51,
            format!(
                "child pid {pid} exit signal {} ({signal}), possible coredump",
                signal::describe(signal)
            ),
        )),
    }
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &ParentEvent<'_>, model: Model) -> String {
        let notice = event.notice(model).unwrap();
        format!("[{}] AH{:05}: {}", notice.module, notice.number.unwrap_or(0), notice.text)
    }

    #[test]
    fn numbers_follow_the_model() {
        let event = ParentEvent::Resuming("Apache/2.4.71 (Evenkeel)");
        let text = "Apache/2.4.71 (Evenkeel) configured -- resuming normal operations";
        assert_eq!(line(&event, Model::Event), format!("[mpm_event] AH00489: {text}"));
        assert_eq!(line(&event, Model::Worker), format!("[mpm_worker] AH00292: {text}"));
        assert_eq!(line(&event, Model::Prefork), format!("[mpm_prefork] AH00163: {text}"));
        let event = ParentEvent::WorkersReached;
        let text = "server reached MaxRequestWorkers setting, consider raising the \
                    MaxRequestWorkers setting";
        assert_eq!(line(&event, Model::Event), format!("[mpm_event] AH00484: {text}"));
        assert_eq!(line(&event, Model::Worker), format!("[mpm_worker] AH00286: {text}"));
        assert_eq!(line(&event, Model::Prefork), format!("[mpm_prefork] AH00161: {text}"));
    }

    #[test]
    fn a_crash_is_told_and_an_end_in_order_is_not() {
        let pid = Pid::from_raw(42).unwrap();
        let crash = ParentEvent::Ended(pid, End::Killed { signal: 11, core_dumped: false });
        assert_eq!(
            line(&crash, Model::Event),
            "[core] AH00052: child pid 42 exit signal Segmentation fault (11)"
        );
        assert!(ParentEvent::Ended(pid, End::Exited(0)).notice(Model::Event).is_none());
    }
}
