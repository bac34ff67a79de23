//! mod_negotiation: which of several files a request is answered with. The variants of a resource
//! and the fields of a request go in; the best of them, what the response tells about the choice,
//! or 300 and 406 come out. It looks at no file: `pipeline` finds the variants (MultiViews) and
//! reads the type maps.

mod accept;
mod answer;
mod choice;
mod directives;
mod folder;
mod map;
mod quality;
#[cfg(test)]
mod tests;
mod variant;

pub use crate::NoSettings as Global;
pub use answer::escape_segment;
pub use directives::MODULE;
pub use folder::{few_siblings, siblings};
pub use map::{Fault, map_text, read_map};
pub use variant::Variant;

use crate::Merge;
use accept::{Accepted, Range, ranges};
use evenkeel_message::{
    Content, Fields, Level, Method, Notice, Request, Status, Version, eq_ignore_case, quoted_path,
};
use std::sync::Arc;

/// The media type of a type map.
const MAP_TYPE: &[u8] = b"application/x-type-map";
/// The media type that stands for a program, whatever it makes.
pub const PROGRAM_TYPE: &[u8] = b"application/x-httpd-cgi";
/// The note under which the list of variants waits for the page of 300 or 406.
pub const LIST_NOTE: &str = "variant-list";

/// When LanguagePriority decides (ForceLanguagePriority).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Force {
    /// Between variants that the client likes alike.
    pub prefer: bool,
    /// Where the client likes none of them.
    pub fallback: bool,
}

impl Force {
    /// Never.
    pub const NONE: Force = Force { prefer: false, fallback: false };
}

impl Default for Force {
    fn default() -> Self {
        Self { prefer: true, fallback: false }
    }
}

/// What a section says of languages.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// LanguagePriority; an element stands for all languages that begin with it.
    pub priority: Option<Arc<Vec<Box<str>>>>,
    /// ForceLanguagePriority.
    pub force: Option<Force>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; priority, force)
    }
}

/// What a server says.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// `CacheNegotiatedDocs On`.
    pub cache_documents: Option<()>,
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; cache_documents)
    }
}

/// Whether the content is a type map, by its handler or, where none is set, by its media type.
#[must_use]
pub fn is_map(content: &Content) -> bool {
    match (&content.handler, &content.media_type) {
        (Some(handler), _) => matches!(&**handler, b"type-map" | MAP_TYPE),
        (None, Some(media_type)) => media_type
            .strip_prefix(MAP_TYPE)
            .is_some_and(|rest| matches!(rest, [] | [b';' | b' ', ..])),
        (None, None) => false,
    }
}

/// Whether a file among those that a name may mean stands for all of them: here its media type is
/// heeded beside a handler too (mod_negotiation.c: read_types_multi).
#[must_use]
pub fn is_map_of_name(content: &Content) -> bool {
    let by_type = Content { media_type: content.media_type.clone(), ..Content::default() };
    content.handler.as_deref() == Some(b"type-map") || is_map(&by_type)
}

/// What is negotiated about.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Whether a program is preferred to files: the request is no plain GET (MultiViews alone).
    pub prefers_programs: bool,
}

/// What came of it.
#[derive(Debug)]
pub enum Outcome {
    /// This variant. With `transparent` the response names it (Content-Location). The fields
    /// belong to the response.
    Choice {
        /// Its index.
        index: usize,
        /// Whether the choice is one of RFC 2295, whose rules hold for the variant too.
        transparent: bool,
        /// Vary, Alternates and TCN.
        fields: Fields,
    },
    /// None of them: 300 or 406, and the list of all for the page.
    List {
        /// The status.
        status: Status,
        /// Vary, Alternates and TCN.
        fields: Fields,
        /// HTML.
        list: Vec<u8>,
    },
}

/// How the client wants the choice to be made (RFC 2295, section 8.4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    pub knows_transparent: bool,
    pub with_alternates: bool,
    pub may_choose: bool,
    pub by_rfc: bool,
    /// Whether the Accept fields mean what they say.
    pub literal: bool,
    /// Whether an element of Accept has a quality below 1.
    pub types_are_ranked: bool,
}

