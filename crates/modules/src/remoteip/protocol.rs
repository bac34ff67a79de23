//! The connections that begin with the PROXY header, according to RemoteIPProxyProtocol of all
//! servers. `conn` checks it when it accepts a connection.

use super::Server;
use evenkeel_expr::Subnet;
use std::net::{IpAddr, SocketAddr};

/// An address and a port of a server. `None` stands for any address, or any port.
pub type Place = (Option<IpAddr>, Option<u16>);

/// The addresses with the PROXY header.
#[derive(Clone, Debug, Default)]
pub struct ProxyProtocol {
    enabled: Vec<Place>,
    disabled: Vec<Place>,
    /// Networks of clients that send no PROXY header.
    exceptions: Vec<Subnet>,
}

impl ProxyProtocol {
    /// Adds the settings of a server for its addresses. If two servers have the same address, the
    /// later one takes precedence (mod_remoteip.c: remoteip_enable_proxy_protocol).
    pub fn add(&mut self, server: &Server, places: &[Place]) {
        let Some(said) = server.0.as_deref() else { return };
        self.exceptions.extend_from_slice(&said.exceptions);
        let (add, remove) = match said.protocol {
            None => return,
            Some(true) => (&mut self.enabled, &mut self.disabled),
            Some(false) => (&mut self.disabled, &mut self.enabled),
        };
        remove.retain(|place| !places.contains(place));
        add.extend_from_slice(places);
    }

    /// Whether a connection from `client` to `local` begins with the PROXY header.
    #[must_use]
    pub fn is_wanted(&self, local: SocketAddr, client: IpAddr) -> bool {
        let ip = local.ip().to_canonical();
        let fits = |place: &Place| {
            place.0.is_none_or(|it| it.to_canonical() == ip || it.is_unspecified())
                && place.1.is_none_or(|port| port == local.port())
        };
        self.enabled.iter().any(fits)
            && !self.disabled.iter().any(fits)
            && !self.exceptions.iter().any(|network| network.contains(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoteip::MODULE;
    use crate::testing::apply;

    #[test]
    fn the_header_is_wanted_where_it_is_enabled_and_nothing_disables_it() {
        let server = |text: &str| apply(MODULE, text).unwrap().server.remoteip;
        let (on, off) = (server("RemoteIPProxyProtocol On"), server("RemoteIPProxyProtocol Off"));
        let (ip, any): (Place, Place) = ((Some([10, 0, 0, 1].into()), Some(80)), (None, None));
        let wanted = |protocol: &ProxyProtocol, local: &str, client: [u8; 4]| {
            protocol.is_wanted(local.parse().unwrap(), client.into())
        };
        let mut protocol = ProxyProtocol::default();
        assert!(!wanted(&protocol, "10.0.0.1:80", [8; 4]));
        protocol.add(&on, &[ip]);
        protocol.add(&server(""), &[any]);
        assert!(wanted(&protocol, "10.0.0.1:80", [8; 4]));
        assert!(wanted(&protocol, "[::ffff:10.0.0.1]:80", [8; 4]));
        assert!(!wanted(&protocol, "10.0.0.1:81", [8; 4]));
        protocol.add(&server("RemoteIPProxyProtocolExceptions 8.8.0.0/16"), &[any]);
        assert!(!wanted(&protocol, "10.0.0.1:80", [8; 4]));
        assert!(wanted(&protocol, "10.0.0.1:80", [9; 4]));
        protocol.add(&on, &[any]);
        protocol.add(&off, &[ip]);
        assert!(!wanted(&protocol, "10.0.0.1:80", [9; 4]));
        assert!(wanted(&protocol, "10.0.0.2:80", [9; 4]));
    }
}
