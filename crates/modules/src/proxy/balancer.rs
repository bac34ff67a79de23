//! Balancers: members among which the requests to a `balancer:` target are divided
//! (mod_proxy_balancer and its lbmethods). What can change while the server runs is in memory that
//! all children share (`upstream/src/members.rs`).

use super::member::{Letter, Member};
use super::worker::leading_number;
use evenkeel_message::{Name, Proxied, Request, trim};
use evenkeel_sys::clock;
use evenkeel_upstream::{Line, MOST_TEXT, Members, Number, ShortText, Text};
use std::sync::{Arc, OnceLock};

/// A balancer.
#[derive(Clone, Debug)]
pub struct Balancer {
    /// The host of its URL, in lower case.
    pub name: Box<str>,
    /// The members, in order.
    pub members: Vec<Arc<Member>>,
    configured: Configured,
    /// What stands before the route (`stickysessionsep`); none if all of the value is the route.
    separator: Option<u8>,
    /// Whether a semicolon ends the parameter of a path (`scolonpathdelim`).
    ends_at_semicolon: bool,
    fail_on: Vec<u16>,
    fail_on_timeout: bool,
    recovers: bool,
    shared: OnceLock<Shared>,
}

/// What the configuration says of a balancer and the balancer-manager can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Configured {
    method: Method,
    /// The names of the cookie and of the parameter that hold the route of a session.
    sticky: Option<(Box<str>, Box<str>)>,
    no_failover: bool,
    most_attempts: Option<usize>,
    timeout_s: u64,
}

/// The place of a balancer in the memory of all children.
#[derive(Clone, Debug)]
struct Shared {
    line: Line,
    /// The virtual host to which the balancer belongs.
    home: Box<str>,
}

/// `lbmethod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Method {
    /// By the number of requests.
    #[default]
    Requests,
    /// By the bytes that were sent and received.
    Traffic,
    /// By the number of requests in progress.
    Busyness,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 3] = [Method::Requests, Method::Traffic, Method::Busyness];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::Requests => "byrequests",
            Method::Traffic => "bytraffic",
            Method::Busyness => "bybusyness",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name().eq_ignore_ascii_case(name))
    }

    fn of_number(number: u64) -> Self {
        Self::ALL.into_iter().find(|method| *method as u64 == number).unwrap_or_default()
    }
}

/// The session of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The name of the cookie or of the parameter.
    pub sticky: Option<ShortText>,
    /// The route.
    pub route: Option<Vec<u8>>,
}

/// The member for a request.
#[derive(Debug)]
pub struct Choice {
    /// The member.
    pub member: Arc<Member>,
    /// Whether its route is not that of the session.
    pub is_changed: bool,
}

