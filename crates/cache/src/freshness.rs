//! How long a response is fresh, how old it is, and whether it may be used for a request (RFC 9111,
//! section 4.2; RFC 5861). All times are in seconds since 1970, all ages in seconds.

use crate::control::CacheControl;
use evenkeel_message::{Fields, Name, parse_http_date, trim};
use evenkeel_sys::clock;

/// What the configuration says about lifetimes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LifetimeRules {
    /// CacheDefaultExpire: the lifetime of a response that says nothing about it.
    pub default: u64,
    /// CacheMaxExpire, if it was said: no response is fresh for longer.
    pub most: Option<u64>,
    /// CacheMinExpire: the least lifetime that is estimated.
    pub least: u64,
    /// CacheLastModifiedFactor: the share of the time since the last change that a response is
    /// fresh for.
    pub factor: f64,
}

/// CacheMaxExpire where it was not said: the most that is estimated.
const MOST_ESTIMATED: u64 = 86_400;

impl Default for LifetimeRules {
    fn default() -> Self {
        Self { default: 3_600, most: None, least: 0, factor: 0.1 }
    }
}

/// The times of a stored response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When the response was received.
    pub received: i64,
    /// How old it was then.
    pub initial_age: u64,
    /// How long it is fresh.
    pub lifetime: u64,
    /// Whether the lifetime was estimated.
    pub is_estimated: bool,
}

impl Times {
    /// The times of a response that has just been received, and whose request was sent at
    /// `requested`.
    #[must_use]
    pub fn of(
        fields: &Fields,
        control: &CacheControl,
        rules: &LifetimeRules,
        (requested, received): (i64, i64),
    ) -> Self {
        let date = date_of(fields, Name::Date, received).unwrap_or(received);
        let (lifetime, is_estimated) = lifetime(fields, control, rules, (date, received));
        let initial_age = initial_age(fields, date, (requested, received));
        Self { received, initial_age, lifetime, is_estimated }
    }

    /// The age at a time (RFC 9111, section 4.2.3).
    #[must_use]
    pub fn age(&self, now: i64) -> u64 {
        self.initial_age.saturating_add(elapsed(self.received, now))
    }
}

/// Now, in seconds since 1970.
#[must_use]
pub fn now() -> i64 {
    i64::try_from(clock::realtime_us() / 1_000_000).unwrap_or(i64::MAX)
}

fn elapsed(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}

fn date_of(fields: &Fields, name: Name, now: i64) -> Option<i64> {
    fields.first(name).and_then(|text| parse_http_date(text, now))
}

fn initial_age(fields: &Fields, date: i64, (requested, received): (i64, i64)) -> u64 {
    let told = fields.first("Age").map(trim).and_then(|text| std::str::from_utf8(text).ok());
    // A number that is too large is an age beyond any lifetime.
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let told: u64 = told.filter(is_number).map_or(0, |text| text.parse().unwrap_or(u64::MAX));
    elapsed(date, received).max(told.saturating_add(elapsed(requested, received)))
}

/// The lifetime, and whether it was estimated (RFC 9111, sections 4.2.1 and 4.2.2; mod_cache.c:
/// `cache_save_filter`).
fn lifetime(
    fields: &Fields,
    control: &CacheControl,
    rules: &LifetimeRules,
    (date, now): (i64, i64),
) -> (u64, bool) {
    let bounded = |lifetime: u64| rules.most.map_or(lifetime, |most| lifetime.min(most));
    if let Some(stated) = control.s_maxage.or(control.max_age) {
        return (bounded(stated), false);
    }
    if let Some(expires) = fields.first(Name::Expires) {
        let expires = parse_http_date(expires, now);
        return (bounded(expires.map_or(0, |expires| elapsed(date, expires))), false);
    }
    let modified = date_of(fields, Name::LastModified, now).filter(|modified| *modified < date);
    let Some(modified) = modified else { return (bounded(rules.default), true) };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the conversion saturates, and a lifetime needs no precision"
    )]
    let share = (elapsed(modified, date) as f64 * rules.factor) as u64;
    (share.max(rules.least).min(rules.most.unwrap_or(MOST_ESTIMATED)), true)
}

/// What becomes of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is used.
    Use {
        /// Its age.
        age: u64,
        /// Whether it is used though it is stale, because the client accepts that (Warning 110).
        is_stale: bool,
        /// Whether its lifetime was estimated and it is older than a day (Warning 113).
        is_guessed: bool,
    },
    /// It has to be validated first.
    Validate {
        /// Its age.
        age: u64,
        /// For how many seconds it has been stale; 0 if it is fresh and the request or the response
        /// asks for validation.
        staleness: u64,
    },
}

