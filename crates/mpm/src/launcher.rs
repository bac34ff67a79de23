//! The launcher: a child without threads that starts the programs of requests (CGI) for the serving
//! children. The parent forks it with [`start`]. Each serving child sends it orders
//! (`sys/src/spawn.rs`) on a socket that all children share, with a control socket for each
//! program. If the sender closes the control socket before it has read the whole output, the
//! program's process group is ended, also when its leader has ended. Processes of the group that
//! live on after the whole output was read are left alone, as Apache does: a program may start a
//! job that gives up the output.

mod answering;
mod services;

use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use evenkeel_sys::identity;
use evenkeel_sys::process::{self, Pid, Side};
use evenkeel_sys::signal;
use evenkeel_sys::spawn::{
    Arrival, Order, Standard, end_of_process, kill_group, receive_control, receive_order,
    send_control, spawn, terminate_group,
};
use evenkeel_sys::watch::Watch;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::detach;
use crate::oom_score::OomScore;
use crate::settings::Settings;
use answering::Answering;
use services::Services;

/// The time between SIGTERM and SIGKILL (apr_pools.c: TIMEOUT_USECS).
const TERMINATION: Duration = Duration::from_secs(3);

/// The time in which a program must end after the last byte of its output was read.
const FAREWELL: Duration = Duration::from_secs(1);

/// The control message of a sender that has read the whole output of its program.
pub const DONE: &[u8] = b"done";

/// Starts a launcher that receives orders on `orders`, with the identity of the children. It ends
/// when all other ends of the socket are closed and its programs have ended. Only a process with
/// one thread may call it; errors are fork(2)'s.
pub fn start(settings: &Settings, orders: OwnedFd) -> io::Result<Pid> {
    let score = OomScore::for_children();
    match process::fork()? {
        Side::Parent(pid) => Ok(pid),
        Side::Child => process::run_alone(orders, |orders| {
            score.apply();
            process::name_thread("launcher");
            match prepare(settings).and_then(|()| serve(orders)) {
                Ok(()) => 0,
                Err(error) => {
                    // Standard error is the error log.
                    let text = format!("the launcher of CGI programs cannot work: {error}\n");
                    let _unwritten = io::stderr().write_all(text.as_bytes());
                    1
                }
            }
        }),
    }
}

/// Leaves the terminal, the caller's standard input and output and its folder, and takes the
/// identity of the children. Programs begin with the default dispositions of signals, none blocked.
fn prepare(settings: &Settings) -> io::Result<()> {
    process::leave_terminal()?;
    detach::leave_caller()?;
    signal::unblock_all()?;
    if let Some(folder) = settings.chroot.as_deref() {
        identity::chroot(folder)?;
    }
    match settings.identity.as_ref().filter(|_| identity::is_root()) {
        Some(identity) => identity::become_user(identity),
        None => Ok(()),
    }
}

fn serve(orders: OwnedFd) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let orders = Watch::owned(orders)?;
        let programs = Rc::new(Programs::default());
        let (answering, services) = (Rc::new(Answering::default()), Rc::new(Services::default()));
        loop {
            let arrived = poll_fn(|context| {
                orders.poll_read(context, |socket| match receive_order(socket)? {
                    Arrival::Empty => Err(io::ErrorKind::WouldBlock.into()),
                    arrival => Ok(arrival),
                })
            });
            match arrived.await? {
                Arrival::Order(order, standard, control) => {
                    let running = Running::new(&programs);
                    let answering = Rc::clone(&answering);
                    let services = Rc::clone(&services);
                    spawn_local(async move {
                        match (&order.question, &order.service) {
                            (Some(_), _) => answering.answer(*order, standard, control).await,
                            (None, Some(_)) => {
                                drop(standard);
                                services.lend(*order, control).await;
                            }
                            (None, None) => run(order, standard, control).await,
                        }
                        drop(running);
                    });
                }
                // The control socket is closed again, by which the sender sees that nothing runs.
                Arrival::Malformed | Arrival::Empty => {}
                Arrival::Closed => break,
            }
        }
        while Rc::strong_count(&programs) > 1 {
            programs.ended.notified().await;
        }
        services.close().await;
        Ok(())
    })
}

/// The programs in progress are counted by the references to this.
#[derive(Default)]
struct Programs {
    ended: Notify,
}

/// A program in progress.
struct Running(Option<Rc<Programs>>);

impl Running {
    fn new(programs: &Rc<Programs>) -> Self {
        Self(Some(Rc::clone(programs)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(programs) = self.0.take() {
            programs.ended.notify_one();
        }
    }
}

/// Starts a program and reaps it. A program that cannot be started is reported to the sender by the
/// number of the system's error.
async fn run(order: Box<Order>, standard: Standard, control: OwnedFd) {
    let started = spawn(&order, standard).and_then(|pid| {
        let end = end_of_process(pid).and_then(Watch::owned).inspect_err(|_| abandon(pid))?;
        Ok((pid, end))
    });
    drop(order);
    let (pid, end) = match started {
        Ok(started) => started,
        Err(error) => {
            let number = error.raw_os_error().unwrap_or_default();
            send_control(control.as_fd(), &number.to_le_bytes());
            return;
        }
    };
    let Ok(control) = Watch::owned(control) else { return abandon(pid) };
    let ended = || poll_fn(|context| end.poll_readable(context).map(drop));
    let told = poll_fn(|context| {
        control.poll_read(context, |socket| {
            receive_control(socket).ok_or_else(|| io::ErrorKind::WouldBlock.into())
        })
    });
    let is_done = told.await.unwrap_or_default() == DONE;
    // The leader is reaped last: until then, no other group has the number of this one.
    if !is_done {
        // Children that hold the output may remain although the leader has ended.
        terminate_group(pid);
        sleep(TERMINATION).await;
        kill_group(pid);
        ended().await;
    } else if timeout(FAREWELL, ended()).await.is_err() {
        terminate_group(pid);
        let _late = timeout(TERMINATION, ended()).await;
        kill_group(pid);
        ended().await;
    }
    let _end = process::wait(pid);
}

/// Ends a program that cannot be watched.
fn abandon(pid: Pid) {
    kill_group(pid);
    let _end = process::wait(pid);
}
