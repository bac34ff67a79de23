//! The bounds of pools of application processes: AppMaxWorkers and its kin, PHPIniDir, and AppUser.

use crate::wrapper::{found_user, group_of};
use crate::{
    Directive, DirectiveResult, Merge, Scope, Where, argument, directive, global_directive,
};
use evenkeel_config::{Call, GlobalCall, Notice, Shape};
use evenkeel_sys::identity::user_numbered;
use std::path::PathBuf;
use std::sync::Arc;

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    directive("PHPINIDir", Where::SERVER, Shape::One, "", "Directory containing the php.ini file", ini_dir),
    global_directive("AppMaxWorkers", Shape::One, "auto", "How many workers a pool may have: a number, or auto for what cores, memory and the costs of requests allow", max_workers),
    global_directive("AppMinSpare", Shape::One, "1", "How many idle workers a pool keeps ready", min_spare),
    global_directive("AppMaxSpare", Shape::One, "8", "How many idle workers a pool keeps at most, beyond what was needed lately", max_spare),
    global_directive("AppMaxRequests", Shape::One, "0", "After how many requests a worker ends; 0 is never", max_requests),
    global_directive("AppMemory", Shape::One, "0", "How many bytes of memory a worker may keep after a request before it ends, with K, M or G; 0 is any number", memory),
    global_directive("AppNice", Shape::One, "", "The nice value of the workers, from 0 to 19; that of the server unless set", nice),
    global_directive("AppRequestTimeout", Shape::One, "0", "How many seconds a script may run before it is ended with 504; 0 is any number", request_timeout),
    global_directive("AppQueueTimeout", Shape::One, "", "How many seconds a request may wait for a worker before it is answered with 503; those of Timeout unless set", queue_timeout),
    global_directive("AppSlowLog", Shape::One, "", "The file for backtraces of scripts that take long", slow_log),
    global_directive("AppSlowTimeout", Shape::One, "5", "After how many seconds the backtrace of a script is written to AppSlowLog", slow_timeout),
    directive("AppUser", Where::SERVER, Shape::OneOrTwo, "", "User, and group, that scripts run as, in a pool of their own", user),
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
    /// AppQueueTimeout in seconds; `None` is Timeout.
    pub queue_timeout_s: Option<u64>,
    /// AppSlowTimeout in seconds.
    pub slow_timeout_s: u64,
    /// AppNice; `None` is the server's own.
    pub nice: Option<u8>,
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
            queue_timeout_s: None,
            slow_timeout_s: 5,
            nice: None,
        }
    }
}

/// Whom the scripts of a host run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUser {
    /// The number of the user.
    pub uid: u32,
    /// The name, or what was given in its place.
    pub name: Box<str>,
    /// The group.
    pub gid: u32,
    /// Whether the group is another than that of the user.
    pub has_other_group: bool,
}

/// The settings of a virtual host.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// AppUser.
    pub user: Option<Arc<PoolUser>>,
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; user)
    }
}

/// The settings of the process.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// PHPIniDir, as an absolute path.
    pub ini_dir: Option<PathBuf>,
    /// The bounds of the pool.
    pub bounds: PoolBounds,
    /// AppSlowLog, as an absolute path.
    pub slow_log: Option<PathBuf>,
}

