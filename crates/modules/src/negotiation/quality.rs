//! What a client thinks of one variant in each dimension: media type, language, charset and
//! encoding. The Accept fields and a variant go in, its qualities come out (mod_negotiation.c:
//! set_accept_quality, set_language_quality, set_charset_quality, set_encoding_quality).

use super::accept::{Accepted, Range};
use super::variant::{Qualities, Variant};
use super::{Directory, Force};

/// How far the Accept fields are taken at their word.
pub(crate) struct Judge<'a> {
    pub accepted: &'a Accepted,
    pub settings: &'a Directory,
    /// Whether the client knows transparent negotiation, so that nothing is guessed.
    pub literal: bool,
    /// Whether an element of Accept has a quality below 1.
    pub types_are_ranked: bool,
    /// The quality of a variant that names no language.
    pub no_language: f32,
}

impl Judge<'_> {
    /// Judges a variant. A language that `prefer-language` demands counts as wanted.
    pub(crate) fn judge(&self, variant: &mut Variant, language_preferred: bool) {
        variant.seen = Qualities::default();
        self.media_type(variant);
        if language_preferred {
            (variant.seen.language, variant.seen.definite) = (1.0, true);
        } else {
            self.language(variant);
        }
        self.encoding(variant);
        self.charset(variant);
    }

    fn media_type(&self, variant: &mut Variant) {
        let Some(ranges) = &self.accepted.types else { return };
        let (mut quality, mut definite) = (0.0, true);
        for range in ranges {
            let before = variant.seen.closeness;
            if !matches_type(range, variant) || variant.seen.closeness == before {
                continue;
            }
            let closeness = variant.seen.closeness;
            // Where nothing is ranked, a wildcard is what browsers say without meaning it.
            quality = match closeness {
                1 if !self.literal && !self.types_are_ranked => 0.01,
                2 if !self.literal && !self.types_are_ranked => 0.02,
                _ => range.quality,
            };
            definite = closeness == 3;
        }
        variant.seen.media_type = quality;
        variant.seen.definite &= definite;
    }

    fn language(&self, variant: &mut Variant) {
        if variant.languages.is_empty() {
            if !self.literal {
                variant.seen.language = self.no_language;
            }
            return;
        }
        match &self.accepted.languages {
            None => variant.seen.definite = false,
            Some(ranges) => self.match_languages(variant, ranges),
        }
        self.force_language(variant);
    }

    /// The best quality that any of the variant's languages has.
    fn match_languages(&self, variant: &mut Variant, ranges: &[Range]) {
        let star = ranges.iter().find(|range| range.name == b"*");
        let (mut best, mut by_star, mut nearly): (Option<&Range>, _, _) = (None, false, false);
        for language in &variant.languages {
            let mut longest: Option<&Range> = None;
            for range in ranges.iter().filter(|range| range.name != b"*") {
                if matches_language(language, &range.name)
                    && longest.is_none_or(|known| range.name.len() > known.name.len())
                {
                    longest = Some(range);
                }
                // A browser that asks for en-US alone may have to do with en-GB.
                let mut parts = range.name.splitn(2, |byte| *byte == b'-');
                if let (None, Some(prefix), Some(_)) = (longest, parts.next(), parts.next()) {
                    nearly |= !self.literal && language.starts_with(prefix);
                }
            }
            let better = |known: &Range| longest.is_some_and(|new| new.quality > known.quality);
            if best.is_none_or(better) {
                best = longest;
            }
            by_star |= longest.is_none() && star.is_some();
        }
        if let Some(star) = star.filter(|_| by_star)
            && best.is_none_or(|best| star.quality > best.quality)
        {
            best = Some(star);
            variant.seen.definite = false;
        }
        let guessed = if nearly { 0.001 } else { 0.0 };
        variant.seen.language = best.map_or(guessed, |best| best.quality);
    }

    /// LanguagePriority, as far as ForceLanguagePriority lets it decide.
    fn force_language(&self, variant: &mut Variant) {
        let Force { prefer, fallback } = self.settings.force.unwrap_or_default();
        let unwanted = variant.seen.language == 0.0;
        if !(prefer || fallback && unwanted) {
            return;
        }
        let priority = self.settings.priority.as_deref().map(Vec::as_slice).unwrap_or_default();
        let place = |language: &Vec<u8>| {
            let starts = |prefix: &[u8]| {
                let start = language.get(..prefix.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            };
            priority.iter().position(|prefix| starts(prefix.as_bytes()))
        };
        let Some(index) = variant.languages.iter().filter_map(place).min() else { return };
        if !unwanted && prefer {
            variant.seen.language_index = Some(index);
        } else if unwanted && fallback {
            variant.seen.language_index = Some(index);
            variant.seen.language = 0.0001;
            variant.seen.definite = false;
        }
    }

    fn charset(&self, variant: &mut Variant) {
        let Some(ranges) = &self.accepted.charsets else {
            variant.seen.definite &= variant.charset.is_empty();
            return;
        };
        let mut charset = variant.charset.as_slice();
        if charset.is_empty() {
            let is_text = variant.media_type.starts_with(b"text/");
            if !is_text || self.literal {
                return;
            }
            // What text without a charset was once taken to be (RFC 2616, section 3.7.1).
            charset = b"iso-8859-1";
        }
        let named = |name: &[u8]| ranges.iter().find(|range| range.name == name);
        // The last of several stars counts, as in Apache.
        let star = ranges.iter().rfind(|range| range.name == b"*");
        variant.seen.charset = match (named(charset), star) {
            (Some(range), _) => range.quality,
            (None, Some(star)) => {
                variant.seen.definite = false;
                star.quality
            }
            (None, None) => f32::from(u8::from(charset == b"iso-8859-1")),
        };
    }

    fn encoding(&self, variant: &mut Variant) {
        let plain = variant.is_plain();
        let Some(ranges) = &self.accepted.encodings else {
            variant.seen.encoding = if plain { 1.0 } else { 0.5 };
            return;
        };
        let own = variant.encoding.as_deref().unwrap_or_default();
        let name = if plain { b"identity" } else { without_x(own) };
        let named = ranges.iter().find(|range| without_x(&range.name) == name);
        let star = ranges.iter().rfind(|range| range.name == b"*");
        variant.seen.encoding = match (named, star) {
            (Some(range), _) | (None, Some(range)) => range.quality,
            (None, None) if plain => 0.0001,
            (None, None) => 0.0,
        };
    }
}

