//! Access logs (mod_log_config.c, mod_logio.c): formats, files and conditions as written. The
//! room `logging` compiles and writes them.

pub use crate::NoSettings as Directory;

use crate::{
    Active, Directive, DirectiveResult, Merge, Module, Scope, Shared, Where, argument, directive,
    global_directive,
};
use evenkeel_config::{Call, GlobalCall, Position, Shape};
use evenkeel_expr::Condition;
use std::sync::Arc;

/// One CustomLog, TransferLog or GlobalLog line.
#[derive(Clone, Debug)]
pub struct Log {
    /// A file, or a program behind `|`, as written.
    pub target: Box<str>,
    /// A format's nickname or the format itself; none is the server's default format.
    pub format: Option<Box<str>>,
    /// When a request is logged.
    pub condition: Option<When>,
    /// Where it stands.
    pub position: Position,
}

/// When a request is logged.
#[derive(Clone, Debug)]
pub enum When {
    /// `env=NAME`, or `env=!NAME` with its exclamation mark.
    Environment(Box<str>),
    /// `expr=`.
    Expression(Arc<Condition>),
}

/// The access logs of a server.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// LogFormat with a nickname: nickname and format.
    pub formats: Arc<Vec<(Box<str>, Box<str>)>>,
    /// Every format that this server writes itself, where it stands, to be checked in order.
    pub written: Vec<(Box<str>, Position)>,
    /// LogFormat without one: what TransferLog uses.
    pub default_format: Option<Box<str>>,
    /// The logs, in order. A virtual host with its own has none of the main server's.
    pub logs: Arc<Vec<Log>>,
    /// GlobalLog: logs of every server.
    pub global_logs: Arc<Vec<Log>>,
    /// LogIOTrackTTFB.
    pub track_first_byte: Option<bool>,
}

impl Logs {
    /// Whether another server's logs are these very ones.
    #[must_use]
    pub fn has_same_logs(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.logs, &other.logs)
            && Arc::ptr_eq(&self.global_logs, &other.global_logs)
            && Arc::ptr_eq(&self.formats, &other.formats)
            && self.default_format == other.default_format
    }
}

/// What a server says, which hosts share.
pub type Server = Shared<Logs>;

crate::unsaid!(Logs);

impl Merge for Logs {
    fn merge(base: &Self, over: &Self) -> Self {
        let mut formats = Arc::clone(&base.formats);
        for (name, format) in over.formats.iter() {
            let formats = Arc::make_mut(&mut formats);
            formats.retain(|(known, _)| known != name);
            formats.push((name.clone(), format.clone()));
        }
        let own = if over.logs.is_empty() { base } else { over };
        Self {
            formats,
            written: over.written.clone(),
            default_format: Merge::merge(&base.default_format, &over.default_format),
            logs: Arc::clone(&own.logs),
            global_logs: Arc::clone(&base.global_logs),
            track_first_byte: Merge::merge(&base.track_first_byte, &over.track_first_byte),
        }
    }
}

/// What holds for all access logs.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// BufferedLogs.
    pub buffered: Option<bool>,
}

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("CustomLog", Where::SERVER, Shape::TwoOrThree, "", "a file name, a custom log format string or format name, and an optional \"env=\" or \"expr=\" clause (see docs)", custom_log),
    global_directive("GlobalLog", Shape::TwoOrThree, "", "Same as CustomLog, but forces virtualhosts to inherit the log", global_log),
    directive("TransferLog", Where::SERVER, Shape::One, "", "the filename of the access log", transfer_log),
    directive("LogFormat", Where::SERVER, Shape::OneOrTwo, "\"%h %l %u %t \\\"%r\\\" %>s %b\"", "a log format string (see docs) and an optional format name", log_format),
    global_directive("BufferedLogs", Shape::Flag, "On", "Enable Buffered Logging (experimental)", buffered_logs),
];

/// mod_log_config.
pub const MODULE: Module = Module {
    file: "mod_log_config.c",
    identifier: "log_config_module",
    active: Active::Always,
    page: "mod_log_config",
    subject: "Access logs: formats, files, programs, conditions.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

#[rustfmt::skip]
const LOGIO_DIRECTIVES: &[Directive] = &[
    directive("LogIOTrackTTFB", Where::ANYWHERE, Shape::Flag, "Off", "Set to 'ON' to enable tracking time to first byte", log_io_track_ttfb),
];

/// mod_logio: items of the formats, told apart by `evenkeel-logging`.
pub const LOGIO: Module = Module {
    file: "mod_logio.c",
    identifier: "logio_module",
    active: Active::Always,
    page: "mod_logio",
    subject: "Bytes received and sent, and the time to the first byte, in access logs: `%I`, \
              `%O`, `%S`, `%^FB`.",
    remarks: &[],
    directives: &[LOGIO_DIRECTIVES],
    provides: &[],
};

fn log(scope: &mut Scope, call: &Call<'_>) -> Result<Log, String> {
    let condition = match argument(call, 2) {
        "" => None,
        text => Some(condition(scope, text)?),
    };
    let format: Option<Box<str>> = call.second().map(Into::into);
    if let Some(format) = &format {
        scope.server.log_config.written.push((format.clone(), call.position.clone()));
    }
    Ok(Log { target: call.first().into(), format, condition, position: call.position.clone() })
}

fn condition(scope: &Scope, text: &str) -> Result<When, String> {
    if let Some(name) = text.strip_prefix("env=") {
        let bare = name.strip_prefix('!').unwrap_or(name);
        if bare.is_empty() {
            return Err("missing environment variable name".into());
        }
        return Ok(When::Environment(name.into()));
    }
    let Some(expression) = text.strip_prefix("expr=") else {
        return Err("error in condition clause".into());
    };
    if expression.is_empty() {
        return Err("missing condition".into());
    }
    let compiled = scope.compile_condition(expression).map_err(|error| error.to_string())?;
    Ok(When::Expression(Arc::new(compiled)))
}

fn custom_log(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let log = log(scope, call)?;
    Arc::make_mut(&mut scope.server.log_config.logs).push(log);
    Ok(())
}

fn global_log(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let log = log(scope, call)?;
    Arc::make_mut(&mut scope.server.log_config.global_logs).push(log);
    Ok(())
}

fn transfer_log(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    custom_log(scope, call)
}

fn log_format(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let format = call.first();
    scope.server.log_config.written.push((format.into(), call.position.clone()));
    match call.second() {
        None => scope.server.log_config.default_format = Some(format.into()),
        Some(name) => {
            let formats = Arc::make_mut(&mut scope.server.log_config.formats);
            formats.retain(|(known, _)| **known != *name);
            formats.push((name.into(), format.into()));
        }
    }
    Ok(())
}

fn buffered_logs(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).log_config.buffered = Some(call.flag);
    Ok(())
}

/// In an .htaccess file it says nothing: in Apache one request sets it there for its whole server.
fn log_io_track_ttfb(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.server.log_config.track_first_byte = Some(call.flag);
    Ok(())
}
