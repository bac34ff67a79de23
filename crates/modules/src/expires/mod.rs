//! mod_expires: adds Expires and Cache-Control to responses, by media type. A response that has an
//! Expires field is not changed. The pipeline determines the modification time of the file.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::settings::merged;
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape, words};
use evenkeel_message::{Fields, Request, Response, http_date};
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("ExpiresActive", Where::INDEXES, Shape::Flag, "Off", "Limited to 'on' or 'off'", active).or_left_out(touch),
    directive("ExpiresByType", Where::INDEXES, Shape::Two, "", "a MIME type followed by an expiry date code", by_type).or_left_out(touch),
    directive("ExpiresDefault", Where::INDEXES, Shape::One, "", "an expiry date code", default).or_left_out(touch),
];

/// mod_expires.
pub const MODULE: Module = Module {
    file: "mod_expires.c",
    identifier: "expires_module",
    active: Active::Usually,
    page: "mod_expires",
    subject: "How long clients and caches may keep a response: Expires and Cache-Control, by media \
              type.",
    remarks: &[
        "A code that begins with a capital `A` or `M` is always the short form, as in Apache: \
         `\"Access plus 1 day\"` means `A0`.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// An expiry time: a number of seconds after a base time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Whether the base is the modification time of the file instead of the time of the request.
    from_change: bool,
    seconds: i32,
}

/// The settings of one section (`<Directory>`, .htaccess ...).
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// ExpiresActive.
    active: Option<bool>,
    /// ExpiresDefault.
    default: Option<Code>,
    /// ExpiresByType, with media types in lower case.
    types: Arc<Vec<(Box<str>, Code)>>,
    /// Whether wildcard types such as `text/*` apply. As in Apache, only the innermost section that
    /// has a directive of this module decides that.
    wildcards: Option<bool>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { active, default, types, wildcards } = over;
        self.active.add(active);
        self.default.add(default);
        self.wildcards.add(wildcards);
        for (name, code) in types.iter() {
            self.set(name, *code);
        }
    }
}

impl Directory {
    fn set(&mut self, name: &str, code: Code) {
        let types = Arc::make_mut(&mut self.types);
        match types.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = code,
            None => types.push((name.into(), code)),
        }
    }

    fn is_active(&self) -> bool {
        self.active == Some(true) && (self.default.is_some() || !self.types.is_empty())
    }

    /// Whether the modification time of the file is needed.
    #[must_use]
    pub fn needs_change_time(&self) -> bool {
        let mut codes = self.types.iter().map(|(_, code)| code).chain(&self.default);
        self.is_active() && codes.any(|code| code.from_change)
    }

    /// Returns the code for a media type (mod_expires.c: expires_filter).
    fn code(&self, media_type: Option<&[u8]>) -> Option<Code> {
        let find = |wanted: &[u8]| {
            let mut types = self.types.iter();
            types.find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(wanted)).map(|it| it.1)
        };
        let named = media_type.and_then(|text| {
            let name = text.split(|byte| *byte == b';').next().unwrap_or_default();
            find(name.trim_ascii_end())
        });
        let by_wildcard = || {
            let text = media_type.filter(|_| self.wildcards == Some(true))?;
            let slash = text.iter().position(|byte| *byte == b'/')?;
            find(&[text.get(..slash)?, b"/*"].concat())
        };
        named.or_else(by_wildcard).or(self.default)
    }
}

/// Adds the fields to a response that is not an error.
pub fn act_on_response(request: &Request, settings: &Directory, response: &mut Response) {
    if wants(settings, response) {
        let media_type = media_type(request, response);
        if let Some(code) = settings.code(media_type.as_deref()) {
            write(request, code, &mut response.fields);
        }
    }
}

/// Adds the fields to the standard page of a redirect. Such a page has only the fields of `always`
/// (http_protocol.c: ap_send_error_response).
pub fn act_on_page(request: &Request, settings: &Directory, response: &mut Response) {
    if wants(settings, response) {
        let media_type = media_type(request, response);
        if let Some(code) = settings.code(media_type.as_deref()) {
            write(request, code, &mut response.always);
        }
    }
}

fn wants(settings: &Directory, response: &Response) -> bool {
    settings.is_active()
        && response.status.code() < 400
        && !response.fields.contains("Expires")
        && !response.always.contains("Expires")
}

