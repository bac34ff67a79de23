//! The shelf of idle connections: sockets come in with a few words of memory and a deadline,
//! each lies in the slot of its descriptor number, and goes out to whoever shows the right
//! token. A lying socket stands in at most one line of those whose turn has come, and then only
//! whoever has that place in line takes it. All serving threads of a child share one shelf,
//! without a lock; it never looks at a socket's bytes.

use crate::socket::{Seat, Socket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU32, AtomicU64};

/// What a connection keeps while it lies on the shelf; its meaning is the serving function's.
pub type Memo = [u64; 4];

/// Slots are made in runs of this many, when the first descriptor of a run is put down.
#[cfg(not(all(test, loom)))]
const RUN: usize = 1024;
#[cfg(all(test, loom))]
const RUN: usize = 2;

/// The slot holds a socket.
const OCCUPIED: u64 = 1;
/// An event came for the slot's registration while its socket was out or in line.
const MISSED: u64 = 2;
/// That event told of the end of the peer's side.
const HANGUP: u64 = 4;
/// The socket lies and stands in a line: only its place there takes it.
const IN_LINE: u64 = 8;
const OWNER_SHIFT: u32 = 8;
const CLASS_SHIFT: u32 = 16;
const GENERATION_SHIFT: u32 = 32;

/// One descriptor's place, 48 bytes.
#[derive(Default)]
struct Slot {
    /// Generation, class, owner and the bits above.
    state: AtomicU64,
    /// When the socket is to be taken off, in milliseconds of the caller's wrapping clock.
    deadline_ms: AtomicU32,
    memo: [AtomicU64; 4],
}

/// The table of slots, by descriptor number.
pub struct Shelf {
    runs: Box<[OnceLock<Box<[Slot]>>]>,
    /// One more than the highest descriptor that was ever put down.
    top: AtomicU32,
}

/// What a lying socket waits for, with what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// A small number that tells the reasons for lying apart.
    pub class: u8,
    /// When it is to be taken off, in milliseconds of the caller's wrapping clock.
    pub deadline_ms: u32,
    /// What the connection keeps.
    pub memo: Memo,
}

/// A socket taken off the shelf.
#[derive(Debug)]
pub struct Taken {
    /// The socket, still registered.
    pub socket: Socket,
    /// Why it lay there.
    pub class: u8,
    /// What it kept.
    pub memo: Memo,
    /// Whether an event told of the end of the peer's side.
    pub hangup: bool,
}

/// Why a socket could not be put down.
#[derive(Debug)]
pub struct Full(pub Socket);

/// What became of a socket that was put down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It lies and its next event is still to come.
    Lying(u64),
    /// An event came while it was out: its turn has come, and it stands in the caller's line.
    InLine(u64),
}

