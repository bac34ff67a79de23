//! The lingering close: our side of the connection ends, and what the client still sends is read
//! and discarded until its end arrives or the time is over (RFC 9112, section 9.6).

use crate::transport::parked::{Connection, now_ms};
use evenkeel_sys::dispatch::{Outcome, ParkReason, ParkRequest};
use evenkeel_sys::socket::Socket;
use std::io::ErrorKind;

/// How long a lingering connection waits for the client's end after it last sent something, and
/// in all (Apache: SECONDS_TO_LINGER 2, MAX_SECS_TO_LINGER 30).
const LINGER_MS: u32 = 2_000;
const LINGER_MOST_MS: u16 = 30_000;

/// How often a lingering client's bytes are read before the others get their turn.
const LINGER_READS: usize = 16;

/// Ends our side and waits for the client's end, so that it reads the response before it learns
/// that nothing more is read (RFC 9112, section 9.6).
pub(crate) fn linger(socket: Socket, mut connection: Connection) -> Outcome {
    if socket.shutdown_write().is_err() {
        return Outcome::Closed;
    }
    connection.since_ms = now_ms();
    linger_on(socket, connection)
}

/// Reads away what a lingering client sends. One that sends faster than this reads goes on as a
/// task, which lets the others in between: to close the socket with bytes unread would reset the
/// connection, and the client might lose the response.
pub(crate) fn linger_on(socket: Socket, connection: Connection) -> Outcome {
    match waste(&socket, connection) {
        Waste::End => Outcome::Closed,
        Waste::Nothing(left_ms) => {
            let (timeout_ms, state) = (LINGER_MS.min(left_ms), connection.to_parked_state());
            Outcome::Park(
                socket,
                ParkRequest { reason: ParkReason::LingeringClose, timeout_ms, state },
            )
        }
        Waste::More => Outcome::Task(Box::pin(async move {
            tokio::task::yield_now().await;
            linger_on(socket, connection)
        })),
    }
}

/// What a lingering client has sent.
enum Waste {
    /// Its end, or its time is over.
    End,
    /// Nothing more by now; it has so many milliseconds left.
    Nothing(u32),
    /// More than is read at once.
    More,
}

fn waste(socket: &Socket, connection: Connection) -> Waste {
    let gone_ms = now_ms().wrapping_sub(connection.since_ms);
    let left_ms = u32::from(LINGER_MOST_MS.saturating_sub(gone_ms));
    if left_ms == 0 {
        return Waste::End;
    }
    let mut bytes = [0_u8; 4096];
    for _ in 0..LINGER_READS {
        match socket.receive(&mut bytes) {
            Ok(0) => return Waste::End,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Waste::Nothing(left_ms),
            Err(_) => return Waste::End,
        }
    }
    Waste::More
}
