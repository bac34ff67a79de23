//! Non-blocking stream sockets and listening sockets: what the serving path asks of the kernel, one
//! function for each system call. A `Socket` owns its descriptor and closes it when dropped. Only
//! `Socket::wait` and `Socket::read_ahead` block.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{self, RecvFlags, SendFlags, Shutdown, SocketFlags};
use std::any::Any;
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// An accepted stream socket, or one end of a socket pair. `registration` records where the socket
/// is registered while it is not parked in its [`crate::idle_table::IdleTable`]. A socket may have
/// a [`Parcel`], which it takes along wherever it goes.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    pub(crate) registration: Option<Registration>,
    pub(crate) parcel: Option<Parcel>,
    ahead: Option<Box<ReadAhead>>,
}

/// What [`Socket::read_ahead`] has read, for the next reads.
#[derive(Debug)]
struct ReadAhead {
    bytes: [u8; READ_AHEAD_BYTES],
    /// The end of the bytes.
    count: usize,
    /// How many of them were taken.
    taken: Cell<usize>,
    /// Whether the descriptor is in blocking mode.
    is_blocking: Cell<bool>,
}

/// How many bytes are read ahead: as many as a service reads at once.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// How long [`Socket::read_ahead`] waits.
pub const READ_AHEAD_WAIT: Duration = Duration::from_millis(20);

impl ReadAhead {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken.get()..self.count).unwrap_or_default()
    }
}

/// The state of a connection that does not fit into the words of its parked state, such as a TLS
/// session. Only the serving function knows its type. The idle table keeps it in one word.
#[derive(Debug)]
pub struct Parcel(pub(crate) Box<Box<dyn Any + Send>>);

impl Parcel {
    /// Packs a state.
    #[must_use]
    pub fn new<T: Any + Send>(state: Box<T>) -> Self {
        Self(Box::new(state))
    }

    /// Whether the state has this type.
    #[must_use]
    pub fn is<T: Any>(&self) -> bool {
        (**self.0).is::<T>()
    }

    /// The state that was packed; `None` if it has another type.
    #[must_use]
    pub fn open<T: Any>(self) -> Option<Box<T>> {
        let state: Box<dyn Any + Send> = *self.0;
        state.downcast().ok()
    }
}

/// The registration of a socket with a poll set: whose set it is, and the generation in its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The serving thread whose poll set has the socket.
    pub owner: u8,
    /// The generation of the slot when the socket was registered.
    pub generation: u32,
}

/// What ended a [`Socket::wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// The socket is readable; the end of the stream counts as readable.
    pub readable: bool,
    /// The peer has closed its side, or the connection is broken: reading leads to the end of the
    /// stream.
    pub hangup: bool,
    /// The waker was used.
    pub waker: bool,
}

