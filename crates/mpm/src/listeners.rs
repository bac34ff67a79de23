//! The listening sockets, which the parent owns for the life of the server. It opens those of a
//! configuration, one for each address and bucket, and keeps them over reloads; only sockets of
//! addresses that are not configured any more are closed. Texts are those of Apache's
//! server/listen.c.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_sys::activation;
use evenkeel_sys::listen::{self, Options};
use evenkeel_sys::socket::{accept_queue, dropped_segments};

use crate::child::Listener;
use crate::listen::Listen;
use crate::settings::Settings;

/// The sockets of a configuration. Each address has one in each bucket. Surplus sockets, left by an
/// earlier configuration with more buckets, are divided among the buckets, since the kernel still
/// queues connections on them.
#[derive(Clone)]
pub(crate) struct Listeners {
    open: Vec<OpenSocket>,
    buckets: usize,
    /// Whether another process gave the sockets, and may use them after this server has ended.
    is_borrowed: bool,
}

#[derive(Clone)]
struct OpenSocket {
    // The address as it was configured: the key over reloads, with the number of the bucket.
    asked: SocketAddr,
    bucket: usize,
    socket: Arc<OwnedFd>,
    address: SocketAddr,
    protocol: Arc<str>,
    defer: Option<Duration>,
}

impl OpenSocket {
    /// A socket of an address that is not configured any more.
    fn removed(socket: OwnedFd, address: SocketAddr) -> Self {
        let (socket, protocol) = (Arc::new(socket), "".into());
        Self { asked: address, bucket: 0, socket, address, protocol, defer: None }
    }
}

impl Listeners {
    pub(crate) fn none() -> Self {
        Self { open: Vec::new(), buckets: 1, is_borrowed: false }
    }

    /// Opens the configured addresses in `buckets` buckets, reusing the sockets of `before` for
    /// addresses that are still configured. Nothing of `before` changes, and the kernel queues
    /// nothing on additional sockets of its addresses until [`Listeners::listen`]. An address in
    /// use is tried again for `retry_for`, because orphans of a killed parent need a moment to
    /// close theirs. The error is the text that Apache prints.
    pub(crate) fn open(
        settings: &Settings,
        buckets: usize,
        before: &Self,
        retry_for: Duration,
    ) -> Result<Self, String> {
        let (buckets, is_borrowed) = (buckets.max(1), before.is_borrowed);
        let mut all = Self { open: Vec::new(), buckets, is_borrowed };
        let any = any_address();
        for one in in_binding_order(&settings.listen, any) {
            let asked = SocketAddr::new(one.address.unwrap_or(any), one.port);
            let is_covered = asked.ip() == IpAddr::from(Ipv4Addr::UNSPECIFIED)
                && all.open.iter().any(|other| {
                    other.asked == SocketAddr::from((Ipv6Addr::UNSPECIFIED, asked.port()))
                });
            // Without IPv6, `Listen 80` and `Listen 0.0.0.0:80` are one address.
            let is_open = all.kept(asked, 0).is_some();
            if (is_covered || is_open) && asked.port() != 0 {
                // The IPv6 socket accepts IPv4 connections too (open_listeners).
                continue;
            }
            all.open_address(asked, one, settings, before, retry_for)?;
        }
        if all.open.is_empty() {
            return Err("no listening sockets available, shutting down".into());
        }
        Ok(all)
    }

    /// Has all sockets listen with the configured backlog, additional sockets of an address last: a
    /// configuration that is given up before this has kept no connection from the serving children.
    /// The error is the text that Apache prints.
    pub(crate) fn listen(&self, settings: &Settings) -> Result<(), String> {
        let wanted = settings.backlog.unwrap_or_else(listen::somaxconn);
        let (listening, bound): (Vec<&OpenSocket>, Vec<&OpenSocket>) =
            self.open.iter().partition(|open| activation::is_listening(&open.socket));
        for open in listening.into_iter().chain(bound) {
            listen::listen(&open.socket, wanted).map_err(|error| {
                format!(
                    "{}: AH00073: make_sock: unable to listen for connections on address {}",
                    as_apr(&error),
                    open.asked
                )
            })?;
            // A kernel without the option delivers connections at once, which is slower but
            // correct.
            let _ = listen::defer_accept(&open.socket, open.defer.unwrap_or(Duration::ZERO));
        }
        Ok(())
    }

