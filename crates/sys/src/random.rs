//! Random bytes from the kernel, for keys and salts.

use std::io;

/// Returns cryptographically secure random bytes (getrandom(2)). The call blocks only until the
/// kernel has initialized its generator after the boot.
///
/// # Errors
/// getrandom(2) fails, for example because a seccomp filter forbids it.
pub fn bytes<const SIZE: usize>() -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the kernel writes at most `rest.len()` bytes to `rest`.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(count) {
            Ok(count) => filled += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_differ_each_time() {
        let (one, other) = (super::bytes::<32>().unwrap(), super::bytes::<32>().unwrap());
        assert_ne!(one, other);
        assert!(one != [0; 32] && other != [0; 32]);
    }
}
