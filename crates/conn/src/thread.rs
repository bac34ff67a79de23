//! What all connections of a serving thread have in common: buffers, clocks, the gate and the
//! slots of the status page. It belongs to the thread, so that a resting connection owns none
//! of it.

use crate::exchange::slow_bytes::SlowBytes;
use crate::transport::addresses::Addresses;
use crate::transport::tls::Scratch;
use evenkeel_proto::h2::FieldMemo;
use evenkeel_proto::http_date;
use evenkeel_scoreboard::{ChildLine, ClientWait, Gate, Slots, WorkerPermits};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::bulkhead::Bulkhead;
use evenkeel_sys::clock;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Bytes that are read at once. A head that is longer is collected in a task.
const BUFFER_BYTES: usize = 16 * 1024;

/// The most memory for frames that a thread keeps.
const FRAMES_BYTES: usize = 256 * 1024;

/// Where a worker serves.
#[derive(Clone)]
pub struct Workplace {
    /// The child's credits.
    pub gate: Arc<Gate>,
    /// What a request passes that has expensive work done.
    pub bulkhead: Arc<Bulkhead>,
    /// The child's slots on the status page; none shows nothing.
    pub slots: Option<Slots>,
    /// How long the thread has waited for its client, where a connection holds its thread.
    pub client_wait: Option<Arc<ClientWait>>,
    /// The permits for expensive work in place of those of `bulkhead`, where a connection holds its
    /// thread.
    pub permits: Option<Arc<WorkerPermits>>,
    /// The child's counters.
    pub line: ChildLine,
    /// The addresses of the listening sockets, by index.
    pub ports: Arc<[SocketAddr]>,
    /// The local addresses that connections came in on, shared by the child's threads.
    pub addresses: Arc<Mutex<Vec<SocketAddr>>>,
    /// Room for what slow clients keep, shared by the child's threads.
    pub slow_bytes: Arc<SlowBytes>,
    /// Room for TLS handshakes that have not ended, shared by the child's threads.
    pub handshakes: Arc<SlowBytes>,
    /// Where the steps of TLS handshakes run that take milliseconds of CPU time. None where a
    /// connection holds its thread, so that nobody waits for these steps but their own client.
    pub long_steps: Option<Arc<BlockingPool>>,
}

/// Exchanges that found no slot to be counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uncounted {
    pub(crate) exchanges: u32,
    pub(crate) bytes: u64,
    pub(crate) duration_us: u64,
}

/// A thread's own things.
pub(crate) struct ThreadState {
    pub(crate) place: Workplace,
    pub(crate) addresses: Addresses,
    /// The buffers of the TLS connections.
    pub(crate) scratch: Rc<Scratch>,
    /// Connections are closed with their next response.
    pub(crate) retiring: Cell<bool>,
    /// The same of those that have had their turn.
    pub(crate) contended: Cell<bool>,
    pub(crate) uncounted: Cell<Uncounted>,
    buffer: Cell<Option<Box<[u8]>>>,
    out: Cell<Vec<u8>>,
    /// Memory for the frames of a connection of HTTP/2.
    frames: Cell<Vec<u8>>,
    /// The fields of responses in HTTP/2 that were encoded last.
    pub(crate) field_memo: RefCell<FieldMemo>,
    date: Cell<(u64, [u8; 29])>,
    /// Time since 1970 less the monotonic clock, in microseconds.
    epoch_us: Cell<u64>,
}

impl ThreadState {
    pub(crate) fn new(place: Workplace) -> Self {
        let thread = Self {
            addresses: Addresses::new(Arc::clone(&place.addresses)),
            place,
            scratch: Rc::default(),
            retiring: Cell::new(false),
            contended: Cell::new(false),
            uncounted: Cell::default(),
            buffer: Cell::new(None),
            out: Cell::new(Vec::new()),
            frames: Cell::new(Vec::new()),
            field_memo: RefCell::default(),
            date: Cell::new((u64::MAX, [0; 29])),
            epoch_us: Cell::new(0),
        };
        thread.set_clock();
        thread
    }

    /// The receive buffer, for as long as nothing is awaited; to be given back.
    pub(crate) fn take_buffer(&self) -> Box<[u8]> {
        self.buffer.take().unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    pub(crate) fn give_buffer(&self, buffer: Box<[u8]>) {
        self.buffer.set(Some(buffer));
    }

    /// An empty buffer for a response's head; to be given back.
    pub(crate) fn take_out(&self) -> Vec<u8> {
        self.out.take()
    }

    pub(crate) fn give_out(&self, mut out: Vec<u8>) {
        // One that an odd response made large is not kept.
        if out.capacity() <= BUFFER_BYTES {
            out.clear();
            self.out.set(out);
        }
    }

    /// An empty buffer for the frames of a connection of HTTP/2; to be given back.
    pub(crate) fn take_frames(&self) -> Vec<u8> {
        self.frames.take()
    }

    pub(crate) fn give_frames(&self, mut frames: Vec<u8>) {
        // One that an odd connection made large is not kept.
        if frames.capacity() <= FRAMES_BYTES {
            frames.clear();
            self.frames.set(frames);
        }
    }

    /// Reads the clock of the day anew, about once a second: between, it goes with the monotonic
    /// one.
    pub(crate) fn set_clock(&self) {
        self.epoch_us.set(clock::realtime_us().wrapping_sub(clock::monotonic_us()));
    }

    /// Microseconds since 1970 for a time of the monotonic clock.
    pub(crate) fn day_us(&self, monotonic_us: u64) -> u64 {
        monotonic_us.wrapping_add(self.epoch_us.get())
    }

    /// The Date field's value for a time in microseconds since 1970.
    pub(crate) fn date(&self, day_us: u64) -> [u8; 29] {
        let seconds = day_us / 1_000_000;
        let (known, text) = self.date.get();
        if known == seconds {
            return text;
        }
        let text = http_date(i64::try_from(seconds).unwrap_or(i64::MAX));
        self.date.set((seconds, text));
        text
    }
}