    /// Takes the sockets that were passed to this process, each for the Listen line with its
    /// address, or with its port if one of the two means all addresses. A predecessor may pass
    /// addresses that are not configured any more, which are kept; otherwise each socket must have
    /// a line, and each line a socket. The error is the text for the administrator.
    pub(crate) fn passed(
        sockets: Vec<(OwnedFd, String)>,
        lines: &[Listen],
        by_predecessor: bool,
    ) -> Result<Self, String> {
        let mut all = Self::none();
        if sockets.is_empty() {
            return Ok(all);
        }
        all.is_borrowed = true;
        let any = any_address();
        for (socket, name) in sockets {
            let address = listen::local_address(&socket).ok();
            let address = address.filter(|_| activation::is_listening(&socket));
            let line = address.and_then(|address| line_of(address, lines, any));
            let (Some(address), Some(line)) = (address, line) else {
                if by_predecessor {
                    all.open.extend(address.map(|address| OpenSocket::removed(socket, address)));
                    continue;
                }
                let what = address.map_or_else(|| "no TCP address".into(), |it| it.to_string());
                return Err(format!(
                    "Socket activation is used, and no Listen line is for the passed socket \
                     \"{name}\" ({what})"
                ));
            };
            let asked = SocketAddr::new(line.address.unwrap_or(any), line.port);
            let bucket = all.open.iter().filter(|open| open.asked == asked).count();
            let (socket, protocol) = (Arc::new(socket), Arc::clone(&line.protocol));
            // A service manager that does not know buckets has not allowed others beside its
            // socket.
            listen::share(&socket).map_err(|error| as_apr(&error))?;
            all.open.push(OpenSocket {
                asked,
                bucket,
                socket,
                address,
                protocol,
                defer: line.defer,
            });
        }
        let has_none = |line: &&Listen| all.open.iter().all(|open| open.asked.port() != line.port);
        match lines.iter().find(has_none).filter(|_| !by_predecessor) {
            // Apache: server/listen.c, set_systemd_listener.
            Some(line) => Err(format!(
                "Systemd socket activation is used, but this port is not configured in systemd: {}",
                line.port
            )),
            None => Ok(all),
        }
    }

