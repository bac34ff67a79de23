//! Field names that the server itself uses, as small numbers, so that finding a field compares
//! numbers. Any other name works too, and is compared by its text.

use crate::eq_ignore_case;

/// A known field name, or any other name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the name that it is")]
pub enum Name {
    /// A name that is not in the table.
    Other = 0,
    Accept,
    AcceptCharset,
    AcceptEncoding,
    AcceptLanguage,
    AcceptRanges,
    Age,
    Allow,
    Authorization,
    CacheControl,
    Connection,
    ContentEncoding,
    ContentLanguage,
    ContentLength,
    ContentLocation,
    ContentRange,
    ContentType,
    Cookie,
    Date,
    ETag,
    Expect,
    Expires,
    Forwarded,
    Host,
    IfMatch,
    IfModifiedSince,
    IfNoneMatch,
    IfRange,
    IfUnmodifiedSince,
    KeepAlive,
    LastModified,
    Location,
    MaxForwards,
    Negotiate,
    Origin,
    Pragma,
    Priority,
    ProxyAuthorization,
    ProxyConnection,
    Range,
    Referer,
    RetryAfter,
    Server,
    SetCookie,
    SecFetchDest,
    SecFetchMode,
    SecFetchSite,
    SecFetchUser,
    SecWebsocketKey,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    UpgradeInsecureRequests,
    UserAgent,
    Vary,
    Via,
    WwwAuthenticate,
    XForwardedFor,
}

/// The known names in the order of their numbers, from 1 on.
#[rustfmt::skip]
const KNOWN: [(Name, &str); 58] = [
    (Name::Accept, "Accept"),
    (Name::AcceptCharset, "Accept-Charset"),
    (Name::AcceptEncoding, "Accept-Encoding"),
    (Name::AcceptLanguage, "Accept-Language"),
    (Name::AcceptRanges, "Accept-Ranges"),
    (Name::Age, "Age"),
    (Name::Allow, "Allow"),
    (Name::Authorization, "Authorization"),
    (Name::CacheControl, "Cache-Control"),
    (Name::Connection, "Connection"),
    (Name::ContentEncoding, "Content-Encoding"),
    (Name::ContentLanguage, "Content-Language"),
    (Name::ContentLength, "Content-Length"),
    (Name::ContentLocation, "Content-Location"),
    (Name::ContentRange, "Content-Range"),
    (Name::ContentType, "Content-Type"),
    (Name::Cookie, "Cookie"),
    (Name::Date, "Date"),
    (Name::ETag, "ETag"),
    (Name::Expect, "Expect"),
    (Name::Expires, "Expires"),
    (Name::Forwarded, "Forwarded"),
    (Name::Host, "Host"),
    (Name::IfMatch, "If-Match"),
    (Name::IfModifiedSince, "If-Modified-Since"),
    (Name::IfNoneMatch, "If-None-Match"),
    (Name::IfRange, "If-Range"),
    (Name::IfUnmodifiedSince, "If-Unmodified-Since"),
    (Name::KeepAlive, "Keep-Alive"),
    (Name::LastModified, "Last-Modified"),
    (Name::Location, "Location"),
    (Name::MaxForwards, "Max-Forwards"),
    (Name::Negotiate, "Negotiate"),
    (Name::Origin, "Origin"),
    (Name::Pragma, "Pragma"),
    (Name::Priority, "Priority"),
    (Name::ProxyAuthorization, "Proxy-Authorization"),
    (Name::ProxyConnection, "Proxy-Connection"),
    (Name::Range, "Range"),
    (Name::Referer, "Referer"),
    (Name::RetryAfter, "Retry-After"),
    (Name::Server, "Server"),
    (Name::SetCookie, "Set-Cookie"),
    (Name::SecFetchDest, "Sec-Fetch-Dest"),
    (Name::SecFetchMode, "Sec-Fetch-Mode"),
    (Name::SecFetchSite, "Sec-Fetch-Site"),
    (Name::SecFetchUser, "Sec-Fetch-User"),
    (Name::SecWebsocketKey, "Sec-WebSocket-Key"),
    (Name::Te, "TE"),
    (Name::Trailer, "Trailer"),
    (Name::TransferEncoding, "Transfer-Encoding"),
    (Name::Upgrade, "Upgrade"),
    (Name::UpgradeInsecureRequests, "Upgrade-Insecure-Requests"),
    (Name::UserAgent, "User-Agent"),
    (Name::Vary, "Vary"),
    (Name::Via, "Via"),
    (Name::WwwAuthenticate, "WWW-Authenticate"),
    (Name::XForwardedFor, "X-Forwarded-For"),
];

