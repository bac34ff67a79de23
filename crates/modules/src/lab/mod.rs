//! mod_lab, a module of this server's own: applications to measure it with. A request for
//! `lab-wait?ms=N` or `lab-burn?ms=N` comes in and is answered after N milliseconds of waiting or
//! of CPU time, one for `lab-gate?ms=N` after N milliseconds at one of few places; it holds its
//! worker as an application would. Off until a bound is configured.

mod gate;

pub use crate::{NoSettings as Directory, NoSettings as Server};

use crate::{Active, Directive, DirectiveResult, Module, Scope, argument, global_directive};
use bytes::Bytes;
use evenkeel_config::{Call, GlobalCall, Shape};
use evenkeel_message::{
    Answer, Body, BodyLength, Departure, Level, MayWait, Notice, ReadAhead, Request, Response,
    Status,
};
pub use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::blocking_pool::Progress;
use evenkeel_sys::clock;
pub use gate::Gate;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// The most that any directive of the lab can ask for: an hour.
const MOST_MS: u64 = 3_600_000;
/// The most places of a gate.
const MOST_PLACES: usize = 10_000;
/// How many rounds of arithmetic pass between two looks at the clock.
const ROUNDS: u64 = 2_000;

/// The bounds of the lab, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// LabMaxWait; 0 where `lab-wait` is off.
    pub max_wait_ms: u64,
    /// LabMaxBurn; 0 where `lab-burn` is off.
    pub max_burn_ms: u64,
    /// LabGatePlaces; none where `lab-gate` is off.
    pub gate: Option<Gate>,
    /// LabEcho: whether `lab-echo` is on.
    pub echo: bool,
    /// LabChildStartDelay: how long a child takes before it serves.
    pub child_start_delay_ms: u64,
}

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    global_directive("LabMaxWait", Shape::One, "0", "The most milliseconds that a request of the handler lab-wait may wait; 0 switches the handler off", max_wait),
    global_directive("LabMaxBurn", Shape::One, "0", "The most milliseconds of CPU time that a request of the handler lab-burn may use; 0 switches the handler off", max_burn),
    global_directive("LabGatePlaces", Shape::One, "0", "How many requests of the handler lab-gate are worked on at once, in all children together, for as long as LabMaxWait lets them; the others wait in line; 0 switches the handler off", gate_places),
    global_directive("LabEcho", Shape::Flag, "off", "Whether the handler lab-echo sends the body of a request back", echo_switch),
    global_directive("LabChildStartDelay", Shape::One, "0", "Milliseconds that every child process waits before it serves", child_start_delay),
];

/// mod_lab.
pub const MODULE: Module = Module {
    file: "mod_lab.c",
    identifier: "lab_module",
    active: Active::Usually,
    page: "mod_lab",
    subject: "Applications to measure this server with; no module of Apache's. The handler \
              `lab-wait` answers `?ms=N` after N milliseconds, `lab-burn` after as much CPU time, \
              `lab-gate` after N milliseconds at one of LabGatePlaces places, for which the \
              requests of all children stand in line; all hold a worker meanwhile. A handler is \
              off until its bound is configured, and refuses with 400 what is beyond it. \
              `lab-echo` (LabEcho) sends the body of the request back as it comes.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn max_wait(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).lab.max_wait_ms = milliseconds("LabMaxWait", call)?;
    Ok(())
}

fn max_burn(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).lab.max_burn_ms = milliseconds("LabMaxBurn", call)?;
    Ok(())
}

fn gate_places(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let places = argument(call, 0).parse().ok().filter(|places| *places <= MOST_PLACES);
    let told = || format!("LabGatePlaces must be a number from 0 to {MOST_PLACES}");
    scope.global_mut(call).lab.gate = match places.ok_or_else(told)? {
        0 => None,
        places => Some(Gate::new(places).map_err(|error| format!("LabGatePlaces: {error}"))?),
    };
    Ok(())
}

fn echo_switch(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).lab.echo = call.flag;
    Ok(())
}

fn child_start_delay(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).lab.child_start_delay_ms = milliseconds("LabChildStartDelay", call)?;
    Ok(())
}