impl Shelf {
    /// A shelf for descriptors below `limit` (RLIMIT_NOFILE). Nothing but the table of runs is
    /// allocated.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let runs = limit.div_ceil(RUN).max(1);
        Self { runs: (0..runs).map(|_| OnceLock::new()).collect(), top: AtomicU32::new(0) }
    }

    /// The token under which a socket that has no seat will be registered in the set of `owner`:
    /// a new generation of its slot. The socket must be put down before its event can be heeded.
    ///
    /// # Errors
    /// Gives the socket back where its descriptor is beyond the limit of the shelf.
    pub fn register(&self, mut socket: Socket, owner: u8) -> Result<(Socket, u64), Full> {
        let Ok(descriptor) = u32::try_from(socket.as_raw_fd()) else { return Err(Full(socket)) };
        let Some(slot) = self.make(descriptor) else { return Err(Full(socket)) };
        let state = slot.state.load(Ordering::Relaxed);
        let generation = ((state >> GENERATION_SHIFT) as u32).wrapping_add(1);
        slot.state.store(pack(generation, 0, owner), Ordering::Release);
        socket.seat = Some(Seat { owner, generation });
        Ok((socket, token(descriptor, generation)))
    }

    /// Puts a registered socket down. Where an event came while it was out, it is in line at
    /// once, and the caller must give its token a place.
    ///
    /// # Errors
    /// Gives the socket back where it was never registered.
    pub fn put(&self, socket: Socket, rest: Rest) -> Result<Put, Full> {
        let Some(Seat { owner, generation }) = socket.seat else { return Err(Full(socket)) };
        let Ok(descriptor) = u32::try_from(socket.as_raw_fd()) else { return Err(Full(socket)) };
        let Some(slot) = self.slot(descriptor) else { return Err(Full(socket)) };
        slot.deadline_ms.store(rest.deadline_ms, Ordering::Relaxed);
        for (word, value) in slot.memo.iter().zip(rest.memo) {
            word.store(value, Ordering::Relaxed);
        }
        let _ = socket.into_descriptor().into_raw_fd();
        let lying = pack(generation, rest.class, owner) | OCCUPIED;
        let token = token(descriptor, generation);
        let put = |old: u64| match old & MISSED {
            0 => Some(lying),
            _ => Some(lying | IN_LINE | old & (MISSED | HANGUP)),
        };
        // Release: whoever takes the socket sees the deadline and the memo.
        match slot.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, put) {
            Ok(old) if old & MISSED != 0 => Ok(Put::InLine(token)),
            _ => Ok(Put::Lying(token)),
        }
    }

    /// Takes the socket of an event's token. Where it is out or in line, the event and `hangup`
    /// are kept: it will be in line when it is put down, or whoever takes it is told.
    #[must_use]
    pub fn take(&self, token: u64, hangup: bool) -> Option<Taken> {
        let missed = MISSED | if hangup { HANGUP } else { 0 };
        let old = self.change(token, |state| match state & (OCCUPIED | IN_LINE) {
            OCCUPIED => Some(state & !(OCCUPIED | MISSED | HANGUP)),
            _ => Some(state | missed),
        })?;
        (old & (OCCUPIED | IN_LINE) == OCCUPIED).then(|| self.open(token, old, hangup))?
    }

    /// Takes the socket of a token if it lies and stands in no line: to look at it, with no
    /// event.
    #[must_use]
    pub fn take_idle(&self, token: u64) -> Option<Taken> {
        let old = self.change(token, |state| {
            (state & (OCCUPIED | IN_LINE) == OCCUPIED).then_some(state & !OCCUPIED)
        })?;
        self.open(token, old, false)
    }

    /// Takes the socket of a token that has a place in the caller's line, and the place with it.
    #[must_use]
    pub fn take_from_line(&self, token: u64) -> Option<Taken> {
        let old = self.change(token, |state| {
            (state & IN_LINE != 0).then_some(state & !(OCCUPIED | IN_LINE | MISSED | HANGUP))
        })?;
        self.open(token, old, old & HANGUP != 0)
    }

    /// Notes an event for a socket that is not to be taken now. True where it is in line from
    /// now on, and the caller must give the token a place; false where it has one or is out, and
    /// whoever takes it or puts it down is told.
    #[must_use]
    pub fn line_up(&self, token: u64, hangup: bool) -> bool {
        let missed = MISSED | if hangup { HANGUP } else { 0 };
        let old = self.change(token, |state| match state & OCCUPIED {
            0 => Some(state | missed),
            _ => Some(state | missed | IN_LINE),
        });
        old.is_some_and(|old| old & (OCCUPIED | IN_LINE) == OCCUPIED)
    }

    /// Changes the state of a token's slot and gives the one before; none where the token is of
    /// another generation or `next` wants no change.
    fn change(&self, token: u64, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let slot = self.slot(token as u32)?;
        let next = |state: u64| match state >> GENERATION_SHIFT == token >> GENERATION_SHIFT {
            true => next(state),
            false => None,
        };
        slot.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()
    }

    /// Makes the socket of a slot whose bit OCCUPIED the caller has just cleared from `state`.
    fn open(&self, token: u64, state: u64, hangup: bool) -> Option<Taken> {
        let (descriptor, generation) = (token as u32, (token >> GENERATION_SHIFT) as u32);
        let [a, b, c, d] = &self.slot(descriptor)?.memo;
        let memo = [a, b, c, d].map(|word| word.load(Ordering::Relaxed));
        let owner = (state >> OWNER_SHIFT) as u8;
        // SAFETY: `put` gave up this descriptor when it set OCCUPIED, and only the one whose
        // exchange cleared the bit comes here: the descriptor is open and has no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor.cast_signed()) };
        let mut socket = Socket::new(descriptor);
        socket.seat = Some(Seat { owner, generation });
        Some(Taken { socket, class: (state >> CLASS_SHIFT) as u8, memo, hangup })
    }

    /// Whether the deadline of a token's socket has passed at `now_ms`, while it lies.
    #[must_use]
    pub fn is_over(&self, token: u64, now_ms: u32) -> bool {
        let Some(slot) = self.slot(token as u32) else { return false };
        let state = slot.state.load(Ordering::Acquire);
        let left = slot.deadline_ms.load(Ordering::Relaxed).wrapping_sub(now_ms).cast_signed();
        state & OCCUPIED != 0 && state >> GENERATION_SHIFT == token >> GENERATION_SHIFT && left <= 0
    }

    /// Gives every socket of `owner`, or of all, that lies and stands in no line to `visit`:
    /// token, class, and the milliseconds left of its deadline at `now_ms`, negative where it is
    /// over.
    pub fn sweep(&self, owner: Option<u8>, now_ms: u32, mut visit: impl FnMut(u64, u8, i32)) {
        let top = self.top.load(Ordering::Acquire);
        for (index, run) in self.runs.iter().enumerate() {
            let first = (index * RUN) as u32;
            if first >= top {
                return;
            }
            let Some(slots) = run.get() else { continue };
            for (offset, slot) in slots.iter().enumerate() {
                let state = slot.state.load(Ordering::Acquire);
                let is_asked = owner.is_none_or(|owner| (state >> OWNER_SHIFT) as u8 == owner);
                if state & (OCCUPIED | IN_LINE) == OCCUPIED && is_asked {
                    let left = slot.deadline_ms.load(Ordering::Relaxed).wrapping_sub(now_ms);
                    let generation = (state >> GENERATION_SHIFT) as u32;
                    let token = token(first + offset as u32, generation);
                    visit(token, (state >> CLASS_SHIFT) as u8, left.cast_signed());
                }
            }
        }
    }

    fn slot(&self, descriptor: u32) -> Option<&Slot> {
        let descriptor = descriptor as usize;
        self.runs.get(descriptor / RUN)?.get()?.get(descriptor % RUN)
    }

    fn make(&self, descriptor: u32) -> Option<&Slot> {
        let run = self.runs.get(descriptor as usize / RUN)?;
        let slots = run.get_or_init(|| (0..RUN).map(|_| Slot::default()).collect());
        self.top.fetch_max(descriptor + 1, Ordering::AcqRel);
        slots.get(descriptor as usize % RUN)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        for (index, run) in self.runs.iter_mut().enumerate() {
            let Some(slots) = run.get_mut() else { continue };
            for (offset, slot) in slots.iter().enumerate() {
                if slot.state.load(Ordering::Relaxed) & OCCUPIED != 0 {
                    let descriptor = (index * RUN + offset) as i32;
                    // SAFETY: an occupied slot owns its descriptor, see `take`; the shelf is
                    // borrowed exclusively, and nobody can take it any more.
                    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
                }
            }
        }
    }
}

