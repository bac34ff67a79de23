//! Escapes paths for URLs and text for HTML, and appends the result to a buffer (Apache: util.c,
//! `ap_escape_path_segment`, `ap_os_escape_path`, `ap_escape_html`).

use std::borrow::Cow;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The bytes, apart from letters and digits, that Apache leaves unescaped in a path.
const PATH: &[u8] = b"$-_.+!*'(),:;@&=/~";

fn append_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || PATH.contains(byte) {
            out.push(*byte);
        } else {
            let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// Escapes a decoded path that begins or continues the path of a URL, as in Location
/// (`ap_escape_uri`).
pub fn escape_uri(out: &mut Vec<u8>, path: &[u8]) {
    append_escaped(out, path);
}

/// Escapes a decoded path that may be used as a relative reference: `./` precedes a first segment
/// with a colon, which would look like a scheme (`ap_os_escape_path`; RFC 3986, section 4.2).
pub fn escape_path(out: &mut Vec<u8>, path: &[u8]) {
    let segment = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    if segment.contains(&b':') {
        out.extend_from_slice(b"./");
    }
    append_escaped(out, path);
}

/// Escapes text for an HTML page.
pub fn escape_html(out: &mut Vec<u8>, text: &[u8]) {
    if !has_special(text) {
        return out.extend_from_slice(text);
    }
    for byte in text {
        match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            byte => out.push(*byte),
        }
    }
}

/// Whether a text has a character that HTML escapes.
fn has_special(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'<' | b'>' | b'&' | b'"'))
}

/// The same for a text of its own. Usually nothing is to be escaped.
#[must_use]
pub fn escaped_html(text: &[u8]) -> Cow<'_, [u8]> {
    if !has_special(text) {
        return text.into();
    }
    let mut escaped = Vec::new();
    escape_html(&mut escaped, text);
    escaped.into()
}

/// Adds a backslash before each quotation mark that is not escaped (util.c: ap_escape_quotes).
#[must_use]
pub fn escape_quotes(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte == b'"' {
            escaped.push(b'\\');
        }
        escaped.push(byte);
        if byte == b'\\' {
            escaped.extend(bytes.next());
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: fn(&mut Vec<u8>, &[u8]), text: &[u8]) -> String {
        let mut out = Vec::new();
        escape(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn paths_and_html() {
        assert_eq!(escaped(escape_uri, b"/a b%?#\xc3\xa4;x=1"), "/a%20b%25%3f%23%c3%a4;x=1");
        assert_eq!(escaped(escape_path, b"a:b/c"), "./a:b/c");
        assert_eq!(escaped(escape_path, b"a/b:c"), "a/b:c");
        assert_eq!(escaped(escape_html, b"<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    #[test]
    fn quotation_marks_are_escaped_once() {
        for (text, escaped) in [
            (r#"a"b"#, r#"a\"b"#),
            (r#"a\"b"#, r#"a\"b"#),
            (r"a\\", r"a\\"),
            (r"a\", r"a\"),
            ("plain", "plain"),
        ] {
            assert_eq!(escape_quotes(text.as_bytes()), escaped.as_bytes(), "{text}");
        }
    }
}
