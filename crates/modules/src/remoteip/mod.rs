//! mod_remoteip: the address of a client behind proxies. [`find_client`] takes the address from a
//! field of the request. [`protocol`] decides which connections begin with the PROXY header, which
//! `conn` parses.

pub use crate::{NoSettings as Directory, NoSettings as Global};

mod directives;
pub mod protocol;

pub use directives::MODULE;

use crate::Merge;
use evenkeel_expr::Subnet;
use evenkeel_message::{Level, Notice, Request, quoted};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The settings of a server. `None` if the server has no directive of this module.
#[derive(Clone, Debug, Default)]
pub struct Server(Option<Arc<Said>>);

#[derive(Clone, Debug, Default)]
struct Said {
    /// RemoteIPHeader.
    header: Option<Box<[u8]>>,
    /// RemoteIPProxiesHeader.
    proxies_header: Option<Box<[u8]>>,
    /// The trusted proxies, in the order of the configuration. `None` if all proxies are trusted.
    proxies: Option<Vec<Proxy>>,
    /// RemoteIPProxyProtocol. It applies to the addresses of this server and is not inherited.
    protocol: Option<bool>,
    /// RemoteIPProxyProtocolExceptions. They apply to all servers.
    exceptions: Vec<Subnet>,
}

#[derive(Clone, Copy, Debug)]
struct Proxy {
    network: Subnet,
    /// Whether the proxy is trusted to present private addresses (RemoteIPInternalProxy).
    is_internal: bool,
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        let (Some(outer), Some(inner)) = (&base.0, &over.0) else {
            return if over.0.is_some() { over.clone() } else { base.clone() };
        };
        let Said { header, proxies_header, proxies, protocol, exceptions } = Said::clone(inner);
        Self(Some(Arc::new(Said {
            header: header.or_else(|| outer.header.clone()),
            proxies_header: proxies_header.or_else(|| outer.proxies_header.clone()),
            proxies: proxies.or_else(|| outer.proxies.clone()),
            protocol,
            exceptions,
        })))
    }
}

/// The result of a walk through the addresses of a field.
struct Found {
    client: IpAddr,
    /// The external proxies, nearest first.
    proxies: Vec<String>,
}

/// Sets the client's address from RemoteIPHeader, as far as the proxies on the way are trusted
/// (mod_remoteip.c: remoteip_modify_request). An address from the PROXY header is kept.
pub fn find_client(request: &mut Request, server: &Server) {
    let Some(said) = server.0.as_deref() else { return };
    let Some(header) = said.header.as_deref().filter(|_| !request.is_introduced) else { return };
    let Some(text) = request.fields().whole(header).map(|text| text.into_owned()) else { return };
    let (found, left) = walk(request, said, header, &text);
    let Some(Found { client, proxies }) = found else { return };
    match left {
        Some(left) => request.fields_mut().set(header, left),
        None => drop(request.fields_mut().remove(header)),
    }
    if !proxies.is_empty() {
        let list = proxies.join(", ");
        request.resource.notes.set("remoteip-proxy-ip-list", &list);
        if let Some(name) = said.proxies_header.as_deref() {
            request.fields_mut().set(name, list);
        }
    }
    request.proxy.get_or_insert(request.peer.client);
    // The client's port is unknown.
    request.peer.client = SocketAddr::new(client, 0);
}

