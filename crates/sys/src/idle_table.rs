//! The table of idle connections. A serving thread parks a socket here with four words of
//! connection state, a parcel if it has one, and a deadline, and takes it out again by its token
//! when it becomes readable or its deadline passes. Each socket has the slot of its descriptor
//! number. The serving threads of a child share one table without a lock. An event that arrives
//! while the socket is taken out, or while it is queued for a thread, is recorded in the slot and
//! so is never lost.

use crate::socket::{Parcel, Registration, Socket};
use std::any::Any;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// What a connection keeps while it is parked. Only the serving function knows what it means.
pub type ParkedState = [u64; 4];

/// Slots are allocated in chunks of this many, when the first descriptor of a chunk is registered.
#[cfg(not(all(test, loom)))]
const CHUNK: usize = 1024;
#[cfg(all(test, loom))]
const CHUNK: usize = 2;

/// The slot holds a socket.
const PARKED: u64 = 1;
/// An event arrived for the slot's registration while its socket was taken out or queued.
const EVENT_PENDING: u64 = 2;
/// That event reported that the peer has closed its side.
const HANGUP: u64 = 4;
/// The socket is parked and queued for a thread: only `take_queued` takes it.
const QUEUED: u64 = 8;
const OWNER_SHIFT: u32 = 8;
const REASON_SHIFT: u32 = 16;
const GENERATION_SHIFT: u32 = 32;

/// The slot of one descriptor: 56 bytes.
#[derive(Default)]
struct Slot {
    /// The generation, the park reason, the owner and the bits above.
    control: AtomicU64,
    /// When the socket expires, in milliseconds of the caller's wrapping clock.
    deadline_ms: AtomicU32,
    state: [AtomicU64; 4],
    /// The parcel of the socket that is parked; null if it has none, and while none is parked.
    parcel: AtomicPtr<Box<dyn Any + Send>>,
}

/// The slots, indexed by descriptor number.
pub struct IdleTable {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    /// One more than the highest descriptor that was ever registered.
    top: AtomicU32,
}

/// A socket's entry in the table: what it waits for, until when, and the connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the reason for parking.
    pub reason: u8,
    /// When the socket expires, in milliseconds of the caller's wrapping clock.
    pub deadline_ms: u32,
    /// The state of the connection.
    pub state: ParkedState,
}

/// A socket that was taken out of the table.
#[derive(Debug)]
pub struct Unparked {
    /// The socket, still registered with its poll set.
    pub socket: Socket,
    /// Why it was parked.
    pub reason: u8,
    /// The state of the connection.
    pub state: ParkedState,
    /// Whether an event reported that the peer has closed its side.
    pub hangup: bool,
}

/// The socket could not be registered or parked, and is handed back.
#[derive(Debug)]
pub struct ParkError(pub Socket);

/// The result of parking a socket, with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// The socket is parked, and its next event is still to come.
    Idle(u64),
    /// An event arrived while the socket was taken out: the socket is queued, and the caller must
    /// add the token to its queue.
    Queued(u64),
}