impl Socket {
    /// Takes a descriptor of a socket that is in non-blocking mode.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, registration: None, parcel: None, ahead: None }
    }

    /// Where the socket is registered; none where it is not.
    #[must_use]
    pub fn registration(&self) -> Option<Registration> {
        self.registration
    }

    /// Gives the socket a parcel.
    pub fn attach(&mut self, parcel: Parcel) {
        self.parcel = Some(parcel);
    }

    /// Takes the parcel of the socket; `None` if it has none.
    pub fn detach(&mut self) -> Option<Parcel> {
        self.parcel.take()
    }

    /// Reads received bytes into `buffer`; 0 at the end of the stream. `WouldBlock` if nothing has
    /// arrived.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(ahead) = &self.ahead
            && !ahead.rest().is_empty()
        {
            let rest = ahead.rest();
            let count = rest.len().min(buffer.len());
            let (now, _) = rest.split_at(count);
            buffer.get_mut(..count).unwrap_or_default().copy_from_slice(now);
            ahead.taken.set(ahead.taken.get() + count);
            return Ok(count);
        }
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// Waits for at most [`READ_AHEAD_WAIT`] until bytes arrive, and reads them for the next
    /// [`Socket::receive`]: one system call in place of two. The result is that of
    /// [`Socket::wait`]; a signal ends the wait early. The first call sets the descriptor to
    /// blocking mode. The other functions still do not block, because they pass MSG_DONTWAIT.
    /// [`Socket::send_file`] cannot, so it sets the descriptor back to non-blocking mode, and
    /// nothing is read ahead from then on. Errors are those of setsockopt(2) and fcntl(2).
    pub fn read_ahead(&mut self) -> io::Result<Wakeup> {
        let ahead = match &mut self.ahead {
            Some(ahead) => ahead,
            none => {
                let most = Some(READ_AHEAD_WAIT);
                net::sockopt::set_socket_timeout(&self.descriptor, Timeout::Recv, most)?;
                rustix::fs::fcntl_setfl(&self.descriptor, OFlags::empty())?;
                none.insert(Box::new(ReadAhead {
                    bytes: [0; READ_AHEAD_BYTES],
                    count: 0,
                    taken: Cell::new(0),
                    is_blocking: Cell::new(true),
                }))
            }
        };
        if !ahead.rest().is_empty() {
            return Ok(Wakeup { readable: true, ..Wakeup::default() });
        }
        if !ahead.is_blocking.get() {
            return Ok(Wakeup::default());
        }
        (ahead.count, *ahead.taken.get_mut()) = (0, 0);
        match net::recv(&self.descriptor, &mut ahead.bytes, RecvFlags::empty()) {
            Ok((count, _)) => {
                ahead.count = count;
                Ok(Wakeup { readable: true, hangup: count == 0, waker: false })
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(Wakeup::default()),
            // The next read returns this error or the end of the stream.
            Err(_) => Ok(Wakeup { readable: true, hangup: true, waker: false }),
        }
    }

    /// Whether something that was read ahead is left.
    pub(crate) fn has_read_ahead(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| !ahead.rest().is_empty())
    }

    /// Changes the descriptor back to non-blocking mode, for calls that cannot be told not to wait.
    fn leave_blocking_mode(&self) -> io::Result<()> {
        if let Some(ahead) = self.ahead.as_ref().filter(|ahead| ahead.is_blocking.get()) {
            rustix::fs::fcntl_setfl(&self.descriptor, OFlags::NONBLOCK)?;
            ahead.is_blocking.set(false);
        }
        Ok(())
    }

    /// How much of what was sent the other end has not read. A Unix socket counts the kernel's own
    /// use of memory too. Errors are ioctl(2)'s.
    pub fn unread(&self) -> io::Result<usize> {
        unread(&self.descriptor)
    }

    /// Whether bytes have arrived, without reading them; false at the end of the stream.
    /// `WouldBlock` if nothing has arrived.
    pub fn peek(&self) -> io::Result<bool> {
        if self.has_read_ahead() {
            return Ok(true);
        }
        self.receive_with(&mut [0], RecvFlags::PEEK).map(|count| count > 0)
    }

    /// Copies bytes that have arrived, which stay to be received; 0 at the end of the stream.
    /// `WouldBlock` if nothing has arrived. Bytes that were read ahead are not seen.
    pub fn peek_into(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, RecvFlags::PEEK)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        loop {
            match net::recv(&self.descriptor, &mut *buffer, flags | RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                result => return result.map(|(count, _)| count).map_err(io::Error::from),
            }
        }
    }

    /// Sends the parts in order. Returns how many bytes the kernel took, which may be fewer. `more`
    /// promises that more follows at once. `WouldBlock` if the kernel took none.
    pub fn send(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        // A list of parts costs the kernel more, and a single part does not need one.
        if let [part] = parts {
            return self.send_one(part, more);
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
        // SAFETY: an all-zero msghdr is valid: null pointers with zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // IoSlice is ABI-compatible with iovec on Unix; sendmsg only reads through it.
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len();
        loop {
            // SAFETY: the message points at `parts`, which outlive the call.
            let count =
                unsafe { libc::sendmsg(self.descriptor.as_raw_fd(), &raw const message, flags) };
            match usize::try_from(count) {
                Ok(count) => return Ok(count),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }

    fn send_one(&self, part: &[u8], more: bool) -> io::Result<usize> {
        let more = if more { SendFlags::MORE } else { SendFlags::empty() };
        let flags = more | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match net::send(&self.descriptor, part, flags) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map_err(io::Error::from),
            }
        }
    }

    /// Sends up to `count` bytes of a file from `offset` without copying them through this process;
    /// 0 if the file ends there. `WouldBlock` if the socket takes none.
    pub fn send_file(&self, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize> {
        self.leave_blocking_mode()?;
        let mut position = offset;
        loop {
            match rustix::fs::sendfile(&self.descriptor, file, Some(&mut position), count) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map_err(io::Error::from),
            }
        }
    }

    /// Waits until the socket or `waker` is readable or `most` has passed; without `most` for ever.
    /// A signal ends the wait early. Errors are poll(2)'s.
    pub fn wait(
        &self,
        waker: Option<BorrowedFd<'_>>,
        most: Option<Duration>,
    ) -> io::Result<Wakeup> {
        if self.has_read_ahead() {
            return Ok(Wakeup { readable: true, ..Wakeup::default() });
        }
        let watched = PollFlags::IN | PollFlags::RDHUP;
        let mut both = [
            PollFd::from_borrowed_fd(self.descriptor.as_fd(), watched),
            PollFd::from_borrowed_fd(waker.unwrap_or(self.descriptor.as_fd()), PollFlags::IN),
        ];
        let count = if waker.is_some() { 2 } else { 1 };
        let most = most.map(|most| Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        });
        match poll(both.get_mut(..count).unwrap_or_default(), most.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Wakeup::default()),
            Err(error) => return Err(error.into()),
        }
        let [own, waker] = both.map(|one| one.revents());
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        Ok(Wakeup {
            readable: !own.is_empty(),
            hangup: own.intersects(ended),
            waker: count == 2 && !waker.is_empty(),
        })
    }

    /// Ends our side of the stream (FIN). What the peer sends can still be read.
    pub fn shutdown_write(&self) -> io::Result<()> {
        net::shutdown(&self.descriptor, Shutdown::Write).map_err(io::Error::from)
    }

    /// Makes closing end the connection with a reset (RST) and drop what is unsent, so that the
    /// peer does not take an incomplete response for a complete one. An error is ignored: the
    /// connection is broken then anyway.
    pub fn reset_on_close(&self) {
        let at_once = Some(Duration::ZERO);
        let _ = net::sockopt::set_socket_linger(&self.descriptor, at_once);
    }

    /// Our address of the connection.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        crate::listen::local_address(&self.descriptor)
    }

    /// The peer's address.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        net::getpeername(&self.descriptor)?
            .and_then(|address| SocketAddr::try_from(address).ok())
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }

    /// Gives up the descriptor, still open and registered. Bytes that were read ahead are lost.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        // fcntl(2) does not fail for an open descriptor.
        let _ = self.leave_blocking_mode();
        self.descriptor
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// How much of what was sent on a socket the other end has not read. A Unix socket counts the
/// kernel's own use of memory too. Errors are ioctl(2)'s.
pub fn unread(socket: &OwnedFd) -> io::Result<usize> {
    // SIOCOUTQ under its other name (unix(7)).
    let mut unread: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which is live for the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    match done {
        0 => Ok(usize::try_from(unread).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Accepts the next connection of a listening socket (accept4, non-blocking, close-on-exec).
/// `WouldBlock` if the queue is empty.
pub fn accept(listener: impl AsFd) -> io::Result<(Socket, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (descriptor, address) = net::acceptfrom_with(listener, flags)?;
    let client = address
        .and_then(|address| SocketAddr::try_from(address).ok())
        .ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    Ok((Socket::new(descriptor), client))
}

/// Whether the error is a shortage of descriptors or memory, which may soon be over.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    // EMFILE and ENFILE have no kind of their own: 24 and 23 on Linux; ENOBUFS is 105, ENOMEM 12.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}

/// Bounds the unsent output that the kernel keeps for a connection (TCP_NOTSENT_LOWAT). Set on a
/// listening socket, it holds for the connections that are accepted from it. Without it a client
/// that does not read makes the kernel keep megabytes for it.
pub fn limit_unsent(listener: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_number(listener, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Sets an option whose value is a number.
pub(crate) fn set_number(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value is a live int of the size that is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The length and the bound of an accept queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections that wait to be accepted.
    pub length: u32,
    /// How many may wait.
    pub bound: u32,
}

/// Reads the accept queue of a listening socket from TCP_INFO, which gives its length in
/// `tcpi_unacked` and its bound in `tcpi_sacked` (net/ipv4/tcp.c, tcp_get_info). A connection that
/// TCP_DEFER_ACCEPT holds back counts once its data has arrived.
pub fn accept_queue(listener: impl AsFd) -> io::Result<AcceptQueue> {
    let [_, _, _, _, length, bound] = tcp_info(listener.as_fd())?;
    Ok(AcceptQueue { length, bound })
}

/// How many segments a listening socket has dropped since it was created: the last word of
/// SO_MEMINFO (linux/sock_diag.h, SK_MEMINFO_DROPS). It counts connections that were refused
/// because the queue was full, and with TCP_DEFER_ACCEPT the end of each handshake without data. It
/// wraps after 2^32. 0 if the kernel does not tell.
pub fn dropped_segments(listener: impl AsFd) -> u32 {
    const WORDS: usize = 9;
    let mut words = [0_u32; WORDS];
    let mut size = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the buffer is live and has the given size; every bit pattern is a valid u32.
    let result = unsafe {
        libc::getsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let [.., dropped] = words;
    if result == 0 && size as usize == size_of_val(&words) { dropped } else { 0 }
}

/// The age of the last bytes received on a connection, in milliseconds (`tcpi_last_data_recv` of
/// TCP_INFO). If they are its first and unread, this is how long the client has waited.
pub fn data_age_ms(connection: impl AsFd) -> io::Result<u32> {
    let [.., age_ms] = tcp_info::<12>(connection.as_fd())?;
    Ok(age_ms)
}

/// What the peer has acknowledged of what was sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendProgress {
    /// How many bytes it has acknowledged since the connection began (`tcpi_bytes_acked`).
    pub bytes: u64,
    /// Whether its receive window is closed: nothing is in flight although data is unsent
    /// (`tcpi_unacked`, `tcpi_notsent_bytes`). On a slow line something is in flight.
    pub is_blocked: bool,
    /// For how many microseconds in all the receive window has limited the sender
    /// (`tcpi_rwnd_limited`).
    pub blocked_us: u64,
}

/// Reads the progress from TCP_INFO.
pub fn send_progress(connection: impl AsFd) -> io::Result<SendProgress> {
    let words = tcp_info::<MOST_WORDS>(connection.as_fd())?;
    // 24 counters of 32 bits, two of 64, two more of 64, six of 32, and then again counters of 64:
    // a rate, the busy time, and the time limited by the receive window.
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let long = |at: usize| {
        let (one, other) = (word(at).to_ne_bytes(), word(at + 1).to_ne_bytes());
        let mut bytes = one.into_iter().chain(other);
        u64::from_ne_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0)))
    };
    Ok(SendProgress {
        bytes: long(28),
        is_blocked: word(4) == 0 && word(34) > 0,
        blocked_us: long(42),
    })
}

/// How many words of TCP_INFO are read at most.
const MOST_WORDS: usize = 44;

/// The first counters of TCP_INFO (linux/tcp.h), of 32 bits each: `rto`, `ato`, two segment sizes,
/// `unacked`, `sacked`, `lost`, `retrans`, `fackets`, and when data and acknowledgements were last
/// sent and data received. Eight bytes of state precede them. The kernel copies no more than it is
/// asked for.
fn tcp_info<const COUNT: usize>(socket: BorrowedFd<'_>) -> io::Result<[u32; COUNT]> {
    let mut words = [0_u32; 2 + MOST_WORDS];
    let mut size = ((2 + COUNT.min(MOST_WORDS)) * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: the buffer is live and at least as large as the given size; every bit pattern is a
    // valid u32.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            words.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(std::array::from_fn(|at| words.get(at + 2).copied().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    fn listener() -> (OwnedFd, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener.into(), address)
    }

    #[test]
    fn connections_that_find_the_queue_full_are_counted() {
        let (listener, address) = listener();
        crate::listen::listen(&listener, 1).unwrap();
        assert_eq!(dropped_segments(&listener), 0);
        let remote = crate::connect::Remote::Internet(address);
        let local = crate::connect::Local::default();
        let _all: Vec<_> =
            (0..4).map(|_| crate::connect::begin(&remote, &local).unwrap()).collect();
        // Over loopback the kernel has decided by the time the call returns.
        assert!(dropped_segments(&listener) >= 1);
    }

    #[test]
    fn the_age_of_data_tells_how_long_its_client_has_waited() {
        let (listener, address) = listener();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"x").unwrap();
        let (server, _) = accept(&listener).unwrap();
        let first = data_age_ms(&server).unwrap();
        // The kernel's clock goes on, and nothing else has arrived.
        while data_age_ms(&server).unwrap() < first + 20 {
            std::thread::yield_now();
        }
        client.write_all(b"y").unwrap();
        while data_age_ms(&server).unwrap() >= first + 20 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn acknowledged_bytes_are_told_apart_from_sent_bytes() {
        let (listener, address) = listener();
        let mut client = TcpStream::connect(address).unwrap();
        let (server, _) = accept(&listener).unwrap();
        assert_eq!(send_progress(&server).unwrap(), SendProgress::default());
        let piece = vec![0; 64 << 10];
        let mut sent = 0;
        while let Ok(count) = server.send(&[IoSlice::new(&piece)], false) {
            sent += count as u64;
        }
        let before = send_progress(&server).unwrap().bytes;
        assert!(before > 0 && before < sent, "{before} of {sent}");
        // The peer's system reports this once the last segment that it had room for has arrived.
        while !send_progress(&server)
            .is_ok_and(|progress| progress.is_blocked && progress.blocked_us > 0)
        {
            std::thread::yield_now();
        }
        server.shutdown_write().unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        while send_progress(&server).unwrap().bytes < sent {
            std::thread::yield_now();
        }
    }

    #[test]
    fn queue_counts_what_waits() {
        let (listener, address) = listener();
        assert_eq!(accept_queue(&listener).unwrap().length, 0);
        let _one = TcpStream::connect(address).unwrap();
        let _two = TcpStream::connect(address).unwrap();
        let queue = accept_queue(&listener).unwrap();
        assert_eq!(queue.length, 2);
        assert!(queue.bound >= 2);
        accept(&listener).unwrap();
        assert_eq!(accept_queue(&listener).unwrap().length, 1);
    }

    #[test]
    fn bytes_go_both_ways_and_empty_means_would_block() {
        let (listener, address) = listener();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"ping").unwrap();
        let (socket, peer) = accept(&listener).unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(socket.local_address().unwrap(), address);
        assert_eq!(socket.peer_address().unwrap(), peer);
        let mut buffer = [0; 16];
        assert!(socket.peek().unwrap());
        assert_eq!(socket.receive(&mut buffer).unwrap(), 4);
        assert_eq!(socket.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(socket.peek().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(socket.send(&[IoSlice::new(b"po"), IoSlice::new(b"ng")], false).unwrap(), 4);
        socket.shutdown_write().unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "pong");
        assert_eq!(accept(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    fn pair() -> (Socket, UnixStream) {
        let (own, peer) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (Socket::new(own.into()), peer)
    }

    #[test]
    fn what_is_read_ahead_is_received_next_and_nothing_else_waits() {
        let (mut socket, mut peer) = pair();
        assert_eq!(socket.read_ahead().unwrap(), Wakeup::default());
        peer.write_all(b"one two").unwrap();
        let readable = Wakeup { readable: true, ..Wakeup::default() };
        assert_eq!(socket.read_ahead().unwrap(), readable);
        // It is there although the kernel has no more of it.
        assert_eq!(socket.wait(None, None).unwrap(), readable);
        assert_eq!(socket.read_ahead().unwrap(), readable);
        assert!(socket.peek().unwrap());
        let mut buffer = [0; 4];
        assert_eq!((socket.receive(&mut buffer).unwrap(), &buffer), (4, b"one "));
        assert_eq!((socket.receive(&mut buffer).unwrap(), &buffer[..3]), (3, &b"two"[..]));
        let blocks = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        assert!(blocks(socket.receive(&mut buffer).unwrap_err()));
        assert!(blocks(socket.peek().unwrap_err()));
        let part = vec![0; 1 << 20];
        for parts in [&[IoSlice::new(&part)][..], &[IoSlice::new(&part), IoSlice::new(&part)][..]] {
            let error = loop {
                if let Err(error) = socket.send(parts, false) {
                    break error;
                }
            };
            assert!(blocks(error));
        }
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(blocks(socket.send_file(file.as_fd(), 0, 1 << 20).unwrap_err()));
        // From now on it must not change the mode for each file.
        peer.write_all(b"three").unwrap();
        assert_eq!(socket.read_ahead().unwrap(), Wakeup::default());
        assert!(socket.wait(None, None).unwrap().readable);
    }

    #[test]
    fn the_end_of_a_stream_is_read_ahead() {
        let (mut socket, peer) = pair();
        drop(peer);
        let ended = Wakeup { readable: true, hangup: true, waker: false };
        assert_eq!(socket.read_ahead().unwrap(), ended);
        assert_eq!(socket.receive(&mut [0; 4]).unwrap(), 0);
    }

    #[test]
    fn a_wait_tells_what_ended_it() {
        let (listener, address) = listener();
        let mut client = TcpStream::connect(address).unwrap();
        let (socket, _) = accept(&listener).unwrap();
        let waker = crate::waker::Waker::new().unwrap();
        let wait = || socket.wait(Some(waker.as_fd()), Some(Duration::ZERO)).unwrap();
        assert_eq!(wait(), Wakeup::default());
        waker.wake();
        assert_eq!(wait(), Wakeup { waker: true, ..Wakeup::default() });
        waker.reset();
        client.write_all(b"x").unwrap();
        let come = Wakeup { readable: true, ..Wakeup::default() };
        assert_eq!(socket.wait(None, None).unwrap(), come);
        socket.receive(&mut [0; 8]).unwrap();
        drop(client);
        assert!(socket.wait(None, None).unwrap().hangup);
    }

    #[test]
    fn what_is_not_sent_is_bounded() {
        let (listener, address) = listener();
        limit_unsent(&listener, 64 << 10).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let (socket, _) = accept(&listener).unwrap();
        let piece = vec![0; 16 << 10];
        let mut taken = 0;
        while let Ok(count) = socket.send(&[IoSlice::new(&piece)], false) {
            taken += count;
        }
        // The client's receive window (the middle value of tcp_rmem) and the unsent output.
        assert!(taken < 1 << 20, "{taken}");
    }

    #[test]
    fn a_file_is_sent_from_an_offset() {
        let (listener, address) = listener();
        let mut client = TcpStream::connect(address).unwrap();
        let (socket, _) = accept(&listener).unwrap();
        let mut file = std::fs::File::from(
            rustix::fs::memfd_create("piece", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        file.write_all(b"0123456789").unwrap();
        assert_eq!(socket.send_file(file.as_fd(), 4, 3).unwrap(), 3);
        assert_eq!(socket.send_file(file.as_fd(), 10, 3).unwrap(), 0);
        drop(socket);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "456");
    }
}
