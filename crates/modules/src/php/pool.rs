//! The bounds of pools of application processes: AppMaxWorkers and its kin, and PHPIniDir.

use crate::{Directive, DirectiveResult, Scope, argument, global_directive};
use evenkeel_config::{GlobalCall, Shape};
use std::path::PathBuf;

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    global_directive("PHPINIDir", Shape::One, "", "Directory containing the php.ini file", ini_dir),
    global_directive("AppMaxWorkers", Shape::One, "auto", "How many workers a pool may have: a number, or auto for what cores, memory and the costs of requests allow", max_workers),
    global_directive("AppMinSpare", Shape::One, "1", "How many workers more than work a pool has", min_spare),
    global_directive("AppMaxSpare", Shape::One, "8", "How many workers more than were needed lately a pool keeps", max_spare),
    global_directive("AppMaxRequests", Shape::One, "0", "After how many requests a worker ends; 0 is never", max_requests),
    global_directive("AppMemory", Shape::One, "0", "How many bytes of memory a worker may keep after a request before it ends, with K, M or G; 0 is any number", memory),
    global_directive("AppRequestTimeout", Shape::One, "0", "How many seconds a script may run before it is ended with 504; 0 is any number", request_timeout),
    global_directive("AppIdleTimeout", Shape::One, "300", "After how many seconds without a request a pool ends all its processes", idle_timeout),
];

/// The bounds of the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBounds {
    /// AppMaxWorkers; `None` is `auto`.
    pub max_workers: Option<usize>,
    /// AppMinSpare.
    pub min_spare: usize,
    /// AppMaxSpare.
    pub max_spare: usize,
    /// AppMaxRequests.
    pub max_requests: u64,
    /// AppMemory in bytes.
    pub memory: u64,
    /// AppRequestTimeout in seconds; 0 is none.
    pub request_timeout_s: u64,
    /// AppIdleTimeout in seconds.
    pub idle_timeout_s: u64,
}

impl Default for PoolBounds {
    fn default() -> Self {
        Self {
            max_workers: None,
            min_spare: 1,
            max_spare: 8,
            max_requests: 0,
            memory: 0,
            request_timeout_s: 0,
            idle_timeout_s: 300,
        }
    }
}

/// The settings of the process.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// PHPIniDir, as an absolute path.
    pub ini_dir: Option<PathBuf>,
    /// The bounds of the pool.
    pub bounds: PoolBounds,
}

/// The first one holds (apache_config.c: `php_apache_phpini_set`).
fn ini_dir(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let path = scope.server_root.join(argument(call, 0));
    let ini_dir = &mut scope.global_mut(call).php.ini_dir;
    if ini_dir.is_some() {
        return Err("Only first PHPINIDir directive honored per configuration tree - subsequent \
                    ones ignored"
            .into());
    }
    *ini_dir = Some(path);
    Ok(())
}

fn max_workers(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    let most = match text.eq_ignore_ascii_case("auto") {
        true => None,
        false => Some(number("AppMaxWorkers", text, 1, 4096)? as usize),
    };
    scope.global_mut(call).php.bounds.max_workers = most;
    Ok(())
}

fn min_spare(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let count = number("AppMinSpare", argument(call, 0), 0, 4096)?;
    scope.global_mut(call).php.bounds.min_spare = count as usize;
    Ok(())
}

fn max_spare(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let count = number("AppMaxSpare", argument(call, 0), 1, 4096)?;
    scope.global_mut(call).php.bounds.max_spare = count as usize;
    Ok(())
}

fn max_requests(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let count = number("AppMaxRequests", argument(call, 0), 0, u64::MAX)?;
    scope.global_mut(call).php.bounds.max_requests = count;
    Ok(())
}

fn memory(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    let shift = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        _ => 0,
    };
    let digits = if shift > 0 { text.get(..text.len() - 1).unwrap_or_default() } else { text };
    let bytes = number("AppMemory", digits, 0, u64::MAX >> shift)? << shift;
    if bytes > 0 && bytes < 1 << 20 {
        return Err(format!("AppMemory {text}: a worker of PHP takes more than 1M"));
    }
    scope.global_mut(call).php.bounds.memory = bytes;
    Ok(())
}

fn request_timeout(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let seconds = number("AppRequestTimeout", argument(call, 0), 0, 86_400)?;
    scope.global_mut(call).php.bounds.request_timeout_s = seconds;
    Ok(())
}

fn idle_timeout(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let seconds = number("AppIdleTimeout", argument(call, 0), 1, 31_536_000)?;
    scope.global_mut(call).php.bounds.idle_timeout_s = seconds;
    Ok(())
}

fn number(name: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let parsed = text.parse().ok().filter(|number| (least..=most).contains(number));
    parsed.ok_or_else(|| match most {
        u64::MAX => format!("{name} {text}: a number from {least} on is meant"),
        _ => format!("{name} {text}: a number from {least} to {most} is meant"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::MODULE;
    use super::*;
    use crate::testing;

    fn parsed(text: &str) -> Result<Global, String> {
        testing::apply(MODULE, text).map(|mut scope| scope.take_global().php)
    }

    #[test]
    fn bounds_are_numbers_within_their_bounds() {
        let text = "AppMaxWorkers 12\nAppMinSpare 0\nAppMaxSpare 3\nAppMaxRequests 500\n\
                    AppMemory 64M\nAppRequestTimeout 30\nAppIdleTimeout 60\nPHPINIDir php";
        let global = parsed(text).unwrap();
        let want = PoolBounds {
            max_workers: Some(12),
            min_spare: 0,
            max_spare: 3,
            max_requests: 500,
            memory: 64 << 20,
            request_timeout_s: 30,
            idle_timeout_s: 60,
        };
        assert_eq!(global.bounds, want);
        assert_eq!(global.ini_dir.unwrap(), PathBuf::from("/etc/base/php"));
        assert_eq!(parsed("AppMaxWorkers Auto").unwrap().bounds, PoolBounds::default());
        for text in [
            "AppMaxWorkers 0",
            "AppMaxWorkers many",
            "AppMaxSpare 0",
            "AppMemory 12X",
            "AppMemory 100K",
            "AppMemory M",
            "AppRequestTimeout -1",
            "AppIdleTimeout 0",
            "PHPINIDir a\nPHPINIDir b",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
