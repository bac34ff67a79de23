//! Rewrites the `$` of a pattern to `\z` unless it stands for line ends. PCRE2 has the option
//! DOLLAR_ENDONLY for that, which Apache sets by default and the crate `pcre2` does not offer.
//! Without it, `\.php$` would match the name `x.php` followed by a line feed. Nothing is compiled
//! here.

/// Splits off the items that PCRE2 accepts only at the very start of a pattern, such as `(*UTF)`.
pub(crate) fn split_start_items(pattern: &str) -> (&str, &str) {
    const ITEMS: &[&str] = &[
        "UTF",
        "UCP",
        "NOTEMPTY",
        "NOTEMPTY_ATSTART",
        "NO_AUTO_POSSESS",
        "NO_DOTSTAR_ANCHOR",
        "NO_JIT",
        "NO_START_OPT",
        "CR",
        "LF",
        "CRLF",
        "ANYCRLF",
        "ANY",
        "NUL",
        "BSR_ANYCRLF",
        "BSR_UNICODE",
    ];
    let mut rest = pattern;
    while let Some((item, after)) = rest.strip_prefix("(*").and_then(|r| r.split_once(')')) {
        if !ITEMS.contains(&item) && !item.starts_with("LIMIT_") {
            break;
        }
        rest = after;
    }
    pattern.split_at(pattern.len() - rest.len())
}

/// Whether a pattern can only match at the beginning of the subject. False if that is not obvious.
pub(crate) fn is_anchored(pattern: &str, dot_all: bool) -> bool {
    let rest = ["(?i)", "(?s)"].into_iter().find_map(|item| pattern.strip_prefix(item));
    let rest = rest.unwrap_or(pattern);
    let first = rest.starts_with('^') || rest.starts_with("\\A");
    // Options may turn `^` into line starts, and another branch may not have it.
    (first || dot_all && takes_all(rest)) && !has_options(rest) && !has_branches(rest)
}

/// Whether a pattern changes its options somewhere, or has anything after `(?` other than a plain
/// group or an assertion.
pub(crate) fn has_options(pattern: &str) -> bool {
    let is_option = |(at, _): (usize, &str)| {
        let behind = pattern.get(at + 2..).and_then(|behind| behind.chars().next());
        behind.is_none_or(|sign| !matches!(sign, ':' | '=' | '!' | '<'))
    };
    pattern.match_indices("(?").any(is_option)
}

/// Whether a pattern begins with `.*` or `(.*)`. PCRE2 then does not try later positions, unless
/// the pattern has a back reference.
fn takes_all(pattern: &str) -> bool {
    let group = ["(.*)", "(.*?)"].into_iter().find_map(|group| pattern.strip_prefix(group));
    let refers = |(at, _): (usize, &str)| {
        let behind = pattern.get(at + 1..).and_then(|behind| behind.chars().next());
        behind.is_some_and(|sign| sign.is_ascii_digit() || matches!(sign, 'g' | 'k'))
    };
    let begins = match group {
        Some(behind) => !behind.starts_with(['?', '*', '+', '{']),
        None => pattern.starts_with(".*"),
    };
    begins && !pattern.contains("(*") && !pattern.match_indices('\\').any(refers)
}

