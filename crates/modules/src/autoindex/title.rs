//! The title of an HTML file (`IndexOptions ScanHTMLTitles`): a path goes in, the text behind the
//! first `<title>` of its beginning comes out (mod_autoindex.c: find_title).

use evenkeel_sys::open;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a file that are looked at (MAX_STRING_LEN, less one).
const SCANNED: usize = 8191;

const TAG: &[u8] = b"<title>";

/// Whether a media type is one of HTML.
pub(super) fn is_html(media_type: &[u8]) -> bool {
    let end = media_type.iter().position(|byte| *byte == b';').unwrap_or(media_type.len());
    let bare = media_type.get(..end).unwrap_or_default().trim_ascii_end();
    bare.eq_ignore_ascii_case(b"text/html") || bare.eq_ignore_ascii_case(b"application/xhtml+xml")
}

/// The title of a file of that type; none where it has none, or cannot be read.
pub(super) fn find_title(path: &Path, media_type: &[u8]) -> Option<Vec<u8>> {
    if !is_html(media_type) && media_type != b"text/x-server-parsed-html" {
        return None;
    }
    // What took the file's place since the look may be a pipe.
    let file = open::open_through_links(path.as_os_str().as_bytes()).ok()?;
    if !open::fstat(&file).ok()?.is_file() {
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

    #[test]
    fn titles_end_at_the_next_tag_and_have_one_line() {
        let title = |text: &str| title_in(text.as_bytes()).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(title("<p><TITLE>\r\n A\nb </title>").as_deref(), Some(" A b "));
        assert_eq!(title("<title>open").as_deref(), Some("open"));
        assert_eq!(title("<<title>x").as_deref(), None);
        assert_eq!(title("none"), None);
    }

    #[test]
    fn only_html_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "<title>T</title>").unwrap();
        assert_eq!(find_title(&path, b"text/html; charset=x").as_deref(), Some(&b"T"[..]));
        assert_eq!(find_title(&path, b"text/plain"), None);
        assert_eq!(find_title(folder.path(), b"text/html"), None);
    }
}
