//! Wildcard patterns by the rules of `apr_fnmatch`: `*`, `?`, `[a-z]`, `[!a-z]` and `\` before a
//! literal. The time is bounded by the product of the two lengths, whatever the pattern.

/// How a wildcard pattern treats slashes and letters.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GlobStyle {
    /// Whether wildcards do not match a slash (`APR_FNM_PATHNAME`).
    pub path: bool,
    /// Whether case is ignored (`APR_FNM_CASE_BLIND`).
    pub ignore_case: bool,
}

/// Whether a text contains wildcards, so that it is compared as a pattern and not literally (APR:
/// apr_fnmatch_test): `*`, `?`, or a `[` with a `]` after it, none of them after a backslash.
#[must_use]
pub fn is_glob(text: &[u8]) -> bool {
    let mut bracket = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'*' | b'?' => return true,
            b'\\' => {
                let _escaped = bytes.next();
            }
            b'[' => bracket = true,
            b']' if bracket => return true,
            _ => {}
        }
    }
    false
}

/// A pattern that many subjects are compared with. Most patterns end with a text without wildcards,
/// such as `*.html`, and most subjects end differently, so comparing the ends decides most cases.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Glob {
    pattern: Box<[u8]>,
    style: GlobStyle,
    /// The start of the text at the end of the pattern that has no wildcards.
    tail: usize,
    /// Whether everything before it is a single `*` that matches any text.
    is_suffix: bool,
}

impl Glob {
    /// A pattern with the meaning of [`glob`].
    #[must_use]
    pub fn new(pattern: impl Into<Box<[u8]>>, style: GlobStyle) -> Self {
        let pattern = pattern.into();
        let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\');
        let tail = match pattern.iter().rposition(special) {
            // The character after a backslash belongs to the backslash.
            Some(at) if pattern.get(at) == Some(&b'\\') => pattern.len().min(at + 2),
            Some(at) => at + 1,
            None => 0,
        };
        let is_suffix = tail == 1 && pattern.first() == Some(&b'*') && !style.path;
        Self { pattern, style, tail, is_suffix }
    }

    /// The pattern.
    #[must_use]
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// Whether the whole subject matches, as for [`glob`].
    #[must_use]
    pub fn matches(&self, subject: &[u8]) -> bool {
        let tail = self.pattern.get(self.tail..).unwrap_or_default();
        let end = subject.len().checked_sub(tail.len()).and_then(|start| subject.get(start..));
        let is_end = |end: &[u8]| match self.style.ignore_case {
            true => end.eq_ignore_ascii_case(tail),
            false => end == tail,
        };
        end.is_some_and(is_end) && (self.is_suffix || glob(&self.pattern, subject, self.style))
    }
}

/// Whether the whole subject matches the pattern.
#[must_use]
pub fn glob(pattern: &[u8], subject: &[u8], style: GlobStyle) -> bool {
    let (mut rest, mut text) = (pattern, subject);
    // The last star: the pattern after it, and the position in the subject where it was last tried.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', after)) = rest.split_first().map(|(first, after)| (*first, after)) {
            star = Some((after, text));
            rest = after;
            continue;
        }
        match (rest.is_empty(), text.split_first()) {
            (true, None) => return true,
            (false, Some((byte, text_after))) => {
                if let Some(pattern_after) = step(rest, *byte, style) {
                    (rest, text) = (pattern_after, text_after);
                    continue;
                }
            }
            _ => {}
        }
        // The star takes one more byte, which may not be a slash in a path.
        let Some((after, from)) = star else { return false };
        let Some((skipped, from_after)) = from.split_first() else { return false };
        if style.path && *skipped == b'/' {
            return false;
        }
        star = Some((after, from_after));
        (rest, text) = (after, from_after);
    }
}

/// Matches one byte with the first element of the pattern. Returns the pattern after that element.
fn step(pattern: &[u8], byte: u8, style: GlobStyle) -> Option<&[u8]> {
    let (head, after) = pattern.split_first()?;
    let slash = style.path && byte == b'/';
    match *head {
        b'?' => (!slash).then_some(after),
        b'[' => match bracket(after, byte, style) {
            Some((inside, after)) => (inside && !slash).then_some(after),
            // A bracket that is never closed stands for itself.
            None => (byte == b'[').then_some(after),
        },
        b'\\' => match after.split_first() {
            Some((literal, after)) => same(*literal, byte, style).then_some(after),
            None => (byte == b'\\').then_some(after),
        },
        literal => same(literal, byte, style).then_some(after),
    }
}