/// Walks through the addresses of a field from the last to the first. Stops at an address that is
/// not a trusted proxy, since it cannot present another one. Returns the address of the client with
/// its proxies, and the rest of the field.
fn walk<'a>(
    request: &mut Request,
    said: &Said,
    header: &[u8],
    text: &'a [u8],
) -> (Option<Found>, Option<&'a [u8]>) {
    let mut is_internal = said.proxies.is_some();
    let mut client = request.peer.client_ip();
    let (mut found, mut left): (Option<Found>, _) = (None, Some(text));
    while let Some(rest) = left {
        if let Some(proxies) = &said.proxies {
            let Some(proxy) = proxies.iter().find(|it| it.network.contains(client)) else { break };
            // An address that an external proxy presents is external too.
            is_internal &= proxy.is_internal;
        }
        let comma = rest.iter().rposition(|byte| *byte == b',');
        let last = rest.get(comma.map_or(0, |at| at + 1)..).unwrap_or_default();
        let word = trim_spaces(last);
        if word.is_empty() {
            break;
        }
        let fault = match std::str::from_utf8(word).ok().and_then(parse_address) {
            None => Some((1568, "cannot be parsed as a client IP")),
            Some(named) => {
                let named = named.to_canonical();
                if is_internal || is_global(named) {
                    let proxies = found.take().map_or_else(Vec::new, |found| found.proxies);
                    found = Some(Found { client: named, proxies });
                    if let Some(found) = found.as_mut().filter(|_| !is_internal) {
                        found.proxies.push(client.to_string());
                    }
                    client = named;
                    None
                } else {
                    Some((1569, "appears to be a private IP or nonsensical.  Ignored"))
                }
            }
        };
        if let Some((number, fault)) = fault {
            let (header, word) = (quoted(header), quoted(word));
            let text = format!("RemoteIP: Header {header} value of {word} {fault}");
            request.notify(Notice::new("remoteip", Level::Debug, number, text));
            if comma.is_none() {
                left = Some(trim_spaces(rest));
            }
            break;
        }
        left = comma.and_then(|at| rest.get(..at));
    }
    (found, left)
}

/// Parses an IPv6 address or an IPv4 address in any form of inet_aton(3), as Apache does with
/// getaddrinfo(3): one to four numbers, each decimal, octal (`0...`) or hexadecimal (`0x...`), of
/// which the last one fills the bytes that are left. A rule such as `Deny from` then applies to the
/// address however a client writes it.
fn parse_address(text: &str) -> Option<IpAddr> {
    // The scope of a link-local address (RFC 4007, section 11) names an interface of this machine.
    let unscoped = text.split_once('%').filter(|(_, scope)| !scope.is_empty());
    let unscoped = unscoped.map(|(address, _)| address.parse::<Ipv6Addr>());
    if let Some(address) = unscoped {
        return address.ok().filter(Ipv6Addr::is_unicast_link_local).map(IpAddr::from);
    }
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let number = |word: &str| {
        let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None if word.len() > 1 && word.starts_with('0') => (word, 8),
            None => (word, 10),
        };
        // `from_str_radix` accepts a sign.
        let is_number = digits.starts_with(|first: char| first.is_ascii_hexdigit());
        u32::from_str_radix(digits, radix).ok().filter(|_| is_number)
    };
    let numbers: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, bytes) = numbers.split_last()?;
    let bits_left = 32 - 8 * u32::try_from(bytes.len()).ok().filter(|bytes| *bytes < 4)?;
    if u64::from(*last) >= 1 << bits_left || bytes.iter().any(|byte| *byte > 255) {
        return None;
    }
    let shifted = bytes.iter().zip([24, 16, 8]).map(|(byte, shift)| byte << shift);
    Some(Ipv4Addr::from(shifted.fold(*last, |address, byte| address | byte)).into())
}

fn trim_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

