//! The scheme `$apr1$` of Apache's htpasswd: the MD5 scheme of crypt(3) with a different prefix
//! (apr_md5_encode).

use md5::{Digest as _, Md5};

/// The prefix of the scheme.
pub const MAGIC: &[u8] = b"$apr1$";

/// The base64 alphabet of crypt(3).
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The indexes of the digest's bytes that are encoded together as four digits. The remaining byte,
/// number 11, is encoded as two digits.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// Encodes the lowest `6 * digits` bits of a number in crypt(3)'s base64, the lowest digit first.
#[must_use]
pub fn to_base64(mut number: u64, digits: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(digits);
    for _ in 0..digits {
        let index = usize::try_from(number & 0x3f).unwrap_or_default();
        text.extend(DIGITS.get(index));
        number >>= 6;
    }
    text
}

/// Hashes a password with the salt of a stored hash.
#[must_use]
pub fn again(password: &[u8], stored: &[u8]) -> Vec<u8> {
    let rest = stored.strip_prefix(MAGIC).unwrap_or(stored);
    apr1(password, rest.split(|byte| *byte == b'$').next().unwrap_or_default())
}

/// Hashes a password. Only the first eight bytes of the salt are used.
#[must_use]
pub fn apr1(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let salt = salt.get(..8).unwrap_or(salt);
    let mut digest = first_digest(password, salt);
    for round in 0..1000 {
        let mut hasher = Md5::new();
        let is_odd = round % 2 == 1;
        hasher.update(if is_odd { password } else { &digest[..] });
        if round % 3 != 0 {
            hasher.update(salt);
        }
        if round % 7 != 0 {
            hasher.update(password);
        }
        hasher.update(if is_odd { &digest[..] } else { password });
        digest = hasher.finalize().into();
    }
    let mut hash = [MAGIC, salt, b"$"].concat();
    let byte = |index: usize| u64::from(digest.get(index).copied().unwrap_or_default());
    for [high, middle, low] in GROUPS {
        hash.extend(to_base64(byte(high) << 16 | byte(middle) << 8 | byte(low), 4));
    }
    hash.extend(to_base64(byte(11), 2));
    hash
}

fn first_digest(password: &[u8], salt: &[u8]) -> [u8; 16] {
    let around: [u8; 16] = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize()
        .into();
    let mut hasher = Md5::new();
    hasher.update(password);
    hasher.update(MAGIC);
    hasher.update(salt);
    for chunk in password.chunks(16) {
        hasher.update(around.get(..chunk.len()).unwrap_or_default());
    }
    let first = password.get(..1).unwrap_or_default();
    let mut length = password.len();
    while length > 0 {
        hasher.update(if length % 2 == 1 { &[0][..] } else { first });
        length /= 2;
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hashes are those of `openssl passwd -apr1`.
    #[test]
    fn it_hashes_as_apache_does() {
        for (password, salt, hash) in KNOWN {
            assert_eq!(apr1(password.as_bytes(), salt.as_bytes()), hash.as_bytes(), "{password}");
            assert_eq!(again(password.as_bytes(), hash.as_bytes()), hash.as_bytes());
        }
    }

    const KNOWN: [(&str, &str, &str); 4] = [
        ("password", "saltsalt", "$apr1$saltsalt$yAAkm4libquA.ZWLHbSBq/"),
        ("x", "saltsalt", "$apr1$saltsalt$Q17bmANhIA7pctgRGqF/S0"),
        ("a longer password than sixteen", "saltsalt", "$apr1$saltsalt$FCVmTq.SnexrKO2HynW.G1"),
        ("exactly16bytes!!", "saltsalt", "$apr1$saltsalt$ynTPMxuwHvS184DHboZhH1"),
    ];
}
