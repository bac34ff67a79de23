//! Reads the beginning of a request's body before a server is asked, so that a short body is there
//! whole and a slow client holds no connection for it.

use bytes::{Bytes, BytesMut};
use evenkeel_message::{MayWait, Source};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;

/// The bytes that are read in advance (mod_proxy_http.c: MAX_MEM_SPOOL).
const MOST_AHEAD: usize = 16 << 10;

/// The beginning of a body, and the rest.
pub struct Prefetched {
    /// The beginning.
    pub first: Bytes,
    /// The rest; none if `first` is the whole body.
    pub rest: Option<Pin<Box<dyn Source>>>,
}

/// Reads 16 KiB of a body, or all of a shorter one.
///
/// # Errors
/// The error of the source.
pub async fn prefetch(_: &MayWait, mut source: Pin<Box<dyn Source>>) -> io::Result<Prefetched> {
    let mut first = BytesMut::new();
    while first.len() < MOST_AHEAD {
        match poll_fn(|context| source.as_mut().poll_chunk(context)).await.transpose()? {
            Some(bytes) => first.extend_from_slice(&bytes),
            None => return Ok(Prefetched { first: first.freeze(), rest: None }),
        }
    }
    Ok(Prefetched { first: first.freeze(), rest: Some(source) })
}
