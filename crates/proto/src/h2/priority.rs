//! The priority of a response (RFC 9218): the field Priority and the frame PRIORITY_UPDATE.

/// How urgent a response is, and whether the client can process it incrementally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priority {
    /// From 0, the most urgent, to 7.
    pub(crate) urgency: u8,
    pub(crate) incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Parses a dictionary of structured fields (RFC 9651, section 3.2). Unknown members and
    /// members of other types are ignored (RFC 9218, section 4).
    pub(crate) fn read(&mut self, field: &[u8]) {
        for member in field.split(|byte| *byte == b',') {
            let member = member.trim_ascii();
            let member = member.split(|byte| *byte == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', urgency @ b'0'..=b'7'] => self.urgency = urgency - b'0',
                b"i" | b"i=?1" => self.incremental = true,
                b"i=?0" => self.incremental = false,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(field: &str) -> (u8, bool) {
        let mut priority = Priority::default();
        priority.read(field.as_bytes());
        (priority.urgency, priority.incremental)
    }

    #[test]
    fn what_is_not_understood_does_not_count() {
        assert_eq!(read(""), (3, false));
        assert_eq!(read("u=0"), (0, false));
        assert_eq!(read("u=5, i"), (5, true));
        assert_eq!(read("i=?0, u=7;x=1"), (7, false));
        assert_eq!(read("u=8, i=1, x=2"), (3, false));
        assert_eq!(read("u=1,u=2"), (2, false));
    }
}
