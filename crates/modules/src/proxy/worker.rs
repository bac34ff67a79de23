//! A worker: a target with the `key=value` parameters of ProxyPass, `<Proxy>` and ProxySet
//! (mod_proxy.c: `set_worker_param`).

use crate::core::parse_interval;
use evenkeel_message::{Name, Proxied, Request, Target, Version, eq_ignore_case};
use std::time::Duration;

/// The bytes of the parameter `upgrade`, with a terminator (mod_proxy.h:
/// PROXY_WORKER_MAX_SCHEME_SIZE).
const MOST_UPGRADE: usize = 16;

/// The text about a parameter of another name.
pub(super) const UNKNOWN_PARAMETER: &str = "unknown Worker parameter";

/// A target with parameters.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The target. The parameters apply to requests whose path begins with that of the target.
    pub target: Target,
    /// The timeout of one read or write (`timeout`).
    pub timeout: Option<Duration>,
    /// The timeout of connecting (`connectiontimeout`).
    pub connection_timeout: Option<Duration>,
    /// Whether a connection is used for one request alone (`disablereuse`, `enablereuse`).
    pub disable_reuse: Option<bool>,
    /// The time for which an idle connection is kept (`ttl`).
    pub ttl: Option<Duration>,
    /// The most bytes of a field of a response (`responsefieldsize`).
    pub field_size: Option<usize>,
    /// The protocols that a client may have the server switch to (`upgrade`).
    pub upgrade: Option<Upgrade>,
}

/// The protocols of the parameter `upgrade`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// All of them (`ANY`).
    Any,
    /// Those of the list.
    To(Box<str>),
}