/// The names by the hash of their texts. No two known names have the same hash.
static BY_HASH: [Name; 256] = by_hash();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn by_hash() -> [Name; 256] {
    let mut table = [Name::Other; 256];
    let mut at = 0;
    while at < KNOWN.len() {
        let (name, text) = KNOWN[at];
        let place = hash(text.as_bytes()) as usize;
        assert!(matches!(table[place], Name::Other), "two names have one hash");
        table[place] = name;
        at += 1;
    }
    table
}

/// The CGI variables of the names by their numbers, each with its length.
static VARIABLES: [([u8; 32], usize); KNOWN.len() + 1] = variables();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn variables() -> [([u8; 32], usize); KNOWN.len() + 1] {
    let mut table = [([0; 32], 0); KNOWN.len() + 1];
    let mut at = 0;
    while at < KNOWN.len() {
        let (variable, length) = &mut table[at + 1];
        let (prefix, text) = (b"HTTP_", KNOWN[at].1.as_bytes());
        while *length < prefix.len() + text.len() {
            variable[*length] = match length.checked_sub(prefix.len()) {
                None => prefix[*length],
                Some(place) if text[place] == b'-' => b'_',
                Some(place) => text[place].to_ascii_uppercase(),
            };
            *length += 1;
        }
        at += 1;
    }
    table
}

/// A known name as two words of sixteen bytes, with a mask of the bytes that belong to it.
struct Wide {
    text: [u128; 2],
    mask: [u128; 2],
    length: usize,
}

/// The names by their numbers.
static WIDE: [Wide; KNOWN.len() + 1] = wide();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn wide() -> [Wide; KNOWN.len() + 1] {
    let mut table = [const { Wide { text: [0; 2], mask: [0; 2], length: 0 } }; KNOWN.len() + 1];
    let mut at = 0;
    while at < KNOWN.len() {
        let text = KNOWN[at].1.as_bytes();
        let wide = &mut table[at + 1];
        while wide.length < text.len() {
            let (word, shift) = (wide.length / 16, wide.length % 16 * 8);
            wide.text[word] |= (text[wide.length] as u128) << shift;
            wide.mask[word] |= 0xff << shift;
            wide.length += 1;
        }
        at += 1;
    }
    table
}

impl Wide {
    /// Whether the first `length` bytes are the name in its registered spelling. None if too few
    /// bytes follow to decide that without a branch for each length.
    #[inline]
    fn begins(&self, bytes: &[u8], length: usize) -> Option<bool> {
        let (words, _) = bytes.first_chunk::<32>()?.as_chunks::<16>();
        let differs = words.iter().zip(&self.text).zip(&self.mask).fold(0, |found, parts| {
            let ((bytes, text), mask) = parts;
            found | (u128::from_le_bytes(*bytes) ^ text) & mask
        });
        Some(differs == 0 && self.length == length)
    }
}

/// These factors give each known name a hash of its own.
const FIRST: u8 = 169;
const BEFORE: u8 = 200;
const LAST: u8 = 205;

const fn hash(text: &[u8]) -> u8 {
    let [first, .., before, last] = text else { return text.len() as u8 };
    let first = (*first | 0x20).wrapping_mul(FIRST);
    let before = (*before | 0x20).wrapping_mul(BEFORE);
    let last = (*last | 0x20).wrapping_mul(LAST);
    (text.len() as u8).wrapping_add(first).wrapping_add(before).wrapping_add(last)
}

impl Name {
    /// The name of that text.
    #[must_use]
    #[inline]
    pub fn of(text: &[u8]) -> Self {
        let name = Self::by_hash(text);
        if eq_ignore_case(name.text().as_bytes(), text) { name } else { Self::Other }
    }