/// There is one for the whole server, whichever host names it (apache_config.c:
/// `php_apache_phpini_set`).
fn ini_dir(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_root.join(argument(call, 0));
    if !scope.set_ini_dir(path) {
        return Err("Only first PHPINIDir directive honored per configuration tree - subsequent \
                    ones ignored"
            .into());
    }
    if scope.in_virtual_host {
        let text = "PHPINIDir in a virtual host holds for all hosts, as with mod_php";
        call.notice(Notice { number: None, ..Notice::warn("php", 0, text) });
    }
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

fn nice(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let value = number("AppNice", argument(call, 0), 0, 19)?;
    scope.global_mut(call).php.bounds.nice = u8::try_from(value).ok();
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

fn queue_timeout(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let seconds = number("AppQueueTimeout", argument(call, 0), 1, 86_400)?;
    scope.global_mut(call).php.bounds.queue_timeout_s = Some(seconds);
    Ok(())
}

fn slow_log(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let path = scope.server_root.join(argument(call, 0));
    if !path.parent().is_some_and(std::path::Path::is_dir) {
        return Err(format!("AppSlowLog {}: there is no such folder", path.display()));
    }
    scope.global_mut(call).php.slow_log = Some(path);
    Ok(())
}

fn slow_timeout(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let seconds = number("AppSlowTimeout", argument(call, 0), 1, 86_400)?;
    scope.global_mut(call).php.bounds.slow_timeout_s = seconds;
    Ok(())
}

fn user(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    let unknown = |what: &str, name: &str| format!("AppUser: there is no {what} {name}");
    let (uid, name) = found_user(text).map_err(|_| unknown("user", text))?;
    let known = user_numbered(uid).ok().flatten();
    let own = known.as_ref().map(|user| user.gid);
    let gid = match call.words.get(1) {
        Some(group) => group_of(group).map_err(|_| unknown("group", group))?,
        None => own.ok_or_else(|| format!("AppUser {text}: the user has no group: name one"))?,
    };
    if uid == 0 || gid == 0 {
        return Err(format!("AppUser {}: scripts do not run as root", text));
    }
    let name = known.map_or(name, |user| user.name.into());
    let user = PoolUser { uid, name, gid, has_other_group: own != Some(gid) };
    scope.server.php.user = Some(Arc::new(user));
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
                    AppMemory 64M\nAppRequestTimeout 30\nAppIdleTimeout 60\nPHPINIDir php\n\
                    AppQueueTimeout 7\nAppSlowTimeout 2\nAppSlowLog /tmp/slow.log\n\
                    AppNice 19";
        let global = parsed(text).unwrap();
        let want = PoolBounds {
            max_workers: Some(12),
            min_spare: 0,
            max_spare: 3,
            max_requests: 500,
            memory: 64 << 20,
            request_timeout_s: 30,
            idle_timeout_s: 60,
            queue_timeout_s: Some(7),
            slow_timeout_s: 2,
            nice: Some(19),
        };
        assert_eq!(global.bounds, want);
        assert_eq!(global.slow_log.unwrap(), PathBuf::from("/tmp/slow.log"));
        assert_eq!(global.ini_dir.unwrap(), PathBuf::from("/etc/base/php"));
        assert_eq!(parsed("AppNice 0").unwrap().bounds.nice, Some(0));
        let error = parsed("AppNice 20").unwrap_err().to_string();
        assert!(error.contains("AppNice 20: a number from 0 to 19 is meant"), "{error}");
        assert_eq!(parsed("AppMaxWorkers Auto").unwrap().bounds, PoolBounds::default());
        for text in [
            "AppMaxWorkers 0",
            "AppMaxWorkers many",
            "AppMaxSpare 0",
            "AppNice 20",
            "AppNice -1",
            "AppNice low",
            "AppMemory 12X",
            "AppMemory 100K",
            "AppMemory M",
            "AppRequestTimeout -1",
            "AppIdleTimeout 0",
            "PHPINIDir a\nPHPINIDir b",
            "AppQueueTimeout 0",
            "AppSlowTimeout 0.5",
            "AppSlowLog /nowhere/slow.log",
            "AppUser root",
            "AppUser www-data root",
            "AppUser #0",
            "AppUser no-such-user",
            "AppUser www-data no-such-group",
            "AppUser #4000000000",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn scripts_run_as_a_user_with_its_group_or_another() {
        let user = |text: &str| {
            let scope = testing::apply(MODULE, text).unwrap();
            scope.server.php.user.unwrap().as_ref().clone()
        };
        let own = user("AppUser www-data");
        assert_eq!((&*own.name, own.has_other_group), ("www-data", false));
        assert_eq!(user(&format!("AppUser #{}", own.uid)), own);
        assert_eq!(user("AppUser www-data www-data"), own);
        let other = user("AppUser www-data nogroup");
        assert!(other.uid == own.uid && other.gid != own.gid && other.has_other_group);
        assert_eq!(user("AppUser #4000000 #4000001").gid, 4_000_001);
    }
}
