//! mod_authz_host: access by where a client is. Addresses, networks and names of the
//! configuration come in; whether a client is among them goes out. Names are looked up by
//! [`look_up`] before the rules are asked, off the serving thread; the rules never wait.

mod lookup;

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};
pub use lookup::{Wanted, look_up};

use crate::{Active, Module, RequestContext, Scope};
use evenkeel_config::words;
use evenkeel_expr::{Subnet, Text};
use evenkeel_message::{Level, Notice, Request, quoted};
use std::fmt;
use std::sync::Arc;

/// mod_authz_host.
pub const MODULE: Module = Module {
    file: "mod_authz_host.c",
    identifier: "authz_host_module",
    active: Active::Usually,
    page: "mod_authz_host",
    subject: "Access by the client's address and name: `Require ip`, `host`, `local`, \
              `forward-dns`.",
    remarks: &[],
    directives: &[],
};

/// Why a text is no network (apr_ipsubnet_create).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFault {
    /// It does not look like an address at all: perhaps it is a name.
    NoAddress,
    /// The address is wrong.
    Address,
    /// What stands behind the slash is wrong.
    Mask,
}

impl fmt::Display for AddressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressFault::NoAddress => "Invalid argument",
            AddressFault::Address => "The specified IP address is invalid.",
            AddressFault::Mask => "The specified network mask is invalid.",
        })
    }
}

/// Reads an address, its first octets, or a network.
///
/// # Errors
/// What is wrong with it.
pub fn parse_network(text: &str) -> Result<Subnet, AddressFault> {
    let address = text.split('/').next().unwrap_or_default();
    let looks_v4 = address.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    if address.is_empty() || !(address.contains(':') || looks_v4) {
        return Err(AddressFault::NoAddress);
    }
    Subnet::parse(text).ok_or_else(|| match Subnet::parse(address) {
        Some(_) => AddressFault::Mask,
        None => AddressFault::Address,
    })
}

/// Whether a host's name is `domain` or below it (mod_authz_host.c: in_domain).
#[must_use]
pub fn in_domain(domain: &str, name: &str) -> bool {
    let (domain, name) = (domain.as_bytes(), name.as_bytes());
    let Some(start) = name.len().checked_sub(domain.len()) else { return false };
    let Some((before, end)) = name.split_at_checked(start) else { return false };
    end.eq_ignore_ascii_case(domain)
        && (before.is_empty() || domain.first() == Some(&b'.') || before.last() == Some(&b'.'))
}

/// Whether a client is on this machine: a loopback address, or the one that it reached.
#[must_use]
pub fn is_local(request: &Request) -> bool {
    let client = request.peer.client_ip();
    client.is_loopback() || client == request.peer.local_ip()
}

/// What Require asks of the client's address.
#[derive(Clone, Debug)]
pub enum HostRule {
    /// `ip`.
    Ip(Arc<[Subnet]>),
    /// `host`: the client's name, which must lead back to its address, is in one of these domains.
    Host(Arc<Text>),
    /// `forward-dns`: one of these names leads to the client's address.
    ForwardDns(Arc<Text>),
    /// `local`.
    Local,
}

impl HostRule {
    /// Compiles a rule; none where the name is not of this module.
    #[must_use]
    pub fn parse(scope: &Scope, name: &str, arguments: &str) -> Option<Result<Self, String>> {
        let text = || {
            let text = scope.compile_text(arguments);
            text.map(Arc::new)
                .map_err(|error| format!("Cannot parse expression in require line: {error}"))
        };
        match name {
            "ip" => Some(networks(arguments)),
            "host" => Some(text().map(HostRule::Host)),
            "forward-dns" => Some(text().map(HostRule::ForwardDns)),
            "local" => Some(Ok(HostRule::Local)),
            _ => None,
        }
    }

