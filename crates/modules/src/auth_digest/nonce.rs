//! The nonces of the server: a time and a keyed hash of the time, the realm and the opaque value,
//! in the format of Apache's nonces. Whoever does not know the secret cannot make a valid nonce.

use crate::passwords::is_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha1::Sha1;

/// The length of the time in base64 (NONCE_TIME_LEN).
const TIME: usize = 12;

/// The length of a nonce: the time and 40 hexadecimal digits of the hash (NONCE_LEN).
const LENGTH: usize = TIME + 40;

/// The secret of the nonces.
pub(super) struct Secret(pub(super) [u8; 32]);

impl Secret {
    /// Makes a nonce. `number` is the time in microseconds since 1970, or the number of a nonce
    /// that is valid for one request.
    pub(super) fn nonce(&self, number: i64, realm: &[u8], opaque: &[u8]) -> Vec<u8> {
        let time = STANDARD.encode(number.to_ne_bytes());
        let hash = self.hash(time.as_bytes(), realm, opaque);
        [time.as_bytes(), &hash].concat()
    }

    /// The number in a nonce that this secret has made for the realm and the opaque value. Returns
    /// `None` for any other nonce. The comparison takes the same time for all of those.
    pub(super) fn number(&self, nonce: &[u8], realm: &[u8], opaque: &[u8]) -> Option<i64> {
        let (time, hash) = nonce.split_at_checked(TIME)?;
        if !is_equal(&self.hash(time, realm, opaque), hash) {
            return None;
        }
        let bytes = STANDARD.decode(time).ok()?;
        Some(i64::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The hash in a nonce, in hexadecimal digits.
    fn hash(&self, time: &[u8], realm: &[u8], opaque: &[u8]) -> Vec<u8> {
        // HMAC accepts keys of any length, so there is always a result.
        let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(&self.0) else { return Vec::new() };
        for part in [time, realm, opaque] {
            mac.update(&part.len().to_le_bytes());
            mac.update(part);
        }
        super::hexadecimal(&mac.finalize().into_bytes())
    }
}

/// Whether a text has the form of a nonce (VALID_NONCE).
pub(super) fn is_formed(nonce: &[u8]) -> bool {
    nonce.len() == LENGTH && nonce.get(TIME - 1) == Some(&b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_secret_has_made_is_valid() {
        let (secret, other) = (Secret([7; 32]), Secret([8; 32]));
        for number in [0, 1, -1, 1_700_000_000_000_000, i64::MAX, i64::MIN] {
            let nonce = secret.nonce(number, b"here", b"1a");
            assert!(is_formed(&nonce));
            assert_eq!(secret.number(&nonce, b"here", b"1a"), Some(number));
            assert_eq!(secret.number(&nonce, b"here", b"1"), None);
            assert_eq!(secret.number(&nonce, b"here", b""), None);
            assert_eq!(secret.number(&nonce, b"there", b"1a"), None);
            assert_eq!(secret.number(&nonce, b"here1", b"a"), None);
            assert_eq!(other.number(&nonce, b"here", b"1a"), None);
            for place in 0..nonce.len() {
                let mut forged = nonce.clone();
                forged[place] ^= 1;
                assert_eq!(secret.number(&forged, b"here", b"1a"), None, "{place}");
                assert_eq!(secret.number(&nonce[..place], b"here", b"1a"), None, "{place}");
            }
        }
        for text in ["", "=", &"=".repeat(51), &"x".repeat(52)] {
            assert!(!is_formed(text.as_bytes()), "{text}");
        }
        assert!(is_formed("=".repeat(52).as_bytes()));
        assert_eq!(secret.number("=".repeat(52).as_bytes(), b"here", b""), None);
    }
}
