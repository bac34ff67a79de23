//! Sealed texts of sessions in the format of mod_session_crypto: base64 of a MAC (SipHash-2-4 under
//! the MD5 of the passphrase), a salt, an initialization vector and the ciphertext (CBC, PKCS #7).
//! The key is derived from passphrase and salt (PBKDF2 with HMAC-SHA-1, 4096 rounds).

use crate::passwords::{decode_base64, is_equal};
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::pbkdf2;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut as _, BlockEncryptMut as _, KeyIvInit as _};
use des::TdesEde3;
use evenkeel_sys::random;
use md5::{Digest as _, Md5};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MAC: usize = 8;
const SALT: usize = 16;
const ROUNDS: NonZeroU32 = match NonZeroU32::new(4096) {
    Some(rounds) => rounds,
    None => NonZeroU32::MIN,
};

/// How many derived keys a process keeps. A derivation takes about a millisecond.
const MOST_KEYS: usize = 4096;

/// How long a process seals with one salt. The initialization vector of each text is random, so
/// that texts under one salt tell nothing of each other.
const SALT_LIFE: Duration = Duration::from_secs(3600);

type Salt = [u8; SALT];

/// The ciphers of SessionCryptoCipher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// `3des192`
    TripleDes,
    /// `aes128`
    Aes128,
    /// `aes192`
    Aes192,
    /// `aes256`
    #[default]
    Aes256,
}

impl Cipher {
    /// The cipher with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "3des192" => Self::TripleDes,
            "aes128" => Self::Aes128,
            "aes192" => Self::Aes192,
            "aes256" => Self::Aes256,
            _ => return None,
        })
    }

    fn key_length(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::TripleDes | Self::Aes192 => 24,
            Self::Aes256 => 32,
        }
    }

    fn block_length(self) -> usize {
        if self == Self::TripleDes { 8 } else { 16 }
    }

    /// Decrypts in place; none if the text does not end with a padding.
    fn decrypt<'a>(self, key: &[u8], iv: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
        macro_rules! decrypt {
            ($cipher:ty) => {{
                let decryptor = cbc::Decryptor::<$cipher>::new_from_slices(key, iv).ok()?;
                decryptor.decrypt_padded_mut::<Pkcs7>(text).ok()
            }};
        }
        match self {
            Self::TripleDes => decrypt!(TdesEde3),
            Self::Aes128 => decrypt!(Aes128),
            Self::Aes192 => decrypt!(Aes192),
            Self::Aes256 => decrypt!(Aes256),
        }
    }

    /// Encrypts the first `length` bytes in place. A block has to be free behind them.
    fn encrypt<'a>(
        self,
        key: &[u8],
        iv: &[u8],
        text: &'a mut [u8],
        length: usize,
    ) -> Option<&'a [u8]> {
        macro_rules! encrypt {
            ($cipher:ty) => {{
                let encryptor = cbc::Encryptor::<$cipher>::new_from_slices(key, iv).ok()?;
                encryptor.encrypt_padded_mut::<Pkcs7>(text, length).ok()
            }};
        }
        match self {
            Self::TripleDes => encrypt!(TdesEde3),
            Self::Aes128 => encrypt!(Aes128),
            Self::Aes192 => encrypt!(Aes192),
            Self::Aes256 => encrypt!(Aes256),
        }
    }
}

/// The passphrases of a section and its cipher. The first passphrase seals, each of them opens.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    passphrases: Arc<[Box<[u8]>]>,
    cipher: Cipher,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} passphrases, {:?})", self.passphrases.len(), self.cipher)
    }
}

/// The derivation of a key, which takes about a millisecond of CPU time.
pub struct Derivation {
    passphrase: Box<[u8]>,
    salt: Salt,
    cipher: Cipher,
}

impl Derivation {
    /// Derives the key and keeps it for the process.
    pub fn perform(self) {
        let _kept = key(&self.passphrase, self.salt, self.cipher);
    }
}

/// A sealed text whose MAC is that of a passphrase.
struct Authentic<'a> {
    passphrase: &'a [u8],
    salt: Salt,
    /// The initialization vector and the ciphertext.
    rest: Vec<u8>,
}

impl Secrets {
    /// Passphrases, the first of which seals.
    #[must_use]
    pub fn new(passphrases: Arc<[Box<[u8]>]>, cipher: Cipher) -> Self {
        Self { passphrases, cipher }
    }

    /// The derivation that [`Secrets::open`] would need for a text; none if the key is known, or if
    /// no passphrase has sealed the text.
    #[must_use]
    pub fn derivation(&self, text: &[u8]) -> Option<Derivation> {
        let Authentic { passphrase, salt, .. } = self.authenticate(text)?;
        match known(passphrase, salt, self.cipher) {
            Some(_) => None,
            None => Some(Derivation { passphrase: passphrase.into(), salt, cipher: self.cipher }),
        }
    }

