//! The target of a proxied request: a server behind this one, and the path that is sent to it. The
//! scheme, the host and the socket are parsed from the configuration. A request contributes only
//! its path and its query, so that no client can choose the host or the socket (CVE-2021-40438,
//! CVE-2024-39573).

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The protocol that a target speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// FastCGI.
    Fcgi,
    /// SCGI.
    Scgi,
    /// The protocol of uWSGI.
    Uwsgi,
    /// HTTP/1.1 in clear text.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/1.1 in clear text, to a server that is asked to switch to WebSocket.
    Ws,
    /// The same over TLS.
    Wss,
    /// A balancer of this server, which the host names.
    Balancer,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 8] = [
        Scheme::Fcgi,
        Scheme::Scgi,
        Scheme::Uwsgi,
        Scheme::Http,
        Scheme::Https,
        Scheme::Ws,
        Scheme::Wss,
        Scheme::Balancer,
    ];

    /// The name in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::Fcgi => "fcgi",
            Scheme::Scgi => "scgi",
            Scheme::Uwsgi => "uwsgi",
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Ws => "ws",
            Scheme::Wss => "wss",
            Scheme::Balancer => "balancer",
        }
    }

    /// Whether the target is an HTTP server, or a balancer of them.
    #[must_use]
    pub const fn is_http(self) -> bool {
        !matches!(self, Scheme::Fcgi | Scheme::Scgi | Scheme::Uwsgi)
    }

    /// Whether the connection speaks TLS.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        matches!(self, Scheme::Https | Scheme::Wss)
    }

    /// Whether a client may have the server switch to WebSocket without more being said.
    #[must_use]
    pub const fn is_websocket(self) -> bool {
        matches!(self, Scheme::Ws | Scheme::Wss)
    }

    /// The port of a URL that names none (Apache: `ap_proxy_port_of_scheme`).
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Scheme::Fcgi => 8000,
            Scheme::Scgi => 4000,
            Scheme::Uwsgi => 3031,
            Scheme::Http | Scheme::Ws | Scheme::Balancer => 80,
            Scheme::Https | Scheme::Wss => 443,
        }
    }
}

/// The most bytes of a URL around its host and path: the scheme, brackets and a port.
const MOST_AROUND: usize = "fcgi://[]:65535".len();

/// The address of a target.
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

/// An application or an HTTP server that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The protocol.
    pub scheme: Scheme,
    /// The address to connect to.
    pub address: Address,
    /// The host of the URL. With a Unix socket it is only a name and is not resolved.
    pub host: Box<str>,
    /// The port of the URL.
    pub port: u16,
    /// The path of the URL, a prefix of each path that is sent to the target.
    pub path: Box<str>,
}

/// The target and the path of a request that a proxy rule passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxied {
    /// The target.
    pub target: Arc<Target>,
    /// The path that is sent to the target. It begins with the path of the target, and is
    /// percent-encoded unless `is_raw` is set.
    pub path: Vec<u8>,
    /// Whether the path is sent without percent-encoding, because it is the name of a file or
    /// because the rule has the parameter `nocanon`.
    pub is_raw: bool,
    /// Whether the query of the request is not sent (`noquery`).
    pub without_query: bool,
    /// The URL that `<Proxy>` sections are compared with: that of the rule, and the path of the
    /// request as it is before it is percent-encoded. It is empty for a handler, which those
    /// sections do not apply to.
    pub name: Vec<u8>,
}

/// The reason why a URL in the configuration is not a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// The URL has no scheme, no host or no socket.
    Malformed,
    /// This server does not support the scheme, which is given in lower case.
    Scheme(String),
}

