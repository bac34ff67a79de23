//! Parses the PROXY header, versions 1 and 2, in which a proxy sends the address of its client at
//! the beginning of a connection (mod_remoteip.c: remoteip_input_filter). The caller passes all
//! bytes received so far, until the header is complete.

use evenkeel_message::{Level, Notice, quoted};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first bytes of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The first bytes of version 1.
const WORD: &[u8] = b"PROXY ";

/// The maximum length of a header of version 1 in bytes, with CRLF.
const MOST_V1: usize = 108;

/// The bytes of version 2 before its addresses, and its maximum length: with the addresses of two
/// Unix sockets.
const FIXED_V2: usize = 16;
const MOST_V2: usize = FIXED_V2 + 216;

/// The result of parsing a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// The header is not complete.
    Partial,
    /// The header is complete.
    Complete {
        /// The length of the header in bytes.
        length: usize,
        /// The address of the client; `None` if the proxy does not send it.
        client: Option<SocketAddr>,
    },
}

/// The reason why a header is invalid; `None` if Apache does not log one.
pub type ProxyHeaderFault = Option<Notice>;

impl ProxyHeader {
    /// Parses the bytes received so far.
    ///
    /// # Errors
    /// The bytes are not a PROXY header, or one that this server does not support.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProxyHeaderFault> {
        let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted);
        if begins(WORD) {
            version_1(bytes)
        } else if begins(SIGNATURE) {
            version_2(bytes)
        } else {
            Err(None)
        }
    }
}

fn fault(number: u16, text: String) -> ProxyHeaderFault {
    let text = format!("RemoteIPProxyProtocol: {text}");
    Some(Notice::new("remoteip", Level::Error, number, text))
}

fn version_1(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderFault> {
    let too_long = || {
        let text = "RemoteIPProxyProtocol header too long";
        Some(Notice::new("remoteip", Level::Error, 10185, text))
    };
    let bounded = bytes.get(..MOST_V1).unwrap_or(bytes);
    let Some(end) = bounded.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < MOST_V1 { Ok(ProxyHeader::Partial) } else { Err(too_long()) };
    };
    // An LF without CR does not end the line. The header is refused as too long.
    let line = bounded.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or_else(too_long)?;
    let client = named_in(line)?;
    Ok(ProxyHeader::Complete { length: end + 1, client })
}

/// Parses the client's address in a line of version 1.
fn named_in(line: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderFault> {
    let shown = quoted(line);
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).skip(1);
    let mut word = |field: &str| {
        let text = || format!("no {field} found in header '{shown}'");
        words.next().ok_or_else(|| fault(3497, text()))
    };
    let family = word("family")?;
    let is_v4 = match family {
        b"UNKNOWN" => return Ok(None),
        b"TCP4" => true,
        b"TCP6" => false,
        _ => {
            let family = quoted(family);
            return Err(fault(3499, format!("unknown family '{family}' in header '{shown}'")));
        }
    };
    let address = word("client-address")?;
    let is_usual = |byte: &u8| match is_v4 {
        true => byte.is_ascii_digit() || *byte == b'.',
        false => byte.is_ascii_hexdigit() || *byte == b':',
    };
    if !address.iter().all(is_usual) {
        let address = quoted(address);
        let text = format!("invalid client-address '{address}' found in header '{shown}'");
        return Err(fault(3500, text));
    }
    word("destination-address")?;
    let port = word("client-port")?;
    let Some(port) = leading_number(port) else {
        let port = quoted(port);
        return Err(fault(3501, format!("error parsing port '{port}' in header '{shown}'")));
    };
    let text = std::str::from_utf8(address).unwrap_or_default();
    let ip = match is_v4 {
        true => text.parse().ok().map(IpAddr::V4),
        false => text.parse().ok().map(IpAddr::V6),
    };
    let ip = ip.ok_or_else(|| {
        let family = if is_v4 { 2 } else { 10 };
        let what = format!("family '{family}', host '{text}', and port '{port}'");
        fault(3502, format!("error converting {what} to sockaddr; header was '{shown}'"))
    })?;
    Ok(Some(SocketAddr::new(ip, port)))
}

/// The number at the beginning of a word. It wraps on overflow, as scanf's `%hu` does.
fn leading_number(word: &[u8]) -> Option<u16> {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number: Option<u16>, digit| {
        let number = number.unwrap_or(0).wrapping_mul(10);
        Some(number.wrapping_add(u16::from(digit - b'0')))
    })
}

