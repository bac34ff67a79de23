//! The credentials of an Authorization field of the scheme Basic.

/// Parses an Authorization field as Apache does (mod_auth_basic.c: `get_basic_auth`) and returns
/// the user name and the password. Returns `None` if the field has another scheme than Basic.
#[must_use]
pub fn parse_basic(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut words = field.splitn(2, |byte| *byte == b' ');
    words.next().filter(|scheme| scheme.eq_ignore_ascii_case(b"Basic"))?;
    let text = words.next().unwrap_or_default();
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len());
    Some(split(&decode(text.get(start..).unwrap_or_default())))
}

/// Splits the decoded credentials into user name and password. Apache cuts them at the first NUL.
/// Here the password keeps the NUL and the bytes after it, because a password that contains a NUL
/// never matches.
fn split(text: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = text.iter().position(|byte| matches!(byte, b':' | b'\0')).unwrap_or(text.len());
    let (user, rest) = text.split_at(end);
    let password = rest.strip_prefix(b":").unwrap_or(rest);
    (user.to_vec(), password.to_vec())
}

/// Decodes base64 up to the first byte that is no digit of base64 (apr_base64_decode).
fn decode(text: &[u8]) -> Vec<u8> {
    let value = |byte: &u8| {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        Some(u32::from(value))
    };
    let digits: Vec<u32> = text.iter().map_while(value).collect();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let digit = |index: usize| group.get(index).copied().unwrap_or_default();
        let number = digit(0) << 18 | digit(1) << 12 | digit(2) << 6 | digit(3);
        let [_, high, middle, low] = number.to_be_bytes();
        bytes.extend([high, middle, low].iter().take(group.len().saturating_sub(1)));
    }
    bytes
}
