//! The two ends of a connection, and the host names that were looked up for them.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The two addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port of this connection.
    pub local: SocketAddr,
}

impl Peer {
    /// The client's address. It is an IPv4 address for an IPv4 client of a dual-stack listener.
    #[must_use]
    pub fn client_ip(&self) -> IpAddr {
        self.client.ip().to_canonical()
    }

    /// The server's address. It is an IPv4 address where the connection is IPv4.
    #[must_use]
    pub fn local_ip(&self) -> IpAddr {
        self.local.ip().to_canonical()
    }
}

/// The text of an address. IPv4 addresses are written without the formatting machinery, because
/// nearly every log line has one.
#[derive(Clone, Copy, Debug)]
pub struct AddressText {
    bytes: [u8; 48],
    length: usize,
}

impl AddressText {
    /// The text of an address as it is.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        let mut text = Self { bytes: [0; 48], length: 0 };
        match address {
            IpAddr::V4(address) => text.write_v4(address),
            IpAddr::V6(address) => {
                let mut rest = text.bytes.as_mut_slice();
                // A text of 39 bytes at most always fits.
                let _ = write!(rest, "{address}");
                text.length = 48 - rest.len();
            }
        }
        text
    }

    /// The bytes, all of them ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn write_v4(&mut self, address: Ipv4Addr) {
        let mut at = 0;
        for octet in address.octets() {
            let (text, length) = OCTETS.get(usize::from(octet)).copied().unwrap_or_default();
            if let Some(place) = self.bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&text);
            }
            at += length;
        }
        // Remove the dot after the last octet.
        self.length = at.saturating_sub(1);
    }
}

/// The text of each octet with a dot after it, and how many of the four bytes that takes.
static OCTETS: [([u8; 4], usize); 256] = octets();

#[expect(clippy::indexing_slicing, reason = "run by the compiler, which checks the bounds")]
const fn octets() -> [([u8; 4], usize); 256] {
    let mut table = [([0; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let (text, length) = &mut table[octet];
        let mut digit = if octet < 10 { 2 } else { (octet < 100) as usize };
        while digit < 3 {
            text[*length] = b'0' + digits[digit] as u8;
            *length += 1;
            digit += 1;
        }
        text[*length] = b'.';
        *length += 1;
        octet += 1;
    }
    table
}

/// The answers of the resolver for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    /// The client's name, in lower case.
    pub client: Option<Box<str>>,
    /// Whether that name resolves to the client's address.
    pub verified: bool,
    /// Whether the client's name was asked for.
    pub has_asked_client: bool,
    /// Whether it was asked where that name leads.
    pub has_verified: bool,
    /// Names with their addresses; none where none were found.
    pub addresses: Vec<(Box<str>, Vec<IpAddr>)>,
}

impl HostNames {
    /// The addresses of a name, if they were looked up and found.
    #[must_use]
    pub fn addresses_of(&self, name: &str) -> Option<&[IpAddr]> {
        let (_, found) = self.addresses.iter().find(|(known, _)| **known == *name)?;
        Some(&**found).filter(|found| !found.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_shown() {
        for octet in 0..=255 {
            let address = IpAddr::from([octet, 255 - octet, octet / 2, octet]);
            assert_eq!(AddressText::new(address).as_bytes(), address.to_string().as_bytes());
        }
        for text in ["::", "2001:db8::1", "2001:db8:1111:2222:3333:4444:5555:6666"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(AddressText::new(address).as_bytes(), text.as_bytes());
        }
    }
}
