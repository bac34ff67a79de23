//! What the modules of sessions share (mod_session, mod_session_cookie, mod_session_crypto and
//! mod_auth_form): a session, the sessions of a request, sealed texts, cookies and forms.

mod cookie;
mod form;
mod kept;
mod seal;

pub use cookie::Cookies;
pub use form::{Form, TooLong};
pub use kept::{FormLogin, Kept};
pub use seal::{Cipher, Derivation, Secrets};

/// The name of the entry that holds the time at which a session expires (mod_session.h:
/// SESSION_EXPIRY).
const EXPIRY: &[u8] = b"expiry";

/// A name and its value.
type Entry = (Box<[u8]>, Box<[u8]>);

/// A session: names with values that the client keeps for the server (mod_session.h: session_rec).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// In the order in which the names were first set. Names are case-insensitive, as in Apache's
    /// tables.
    entries: Vec<Entry>,
    /// When the session expires, in microseconds since 1970; 0 if it does not.
    pub expiry_us: i64,
    /// SessionMaxAge, in seconds; 0 if there is none.
    pub max_age_s: i64,
    /// Whether an entry was changed.
    pub is_dirty: bool,
    /// Whether the session is in the response.
    pub is_written: bool,
}

impl Session {
    /// The value of an entry.
    #[must_use]
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        entry.map(|(_, value)| &**value)
    }

    /// Sets an entry, or removes it.
    pub fn change(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.put(name, value);
        self.is_dirty = true;
    }

    fn put(&mut self, name: &[u8], value: Option<&[u8]>) {
        let at = self.entries.iter().position(|(own, _)| own.eq_ignore_ascii_case(name));
        match (at, value) {
            (Some(at), Some(value)) => {
                if let Some((_, own)) = self.entries.get_mut(at) {
                    *own = value.into();
                }
            }
            (Some(at), None) => drop(self.entries.remove(at)),
            (None, Some(value)) => self.entries.push((name.into(), value.into())),
            (None, None) => {}
        }
    }

    /// The entries as a form has them (mod_session.c: session_identity_encode).
    #[must_use]
    pub fn encode(&mut self) -> Vec<u8> {
        if self.expiry_us != 0 {
            self.put(EXPIRY, Some(self.expiry_us.to_string().as_bytes()));
        }
        let mut text = Vec::new();
        for (name, value) in &self.entries {
            if !text.is_empty() {
                text.push(b'&');
            }
            escape(&mut text, name);
            text.push(b'=');
            escape(&mut text, value);
        }
        text
    }

    /// Adds the entries of a text that has the form of [`Session::encode`]. What is malformed is
    /// left out (mod_session.c: session_identity_decode).
    pub fn decode(&mut self, text: &[u8]) {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            let start = pair.iter().take_while(|byte| **byte == b'=').count();
            let pair = pair.get(start..).unwrap_or_default();
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let Some(name) = parts.next().filter(|name| !name.is_empty()) else { continue };
            let Some(value) = parts.next().filter(|value| !value.is_empty()) else {
                self.put(name, None);
                continue;
            };
            let (Some(name), Some(value)) = (unescape(name), unescape(value)) else { continue };
            match *name == *EXPIRY {
                true => self.expiry_us = number(&value),
                false => self.put(&name, Some(&value)),
            }
        }
    }
}

/// The number that a text begins with; 0 if it begins with none (apr_atoi64).
fn number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (sign, digits) = match text.split_first() {
        Some((b'-', digits)) => (-1, digits),
        Some((b'+', digits)) => (1, digits),
        _ => (1, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let add = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    sign * digits.fold(0, add)
}

/// Escapes a part of a form (util.c: ap_escape_urlencoded_buffer).
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or_default();
    for byte in text {
        match byte {
            b' ' => out.push(b'+'),
            b'.' | b'-' | b'*' | b'_' => out.push(*byte),
            byte if byte.is_ascii_alphanumeric() => out.push(*byte),
            byte => out.extend([b'%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
}

/// Undoes [`escape`]; none if an escape is malformed or stands for NUL (util.c:
/// ap_unescape_urlencoded).
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let mut digit = || char::from(*bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                out.push((high * 16 + low) as u8);
            }
            byte => out.push(*byte),
        }
    }
    (!out.contains(&0)).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Session {
        let mut session = Session::default();
        session.decode(text.as_bytes());
        session
    }

    #[test]
    fn a_session_is_written_and_read_as_apaches_is() {
        let mut session = Session::default();
        session.change(b"My Realm-user", Some(b"ann"));
        session.change(b"My Realm-pw", Some(b"a/b&c=\xe4*"));
        session.expiry_us = 1_700_000_000_000_000;
        let text = session.encode();
        let want = "My+Realm-user=ann&My+Realm-pw=a%2fb%26c%3d%e4*&expiry=1700000000000000";
        assert_eq!(String::from_utf8(text.clone()).unwrap(), want);
        let read = decoded(want);
        assert_eq!(read.value(b"my realm-USER"), Some(&b"ann"[..]));
        assert_eq!(read.value(b"My Realm-pw"), Some(&b"a/b&c=\xe4*"[..]));
        assert_eq!((read.expiry_us, read.is_dirty), (session.expiry_us, false));
        session.change(b"my realm-user", None);
        assert_eq!(session.value(b"My Realm-user"), None);
    }

    #[test]
    fn malformed_entries_are_left_out() {
        let session = decoded("&&=a=1&b&c=&d==2&e=%zz&f=%00&g=%4&a=3\0&h=4");
        let names: Vec<_> = session.entries.iter().map(|(name, _)| name[0]).collect();
        assert_eq!(names, [b'a', b'd']);
        assert_eq!(session.value(b"a"), Some(&b"3"[..]));
        assert_eq!(session.value(b"d"), Some(&b"=2"[..]));
        assert_eq!(decoded("expiry=12x").expiry_us, 12);
        assert_eq!(decoded("expiry=-5").expiry_us, -5);
        assert_eq!(decoded("expiry=99999999999999999999").expiry_us, i64::MAX);
        assert_eq!(decoded("a=1&a").value(b"a"), None);
    }
}