const fn pack(generation: u32, class: u8, owner: u8) -> u64 {
    ((generation as u64) << GENERATION_SHIFT)
        | ((class as u64) << CLASS_SHIFT)
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

    fn rest(deadline_ms: u32) -> Rest {
        Rest { class: 3, deadline_ms, memo: [1, 2, 3, u64::MAX] }
    }

    #[test]
    fn a_socket_comes_back_once_with_its_memo() {
        let shelf = Shelf::new(4096);
        let (_client, server) = UnixStream::pair().unwrap();
        let (socket, token) = shelf.register(Socket::new(server.into()), 1).unwrap();
        assert!(shelf.take(token, false).is_none(), "it is not lying yet");
        // The event before it lay is told.
        assert_eq!(shelf.put(socket, rest(50)).unwrap(), Put::InLine(token));
        let taken = shelf.take_from_line(token).unwrap();
        assert_eq!((taken.class, taken.memo), (3, [1, 2, 3, u64::MAX]));
        assert_eq!(taken.socket.seat(), Some(Seat { owner: 1, generation: 1 }));
        assert!(shelf.take(token, true).is_none());
        assert_eq!(shelf.put(taken.socket, rest(50)).unwrap(), Put::InLine(token));
        let taken = shelf.take_from_line(token).unwrap();
        assert!(taken.hangup);
        assert_eq!(shelf.put(taken.socket, rest(50)).unwrap(), Put::Lying(token));
    }

    #[test]
    fn a_socket_in_line_has_one_place_and_nobody_else_takes_it() {
        let shelf = Shelf::new(4096);
        let (_client, server) = UnixStream::pair().unwrap();
        let (socket, token) = shelf.register(Socket::new(server.into()), 0).unwrap();
        assert!(!shelf.line_up(token, false), "it is out");
        assert_eq!(shelf.put(socket, rest(0)).unwrap(), Put::InLine(token));
        assert!(!shelf.line_up(token, false) && !shelf.line_up(token, true));
        assert!(shelf.take(token, false).is_none() && shelf.take_idle(token).is_none());
        shelf.sweep(None, 1, |_, _, _| panic!("what is in line needs no look"));
        let taken = shelf.take_from_line(token).unwrap();
        assert!(taken.hangup && shelf.take_from_line(token).is_none());
        assert_eq!(shelf.put(taken.socket, rest(0)).unwrap(), Put::Lying(token));
        let taken = shelf.take_idle(token).unwrap();
        assert!(shelf.take_idle(token).is_none(), "a look leaves no trace");
        assert_eq!(shelf.put(taken.socket, rest(0)).unwrap(), Put::Lying(token));
        assert!(shelf.line_up(token, false));
        assert!(!shelf.take_from_line(token).unwrap().hangup);
    }

    #[test]
    fn an_old_token_opens_nothing() {
        let shelf = Shelf::new(4096);
        let (_client, server) = UnixStream::pair().unwrap();
        let (socket, old) = shelf.register(Socket::new(server.into()), 0).unwrap();
        let (socket, new) = shelf.register(socket, 0).unwrap();
        shelf.put(socket, rest(0)).unwrap();
        assert!(shelf.take(old, false).is_none());
        assert!(shelf.take(new, false).is_some());
    }

    #[test]
    fn a_sweep_sees_only_its_own_and_wraps_with_the_clock() {
        let shelf = Shelf::new(4096);
        let mut kept = Vec::new();
        for (owner, deadline) in [(0, 10), (0, u32::MAX - 5), (1, 10)] {
            let (client, server) = UnixStream::pair().unwrap();
            let (socket, _) = shelf.register(Socket::new(server.into()), owner).unwrap();
            shelf.put(socket, rest(deadline)).unwrap();
            kept.push(client);
        }
        let mut left = Vec::new();
        shelf.sweep(Some(0), u32::MAX, |_, class, ms| left.push((class, ms)));
        assert_eq!(left, [(3, 11), (3, -5)]);
        let mut all = 0;
        shelf.sweep(None, 0, |_, _, _| all += 1);
        assert_eq!(all, 3);
    }

    #[test]
    fn the_shelf_closes_what_lies_on_it() {
        let shelf = Shelf::new(4096);
        let (mut client, server) = UnixStream::pair().unwrap();
        let (socket, _) = shelf.register(Socket::new(server.into()), 0).unwrap();
        shelf.put(socket, rest(0)).unwrap();
        drop(shelf);
        assert_eq!(client.read(&mut [0; 4]).unwrap(), 0);
    }

    #[test]
    fn a_descriptor_beyond_the_limit_is_given_back() {
        let shelf = Shelf::new(1);
        assert_eq!(shelf.runs.len(), 1);
        assert_eq!(size_of::<Slot>(), 48);
        let (_client, server) = UnixStream::pair().unwrap();
        let Err(Full(socket)) = shelf.put(Socket::new(server.into()), rest(0)) else {
            panic!("a socket without seat must not lie")
        };
        assert!(socket.seat().is_none());
    }
}