    /// All sockets, those of an address in the order of their buckets.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let mut all: Vec<&OpenSocket> = self.open.iter().collect();
        all.sort_by_key(|open| open.bucket);
        all.into_iter().map(|open| open.socket.as_fd())
    }

    /// Opens an address in each bucket.
    fn open_address(
        &mut self,
        asked: SocketAddr,
        one: &Listen,
        settings: &Settings,
        before: &Self,
        retry_for: Duration,
    ) -> Result<(), String> {
        let mut shared = None;
        for bucket in 0..self.buckets {
            let socket = match before.kept(asked, bucket).filter(|kept| !self.has(kept)) {
                Some(kept) => Arc::clone(&kept.socket),
                None => Arc::new(bind_with_retry(asked, shared, settings, retry_for)?),
            };
            self.add(asked, bucket, socket, one);
            shared = self.open.last().map(|open| open.address);
        }
        let is_surplus = |kept: &&OpenSocket| kept.asked == asked && kept.bucket >= self.buckets;
        let surplus: Vec<OpenSocket> = before.open.iter().filter(is_surplus).cloned().collect();
        for kept in surplus.into_iter().filter(|kept| !self.has(kept)).collect::<Vec<_>>() {
            self.add(asked, kept.bucket, kept.socket, one);
        }
        Ok(())
    }

    fn add(&mut self, asked: SocketAddr, bucket: usize, socket: Arc<OwnedFd>, one: &Listen) {
        let address = listen::local_address(&socket).unwrap_or(asked);
        let protocol = Arc::clone(&one.protocol);
        self.open.push(OpenSocket { asked, bucket, socket, address, protocol, defer: one.defer });
    }

    fn kept(&self, asked: SocketAddr, bucket: usize) -> Option<&OpenSocket> {
        self.open.iter().find(|open| open.asked == asked && open.bucket == bucket)
    }

    fn has(&self, other: &OpenSocket) -> bool {
        self.open.iter().any(|open| Arc::ptr_eq(&open.socket, &other.socket))
    }

    /// How many buckets there are, at least one.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// Lets no new connection begin, because the server stops. Otherwise the kernel would reset
    /// those that come between the last accept and the close of the sockets. On a kernel that
    /// denies it, it still does.
    pub(crate) fn drop_new(&self) {
        if !self.is_borrowed {
            for open in &self.open {
                let _ = listen::drop_new(&open.socket);
            }
        }
    }

    /// How many connections wait for the children of a bucket.
    pub(crate) fn queue_of(&self, bucket: usize) -> usize {
        queued(self.of(bucket))
    }

    /// How many connections wait on all sockets.
    pub(crate) fn queue(&self) -> usize {
        queued(self.open.iter())
    }

    /// How many connections may wait on all sockets.
    pub(crate) fn queue_bound(&self) -> usize {
        let queues = self.open.iter().filter_map(|open| accept_queue(&open.socket).ok());
        queues.fold(0, |sum, queue| sum.saturating_add(queue.bound as usize))
    }

    /// How many segments the sockets have dropped since they were opened, including connections
    /// that they refused.
    pub(crate) fn dropped(&self) -> u64 {
        let dropped = self.open.iter().map(|open| u64::from(dropped_segments(&open.socket)));
        dropped.fold(0, u64::saturating_add)
    }

    /// How many connections wait on addresses that `after` does not have.
    pub(crate) fn queue_of_removed(&self, after: &Self) -> usize {
        queued(self.open.iter().filter(|open| !after.has(open)))
    }

    /// Adopts the additional sockets of `other` for addresses that both have. True if there were
    /// any.
    pub(crate) fn adopt(&mut self, other: &Self) -> bool {
        let is_known = |open: &&OpenSocket| self.open.iter().any(|own| own.asked == open.asked);
        let orphans: Vec<OpenSocket> =
            other.open.iter().filter(|open| !self.has(open)).filter(is_known).cloned().collect();
        let any = !orphans.is_empty();
        self.open.extend(orphans);
        any
    }

    /// The same for sockets that another program has opened beside these, as far as they belong to
    /// `lines`. Sockets of addresses that only it has are dropped.
    pub(crate) fn adopt_sockets(&mut self, sockets: Vec<OwnedFd>, lines: &[Listen]) -> bool {
        let sockets = sockets.into_iter().map(|socket| (socket, String::new())).collect();
        // Sockets of a predecessor or a successor: they may have addresses that are not configured
        // here.
        let Ok(mut tried) = Self::passed(sockets, lines, true) else { return false };
        for open in &mut tried.open {
            let own = self.open.iter().filter(|own| own.asked == open.asked);
            open.bucket += own.map(|own| own.bucket + 1).max().unwrap_or(0);
        }
        self.adopt(&tried)
    }

    /// The sockets that do not listen yet.
    pub(crate) fn bound(&self) -> Vec<BorrowedFd<'_>> {
        let sockets = self.open.iter().map(|open| open.socket.as_fd());
        sockets.filter(|socket| !activation::is_listening(socket)).collect()
    }

    /// All sockets as one bucket, for a server in one process.
    pub(crate) fn into_one(self) -> Self {
        Self { buckets: 1, ..self }
    }

    fn of(&self, bucket: usize) -> impl Iterator<Item = &OpenSocket> {
        self.open.iter().filter(move |open| open.bucket % self.buckets == bucket)
    }

    /// The sockets of a bucket for a child; called in the child, which then owns them.
    pub(crate) fn for_child(&self, bucket: usize) -> io::Result<Vec<Listener>> {
        let listener = |open: &OpenSocket| {
            Ok(Listener {
                socket: open.socket.try_clone()?,
                address: open.address,
                protocol: Arc::clone(&open.protocol),
                deferred: open.defer.is_some(),
            })
        };
        self.of(bucket).map(listener).collect()
    }
}