/// `gzip` and `x-gzip` are the same (RFC 9110, section 8.4.1.3).
pub(crate) fn without_x(encoding: &[u8]) -> &[u8] {
    encoding.strip_prefix(b"x-").unwrap_or(encoding)
}

/// Whether a language is in a range: the same, or with a subtag more.
fn matches_language(language: &[u8], range: &[u8]) -> bool {
    language.strip_prefix(range).is_some_and(|rest| matches!(rest, [] | [b'-', ..]))
}

/// Whether a range of media types holds the variant's; notes how closely.
fn matches_type(range: &Range, variant: &mut Variant) -> bool {
    let name = range.name.as_slice();
    if matches!(name, b"*" | b"*/*") {
        variant.seen.closeness = variant.seen.closeness.max(1);
        return true;
    }
    let kind = name.strip_suffix(b"*").filter(|kind| kind.ends_with(b"/"));
    if kind.is_some_and(|kind| variant.media_type.starts_with(kind)) {
        variant.seen.closeness = variant.seen.closeness.max(2);
        return true;
    }
    let same = name == variant.media_type || (name == b"text/html" && variant.is_parsed_html());
    if same && range.level >= variant.level {
        variant.seen.level_matched = variant.level;
        variant.seen.closeness = 3;
        return true;
    }
    false
}
