//! A step of a TLS handshake that takes milliseconds, such as a signature with a long RSA key. A
//! thread of a pool does it, so that the serving thread answers its other connections meanwhile.

use crate::exchange::credit::Lease;
use crate::h1::task::poll_caught;
use crate::h1::turn::Budget;
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::Transport;
use crate::transport::parked::Connection;
use evenkeel_message::{Level, Notice};
use evenkeel_sys::blocking_pool::{BlockingPool, BlockingTask};
use evenkeel_sys::dispatch::Outcome;
use evenkeel_tls::{Step, StepDone};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

/// How many requests may be answered that came with the end of a handshake.
const REQUESTS: u32 = 1;

/// Goes on with a connection whose handshake has a step to be done. The connection holds no credit
/// while it waits for the step; its room among the handshakes bounds how many wait. It may be
/// dropped like one that waits for the head of a request.
pub(crate) fn go_on<S: ConnectionSite>(
    serving: &Rc<Serving<S>>,
    pool: &BlockingPool,
    transport: Transport,
    connection: Connection,
    step: Step,
) -> Outcome {
    let (serving, peer) = (Rc::clone(serving), connection.peer);
    let task = pool.spawn(move || step.run());
    Outcome::HeadTask(Box::pin(async move {
        let mut run = pin!(finish(&serving, task, transport, connection));
        match poll_fn(|context| poll_caught(run.as_mut(), context)).await {
            Ok(outcome) => outcome,
            Err(panic) => serving.close_after_panic(&*panic, &peer),
        }
    }))
}

/// Waits for the step, then serves what the client sends as a turn does.
async fn finish<S: ConnectionSite>(
    serving: &Rc<Serving<S>>,
    task: BlockingTask<StepDone>,
    mut transport: Transport,
    connection: Connection,
) -> Outcome {
    let left = Duration::from_millis(serving.handshake_left_ms(&connection));
    let done = match timeout(left, wait(task, &mut transport)).await {
        Ok(Waited::Done(done)) => done,
        Ok(Waited::Left) => return Outcome::Closed,
        Ok(Waited::Denied) => {
            let text = "no thread can be started for a TLS handshake, which ends";
            let notice = Notice::own("ssl", Level::Error, text.to_owned());
            serving.site.tell(&notice, &connection.peer);
            return Outcome::Closed;
        }
        Err(_) => {
            serving.note_handshake_timeout(&connection);
            return Outcome::Closed;
        }
    };
    let finished = transport.finish_step(*done);
    if let Some(tls) = transport.tls() {
        // Another thread has spent it.
        tls.session().take_effort();
    }
    if finished.is_err() {
        return serving.failed(transport, connection);
    }
    // What a turn does takes a credit.
    let lease = Lease::new(&serving.thread.place, None);
    poll_fn(|context| lease.poll_hold(context)).await;
    let (mut credit, mut requests_left) = (lease.take(), REQUESTS);
    let budget = Budget { credit: &mut credit, requests_left: &mut requests_left };
    let mut buffer = serving.thread.take_buffer();
    let outcome = serving.read(transport, connection, &mut buffer, false, budget);
    serving.thread.give_buffer(buffer);
    outcome
}

enum Waited {
    Done(Box<StepDone>),
    /// The client has left.
    Left,
    /// There is no thread for the step.
    Denied,
}

/// Waits until the step is done. A client that leaves meanwhile costs no more than its place in the
/// queue.
async fn wait(mut task: BlockingTask<StepDone>, transport: &mut Transport) -> Waited {
    poll_fn(|context| {
        if let Poll::Ready(done) = Pin::new(&mut task).poll(context) {
            return Poll::Ready(match done {
                Some(done) => Waited::Done(Box::new(done)),
                None => Waited::Denied,
            });
        }
        transport.poll_hangup(context).map(|()| Waited::Left)
    })
    .await
}
