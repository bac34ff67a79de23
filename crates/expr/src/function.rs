//! The functions of expressions: their names, where they may be used, and those that encode and
//! digest bytes. Functions that look something up (headers, environment, files) have their names
//! here and are implemented by the evaluation.

use crate::Author;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sha1::Digest as _;

/// A function of one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Function {
    /// A request header, which is then part of `Vary`.
    RequestHeader,
    RequestHeaderWithoutVary,
    ResponseHeader,
    Note,
    RequestEnvironment,
    ProcessEnvironment,
    /// The first that is set of note, request environment and process environment.
    AnyEnvironment,
    ToLower,
    ToUpper,
    Escape,
    Unescape,
    Base64,
    Unbase64,
    Md5,
    Sha1,
    Ldap,
    File,
    FileSize,
    /// What mod_proxy_hcheck knows of a response: its body.
    HealthCheck,
}

/// Every function: its name, and whether an .htaccess file may use it. Functions that read files
/// are not allowed there, because the server can read more than the author of the file.
const FUNCTIONS: &[(&str, Function, bool)] = &[
    ("osenv", Function::ProcessEnvironment, true),
    ("env", Function::AnyEnvironment, true),
    ("resp", Function::ResponseHeader, true),
    ("req", Function::RequestHeader, true),
    ("http", Function::RequestHeader, true),
    ("note", Function::Note, true),
    ("reqenv", Function::RequestEnvironment, true),
    ("req_novary", Function::RequestHeaderWithoutVary, true),
    ("tolower", Function::ToLower, true),
    ("toupper", Function::ToUpper, true),
    ("escape", Function::Escape, true),
    ("unescape", Function::Unescape, true),
    ("file", Function::File, false),
    ("filesize", Function::FileSize, false),
    ("base64", Function::Base64, true),
    ("unbase64", Function::Unbase64, true),
    ("sha1", Function::Sha1, true),
    ("md5", Function::Md5, true),
    ("ldap", Function::Ldap, true),
    ("hc", Function::HealthCheck, true),
];

/// Finds the function with that name, in any case.
///
/// # Errors
///
/// The configuration is at fault. The text is Apache's.
pub(crate) fn find(name: &str, author: Author) -> Result<Function, String> {
    let known = FUNCTIONS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    match known {
        None if author == Author::Page && name.eq_ignore_ascii_case("v") => {
            Ok(Function::RequestEnvironment)
        }
        None => Err(format!("Function '{name}' does not exist")),
        Some((known, _, false)) if author != Author::Server => {
            Err(format!("{known} not available in restricted context"))
        }
        Some((_, function, _)) => Ok(*function),
    }
}

/// What `ap_escape_uri` leaves unescaped, apart from letters and digits.
const PLAIN_IN_PATHS: &[u8] = b"$-_.+!*'(),:;@&=/~";

/// Writes bytes that are special in a path or not ASCII as `%` and two digits.
pub(crate) fn escape(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        match byte {
            plain if plain.is_ascii_alphanumeric() || PLAIN_IN_PATHS.contains(plain) => {
                out.push(*plain);
            }
            other => {
                out.push(b'%');
                out.extend(digits(*other));
            }
        }
    }
    out
}

/// Decodes `%` and two digits to a byte; an encoded slash stays encoded. Empty if an escape is
/// broken or stands for NUL.
pub(crate) fn unescape(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((head, after)) = rest.split_first() {
        rest = after;
        if *head != b'%' {
            out.push(*head);
            continue;
        }
        let digits = after.first().zip(after.get(1));
        let Some(byte) = digits.and_then(|(high, low)| hexadecimal(*high, *low)) else {
            return Vec::new();
        };
        match byte {
            0 => return Vec::new(),
            b'/' => out.push(b'%'),
            other => {
                out.push(other);
                rest = after.get(2..).unwrap_or_default();
            }
        }
    }
    out
}

fn hexadecimal(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

pub(crate) fn base64(value: &[u8]) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.encode(value).into_bytes()
}

/// Decodes base64 up to the first byte that does not belong to it. The result is cut at a NUL.
pub(crate) fn unbase64(value: &[u8]) -> Vec<u8> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let length = value.iter().position(|byte| !letter(byte)).unwrap_or(value.len());
    // A single letter at the end holds less than a byte.
    let length = if length % 4 == 1 { length - 1 } else { length };
    let letters = value.get(..length).unwrap_or_default();
    let mut out = GeneralPurpose::new(&STANDARD, config).decode(letters).unwrap_or_default();
    out.truncate(out.iter().position(|byte| *byte == 0).unwrap_or(out.len()));
    out
}

pub(crate) fn md5(value: &[u8]) -> Vec<u8> {
    md5::Md5::digest(value).iter().copied().flat_map(digits).collect()
}

pub(crate) fn sha1(value: &[u8]) -> Vec<u8> {
    sha1::Sha1::digest(value).iter().copied().flat_map(digits).collect()
}

/// The byte as two lower-case hexadecimal digits.
fn digits(byte: u8) -> [u8; 2] {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    [digit(byte >> 4), digit(byte & 15)]
}

/// Writes what is special in a distinguished name (RFC 4514) or a filter (RFC 4515), and what is
/// not printable ASCII, as a backslash and two digits. Apache leaves `=` and `#` as they are.
pub(crate) fn ldap(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        match byte {
            b'\\'
            | b'*'
            | b'('
            | b')'
            | b'"'
            | b'+'
            | b','
            | b';'
            | b'<'
            | b'>'
            | ..b' '
            | 0x7f.. => {
                out.push(b'\\');
                out.extend(digits(*byte));
            }
            plain => out.push(*plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_read_files_are_refused_in_htaccess() {
        for (name, function, allowed) in FUNCTIONS {
            assert_eq!(find(&name.to_uppercase(), Author::Server), Ok(*function));
            assert_eq!(find(name, Author::Htaccess).is_ok(), *allowed, "{name}");
        }
        let refusal = find("File", Author::Htaccess).unwrap_err();
        assert_eq!(refusal, "file not available in restricted context");
        assert_eq!(find("v", Author::Server).unwrap_err(), "Function 'v' does not exist");
    }

    #[test]
    fn escapes_are_written_and_read() {
        assert_eq!(escape(b"a b/c?\xff%"), b"a%20b/c%3f%ff%25");
        for (value, expected) in [
            ("a%20b", "a b"),
            ("a%2Fb%2f", "a%2Fb%2f"),
            ("a%2", ""),
            ("a%zz", ""),
            ("a%00b", ""),
            ("a+b", "a+b"),
        ] {
            assert_eq!(unescape(value.as_bytes()), expected.as_bytes(), "{value}");
        }
    }

    #[test]
    fn base64_is_read_as_far_as_it_goes() {
        for (value, expected) in [
            ("Zm9v", "foo"),
            ("Zm9", "fo"),
            ("Zm8=", "fo"),
            ("Z", ""),
            ("Zm9vZ", "foo"),
            ("Zm9v!Zm9v", "foo"),
            ("Zm8AZm8=", "fo"),
            ("", ""),
        ] {
            assert_eq!(unbase64(value.as_bytes()), expected.as_bytes(), "{value}");
        }
        assert_eq!(base64(b"fo"), b"Zm8=");
    }

    #[test]
    fn digests_are_in_small_digits() {
        assert_eq!(md5(b"foo"), b"acbd18db4cc2f85cedef654fccc4a4d8");
        assert_eq!(sha1(b"foo"), b"0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33");
    }
}
