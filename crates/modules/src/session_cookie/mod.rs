//! mod_session_cookie: sessions in cookies.

pub use crate::{NoSettings as Global, NoSettings as Server};

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Overrides, Shape};
use evenkeel_message::Response;
use std::sync::Arc;

const PLACE: Where = Where::CONFIG.or(Overrides::AUTH_CONFIG);

/// The attributes of a cookie for which none are configured (util_cookies.h: DEFAULT_ATTRS).
const DEFAULT_ATTRIBUTES: &str = "HttpOnly;Secure;Version=1";

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("SessionCookieName", PLACE, Shape::Raw, "", "The name of the RFC2109 cookie carrying the session", name),
    directive("SessionCookieName2", PLACE, Shape::Raw, "", "The name of the RFC2965 cookie carrying the session", name2),
    directive("SessionCookieRemove", PLACE, Shape::Flag, "Off", "Set to 'On' to remove the session cookie from the headers and hide the cookie from a backend server or process", remove),
];

/// mod_session_cookie.
pub const MODULE: Module = Module {
    file: "mod_session_cookie.c",
    identifier: "session_cookie_module",
    active: Active::WhenNamed,
    page: "mod_session_cookie",
    subject: "Sessions in cookies.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    cookie: Option<Arc<Cookie>>,
    cookie2: Option<Arc<Cookie>>,
    remove: Option<bool>,
}

/// A name and its attributes.
#[derive(Debug, PartialEq, Eq)]
struct Cookie {
    name: Box<str>,
    attributes: Box<str>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; cookie, cookie2, remove)
    }
}

impl Directory {
    /// The name of the cookie that a session is read from; none if there is no cookie.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.cookie2.as_ref().or(self.cookie.as_ref()).map(|cookie| &*cookie.name)
    }

    /// Whether applications do not see the cookie (SessionCookieRemove).
    #[must_use]
    pub fn removes(&self) -> bool {
        self.remove == Some(true)
    }

    /// Puts the cookies of a session into a response, or has the client delete them if the session
    /// is empty (mod_session_cookie.c: session_cookie_save).
    pub fn write(&self, response: &mut Response, session: &[u8], max_age_s: i64) {
        let cookies = [("Set-Cookie", &self.cookie), ("Set-Cookie2", &self.cookie2)];
        for (field, cookie) in cookies {
            let Some(Cookie { name, attributes }) = cookie.as_deref() else { continue };
            if session.is_empty() {
                let line = format!("{name}=;Max-Age=0;{attributes}");
                response.fields.add(field, &line);
                response.always.add(field, line);
                continue;
            }
            let age = match max_age_s {
                0 => String::new(),
                age => format!("Max-Age={age};"),
            };
            let attributes = if attributes.is_empty() { DEFAULT_ATTRIBUTES } else { &**attributes };
            let line =
                [name.as_bytes(), b"=", session, b";", age.as_bytes(), attributes.as_bytes()];
            response.always.add(field, line.concat());
        }
    }
}

fn name(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session_cookie.cookie = Some(Arc::new(parse(call)?));
    Ok(())
}

fn name2(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session_cookie.cookie2 = Some(Arc::new(parse(call)?));
    Ok(())
}

/// Parses a name and attributes, which may have quotation marks of their own.
fn parse(call: &Call<'_>) -> Result<Cookie, String> {
    let is_blank = |char: char| matches!(char, ' ' | '\t');
    let text = call.raw.trim_start_matches(is_blank);
    let (name, attributes) = text.split_once(is_blank).unwrap_or((text, ""));
    if name.is_empty() || name.contains(['=', '&']) {
        return Err(format!("{} cannot be empty, or contain '=' or '&'.", call.name));
    }
    Ok(Cookie { name: name.into(), attributes: attributes.trim_ascii_start().into() })
}

fn remove(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session_cookie.remove = Some(call.flag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::Status;

    fn written(lines: &str, session: &str, max_age_s: i64) -> Vec<String> {
        let settings = apply(MODULE, lines).unwrap().directory.session_cookie.clone();
        let mut response = Response::new(Status::OK);
        settings.write(&mut response, session.as_bytes(), max_age_s);
        let lines = response.always.iter();
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        lines.map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
    }

    #[test]
    fn cookies_carry_the_session() {
        let one = written("SessionCookieName session path=/;  HttpOnly", "a=1", 0);
        assert_eq!(one, ["Set-Cookie: session=a=1;path=/;  HttpOnly"]);
        let two = written("SessionCookieName a\nSessionCookieName2 b path=/", "x=1", 60);
        assert_eq!(
            two,
            [
                "Set-Cookie: a=x=1;Max-Age=60;HttpOnly;Secure;Version=1",
                "Set-Cookie2: b=x=1;Max-Age=60;path=/"
            ]
        );
        assert_eq!(
            written("SessionCookieName a path=/", "", 60),
            ["Set-Cookie: a=;Max-Age=0;path=/"]
        );
        assert!(written("SessionCookieRemove On", "a=1", 0).is_empty());
    }

    #[test]
    fn a_name_is_a_word_without_signs() {
        for bad in ["SessionCookieName ", "SessionCookieName a=b", "SessionCookieName2 a&b c"] {
            assert!(apply(MODULE, bad).is_err(), "{bad}");
        }
    }
}