/// Whether a pattern has branches outside groups.
pub(crate) fn has_branches(pattern: &str) -> bool {
    let mut walk = Walk::new(pattern);
    let mut depth = 0_usize;
    while let Some(head) = walk.rest.chars().next() {
        match head {
            '\\' => walk.pass_escape(),
            '[' => walk.pass_class(false),
            '|' if depth == 0 => return true,
            other => {
                depth = match other {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                walk.pass(other.len_utf8());
            }
        }
    }
    false
}

/// The options of a group that change the meaning of `$`, `#` or a space in it.
#[derive(Clone, Copy)]
struct Flags {
    /// Whether `$` stands for line ends.
    multi_line: bool,
    /// Whether `#` begins a comment.
    extended: bool,
    /// Whether spaces in classes are ignored.
    spaced_classes: bool,
}

/// Writes `\z` for every `$` that means the end of the subject.
pub(crate) fn pin_dollars(pattern: &str, extended: bool) -> String {
    let start = Flags { multi_line: false, extended, spaced_classes: false };
    let mut walk = Walk::new(pattern);
    let mut flags = start;
    let mut outer: Vec<Flags> = Vec::new();
    while let Some(head) = walk.rest.chars().next() {
        match head {
            '\\' => walk.pass_escape(),
            '[' => walk.pass_class(flags.spaced_classes),
            '#' if flags.extended => walk.pass_through("\n"),
            '(' if walk.rest.starts_with("(?#") || is_verb(walk.rest) => walk.pass_through(")"),
            '(' => {
                let options = walk.rest.strip_prefix("(?").and_then(read_options);
                match options {
                    // Options that apply to the rest of the enclosing group.
                    Some((length, ')', change)) => {
                        walk.pass(length + 2);
                        flags = change(flags);
                    }
                    Some((length, _, change)) => {
                        walk.pass(length + 2);
                        outer.push(flags);
                        flags = change(flags);
                    }
                    None => {
                        walk.pass(1);
                        outer.push(flags);
                    }
                }
            }
            ')' => {
                walk.pass(1);
                flags = outer.pop().unwrap_or(start);
            }
            '$' if !flags.multi_line => {
                walk.rest = walk.rest.get(1..).unwrap_or_default();
                walk.done.push_str("\\z");
            }
            other => walk.pass(other.len_utf8()),
        }
    }
    walk.done
}

/// Parses option letters up to `)` or `:`. Returns the length including that end, the end, and the
/// change that the letters make.
fn read_options(text: &str) -> Option<(usize, char, impl Fn(Flags) -> Flags)> {
    let length = text.find([')', ':'])?;
    let letters = text.get(..length)?;
    if !letters.chars().all(|letter| "imsxnJUaDPSTWr^-".contains(letter)) {
        return None;
    }
    let end = text.get(length..)?.chars().next()?;
    let (on, off) = letters.split_once('-').unwrap_or((letters, ""));
    let (on, off) = (on.to_owned(), off.to_owned());
    let change = move |before: Flags| {
        let reset = on.starts_with('^');
        let decide = |letter: char, before: bool| {
            (before && !reset || on.contains(letter)) && !off.contains(letter)
        };
        // A single x cancels the second x.
        let kept = before.spaced_classes && !reset && !on.contains('x');
        Flags {
            multi_line: decide('m', before.multi_line),
            extended: decide('x', before.extended),
            spaced_classes: (kept || on.contains("xx")) && !off.contains('x'),
        }
    };
    Some((length + 1, end, change))
}

/// The part of the pattern still to be read, and the part written so far.
pub(crate) struct Walk<'p> {
    rest: &'p str,
    done: String,
}

impl<'p> Walk<'p> {
    pub(crate) fn new(pattern: &'p str) -> Self {
        Self { rest: pattern, done: String::with_capacity(pattern.len() + 8) }
    }

    /// Skips the class or group that comes next, with its contents. Returns its length.
    pub(crate) fn pass_whole(&mut self) -> usize {
        let mut depth = 0_usize;
        while let Some(head) = self.rest.chars().next() {
            match head {
                '\\' => self.pass_escape(),
                '[' => self.pass_class(false),
                other => {
                    depth = match other {
                        '(' => depth + 1,
                        ')' => depth.saturating_sub(1),
                        _ => depth,
                    };
                    self.pass(other.len_utf8());
                }
            }
            if depth == 0 {
                break;
            }
        }
        self.done.len()
    }

    /// Copies the next bytes unchanged.
    fn pass(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.done.push_str(taken);
        self.rest = rest;
    }

    /// Copies everything up to and including the mark, or to the end.
    fn pass_through(&mut self, mark: &str) {
        let length = self.rest.find(mark).map_or(self.rest.len(), |at| at + mark.len());
        self.pass(length);
    }

    /// Copies a backslash and what it escapes; `\Q` up to its `\E`.
    fn pass_escape(&mut self) {
        if self.rest.starts_with("\\Q") {
            return self.pass_through("\\E");
        }
        // A control character includes the letter after the c, even if that is a dollar.
        let letters = if self.rest.starts_with("\\c") { 2 } else { 1 };
        let escaped: usize = self.rest.chars().skip(1).take(letters).map(char::len_utf8).sum();
        self.pass(1 + escaped);
    }

    /// Copies a class in brackets, in which `$` is an ordinary character.
    fn pass_class(&mut self, spaced: bool) {
        self.pass(1);
        let mut negated = false;
        // Here, quoting marks around nothing have no effect, nor do spaces if they are ignored.
        loop {
            let idle = ["\\Q\\E", "\\E"].iter().find(|mark| self.rest.starts_with(**mark));
            match (idle, self.rest.chars().next()) {
                (Some(mark), _) => self.pass(mark.len()),
                (None, Some('^')) if !negated => {
                    negated = true;
                    self.pass(1);
                }
                (None, Some(' ' | '\t')) if spaced => self.pass(1),
                _ => break,
            }
        }
        // A bracket that comes first is a member of the class.
        if self.rest.starts_with(']') {
            self.pass(1);
        }
        while let Some(head) = self.rest.chars().next() {
            match head {
                '\\' => self.pass_escape(),
                '[' if is_named_class(self.rest) => self.pass_through(":]"),
                ']' => return self.pass(1),
                other => self.pass(other.len_utf8()),
            }
        }
    }
}