/// Parses a set up to its closing bracket. Returns whether it contains the byte, and what follows
/// it.
fn bracket(set: &[u8], byte: u8, style: GlobStyle) -> Option<(bool, &[u8])> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let mut rest = set.get(usize::from(negated)..)?;
    let mut inside = false;
    let mut first = true;
    loop {
        let (low, after) = member(rest)?;
        // A set does not extend beyond a segment.
        if style.path && low == b'/' {
            return None;
        }
        // A bracket that comes first is a member of the set.
        if rest.first() == Some(&b']') && !first {
            return Some((inside != negated, after));
        }
        first = false;
        let mut high = low;
        rest = after;
        if after.first() == Some(&b'-') && !matches!(after.get(1), None | Some(b']')) {
            (high, rest) = member(after.get(1..)?)?;
        }
        inside |= between(low, byte, high, style);
    }
}

/// Parses one member of a set. A backslash makes the next byte stand for itself.
fn member(set: &[u8]) -> Option<(u8, &[u8])> {
    let (head, after) = set.split_first()?;
    if *head == b'\\' {
        let (literal, after) = after.split_first()?;
        return Some((*literal, after));
    }
    Some((*head, after))
}

fn same(left: u8, right: u8, style: GlobStyle) -> bool {
    left == right || (style.ignore_case && left.eq_ignore_ascii_case(&right))
}

fn between(low: u8, byte: u8, high: u8, style: GlobStyle) -> bool {
    if (low..=high).contains(&byte) {
        return true;
    }
    let lower = low.to_ascii_lowercase()..=high.to_ascii_lowercase();
    style.ignore_case && lower.contains(&byte.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_compiled_pattern_matches_what_the_pattern_matches(
            pattern in r"[ab/*?\[\]\\!-]{0,8}",
            subject in r"[abA/*\[\]\\-]{0,8}",
            (path, ignore_case) in (any::<bool>(), any::<bool>()),
        ) {
            let style = GlobStyle { path, ignore_case };
            let compiled = Glob::new(pattern.as_bytes(), style);
            let wanted = glob(pattern.as_bytes(), subject.as_bytes(), style);
            prop_assert_eq!(compiled.matches(subject.as_bytes()), wanted);
        }
    }

    const PLAIN: GlobStyle = GlobStyle { path: false, ignore_case: false };
    const PATH: GlobStyle = GlobStyle { path: true, ignore_case: false };
    const BLIND: GlobStyle = GlobStyle { path: false, ignore_case: true };

    #[test]
    fn wildcards_match_as_apr_fnmatch_does() {
        let table: &[(&str, &str, GlobStyle, bool)] = &[
            ("", "", PLAIN, true),
            ("*", "", PLAIN, true),
            ("", "a", PLAIN, false),
            ("?", "", PLAIN, false),
            ("a*b*c", "a-b-b-c", PLAIN, true),
            ("*.html", "a.html.html", PLAIN, true),
            ("a*", "a/b", PLAIN, true),
            ("a*", "a/b", PATH, false),
            ("a/*", "a/b", PATH, true),
            ("*/*/c", "a/b/c", PATH, true),
            ("*/c", "a/b/c", PATH, false),
            ("a?b", "a/b", PATH, false),
            ("a[/]b", "a/b", PATH, false),
            ("a[/]b", "a[/]b", PATH, true),
            ("a[x/]b", "a[x/]b", PATH, true),
            ("a[+-0]b", "a/b", PATH, false),
            ("[a-c]", "b", PLAIN, true),
            ("[!a-c]", "b", PLAIN, false),
            ("[^a-c]", "d", PLAIN, true),
            ("[]]", "]", PLAIN, true),
            ("[]a]", "a", PLAIN, true),
            ("[a-]", "-", PLAIN, true),
            ("[\\]]", "]", PLAIN, true),
            ("a[c", "a[c", PLAIN, true),
            ("a\\*", "a*", PLAIN, true),
            ("a\\*", "ab", PLAIN, false),
            ("a\\", "a\\", PLAIN, true),
            ("A*Z", "abcz", BLIND, true),
            ("[A-C]", "b", BLIND, true),
            ("A", "a", PLAIN, false),
        ];
        for (pattern, subject, style, expected) in table {
            let found = glob(pattern.as_bytes(), subject.as_bytes(), *style);
            assert_eq!(found, *expected, "{pattern} on {subject}");
        }
    }

    #[test]
    fn texts_with_wildcards_are_told_from_others() {
        for glob in ["*", "a?", "[a]", "a[/]b", "[]", "\\\\*", "[\\[]"] {
            assert!(is_glob(glob.as_bytes()), "{glob}");
        }
        for text in ["", "/mixed[", "a]b[", "a\\*", "\\?", "a\\[b]", "[a\\]", "a\\"] {
            assert!(!is_glob(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn many_stars_end_in_bounded_time() {
        let pattern = "*a".repeat(2000);
        let subject = "a".repeat(20_000) + "b";
        assert!(!glob(pattern.as_bytes(), subject.as_bytes(), PLAIN));
    }
}
