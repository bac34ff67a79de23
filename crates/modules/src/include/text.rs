//! The texts of elements: entities, encodings, times, sizes and variables (mod_include.c:
//! decodehtml, ap_ssi_parse_string).

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use evenkeel_proto::{escape_html, escape_uri};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The entities of HTML with their characters in ISO-8859-1.
const ENTITIES: [(&str, u8); 66] = [
    ("lt", b'<'),
    ("gt", b'>'),
    ("amp", b'&'),
    ("ETH", 208),
    ("eth", 240),
    ("quot", b'"'),
    ("Auml", 196),
    ("Euml", 203),
    ("Iuml", 207),
    ("Ouml", 214),
    ("Uuml", 220),
    ("auml", 228),
    ("euml", 235),
    ("iuml", 239),
    ("ouml", 246),
    ("uuml", 252),
    ("yuml", 255),
    ("Acirc", 194),
    ("Aring", 197),
    ("AElig", 198),
    ("Ecirc", 202),
    ("Icirc", 206),
    ("Ocirc", 212),
    ("Ucirc", 219),
    ("THORN", 222),
    ("szlig", 223),
    ("acirc", 226),
    ("aring", 229),
    ("aelig", 230),
    ("ecirc", 234),
    ("icirc", 238),
    ("ocirc", 244),
    ("ucirc", 251),
    ("thorn", 254),
    ("Agrave", 192),
    ("Aacute", 193),
    ("Atilde", 195),
    ("Ccedil", 199),
    ("Egrave", 200),
    ("Eacute", 201),
    ("Igrave", 204),
    ("Iacute", 205),
    ("Ntilde", 209),
    ("Ograve", 210),
    ("Oacute", 211),
    ("Otilde", 213),
    ("Oslash", 216),
    ("Ugrave", 217),
    ("Uacute", 218),
    ("Yacute", 221),
    ("agrave", 224),
    ("aacute", 225),
    ("atilde", 227),
    ("ccedil", 231),
    ("egrave", 232),
    ("eacute", 233),
    ("igrave", 236),
    ("iacute", 237),
    ("ntilde", 241),
    ("ograve", 242),
    ("oacute", 243),
    ("otilde", 245),
    ("oslash", 248),
    ("ugrave", 249),
    ("uacute", 250),
    ("yacute", 253),
];

/// The longest name of an entity.
const LONGEST_ENTITY: usize = 6;

/// Decodes entities. An unknown one stays as it is, and a number that stands for no printable
/// character of ISO-8859-1 for nothing.
pub fn decode_entities(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let end = (*byte == b'&').then(|| behind.iter().position(|it| *it == b';')).flatten();
        let Some(end) = end else {
            out.push(*byte);
            continue;
        };
        let (name, after) = (behind.get(..end), behind.get(end + 1..));
        let (name, after) = (name.unwrap_or_default(), after.unwrap_or_default());
        if let Some(digits) = name.strip_prefix(b"#") {
            rest = after;
            let number = std::str::from_utf8(digits).ok().filter(|it| !it.starts_with('+'));
            let number = number.and_then(|digits| digits.parse().ok());
            out.extend(number.filter(|number| !matches!(number, 0..=8 | 11..=31 | 127..=160)));
            continue;
        }
        let known = |(known, _): &&(&str, u8)| known.as_bytes() == name;
        match ENTITIES.iter().find(known).filter(|_| name.len() <= LONGEST_ENTITY) {
            Some((_, character)) => {
                out.push(*character);
                rest = after;
            }
            None => out.push(b'&'),
        }
    }
    out
}

/// Decodes percent-encoding; a sequence that is none stays (util.c: ap_unescape_url). The text ends
/// at a NUL.
pub fn decode_url(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let mut decoded = *byte;
        if let (b'%', [high, low, after @ ..]) = (byte, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            (decoded, rest) = ((high << 4) | low, after);
        }
        if decoded == 0 {
            break;
        }
        out.push(decoded);
    }
    out
}