    /// Opens a sealed text (mod_session_crypto.c: decrypt_string). None if no passphrase has sealed
    /// it, or if it was changed.
    #[must_use]
    pub fn open(&self, text: &[u8]) -> Option<Vec<u8>> {
        let Authentic { passphrase, salt, mut rest } = self.authenticate(text)?;
        let (iv, ciphertext) = rest.split_at_mut_checked(self.cipher.block_length())?;
        let key = key(passphrase, salt, self.cipher);
        self.cipher.decrypt(&key, iv, ciphertext).map(<[u8]>::to_vec)
    }

    /// Compares the MAC of a text before anything is derived, so that nobody without a passphrase
    /// makes the server work.
    fn authenticate(&self, text: &[u8]) -> Option<Authentic<'_>> {
        let bytes = decode_base64(text);
        let (mac, sealed) = bytes.split_at_checked(MAC)?;
        let (salt, rest) = sealed.split_first_chunk::<SALT>()?;
        let mut passphrases = self.passphrases.iter().map(|passphrase| &**passphrase);
        let passphrase = passphrases.find(|it| is_equal(&mac_of(sealed, it), mac))?;
        Some(Authentic { passphrase, salt: *salt, rest: rest.to_vec() })
    }

    /// Seals a text (mod_session_crypto.c: encrypt_string).
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn seal(&self, text: &[u8]) -> io::Result<Vec<u8>> {
        let none = || io::Error::other("there is no passphrase");
        let passphrase = self.passphrases.first().ok_or_else(none)?;
        let salt = salt(passphrase)?;
        let key = key(passphrase, salt, self.cipher);
        let block = self.cipher.block_length();
        let random = random::bytes::<16>()?;
        let iv = random.get(..block).unwrap_or(&random);
        let mut ciphertext = [text, &vec![0; block]].concat();
        let encrypted = self.cipher.encrypt(&key, iv, &mut ciphertext, text.len());
        let encrypted = encrypted.ok_or_else(|| io::Error::other("the cipher fails"))?;
        let sealed = [&salt[..], iv, encrypted].concat();
        let mac = mac_of(&sealed, passphrase);
        Ok(STANDARD.encode([&mac[..], &sealed].concat()).into_bytes())
    }
}

/// The MAC of a salt, an initialization vector and a ciphertext (mod_session_crypto.c:
/// compute_auth).
fn mac_of(sealed: &[u8], passphrase: &[u8]) -> [u8; MAC] {
    let digest: [u8; 16] = Md5::digest(passphrase).into();
    let number = |half: &[u8]| half.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (low, high) = digest.split_at(8);
    siphash(number(low), number(high), sealed).to_le_bytes()
}

/// SipHash-2-4 with a key of two numbers.
#[expect(deprecated, reason = "the type is SipHash-2-4 by its documentation, which Apache uses")]
fn siphash(low: u64, high: u64, bytes: &[u8]) -> u64 {
    use std::hash::{Hasher as _, SipHasher};
    let mut hasher = SipHasher::new_with_keys(low, high);
    hasher.write(bytes);
    hasher.finish()
}

type KeyName = (Box<[u8]>, Salt, Cipher);

/// Derived keys, the oldest first, and the salts that seal.
#[derive(Default)]
struct Keys {
    keys: HashMap<KeyName, Arc<[u8]>>,
    order: VecDeque<KeyName>,
    salts: HashMap<Box<[u8]>, (Salt, Instant)>,
}

static KEYS: Mutex<Option<Keys>> = Mutex::new(None);

fn with_keys<T>(act: impl FnOnce(&mut Keys) -> T) -> T {
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    act(keys.get_or_insert_default())
}

fn known(passphrase: &[u8], salt: Salt, cipher: Cipher) -> Option<Arc<[u8]>> {
    with_keys(|keys| keys.keys.get(&(passphrase.into(), salt, cipher)).cloned())
}

/// The key for a passphrase and a salt, derived if it is not known.
fn key(passphrase: &[u8], salt: Salt, cipher: Cipher) -> Arc<[u8]> {
    if let Some(key) = known(passphrase, salt, cipher) {
        return key;
    }
    let mut derived = vec![0; cipher.key_length()];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, ROUNDS, &salt, passphrase, &mut derived);
    let derived: Arc<[u8]> = derived.into();
    let name: KeyName = (passphrase.into(), salt, cipher);
    with_keys(|keys| {
        if keys.keys.insert(name.clone(), Arc::clone(&derived)).is_none() {
            keys.order.push_back(name);
        }
        if keys.order.len() > MOST_KEYS
            && let Some(oldest) = keys.order.pop_front()
        {
            keys.keys.remove(&oldest);
        }
    });
    derived
}