impl IdleTable {
    /// A table for descriptors below `limit` (RLIMIT_NOFILE). Only the list of chunks is allocated
    /// at first.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let chunks = limit.div_ceil(CHUNK).max(1);
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), top: AtomicU32::new(0) }
    }

    /// Gives a socket a new generation of its slot, and the token under which the caller registers
    /// it with the poll set of `owner`. Events are recorded from then on, and acted on once the
    /// socket has been parked.
    ///
    /// # Errors
    /// Hands the socket back if its descriptor is beyond the limit of the table.
    pub fn register(&self, mut socket: Socket, owner: u8) -> Result<(Socket, u64), ParkError> {
        let Ok(descriptor) = u32::try_from(socket.as_raw_fd()) else {
            return Err(ParkError(socket));
        };
        let Some(slot) = self.allocate(descriptor) else { return Err(ParkError(socket)) };
        let control = slot.control.load(Ordering::Relaxed);
        let generation = ((control >> GENERATION_SHIFT) as u32).wrapping_add(1);
        slot.control.store(pack(generation, 0, owner), Ordering::Release);
        socket.registration = Some(Registration { owner, generation });
        Ok((socket, token(descriptor, generation)))
    }

    /// Parks a registered socket. If an event arrived while it was taken out, it is queued at once,
    /// and the caller must add its token to a queue.
    ///
    /// # Errors
    /// Hands the socket back if it was never registered.
    pub fn park(&self, mut socket: Socket, entry: Entry) -> Result<Parked, ParkError> {
        let Some(Registration { owner, generation }) = socket.registration else {
            return Err(ParkError(socket));
        };
        let Ok(descriptor) = u32::try_from(socket.as_raw_fd()) else {
            return Err(ParkError(socket));
        };
        let Some(slot) = self.slot(descriptor) else { return Err(ParkError(socket)) };
        slot.deadline_ms.store(entry.deadline_ms, Ordering::Relaxed);
        for (word, value) in slot.state.iter().zip(entry.state) {
            word.store(value, Ordering::Relaxed);
        }
        if let Some(Parcel(parcel)) = socket.parcel.take() {
            slot.parcel.store(Box::into_raw(parcel), Ordering::Relaxed);
        }
        let _ = socket.into_descriptor().into_raw_fd();
        let parked = pack(generation, entry.reason, owner) | PARKED;
        let token = token(descriptor, generation);
        let next = |old: u64| match old & EVENT_PENDING {
            0 => Some(parked),
            _ => Some(parked | QUEUED | old & (EVENT_PENDING | HANGUP)),
        };
        // Release: the thread that takes the socket sees the deadline, the state and the parcel.
        match slot.control.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(old) if old & EVENT_PENDING != 0 => Ok(Parked::Queued(token)),
            _ => Ok(Parked::Idle(token)),
        }
    }

    /// Takes the socket that an event belongs to. If it is taken out or queued already, the event
    /// and `hangup` are recorded instead: parking it queues it, or `take_queued` reports the
    /// hangup.
    #[must_use]
    pub fn take(&self, token: u64, hangup: bool) -> Option<Unparked> {
        let pending = EVENT_PENDING | if hangup { HANGUP } else { 0 };
        let old = self.change(token, |control| match control & (PARKED | QUEUED) {
            PARKED => Some(control & !(PARKED | EVENT_PENDING | HANGUP)),
            _ => Some(control | pending),
        })?;
        (old & (PARKED | QUEUED) == PARKED).then(|| self.open(token, old, hangup))?
    }

    /// Takes a socket that is parked and not queued, without an event: to inspect or close it.
    #[must_use]
    pub fn take_idle(&self, token: u64) -> Option<Unparked> {
        let old = self.change(token, |control| {
            (control & (PARKED | QUEUED) == PARKED).then_some(control & !PARKED)
        })?;
        self.open(token, old, false)
    }

    /// Takes a queued socket; the caller has removed its token from its queue.
    #[must_use]
    pub fn take_queued(&self, token: u64) -> Option<Unparked> {
        let old = self.change(token, |control| {
            (control & QUEUED != 0).then_some(control & !(PARKED | QUEUED | EVENT_PENDING | HANGUP))
        })?;
        self.open(token, old, old & HANGUP != 0)
    }

    /// Records an event for a socket that is not taken now. True if the socket is queued by this
    /// call, so that the caller must add the token to its queue. False if it is queued already or
    /// taken out: the event is reported when it is taken from the queue or parked.
    #[must_use]
    pub fn enqueue(&self, token: u64, hangup: bool) -> bool {
        let pending = EVENT_PENDING | if hangup { HANGUP } else { 0 };
        let old = self.change(token, |control| match control & PARKED {
            0 => Some(control | pending),
            _ => Some(control | pending | QUEUED),
        });
        old.is_some_and(|old| old & (PARKED | QUEUED) == PARKED)
    }

    /// Changes the control word of a token's slot and returns the previous one. None if the token
    /// has another generation or `next` wants no change.
    fn change(&self, token: u64, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let slot = self.slot(token as u32)?;
        let next = |control: u64| match control >> GENERATION_SHIFT == token >> GENERATION_SHIFT {
            true => next(control),
            false => None,
        };
        slot.control.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()
    }

    /// Rebuilds the socket of a slot whose PARKED bit the caller has just cleared; `control` is the
    /// word from before.
    fn open(&self, token: u64, control: u64, hangup: bool) -> Option<Unparked> {
        let (descriptor, generation) = (token as u32, (token >> GENERATION_SHIFT) as u32);
        let Slot { state: [a, b, c, d], parcel, .. } = self.slot(descriptor)?;
        let state = [a, b, c, d].map(|word| word.load(Ordering::Relaxed));
        let owner = (control >> OWNER_SHIFT) as u8;
        // SAFETY: `park` gave up this descriptor when it set PARKED, and only the thread whose
        // exchange cleared the bit calls this function: the descriptor is open and has no other
        // owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor.cast_signed()) };
        let mut socket = Socket::new(descriptor);
        socket.registration = Some(Registration { owner, generation });
        let packed = parcel.load(Ordering::Relaxed);
        if !packed.is_null() {
            parcel.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: `park` made this pointer with `Box::into_raw` before it set PARKED. Only the
            // thread whose exchange cleared the bit is here, and it has removed the pointer.
            socket.parcel = Some(Parcel(unsafe { Box::from_raw(packed) }));
        }
        Some(Unparked { socket, reason: (control >> REASON_SHIFT) as u8, state, hangup })
    }

    /// Whether the socket of a token is parked and its deadline has passed at `now_ms`.
    #[must_use]
    pub fn is_expired(&self, token: u64, now_ms: u32) -> bool {
        let Some(slot) = self.slot(token as u32) else { return false };
        let control = slot.control.load(Ordering::Acquire);
        let left = slot.deadline_ms.load(Ordering::Relaxed).wrapping_sub(now_ms).cast_signed();
        control & PARKED != 0
            && control >> GENERATION_SHIFT == token >> GENERATION_SHIFT
            && left <= 0
    }

    /// Calls `visit` for every socket of `owner`, or of all owners, that is parked and not queued,
    /// with its token, its park reason, and the milliseconds that are left until its deadline at
    /// `now_ms` (negative once it has passed).
    pub fn sweep(&self, owner: Option<u8>, now_ms: u32, mut visit: impl FnMut(u64, u8, i32)) {
        let top = self.top.load(Ordering::Acquire);
        for (index, chunk) in self.chunks.iter().enumerate() {
            let first = (index * CHUNK) as u32;
            if first >= top {
                return;
            }
            let Some(slots) = chunk.get() else { continue };
            for (offset, slot) in slots.iter().enumerate() {
                let control = slot.control.load(Ordering::Acquire);
                let is_asked = owner.is_none_or(|owner| (control >> OWNER_SHIFT) as u8 == owner);
                if control & (PARKED | QUEUED) == PARKED && is_asked {
                    let left = slot.deadline_ms.load(Ordering::Relaxed).wrapping_sub(now_ms);
                    let generation = (control >> GENERATION_SHIFT) as u32;
                    let token = token(first + offset as u32, generation);
                    visit(token, (control >> REASON_SHIFT) as u8, left.cast_signed());
                }
            }
        }
    }

    fn slot(&self, descriptor: u32) -> Option<&Slot> {
        let descriptor = descriptor as usize;
        self.chunks.get(descriptor / CHUNK)?.get()?.get(descriptor % CHUNK)
    }

    fn allocate(&self, descriptor: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(descriptor as usize / CHUNK)?;
        let slots = chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect());
        self.top.fetch_max(descriptor + 1, Ordering::AcqRel);
        slots.get(descriptor as usize % CHUNK)
    }
}

