//! mod_proxy_hcheck: which members of balancers are checked, how, and what follows from a check.
//! The parameters of a member and ProxyHCTemplate fill a [`Check`]; the state that the checks
//! change is in memory that all children share. The process that checks asks [`Member`]
//! (`pipeline/src/checking.rs`).

use super::member::{Letter, Member};
use super::worker::leading_number;
use crate::core::parse_interval;
use crate::{
    Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive, global_directive,
};
use evenkeel_config::{Call, Contexts, GlobalCall, Shape, next_word, words};
use evenkeel_expr::Condition;
use evenkeel_message::{Level, Notice};
use evenkeel_sys::clock;
use evenkeel_upstream::{Line, MOST_TEXT, Number, ShortText, Text};
use std::sync::Arc;
use std::time::Duration;

const FILE: &str = "mod_proxy_hcheck.c";

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("ProxyHCTemplate", CHECK, Shape::Raw, "", "Health check template", template),
    directive("ProxyHCExpr", CHECK, Shape::Raw, "", "Define a health check condition ruleset expression", expression),
    global_directive("ProxyHCTPsize", Shape::One, "16", "Set size of health check thread pool", pool_size),
];

const CHECK: Where = Where::FILE_INFO.with(Contexts::NOT_IN_HTACCESS);

/// mod_proxy_hcheck.
pub const HCHECK: Module = Module {
    file: FILE,
    identifier: "proxy_hcheck_module",
    active: Active::WhenNamed,
    page: "mod_proxy_hcheck",
    subject: "Health checks of the members of balancers.",
    remarks: &[
        "One process of its own checks the members of all balancers. The parent starts it, and \
         starts it again if it dies. It belongs to no serving child, so that checks go on while \
         children are busy, end or are replaced.",
        "A check ends after `connectiontimeout` and `timeout` of its member together. A body in \
         small pieces does not prolong it. `hc('body')` is the first 64 KiB of the body.",
        "ProxyHCTPsize is how many checks are in progress at a time. There are no threads for them; \
         with 0 there is one check at a time.",
        "After a graceful restart, the states of checks and the time of the last one stay as they \
         are for members about which the configuration says the same as before.",
        "`hcmethod=CPING` is refused, because members with `ajp:` are.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The shortest interval between two checks (mod_watchdog.h: AP_WD_TM_SLICE).
const SHORTEST_US: u64 = 100_000;

/// The interval where none is said (mod_proxy.h: HCHECK_WATHCHDOG_DEFAULT_INTERVAL).
const INTERVAL_US: u64 = 30_000_000;

/// The most bytes of the name of an expression (mod_proxy.h: PROXY_WORKER_MAX_SCHEME_SIZE).
const MOST_NAME: usize = 15;

/// The checks at a time if ProxyHCTPsize does not say (mod_proxy_hcheck.c: HC_THREADPOOL_SIZE).
const AT_A_TIME: usize = 16;

/// `hcmethod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum CheckMethod {
    /// There are no checks.
    #[default]
    None,
    /// A connection is made.
    Tcp,
    /// OPTIONS in HTTP/1.0.
    Options,
    /// HEAD in HTTP/1.0.
    Head,
    /// GET in HTTP/1.0.
    Get,
    /// OPTIONS in HTTP/1.1.
    Options11,
    /// HEAD in HTTP/1.1.
    Head11,
    /// GET in HTTP/1.1.
    Get11,
}

impl CheckMethod {
    /// All of them.
    pub const ALL: [CheckMethod; 8] = [
        CheckMethod::None,
        CheckMethod::Tcp,
        CheckMethod::Options,
        CheckMethod::Head,
        CheckMethod::Get,
        CheckMethod::Options11,
        CheckMethod::Head11,
        CheckMethod::Get11,
    ];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CheckMethod::None => "NONE",
            CheckMethod::Tcp => "TCP",
            CheckMethod::Options => "OPTIONS",
            CheckMethod::Head => "HEAD",
            CheckMethod::Get => "GET",
            CheckMethod::Options11 => "OPTIONS11",
            CheckMethod::Head11 => "HEAD11",
            CheckMethod::Get11 => "GET11",
        }
    }

    /// The method with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name().eq_ignore_ascii_case(name))
    }

    fn of_number(number: u64) -> Self {
        Self::ALL.into_iter().find(|method| *method as u64 == number).unwrap_or_default()
    }

    /// The method and the version of the request; none if there is no request.
    fn request(self) -> Option<(&'static str, &'static str)> {
        const OLD: &str = "HTTP/1.0";
        const NEW: &str = "HTTP/1.1";
        match self {
            CheckMethod::None | CheckMethod::Tcp => None,
            CheckMethod::Options => Some(("OPTIONS", OLD)),
            CheckMethod::Head => Some(("HEAD", OLD)),
            CheckMethod::Get => Some(("GET", OLD)),
            CheckMethod::Options11 => Some(("OPTIONS", NEW)),
            CheckMethod::Head11 => Some(("HEAD", NEW)),
            CheckMethod::Get11 => Some(("GET", NEW)),
        }
    }
}

