//! The static table of HPACK (RFC 7541, appendix A).

use evenkeel_message::{Name, eq_ignore_case};

/// Names and values. The first one has index 1.
#[rustfmt::skip]
pub(crate) static FIXED: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Names of response fields that are not known names of `message`.
const OTHERS: [(&[u8], usize); 6] = [
    (b"access-control-allow-origin", 20),
    (b"content-disposition", 25),
    (b"link", 45),
    (b"proxy-authenticate", 48),
    (b"refresh", 52),
    (b"strict-transport-security", 56),
];

/// The index of the first entry with a name; none if there is no entry. `known` is the known name
/// for `name`.
pub(crate) fn index_of(known: Name, name: &[u8]) -> Option<usize> {
    if known != Name::Other {
        return BY_NAME.get(known as usize).map(|index| usize::from(*index)).filter(|at| *at > 0);
    }
    let found = OTHERS.iter().find(|(other, _)| eq_ignore_case(other, name))?;
    Some(found.1)
}

/// The indexes of the known names.
#[rustfmt::skip]
const KNOWN: [(Name, u8); 40] = [
    (Name::AcceptCharset, 15), (Name::AcceptEncoding, 16), (Name::AcceptLanguage, 17),
    (Name::AcceptRanges, 18), (Name::Accept, 19), (Name::Age, 21), (Name::Allow, 22),
    (Name::Authorization, 23), (Name::CacheControl, 24), (Name::ContentEncoding, 26),
    (Name::ContentLanguage, 27), (Name::ContentLength, 28), (Name::ContentLocation, 29),
    (Name::ContentRange, 30), (Name::ContentType, 31), (Name::Cookie, 32), (Name::Date, 33),
    (Name::ETag, 34), (Name::Expect, 35), (Name::Expires, 36), (Name::Host, 38),
    (Name::IfMatch, 39), (Name::IfModifiedSince, 40), (Name::IfNoneMatch, 41),
    (Name::IfRange, 42), (Name::IfUnmodifiedSince, 43), (Name::LastModified, 44),
    (Name::Location, 46), (Name::MaxForwards, 47), (Name::ProxyAuthorization, 49),
    (Name::Range, 50), (Name::Referer, 51), (Name::RetryAfter, 53), (Name::Server, 54),
    (Name::SetCookie, 55), (Name::TransferEncoding, 57), (Name::UserAgent, 58),
    (Name::Vary, 59), (Name::Via, 60), (Name::WwwAuthenticate, 61),
];

/// The known names of the entries.
pub(crate) static KNOWN_OF_FIXED: [Name; 61] = known_of_fixed();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn known_of_fixed() -> [Name; 61] {
    let mut names = [Name::Other; 61];
    let mut at = 0;
    while at < KNOWN.len() {
        // Entries with the same name are adjacent.
        let first = KNOWN[at].1 as usize - 1;
        let mut same = first;
        while same < FIXED.len() && is_same(FIXED[same].0.as_bytes(), FIXED[first].0.as_bytes()) {
            names[same] = KNOWN[at].0;
            same += 1;
        }
        at += 1;
    }
    names
}

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    a.len() == b.len() && at == a.len()
}

/// The indexes by the numbers of the known names; 0 for none.
static BY_NAME: [u8; 64] = by_name();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn by_name() -> [u8; 64] {
    let mut table = [0; 64];
    let mut at = 0;
    while at < KNOWN.len() {
        table[KNOWN[at].0 as usize] = KNOWN[at].1;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_the_known_name_of_its_text() {
        for ((name, _), known) in FIXED.iter().zip(KNOWN_OF_FIXED) {
            assert_eq!(known, Name::of(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_name_is_found_at_its_first_place() {
        for (name, _) in &FIXED[14..] {
            if *name == "from" {
                continue;
            }
            let first = FIXED.iter().position(|(other, _)| other == name).unwrap();
            assert_eq!(
                index_of(Name::of(name.as_bytes()), name.as_bytes()),
                Some(first + 1),
                "{name}"
            );
        }
        assert_eq!(index_of(Name::Other, b"x-other"), None);
    }
}
