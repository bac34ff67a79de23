//! What the status page shows of a request while it is worked on, and what is counted of it in
//! the end. A response that waits for its client takes no slot; an exchange that finds none in
//! the end is counted with the next that does.

use crate::site::Settings;
use crate::thread::{ThreadState, Uncounted};
use crate::transport::parked::Connection;
use evenkeel_message::{AddressText, Request, Transfer, Version};
use evenkeel_scoreboard::{ChildLine, Counter, SlotGuard, SlotState};
use std::io::Write as _;

/// The most bytes of a virtual host's name that a slot has room for, a port behind it.
const NAME_BYTES: usize = 42;

/// How much of a request line's end SeeRequestTail shows.
const TAIL_BYTES: usize = 63;

/// Shows a request in a slot of the status page; none while all are taken.
pub(crate) fn show(
    thread: &ThreadState,
    (settings, name): (&Settings, &[u8]),
    connection: &Connection,
    request: &Request,
) -> Option<SlotGuard> {
    let slots = thread.place.slots?;
    if !settings.shows_requests {
        let nothing = evenkeel_scoreboard::Request::default();
        return slots.take(SlotState::Writing, &nothing, request.time_us);
    }
    let client = AddressText::new(request.peer.client_ip());
    let mut host = [0_u8; 48];
    let room = host.len();
    let mut rest = host.as_mut_slice();
    // What does not fit is cut, which the page can bear.
    let _ = rest.write_all(name.get(..NAME_BYTES).unwrap_or(name));
    let _ = rest.write_all(b":");
    let _ = rest.write_all(itoa::Buffer::new().format(request.peer.local.port()).as_bytes());
    let host_length = room - rest.len();
    let line = request.head.line.as_slice();
    let shown = evenkeel_scoreboard::Request {
        client: client.as_bytes(),
        protocol: match (request.head.version, request.secure.is_some()) {
            (Version::Http2, true) => b"h2",
            (Version::Http2, false) => b"h2c",
            _ => b"http/1.1",
        },
        vhost: host.get(..host_length).unwrap_or_default(),
        line: if settings.see_request_tail { tail(line) } else { line },
        connection_accesses: request.keepalives,
        connection_bytes: u64::from(connection.kibibytes) * 1024,
    };
    slots.take(SlotState::Writing, &shown, request.time_us)
}

/// Leaves the slot of a request that waits for its client to others; a worker's own stays its.
pub(crate) fn set_aside(thread: &ThreadState, slot: &mut Option<SlotGuard>) {
    if !thread.place.slots.is_some_and(|slots| slots.is_own()) {
        *slot = None;
    }
}

/// The end of a request line (scoreboard.c: copy_request).
fn tail(line: &[u8]) -> &[u8] {
    line.get(line.len().saturating_sub(TAIL_BYTES)..).unwrap_or(line)
}

/// Counts an exchange in its slot and in the child's line.
pub(crate) fn count(thread: &ThreadState, slot: Option<SlotGuard>, transfer: &Transfer) {
    let line = &thread.place.line;
    line.add(Counter::Completions, 1);
    line.add(Counter::Bytes, transfer.body_sent);
    line.add(Counter::DurationUs, transfer.duration_us);
    let Uncounted { exchanges, bytes, duration_us } = thread.uncounted.get();
    let Some(slot) = slot else {
        thread.uncounted.set(Uncounted {
            exchanges: exchanges.saturating_add(1),
            bytes: bytes.saturating_add(transfer.body_sent),
            duration_us: duration_us.saturating_add(transfer.duration_us),
        });
        return;
    };
    if exchanges > 0 {
        thread.uncounted.set(Uncounted::default());
        slot.finish(bytes, duration_us);
        (1..exchanges).for_each(|_| slot.finish(0, 0));
    }
    slot.finish(transfer.body_sent, transfer.duration_us);
}

/// Counts a connection among those that wait for their client to read, until it is dropped.
pub(crate) struct Writing(ChildLine);

impl Writing {
    pub(crate) fn new(thread: &ThreadState) -> Self {
        thread.place.line.add(Counter::Writing, 1);
        Self(thread.place.line)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.subtract(Counter::Writing, 1);
    }
}
