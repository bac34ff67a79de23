//! Subnets: parses an address, a network or the first octets of one, and tests whether an address
//! belongs to it. The forms are those of `apr_ipsubnet_create`. Names are never looked up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network of either family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Subnet(Network);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Network {
    V4 { base: u32, mask: u32 },
    V6 { base: u128, mask: u128 },
}

impl Subnet {
    /// Parses `10.1.2.3`, `10.1`, `10.1.2.`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `::1` or
    /// `2001:db8::/32`. None if the text has none of these forms, if a prefix has no bits or too
    /// many, or for IPv4 addresses in their IPv6 form, which no client ever has.
    #[must_use]
    pub fn parse(text: &str) -> Option<Subnet> {
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask)),
            None => (text, None),
        };
        let network = match (address.parse::<IpAddr>(), mask) {
            (Ok(IpAddr::V4(address)), Some(mask)) => {
                let mask = mask_v4(mask)?;
                Network::V4 { base: u32::from(address) & mask, mask }
            }
            (Ok(IpAddr::V4(address)), None) => {
                Network::V4 { base: u32::from(address), mask: u32::MAX }
            }
            (Ok(IpAddr::V6(address)), _) if address.to_ipv4_mapped().is_some() => return None,
            (Ok(IpAddr::V6(address)), mask) => {
                let bits = mask.map_or(Some(128), |mask| prefix(mask, 128))?;
                let mask = u128::MAX.checked_shl(128 - bits)?;
                Network::V6 { base: u128::from(address) & mask, mask }
            }
            (Err(_), None) => octets(address)?,
            (Err(_), Some(_)) => return None,
        };
        Some(Subnet(network))
    }

    /// Whether the address belongs to the network. An IPv4 address in IPv6 form counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.0, address.to_canonical()) {
            (Network::V4 { base, mask }, IpAddr::V4(address)) => u32::from(address) & mask == base,
            (Network::V6 { base, mask }, IpAddr::V6(address)) => u128::from(address) & mask == base,
            _ => false,
        }
    }

    /// The lowest address of the network.
    #[must_use]
    pub fn base(&self) -> IpAddr {
        match self.0 {
            Network::V4 { base, .. } => IpAddr::V4(Ipv4Addr::from(base)),
            Network::V6 { base, .. } => IpAddr::V6(Ipv6Addr::from(base)),
        }
    }
}

/// Parses a prefix length of at least one bit.
fn prefix(text: &str, most: u32) -> Option<u32> {
    let bits = text.parse::<u32>().ok()?;
    (bits > 0 && bits <= most).then_some(bits)
}

/// Parses a prefix length, or a netmask in octets, which need not be contiguous.
fn mask_v4(text: &str) -> Option<u32> {
    match prefix(text, 32) {
        Some(bits) => u32::MAX.checked_shl(32 - bits),
        None => text.parse::<Ipv4Addr>().ok().map(u32::from),
    }
}

/// Parses the first one to four octets of a network, with or without a dot at the end.
fn octets(text: &str) -> Option<Network> {
    let trimmed = text.strip_suffix('.').unwrap_or(text);
    let (mut base, mut bits) = (0_u32, 0_u32);
    for part in trimmed.split('.') {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) || bits == 32 {
            return None;
        }
        let octet = part.parse::<u8>().ok()?;
        bits += 8;
        base |= u32::from(octet) << (32 - bits);
    }
    Some(Network::V4 { base, mask: u32::MAX.checked_shl(32 - bits)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(subnet: &str, address: &str) -> Option<bool> {
        Subnet::parse(subnet).map(|subnet| subnet.contains(address.parse().unwrap()))
    }

    #[test]
    fn forms_of_a_subnet_contain_what_they_should() {
        let table: &[(&str, &str, Option<bool>)] = &[
            ("1.2.3.0/24", "1.2.3.4", Some(true)),
            ("1.2.3.99/24", "1.2.3.4", Some(true)),
            ("1.2.3.0/24", "1.2.4.4", Some(false)),
            ("1.2", "1.2.255.4", Some(true)),
            ("1.2.3.", "1.2.3.4", Some(true)),
            ("1.2.3.", "1.2.30.4", Some(false)),
            ("10", "10.9.8.7", Some(true)),
            ("1.2.3.4/255.0.255.0", "1.9.3.9", Some(true)),
            ("1.2.3.4", "1.2.3.4", Some(true)),
            ("1.2.3.4", "::ffff:1.2.3.4", Some(true)),
            ("1.2.3.4", "::1", Some(false)),
            ("::1", "::1", Some(true)),
            ("2001:db8::/32", "2001:db8:1::1", Some(true)),
            ("2001:db8::/32", "2001:db9::1", Some(false)),
            ("::/1", "1.2.3.4", Some(false)),
        ];
        for (subnet, address, expected) in table {
            assert_eq!(within(subnet, address), *expected, "{subnet} {address}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            ".",
            "1.2.3.4/",
            "1.2.3.4/0",
            "1.2.3.4/33",
            "1.2.3.4/32x",
            "1.2/16",
            "300.1",
            "1..2",
            "1.2.3.4.5",
            "::ffff:1.2.3.4",
            "::/0",
            "2001:db8::/129",
            "example.com",
        ] {
            assert_eq!(Subnet::parse(text), None, "{text}");
        }
    }
}
