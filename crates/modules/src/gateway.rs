//! What the modules for applications behind this server share: the name of a script, and the
//! encoding of a path.

use evenkeel_message::Target;

/// The bytes of a path that are not percent-encoded, beside letters and digits (proxy_util.c:
/// `ap_proxy_canonenc_ex`, enc_path).
const PLAIN: &[u8] = b"~$-_.+!*'(),;:@&=/";

/// The name of the script of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// SCRIPT_FILENAME.
    pub file: Vec<u8>,
    /// PATH_INFO: the rest of the path behind the script.
    pub path_info: Vec<u8>,
}

/// The SCRIPT_FILENAME of a path at a target: its URL, as Apache names the file of a request that
/// is passed on.
#[must_use]
pub fn url_as_file(target: &Target, path: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(path.len() + 64);
    file.extend_from_slice(b"proxy:");
    target.write_url(&mut file, path);
    file
}

/// Percent-encodes the bytes that may not stand in the path of a URL (mod_proxy_fcgi.c:
/// `proxy_fcgi_canon`).
#[must_use]
pub fn escape_path(path: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut escaped = Vec::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || PLAIN.contains(byte) {
            escaped.push(*byte);
            continue;
        }
        let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
        escaped.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_apache_does() {
        assert_eq!(escape_path(b"/a b?c%/~x;y"), b"/a%20b%3Fc%25/~x;y");
        assert_eq!(escape_path("/\u{e4}".as_bytes()), b"/%C3%A4");
    }
}
