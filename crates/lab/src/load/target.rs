//! The server that clients connect to: from a URL, or a URL and the path of a Unix socket, to the
//! name for the Host field and for TLS, and the addresses. Names are looked up here, once, before
//! the load begins.

use evenkeel_sys::connect::Remote;
use evenkeel_sys::resolve;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The scheme of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

/// A server and the path on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The scheme.
    pub scheme: Scheme,
    /// The name or address as in the URL, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query, from the first slash on.
    pub path: String,
}

impl Target {
    /// Parses `http://host:port/path?query`. A URL without a scheme is http, as users of curl and
    /// wrk expect.
    ///
    /// # Errors
    ///
    /// What is wrong with the URL, for the user.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = match url.split_once("://") {
            None => (Scheme::Http, url),
            Some((name, rest)) if name.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((name, rest)) if name.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            Some((name, _)) => return Err(format!("{url}: {name} is neither http nor https")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(format!("{url}: name and password are given by an option"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner
                    .split_once(']')
                    .ok_or_else(|| format!("{url}: an IPv6 address without its ]"))?;
                (host, after.strip_prefix(':'))
            }
            None => authority.rsplit_once(':').map_or((authority, None), |(h, p)| (h, Some(p))),
        };
        if host.is_empty() {
            return Err(format!("{url}: no host"));
        }
        let port = match (port, scheme) {
            (Some(text), _) => match text.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(format!("{url}: {text} is no port (1 to 65535)")),
            },
            (None, Scheme::Http) => 80,
            (None, Scheme::Https) => 443,
        };
        let path = path.split('#').next().unwrap_or_default();
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!("{url}: a space or control byte in the path; write it as %20"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { scheme, host: host.to_owned(), port, path })
    }

    /// The value of the Host field (RFC 9112, section 3.2). The port is included only if it is not
    /// the default of the scheme.
    #[must_use]
    pub fn authority(&self) -> String {
        let usual = if self.scheme == Scheme::Http { 80 } else { 443 };
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether all addresses are on this machine.
    #[must_use]
    pub fn is_loopback(remotes: &[Remote]) -> bool {
        remotes.iter().all(|remote| match remote {
            Remote::Internet(address) => address.ip().to_canonical().is_loopback(),
            Remote::Unix(_) => true,
        })
    }

    /// The addresses to connect to: those of the host's name, in the resolver's order, or the Unix
    /// socket.
    ///
    /// # Errors
    ///
    /// The name is unknown, or why the resolver could not be asked.
    pub fn resolve(&self, unix: Option<&Path>) -> Result<Vec<Remote>, String> {
        if let Some(path) = unix {
            return Ok(vec![Remote::Unix(path.to_owned())]);
        }
        let found = match self.host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => resolve::addresses_of(&self.host)
                .map_err(|error| format!("{}: cannot be looked up: {error}", self.host))?,
        };
        if found.is_empty() {
            return Err(format!("{}: no such host", self.host));
        }
        let to = |ip| Remote::Internet(SocketAddr::new(ip, self.port));
        Ok(found.into_iter().map(to).collect())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.scheme == Scheme::Http { "http" } else { "https" };
        write!(out, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_apart() {
        let target = Target::parse("HTTP://[::1]:8080/a?b=c#d").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 8080));
        assert_eq!(target.to_string(), "http://[::1]:8080/a?b=c");
        let target = Target::parse("localhost").unwrap();
        assert_eq!((target.port, target.path.as_str()), (80, "/"));
        let target = Target::parse("https://example.org?x").unwrap();
        assert_eq!((target.port, target.authority().as_str()), (443, "example.org"));
        assert_eq!(target.path, "/?x");
    }

    #[test]
    fn what_is_no_url_is_told() {
        for url in
            ["ftp://a/", "http://", "http://a:0/", "http://a:99999/", "http://[::1/", "a/b c"]
        {
            assert!(Target::parse(url).unwrap_err().starts_with(url), "{url}");
        }
        assert!(Target::parse("http://me:pw@host/").is_err());
    }

    #[test]
    fn addresses_need_no_look_up() {
        let remotes = Target::parse("127.0.0.1:81").unwrap().resolve(None).unwrap();
        assert_eq!(remotes, [Remote::Internet("127.0.0.1:81".parse().unwrap())]);
        assert!(Target::is_loopback(&remotes));
    }
}