/// How a member is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    method: CheckMethod,
    interval_us: u64,
    passes: u64,
    fails: u64,
    path: Box<str>,
    condition: Box<str>,
}

impl Default for Check {
    fn default() -> Self {
        Self {
            method: CheckMethod::None,
            interval_us: INTERVAL_US,
            passes: 1,
            fails: 1,
            path: Box::default(),
            condition: Box::default(),
        }
    }
}

/// What ProxyHCTemplate and ProxyHCExpr have named in one server.
#[derive(Clone, Debug, Default)]
pub struct Named {
    templates: Vec<(Box<str>, Check)>,
    /// The conditions, with their text.
    pub conditions: Vec<Arc<NamedCondition>>,
}

/// A condition of ProxyHCExpr.
#[derive(Debug)]
pub struct NamedCondition {
    /// The name.
    pub name: Box<str>,
    /// The text.
    pub text: Box<str>,
    /// The condition.
    pub condition: Condition,
}

impl Named {
    /// The names of a virtual host are its own. One that has none has those of the main server
    /// (mod_proxy_hcheck.c: the configuration of the module is not merged).
    pub(super) fn merge(base: &Self, over: &Self) -> Self {
        match over.templates.is_empty() && over.conditions.is_empty() {
            true => base.clone(),
            false => over.clone(),
        }
    }

