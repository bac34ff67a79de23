//! Connects to an application: resolves its host name, tries the addresses in order, and retries a
//! Unix socket whose backlog is full.

use crate::failure::FailureKind;
use evenkeel_message::Address;
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::connect::{Local, Remote, begin, outcome};
use evenkeel_sys::resolve::addresses_of;
use evenkeel_sys::socket::Socket;
use evenkeel_sys::watch::WatchedSocket;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The time between two attempts to connect to a Unix socket whose backlog is full.
const AGAIN: Duration = Duration::from_millis(10);

/// The timeouts of an exchange with an application.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time in which the connection must be established.
    pub connect: Duration,
    /// The time in which the application must send or accept something.
    pub silence: Duration,
    /// The time in which a worker must have begun with the request, if its wait in the queue is
    /// bounded. Then the connection is one of a Unix socket.
    pub queue: Option<Duration>,
}

/// Connects to an application. The addresses of a host are tried in order.
///
/// # Errors
/// The host has no address, no address accepts, or the time is over. The error is that of the last
/// address.
pub(crate) async fn connect(
    address: &Address,
    patience: Duration,
    blocking_pool: &BlockingPool,
) -> Result<Socket, FailureKind> {
    let late = || FailureKind::Unreachable(ErrorKind::TimedOut.into());
    let connected = timeout(patience, connect_any(address, blocking_pool));
    connected.await.unwrap_or_else(|_| Err(late()))
}

async fn connect_any(
    address: &Address,
    blocking_pool: &BlockingPool,
) -> Result<Socket, FailureKind> {
    let (host, port) = match address {
        Address::Unix(path) => {
            let remote = Remote::Unix(path.clone());
            return connect_to(&remote).await.map_err(FailureKind::Unreachable);
        }
        Address::Internet { host, port } => (host, *port),
    };
    let mut last = None;
    for ip in resolve(host, blocking_pool).await.ok_or(FailureKind::Unresolved)? {
        match connect_to(&Remote::Internet(SocketAddr::new(ip, port))).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or(FailureKind::Unresolved, FailureKind::Unreachable))
}

/// Returns the addresses of a host, and `None` if it has none. The resolver of the system blocks,
/// so it runs in the blocking pool.
async fn resolve(host: &str, blocking_pool: &BlockingPool) -> Option<Vec<IpAddr>> {
    if let Ok(address) = host.parse() {
        return Some(vec![address]);
    }
    let host = host.to_owned();
    let addresses = blocking_pool.spawn(move || addresses_of(&host).ok()).await.flatten()?;
    (!addresses.is_empty()).then_some(addresses)
}

async fn connect_to(remote: &Remote) -> io::Result<Socket> {
    let socket = loop {
        match begin(remote, &Local::default()) {
            // The backlog of a Unix socket is full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(AGAIN).await,
            begun => break begun?,
        }
    };
    match remote {
        // A Unix socket is connected at once or not at all.
        Remote::Unix(_) => Ok(socket),
        Remote::Internet(_) => {
            let watched = WatchedSocket::new(socket).map_err(|(_, error)| error)?;
            poll_fn(|context| watched.poll_write(context, established)).await?;
            Ok(watched.into_socket())
        }
    }
}

/// Whether a TCP connection is established; `WouldBlock` while that is not known.
fn established(socket: &Socket) -> io::Result<()> {
    outcome(socket)?;
    match socket.peer_address() {
        Err(error) if error.kind() == ErrorKind::NotConnected => Err(ErrorKind::WouldBlock.into()),
        known => known.map(drop),
    }
}
