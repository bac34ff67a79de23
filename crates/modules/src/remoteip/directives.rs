//! The directives of mod_remoteip.

use super::{Proxy, Said};
use crate::core::{AddressFault, parse_network};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape, words};
use evenkeel_expr::Subnet;
use std::net::ToSocketAddrs;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("RemoteIPHeader", Where::SERVER, Shape::One, "", "Specifies a request header to trust as the client IP, e.g. X-Forwarded-For", header),
    directive("RemoteIPInternalProxy", Where::SERVER, Shape::Iterate, "", "Specifies one or more internal (transparent) proxies which are trusted to present IP headers", proxy),
    directive("RemoteIPInternalProxyList", Where::SERVER, Shape::One, "", "The filename to read the list of internal proxies, see the RemoteIPInternalProxy directive", list),
    directive("RemoteIPProxiesHeader", Where::SERVER, Shape::One, "", "Specifies a request header to record proxy IP's, e.g. X-Forwarded-By; if not given then do not record", proxies_header),
    directive("RemoteIPProxyProtocol", Where::SERVER, Shape::Flag, "Off", "Enable PROXY protocol handling ('on', 'off')", protocol),
    directive("RemoteIPProxyProtocolExceptions", Where::SERVER, Shape::Argv, "", "Disable PROXY protocol handling for this list of networks in CIDR format", exceptions),
    directive("RemoteIPTrustedProxy", Where::SERVER, Shape::Iterate, "", "Specifies one or more proxies which are trusted to present IP headers", proxy),
    directive("RemoteIPTrustedProxyList", Where::SERVER, Shape::One, "", "The filename to read the list of trusted proxies, see the RemoteIPTrustedProxy directive", list),
];

/// mod_remoteip.
pub const MODULE: Module = Module {
    file: "mod_remoteip.c",
    identifier: "remoteip_module",
    active: Active::Usually,
    page: "mod_remoteip",
    subject: "The client for which a proxy speaks, in a field of the request or in the PROXY \
              header of a connection.",
    remarks: &[
        "A host name in the field of RemoteIPHeader is not resolved; Apache resolves it.",
        "An address with a scope (`fe80::1%eth0`) is shown without the scope.",
        "If a PROXY header of version 2 is too short for its addresses, the connection is closed; \
         Apache reads bytes that the client did not send.",
        "`PROXY UNKNOWN` without addresses is accepted; Apache closes the connection.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn said(scope: &mut Scope) -> &mut Said {
    Arc::make_mut(scope.server.remoteip.0.get_or_insert_default())
}

fn header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).header = Some(argument(call, 0).as_bytes().into());
    Ok(())
}

fn proxies_header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).proxies_header = Some(argument(call, 0).as_bytes().into());
    Ok(())
}

fn protocol(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).protocol = Some(call.flag);
    Ok(())
}

fn proxy(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    add(scope, call, argument(call, 0))
}

/// Adds a network, or the addresses of a host name.
fn add(scope: &mut Scope, call: &Call<'_>, text: &str) -> DirectiveResult {
    let is_internal = call.name.to_ascii_lowercase().starts_with("remoteipinternal");
    let fault =
        |what: &str| format!("RemoteIP: Error parsing IP {text} ({what} error) for {}", call.name);
    let networks: Vec<Subnet> = match parse_network(text) {
        Ok(network) => vec![network],
        Err(AddressFault::NoAddress) if text.starts_with('/') => {
            return Err(fault(&AddressFault::NoAddress.to_string()));
        }
        Err(AddressFault::NoAddress) => {
            if let Some((_, mask)) = text.split_once('/') {
                return Err(format!(
                    "RemoteIP: Error parsing IP {text} the subnet /{mask} is invalid for {}",
                    call.name
                ));
            }
            let found = (text, 0).to_socket_addrs();
            let found = found.map_err(|_| fault("Name or service not known"))?;
            found.filter_map(|it| Subnet::parse(&it.ip().to_canonical().to_string())).collect()
        }
        Err(other) => return Err(fault(&other.to_string())),
    };
    let proxies = said(scope).proxies.get_or_insert_default();
    proxies.extend(networks.into_iter().map(|network| Proxy { network, is_internal }));
    Ok(())
}

/// Reads networks from a file. A word that begins with `#` begins a comment.
fn list(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_path(argument(call, 0));
    let text = std::fs::read_to_string(&path).map_err(|error| {
        let (path, reason) = (path.display(), error.to_string());
        let reason = reason.split(" (os error").next().unwrap_or_default();
        format!("{}: Could not open file {path}: {reason}", call.name)
    })?;
    for (number, line) in text.lines().enumerate() {
        for word in words(line).iter().take_while(|word| !word.starts_with('#')) {
            add(scope, call, word)
                .map_err(|fault| format!("{fault} at line {} of {}", number + 1, path.display()))?;
        }
    }
    Ok(())
}

fn exceptions(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if call.words.is_empty() {
        return Err(format!("{} requires an argument", call.name));
    }
    for word in call.words {
        let network = parse_network(word).map_err(|fault| {
            let address = word.split('/').next().unwrap_or_default();
            match fault {
                AddressFault::NoAddress => format!("ip address '{address}' appears to be invalid"),
                fault => format!("ip address '{address}' appears to be invalid: {fault}"),
            }
        })?;
        said(scope).exceptions.push(network);
    }
    Ok(())
}
