//! Listening sockets: creating them with their options, listening, and questions about them.
//! [`crate::socket`] accepts.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// The options of a socket that are set before it is bound. Accepted connections inherit all but
/// the first, which saves a call on each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// IPv6 only: no IPv4 connections through mapped addresses.
    pub v6_only: bool,
    /// SO_SNDBUF in bytes (SendBufferSize).
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF in bytes (ReceiveBufferSize).
    pub receive_buffer: Option<usize>,
    /// Whether it is bound beside other sockets of the same address ([`share`]).
    pub shared: bool,
}

/// Creates a TCP socket bound to `address`, non-blocking and close-on-exec, with SO_REUSEADDR,
/// SO_KEEPALIVE and TCP_NODELAY. Errors are bind(2)'s: `AddrInUse`, `PermissionDenied` (a port
/// below 1024), `AddrNotAvailable`. Buffer sizes that the kernel refuses are left as they are.
pub fn bind(address: SocketAddr, options: Options) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, options.v6_only)?;
    }
    if let Some(bytes) = options.send_buffer {
        let _ = sockopt::set_socket_send_buffer_size(&socket, bytes);
    }
    if let Some(bytes) = options.receive_buffer {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, bytes);
    }
    if options.shared {
        share(&socket)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Allows more sockets of this user on the address of this one, each with an accept queue of its
/// own among which the kernel distributes the connections (SO_REUSEPORT). Called on a socket that
/// listens already, so that no other server can have bound the address unnoticed.
pub fn share(socket: impl AsFd) -> io::Result<()> {
    crate::socket::set_number(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// Starts listening, or changes the backlog of a listening socket. The kernel silently caps the
/// backlog at [`somaxconn`].
pub fn listen(socket: impl AsFd, backlog: u32) -> io::Result<()> {
    rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(())
}

/// Drops the first segment of every new connection (SYN), whatever process accepts on the socket.
/// Handshakes in progress complete. The clients of the others send the segment again after a
/// second, and are refused if the socket is closed by then. Connections that are accepted later
/// have the filter too, which does not touch their segments. Errors are setsockopt(2)'s.
pub fn drop_new(socket: impl AsFd) -> io::Result<()> {
    const FLAGS_OFFSET: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let step = |code: u32, jump_unless: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf: jump_unless,
        k,
    };
    // The filter sees the segment from its TCP header on.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, FLAGS_OFFSET),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, SYN | ACK),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, SYN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: 5, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the program and its steps, which live for the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes a listening socket in this process while other threads still use its descriptor: the
/// descriptor then refers to a socket that does not listen, so that accepting fails. The caller
/// removes it from epoll sets first. On an error nothing is changed.
pub fn close_in_place(socket: &OwnedFd) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let idle = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // SAFETY: both descriptors are open, and the second stays its owner's under the same number.
    match unsafe { libc::dup3(idle.as_raw_fd(), socket.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Keeps connections in the kernel until they have sent data, for at most `wait`, which the kernel
/// rounds up to its retransmission steps (TCP_DEFER_ACCEPT; zero turns it off).
pub fn defer_accept(socket: impl AsFd, wait: Duration) -> io::Result<()> {
    let seconds = libc::c_int::try_from(wait.as_secs()).unwrap_or(libc::c_int::MAX);
    crate::socket::set_number(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// The address that a socket is bound to; for port 0, with the port that the kernel chose.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(io::Error::from)
}

/// The kernel's bound on every backlog (net.core.somaxconn); its default of 4096 if it cannot be
/// read.
#[must_use]
pub fn somaxconn() -> u32 {
    fs::read_to_string("/proc/sys/net/core/somaxconn")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(4096)
}

/// Whether the system can listen on IPv6, which is tried by binding: the protocol may be built in
/// and switched off (server/listen.c, find_default_family).
#[must_use]
pub fn has_ipv6() -> bool {
    bind(SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)), Options::default()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::accept_queue;
    use std::net::TcpStream;

    #[test]
    fn new_connections_are_dropped_and_those_before_them_are_accepted() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = bind(address.parse().unwrap(), Options::default()) else {
                assert!(!has_ipv6());
                continue;
            };
            listen(&socket, 8).unwrap();
            let address = local_address(&socket).unwrap();
            let mut before = TcpStream::connect(address).unwrap();
            drop_new(&socket).unwrap();
            let refused = TcpStream::connect_timeout(&address, Duration::from_millis(50));
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let (accepted, _) = crate::socket::accept(&socket).unwrap();
            assert!(crate::socket::accept(&socket).is_err());
            std::io::Write::write_all(&mut before, b"request").unwrap();
            crate::channel::wait_readable(&[accepted.as_fd()], None).unwrap();
            assert_eq!(accepted.receive(&mut [0; 8]).unwrap(), 7);
        }
    }

    #[test]
    fn a_bound_socket_listens_and_connections_inherit_its_options() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), Options::default()).unwrap();
        listen(&socket, somaxconn()).unwrap();
        let address = local_address(&socket).unwrap();
        assert_ne!(address.port(), 0);
        let _client = TcpStream::connect(address).unwrap();
        let accepted = rustix::net::accept(&socket).unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
    }

    #[test]
    fn the_accept_queue_is_seen() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), Options::default()).unwrap();
        listen(&socket, 8).unwrap();
        assert_eq!(accept_queue(&socket).unwrap().length, 0);
        assert!(accept_queue(&socket).unwrap().bound > 0);
        let address = local_address(&socket).unwrap();
        let _clients = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        assert_eq!(accept_queue(&socket).unwrap().length, 2);
        let _accepted = rustix::net::accept(&socket).unwrap();
        assert_eq!(accept_queue(&socket).unwrap().length, 1);
    }

    #[test]
    fn a_socket_closed_in_place_leaves_its_address() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), Options::default()).unwrap();
        listen(&socket, 8).unwrap();
        let address = local_address(&socket).unwrap();
        close_in_place(&socket).unwrap();
        assert!(TcpStream::connect(address).is_err());
        assert_eq!(accept_queue(&socket).unwrap().length, 0);
        assert!(rustix::net::accept(&socket).is_err());
    }

    #[test]
    fn an_address_in_use_is_that_error() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), Options::default()).unwrap();
        listen(&socket, 1).unwrap();
        let address = local_address(&socket).unwrap();
        let error = bind(address, Options::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn an_address_is_shared_only_among_those_that_say_so() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let first = bind(address.parse().unwrap(), Options::default()).unwrap();
            listen(&first, 128).unwrap();
            let address = local_address(&first).unwrap();
            let shared = Options { shared: true, ..Options::default() };
            let in_use = |options| bind(address, options).unwrap_err().kind();
            assert_eq!(in_use(shared), io::ErrorKind::AddrInUse);
            share(&first).unwrap();
            assert_eq!(in_use(Options::default()), io::ErrorKind::AddrInUse);
            let second = bind(address, shared).unwrap();
            listen(&second, 128).unwrap();
            let local = SocketAddr::from(([127, 0, 0, 1], address.port()));
            let clients: Vec<_> = (0..128).map(|_| TcpStream::connect(local).unwrap()).collect();
            let length = |socket| accept_queue(socket).unwrap().length;
            let queues = [length(&first), length(&second)];
            assert_eq!(queues.iter().sum::<u32>() as usize, clients.len());
            assert!(queues.iter().all(|length| *length > 0), "{queues:?}");
        }
    }

    #[test]
    fn deferred_connections_wait_for_data() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), Options::default()).unwrap();
        defer_accept(&socket, Duration::from_secs(30)).unwrap();
        listen(&socket, 8).unwrap();
        let mut client = TcpStream::connect(local_address(&socket).unwrap()).unwrap();
        assert_eq!(rustix::net::accept(&socket).unwrap_err(), rustix::io::Errno::AGAIN);
        std::io::Write::write_all(&mut client, b"x").unwrap();
        crate::channel::wait_readable(&[socket.as_fd()], Some(Duration::from_secs(5))).unwrap();
        assert!(rustix::net::accept(&socket).is_ok());
    }
}
