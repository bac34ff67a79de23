//! The rules of a magic file (file(1), as Apache reads it): parsed once at start, matched with the
//! beginning of a file. mod_mime_magic.c: parse, match, mget, mcheck, mprint.

use super::printed::print;

/// The bytes that a rule looks at (mod_mime_magic.c: union VALUETYPE). A rule never matches where
/// fewer bytes follow its offset.
const WINDOW: usize = 64;

/// The longest result of a rule, in bytes (MAXDESC, less the end of the text).
const LONGEST_RESULT: usize = 49;

/// The rules of a file, in order.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

/// A line that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Its line in the magic file.
    pub line: u32,
    /// Apache's number of the message.
    pub number: u16,
    /// The message.
    pub text: String,
}

/// One line.
#[derive(Debug)]
struct Rule {
    /// How many `>` it begins with.
    level: u32,
    offset: i64,
    /// The width of the number at the offset, to which the second number is added for the offset
    /// that counts.
    indirect: Option<(Width, i64)>,
    is_unsigned: bool,
    kind: Kind,
    mask: u64,
    relation: u8,
    value: Value,
    /// Whether its result follows the one before without a space.
    joins: bool,
    result: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Byte,
    Short,
    Long,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Native,
    Big,
    Little,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A type that is not known: the rule never matches.
    Unknown,
    String,
    Number(Width, Order),
    Date(Order),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    String(Vec<u8>),
}

/// The names of the types, in the order in which they are compared.
const KINDS: [(&[u8], Kind); 11] = [
    (b"byte", Kind::Number(Width::Byte, Order::Native)),
    (b"short", Kind::Number(Width::Short, Order::Native)),
    (b"long", Kind::Number(Width::Long, Order::Native)),
    (b"string", Kind::String),
    (b"date", Kind::Date(Order::Native)),
    (b"beshort", Kind::Number(Width::Short, Order::Big)),
    (b"belong", Kind::Number(Width::Long, Order::Big)),
    (b"bedate", Kind::Date(Order::Big)),
    (b"leshort", Kind::Number(Width::Short, Order::Little)),
    (b"lelong", Kind::Number(Width::Long, Order::Little)),
    (b"ledate", Kind::Date(Order::Little)),
];

impl Rules {
    /// Parses the text of a magic file.
    #[must_use]
    pub fn parse(text: &[u8]) -> (Self, Vec<Complaint>) {
        let (mut rules, mut complaints) = (Vec::new(), Vec::new());
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let mut complain = |message, text| {
                complaints.push(Complaint { line: number, number: message, text });
            };
            rules.push(Rule::parse(line, &mut complain));
        }
        (Self(rules), complaints)
    }

    /// What the first rule that matches and its continuations say of a file; none where no rule
    /// matches. `beginning` ends with a NUL that is not in the file.
    #[must_use]
    pub fn find(&self, beginning: &[u8]) -> Option<Vec<u8>> {
        let mut rules = self.0.iter().peekable();
        while let Some(rule) = rules.next() {
            let Some(window) = rule.matching(beginning) else {
                while rules.next_if(|next| next.level != 0).is_some() {}
                continue;
            };
            let mut result = Vec::new();
            rule.tell(&window, &mut result);
            let mut needs_space = !rule.result.is_empty();
            let mut level = 1;
            while let Some(next) = rules.next_if(|next| next.level != 0) {
                if next.level > level {
                    continue;
                }
                level = next.level;
                let Some(window) = next.matching(beginning) else { continue };
                if needs_space && !next.joins && !next.result.is_empty() {
                    result.push(b' ');
                    needs_space = false;
                }
                next.tell(&window, &mut result);
                needs_space |= !next.result.is_empty();
                level += 1;
            }
            return Some(result);
        }
        None
    }
}

