//! php_module: PHP scripts, which run in a pool of processes of this server's own. [`wanted`] says
//! what a request asks of PHP, [`Directory::encode`] writes php_value and its kin for a worker, and
//! [`Global`] has the bounds of the pool. The pipeline asks the pool.

mod answer;
mod pool;

pub use answer::respond;
pub use pool::{Global, PoolBounds, PoolUser, Server};

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Request, unquoted};
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("php_value", Where::OPTIONS, Shape::Two, "", "PHP Value Modifier", value).of_bytes(),
    directive("php_flag", Where::OPTIONS, Shape::Two, "", "PHP Flag Modifier", flag).of_bytes(),
    directive("php_admin_value", Where::CONFIG, Shape::Two, "", "PHP Value Modifier (Admin)", admin_value).of_bytes(),
    directive("php_admin_flag", Where::CONFIG, Shape::Two, "", "PHP Flag Modifier (Admin)", admin_flag).of_bytes(),
];

/// php_module.
pub const MODULE: Module = Module {
    file: "mod_php.c",
    identifier: "php_module",
    active: Active::WhenNamed,
    page: "mod_php",
    subject: "PHP scripts, under every process model. `LoadModule php_module .../libphp8.2.so` \
              has them run in a pool of processes of `evenkeel-php8.2`, which stands beside the \
              server's binary (`make php`). The pool starts with the first request for a script, \
              and grows and shrinks by the law that sizes the server's own children.",
    remarks: &[
        "`php_flag engine off` answers 403 for PHP files. mod_php sends their source.",
        "The body of a request is read whole before a worker is asked, up to 64 KiB in memory and \
         more in /var/tmp, so that a slow client holds no worker.",
        "Scripts see the interface `apache2handler` with its functions. `virtual` and \
         `apache_lookup_uri` warn and return false. `fastcgi_finish_request` is there too.",
        "php.ini is that of PHPIniDir, else that of /etc/php/8.2/apache2, else that of the library. \
         A new one holds after a reload. PHPINIDir in a virtual host holds for all hosts.",
        "AppUser gives the scripts of a host, or of all hosts, a user of their own, in a pool of \
         their own. A script of one pool can neither read the memory of another nor have it run \
         anything. Files that are no scripts are still read as User.",
        "RLimitNPROC bounds what the scripts of a pool of AppUser start. The processes of the pool \
         count. RLimitCPU and RLimitMEM do not act on scripts, as in mod_php.",
        "AppSlowLog gets the backtrace of a script that runs longer than AppSlowTimeout, in the \
         form of php-fpm's slow log. A function of PHP's that waits is in it once it returns.",
        "AppNice acts on the workers and on what their scripts start. A value below that of the \
         server needs CAP_SYS_NICE or RLIMIT_NICE: without it a worker keeps the server's value, \
         and the error log says so.",
        "Each request has notes with the times of its script, in microseconds, for LogFormat: \
         `%{app-line-us}n` is the wait for a worker, `%{app-ready-us}n` the time in which the \
         script was ready to run and had no CPU, `%{app-wait-us}n` the time in which it waited for \
         something else, and `%{app-cpu-us}n` its CPU time.",
        "A script whose output includes that of other scripts (mod_include) keeps its worker \
         while they run at others. With `AppMaxWorkers 1` such an include fails after \
         AppQueueTimeout if the script sends more than 64 KiB.",
        "In one process (`-X`) a second process starts and ends the workers.",
        "A worker that a script ends is replaced, and the client gets 503, or a broken response \
         if its head was sent. A script that is silent for longer than Timeout gets 504.",
        "mod_php8.c is never true in `<IfModule>`, as in Apache with Debian's libphp8.2.so.",
    ],
    directives: &[DIRECTIVES, pool::DIRECTIVES],
    provides: &[],
};

/// What a request asks of PHP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To run the script.
    Run,
    /// To show its source in colors.
    Source,
}

/// One php_value or one of its kin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    name: Box<[u8]>,
    value: Box<[u8]>,
    /// php_admin_value and php_admin_flag: neither a section nor the script can change it.
    is_admin: bool,
    in_htaccess: bool,
}

/// The settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<Vec<Setting>>>);

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        let mut merged = base.clone();
        merged.add(over);
        merged
    }

    /// A plain value does not replace an admin value of an outer section (apache_config.c:
    /// `should_overwrite_per_dir_entry`).
    fn add(&mut self, over: &Self) {
        let Some(inner) = &over.0 else { return };
        let Some(outer) = &mut self.0 else {
            self.0 = Some(Arc::clone(inner));
            return;
        };
        let outer = Arc::make_mut(outer);
        for setting in inner.iter() {
            match outer.iter_mut().find(|known| known.name == setting.name) {
                Some(known) if known.is_admin && !setting.is_admin => {}
                Some(known) => *known = setting.clone(),
                None => outer.push(setting.clone()),
            }
        }
    }
}

