//! Health checks of the members of balancers, in the process that the parent starts for them
//! (mod_proxy_hcheck). A [`CheckPlan`] says which checks are due and learns their results;
//! [`run_checks`] connects, asks and waits. Each check has its own connection, and a deadline.

use crate::connect::{Patience, connect};
use crate::origin::{OriginAsk, ask_origin};
use crate::origin_failure::OriginFailure;
use crate::origin_stream::Tls;
use crate::places::Place;
use evenkeel_message::{Body, Departure, MayWait, Target};
use evenkeel_proto::{OriginHead, OriginLimits};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::clock;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_local;
use tokio::time::timeout;

/// The bytes of a body that a condition sees. The rest is not read.
const MOST_BODY: usize = 64 << 10;

/// The longest time between two looks at the plan, in which a change by the balancer-manager acts.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The threads that resolve names.
const RESOLVERS: usize = 8;

/// Which checks are due, and what becomes of their results.
pub trait CheckPlan {
    /// The most checks at a time; at least one.
    fn most(&self) -> usize;

    /// Passes each check that is due at this time to `begin`, once. Returns when the next one is.
    /// Times are microseconds of the monotonic clock.
    fn begin(&self, now_us: u64, begin: &mut dyn FnMut(CheckOrder)) -> u64;

    /// A check has ended.
    fn end(&self, id: usize, result: CheckResult);
}

/// A check that is due.
pub struct CheckOrder {
    /// The number by which the plan knows it.
    pub id: usize,
    /// The server.
    pub target: Arc<Target>,
    /// The timeouts. Together they are the deadline of the check.
    pub patience: Patience,
    /// What is asked over HTTP; none if a connection is enough.
    pub request: Option<CheckRequest>,
}

/// The request of a check.
pub struct CheckRequest {
    /// Its head.
    pub head: Vec<u8>,
    /// Whether the method is HEAD.
    pub is_head: bool,
    /// Whether the body of the response is read.
    pub reads_body: bool,
    /// The TLS of the connection; none in clear text.
    pub tls: Option<Tls>,
}

/// The response to the request of a check.
#[derive(Debug)]
pub struct CheckAnswer {
    /// The head.
    pub head: OriginHead,
    /// The beginning of the body.
    pub body: Vec<u8>,
    /// When it had come, in microseconds since 1970.
    pub time_us: u64,
}

/// What a check has found: the response, if one was asked for.
pub type CheckResult = Result<Option<CheckAnswer>, CheckFailure>;

/// Why a check has found nothing.
#[derive(Debug)]
pub enum CheckFailure {
    /// The server cannot be reached or has failed.
    Origin(OriginFailure),
    /// The body of the response has ended before its end.
    Body(io::Error),
    /// The deadline has passed.
    Late,
}

/// Checks for ever. The calling process has no runtime.
///
/// # Errors
/// The runtime cannot be built.
pub fn run_checks(plan: Rc<dyn CheckPlan>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(run(plan));
    Ok(())
}

async fn run(plan: Rc<dyn CheckPlan>) {
    let blocking_pool = Arc::new(BlockingPool::new(RESOLVERS));
    let free = Arc::new(Semaphore::new(plan.most().max(1)));
    let ended = Rc::new(Notify::new());
    loop {
        let now_us = clock::monotonic_us();
        let next_us = plan.begin(now_us, &mut |order| {
            let (plan, ended) = (Rc::clone(&plan), Rc::clone(&ended));
            let (free, blocking_pool) = (Arc::clone(&free), Arc::clone(&blocking_pool));
            spawn_local(async move {
                let permit = free.acquire_owned().await;
                let id = order.id;
                let deadline = order.patience.connect.saturating_add(order.patience.silence);
                let result = timeout(deadline, check(order, &blocking_pool)).await;
                drop(permit);
                plan.end(id, result.unwrap_or(Err(CheckFailure::Late)));
                ended.notify_one();
            });
        });
        let rest = Duration::from_micros(next_us.saturating_sub(clock::monotonic_us()));
        // The next check of a member may be due before those of the others.
        let _early = timeout(rest.min(LONGEST_REST), ended.notified()).await;
    }
}

async fn check(order: CheckOrder, blocking_pool: &Arc<BlockingPool>) -> CheckResult {
    let CheckOrder { target, patience, request, .. } = order;
    let Some(CheckRequest { head, is_head, reads_body, tls }) = request else {
        let connected = connect(&target.address, patience.connect, blocking_pool).await;
        return match connected {
            Ok(_) => Ok(None),
            Err(kind) => {
                let kind = crate::origin::unreachable(kind);
                Err(CheckFailure::Origin(OriginFailure { kind, target, upload: None }))
            }
        };
    };
    let ask = OriginAsk {
        target,
        tls,
        first: head,
        upload: None,
        is_head,
        is_idempotent: true,
        upgrade: None,
        keeps: false,
        ttl: None,
        limits: OriginLimits::default(),
        patience,
        place: Place::default(),
        path: Vec::new(),
        guard: None,
        member: None,
    };
    let departure = Departure::detached();
    let (may_wait, late) = (MayWait::in_task(), Rc::default());
    let interim = &mut |_: &OriginHead| {};
    let asked = ask_origin(&may_wait, ask, blocking_pool, &departure, interim, &late);
    let answered = asked.await.map_err(CheckFailure::Origin)?;
    let body = match reads_body {
        true => read(answered.body).await.map_err(CheckFailure::Body)?,
        false => Vec::new(),
    };
    Ok(Some(CheckAnswer { head: answered.head, body, time_us: clock::realtime_us() }))
}

