//! The PROXY header at the beginning of a connection, in which a proxy sends the address of its
//! client (RemoteIPProxyProtocol). A connection that begins with anything else is closed.

use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::parked::{Connection, Introduction};
use evenkeel_message::{Level, Notice, Request};
use evenkeel_proto::ProxyHeader;

/// The result of parsing the bytes received so far.
pub(crate) enum Introduced {
    /// The header is complete and has this many bytes.
    Known(usize),
    /// The header is not complete.
    Partly,
    /// The bytes are not a PROXY header. The reason is logged if Apache logs one.
    Not,
}

/// Parses the PROXY header and sets the client's address of the connection.
pub(crate) fn make<S: ConnectionSite>(
    inner: &Serving<S>,
    connection: &mut Connection,
    bytes: &[u8],
) -> Introduced {
    match ProxyHeader::parse(bytes) {
        Ok(ProxyHeader::Partial) => Introduced::Partly,
        Ok(ProxyHeader::Complete { length, client }) => {
            let proxy = connection.peer;
            connection.introduction = Introduction::Made(Some(proxy.client));
            connection.peer.client = client.unwrap_or(proxy.client);
            let client = connection.peer.client_ip();
            let port = connection.peer.client.port();
            let text =
                format!("RemoteIPProxyProtocol: received valid PROXY header: {client}:{port}");
            let notice = Notice::new("remoteip", Level::Debug, 3511, text);
            connection.is_told |= inner.site.tell(&notice, &proxy);
            Introduced::Known(length)
        }
        Err(notice) => {
            if let Some(notice) = notice {
                inner.site.tell(&notice, &connection.peer);
            }
            Introduced::Not
        }
    }
}

/// Copies the addresses from the PROXY header to a request of the connection.
pub(crate) fn note(request: &mut Request, connection: &Connection) {
    if let Introduction::Made(proxy) = connection.introduction {
        request.peer = connection.peer;
        (request.proxy, request.is_introduced) = (proxy, true);
    }
}