/// Decides about a stored response, whose directives are `response`, for a request. A request whose
/// directives are ignored (CacheIgnoreCacheControl) still has its max-stale.
#[must_use]
pub fn judge(
    times: &Times,
    response: &CacheControl,
    request: &CacheControl,
    ignores_request: bool,
    now: i64,
) -> Verdict {
    let age = times.age(now);
    let validate = Verdict::Validate { age, staleness: age.saturating_sub(times.lifetime) };
    if response.no_cache || (request.no_cache && !ignores_request) {
        return validate;
    }
    let wanted = |number: Option<u64>| number.filter(|_| !ignores_request);
    let limit = wanted(request.max_age).map_or(times.lifetime, |most| most.min(times.lifetime));
    // RFC 9111, sections 5.2.2.2, 5.2.2.8 and 5.2.2.10.
    let is_strict = !response.lets_stale_be_used() || response.s_maxage.is_some();
    let stale = request.max_stale.filter(|_| !is_strict).unwrap_or(0);
    let needed = age.saturating_add(wanted(request.min_fresh).unwrap_or(0));
    if needed >= limit.saturating_add(stale) {
        return validate;
    }
    Verdict::Use {
        age,
        is_stale: age >= times.lifetime,
        is_guessed: times.is_estimated && age > 86_400,
    }
}

/// Whether a response that has been stale for some seconds may be used while another request
/// validates it (RFC 5861, section 3).
#[must_use]
pub fn may_use_while_validated(response: &CacheControl, staleness: u64) -> bool {
    response.lets_stale_be_used()
        && response.stale_while_revalidate.is_some_and(|most| staleness <= most)
}

