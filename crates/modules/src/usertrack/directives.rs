//! The directives of mod_usertrack.

use super::{Settings, Style, shown};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape};
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("CookieExpires", Where::FILE_INFO, Shape::One, "", "an expiry date code", expires),
    directive("CookieDomain", Where::FILE_INFO, Shape::One, "", "domain to which this cookie applies", domain),
    directive("CookieStyle", Where::FILE_INFO, Shape::One, "Netscape", "'Netscape', 'Cookie' (RFC2109), or 'Cookie2' (RFC2965)", style),
    directive("CookieTracking", Where::FILE_INFO, Shape::Flag, "off", "whether or not to enable cookies", tracking),
    directive("CookieName", Where::FILE_INFO, Shape::One, "Apache", "name of the tracking cookie", name),
    directive("CookieSameSite", Where::FILE_INFO, Shape::One, "", "SameSite setting", same_site),
    directive("CookieSecure", Where::FILE_INFO, Shape::Flag, "off", "is cookie secure", secure),
    directive("CookieHttpOnly", Where::FILE_INFO, Shape::Flag, "off", "is cookie http only", http_only),
];

/// mod_usertrack.
pub const MODULE: Module = Module {
    file: "mod_usertrack.c",
    identifier: "usertrack_module",
    active: Active::WhenNamed,
    page: "mod_usertrack",
    subject: "A cookie that tells the requests of one client from those of others, for the log \
              (`%{cookie}n`).",
    remarks: &[
        "CookieExpires in a section holds for the whole virtual host, as in Apache. In .htaccess \
         it has no effect; in Apache it changes the host for all requests to come.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn settings(scope: &mut Scope) -> &mut Settings {
    Arc::make_mut(scope.directory.usertrack.0.get_or_insert_default())
}

fn tracking(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).is_on = call.flag;
    Ok(())
}

fn name(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = call.first();
    // Apache escapes each byte of a name that is no letter or digit, and so refuses none but those
    // that end a cookie.
    if name.is_empty() || name.contains([';', ',', '=']) || name.contains(char::is_whitespace) {
        return Err(format!("Invalid cookie name \"{}\"", shown(name)));
    }
    settings(scope).name = Some(name.into());
    Ok(())
}

fn domain(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = call.first();
    let behind = match name.strip_prefix('.') {
        Some(behind) => behind,
        None if name.is_empty() => return Err("CookieDomain values may not be null".into()),
        None => return Err("CookieDomain values must begin with a dot".into()),
    };
    if !behind.contains('.') {
        return Err("CookieDomain values must contain at least one embedded dot".into());
    }
    settings(scope).domain = Some(name.into());
    Ok(())
}

fn style(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).style = match call.first().to_ascii_lowercase().as_str() {
        "netscape" => Style::Netscape,
        "cookie" | "rfc2109" => Style::Cookie,
        "cookie2" | "rfc2965" => Style::Cookie2,
        _ => return Err(format!("Invalid {} keyword: '{}'", call.name, call.first())),
    };
    Ok(())
}

fn same_site(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).same_site = Some(match call.first().to_ascii_lowercase().as_str() {
        "strict" => "SameSite=Strict",
        "lax" => "SameSite=Lax",
        "none" => "SameSite=None",
        _ => return Err("CookieSameSite accepts 'Strict', 'Lax', or 'None'".into()),
    });
    Ok(())
}

fn secure(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).is_secure = call.flag;
    Ok(())
}

fn http_only(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    settings(scope).is_http_only = call.flag;
    Ok(())
}

/// A number of seconds, or `[plus] {NUMBER UNIT}` (mod_usertrack.c: set_cookie_exp).
fn expires(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = call.first();
    if text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit())
    {
        scope.server.usertrack.0 = Some(digits(text));
        return Ok(());
    }
    let mut words = text.split_ascii_whitespace().peekable();
    words.next_if(|word| word.to_ascii_lowercase().starts_with('p'));
    let mut seconds: i64 = 0;
    while let Some(word) = words.next() {
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            return Err("bad expires code, numeric value expected.".into());
        }
        let unit = words.next().ok_or("bad expires code, missing <type>")?.to_ascii_lowercase();
        let factor = match unit.as_bytes() {
            [b'y', ..] => 60 * 60 * 24 * 365,
            [b'm', b'o', ..] => 60 * 60 * 24 * 30,
            [b'w', ..] => 60 * 60 * 24 * 7,
            [b'd', ..] => 60 * 60 * 24,
            [b'h', ..] => 60 * 60,
            [b'm', b'i', ..] => 60,
            [b's', ..] => 1,
            _ => return Err("bad expires code, unrecognized type".into()),
        };
        seconds = seconds.saturating_add(digits(word).saturating_mul(factor));
    }
    scope.server.usertrack.0 = Some(seconds);
    Ok(())
}

/// The number at the beginning of a text.
fn digits(text: &str) -> i64 {
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    digits.fold(0, |number: i64, digit| {
        number.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn times_are_numbers_of_seconds_or_of_units() {
        for (text, seconds) in [
            ("60", Some(60)),
            ("\"1 day\"", Some(86_400)),
            ("\"plus 1 week 2 hours 3 minutes 4 seconds\"", Some(604_800 + 7_200 + 184)),
            ("\"1 month 1 year\"", Some(86_400 * (30 + 365))),
            ("\"a day\"", None),
            ("\"1 \"", None),
            ("\"1 moon 2\"", Some(1)),
        ] {
            let scope = apply(MODULE, &format!("CookieExpires {text}"));
            assert_eq!(scope.ok().and_then(|scope| scope.server.usertrack.0), seconds, "{text}");
        }
    }

    #[test]
    fn bad_lines_are_refused() {
        for (line, text) in [
            ("CookieDomain example.com", "begin with a dot"),
            ("CookieDomain .com", "embedded dot"),
            ("CookieStyle new", "Invalid CookieStyle keyword: 'new'"),
            ("CookieSameSite some", "accepts 'Strict'"),
            ("CookieName a;b", "Invalid cookie name"),
        ] {
            let error = apply(MODULE, line).err().unwrap();
            assert!(error.contains(text), "{line}: {error}");
        }
    }
}