impl Rule {
    fn parse(line: &[u8], complain: &mut impl FnMut(u16, String)) -> Self {
        let shown = |text: &[u8]| evenkeel_message::quoted(text).into_owned();
        let mut rest = Scan(line);
        let mut level = 0;
        while rest.take(b'>') {
            level += 1;
        }
        let is_indirect = level > 0 && rest.take(b'(');
        let before = rest.0;
        let offset = rest.number().unwrap_or_else(|| {
            complain(1521, format!("offset {} invalid", shown(before)));
            0
        });
        let indirect = is_indirect.then(|| rest.indirection(complain));
        while rest.0.first().is_some_and(u8::is_ascii_digit) {
            rest.skip(1);
        }
        rest.skip_spaces();
        let is_unsigned = rest.take(b'u');
        let mut rule = Self {
            level,
            // As in Apache, whose offset is an int at this point.
            offset: i64::from(offset as i32),
            indirect,
            is_unsigned,
            kind: Kind::Unknown,
            mask: u64::MAX,
            relation: b'=',
            value: Value::Number(0),
            joins: false,
            result: Vec::new(),
        };
        let Some((name, kind)) = KINDS.iter().find(|(name, _)| rest.0.starts_with(name)) else {
            complain(1524, format!("type {} invalid", shown(rest.0)));
            return rule;
        };
        rest.skip(name.len());
        rule.kind = *kind;
        if rest.take(b'&') {
            rule.mask = rule.extended(rest.number().unwrap_or(0) as u64);
        }
        rest.skip_spaces();
        let is_any = rest.0.first() == Some(&b'x') && rest.0.get(1).is_some_and(is_space);
        let relation = match rest.0.first() {
            Some(relation @ (b'>' | b'<' | b'&' | b'^' | b'=')) => Some(*relation),
            Some(b'!') if rule.kind != Kind::String => Some(b'!'),
            _ => is_any.then_some(b'x'),
        };
        if let Some(relation) = relation {
            rule.relation = relation;
            rest.skip(1);
        }
        if !is_any {
            rest.skip_spaces();
            rule.value = match rule.kind {
                Kind::String => Value::String(rest.string(complain)),
                _ => Value::Number(rule.extended(rest.number().unwrap_or(0) as u64)),
            };
        }
        rest.skip_spaces();
        rule.joins = rest.take(b'\x08') || rest.take_all(b"\\b");
        rule.result = rest.0.get(..LONGEST_RESULT).unwrap_or(rest.0).to_vec();
        rule
    }

    /// Extends the sign of a number, where comparisons are of signed numbers (signextend).
    fn extended(&self, number: u64) -> u64 {
        match self.kind {
            Kind::Number(Width::Byte, _) if !self.is_unsigned => number as i8 as u64,
            Kind::Number(Width::Short, _) if !self.is_unsigned => number as i16 as u64,
            _ => number,
        }
    }

    /// The bytes that the rule has looked at, with its number in the order of this machine; none if
    /// it does not match.
    fn matching(&self, beginning: &[u8]) -> Option<[u8; WINDOW]> {
        let mut window = self.window(beginning, self.offset)?;
        if let Some((width, more)) = self.indirect {
            let offset = i64::try_from(number_of(&window, width)).ok()?.checked_add(more)?;
            window = self.window(beginning, offset)?;
        }
        self.compares(&window).then_some(window)
    }