/// Reads the beginning of a body.
async fn read(body: Body) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    match body {
        Body::Empty => {}
        Body::Bytes(bytes) => read.extend_from_slice(&bytes),
        Body::Stream(mut source, _) => {
            while read.len() < MOST_BODY {
                match poll_fn(|context| source.as_mut().poll_chunk(context)).await {
                    Some(chunk) => read.extend_from_slice(&chunk?),
                    None => break,
                }
            }
        }
        Body::File(_) | Body::Pieces(_) => return Err(ErrorKind::Unsupported.into()),
    }
    read.truncate(MOST_BODY);
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::path::Path;

    fn in_runtime<T>(of: impl Future<Output = T>) -> T {
        let builder = Builder::new_current_thread().enable_all().build_local(Default::default());
        builder.unwrap().block_on(of)
    }

    fn order(port: u16, request: Option<&str>, patience: Duration) -> CheckOrder {
        let target = Target::parse(&format!("http://127.0.0.1:{port}"), Path::new("/")).unwrap();
        let request = request.map(|line| CheckRequest {
            head: format!("{line} HTTP/1.0\r\nHost: a\r\n\r\n").into_bytes(),
            is_head: line.starts_with("HEAD"),
            reads_body: line.starts_with("GET"),
            tls: None,
        });
        let patience = Patience { connect: patience, silence: patience, queue: None };
        CheckOrder { id: 0, target: Arc::new(target), patience, request }
    }

    /// A server that gives each connection this answer.
    fn server(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let _ = stream.write_all(answer.as_bytes());
                if answer.is_empty() {
                    // Until the other side closes.
                    let _closed = lines.next();
                }
            }
        });
        port
    }

    const LONG: Duration = Duration::from_secs(60);

    fn checked(order: CheckOrder) -> CheckResult {
        let pool = Arc::new(BlockingPool::new(1));
        in_runtime(check(order, &pool))
    }

    #[test]
    fn a_response_is_read_as_far_as_its_method_and_its_framing_say() {
        let port = server("HTTP/1.1 503 No\r\nX: y\r\nContent-Length: 4\r\n\r\nbodybehind");
        let of = |line| checked(order(port, Some(line), LONG)).unwrap().unwrap();
        let got = of("GET /a");
        assert_eq!((got.head.status, &*got.body), (503, &b"body"[..]));
        assert_eq!(of("OPTIONS *").body, b"");
        assert_eq!(of("HEAD /a").body, b"");
        assert!(checked(order(port, None, LONG)).unwrap().is_none());
        let cut = server("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody");
        assert!(matches!(
            checked(order(cut, Some("GET /"), LONG)),
            Err(CheckFailure::Body(_) | CheckFailure::Origin(_))
        ));
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(matches!(checked(order(free, None, LONG)), Err(CheckFailure::Origin(_))));
    }

    /// A plan of two checks, one of a server that is silent.
    struct Two {
        orders: RefCell<Vec<CheckOrder>>,
        ended: RefCell<Vec<(usize, bool)>>,
        all: Notify,
    }

    impl CheckPlan for Two {
        fn most(&self) -> usize {
            2
        }

        fn begin(&self, now_us: u64, begin: &mut dyn FnMut(CheckOrder)) -> u64 {
            self.orders.take().into_iter().for_each(begin);
            now_us + 1_000_000
        }

        fn end(&self, id: usize, result: CheckResult) {
            self.ended.borrow_mut().push((id, result.is_ok()));
            if self.ended.borrow().len() == 2 {
                self.all.notify_one();
            }
        }
    }

    #[test]
    fn a_silent_server_holds_up_no_other_check_and_is_given_up() {
        let silent = order(server(""), Some("GET /"), Duration::from_millis(50));
        let sound = server("HTTP/1.0 200 OK\r\n\r\n");
        let sound = CheckOrder { id: 1, ..order(sound, Some("GET /"), LONG) };
        let plan = Rc::new(Two {
            orders: RefCell::new(vec![silent, sound]),
            ended: RefCell::default(),
            all: Notify::new(),
        });
        in_runtime(async {
            tokio::select! {
                () = run(Rc::clone(&plan) as Rc<dyn CheckPlan>) => {}
                () = plan.all.notified() => {}
            }
        });
        let mut ended = plan.ended.take();
        ended.sort_unstable();
        assert_eq!(ended, [(0, false), (1, true)]);
    }
}
