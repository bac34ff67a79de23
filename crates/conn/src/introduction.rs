//! The PROXY header at the front of a connection, in which a proxy names the client that it speaks
//! for (RemoteIPProxyProtocol). A connection that begins with anything else is closed.

use crate::connection::{Connection, Introduction};
use crate::site::Site;
use crate::worker::Inner;
use evenkeel_message::{Level, Notice, Request};
use evenkeel_proto::ProxyHeader;

/// What has come of a connection that awaits the header.
pub(crate) enum Introduced {
    /// The whole header, of so many bytes.
    Known(usize),
    /// A part of it.
    Partly,
    /// Something else, of which the error log has been told.
    Not,
}

/// Reads the header in what has come of the connection, and makes the client that it names that of
/// the connection.
pub(crate) fn make<S: Site>(
    inner: &Inner<S>,
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

/// Tells a request of the connection who named its client.
pub(crate) fn note(request: &mut Request, connection: &Connection) {
    if let Introduction::Made(proxy) = connection.introduction {
        request.peer = connection.peer;
        (request.proxy, request.is_introduced) = (proxy, true);
    }
}
