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

/// What one section says of the options: a whole new set, changes to the outer section's, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionChange {
    /// `Options A B`: these and no others, with the changes that came later.
    set: Option<Options>,
    /// Switched on by `+A`.
    add: Options,
    /// Switched off by `-A`.
    remove: Options,
    /// Whether they are those of an .htaccess file without a directive of core, of which Apache
    /// merges nothing: not even what `+A` and `-A` before a whole set have left in the outer one.
    is_absent: bool,
    /// Whether the section switches includes on without programs, over one that has them with
    /// programs. A later section with a whole set, or with changes, decides anew.
    hides_exec: bool,
}

impl OptionChange {
    /// The effective options; without any directive FollowSymLinks holds, as in Apache 2.4.
    #[must_use]
    pub fn effective(&self) -> Options {
        let options = self.set.unwrap_or((Options::FOLLOW_SYM_LINKS & !self.remove) | self.add);
        if self.hides_exec { options & !Options::INCLUDES_EXEC } else { options }
    }

    /// Takes the words of one `Options` line into account. In a `.htaccess` file only the
    /// options of `allowed` may be named.
    ///
    /// # Errors
    /// The text of an unknown or forbidden option, of signed words beside unsigned ones, or of All
    /// or None with a sign or behind another word.
    ///
    /// Source: server/core.c, set_options.
    pub fn apply(&mut self, words: &[&str], allowed: Options) -> Result<(), String> {
        const MIXED: &str = "Either all Options must start with + or -, or no Option may.";
        let mut is_signed = false;
        let mut begins_whole = false;
        for (at, word) in words.iter().enumerate() {
            let (sign, name) = match word.as_bytes().first() {
                Some(b'+') => (Some(true), word.get(1..).unwrap_or_default()),
                Some(b'-') => (Some(false), word.get(1..).unwrap_or_default()),
                _ => (None, *word),
            };
            if at > 0 && sign.is_some() != is_signed && (is_signed || !begins_whole) {
                return Err(MIXED.into());
            }
            is_signed |= sign.is_some();
            let option = Options::parse(name).ok_or_else(|| format!("Illegal option {name}"))?;
            let wholes = [("None", "Option"), ("All", "option")];
            let whole = wholes.iter().find(|(whole, _)| whole.eq_ignore_ascii_case(name));
            if let Some((whole, what)) = whole {
                if at > 0 {
                    return Err(format!("'Options {whole}' must be the first {what} given."));
                }
                if is_signed {
                    let text = format!("You may not use 'Options +{whole}' or 'Options -{whole}'.");
                    return Err(text);
                }
                begins_whole = true;
            }
            if !allowed.has(option) {
                return Err(format!("Option {name} not allowed here"));
            }
            if at == 0 && sign.is_none() {
                self.set = Some(Options::NONE);
            }
            self.take(sign, option);
        }
        Ok(())
    }

    /// Says that the section has no directive of core.
    pub fn leave(&mut self) {
        self.is_absent = true;
    }

    fn take(&mut self, sign: Option<bool>, option: Options) {
        match sign {
            None => {}
            Some(true) => {
                self.add = self.add | option;
                self.remove = self.remove & !option;
            }
            Some(false) => {
                self.remove = self.remove | option;
                self.add = self.add & !option;
            }
        }
        let changed = |set: Options| match sign {
            Some(false) => set & !option,
            _ => set | option,
        };
        self.set = self.set.map(changed);
    }
}

impl Merge for OptionChange {
    fn merge(base: &Self, over: &Self) -> Self {
        if over.is_absent {
            return *base;
        }
        if over.set.is_some() {
            return *over;
        }
        let add = (base.add & !over.remove) | over.add;
        let remove = (base.remove & !over.add) | over.remove;
        // `+IncludesNOEXEC` over `Includes` takes the programs away (core.c:
        // merge_core_dir_configs).
        let both = Options::INCLUDES | Options::INCLUDES_EXEC;
        let hides_exec = over.add & both == Options::INCLUDES && base.effective().has(both);
        let kept = if hides_exec { !Options::INCLUDES_EXEC } else { Options::EVERY };
        let set = base.set.map(|set| ((set & !remove) | add) & kept);
        Self { set, add, remove, is_absent: false, hides_exec }
    }
}

/// What AllowOverride lets an .htaccess file say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl AllowOverride {
    /// No class; every option, should `Options` be allowed otherwise.
    pub const NONE: Self = Self {
        overrides: Overrides::NONE,
        options: Options::EVERY,
        nonfatal_override: false,
        nonfatal_unknown: false,
    };

    /// The same options with these classes, and nothing that is not fatal.
    #[must_use]
    pub const fn only(self, overrides: Overrides) -> Self {
        Self { overrides, options: self.options, ..Self::NONE }
    }

    /// Whether it was `None` that was said.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.overrides.is_none() && !self.nonfatal_override && !self.nonfatal_unknown
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
        let begun = change(&[&["None", "+Indexes", "-Indexes", "+ExecCGI"]]).unwrap();
        assert_eq!(begun.effective(), Options::EXEC_CGI);
    }

    #[test]
    fn what_a_section_removed_stays_removed_in_what_changes_it() {
        let base = change(&[&["-Indexes"], &["Indexes"]]).unwrap();
        assert_eq!(base.effective(), Options::INDEXES);
        let inner = OptionChange::merge(&base, &change(&[&["+MultiViews"]]).unwrap());
        assert_eq!(inner.effective(), Options::MULTI_VIEWS);
    }

    #[test]
    fn mixed_signs_and_unknown_words_are_errors() {
        let text = |words: &[&str]| change(&[words]).unwrap_err();
        for mixed in [
            ["+Indexes", "MultiViews"],
            ["Indexes", "+MultiViews"],
            ["+Indexes", "None"],
            ["Indexes", "-Bogus"],
        ] {
            assert!(text(&mixed).starts_with("Either all"), "{mixed:?}");
        }
        assert!(text(&["None", "+Indexes", "MultiViews"]).starts_with("Either all"));
        assert_eq!(text(&["Index"]), "Illegal option Index");
        assert_eq!(text(&["-all"]), "You may not use 'Options +All' or 'Options -All'.");
        assert_eq!(text(&["+None"]), "You may not use 'Options +None' or 'Options -None'.");
        assert_eq!(text(&["All", "None"]), "'Options None' must be the first Option given.");
        assert_eq!(text(&["Indexes", "All"]), "'Options All' must be the first option given.");
        let mut limited = OptionChange::default();
        let text = limited.apply(&["ExecCGI"], Options::INDEXES).unwrap_err();
        assert_eq!(text, "Option ExecCGI not allowed here");
    }
}
