//! The credentials of an Authorization field of the scheme Basic.

use super::htdigest_hash;
use crate::Credentials;

/// The user name and the password of an Authorization field.
#[derive(Debug, PartialEq, Eq)]
pub struct Login {
    /// The decoded credentials.
    text: Vec<u8>,
    user_end: usize,
    password_start: usize,
}

impl Login {
    /// Parses an Authorization field as Apache does (mod_auth_basic.c: `get_basic_auth`). Returns
    /// `None` if the field has another scheme than Basic.
    #[must_use]
    pub fn parse(field: &[u8]) -> Option<Self> {
        let mut words = field.splitn(2, |byte| *byte == b' ');
        words.next().filter(|scheme| scheme.eq_ignore_ascii_case(b"Basic"))?;
        let text = words.next().unwrap_or_default();
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
        let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
        Some(Self::split(decode(text.get(start..).unwrap_or_default())))
    }

    /// A user name and a password that came otherwise.
    #[must_use]
    pub fn of(user: &[u8], password: &[u8]) -> Self {
        let text = [user, b":", password].concat();
        Self { text, user_end: user.len(), password_start: user.len() + 1 }
    }

    /// Splits the decoded credentials into user name and password. Apache cuts them at the first
    /// NUL. Here the password keeps the NUL and the bytes after it, because a password that
    /// contains a NUL never matches.
    fn split(text: Vec<u8>) -> Self {
        let separates = |byte: &u8| matches!(byte, b':' | b'\0');
        let user_end = text.iter().position(separates).unwrap_or(text.len());
        let has_colon = text.get(user_end) == Some(&b':');
        Self { text, user_end, password_start: user_end + usize::from(has_colon) }
    }

    /// The user name and the password in the type that providers take.
    #[must_use]
    pub fn credentials(&self) -> Credentials<'_> {
        Credentials { user: self.user(), password: self.password() }
    }

    /// The hash that htdigest writes for the user in a realm: MD5 of `user:realm:password`, in
    /// hexadecimal digits.
    #[must_use]
    pub fn digest(&self, realm: &[u8]) -> Vec<u8> {
        htdigest_hash(self.user(), realm, self.password())
    }

    /// The user name.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        self.text.get(..self.user_end).unwrap_or_default()
    }

    /// The password. A password that contains a NUL never matches.
    #[must_use]
    pub fn password(&self) -> &[u8] {
        self.text.get(self.password_start..).unwrap_or_default()
    }
}

/// Decodes base64 up to the first byte that is no digit of base64 (apr_base64_decode).
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
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
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut number, mut bits) = (0, 0);
    for digit in text.iter().map_while(value) {
        number = (number << 6 | digit) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((number >> bits) as u8);
        }
    }
    bytes
}
