//! The shelf of idle connections: sockets come in with a few words of memory and a deadline,
//! each lies in the slot of its descriptor number, and goes out to whoever shows the right
//! token. All serving threads of a child share one shelf, without a lock; it never looks at a
//! socket's bytes.

use crate::socket::{Seat, Socket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a connection keeps while it lies on the shelf; its meaning is the serving function's.
pub type Memo = [u64; 4];

/// Slots are made in runs of this many, when the first descriptor of a run is put down.
const RUN: usize = 1024;

/// The slot holds a socket.
const OCCUPIED: u64 = 1;
/// An event came for the slot's registration while its socket was out.
const MISSED: u64 = 2;
/// That event told of the end of the peer's side.
const HANGUP: u64 = 4;
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
}

/// Why a socket could not be put down.
#[derive(Debug)]
pub struct Full(pub Socket);

/// What became of a socket that was put down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It lies and its next event is still to come.
    Lying(u64),
    /// An event came while it was out: it is readable now, and at its end if `hangup`.
    Readable {
        /// Its token.
        token: u64,
        /// Whether the peer has ended its side.
        hangup: bool,
    },
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

    /// Puts a registered socket down. An event that came while it was out is told now.
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
        // Release: whoever takes the socket sees the deadline and the memo.
        let old = slot.state.swap(lying, Ordering::AcqRel);
        let token = token(descriptor, generation);
        if old & MISSED == 0 {
            return Ok(Put::Lying(token));
        }
        Ok(Put::Readable { token, hangup: old & HANGUP != 0 })
    }

    /// Takes the socket of a token; none where it is out or long gone. Then `hangup` is kept for
    /// the one that has it, who will be told when it is put down.
    #[must_use]
    pub fn take(&self, token: u64, hangup: bool) -> Option<Taken> {
        let (descriptor, generation) = (token as u32, (token >> GENERATION_SHIFT) as u32);
        let slot = self.slot(descriptor)?;
        let mut state = slot.state.load(Ordering::Acquire);
        loop {
            if (state >> GENERATION_SHIFT) as u32 != generation {
                return None;
            }
            let lying = state & OCCUPIED != 0;
            let missed = MISSED | if hangup { HANGUP } else { 0 };
            let next = if lying { state & !OCCUPIED } else { state | missed };
            match slot.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) if !lying => return None,
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let [a, b, c, d] = &slot.memo;
        let memo = [a, b, c, d].map(|word| word.load(Ordering::Relaxed));
        let owner = (state >> OWNER_SHIFT) as u8;
        // SAFETY: `put` gave up this descriptor when it set OCCUPIED, and only the one whose
        // exchange cleared the bit comes here: the descriptor is open and has no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor.cast_signed()) };
        let mut socket = Socket::new(descriptor);
        socket.seat = Some(Seat { owner, generation });
        Some(Taken { socket, class: (state >> CLASS_SHIFT) as u8, memo })
    }

    /// Whether the socket of a token lies and its deadline has passed at `now_ms`.
    #[must_use]
    pub fn is_over(&self, token: u64, now_ms: u32) -> bool {
        let Some(slot) = self.slot(token as u32) else { return false };
        let state = slot.state.load(Ordering::Acquire);
        let left = slot.deadline_ms.load(Ordering::Relaxed).wrapping_sub(now_ms).cast_signed();
        state & OCCUPIED != 0 && state >> GENERATION_SHIFT == token >> GENERATION_SHIFT && left <= 0
    }

    /// Gives every lying socket of `owner` to `visit`: token, class, and the milliseconds left
    /// of its deadline at `now_ms`, negative where it is over.
    pub fn sweep(&self, owner: u8, now_ms: u32, mut visit: impl FnMut(u64, u8, i32)) {
        let top = self.top.load(Ordering::Acquire);
        for (index, run) in self.runs.iter().enumerate() {
            let first = (index * RUN) as u32;
            if first >= top {
                return;
            }
            let Some(slots) = run.get() else { continue };
            for (offset, slot) in slots.iter().enumerate() {
                let state = slot.state.load(Ordering::Acquire);
                if state & OCCUPIED != 0 && (state >> OWNER_SHIFT) as u8 == owner {
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
            for (offset, slot) in slots.iter_mut().enumerate() {
                if *slot.state.get_mut() & OCCUPIED != 0 {
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
        let Put::Readable { token: same, hangup: false } = shelf.put(socket, rest(50)).unwrap()
        else {
            panic!("the event before it lay must be told")
        };
        assert_eq!(same, token);
        let taken = shelf.take(token, false).unwrap();
        assert_eq!((taken.class, taken.memo), (3, [1, 2, 3, u64::MAX]));
        assert_eq!(taken.socket.seat(), Some(Seat { owner: 1, generation: 1 }));
        assert!(shelf.take(token, true).is_none());
        assert_eq!(
            shelf.put(taken.socket, rest(50)).unwrap(),
            Put::Readable { token, hangup: true }
        );
        let taken = shelf.take(token, false).unwrap();
        assert_eq!(shelf.put(taken.socket, rest(50)).unwrap(), Put::Lying(token));
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
        shelf.sweep(0, u32::MAX, |_, class, ms| left.push((class, ms)));
        assert_eq!(left, [(3, 11), (3, -5)]);
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
