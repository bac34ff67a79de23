//! mod_authn_socache and mod_socache_shmcb: how long the result of a password's verification is
//! cached (AuthnCacheTimeout). The cache is that of `passwords`; the provider `socache` leaves
//! every login to the providers after it.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::{
    Active, Asked, AuthnProvider, Credential, Credentials, Directive, DirectiveResult, Merge,
    Module, Provided, Scope, Verdict, Where, argument, directive, global_directive,
};
use evenkeel_config::{Call, GlobalCall, Shape};
use evenkeel_message::Notice;
use std::sync::Arc;
use std::time::Duration;

const AUTH: Where = Where::AUTH_CONFIG;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    global_directive("AuthnCacheSOCache", Shape::One, "", "socache provider for authn cache", socache_line),
    global_directive("AuthnCacheEnable", Shape::None, "", "enable socache configuration in htaccess even if not enabled anywhere else", enable),
    directive("AuthnCacheProvideFor", AUTH, Shape::Iterate, "", "Determine what authn providers to cache for", provide_for),
    directive("AuthnCacheTimeout", AUTH, Shape::One, "300", "Timeout (secs) for cached credentials", timeout),
    directive("AuthnCacheContext", Where::SECTION, Shape::One, "directory", "Context for authn cache", context),
];

/// mod_authn_socache.
pub const MODULE: Module = Module {
    file: "mod_authn_socache.c",
    identifier: "authn_socache_module",
    active: Active::Usually,
    page: "mod_authn_socache",
    subject: "How long verified passwords are cached.",
    remarks: &[
        "Files of users are cached in memory without this module, and are read again when they \
         change. What the module caches is the result of a verification, which saves the cost of \
         the hash: for the time of AuthnCacheTimeout where AuthnCacheProvideFor names `file`, and \
         for five minutes elsewhere. A timeout above a day counts as a day.",
        "Each child process has a cache of its own, with at most 4096 right passwords. A cache that \
         all children share would save one hash in each of them, and would let one child process \
         decide about the logins of the others.",
        "A changed or deleted entry of a user takes effect at once. With Apache, the old password \
         is valid, and the new one is not, until the timeout.",
        "A result is valid for the file that it was found with, so AuthnCacheContext has no effect: \
         no context lets a user of one file into a place with another file.",
        "The provider `socache` knows no user: the next provider of AuthBasicProvider or \
         AuthDigestProvider decides. AuthnCacheSOCache accepts `shmcb` and ignores its path and \
         size.",
    ],
    directives: &[DIRECTIVES],
    provides: &[Provided::Authn(AuthnProvider {
        name: "socache",
        check: leave_to_others,
        check_realm: Some(leave_to_others),
    })],
};

/// mod_socache_shmcb, which AuthnCacheSOCache names.
pub const SHMCB: Module = Module {
    file: "mod_socache_shmcb.c",
    identifier: "socache_shmcb_module",
    active: Active::Usually,
    page: "mod_authn_socache",
    subject: "",
    remarks: &[],
    directives: &[],
    provides: &[],
};

/// AuthnCacheTimeout if it is not set, in seconds.
const TIMEOUT_S: u64 = 300;

/// The longest AuthnCacheTimeout, in seconds.
const LONGEST_S: u64 = 86_400;

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// The providers of AuthnCacheProvideFor.
    providers: Option<Arc<Vec<Box<str>>>>,
    /// AuthnCacheTimeout in seconds.
    timeout_s: Option<u64>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; providers, timeout_s)
    }
}

impl Directory {
    /// The time for which a verified password of a provider is cached. Returns `None` if
    /// AuthnCacheProvideFor does not name the provider.
    #[must_use]
    pub fn lifetime(&self, provider: &str) -> Option<Duration> {
        let providers = self.providers.as_ref()?;
        let is_named = providers.iter().any(|named| **named == *provider);
        is_named.then(|| Duration::from_secs(self.timeout_s.unwrap_or(TIMEOUT_S)))
    }
}

fn leave_to_others(_: &Asked<'_>, _: &Credentials<'_>, _: &mut Vec<Notice>) -> Credential {
    Credential::Decided(Verdict::NotFound)
}