/// Negotiates: chooses a variant, or says why none.
pub fn negotiate(
    request: &mut Request,
    settings: &Directory,
    variants: &mut [Variant],
    resource: Resource,
) -> Outcome {
    let neighbours =
        variants.iter().all(|variant| variant.body.is_none() && !variant.name.contains(&b'/'));
    let reads = matches!(request.resource.method, Method::Get | Method::Head);
    let transparent = reads && neighbours && request.resource.path_info.is_empty();
    let mut wish = match transparent {
        true => wish(request.fields()),
        false => Wish { may_choose: true, ..Wish::default() },
    };
    let mut accepted = Accepted::read(request.fields());
    let ranks = |ranges: &Vec<Range>| ranges.iter().any(|range| range.quality < 1.0);
    wish.types_are_ranked = accepted.types.as_ref().is_some_and(ranks);
    let types = accepted.types.get_or_insert_with(|| vec![Range::plain(b"*/*")]);
    let program = match resource.prefers_programs {
        _ if wish.by_rfc => 0.0,
        true => 2.0,
        false => 0.001,
    };
    types.push(Range { quality: program, ..Range::plain(PROGRAM_TYPE) });
    match choice::choose(variants, &accepted, settings, &request.resource.env, wish) {
        Some(index) => {
            let fields = answer::describe(variants, transparent, wish.with_alternates, false);
            Outcome::Choice { index, transparent, fields }
        }
        None => {
            let status = if wish.knows_transparent {
                Status::MULTIPLE_CHOICES
            } else {
                let file = quoted_path(&request.resource.file);
                let text = format!("no acceptable variant: {file}");
                request.notify(Notice::new("negotiation", Level::Error, 690, text));
                Status::NOT_ACCEPTABLE
            };
            let fields = answer::describe(variants, transparent, true, true);
            Outcome::List { status, fields, list: answer::list(variants) }
        }
    }
}

/// What the Negotiate field asks for (mod_negotiation.c: parse_negotiate_header).
fn wish(fields: &Fields) -> Wish {
    let usual = Wish { may_choose: true, ..Wish::default() };
    let Some(asked) = fields.joined(b"Negotiate") else { return usual };
    // Lynx says so without knowing transparent negotiation.
    let agent = fields.first("User-Agent").unwrap_or_default();
    if asked == b"trans" && agent.starts_with(b"Lynx") {
        return usual;
    }
    let mut wish = Wish::default();
    for token in fields.tokens(b"Negotiate") {
        let is_version = token.first().is_some_and(u8::is_ascii_digit);
        if !is_version && !matches!(token, b"trans" | b"vlist" | b"guess-small" | b"*") {
            continue;
        }
        (wish.knows_transparent, wish.with_alternates) = (true, true);
        if token == b"1.0" {
            (wish.may_choose, wish.by_rfc, wish.literal) = (true, true, true);
        } else if token == b"*" {
            (wish.may_choose, wish.literal) = (true, true);
        }
    }
    wish
}

/// Whether a cache that knows no Vary must not keep the response: the client speaks HTTP/1.0 and
/// CacheNegotiatedDocs is off.
#[must_use]
pub fn is_uncached(request: &Request, server: &Server) -> bool {
    server.cache_documents.is_none() && request.head.version < Version::Http11
}

/// Spells the encoding of the content as the client does, `gzip` or `x-gzip` (mod_negotiation.c:
/// fix_encoding).
pub fn spell_encoding(request: &mut Request) {
    let Some(own) = request.resource.content.encoding.as_deref().filter(|own| !own.is_empty())
    else {
        return;
    };
    let Some(asked) = request.fields().joined(b"Accept-Encoding") else { return };
    let plain = quality::without_x(own);
    let asked = ranges(&asked);
    let same = asked.iter().find(|range| range.name == plain);
    let with_x = |range: &&Range| range.name.strip_prefix(b"x-").is_some_and(|name| name == plain);
    // Of several spellings with x- the last counts, as in Apache.
    if let Some(range) = same.or_else(|| asked.iter().rfind(with_x)) {
        request.resource.content.encoding = Some(range.name.as_slice().into());
    }
}

/// Puts the fields of a negotiation among those that every response gets.
pub fn tell(request: &mut Request, fields: &Fields) {
    for (name, value) in fields.iter() {
        if eq_ignore_case(name, b"TCN") {
            request.resource.always.set(name, value);
        } else {
            request.resource.always.merge(name, value);
        }
    }
}
