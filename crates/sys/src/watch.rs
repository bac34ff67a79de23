//! Descriptors that the runtime of this thread watches: a readable one of any kind, and a
//! socket that a task serves. The descriptors are owned here, so that what the runtime watches
//! is what is read; nothing here reads.

use crate::socket::Socket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor that is watched until this is dropped.
pub struct Watch(AsyncFd<Arc<OwnedFd>>);

impl Watch {
    /// Watches a duplicate of a descriptor for reading, edge-triggered. Must be called within a
    /// runtime.
    pub fn new(of: impl AsFd) -> io::Result<Self> {
        Self::shared(Arc::new(of.as_fd().try_clone_to_owned()?))
    }

    /// The same of a descriptor that others have too: it takes none of its own.
    pub(crate) fn shared(descriptor: Arc<OwnedFd>) -> io::Result<Self> {
        // SAFETY: what an Arc holds is open until it is dropped, is never changed through it, and
        // so always names the same descriptor.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Self(watched.map_err(|error| error.into_parts().1)?))
    }

    /// Ready while there may be something to read, until [`AsyncFdReadyGuard::clear_ready`] says
    /// that there is not; otherwise the task is woken when there is.
    pub fn poll_readable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'_, Arc<OwnedFd>>>> {
        self.0.poll_read_ready(context)
    }
}

/// A socket that a task reads and writes.
pub struct WatchedSocket(AsyncFd<Socket>);

impl WatchedSocket {
    /// Watches a socket for reading and writing. Must be called within a runtime.
    ///
    /// # Errors
    /// Gives the socket back with the system's error.
    pub fn new(socket: Socket) -> Result<Self, (Socket, io::Error)> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: a Socket owns its descriptor, which is open until the socket is dropped or
        // moved out after the registration has ended, and always the same.
        let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
        watched.map(Self).map_err(tokio::io::unix::AsyncFdRegisterError::into_parts)
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        self.0.get_ref()
    }

    /// Reads with `read` once something may have come; `WouldBlock` from it means waiting.
    pub fn poll_read<R>(
        &self,
        context: &mut Context<'_>,
        mut read: impl FnMut(&Socket) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let mut guard = std::task::ready!(self.0.poll_read_ready(context))?;
            if let Ok(result) = guard.try_io(|watched| read(watched.get_ref())) {
                return Poll::Ready(result);
            }
        }
    }

    /// Writes with `write` once there may be room; `WouldBlock` from it means waiting.
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

    /// Ends the watch and gives the socket back.
    #[must_use]
    pub fn into_socket(self) -> Socket {
        self.0.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::{IoSlice, Read, Write};
    use std::os::unix::net::UnixStream;
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
        assert_eq!(socket.receive(&mut [0; 1]).unwrap(), 0);
    }
}