/// Whether an external proxy may present the address. Private, loopback and link-local addresses
/// are refused, and IPv6 addresses outside of 2000::/3.
fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !(address.is_private() || address.is_loopback() || address.is_link_local())
        }
        IpAddr::V6(address) => address.octets().first().is_some_and(|octet| octet & 0xe0 == 0x20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::{Peer, RequestHead};

    /// Returns the client, X-Forwarded-For and X-By of a request from the address `from`.
    fn found(text: &str, from: &str, forwarded: &str) -> String {
        let text = format!("RemoteIPHeader X-Forwarded-For\nRemoteIPProxiesHeader X-By\n{text}");
        let scope = apply(MODULE, &text).unwrap();
        let client = SocketAddr::new(from.parse().unwrap(), 7);
        let mut request = Request::new(RequestHead::default(), Peer { client, local: client }, 0);
        request.fields_mut().set("X-Forwarded-For", forwarded);
        find_client(&mut request, &scope.server.remoteip);
        let changed = request.peer.client != client;
        assert_eq!(request.proxy, changed.then_some(client));
        let field = |name| String::from_utf8_lossy(request.fields().first(name).unwrap_or(b"-"));
        format!("{} {} {}", request.peer.client, field("X-Forwarded-For"), field("X-By"))
    }

    #[test]
    fn without_a_list_every_proxy_is_an_external_one() {
        assert_eq!(found("", "10.1.1.1", "8.8.8.8"), "8.8.8.8:0 - 10.1.1.1");
        assert_eq!(found("", "10.1.1.1", "9.9.9.9, 8.8.8.8"), "9.9.9.9:0 - 10.1.1.1, 8.8.8.8");
        assert_eq!(found("", "1.1.1.1", "8.8.8.8 , 10.0.0.1 "), "1.1.1.1:7 8.8.8.8 , 10.0.0.1  -");
        assert_eq!(found("", "1.1.1.1", "10.0.0.1, 8.8.8.8"), "8.8.8.8:0 10.0.0.1 1.1.1.1");
        assert_eq!(found("", "1.1.1.1", "unknown,8.8.8.8"), "8.8.8.8:0 unknown 1.1.1.1");
        assert_eq!(found("", "1.1.1.1", ""), "1.1.1.1:7  -");
        assert_eq!(found("", "1.1.1.1", "2001:db8::1"), "[2001:db8::1]:0 - 1.1.1.1");
        assert_eq!(found("", "1.1.1.1", "fe80::1"), "1.1.1.1:7 fe80::1 -");
        assert_eq!(found("", "1.1.1.1", "::ffff:8.8.8.8"), "8.8.8.8:0 - 1.1.1.1");
    }

    #[test]
    fn addresses_have_the_forms_of_getaddrinfo() {
        let address = |text| parse_address(text).map(|address| address.to_string());
        for text in ["203.0.113.7", "0313.0.0161.07", "0xcb.0X0.0x71.7", "203.28935", "203.0.28935"]
        {
            assert_eq!(address(text).as_deref(), Some("203.0.113.7"), "{text}");
        }
        assert_eq!(address("3405803783").as_deref(), Some("203.0.113.7"));
        assert_eq!(address("0").as_deref(), Some("0.0.0.0"));
        assert_eq!(address("4294967295").as_deref(), Some("255.255.255.255"));
        for text in ["", ".", "1.", "256.1", "1.2.3.256", "1.16777216", "4294967296", "08", "0x"] {
            assert_eq!(address(text), None, "{text}");
        }
        assert_eq!(address("fe80::1%lo").as_deref(), Some("fe80::1"));
        for text in ["fe80::1%", "2001:db8::1%lo", "127.0.0.1%lo"] {
            assert_eq!(address(text), None, "{text}");
        }
        for text in ["1.2.3.4.5", "+1", "0x+1", "-1", "1..2", "a.b", "1.2.3.4 "] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn only_listed_proxies_are_believed() {
        let internal = "RemoteIPInternalProxy 10.0.0.0/8";
        assert_eq!(found(internal, "1.1.1.1", "8.8.8.8"), "1.1.1.1:7 8.8.8.8 -");
        assert_eq!(found(internal, "10.1.1.1", "8.8.8.8"), "8.8.8.8:0 - -");
        assert_eq!(found(internal, "10.1.1.1", "9.9.9.9, 8.8.8.8"), "8.8.8.8:0 9.9.9.9 -");
        assert_eq!(found(internal, "10.1.1.1", "192.168.1.1, 10.2.2.2"), "192.168.1.1:0 - -");
        let both = "RemoteIPInternalProxy 10.0.0.0/8\nRemoteIPTrustedProxy 8.8.8.8";
        assert_eq!(found(both, "10.1.1.1", "9.9.9.9, 8.8.8.8"), "9.9.9.9:0 - 8.8.8.8");
        assert_eq!(found(both, "10.1.1.1", "10.9.9.9, 8.8.8.8"), "8.8.8.8:0 10.9.9.9 -");
    }
}
