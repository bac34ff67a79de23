//! Descriptors that the thread's runtime (tokio) watches: any readable descriptor, and a socket
//! that a task reads and writes. The watch owns the descriptor, so that the runtime watches what is
//! read.

use crate::socket::Socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor that is watched until this is dropped.
pub struct Watch(AsyncFd<Arc<OwnedFd>>);

impl Watch {
    /// Watches a duplicate of a descriptor for reading, edge-triggered. It must be called within a
    /// runtime.
    pub fn new(of: impl AsFd) -> io::Result<Self> {
        Self::shared(Arc::new(of.as_fd().try_clone_to_owned()?))
    }

    /// The same for a descriptor that the watch takes over.
    pub fn owned(descriptor: OwnedFd) -> io::Result<Self> {
        Self::shared(Arc::new(descriptor))
    }

    /// The descriptor.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }

    /// Calls `read` once the descriptor may be readable; if it returns `WouldBlock`, the task
    /// waits.
    pub fn poll_read<R>(
        &self,
        context: &mut Context<'_>,
        mut read: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let mut guard = std::task::ready!(self.0.poll_read_ready(context))?;
            if let Ok(result) = guard.try_io(|watched| read(watched.get_ref().as_fd())) {
                return Poll::Ready(result);
            }
        }
    }

    /// The same for a descriptor with other owners, without duplicating it.
    pub(crate) fn shared(descriptor: Arc<OwnedFd>) -> io::Result<Self> {
        // SAFETY: what an Arc holds is open until it is dropped and is never changed through it, so
        // it always has the same descriptor.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Self(watched.map_err(|error| error.into_parts().1)?))
    }

    /// Ready while there may be something to read, until [`AsyncFdReadyGuard::clear_ready`].
    /// Otherwise the task is woken when there is.
    pub fn poll_readable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'_, Arc<OwnedFd>>>> {
        self.0.poll_read_ready(context)
    }
}

/// The writing end of a pipe that a task writes.
pub struct WatchedWriter(AsyncFd<Arc<OwnedFd>>);

impl WatchedWriter {
    /// Watches the writing end of a pipe, which is non-blocking. It must be called within a
    /// runtime.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let descriptor = Arc::new(descriptor);
        // SAFETY: what an Arc holds is open until it is dropped and is never changed through it, so
        // it always has the same descriptor.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::WRITABLE) };
        Ok(Self(watched.map_err(|error| error.into_parts().1)?))
    }

    /// Writes as much of `bytes` as the pipe takes, at least one byte. Errors are write(2)'s.
    pub fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = std::task::ready!(self.0.poll_write_ready(context))?;
            let written = guard.try_io(|watched| {
                rustix::io::retry_on_intr(|| rustix::io::write(watched.get_ref(), bytes))
                    .map_err(io::Error::from)
            });
            if let Ok(written) = written {
                return Poll::Ready(written);
            }
        }
    }
}

/// A socket that a task reads and writes.
pub struct WatchedSocket(AsyncFd<Socket>);