    /// The bytes at an offset (mget, mconvert).
    fn window(&self, beginning: &[u8], offset: i64) -> Option<[u8; WINDOW]> {
        let start = usize::try_from(offset).ok()?;
        let bytes = beginning.get(start..start.checked_add(WINDOW)?)?;
        let mut window: [u8; WINDOW] = bytes.try_into().ok()?;
        let [a, b, c, d, ..] = window;
        let mut put = |number: &[u8]| {
            window.iter_mut().zip(number).for_each(|(place, byte)| *place = *byte);
        };
        match self.kind {
            Kind::Unknown => return None,
            Kind::Number(_, Order::Native) | Kind::Date(Order::Native) => {}
            Kind::Number(Width::Byte, _) => {}
            Kind::Number(Width::Short, Order::Big) => {
                put(&u16::from_be_bytes([a, b]).to_ne_bytes());
            }
            Kind::Number(Width::Short, Order::Little) => {
                put(&u16::from_le_bytes([a, b]).to_ne_bytes());
            }
            // Apache computes with an int, whose sign fills a long.
            Kind::Number(Width::Long, Order::Big) | Kind::Date(Order::Big) => {
                put(&i64::from(i32::from_be_bytes([a, b, c, d])).to_ne_bytes());
            }
            Kind::Number(Width::Long, Order::Little) | Kind::Date(Order::Little) => {
                put(&i64::from(i32::from_le_bytes([a, b, c, d])).to_ne_bytes());
            }
            Kind::String => {
                if let Some(last) = window.last_mut() {
                    *last = 0;
                }
                if let Some(end) = window.iter_mut().find(|byte| **byte == b'\n') {
                    *end = 0;
                }
            }
        }
        Some(window)
    }

    /// Whether the bytes are in the relation that the rule names (mcheck).
    fn compares(&self, window: &[u8; WINDOW]) -> bool {
        // Apache takes the text `x`, and a number that is stored as that, for any value.
        let is_x = match &self.value {
            Value::String(text) => text == b"x",
            Value::Number(number) => number & 0xffff == u64::from(b'x'),
        };
        if is_x {
            return true;
        }
        let (found, value) = match &self.value {
            Value::Number(value) if self.kind != Kind::String => (self.number(window), *value),
            Value::Number(_) => (0, 0),
            Value::String(text) => {
                let pairs = text.iter().zip(window);
                let differs = pairs.map(|(own, found)| i64::from(*found) - i64::from(*own));
                (differs.into_iter().find(|it| *it != 0).unwrap_or(0) as u64, 0)
            }
        };
        let found = self.extended(found) & self.mask;
        match self.relation {
            b'x' => true,
            b'!' => found != value,
            b'=' => found == value,
            b'>' if self.is_unsigned => found > value,
            b'>' => found as i64 > value as i64,
            b'<' if self.is_unsigned => found < value,
            b'<' => (found as i64) < value as i64,
            b'&' => found & value == value,
            b'^' => found & value != value,
            _ => false,
        }
    }

    fn number(&self, window: &[u8; WINDOW]) -> u64 {
        match self.kind {
            Kind::Number(width, _) => number_of(window, width),
            Kind::Date(_) => number_of(window, Width::Long),
            Kind::String | Kind::Unknown => 0,
        }
    }

    /// Adds what the rule says (mprint).
    fn tell(&self, window: &[u8; WINDOW], result: &mut Vec<u8>) {
        let text = match (&self.value, self.kind) {
            (Value::String(value), Kind::String) if self.relation == b'=' => value.clone(),
            (_, Kind::String) => window.iter().copied().take_while(|byte| *byte != 0).collect(),
            (_, Kind::Date(_)) => {
                let seconds = self.number(window) as i64;
                let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
                let zoned = time.to_zoned(jiff::tz::TimeZone::system());
                zoned.strftime("%a %b %d %H:%M:%S %Y").to_string().into_bytes()
            }
            (_, Kind::Number(..) | Kind::Unknown) => {
                let number = self.extended(self.number(window)) & self.mask;
                return print(result, &self.result, &[], Some(number));
            }
        };
        print(result, &self.result, &text, None);
    }
}

/// The number at the beginning of a window.
fn number_of(window: &[u8; WINDOW], width: Width) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *window;
    match width {
        Width::Byte => u64::from(a),
        Width::Short => u64::from(u16::from_ne_bytes([a, b])),
        Width::Long => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
    }
}

fn is_space(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == b'\x0b'
}