fn queued<'a>(open: impl Iterator<Item = &'a OpenSocket>) -> usize {
    let queues = open.filter_map(|open| accept_queue(&open.socket).ok());
    queues.fold(0, |sum, queue| sum.saturating_add(queue.length as usize))
}

/// The address of a Listen line without one.
fn any_address() -> IpAddr {
    if listen::has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The line that a socket was passed for.
fn line_of(address: SocketAddr, lines: &[Listen], any: IpAddr) -> Option<&Listen> {
    let is_named =
        |line: &&Listen| SocketAddr::new(line.address.unwrap_or(any), line.port) == address;
    let is_meant = |line: &&Listen| {
        let means_all = line.address.is_none_or(|ip| ip.is_unspecified());
        line.port == address.port() && (means_all || address.ip().is_unspecified())
    };
    lines.iter().find(is_named).or_else(|| lines.iter().find(is_meant))
}

/// The lines in order, except that the IPv4 wildcard of a port comes last, since others may make it
/// superfluous.
fn in_binding_order(listen: &[Listen], any: IpAddr) -> impl Iterator<Item = &Listen> {
    let is_v4_any =
        move |one: &&Listen| one.address.unwrap_or(any) == IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let first = listen.iter().filter(move |one| !is_v4_any(one));
    first.chain(listen.iter().filter(is_v4_any))
}

/// Binds an address: for the first bucket so that no other process can have it, for others beside
/// the socket that is `shared` already.
fn bind_with_retry(
    asked: SocketAddr,
    shared: Option<SocketAddr>,
    settings: &Settings,
    retry_for: Duration,
) -> Result<OwnedFd, String> {
    const STEP: Duration = Duration::from_millis(20);
    let options = Options {
        v6_only: false,
        send_buffer: settings.send_buffer,
        receive_buffer: settings.receive_buffer,
        shared: shared.is_some(),
    };
    let mut waited = Duration::ZERO;
    loop {
        match listen::bind(shared.unwrap_or(asked), options).and_then(|socket| {
            if shared.is_none() {
                // The address is reserved only once a socket listens: two sockets with SO_REUSEADDR
                // can be bound to it before either does.
                listen::listen(&socket, 1)?;
                // Later configurations may have more buckets.
                listen::share(&socket)?;
            }
            Ok(socket)
        }) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && waited < retry_for => {
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

/// A system error in the form of Apache's log: `(98)Address already in use`.
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
    use evenkeel_sys::connect;

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
            Listeners::open(&settings(&[(LOCAL, 0)]), 1, &Listeners::none(), Duration::ZERO)
                .unwrap();
        let other = settings(&[(LOCAL, 0), (Ipv6Addr::LOCALHOST.into(), 0)]);
        let second = Listeners::open(&other, 1, &first, Duration::ZERO).unwrap();
        assert!(Arc::ptr_eq(&first.open[0].socket, &second.open[0].socket));
        assert_eq!(second.open.len(), 2);
    }

    #[test]
    fn buckets_come_and_their_sockets_stay() {
        let settings = settings(&[(LOCAL, 0)]);
        let with = |buckets, before: &Listeners| {
            Listeners::open(&settings, buckets, before, Duration::ZERO).unwrap()
        };
        let one = with(1, &Listeners::none());
        one.listen(&settings).unwrap();
        let three = with(3, &one);
        assert!(Arc::ptr_eq(&one.open[0].socket, &three.open[0].socket));
        let addresses: Vec<SocketAddr> = three.open.iter().map(|open| open.address).collect();
        assert_eq!(addresses, [one.open[0].address; 3]);
        let connect = || std::net::TcpStream::connect(addresses[0]).unwrap();
        // Until all listen, the kernel queues nothing on sockets of a configuration that may be
        // rejected.
        let early: Vec<_> = (0..96).map(|_| connect()).collect();
        assert_eq!(one.queue(), early.len());
        three.listen(&settings).unwrap();
        let clients: Vec<_> = early.into_iter().chain((0..96).map(|_| connect())).collect();
        assert!((0..3).all(|bucket| three.queue_of(bucket) > 0));
        // The connections of a removed bucket are left to the others.
        let two = with(2, &three);
        assert_eq!(two.open.len(), 3);
        assert_eq!(
            [two.queue_of(0), two.queue_of(1), two.queue_of(2)].iter().sum::<usize>(),
            clients.len()
        );
        assert_eq!([two.for_child(0).unwrap().len(), two.for_child(1).unwrap().len()], [2, 1]);
        assert_eq!(two.into_one().for_child(0).unwrap().len(), 3);
        // Four buckets have three of them and a new one.
        let four = with(4, &with(2, &three));
        assert_eq!(four.open.len(), 4);
        assert!(three.open.iter().all(|open| four.has(open)));
    }

    #[test]
    fn an_address_that_goes_has_a_queue_until_it_is_accepted() {
        let both = settings(&[(LOCAL, 0), (Ipv6Addr::LOCALHOST.into(), 0)]);
        let before = Listeners::open(&both, 2, &Listeners::none(), Duration::ZERO).unwrap();
        before.listen(&both).unwrap();
        let one = settings(&[(LOCAL, 0)]);
        let mut after = Listeners::open(&one, 1, &before, Duration::ZERO).unwrap();
        assert_eq!(before.queue_of_removed(&after), 0);
        for open in &before.open {
            let _waiting = std::net::TcpStream::connect(open.address).unwrap();
        }
        assert_eq!(before.queue_of_removed(&after), 2);
        // A configuration that is given up leaves its buckets, but not its addresses.
        let more = Listeners::open(&both, 3, &after, Duration::ZERO).unwrap();
        assert!(after.adopt(&more));
        assert_eq!((after.open.len(), after.adopt(&more)), (3, false));
    }

    #[test]
    fn what_a_short_queue_refuses_is_counted_beside_a_long_one() {
        let two = settings(&[(LOCAL, 0), (Ipv6Addr::LOCALHOST.into(), 0)]);
        let two = Listeners::open(&two, 1, &Listeners::none(), Duration::ZERO).unwrap();
        listen::listen(&two.open[0].socket, 1).unwrap();
        assert_eq!(two.dropped(), 0);
        let remote = connect::Remote::Internet(two.open[0].address);
        let begin = |_| connect::begin(&remote, &connect::Local::default()).unwrap();
        let _waiting: Vec<_> = (0..4).map(begin).collect();
        assert!(two.dropped() >= 1);
    }

    #[test]
    fn a_port_in_use_is_told_in_apaches_words() {
        let first =
            Listeners::open(&settings(&[(LOCAL, 0)]), 1, &Listeners::none(), Duration::ZERO)
                .unwrap();
        let port = first.open[0].address.port();
        let error =
            Listeners::open(&settings(&[(LOCAL, port)]), 1, &Listeners::none(), Duration::ZERO)
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
    fn two_lines_that_mean_the_same_address_open_one_socket() {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let twice = [(Ipv4Addr::UNSPECIFIED.into(), port); 2];
        let open =
            Listeners::open(&settings(&twice), 1, &Listeners::none(), Duration::ZERO).unwrap();
        assert_eq!(open.open.len(), 1);
    }

    #[test]
    fn an_ipv6_socket_for_all_addresses_covers_the_ipv4_one() {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let both = [(Ipv4Addr::UNSPECIFIED.into(), port), (Ipv6Addr::UNSPECIFIED.into(), port)];
        let open =
            Listeners::open(&settings(&both), 1, &Listeners::none(), Duration::ZERO).unwrap();
        assert_eq!(open.open.len(), 1);
        assert!(open.open[0].address.is_ipv6());
    }
}
