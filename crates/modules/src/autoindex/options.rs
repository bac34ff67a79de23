//! IndexOptions: its words go in, switches and widths come out; how signed and unsigned words of
//! outer and inner sections go together is Apache's (mod_autoindex.c: add_opts,
//! merge_autoindex_configs), with its surprises.

use super::settings::{Said, Width};
use crate::Merge;
use std::ops::{BitAnd, BitOr, Not};

/// Switches of IndexOptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    pub(super) const EMPTY: Flags = Flags(0);
    /// `None` was said.
    pub(super) const NONE: Flags = Flags(1);
    pub(super) const ICONS_ARE_LINKS: Flags = Flags(1 << 1);
    pub(super) const SCAN_HTML_TITLES: Flags = Flags(1 << 2);
    pub(super) const SUPPRESS_ICON: Flags = Flags(1 << 3);
    pub(super) const SUPPRESS_LAST_MODIFIED: Flags = Flags(1 << 4);
    pub(super) const SUPPRESS_SIZE: Flags = Flags(1 << 5);
    pub(super) const SUPPRESS_DESCRIPTION: Flags = Flags(1 << 6);
    pub(super) const SUPPRESS_PREAMBLE: Flags = Flags(1 << 7);
    pub(super) const SUPPRESS_SORTING: Flags = Flags(1 << 8);
    pub(super) const SUPPRESS_RULES: Flags = Flags(1 << 9);
    pub(super) const FOLDERS_FIRST: Flags = Flags(1 << 10);
    pub(super) const VERSION_SORT: Flags = Flags(1 << 11);
    pub(super) const TRACK_MODIFIED: Flags = Flags(1 << 12);
    pub(super) const FANCY: Flags = Flags(1 << 13);
    pub(super) const TABLE: Flags = Flags(1 << 14);
    pub(super) const IGNORE_CLIENT: Flags = Flags(1 << 15);
    pub(super) const IGNORE_CASE: Flags = Flags(1 << 16);
    pub(super) const XHTML: Flags = Flags(1 << 17);
    pub(super) const SHOW_FORBIDDEN: Flags = Flags(1 << 18);
    pub(super) const ADD_ALT_CLASS: Flags = Flags(1 << 19);
    /// No unsigned word was said, `None` aside.
    const UNSET: Flags = Flags(1 << 20);

    /// Whether any bit of `other` is set.
    #[must_use]
    pub(super) fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// These, with those of `other` on or off.
    #[must_use]
    pub(super) fn switched(self, other: Flags, on: bool) -> Flags {
        if on { self | other } else { self & !other }
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitAnd for Flags {
    type Output = Flags;
    fn bitand(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
}

impl Not for Flags {
    type Output = Flags;
    fn not(self) -> Flags {
        Flags(!self.0)
    }
}

/// The words that are switches.
const WORDS: [(&str, Flags); 19] = [
    ("FancyIndexing", Flags::FANCY),
    ("FoldersFirst", Flags::FOLDERS_FIRST),
    ("HTMLTable", Flags::TABLE),
    ("IconsAreLinks", Flags::ICONS_ARE_LINKS),
    ("IgnoreCase", Flags::IGNORE_CASE),
    ("IgnoreClient", Flags::IGNORE_CLIENT),
    ("ScanHTMLTitles", Flags::SCAN_HTML_TITLES),
    ("SuppressColumnSorting", Flags::SUPPRESS_SORTING),
    ("SuppressDescription", Flags::SUPPRESS_DESCRIPTION),
    ("SuppressHTMLPreamble", Flags::SUPPRESS_PREAMBLE),
    ("SuppressIcon", Flags::SUPPRESS_ICON),
    ("SuppressLastModified", Flags::SUPPRESS_LAST_MODIFIED),
    ("SuppressSize", Flags::SUPPRESS_SIZE),
    ("SuppressRules", Flags::SUPPRESS_RULES),
    ("TrackModified", Flags::TRACK_MODIFIED),
    ("VersionSort", Flags::VERSION_SORT),
    ("XHTML", Flags::XHTML),
    ("ShowForbidden", Flags::SHOW_FORBIDDEN),
    ("AddAltClass", Flags::ADD_ALT_CLASS),
];

/// Pixels of the icons that come with Apache: width, height.
const ICON_PIXELS: (i32, i32) = (20, 22);
/// The least that may be asked for, in characters: a name, a description.
const LEAST_WIDTHS: (i32, i32) = (5, 12);

/// What one section, or all of them together, say by switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    set: Flags,
    add: Flags,
    remove: Flags,
}

impl Default for Changes {
    fn default() -> Self {
        Self { set: Flags::UNSET, add: Flags::EMPTY, remove: Flags::EMPTY }
    }
}

impl Changes {
    /// The switches that hold. What was signed acts by being merged.
    #[must_use]
    pub(super) fn flags(self) -> Flags {
        self.set
    }

    fn take(&mut self, sign: Option<bool>, flag: Flags) {
        match sign {
            None => {
                self.set = self.set | flag;
                (self.add, self.remove) = (Flags::EMPTY, Flags::EMPTY);
            }
            Some(on) => {
                self.add = self.add.switched(flag, on);
                self.remove = self.remove.switched(flag, !on);
            }
        }
    }
}

impl Merge for Changes {
    fn merge(base: &Self, over: &Self) -> Self {
        if over.set == Flags::NONE {
            return Self { set: Flags::NONE, add: Flags::EMPTY, remove: Flags::EMPTY };
        }
        // One unsigned word keeps out all that outer sections say, and what is signed beside it.
        if over.set != Flags::UNSET {
            return Self { set: over.set, add: Flags::EMPTY, remove: Flags::EMPTY };
        }
        let add = (base.add | over.add) & !over.remove;
        let remove = base.remove | over.remove;
        Self { set: ((base.set & !Flags::NONE) | add) & !remove, add, remove }
    }
}

/// Takes the words of one IndexOptions line into account.
///
/// # Errors
/// What is wrong with a word, as Apache says it.
pub(super) fn apply(said: &mut Said, words: &[String]) -> Result<(), String> {
    // An empty word ends the list.
    for word in words.iter().take_while(|word| !word.is_empty()) {
        let (sign, name) = match word.as_bytes().first() {
            Some(b'+') => (Some(true), word.get(1..).unwrap_or_default()),
            Some(b'-') => (Some(false), word.get(1..).unwrap_or_default()),
            _ => (None, word.as_str()),
        };
        let known = WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let flag = match known {
            Some((_, flag)) => *flag,
            None if name.eq_ignore_ascii_case("None") => {
                if sign.is_some() {
                    return Err("Cannot combine '+' or '-' with 'None' keyword".into());
                }
                said.options = Changes { set: Flags::NONE, ..Changes::default() };
                Flags::EMPTY
            }
            None => {
                value(said, sign == Some(false), name)?;
                Flags::EMPTY
            }
        };
        said.options.take(sign, flag);
    }
    let set = said.options.set;
    if set.has(Flags::NONE) && set.has(!Flags::NONE) {
        return Err("Cannot combine other IndexOptions keywords with 'None'".into());
    }
    Ok(())
}

/// A word that carries a value, or stands for one.
fn value(said: &mut Said, minus: bool, name: &str) -> Result<(), String> {
    let (word, value) = match name.split_once('=') {
        Some((word, value)) => (word, Some(value)),
        None => (name, None),
    };
    let refused = |word: &str| Err(format!("Cannot combine '-' with {word}=n"));
    match (word.to_ascii_lowercase().as_str(), value) {
        ("iconwidth", None) => said.icon_width = if minus { 0 } else { ICON_PIXELS.0 },
        ("iconheight", None) => said.icon_height = if minus { 0 } else { ICON_PIXELS.1 },
        ("iconwidth", Some(_)) if minus => return refused("IconWidth"),
        ("iconheight", Some(_)) if minus => return refused("IconHeight"),
        ("iconwidth", Some(value)) => said.icon_width = number(value),
        ("iconheight", Some(value)) => said.icon_height = number(value),
        ("namewidth", value) => {
            width(&mut said.name_width, ("NameWidth", LEAST_WIDTHS.0), minus, value)?;
        }
        ("descriptionwidth", value) => {
            let what = ("DescriptionWidth", LEAST_WIDTHS.1);
            width(&mut said.description_width, what, minus, value)?;
        }
        ("type", Some(value)) => said.media_type = Some(value.into()),
        ("charset", Some(value)) => said.charset = Some(value.into()),
        ("useolddateformat", None) => said.old_dates = true,
        _ => return Err("Invalid directory indexing option".into()),
    }
    Ok(())
}

fn width(
    width: &mut Option<Width>,
    (name, least): (&str, i32),
    minus: bool,
    value: Option<&str>,
) -> Result<(), String> {
    *width = Some(match value {
        None if minus => Width::default(),
        None => {
            return Err(format!("{name} with no value may only appear as '-{name}'"));
        }
        Some(_) if minus => return Err(format!("Cannot combine '-' with {name}=n")),
        Some(value) if value.starts_with('*') => Width { grows: true, ..width.unwrap_or_default() },
        Some(value) => {
            let columns = number(value);
            if columns != 0 && columns < least {
                return Err(format!("{name} value must be greater than {least}"));
            }
            Width { columns: usize::try_from(columns).unwrap_or(0), grows: false }
        }
    });
    Ok(())
}

/// The number at the start of a text, 0 where there is none (atoi).
fn number(text: &str) -> i32 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = digits.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let value: i32 = digits.get(..end).unwrap_or_default().parse().unwrap_or(0);
    if text.starts_with('-') { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> Result<Said, String> {
        let mut said = Said::default();
        for line in lines {
            let words: Vec<String> = line.split_whitespace().map(Into::into).collect();
            apply(&mut said, &words)?;
        }
        Ok(said)
    }

    fn merged(sections: &[&[&str]]) -> Flags {
        let fold = |base: Said, lines: &&[&str]| Said::merge(&base, &said(lines).unwrap());
        sections.iter().fold(Said::default(), fold).options.flags() & !Flags::UNSET
    }

    #[test]
    fn signed_words_change_what_outer_sections_say_and_unsigned_ones_replace_it() {
        let fancy = Flags::FANCY | Flags::TABLE;
        assert_eq!(merged(&[&["FancyIndexing HTMLTable"], &["+IgnoreCase"]]), {
            fancy | Flags::IGNORE_CASE
        });
        assert_eq!(merged(&[&["FancyIndexing HTMLTable"], &["-HTMLTable"]]), Flags::FANCY);
        assert_eq!(merged(&[&["FancyIndexing HTMLTable"], &["XHTML"]]), Flags::XHTML);
        assert_eq!(merged(&[&["FancyIndexing"], &["None"], &["+XHTML"]]), Flags::XHTML);
        // What is signed beside an unsigned word is lost.
        assert_eq!(merged(&[&["FancyIndexing +XHTML"]]), Flags::FANCY);
        // What a section takes away stays away further in.
        assert_eq!(merged(&[&["-XHTML"], &["+XHTML"]]), Flags::EMPTY);
    }

    #[test]
    fn without_a_merge_signed_words_do_not_act() {
        assert_eq!(said(&["+FancyIndexing"]).unwrap().options.flags(), Flags::UNSET);
    }

    #[test]
    fn widths_and_values() {
        let got = said(&[
            "NameWidth=30 DescriptionWidth=* IconWidth IconHeight=7px Charset=x Type=text/y",
            "NameWidth=* UseOldDateFormat",
        ])
        .unwrap();
        assert_eq!(got.name_width, Some(Width { columns: 30, grows: true }));
        assert_eq!(got.description_width, Some(Width { columns: 23, grows: true }));
        assert_eq!((got.icon_width, got.icon_height), (20, 7));
        assert_eq!(
            (got.charset.as_deref(), got.media_type.as_deref()),
            (Some("x"), Some("text/y"))
        );
        assert!(got.old_dates);
        let less = said(&["NameWidth=30 -NameWidth -IconWidth"]).unwrap();
        assert_eq!((less.name_width, less.icon_width), (Some(Width::default()), 0));
    }

    #[test]
    fn wrong_words_are_refused_in_apaches_words() {
        for (line, text) in [
            ("Fancy", "Invalid directory indexing option"),
            ("+None", "Cannot combine '+' or '-' with 'None' keyword"),
            ("None XHTML", "Cannot combine other IndexOptions keywords with 'None'"),
            ("NameWidth", "NameWidth with no value may only appear as '-NameWidth'"),
            ("-NameWidth=7", "Cannot combine '-' with NameWidth=n"),
            ("NameWidth=4", "NameWidth value must be greater than 5"),
            ("DescriptionWidth=11", "DescriptionWidth value must be greater than 12"),
            ("-IconHeight=3", "Cannot combine '-' with IconHeight=n"),
        ] {
            assert_eq!(said(&[line]).err().as_deref(), Some(text), "{line}");
        }
    }
}
