//! The lingering close: our side of the connection ends, and what the client still sends is read
//! and discarded until its end arrives or the time is over (RFC 9112, section 9.6).

use crate::transport::parked::{Connection, now_ms};
use crate::transport::{Received, Transport};
use evenkeel_sys::dispatch::{Outcome, ParkReason};
use std::io::ErrorKind;

/// How long a lingering connection waits for the client's end after it last sent something, and
/// in all (Apache: SECONDS_TO_LINGER 2, MAX_SECS_TO_LINGER 30).
const LINGER_MS: u32 = 2_000;
const LINGER_MOST_MS: u16 = 30_000;

/// How often a lingering client's bytes are read before the others get their turn.
const LINGER_READS: usize = 16;

/// Ends our side and waits for the client's end, so that it reads the response before it learns
/// that nothing more is read.
pub(crate) fn linger(mut transport: Transport, mut connection: Connection) -> Outcome {
    if transport.shutdown().is_err() {
        return Outcome::Closed;
    }
    connection.since_ms = now_ms();
    linger_on(transport, connection)
}

/// Reads and discards what a lingering client sends. One that sends faster than this reads goes on
/// as a task, which lets the others in between: to close the socket with bytes unread would reset
/// the connection, and the client might lose the response.
pub(crate) fn linger_on(mut transport: Transport, connection: Connection) -> Outcome {
    match discard(&mut transport, &connection) {
        Discarded::End => Outcome::Closed,
        Discarded::Nothing(left_ms) => {
            transport.park(ParkReason::LingeringClose, LINGER_MS.min(left_ms), &connection)
        }
        Discarded::More => Outcome::Task(Box::pin(async move {
            tokio::task::yield_now().await;
            linger_on(transport, connection)
        })),
    }
}

/// What a lingering client has sent.
enum Discarded {
    /// Its end, or its time is over.
    End,
    /// Nothing more by now; it has so many milliseconds left.
    Nothing(u32),
    /// More than is read at once.
    More,
}

fn discard(transport: &mut Transport, connection: &Connection) -> Discarded {
    let gone_ms = now_ms().wrapping_sub(connection.since_ms);
    let left_ms = u32::from(LINGER_MOST_MS.saturating_sub(gone_ms));
    if left_ms == 0 {
        return Discarded::End;
    }
    let mut bytes = [0_u8; 4096];
    for _ in 0..LINGER_READS {
        match transport.receive(&mut bytes) {
            Ok(Received { count: 0, .. }) => return Discarded::End,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Discarded::Nothing(left_ms);
            }
            Err(_) => return Discarded::End,
        }
    }
    Discarded::More
}
