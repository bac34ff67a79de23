//! Passwords: the credentials of the scheme Basic ([`Login`]), the schemes of stored hashes
//! ([`Scheme`], [`verify`]), the parsers of the files of users and groups ([`file`]), and the cache
//! of both in each process ([`Store`]). This module depends on no directive and no request.

mod apr1;
mod basic;
pub mod file;
mod store;

pub use apr1::{apr1, to_base64};
pub use basic::Login;
pub(crate) use basic::decode as decode_base64;
pub use file::{Entry, GroupFile, PasswordFile};
pub use store::{HashPlace, Loaded, REMEMBERED, Store, Verified};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_sys::crypt;
use md5::{Digest as _, Md5};
use sha1::Sha1;

/// The scheme of a stored hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `{SHA}`: SHA-1 in base64, without a salt.
    Sha,
    /// `$apr1$`: 1000 rounds of MD5 with a salt.
    Apr1,
    /// A scheme of crypt(3), such as bcrypt, SHA-2, yescrypt or DES.
    Crypt,
}

/// The prefixes of the schemes of crypt(3) on Linux (libxcrypt: crypt(5)).
const PREFIXES: [&[u8]; 13] = [
    b"$1$", b"$2a$", b"$2b$", b"$2x$", b"$2y$", b"$5$", b"$6$", b"$7$", b"$y$", b"$gy$", b"$md5",
    b"$sha1$", b"_",
];

/// The highest cost of bcrypt that is accepted. It is htpasswd's maximum, and takes about 10 s.
const BCRYPT_COST: u32 = 17;

/// The most rounds of SHA-2 and `$sha1$` that are accepted. SHA-2 takes about 10 s for them.
const SHA_ROUNDS: u32 = 20_000_000;

impl Scheme {
    /// The scheme of a stored hash. Returns `None` if the scheme is unknown.
    #[must_use]
    pub fn of(hash: &[u8]) -> Option<Self> {
        if hash.starts_with(b"{SHA}") {
            return Some(Scheme::Sha);
        }
        if hash.starts_with(apr1::MAGIC) {
            return Some(Scheme::Apr1);
        }
        let is_traditional = || {
            let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
            hash.len() == 13 && hash.iter().all(is_digit)
        };
        let is_known = PREFIXES.iter().any(|prefix| hash.starts_with(prefix)) || is_traditional();
        is_known.then_some(Scheme::Crypt)
    }
}

/// Whether the cost of a stored hash is low enough to be computed. The author of an .htaccess file
/// chooses the file of users, and with it the cost.
#[must_use]
pub fn is_affordable(hash: &[u8]) -> bool {
    let number = |bytes: &[u8]| {
        let digits: Vec<u8> = bytes.iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8_lossy(&digits).parse::<u32>().unwrap_or(u32::MAX)
    };
    // The digits of crypt(3) in ascending order are `.`, `/`, `0` to `9`, `A` to `Z`, `a` to `z`,
    // which is the order of their bytes.
    let is_up_to = |digit: u8, most: u8| {
        matches!(digit, b'.' | b'/' | b'0'..=b'9' | b'A'..=b'Z') && digit <= most
    };
    match hash {
        [b'$', b'2', b'a' | b'b' | b'x' | b'y', b'$', cost @ ..] => number(cost) <= BCRYPT_COST,
        [b'$', b'5' | b'6', b'$', rest @ ..] => {
            rest.strip_prefix(b"rounds=").is_none_or(|rounds| number(rounds) <= SHA_ROUNDS)
        }
        [b'$', b's', b'h', b'a', b'1', b'$', rounds @ ..] => number(rounds) <= SHA_ROUNDS,
        // yescrypt, in the form that crypt_gensalt(3) writes: the flag `j`, log2(N) - 1 and r - 1.
        // At `F` and `T`, N is 2^18 and a block has 4 KiB: 1 GiB of memory. Further parameters
        // would multiply the cost.
        [b'$', b'y', b'$', rest @ ..] | [b'$', b'g', b'y', b'$', rest @ ..] => {
            matches!(rest, [b'j', n, r, b'$', ..] if is_up_to(*n, b'F') && is_up_to(*r, b'T'))
        }
        [b'$', b'y' | b'g', ..] => false,
        // scrypt: log2(N), r in five digits with the lowest first, and p = 1 in five digits.
        [b'$', b'7', b'$', n, r, b'.', b'.', b'.', b'.', b'/', b'.', b'.', b'.', b'.', ..] => {
            is_up_to(*n, b'G') && is_up_to(*r, b'U')
        }
        [b'$', b'7', ..] => false,
        [b'$', b'm', b'd', b'5', ..] => !hash.windows(7).any(|it| it == b"rounds="),
        _ => true,
    }
}

