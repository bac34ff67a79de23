//! Settings of a virtual host and of the main server, and the directives that make them.

use super::CoreSettings;
use super::sections::Section;
use crate::{Merge, Shared};
use evenkeel_config::Position;
use evenkeel_message::{Level, LogLevels};
use std::path::Path;
use std::sync::Arc;

/// How much the Server field tells (ServerTokens).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ServerTokens {
    Major,
    Minor,
    Minimal,
    ProductOnly,
    Os,
    #[default]
    Full,
}

/// What a TRACE request gets (TraceEnable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceEnable {
    /// 405.
    Off,
    /// The request is sent back; a body is refused.
    #[default]
    On,
    /// A body of up to 64 KiB is sent back too.
    Extended,
}

/// How strictly requests are read (HttpProtocolOptions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpProtocol {
    /// Unsafe in place of Strict.
    pub lenient: Option<bool>,
    /// RegisteredMethods in place of LenientMethods.
    pub registered_methods: Option<bool>,
    /// Require1.0 in place of Allow0.9.
    pub require_10: Option<bool>,
}

impl Merge for HttpProtocol {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; lenient, registered_methods, require_10)
    }
}

/// What one virtual host, or the main server, says of itself. What every request reads stands
/// first.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Server {
    /// How it treats connections and requests.
    pub conduct: Shared<Conduct>,
    /// ServerName without scheme and port.
    pub name: Option<Arc<str>>,
    /// The other names of the host; not inherited.
    pub aliases: Option<Arc<Aliases>>,
    /// DocumentRoot, absolute, with the slash at its end that it was given.
    pub document_root: Option<Box<Path>>,
    /// The port of ServerName, or of a virtual host's first address; 0 where it tells none.
    pub port: Option<u16>,
    /// The scheme of ServerName.
    pub scheme: Option<Arc<str>>,
    /// ServerAdmin.
    pub admin: Option<Arc<str>>,
    /// ErrorLog as written, and where.
    pub error_log: Option<Arc<(Box<str>, Position)>>,
    /// Its sections.
    pub sections: Shared<Sections>,
}

/// The names of a virtual host beside its first.
#[derive(Clone, Debug, Default)]
pub struct Aliases {
    /// ServerAlias names without wildcards, in lower case.
    pub exact: Vec<Arc<str>>,
    /// ServerAlias names with `*` or `?`, in lower case.
    pub wild: Vec<Arc<str>>,
    /// ServerPath.
    pub path: Option<Box<str>>,
}

/// How a server treats connections and requests.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// ErrorLogFormat lines: kind (none, connection, request) and format.
    pub error_log_formats: Vec<(Option<Box<str>>, Box<str>, Position)>,
    /// Timeout, in microseconds.
    pub timeout_us: Option<u64>,
    /// KeepAlive.
    pub keep_alive: Option<bool>,
    /// KeepAliveTimeout, in microseconds.
    pub keep_alive_timeout_us: Option<u64>,
    /// MaxKeepAliveRequests; 0 is no limit.
    pub max_keep_alive_requests: Option<u32>,
    /// FlushMaxThreshold in bytes.
    pub flush_max_threshold: Option<usize>,
    /// FlushMaxPipelined.
    pub flush_max_pipelined: Option<i64>,
    /// LimitRequestLine in bytes.
    pub limit_request_line: Option<usize>,
    /// LimitRequestFieldSize in bytes.
    pub limit_request_field_size: Option<usize>,
    /// LimitRequestFields; 0 is no limit.
    pub limit_request_fields: Option<usize>,
    /// LimitInternalRecursion: internal redirects.
    pub limit_redirects: Option<usize>,
    /// LimitInternalRecursion: looks at other paths within one another.
    pub limit_looks: Option<usize>,
    /// AccessFileName.
    pub access_file_names: Option<Arc<[Box<str>]>>,
    /// TraceEnable.
    pub trace_enable: Option<TraceEnable>,
    /// HttpProtocolOptions.
    pub protocol: HttpProtocol,
    /// MergeSlashes.
    pub merge_slashes: Option<bool>,
    /// MergeTrailers.
    pub merge_trailers: Option<bool>,
    /// StrictHostCheck.
    pub strict_host_check: Option<bool>,
    /// Protocols.
    pub protocols: Option<Arc<[Box<str>]>>,
    /// ProtocolsHonorOrder.
    pub protocols_honor_order: Option<bool>,
    /// LogLevel for all modules.
    pub log_level: LogLevels,
}