impl Target {
    /// Parses `scheme://host[:port][/path]` or `unix:/socket|scheme://host[/path]`, with a
    /// [`Scheme`]. The path of a socket is relative to `runtime_dir`.
    ///
    /// # Errors
    /// The reason why the text is not a target.
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
        let scheme = Scheme::ALL
            .into_iter()
            .find(|known| known.name().eq_ignore_ascii_case(scheme))
            .ok_or_else(|| BadTarget::Scheme(scheme.to_ascii_lowercase()))?;
        let end = path_start(rest);
        let (authority, path) = rest.split_at_checked(end).ok_or(BadTarget::Malformed)?;
        let (host, port) = split_authority(authority, scheme).ok_or(BadTarget::Malformed)?;
        let address = match socket {
            Some(socket) => Address::Unix(socket),
            None => Address::Internet { host: host.clone(), port },
        };
        Ok(Target { scheme, address, host, port, path: path.into() })
    }

    /// `scheme://host[:port]` with `path` behind it, which begins with a slash.
    #[must_use]
    pub fn url(&self, path: &[u8]) -> Vec<u8> {
        let mut url = Vec::with_capacity(MOST_AROUND + self.host.len() + path.len());
        self.write_url(&mut url, path);
        url
    }

    /// Appends the URL with `path` behind it.
    pub fn write_url(&self, out: &mut Vec<u8>, path: &[u8]) {
        out.extend_from_slice(self.scheme.name().as_bytes());
        out.extend_from_slice(b"://");
        self.write_authority(out);
        out.extend_from_slice(path);
    }

    /// Appends the host, and the port unless it is the default port of the scheme.
    pub fn write_authority(&self, out: &mut Vec<u8>) {
        match self.host.contains(':') {
            true => out.extend_from_slice(format!("[{}]", self.host).as_bytes()),
            false => out.extend_from_slice(self.host.as_bytes()),
        }
        if self.port != self.scheme.default_port() {
            out.extend_from_slice(self.shown_port().as_bytes());
        }
    }

    /// `:port`, or an empty string for the default port of the scheme, as in Apache's messages.
    #[must_use]
    pub fn shown_port(&self) -> String {
        match self.port == self.scheme.default_port() {
            true => String::new(),
            false => format!(":{}", self.port),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Address::Unix(socket) = &self.address {
            write!(f, "unix:{}|", socket.display())?;
        }
        let mut authority = Vec::new();
        self.write_authority(&mut authority);
        let authority = String::from_utf8_lossy(&authority);
        write!(f, "{}://{authority}{}", self.scheme.name(), self.path)
    }
}

/// Where the path begins behind the authority: at a slash, or at references to groups of a pattern
/// that are all of the path (`http://host:8080$1`).
fn path_start(rest: &str) -> usize {
    if let Some(slash) = rest.find('/') {
        return slash;
    }
    // Behind a colon, a reference would be the port.
    let dollar = rest.find('$').filter(|at| rest.as_bytes().get(at.wrapping_sub(1)) != Some(&b':'));
    let Some(dollar) = dollar.filter(|at| *at > 0) else { return rest.len() };
    let path = rest.get(dollar..).unwrap_or_default();
    let mut references = path.split('?').next().unwrap_or_default().split('$').skip(1);
    let is_group = |text: &str| matches!(text.as_bytes(), [b'0'..=b'9']);
    if references.all(is_group) { dollar } else { rest.len() }
}

fn strip_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// The error for a URL without `://`.
fn scheme_alone(url: &str) -> BadTarget {
    match url.split_once(':') {
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            BadTarget::Scheme(scheme.to_ascii_lowercase())
        }
        _ => BadTarget::Malformed,
    }
}

fn split_authority(authority: &str, scheme: Scheme) -> Option<(Box<str>, u16)> {
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
        "" => scheme.default_port(),
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
        let http = parse("HTTP://[::1]/app").unwrap();
        assert_eq!((http.scheme, http.port), (Scheme::Http, 80));
        assert_eq!(http.url(b"/app/x"), b"http://[::1]/app/x");
        let reference = parse("http://a:8080$1?x").unwrap();
        assert_eq!((&*reference.host, reference.port, &*reference.path), ("a", 8080, "$1?x"));
        let defaults = ["scgi://a:4000", "uwsgi://a:3031"].map(|text| parse(text).unwrap());
        assert_eq!(defaults.map(|it| it.to_string()), ["scgi://a", "uwsgi://a"]);
        assert_eq!(parse("wss://a:443/").unwrap().to_string(), "wss://a/");
        assert_eq!(parse("https://a:80").unwrap().to_string(), "https://a:80");
        assert_eq!(parse("http://a:8000/").unwrap().to_string(), "http://a:8000/");
        assert_eq!(parse("unix:a|http://b").unwrap().to_string(), "unix:/run/apache2/a|http://b");
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
            "http://a:80$1/",
            "http://a:$1",
        ] {
            assert_eq!(parse(text), Err(BadTarget::Malformed), "{text}");
        }
        assert_eq!(parse("ajp://a/"), Err(BadTarget::Scheme("ajp".into())));
        assert_eq!(parse("unix:/x|AJP://a/"), Err(BadTarget::Scheme("ajp".into())));
        let balancer = parse("balancer://My_App/x").unwrap();
        assert_eq!((balancer.scheme, &*balancer.host), (Scheme::Balancer, "my_app"));
    }
}
