//! Where a client's requests come from: one source for each client, asked when the client is free.
//! A source may tell the client to wait, which is how logs are replayed at their own times and
//! how users think; it never touches a socket.

use super::exchange::{Exchange, Failure, Request};
use std::sync::Arc;

/// What a client does next. Times are nanoseconds since the run began.
#[derive(Clone, Debug)]
pub enum Step {
    /// It sends this.
    Send(Arc<Request>),
    /// It is to send this at that time: the latency counts from then, though the client may be
    /// late.
    SendAt(u64, Arc<Request>),
    /// It waits until then, and asks again.
    Wait(u64),
    /// It has nothing more to do.
    Over,
}

/// The requests of one client.
pub trait Source: Send {
    /// What to do next; `now_ns` is the time.
    fn next(&mut self, now_ns: u64) -> Step;

    /// Hears bytes of the answer as they come, where the plan says so.
    fn hear(&mut self, _bytes: &[u8]) {}

    /// Hears what came of the last request.
    fn heed(&mut self, _outcome: Result<&Exchange, Failure>) {}
}

/// The same request again and again.
#[derive(Clone, Debug)]
pub struct Same(pub Arc<Request>);

impl Source for Same {
    fn next(&mut self, _now_ns: u64) -> Step {
        Step::Send(Arc::clone(&self.0))
    }
}
