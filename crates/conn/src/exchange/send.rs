//! Sends a response to its end: fetches the pieces of a stream, gives the credit back while the
//! client is slow, and bounds what slow clients keep in memory.

use super::Exchange;
use super::credit::Lease;
use super::pieces::{Fetched, Pieces, Progress};
use super::slot::{self, Writing};
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::link::waits_for_client;
use crate::transport::parked::Connection;
use evenkeel_message::{Fields, Level, Notice};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// Sends the pieces of a response in the framing of a protocol.
pub(crate) trait ResponseWriter {
    /// Sends what is there. Ready when all of it is sent, or others are to have their turn; pending
    /// while the client takes no more.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &mut Pieces,
    ) -> Poll<io::Result<Progress>>;

    /// Frames what was fetched of a stream, once all before it is sent. Says whether there is
    /// something to send.
    fn frame(&mut self, fetched: Fetched, trailers: &Fields) -> bool;

    /// Bytes that were sent, framing included.
    fn sent(&self) -> u64;

    /// Whether the client has disconnected; if not, the task is woken when that may change.
    fn has_left(&self, context: &mut Context<'_>) -> bool;
}

/// The sending of a response.
pub(crate) struct Sending<'a, S> {
    pub(crate) serving: &'a Serving<S>,
    pub(crate) connection: &'a Connection,
    pub(crate) lease: &'a Lease,
    /// How long the client may take nothing.
    pub(crate) timeout: Duration,
}

impl<S: ConnectionSite> Sending<'_, S> {
    /// Sends all of it.
    ///
    /// # Errors
    /// The response is incomplete: the client is gone or too slow, its stream has failed, or there
    /// is no room for what it keeps.
    pub(crate) async fn send(
        &self,
        exchange: &mut Exchange,
        writer: &mut impl ResponseWriter,
    ) -> io::Result<()> {
        let lease = self.lease;
        if exchange.pieces.is_stream() {
            self.wait_for_fetch(exchange).await;
            // What is there at once goes out with the head.
            let first = poll_fn(|context| Poll::Ready(fetch(exchange, writer, context))).await;
            if let Poll::Ready(result) = first {
                lease.end_work();
                result?;
            }
        } else {
            lease.end_work();
            if exchange.is_heavy() {
                poll_fn(|context| lease.poll_hold(context)).await;
            }
        }
        let (mut writing, mut share) = (None, None);
        loop {
            let before = writer.sent();
            let sent = poll_fn(|context| {
                let sent = writer.poll_send(context, &mut exchange.pieces);
                if sent.is_pending() && waits_for_client() {
                    // The client is slow: its request is no work for the server any more.
                    if exchange.is_heavy() && share.is_none() {
                        let room = &self.serving.thread.place.slow_bytes;
                        share = room.take(exchange.pieces.held());
                        if share.is_none() {
                            return Poll::Ready(Err(ErrorKind::QuotaExceeded.into()));
                        }
                    }
                    lease.release();
                    slot::set_aside(&self.serving.thread, &mut exchange.begun.slot);
                    writing.get_or_insert_with(|| Writing::new(&self.serving.thread));
                    exchange.read_ahead(context);
                    // It took a credit for what it read.
                    lease.release();
                }
                sent
            });
            let progress = match timeout(self.timeout, sent).await {
                Ok(Err(error)) if error.kind() == ErrorKind::QuotaExceeded => {
                    let text = "slow clients keep as much as they may, this one's response ends";
                    exchange.request.notify(Notice::own("core", Level::Info, text.to_owned()));
                    return Err(error);
                }
                Ok(progress) => progress?,
                // What the client has taken meanwhile is progress too.
                Err(_) if writer.sent() > before => Progress::More,
                Err(_) => return Err(ErrorKind::TimedOut.into()),
            };
            exchange.note_sent(writer.sent());
            if progress == Progress::More {
                tokio::task::yield_now().await;
                continue;
            }
            if !exchange.pieces.is_stream() {
                return Ok(());
            }
            (writing, share) = (None, None);
            self.wait_for_fetch(exchange).await;
            if exchange.begun.slot.is_none() {
                exchange.begun.slot = self.serving.show(self.connection, &exchange.request);
            }
            let fetched = poll_fn(|context| {
                let fetched = fetch(exchange, writer, context);
                let is_left = fetched.is_pending()
                    && exchange.pieces.ends_with_client()
                    && writer.has_left(context);
                match is_left {
                    true => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
                    false => fetched,
                }
            });
            let fetched = fetched.await;
            lease.end_work();
            fetched?;
        }
    }

    /// Waits for what it takes to fetch the next piece of a stream: a credit, and a permit if the
    /// piece is expensive work.
    async fn wait_for_fetch(&self, exchange: &Exchange) {
        match exchange.pieces.is_expensive() {
            true => poll_fn(|context| self.lease.poll_work(context)).await,
            false => {
                self.lease.end_work();
                poll_fn(|context| self.lease.poll_hold(context)).await;
            }
        }
    }
}

/// Fetches more of a stream and frames it; a panic in the stream breaks the response off.
fn fetch(
    exchange: &mut Exchange,
    writer: &mut impl ResponseWriter,
    context: &mut Context<'_>,
) -> Poll<io::Result<bool>> {
    let Exchange { pieces, response, .. } = exchange;
    catch_unwind(AssertUnwindSafe(|| pieces.poll_fetch(context)))
        .unwrap_or_else(|_| Poll::Ready(Err(ErrorKind::Other.into())))
        .map_ok(|fetched| writer.frame(fetched, &response.trailers))
}
