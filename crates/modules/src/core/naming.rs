//! How this server is called in URLs that lead back to it: a request and its settings go in, a
//! name, a port or a whole URL comes out (core.c: ap_get_server_name, ap_get_server_port,
//! ap_construct_url).

use super::{CoreSettings, Server, Tristate};
use evenkeel_message::Request;
use std::borrow::Cow;

/// The name of a server: ServerName, or the machine's where none was configured.
#[must_use]
pub fn server_name(server: &Server) -> &str {
    server.name.as_deref().unwrap_or("localhost")
}

/// The name that URLs to this server hold for this request (UseCanonicalName).
#[must_use]
pub fn public_name<'a>(request: &'a Request, core: CoreSettings<'a>) -> Cow<'a, [u8]> {
    match core.directory.canonical_name.unwrap_or_default() {
        Tristate::Off if !request.host.is_empty() => request.host.as_slice().into(),
        Tristate::Third => request.peer.local_ip().to_string().into_bytes().into(),
        Tristate::Off | Tristate::On => server_name(core.server).as_bytes().into(),
    }
}

/// The port that goes with the name (UseCanonicalPhysicalPort).
#[must_use]
pub fn public_port(request: &Request, core: CoreSettings<'_>) -> u16 {
    let configured = core.server.port.filter(|port| *port != 0);
    let by_socket = core.directory.canonical_port == Some(true);
    let physical = by_socket.then(|| request.peer.local.port());
    let known = match core.directory.canonical_name.unwrap_or_default() {
        Tristate::Off | Tristate::Third => request.port.or(physical).or(configured),
        Tristate::On => configured.or(physical),
    };
    known.unwrap_or(request.default_port())
}

/// `scheme://name[:port]` and the path behind it; the port is left out where it is the scheme's.
#[must_use]
pub fn public_url(request: &Request, core: CoreSettings<'_>, path: &[u8]) -> Vec<u8> {
    let name = public_name(request, core);
    let port = public_port(request, core);
    let mut url = [request.scheme().as_bytes(), b"://"].concat();
    if name.contains(&b':') {
        url.extend_from_slice(&[b"[", &*name, b"]"].concat());
    } else {
        url.extend_from_slice(&name);
    }
    if port != request.default_port() {
        url.extend_from_slice(format!(":{port}").as_bytes());
    }
    url.extend_from_slice(path);
    url
}

/// Whether a name matches a pattern with `*` and `?` (util.c: `ap_strcasecmp_match`). Both are in
/// lower case. The time is bounded by the product of their lengths.
#[must_use]
pub fn wildcard_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(b'?') => (p, n) = (p + 1, n + 1),
            Some(byte) if name.get(n) == Some(byte) => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((after, start)) => {
                    (p, n) = (after, start + 1);
                    retry = Some((after, start + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_none_or(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_a_shell_would() {
        for (pattern, name, matches) in [
            ("*.example", "a.b.example", true),
            ("*.example", "example", false),
            ("w?w.*", "www.x", true),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "aXbYb", false),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(wildcard_match(pattern.as_bytes(), name.as_bytes()), matches, "{pattern}");
        }
    }
}