    /// The condition with this name.
    #[must_use]
    pub fn condition(&self, name: &[u8]) -> Option<&Arc<NamedCondition>> {
        // As in a table of APR, the last one of this name, in any case.
        let mut conditions = self.conditions.iter().rev();
        conditions.find(|it| it.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Whether parameters of health checks are known in this configuration.
pub(super) fn is_active(scope: &Scope) -> bool {
    scope.global().active.has(FILE)
}

impl Check {
    /// Sets a parameter. `None` if it is none of a health check.
    pub(super) fn set(
        &mut self,
        key: &str,
        value: &str,
        named: &Named,
    ) -> Option<Result<(), String>> {
        self.try_to_set(&key.to_ascii_lowercase(), value, named).transpose()
    }

    fn try_to_set(&mut self, key: &str, value: &str, named: &Named) -> Result<Option<()>, String> {
        let count = |what: &str| {
            u64::try_from(leading_number(value))
                .map_err(|_| format!("{what} must be a positive value"))
        };
        match key {
            "hctemplate" => {
                let mut templates = named.templates.iter();
                let found = templates.find(|(name, _)| name.eq_ignore_ascii_case(value));
                let unknown = || format!("Unknown ProxyHCTemplate name: {value}");
                *self = found.ok_or_else(unknown)?.1.clone();
            }
            "hcmethod" => {
                let missing = ["CPING", "PROVIDER"];
                if missing.iter().any(|name| name.eq_ignore_ascii_case(value)) {
                    return Err(format!("Health check method {value} not (yet) implemented"));
                }
                self.method = CheckMethod::of_name(value).ok_or("Unknown method")?;
            }
            "hcinterval" => {
                let interval_us =
                    parse_interval(value, 1_000_000).ok_or("Unparse-able hcinterval setting")?;
                if interval_us < SHORTEST_US {
                    let least = SHORTEST_US / 1000;
                    return Err(format!(
                        "Interval must be a positive value greater than {least}ms"
                    ));
                }
                self.interval_us = interval_us;
            }
            "hcpasses" => self.passes = count("Passes")?,
            "hcfails" => self.fails = count("Fails")?,
            "hcuri" if value.len() > MOST_TEXT => {
                let most = MOST_TEXT + 1;
                return Err(format!("Health check uri length must be < {most} characters"));
            }
            "hcuri" => self.path = value.into(),
            "hcexpr" => {
                if named.condition(value.as_bytes()).is_none() {
                    return Err(format!("Unknown health check condition expr: {value}"));
                }
                self.condition = value.into();
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Writes it into the state of a member.
    pub(super) fn write(&self, line: &Line) {
        line.set(Number::CheckMethod, self.method as u64);
        line.set(Number::CheckInterval, self.interval_us);
        line.set(Number::Passes, self.passes);
        line.set(Number::Fails, self.fails);
        line.set_text(Text::CheckPath, self.path.as_bytes());
        line.set_text(Text::CheckCondition, self.condition.as_bytes());
    }

    /// Copies what the balancer-manager may have changed to the state of the next configuration.
    pub(super) fn copy(from: &Line, to: &Line) {
        use Number::{CheckInterval, CheckMethod, CheckedUs, Failed, Fails, Passed, Passes};
        for number in [CheckMethod, CheckInterval, Passes, Fails, Passed, Failed, CheckedUs] {
            to.set(number, from.number(number));
        }
        for text in [Text::CheckPath, Text::CheckCondition] {
            to.set_text(text, from.text(text).as_bytes());
        }
    }
}

/// The request of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The method.
    pub method: &'static str,
    /// Its line.
    pub line: Vec<u8>,
    /// Its whole head.
    pub head: Vec<u8>,
}

impl Member {
    /// How the member is checked.
    #[must_use]
    pub fn check_method(&self) -> CheckMethod {
        CheckMethod::of_number(self.line().number(Number::CheckMethod))
    }

    /// The time between two checks.
    #[must_use]
    pub fn check_interval(&self) -> Duration {
        Duration::from_micros(self.line().number(Number::CheckInterval).max(SHORTEST_US))
    }

    /// The name of the condition that the response to a check must meet; empty if there is none.
    #[must_use]
    pub fn check_condition(&self) -> ShortText {
        self.line().text(Text::CheckCondition)
    }

    /// When the next check of the member is due, in microseconds of the monotonic clock; none if it
    /// is not checked. The first one is due an interval after the start.
    #[must_use]
    pub fn check_due_us(&self, now_us: u64) -> Option<u64> {
        if self.check_method() == CheckMethod::None || self.has(Letter::Stopped) {
            return None;
        }
        let mut last_us = self.line().number(Number::CheckedUs);
        // Another process may have written any number.
        if last_us == 0 || last_us > now_us {
            self.line().set(Number::CheckedUs, now_us);
            last_us = now_us;
        }
        let interval_us = u64::try_from(self.check_interval().as_micros()).unwrap_or(u64::MAX);
        Some(last_us.saturating_add(interval_us))
    }

    /// The request of a check (mod_proxy_hcheck.c: create_hcheck_req); none if a connection is
    /// enough.
    #[must_use]
    pub fn check_request(&self) -> Option<Asked> {
        let (method, version) = self.check_method().request()?;
        let target = &self.worker.target;
        let own = self.line().text(Text::CheckPath);
        let path = match (method, &*target.path, own.as_bytes()) {
            ("OPTIONS", ..) => b"*".to_vec(),
            (_, "", b"") => b"/".to_vec(),
            (_, path, b"") => path.as_bytes().to_vec(),
            (_, "", own) => own.to_vec(),
            (_, path, own) => [path.as_bytes(), b"/", own].concat(),
        };
        // A change by the balancer-manager could bring in another line.
        let path: Vec<u8> = path.into_iter().filter(|byte| byte.is_ascii_graphic()).collect();
        let line = [method.as_bytes(), b" ", &path, b" ", version.as_bytes()].concat();
        let host = match target.host.contains(':') {
            true => format!("[{}]", target.host),
            false => target.host.to_string(),
        };
        let fields = format!("\r\nHost: {host}:{}\r\n\r\n", target.port);
        let head = [&*line, fields.as_bytes()].concat();
        Some(Asked { method, line, head })
    }

    /// Notes how a check has ended. Returns the notice if that changes whether the member is used
    /// (mod_proxy_hcheck.c: hc_check).
    #[must_use]
    pub fn note_check(&self, is_sound: bool) -> Option<Notice> {
        let line = self.line();
        line.set(Number::CheckedUs, clock::monotonic_us());
        let is_out = self.has(Letter::Unhealthy) || self.has_failed();
        let (count, most) = match (is_out, is_sound) {
            (true, true) => (Number::Passed, Number::Passes),
            (false, false) => {
                line.set(Number::ErrorUs, clock::realtime_us());
                (Number::Failed, Number::Fails)
            }
            _ => return None,
        };
        if line.add(count, 1).saturating_add(1) < line.number(most) {
            return None;
        }
        line.set(count, 0);
        self.mark(Letter::Unhealthy, !is_sound);
        let (number, what) = match is_sound {
            true => {
                line.set(Number::FailedUs, 0);
                (3302, "ENABLING")
            }
            false => (3303, "DISABLING"),
        };
        let text = format!("Health check {what} {}", self.url());
        Some(Notice::new("proxy_hcheck", Level::Info, number, text))
    }
}

/// The checks at a time.
#[must_use]
pub fn checks_at_a_time(global: &super::Global) -> usize {
    global.checks_at_a_time.unwrap_or(AT_A_TIME).max(1)
}

fn template(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let words = words(call.raw);
    let Some((name, parameters)) = words.split_first().filter(|(name, _)| !name.is_empty()) else {
        return Err(format!("Missing template name for {}", call.name));
    };
    // The first method of Apache's list (mod_proxy_hcheck.c: set_hc_template).
    let mut check = Check { method: CheckMethod::Tcp, ..Check::default() };
    for parameter in parameters {
        let (key, value) = parameter.split_once('=').ok_or(
            "Invalid ProxyHCTemplate parameter. Parameter must be in the form 'key=value'",
        )?;
        let set = check.set(key, value, &scope.server.proxy.health);
        set.unwrap_or_else(|| Err(UNKNOWN.into()))
            .map_err(|error| format!("ProxyHCTemplate: {error} {key}={value}; {name}"))?;
    }
    scope.server.proxy.health.templates.push((name.as_str().into(), check));
    Ok(())
}

/// The text about a parameter that is neither one of a worker nor one of a health check.
pub(super) const UNKNOWN: &str = "unknown Worker hcheck parameter";

fn expression(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (name, rest) = next_word(call.raw);
    if name.is_empty() {
        return Err(format!("Missing expression name for {}", call.name));
    }
    if name.len() > MOST_NAME {
        return Err(format!("Expression name limited to {MOST_NAME} characters"));
    }
    let (text, rest) = braced_word(rest);
    if text.is_empty() {
        return Err(format!("Missing expression for {}", call.name));
    }
    let condition = scope
        .compile_condition(&text)
        .map_err(|error| format!("Could not parse expression \"{text}\": {error}"))?;
    if !rest.is_empty() {
        return Err("error: extra parameter(s)".into());
    }
    let named = NamedCondition { name: name.into(), text: text.into(), condition };
    scope.server.proxy.health.conditions.push(Arc::new(named));
    Ok(())
}

/// The next word, which may stand in braces that hold pairs of them, and what follows it (util.c:
/// ap_getword_conf2).
fn braced_word(text: &str) -> (String, &str) {
    let text = text.trim_ascii_start();
    let Some(inner) = text.strip_prefix('{') else { return next_word(text) };
    let mut depth = 1;
    for (at, character) in inner.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let (word, rest) = inner.split_at_checked(at).unwrap_or_default();
            let rest = rest.get(1..).unwrap_or_default().trim_ascii_start();
            return (word.to_owned(), rest);
        }
    }
    (String::new(), "")
}

fn pool_size(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let size = usize::try_from(leading_number(argument(call, 0)))
        .map_err(|_| "Invalid ProxyHCTPsize parameter. Parameter must be >= 0")?;
    scope.global_mut(call).proxy.checks_at_a_time = Some(size);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::worker::Worker;
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::Target;
    use std::path::Path;

    fn named(text: &str) -> Result<Named, String> {
        Ok(apply(HCHECK, text)?.server.proxy.health.clone())
    }

    fn member(url: &str, parameters: &[(&str, &str)], named: &Named) -> Result<Member, String> {
        let target = Target::parse(url, Path::new("/")).unwrap();
        let mut member = Member::new(Worker::new(target));
        for (key, value) in parameters {
            member.set_check(key, value, named).unwrap_or_else(|| Err(UNKNOWN.into()))?;
        }
        Ok(member)
    }

    #[test]
    fn parameters_are_those_of_the_member_after_those_of_its_template() {
        let text = "ProxyHCExpr ok {%{REQUEST_STATUS} =~ /^2{1}/}\n\
                    ProxyHCTemplate t hcmethod=HEAD11 hcinterval=250ms hcuri=/up hcexpr=ok\n\
                    ProxyHCTemplate plain hcpasses=2";
        let named = named(text).unwrap();
        let it = member("http://a", &[("hctemplate", "T"), ("hcfails", "4")], &named).unwrap();
        assert_eq!(it.check_method(), CheckMethod::Head11);
        assert_eq!(it.check_interval(), Duration::from_millis(250));
        assert_eq!(it.check_condition().as_bytes(), b"ok");
        assert_eq!(it.line().number(Number::Fails), 4);
        assert_eq!(&*named.condition(b"OK").unwrap().text, "%{REQUEST_STATUS} =~ /^2{1}/");
        let plain = member("http://a", &[("hctemplate", "plain")], &named).unwrap();
        assert_eq!(
            (plain.check_method(), plain.line().number(Number::Passes)),
            (CheckMethod::Tcp, 2)
        );
        for (key, value, error) in [
            ("hcmethod", "CPING", "Health check method CPING not (yet) implemented"),
            ("hcmethod", "provider", "Health check method provider not (yet) implemented"),
            ("hcmethod", "PUT", "Unknown method"),
            ("hcinterval", "99ms", "Interval must be a positive value greater than 100ms"),
            ("hcinterval", "x", "Unparse-able hcinterval setting"),
            ("hcpasses", "-1", "Passes must be a positive value"),
            ("hcfails", "-1", "Fails must be a positive value"),
            ("hctemplate", "x", "Unknown ProxyHCTemplate name: x"),
            ("hcexpr", "x", "Unknown health check condition expr: x"),
            ("hcx", "x", "unknown Worker hcheck parameter"),
        ] {
            assert_eq!(member("http://a", &[(key, value)], &named).unwrap_err(), error);
        }
        let long = "/".repeat(64);
        let error = member("http://a", &[("hcuri", &long)], &named).unwrap_err();
        assert_eq!(error, "Health check uri length must be < 64 characters");
    }

    #[test]
    fn names_are_refused_as_apache_refuses_them() {
        for (text, error) in [
            ("ProxyHCExpr abcdefghijklmnop true", "Expression name limited to 15 characters"),
            ("ProxyHCExpr x", "Missing expression for ProxyHCExpr"),
            ("ProxyHCExpr x {true", "Missing expression for ProxyHCExpr"),
            ("ProxyHCExpr x {true} y", "error: extra parameter(s)"),
            (
                "ProxyHCTemplate x hcmethod",
                "Invalid ProxyHCTemplate parameter. Parameter must be in the form 'key=value'",
            ),
            ("ProxyHCTemplate x hcmethod=A", "ProxyHCTemplate: Unknown method hcmethod=A; x"),
            ("ProxyHCTPsize -1", "Invalid ProxyHCTPsize parameter. Parameter must be >= 0"),
        ] {
            assert_eq!(named(text).unwrap_err(), error, "{text}");
        }
        assert_eq!(braced_word(" {a {b} c} d"), ("a {b} c".to_owned(), "d"));
        assert_eq!(braced_word("\"a b\" c"), ("a b".to_owned(), "c"));
    }

    #[test]
    fn the_request_of_a_check_is_apaches() {
        let request = |url, parameters: &[(&str, &str)]| {
            let asked = member(url, parameters, &Named::default()).unwrap().check_request()?;
            Some(String::from_utf8(asked.head).unwrap())
        };
        assert_eq!(request("http://a", &[("hcmethod", "TCP")]), None);
        let options = "OPTIONS * HTTP/1.1\r\nHost: a:80\r\n\r\n";
        assert_eq!(request("http://a/x", &[("hcmethod", "OPTIONS11")]).as_deref(), Some(options));
        let get = "GET /x/y HTTP/1.0\r\nHost: [::1]:8080\r\n\r\n";
        let parameters = [("hcmethod", "get"), ("hcuri", "y")];
        assert_eq!(request("http://[::1]:8080/x", &parameters).as_deref(), Some(get));
        let head = "HEAD /y HTTP/1.0\r\nHost: a:443\r\n\r\n";
        let parameters = [("hcmethod", "HEAD"), ("hcuri", "/y\r\nX: z")];
        let cleaned = request("https://a", &parameters).unwrap();
        assert_eq!(cleaned, head.replace("/y ", "/yX:z "), "no other line");
    }

    #[test]
    fn a_member_is_left_out_after_so_many_failed_checks_and_used_again_after_so_many_good_ones() {
        let parameters = [("hcmethod", "TCP"), ("hcfails", "2"), ("hcpasses", "3")];
        let it = member("http://a:1", &parameters, &Named::default()).unwrap();
        let told = |is_sound| it.note_check(is_sound).map(|notice| notice.text);
        assert_eq!(told(true), None);
        assert_eq!(told(false), None);
        assert!(!it.has(Letter::Unhealthy));
        assert_eq!(told(false).unwrap(), "Health check DISABLING http://a:1");
        assert_eq!(it.status(), "Init HcFl ");
        assert_eq!((told(true), told(false), told(true)), (None, None, None));
        assert_eq!(told(true).unwrap(), "Health check ENABLING http://a:1");
        assert_eq!(it.status(), "Init Ok ");
        // A failure of a request ends with good checks too.
        it.line().set(Number::FailedUs, 5);
        assert_eq!((told(true), told(true)), (None, None));
        assert!(told(true).is_some() && !it.has_failed());
    }

    #[test]
    fn checks_are_due_an_interval_after_the_last_one() {
        let it = member("http://a", &[("hcinterval", "1")], &Named::default()).unwrap();
        assert_eq!(it.check_due_us(5), None);
        let parameters = [("hcmethod", "TCP"), ("hcinterval", "1")];
        let it = member("http://a", &parameters, &Named::default()).unwrap();
        assert_eq!(it.check_due_us(5), Some(1_000_005));
        assert_eq!(it.check_due_us(9), Some(1_000_005));
        it.line().set(Number::CheckedUs, u64::MAX);
        assert_eq!(it.check_due_us(9), Some(1_000_009), "a claim is not believed");
        it.mark(Letter::Stopped, true);
        assert_eq!(it.check_due_us(9), None);
    }
}
