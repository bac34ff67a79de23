//! FastCGI programs that serve requests one after another (mod_fcgid). The launcher starts the
//! processes of a class, each with a listening socket of its own, and lends one to a request: it
//! connects to the process and passes the connection to the serving child. Requests that find no
//! process wait in the order in which they came. The control socket stands for the loan: a serving
//! child that closes it without a word has not read the whole response, and the process is ended,
//! because it may still work on the request.

use evenkeel_sys::connect::{Local, Remote, begin};
use evenkeel_sys::process;
use evenkeel_sys::process::Pid;
use evenkeel_sys::service::Folder;
use evenkeel_sys::spawn::{
    Order, Service, Standard, end_of_process, kill_group, receive_control, send_connection,
    send_control, spawn, terminate_group,
};
use evenkeel_sys::watch::Watch;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

use super::{DONE, TERMINATION};

/// A process that ends sooner without having served a request has died young.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

/// After so many early deaths in a row, requests are refused for a while.
const MOST_YOUNG_DEATHS: u32 = 4;

/// For how long.
const RECOVERY: Duration = Duration::from_secs(1);

/// The time between two attempts to start a process while other classes have as many as there may
/// be.
const AGAIN: Duration = Duration::from_millis(50);

/// EAGAIN and ETIMEDOUT of Linux, by which a request learns why it gets no process.
const NO_PROCESS: i32 = 11;
const TIMED_OUT: i32 = 110;

/// The classes of FastCGI programs.
#[derive(Default)]
pub(super) struct Services {
    classes: RefCell<HashMap<Vec<u8>, Rc<Class>>>,
    /// Where the sockets are; made for the first process.
    folder: RefCell<Option<Folder>>,
    /// Processes of all classes.
    count: Cell<u64>,
    next: Cell<u64>,
    /// Told when a process has ended.
    ended: Notify,
}

/// The processes of one program.
struct Class {
    /// One permit for each process that there may be, given in the order of the requests.
    turns: Arc<Semaphore>,
    /// Those that wait for a request; the one that worked last is at the end.
    idle: RefCell<Vec<Rc<Process>>>,
    count: Cell<u64>,
    young_deaths: Cell<u32>,
    refuses_until: Cell<Option<Instant>>,
}

/// A process.
struct Process {
    pid: Pid,
    path: PathBuf,
    started: Instant,
    served: Cell<u64>,
    /// How often it was lent, so that a timer of an earlier rest does nothing.
    loans: Cell<u64>,
    has_ended: Cell<bool>,
    end: Notify,
}

