//! Where a request is passed on to. A target is parsed from the configuration; of a request only
//! the path and the query are put into it, so that no byte of a request chooses the scheme, the
//! host or the socket (CVE-2021-40438, CVE-2024-39573).

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The port of `fcgi:` (Apache: `ap_proxy_port_of_scheme`).
const FCGI_PORT: u16 = 8000;

/// How an application is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port of a host, by name or number.
    Internet {
        /// The host, in lower case, without the brackets of an IPv6 address.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// A FastCGI application that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// How it is reached.
    pub address: Address,
    /// The host as the URL has it; for a Unix socket a mere name.
    pub host: Box<str>,
    /// The port of the URL.
    pub port: u16,
    /// What stands behind host and port: the beginning of every path.
    pub path: Box<str>,
}

/// A request that is passed on, in place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxied {
    /// Where to.
    pub target: Arc<Target>,
    /// The path that the application is told, with the target's own at its front. It is escaped
    /// unless the configuration says that it goes as it is.
    pub path: Vec<u8>,
    /// Whether the path goes as it is, because it is the name of a file or because the
    /// configuration says so (`nocanon`).
    pub is_raw: bool,
    /// Whether the query of the request is kept from the application (`noquery`).
    pub without_query: bool,
}

/// Why a text of the configuration is no target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// It has no scheme, no host or no socket.
    Malformed,
    /// The scheme, in lower case, is one that this server does not speak.
    Scheme(String),
}

impl Target {
    /// Parses `fcgi://host[:port][/path]` or `unix:/socket|fcgi://host[/path]`. The path of a
    /// socket is relative to `runtime_dir`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str, runtime_dir: &Path) -> Result<Target, BadTarget> {
        let (socket, url) = match strip_prefix(text, "unix:") {
            None => (None, text),
            Some(rest) => {
                let (socket, url) = rest.split_once('|').ok_or(BadTarget::Malformed)?;
                if socket.is_empty() {
                    return Err(BadTarget::Malformed);
                }
                (Some(runtime_dir.join(socket)), url)
            }
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| scheme_alone(url))?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "fcgi" {
            return Err(BadTarget::Scheme(scheme));
        }
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end).ok_or(BadTarget::Malformed)?;
        let (host, port) = split_authority(authority).ok_or(BadTarget::Malformed)?;
        let address = match socket {
            Some(socket) => Address::Unix(socket),
            None => Address::Internet { host: host.clone(), port },
        };
        Ok(Target { address, host, port, path: path.into() })
    }

    /// `fcgi://host[:port]` and this path, as an application is told it. The path begins with a
    /// slash.
    #[must_use]
    pub fn url(&self, path: &[u8]) -> Vec<u8> {
        let mut url = format!("fcgi://{}", self.authority()).into_bytes();
        url.extend_from_slice(path);
        url
    }

    /// Host and port; the port where it is not the usual one.
    fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.to_string(),
        };
        format!("{host}{}", self.shown_port())
    }

    /// `:port` where it is not the usual one, as Apache's messages have it.
    #[must_use]
    pub fn shown_port(&self) -> String {
        if self.port == FCGI_PORT { String::new() } else { format!(":{}", self.port) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Address::Unix(socket) = &self.address {
            write!(f, "unix:{}|", socket.display())?;
        }
        write!(f, "fcgi://{}{}", self.authority(), self.path)
    }
}

fn strip_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// The fault of a URL without `://`.
fn scheme_alone(url: &str) -> BadTarget {
    match url.split_once(':') {
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            BadTarget::Scheme(scheme.to_ascii_lowercase())
        }
        _ => BadTarget::Malformed,
    }
}

fn split_authority(authority: &str) -> Option<(Box<str>, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<IpAddr>().ok()?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'@' | b'?' | b'#' | b'%');
    if host.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    let port = match port {
        "" => FCGI_PORT,
        port => port.parse().ok().filter(|port| *port != 0)?,
    };
    Some((host.to_ascii_lowercase().into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, BadTarget> {
        Target::parse(text, Path::new("/run/apache2"))
    }

    #[test]
    fn targets_are_told_and_shown() {
        let debian = parse("unix:/run/php/php8.2-fpm.sock|fcgi://localhost").unwrap();
        assert_eq!(debian.address, Address::Unix("/run/php/php8.2-fpm.sock".into()));
        assert_eq!(debian.url(b"/var/www/x.php"), b"fcgi://localhost/var/www/x.php");
        assert_eq!(debian.to_string(), "unix:/run/php/php8.2-fpm.sock|fcgi://localhost");
        let tcp = parse("FCGI://App.Example:9000/srv/").unwrap();
        assert_eq!(tcp.address, Address::Internet { host: "app.example".into(), port: 9000 });
        assert_eq!((&*tcp.path, &*tcp.shown_port()), ("/srv/", ":9000"));
        let ipv6 = parse("fcgi://[::1]:9000").unwrap();
        assert_eq!(ipv6.url(b"/a"), b"fcgi://[::1]:9000/a");
        let relative = parse("unix:app.sock|fcgi://app/").unwrap();
        assert_eq!(relative.address, Address::Unix("/run/apache2/app.sock".into()));
        assert_eq!(parse("fcgi://a").unwrap().port, 8000);
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in [
            "",
            "fcgi://",
            "unix:/x",
            "unix:|fcgi://a",
            "fcgi://a:0",
            "fcgi://a:65536",
            "fcgi://[::1",
            "fcgi://[x]/",
            "fcgi://a b/",
            "fcgi://u@h/",
            "fcgi://a%2f",
        ] {
            assert_eq!(parse(text), Err(BadTarget::Malformed), "{text}");
        }
        assert_eq!(parse("http://a/"), Err(BadTarget::Scheme("http".into())));
        assert_eq!(parse("unix:/x|HTTP://a/"), Err(BadTarget::Scheme("http".into())));
        assert_eq!(parse("balancer://x"), Err(BadTarget::Scheme("balancer".into())));
    }
}