impl Drop for IdleTable {
    fn drop(&mut self) {
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            let Some(slots) = chunk.get_mut() else { continue };
            for (offset, slot) in slots.iter().enumerate() {
                if slot.control.load(Ordering::Relaxed) & PARKED != 0 {
                    let descriptor = (index * CHUNK + offset) as i32;
                    // SAFETY: a slot with PARKED owns its descriptor, see `park`; the table is
                    // borrowed exclusively, so that nothing can take the descriptor any more.
                    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
                    let packed = slot.parcel.load(Ordering::Relaxed);
                    if !packed.is_null() {
                        // SAFETY: a slot with PARKED owns its parcel, which `park` made with
                        // `Box::into_raw`.
                        drop(unsafe { Box::from_raw(packed) });
                    }
                }
            }
        }
    }
}

const fn pack(generation: u32, reason: u8, owner: u8) -> u64 {
    ((generation as u64) << GENERATION_SHIFT)
        | ((reason as u64) << REASON_SHIFT)
        | ((owner as u64) << OWNER_SHIFT)
}

const fn token(descriptor: u32, generation: u32) -> u64 {
    ((generation as u64) << GENERATION_SHIFT) | descriptor as u64
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn entry(deadline_ms: u32) -> Entry {
        Entry { reason: 3, deadline_ms, state: [1, 2, 3, u64::MAX] }
    }

    #[test]
    fn a_socket_is_taken_once_with_its_state() {
        let table = IdleTable::new(4096);
        let (_client, server) = UnixStream::pair().unwrap();
        let (socket, token) = table.register(Socket::new(server.into()), 1).unwrap();
        assert!(table.take(token, false).is_none(), "it is not parked yet");
        // The event from before it was parked is reported.
        assert_eq!(table.park(socket, entry(50)).unwrap(), Parked::Queued(token));
        let unparked = table.take_queued(token).unwrap();
        assert_eq!((unparked.reason, unparked.state), (3, [1, 2, 3, u64::MAX]));
        assert_eq!(unparked.socket.registration(), Some(Registration { owner: 1, generation: 1 }));
        assert!(table.take(token, true).is_none());
        assert_eq!(table.park(unparked.socket, entry(50)).unwrap(), Parked::Queued(token));
        let unparked = table.take_queued(token).unwrap();
        assert!(unparked.hangup);
        assert_eq!(table.park(unparked.socket, entry(50)).unwrap(), Parked::Idle(token));
    }

    #[test]
    fn a_queued_socket_is_queued_once_and_taken_from_the_queue_alone() {
        let table = IdleTable::new(4096);
        let (_client, server) = UnixStream::pair().unwrap();
        let (socket, token) = table.register(Socket::new(server.into()), 0).unwrap();
        assert!(!table.enqueue(token, false), "it is taken out");
        assert_eq!(table.park(socket, entry(0)).unwrap(), Parked::Queued(token));
        assert!(!table.enqueue(token, false) && !table.enqueue(token, true));
        assert!(table.take(token, false).is_none() && table.take_idle(token).is_none());
        table.sweep(None, 1, |_, _, _| panic!("a queued socket is not swept"));
        let unparked = table.take_queued(token).unwrap();
        assert!(unparked.hangup && table.take_queued(token).is_none());
        assert_eq!(table.park(unparked.socket, entry(0)).unwrap(), Parked::Idle(token));
        let unparked = table.take_idle(token).unwrap();
        assert!(table.take_idle(token).is_none(), "an inspection leaves no trace");
        assert_eq!(table.park(unparked.socket, entry(0)).unwrap(), Parked::Idle(token));
        assert!(table.enqueue(token, false));
        assert!(!table.take_queued(token).unwrap().hangup);
    }

    #[test]
    fn a_token_of_an_old_generation_takes_nothing() {
        let table = IdleTable::new(4096);
        let (_client, server) = UnixStream::pair().unwrap();
        let (socket, old) = table.register(Socket::new(server.into()), 0).unwrap();
        let (socket, new) = table.register(socket, 0).unwrap();
        table.park(socket, entry(0)).unwrap();
        assert!(table.take(old, false).is_none());
        assert!(table.take(new, false).is_some());
    }

    #[test]
    fn a_sweep_sees_only_its_own_and_wraps_with_the_clock() {
        let table = IdleTable::new(4096);
        let mut kept = Vec::new();
        for (owner, deadline) in [(0, 10), (0, u32::MAX - 5), (1, 10)] {
            let (client, server) = UnixStream::pair().unwrap();
            let (socket, _) = table.register(Socket::new(server.into()), owner).unwrap();
            table.park(socket, entry(deadline)).unwrap();
            kept.push(client);
        }
        let mut left = Vec::new();
        table.sweep(Some(0), u32::MAX, |_, reason, ms| left.push((reason, ms)));
        assert_eq!(left, [(3, 11), (3, -5)]);
        let mut all = 0;
        table.sweep(None, 0, |_, _, _| all += 1);
        assert_eq!(all, 3);
    }

    #[test]
    fn dropping_the_table_closes_its_sockets() {
        let table = IdleTable::new(4096);
        let (mut client, server) = UnixStream::pair().unwrap();
        let (socket, _) = table.register(Socket::new(server.into()), 0).unwrap();
        table.park(socket, entry(0)).unwrap();
        drop(table);
        assert_eq!(client.read(&mut [0; 4]).unwrap(), 0);
    }

    #[test]
    fn a_parcel_goes_with_its_socket_and_ends_with_it() {
        let table = IdleTable::new(4096);
        let state = std::sync::Arc::new(());
        let (_client, server) = UnixStream::pair().unwrap();
        let (mut socket, token) = table.register(Socket::new(server.into()), 0).unwrap();
        socket.attach(Parcel::new(Box::new(std::sync::Arc::clone(&state))));
        table.park(socket, entry(0)).unwrap();
        let mut socket = table.take_idle(token).unwrap().socket;
        assert!(socket.detach().unwrap().open::<u8>().is_none(), "it has another type");
        assert_eq!(std::sync::Arc::strong_count(&state), 1);
        table.park(socket, entry(0)).unwrap();
        let mut socket = table.take_idle(token).unwrap().socket;
        assert!(socket.detach().is_none());
        socket.attach(Parcel::new(Box::new(std::sync::Arc::clone(&state))));
        table.park(socket, entry(0)).unwrap();
        drop(table);
        assert_eq!(std::sync::Arc::strong_count(&state), 1);
    }

    #[test]
    fn a_descriptor_beyond_the_limit_is_handed_back() {
        let table = IdleTable::new(1);
        assert_eq!(table.chunks.len(), 1);
        assert_eq!(size_of::<Slot>(), 56);
        let (_client, server) = UnixStream::pair().unwrap();
        let Err(ParkError(socket)) = table.park(Socket::new(server.into()), entry(0)) else {
            panic!("a socket without a registration must not be parked")
        };
        assert!(socket.registration().is_none());
    }
}

