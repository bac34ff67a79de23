//! Which variant is the best: variants and what a request says go in, the index of one comes out
//! (mod_negotiation.c: best_match). Two algorithms are there: Apache's own, and the one of RFC 2296
//! for clients that ask for it.

use super::accept::Accepted;
use super::quality::Judge;
use super::variant::Variant;
use super::{Directory, Wish};
use evenkeel_message::Variables;
use std::cmp::Ordering;

/// The best variant and its quality.
type Best = Option<(usize, f32)>;

/// Judges all variants and picks the best; none where none is acceptable or may be picked.
pub(crate) fn choose(
    variants: &mut [Variant],
    accepted: &Accepted,
    settings: &Directory,
    env: &Variables,
    wish: Wish,
) -> Option<usize> {
    let has_language = variants.iter().any(|variant| !variant.languages.is_empty());
    let judge = Judge {
        accepted,
        settings,
        literal: wish.literal,
        types_are_ranked: wish.types_are_ranked,
        no_language: if has_language && !wish.literal { 0.0001 } else { 1.0 },
    };
    let unwanted = Unwanted::of(env);
    let preferred = env.value("prefer-language");
    if let Some(language) = preferred {
        let best = pass(variants, &judge, &wish, &unwanted, Some(language));
        if best.is_some() {
            return best;
        }
    }
    pass(variants, &judge, &wish, &unwanted, None)
}

/// One look at all variants; those in another than the preferred language are left out.
fn pass(
    variants: &mut [Variant],
    judge: &Judge<'_>,
    wish: &Wish,
    unwanted: &Unwanted,
    preferred: Option<&[u8]>,
) -> Option<usize> {
    let mut best: Best = None;
    for index in 0..variants.len() {
        let Some(variant) = variants.get_mut(index) else { break };
        let is_other = |language| !variant.languages.iter().any(|own| own == language);
        if unwanted.holds(variant) || preferred.is_some_and(is_other) {
            continue;
        }
        judge.judge(variant, preferred.is_some());
        if !wish.may_choose {
            continue;
        }
        let known = best.and_then(|(at, quality)| Some((variants.get(at)?, quality)));
        let Some(variant) = variants.get(index) else { break };
        let better =
            if wish.by_rfc { better_by_rfc(variant, known) } else { better(variant, known) };
        if let Some(quality) = better {
            best = Some((index, quality));
        }
    }
    let (index, _) = best?;
    let definite = variants.get(index).is_some_and(|variant| variant.seen.definite);
    (!wish.by_rfc || definite).then_some(index)
}

/// Encoded variants that the environment keeps back, as it does those that mod_deflate makes.
enum Unwanted {
    None,
    /// `no-gzip`
    All,
    /// `gzip-only-text/html`
    AllButHtml,
}

impl Unwanted {
    fn of(env: &Variables) -> Self {
        if env.contains("no-gzip") {
            Unwanted::All
        } else if env.value("gzip-only-text/html") == Some(b"1") {
            Unwanted::AllButHtml
        } else {
            Unwanted::None
        }
    }

    fn holds(&self, variant: &Variant) -> bool {
        if variant.is_plain() || variant.encoding.as_deref() == Some(b"identity") {
            return false;
        }
        match self {
            Unwanted::None => false,
            Unwanted::All => true,
            Unwanted::AllButHtml => !variant.media_type.starts_with(b"text/html"),
        }
    }
}

/// The quality of a variant that is better than the best so far (RFC 2296; mod_negotiation.c:
/// is_variant_better_rvsa).
fn better_by_rfc(variant: &Variant, best: Option<(&Variant, f32)>) -> Option<f32> {
    let seen = &variant.seen;
    if seen.encoding == 0.0 {
        return None;
    }
    let quality = seen.media_type * variant.source_quality * seen.charset * seen.language;
    let better = match best {
        _ if quality <= 0.0 => false,
        None => true,
        Some((best, known)) => {
            quality > known || (quality == known && seen.encoding > best.seen.encoding)
        }
    };
    better.then_some(quality)
}

/// The quality of a variant that is better than the best so far: by media type, then language,
/// level, charset, encoding and length (mod_negotiation.c: is_variant_better).
fn better(variant: &Variant, best: Option<(&Variant, f32)>) -> Option<f32> {
    let seen = &variant.seen;
    let all = [seen.encoding, seen.language, variant.source_quality, seen.charset, seen.media_type];
    let quality = seen.media_type * variant.source_quality;
    if all.contains(&0.0) || quality == 0.0 {
        return None;
    }
    let Some((best, known)) = best else { return Some(quality) };
    let order = quality
        .total_cmp(&known)
        .then_with(|| seen.language.total_cmp(&best.seen.language))
        .then_with(|| earlier(seen.language_index, best.seen.language_index))
        .then_with(|| levels(variant, best))
        .then_with(|| charsets(variant, best))
        .then_with(|| seen.encoding.total_cmp(&best.seen.encoding))
        .then_with(|| lengths(best).cmp(&lengths(variant)));
    order.is_gt().then_some(quality)
}

/// A variant of unknown length counts as the shortest, as in Apache.
fn lengths(variant: &Variant) -> Option<u64> {
    variant.length
}

/// An earlier place in LanguagePriority is better, and any is better than none.
fn earlier(one: Option<usize>, other: Option<usize>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => other.cmp(&one),
        (one, other) => one.is_some().cmp(&other.is_some()),
    }
}

/// The highest level that the client has named, else the lowest there is.
fn levels(one: &Variant, other: &Variant) -> Ordering {
    let comparable =
        if one.is_html() { other.is_html() } else { one.media_type == other.media_type };
    if !comparable {
        return Ordering::Equal;
    }
    let matched = one.seen.level_matched.total_cmp(&other.seen.level_matched);
    matched.then_with(|| other.level.total_cmp(&one.level))
}

/// The better quality; between two of the same, another charset wins over ISO-8859-1 or none.
fn charsets(one: &Variant, other: &Variant) -> Ordering {
    let is_other = |variant: &Variant| !matches!(variant.charset.as_slice(), b"" | b"iso-8859-1");
    match one.seen.charset.total_cmp(&other.seen.charset) {
        Ordering::Equal if is_other(one) && !is_other(other) => Ordering::Greater,
        order => order,
    }
}