impl Worker {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            timeout: None,
            connection_timeout: None,
            disable_reuse: None,
            ttl: None,
            field_size: None,
            upgrade: None,
        }
    }

    /// Takes each parameter that is not set from `other`.
    pub(super) fn or(&self, other: &Worker) -> Self {
        Self {
            target: self.target.clone(),
            timeout: self.timeout.or(other.timeout),
            connection_timeout: self.connection_timeout.or(other.connection_timeout),
            disable_reuse: self.disable_reuse.or(other.disable_reuse),
            ttl: self.ttl.or(other.ttl),
            field_size: self.field_size.or(other.field_size),
            upgrade: self.upgrade.clone().or_else(|| other.upgrade.clone()),
        }
    }

    /// Whether a client may have the server switch to this protocol.
    fn may_upgrade(&self, protocol: &[u8]) -> Option<bool> {
        Some(match self.upgrade.as_ref()? {
            Upgrade::Any => true,
            Upgrade::To(list) => list
                .split(|end: char| end == ',' || end.is_ascii_whitespace())
                .any(|one| eq_ignore_case(one.as_bytes(), protocol)),
        })
    }

    /// Whether the URL of a target begins with that of this one.
    pub(super) fn is_prefix_of(&self, target: &Target) -> bool {
        let own = &self.target;
        let is_same = own.scheme == target.scheme && own.address == target.address;
        let is_prefix = match own.path.contains('$') {
            true => own.path == target.path,
            false => target.path.starts_with(&*own.path),
        };
        is_same && own.port == target.port && is_prefix
    }

    /// Whether the parameters apply to a request.
    #[must_use]
    pub fn fits(&self, proxied: &Proxied) -> bool {
        let (own, other) = (&self.target, &*proxied.target);
        let path = own.path.split('$').next().unwrap_or_default().as_bytes();
        // Whose path is a reference alone stands for the requests of its own rule.
        let is_own = !own.path.starts_with('$') || own.path == other.path;
        let is_same = is_own && own.scheme == other.scheme && own.address == other.address;
        is_same && own.port == other.port && proxied.path.starts_with(path)
    }

    /// Sets one parameter. Those with a field have an effect; the values of the other parameters
    /// are only checked.
    ///
    /// # Errors
    /// The name is unknown, the value is invalid, or the parameter is not supported.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let key = key.to_ascii_lowercase();
        let at_least = |least: i64, text: &str| match leading_number(value) >= least {
            true => Ok(()),
            false => Err(text.to_owned()),
        };
        let switch = |name: &str| match value.to_ascii_lowercase().as_str() {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("{name} must be On|Off")),
        };
        let interval = |name: &str, unit_us: u64, least: &str| {
            let time_us =
                parse_interval(value, unit_us).ok_or_else(|| format!("{name} has wrong format"))?;
            match time_us >= 1000 {
                true => Ok(Duration::from_micros(time_us)),
                false => Err(format!("{least} must be at least one millisecond")),
            }
        };
        match &*key {
            "timeout" => {
                at_least(1, "Timeout must be at least one second")?;
                let seconds = u64::try_from(leading_number(value)).unwrap_or(1);
                self.timeout = Some(Duration::from_secs(seconds));
                Ok(())
            }
            "connectiontimeout" => {
                let time = interval("Connectiontimeout", 1_000_000, "Connectiontimeout")?;
                self.connection_timeout = Some(time);
                Ok(())
            }
            "acquire" => interval("Acquire timeout", 1000, "Acquire").map(drop),
            "ping" => interval("Ping/Pong timeout", 1_000_000, "Ping/Pong timeout").map(drop),
            "retry" => at_least(0, "Retry must be a positive value"),
            "ttl" => {
                at_least(1, "TTL must be at least one second")?;
                let seconds = u64::try_from(leading_number(value)).unwrap_or(1);
                self.ttl = Some(Duration::from_secs(seconds));
                Ok(())
            }
            "min" => at_least(0, "Min must be a positive number"),
            "max" => at_least(0, "Max must be a positive number"),
            "smax" => at_least(0, "Smax must be a positive number"),
            "keepalive" => switch("KeepAlive").map(drop),
            "disablereuse" => {
                self.disable_reuse = Some(switch("DisableReuse")?);
                Ok(())
            }
            "enablereuse" => {
                self.disable_reuse = Some(!switch("EnableReuse")?);
                Ok(())
            }
            "flushpackets" => match value.to_ascii_lowercase().as_str() {
                "on" | "off" | "auto" => Ok(()),
                _ => Err("flushpackets must be on|off|auto".into()),
            },
            "flushwait" => match leading_number(value) {
                0..=1000 => Ok(()),
                _ => Err("flushwait must be <= 1000, or 0 for system default of 10 \
                          millseconds."
                    .into()),
            },
            "iobuffersize" => match leading_number(value) {
                0 | 512.. => Ok(()),
                _ => Err("IOBufferSize must be >= 512 bytes, or 0 for system default.".into()),
            },
            "receivebuffersize" => match leading_number(value) {
                0 | 512.. => Ok(()),
                _ => Err("ReceiveBufferSize must be >= 512 bytes, or 0 for system default.".into()),
            },
            "responsefieldsize" => {
                at_least(
                    0,
                    "ResponseFieldSize must be greater than 0 bytes, or 0 for system default.",
                )?;
                let bytes = usize::try_from(leading_number(value)).unwrap_or(0);
                self.field_size = Some(bytes).filter(|bytes| *bytes > 0);
                Ok(())
            }
            "upgrade" if value.len() >= MOST_UPGRADE => {
                Err(format!("upgrade protocol length must be < {MOST_UPGRADE} characters"))
            }
            "upgrade" => {
                self.upgrade = Some(match value.eq_ignore_ascii_case("any") {
                    true => Upgrade::Any,
                    false => Upgrade::To(value.into()),
                });
                Ok(())
            }
            "addressttl" | "status" | "secret" => Ok(()),
            // They have an effect on members of balancers alone.
            "loadfactor" | "route" | "redirect" | "lbset" => Ok(()),
            _ => Err(UNKNOWN_PARAMETER.into()),
        }
    }
}

/// Returns the protocol that the server behind this one is asked to switch to: the one that the
/// client asks for, if the parameter `upgrade` or the scheme `ws` lets it (proxy_util.c:
/// `ap_proxy_worker_can_upgrade`). A client of HTTP/1.0 cannot switch (RFC 9110, section 7.8).
#[must_use]
pub fn upgrade_of(
    request: &Request,
    proxied: &Proxied,
    worker: Option<&Worker>,
) -> Option<Vec<u8>> {
    if request.head.version < Version::Http11 || request.resource.depth > 0 {
        return None;
    }
    let asked = request.fields().joined(Name::Upgrade)?;
    let is_default =
        || proxied.target.scheme.is_websocket() && eq_ignore_case(&asked, b"websocket");
    let may = worker.and_then(|worker| worker.may_upgrade(&asked)).unwrap_or_else(is_default);
    may.then_some(asked)
}

/// Parses the number at the front of a text, as atoi(3) does.
pub(super) fn leading_number(text: &str) -> i64 {
    let digits = text.bytes().position(|byte| !byte.is_ascii_digit() && byte != b'-');
    text.get(..digits.unwrap_or(text.len())).and_then(|text| text.parse().ok()).unwrap_or(0)
}
