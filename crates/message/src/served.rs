//! What serving a request gives: a response at once, or one to wait for.

use crate::{Request, Response};
use std::future::Future;
use std::pin::Pin;

/// A response that is still to be made. The request is in the future's keeping.
pub type Pending = Pin<Box<dyn Future<Output = (Box<Request>, Response)>>>;

/// What serving a request gives.
pub enum Served {
    /// The response, made without waiting.
    Now(Box<Request>, Response),
    /// The response will come.
    Later(Pending),
}
