//! Connects to an application: resolves its host name, tries the addresses in order, and retries a
//! Unix socket whose backlog is full.

use crate::failure::FailureKind;
use evenkeel_message::Address;
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::connect::{Local, Remote, begin, begin_unix, outcome};
use evenkeel_sys::resolve::addresses_of;
use evenkeel_sys::socket::Socket;
use evenkeel_sys::watch::WatchedSocket;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
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
    let connected = match address {
        Address::Unix(path) => match begin_unix(path) {
            Err(error) if is_full(&error) => timeout(patience, connect_again(path)).await,
            // A Unix socket is connected at once or not at all.
            begun => Ok(begun.map_err(FailureKind::Unreachable)),
        },
        Address::Internet { host, port } => {
            timeout(patience, connect_any(host, *port, blocking_pool)).await
        }
    };
    let late = || FailureKind::Unreachable(ErrorKind::TimedOut.into());
    connected.unwrap_or_else(|_| Err(late()))
}

async fn connect_any(
    host: &str,
    port: u16,
    blocking_pool: &BlockingPool,
) -> Result<Socket, FailureKind> {
    let mut last = None;
    for ip in resolve(host, blocking_pool).await.ok_or(FailureKind::Unresolved)? {
        match connect_to(SocketAddr::new(ip, port)).await {
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

/// Whether the backlog of a Unix socket is full.
fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Connects to a Unix socket whose backlog was full.
async fn connect_again(path: &Path) -> Result<Socket, FailureKind> {
    loop {
        sleep(AGAIN).await;
        match begin_unix(path) {
            Err(error) if is_full(&error) => {}
            begun => return begun.map_err(FailureKind::Unreachable),
        }
    }
}

async fn connect_to(address: SocketAddr) -> io::Result<Socket> {
    let socket = begin(&Remote::Internet(address), &Local::default())?;
    let watched = WatchedSocket::new(socket).map_err(|(_, error)| error)?;
    poll_fn(|context| watched.poll_write(context, established)).await?;
    Ok(watched.into_socket())
}

/// Whether a TCP connection is established; `WouldBlock` while that is not known.
fn established(socket: &Socket) -> io::Result<()> {
    outcome(socket)?;
    match socket.peer_address() {
        Err(error) if error.kind() == ErrorKind::NotConnected => Err(ErrorKind::WouldBlock.into()),
        known => known.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_sys::listen::listen;
    use std::future::Future;
    use std::os::unix::net::UnixListener;
    use std::pin::pin;
    use std::task::Poll;
    use tokio::runtime::Builder;

    #[test]
    fn a_unix_socket_is_tried_again_while_its_backlog_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (address, pool) = (Address::Unix(path.clone()), BlockingPool::new(1));
        let connect = |patience| connect(&address, patience, &pool);
        let long = Duration::from_secs(60);
        let error = |connected: Result<Socket, FailureKind>| match connected {
            Err(FailureKind::Unreachable(error)) => Some(error.kind()),
            _ => None,
        };
        Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
            assert_eq!(error(connect(long).await), Some(ErrorKind::NotFound));
            let listener = UnixListener::bind(&path).unwrap();
            listen(&listener, 0).unwrap();
            let mut queued = Vec::new();
            while let Ok(socket) = begin_unix(&path) {
                queued.push(socket);
            }
            assert_eq!(error(connect(AGAIN / 2).await), Some(ErrorKind::TimedOut));
            let mut waiting = pin!(connect(long));
            let is_pending =
                poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()));
            assert!(is_pending.await);
            listener.accept().unwrap();
            assert!(waiting.await.is_ok());
        });
    }
}