    /// The name whose text is the first `length` bytes. The result is that of [`Name::of`] for
    /// these bytes; it is faster where a line continues after them.
    #[must_use]
    #[inline]
    pub fn at(bytes: &[u8], length: usize) -> Self {
        let text = bytes.get(..length).unwrap_or_default();
        let name = Self::by_hash(text);
        // Most clients use the registered spelling.
        match WIDE.get(name as usize).and_then(|wide| wide.begins(bytes, length)) {
            Some(true) => name,
            _ => Self::of(text),
        }
    }

    /// The only known name that the text can be.
    #[inline]
    fn by_hash(text: &[u8]) -> Self {
        BY_HASH.get(usize::from(hash(text))).copied().unwrap_or(Self::Other)
    }

    /// The text of the name; empty if the name is not known.
    #[must_use]
    #[inline]
    pub fn text(self) -> &'static str {
        let place = (self as usize).wrapping_sub(1);
        KNOWN.get(place).map_or("", |(_, text)| text)
    }

    /// The CGI variable of the field (RFC 3875, section 4.1.18), such as HTTP_HOST; empty if the
    /// name is not known.
    #[must_use]
    #[inline]
    pub fn variable(self) -> &'static [u8] {
        let variable = VARIABLES.get(self as usize);
        variable.and_then(|(text, length)| text.get(..*length)).unwrap_or_default()
    }

    /// The set of this name alone, as a bit.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << (self as u8)
    }
}

/// Something that fields can be looked up by: a known name, or a text that is then looked up in the
/// table.
pub trait Named: Copy {
    /// The name.
    fn name(&self) -> Name;
    /// Its text.
    fn text(&self) -> &[u8];
}

impl Named for Name {
    #[inline]
    fn name(&self) -> Name {
        *self
    }

    #[inline]
    fn text(&self) -> &[u8] {
        Name::text(*self).as_bytes()
    }
}

/// A name that is looked up again and again, such as one in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName {
    name: Name,
    text: Box<[u8]>,
}

impl FieldName {
    /// The name of that text.
    #[must_use]
    pub fn new(text: impl Into<Box<[u8]>>) -> Self {
        let text = text.into();
        Self { name: Name::of(&text), text }
    }
}

impl Named for &FieldName {
    #[inline]
    fn name(&self) -> Name {
        self.name
    }

    #[inline]
    fn text(&self) -> &[u8] {
        &self.text
    }
}

impl<T: AsRef<[u8]> + ?Sized> Named for &T {
    #[inline]
    fn name(&self) -> Name {
        Name::of((**self).as_ref())
    }

    #[inline]
    fn text(&self) -> &[u8] {
        (**self).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_belong_together() {
        for (place, (name, text)) in KNOWN.into_iter().enumerate() {
            assert_eq!((name as usize, name.text()), (place + 1, text));
            assert!(place < 63, "a set of names is a word");
            for text in [text.to_owned(), text.to_lowercase(), text.to_uppercase()] {
                assert_eq!(Name::of(text.as_bytes()), name, "{text}");
                for behind in [": a", ": a value that goes on and on and on", ""] {
                    let line = format!("{text}{behind}");
                    assert_eq!(Name::at(line.as_bytes(), text.len()), name, "{line}");
                    for length in (0..text.len()).chain([line.len()]) {
                        let part = line.get(..length).unwrap_or_default().as_bytes();
                        assert_eq!(Name::at(line.as_bytes(), length), Name::of(part), "{line}");
                    }
                }
            }
            let (head, tail) =
                (text.get(..1).unwrap_or_default(), text.get(2..).unwrap_or_default());
            for other in [format!("{text}x"), format!("x{text}"), format!("{head}\0{tail}")] {
                assert_eq!(Name::of(other.as_bytes()), Name::Other, "{other}");
                let line = format!("{other}: a value that goes on and on and on");
                assert_eq!(Name::at(line.as_bytes(), other.len()), Name::Other, "{line}");
            }
        }
        assert_eq!((Name::of(b""), Name::Other.text()), (Name::Other, ""));
    }
}
