//! Balancers: members among which the requests to a `balancer:` target are divided
//! (mod_proxy_balancer and its lbmethods). Each child process has its own counts and states of the
//! members, which its threads share.

use super::worker::{Worker, leading_number};
use evenkeel_message::{Name, Proxied, Request, trim};
use evenkeel_sys::clock;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The time after which a member that has failed is tried again, if `retry` does not say
/// (mod_proxy.h: PROXY_WORKER_DEFAULT_RETRY).
const RETRY: Duration = Duration::from_secs(60);

/// A balancer.
#[derive(Clone, Debug)]
pub struct Balancer {
    /// The host of its URL, in lower case.
    pub name: Box<str>,
    /// The members, in order.
    pub members: Vec<Arc<Member>>,
    method: Method,
    /// The names of the cookie and of the parameter that hold the route of a session.
    sticky: Option<(Box<str>, Box<str>)>,
    /// What stands before the route (`stickysessionsep`); none if all of the value is the route.
    separator: Option<u8>,
    /// Whether a semicolon ends the parameter of a path (`scolonpathdelim`).
    ends_at_semicolon: bool,
    no_failover: bool,
    most_attempts: Option<usize>,
    fail_on: Vec<u16>,
    fail_on_timeout: bool,
    recovers: bool,
}

/// `lbmethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Requests,
    Traffic,
    Busyness,
}