impl Directory {
    fn set(&mut self, setting: Setting) {
        let all = Arc::make_mut(self.0.get_or_insert_default());
        all.retain(|known| known.name != setting.name);
        all.push(setting);
    }

    /// Whether scripts run here (`engine`).
    #[must_use]
    pub fn has_engine(&self) -> bool {
        let all = self.0.as_ref();
        let engine = all.and_then(|all| all.iter().find(|setting| *setting.name == *b"engine"));
        engine.is_none_or(|setting| is_true(&setting.value))
    }

    /// The settings for a worker: flags, name and value of each, each ended by a zero byte
    /// (`php/evenkeel-php.c`: `apply_settings`). `None` without any.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let all = self.0.as_ref()?;
        let mut out = Vec::new();
        for Setting { name, value, is_admin, in_htaccess } in all.iter() {
            out.extend(is_admin.then_some(b'a'));
            out.extend(in_htaccess.then_some(b'h'));
            out.push(0);
            for text in [name, value] {
                out.extend_from_slice(text);
                out.push(0);
            }
        }
        Some(out)
    }
}

/// As PHP reads a boolean (main.c: `zend_ini_parse_bool`).
fn is_true(value: &[u8]) -> bool {
    let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
    let digits = value.iter().skip_while(|byte| byte.is_ascii_whitespace());
    let number = digits.take_while(|byte| byte.is_ascii_digit()).any(|digit| *digit != b'0');
    is("true") || is("yes") || is("on") || number
}

fn value(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    set(scope, argument(call, 0), argument(call, 1), false)
}

fn admin_value(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    set(scope, argument(call, 0), argument(call, 1), true)
}

fn flag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    set(scope, argument(call, 0), of_flag(argument(call, 1)), false)
}

fn admin_flag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    set(scope, argument(call, 0), of_flag(argument(call, 1)), true)
}

/// apache_config.c: `real_flag_hnd`.
fn of_flag(text: &str) -> &'static str {
    if text.eq_ignore_ascii_case("on") || text == "1" { "1" } else { "0" }
}

/// apache_config.c: `real_value_hnd`.
fn set(scope: &mut Scope, name: &str, value: &str, is_admin: bool) -> DirectiveResult {
    let value = if value.eq_ignore_ascii_case("none") { "" } else { value };
    let in_htaccess = scope.in_htaccess;
    let (name, value) = (unquoted(name).into(), unquoted(value).into());
    scope.directory.php.set(Setting { name, value, is_admin, in_htaccess });
    Ok(())
}

/// What a request asks of PHP; `None` if its handler is another (sapi_apache2.c: `php_handler`).
#[must_use]
pub fn wanted(request: &Request) -> Option<Wanted> {
    match request.resource.content.handler_name()? {
        b"application/x-httpd-php" | b"php-script" => Some(Wanted::Run),
        b"application/x-httpd-php-source" => Some(Wanted::Source),
        _ => None,
    }
}

/// The fields of a request for a worker: each with its name, a colon, its value and a newline.
#[must_use]
pub fn encode_fields(request: &Request) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    for (_, name, value) in request.fields().merged() {
        out.extend_from_slice(name);
        out.push(b':');
        out.extend_from_slice(value.as_ref());
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn parsed(text: &str) -> Directory {
        testing::apply(MODULE, text).unwrap().directory.into_settings().php
    }

    fn shown(settings: &Directory) -> String {
        let bytes = settings.encode().unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', "|")
    }

    #[test]
    fn values_and_flags_are_written_for_a_worker() {
        let text = "php_value memory_limit 64M\nphp_flag display_errors On\nphp_flag a yes\n\
                    php_admin_value open_basedir \"/srv/a b\"\nphp_admin_flag b 1\n\
                    php_value auto_prepend_file none";
        let want = "|memory_limit|64M||display_errors|1||a|0|a|open_basedir|/srv/a b|a|b|1|\
                    |auto_prepend_file||";
        assert_eq!(shown(&parsed(text)), want);
        assert_eq!(Directory::default().encode(), None);
        // The last one of a section holds.
        assert_eq!(shown(&parsed("php_admin_value a 1\nphp_value a 2")), "|a|2|");
    }

    #[test]
    fn an_inner_section_changes_plain_values_of_an_outer_one_alone() {
        let outer = parsed("php_value a 1\nphp_admin_value b 1\nphp_value c 1");
        let inner = parsed("php_value a 2\nphp_value b 2\nphp_admin_value c 2\nphp_value d 2");
        assert_eq!(shown(&Directory::merge(&outer, &inner)), "|a|2|a|b|1|a|c|2||d|2|");
    }

    #[test]
    fn the_engine_runs_unless_it_is_off() {
        for (text, runs) in [
            ("php_value a 1", true),
            ("php_flag engine off", false),
            ("php_flag engine on", true),
            ("php_value engine yes", true),
            ("php_value engine 10", true),
            ("php_admin_value engine 0", false),
            ("php_value engine none", false),
        ] {
            assert_eq!(parsed(text).has_engine(), runs, "{text}");
        }
        assert!(Directory::default().has_engine());
    }
}
