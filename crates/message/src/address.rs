//! The two ends of a connection.

use std::net::{IpAddr, SocketAddr};

/// Who is at the other end, and on which of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address and port.
    pub client: SocketAddr,
    /// Our own address and port of this connection.
    pub local: SocketAddr,
}

impl Peer {
    /// The client's address; an IPv4 client of a dual-stack listener is an IPv4 address.
    #[must_use]
    pub fn client_ip(&self) -> IpAddr {
        self.client.ip().to_canonical()
    }

    /// Our address, IPv4 where the connection is.
    #[must_use]
    pub fn local_ip(&self) -> IpAddr {
        self.local.ip().to_canonical()
    }
}
