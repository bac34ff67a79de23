//! Splits a configuration file into logical lines: joins continued lines, trims white space at both
//! ends, and counts lines as Apache does. A line is text; a byte that is not part of UTF-8 is
//! [`quoted`] in it.

use evenkeel_message::quoted;

/// The most bytes of a logical line, as in Apache (server/config.c, VARBUF_MAX_LEN).
pub(crate) const LINE_LIMIT: usize = 16 * 1024 * 1024;

/// The most bytes of a logical line in an .htaccess file (HUGE_STRING_LEN).
pub(crate) const HTACCESS_LINE_LIMIT: usize = 8192;

/// A logical line is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The logical lines of one text.
#[derive(Debug)]
pub(crate) struct Lines {
    text: Vec<u8>,
    at: usize,
    /// The number of physical lines taken, which is the number of the last line returned.
    pub(crate) line: u32,
}

impl Lines {
    pub(crate) fn new(text: Vec<u8>) -> Self {
        Self { text, at: 0, line: 0 }
    }

    /// The next logical line, or None at the end. `limit` bounds its bytes, including its white
    /// space and its line end.
    ///
    /// Source: server/util.c, ap_varbuf_cfg_getline, ap_cfg_getline_core and cfg_trim_line. A
    /// backslash before the line end continues the line, whatever precedes the backslash. A NUL
    /// hides the rest of its line.
    pub(crate) fn take(&mut self, limit: usize) -> Option<Result<String, TooLong>> {
        let mut logical: Vec<u8> = Vec::new();
        let mut continued = false;
        loop {
            self.line = self.line.saturating_add(1);
            let Some((piece, end_bytes)) = self.physical() else {
                if !continued {
                    return None;
                }
                break;
            };
            logical.extend_from_slice(piece);
            if end_bytes == 0 || logical.last() != Some(&b'\\') {
                if logical.len() + end_bytes > limit {
                    return Some(Err(TooLong));
                }
                break;
            }
            logical.pop();
            continued = true;
        }
        Some(Ok(quoted(logical.trim_ascii()).into_owned()))
    }

    /// The next physical line without its end, and the number of bytes of that end: none at the end
    /// of the text and after a NUL.
    fn physical(&mut self) -> Option<(&[u8], usize)> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let whole = match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) => rest.get(..=end)?,
            None => rest,
        };
        self.at += whole.len();
        if let Some(nul) = whole.iter().position(|byte| *byte == 0) {
            return Some((whole.get(..nul)?, 0));
        }
        let line = match whole.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => whole,
        };
        Some((line, whole.len() - line.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::unquoted;

    fn all(text: &[u8]) -> Vec<(u32, String)> {
        let mut lines = Lines::new(text.to_vec());
        std::iter::from_fn(|| {
            let line = lines.take(LINE_LIMIT)?.unwrap();
            Some((lines.line, line))
        })
        .collect()
    }

    #[test]
    fn continued_lines_join_and_count() {
        let want = vec![(3, "a  b c".into()), (4, "d".into())];
        assert_eq!(all(b"  a \\\n b \\\r\nc\t\r\nd"), want);
        assert_eq!(all(b"a\\\\\nb"), vec![(2, "a\\b".into())]);
    }

    #[test]
    fn a_backslash_at_the_end_of_the_text_continues_nothing() {
        assert_eq!(all(b"a\\\n"), vec![(2, "a".into())]);
        assert_eq!(all(b"a\\"), vec![(1, "a\\".into())]);
        assert_eq!(all(b""), vec![]);
        assert_eq!(all(b"\n"), vec![(1, String::new())]);
    }

    #[test]
    fn a_nul_hides_the_rest_of_its_line() {
        assert_eq!(all(b"a\0b\\\nc"), vec![(1, "a".into()), (2, "c".into())]);
    }

    #[test]
    fn bytes_that_are_not_utf8_come_back() {
        let lines = all(b"caf\xe9 \xc3\xa9\ncaf\xc3\xa9");
        assert_eq!(*unquoted(&lines[0].1), *b"caf\xe9 \xc3\xa9");
        assert_eq!(lines[1], (2, "café".into()));
    }

    #[test]
    fn a_line_has_a_limit() {
        let mut lines = Lines::new(b"12345\n1234\n".to_vec());
        assert_eq!(lines.take(5), Some(Err(TooLong)));
        assert_eq!(lines.take(5), Some(Ok("1234".into())));
        // White space and the line end count; a backslash that continues the line does not.
        let taken = |text: &[u8]| Lines::new(text.to_vec()).take(5).unwrap().is_ok();
        assert!(
            taken(b"12345") && taken(b"123\r\n") && taken(b"12\\\n34\n") && taken(b"1\x00234567\n")
        );
        assert!(!taken(b"1234\r\n") && !taken(b"12\\\n345\n") && !taken(b"1     \n"));
    }
}
