//! Splits a directive's arguments into words by the quoting rules of the language. This never
//! fails: a quote that is not closed runs to the end, as in Apache.

/// The first word of `text`, and what follows it and the white space after it. Both kinds of quotes
/// group. Within them a backslash escapes itself and that quote; outside, only itself. An empty
/// word means that there is none or that it was written as `""`.
///
/// Source: server/util.c, ap_getword_conf and substring_conf.
#[must_use]
pub fn next_word(text: &str) -> (String, &str) {
    let text = text.trim_start_matches(is_space);
    let Some(first) = text.chars().next() else {
        return (String::new(), text);
    };
    let (word, rest) = match first {
        '"' | '\'' => quoted(text.get(1..).unwrap_or_default(), first),
        _ => bare(text),
    };
    (word, rest.trim_start_matches(is_space))
}

/// All words of `text`, including quoted empty ones.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    let mut rest = text.trim_start_matches(is_space);
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (word, behind) = next_word(rest);
        all.push(word);
        rest = behind;
    }
    all
}

/// White space as in C's isspace. Other spaces of Unicode are text.
pub(crate) fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// The word up to the closing `quote`, and what follows.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let mut word = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if character == quote {
            return (word, text.get(at + 1..).unwrap_or_default());
        }
        let escaped = (character == '\\')
            .then(|| characters.next_if(|(_, next)| *next == quote || *next == '\\'))
            .flatten();
        word.push(escaped.map_or(character, |(_, next)| next));
    }
    (word, "")
}

/// The word up to white space, and what follows.
fn bare(text: &str) -> (String, &str) {
    let (raw, rest) = text.split_at(text.find(is_space).unwrap_or(text.len()));
    (raw.replace("\\\\", "\\"), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_group_and_escape() {
        assert_eq!(words(r#"a "b c" 'd "e"'"#), ["a", "b c", r#"d "e""#]);
        assert_eq!(words(r#""a \"b\" \\ \x" 'it\'s'"#), [r#"a "b" \ \x"#, "it's"]);
        assert_eq!(words(r#"a\\b\c "" x"#), [r"a\b\c", "", "x"]);
    }

    #[test]
    fn a_quote_ends_a_word_and_may_stay_open() {
        assert_eq!(words(r#""a"b c"d e"#), ["a", "b", "c\"d", "e"]);
        assert_eq!(words(r#"x "a b"#), ["x", "a b"]);
        assert_eq!(words("\"a\\"), ["a\\"]);
    }

    #[test]
    fn nothing_has_no_words() {
        assert!(words(" \t ").is_empty());
        assert_eq!(next_word("  "), (String::new(), ""));
    }

    #[test]
    fn letters_beyond_ascii_are_letters() {
        assert_eq!(words("\u{a0}é 'ü' \u{2003}"), ["\u{a0}é", "ü", "\u{2003}"]);
    }
}