fn milliseconds(name: &str, call: &Call<'_>) -> Result<u64, String> {
    let number = argument(call, 0).parse().ok().filter(|number| *number <= MOST_MS);
    number.ok_or_else(|| format!("{name} must be a number of milliseconds from 0 to {MOST_MS}"))
}

/// Delays a child that starts, as LabChildStartDelay says (Apache's hook child_init).
pub fn init_child(settings: &Global) {
    std::thread::sleep(Duration::from_millis(settings.child_start_delay_ms));
}

/// What a request asks of the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// To wait, as for a database.
    Wait(Duration),
    /// To wait for a place and then at it, as for a database that has few connections.
    Pass(Gate, Duration),
    /// To use CPU time, as a program does that computes its page.
    Burn(Duration),
    /// To send the body of the request back, as it comes.
    Echo,
}

/// What the request asks of the lab; none where its handler is another, or is off.
///
/// # Errors
/// 400 where `ms` is missing, is no number, or is beyond the configured bound.
pub fn wanted(request: &mut Request, bounds: &Global) -> Result<Option<Work>, Answer> {
    let name = request.resource.content.handler.as_deref().unwrap_or_default();
    let most_ms = match name {
        b"lab-wait" => bounds.max_wait_ms,
        b"lab-gate" if bounds.gate.is_some() => bounds.max_wait_ms,
        b"lab-burn" => bounds.max_burn_ms,
        b"lab-echo" if bounds.echo => return Ok(Some(Work::Echo)),
        _ => return Ok(None),
    };
    if most_ms == 0 {
        return Ok(None);
    }
    let asked_ms = parse(request.resource.query.as_deref().unwrap_or_default());
    match asked_ms.filter(|asked_ms| *asked_ms <= most_ms) {
        Some(asked_ms) => {
            let time = Duration::from_millis(asked_ms);
            Ok(Some(match (name, &bounds.gate) {
                (b"lab-burn", _) => Work::Burn(time),
                (b"lab-gate", Some(gate)) => Work::Pass(gate.clone(), time),
                _ => Work::Wait(time),
            }))
        }
        None => {
            let name = String::from_utf8_lossy(name);
            let text = format!("{name} takes ms=0 to ms={most_ms}");
            request.notify(Notice::own("lab", Level::Error, text));
            Err(Status::BAD_REQUEST.into())
        }
    }
}

