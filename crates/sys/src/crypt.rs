//! crypt(3) of libcrypt: hashes a password with the scheme, the cost and the salt of a setting,
//! which may be a complete hash. The installed libcrypt determines the available schemes. Linking
//! needs its development files (Debian: libcrypt-dev, on which libc6-dev depends).

use std::ffi::{CStr, CString, c_char};
use std::ptr;

/// The size of the buffer for `struct crypt_data`, in 64-bit words. The structure has 131,232 bytes
/// in glibc and 32,768 in libxcrypt.
const WORDS: usize = 18 << 10;

#[link(name = "crypt")]
unsafe extern "C" {
    fn crypt_r(phrase: *const c_char, setting: *const c_char, data: *mut u64) -> *mut c_char;
}

/// Hashes a password. Returns `None` if libcrypt rejects the setting, or if the password or the
/// setting contains a NUL. The cost in the setting determines the CPU time and the memory.
#[must_use]
pub fn hash(password: &[u8], setting: &[u8]) -> Option<Vec<u8>> {
    let (password, setting) = (CString::new(password).ok()?, CString::new(setting).ok()?);
    let mut data = vec![0_u64; WORDS];
    // SAFETY: both strings are NUL-terminated and outlive the call. `data` is zeroed, aligned for
    // every member of `struct crypt_data`, larger than it in every libcrypt of Linux, and used by
    // no other call. The result is null or a NUL-terminated string in `data` or in static memory,
    // and is copied before `data` is freed.
    let hash = unsafe {
        let text = crypt_r(password.as_ptr(), setting.as_ptr(), data.as_mut_ptr());
        (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes().to_vec())
    };
    // SAFETY: `word` is a valid, aligned reference into `data`. The buffer may contain traces of
    // the password, and the compiler may not remove a volatile write.
    data.iter_mut().for_each(|word| unsafe { ptr::write_volatile(word, 0) });
    // libxcrypt reports an error as a string that begins with `*`, which no hash does.
    hash.filter(|hash| !hash.is_empty() && !hash.starts_with(b"*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA_512: &str = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJues\
                           I68u4OTLiBFdcbYEdFCoEOfaS35inz1";

    #[test]
    fn known_hashes_come_out_again() {
        // The hashes are those of apache2's htpasswd and of openssl passwd.
        for (password, known) in [
            (&b"Hello world!"[..], SHA_512),
            (b"password", "$2y$05$VSv/aGvVCGNTfSsZaD4feupuXrriBcXAg5jqz5NuDzIvBu90i9jp6"),
        ] {
            assert_eq!(hash(password, known.as_bytes()).unwrap(), known.as_bytes(), "{known}");
            assert_ne!(hash(b"other", known.as_bytes()).unwrap(), known.as_bytes());
        }
    }

    #[test]
    fn what_is_no_setting_gives_no_hash() {
        for setting in ["", "*0", "*1", "$9$x$", "\0", "$2y$99$bvIG6Nmid91Mu9RcmmWZfO"] {
            assert_eq!(hash(b"password", setting.as_bytes()), None, "{setting:?}");
        }
        assert_eq!(hash(b"pass\0word", b"$6$saltstring$"), None);
    }
}