    /// Whether the client is meant. Where that cannot be found out, it is not.
    pub fn check(&self, context: &RequestContext<'_>, notices: &mut Vec<Notice>) -> bool {
        let request = context.request;
        match self {
            HostRule::Ip(networks) => {
                let client = request.peer.client_ip();
                networks.iter().any(|network| network.contains(client))
            }
            HostRule::Local => is_local(request),
            HostRule::Host(text) => {
                let Some(client) = verified_name(request) else {
                    let path = quoted(&request.resource.path);
                    let domains = text.value(context).unwrap_or_default();
                    let domains = quoted(&domains);
                    let text = format!(
                        "access check of '{domains}' to {path} failed, reason: unable to get the \
                         remote host name"
                    );
                    notices.push(Notice::new("authz_host", Level::Error, 1753, text));
                    return false;
                };
                let domains = names(text, context, 2556, "host", notices);
                domains.iter().any(|domain| in_domain(domain, client))
            }
            HostRule::ForwardDns(text) => {
                let found = request.names.as_deref();
                names(text, context, 3345, "forward-dns", notices).iter().any(|name| {
                    let addresses = found.and_then(|found| found.addresses_of(name));
                    if addresses.is_none() {
                        let text = format!("No sockaddr info for \"{name}\"");
                        notices.push(Notice::new("authz_host", Level::Error, 3347, text));
                    }
                    addresses.is_some_and(|list| list.contains(&request.peer.client_ip()))
                })
            }
        }
    }

    /// Adds what must be looked up before the rule can be asked.
    pub fn want(&self, context: &RequestContext<'_>, wanted: &mut Wanted) {
        match self {
            HostRule::Ip(_) | HostRule::Local => {}
            HostRule::Host(_) => wanted.verify = true,
            HostRule::ForwardDns(text) => {
                let text = text.value(context).unwrap_or_default();
                let names = words(&String::from_utf8_lossy(&text));
                wanted.names.extend(names.into_iter().map(String::into_boxed_str));
            }
        }
    }
}

/// The client's name, if it leads back to the client's address.
#[must_use]
pub fn verified_name(request: &Request) -> Option<&str> {
    let names = request.names.as_deref()?;
    names.client.as_deref().filter(|_| names.verified)
}

fn networks(arguments: &str) -> Result<HostRule, String> {
    // An empty word ends the list.
    let networks = words(arguments)
        .iter()
        .take_while(|word| !word.is_empty())
        .map(|word| {
            parse_network(word).map_err(|fault| match fault {
                AddressFault::NoAddress => format!("ip address '{word}' appears to be invalid"),
                fault => format!("ip address '{word}' appears to be invalid: {fault}"),
            })
        })
        .collect::<Result<Arc<[Subnet]>, String>>()?;
    if networks.is_empty() {
        return Err("'require ip' requires an argument".into());
    }
    Ok(HostRule::Ip(networks))
}

/// The names that a rule's text stands for in the request.
fn names(
    text: &Text,
    context: &RequestContext<'_>,
    number: u16,
    provider: &str,
    notices: &mut Vec<Notice>,
) -> Vec<String> {
    match text.value(context) {
        Ok(text) => words(&String::from_utf8_lossy(&text)),
        Err(error) => {
            let text = format!(
                "authz_host authorize: require {provider}: Can't evaluate require expression: \
                 {error}"
            );
            notices.push(Notice::new("authz_host", Level::Error, number, text));
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_end_at_dots() {
        assert!(in_domain("good.com", "a.GOOD.com") && in_domain(".com", "good.com"));
        assert!(in_domain("good.com", "good.com"));
        assert!(!in_domain("good.com", "nogood.com") && !in_domain("a.good.com", "good.com"));
    }

    #[test]
    fn networks_are_refused_for_the_reason_that_apr_gives() {
        let table = [
            ("foo", AddressFault::NoAddress),
            ("", AddressFault::NoAddress),
            ("foo/8", AddressFault::NoAddress),
            ("300.1.1.1", AddressFault::Address),
            ("10.0.0.0/99", AddressFault::Mask),
            ("10.1.0.0/16/3", AddressFault::Mask),
            ("::zz", AddressFault::Address),
        ];
        for (text, fault) in table {
            assert_eq!(parse_network(text), Err(fault), "{text}");
        }
        assert!(parse_network("10.1").is_ok() && parse_network("fe80::/10").is_ok());
    }
}
