//! Finds the elements of a page: `<!--#name argument="value" -->` (mod_include.c:
//! send_parsed_content and the functions that it calls). Nothing looks at the text between them.

use memchr::memmem::Finder;

/// The tags between which an element stands (SSIStartTag, SSIEndTag).
#[derive(Debug)]
pub struct Tags {
    start: Finder<'static>,
    end: Box<[u8]>,
}

/// An element.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// The name in lower case; empty if it is missing.
    pub name: Vec<u8>,
    /// The arguments in their order.
    pub arguments: Vec<Argument>,
    /// The number of values that have no name.
    pub nameless: usize,
}

/// An argument of an element.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Argument {
    /// The name in lower case.
    pub name: Vec<u8>,
    /// The value, if there is one.
    pub value: Option<Vec<u8>>,
}

impl Tags {
    /// Elements between these tags.
    #[must_use]
    pub fn new(start: &[u8], end: &[u8]) -> Self {
        Self { start: Finder::new(start).into_owned(), end: end.into() }
    }

    /// The tag before an element.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        self.start.needle()
    }

    /// The offset of the first start tag.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        // An empty tag stands nowhere.
        if self.start().is_empty() { None } else { self.start.find(text) }
    }

    /// The number of bytes at the end of a text that may be the beginning of a start tag.
    #[must_use]
    pub fn begun(&self, text: &[u8]) -> usize {
        let longest = self.start().len().saturating_sub(1).min(text.len());
        let is_begun =
            |length: &usize| text.get(text.len() - length..) == self.start().get(..*length);
        (1..=longest).rev().find(is_begun).unwrap_or(0)
    }

    /// Parses the element behind a start tag. Returns it with the bytes that it takes, its end tag
    /// included, or none if it is not complete.
    #[must_use]
    pub fn element(&self, text: &[u8]) -> Option<(usize, Element)> {
        let mut cursor = Cursor { text, at: 0 };
        let mut element = Element::default();
        let is_over = loop {
            if cursor.takes(&self.end) {
                break true;
            }
            match cursor.next()? {
                byte if is_space(byte) => break false,
                byte => element.name.push(byte.to_ascii_lowercase()),
            }
        };
        if is_over {
            return Some((cursor.at, element));
        }
        loop {
            cursor.skip_space();
            if cursor.takes(&self.end) {
                break;
            }
            // The end tag may still be coming.
            if cursor.rest().len() < self.end.len() && self.end.starts_with(cursor.rest()) {
                return None;
            }
            element.take_argument(&mut cursor)?;
        }
        Some((cursor.at, element))
    }
}

impl Element {
    fn take_argument(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let mut argument = Argument::default();
        if matches!(cursor.peek()?, b'"' | b'\'' | b'`') {
            self.nameless += 1;
            argument.value = Some(cursor.value()?);
            self.arguments.push(argument);
            return Some(());
        }
        loop {
            match cursor.peek()? {
                b'=' => break,
                byte if is_space(byte) => break,
                byte => argument.name.push(byte.to_ascii_lowercase()),
            }
            cursor.at += 1;
        }
        self.nameless += usize::from(argument.name.is_empty());
        cursor.skip_space();
        if cursor.peek()? == b'=' {
            cursor.at += 1;
            cursor.skip_space();
            argument.value = Some(cursor.value()?);
        }
        self.arguments.push(argument);
        Some(())
    }
}

/// A place in a text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Steps over `tag`, if it stands here.
    fn takes(&mut self, tag: &[u8]) -> bool {
        let stands_here = self.rest().starts_with(tag);
        self.at += if stands_here { tag.len() } else { 0 };
        stands_here
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    /// A value, in quotes or up to a space. In quotes, a backslash lets the quote be part of the
    /// value.
    fn value(&mut self) -> Option<Vec<u8>> {
        let quote = self.peek().filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
        self.at += usize::from(quote.is_some());
        let mut value = Vec::new();
        loop {
            let byte = self.next()?;
            match quote {
                Some(quote) if byte == quote => return Some(value),
                Some(quote) if byte == b'\\' && self.peek()? == quote => {
                    self.at += 1;
                    value.push(quote);
                }
                None if is_space(byte) => return Some(value),
                _ => value.push(byte),
            }
        }
    }
}

/// The white space of isspace(3) in the C locale.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags() -> Tags {
        Tags::new(b"<!--#", b"-->")
    }

    fn parsed(text: &str) -> Option<(usize, String)> {
        let (length, element) = tags().element(text.as_bytes())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut shown = text(&element.name);
        for argument in &element.arguments {
            shown += &format!(" {}", text(&argument.name));
            if let Some(value) = &argument.value {
                shown += &format!("=[{}]", text(value));
            }
        }
        Some((length, format!("{shown}{}", "!".repeat(element.nameless))))
    }

    #[test]
    fn elements_are_taken_apart() {
        for (text, shown) in [
            ("echo var=\"A\" -->rest", "echo var=[A]"),
            ("ECHO Var = 'A' enc=x -->", "echo var=[A] enc=[x]"),
            ("printenv-->", "printenv"),
            ("else -->", "else"),
            ("a--->", "a-"),
            ("set var=\"a\\\"b\" value=`c\\d`-->", "set var=[a\"b] value=[c\\d]"),
            ("echo var=x-->more -->", "echo var=[x-->more]"),
            ("echo var - x -->", "echo var - x"),
            ("echo \"A\" -->", "echo =[A]!"),
            ("echo =\"A\" -->", "echo =[A]!"),
            (" -->", ""),
            ("-->", ""),
            ("include virtual=\"/x\"virtual='y'-->", "include virtual=[/x] virtual=[y]"),
        ] {
            assert_eq!(parsed(text).map(|it| it.1), Some(shown.into()), "{text}");
        }
        assert_eq!(parsed("else --> rest").map(|it| it.0), Some(8));
        let unfinished =
            ["", "echo", "echo ", "echo var", "echo var=", "echo var=\"A\"", "echo a -", "x --"];
        for text in unfinished {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn a_start_tag_may_be_split() {
        let tags = Tags::new(b"--->", b"-->");
        assert_eq!((tags.begun(b"a--"), tags.begun(b"a---"), tags.begun(b"a")), (2, 3, 0));
        assert_eq!((tags.begun(b"----"), tags.find(b"a---->b")), (3, Some(2)));
        assert_eq!(Tags::new(b"", b"").find(b"abc"), None);
    }
}
