//! Wildcard patterns of file names. Matching does not access the file system, and takes at most the
//! product of the two lengths.

/// How a wildcard pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wildcards {
    /// `*`, `?` and `[]` match no slash (APR_FNM_PATHNAME).
    pub path: bool,
    /// A leading dot must be matched by a dot (APR_FNM_PERIOD).
    pub period: bool,
    /// Case is ignored (APR_FNM_CASE_BLIND).
    pub ignore_case: bool,
}

/// Whether `text` contains a wildcard: `*`, `?`, or a `[` with a `]` after it.
///
/// Source: apr_fnmatch_test.
#[must_use]
pub fn has_wildcards(text: &str) -> bool {
    let mut open = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '*' | '?' => return true,
            '\\' if characters.next().is_none() => return false,
            '[' => open = true,
            ']' if open => return true,
            _ => {}
        }
    }
    false
}

/// Whether `name` matches `pattern`. `*` matches any run, `?` any character, `[a-z]`, `[!a-z]` and
/// `[^a-z]` one of a set, and `\` the character after it. A `[` without a `]` stands for itself.
///
/// Source: apr_fnmatch.
#[must_use]
pub fn matches_wildcards(pattern: &str, name: &str, how: Wildcards) -> bool {
    let fold = |text: &str| -> Vec<char> {
        if how.ignore_case { text.to_lowercase().chars().collect() } else { text.chars().collect() }
    };
    let (pattern, name) = (fold(pattern), fold(name));
    let (mut at, mut here) = (0_usize, 0_usize);
    // Where to continue if the rest does not match after the last star: that star then takes one
    // more character.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let previous = here.checked_sub(1).and_then(|before| name.get(before));
        let starts = previous.is_none() || (how.path && previous == Some(&'/'));
        let hidden = how.period && starts && name.get(here) == Some(&'.');
        if pattern.get(at) == Some(&'*') && !hidden {
            star = Some((at + 1, here));
            at += 1;
            continue;
        }
        let step = match name.get(here) {
            Some(character) => one(pattern.get(at..).unwrap_or_default(), *character, how, hidden),
            None if at == pattern.len() => return true,
            None => None,
        };
        if let Some(used) = step {
            (at, here) = (at + used, here + 1);
            continue;
        }
        let Some((behind, from)) = star else { return false };
        match name.get(from) {
            None => return false,
            Some('/') if how.path => return false,
            Some(_) => {}
        }
        star = Some((behind, from + 1));
        (at, here) = (behind, from + 1);
    }
}

/// Matches `character` with the first element of `pattern`. Returns the length of that element, or
/// None if it does not match. A `hidden` dot is matched only by a dot.
fn one(pattern: &[char], character: char, how: Wildcards, hidden: bool) -> Option<usize> {
    let (first, rest) = pattern.split_first()?;
    let barred = hidden || (how.path && character == '/');
    match first {
        '?' => (!barred).then_some(1),
        '[' => match set(rest, character) {
            Some((used, matched)) => (!barred && matched).then_some(used + 1),
            None => (character == '[').then_some(1),
        },
        '\\' => match rest.first() {
            Some(escaped) => (*escaped == character).then_some(2),
            None => (character == '\\').then_some(1),
        },
        _ => (*first == character).then_some(1),
    }
}

/// Parses a set after its `[`. Returns its length including the `]`, and whether it contains
/// `character`; None if no `]` closes it.
fn set(rest: &[char], character: char) -> Option<(usize, bool)> {
    let negated = matches!(rest.first(), Some('!' | '^'));
    let start = usize::from(negated);
    let mut at = start;
    let mut found = false;
    loop {
        let mut low = *rest.get(at)?;
        if low == ']' && at > start {
            return Some((at + 1, found != negated));
        }
        if low == '\\' {
            at += 1;
            low = *rest.get(at)?;
        }
        at += 1;
        let mut high = low;
        if rest.get(at) == Some(&'-') && rest.get(at + 1).is_some_and(|next| *next != ']') {
            high = *rest.get(at + 1)?;
            at += 2;
            if high == '\\' {
                high = *rest.get(at)?;
                at += 1;
            }
        }
        found |= (low..=high).contains(&character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(pattern: &str, name: &str) -> bool {
        matches_wildcards(pattern, name, Wildcards::default())
    }

    #[test]
    fn stars_and_questions() {
        assert!(plain("*.conf", "a.conf") && plain("*", "") && plain("a*b*c", "aXbbYc"));
        assert!(plain("a?c", "abc") && !plain("a?c", "ac") && !plain("*.conf", "a.conf~"));
        assert!(plain("*a*a*b", &"aab".repeat(20)) && !plain("*a*a*b", &"a".repeat(60)));
        assert!(!plain("", "a") && plain("", ""));
    }

    #[test]
    fn sets() {
        assert!(plain("[a-c]x", "bx") && !plain("[a-c]x", "dx") && plain("[!a-c]x", "dx"));
        assert!(plain("[^]]", "a") && plain("[]]", "]") && plain("[a\\]b]", "]"));
        assert!(plain("[ab", "[ab") && plain("a[-]b", "a-b") && plain("\\*", "*"));
    }

    #[test]
    fn slashes_and_dots() {
        let path = Wildcards { path: true, ..Wildcards::default() };
        assert!(matches_wildcards("/home/*/x", "/home/a/x", path));
        assert!(!matches_wildcards("/home/*/x", "/home/a/b/x", path));
        assert!(!matches_wildcards("/home?x", "/home/x", path));
        let period = Wildcards { period: true, ..Wildcards::default() };
        assert!(!matches_wildcards("*", ".hidden", period));
        assert!(matches_wildcards(".*", ".hidden", period));
        assert!(matches_wildcards("*", "a.hidden", period));
        let both = Wildcards { path: true, ..period };
        assert!(!matches_wildcards("/*", "/.hidden", both));
        let blind = Wildcards { ignore_case: true, ..Wildcards::default() };
        assert!(matches_wildcards("*.CONF", "a.conf", blind));
    }

    #[test]
    fn wildcards_are_recognised() {
        assert!(has_wildcards("a*") && has_wildcards("?") && has_wildcards("[a]"));
        assert!(!has_wildcards("[a") && !has_wildcards("a]") && !has_wildcards("\\*\\"));
    }
}
