//! mod_authz_host: authorization by the client's IP address or host name. A rule that needs a host
//! name has it looked up (`core/lookup.rs`), and is checked again when the resolver has answered.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::core::{AddressFault, in_domain, known_names, parse_network, verified_name};
use crate::{
    Active, Asked, Module, ParsedRequirement, Provided, RequestContext, RequireProvider,
    Requirement, Scope,
};
use evenkeel_config::words;
use evenkeel_expr::{Subnet, Text};
use evenkeel_message::{Level, Notice, Request, Undecided, WantedNames, quoted};
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
    provides: PROVIDES,
};

/// Whether the client is on this machine: its address is a loopback address or equals the local
/// address of the connection.
fn is_local(request: &Request) -> bool {
    let client = request.peer.client_ip();
    client.is_loopback() || client == request.peer.local_ip()
}

/// A compiled Require line of this module.
#[derive(Debug)]
enum HostRule {
    /// `ip`: the client's address is in one of these networks.
    Ip(Vec<Subnet>),
    /// `host`: the client's host name is in one of these domains, and resolves to its address.
    Host(Text),
    /// `forward-dns`: one of these names resolves to the client's address.
    ForwardDns(Text),
    /// `local`: the client is on this machine.
    Local,
}

/// The authorization providers.
const PROVIDES: &[Provided] = &[
    Provided::Require(RequireProvider { name: "ip", parse: parse_ip }),
    Provided::Require(RequireProvider { name: "host", parse: parse_host }),
    Provided::Require(RequireProvider { name: "forward-dns", parse: parse_forward_dns }),
    Provided::Require(RequireProvider { name: "local", parse: parse_local }),
];

fn parse_ip(_: &Scope, arguments: &str) -> ParsedRequirement {
    Ok(Arc::new(HostRule::Ip(networks(arguments)?)))
}

fn parse_host(scope: &Scope, arguments: &str) -> ParsedRequirement {
    Ok(Arc::new(HostRule::Host(text(scope, arguments)?)))
}

fn parse_forward_dns(scope: &Scope, arguments: &str) -> ParsedRequirement {
    Ok(Arc::new(HostRule::ForwardDns(text(scope, arguments)?)))
}

fn parse_local(_: &Scope, _: &str) -> ParsedRequirement {
    Ok(Arc::new(HostRule::Local))
}

fn text(scope: &Scope, arguments: &str) -> Result<Text, String> {
    scope
        .compile_text(arguments)
        .map_err(|error| format!("Cannot parse expression in require line: {error}"))
}

impl Requirement for HostRule {
    fn is_met(&self, asked: &Asked<'_>, notices: &mut Vec<Notice>) -> Result<bool, Undecided> {
        let context = &asked.context;
        let request = context.request;
        Ok(match self {
            HostRule::Ip(networks) => {
                let client = request.peer.client_ip();
                networks.iter().any(|network| network.contains(client))
            }
            HostRule::Local => is_local(request),
            HostRule::Host(text) => {
                let Some(client) = verified_name(request)? else {
                    let path = quoted(&request.resource.path);
                    let domains = text.value(context).unwrap_or_default();
                    let domains = quoted(&domains);
                    let text = format!(
                        "access check of '{domains}' to {path} failed, reason: unable to get the \
                         remote host name"
                    );
                    notices.push(Notice::new("authz_host", Level::Error, 1753, text));
                    return Ok(false);
                };
                let domains = names(text, context, 2556, "host", notices);
                domains.iter().any(|domain| in_domain(domain, client))
            }
            HostRule::ForwardDns(text) => {
                let names = names(text, context, 3345, "forward-dns", notices);
                if names.is_empty() {
                    return Ok(false);
                }
                let wanted = names.iter().map(|name| name.as_str().into()).collect();
                let wanted = WantedNames { names: wanted, ..WantedNames::default() };
                let found = known_names(request, wanted)?;
                names.iter().any(|name| {
                    let addresses = found.addresses_of(name);
                    if addresses.is_none() {
                        let text = format!("No sockaddr info for \"{name}\"");
                        notices.push(Notice::new("authz_host", Level::Error, 3347, text));
                    }
                    addresses.is_some_and(|list| list.contains(&request.peer.client_ip()))
                })
            }
        })
    }
}

fn networks(arguments: &str) -> Result<Vec<Subnet>, String> {
    // An empty word in quotes ends the list.
    let networks = words(arguments)
        .iter()
        .take_while(|word| !word.is_empty())
        .map(|word| {
            parse_network(word).map_err(|fault| match fault {
                AddressFault::NoAddress => format!("ip address '{word}' appears to be invalid"),
                fault => format!("ip address '{word}' appears to be invalid: {fault}"),
            })
        })
        .collect::<Result<Vec<Subnet>, String>>()?;
    if networks.is_empty() {
        return Err("'require ip' requires an argument".into());
    }
    Ok(networks)
}

/// Evaluates the host names of a rule for a request. Returns none and adds a notice if the
/// expression cannot be evaluated.
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