/// Checks the name of a cache and its argument (mod_authn_socache.c: authn_cache_socache).
fn socache_line(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let word = call.first();
    let (name, place) = word.split_once(':').unwrap_or((word, ""));
    let told = |text: &str| Err(format!("AuthnCacheSOCache: {text}"));
    let is_known = matches!(name, "shmcb" | "default");
    if is_known && scope.global().active.has(SHMCB.file) {
        return check_place(place).or_else(|text| told(&text));
    }
    let unknown = format!(
        "Unknown socache provider '{word}'. Maybe you need to load the appropriate socache module \
         (mod_socache_{word}?)"
    );
    match name {
        "dbm" | "memcache" | "redis" | "dc" => {
            told(&format!("{unknown}; this server keeps passwords in its own memory: use shmcb"))
        }
        _ => told(&unknown),
    }
}

/// Checks `path(size)` (mod_socache_shmcb.c: socache_shmcb_create).
fn check_place(place: &str) -> DirectiveResult {
    const LEAST: i64 = 8192;
    const MOST: i64 = u32::MAX as i64;
    let Some((_, size)) = place.rsplit_once('(') else {
        return match place.ends_with(')') {
            true => Err("Invalid argument: no opening parenthesis".into()),
            false => Ok(()),
        };
    };
    let Some(size) = size.strip_suffix(')') else {
        let text = "Invalid argument: no closing parenthesis or cache size missing after pathname \
                    with parenthesis";
        return Err(text.into());
    };
    let bare = size.trim_start();
    let digits = bare.strip_prefix(['-', '+']).unwrap_or(bare);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.is_empty() && !size.is_empty() {
        return Err("Invalid argument: cache size not numerical".into());
    }
    let number = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(i64::MAX) };
    if number < LEAST || bare.starts_with('-') {
        return Err(format!("Invalid argument: size has to be >= {LEAST} bytes"));
    }
    if number >= MOST {
        return Err(format!("Invalid argument: size has to be < {MOST} bytes on this platform"));
    }
    Ok(())
}

fn enable(_: &mut Scope, _: &GlobalCall<'_>) -> DirectiveResult {
    Ok(())
}

fn provide_for(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 0).into();
    Arc::make_mut(scope.directory.authn_socache.providers.get_or_insert_default()).push(name);
    Ok(())
}

fn timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    // Apache's atoi reads the digits at the start. It cannot tell 300 from an unset timeout.
    let text = argument(call, 0).trim_start();
    let digits = text.strip_prefix('+').unwrap_or(text);
    let end = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
    let digits = digits.get(..end).unwrap_or_default();
    let seconds = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(LONGEST_S) };
    let seconds = seconds.min(LONGEST_S);
    scope.directory.authn_socache.timeout_s = (seconds != TIMEOUT_S).then_some(seconds);
    Ok(())
}

fn context(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_cache_is_checked_as_in_apache() {
        for place in ["", "/x", "logs/x", "/x(8192)", "/x(y)(512000)", "/x( 9000)", "(+9000)"] {
            assert_eq!(check_place(place), Ok(()), "{place}");
        }
        for (place, text) in [
            ("/x)", "no opening parenthesis"),
            ("/x(9000", "no closing parenthesis"),
            ("/x(a)", "not numerical"),
            ("/x(9000 )", "not numerical"),
            ("/x(-)", "not numerical"),
            ("/x()", "has to be >= 8192"),
            ("/x(-9000)", "has to be >= 8192"),
            ("/x(8191)", "has to be >= 8192"),
            ("/x(4294967295)", "has to be < 4294967295"),
            ("/x(99999999999999999999)", "has to be < 4294967295"),
        ] {
            let result = check_place(place).unwrap_err();
            assert!(result.contains(text), "{place}: {result}");
        }
    }

    #[test]
    fn a_lifetime_is_that_of_the_named_provider() {
        let section = |providers: &[&str], timeout_s| Directory {
            providers: Some(Arc::new(providers.iter().map(|name| (*name).into()).collect())),
            timeout_s,
        };
        assert_eq!(Directory::default().lifetime("file"), None);
        let outer = section(&["file"], Some(60));
        assert_eq!(outer.lifetime("file"), Some(Duration::from_secs(60)));
        assert_eq!(outer.lifetime("dbd"), None);
        let inner = Directory::merge(&outer, &section(&["dbd"], None));
        assert_eq!(inner.lifetime("file"), None);
        assert_eq!(inner.lifetime("dbd"), Some(Duration::from_secs(60)));
    }
}
