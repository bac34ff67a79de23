//! Random bytes of the kernel, for keys and salts.

use std::io;

/// Random bytes that nobody can predict. It waits for the kernel's generator at the start of the
/// machine alone.
///
/// # Errors
/// The kernel has no generator.
pub fn bytes<const SIZE: usize>() -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the kernel writes at most the length of `rest` to its memory.
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