fn media_type(request: &Request, response: &Response) -> Option<Box<[u8]>> {
    let sent = response.fields.first("Content-Type").map(Into::into);
    sent.or_else(|| request.resource.content.media_type.clone())
}

/// Writes the fields (mod_expires.c: set_expiration_fields). If the code needs a modification time
/// and there is none, as without a file, no field is written.
fn write(request: &Request, code: Code, fields: &mut Fields) {
    const SECOND_US: i64 = 1_000_000;
    let now_us = i64::try_from(request.time_us).unwrap_or(i64::MAX);
    let base_us = match code.from_change {
        true => match request.resource.content.changed_us {
            Some(changed_us) => changed_us,
            None => return,
        },
        false => now_us,
    };
    let expires_us = base_us.saturating_add(i64::from(code.seconds) * SECOND_US).max(now_us);
    let age = (expires_us - now_us) / SECOND_US;
    fields.merge("Cache-Control", format!("max-age={age}"));
    fields.set("Expires", http_date(expires_us / SECOND_US));
}

/// Marks the section as one that has a directive of this module, as Apache's merge of wildcards
/// requires.
fn touch(scope: &mut Scope) {
    scope.directory.expires.wildcards.get_or_insert(false);
}

fn active(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    touch(scope);
    scope.directory.expires.active = Some(call.flag);
    Ok(())
}

fn by_type(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    touch(scope);
    let (name, text) = (call.first(), call.second().unwrap_or_default());
    let Some((_, subtype)) = name.rsplit_once('/') else {
        return Err("Invalid mimetype: should contain a slash".into());
    };
    if subtype == "*" {
        scope.directory.expires.wildcards = Some(true);
    }
    let code = parse(text).map_err(|fault| format!("'ExpiresByType {name} {text}': {fault}"))?;
    scope.directory.expires.set(&name.to_ascii_lowercase(), code);
    Ok(())
}

fn default(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    touch(scope);
    let text = call.first();
    let code = parse(text).map_err(|fault| format!("'ExpiresDefault {text}': {fault}"))?;
    scope.directory.expires.default = Some(code);
    Ok(())
}

/// Parses a code in the short or the long form. Only the first letters of a word are significant,
/// and numbers wrap on overflow (mod_expires.c: check_code).
fn parse(text: &str) -> Result<Code, String> {
    if let Some(number) = text.strip_prefix(['A', 'M']) {
        return Ok(Code { from_change: text.starts_with('M'), seconds: number_at(number) });
    }
    let words = words(text);
    let mut words = words.iter().map(String::as_str).take_while(|word| !word.is_empty()).peekable();
    let base = words.next().unwrap_or_default();
    let from_change = match base.bytes().next().map(|byte| byte.to_ascii_lowercase()) {
        Some(b'n' | b'a') => false,
        Some(b'm') => true,
        _ => return Err(format!("bad expires code, unrecognised <base> '{base}'")),
    };
    words.next_if(|word| word.starts_with(['p', 'P']));
    let mut seconds = 0_i32;
    while let Some(number) = words.next() {
        if !number.starts_with(|first: char| first.is_ascii_digit()) {
            let fault = "bad expires code, numeric value expected <num>";
            return Err(format!("{fault} '{number}'"));
        }
        let Some(unit) = words.next() else {
            return Err("bad expires code, missing <type>".into());
        };
        let Some(factor) = seconds_in(unit) else {
            return Err(format!("bad expires code, unrecognised <type>'{unit}'"));
        };
        seconds = seconds.wrapping_add(factor.wrapping_mul(number_at(number)));
    }
    Ok(Code { from_change, seconds })
}

fn seconds_in(unit: &str) -> Option<i32> {
    let unit = unit.to_ascii_lowercase();
    const DAY: i32 = 60 * 60 * 24;
    let units = [
        ("y", DAY * 365),
        ("mo", DAY * 30),
        ("w", DAY * 7),
        ("d", DAY),
        ("h", 60 * 60),
        ("mi", 60),
        ("s", 1),
    ];
    units.iter().find(|(start, _)| unit.starts_with(start)).map(|(_, seconds)| *seconds)
}

