//! Options and what an .htaccess file may override: bits with Apache's meaning (core.c:
//! set_options, set_override), and their merge.

use crate::Merge;
use evenkeel_config::Overrides;
use std::ops::{BitAnd, BitOr, Not};

/// The features that `Options` switches (http_core.h: OPT_*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options(u8);

impl Options {
    /// None of them.
    pub const NONE: Options = Options(0);
    /// Indexes.
    pub const INDEXES: Options = Options(1);
    /// IncludesNOEXEC, and part of Includes.
    pub const INCLUDES: Options = Options(2);
    /// FollowSymLinks.
    pub const FOLLOW_SYM_LINKS: Options = Options(4);
    /// ExecCGI.
    pub const EXEC_CGI: Options = Options(8);
    /// The part of Includes that starts programs.
    pub const INCLUDES_EXEC: Options = Options(32);
    /// SymLinksIfOwnerMatch.
    pub const SYM_LINKS_IF_OWNER_MATCH: Options = Options(64);
    /// MultiViews.
    pub const MULTI_VIEWS: Options = Options(128);
    /// All but MultiViews.
    pub const ALL: Options = Options(1 | 2 | 4 | 8 | 32);
    /// Every bit.
    pub const EVERY: Options = Options(1 | 2 | 4 | 8 | 32 | 64 | 128);

    /// The options of a number that [`Options::bits`] gave.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Options {
        Options(bits as u8)
    }

    /// A number for them.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Options) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of one word of the directive, without its sign.
    pub fn parse(word: &str) -> Option<Options> {
        Some(match word.to_ascii_lowercase().as_str() {
            "indexes" => Options::INDEXES,
            "includes" => Options::INCLUDES | Options::INCLUDES_EXEC,
            "includesnoexec" => Options::INCLUDES,
            "followsymlinks" => Options::FOLLOW_SYM_LINKS,
            "symlinksifownermatch" => Options::SYM_LINKS_IF_OWNER_MATCH,
            "execcgi" => Options::EXEC_CGI,
            "multiviews" => Options::MULTI_VIEWS,
            "runscripts" => Options::MULTI_VIEWS | Options::EXEC_CGI,
            "none" => Options::NONE,
            "all" => Options::ALL,
            _ => return None,
        })
    }
}

impl BitOr for Options {
    type Output = Options;
    fn bitor(self, other: Options) -> Options {
        Options(self.0 | other.0)
    }
}

impl BitAnd for Options {
    type Output = Options;
    fn bitand(self, other: Options) -> Options {
        Options(self.0 & other.0)
    }
}

impl Not for Options {
    type Output = Options;
    fn not(self) -> Options {
        Options(!self.0)
    }
}

/// What one section says of the options: a whole new set, or changes to the outer section's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionChange {
    /// `Options A B`: these and no others.
    Set(Options),
    /// `Options +A -B`.
    Change {
        /// Switched on.
        add: Options,
        /// Switched off.
        remove: Options,
    },
}

impl Default for OptionChange {
    fn default() -> Self {
        OptionChange::Change { add: Options::NONE, remove: Options::NONE }
    }
}

