//! mod_session: where there is a session, how long it lasts, and who sees it. The pipeline loads
//! and saves it.

pub use crate::{NoSettings as Global, NoSettings as Server};

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Overrides, Shape};
use std::sync::Arc;

const PLACE: Where = Where::CONFIG.or(Overrides::AUTH_CONFIG);

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("Session", PLACE, Shape::Flag, "Off", "on if a session should be maintained for these URLs", session),
    directive("SessionMaxAge", PLACE, Shape::One, "0", "length of time for which a session should be valid. Zero to disable", max_age),
    directive("SessionHeader", PLACE, Shape::One, "", "output header, if present, whose contents will be injected into the session.", header),
    directive("SessionEnv", PLACE, Shape::Flag, "Off", "on if a session should be written to the CGI environment. Defaults to off", env),
    directive("SessionInclude", PLACE, Shape::One, "", "URL prefixes to include in the session. Defaults to all URLs", include),
    directive("SessionExclude", PLACE, Shape::One, "", "URL prefixes to exclude from the session. Defaults to no URLs", exclude),
    directive("SessionExpiryUpdateInterval", PLACE, Shape::One, "0", "time interval for which a session's expiry time may change without having to be rewritten. Zero to disable", update_interval),
];

/// mod_session.
pub const MODULE: Module = Module {
    file: "mod_session.c",
    identifier: "session_module",
    active: Active::WhenNamed,
    page: "mod_session",
    subject: "Sessions that the client keeps for the server.",
    remarks: &[
        "A session that has expired or cannot be opened is replaced by an empty one, to which a \
         login in the same request belongs. Apache loses that login.",
        "Sections that seal one cookie by different passphrases have different sessions, also \
         within one request and its internal redirects.",
        "mod_session_dbd is not there: sessions are kept in cookies.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    is_on: Option<bool>,
    max_age_s: Option<i64>,
    header: Option<Arc<str>>,
    env: Option<bool>,
    includes: Prefixes,
    excludes: Prefixes,
    update_interval_us: Option<i64>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(
            base, over; is_on, max_age_s, header, env, includes, excludes, update_interval_us
        )
    }
}

/// Prefixes of paths. Those of inner sections are added.
#[derive(Clone, Debug, Default)]
struct Prefixes(Option<Arc<Vec<Box<str>>>>);

impl Merge for Prefixes {
    fn merge(base: &Self, over: &Self) -> Self {
        match (&base.0, &over.0) {
            (Some(base), Some(over)) => {
                Self(Some(Arc::new(base.iter().chain(over.iter()).cloned().collect())))
            }
            (base, over) => Self(over.clone().or_else(|| base.clone())),
        }
    }
}

impl Prefixes {
    fn add(&mut self, prefix: &str) {
        Arc::make_mut(self.0.get_or_insert_default()).push(prefix.into());
    }

    fn has(&self, path: &[u8]) -> bool {
        self.0.iter().flat_map(|all| all.iter()).any(|prefix| path.starts_with(prefix.as_bytes()))
    }
}

impl Directory {
    /// Whether Session is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on == Some(true)
    }

    /// Whether a path has a session where Session is on (mod_session.c: session_included).
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        (self.includes.0.is_none() || self.includes.has(path)) && !self.excludes.has(path)
    }

    /// SessionMaxAge, in seconds; 0 if there is none.
    #[must_use]
    pub fn max_age_s(&self) -> i64 {
        self.max_age_s.unwrap_or_default()
    }

    /// SessionHeader.
    #[must_use]
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// SessionEnv.
    #[must_use]
    pub fn env(&self) -> bool {
        self.env == Some(true)
    }

    /// SessionExpiryUpdateInterval, in microseconds; 0 if each response renews the session.
    #[must_use]
    pub fn update_interval_us(&self) -> i64 {
        self.update_interval_us.unwrap_or_default()
    }
}

fn session(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session.is_on = Some(call.flag);
    Ok(())
}

fn max_age(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session.max_age_s = Some(leading_number(call.first()));
    Ok(())
}

fn header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session.header = Some(call.first().into());
    Ok(())
}

fn env(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session.env = Some(call.flag);
    Ok(())
}

fn include(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session.includes.add(call.first());
    Ok(())
}

fn exclude(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.session.excludes.add(call.first());
    Ok(())
}

fn update_interval(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let seconds = leading_number(call.first());
    if seconds < 0 {
        let text =
            "SessionExpiryUpdateInterval must be zero (disable) or a positive value".to_owned();
        return Err(text);
    }
    scope.directory.session.update_interval_us = Some(seconds.saturating_mul(1_000_000));
    Ok(())
}

/// The number that a text begins with; 0 if it begins with none (atol(3)).
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    if text.starts_with('-') { -number } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    fn said(lines: &str) -> Directory {
        apply(MODULE, lines).unwrap().directory.session.clone()
    }

    #[test]
    fn prefixes_say_where_there_is_a_session() {
        let all = said("Session On");
        assert!(all.is_on() && all.covers(b"/a"));
        let some = said("SessionInclude /a\nSessionInclude /b\nSessionExclude /a/x");
        assert!(some.covers(b"/a/y") && some.covers(b"/b") && some.covers(b"/ab"));
        assert!(!some.covers(b"/a/x/y") && !some.covers(b"/c"));
        let inner = Directory::merge(&some, &said("SessionInclude /c"));
        assert!(inner.covers(b"/c") && inner.covers(b"/b") && !inner.covers(b"/a/x"));
    }

    #[test]
    fn times_are_numbers_at_the_beginning() {
        let settings = said("SessionMaxAge 60s\nSessionExpiryUpdateInterval 5");
        assert_eq!((settings.max_age_s(), settings.update_interval_us()), (60, 5_000_000));
        assert_eq!(said("SessionMaxAge x").max_age_s(), 0);
        assert!(apply(MODULE, "SessionExpiryUpdateInterval -1").is_err());
    }
}
