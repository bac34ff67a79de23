//! The listening sockets, owned by the parent for the life of the server. Listen lines come in,
//! sockets go out, the same ones before and after a reload; only an address that is no longer
//! configured is closed. Rules and texts are those of Apache's server/listen.c.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_sys::listen::{self, Options};

use crate::child::Listener;
use crate::settings::Settings;

/// One Listen line, its name resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address; `None` is every address of the machine.
    pub address: Option<IpAddr>,
    /// The port; 0 lets the kernel choose, which no Listen line can say.
    pub port: u16,
    /// The protocol, in lower case.
    pub protocol: Arc<str>,
    /// How long a connection may wait in the kernel for its first byte (AcceptFilter);
    /// `None` hands it over at once.
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
        // A connection of these protocols begins with bytes from the client (core.c, the default
        // of AcceptFilter); 30 s is what Apache lets the kernel wait for them.
        let defer = matches!(&*protocol, "http" | "https").then_some(Duration::from_secs(30));
        let listen = |address| Self { address, port, protocol: Arc::clone(&protocol), defer };
        Ok(addresses.into_iter().map(listen).collect())
    }
}

/// Splits as apr_parse_addr_port does: the port is what follows the last colon, if digits.
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

/// The sockets of one configuration.
pub(crate) struct Listeners {
    open: Vec<Open>,
}

struct Open {
    // As it was asked for: the key over reloads.
    asked: SocketAddr,
    socket: Arc<OwnedFd>,
    address: SocketAddr,
    protocol: Arc<str>,
    defer: Option<Duration>,
}

impl Listeners {
    pub(crate) fn none() -> Self {
        Self { open: Vec::new() }
    }

    /// Opens what the settings ask for, taking over the sockets of `before` whose addresses are
    /// still asked for; nothing of `before` changes but backlog and filter. An address in use is
    /// tried again for as long as `patience`, for the orphans of a parent that was killed need a
    /// moment to leave theirs. The error is the text that Apache prints.
    pub(crate) fn open(
        settings: &Settings,
        before: &Self,
        patience: Duration,
    ) -> Result<Self, String> {
        let mut open: Vec<Open> = Vec::new();
        let any = if listen::has_ipv6() {
            IpAddr::from(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        };
        for one in in_binding_order(&settings.listen, any) {
            let asked = SocketAddr::new(one.address.unwrap_or(any), one.port);
            let is_covered = asked.ip() == IpAddr::from(Ipv4Addr::UNSPECIFIED)
                && open.iter().any(|other| {
                    other.asked == SocketAddr::from((Ipv6Addr::UNSPECIFIED, asked.port()))
                });
            if is_covered && asked.port() != 0 {
                // The IPv6 socket takes IPv4 connections too (open_listeners).
                continue;
            }
            let kept = before.open.iter().find(|kept| {
                kept.asked == asked && !open.iter().any(|o| Arc::ptr_eq(&o.socket, &kept.socket))
            });
            let socket = match kept {
                Some(kept) => Arc::clone(&kept.socket),
                None => Arc::new(bind_patiently(asked, settings, patience)?),
            };
            listen_on(&socket, one, settings, asked)?;
            let address = listen::local_address(&socket).unwrap_or(asked);
            let protocol = Arc::clone(&one.protocol);
            open.push(Open { asked, socket, address, protocol, defer: one.defer });
        }
        if open.is_empty() {
            return Err("no listening sockets available, shutting down".into());
        }
        Ok(Self { open })
    }

    /// How many connections wait to be accepted, on all of them.
    pub(crate) fn queue(&self) -> usize {
        let lengths = self.open.iter().filter_map(|open| listen::queue(&open.socket).ok());
        lengths.fold(0, |sum, length| sum.saturating_add(length as usize))
    }

    /// How many connections may wait there at most, on all of them.
    pub(crate) fn queue_bound(&self) -> usize {
        let bounds = self.open.iter().filter_map(|open| listen::queue_bound(&open.socket).ok());
        bounds.fold(0, |sum, bound| sum.saturating_add(bound as usize))
    }

    /// The sockets as a child gets them: called in the child, where they are its own.
    pub(crate) fn for_child(&self) -> io::Result<Vec<Listener>> {
        let listener = |open: &Open| {
            Ok(Listener {
                socket: open.socket.try_clone()?,
                address: open.address,
                protocol: Arc::clone(&open.protocol),
                deferred: open.defer.is_some(),
            })
        };
        self.open.iter().map(listener).collect()
    }
}

/// Every address before the IPv4 one of the same port, which it makes superfluous.
fn in_binding_order(listen: &[Listen], any: IpAddr) -> impl Iterator<Item = &Listen> {
    let is_v4_any =
        move |one: &&Listen| one.address.unwrap_or(any) == IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let first = listen.iter().filter(move |one| !is_v4_any(one));
    first.chain(listen.iter().filter(is_v4_any))
}

fn bind_patiently(
    asked: SocketAddr,
    settings: &Settings,
    patience: Duration,
) -> Result<OwnedFd, String> {
    const STEP: Duration = Duration::from_millis(20);
    let options = Options {
        v6_only: false,
        send_buffer: settings.send_buffer,
        receive_buffer: settings.receive_buffer,
    };
    let mut waited = Duration::ZERO;
    loop {
        match listen::bind(asked, options).and_then(|socket| {
            // The address is ours only once we listen: two sockets with SO_REUSEADDR can be
            // bound to it before either does.
            listen::listen(&socket, 1)?;
            Ok(socket)
        }) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && waited < patience => {
                std::thread::sleep(STEP);
                waited += STEP;
            }
            Err(error) => {
                return Err(format!(
                    "{}: AH00072: make_sock: could not bind to address {asked}\n\
                     no listening sockets available, shutting down\n\
                     AH00015: Unable to open logs",
                    as_apr(&error)
                ));
            }
        }
    }
}

