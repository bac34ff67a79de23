//! Acts on httpd's command line: prints, checks, signals or serves. Functions return the exit
//! status of the process and write text to the terminal.

use crate::command_line::{CommandLine, Show};
use crate::configuration::{Choice, Configuration, Named};
use crate::server::{Evenkeel, refusal, remark_text};
use crate::terminal::{complain, say};
use crate::tls::{Hosts, Kept};
use crate::{dump, logs, settings};
use evenkeel_config::Main;
use evenkeel_logging::startup_text;
use evenkeel_message::Level;
use evenkeel_mpm::{
    Mode, Moment, SignalCommand, SignalOutcome, Start, check_limits, signal_server,
};
use evenkeel_pipeline::Site;
use evenkeel_sys::listen::somaxconn;
use evenkeel_sys::process::usable_cores;

/// The default folder of the configuration, as in Debian's apache2.
pub const SERVER_ROOT: &str = "/etc/apache2";
pub const FILE: &str = "apache2.conf";

/// Acts on the command line of a program with the name `program`.
pub fn run(program: &str, words: &[String]) -> i32 {
    match CommandLine::parse(words) {
        Ok(line) => act(program, &line),
        Err(text) => {
            complain(&format!("{program}: {text}"));
            complain(&usage(program));
            1
        }
    }
}

fn act(program: &str, line: &CommandLine) -> i32 {
    if let Some(path) = &line.start_log
        && let Err(error) = redirect_errors(path)
    {
        complain(&format!("{program}: could not open {path} for start-up messages: {error}"));
        return 1;
    }
    let choice = choice(program, line);
    match line.show.first() {
        Some(Show::Usage) => {
            complain(&usage(program));
            return 1;
        }
        Some(Show::Version) => {
            say(&dump::version());
            return 0;
        }
        Some(Show::Modules) => {
            say(&dump::compiled_in());
            return 0;
        }
        Some(show @ (Show::Build | Show::Directives)) => return describe(program, &choice, *show),
        Some(_) => return check(program, line, &choice),
        None => {}
    }
    // A name that requests a dump requests a check, with or without -t (main.c).
    if dump::is_asked(line) {
        return check(program, line, &choice);
    }
    match line.signal.as_deref() {
        None => ended(serve(program, choice, mode(line), None)),
        Some(signal) => send(program, line, choice, signal),
    }
}

/// How the server runs according to the command line.
fn mode(line: &CommandLine) -> Mode {
    if line.one_process {
        Mode::OneProcess
    } else if line.is_defined("FOREGROUND") || line.is_defined("NO_DETACH") {
        Mode::Foreground
    } else {
        Mode::Detached
    }
}

/// `-E`: writes start-up messages to a file instead of the terminal.
fn redirect_errors(path: &str) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    evenkeel_sys::process::replace_standard(2, &file)
}

/// The configuration that the command line chooses.
pub fn choice(program: &str, line: &CommandLine) -> Choice {
    Choice {
        server_root: line.server_root.clone().unwrap_or_else(|| SERVER_ROOT.to_owned()),
        main: Main::File {
            path: line.file.clone().unwrap_or_else(|| FILE.to_owned()),
            default: line.file.is_none(),
        },
        before: line.before.clone(),
        after: line.after.clone(),
        defines: line.defines.clone(),
        program: program.to_owned(),
        start_level: line.start_level.unwrap_or(Level::Warn),
        skip_root_check: line.skip_root_check,
    }
}

/// Serves until the end. `greeting` is printed as soon as the server listens.
///
/// # Errors
///
/// Why it could not start, as lines for standard error.
pub fn serve(
    program: &str,
    choice: Choice,
    mode: Mode,
    greeting: Option<String>,
) -> Result<i32, String> {
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let command_line = crate::command_line::shown(&words);
    let again = crate::command_line::rewritten(&words);
    let again = again.into_iter().skip(1).map(str::to_owned).collect();
    let mut server = Evenkeel::new(choice, program, mode, greeting);
    let program = program.to_owned();
    evenkeel_mpm::run(&mut server, &Start { mode, command_line, program, again })
}

/// The exit status of a process that has served, or could not.
fn ended(served: Result<i32, String>) -> i32 {
    served.unwrap_or_else(|text| {
        complain(&text);
        1
    })
}

/// `-V` and `-L`, which describe the modules that the configuration makes active. `-V` works with
/// those before a fault (main.c), because programs use it before there is a configuration.
fn describe(program: &str, choice: &Choice, show: Show) -> i32 {
    let Named { modules, fault } = choice.modules();
    if show == Show::Build {
        say(&dump::build(&modules));
    }
    if let Some(fault) = fault {
        complain(&fault.report(program));
        return 1;
    }
    if show == Show::Directives {
        say(&dump::directives(&modules));
    }
    0
}