/// The number of `ms=` in a query string.
fn parse(query: &[u8]) -> Option<u64> {
    let mut words = query.split(|byte| *byte == b'&');
    let digits = words.find_map(|word| word.strip_prefix(b"ms="))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The response whose body is that of the request, with its type. It is read as the client takes
/// it, and a little ahead while the client does not.
fn echo(request: &mut Request) -> Response {
    let mut response = Response::new(request.resource.status);
    let media_type = request.fields().whole("Content-Type");
    let media_type =
        media_type.map_or_else(|| b"application/octet-stream".to_vec(), |it| it.to_vec());
    response.fields.set("Content-Type", media_type);
    let length = match request.head.length {
        BodyLength::Exact(length) => Some(length),
        BodyLength::None | BodyLength::Chunked => None,
    };
    if let Some(body) = request.body.take() {
        response.body = Body::Stream(Box::pin(ReadAhead::new(body)), length);
    }
    response
}

/// Does the work and says what was done, in a response of this status. Waiting takes no thread;
/// burning takes one of those that the process has for work that blocks, in its turn.
///
/// # Errors
/// 503 where no thread can be had, or the client has gone before one or a place was free.
pub async fn perform(
    work: Work,
    request: &mut Request,
    blocking_pool: &BlockingPool,
    _: &MayWait,
) -> Result<Response, Answer> {
    let departure = &*request.departure;
    let text = match work {
        Work::Echo => return Ok(echo(request)),
        Work::Wait(time) => waited(time).await,
        // Thousands wait at a time: they must not have room for what others keep.
        Work::Pass(gate, time) => Box::pin(passed(&gate, time, departure)).await,
        Work::Burn(time) => Box::pin(burned(time, blocking_pool, departure)).await,
    };
    let text = text.ok_or(Status::SERVICE_UNAVAILABLE)?;
    let mut response = Response::new(request.resource.status);
    response.fields.set("Content-Type", "text/plain");
    response.body = Body::Bytes(Bytes::from(text));
    Ok(response)
}

async fn waited(time: Duration) -> Option<String> {
    let began_us = clock::monotonic_us();
    tokio::time::sleep(time).await;
    Some(told(began_us))
}

/// Has a thread burn CPU time; none where there is none, or the client has gone before its turn.
async fn burned(
    time: Duration,
    blocking_pool: &BlockingPool,
    departure: &Departure,
) -> Option<String> {
    let mut burning = blocking_pool.spawn_long("lab-burn", move |progress| burn(time, progress));
    let burned = poll_fn(|context| match Pin::new(&mut burning).poll(context) {
        // What has begun is waited for, and holds its worker as an application would.
        Poll::Pending if departure.is_told() && burning.dequeue() => Poll::Ready(None),
        burned => burned,
    });
    let used_us = burned.await?;
    Some(format!("burned {} ms of CPU time\n", used_us / 1000))
}

/// Waits for a place and at it; none where the client has gone before its turn came.
async fn passed(gate: &Gate, time: Duration, departure: &Departure) -> Option<String> {
    let came_us = clock::monotonic_us();
    let turn = gate.enter(time);
    let until = |then_us: u64| {
        let left_us = then_us.saturating_sub(clock::monotonic_us());
        tokio::time::sleep(Duration::from_micros(left_us))
    };
    let mut line = pin!(until(turn.begins_us));
    let is_gone = poll_fn(|context| match line.as_mut().poll(context) {
        Poll::Pending if departure.is_told() => Poll::Ready(true),
        waited => waited.map(|()| false),
    });
    if is_gone.await {
        return None;
    }
    until(turn.ends_us).await;
    Some(told(came_us))
}

fn told(began_us: u64) -> String {
    let waited_us = clock::monotonic_us().saturating_sub(began_us);
    format!("waited {} ms\n", waited_us / 1000)
}

/// Keeps a core busy until the thread has used so much CPU time; tells how many microseconds it
/// were.
fn burn(time: Duration, progress: &Progress) -> u64 {
    let began_us = clock::thread_cpu_us();
    let wanted_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let mut number = began_us;
    loop {
        for _ in 0..ROUNDS {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
        }
        progress.report();
        let used_us = clock::thread_cpu_us().saturating_sub(began_us);
        if used_us >= wanted_us {
            return used_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_config::{Node, Position};
    use evenkeel_message::{Peer, RequestHead};
    use std::rc::Rc;

    fn request(handler: &str, query: &str) -> Request {
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.content.handler = Some(handler.as_bytes().into());
        request.resource.query = Some(query.into());
        request
    }

    const BOUNDS: Global = Global {
        max_wait_ms: 100,
        max_burn_ms: 0,
        gate: None,
        echo: false,
        child_start_delay_ms: 0,
    };

    #[test]
    fn work_is_bounded_and_off_without_a_bound() {
        let wanted = |handler: &str, query: &str| wanted(&mut request(handler, query), &BOUNDS);
        let ten = Work::Wait(Duration::from_millis(10));
        assert_eq!(wanted("lab-wait", "a=1&ms=10").unwrap(), Some(ten));
        assert_eq!(wanted("lab-burn", "ms=10").unwrap(), None);
        assert_eq!(wanted("lab-gate", "ms=10").unwrap(), None);
        assert_eq!(wanted("other", "ms=10").unwrap(), None);
        for query in ["", "ms=", "ms=-1", "ms=101", "ms=99999999999999999999", "xms=1"] {
            assert!(matches!(wanted("lab-wait", query), Err(Answer::Status(..))), "{query}");
        }
    }

    #[test]
    fn directives_take_milliseconds() {
        let apply = |name: &str, value: &str| {
            let position = Position { file: "t".into(), line: 1 };
            let node = Node { name: name.into(), arguments: value.into(), position, section: None };
            let (tables, mut scope) = (crate::testing::tables(&[MODULE]), Scope::default());
            evenkeel_config::apply(&tables, &[node], &mut scope, &mut Vec::new())
                .map(|()| scope.take_global().lab)
                .map_err(|faults| faults.kept()[0].text.clone())
        };
        assert_eq!(apply("LabMaxWait", "5").unwrap().max_wait_ms, 5);
        assert_eq!(apply("LabMaxBurn", "6").unwrap().max_burn_ms, 6);
        assert_eq!(apply("LabChildStartDelay", "7").unwrap().child_start_delay_ms, 7);
        assert!(apply("LabGatePlaces", "4").unwrap().gate.is_some());
        assert!(apply("LabGatePlaces", "0").unwrap().gate.is_none());
        let refused = "LabGatePlaces must be a number from 0 to 10000";
        assert_eq!(apply("LabGatePlaces", "-1").unwrap_err(), refused);
        let refused = "LabMaxWait must be a number of milliseconds from 0 to 3600000";
        assert_eq!(apply("LabMaxWait", "1s").unwrap_err(), refused);
        assert_eq!(apply("LabMaxWait", "3600001").unwrap_err(), refused);
    }

    #[test]
    fn a_gate_is_passed_once_it_is_configured() {
        let bounds = Global { gate: Some(Gate::new(1).unwrap()), ..BOUNDS };
        let work = wanted(&mut request("lab-gate", "ms=10"), &bounds).unwrap();
        assert_eq!(work, Some(Work::Pass(bounds.gate.clone().unwrap(), Duration::from_millis(10))));
        assert!(wanted(&mut request("lab-gate", "ms=101"), &bounds).is_err());
    }

    #[test]
    fn a_client_that_goes_from_the_line_before_a_gate_gives_its_turn_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let (gate, hour) = (Gate::new(1).unwrap(), Duration::from_millis(MOST_MS));
        let (blocking_pool, mut request) = (BlockingPool::new(1), request("lab-gate", ""));
        let departure = Rc::clone(&request.departure);
        let (first, may_wait) = (gate.enter(hour), MayWait::in_task());
        let work = Work::Pass(gate.clone(), hour);
        let mut performed = Box::pin(perform(work, &mut request, &blocking_pool, &may_wait));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(performed.as_mut().poll(&mut context).is_pending());
        assert!(departure.is_awaited());
        departure.tell();
        let left = performed.as_mut().poll(&mut context);
        let Poll::Ready(Err(Answer::Status(status, _))) = left else { panic!("{left:?}") };
        assert_eq!(status, Status::SERVICE_UNAVAILABLE);
        assert_eq!(gate.enter(hour).begins_us, first.ends_us);
    }

    #[test]
    fn burning_uses_cpu_time_and_waiting_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let blocking_pool = BlockingPool::new(1);
        let text = |work: Work| {
            let (mut request, may_wait) = (request("lab", ""), MayWait::in_task());
            let performed = perform(work, &mut request, &blocking_pool, &may_wait);
            match &runtime.block_on(performed).unwrap().body {
                Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        assert!(burn(Duration::from_millis(3), &Progress::new("a test")) >= 3_000);
        let burned = text(Work::Burn(Duration::from_millis(3)));
        assert!(burned.starts_with("burned ") && burned.ends_with(" ms of CPU time\n"));
        assert!(text(Work::Wait(Duration::from_millis(1))).starts_with("waited "));
    }

    #[test]
    fn a_client_that_goes_before_its_turn_is_not_worked_for() {
        let blocking_pool = BlockingPool::new(1);
        let (begun, is_begun) = std::sync::mpsc::channel();
        let (free, freed) = std::sync::mpsc::channel::<()>();
        let _first = blocking_pool.spawn(move || {
            begun.send(()).unwrap();
            freed.recv()
        });
        is_begun.recv().unwrap();
        let mut request = request("lab-burn", "");
        let departure = Rc::clone(&request.departure);
        // An hour: were it begun, this test would not end.
        let (work, may_wait) = (Work::Burn(Duration::from_millis(MOST_MS)), MayWait::in_task());
        let mut performed = Box::pin(perform(work, &mut request, &blocking_pool, &may_wait));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(performed.as_mut().poll(&mut context).is_pending());
        assert!(departure.is_awaited() && blocking_pool.queued() == 1);
        departure.tell();
        let Poll::Ready(Err(Answer::Status(status, _))) = performed.as_mut().poll(&mut context)
        else {
            panic!("it leaves the line")
        };
        assert_eq!((status, blocking_pool.queued()), (Status::SERVICE_UNAVAILABLE, 0));
        free.send(()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(blocking_pool.spawn(|| 1)), Some(1));
    }
}
