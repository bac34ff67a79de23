//! Reads a file that the kernel generates on the fly, such as those under /proc and /sys. The size
//! of such a file is not known before, and each read generates it again, so it is read with as few
//! calls as possible.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Enough for most of these files. The kernel returns at most a page at a time.
const PAGE_BYTES: usize = 4096;

/// No such file is longer.
const MOST_BYTES: u64 = 16 << 20;

/// Reads the whole text. Errors are those of open(2) and read(2), and `InvalidData` if it is not
/// UTF-8.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(PAGE_BYTES);
    File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_texts_are_whole() {
        let stat = read("/proc/self/stat").unwrap();
        assert!(stat.starts_with(&std::process::id().to_string()) && stat.ends_with('\n'));
        // This process has more mappings than fit into a page.
        let maps = read("/proc/self/maps").unwrap();
        assert!(maps.len() > PAGE_BYTES && maps.ends_with('\n'), "{maps}");
        assert_eq!(read("/proc/self/none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