/// Whether a password matches a stored hash (apr_password_validate). The call takes the CPU time
/// and the memory of the scheme's cost.
#[must_use]
pub fn verify(password: &[u8], stored: &[u8]) -> bool {
    // Apache cuts a password at its first NUL; here such a password never matches.
    if password.contains(&0) || !is_affordable(stored) {
        return false;
    }
    let hash = match Scheme::of(stored) {
        None => return false,
        Some(Scheme::Sha) => Some(sha(password)),
        Some(Scheme::Apr1) => Some(apr1::again(password, stored)),
        Some(Scheme::Crypt) => crypt::hash(password, stored),
    };
    hash.is_some_and(|hash| is_equal(&hash, stored))
}

/// Hashes a password in the scheme `{SHA}`.
#[must_use]
pub fn sha(password: &[u8]) -> Vec<u8> {
    let mut hash = b"{SHA}".to_vec();
    hash.extend_from_slice(STANDARD.encode(Sha1::digest(password)).as_bytes());
    hash
}

/// Whether two secrets are equal. The time depends only on their lengths.
#[must_use]
pub fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

/// The hash that htdigest writes for a user in a realm: MD5 of `user:realm:password`, in
/// hexadecimal digits.
#[must_use]
pub fn htdigest_hash(user: &[u8], realm: &[u8], password: &[u8]) -> Vec<u8> {
    let text = [user, realm, password].join(&b':');
    Md5::digest(text).iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// Whether a stored hash has the form of htdigest's: MD5 in lower-case hexadecimal digits. Digest
/// authentication uses the hash itself as the secret, so a text of another form must not count.
#[must_use]
pub fn is_digest(hash: &[u8]) -> bool {
    hash.len() == 32 && hash.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_knows_its_password() {
        for stored in [
            "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
            "$apr1$saltsalt$yAAkm4libquA.ZWLHbSBq/",
            "$2y$05$VSv/aGvVCGNTfSsZaD4feupuXrriBcXAg5jqz5NuDzIvBu90i9jp6",
            "rqXexS6ZhobKA",
        ] {
            let password: &[u8] =
                if stored.starts_with("rq") { b"myPassword" } else { b"password" };
            assert!(Scheme::of(stored.as_bytes()).is_some(), "{stored}");
            assert!(verify(password, stored.as_bytes()), "{stored}");
            assert!(!verify(b"passwore", stored.as_bytes()), "{stored}");
            assert!(!verify(&[password, b"\0"].concat(), stored.as_bytes()), "{stored}");
        }
    }

    #[test]
    fn what_is_no_hash_is_nobodys_password() {
        for stored in ["", "password", "{SHA}", "$apr1$", "$2y$05$", "*0", "x", "!", "$9$a$b"] {
            for password in ["", "password", stored] {
                assert!(!verify(password.as_bytes(), stored.as_bytes()), "{password} {stored}");
            }
        }
    }

    #[test]
    fn what_would_take_minutes_is_not_hashed() {
        for (stored, is) in [
            ("$2y$17$", true),
            ("$2y$18$", false),
            ("$2b$31$", false),
            ("$6$rounds=5000$x", true),
            ("$6$rounds=999999999$x", false),
            ("$5$x", true),
            ("$y$j9T$x", true),
            ("$y$j75$x", true),
            ("$gy$jFT$x", true),
            ("$y$jUT$x", false),
            ("$y$jFrz$x", false),
            ("$y$jFU$x", false),
            ("$y$j9T/.$x", false),
            ("$y$k9T$x", false),
            ("$7$CU..../....x", true),
            ("$7$CU.../.....x", false),
            ("$7$CU....0....x", false),
            ("$7$GU..../....x", true),
            ("$7$HU..../....x", false),
            ("$7$", false),
            ("$apr1$x", true),
        ] {
            assert_eq!(is_affordable(stored.as_bytes()), is, "{stored}");
        }
    }

    #[test]
    fn secrets_are_equal_as_a_whole() {
        assert!(is_equal(b"", b"") && is_equal(b"ab", b"ab"));
        assert!(!is_equal(b"ab", b"abc") && !is_equal(b"abc", b"abd") && !is_equal(b"", b"a"));
    }
}
