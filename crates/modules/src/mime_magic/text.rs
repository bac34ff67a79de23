//! Files that no rule knows: words of texts and headers of tar archives (mod_mime_magic.c:
//! ascmagic, is_tar).

/// How much of a file is searched for words, in bytes (SMALL_HOWMANY).
const SEARCHED: usize = 1024;

/// The size of a tar header, in bytes (RECORDSIZE).
const TAR_RECORD: usize = 512;

/// The field of a tar header with its checksum.
const TAR_CHECKSUM: std::ops::Range<usize> = 148..156;

/// Words that tell what a text is, in Apache's order.
#[rustfmt::skip]
const WORDS: &[(&[&str], &str)] = &[
    (&["<html>", "<HTML>", "<head>", "<HEAD>", "<title>", "<TITLE>", "<h1>", "<H1>", "<!--",
       "<!DOCTYPE HTML"], "text/html"),
    (&["/*", "#include", "char", "The", "the", "double", "extern", "float", "real", "struct",
       "union", "CFLAGS", "LDFLAGS", "all:", ".PRECIOUS", ".ascii", ".asciiz", ".byte", ".even",
       ".globl", "clr", "(input,", "dcl"], "text/plain"),
    (&["Received:", ">From", "Return-Path:", "Cc:"], "message/rfc822"),
    (&["Newsgroups:", "Path:", "Organization:"], "message/news"),
];

/// The media type of a text or of a tar archive. `beginning` ends with a NUL that is not in the
/// file.
pub(super) fn find(beginning: &[u8]) -> Option<&'static str> {
    let [first, rest @ ..] = beginning else { return None };
    if *first == b'.' && is_troff(rest) {
        return Some("application/x-troff");
    }
    if first.eq_ignore_ascii_case(&b'c') && rest.first().is_some_and(is_space) {
        return Some("text/plain");
    }
    let searched = beginning.get(..SEARCHED).unwrap_or(beginning);
    let text = searched.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut words = text.split(|byte| b" \t\n\r\x0c".contains(byte));
    let of_word = words.find_map(|word| {
        let knows = |(known, _): &&(&[&str], _)| known.iter().any(|it| it.as_bytes() == word);
        WORDS.iter().find(knows).map(|(_, media_type)| *media_type)
    });
    of_word.or_else(|| is_tar(beginning).then_some("application/x-tar"))
}

/// Whether a file that begins with a dot goes on as one of troff.
fn is_troff(rest: &[u8]) -> bool {
    let start = rest.iter().take_while(|byte| is_space(byte)).count();
    let mut rest = rest.iter().skip(start);
    let (Some(first), second) = (rest.next(), rest.next()) else { return false };
    let begins = first.is_ascii_alphanumeric() || *first == b'\\';
    begins && (second.is_some_and(u8::is_ascii_alphanumeric) || *first == b'"')
}

fn is_tar(beginning: &[u8]) -> bool {
    let Some(record) = beginning.get(..TAR_RECORD) else { return false };
    let Some(field) = record.get(TAR_CHECKSUM) else { return false };
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| i64::from(*byte)).sum::<i64>();
    let spaces = i64::from(b' ') * field.len() as i64;
    octal(field) == Some(sum(record) - sum(field) + spaces)
}

/// An octal number, which a space or a NUL ends (from_oct).
fn octal(field: &[u8]) -> Option<i64> {
    let start = field.iter().position(|byte| !is_space(byte))?;
    let digits = field.get(start..)?;
    let is_octal = |byte: &u8| (b'0'..=b'7').contains(byte);
    let count = digits.iter().take_while(|byte| is_octal(byte)).count();
    let (digits, rest) = digits.split_at_checked(count)?;
    let ends = rest.first().is_none_or(|byte| *byte == 0 || is_space(byte));
    ends.then(|| digits.iter().fold(0, |sum, digit| sum << 3 | i64::from(digit - b'0')))
}

fn is_space(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == b'\x0b'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_a_text_is() {
        for (text, media_type) in [
            (&b"a\n<html>\0"[..], Some("text/html")),
            (b"read the book\0", Some("text/plain")),
            (b"From: a\nReceived: b\0", Some("message/rfc822")),
            (b"Path: a\0", Some("message/news")),
            (b".TH A 1\0", Some("application/x-troff")),
            (b".\\\" a\0", None),
            (b"c a\0", Some("text/plain")),
            (b"a <html>b\0", None),
            (b"a\0the\0", None),
            (b"\0", None),
        ] {
            assert_eq!(find(text), media_type, "{}", String::from_utf8_lossy(text));
        }
        let far = [&[b'x'; SEARCHED - 1][..], b" the \0"].concat();
        assert_eq!(find(&far), None);
    }

    #[test]
    fn a_tar_archive_has_a_checksum() {
        let mut record = [0; TAR_RECORD + 1];
        record[0] = b'a';
        record[TAR_CHECKSUM].copy_from_slice(b"        ");
        let sum: u32 = record.iter().map(|byte| u32::from(*byte)).sum();
        record[TAR_CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert_eq!(find(&record), Some("application/x-tar"));
        record[1] = b'b';
        assert_eq!(find(&record), None);
    }
}