impl Balancer {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_ascii_lowercase().into(),
            members: Vec::new(),
            configured: Configured::default(),
            separator: Some(b'.'),
            ends_at_semicolon: false,
            fail_on: Vec::new(),
            fail_on_timeout: false,
            recovers: true,
            shared: OnceLock::new(),
        }
    }

    /// Puts the state of the balancer and of its members into shared memory, from the line `at` on.
    /// Returns the line behind them.
    pub fn share(&self, members: &Arc<Members>, at: usize, home: &str) -> usize {
        let shared = Shared { line: members.line(at), home: home.into() };
        self.configured.write(&shared.line);
        let _shared_before = self.shared.set(shared);
        for (number, member) in self.members.iter().enumerate() {
            member.share(members.line(at + 1 + number));
        }
        at + 1 + self.members.len()
    }

    /// Takes over from the balancer of the configuration before this one what has changed while it
    /// was served: failures, and what the balancer-manager has set. What the configuration now says
    /// differently is as it says.
    pub fn take_over(&self, before: &[Arc<Balancer>]) {
        let Some(shared) = self.shared.get() else { return };
        let is_same = |other: &&Arc<Balancer>| {
            let home = other.shared.get().map(|shared| &shared.home);
            other.name == self.name && home == Some(&shared.home)
        };
        let Some(before) = before.iter().find(is_same) else { return };
        if before.configured == self.configured {
            Configured::copy(before.line(), &shared.line);
        }
        for member in &self.members {
            let mut others = before.members.iter();
            let url = &member.worker.target;
            if let Some(other) = others.find(|other| other.worker.target == *url) {
                member.take_over(other);
            }
        }
    }

    /// The members, in order.
    pub fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.iter()
    }

    fn line(&self) -> &Line {
        &self.shared().line
    }

    /// The state, which is this process's own if the configuration is only checked.
    fn shared(&self) -> &Shared {
        self.shared.get_or_init(|| {
            let line = Line::alone();
            self.configured.write(&line);
            Shared { line, home: Box::default() }
        })
    }

    /// The method by which requests are divided.
    #[must_use]
    pub fn method(&self) -> Method {
        Method::of_number(self.line().number(Number::Method))
    }

    /// The names of the cookie and of the parameter that hold the route of a session.
    #[must_use]
    pub fn sticky(&self) -> Option<(ShortText, ShortText)> {
        let line = self.line();
        let cookie = line.text(Text::COOKIE);
        (!cookie.is_empty()).then(|| (cookie, line.text(Text::PARAMETER)))
    }

    fn has_no_failover(&self) -> bool {
        self.line().number(Number::NoFailover) != 0
    }

    /// Sets a parameter (mod_proxy.c: `set_balancer_param`).
    ///
    /// # Errors
    /// The name is unknown, the value is invalid, or the parameter is not supported.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let switch = |name: &str| match value.to_ascii_lowercase().as_str() {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("{name} must be On|Off")),
        };
        match &*key.to_ascii_lowercase() {
            "stickysession" => {
                if value.len() > MOST_TEXT {
                    let most = MOST_TEXT + 1;
                    return Err(format!("stickysession length must be < {most} characters"));
                }
                let (cookie, parameter) = value.split_once('|').unwrap_or((value, value));
                self.configured.sticky = Some((cookie.into(), parameter.into()));
            }
            "stickysessionsep" => {
                self.separator = match value.as_bytes() {
                    [one] => Some(*one),
                    _ if value.eq_ignore_ascii_case("off") => None,
                    _ => return Err("stickysessionsep must be a single character or Off".into()),
                }
            }
            "scolonpathdelim" => self.ends_at_semicolon = switch("scolonpathdelim")?,
            "nofailover" => self.configured.no_failover = switch("failover")?,
            "forcerecovery" => self.recovers = switch("forcerecovery")?,
            "failontimeout" => self.fail_on_timeout = switch("failontimeout")?,
            "maxattempts" => {
                let number = usize::try_from(leading_number(value));
                let number =
                    number.map_err(|_| "maximum number of attempts must be a positive number")?;
                self.configured.most_attempts = Some(number);
            }
            "timeout" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds >= 1);
                self.configured.timeout_s = seconds.ok_or("timeout must be at least one second")?;
            }
            "failonstatus" => {
                let numbers = value.split(',').map(|text| text.parse().ok());
                let numbers: Option<Vec<u16>> =
                    numbers.map(|it| it.filter(|it| (100..600).contains(it))).collect();
                self.fail_on =
                    numbers.ok_or("failonstatus must be one or more HTTP response codes")?;
            }
            "lbmethod" => {
                if value.eq_ignore_ascii_case("heartbeat") {
                    return Err("lbmethod=heartbeat is not there yet".into());
                }
                self.configured.method = Method::of_name(value).ok_or("unknown lbmethod")?;
            }
            // They are about the balancer-manager.
            "nonce" | "growth" => {}
            _ => return Err("unknown Balancer parameter".into()),
        }
        Ok(())
    }

    /// How often another member may be tried.
    #[must_use]
    pub fn attempts(&self) -> usize {
        match self.line().number(Number::Attempts) {
            0 => self.members.len().saturating_sub(1).max(1),
            // Stored with 1 added.
            number => usize::try_from(number - 1).unwrap_or(usize::MAX),
        }
    }

    /// The session that a request says it belongs to (mod_proxy_balancer.c: `find_session_route`).
    #[must_use]
    pub fn session(&self, request: &Request, proxied: &Proxied) -> Session {
        let Some((cookie, parameter)) = self.sticky() else { return Session::default() };
        let ends: &[u8] = if self.ends_at_semicolon { b"?&;" } else { b"?&" };
        let query = request.resource.query.as_deref().unwrap_or_default();
        let url = [&proxied.path, &b"?"[..], query].concat();
        let found = parameter_of(&url, parameter.as_bytes(), ends);
        let found = found.map(|value| (parameter, value));
        let found = found.or_else(|| {
            let value = request.fields().all(Name::Cookie).find_map(|field| {
                field
                    .split(|byte| matches!(byte, b';' | b','))
                    .find_map(|pair| trim(pair).strip_prefix(cookie.as_bytes())?.strip_prefix(b"="))
            })?;
            Some((cookie, value.to_vec()))
        });
        let Some((name, value)) = found else { return Session::default() };
        let route = match self.separator {
            None => Some(value),
            Some(separator) => {
                let at = value.iter().position(|byte| *byte == separator);
                at.and_then(|at| value.get(at + 1..)).map(<[u8]>::to_vec)
            }
        };
        let route = route.filter(|route| !route.is_empty());
        Session { sticky: Some(name), route }
    }

    /// Chooses the member for a request. `None` if no member may be used (mod_proxy_balancer.c:
    /// `proxy_balancer_pre_request`).
    #[must_use]
    pub fn choose(&self, session: &Session) -> Option<Choice> {
        self.choose_at(session, clock::monotonic_us())
    }

    fn choose_at(&self, session: &Session, now_us: u64) -> Option<Choice> {
        let enabled = || self.members.iter().filter(|member| member.is_enabled());
        if self.recovers && enabled().all(|member| member.has_failed()) {
            enabled().for_each(|member| member.recover());
        }
        if let Some(route) = &session.route {
            if let Some(member) = self.of_route(route, now_us) {
                let is_changed = member.route().as_bytes() != &**route;
                return Some(Choice { member, is_changed });
            }
            let is_known = || self.members.iter().any(|it| it.route().as_bytes() == &**route);
            if self.has_no_failover() && is_known() {
                return None;
            }
        }
        let member = self.best(now_us)?;
        Some(Choice { member, is_changed: self.sticky().is_some() })
    }

    /// The usable member of a route, or the one that stands in for it.
    fn of_route(&self, route: &[u8], now_us: u64) -> Option<Arc<Member>> {
        let of = |route: &[u8]| {
            let mut members = self.members.iter();
            members.find(|member| !route.is_empty() && member.route().as_bytes() == route)
        };
        let member = of(route)?;
        if member.is_usable(now_us) {
            return Some(Arc::clone(member));
        }
        let other = of(member.redirect().as_bytes()).filter(|other| other.is_usable(now_us));
        other.cloned()
    }

    /// The member for the next request. It belongs to the lowest set that has a usable member. A
    /// member in standby (`+H`) is used only if its set has no other usable one.
    fn best(&self, now_us: u64) -> Option<Arc<Member>> {
        let mut sets: Vec<u8> = self.members.iter().map(|member| member.set_number()).collect();
        sets.sort_unstable();
        sets.dedup();
        sets.into_iter().find_map(|set| {
            [false, true].into_iter().find_map(|standby| {
                let of_set = || {
                    self.members.iter().filter(move |member| {
                        member.set_number() == set
                            && member.has(Letter::Standby) == standby
                            && !member.has(Letter::Draining)
                    })
                };
                let (spares, others): (Vec<_>, Vec<_>) =
                    of_set().partition(|member| member.has(Letter::Spare));
                let usable = |member: &&Arc<Member>| member.is_usable(now_us);
                let lacking = others.iter().filter(|member| !usable(member)).count();
                let spares = spares.into_iter().filter(usable).take(lacking);
                let candidates: Vec<_> = others.into_iter().filter(usable).chain(spares).collect();
                self.pick(&candidates)
            })
        })
    }

    /// Picks a candidate by the method of the balancer.
    fn pick(&self, candidates: &[&Arc<Member>]) -> Option<Arc<Member>> {
        let method = self.method();
        let load = |member: &Member| match method {
            Method::Requests => 0,
            Method::Traffic => member.traffic() / member.factor(),
            Method::Busyness => member.busy().saturating_mul(10_000) / member.factor(),
        };
        let mut best: Option<(&Arc<Member>, u64, i64)> = None;
        let mut total = 0;
        for member in candidates {
            let factor = member.factor();
            total += factor;
            let before = member.line().add(Number::Weight, factor);
            let weight = before.wrapping_add(factor).cast_signed();
            let load = load(member);
            let is_better = best
                .is_none_or(|(_, least, most)| load < least || (load == least && weight > most));
            if is_better {
                best = Some((member, load, weight));
            }
        }
        let (member, ..) = best?;
        member.line().add(Number::Weight, total.wrapping_neg());
        Some(Arc::clone(member))
    }

    /// Whether a response with this status is a failure of the member (`failonstatus`).
    #[must_use]
    pub fn fails_on(&self, status: u16) -> bool {
        self.fail_on.contains(&status)
    }

    /// Whether the silence of a member is a failure of it (`failontimeout`).
    #[must_use]
    pub fn fails_on_timeout(&self) -> bool {
        self.fail_on_timeout
    }
}

