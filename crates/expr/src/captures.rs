//! The groups `$0` to `$9` of a match, and templates that contain them. The subject is copied, so
//! that captures outlive the buffers of the request.

/// A template with its groups is cut off at this many bytes (util.c: AP_PREGSUB_MAXLEN). Without a
/// bound, two groups in one line double what the previous line has set.
const LONGEST: usize = 64 * 1024;

/// The number of groups that Apache keeps of a match: the whole and nine more (`AP_MAX_REG_MATCH`).
pub const GROUPS: usize = 10;

/// The groups of the last match. Before the first match all are empty.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    subject: Vec<u8>,
    spans: [Option<(usize, usize)>; GROUPS],
}

impl Captures {
    /// The bytes of a group; empty if the group did not take part or does not exist.
    #[must_use]
    pub fn group(&self, number: usize) -> &[u8] {
        let span = self.spans.get(number).copied().flatten();
        span.and_then(|(from, to)| self.subject.get(from..to)).unwrap_or_default()
    }

    /// The start and end of a group in the subject; None if the group did not take part.
    #[must_use]
    pub fn span(&self, number: usize) -> Option<(usize, usize)> {
        self.spans.get(number).copied().flatten()
    }

    /// Removes the match.
    pub fn clear(&mut self) {
        self.subject.clear();
        self.spans = [None; GROUPS];
    }

    /// Stores a match of the subject. Groups after the ninth are dropped.
    pub(crate) fn keep(
        &mut self,
        subject: &[u8],
        spans: impl Iterator<Item = Option<(usize, usize)>>,
    ) {
        self.clear();
        self.subject.extend_from_slice(subject);
        for (place, span) in self.spans.iter_mut().zip(spans) {
            *place = span;
        }
    }

    /// Appends the template with `$0` to `$9` replaced. A backslash makes the next byte stand for
    /// itself. The rules are those of `ap_pregsub` (server/util.c).
    pub fn substitute(&self, template: &[u8], out: &mut Vec<u8>) {
        let most = out.len().saturating_add(LONGEST);
        let mut bytes = template.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match (byte, bytes.peek().copied()) {
                (b'$', Some(digit @ b'0'..=b'9')) => {
                    bytes.next();
                    let group = self.group(usize::from(digit - b'0'));
                    let room = most.saturating_sub(out.len());
                    out.extend_from_slice(group.get(..room).unwrap_or(group));
                }
                (b'\\', Some(literal)) => {
                    bytes.next();
                    out.push(literal);
                }
                _ => out.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_as_ap_pregsub_does() {
        let mut captures = Captures::default();
        captures.keep(b"/rabc", [Some((0, 5)), Some((2, 5)), None].into_iter());
        let mut out = Vec::new();
        captures.substitute(br"http://x/&\$1$1\&\q$12$2$9$a$\", &mut out);
        assert_eq!(out, br"http://x/&$1abc&qabc2$a$\");
        captures.keep(&[b'x'; LONGEST], [Some((0, LONGEST))].into_iter());
        let mut filled = b"before".to_vec();
        captures.substitute(b"a$0$0$0", &mut filled);
        assert_eq!(filled.len(), 6 + LONGEST);
        captures.clear();
        assert_eq!(captures.group(0), b"");
        assert_eq!(captures.group(10), b"");
    }
}
