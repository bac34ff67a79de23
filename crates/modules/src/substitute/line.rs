//! The rules of Substitute, and what they make of one line.

use evenkeel_expr::{Captures, Pattern};
use memchr::memmem;

/// What a rule finds.
#[derive(Clone, Debug)]
pub(super) enum Find {
    /// A text (`n`).
    Text {
        /// The text, which is not empty.
        text: Box<[u8]>,
        /// Whether ASCII case is ignored.
        ignore_case: bool,
    },
    /// A pattern.
    Pattern(Pattern),
}

/// One Substitute line.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) find: Find,
    pub(super) replacement: Box<[u8]>,
    /// Whether the rules behind it see the whole line (`f`), and not what is before, behind and in
    /// the replacements as texts of their own (`q`).
    pub(super) is_flat: bool,
}

/// The line, or what it becomes, has more bytes than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Appends a line as the rules change it (mod_substitute.c: do_pattmatch). A line that no rule
/// changes may have any length.
pub(super) fn substitute(
    rules: &[Rule],
    max_line: usize,
    line: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for rule in rules {
        if parts.is_empty() {
            match rule.parts(line, max_line)? {
                Some(changed) => parts = changed,
                None => continue,
            }
        } else {
            let mut next = Vec::with_capacity(parts.len());
            for part in parts {
                match rule.parts(&part, max_line)? {
                    Some(mut changed) => next.append(&mut changed),
                    None => next.push(part),
                }
            }
            parts = next;
        }
        if rule.is_flat && parts.len() > 1 {
            parts = vec![parts.concat()];
        }
    }
    match parts.is_empty() {
        true => out.extend_from_slice(line),
        false => parts.iter().for_each(|part| out.extend_from_slice(part)),
    }
    Ok(())
}

impl Rule {
    /// What a text becomes, in parts: what stands between the matches, and the replacements. None
    /// if nothing matches.
    fn parts(&self, text: &[u8], max_line: usize) -> Result<Option<Vec<Vec<u8>>>, TooLong> {
        let (mut parts, mut rest, mut length) = (Vec::new(), text, 0);
        let mut captures = Captures::default();
        while let Some((start, end)) = self.next(rest, &mut captures) {
            // Apache finds an empty match at the same place again until the line is too long.
            if start == end {
                return Err(TooLong);
            }
            let before = rest.get(..start).unwrap_or_default();
            let mut replaced = Vec::new();
            match &self.find {
                Find::Text { .. } => replaced.extend_from_slice(&self.replacement),
                Find::Pattern(_) => captures.substitute(&self.replacement, &mut replaced),
            }
            length += before.len() + replaced.len();
            if length > max_line {
                return Err(TooLong);
            }
            parts.extend([before.to_vec(), replaced]);
            rest = rest.get(end..).unwrap_or_default();
        }
        if parts.is_empty() {
            return Ok(None);
        }
        parts.push(rest.to_vec());
        Ok(Some(parts))
    }

    /// The first match in a text. A pattern that exceeds its bounds does not match.
    fn next(&self, text: &[u8], captures: &mut Captures) -> Option<(usize, usize)> {
        match &self.find {
            Find::Text { text: wanted, ignore_case: false } => {
                let start = memmem::find(text, wanted)?;
                Some((start, start + wanted.len()))
            }
            Find::Text { text: wanted, ignore_case: true } => {
                let is_it = |window: &[u8]| window.eq_ignore_ascii_case(wanted);
                let start = text.windows(wanted.len()).position(is_it)?;
                Some((start, start + wanted.len()))
            }
            Find::Pattern(pattern) => {
                let found = pattern.capture(text, captures).unwrap_or(false);
                found.then(|| captures.span(0)).flatten()
            }
        }
    }
}
