//! The table of virtual hosts: the address of a connection and the host that a request names go
//! in, the index of a server comes out (Apache: vhost.c). It never looks at anything else.

use evenkeel_config::Position;
use evenkeel_modules::core::{Aliases, wildcard_match};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// One address of a `<VirtualHost>` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address; none for `*` and `_default_`.
    pub ip: Option<IpAddr>,
    /// The port; none for `*` or where none was given.
    pub port: Option<u16>,
}

/// A virtual host as the table needs it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its index among the site's servers.
    pub server: usize,
    /// ServerName in lower case.
    pub name: Arc<str>,
    /// ServerAlias names and ServerPath.
    pub aliases: Option<Arc<Aliases>>,
    /// Where it was configured, for `-S`.
    pub position: Position,
}

/// The hosts of one address, in the order of the configuration: the first is the default.
#[derive(Clone, Debug)]
pub struct AddressHosts {
    /// The address that they share.
    pub address: Address,
    /// The hosts.
    pub hosts: Vec<Host>,
    by_name: HashMap<Arc<str>, Place, foldhash::fast::RandomState>,
    /// The aliases with wildcards.
    wild: Vec<(Arc<str>, Place)>,
}

/// Which host a name means. The first in order wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Its place among the hosts of its address.
    index: usize,
    /// Its index among the site's servers: the host itself need not be read for it.
    server: usize,
}

/// All virtual hosts of a site by address.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Addresses with an IP address, those with a port before those without.
    pub by_ip: Vec<AddressHosts>,
    /// `*` and `_default_`, those with a port before those without.
    pub any: Vec<AddressHosts>,
}

impl Hosts {
    /// Adds a host under each of its addresses.
    pub fn add(&mut self, addresses: &[Address], host: &Host) {
        for address in addresses {
            let list = if address.ip.is_some() { &mut self.by_ip } else { &mut self.any };
            match list.iter_mut().find(|entry| entry.address == *address) {
                Some(entry) => entry.push(host.clone()),
                None => {
                    let mut entry = AddressHosts {
                        address: *address,
                        hosts: Vec::new(),
                        by_name: HashMap::default(),
                        wild: Vec::new(),
                    };
                    entry.push(host.clone());
                    // An address with a port is more specific than one without.
                    let place = if address.port.is_some() {
                        list.iter().position(|e| e.address.port.is_none()).unwrap_or(list.len())
                    } else {
                        list.len()
                    };
                    list.insert(place, entry);
                }
            }
        }
    }

    /// The server for a connection to `local` whose request names `host` (lower case, without
    /// port; empty where it names none) and whose path is `raw_path`, as it came; 0, the main
    /// server, where no virtual host has that address.
    #[must_use]
    pub fn server(&self, local: SocketAddr, host: &[u8], raw_path: &[u8]) -> usize {
        self.at(local).map_or(0, |entry| entry.server(host, raw_path))
    }

    /// Whether a host of that address goes by the name; true where no virtual host has it.
    #[must_use]
    pub fn knows(&self, local: SocketAddr, host: &[u8]) -> bool {
        let Some(entry) = self.at(local) else { return true };
        std::str::from_utf8(host).is_ok_and(|name| entry.place_of(name).is_some())
    }

    /// The first server of each address that a server has.
    pub fn firsts(&self, server: usize) -> impl Iterator<Item = usize> {
        self.by_ip.iter().chain(&self.any).filter_map(move |entry| {
            let has_server = entry.hosts.iter().any(|host| host.server == server);
            entry.hosts.first().filter(|_| has_server).map(|first| first.server)
        })
    }

    /// The hosts of the address that a connection came in on.
    #[must_use]
    pub fn at(&self, local: SocketAddr) -> Option<&AddressHosts> {
        let ip = local.ip().to_canonical();
        let port_fits =
            |entry: &&AddressHosts| entry.address.port.is_none_or(|port| port == local.port());
        let exact = self.by_ip.iter().filter(|e| e.address.ip == Some(ip)).find(port_fits);
        exact.or_else(|| self.any.iter().find(port_fits))
    }
}

impl Host {
    fn has_path(&self, raw_path: &[u8]) -> bool {
        let path = self.aliases.as_ref().and_then(|aliases| aliases.path.as_ref());
        path.is_some_and(|path| is_below(raw_path, path.as_bytes()).is_some())
    }
}

/// What follows a prefix, such as that of ServerPath or `<Location>`, in a path that begins with
/// it; whole segments alone.
pub(crate) fn is_below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix)?;
    let is_whole = prefix.ends_with(b"/") || matches!(rest.first(), None | Some(b'/'));
    is_whole.then_some(rest)
}

impl AddressHosts {
    fn push(&mut self, host: Host) {
        let place = Place { index: self.hosts.len(), server: host.server };
        let (exact, wild) = host.aliases.as_ref().map_or((&[][..], &[][..]), |aliases| {
            (aliases.exact.as_slice(), aliases.wild.as_slice())
        });
        for name in std::iter::once(&host.name).chain(exact) {
            self.by_name.entry(Arc::clone(name)).or_insert(place);
        }
        self.wild.extend(wild.iter().map(|pattern| (Arc::clone(pattern), place)));
        self.hosts.push(host);
    }

