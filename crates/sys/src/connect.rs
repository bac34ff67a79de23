//! Outgoing connections: starting one without waiting, and its result.

use crate::socket::{Socket, set_number};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// TCP.
    Internet(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// The options of the local socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// The local address, if it matters.
    pub address: Option<IpAddr>,
    /// SO_SNDBUF and SO_RCVBUF in bytes, if they matter.
    pub window: Option<usize>,
    /// Whether closing resets the connection instead of ending it in order, so that its port is
    /// free at once (SO_LINGER with a timeout of zero).
    pub reset_at_end: bool,
}

/// Starts a connection, non-blocking and close-on-exec, with TCP_NODELAY. It is established or has
/// failed when the socket becomes writable; [`outcome`] tells which.
///
/// # Errors
/// Immediate errors of connect(2): refusals of a Unix socket, and for TCP the lack of a port or a
/// route.
pub fn begin(remote: &Remote, local: &Local) -> io::Result<Socket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = match remote {
        Remote::Internet(address) if address.is_ipv6() => AddressFamily::INET6,
        Remote::Internet(_) => AddressFamily::INET,
        Remote::Unix(_) => AddressFamily::UNIX,
    };
    let socket: OwnedFd = net::socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = local.window {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    if local.reset_at_end {
        sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO))?;
    }
    let begun = match remote {
        Remote::Internet(address) => {
            sockopt::set_tcp_nodelay(&socket, true)?;
            if let Some(own) = local.address {
                // The port is chosen at connect, so that a pair of addresses can use all ports.
                set_number(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
                net::bind(&socket, &SocketAddr::new(own, 0))?;
            }
            net::connect(&socket, address)
        }
        Remote::Unix(path) => net::connect(&socket, &SocketAddrUnix::new(path)?),
    };
    match begun {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
            Ok(Socket::new(socket))
        }
        Err(error) => Err(error.into()),
    }
}

/// Connects to a Unix stream socket, non-blocking and close-on-exec.
///
/// # Errors
/// Those of connect(2); `WouldBlock` if the backlog of the socket is full.
pub fn begin_unix(path: &Path) -> io::Result<Socket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(rustix::io::Errno::INTR) => Ok(Socket::new(socket)),
        Err(error) => Err(error.into()),
    }
}

/// The result of a connection whose socket has become writable (SO_ERROR).
///
/// # Errors
/// The reason for its failure.
pub fn outcome(socket: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Epoll, Events};
    use std::io::IoSlice;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn wait(socket: &Socket) {
        let (set, mut events) = (Epoll::new().unwrap(), Events::with_capacity(1));
        set.add_read_write(socket, 0).unwrap();
        set.wait(&mut events, None).unwrap();
    }

    #[test]
    fn a_connection_stands_or_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = Remote::Internet(listener.local_addr().unwrap());
        let local = Local { address: Some([127, 0, 0, 9].into()), ..Local::default() };
        let socket = begin(&remote, &local).unwrap();
        wait(&socket);
        outcome(&socket).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), IpAddr::from([127, 0, 0, 9]));
        drop(listener);
        let refused = begin(&remote, &Local::default()).unwrap();
        wait(&refused);
        let error = outcome(&refused).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn unix_sockets_connect_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let remote = Remote::Unix(path.clone());
        assert_eq!(begin(&remote, &Local::default()).unwrap_err().kind(), io::ErrorKind::NotFound);
        let _listener = UnixListener::bind(path).unwrap();
        let socket = begin(&remote, &Local::default()).unwrap();
        assert_eq!(socket.send(&[IoSlice::new(b"x")], false).unwrap(), 1);
    }
}
