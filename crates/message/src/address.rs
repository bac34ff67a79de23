//! The two ends of a connection, and what host names are known of them.

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

/// What the resolver said for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    /// The client's name, in lower case.
    pub client: Option<Box<str>>,
    /// Whether that name leads back to the client's address.
    pub verified: bool,
    /// Names with their addresses, as far as they were found.
    pub addresses: Vec<(Box<str>, Vec<IpAddr>)>,
}

impl HostNames {
    /// The addresses of a name, if they were looked up and found.
    #[must_use]
    pub fn addresses_of(&self, name: &str) -> Option<&[IpAddr]> {
        let (_, found) = self.addresses.iter().find(|(known, _)| **known == *name)?;
        Some(found)
    }
}
