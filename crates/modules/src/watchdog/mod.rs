//! mod_watchdog: in Apache it calls modules at intervals. None here asks for that: its directive is
//! checked as Apache checks it (mod_watchdog.c: wd_set_interval), and has no effect.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::core::parse_interval;
use crate::{Active, Directive, DirectiveResult, Module, Scope, argument, global_directive};
use evenkeel_config::{GlobalCall, Shape};

/// The shortest interval, in microseconds (AP_WD_TM_SLICE).
const SHORTEST_US: u64 = 100_000;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    global_directive("WatchdogInterval", Shape::One, "1", "Watchdog interval in seconds", watchdog_interval),
];

/// mod_watchdog.
pub const MODULE: Module = Module {
    file: "mod_watchdog.c",
    identifier: "watchdog_module",
    active: Active::Always,
    page: "mod_watchdog",
    subject: "Present for configurations that ask for it: its directive is checked, and nothing \
              is done.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn watchdog_interval(_: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    match parse_interval(argument(call, 0), 1_000_000) {
        None => Err("Unparse-able WatchdogInterval setting".into()),
        Some(interval_us) if interval_us < SHORTEST_US => {
            Err(format!("Invalid WatchdogInterval: minimal value {}ms", SHORTEST_US / 1000))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn intervals_have_a_unit_and_a_least_length() {
        let said = |text: &str| apply(MODULE, &format!("WatchdogInterval {text}")).err();
        for text in ["1", "100ms", "1h"] {
            assert_eq!(said(text), None, "{text}");
        }
        let short = "Invalid WatchdogInterval: minimal value 100ms";
        assert_eq!((said("99ms").as_deref(), said("0").as_deref()), (Some(short), Some(short)));
        assert_eq!(said("x").as_deref(), Some("Unparse-able WatchdogInterval setting"));
    }
}
