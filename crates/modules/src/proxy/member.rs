//! A member of a balancer: its target with its parameters, and its state, which all children share
//! and which the balancer-manager can change.

use super::health::{Check, Named};
use super::worker::Worker;
use evenkeel_sys::clock;
use evenkeel_upstream::{Line, MOST_TEXT, Number, ShortText, Text};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time after which a member that has failed is tried again, if `retry` does not say
/// (mod_proxy.h: PROXY_WORKER_DEFAULT_RETRY).
const RETRY: Duration = Duration::from_secs(60);

/// The time of the failure of a member that the configuration calls failed: so long ago that the
/// next request tries it (proxy_util.c: `ap_proxy_retry_worker`).
const LONG_AGO_US: u64 = 1;

/// A member of a balancer.
#[derive(Clone, Debug)]
pub struct Member {
    /// The target and its parameters.
    pub worker: Arc<Worker>,
    configured: Configured,
    retry: Duration,
    line: OnceLock<Line>,
}

/// What the configuration says and the balancer-manager can change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Configured {
    factor: u64,
    set: u8,
    route: Box<str>,
    redirect: Box<str>,
    letters: u64,
    is_failed: bool,
    check: Check,
}

/// A letter of `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Letter {
    /// A failure of the member is not remembered.
    IgnoresErrors,
    /// The member serves its sessions alone.
    Draining,
    /// The administrator has switched the member off.
    Disabled,
    /// The same, and its health is not checked.
    Stopped,
    /// The member serves while its set has no other usable one.
    Standby,
    /// The member stands in for one that is not usable.
    Spare,
    /// Its health checks have failed.
    Unhealthy,
}

impl Letter {
    /// All of them, in the order of the page (mod_proxy.c: `proxy_wstat_tbl`).
    pub const ALL: [Letter; 7] = [
        Letter::IgnoresErrors,
        Letter::Draining,
        Letter::Disabled,
        Letter::Stopped,
        Letter::Standby,
        Letter::Spare,
        Letter::Unhealthy,
    ];

    /// The letter in the configuration, and its word on the page.
    #[must_use]
    pub fn names(self) -> (char, &'static str) {
        match self {
            Letter::IgnoresErrors => ('I', "Ign "),
            Letter::Draining => ('N', "Drn "),
            Letter::Disabled => ('D', "Dis "),
            Letter::Stopped => ('S', "Stop "),
            Letter::Standby => ('H', "Stby "),
            Letter::Spare => ('R', "Spar "),
            Letter::Unhealthy => ('C', "HcFl "),
        }
    }

    /// The letter of a character.
    #[must_use]
    pub fn of(character: char) -> Option<Self> {
        let character = character.to_ascii_uppercase();
        Self::ALL.into_iter().find(|letter| letter.names().0 == character)
    }

    fn bit(self) -> u64 {
        1 << self as u8
    }
}

impl Member {
    pub(super) fn new(worker: Worker) -> Self {
        let configured = Configured {
            factor: 100,
            set: 0,
            route: Box::default(),
            redirect: Box::default(),
            letters: 0,
            is_failed: false,
            check: Check::default(),
        };
        Self { worker: Arc::new(worker), configured, retry: RETRY, line: OnceLock::new() }
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The name is unknown, the value is invalid, or the parameter is not supported.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let short = |name: &str| match value.len() {
            0..=MOST_TEXT => Ok(value.into()),
            _ => Err(format!("{name} length must be < {} characters", MOST_TEXT + 1)),
        };
        let configured = &mut self.configured;
        match &*key.to_ascii_lowercase() {
            "loadfactor" => {
                let factor = value.parse().ok().filter(|factor| (1.0..=100.0).contains(factor));
                let factor: f64 = factor.ok_or("LoadFactor must be a number between 1..100")?;
                // At most 10,000.
                configured.factor = (factor * 100.0) as u64;
            }
            "route" => configured.route = short("Route")?,
            "redirect" => configured.redirect = short("Redirect")?,
            "lbset" => {
                let set = value.parse().ok().filter(|set| *set <= 99);
                configured.set = set.ok_or("lbset must be between 0 and 99")?;
            }
            "status" => configured.set_letters(value)?,
            key => {
                Arc::make_mut(&mut self.worker).set(key, value)?;
                if key == "retry" {
                    self.retry = Duration::from_secs(value.parse().unwrap_or(0));
                }
            }
        }
        Ok(())
    }

    /// Sets a parameter of its health check. `None` if it is no such parameter.
    pub(super) fn set_check(
        &mut self,
        key: &str,
        value: &str,
        named: &Named,
    ) -> Option<Result<(), String>> {
        self.configured.check.set(key, value, named)
    }

    /// Puts the state into shared memory.
    pub(super) fn share(&self, line: Line) {
        self.configured.write(&line);
        let _shared_before = self.line.set(line);
    }

    /// Takes over the state of the member in the configuration before this one.
    pub(super) fn take_over(&self, before: &Member) {
        let (from, to) = (before.line(), self.line());
        if before.configured == self.configured {
            for number in [Number::Factor, Number::Set, Number::Letters] {
                to.set(number, from.number(number));
            }
            for text in [Text::Route, Text::Redirect] {
                to.set_text(text, from.text(text).as_bytes());
            }
            Check::copy(from, to);
        }
        to.set(Number::FailedUs, from.number(Number::FailedUs));
    }

