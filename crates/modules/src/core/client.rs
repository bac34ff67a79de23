//! Questions about a client: its address and its name.

use evenkeel_expr::Subnet;
use evenkeel_message::{HostNames, Lookup, Request, Undecided, WantedNames};
use std::fmt;

/// Why a text is no network (apr_ipsubnet_create).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFault {
    /// It does not look like an address at all: perhaps it is a name.
    NoAddress,
    /// The address is wrong.
    Address,
    /// What stands behind the slash is wrong.
    Mask,
}

impl fmt::Display for AddressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressFault::NoAddress => "Invalid argument",
            AddressFault::Address => "The specified IP address is invalid.",
            AddressFault::Mask => "The specified network mask is invalid.",
        })
    }
}

/// Reads an address, its first octets, or a network.
///
/// # Errors
/// What is wrong with it.
pub fn parse_network(text: &str) -> Result<Subnet, AddressFault> {
    let address = text.split('/').next().unwrap_or_default();
    let looks_v4 = address.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    if address.is_empty() || !(address.contains(':') || looks_v4) {
        return Err(AddressFault::NoAddress);
    }
    Subnet::parse(text).ok_or_else(|| match Subnet::parse(address) {
        Some(_) => AddressFault::Mask,
        None => AddressFault::Address,
    })
}

/// Whether a host's name is `domain` or below it (mod_authz_host.c: in_domain).
#[must_use]
pub fn in_domain(domain: &str, name: &str) -> bool {
    let (domain, name) = (domain.as_bytes(), name.as_bytes());
    let Some(start) = name.len().checked_sub(domain.len()) else { return false };
    let Some((before, end)) = name.split_at_checked(start) else { return false };
    end.eq_ignore_ascii_case(domain)
        && (before.is_empty() || domain.first() == Some(&b'.') || before.last() == Some(&b'.'))
}

/// The client's name, if it leads back to the client's address.
///
/// # Errors
/// The name is to be looked up.
pub fn verified_name(request: &Request) -> Result<Option<&str>, Undecided> {
    let names = known_names(request, WantedNames { verify: true, ..WantedNames::default() })?;
    Ok(names.client.as_deref().filter(|_| names.verified))
}

/// The host names of a request that contain those that are wanted, found or not.
///
/// # Errors
/// They are to be looked up.
pub fn known_names(request: &Request, wanted: WantedNames) -> Result<&HostNames, Undecided> {
    let (known, wanted) = match request.names.as_deref() {
        Some(known) => (Some(known), wanted.unless_known(known)),
        None => (None, wanted),
    };
    match known.filter(|_| wanted.is_nothing()) {
        Some(known) => Ok(known),
        None => Err(request.lookups.leave_open(Lookup::Names(wanted))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_end_at_dots() {
        assert!(in_domain("good.com", "a.GOOD.com") && in_domain(".com", "good.com"));
        assert!(in_domain("good.com", "good.com"));
        assert!(!in_domain("good.com", "nogood.com") && !in_domain("a.good.com", "good.com"));
    }

    #[test]
    fn networks_are_refused_for_the_reason_that_apr_gives() {
        let table = [
            ("foo", AddressFault::NoAddress),
            ("", AddressFault::NoAddress),
            ("foo/8", AddressFault::NoAddress),
            ("300.1.1.1", AddressFault::Address),
            ("10.0.0.0/99", AddressFault::Mask),
            ("10.1.0.0/16/3", AddressFault::Mask),
            ("::zz", AddressFault::Address),
        ];
        for (text, fault) in table {
            assert_eq!(parse_network(text), Err(fault), "{text}");
        }
        assert!(parse_network("10.1").is_ok() && parse_network("fe80::/10").is_ok());
    }
}