impl Services {
    /// Lends a process to a request until its end. Returns when the loan is over.
    pub(super) async fn lend(self: &Rc<Self>, order: Order, control: OwnedFd) {
        let Some(service) = order.service.clone() else { return };
        let class = self.class(&service);
        let Ok(control) = Watch::owned(control) else { return };
        let patience = millis(service.patience_ms);
        let found = tokio::select! {
            biased;
            _ = told(&control) => return,
            found = timeout(patience, self.take(&class, &order, &service)) => found,
        };
        let (process, turn) = match found.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
            Ok(found) => found,
            Err(error) => {
                let number = match error.kind() {
                    ErrorKind::TimedOut => TIMED_OUT,
                    _ => error.raw_os_error().unwrap_or(NO_PROCESS),
                };
                return send_control(control.descriptor(), &number.to_le_bytes());
            }
        };
        let connected = begin(&Remote::Unix(process.path.clone()), &Local::default());
        let sent = connected.and_then(|socket| send_connection(control.descriptor(), &socket));
        if let Err(error) = sent {
            let number = error.raw_os_error().unwrap_or(NO_PROCESS);
            send_control(control.descriptor(), &number.to_le_bytes());
            self.end(&class, &process);
            return;
        }
        let is_done = tokio::select! {
            biased;
            said = told(&control) => said == DONE,
            () = process.ended() => false,
            () = sleep(millis(service.busy_ms)) => false,
        };
        process.served.set(process.served.get() + 1);
        let is_spent = service.most_requests > 0 && process.served.get() >= service.most_requests;
        let is_old = service.life_ms > 0 && process.started.elapsed() > millis(service.life_ms);
        if !is_done || is_spent || (is_old && class.count.get() > service.least) {
            self.end(&class, &process);
        } else {
            self.rest(&class, process, &service);
        }
        drop(turn);
    }

    /// Ends all processes.
    pub(super) async fn close(&self) {
        let classes: Vec<_> = self.classes.borrow().values().cloned().collect();
        for class in classes {
            let idle = std::mem::take(&mut *class.idle.borrow_mut());
            idle.iter().for_each(|process| terminate_group(process.pid));
            for process in idle {
                let _late = timeout(TERMINATION, process.ended()).await;
                if !process.has_ended.get() {
                    kill_group(process.pid);
                }
            }
        }
        let none_left = async {
            while self.count.get() > 0 {
                self.ended.notified().await;
            }
        };
        let _late = timeout(TERMINATION * 2, none_left).await;
        self.folder.take();
    }

    fn class(&self, service: &Service) -> Rc<Class> {
        let most = service.most.max(1) as usize;
        let new = || {
            Rc::new(Class {
                turns: Arc::new(Semaphore::new(most)),
                idle: RefCell::default(),
                count: Cell::default(),
                young_deaths: Cell::default(),
                refuses_until: Cell::default(),
            })
        };
        Rc::clone(self.classes.borrow_mut().entry(service.class.clone()).or_insert_with(new))
    }

    /// Waits for the turn of a request, and takes a process that is idle or starts one.
    async fn take(
        self: &Rc<Self>,
        class: &Rc<Class>,
        order: &Order,
        service: &Service,
    ) -> io::Result<(Rc<Process>, OwnedSemaphorePermit)> {
        let closed = |_| io::Error::from(ErrorKind::NotConnected);
        let turn = Arc::clone(&class.turns).acquire_owned().await.map_err(closed)?;
        loop {
            let idle = class.idle.borrow_mut().pop();
            if let Some(process) = idle {
                if process.has_ended.get() {
                    continue;
                }
                process.loans.set(process.loans.get() + 1);
                return Ok((process, turn));
            }
            if class.refuses_until.get().is_some_and(|until| Instant::now() < until) {
                return Err(io::Error::from_raw_os_error(NO_PROCESS));
            }
            if self.count.get() < service.most_of_all || self.make_room(class) {
                return Ok((self.start(class, order)?, turn));
            }
            sleep(AGAIN).await;
        }
    }

    /// Ends an idle process of another class. Returns whether there is one.
    fn make_room(&self, class: &Rc<Class>) -> bool {
        let classes: Vec<_> = self.classes.borrow().values().cloned().collect();
        let others = classes.iter().filter(|other| !Rc::ptr_eq(other, class));
        let mut rested = others.filter(|other| !other.idle.borrow().is_empty());
        let Some(other) = rested.next() else { return false };
        let process = other.idle.borrow_mut().remove(0);
        terminate_group(process.pid);
        true
    }

    fn start(self: &Rc<Self>, class: &Rc<Class>, order: &Order) -> io::Result<Rc<Process>> {
        let number = self.next.replace(self.next.get() + 1);
        let mut folder = self.folder.borrow_mut();
        let folder = match &mut *folder {
            Some(folder) => folder,
            none => none.insert(Folder::new()?),
        };
        let (path, listener) = folder.listen(number)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        // Standard error of the launcher is the error log.
        let error = io::stderr().as_fd().try_clone_to_owned()?;
        let standard = Standard { input: listener, output: null.into(), error };
        let pid = spawn(order, standard).inspect_err(|_| {
            let _gone = std::fs::remove_file(&path);
        })?;
        let process = Rc::new(Process {
            pid,
            path,
            started: Instant::now(),
            served: Cell::default(),
            loans: Cell::new(1),
            has_ended: Cell::default(),
            end: Notify::new(),
        });
        self.count.set(self.count.get() + 1);
        class.count.set(class.count.get() + 1);
        spawn_local(Rc::clone(self).reap(Rc::clone(class), Rc::clone(&process)));
        Ok(process)
    }

    /// Waits for the end of a process.
    async fn reap(self: Rc<Self>, class: Rc<Class>, process: Rc<Process>) {
        match end_of_process(process.pid).and_then(Watch::owned) {
            Ok(end) => {
                let _ended = poll_fn(|context| end.poll_readable(context).map(drop)).await;
            }
            Err(_) => kill_group(process.pid),
        }
        // What it has started ends with it, before its number can be that of another group.
        kill_group(process.pid);
        let _end = process::wait(process.pid);
        let _gone = std::fs::remove_file(&process.path);
        process.has_ended.set(true);
        process.end.notify_waiters();
        class.idle.borrow_mut().retain(|other| !Rc::ptr_eq(other, &process));
        class.count.set(class.count.get() - 1);
        self.count.set(self.count.get() - 1);
        let is_young = process.started.elapsed() < SHORTEST_LIFE && process.served.get() == 0;
        let deaths = if is_young { class.young_deaths.get() + 1 } else { 0 };
        class.young_deaths.set(deaths);
        if deaths >= MOST_YOUNG_DEATHS {
            class.refuses_until.set(Some(Instant::now() + RECOVERY));
        }
        self.ended.notify_waiters();
    }

    /// Puts a process back, and ends it when it has rested for too long.
    fn rest(self: &Rc<Self>, class: &Rc<Class>, process: Rc<Process>, service: &Service) {
        let loans = process.loans.get();
        class.idle.borrow_mut().push(Rc::clone(&process));
        if service.idle_ms == 0 {
            return;
        }
        let (own, class, least) = (Rc::clone(self), Rc::clone(class), service.least);
        let idle = millis(service.idle_ms);
        spawn_local(async move {
            sleep(idle).await;
            let rests = process.loans.get() == loans && !process.has_ended.get();
            if rests && class.count.get() > least {
                own.end(&class, &process);
            }
        });
    }

    /// Ends a process.
    fn end(self: &Rc<Self>, class: &Rc<Class>, process: &Rc<Process>) {
        class.idle.borrow_mut().retain(|other| !Rc::ptr_eq(other, process));
        if process.has_ended.get() {
            return;
        }
        terminate_group(process.pid);
        let process = Rc::clone(process);
        spawn_local(async move {
            if timeout(TERMINATION, process.ended()).await.is_err() && !process.has_ended.get() {
                kill_group(process.pid);
            }
        });
    }
}

impl Process {
    async fn ended(&self) {
        let mut end = std::pin::pin!(self.end.notified());
        // From here on a notice is not missed.
        end.as_mut().enable();
        if !self.has_ended.get() {
            end.await;
        }
    }
}

/// What the sender says on its control socket; nothing if it has closed it.
async fn told(control: &Watch) -> Vec<u8> {
    let said = poll_fn(|context| {
        let said = control.poll_read(context, |socket| {
            receive_control(socket).ok_or_else(|| ErrorKind::WouldBlock.into())
        });
        said.map(Result::unwrap_or_default)
    });
    said.await
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