/// A member of a balancer.
#[derive(Clone, Debug)]
pub struct Member {
    /// The target and its parameters.
    pub worker: Arc<Worker>,
    /// Its share, in hundredths (`loadfactor`).
    factor: u64,
    /// The route of the sessions that it serves.
    pub route: Box<str>,
    /// The route of the member that serves its sessions while it cannot.
    redirect: Box<str>,
    set: u8,
    retry: Duration,
    /// The letters of `status`.
    letters: Letters,
    state: Arc<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Letters {
    disabled: bool,
    stopped: bool,
    ignores_errors: bool,
    spare: bool,
    standby: bool,
    draining: bool,
}

/// The state of a member in this process.
#[derive(Debug, Default)]
struct State {
    /// When the member failed, in microseconds of the monotonic clock; 0 if it has not.
    failed_us: AtomicU64,
    /// The weight that it has gained and not spent, as an i64.
    weight: AtomicU64,
    busy: AtomicU64,
    /// Bytes that were sent to the member or received from it.
    bytes: Arc<AtomicU64>,
}

/// Counts a request at a member until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<State>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

/// The session of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The name of the cookie or of the parameter.
    pub sticky: Option<Box<str>>,
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
            method: Method::Requests,
            sticky: None,
            separator: Some(b'.'),
            ends_at_semicolon: false,
            no_failover: false,
            most_attempts: None,
            fail_on: Vec::new(),
            fail_on_timeout: false,
            recovers: true,
        }
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
                let (cookie, parameter) = value.split_once('|').unwrap_or((value, value));
                self.sticky = Some((cookie.into(), parameter.into()));
            }
            "stickysessionsep" => {
                self.separator = match value.as_bytes() {
                    [one] => Some(*one),
                    _ if value.eq_ignore_ascii_case("off") => None,
                    _ => return Err("stickysessionsep must be a single character or Off".into()),
                }
            }
            "scolonpathdelim" => self.ends_at_semicolon = switch("scolonpathdelim")?,
            "nofailover" => self.no_failover = switch("failover")?,
            "forcerecovery" => self.recovers = switch("forcerecovery")?,
            "failontimeout" => self.fail_on_timeout = switch("failontimeout")?,
            "maxattempts" => {
                let number = usize::try_from(leading_number(value));
                let number =
                    number.map_err(|_| "maximum number of attempts must be a positive number")?;
                self.most_attempts = Some(number);
            }
            "timeout" => {
                let is_good = value.parse::<u64>().is_ok_and(|seconds| seconds >= 1);
                if !is_good {
                    return Err("timeout must be at least one second".into());
                }
            }
            "failonstatus" => {
                let numbers = value.split(',').map(|text| text.parse().ok());
                let numbers: Option<Vec<u16>> =
                    numbers.map(|it| it.filter(|it| (100..600).contains(it))).collect();
                self.fail_on =
                    numbers.ok_or("failonstatus must be one or more HTTP response codes")?;
            }
            "lbmethod" => {
                self.method = match value.to_ascii_lowercase().as_str() {
                    "byrequests" => Method::Requests,
                    "bytraffic" => Method::Traffic,
                    "bybusyness" => Method::Busyness,
                    "heartbeat" => return Err("lbmethod=heartbeat is not there yet".into()),
                    _ => return Err("unknown lbmethod".into()),
                }
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
        self.most_attempts.unwrap_or_else(|| self.members.len().saturating_sub(1).max(1))
    }

    /// The session that a request says it belongs to (mod_proxy_balancer.c: `find_session_route`).
    #[must_use]
    pub fn session(&self, request: &Request, proxied: &Proxied) -> Session {
        let Some((cookie, parameter)) = &self.sticky else { return Session::default() };
        let ends: &[u8] = if self.ends_at_semicolon { b"?&;" } else { b"?&" };
        let query = request.resource.query.as_deref().unwrap_or_default();
        let url = [&proxied.path, &b"?"[..], query].concat();
        let found = parameter_of(&url, parameter.as_bytes(), ends).map(|value| (parameter, value));
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
        Session { sticky: Some(name.clone()), route }
    }

    /// Chooses the member for a request. `None` if no member may be used (mod_proxy_balancer.c:
    /// `proxy_balancer_pre_request`).
    #[must_use]
    pub fn choose(&self, session: &Session) -> Option<Choice> {
        self.choose_at(session, clock::monotonic_us())
    }

    fn choose_at(&self, session: &Session, now_us: u64) -> Option<Choice> {
        let enabled = || self.members.iter().filter(|member| member.is_enabled());
        let is_failed = |member: &&Arc<Member>| member.state.failed_us.load(Relaxed) > 0;
        if self.recovers && enabled().all(|member| is_failed(&member)) {
            enabled().for_each(|member| member.state.failed_us.store(0, Relaxed));
        }
        if let Some(route) = &session.route {
            if let Some(member) = self.of_route(route, now_us) {
                let is_changed = member.route.as_bytes() != &**route;
                return Some(Choice { member, is_changed });
            }
            let is_known = || self.members.iter().any(|it| it.route.as_bytes() == &**route);
            if self.no_failover && is_known() {
                return None;
            }
        }
        let member = self.best(now_us)?;
        Some(Choice { member, is_changed: self.sticky.is_some() })
    }

    /// The usable member of a route, or the one that stands in for it.
    fn of_route(&self, route: &[u8], now_us: u64) -> Option<Arc<Member>> {
        let of = |route: &[u8]| {
            let mut members = self.members.iter();
            members.find(|member| !route.is_empty() && member.route.as_bytes() == route)
        };
        let member = of(route)?;
        if member.is_usable(now_us) {
            return Some(Arc::clone(member));
        }
        let other = of(member.redirect.as_bytes()).filter(|other| other.is_usable(now_us));
        other.cloned()
    }

    /// The member for the next request. It belongs to the lowest set that has a usable member. A
    /// member in standby (`+H`) is used only if its set has no other usable one.
    fn best(&self, now_us: u64) -> Option<Arc<Member>> {
        let mut sets: Vec<u8> = self.members.iter().map(|member| member.set).collect();
        sets.sort_unstable();
        sets.dedup();
        sets.into_iter().find_map(|set| {
            [false, true].into_iter().find_map(|standby| {
                let of_set = || {
                    self.members.iter().filter(move |member| {
                        let letters = member.letters;
                        member.set == set && letters.standby == standby && !letters.draining
                    })
                };
                let (spares, others): (Vec<_>, Vec<_>) =
                    of_set().partition(|member| member.letters.spare);
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
        let load = |member: &Member| match self.method {
            Method::Requests => 0,
            Method::Traffic => member.state.bytes.load(Relaxed) / member.factor,
            Method::Busyness => member.state.busy.load(Relaxed) * 10_000 / member.factor,
        };
        let mut best: Option<(&Arc<Member>, u64, i64)> = None;
        let mut total = 0;
        for member in candidates {
            total += member.factor;
            let before = member.state.weight.fetch_add(member.factor, Relaxed);
            let weight = before.wrapping_add(member.factor).cast_signed();
            let load = load(member);
            let is_better = best
                .is_none_or(|(_, least, most)| load < least || (load == least && weight > most));
            if is_better {
                best = Some((member, load, weight));
            }
        }
        let (member, ..) = best?;
        member.state.weight.fetch_sub(total, Relaxed);
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

impl Member {
    pub(super) fn new(worker: Worker) -> Self {
        Self {
            worker: Arc::new(worker),
            factor: 100,
            route: Box::default(),
            redirect: Box::default(),
            set: 0,
            retry: RETRY,
            letters: Letters::default(),
            state: Arc::default(),
        }
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The name is unknown, the value is invalid, or the parameter is not supported.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match &*key.to_ascii_lowercase() {
            "loadfactor" => {
                let factor = value.parse().ok().filter(|factor| (1.0..=100.0).contains(factor));
                let factor: f64 = factor.ok_or("LoadFactor must be a number between 1..100")?;
                // At most 10,000.
                self.factor = (factor * 100.0) as u64;
            }
            "route" => self.route = value.into(),
            "redirect" => self.redirect = value.into(),
            "lbset" => {
                let set = value.parse().ok().filter(|set| *set <= 99);
                self.set = set.ok_or("lbset must be between 0 and 99")?;
            }
            "status" => self.set_letters(value)?,
            key => {
                Arc::make_mut(&mut self.worker).set(key, value)?;
                if key == "retry" {
                    self.retry = Duration::from_secs(value.parse().unwrap_or(0));
                }
            }
        }
        Ok(())
    }

    fn set_letters(&mut self, value: &str) -> Result<(), String> {
        let mut on = true;
        for letter in value.chars() {
            let flag = match letter.to_ascii_uppercase() {
                '+' | '-' => {
                    on = letter == '+';
                    continue;
                }
                'D' => &mut self.letters.disabled,
                'S' => &mut self.letters.stopped,
                'I' => &mut self.letters.ignores_errors,
                'R' => &mut self.letters.spare,
                'H' => &mut self.letters.standby,
                'N' => &mut self.letters.draining,
                'E' | 'C' => return Err(format!("status={value} is not there yet")),
                _ => return Err("Unknown status parameter option".into()),
            };
            *flag = on;
        }
        Ok(())
    }

    fn is_enabled(&self) -> bool {
        !self.letters.disabled && !self.letters.stopped
    }

    /// Whether requests may be sent to the member. One that has failed may be tried again after
    /// `retry`.
    fn is_usable(&self, now_us: u64) -> bool {
        let failed_us = self.state.failed_us.load(Relaxed);
        let retry_us = u64::try_from(self.retry.as_micros()).unwrap_or(u64::MAX);
        if failed_us > 0 && now_us >= failed_us.saturating_add(retry_us) {
            self.state.failed_us.store(0, Relaxed);
        }
        self.is_enabled() && self.state.failed_us.load(Relaxed) == 0
    }

    /// Notes that the member has failed. Returns whether another one is to be tried.
    #[must_use]
    pub fn note_failure(&self) -> bool {
        self.fail_at(clock::monotonic_us())
    }

    fn fail_at(&self, now_us: u64) -> bool {
        if self.letters.ignores_errors {
            return false;
        }
        self.state.failed_us.store(now_us.max(1), Relaxed);
        true
    }

    /// Counts a request at the member.
    #[must_use]
    pub fn begin(&self) -> Busy {
        self.state.busy.fetch_add(1, Relaxed);
        Busy(Arc::clone(&self.state))
    }

    /// Counts bytes that were sent to the member, and returns where those are counted that are
    /// received from it.
    #[must_use]
    pub fn count(&self, bytes: u64) -> Arc<AtomicU64> {
        self.state.bytes.fetch_add(bytes, Relaxed);
        Arc::clone(&self.state.bytes)
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
        let host = |_| chosen(balancer, "", 1).map_or("-".to_owned(), |(host, _)| host);
        (0..count).map(host).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn requests_are_divided_by_the_factors() {
        let even = balancer(&[], &[&[], &[]]);
        assert_eq!(hosts(&even, 4), "m0 m1 m0 m1");
        let uneven = balancer(&[], &[&[("loadfactor", "3")], &[("loadfactor", "1")]]);
        assert_eq!(hosts(&uneven, 8), "m0 m0 m1 m0 m0 m0 m1 m0");
        let busy = balancer(&[("lbmethod", "bybusyness")], &[&[], &[]]);
        let held = busy.members[0].begin();
        assert_eq!(hosts(&busy, 3), "m1 m1 m1");
        drop(held);
        assert_eq!(hosts(&busy, 1), "m0");
        let traffic = balancer(&[("lbmethod", "bytraffic")], &[&[], &[]]);
        let _ = traffic.members[0].count(100_000);
        assert_eq!(hosts(&traffic, 2), "m1 m1");
    }

    #[test]
    fn members_that_fail_are_left_out_for_their_time() {
        let three = balancer(
            &[],
            &[&[("retry", "10")], &[("status", "+H")], &[("status", "D")], &[("lbset", "1")]],
        );
        assert_eq!(hosts(&three, 2), "m0 m0");
        assert!(three.members[0].fail_at(1));
        assert_eq!(hosts(&three, 2), "m1 m1", "the standby");
        assert!(three.members[1].fail_at(1));
        assert_eq!(hosts(&three, 1), "m3", "the next set");
        let after = 1 + 10_000_000;
        assert_eq!(chosen(&three, "", after).unwrap().0, "m0");
        assert!(three.members[0].fail_at(after) && three.members[3].fail_at(after));
        assert_eq!(chosen(&three, "", after + 1).unwrap().0, "m0", "all have failed");
        let spare = balancer(&[], &[&[], &[("status", "R")]]);
        assert_eq!(hosts(&spare, 2), "m0 m0");
        spare.members[0].fail_at(1);
        assert_eq!(hosts(&spare, 2), "m1 m1");
        let deaf = balancer(&[("forcerecovery", "off")], &[&[("status", "I")], &[]]);
        assert!(!deaf.members[0].fail_at(1));
        deaf.members[1].fail_at(1);
        assert_eq!(hosts(&deaf, 2), "m0 m0");
        let none = balancer(&[("forcerecovery", "off")], &[&[]]);
        none.members[0].fail_at(1);
        assert_eq!(hosts(&none, 1), "-");
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
            assert_eq!(chosen(&sticky, "b", 1), Some(("m1".into(), false)));
        }
        assert!(chosen(&sticky, "unknown", 1).unwrap().1);
        sticky.members[0].fail_at(1);
        assert_eq!(chosen(&sticky, "a", 1), Some(("m2".into(), true)));
        sticky.members[1].fail_at(1);
        assert_eq!(chosen(&sticky, "b", 1), Some(("m2".into(), true)));
        let strict = [("stickysession", "S"), ("nofailover", "On")];
        let strict = balancer(&strict, &members);
        strict.members[1].fail_at(1);
        assert_eq!(chosen(&strict, "b", 1), None);
        assert_eq!(chosen(&strict, "", 1), Some(("m0".into(), true)));
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