/// Every order of the steps of a few threads; see CONTRIBUTING.md.
#[cfg(all(test, loom))]
mod orders {
    use super::*;
    use loom::thread;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    const REST: Rest = Rest { class: 3, deadline_ms: 0, memo: [1, 2, 3, 4] };

    /// A shelf and a socket that is registered and out, with its token and its peer.
    fn registered() -> (Arc<Shelf>, Socket, u64, UnixStream) {
        let shelf = Arc::new(Shelf::new(1024));
        let (client, server) = UnixStream::pair().unwrap();
        let (socket, token) = shelf.register(Socket::new(server.into()), 1).unwrap();
        (shelf, socket, token, client)
    }

    fn lying() -> (Arc<Shelf>, u64, UnixStream) {
        let (shelf, socket, token, client) = registered();
        assert_eq!(shelf.put(socket, REST).unwrap(), Put::Lying(token));
        (shelf, token, client)
    }

    #[test]
    fn loom_an_event_while_a_socket_is_put_down_is_not_lost() {
        loom::model(|| {
            let (shelf, socket, token, _client) = registered();
            let other = Arc::clone(&shelf);
            let event = thread::spawn(move || other.take(token, true));
            let put = shelf.put(socket, REST).unwrap();
            let taken = match event.join().unwrap() {
                Some(taken) => {
                    assert_eq!(put, Put::Lying(token));
                    taken
                }
                None => {
                    assert_eq!(put, Put::InLine(token));
                    shelf.take_from_line(token).unwrap()
                }
            };
            assert_eq!((taken.class, taken.memo, taken.hangup), (3, [1, 2, 3, 4], true));
        });
    }

