//! The escapes of logs and of targets. `\"`, `\n` or `\x16` in a log becomes the byte that it
//! stands for (server/util.c: ap_escape_logitem), and bytes that a target may not contain are
//! percent-encoded (RFC 3986, section 2.1).

/// A logged text without its escapes. A backslash that begins no escape stands for itself.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before);
        let (byte, used) = match escape {
            [_, b'x' | b'X', high, low, ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (b'\\', 1),
            },
            [_, b'b', ..] => (0x08, 2),
            [_, b'n', ..] => (b'\n', 2),
            [_, b'r', ..] => (b'\r', 2),
            [_, b't', ..] => (b'\t', 2),
            [_, b'v', ..] => (0x0b, 2),
            [_, byte @ (b'"' | b'\\'), ..] => (*byte, 2),
            _ => (b'\\', 1),
        };
        out.push(byte);
        rest = escape.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Appends a byte as `%2F`.
pub(super) fn push_percent(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}

/// The target form of a decoded path (%U): bytes that would end the path or are not allowed in it
/// are encoded again.
pub(super) fn encode_path(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(byte) {
            out.push(*byte);
        } else {
            push_percent(&mut out, *byte);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        let text = br#"a\"b\\c\x16\x03\x01\n\t\q\x4"#;
        assert_eq!(unescape(text), b"a\"b\\c\x16\x03\x01\n\t\\q\\x4");
        assert_eq!(unescape(br"end\"), br"end\");
        assert_eq!(unescape(b"\xe4"), b"\xe4");
    }

    #[test]
    fn decoded_paths_are_encoded_again() {
        assert_eq!(encode_path(b"/a b?c%d/\xe4"), b"/a%20b%3Fc%25d/%E4");
    }
}
