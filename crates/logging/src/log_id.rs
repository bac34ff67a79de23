//! The ids that connect lines of the error log and of the access log (%L). They are computed from
//! facts about the request and its connection, so that nothing needs to be stored. Like Apache's
//! (server/core.c: add_log_id), they are eleven characters of base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use evenkeel_message::{Peer, Request};
use std::net::IpAddr;

/// The text of an id.
pub(crate) type LogId = [u8; 11];

/// The id of a request, from its time, its process, its number on the connection and the client's
/// port.
pub(crate) fn of_request(request: &Request) -> LogId {
    let place = u64::from(request.peer.client.port()) << 24 ^ u64::from(request.keepalives) << 52;
    encode(request.time_us ^ process() ^ place)
}

/// The id of a connection, from its two ends and its process. A client that comes again from the
/// same port has the same id; the times distinguish such connections.
pub(crate) fn of_connection(peer: &Peer) -> LogId {
    let address = match peer.client_ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ v6.to_bits() as u64,
    };
    let ports = u64::from(peer.client.port()) << 48 ^ u64::from(peer.local.port()) << 32;
    encode(address ^ ports ^ process())
}

fn process() -> u64 {
    u64::from(std::process::id()) << 40
}

fn encode(id: u64) -> LogId {
    let mut text = [b'A'; 11];
    // Eight bytes are eleven characters without padding, so the slice is large enough.
    let _written = STANDARD_NO_PAD.encode_slice(id.to_le_bytes(), &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::RequestHead;

    #[test]
    fn ids_differ_by_request_and_stay_for_a_connection() {
        let peer = Peer {
            client: "192.0.2.1:4000".parse().unwrap(),
            local: "192.0.2.2:80".parse().unwrap(),
        };
        let first = Request::new(RequestHead::default(), peer, 1_000_000);
        let mut second = Request::new(RequestHead::default(), peer, 1_000_000);
        second.keepalives = 1;
        assert_ne!(of_request(&first), of_request(&second));
        assert_eq!(of_request(&first), of_request(&first));
        assert!(of_connection(&peer).iter().all(u8::is_ascii));
    }
}