/// The salt with which this process seals at the moment.
fn salt(passphrase: &[u8]) -> io::Result<Salt> {
    with_keys(|keys| {
        let fresh = keys.salts.get(passphrase).filter(|(_, made)| made.elapsed() < SALT_LIFE);
        if let Some((salt, _)) = fresh {
            return Ok(*salt);
        }
        let salt = random::bytes()?;
        keys.salts.retain(|_, (_, made)| made.elapsed() < SALT_LIFE);
        keys.salts.insert(passphrase.into(), (salt, Instant::now()));
        Ok(salt)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(passphrases: &[&str], cipher: Cipher) -> Secrets {
        let passphrases = passphrases.iter().map(|it| it.as_bytes().into()).collect();
        Secrets::new(passphrases, cipher)
    }

    const CIPHERS: [Cipher; 4] =
        [Cipher::TripleDes, Cipher::Aes128, Cipher::Aes192, Cipher::Aes256];

    #[test]
    fn the_mac_is_siphash() {
        // The vector of the paper: key 00..0f, message 00..0e.
        let message: Vec<u8> = (0..15).collect();
        let hash = siphash(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, &message);
        assert_eq!(hash, 0xa129_ca61_49be_45e5);
    }

    /// Written by Debian's apache2 with OpenSSL.
    #[test]
    fn what_apache_has_sealed_is_opened() {
        let sealed = [
            "+7ur6MF+VvM94nqh3RdE9pNxFkxvhIztEZg5RYIuQnjQQhmB3HGt6gAsuq9DO3zMpuyOLNPKnwMV6s/qSer5\
             Ihf7HCYs7lwT",
            "fgSPfS9zJ9lOSjkWUGNHGKnWAW2yz/+dNh7oJsUuhADnnjRhX531eZx5GM6cQE9MGmjyIyGyt9F+B2XJzG+n\
             pnex+UhyhsCo0ejWUFyX5UXmriXb+CFPXQ==",
            "kx9FzkrGoJsDgCaH42NFPK0nO2frD3t8iMyaio8ghq2AASzPW4R+suCRlkBqxyzY43ZnzrO8SJ91Sh7UmEOE\
             3i1ZJyAjIMZifTeYHuJLlPAV1QqFrMCMVw==",
            "Ecoss/fUOxy0n0fZZIpD+ZiSZTnNgkJu9fZ3JO94+wY4CJcyXNrvygZDBO5K4JnlTa4btaJjUdP5d1x8NC37\
             oi9uGyJx+OqV5MuvozyphIdJmOkxb6U2IA==",
        ];
        for (cipher, sealed) in CIPHERS.into_iter().zip(sealed) {
            let opened = secrets(&["secret"], cipher).open(sealed.as_bytes());
            let text = opened.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(text.as_deref(), Some("realm-user=ann&realm-pw=password"), "{cipher:?}");
        }
    }

    #[test]
    fn what_is_sealed_is_opened_by_each_passphrase_and_by_no_other() {
        for cipher in CIPHERS {
            let own = secrets(&["first", "second"], cipher);
            let sealed = own.seal(b"a=1&b=2").unwrap();
            assert_ne!(sealed, own.seal(b"a=1&b=2").unwrap(), "the vector is random");
            assert_eq!(own.open(&sealed).as_deref(), Some(&b"a=1&b=2"[..]));
            let rotated = secrets(&["new", "first"], cipher);
            assert_eq!(rotated.open(&sealed).as_deref(), Some(&b"a=1&b=2"[..]));
            assert_eq!(secrets(&["second", "new"], cipher).open(&sealed), None);
        }
    }

    #[test]
    fn a_changed_text_is_not_opened() {
        let own = secrets(&["first"], Cipher::Aes256);
        let sealed = own.seal(b"user=ann").unwrap();
        let bytes = STANDARD.decode(&sealed).unwrap();
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert_eq!(own.open(STANDARD.encode(&changed).as_bytes()), None, "{index}");
        }
        for length in 0..bytes.len() {
            assert_eq!(own.open(STANDARD.encode(&bytes[..length]).as_bytes()), None, "{length}");
        }
        assert_eq!(own.open(b""), None);
        assert_eq!(own.open(b"user=ann"), None);
    }

    #[test]
    fn a_key_is_derived_once_and_for_authentic_texts_alone() {
        let sealed = {
            let other = secrets(&["derived once"], Cipher::Aes128);
            let sealed = other.seal(b"x").unwrap();
            with_keys(|keys| keys.keys.retain(|(name, ..), _| **name != *b"derived once"));
            sealed
        };
        let own = secrets(&["derived once"], Cipher::Aes128);
        own.derivation(&sealed).unwrap().perform();
        assert!(own.derivation(&sealed).is_none());
        assert!(secrets(&["another"], Cipher::Aes128).derivation(&sealed).is_none());
    }
}
