//! What is told of a negotiation: the fields Vary, Alternates and TCN, and the list of variants
//! that stands in the pages of 300 and 406 (mod_negotiation.c: set_neg_headers,
//! make_variant_list). It chooses nothing.

use super::variant::Variant;
use evenkeel_message::Fields;
use evenkeel_proto::escape_html;

/// The fields of a response to a negotiated resource.
pub(crate) fn describe(
    variants: &[Variant],
    transparent: bool,
    with_alternates: bool,
    is_list: bool,
) -> Fields {
    let mut fields = Fields::new();
    if with_alternates && !variants.is_empty() {
        let list: Vec<Vec<u8>> = variants.iter().map(alternate).collect();
        fields.add("Alternates", list.join(&b", "[..]));
    }
    let differs = |part: fn(&Variant) -> Vec<u8>| {
        let mut parts = variants.iter().map(part);
        let first = parts.next();
        parts.any(|part| Some(part) != first)
    };
    let dimensions = [
        (transparent, "negotiate"),
        (differs(|variant| variant.media_type.clone()), "accept"),
        (differs(Variant::language_list), "accept-language"),
        (differs(|variant| variant.charset.clone()), "accept-charset"),
        (differs(|variant| variant.encoding.clone().unwrap_or_default()), "accept-encoding"),
    ];
    let names: Vec<&str> = dimensions.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    if !names.is_empty() {
        fields.add("Vary", names.join(", "));
    }
    if transparent {
        fields.add("TCN", if is_list { "list" } else { "choice" });
    }
    fields
}

/// One variant as Alternates lists it (RFC 2295, section 8.3).
fn alternate(variant: &Variant) -> Vec<u8> {
    let quality = format!("{:.3}", variant.source_quality);
    let quality = quality.trim_end_matches('0').trim_end_matches('.');
    let mut out = b"{\"".to_vec();
    escape_segment(&mut out, &variant.name);
    out.extend_from_slice(format!("\" {quality}").as_bytes());
    let languages = variant.language_list();
    let is_told = !variant.is_handled && !variant.is_length_hidden;
    let length = variant.length.filter(|_| is_told).map(|length| length.to_string());
    let parts: [(&str, &[u8]); 5] = [
        ("type", &variant.media_type),
        ("charset", &variant.charset),
        ("language", &languages),
        ("encoding", variant.encoding.as_deref().unwrap_or_default()),
        ("length", length.as_deref().unwrap_or_default().as_bytes()),
    ];
    for (name, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
        out.extend_from_slice(format!(" {{{name} ").as_bytes());
        out.extend_from_slice(value);
        out.push(b'}');
    }
    out.push(b'}');
    out
}

/// The variants for people.
pub(crate) fn list(variants: &[Variant]) -> Vec<u8> {
    let mut out = b"Available variants:\n<ul>\n".to_vec();
    for variant in variants {
        out.extend_from_slice(b"<li><a href=\"");
        escape_segment(&mut out, &variant.name);
        out.extend_from_slice(b"\">");
        escape_html(&mut out, &variant.name);
        out.extend_from_slice(b"</a> ");
        out.extend_from_slice(&variant.description);
        let languages = variant.language_list();
        let parts: [(&str, &[u8]); 4] = [
            ("type", &variant.media_type),
            ("language", &languages),
            ("charset", &variant.charset),
            ("encoding", variant.encoding.as_deref().unwrap_or_default()),
        ];
        for (name, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
            out.extend_from_slice(format!(", {name} ").as_bytes());
            out.extend_from_slice(value);
        }
        out.extend_from_slice(b"</li>\n");
    }
    out.extend_from_slice(b"</ul>\n");
    out
}

/// Escapes a name as one segment of a path (util.c: ap_escape_path_segment).
pub fn escape_segment(out: &mut Vec<u8>, name: &[u8]) {
    for part in name.split_inclusive(|byte| *byte == b'/') {
        match part.strip_suffix(b"/") {
            Some(before) => {
                evenkeel_proto::escape_uri(out, before);
                out.extend_from_slice(b"%2f");
            }
            None => evenkeel_proto::escape_uri(out, part),
        }
    }
}