/// The rest of a line.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn skip(&mut self, count: usize) {
        self.0 = self.0.get(count..).unwrap_or_default();
    }

    fn take(&mut self, byte: u8) -> bool {
        self.take_all(&[byte])
    }

    fn take_all(&mut self, text: &[u8]) -> bool {
        let is_there = self.0.starts_with(text);
        if is_there {
            self.skip(text.len());
        }
        is_there
    }

    fn skip_spaces(&mut self) {
        let spaces = self.0.iter().take_while(|byte| is_space(byte)).count();
        self.skip(spaces);
    }

    /// A number as strtol(3) reads it with the base 0; none, and nothing is taken, where there is
    /// none.
    fn number(&mut self) -> Option<i64> {
        let mut rest = Scan(self.0);
        rest.skip_spaces();
        let is_negative = rest.0.first() == Some(&b'-');
        if is_negative || rest.0.first() == Some(&b'+') {
            rest.skip(1);
        }
        let is_hex = matches!(rest.0, [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit());
        let radix = match rest.0.first() {
            Some(b'0') if is_hex => 16,
            Some(b'0') => 8,
            _ => 10,
        };
        if is_hex {
            rest.skip(2);
        }
        let digits = rest.0.iter().map_while(|byte| char::from(*byte).to_digit(radix));
        let count = digits.clone().count();
        if count == 0 {
            return None;
        }
        let number = digits.fold(0_i64, |number, digit| {
            number.saturating_mul(i64::from(radix)).saturating_add(i64::from(digit))
        });
        rest.skip(count);
        let taken = self.0.len() - rest.0.len();
        self.skip(taken);
        Some(if is_negative { -number } else { number })
    }

    /// What follows the offset in parentheses: `.l`, `.s` or `.b`, and a number to add.
    fn indirection(&mut self, complain: &mut impl FnMut(u16, String)) -> (Width, i64) {
        let mut width = Width::Long;
        if self.take(b'.') {
            match self.0.first() {
                Some(b'l') => {}
                Some(b's') => width = Width::Short,
                Some(b'b') => width = Width::Byte,
                letter => {
                    let letter =
                        evenkeel_message::quoted(&letter.copied().into_iter().collect::<Vec<u8>>())
                            .into_owned();
                    complain(1522, format!("indirect offset type {letter} invalid"));
                }
            }
            self.skip(1);
        }
        let is_negative = self.0.first() == Some(&b'-');
        if is_negative || self.0.first() == Some(&b'+') {
            self.skip(1);
        }
        let is_number = self.0.first().is_some_and(u8::is_ascii_digit);
        let more = if is_number { self.number().unwrap_or(0) } else { 0 };
        if !self.take(b')') {
            complain(1523, "missing ')' in indirect offset".to_owned());
            self.skip(1);
        }
        (width, if is_negative { -more } else { more })
    }

    /// A text with the escapes of C, up to a space (getstr).
    fn string(&mut self, complain: &mut impl FnMut(u16, String)) -> Vec<u8> {
        let (mut text, whole) = (Vec::new(), self.0);
        while let Some(&byte) = self.0.first() {
            self.skip(1);
            if is_space(&byte) {
                break;
            }
            if text.len() >= WINDOW - 1 {
                let whole = evenkeel_message::quoted(whole);
                complain(1526, format!("string too long: {whole}"));
                break;
            }
            match byte {
                b'\\' => match self.escape() {
                    Some(byte) => text.push(byte),
                    None => break,
                },
                byte => text.push(byte),
            }
        }
        text
    }

    /// The byte that an escape stands for; none at the end of the line.
    fn escape(&mut self) -> Option<u8> {
        let letter = *self.0.first()?;
        self.skip(1);
        Some(match letter {
            b'n' => b'\n',
            b'r' => b'\r',
            b'b' => b'\x08',
            b't' => b'\t',
            b'f' => b'\x0c',
            b'v' => b'\x0b',
            b'0'..=b'7' => self.digits(2, 8, u32::from(letter - b'0')),
            b'x' if self.0.first().is_some_and(u8::is_ascii_hexdigit) => self.digits(3, 16, 0),
            other => other,
        })
    }

    fn digits(&mut self, most: usize, radix: u32, start: u32) -> u8 {
        let digits = self.0.iter().map_while(|byte| char::from(*byte).to_digit(radix)).take(most);
        let count = digits.clone().count();
        let value = digits.fold(start, |value, digit| value * radix + digit);
        self.skip(count);
        value as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rules: &str, beginning: &[u8]) -> Option<String> {
        let (rules, complaints) = Rules::parse(rules.as_bytes());
        assert_eq!(complaints, []);
        let mut bytes = beginning.to_vec();
        bytes.resize(beginning.len() + 100, b' ');
        rules.find(&bytes).map(|text| String::from_utf8(text).unwrap())
    }

    fn told(rules: &str, beginning: &[u8]) -> String {
        found(rules, beginning).unwrap_or_else(|| "nothing".into())
    }

    #[test]
    fn numbers_and_texts_are_compared() {
        assert_eq!(told("0\tbelong\t0x2e7261fd\ta/b", b".ra\xfd"), "a/b");
        assert_eq!(told("0 belong 0x89504e47 a/b", b"\x89PNG"), "nothing", "its sign is filled");
        assert_eq!(told("0 string GIF8 image/gif", b"GIF89a"), "image/gif");
        assert_eq!(told("0 string A\\040B\\x43 a/b", b"A BC"), "a/b");
        assert_eq!(told("0 string >/0 a/b", b"abc"), "a/b");
        assert_eq!(told("0 beshort 0xffd8 image/jpeg", b"\xff\xd8"), "image/jpeg");
        assert_eq!(told("0 ubeshort 0xffd8 image/jpeg", b"\xff\xd8"), "image/jpeg");
        assert_eq!(told("0 leshort&0xff00 =0x0100 a/b", b"\x77\x01"), "a/b");
        assert_eq!(told("0 byte !1 a/b", b"\x01"), "nothing");
        assert_eq!(told("0 byte <0 a/b", b"\xfe"), "a/b");
        assert_eq!(told("0 ubyte <1 a/b", b"\xfe"), "nothing");
        assert_eq!(told("0 byte &5 a/b", b"\x07"), "a/b");
        assert_eq!(told("0 byte ^5 a/b", b"\x06"), "a/b");
        assert_eq!(told("0 byte x any/%d", b"\x06"), "any/6");
        assert_eq!(told("0 string/c abc a/b", b"abc"), "nothing");
    }

    #[test]
    fn continuations_add_to_the_rule_that_matches() {
        let rules = "0 string AB a/b\n>2 string C x-enc\n>>3 string D -more\n>2 byte x \\bend\n\
                     0 string A c/d";
        assert_eq!(told(rules, b"ABCD"), "a/b x-enc -moreend");
        assert_eq!(told(rules, b"ABX"), "a/bend");
        assert_eq!(told(rules, b"AX"), "c/d");
        let indirect = "0 string A a/b\n>(1.b+1) string Z x-z";
        assert_eq!(told(indirect, b"A\x03..Z"), "a/b x-z");
        assert_eq!(told(indirect, b"A\x03Z"), "a/b");
    }

    #[test]
    fn a_rule_needs_sixty_four_bytes() {
        let (rules, _) = Rules::parse(b"0 string A a/b\n-3 string A a/b");
        assert!(rules.find(&[b'A'; 64]).is_some());
        assert!(rules.find(&[b'A'; 63]).is_none());
    }

    #[test]
    fn bad_lines_are_told_with_their_numbers_and_match_nothing() {
        let text = format!(
            "# no\n\nx belong 1 a/b\n0 nothing 1 a/b\n>(0.q 0 byte 1\n0 string {}",
            "s".repeat(64)
        );
        let (rules, complaints) = Rules::parse(text.as_bytes());
        let lines: Vec<_> = complaints.iter().map(|it| (it.line, it.number)).collect();
        assert_eq!(lines[..3], [(3, 1521), (3, 1524), (4, 1524)]);
        assert!(lines.contains(&(5, 1522)) && lines.contains(&(6, 1526)), "{lines:?}");
        assert!(rules.find(&[0; 100]).is_none());
    }
}
