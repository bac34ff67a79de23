//! The heads of requests to applications that speak SCGI or the protocol of uWSGI. Both send the
//! variables of the request in one block, and the body behind it as it is.

use evenkeel_message::Variables;
use memchr::memchr;

/// The variables that SCGI does not send, or that it sends first.
const SET_APART: [&[u8]; 3] = [b"GATEWAY_INTERFACE", b"CONTENT_LENGTH", b"SCGI"];

/// The most bytes of the variables in the protocol of uWSGI, whose size has 16 bits.
const MOST_UWSGI: usize = u16::MAX as usize;

/// Appends the head of an SCGI request whose body has this length: a netstring with CONTENT_LENGTH
/// first (SCGI specification; mod_proxy_scgi.c: `send_headers`).
pub fn encode_scgi(out: &mut Vec<u8>, variables: &Variables, length: u64) {
    let mut block = Vec::with_capacity(2048);
    let mut add = |name: &[u8], value: &[u8]| {
        for text in [name, value] {
            block.extend_from_slice(text);
            block.push(0);
        }
    };
    add(b"CONTENT_LENGTH", itoa::Buffer::new().format(length).as_bytes());
    add(b"SCGI", b"1");
    for (name, value) in variables.iter() {
        if !SET_APART.contains(&name) {
            add(before_nul(name), before_nul(value));
        }
    }
    out.extend_from_slice(itoa::Buffer::new().format(block.len()).as_bytes());
    out.push(b':');
    out.extend_from_slice(&block);
    out.push(b',');
}

/// The variables are larger than a request of uWSGI may be. The value is their size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge(pub usize);

/// Appends the head of a request in the protocol of uWSGI: packet type 0, in which sizes have 16
/// bits and the least significant byte first (uwsgi_packet_header; mod_proxy_uwsgi.c:
/// `uwsgi_send_headers`).
///
/// # Errors
/// The variables do not fit in a request.
pub fn encode_uwsgi(out: &mut Vec<u8>, variables: &Variables) -> Result<(), TooLarge> {
    let pairs = || variables.iter().map(|(name, value)| (before_nul(name), before_nul(value)));
    let size = pairs().map(|(name, value)| 4 + name.len() + value.len()).sum();
    if size > MOST_UWSGI {
        return Err(TooLarge(size));
    }
    let number = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes();
    out.reserve(4 + size);
    out.push(0);
    out.extend_from_slice(&number(size));
    out.push(0);
    for (name, value) in pairs() {
        for text in [name, value] {
            out.extend_from_slice(&number(text.len()));
            out.extend_from_slice(text);
        }
    }
    Ok(())
}

/// A text up to its first NUL, which would end it in SCGI. Apache's texts are C strings.
fn before_nul(text: &[u8]) -> &[u8] {
    let end = memchr(0, text).unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let mut variables = Variables::default();
        pairs.iter().for_each(|(name, value)| variables.set(name, value));
        variables
    }

    #[test]
    fn an_scgi_head_is_a_netstring_that_begins_with_the_length() {
        let sent = variables(&[
            ("A", "b"),
            ("CONTENT_LENGTH", "7"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SCGI", "9"),
            ("N", "x\0y"),
        ]);
        let mut out = Vec::new();
        encode_scgi(&mut out, &sent, 5);
        assert_eq!(out, b"32:CONTENT_LENGTH\x005\0SCGI\x001\0A\0b\0N\0x\0,");
    }

    #[test]
    fn a_uwsgi_head_has_sizes_of_16_bits() {
        let mut out = Vec::new();
        encode_uwsgi(&mut out, &variables(&[("AB", "c"), ("D", "")])).unwrap();
        assert_eq!(out, b"\0\x0c\0\0\x02\0AB\x01\0c\x01\0D\0\0");
        let long = "x".repeat(MOST_UWSGI - 5);
        assert_eq!(encode_uwsgi(&mut out, &variables(&[("A", &long)])), Ok(()));
        let longer = variables(&[("AB", &long)]);
        let before = out.len();
        assert_eq!(encode_uwsgi(&mut out, &longer), Err(TooLarge(MOST_UWSGI + 1)));
        assert_eq!(out.len(), before);
    }
}