/// Encodes the value of a form (util.c: ap_escape_urlencoded).
fn encode_form(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| DIGITS.get(usize::from(number)).copied().unwrap_or(b'0');
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b' ' => out.push(b'+'),
            byte if byte.is_ascii_alphanumeric() || b".-*_".contains(byte) => out.push(*byte),
            byte => out.extend([b'%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
    out
}

/// Decodes base64 up to the first byte that is none of its alphabet (util.c: ap_pbase64decode).
fn decode_base64(text: &[u8]) -> Vec<u8> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let length = text.iter().take_while(|byte| is_digit(byte)).count();
    // A digit that is left over has too few bits for a byte.
    let length = if length % 4 == 1 { length - 1 } else { length };
    let decoder = GeneralPurpose::new(&STANDARD, LENIENT);
    let mut decoded = decoder.decode(text.get(..length).unwrap_or_default()).unwrap_or_default();
    let end = decoded.iter().position(|byte| *byte == 0).unwrap_or(decoded.len());
    decoded.truncate(end);
    decoded
}

/// Decodes a text in one way after another, as a list names them.
///
/// # Errors
/// The first name that is unknown.
pub fn decode(text: Vec<u8>, ways: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
    fold(text, ways, |way, text| {
        Some(match way {
            "none" => text,
            "url" => decode_url(&text),
            "urlencoded" => {
                let spaced: Vec<u8> =
                    text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
                decode_url(&spaced)
            }
            "entity" => decode_entities(&text),
            "base64" => decode_base64(&text),
            _ => return None,
        })
    })
}

/// Encodes a text in one way after another, as a list names them.
///
/// # Errors
/// The first name that is unknown.
pub fn encode(text: Vec<u8>, ways: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
    fold(text, ways, |way, text| {
        Some(match way {
            "none" => text,
            "url" => {
                let mut out = Vec::with_capacity(text.len());
                escape_uri(&mut out, &text);
                out
            }
            "urlencoded" => encode_form(&text),
            "entity" => {
                let mut out = Vec::with_capacity(text.len());
                escape_html(&mut out, &text);
                out
            }
            "base64" => base64::engine::general_purpose::STANDARD.encode(&text).into_bytes(),
            _ => return None,
        })
    })
}

fn fold(
    mut text: Vec<u8>,
    ways: &[u8],
    act: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, Vec<u8>> {
    let words = ways.split(|byte| matches!(byte, b',' | b' ' | b'\t'));
    for word in words.filter(|word| !word.is_empty()) {
        let name = String::from_utf8_lossy(word).to_ascii_lowercase();
        text = act(&name, text).ok_or_else(|| word.to_vec())?;
    }
    Ok(text)
}

/// A text with its variables replaced, and what is wrong with it.
pub struct Expanded {
    /// The text.
    pub text: Vec<u8>,
    /// The rest of a text behind `${` without the brace that closes it.
    pub unclosed: Option<Vec<u8>>,
}

/// Replaces `$name` and `${name}`. A backslash lets a dollar sign stand for itself. A variable
/// without a value stands for nothing, or for its name if `leaves_name` says so. The text is cut
/// after `most` bytes.
pub fn expand(
    text: &[u8],
    leaves_name: bool,
    most: usize,
    mut value: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Expanded {
    let (mut out, mut rest, mut unclosed) = (Vec::with_capacity(text.len()), text, None);
    while let [byte, behind @ ..] = rest {
        if out.len() > most {
            break;
        }
        match (byte, behind) {
            (b'\\', [b'$', after @ ..]) => {
                out.push(b'$');
                rest = after;
            }
            (b'$', _) => {
                let (name, after, shown) = match behind.strip_prefix(b"{") {
                    Some(inner) => {
                        let Some(end) = inner.iter().position(|byte| *byte == b'}') else {
                            unclosed = Some(inner.to_vec());
                            break;
                        };
                        // The name is left without its closing brace, as in Apache.
                        (inner.get(..end), inner.get(end + 1..), end + 2)
                    }
                    None => {
                        let is_name = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
                        let end = behind.iter().take_while(|byte| is_name(byte)).count();
                        (behind.get(..end), behind.get(end..), end + 1)
                    }
                };
                let name = name.unwrap_or_default();
                if name.is_empty() {
                    out.push(b'$');
                    rest = behind;
                    continue;
                }
                match value(name) {
                    Some(value) => out.extend_from_slice(&value),
                    None if leaves_name => {
                        out.extend_from_slice(rest.get(..shown).unwrap_or_default());
                    }
                    None => {}
                }
                rest = after.unwrap_or_default();
            }
            _ => {
                out.push(*byte);
                rest = behind;
            }
        }
    }
    out.truncate(most);
    Expanded { text: out, unclosed }
}

/// A time by a format of strftime(3) in the C locale (util.c: ap_ht_time).
pub fn time(time_us: i64, format: &[u8], is_gmt: bool) -> Vec<u8> {
    let zone = if is_gmt { TimeZone::UTC } else { TimeZone::system() };
    let time = Timestamp::from_microsecond(time_us).unwrap_or_default().to_zoned(zone);
    let (mut out, mut rest) = (Vec::new(), format);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let (b'%', [letter, after @ ..]) = (byte, behind) else {
            out.push(*byte);
            continue;
        };
        // The modifiers of other locales mean nothing in the C locale.
        let (letter, after) = match (letter, after) {
            (b'E' | b'O', [letter, after @ ..]) => (letter, after),
            _ => (letter, after),
        };
        rest = after;
        match conversion(*letter, &time, is_gmt) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend([b'%', *letter]),
        }
    }
    out
}

fn conversion(letter: u8, time: &Zoned, is_gmt: bool) -> Option<String> {
    let format = match letter {
        b'c' => "%a %b %e %H:%M:%S %Y".to_owned(),
        b'x' | b'D' => "%m/%d/%y".to_owned(),
        b'X' | b'T' => "%H:%M:%S".to_owned(),
        b'r' => "%I:%M:%S %p".to_owned(),
        b'R' => "%H:%M".to_owned(),
        b'F' => "%Y-%m-%d".to_owned(),
        b'Z' if is_gmt => return Some("GMT".to_owned()),
        b'n' => return Some("\n".to_owned()),
        b't' => return Some("\t".to_owned()),
        b'%' => return Some("%".to_owned()),
        b'a' | b'A' | b'b' | b'B' | b'C' | b'd' | b'e' | b'g' | b'G' | b'h' | b'H' | b'I'
        | b'j' | b'k' | b'l' | b'm' | b'M' | b'p' | b'P' | b's' | b'S' | b'u' | b'U' | b'V'
        | b'w' | b'W' | b'y' | b'Y' | b'z' | b'Z' => format!("%{}", char::from(letter)),
        _ => return None,
    };
    jiff::fmt::strtime::format(&format, time).ok()
}

/// A size in bytes, with a comma for each thousand.
pub fn grouped(size: u64) -> String {
    let digits = size.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_decoded() {
        let decoded = |text: &str| decode_entities(text.as_bytes());
        assert_eq!(decoded("a&lt;b&gt;&amp;&quot;&nosuch;&"), b"a<b>&\"&nosuch;&");
        assert_eq!(decoded("&#65;&#9;&#0;&#300;&#x41;&auml;"), b"A\t\xe4");
        assert_eq!(decoded("&verylongname;&lt"), b"&verylongname;&lt");
    }

    #[test]
    fn texts_are_recoded_in_order() {
        let text = |bytes: Result<Vec<u8>, Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap();
        assert_eq!(text(encode(b"a <b>?".to_vec(), b"entity")), "a &lt;b&gt;?");
        assert_eq!(text(encode(b"a b&c/\xe4".to_vec(), b"url")), "a%20b&c/%e4");
        assert_eq!(text(encode(b"a b&c/".to_vec(), b"urlencoded")), "a+b%26c%2f");
        assert_eq!(text(encode(b"abcd".to_vec(), b"base64, URL")), "YWJjZA==");
        assert_eq!(text(decode(b"a+b%26%zz".to_vec(), b"urlencoded")), "a b&%zz");
        assert_eq!(text(decode(b"a+b%00c".to_vec(), b"url")), "a+b");
        assert_eq!(text(decode(b"YWJjZA==".to_vec(), b"base64")), "abcd");
        assert_eq!(text(decode(b"YWJj*".to_vec(), b"none base64")), "abc");
        assert_eq!(encode(Vec::new(), b"none,rot13"), Err(b"rot13".to_vec()));
    }

    #[test]
    fn variables_are_replaced() {
        let value = |name: &[u8]| (name == b"a" || name == b"a b").then(|| b"[v]".to_vec());
        let shown = |text: &str, leaves: bool| {
            let expanded = expand(text.as_bytes(), leaves, usize::MAX, value);
            (String::from_utf8(expanded.text).unwrap(), expanded.unclosed.is_some())
        };
        assert_eq!(shown("x$a.${a b}-$b.", false), ("x[v].[v]-.".into(), false));
        assert_eq!(shown("\\$a \\a \\\\$a$", false), ("$a \\a \\$a$".into(), false));
        assert_eq!(shown("a${a", false), ("a".into(), true));
        assert_eq!(shown("${}$ $b${c}.", true), ("${}$ $b${c.".into(), false));
        let long = expand(b"$a$a$a", false, 4, value);
        assert_eq!(long.text, b"[v][");
    }

    #[test]
    fn times_and_sizes_are_written() {
        let text = |format: &str| String::from_utf8(time(86_400_000_000, format.as_bytes(), true));
        assert_eq!(text("%A, %d-%b-%Y %H:%M:%S %Z").unwrap(), "Friday, 02-Jan-1970 00:00:00 GMT");
        let shown = text("%c|%D|%e|%s|%Q|%Ey|%%|%").unwrap();
        assert_eq!(shown, "Fri Jan  2 00:00:00 1970|01/02/70| 2|86400|%Q|70|%|%");
        assert_eq!((grouped(1), grouped(1234)), ("1".into(), "1,234".into()));
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