/// The number at the beginning of a text, as atoi parses it; 0 if there is none.
fn number_at(text: &str) -> i32 {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.bytes().take_while(u8::is_ascii_digit);
    let number = digits.fold(0_i64, |number, digit| {
        number.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    });
    (sign * number) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::{Peer, RequestHead, Status};

    fn said(text: &str) -> Directory {
        apply(MODULE, text).unwrap().directory.into_settings().expires
    }

    /// Returns Cache-Control and Expires of a response with that media type. The time of the
    /// request is second 1000, the modification time of the file is second 900.
    fn fields(settings: &Directory, media_type: &str, before: &[(&str, &str)]) -> String {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 1_000_500_000);
        request.resource.content.changed_us = Some(900_000_000);
        let mut response = Response::new(Status::OK);
        response.fields.set("Content-Type", media_type);
        for (name, value) in before {
            response.fields.set(*name, value);
        }
        act_on_response(&request, settings, &mut response);
        let value = |name: &str| {
            String::from_utf8_lossy(response.fields.first(name).unwrap_or(b"-")).into_owned()
        };
        format!("{} {}", value("Cache-Control"), value("Expires"))
    }

    #[test]
    fn a_code_is_short_or_long() {
        for (text, from_change, seconds) in [
            ("A3600", false, 3600),
            ("M-5", true, -5),
            ("A", false, 0),
            ("Access plus 1 day", false, 0),
            ("access plus 1 month", false, 2_592_000),
            ("modification 1 year 2 weeks", true, 31_536_000 + 1_209_600),
            ("now plus 4 hours 3 minutes 2 s", false, 4 * 3600 + 180 + 2),
            ("n", false, 0),
            ("access plus 100 years", false, 3_153_600_000_u32.cast_signed()),
        ] {
            assert_eq!(parse(text), Ok(Code { from_change, seconds }), "{text}");
        }
    }

    #[test]
    fn what_is_no_code_is_refused() {
        let fault = |text: &str| parse(text).unwrap_err();
        assert_eq!(fault("later"), "bad expires code, unrecognised <base> 'later'");
        assert_eq!(fault(""), "bad expires code, unrecognised <base> ''");
        let text = "bad expires code, numeric value expected <num> 'one'";
        assert_eq!(fault("access plus one day"), text);
        assert_eq!(fault("access 5"), "bad expires code, missing <type>");
        assert_eq!(fault("access 5 m"), "bad expires code, unrecognised <type>'m'");
    }

    #[test]
    fn a_type_counts_before_its_wildcard_and_both_before_the_default() {
        let settings = said(
            "ExpiresActive On\nExpiresDefault A1\nExpiresByType Text/* A2\nExpiresByType text/css A3",
        );
        let age = |media_type| fields(&settings, media_type, &[]);
        assert_eq!(age("text/css; charset=utf-8"), "max-age=3 Thu, 01 Jan 1970 00:16:43 GMT");
        assert!(age("text/plain").starts_with("max-age=2 "));
        assert!(age("image/png").starts_with("max-age=1 "));
        let outer = said("ExpiresActive On\nExpiresByType text/* A2");
        let inner = Directory::merge(&outer, &said("ExpiresDefault A5"));
        assert!(fields(&inner, "text/css", &[]).starts_with("max-age=5 "));
        let untouched = Directory::merge(&outer, &Directory::default());
        assert!(fields(&untouched, "text/css", &[]).starts_with("max-age=2 "));
    }

    #[test]
    fn times_count_from_the_change_of_the_file_and_never_lie_in_the_past() {
        let of = |code: &str| {
            fields(&said(&format!("ExpiresActive On\nExpiresDefault {code}")), "a/b", &[])
        };
        assert_eq!(of("M200"), "max-age=99 Thu, 01 Jan 1970 00:18:20 GMT");
        assert_eq!(of("M10"), "max-age=0 Thu, 01 Jan 1970 00:16:40 GMT");
        assert_eq!(of("A-7"), "max-age=0 Thu, 01 Jan 1970 00:16:40 GMT");
    }

    #[test]
    fn what_expires_already_stays_and_lists_grow() {
        let settings = said("ExpiresActive On\nExpiresDefault A1");
        assert_eq!(fields(&settings, "a/b", &[("Expires", "0")]), "- 0");
        let both = fields(&settings, "a/b", &[("Cache-Control", "no-cache")]);
        assert!(both.starts_with("no-cache, max-age=1 "));
        assert_eq!(fields(&said("ExpiresDefault A1"), "a/b", &[]), "- -");
    }
}
