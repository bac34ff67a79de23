//! Whether a body may be compressed or unpacked, according to the fields of the request and the
//! response that name content codings.

use evenkeel_message::{Fields, Name, Request, Response, eq_ignore_case, trim};

/// Whether the client accepts a content coding. `*` is not matched, as in Apache.
pub(crate) fn accepts(fields: &Fields, coding: &str) -> bool {
    let is_refused = fields.tokens(Name::AcceptEncoding).find_map(|element| {
        let mut parts = element.split(|byte| *byte == b';').map(trim);
        let is_named = parts.next().is_some_and(|name| eq_ignore_case(name, coding.as_bytes()));
        is_named.then(|| parts.any(is_zero))
    });
    is_refused == Some(false)
}

/// Whether a parameter is a weight of zero (RFC 9110, section 12.4.2).
fn is_zero(parameter: &[u8]) -> bool {
    let mut sides = parameter.splitn(2, |byte| *byte == b'=').map(trim);
    let is_weight = sides.next().is_some_and(|name| eq_ignore_case(name, b"q"));
    let digits = sides.next().unwrap_or_default();
    is_weight && digits.first() == Some(&b'0') && digits.iter().all(|b| matches!(b, b'0' | b'.'))
}

/// Whether the body is encoded in a way that is more than the plain bytes.
pub(crate) fn is_encoded(request: &Request, response: &Response) -> bool {
    const PLAIN: [&[u8]; 4] = [b"identity", b"7bit", b"8bit", b"binary"];
    let lists = [
        response.fields.first(Name::ContentEncoding),
        response.always.first(Name::ContentEncoding),
        request.resource.content.encoding.as_deref(),
    ];
    let mut tokens = lists.into_iter().flatten().flat_map(|list| list.split(|b| *b == b','));
    tokens.any(|token| {
        let token = trim(token);
        !token.is_empty() && !PLAIN.iter().any(|plain| eq_ignore_case(token, plain))
    })
}

/// Takes gzip off the encodings where it is the last that was applied; says whether it was
/// (mod_deflate.c: check_gzip).
pub(crate) fn without_gzip(request: &mut Request, response: &mut Response) -> bool {
    let parts = &mut **response;
    for fields in [&mut parts.fields, &mut parts.always] {
        let Some(list) = fields.joined(Name::ContentEncoding) else { continue };
        let Some(left) = left_of(&list) else { return false };
        request.resource.content.encoding = None;
        fields.remove("Content-Encoding");
        if !left.is_empty() {
            fields.set("Content-Encoding", left);
        }
        return true;
    }
    let Some(left) = request.resource.content.encoding.as_deref().and_then(left_of) else {
        return false;
    };
    request.resource.content.encoding = Some(left).filter(|left| !left.is_empty()).map(Into::into);
    true
}

/// Takes gzip off the encodings of the body of a request, as [`without_gzip`] does.
pub(crate) fn without_gzip_in(request: &mut Request) -> bool {
    let Some(list) = request.fields().joined(Name::ContentEncoding) else { return false };
    let Some(left) = left_of(&list) else { return false };
    let fields = request.fields_mut();
    fields.remove("Content-Encoding");
    if !left.is_empty() {
        fields.set("Content-Encoding", left);
    }
    true
}

/// The list without the gzip at its end; none where something else is there.
fn left_of(list: &[u8]) -> Option<Vec<u8>> {
    let mut tokens: Vec<&[u8]> = list.split(|byte| *byte == b',').map(trim).collect();
    while let Some(last) = tokens.pop() {
        if eq_ignore_case(last, b"gzip") || eq_ignore_case(last, b"x-gzip") {
            return Some(tokens.join(&b", "[..]));
        }
        if !last.is_empty() && !eq_ignore_case(last, b"identity") {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_where_it_is_named_with_a_weight() {
        let takes = |value: &str| {
            let mut fields = Fields::new();
            fields.add("Accept-Encoding", value);
            accepts(&fields, "gzip")
        };
        for value in ["gzip", "GZIP", "br, gzip", "gzip;q=0.5", "gzip; q=1", "identity;q=0,gzip"] {
            assert!(takes(value), "{value}");
        }
        for value in ["", "*", "x-gzip", "gzip;q=0", "gzip;q=0.000", "gzip ; Q = 0", "deflate"] {
            assert!(!takes(value), "{value}");
        }
        assert!(!accepts(&Fields::new(), "gzip"));
    }

    #[test]
    fn gzip_is_taken_off_from_the_end() {
        let left = |list: &str| left_of(list.as_bytes()).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(left("gzip").as_deref(), Some(""));
        assert_eq!(left("X-Gzip").as_deref(), Some(""));
        assert_eq!(left("compress, gzip, identity").as_deref(), Some("compress"));
        assert_eq!(left("gzip, compress"), None);
        assert_eq!(left("identity"), None);
    }
}