impl Configured {
    fn write(&self, line: &Line) {
        line.set(Number::Method, self.method as u64);
        let attempts = self.most_attempts.map_or(0, |number| number as u64 + 1);
        line.set(Number::Attempts, attempts);
        line.set(Number::NoFailover, u64::from(self.no_failover));
        line.set(Number::Timeout, self.timeout_s);
        let (cookie, parameter) = self.sticky.clone().unwrap_or_default();
        line.set_text(Text::COOKIE, cookie.as_bytes());
        line.set_text(Text::PARAMETER, parameter.as_bytes());
    }

    /// Copies the settings of a balancer to its line of the next configuration.
    fn copy(from: &Line, to: &Line) {
        use Number::{Attempts, Method, NoFailover, Timeout};
        for number in [Method, Attempts, NoFailover, Timeout] {
            to.set(number, from.number(number));
        }
        for text in [Text::COOKIE, Text::PARAMETER] {
            to.set_text(text, from.text(text).as_bytes());
        }
    }
}

/// The value of a parameter in a URL, up to one of the bytes `ends`.
fn parameter_of(url: &[u8], name: &[u8], ends: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find_iter(url, name).find_map(|at| {
        let value = url.get(at + name.len()..)?.strip_prefix(b"=")?;
        let value = value.split(|byte| ends.contains(byte)).next().unwrap_or_default();
        (!value.is_empty()).then(|| value.to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::super::worker::Worker;
    use super::*;
    use evenkeel_message::Target;
    use std::path::Path;

    fn balancer(settings: &[(&str, &str)], members: &[&[(&str, &str)]]) -> Balancer {
        let mut balancer = Balancer::new("x");
        for (key, value) in settings {
            balancer.set(key, value).unwrap();
        }
        for (number, parameters) in members.iter().enumerate() {
            let target = Target::parse(&format!("http://m{number}"), Path::new("/")).unwrap();
            let mut member = Member::new(Worker::new(target));
            for (key, value) in *parameters {
                member.set(key, value).unwrap();
            }
            balancer.members.push(Arc::new(member));
        }
        balancer
    }

    fn chosen(balancer: &Balancer, route: &str, now_us: u64) -> Option<(String, bool)> {
        let route = Some(route.as_bytes().to_vec()).filter(|route| !route.is_empty());
        let session = Session { sticky: None, route };
        let choice = balancer.choose_at(&session, now_us)?;
        Some((choice.member.worker.target.host.to_string(), choice.is_changed))
    }

    fn hosts(balancer: &Balancer, count: usize) -> String {
        let host = |_| chosen(balancer, "", 9).map_or("-".to_owned(), |(host, _)| host);
        (0..count).map(host).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn requests_are_divided_by_the_factors() {
        let even = balancer(&[], &[&[], &[]]);
        assert_eq!(hosts(&even, 4), "m0 m1 m0 m1");
        let uneven = balancer(&[], &[&[("loadfactor", "3")], &[("loadfactor", "1")]]);
        assert_eq!(hosts(&uneven, 8), "m0 m0 m1 m0 m0 m0 m1 m0");
        let busy = balancer(&[("lbmethod", "bybusyness")], &[&[], &[]]);
        let held = busy.members[0].line().begin();
        assert_eq!(hosts(&busy, 3), "m1 m1 m1");
        drop(held);
        assert_eq!(hosts(&busy, 1), "m0");
        let traffic = balancer(&[("lbmethod", "bytraffic")], &[&[], &[]]);
        traffic.members[0].line().add(Number::Sent, 100_000);
        assert_eq!(hosts(&traffic, 2), "m1 m1");
    }

    #[test]
    fn members_that_fail_are_left_out_for_their_time() {
        let three = balancer(
            &[],
            &[&[("retry", "10")], &[("status", "+H")], &[("status", "D")], &[("lbset", "1")]],
        );
        assert_eq!(hosts(&three, 2), "m0 m0");
        assert!(three.members[0].fail_at(9));
        assert_eq!(hosts(&three, 2), "m1 m1", "the standby");
        assert!(three.members[1].fail_at(9));
        assert_eq!(hosts(&three, 1), "m3", "the next set");
        let after = 9 + 10_000_000;
        assert_eq!(chosen(&three, "", after).unwrap().0, "m0");
        assert!(three.members[0].fail_at(after) && three.members[3].fail_at(after));
        assert_eq!(chosen(&three, "", after + 1).unwrap().0, "m0", "all have failed");
        let spare = balancer(&[], &[&[], &[("status", "R")]]);
        assert_eq!(hosts(&spare, 2), "m0 m0");
        spare.members[0].fail_at(9);
        assert_eq!(hosts(&spare, 2), "m1 m1");
        let deaf = balancer(&[("forcerecovery", "off")], &[&[("status", "I")], &[]]);
        assert!(!deaf.members[0].fail_at(9));
        deaf.members[1].fail_at(9);
        assert_eq!(hosts(&deaf, 2), "m0 m0");
        let none = balancer(&[("forcerecovery", "off")], &[&[]]);
        none.members[0].fail_at(9);
        assert_eq!(hosts(&none, 1), "-");
    }

    #[test]
    fn what_has_changed_outlives_a_reload_where_the_configuration_stays_the_same() {
        let site = |factor: &str, sticky: &str| {
            let settings: &[(&str, &str)] = &[("stickysession", sticky)];
            let balancer = balancer(settings, &[&[("loadfactor", factor)], &[("route", "b")], &[]]);
            let members = Members::new(4).unwrap();
            assert_eq!(balancer.share(&members, 0, "home.test"), 4);
            Arc::new(balancer)
        };
        let before = site("1", "S");
        let [first, second, third] = &before.members[..] else { panic!() };
        first.line().set(Number::Factor, 500);
        second.mark(Letter::Disabled, true);
        second.line().set_text(Text::Route, b"other");
        assert!(third.fail_at(7));
        before.line().set(Number::Method, Method::Busyness as u64);
        before.line().set_text(Text::COOKIE, b"T");

        let after = site("1", "S");
        after.take_over(&[Arc::clone(&before)]);
        let [first, second, third] = &after.members[..] else { panic!() };
        assert_eq!((first.factor(), first.status().as_str()), (500, "Init Ok "));
        assert_eq!((second.route().as_bytes(), &*second.status()), (&b"other"[..], "Init Dis "));
        assert!(third.has_failed() && after.method() == Method::Busyness);
        assert_eq!(after.sticky().unwrap().0.as_bytes(), b"T");

        let edited = site("2", "U");
        edited.take_over(&[before]);
        assert_eq!(edited.members[0].factor(), 200, "as the configuration now says");
        assert_eq!(edited.sticky().unwrap().0.as_bytes(), b"U");
        assert!(edited.members[1].has(Letter::Disabled) && edited.members[2].has_failed());

        let elsewhere = balancer(&[], &[&[], &[], &[]]);
        elsewhere.share(&Members::new(4).unwrap(), 0, "another.test");
        elsewhere.take_over(&[edited]);
        assert!(!elsewhere.members[2].has_failed());
    }

    #[test]
    fn letters_are_added_and_removed() {
        let one = balancer(&[], &[&[("status", "+H-I+DC"), ("status", "-D+E")]]);
        assert_eq!(one.members[0].status(), "Init Err Stby HcFl ");
        assert_eq!(hosts(&one, 1), "-", "its checks have failed");
        one.members[0].mark(Letter::Unhealthy, false);
        assert_eq!(hosts(&one, 1), "m0", "a failure of the configuration is tried at once");
        assert!(Member::new(Worker::clone(&one.members[0].worker)).set("status", "x").is_err());
        let long = "x".repeat(64);
        for (key, text) in [("route", "Route"), ("redirect", "Redirect")] {
            let mut member = Member::new(Worker::clone(&one.members[0].worker));
            let error = member.set(key, &long).unwrap_err();
            assert_eq!(error, format!("{text} length must be < 64 characters"));
        }
    }

    #[test]
    fn sessions_stay_where_their_route_is() {
        let members: [&[_]; 3] = [
            &[("route", "a"), ("redirect", "c")],
            &[("route", "b")],
            &[("route", "c"), ("status", "+H")],
        ];
        let sticky = balancer(&[("stickysession", "S|s")], &members);
        for _ in 0..3 {
            assert_eq!(chosen(&sticky, "b", 9), Some(("m1".into(), false)));
        }
        assert!(chosen(&sticky, "unknown", 9).unwrap().1);
        sticky.members[0].fail_at(9);
        assert_eq!(chosen(&sticky, "a", 9), Some(("m2".into(), true)));
        sticky.members[1].fail_at(9);
        assert_eq!(chosen(&sticky, "b", 9), Some(("m2".into(), true)));
        let strict = [("stickysession", "S"), ("nofailover", "On")];
        let strict = balancer(&strict, &members);
        strict.members[1].fail_at(9);
        assert_eq!(chosen(&strict, "b", 9), None);
        assert_eq!(chosen(&strict, "", 9), Some(("m0".into(), true)));
    }

    #[test]
    fn a_parameter_ends_where_the_url_says() {
        let find = |url: &str, ends: &[u8]| {
            let value = parameter_of(url.as_bytes(), b"sid", ends)?;
            String::from_utf8(value).ok()
        };
        assert_eq!(find("/a;sid=1.b;x?y", b"?&"), Some("1.b;x".into()));
        assert_eq!(find("/a;sid=1.b;x?y", b"?&;"), Some("1.b".into()));
        assert_eq!(find("/sid/a?sid=2&c", b"?&"), Some("2".into()));
        assert_eq!(find("/a?sid=", b"?&"), None);
    }
}