impl OptionChange {
    /// Whether a section said anything.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        *self == OptionChange::default()
    }

    /// The effective options; without any directive FollowSymLinks holds, as in Apache 2.4.
    #[must_use]
    pub fn effective(&self) -> Options {
        match *self {
            OptionChange::Set(options) => options,
            OptionChange::Change { add, remove } => (Options::FOLLOW_SYM_LINKS & !remove) | add,
        }
    }

    /// Takes the words of one `Options` line into account. In a `.htaccess` file only the
    /// options of `allowed` may be named.
    ///
    /// # Errors
    /// The text of an unknown or forbidden option, or of signed words beside unsigned ones.
    pub fn apply(&mut self, words: &[&str], allowed: Options) -> Result<(), String> {
        let mut first = true;
        for word in words {
            let (sign, name) = match word.as_bytes().first() {
                Some(b'+') => (Some(true), word.get(1..).unwrap_or_default()),
                Some(b'-') => (Some(false), word.get(1..).unwrap_or_default()),
                _ => (None, *word),
            };
            let option = Options::parse(name).ok_or_else(|| format!("Illegal option {name}"))?;
            if !allowed.has(option) {
                return Err(format!("Option {name} not allowed here"));
            }
            self.take(sign, option, first)?;
            first = false;
        }
        Ok(())
    }

    fn take(&mut self, sign: Option<bool>, option: Options, first: bool) -> Result<(), String> {
        const MIXED: &str = "Either all Options must start with + or -, or no Option may.";
        match (sign, &mut *self) {
            (None, OptionChange::Change { add, remove }) => {
                if !first && (*add != Options::NONE || *remove != Options::NONE) {
                    return Err(MIXED.into());
                }
                *self = OptionChange::Set(option);
            }
            (None, OptionChange::Set(options)) => {
                *options = if first { option } else { *options | option };
            }
            (Some(_), OptionChange::Set(_)) if !first => return Err(MIXED.into()),
            (Some(true), OptionChange::Set(options)) => *options = *options | option,
            (Some(false), OptionChange::Set(options)) => *options = *options & !option,
            (Some(true), OptionChange::Change { add, remove }) => {
                *remove = *remove & !option;
                *add = *add | option;
            }
            (Some(false), OptionChange::Change { add, remove }) => {
                *remove = *remove | option;
                *add = *add & !option;
            }
        }
        Ok(())
    }
}

impl Merge for OptionChange {
    fn merge(base: &Self, over: &Self) -> Self {
        match (*base, *over) {
            (_, OptionChange::Set(options)) => OptionChange::Set(options),
            (OptionChange::Set(options), OptionChange::Change { add, remove }) => {
                OptionChange::Set((options & !remove) | add)
            }
            (
                OptionChange::Change { add: old_add, remove: old_remove },
                OptionChange::Change { add, remove },
            ) => OptionChange::Change {
                add: (old_add & !remove) | add,
                remove: (old_remove & !add) | remove,
            },
        }
    }
}

/// What AllowOverride and AllowOverrideList let an .htaccess file say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowOverride {
    /// The classes of directives.
    pub overrides: Overrides,
    /// The options that `Options` may name there.
    pub options: Options,
    /// Whether forbidden directives are left out, in place of an error (Nonfatal=Override).
    pub nonfatal_override: bool,
    /// Whether unknown directives are ignored too (Nonfatal=Unknown or All).
    pub nonfatal_unknown: bool,
}

impl Default for AllowOverride {
    fn default() -> Self {
        Self {
            overrides: Overrides::NONE,
            options: Options::EVERY,
            nonfatal_override: false,
            nonfatal_unknown: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(lines: &[&[&str]]) -> Result<OptionChange, String> {
        let mut change = OptionChange::default();
        for words in lines {
            change.apply(words, Options::EVERY)?;
        }
        Ok(change)
    }

    #[test]
    fn signed_words_change_and_unsigned_ones_replace() {
        assert_eq!(change(&[]).unwrap().effective(), Options::FOLLOW_SYM_LINKS);
        let both = change(&[&["Indexes", "FollowSymLinks"]]).unwrap();
        assert_eq!(both.effective(), Options::INDEXES | Options::FOLLOW_SYM_LINKS);
        let less = change(&[&["-Indexes", "+MultiViews"]]).unwrap();
        let merged = OptionChange::merge(&both, &less).effective();
        assert_eq!(merged, Options::FOLLOW_SYM_LINKS | Options::MULTI_VIEWS);
        assert_eq!(change(&[&["None"]]).unwrap().effective(), Options::NONE);
    }

    #[test]
    fn mixed_signs_and_unknown_words_are_errors() {
        assert!(change(&[&["+Indexes", "MultiViews"]]).unwrap_err().starts_with("Either all"));
        assert!(change(&[&["Indexes", "+MultiViews"]]).unwrap_err().starts_with("Either all"));
        assert_eq!(change(&[&["Index"]]).unwrap_err(), "Illegal option Index");
        let mut limited = OptionChange::default();
        let text = limited.apply(&["ExecCGI"], Options::INDEXES).unwrap_err();
        assert_eq!(text, "Option ExecCGI not allowed here");
    }
}