fn version_2(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderFault> {
    // Apache closes the connection without a log line if the version is not 2.
    if bytes.get(SIGNATURE.len()).is_some_and(|byte| byte >> 4 != 2) {
        return Err(None);
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_V2>() else {
        return Ok(ProxyHeader::Partial);
    };
    let [.., command, family, high, low] = *fixed;
    let length = FIXED_V2 + usize::from(u16::from_be_bytes([high, low]));
    if length > MOST_V2 {
        let text = "RemoteIPProxyProtocol protocol header length too long";
        return Err(Some(Notice::new("remoteip", Level::Error, 10186, text)));
    }
    let Some(addresses) = rest.get(..length - FIXED_V2) else { return Ok(ProxyHeader::Partial) };
    match command & 0xf {
        // LOCAL: a connection of the proxy itself, such as a health check.
        0 => return Ok(ProxyHeader::Complete { length, client: None }),
        1 => {}
        _ => return Err(fault(3507, format!("unsupported command {command:02x}"))),
    }
    let client = match family {
        0x11 => client_in::<4>(addresses).map(|(ip, port)| (Ipv4Addr::from(ip).into(), port)),
        0x21 => client_in::<16>(addresses).map(|(ip, port)| (Ipv6Addr::from(ip).into(), port)),
        _ => return Err(fault(10183, format!("unsupported protocol {family:02x}"))),
    };
    let Some((ip, port)) = client else {
        let text = "the PROXY header of a peer is too short for its addresses";
        return Err(Some(Notice::own("remoteip", Level::Error, text)));
    };
    Ok(ProxyHeader::Complete { length, client: Some(SocketAddr::new(ip, port)) })
}

/// Returns the client's address and port. Returns `None` if one of the addresses or ports is
/// missing.
fn client_in<const BYTES: usize>(addresses: &[u8]) -> Option<([u8; BYTES], u16)> {
    let (client, rest) = addresses.split_first_chunk::<BYTES>()?;
    let (_, rest) = rest.split_first_chunk::<BYTES>()?;
    let ([high, low, _, _], _) = rest.split_first_chunk::<4>()?;
    Some((*client, u16::from_be_bytes([*high, *low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the client and the length, or the number of the notice.
    fn parsed(bytes: &[u8]) -> String {
        match ProxyHeader::parse(bytes) {
            Ok(ProxyHeader::Partial) => "partial".into(),
            Ok(ProxyHeader::Complete { length, client: Some(client) }) => {
                format!("{client} {length}")
            }
            Ok(ProxyHeader::Complete { length, client: None }) => format!("unknown {length}"),
            Err(None) => "silent".into(),
            Err(Some(notice)) => notice.number.map_or("own".into(), |number| number.to_string()),
        }
    }

    #[test]
    fn version_1_is_a_line() {
        for (text, expected) in [
            ("PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\nGET", "203.0.113.7:4711 41"),
            ("PROXY TCP6 2001:db8::7 ::1 4711 80\r\n", "[2001:db8::7]:4711 36"),
            ("PROXY  TCP4 1.2.3.4  x 65537z\r\n", "1.2.3.4:1 31"),
            ("PROXY UNKNOWN\r\n", "unknown 15"),
            ("PROXY UNKNOWN ff::1 ff::2 1 2\r\n", "unknown 31"),
            ("PROXY TCP4 1.2.3.4", "partial"),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r", "partial"),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\nGET / HTTP/1.1\r\n", "10185"),
            ("PRO", "partial"),
            ("", "partial"),
            ("GET / HTTP/1.1\r\n", "silent"),
            ("PROXX", "silent"),
            ("PROXY \r\n", "3497"),
            ("PROXY TCP4\r\n", "3497"),
            ("PROXY TCP4 1.2.3.4 5.6.7.8\r\n", "3497"),
            ("PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n", "3499"),
            ("PROXY TCP4 ::1 ::1 1 2\r\n", "3500"),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 x 2\r\n", "3501"),
            ("PROXY TCP4 1.2.3.444 5.6.7.8 1 2\r\n", "3502"),
            ("PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n", "3502"),
        ] {
            assert_eq!(parsed(text.as_bytes()), expected, "{text:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(200));
        assert_eq!(parsed(long.as_bytes()), "10185");
        assert_eq!(parsed(format!("{}\r\n", &long[..106]).as_bytes()), "unknown 108");
        assert_eq!(parsed(&long.as_bytes()[..107]), "partial");
        assert_eq!(parsed(format!("{}\r\n", &long[..107]).as_bytes()), "10185");
    }

    #[test]
    fn version_2_has_lengths() {
        let header = |command: u8, family: u8, length: u16, rest: &[u8]| {
            parsed(&[SIGNATURE, &[command, family], &length.to_be_bytes(), rest].concat())
        };
        let v4 = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
        assert_eq!(header(0x21, 0x11, 12, &v4), "203.0.113.7:4711 28");
        assert_eq!(header(0x21, 0x11, 15, &[&v4[..], b"TLVrest"].concat()), "203.0.113.7:4711 31");
        let v6 = [&[0x20, 1][..], &[0; 13], &[7], &[0; 16], &[0x12, 0x67, 0, 80]].concat();
        assert_eq!(header(0x21, 0x21, 36, &v6), "[2001::7]:4711 52");
        assert_eq!(header(0x21, 0x11, 12, &v4[..11]), "partial");
        assert_eq!(header(0x21, 0x11, 11, &v4), "own");
        assert_eq!(header(0x21, 0x21, 35, &v6), "own");
        assert_eq!(header(0x20, 0, 0, &[]), "unknown 16");
        assert_eq!(header(0x20, 0x11, 12, &v4), "unknown 28");
        assert_eq!(header(0x22, 0x11, 12, &v4), "3507");
        assert_eq!(header(0x21, 0x12, 12, &v4), "10183");
        assert_eq!(header(0x21, 0x31, 216, &[0; 216]), "10183");
        assert_eq!(header(0x21, 0x11, 217, &v4), "10186");
        assert_eq!(header(0x11, 0x11, 12, &v4), "silent");
        assert_eq!(parsed(&SIGNATURE[..7]), "partial");
        assert_eq!(parsed(b"\r\n\r\nGET"), "silent");
    }
}