    /// The server whose name or alias the host is; where none is named, the one whose ServerPath
    /// the path begins with (vhost.c: check_serverpath); the default one otherwise.
    fn server(&self, host: &[u8], raw_path: &[u8]) -> usize {
        // The only one is the default too.
        if let [only] = self.hosts.as_slice() {
            return only.server;
        }
        let found = match host {
            b"" => self.hosts.iter().find(|host| host.has_path(raw_path)).map(|host| host.server),
            host => {
                let place = std::str::from_utf8(host).ok().and_then(|name| self.place_of(name));
                place.map(|place| place.server)
            }
        };
        found.or_else(|| self.hosts.first().map(|host| host.server)).unwrap_or(0)
    }

    fn place_of(&self, name: &str) -> Option<Place> {
        let exact = self.by_name.get(name).copied();
        let matches = |pattern: &str| wildcard_match(pattern.as_bytes(), name.as_bytes());
        let wild = self.wild.iter().find(|(pattern, _)| matches(pattern)).map(|(_, at)| *at);
        // The first host in order wins, whichever way it matched.
        match (exact, wild) {
            (Some(exact), Some(wild)) => Some(exact.min(wild)),
            (exact, wild) => exact.or(wild),
        }
    }
}

/// The addresses that one word of a `<VirtualHost>` line means: `*`, `_default_`, an address, a
/// name, each with a port, `:*` or none.
///
/// # Errors
/// The text for the administrator where the port is no port, or where the name has no address.
pub fn parse_address(word: &str) -> Result<Vec<Address>, String> {
    let (host, port) = split_port(word)?;
    if host == "*" || host.eq_ignore_ascii_case("_default_") {
        return Ok(vec![Address { ip: None, port }]);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![Address { ip: Some(ip), port }]);
    }
    let resolved = (host, 0)
        .to_socket_addrs()
        .map_err(|error| format!("Could not resolve host name {host} -- ignoring! ({error})"))?;
    let mut addresses: Vec<Address> = Vec::new();
    for address in resolved.map(|socket| Address { ip: Some(socket.ip()), port }) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn split_port(word: &str) -> Result<(&str, Option<u16>), String> {
    if let Some(rest) = word.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or_else(|| format!("Invalid address {word}: ']' is missing"))?;
        return match after.strip_prefix(':') {
            None if after.is_empty() => Ok((host, None)),
            Some(port) => Ok((host, parse_port(port, word)?)),
            None => Err(format!("Invalid address {word}")),
        };
    }
    match word.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => Ok((host, parse_port(port, word)?)),
        _ => Ok((word, None)),
    }
}

fn parse_port(port: &str, word: &str) -> Result<Option<u16>, String> {
    if port == "*" {
        return Ok(None);
    }
    match port.parse::<u16>() {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => Err(format!(
            "The port number \"{port}\" is outside the appropriate range (i.e., 1..65535) in {word}."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(server: usize, name: &str, wild: &[&str]) -> Host {
        Host {
            server,
            name: name.into(),
            aliases: Some(Arc::new(Aliases {
                wild: wild.iter().map(|w| (*w).into()).collect(),
                ..Aliases::default()
            })),
            position: Position { file: "test".into(), line: 1 },
        }
    }

    fn table(entries: &[(&str, usize, &str, &[&str])]) -> Hosts {
        let mut hosts = Hosts::default();
        for (address, server, name, wild) in entries {
            hosts.add(&parse_address(address).unwrap(), &host(*server, name, wild));
        }
        hosts
    }

    #[test]
    fn the_address_is_chosen_before_the_name() {
        let hosts = table(&[
            ("*:80", 1, "a.example", &[]),
            ("127.0.0.1:80", 2, "b.example", &[]),
            ("127.0.0.1", 3, "c.example", &[]),
            ("*:80", 4, "d.example", &["*.d.example"]),
        ]);
        let at =
            |local: &str, name: &str| hosts.server(local.parse().unwrap(), name.as_bytes(), b"/");
        assert_eq!(at("127.0.0.1:80", "a.example"), 2);
        assert_eq!(at("127.0.0.1:81", "x"), 3);
        assert_eq!(at("127.0.0.2:80", "d.example"), 4);
        assert_eq!(at("127.0.0.2:80", "www.d.example"), 4);
        assert_eq!(at("127.0.0.2:80", ""), 1);
        assert_eq!(at("127.0.0.2:81", "a.example"), 0);
    }

    #[test]
    fn addresses_are_parsed_with_their_ports() {
        let one = |word: &str| parse_address(word).unwrap().first().copied().unwrap();
        assert_eq!(one("_default_:*"), Address { ip: None, port: None });
        assert_eq!(one("[::1]:81").port, Some(81));
        assert_eq!(one("::1"), Address { ip: Some("::1".parse().unwrap()), port: None });
        assert!(parse_address("1.2.3.4:99999").is_err());
    }
}