fn listen_on(
    socket: &OwnedFd,
    one: &Listen,
    settings: &Settings,
    asked: SocketAddr,
) -> Result<(), String> {
    let wanted = settings.backlog.unwrap_or_else(listen::somaxconn);
    listen::listen(socket, wanted).map_err(|error| {
        format!(
            "{}: AH00073: make_sock: unable to listen for connections on address {asked}",
            as_apr(&error)
        )
    })?;
    // A kernel without the option hands connections over at once, which is slower, not wrong.
    let _ = listen::defer_accept(socket, one.defer.unwrap_or(Duration::ZERO));
    Ok(())
}

/// An error of the system in the form that Apache's log has it: `(98)Address already in use`.
pub(crate) fn as_apr(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => {
            let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
            format!("({number}){text}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn settings(listen: &[(IpAddr, u16)]) -> Settings {
        let listen = listen.iter().map(|&(address, port)| Listen {
            address: Some(address),
            port,
            protocol: "http".into(),
            defer: None,
        });
        Settings { listen: listen.collect(), ..Settings::default() }
    }

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_reload_keeps_the_sockets_whose_addresses_stay() {
        let first =
            Listeners::open(&settings(&[(LOCAL, 0)]), &Listeners::none(), Duration::ZERO).unwrap();
        let other = settings(&[(LOCAL, 0), (Ipv6Addr::LOCALHOST.into(), 0)]);
        let second = Listeners::open(&other, &first, Duration::ZERO).unwrap();
        assert!(Arc::ptr_eq(&first.open[0].socket, &second.open[0].socket));
        assert_eq!(second.open.len(), 2);
    }

    #[test]
    fn a_port_in_use_is_told_in_apaches_words() {
        let first =
            Listeners::open(&settings(&[(LOCAL, 0)]), &Listeners::none(), Duration::ZERO).unwrap();
        let port = first.open[0].address.port();
        let error =
            Listeners::open(&settings(&[(LOCAL, port)]), &Listeners::none(), Duration::ZERO)
                .err()
                .unwrap();
        assert_eq!(
            error,
            format!(
                "(98)Address already in use: AH00072: make_sock: could not bind to address \
                 127.0.0.1:{port}\nno listening sockets available, shutting down\nAH00015: Unable \
                 to open logs"
            )
        );
    }

    #[test]
    fn an_ipv6_socket_for_all_addresses_covers_the_ipv4_one() {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let both = [(Ipv4Addr::UNSPECIFIED.into(), port), (Ipv6Addr::UNSPECIFIED.into(), port)];
        let open = Listeners::open(&settings(&both), &Listeners::none(), Duration::ZERO).unwrap();
        assert_eq!(open.open.len(), 1);
        assert!(open.open[0].address.is_ipv6());
    }
}