/// `-t` and its relatives: reads the whole configuration and reports what is wrong with it, or
/// prints what it says.
fn check(program: &str, line: &CommandLine, choice: &Choice) -> i32 {
    let configuration = match choice.read() {
        Ok(configuration) => configuration,
        Err(refused) => {
            say(&dump::includes(line, &refused.includes));
            complain(&refusal(&refused, program));
            return 1;
        }
    };
    for notice in &configuration.notices {
        complain(&remark_text(notice));
    }
    let Configuration { site, modules, tree, .. } = &configuration;
    let planned = logs::plan(site).map_err(|fault| fault.report(program));
    let parent = settings::of_parent(site, modules, tree.runtime_dir.as_deref());
    let parent = match planned.and(parent) {
        Ok(parent) => parent,
        Err(text) => {
            complain(&text);
            return 1;
        }
    };
    let cores = usable_cores();
    let (_, said) = check_limits(&parent.configured, Moment::Start, cores, somaxconn());
    let worth_saying = said.iter().filter(|notice| notice.level <= choice.start_level);
    worth_saying.for_each(|notice| complain(&startup_text(notice)));
    let mut warnings = Vec::new();
    if let Err(text) = Hosts::make(site, &mut Kept::default(), &mut warnings) {
        complain(&text);
        return 1;
    }
    warnings.iter().for_each(|notice| complain(&startup_text(notice)));
    if let Err(text) = check_logs(site) {
        complain(&text);
        return 1;
    }
    if dump::is_asked(line) {
        say(&dump::dump(line, &configuration));
    }
    // Dumps are printed without `Syntax OK`, except that of the tree, which belongs to a module
    // (main.c, mod_info.c).
    let is_tested = line.show.contains(&Show::Syntax) && !dump::stands_alone(line);
    if is_tested || !dump::is_asked(line) {
        complain("Syntax OK");
    }
    0
}

/// Checks whether the folders of all logs exist. The error is the text for the
/// terminal.
fn check_logs(site: &Site) -> Result<(), String> {
    logs::check(site).map_err(|missing| {
        let texts: String = missing.iter().map(startup_text).collect();
        texts + "AH00014: Configuration check failed"
    })
}

/// `-k stop` and the other signals: sends one to the server of the pid file. `start`, `restart` and
/// `graceful` start a server if none is running, as in Apache.
fn send(program: &str, line: &CommandLine, choice: Choice, signal: &str) -> i32 {
    let configuration = match choice.read() {
        Ok(configuration) => configuration,
        Err(refused) => {
            complain(&refusal(&refused, program));
            return 1;
        }
    };
    let runtime = configuration.tree.runtime_dir.as_deref();
    let settings = match settings::of_parent(&configuration.site, &configuration.modules, runtime) {
        Ok(settings) => settings,
        Err(text) => {
            complain(&text);
            return 1;
        }
    };
    let Some(command) = SignalCommand::parse(signal) else { return 1 };
    let reloads = matches!(
        command,
        SignalCommand::Restart | SignalCommand::Graceful | SignalCommand::Upgrade
    );
    let planned = logs::plan(&configuration.site).map_err(|fault| fault.report(program));
    if reloads && let Err(text) = planned.and_then(|_| check_logs(&configuration.site)) {
        complain(&text);
        return 1;
    }
    let outcome = signal_server(&settings.pid_file.unwrap_or_default(), command);
    if reloads && matches!(outcome, SignalOutcome::Done(_) | SignalOutcome::Reloads(_)) {
        configuration.notices.iter().for_each(|notice| complain(&remark_text(notice)));
    }
    match outcome {
        SignalOutcome::Done(said) => {
            said.iter().for_each(|said| say(said));
            0
        }
        SignalOutcome::Reloads(pending) => match pending.wait() {
            Ok(()) => 0,
            Err(text) => {
                complain(&text);
                1
            }
        },
        SignalOutcome::StartHere(said) => {
            said.iter().for_each(|said| say(said));
            ended(serve(program, choice, mode(line), None))
        }
        SignalOutcome::Failed(text) => {
            complain(&text);
            1
        }
    }
}

fn usage(program: &str) -> String {
    format!(
        "Usage: {program} [-D name] [-d directory] [-f file]\n       \
         [-C \"directive\"] [-c \"directive\"]\n       \
         [-k start|restart|graceful|graceful-stop|stop|upgrade]\n       \
         [-v] [-V] [-h] [-l] [-L] [-t] [-T] [-S] [-X]\n\
         Options:\n  \
         -D name            : define a name for use in <IfDefine name> directives\n  \
         -d directory       : specify an alternate initial ServerRoot\n  \
         -f file            : specify an alternate ServerConfigFile\n  \
         -C \"directive\"     : process directive before reading config files\n  \
         -c \"directive\"     : process directive after reading config files\n  \
         -e level           : show startup errors of level (see LogLevel)\n  \
         -E file            : log startup errors to file\n  \
         -v                 : show version number\n  \
         -V                 : show compile settings\n  \
         -h                 : list available command line options (this page)\n  \
         -l                 : list compiled in modules\n  \
         -L                 : list available configuration directives\n  \
         -t -D DUMP_VHOSTS  : show parsed vhost settings\n  \
         -t -D DUMP_RUN_CFG : show parsed run settings\n  \
         -S                 : a synonym for -t -D DUMP_VHOSTS -D DUMP_RUN_CFG\n  \
         -t -D DUMP_MODULES : show all loaded modules\n  \
         -M                 : a synonym for -t -D DUMP_MODULES\n  \
         -t -D DUMP_INCLUDES: show all included configuration files\n  \
         -t                 : run syntax check for config files\n  \
         -T                 : start without DocumentRoot(s) check\n  \
         -X                 : debug mode (only one worker, do not detach)\n"
    )
}
