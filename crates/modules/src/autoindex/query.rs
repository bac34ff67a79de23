//! What the query of a request asks of a listing: `C=` column, `O=` order, `F=` format, `V=`
//! version sort, `P=` pattern. The query string and the settings go in, how this listing is made
//! comes out (mod_autoindex.c: index_directory).

use super::options::Flags;
use super::settings::{Key, Order, Said};
use evenkeel_expr::{GlobStyle, glob};

/// How one listing is made.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub(super) order: Order,
    pub(super) flags: Flags,
    /// Names that are listed, in the form of [`glob`]; all where there is none.
    pattern: Option<Vec<u8>>,
    /// What the links that sort add to their query, to keep what was asked.
    pub(super) kept: Vec<u8>,
}

impl Asked {
    /// Reads a query. What follows the first part that is none of a listing's is not read.
    #[must_use]
    pub fn parse(said: &Said, query: Option<&[u8]>) -> Self {
        let flags = said.options.flags();
        let mut asked = Self { order: said.order.unwrap_or_default(), flags, ..Self::default() };
        if flags.has(Flags::IGNORE_CLIENT) {
            asked.flags = flags | Flags::SUPPRESS_SORTING;
            return asked;
        }
        let mut kept = Kept::default();
        for part in query.unwrap_or_default().split(|byte| matches!(byte, b'&' | b';')) {
            if !asked.take(part, &mut kept) {
                break;
            }
        }
        asked.kept = [kept.format, kept.version, kept.pattern].concat();
        asked
    }

    /// Takes one part into account; false where it is none.
    fn take(&mut self, part: &[u8], kept: &mut Kept) -> bool {
        if let Some(pattern) = part.strip_prefix(b"P=") {
            self.narrow(pattern, kept);
            return true;
        }
        let &[name, b'=', value] = part else { return false };
        match (name, value) {
            (b'C', b'N') => self.order.key = Key::Name,
            (b'C', b'M') => self.order.key = Key::Modified,
            (b'C', b'S') => self.order.key = Key::Size,
            (b'C', b'D') => self.order.key = Key::Description,
            (b'O', b'A' | b'D') => self.order.descending = value == b'D',
            (b'F', b'0'..=b'2') => {
                let fancy = self.flags.switched(Flags::FANCY, value != b'0');
                self.flags = fancy.switched(Flags::TABLE, value == b'2');
                kept.format = vec![b';', b'F', b'=', value];
            }
            (b'V', b'0' | b'1') => {
                self.flags = self.flags.switched(Flags::VERSION_SORT, value == b'1');
                kept.version = vec![b';', b'V', b'=', value];
            }
            _ => return false,
        }
        true
    }

    /// Lists only names that fit. A pattern that cannot be decoded is none.
    fn narrow(&mut self, escaped: &[u8], kept: &mut Kept) {
        self.pattern = None;
        let Some(pattern) = unescape(escaped).filter(|pattern| !pattern.is_empty()) else {
            return;
        };
        kept.pattern = b";P=".to_vec();
        evenkeel_proto::escape_uri(&mut kept.pattern, &pattern);
        // A backslash is one (APR_FNM_NOESCAPE).
        let doubled = |byte: u8| if byte == b'\\' { vec![byte, byte] } else { vec![byte] };
        self.pattern = Some(pattern.into_iter().flat_map(doubled).collect());
    }

    /// Whether a name is one of those that were asked for. A dot at its start must be named
    /// (APR_FNM_PERIOD).
    pub(super) fn names(&self, name: &[u8]) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        let is_hidden = name.starts_with(b".") && !pattern.starts_with(b".");
        !is_hidden && glob(pattern, name, GlobStyle::default())
    }
}

/// What goes into the links that sort.
#[derive(Default)]
struct Kept {
    format: Vec<u8>,
    version: Vec<u8>,
    pattern: Vec<u8>,
}

/// Decodes `%XX`; none for what is no escape, and for an escaped slash or NUL (ap_unescape_url).
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = u8::try_from(digit()? * 16 + digit()?).ok()?;
        if matches!(value, b'/' | 0) {
            return None;
        }
        out.push(value);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Asked {
        Asked::parse(&Said::default(), Some(query.as_bytes()))
    }

    #[test]
    fn parts_are_read_until_one_is_not_known() {
        let got = asked("C=S;O=D&F=2;V=1");
        assert_eq!(got.order, Order { key: Key::Size, descending: true });
        assert!(got.flags.has(Flags::TABLE) && got.flags.has(Flags::FANCY));
        assert!(got.flags.has(Flags::VERSION_SORT));
        assert_eq!(got.kept, b";F=2;V=1");
        assert_eq!(asked("C=X;O=D").order, Order::default());
        assert_eq!(asked("x=1&C=S").order, Order::default());
        assert_eq!(asked("C=SS").order, Order::default());
        assert!(!asked("F=2;F=1").flags.has(Flags::TABLE));
    }

    #[test]
    fn patterns_choose_names() {
        let got = asked("P=%2a.t%3Ft;O=D");
        assert!(got.names(b"a.txt") && !got.names(b"a.html") && !got.names(b".a.txt"));
        assert_eq!(got.kept, b";P=*.t%3ft");
        assert!(got.order.descending);
        assert!(asked("P=a%2fb").names(b"x") && asked("P=%zz").names(b"x"));
        assert!(asked("P=.*").names(b".a") && !asked("P=\\a").names(b"a"));
        assert!(asked("P=").names(b"x") && asked("P=").kept.is_empty());
    }
}
