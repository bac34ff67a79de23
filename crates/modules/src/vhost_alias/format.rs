//! The format of a directory name such as `/www/%2+/%1.1`. It is parsed from the configuration, and
//! expanded with the parts of a host name or address.

use std::ops::Range;

/// The maximum number of parts of a name. The last part contains the rest of the name
/// (mod_vhost_alias.c: MAXDOTS).
const MOST_DOTS: usize = 19;

/// A format.
#[derive(Debug)]
pub struct Format(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(Vec<u8>),
    /// `%p`.
    Port,
    /// `%N` and `%N.M`: parts of the name, and letters of these parts.
    Name(Choice, Option<Choice>),
}

/// `3`, `-3`: one element, counted from the start or from the end. `3+` also selects all elements
/// after it, `-3+` all before it; 0 selects all elements.
#[derive(Clone, Copy, Debug)]
struct Choice {
    number: usize,
    from_end: bool,
    and_others: bool,
}

impl Format {
    /// Parses a format. Returns `None` if its syntax is invalid.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            let literal = match (first, behind.first()) {
                (b'%', Some(b'%')) => {
                    rest = behind.get(1..)?;
                    b'%'
                }
                (b'%', Some(b'p')) => {
                    rest = behind.get(1..)?;
                    parts.push(Part::Port);
                    continue;
                }
                (b'%', _) => {
                    let name = Choice::parse(&mut rest)?;
                    let letters = match rest.strip_prefix(b".") {
                        Some(behind) => {
                            rest = behind;
                            Some(Choice::parse(&mut rest)?)
                        }
                        None => None,
                    };
                    parts.push(Part::Name(name, letters));
                    continue;
                }
                (byte, _) => *byte,
            };
            match parts.last_mut() {
                Some(Part::Text(text)) => text.push(literal),
                _ => parts.push(Part::Text(vec![literal])),
            }
        }
        Some(Self(parts))
    }

    /// Expands the format. A part that does not exist is `_`, and a slash at the end is removed
    /// (mod_vhost_alias.c: vhost_alias_interpolate).
    pub fn fill(&self, name: &[u8], port: u16) -> Vec<u8> {
        // The start of each part of the name, and the position after the last part and its dot.
        let dots = name.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at + 1);
        let mut begins: Vec<usize> = std::iter::once(0).chain(dots.take(MOST_DOTS - 1)).collect();
        let count = begins.len();
        begins.push(name.len() + 1);
        let mut filled = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.extend_from_slice(text),
                Part::Port => filled.extend_from_slice(port.to_string().as_bytes()),
                Part::Name(choice, letters) => {
                    let chosen = choice.of(count).map(|parts| {
                        let at = |index: usize| begins.get(index).copied().unwrap_or_default();
                        at(parts.start)..at(parts.end).saturating_sub(1)
                    });
                    let text = chosen.and_then(|chosen| name.get(chosen)).unwrap_or(b"_");
                    let text = match letters {
                        Some(letters) => {
                            let chosen = letters.of(text.len());
                            chosen.and_then(|chosen| text.get(chosen)).unwrap_or(b"_")
                        }
                        None => text,
                    };
                    filled.extend(text.iter().map(u8::to_ascii_lowercase));
                }
            }
        }
        if filled.ends_with(b"/") {
            filled.pop();
        }
        filled
    }
}

impl Choice {
    /// Parses a choice and removes it from `rest`.
    fn parse(rest: &mut &[u8]) -> Option<Self> {
        let mut take = |byte: u8| {
            let behind = rest.strip_prefix(&[byte]);
            *rest = behind.unwrap_or(rest);
            behind.is_some()
        };
        let from_end = take(b'-');
        let digit = (b'0'..=b'9').find(|digit| take(*digit))?;
        let and_others = take(b'+');
        Some(Self { number: usize::from(digit - b'0'), from_end, and_others })
    }

    /// Returns the range of the chosen elements, or `None` if there are too few.
    fn of(self, count: usize) -> Option<Range<usize>> {
        let Self { number, from_end, and_others } = self;
        if number == 0 {
            return Some(0..count);
        }
        let index = match from_end {
            true => count.checked_sub(number)?,
            false => number - 1,
        };
        if index >= count {
            return None;
        }
        Some(match (from_end, and_others) {
            (false, true) => index..count,
            (true, true) => 0..index + 1,
            (_, false) => index..index + 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(format: &str, name: &str) -> String {
        let format = Format::parse(format.as_bytes()).unwrap();
        String::from_utf8(format.fill(name.as_bytes(), 8080)).unwrap()
    }

    #[test]
    fn parts_and_letters_are_counted_from_both_ends() {
        for (format, expected) in [
            ("/%0/", "/www.example.test"),
            ("/%1/%-1", "/www/test"),
            ("/%2+", "/example.test"),
            ("/%-2+", "/www.example"),
            ("/%4/%-4", "/_/_"),
            ("/%2.1/%2.2/%2.-1", "/e/x/e"),
            ("/%2.3+", "/ample"),
            ("/%2.-3+", "/examp"),
            ("/%1.4/%1.0", "/_/www"),
            ("/%4.1", "/_"),
            ("/%4.2", "/_"),
            ("/%-2.0", "/example"),
            ("/%0.1/%%p/%p", "/w/%p/8080"),
        ] {
            assert_eq!(filled(format, "WWW.example.test"), expected, "{format}");
        }
        assert_eq!(filled("/%1/%2", ""), "//_");
        let many = "a.".repeat(30);
        assert_eq!(filled("/%-1", &many), format!("/{}", "a.".repeat(12)));
    }

    #[test]
    fn a_broken_format_is_none() {
        for text in ["/%", "/%x", "/%-", "/%1.", "/%1.x", "/%+1"] {
            assert!(Format::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Format::parse(b"/a%%b%1.2+%-3+.-4").is_some());
    }
}