/// Whether the text begins with a verb, such as `(*FAIL)`. `(*pla:` and similar items are groups.
fn is_verb(text: &str) -> bool {
    let name = text.strip_prefix("(*").and_then(|name| name.chars().next());
    name.is_some_and(|letter| letter.is_ascii_uppercase() || letter == ':')
}

/// Whether the text begins with a named class, such as `[:alpha:]`.
fn is_named_class(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("[:") else { return false };
    let name = inner.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '^');
    name.starts_with(":]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchored_patterns_are_known() {
        for text in [
            "^a",
            "\\Aa",
            "(?i)^a",
            "^(a|b)",
            "^[|]",
            "^a\\|b",
            "^(?:a|b)(?=c)",
            "(.*)\\.a",
            ".*?a",
        ] {
            assert!(is_anchored(text, true), "{text}");
        }
        for text in [
            "a", "^a|b", "(^a)", "(?m)^a", "^(?m)a", "^(a)|(b)", "", ".^", "(.*)\\1", "(.*)?a",
            "(.*)|a",
        ] {
            assert!(!is_anchored(text, true), "{text}");
        }
    }

    #[test]
    fn dollars_become_ends_of_subject_where_they_mean_it() {
        let table = [
            (r"\.php$", r"\.php\z"),
            (r"a$|b$", r"a\z|b\z"),
            (r"\$", r"\$"),
            (r"[$]", "[$]"),
            (r"[]$]$", r"[]$]\z"),
            (r"[^]$]", "[^]$]"),
            (r"[[:alpha:]$]$", r"[[:alpha:]$]\z"),
            (r"[[$]$", r"[[$]\z"),
            (r"[\]$]$", r"[\]$]\z"),
            (r"\Qa$\E$", r"\Qa$\E\z"),
            (r"(?#$)$", r"(?#$)\z"),
            (r"(?m)a$", "(?m)a$"),
            (r"(?m:a$)b$", r"(?m:a$)b\z"),
            (r"((?m)a$)b$", r"((?m)a$)b\z"),
            (r"(?im-m)a$", r"(?im-m)a\z"),
            (r"(?m)(?^)a$", r"(?m)(?^)a\z"),
            (r"(?<n>a$)", r"(?<n>a\z)"),
            (r"(?=a$)", r"(?=a\z)"),
            (r"(*pla:a$)$", r"(*pla:a\z)\z"),
            (r"(*MARK:$)$", r"(*MARK:$)\z"),
            (r"\c$$", r"\c$\z"),
            (r"[\E]$]", r"[\E]$]"),
            (r"[\Q\E^\E]$]$", r"[\Q\E^\E]$]\z"),
            (r"[^^]$", r"[^^]\z"),
            ("[ ]$]", "[ ]\\z]"),
            ("(?xx)[ ]$]", "(?xx)[ ]$]"),
            ("(?xx)(?x)[ ]$]", "(?xx)(?x)[ ]\\z]"),
            ("(?xx)(?i)[ ]$]", "(?xx)(?i)[ ]$]"),
            ("(?xx)(?-x)[ ]$]", "(?xx)(?-x)[ ]\\z]"),
            ("(?x)a # $\n$", "(?x)a # $\n\\z"),
            ("a # $", "a # \\z"),
            ("é$", "é\\z"),
            ("\\é$", "\\é\\z"),
            ("[$", "[$"),
            ("a)$", "a)\\z"),
            ("\\", "\\"),
        ];
        for (written, expected) in table {
            assert_eq!(pin_dollars(written, false), expected, "{written}");
        }
    }

    #[test]
    fn start_items_are_told_from_verbs() {
        assert_eq!(split_start_items("(*UTF)(*LIMIT_MATCH=5)a"), ("(*UTF)(*LIMIT_MATCH=5)", "a"));
        assert_eq!(split_start_items("(*FAIL)a"), ("", "(*FAIL)a"));
        assert_eq!(split_start_items("a(*UTF)"), ("", "a(*UTF)"));
        assert_eq!(split_start_items("(*"), ("", "(*"));
    }
}
