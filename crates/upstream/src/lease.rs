//! The loan of a process of a FastCGI program (mod_fcgid): asks the launcher for a connection to
//! one (`mpm/src/launcher/services.rs`), and tells it when the response is complete.

use evenkeel_message::Departure;
use evenkeel_sys::socket::Socket;
use evenkeel_sys::spawn::{
    Order, Standard, packet_pair, receive_connection, send_control, send_order,
};
use evenkeel_sys::watch::Watch;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The time between two attempts to send an order to a launcher that does not keep up.
const AGAIN: Duration = Duration::from_millis(5);

/// The launcher gives up after the patience of an order. Its report may take so much longer.
const REPORT: Duration = Duration::from_secs(1);

/// A process that is lent to a request. If this is dropped before [`Lease::done`], the launcher
/// ends the process.
pub struct Lease {
    control: Arc<OwnedFd>,
    connection: Option<Socket>,
}

impl Lease {
    /// Asks for a process.
    ///
    /// # Errors
    /// `TimedOut` if none was free within `patience`, `NotConnected` if the client has gone, and
    /// the errors of the program's start.
    pub async fn take(
        launcher: &Arc<OwnedFd>,
        order: &Order,
        patience: Duration,
        departure: &Departure,
    ) -> io::Result<Self> {
        let (control, launchers_end) = packet_pair()?;
        let null = || Ok::<_, io::Error>(OwnedFd::from(File::open("/dev/null")?));
        let standard = Standard { input: null()?, output: null()?, error: null()? };
        let sent = async {
            loop {
                match send_order(launcher.as_fd(), order, &standard, launchers_end.as_fd()) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(AGAIN).await,
                    sent => break sent,
                }
            }
        };
        timeout(patience, sent).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?;
        drop(launchers_end);
        let control = Arc::new(control);
        let watched = Watch::new(&*control)?;
        let lent = poll_fn(|context| {
            if departure.is_told() {
                return Poll::Ready(Err(ErrorKind::NotConnected.into()));
            }
            watched.poll_read(context, receive_connection)
        });
        let lent = timeout(patience + REPORT, lent).await;
        let connection = lent.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?;
        Ok(Self { control, connection: Some(Socket::new(connection)) })
    }

    /// The connection, once.
    pub(crate) fn connection(&mut self) -> Option<Socket> {
        self.connection.take()
    }

    /// The response is complete: the process may serve the next request.
    pub(crate) fn done(self) {
        send_control(self.control.as_fd(), b"done");
    }
}