    /// The state.
    #[must_use]
    pub fn line(&self) -> &Line {
        self.line.get_or_init(|| {
            let line = Line::alone();
            self.configured.write(&line);
            line
        })
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> String {
        let target = &self.worker.target;
        String::from_utf8_lossy(&target.url(target.path.as_bytes())).into_owned()
    }

    /// Its share, in hundredths.
    #[must_use]
    pub fn factor(&self) -> u64 {
        self.line().number(Number::Factor).clamp(1, 10_000)
    }

    /// The number of its set (`lbset`).
    #[must_use]
    pub fn set_number(&self) -> u8 {
        u8::try_from(self.line().number(Number::Set)).unwrap_or(u8::MAX)
    }

    /// The route of the sessions that it serves.
    #[must_use]
    pub fn route(&self) -> ShortText {
        self.line().text(Text::Route)
    }

    /// The route of the member that serves its sessions while it cannot.
    #[must_use]
    pub fn redirect(&self) -> ShortText {
        self.line().text(Text::Redirect)
    }

    /// Requests in progress.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.line().number(Number::Busy)
    }

    /// Bytes that were sent to it or received from it.
    #[must_use]
    pub fn traffic(&self) -> u64 {
        let line = self.line();
        line.number(Number::Sent).saturating_add(line.number(Number::Received))
    }

    /// Whether its status has a letter.
    #[must_use]
    pub fn has(&self, letter: Letter) -> bool {
        self.line().number(Number::Letters) & letter.bit() != 0
    }

    /// Adds a letter to its status, or removes it.
    pub fn mark(&self, letter: Letter, is_on: bool) {
        let (set, clear) = if is_on { (letter.bit(), 0) } else { (0, letter.bit()) };
        self.line().set_bits(Number::Letters, set, clear);
    }

    /// The words of its status (proxy_util.c: `ap_proxy_parse_wstatus`).
    #[must_use]
    pub fn status(&self) -> String {
        let mut text = "Init ".to_owned();
        for letter in Letter::ALL {
            // The failure stands before the letters that Apache added later.
            if letter == Letter::Standby && self.has_failed() {
                text.push_str("Err ");
            }
            if self.has(letter) {
                text.push_str(letter.names().1);
            }
        }
        if self.is_enabled() && !self.has_failed() {
            text.push_str("Ok ");
        }
        text
    }

    pub(super) fn is_enabled(&self) -> bool {
        let off = [Letter::Disabled, Letter::Stopped, Letter::Unhealthy];
        !off.into_iter().any(|letter| self.has(letter))
    }

    /// Whether the member has failed, and is not tried again yet.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.line().number(Number::FailedUs) > 0
    }

    /// Forgets that the member has failed.
    pub(super) fn recover(&self) {
        self.line().set(Number::FailedUs, 0);
        self.line().add(Number::Retries, 1);
    }

    /// Whether requests may be sent to the member. One that has failed may be tried again after
    /// `retry`.
    pub(super) fn is_usable(&self, now_us: u64) -> bool {
        if !self.is_enabled() {
            return false;
        }
        let failed_us = self.line().number(Number::FailedUs);
        if failed_us == 0 {
            return true;
        }
        let retry_us = u64::try_from(self.retry.as_micros()).unwrap_or(u64::MAX);
        // A time in the future is no claim that is kept for ever.
        let is_over = failed_us == LONG_AGO_US
            || failed_us > now_us
            || now_us >= failed_us.saturating_add(retry_us);
        if is_over && self.line().replace(Number::FailedUs, failed_us, 0) {
            self.line().add(Number::Retries, 1);
        }
        is_over
    }

    /// Notes that the member has failed, for all children. Returns whether another one is to be
    /// tried.
    #[must_use]
    pub fn note_failure(&self) -> bool {
        self.fail_at(clock::monotonic_us())
    }

    pub(super) fn fail_at(&self, now_us: u64) -> bool {
        if self.has(Letter::IgnoresErrors) {
            return false;
        }
        self.line().set(Number::FailedUs, now_us.max(LONG_AGO_US + 1));
        true
    }

    /// Counts that the member was chosen for a request, and bytes that it is sent.
    pub fn count(&self, bytes: u64) {
        self.line().add(Number::Elected, 1);
        self.line().add(Number::Sent, bytes);
    }
}

impl Configured {
    fn set_letters(&mut self, value: &str) -> Result<(), String> {
        let mut on = true;
        for character in value.chars() {
            match character {
                '+' | '-' => on = character == '+',
                'E' | 'e' => self.is_failed = on,
                _ => {
                    let letter = Letter::of(character).ok_or("Unknown status parameter option")?;
                    match on {
                        true => self.letters |= letter.bit(),
                        false => self.letters &= !letter.bit(),
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&self, line: &Line) {
        line.set(Number::Factor, self.factor);
        line.set(Number::Set, self.set.into());
        line.set(Number::Letters, self.letters);
        line.set(Number::FailedUs, if self.is_failed { LONG_AGO_US } else { 0 });
        line.set_text(Text::Route, self.route.as_bytes());
        line.set_text(Text::Redirect, self.redirect.as_bytes());
        self.check.write(line);
    }
}
