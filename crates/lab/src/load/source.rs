//! The sources of the clients' requests. Each client has a source, which is called when the client
//! is free. It may tell the client to wait, which is how logs are replayed with their own times and
//! how users think.

use super::exchange::{Exchange, Failure, Request};
use std::sync::Arc;

/// What a client does next. Times are nanoseconds since the beginning of the run.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send this request.
    Send(Arc<Request>),
    /// Send this request at that time. The latency counts from then, even if the client is late.
    SendAt(u64, Arc<Request>),
    /// Wait until then, and ask again.
    Wait(u64),
    /// There is nothing more to do.
    Over,
}

/// The requests of one client.
pub trait Source: Send {
    /// What to do next. `now_ns` is the current time.
    fn next(&mut self, now_ns: u64) -> Step;

    /// Gets the bytes of a response as they arrive, if the plan says so.
    fn hear(&mut self, _bytes: &[u8]) {}

    /// Gets the result of the last request.
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