    #[test]
    fn loom_a_lying_socket_is_taken_by_one_and_an_event_reaches_whoever_that_is() {
        loom::model(|| {
            let (shelf, token, _client) = lying();
            let other = Arc::clone(&shelf);
            let looker = thread::spawn(move || {
                let taken = other.take_idle(token)?;
                Some(other.put(taken.socket, REST).unwrap())
            });
            let event = shelf.take(token, true);
            let looked = looker.join().unwrap();
            match event {
                Some(taken) => assert!(taken.hangup && looked != Some(Put::InLine(token))),
                None => {
                    assert_eq!(looked, Some(Put::InLine(token)));
                    assert!(shelf.take_from_line(token).unwrap().hangup);
                }
            }
        });
    }

    #[test]
    fn loom_a_socket_gets_one_place_in_line_whoever_sends_it_there() {
        loom::model(|| {
            let (shelf, token, _client) = lying();
            let others = [(); 2].map(|()| {
                let shelf = Arc::clone(&shelf);
                thread::spawn(move || {
                    // The place is used at once, and the socket put down again.
                    let placed = shelf.line_up(token, false);
                    let taken = placed.then(|| shelf.take_from_line(token).unwrap())?;
                    Some(shelf.put(taken.socket, REST).unwrap())
                })
            });
            let puts: Vec<_> = others.map(|other| other.join().unwrap()).into_iter().collect();
            let told = puts.iter().filter(|put| **put == Some(Put::InLine(token))).count();
            let served = puts.iter().flatten().count();
            // The second was served by itself, told to the first, or came before its place was
            // used.
            assert!(served >= 1 && told <= 1, "{puts:?}");
            assert_eq!(shelf.take_from_line(token).is_some(), told == 1);
        });
    }
}
