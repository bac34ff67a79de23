//! How a misspelled name differs from another: by one error of typing at most (mod_speling.c:
//! spdist, after Kernighan and Pike, The UNIX Programming Environment).

/// The difference, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quality {
    Miscapitalized,
    Transposition,
    MissingCharacter,
    ExtraCharacter,
    SimpleTypo,
    /// Only what stands before the first dot is the same.
    Basename,
}

impl Quality {
    /// The words of a list of choices.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Miscapitalized => "miscapitalized",
            Self::Transposition => "transposed characters",
            Self::MissingCharacter => "character missing",
            Self::ExtraCharacter => "extra character",
            Self::SimpleTypo => "mistyped character",
            Self::Basename => "common basename",
        }
    }
}

/// The difference of what was asked for from a name, without regard to case; none where it is more
/// than one error.
pub(super) fn distance(asked: &[u8], name: &[u8]) -> Option<Quality> {
    let same = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(b);
    let pairs = asked.iter().zip(name);
    let common = pairs.take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    let (asked, name) = (asked.get(common..)?, name.get(common..)?);
    match (asked, name) {
        ([], []) => Some(Quality::Miscapitalized),
        ([a, b, asked @ ..], [c, d, name @ ..])
            if same(&[*a, *b], &[*d, *c]) && same(asked, name) =>
        {
            Some(Quality::Transposition)
        }
        ([_, asked @ ..], [_, name @ ..]) if same(asked, name) => Some(Quality::SimpleTypo),
        ([_, asked @ ..], name) if same(asked, name) => Some(Quality::ExtraCharacter),
        (asked, [_, name @ ..]) if same(asked, name) => Some(Quality::MissingCharacter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_error_is_recognised() {
        for (asked, name, quality) in [
            ("Index", "index", Some(Quality::Miscapitalized)),
            ("idnex", "INDEX", Some(Quality::Transposition)),
            ("inex", "index", Some(Quality::MissingCharacter)),
            ("indexx", "index", Some(Quality::ExtraCharacter)),
            ("inddex", "index", Some(Quality::ExtraCharacter)),
            ("indix", "index", Some(Quality::SimpleTypo)),
            ("", "x", Some(Quality::MissingCharacter)),
            ("x", "", Some(Quality::ExtraCharacter)),
            ("idnxe", "index", None),
            ("ab", "cd", None),
        ] {
            assert_eq!(distance(asked.as_bytes(), name.as_bytes()), quality, "{asked} {name}");
        }
    }
}
