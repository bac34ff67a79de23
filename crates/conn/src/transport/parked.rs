//! A connection between two turns: who it is and how often it was answered, packed into the few
//! words that it keeps while it rests.

use crate::thread::ThreadState;
use crate::transport::addresses::Addresses;
use evenkeel_message::Peer;
use evenkeel_sys::clock;
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_tls::Facts;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    /// The index of the local address.
    pub(crate) local: u16,
    /// The server before a request names its host.
    pub(crate) server: u32,
    /// How many requests were answered.
    pub(crate) keepalives: u32,
    /// How many kibibytes were sent, up to 65535, for the status page.
    pub(crate) kibibytes: u16,
    /// When it began, or when lingering began, in milliseconds of a clock that wraps after a
    /// minute.
    pub(crate) since_ms: u16,
    /// Whether the error log has a line of it.
    pub(crate) is_told: bool,
    /// The state of the PROXY header.
    pub(crate) introduction: Introduction,
    /// What was agreed in the handshake of TLS, once it has ended. The transport keeps it while the
    /// connection is parked.
    pub(crate) secure: Option<Arc<Facts>>,
}

/// The state of the PROXY header of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Introduction {
    /// The connection does not begin with a PROXY header: the peer is the client.
    None,
    /// The header has not been received yet.
    Awaited,
    /// The header was received. The address is that of the proxy, or `None` while another process
    /// holds the socket.
    Made(Option<SocketAddr>),
}

const IS_V4: u64 = 1 << 16;
const IS_TOLD: u64 = 1 << 63;
const IS_AWAITED: u64 = 1 << 62;
const IS_MADE: u64 = 1 << 61;

/// How old a connection must be, in milliseconds, before it makes room for others.
const TURN_MS: u16 = 100;

impl Connection {
    /// Whether the connection is closed with the response that is made now: the child retires, or
    /// others wait while this connection has had its share.
    pub(crate) fn is_over(&self, thread: &ThreadState) -> bool {
        let age_ms = || now_ms().wrapping_sub(self.since_ms);
        let had_its_share = || self.keepalives > 0 && age_ms() >= TURN_MS;
        thread.retiring.get() || thread.contended.get() && had_its_share()
    }

    pub(crate) fn to_parked_state(&self) -> ParkedState {
        let (high, low, v4) = match self.peer.client.ip() {
            IpAddr::V4(ip) => (0, ip.to_bits().into(), IS_V4),
            IpAddr::V6(ip) => ((ip.to_bits() >> 64) as u64, ip.to_bits() as u64, 0),
        };
        let told = if self.is_told { IS_TOLD } else { 0 };
        let introduction = match self.introduction {
            Introduction::None => 0,
            Introduction::Awaited => IS_AWAITED,
            Introduction::Made(_) => IS_MADE,
        };
        let who = u64::from(self.peer.client.port())
            | u64::from(self.kibibytes) << 16
            | u64::from(self.keepalives) << 32;
        let place = u64::from(self.local)
            | v4
            | u64::from(self.server & 0x7FFF) << 17
            | u64::from(self.since_ms) << 32
            | u64::from(self.server >> 15 & 0x1FFF) << 48
            | introduction
            | told;
        [high, low, who, place]
    }

    /// The connection that was parked with that state; none where its local address is not known.
    pub(crate) fn from_parked_state(state: ParkedState, addresses: &Addresses) -> Option<Self> {
        let [high, low, who, place] = state;
        let ip = match place & IS_V4 {
            0 => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
            _ => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
        };
        let local = place as u16;
        let client = SocketAddr::new(ip, who as u16);
        Some(Self {
            peer: Peer { client, local: addresses.at(local)? },
            local,
            server: (place >> 17 & 0x7FFF) as u32 | ((place >> 48 & 0x1FFF) as u32) << 15,
            keepalives: (who >> 32) as u32,
            kibibytes: (who >> 16) as u16,
            since_ms: (place >> 32) as u16,
            is_told: place & IS_TOLD != 0,
            introduction: match (place & IS_AWAITED != 0, place & IS_MADE != 0) {
                (true, _) => Introduction::Awaited,
                (_, true) => Introduction::Made(None),
                _ => Introduction::None,
            },
            secure: None,
        })
    }
}

/// A clock for connections, in milliseconds. It wraps after a minute.
pub(crate) fn now_ms() -> u16 {
    (clock::monotonic_coarse_us() / 1000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_state_brings_everything_back() {
        let addresses = Addresses::new(Arc::default());
        let local: SocketAddr = "192.0.2.1:80".parse().unwrap();
        assert_eq!(addresses.index(local), Some(0));
        let local6: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        assert_eq!(addresses.index(local6), Some(1));
        for client in ["203.0.113.9:65535", "[::ffff:203.0.113.9]:1", "[2001:db8::2]:4711"] {
            let made = Introduction::Made(None);
            for (server, index, local, introduction) in [
                (0, 0, local, Introduction::None),
                (123_456_789, 1, local6, Introduction::Awaited),
                (123_456_789, 1, local6, made),
            ] {
                let connection = Connection {
                    peer: Peer { client: client.parse().unwrap(), local },
                    local: index,
                    server,
                    keepalives: u32::MAX,
                    kibibytes: 65535,
                    since_ms: 54321,
                    is_told: index == 1,
                    introduction,
                    secure: None,
                };
                let back = Connection::from_parked_state(connection.to_parked_state(), &addresses)
                    .unwrap();
                assert_eq!(format!("{back:?}"), format!("{connection:?}"));
            }
        }
    }
}