/// The sections of a server, in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    /// Sections by file path.
    pub directories: Vec<Arc<Section>>,
    /// Sections by URL path.
    pub locations: Vec<Arc<Section>>,
}

unsaid!(Conduct);
unsaid!(Sections);

impl Server {
    /// Whether a notice of that module and level is written: by the LogLevel of a section, or
    /// without one by that of the server.
    #[must_use]
    pub fn is_logged(&self, section: Option<&LogLevels>, module: &str, level: Level) -> bool {
        self.lets_pass(section.unwrap_or(&self.conduct.log_level), module, level)
    }

    /// Whether these levels let a notice pass. Level `notice` is written to files and programs
    /// whatever LogLevel says, but not to syslog (log.c: log_error_core).
    fn lets_pass(&self, levels: &LogLevels, module: &str, level: Level) -> bool {
        let is_syslog = || self.error_log.as_ref().is_some_and(|log| names_syslog(&log.0));
        level <= levels.of(module) || level == Level::Notice && !is_syslog()
    }
}

/// Whether the argument of ErrorLog is `syslog`, with or without a facility.
fn names_syslog(argument: &str) -> bool {
    let word = argument.split(':').next().unwrap_or_default();
    word.eq_ignore_ascii_case("syslog")
}

/// Whether a notice of that module and level is written for a request of this server and section
/// (log.c: the section's LogLevel stands for the server's).
#[must_use]
pub fn is_logged(core: CoreSettings<'_>, module: &str, level: Level) -> bool {
    let said = &core.directory.log_level;
    core.server.is_logged((!said.is_empty()).then_some(said), module, level)
}

impl Merge for LogLevels {
    fn merge(base: &Self, over: &Self) -> Self {
        // A level for all modules puts an end to the outer section's exceptions, as in Apache
        // (core.c: set_loglevel resets the module levels).
        if over.all.is_some() {
            return over.clone();
        }
        let mut modules = base.modules.clone();
        modules.extend(over.modules.iter().cloned());
        Self { all: base.all, modules }
    }
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        // Every field is named, so that a new one is not forgotten.
        macro_rules! with {
            ($($field:ident),+ $(,)?) => {
                Self {
                    aliases: over.aliases.clone(),
                    $($field: Merge::merge(&base.$field, &over.$field),)+
                }
            };
        }
        with!(name, scheme, port, admin, document_root, error_log, conduct, sections)
    }
}

impl Merge for Conduct {
    fn merge(base: &Self, over: &Self) -> Self {
        let formats = if over.error_log_formats.is_empty() { base } else { over };
        macro_rules! with {
            ($($field:ident),+ $(,)?) => {
                Self {
                    error_log_formats: formats.error_log_formats.clone(),
                    $($field: Merge::merge(&base.$field, &over.$field),)+
                }
            };
        }
        with!(
            timeout_us,
            keep_alive,
            keep_alive_timeout_us,
            max_keep_alive_requests,
            flush_max_threshold,
            flush_max_pipelined,
            limit_request_line,
            limit_request_field_size,
            limit_request_fields,
            limit_redirects,
            limit_looks,
            access_file_names,
            trace_enable,
            protocol,
            merge_slashes,
            merge_trailers,
            strict_host_check,
            protocols,
            protocols_honor_order,
            log_level,
        )
    }
}

impl Merge for Sections {
    fn merge(base: &Self, over: &Self) -> Self {
        Self {
            directories: [base.directories.as_slice(), &over.directories].concat(),
            locations: [base.locations.as_slice(), &over.locations].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn level_notice_is_written_to_files_and_programs_whatever_log_level_says() {
        let server = |text: &str| apply(crate::core::MODULE, text).unwrap().server.core;
        for (log, is_written) in [
            ("", true),
            ("ErrorLog logs/error_log\n", true),
            ("ErrorLog |/bin/cat\n", true),
            ("ErrorLog syslogs\n", true),
            ("ErrorLog syslog\n", false),
            ("ErrorLog SYSLOG:local1\n", false),
        ] {
            let server = server(&format!("{log}LogLevel error"));
            let passing = |level: &Level| server.is_logged(None, "php", *level);
            let all: Vec<Level> = Level::ALL.into_iter().filter(passing).collect();
            let mut expected = Level::ALL[..4].to_vec();
            expected.extend(is_written.then_some(Level::Notice));
            assert_eq!(all, expected, "{log}");
        }
        assert!(server("ErrorLog syslog\nLogLevel info").is_logged(None, "php", Level::Notice));
    }
}
