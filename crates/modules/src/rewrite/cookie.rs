//! Sets the cookies of the flag CO. Its value is
//! `name:value:domain[:minutes[:path[:secure[:httponly[:samesite]]]]]`; if it begins with a
//! semicolon, semicolons separate the parts (mod_rewrite.c: add_cookie).

use super::engine::Run;
use super::flags::number;
use evenkeel_message::{eq_ignore_case, quoted};
use jiff::Timestamp;

/// Adds a Set-Cookie field to the response, unless the response already sets a cookie of that name.
pub(super) fn add(run: &mut Run<'_>, text: &[u8]) {
    let time_us = run.request.time_us;
    let Some((name, cookie)) = cookie(text, time_us) else { return };
    let begin = [name, b"="].concat();
    let always = &mut run.request.resource.always;
    if always.all("Set-Cookie").any(|value| value.starts_with(&begin)) {
        trace_plain!(run, 5, "skipping already set cookie '{}'", quoted(name));
        return;
    }
    always.add("Set-Cookie", &cookie);
    trace_plain!(run, 5, "setting cookie '{}'", quoted(&cookie));
}

/// Returns the name of the cookie and the value of its Set-Cookie field. Returns `None` if the
/// name, the value or the domain is missing. Empty parts are skipped (apr_strtok).
fn cookie(text: &[u8], time_us: u64) -> Option<(&[u8], Vec<u8>)> {
    let (separator, text) = match text.strip_prefix(b";") {
        Some(text) => (b';', text),
        None => (b':', text),
    };
    let mut parts = text.split(|byte| *byte == separator).filter(|part| !part.is_empty());
    let (name, value, domain) = (parts.next()?, parts.next()?, parts.next()?);
    let (minutes, path) = (parts.next(), parts.next().unwrap_or(b"/"));
    let (secure, http_only, same_site) = (parts.next(), parts.next(), parts.next());
    let mut cookie = [name, b"=", value, b"; path=", path, b"; domain=", domain].concat();
    if let Some(time) = minutes.and_then(|minutes| expiry(minutes, time_us)) {
        cookie.extend_from_slice(b"; expires=");
        cookie.extend_from_slice(time.as_bytes());
    }
    if secure.is_some_and(|word| is_yes(word, b"secure")) {
        cookie.extend_from_slice(b"; secure");
    }
    if http_only.is_some_and(|word| is_yes(word, b"HttpOnly")) {
        cookie.extend_from_slice(b"; HttpOnly");
    }
    let is_no = |word: &[u8]| word == b"0" || eq_ignore_case(word, b"false");
    if let Some(word) = same_site.filter(|word| !is_no(word)) {
        cookie.extend_from_slice(b"; SameSite=");
        cookie.extend_from_slice(word);
    }
    Some((name, cookie))
}

fn is_yes(word: &[u8], name: &[u8]) -> bool {
    word == b"1" || eq_ignore_case(word, b"true") || eq_ignore_case(word, name)
}

/// Formats the time that is `minutes` after the request. Returns `None` if `minutes` is 0 or the
/// time is out of range.
fn expiry(minutes: &[u8], time_us: u64) -> Option<String> {
    let minutes = i64::from(number(minutes));
    let seconds = i64::try_from(time_us / 1_000_000).ok()?.checked_add(minutes * 60)?;
    let time = Timestamp::from_second(seconds).ok().filter(|_| minutes != 0)?;
    Some(time.strftime("%a, %d-%b-%Y %H:%M:%S GMT").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_attributes() {
        let field = |text: &str| {
            let (_, field) = cookie(text.as_bytes(), 1_577_836_800_000_000)?;
            Some(String::from_utf8(field).unwrap())
        };
        for (text, expected) in [
            ("a:b:.x", "a=b; path=/; domain=.x"),
            ("a:b:x:0:/p", "a=b; path=/p; domain=x"),
            (
                "a:b:x:60:/:true:1:lax",
                "a=b; path=/; domain=x; expires=Wed, 01-Jan-2020 01:00:00 GMT; secure; HttpOnly; \
                 SameSite=lax",
            ),
            ("a:b:x:0:/:no:httponly:0", "a=b; path=/; domain=x; HttpOnly"),
            (";a;b:c;x", "a=b:c; path=/; domain=x"),
        ] {
            assert_eq!(field(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(field("a:b"), None);
        assert_eq!(field(""), None);
    }
}