/// Whether a response that has been stale for some seconds may be used because its server fails
/// (RFC 5861, section 4). `always` is CacheStaleOnError, which has no bound.
#[must_use]
pub fn may_use_on_error(response: &CacheControl, staleness: u64, always: bool) -> bool {
    let is_strict = response.must_revalidate || response.proxy_revalidate;
    let within = response.stale_if_error.is_some_and(|most| staleness <= most);
    !is_strict && (always || within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::http_date;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_000;

    fn times_of(lines: &[(&str, &str)], rules: &LifetimeRules) -> Times {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.add(*name, value));
        Times::of(&fields, &CacheControl::of_response(&fields), rules, (NOW - 2, NOW))
    }

    fn lifetime_of(lines: &[(&str, &str)]) -> u64 {
        times_of(lines, &LifetimeRules::default()).lifetime
    }

    fn date(seconds: i64) -> String {
        String::from_utf8(http_date(NOW + seconds).to_vec()).unwrap()
    }

    #[test]
    fn the_lifetime_is_the_first_that_is_stated() {
        let expires = date(500);
        let own = date(0);
        let stated = [("Date", own.as_str()), ("Expires", expires.as_str())];
        assert_eq!(lifetime_of(&stated), 500);
        let with = |control| [stated[0], stated[1], ("Cache-Control", control)];
        assert_eq!(lifetime_of(&with("max-age=9")), 9);
        assert_eq!(lifetime_of(&with("max-age=9, s-maxage=3")), 3);
        assert_eq!(lifetime_of(&with("public")), 500);
        assert_eq!(lifetime_of(&[("Expires", "0")]), 0);
        assert_eq!(lifetime_of(&[("Expires", &date(-1))]), 0);
    }

    #[test]
    fn a_lifetime_is_estimated_from_the_last_change_within_the_bounds() {
        let day = date(-86_400);
        assert_eq!(lifetime_of(&[("Last-Modified", &day)]), 8_640);
        assert_eq!(lifetime_of(&[("Last-Modified", &date(-10_000_000))]), MOST_ESTIMATED);
        assert_eq!(lifetime_of(&[]), 3_600);
        assert_eq!(
            lifetime_of(&[("Last-Modified", &date(5))]),
            3_600,
            "a date to come says nothing"
        );
        let rules = LifetimeRules { least: 20_000, ..LifetimeRules::default() };
        assert_eq!(times_of(&[("Last-Modified", &day)], &rules).lifetime, 20_000);
    }

    #[test]
    fn cache_max_expire_bounds_what_is_stated_too() {
        let rules = LifetimeRules { most: Some(60), ..LifetimeRules::default() };
        for line in [("Cache-Control", "max-age=900"), ("Expires", &*date(900)), ("X", "y")] {
            assert_eq!(times_of(&[line], &rules).lifetime, 60, "{line:?}");
        }
    }

    #[test]
    fn the_age_counts_the_way_the_delay_and_the_time_in_the_cache() {
        let rules = LifetimeRules::default();
        assert_eq!(times_of(&[("Date", &date(-7))], &rules).initial_age, 7);
        assert_eq!(times_of(&[("Age", "20")], &rules).initial_age, 22);
        assert_eq!(times_of(&[("Age", "old")], &rules).initial_age, 2);
        assert_eq!(times_of(&[("Age", "20")], &rules).age(NOW + 5), 27);
        assert_eq!(times_of(&[], &rules).age(NOW - 50), 2, "a clock that went back");
    }

    fn judged(response: &str, request: &str, age: u64) -> Verdict {
        let read = |text: &str| {
            let mut fields = Fields::new();
            fields.add("Cache-Control", text);
            CacheControl::of_response(&fields)
        };
        let times = Times { received: NOW, lifetime: 100, ..Times::default() };
        judge(&times, &read(response), &read(request), false, NOW + age as i64)
    }

    #[test]
    fn a_fresh_response_is_used_unless_either_side_asks_for_validation() {
        let is_used = |verdict| matches!(verdict, Verdict::Use { is_stale: false, .. });
        assert!(is_used(judged("public", "x", 99)));
        assert!(!is_used(judged("public", "x", 100)), "an age of the lifetime is stale");
        assert!(!is_used(judged("no-cache", "x", 1)));
        assert!(!is_used(judged("public", "no-cache", 1)));
        assert!(!is_used(judged("public", "max-age=0", 0)));
        assert!(is_used(judged("public", "max-age=50", 49)));
        assert!(!is_used(judged("public", "min-fresh=60", 41)));
        assert!(is_used(judged("public", "min-fresh=60", 39)));
    }

    #[test]
    fn max_stale_lets_a_stale_response_be_used_unless_the_response_forbids_it() {
        let stale = |verdict| matches!(verdict, Verdict::Use { is_stale: true, .. });
        assert!(stale(judged("public", "max-stale", 5_000)));
        assert!(stale(judged("public", "max-stale=10", 109)));
        assert!(!stale(judged("public", "max-stale=10", 110)));
        for response in ["must-revalidate", "proxy-revalidate", "s-maxage=100"] {
            assert!(!stale(judged(response, "max-stale", 101)), "{response}");
        }
    }

    #[test]
    fn directives_of_the_request_can_be_ignored() {
        let times = Times { received: NOW, lifetime: 100, ..Times::default() };
        let request = CacheControl { no_cache: true, max_age: Some(0), ..CacheControl::default() };
        let verdict = judge(&times, &CacheControl::default(), &request, true, NOW + 5);
        assert_eq!(verdict, Verdict::Use { age: 5, is_stale: false, is_guessed: false });
    }

    #[test]
    fn stale_responses_are_used_in_their_windows_only() {
        let control = CacheControl {
            stale_while_revalidate: Some(10),
            stale_if_error: Some(20),
            ..CacheControl::default()
        };
        assert!(may_use_while_validated(&control, 10) && !may_use_while_validated(&control, 11));
        assert!(may_use_on_error(&control, 20, false) && !may_use_on_error(&control, 21, false));
        assert!(may_use_on_error(&control, 9_999, true), "CacheStaleOnError has no bound");
        let strict = CacheControl { must_revalidate: true, ..control };
        assert!(!may_use_while_validated(&strict, 1) && !may_use_on_error(&strict, 1, true));
    }

    proptest! {
        #[test]
        fn a_used_response_is_fresh_or_the_client_takes_it_stale(
            lifetime in 0_u64..1_000, age in 0_i64..2_000, most in proptest::option::of(0_u64..500),
            stale in proptest::option::of(0_u64..500), strict: bool, fresh in 0_u64..200
        ) {
            let times = Times { received: NOW, lifetime, ..Times::default() };
            let response = CacheControl { must_revalidate: strict, ..CacheControl::default() };
            let request = CacheControl {
                max_age: most, max_stale: stale, min_fresh: Some(fresh), ..CacheControl::default()
            };
            if let Verdict::Use { age, .. } = judge(&times, &response, &request, false, NOW + age) {
                let extra = if strict { 0 } else { stale.unwrap_or(0) };
                prop_assert!(age + fresh < lifetime + extra);
                prop_assert!(most.is_none_or(|most| age < most + extra));
            }
        }
    }
}
