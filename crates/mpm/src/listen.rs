//! Parses Listen lines into addresses, with the rules and texts of Apache's server/listen.c.
//! Nothing is bound here.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// A Listen line with its name resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address; `None` is every address of the machine.
    pub address: Option<IpAddr>,
    /// The port; 0 lets the kernel choose, which a Listen line cannot express.
    pub port: u16,
    /// The protocol, in lower case.
    pub protocol: Arc<str>,
    /// How long a connection may wait in the kernel for its first byte (AcceptFilter); `None`
    /// accepts it at once.
    pub defer: Option<Duration>,
}

impl Listen {
    /// Parses the arguments of a Listen line: `PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`, and the
    /// protocol. A host name yields one Listen for each of its addresses. The error is the text
    /// that follows Apache's `Syntax error on line`.
    pub fn parse(address: &str, protocol: Option<&str>) -> Result<Vec<Self>, String> {
        let (host, port) = split(address)?;
        let protocol: Arc<str> = match protocol {
            Some(name) => name.to_ascii_lowercase().into(),
            None if port == 443 => "https".into(),
            None => "http".into(),
        };
        let addresses = match host {
            None => vec![None],
            Some(host) => resolve(host)?.into_iter().map(Some).collect(),
        };
        // A connection of these protocols begins with data from the client (core.c, the default of
        // AcceptFilter), and Apache lets the kernel wait for 30 s.
        let defer = matches!(&*protocol, "http" | "https").then_some(Duration::from_secs(30));
        let listen = |address| Self { address, port, protocol: Arc::clone(&protocol), defer };
        Ok(addresses.into_iter().map(listen).collect())
    }
}

/// Splits as apr_parse_addr_port does: the port is what follows the last colon, if those are
/// digits.
fn split(text: &str) -> Result<(Option<&str>, u16), String> {
    const INVALID: &str = "Invalid address or port";
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((None, port(text).ok_or(INVALID)?));
    }
    let with_port = text.rsplit_once(':').filter(|_| !text.ends_with(']'));
    let Some((host, digits)) = with_port else {
        return Err("Port must be specified".into());
    };
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or(INVALID)?,
        None => host,
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("Port must be specified".into());
    }
    let port = port(digits).ok_or(INVALID)?;
    match host {
        "" => Err(INVALID.into()),
        "*" => Ok((None, port)),
        host => Ok((Some(host), port)),
    }
}

fn port(digits: &str) -> Option<u16> {
    digits.parse().ok().filter(|&port| port != 0)
}

fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let mut found = Vec::new();
    let resolved = (host, 0).to_socket_addrs().map_err(|_| "Listen setup failed")?;
    for address in resolved.map(|address| address.ip()) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() { Err("Listen setup failed".into()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn parsed(text: &str) -> Result<Vec<(Option<IpAddr>, u16)>, String> {
        Ok(Listen::parse(text, None)?.into_iter().map(|one| (one.address, one.port)).collect())
    }

    #[test]
    fn listen_lines_are_read_as_apache_reads_them() {
        assert_eq!(parsed("80"), Ok(vec![(None, 80)]));
        assert_eq!(parsed("*:80"), Ok(vec![(None, 80)]));
        assert_eq!(parsed("127.0.0.1:8080"), Ok(vec![(Some([127, 0, 0, 1].into()), 8080)]));
        assert_eq!(parsed("[::1]:443"), Ok(vec![(Some(Ipv6Addr::LOCALHOST.into()), 443)]));
        for bad in ["70000", "0", "[::1:80", "127.0.0.1:0", "127.0.0.1:70000"] {
            assert_eq!(parsed(bad), Err("Invalid address or port".into()), "{bad}");
        }
        for bad in ["foo:bar", "127.0.0.1", "[::1]", ""] {
            assert_eq!(parsed(bad), Err("Port must be specified".into()), "{bad}");
        }
        assert_eq!(parsed("no-such-host.invalid:80"), Err("Listen setup failed".into()));
    }

    #[test]
    fn the_protocol_follows_from_the_port_where_it_is_not_given() {
        let protocol = |address, given| {
            let listen = Listen::parse(address, given).unwrap().remove(0);
            (listen.protocol.to_string(), listen.defer.is_some())
        };
        assert_eq!(protocol("80", None), ("http".into(), true));
        assert_eq!(protocol("443", None), ("https".into(), true));
        assert_eq!(protocol("8443", Some("HTTPS")), ("https".into(), true));
        assert_eq!(protocol("25", Some("smtp")), ("smtp".into(), false));
    }
}