impl WatchedSocket {
    /// Watches a socket for reading and writing. It must be called within a runtime.
    ///
    /// # Errors
    /// Hands the socket back with the system's error.
    pub fn new(socket: Socket) -> Result<Self, (Socket, io::Error)> {
        Self::register(socket, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches a socket for reading alone, so that the runtime is not woken when the peer reads
    /// what was sent before. [`WatchedSocket::poll_write`] would wait for ever. It must be called
    /// within a runtime.
    ///
    /// # Errors
    /// Hands the socket back with the system's error.
    pub fn for_reading(socket: Socket) -> Result<Self, (Socket, io::Error)> {
        Self::register(socket, Interest::READABLE)
    }

    fn register(socket: Socket, interest: Interest) -> Result<Self, (Socket, io::Error)> {
        // SAFETY: a Socket always owns the same descriptor, which is open until the socket is
        // dropped, or moved out after the registration has ended.
        let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
        watched.map(Self).map_err(tokio::io::unix::AsyncFdRegisterError::into_parts)
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        self.0.get_ref()
    }

    /// Calls `read` once the socket may be readable; if it returns `WouldBlock`, the task waits.
    pub fn poll_read<R>(
        &self,
        context: &mut Context<'_>,
        mut read: impl FnMut(&Socket) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        if self.socket().has_read_ahead() {
            return Poll::Ready(read(self.socket()));
        }
        loop {
            let mut guard = std::task::ready!(self.0.poll_read_ready(context))?;
            if let Ok(result) = guard.try_io(|watched| read(watched.get_ref())) {
                return Poll::Ready(result);
            }
        }
    }

    /// Reads received bytes into `buffer`; 0 at the end of the stream. If nothing has arrived, the
    /// task waits. Bytes that do not fill the buffer are all that had arrived, so that the next
    /// call need not ask the kernel (epoll(7), question 9).
    pub fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.socket().has_read_ahead() {
            return Poll::Ready(self.socket().receive(buffer));
        }
        self.poll_arrived(context, buffer, Socket::receive)
    }

    /// Like [`WatchedSocket::poll_receive`], but the bytes stay in the socket. Call
    /// [`Socket::receive`] for as many before the next wait.
    pub fn poll_peek(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_arrived(context, buffer, Socket::peek_into)
    }

    fn poll_arrived(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        read: impl Fn(&Socket, &mut [u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = std::task::ready!(self.0.poll_read_ready(context))?;
            if let Ok(result) = guard.try_io(|watched| read(watched.get_ref(), buffer)) {
                if result.as_ref().is_ok_and(|count| (1..buffer.len()).contains(count)) {
                    guard.clear_ready();
                }
                return Poll::Ready(result);
            }
        }
    }

    /// Calls `write` once the socket may be writable; if it returns `WouldBlock`, the task waits.
    pub fn poll_write<R>(
        &self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&Socket) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let mut guard = std::task::ready!(self.0.poll_write_ready(context))?;
            if let Ok(result) = guard.try_io(|watched| write(watched.get_ref())) {
                return Poll::Ready(result);
            }
        }
    }

    /// Ready once the peer has closed its side or the connection is broken. Nothing is read; what
    /// has arrived meanwhile is reported to the next watch of the socket.
    pub fn poll_hangup(&self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut guard) = std::task::ready!(self.0.poll_read_ready(context)) else {
                return Poll::Ready(());
            };
            if guard.ready().is_read_closed() {
                return Poll::Ready(());
            }
            guard.clear_ready();
        }
    }

    /// Ends the watch and returns the socket.
    #[must_use]
    pub fn into_socket(self) -> Socket {
        self.0.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::wait_readable;
    use std::future::poll_fn;
    use std::io::{IoSlice, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use tokio::runtime::{Builder, LocalOptions};

    #[test]
    fn a_watched_socket_waits_for_both_directions() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap();
        let socket = runtime.block_on(async {
            let watched = WatchedSocket::new(Socket::new(server.into())).unwrap();
            let mut buffer = [0; 8];
            let thread = std::thread::spawn(move || {
                client.write_all(b"hello").unwrap();
                let mut text = [0; 5];
                client.read_exact(&mut text).unwrap();
                text
            });
            let read = poll_fn(|cx| watched.poll_read(cx, |s| s.receive(&mut buffer))).await;
            assert_eq!(read.unwrap(), 5);
            let parts = [IoSlice::new(b"world")];
            let sent = poll_fn(|cx| watched.poll_write(cx, |s| s.send(&parts, false))).await;
            assert_eq!(sent.unwrap(), 5);
            assert_eq!(&thread.join().unwrap(), b"world");
            watched.into_socket()
        });
        // A process that another test starts at this moment may hold the client's end until it has
        // executed its program.
        wait_readable(&[socket.as_fd()], Some(Duration::from_secs(10))).unwrap();
        assert_eq!(socket.receive(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn a_hangup_is_seen_behind_bytes_that_nobody_reads() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap();
        runtime.block_on(async {
            let watched = WatchedSocket::new(Socket::new(server.into())).unwrap();
            client.write_all(b"hello").unwrap();
            let mut closing = Some(client);
            poll_fn(|context| {
                let polled = watched.poll_hangup(context);
                // The client closes only once the task waits for that.
                assert!(polled.is_pending() || closing.is_none());
                drop(closing.take());
                polled
            })
            .await;
            assert_eq!(watched.socket().receive(&mut [0; 8]).unwrap(), 5);
        });
    }
}
