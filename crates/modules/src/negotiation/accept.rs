//! The Accept fields of a request, and the media types of variants, which are written alike: a
//! text goes in, ranges with their qualities come out (mod_negotiation.c: get_entry, atoq).

use evenkeel_message::Fields;

/// One element of an Accept field: a range and what the client thinks of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    /// In lower case: `text/html`, `en-gb`, `*`.
    pub name: Vec<u8>,
    /// `q=` or `qs=`, from 0 to 1 in thousandths.
    pub quality: f32,
    /// `level=`; 2 for HTML that names none.
    pub level: f32,
    /// `charset=`, in lower case; empty where none is named.
    pub charset: Vec<u8>,
}

impl Range {
    /// A range that is accepted as well as any.
    pub(crate) fn plain(name: &[u8]) -> Self {
        Self { name: name.to_vec(), quality: 1.0, level: 0.0, charset: Vec::new() }
    }
}

/// What a client says of the content that it can take. None stands for a field that is not there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accepted {
    pub types: Option<Vec<Range>>,
    pub encodings: Option<Vec<Range>>,
    pub charsets: Option<Vec<Range>>,
    pub languages: Option<Vec<Range>>,
}

impl Accepted {
    pub(crate) fn read(fields: &Fields) -> Self {
        let list = |name: &[u8]| fields.joined(name).map(|value| ranges(&value));
        Self {
            types: list(b"Accept"),
            encodings: list(b"Accept-Encoding"),
            charsets: list(b"Accept-Charset"),
            languages: list(b"Accept-Language"),
        }
    }
}

/// How many elements of a field are read: no client names so many, and each is compared with each
/// variant.
const MOST: usize = 200;

/// The elements of a field.
pub(crate) fn ranges(mut text: &[u8]) -> Vec<Range> {
    let mut list = Vec::new();
    while !text.is_empty() && list.len() < MOST {
        let (range, rest) = range(text);
        list.push(range);
        text = rest;
    }
    list
}

/// The first element, and what stands behind its comma.
pub(crate) fn range(text: &[u8]) -> (Range, &[u8]) {
    let (name, mut rest) = token(text, false);
    let mut range = Range::plain(&name.to_ascii_lowercase());
    range.level = match range.name.as_slice() {
        b"text/html" | b"text/x-server-parsed-html" => 2.0,
        b"text/x-server-parsed-html3" => 3.0,
        _ => 0.0,
    };
    while let Some(behind) = rest.strip_prefix(b";") {
        let (parameter, behind) = token(behind, true);
        heed(&mut range, parameter);
        rest = behind;
    }
    (range, rest.strip_prefix(b",").unwrap_or(rest))
}

/// Takes one parameter into account; one that is not known is passed over.
fn heed(range: &mut Range, parameter: &[u8]) {
    let ends_name = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'=';
    let Some(end) = parameter.iter().position(ends_name) else { return };
    let (name, rest) = parameter.split_at_checked(end).unwrap_or_default();
    let start = rest.iter().position(|byte| !ends_name(byte)).unwrap_or(rest.len());
    let rest = rest.get(start..).unwrap_or_default();
    let value = match rest.strip_prefix(b"\"") {
        Some(quoted) => until(quoted, |byte| matches!(byte, b'"' | b'\r' | b'\n')),
        None => until(rest, u8::is_ascii_whitespace),
    };
    match name.to_ascii_lowercase().as_slice() {
        b"q" | b"qs" => range.quality = quality(value),
        b"level" => range.level = leading_number(value),
        b"charset" => range.charset = value.to_ascii_lowercase(),
        _ => {}
    }
}

fn until(text: &[u8], ends: impl Fn(&u8) -> bool) -> &[u8] {
    text.get(..text.iter().position(ends).unwrap_or(text.len())).unwrap_or_default()
}

/// A quality in thousandths; what is none counts as 1.
fn quality(text: &[u8]) -> f32 {
    let text = text.trim_ascii_start();
    let fraction = match text {
        [] => return 1.0,
        [b'0', rest @ ..] => rest,
        [b'.', ..] => text,
        _ => return 1.0,
    };
    let Some(digits) = fraction.strip_prefix(b".") else { return 0.0 };
    let mut thousandths = 0_u16;
    for (digit, weight) in digits.iter().zip([100, 10, 1]) {
        if !digit.is_ascii_digit() {
            break;
        }
        thousandths += u16::from(digit - b'0') * weight;
    }
    f32::from(thousandths) / 1000.0
}

/// The number at the front of a text, 0 where there is none (atoi).
fn leading_number(text: &[u8]) -> f32 {
    let digits = until(text, |byte| !byte.is_ascii_digit());
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u16>().ok());
    number.map_or(0.0, f32::from)
}

/// The token at the front and what follows behind the space after it. Commas, semicolons and,
/// unless `with_space`, space end it, but not within quotes (util.c: ap_get_token).
pub(crate) fn token(text: &[u8], with_space: bool) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let mut quoted = false;
    let ends = |byte: &u8| {
        if *byte == b'"' {
            quoted = !quoted;
        }
        !quoted && (matches!(byte, b';' | b',') || (!with_space && byte.is_ascii_whitespace()))
    };
    let end = text.iter().position(ends).unwrap_or(text.len());
    let (token, rest) = text.split_at_checked(end).unwrap_or_default();
    (token, rest.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_qualities_levels_and_charsets() {
        let list =
            ranges(b"Text/HTML;level=3 ; q=0.5, text/*;Q = \"0.25\", */*; q=.1;charset=UTF-8");
        assert_eq!(list.len(), 3);
        assert_eq!((list[0].name.as_slice(), list[0].quality), (&b"text/html"[..], 0.5));
        assert_eq!(list[0].level, 3.0);
        assert_eq!((list[1].name.as_slice(), list[1].quality), (&b"text/*"[..], 0.25));
        assert_eq!((list[2].quality, list[2].charset.as_slice()), (0.1, &b"utf-8"[..]));
        assert_eq!(ranges(b"text/html")[0].level, 2.0);
    }

    #[test]
    fn elements_need_no_comma_and_may_be_empty() {
        let names: Vec<_> = ranges(b"a b,,c").into_iter().map(|range| range.name).collect();
        assert_eq!(names, [&b"a"[..], b"b", b"", b"c"]);
        assert!(ranges(b"").is_empty());
        assert_eq!(ranges(b"a;\"x;y,z\";q=0.3,b").len(), 2);
    }

    #[test]
    fn a_quality_that_is_none_counts_as_one() {
        for (text, wanted) in [
            ("0", 0.0),
            ("0.", 0.0),
            ("0.5", 0.5),
            (".123", 0.123),
            ("0.1234", 0.123),
            ("0.12x", 0.12),
            ("1.0", 1.0),
            ("7", 1.0),
            ("x", 1.0),
            ("", 1.0),
        ] {
            assert_eq!(quality(text.as_bytes()), wanted, "{text}");
        }
    }
}
