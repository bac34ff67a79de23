//! mod_usertrack: a cookie that tells the requests of one client from those of others. The settings
//! of a section and a request come in. The cookie goes into the response, and into the note
//! `cookie` for the log.

mod directives;

pub use crate::NoSettings as Global;
pub use directives::MODULE;

use crate::{Merge, Shared};
use evenkeel_message::{Request, quoted};
use evenkeel_sys::random;
use jiff::Timestamp;
use std::sync::Arc;

/// The name of the cookie, unless CookieName says otherwise.
const NAME: &str = "Apache";

/// The form of the cookie (CookieStyle).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Style {
    /// With `expires`: Netscape's.
    #[default]
    Netscape,
    /// With `max-age` (RFC 2109).
    Cookie,
    /// In Set-Cookie2 (RFC 2965).
    Cookie2,
}

/// What one section says.
#[derive(Clone, Debug, Default)]
struct Settings {
    is_on: bool,
    name: Option<Box<str>>,
    domain: Option<Box<str>>,
    style: Style,
    same_site: Option<&'static str>,
    is_secure: bool,
    is_http_only: bool,
}

/// The settings of one section. An inner section that says anything replaces all that outer ones
/// say, because mod_usertrack has no function that merges sections.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<Settings>>);

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        Self(over.0.as_ref().or(base.0.as_ref()).map(Arc::clone))
    }
}

/// The settings of a virtual host: CookieExpires, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Expiry(Option<i64>);

crate::unsaid!(Expiry);

impl Merge for Expiry {
    fn merge(_base: &Self, over: &Self) -> Self {
        over.clone()
    }
}

/// The settings that virtual hosts share.
pub type Server = Shared<Expiry>;

/// Looks for the cookie of a request, and gives the client one that has none (mod_usertrack.c:
/// spot_cookie).
pub fn track(request: &mut Request, settings: &Directory, expiry: &Expiry) {
    let Some(settings) = settings.0.as_deref().filter(|settings| settings.is_on) else { return };
    if request.resource.depth > 0 {
        return;
    }
    let name = settings.name.as_deref().unwrap_or(NAME).as_bytes();
    let sent = request.fields().joined(b"Cookie");
    if let Some(value) = sent.as_deref().and_then(|sent| value_in(sent, name)) {
        let value = value.to_vec();
        request.resource.notes.set("cookie", value);
        return;
    }
    let value = format!("{:x}.{:x}", number(), request.time_us);
    let cookie = settings.cookie(&value, expiry.0.unwrap_or(0), request.time_us);
    let field = if settings.style == Style::Cookie2 { "Set-Cookie2" } else { "Set-Cookie" };
    request.resource.always.add(field, &cookie);
    request.resource.notes.set("cookie", value);
}

/// The value of the first cookie of that name in a Cookie field. It ends at a semicolon or a comma,
/// and is not empty (mod_usertrack.c: set_and_comp_regexp).
fn value_in<'a>(sent: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let is_separator = |byte: &u8| matches!(byte, b';' | b',');
    let mut at = 0;
    for (index, pair) in sent.split(is_separator).enumerate() {
        let behind = sent.get(at..).unwrap_or_default();
        at += pair.len() + 1;
        // Spaces may stand behind a separator, but not before the first cookie.
        let trimmed = if index == 0 { behind } else { trim_blanks(behind) };
        let value = trimmed.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"="));
        let value = value.map(|value| {
            let end = value.iter().position(is_separator).unwrap_or(value.len());
            value.get(..end).unwrap_or_default()
        });
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            return Some(value);
        }
    }
    None
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    text.get(blanks..).unwrap_or_default()
}

fn number() -> u32 {
    random::bytes::<4>().map_or_else(|_| std::process::id(), u32::from_ne_bytes)
}

impl Settings {
    /// The value of the field (mod_usertrack.c: make_cookie).
    fn cookie(&self, value: &str, expires_s: i64, now_us: u64) -> String {
        let name = self.name.as_deref().unwrap_or(NAME);
        let mut cookie = format!("{name}={value}; path=/");
        if expires_s != 0 {
            match self.style {
                Style::Netscape => {
                    let now = i64::try_from(now_us / 1_000_000).unwrap_or(i64::MAX);
                    let end = Timestamp::from_second(now.saturating_add(expires_s));
                    if let Ok(end) = end {
                        cookie += "; expires=";
                        cookie += &end.strftime("%a, %d-%b-%y %H:%M:%S GMT").to_string();
                    }
                }
                Style::Cookie | Style::Cookie2 => cookie += &format!("; max-age={expires_s}"),
            }
        }
        if let Some(domain) = &self.domain {
            cookie += "; domain=";
            cookie += domain;
            if self.style == Style::Cookie2 {
                cookie += "; version=1";
            }
        }
        if let Some(same_site) = self.same_site {
            cookie += "; ";
            cookie += same_site;
        }
        if self.is_secure {
            cookie += "; Secure";
        }
        if self.is_http_only {
            cookie += "; HttpOnly";
        }
        cookie
    }
}

/// The text of a cookie's name in messages.
fn shown(name: &str) -> String {
    quoted(name.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn a_cookie_is_found_wherever_it_stands() {
        for (sent, value) in [
            ("Apache=a", Some("a")),
            ("Apache=a; b=c", Some("a")),
            ("b=c; Apache=a", Some("a")),
            ("b=c,\t Apache=a,d", Some("a")),
            ("b=c;Apache=a b;", Some("a b")),
            (" Apache=a", None),
            ("xApache=a", None),
            ("Apache=; Apache=b", Some("b")),
            ("b=Apache=a", None),
            ("", None),
        ] {
            let got = value_in(sent.as_bytes(), b"Apache");
            assert_eq!(got, value.map(str::as_bytes), "{sent}");
        }
    }

    #[test]
    fn a_cookie_has_the_attributes_that_its_style_has() {
        for (directives, expected) in [
            ("CookieTracking on", "Apache=v; path=/"),
            ("CookieExpires \"1 day\"", "Apache=v; path=/; expires=Tue, 14-Nov-23 22:13:20 GMT"),
            ("CookieExpires 60\nCookieStyle Cookie", "Apache=v; path=/; max-age=60"),
            (
                "CookieName c\nCookieDomain .example.com\nCookieStyle RFC2965",
                "c=v; path=/; domain=.example.com; version=1",
            ),
            (
                "CookieSameSite lax\nCookieSecure on\nCookieHttpOnly on",
                "Apache=v; path=/; SameSite=Lax; Secure; HttpOnly",
            ),
        ] {
            let scope = apply(MODULE, directives).unwrap();
            let settings = scope.directory.usertrack.0.clone().unwrap_or_default();
            let expires_s = scope.server.usertrack.0.unwrap_or(0);
            let cookie = settings.cookie("v", expires_s, 1_699_913_600_000_000);
            assert_eq!(cookie, expected, "{directives}");
        }
    }
}
