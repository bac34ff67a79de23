//! The destination of a log, from the argument of CustomLog or ErrorLog: a file, a program or the
//! system's log. It also checks whether the folder of a file exists. Nothing is opened here.

use evenkeel_message::{Level, Notice};
use std::io;
use std::path::{Path, PathBuf};

/// The destination of the lines of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Appended to a file.
    File(PathBuf),
    /// The standard input of a program.
    Program(Program),
    /// Syslog (only for ErrorLog).
    Syslog {
        /// The name of the facility; `local7` if none is given.
        facility: Option<String>,
        /// The tag of the lines.
        tag: Option<String>,
    },
}

/// A program that reads log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The command as it was written, without the bars.
    pub command: String,
    /// Whether a shell runs it (`|$`).
    pub shell: bool,
}

impl Target {
    /// The destination of a CustomLog or TransferLog: `|program`, `||program`, `|$command for a
    /// shell`, or a file relative to `server_root`.
    #[must_use]
    pub fn of_access_log(argument: &str, server_root: &Path) -> Target {
        match argument.strip_prefix('|') {
            Some(rest) => {
                let (command, shell) = match rest.strip_prefix('$') {
                    Some(command) => (command, true),
                    None => (rest.strip_prefix('|').unwrap_or(rest), false),
                };
                Target::Program(Program { command: command.trim_start().into(), shell })
            }
            None => Target::File(server_root.join(argument)),
        }
    }

    /// The destination of an ErrorLog: as for an access log, or `syslog[:[facility][:tag]]`.
    #[must_use]
    pub fn of_error_log(argument: &str, server_root: &Path) -> Target {
        let syslog = argument
            .get(..6)
            .filter(|word| word.eq_ignore_ascii_case("syslog"))
            .and_then(|_| argument.get(6..))
            .filter(|rest| rest.is_empty() || rest.starts_with(':'));
        let Some(rest) = syslog else {
            return Target::of_access_log(argument, server_root);
        };
        let mut parts = rest.split(':').skip(1);
        let mut part = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
        Target::Syslog { facility: part(), tag: part() }
    }

    /// Checks whether the folder of an access log exists, as `-t` does (mod_log_config.c:
    /// check_log_dir). `defined_at` is the file and line of the directive.
    pub fn check_access_log(&self, defined_at: &str) -> Result<(), Notice> {
        let Some((folder, error)) = self.missing_folder() else { return Ok(()) };
        let path = self.describe();
        let text = format!(
            "Cannot access directory '{folder}' for log file '{path}' defined at {defined_at}"
        );
        Err(Notice::new("log_config", Level::Emerg, 2297, text).because(&error))
    }

    /// Checks whether the folder of an error log exists (core.c: check_errorlog_dir). `defined_at`
    /// is the place of the virtual host; none for the main server.
    pub fn check_error_log(&self, defined_at: Option<&str>) -> Result<(), Notice> {
        let Some((folder, error)) = self.missing_folder() else { return Ok(()) };
        let whose = match defined_at {
            None => "main error log".to_owned(),
            Some(place) => format!("error log of vhost defined at {place}"),
        };
        let text = format!("Cannot access directory '{folder}' for {whose}");
        Err(Notice::new("core", Level::Emerg, 2291, text).because(&error))
    }

    /// The file's path, or the command, or `syslog`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Target::File(path) => path.display().to_string(),
            Target::Program(program) => program.command.clone(),
            Target::Syslog { .. } => "syslog".to_owned(),
        }
    }

    fn missing_folder(&self) -> Option<(String, io::Error)> {
        let Target::File(path) = self else { return None };
        let folder = path.parent()?;
        let problem = match folder.metadata() {
            Ok(found) if found.is_dir() => return None,
            Ok(_) => io::Error::from_raw_os_error(NOT_A_DIRECTORY),
            Err(error) => error,
        };
        Some((format!("{}/", folder.display().to_string().trim_end_matches('/')), problem))
    }
}

/// ENOTDIR of errno.h.
const NOT_A_DIRECTORY: i32 = 20;

impl Program {
    /// The words of the command line: a shell with the command, or the command split at white
    /// space, with quotation marks and backslashes (apr_tokenize_to_argv).
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        if self.shell {
            return vec!["/bin/sh".into(), "-c".into(), self.command.clone()];
        }
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote = None;
        let mut rest = self.command.chars();
        while let Some(c) = rest.next() {
            match (c, quote) {
                ('\\', _) => word.get_or_insert_default().extend(rest.next()),
                (c, Some(q)) if c == q => quote = None,
                (c, Some(_)) => word.get_or_insert_default().push(c),
                ('"' | '\'', None) => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (' ' | '\t' | '\n' | '\r', None) => words.extend(word.take()),
                (c, None) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_files_programs_and_syslog() {
        let root = Path::new("/srv");
        let program =
            |command: &str, shell| Target::Program(Program { command: command.into(), shell });
        assert_eq!(Target::of_access_log("logs/a", root), Target::File("/srv/logs/a".into()));
        assert_eq!(Target::of_access_log("/dev/null", root), Target::File("/dev/null".into()));
        assert_eq!(Target::of_access_log("|bin/x a", root), program("bin/x a", false));
        assert_eq!(Target::of_access_log("||/bin/x", root), program("/bin/x", false));
        assert_eq!(Target::of_access_log("|$x | y", root), program("x | y", true));
        let syslog = |facility: Option<&str>, tag: Option<&str>| Target::Syslog {
            facility: facility.map(str::to_owned),
            tag: tag.map(str::to_owned),
        };
        assert_eq!(Target::of_error_log("syslog", root), syslog(None, None));
        assert_eq!(
            Target::of_error_log("Syslog:user:web", root),
            syslog(Some("user"), Some("web"))
        );
        assert_eq!(Target::of_error_log("syslog::web", root), syslog(None, Some("web")));
        assert_eq!(Target::of_error_log("syslogs", root), Target::File("/srv/syslogs".into()));
    }

    #[test]
    fn commands_are_taken_apart_with_quotation_marks() {
        let words = |command: &str, shell| Program { command: command.into(), shell }.words();
        assert_eq!(
            words(r#"/bin/r -l "/a b/%Y" 'x y'z \" "" "#, false),
            ["/bin/r", "-l", "/a b/%Y", "x yz", "\"", ""]
        );
        assert_eq!(words("a | b", true), ["/bin/sh", "-c", "a | b"]);
    }

    #[test]
    fn a_missing_folder_is_told_with_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Target::File(folder.path().join("log")).check_error_log(None).is_ok());
        let missing = Target::File("/nonexistent/logs/error".into());
        let notice = missing.check_access_log("a.conf:3").unwrap_err();
        assert_eq!((notice.number, notice.cause), (Some(2297), Some(2)));
        assert_eq!(
            notice.text,
            "Cannot access directory '/nonexistent/logs/' for log file \
             '/nonexistent/logs/error' defined at a.conf:3"
        );
        let notice = missing.check_error_log(Some("a.conf:9")).unwrap_err();
        assert!(notice.text.ends_with("for error log of vhost defined at a.conf:9"));
    }
}