/// All interleavings of a few threads; see CONTRIBUTING.md.
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::thread;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    const ENTRY: Entry = Entry { reason: 3, deadline_ms: 0, state: [1, 2, 3, 4] };

    /// A table and a registered socket that is taken out, with its token and its peer.
    fn registered() -> (Arc<IdleTable>, Socket, u64, UnixStream) {
        let table = Arc::new(IdleTable::new(1024));
        let (client, server) = UnixStream::pair().unwrap();
        let (socket, token) = table.register(Socket::new(server.into()), 1).unwrap();
        (table, socket, token, client)
    }

    fn parked() -> (Arc<IdleTable>, u64, UnixStream) {
        let (table, socket, token, client) = registered();
        assert_eq!(table.park(socket, ENTRY).unwrap(), Parked::Idle(token));
        (table, token, client)
    }

    #[test]
    fn loom_an_event_while_a_socket_is_parked_is_not_lost() {
        loom::model(|| {
            let (table, socket, token, _client) = registered();
            let other = Arc::clone(&table);
            let event = thread::spawn(move || other.take(token, true));
            let parked = table.park(socket, ENTRY).unwrap();
            let unparked = match event.join().unwrap() {
                Some(unparked) => {
                    assert_eq!(parked, Parked::Idle(token));
                    unparked
                }
                None => {
                    assert_eq!(parked, Parked::Queued(token));
                    table.take_queued(token).unwrap()
                }
            };
            assert_eq!((unparked.reason, unparked.state, unparked.hangup), (3, [1, 2, 3, 4], true));
        });
    }

    #[test]
    fn loom_a_parked_socket_is_taken_once_and_the_taker_learns_of_the_event() {
        loom::model(|| {
            let (table, token, _client) = parked();
            let other = Arc::clone(&table);
            let inspector = thread::spawn(move || {
                let unparked = other.take_idle(token)?;
                Some(other.park(unparked.socket, ENTRY).unwrap())
            });
            let event = table.take(token, true);
            let inspected = inspector.join().unwrap();
            match event {
                Some(unparked) => {
                    assert!(unparked.hangup && inspected != Some(Parked::Queued(token)))
                }
                None => {
                    assert_eq!(inspected, Some(Parked::Queued(token)));
                    assert!(table.take_queued(token).unwrap().hangup);
                }
            }
        });
    }

    #[test]
    fn loom_a_socket_is_queued_once_whichever_thread_queues_it() {
        loom::model(|| {
            let (table, token, _client) = parked();
            let others = [(); 2].map(|()| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    // The socket is taken from the queue at once and parked again.
                    let queued = table.enqueue(token, false);
                    let unparked = queued.then(|| table.take_queued(token).unwrap())?;
                    Some(table.park(unparked.socket, ENTRY).unwrap())
                })
            });
            let results: Vec<_> = others.map(|other| other.join().unwrap()).into_iter().collect();
            let queued =
                results.iter().filter(|result| **result == Some(Parked::Queued(token))).count();
            let served = results.iter().flatten().count();
            // The second thread served the socket itself, left the event to the first, or came
            // before the first had taken the socket from the queue.
            assert!(served >= 1 && queued <= 1, "{results:?}");
            assert_eq!(table.take_queued(token).is_some(), queued == 1);
        });
    }
}
