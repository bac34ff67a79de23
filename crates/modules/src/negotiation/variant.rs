//! A variant: one of the files, or parts of a type map, that a negotiated resource may be sent as.
//! What is known of it is written once; what a request makes of it stands in its qualities.

use super::accept::{range, token};

/// A file that may be sent.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The file's name, relative to the resource; with escapes where a type map has them.
    pub name: Vec<u8>,
    /// Media type in lower case without its parameters; empty where none is known.
    pub media_type: Vec<u8>,
    /// Charset in lower case; empty where none is known.
    pub charset: Vec<u8>,
    /// Content-Encoding.
    pub encoding: Option<Vec<u8>>,
    /// Content-Language.
    pub languages: Vec<Vec<u8>>,
    /// What a type map says for people.
    pub description: Vec<u8>,
    /// Its length in bytes, where it is known.
    pub length: Option<u64>,
    /// Whether its length counts in the choice but is not for the client to know.
    pub is_length_hidden: bool,
    /// Whether a handler makes its content, so that the file's length says nothing.
    pub is_handled: bool,
    /// Where its content stands in the type map: first byte and length.
    pub body: Option<(u64, u64)>,
    /// `qs=`: what the author thinks of it.
    pub(crate) source_quality: f32,
    /// `level=` of its media type.
    pub(crate) level: f32,
    pub(crate) seen: Qualities,
}

/// What the fields of a request make of a variant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Qualities {
    pub language: f32,
    pub encoding: f32,
    pub charset: f32,
    pub media_type: f32,
    pub level_matched: f32,
    /// 1 where it matched `*/*`, 2 for `type/*`, 3 for its own type.
    pub closeness: u8,
    /// Whether no wildcard and no default has decided (RFC 2296, section 3.4).
    pub definite: bool,
    /// Place in LanguagePriority.
    pub language_index: Option<usize>,
}

impl Default for Qualities {
    fn default() -> Self {
        Self {
            language: 1.0,
            encoding: 1.0,
            charset: 1.0,
            media_type: 1.0,
            level_matched: 0.0,
            closeness: 0,
            definite: true,
            language_index: None,
        }
    }
}

impl Default for Variant {
    /// One of which nothing is known: it is never chosen, since its source has no quality.
    fn default() -> Self {
        Self {
            name: Vec::new(),
            media_type: Vec::new(),
            charset: Vec::new(),
            encoding: None,
            languages: Vec::new(),
            description: Vec::new(),
            length: None,
            is_length_hidden: false,
            is_handled: false,
            body: None,
            source_quality: 0.0,
            level: 0.0,
            seen: Qualities::default(),
        }
    }
}

impl Variant {
    /// A variant of that name and media type with its parameters.
    #[must_use]
    pub fn new(name: &[u8], media_type: &[u8]) -> Self {
        let mut variant = Self { name: name.to_vec(), ..Self::default() };
        variant.set_type(media_type);
        variant
    }

    /// Takes media type, `qs`, `level` and `charset` from a Content-Type.
    pub(crate) fn set_type(&mut self, text: &[u8]) {
        let (range, _) = range(text);
        (self.media_type, self.charset) = (range.name, range.charset);
        (self.source_quality, self.level) = (range.quality, range.level);
    }

    /// Takes the languages of a Content-Language.
    pub(crate) fn set_languages(&mut self, mut text: &[u8]) {
        self.languages.clear();
        while !text.is_empty() {
            let (language, rest) = token(text, false);
            self.languages.push(language.to_ascii_lowercase());
            text = rest.strip_prefix(b",").or_else(|| rest.strip_prefix(b";")).unwrap_or(rest);
        }
    }

    /// Whether it is HTML, to be included or not.
    pub(crate) fn is_html(&self) -> bool {
        self.media_type == b"text/html" || self.is_parsed_html()
    }

    /// Whether it is HTML that the server includes other files in.
    pub(crate) fn is_parsed_html(&self) -> bool {
        matches!(
            self.media_type.as_slice(),
            b"text/x-server-parsed-html" | b"text/x-server-parsed-html3"
        )
    }

    /// Whether its content is not encoded.
    pub(crate) fn is_plain(&self) -> bool {
        let encoding = self.encoding.as_deref().unwrap_or_default();
        matches!(encoding, b"" | b"7bit" | b"8bit" | b"binary")
    }

    /// Its languages as one list.
    pub(crate) fn language_list(&self) -> Vec<u8> {
        self.languages.join(&b","[..])
    }
}
