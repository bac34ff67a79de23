//! A channel between two processes that carries single bytes both ways, in order, and descriptors
//! with a byte. When the process on one end dies, the other end reads `Closed`. Neither end blocks.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The most descriptors that can be sent with a byte.
pub const MOST_DESCRIPTORS: usize = 64;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// The result of [`Channel::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A byte from the other end.
    Byte(u8),
    /// Nothing has arrived.
    Empty,
    /// The other end is closed, and nothing is left to read.
    Closed,
}

impl Channel {
    /// Two connected ends, close-on-exec. Errors are the kernel's (socketpair(2)).
    pub fn pair() -> io::Result<(Self, Self)> {
        // Datagrams in order: a reader never sees half a message, and unlike with SOCK_DGRAM it
        // sees the end of the other side.
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok((Self { socket: one }, Self { socket: other }))
    }

    /// Sends one byte. `Ok(false)` means that the buffer is full because the other end does not
    /// read; the error `BrokenPipe` means that it is closed.
    pub fn send(&self, byte: u8) -> io::Result<bool> {
        match rustix::net::send(&self.socket, &[byte], SendFlags::NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends one byte as [`Channel::send`] does, and with it up to [`MOST_DESCRIPTORS`]
    /// descriptors. They stay open in this process, and for the receiver even if this process ends.
    /// Errors are also the kernel's (sendmsg(2)).
    pub fn send_with(&self, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !rights.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = [io::IoSlice::new(std::slice::from_ref(&byte))];
        match rustix::net::sendmsg(&self.socket, &bytes, &mut rights, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a byte, with the descriptors that were sent with it, close-on-exec; none if this
    /// process has no room for all of them. [`Channel::receive`] drops descriptors.
    #[must_use]
    pub fn receive_with(&self) -> (Received, Vec<OwnedFd>) {
        let mut byte = [0_u8; 1];
        loop {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
            let mut rights = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [io::IoSliceMut::new(&mut byte)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received = rustix::net::recvmsg(&self.socket, &mut bytes, &mut rights, flags);
            let received = match received {
                Ok(message) if message.bytes == 1 => message,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return (Received::Empty, Vec::new()),
                Ok(_) | Err(_) => return (Received::Closed, Vec::new()),
            };
            let mut descriptors = Vec::new();
            for message in rights.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    descriptors.extend(some);
                }
            }
            if received.flags.contains(ReturnFlags::CTRUNC) {
                descriptors.clear();
            }
            return (Received::Byte(byte[0]), descriptors);
        }
    }

    /// Whether the other end has read everything. False on an error of the kernel.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        crate::socket::unread(&self.socket).is_ok_and(|unread| unread == 0)
    }

    /// Receives a byte, if one has arrived. An error of the kernel counts as `Closed`.
    #[must_use]
    pub fn receive(&self) -> Received {
        let mut byte = [0_u8; 1];
        loop {
            return match rustix::net::recv(&self.socket, &mut byte, RecvFlags::empty()) {
                Ok((1, _)) => Received::Byte(byte[0]),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => Received::Empty,
                Ok(_) | Err(_) => Received::Closed,
            };
        }
    }
}

impl From<OwnedFd> for Channel {
    /// Takes an end that was created in another process.
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until one of the descriptors is readable, which includes being closed by the other side,
/// or until the timeout (`None` waits for ever). The result has an entry for each descriptor, in
/// order. A signal ends the wait early with nothing readable.
pub fn wait_readable(
    descriptors: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = descriptors
        .iter()
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
        .collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.iter().map(|one| !one.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; descriptors.len()]),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_and_the_end_is_seen() {
        let (parent, child) = Channel::pair().unwrap();
        assert_eq!(child.receive(), Received::Empty);
        assert!(parent.is_drained());
        assert!(parent.send(b'a').unwrap());
        assert!(!parent.is_drained());
        assert_eq!(child.receive(), Received::Byte(b'a'));
        assert!(parent.is_drained());
        assert!(parent.send(b'b').unwrap());
        drop(parent);
        assert_eq!(child.receive(), Received::Byte(b'b'));
        assert_eq!(child.receive(), Received::Closed);
        assert!(child.send(b'x').is_err());
    }

    #[test]
    fn a_side_that_reads_nothing_does_not_block_the_other() {
        let (parent, _child) = Channel::pair().unwrap();
        let mut sent = 0_u32;
        while parent.send(0).unwrap() {
            sent += 1;
        }
        assert!(sent > 0);
    }

    #[test]
    fn descriptors_outlive_who_sent_them_and_bytes_go_alone() {
        let (one, other) = Channel::pair().unwrap();
        assert_eq!(other.receive_with().0, Received::Empty);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = std::net::TcpStream::connect(address).unwrap();
        assert!(one.send(b'a').unwrap());
        assert!(one.send_with(b'b', &[listener.as_fd(), one.as_fd()]).unwrap());
        drop((listener, one));
        let (alone, none) = other.receive_with();
        assert_eq!((alone, none.len()), (Received::Byte(b'a'), 0));
        let (received, mut both) = other.receive_with();
        assert_eq!((received, both.len()), (Received::Byte(b'b'), 2));
        let listener = std::net::TcpListener::from(both.remove(0));
        assert_eq!(listener.accept().unwrap().1, waiting.local_addr().unwrap());
        // The other side's end came with it, and stays open for as long as it is.
        assert_eq!(other.receive_with().0, Received::Empty);
        drop(both);
        assert_eq!(other.receive_with().0, Received::Closed);
    }

    #[test]
    fn waiting_tells_which_end_is_readable() {
        let (one, other) = Channel::pair().unwrap();
        one.send(1).unwrap();
        let readable =
            wait_readable(&[one.as_fd(), other.as_fd()], Some(Duration::from_secs(5))).unwrap();
        assert_eq!(readable, [false, true]);
    }
}
