//! Requests to HTTP servers (mod_proxy_http). [`request_head`] makes the head of a request to such
//! a server, and [`respond`] makes the response to the client of the server's.

pub use super::http_answer::{encode_interim, respond};
pub use super::http_head::{Framing, Sender, request_head, target_text};

use evenkeel_message::{Fields, Name, eq_ignore_case};

/// Removes the fields that are about one connection (RFC 9110, section 7.6.1), among them those
/// that Connection names. `is_kept` tells for a named field whether it stays.
pub(super) fn remove_hop_by_hop(fields: &mut Fields, is_kept: impl Fn(&Fields, &[u8]) -> bool) {
    let named: Vec<Vec<u8>> = fields.tokens(Name::Connection).map(<[u8]>::to_vec).collect();
    for name in &named {
        let is_option = eq_ignore_case(name, b"close") || eq_ignore_case(name, b"keep-alive");
        if !is_option && !is_kept(fields, name) {
            fields.remove(name.as_slice());
        }
    }
    for name in [
        Name::Connection,
        Name::ProxyConnection,
        Name::KeepAlive,
        Name::Te,
        Name::Trailer,
        Name::TransferEncoding,
        Name::Upgrade,
    ] {
        fields.remove(name);
    }
}
