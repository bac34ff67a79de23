//! The title of an HTML file (`IndexOptions ScanHTMLTitles`): a file that was looked at goes in,
//! the text behind the first `<title>` of its beginning comes out (mod_autoindex.c: find_title).
//! Nothing is opened but that very file, and no link is followed to it.

use evenkeel_sys::open::{self, Stat};

/// Bytes of a file that are looked at (MAX_STRING_LEN, less one).
const SCANNED: usize = 8191;

const TAG: &[u8] = b"<title>";

/// Whether a media type is one of HTML.
pub(super) fn is_html(media_type: &[u8]) -> bool {
    let end = media_type.iter().position(|byte| *byte == b';').unwrap_or(media_type.len());
    let bare = media_type.get(..end).unwrap_or_default().trim_ascii_end();
    bare.eq_ignore_ascii_case(b"text/html") || bare.eq_ignore_ascii_case(b"application/xhtml+xml")
}

/// The title of a file of that type; none where it has none, or cannot be read. The path is one
/// without links, and `seen` is what the look found there: whether the client may see another file
/// that has taken its place, or a pipe or a link, nobody has asked.
pub(super) fn find_title(path: &[u8], seen: &Stat, media_type: &[u8]) -> Option<Vec<u8>> {
    if !is_html(media_type) && media_type != b"text/x-server-parsed-html" {
        return None;
    }
    let file = open::open_without_links(path).ok()?;
    let stat = open::fstat(&file).ok()?;
    if !stat.is_file() || (stat.device, stat.inode) != (seen.device, seen.inode) {
        return None;
    }
    let mut text = vec![0; SCANNED];
    let count = open::read_at(&file, &mut text, 0).ok()?;
    text.truncate(count);
    title_in(&text)
}

fn title_in(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let rest = text.get(tag_end(text)?..)?;
    let title = rest.split(|byte| *byte == b'<').next().unwrap_or_default();
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let leading = title.iter().take_while(|byte| is_end(byte)).count();
    let spaced = |byte: &u8| if is_end(byte) { b' ' } else { *byte };
    Some(title.iter().skip(leading).map(spaced).collect())
}

/// Where the first tag ends. A letter that breaks a match begins none, as in Apache.
fn tag_end(text: &[u8]) -> Option<usize> {
    let mut matched = 0;
    for (at, byte) in text.iter().enumerate() {
        matched = match TAG.get(matched) {
            Some(wanted) if *wanted == byte.to_ascii_lowercase() => matched + 1,
            _ => 0,
        };
        if matched == TAG.len() {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    #[test]
    fn titles_end_at_the_next_tag_and_have_one_line() {
        let title = |text: &str| title_in(text.as_bytes()).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(title("<p><TITLE>\r\n A\nb </title>").as_deref(), Some(" A b "));
        assert_eq!(title("<title>open").as_deref(), Some("open"));
        assert_eq!(title("<<title>x").as_deref(), None);
        assert_eq!(title("none"), None);
    }

    /// A path, with what stands there.
    fn seen(path: &Path) -> (Vec<u8>, Stat) {
        let path = path.as_os_str().as_bytes();
        (path.to_vec(), open::lstat(path).unwrap())
    }

    #[test]
    fn only_html_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::write(root.join("a"), "<title>T</title>").unwrap();
        let (path, stat) = seen(&root.join("a"));
        let title = find_title(&path, &stat, b"text/html; charset=x");
        assert_eq!(title.as_deref(), Some(&b"T"[..]));
        assert_eq!(find_title(&path, &stat, b"text/plain"), None);
        let (path, stat) = seen(&root);
        assert_eq!(find_title(&path, &stat, b"text/html"), None);
    }

    #[test]
    fn what_took_the_place_of_the_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (first, other) = (root.join("a"), root.join("b"));
        std::fs::write(&first, "<title>T</title>").unwrap();
        std::fs::write(&other, "<title>secret</title>").unwrap();
        let (path, stat) = seen(&first);
        std::fs::rename(&first, root.join("c")).unwrap();
        // A link, be it to the very file, then another file.
        std::os::unix::fs::symlink(root.join("c"), &first).unwrap();
        assert_eq!(find_title(&path, &stat, b"text/html"), None);
        std::fs::rename(&other, &first).unwrap();
        assert_eq!(find_title(&path, &stat, b"text/html"), None);
        assert!(find_title(&path, &seen(&first).1, b"text/html").is_some());
    }

    /// One that was waited for would never end this test: nobody writes to the pipe.
    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().canonicalize().unwrap().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (path, stat) = seen(&pipe);
        assert_eq!(find_title(&path, &stat, b"text/html"), None);
    }
}
