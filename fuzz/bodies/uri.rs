//! Normalises a path. The first byte of the input chooses the options. The result cannot climb,
//! contains no NUL, is no longer than the input, and stays the same when it is escaped and
//! normalised again.

use evenkeel_message::{AllowEncodedSlashes, UriOptions, UrlPath};
use evenkeel_proto::{escape_html, escape_path, escape_uri};

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let encoded_slashes = match choice % 3 {
        0 => AllowEncodedSlashes::Off,
        1 => AllowEncodedSlashes::On,
        _ => AllowEncodedSlashes::NoDecode,
    };
    let options = UriOptions { encoded_slashes, merge_slashes: choice & 128 == 0 };
    let Ok(path) = UrlPath::parse(bytes, options) else { return };
    if path.is_empty() || &*path == b"*" {
        return;
    }
    assert!(path.starts_with(b"/") && path.len() <= bytes.len());
    assert!(!path.split(|byte| *byte == b'/').any(|segment| segment == b"." || segment == b".."));
    assert!(!path.contains(&0) || bytes.contains(&0));
    assert!(choice & 128 != 0 || !path.windows(2).any(|pair| pair == b"//"));
    let mut again = Vec::new();
    escape_uri(&mut again, &path);
    assert!(again.iter().all(|byte| byte.is_ascii_graphic()));
    if !path.contains(&0) {
        assert_eq!(
            UrlPath::parse(&again, options).as_deref(),
            Ok(&path[..]),
            "an escaped path is a path"
        );
    }
    let (mut html, mut relative) = (Vec::new(), Vec::new());
    escape_html(&mut html, bytes);
    assert!(!html.iter().any(|byte| matches!(byte, b'<' | b'>' | b'"')));
    escape_path(&mut relative, bytes);
    assert!(relative.is_ascii());
}
