//! The results of rules, which are formats of printf(3) with one argument.

/// The longest printed result, in bytes (mod_mime_magic.c: MAXMIMESTRING, less the end of the
/// text).
const LONGEST: usize = 255;

/// Prints a format with a text or with a number. A conversion for the other kind of argument prints
/// nothing.
pub(super) fn print(out: &mut Vec<u8>, format: &[u8], text: &[u8], number: Option<u64>) {
    let mut printed = Vec::new();
    let mut rest = format;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            printed.push(byte);
            continue;
        }
        let is_modifier = |byte: &&u8| b"-+ #0123456789.hlq".contains(byte);
        let modifiers = rest.iter().take_while(is_modifier).count();
        let (modifiers, behind) = rest.split_at(modifiers);
        let Some((conversion, behind)) = behind.split_first() else { break };
        rest = behind;
        convert(&mut printed, *conversion, modifiers, text, number);
    }
    printed.truncate(LONGEST);
    out.extend_from_slice(&printed);
}

fn convert(out: &mut Vec<u8>, conversion: u8, modifiers: &[u8], text: &[u8], number: Option<u64>) {
    let is_long = modifiers.iter().any(|byte| matches!(byte, b'l' | b'q'));
    // Without `l`, printf takes the low half.
    let number = number.map(|number| if is_long { number } else { number & 0xffff_ffff });
    let signed = |number: u64| if is_long { number as i64 } else { i64::from(number as i32) };
    let value = match (conversion, number) {
        (b'%', _) => return out.push(b'%'),
        (b's', None) => text.to_vec(),
        (b'c', Some(number)) => vec![number as u8],
        (b'd' | b'i', Some(number)) => signed(number).to_string().into_bytes(),
        (b'u', Some(number)) => number.to_string().into_bytes(),
        (b'o', Some(number)) => format!("{number:o}").into_bytes(),
        (b'x', Some(number)) => format!("{number:x}").into_bytes(),
        (b'X', Some(number)) => format!("{number:X}").into_bytes(),
        _ => return,
    };
    let mut parts = modifiers.split(|byte| *byte == b'.');
    let before = parts.next().unwrap_or_default();
    let digits = |part: &[u8]| -> Option<usize> {
        let digits: Vec<u8> = part.iter().copied().filter(u8::is_ascii_digit).collect();
        std::str::from_utf8(&digits).ok()?.parse().ok()
    };
    let precision = parts.next().and_then(digits).filter(|_| conversion == b's');
    let value = value.get(..precision.unwrap_or(value.len())).unwrap_or(&value);
    let width = digits(before).unwrap_or(0).min(LONGEST);
    let fill = width.saturating_sub(value.len());
    let is_left = before.contains(&b'-');
    let filler = if before.starts_with(b"0") && !is_left { b'0' } else { b' ' };
    if !is_left {
        out.resize(out.len() + fill, filler);
    }
    out.extend_from_slice(value);
    if is_left {
        out.resize(out.len() + fill, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_print_what_fits_their_argument() {
        let printed = |format: &str, text: &str, number| {
            let mut out = Vec::new();
            print(&mut out, format.as_bytes(), text.as_bytes(), number);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed("a/%s", "b", None), "a/b");
        assert_eq!(printed("a/%.2s|%4s|%-4s|", "bcd", None), "a/bc| bcd|bcd |");
        assert_eq!(printed("a/%d%%", "", Some(7)), "a/7%");
        assert_eq!(printed("%ld %d %u", "", Some(u64::MAX)), "-1 -1 4294967295");
        assert_eq!(printed("%lx %03o %c", "", Some(65)), "41 101 A");
        assert_eq!(printed("%s%n%", "", Some(65)), "");
        assert_eq!(printed(&"%200s".repeat(2), "a", None).len(), 255);
    }
}
