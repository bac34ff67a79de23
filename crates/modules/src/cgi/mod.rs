//! mod_cgi and mod_cgid: programs that answer requests. [`is_wanted`] and [`check`] decide whether
//! a file is run, [`order`] makes the order for the launcher, and [`failed`] the answer to a run
//! that has failed. The pipeline runs the program. Both modules have the same implementation.

pub use crate::NoSettings as Global;

mod log;

pub use log::{Entry, append};

use crate::core::parse_interval;
use crate::core::{AcceptPathInfo, Directory as CoreDirectory, Options};
use crate::script;
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_files::Kind;
use evenkeel_message::{Answer, Level, Notice, Request, Status, Variables, quoted, unquoted};
use evenkeel_proto::script::BadHead;
use evenkeel_sys::spawn::Order;
use evenkeel_upstream::RunFailure;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[rustfmt::skip]
const SCRIPT_LOG: &[Directive] = &[
    directive("ScriptLog", Where::SERVER, Shape::One, "", "the name of a log for script debugging info", script_log).of_bytes(),
    directive("ScriptLogLength", Where::SERVER, Shape::One, "10385760", "the maximum length (in bytes) of the script debug log", script_log_length),
    directive("ScriptLogBuffer", Where::SERVER, Shape::One, "1024", "the maximum size (in bytes) to record of a POST request", script_log_buffer),
];

#[rustfmt::skip]
const OF_CGI: &[Directive] = &[
    directive("CGIScriptTimeout", Where::CONFIG, Shape::One, "Timeout", "The amount of time to wait between successful reads from the CGI script, in seconds.", script_timeout),
];

#[rustfmt::skip]
const OF_CGID: &[Directive] = &[
    directive("ScriptSock", Where::SERVER, Shape::One, "", "the name of the socket to use for communication with the cgi daemon.", script_sock).of_bytes(),
    directive("CGIDScriptTimeout", Where::CONFIG, Shape::One, "Timeout", "The amount of time to wait between successful reads from the CGI script, in seconds.", script_timeout),
];

/// mod_cgi.
pub const MODULE: Module = Module {
    file: "mod_cgi.c",
    identifier: "cgi_module",
    active: Active::WhenNamed,
    page: "mod_cgi",
    subject: "CGI programs. mod_cgi and mod_cgid are the same here, under every process model.",
    remarks: &[
        "A child of its own, the launcher, starts the programs. It is started if mod_cgi or \
         mod_cgid is loaded, and started again when it dies.",
        "ScriptSock is accepted and has no effect: the launcher has no socket in the file system.",
        "A program leads a process group of its own. When its client has gone, or when it is \
         silent for too long, the group gets SIGTERM, and SIGKILL three seconds later. Apache \
         signals the program alone.",
        "What a program writes to its standard error is logged as AH01215 under both modules, at \
         most 1,000 lines for each request.",
        "The response of an `nph-` script has its status line and its fields. The server adds \
         Date and Server where they are missing and frames the body, and the connection is \
         closed. Apache sends the output as it is. A script that frames its body itself \
         (Transfer-Encoding) is answered with 500.",
        "A status that is no number from 100 to 599 is answered with the page of 500. Apache sends \
         500 with the body of the program.",
        "ScriptLog has an entry for a program whose output is malformed. A malformed head stands \
         under %stdout, in Apache under %response. What the program writes to its standard error \
         later is in the error log alone.",
    ],
    directives: &[SCRIPT_LOG, OF_CGI],
    provides: &[],
};

/// mod_cgid.
pub const CGID: Module = Module {
    file: "mod_cgid.c",
    identifier: "cgid_module",
    active: Active::WhenNamed,
    page: "mod_cgi",
    subject: "",
    remarks: &[],
    directives: &[SCRIPT_LOG, OF_CGID],
    provides: &[],
};

/// The handler of programs, and the media type that has the same meaning.
const HANDLERS: [&[u8]; 2] = [b"cgi-script", b"application/x-httpd-cgi"];

/// The most arguments of a program (mod_cgi.c: APACHE_ARG_MAX).
const MOST_ARGUMENTS: usize = 4096;

/// The settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// CGIScriptTimeout and CGIDScriptTimeout, in microseconds; 0 is Timeout.
    timeout_us: Option<u64>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; timeout_us)
    }
}

impl Directory {
    /// The time in which a program must write something, if it is configured.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_us.filter(|time| *time > 0).map(Duration::from_micros)
    }
}

/// The settings of one server. `None` if the server has no directive of ScriptLog.
#[derive(Clone, Debug, Default)]
pub struct Server(Option<Arc<ScriptLog>>);

#[derive(Clone, Debug, Default)]
struct ScriptLog {
    /// ScriptLog.
    path: Option<PathBuf>,
    /// ScriptLogLength, in bytes.
    length: Option<u64>,
    /// ScriptLogBuffer, in bytes.
    buffer: Option<usize>,
}

impl Merge for Server {
    // As merge_cgi_config (mod_cgi.c): a server with a log has its own settings.
    fn merge(base: &Self, over: &Self) -> Self {
        if over.log().is_some() { over.clone() } else { base.clone() }
    }
}

impl Server {
    /// The log of failed programs (ScriptLog).
    #[must_use]
    pub fn log(&self) -> Option<&Path> {
        self.0.as_ref()?.path.as_deref()
    }

    /// The most bytes of the log.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.0.as_ref().and_then(|log| log.length).unwrap_or(10_385_760)
    }

    /// The bytes of a request body that are kept for the log.
    #[must_use]
    pub fn kept_body(&self) -> usize {
        let log = self.0.as_ref().filter(|log| log.path.is_some());
        log.map_or(0, |log| log.buffer.unwrap_or(1024))
    }
}

fn log_of(scope: &mut Scope) -> &mut ScriptLog {
    Arc::make_mut(scope.server.cgi.0.get_or_insert_default())
}

fn script_log(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = unquoted(argument(call, 0));
    let path = scope.server_root.join(OsStr::from_bytes(&path));
    log_of(scope).path = Some(path);
    Ok(())
}

fn script_log_length(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    log_of(scope).length = Some(number(argument(call, 0)));
    Ok(())
}

fn script_log_buffer(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let bytes = usize::try_from(number(argument(call, 0))).unwrap_or(usize::MAX);
    log_of(scope).buffer = Some(bytes.min(1 << 20));
    Ok(())
}

/// Parses a number as atol(3) does.
fn number(text: &str) -> u64 {
    let text = text.trim_start();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn script_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let time = parse_interval(argument(call, 0), 1_000_000)
        .ok_or_else(|| format!("{} has wrong format", call.name))?;
    scope.directory.cgi.timeout_us = Some(time);
    Ok(())
}

fn script_sock(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Ok(())
}

/// Whether the file of a request is a program.
#[must_use]
pub fn is_wanted(request: &Request) -> bool {
    request.resource.content.handler_name().is_some_and(|name| HANDLERS.contains(&name))
}

/// The file of a request whose name says that it writes its own status line.
#[must_use]
pub fn is_nph(request: &Request) -> bool {
    request.resource.file.last().starts_with(b"nph-")
}

/// Checks that the file of a request may be run (mod_cgi.c: `cgi_handler`). `module` is the name of
/// the module for the error log.
///
/// # Errors
/// 403 without ExecCGI and ScriptAlias and for a folder, 404 for a file that is not there and for
/// PATH_INFO that is not accepted.
pub fn check(
    request: &mut Request,
    module: &'static str,
    core: &CoreDirectory,
    kind: Kind,
) -> Result<(), Answer> {
    let forced = request.resource.notes.value("alias-forced-type");
    let is_script_aliased = forced.is_some_and(|name| name == b"cgi-script");
    let rejects_path = core.accept_path_info == Some(AcceptPathInfo::Off);
    let (number, status, text) = match kind {
        _ if !core.options.effective().has(Options::EXEC_CGI) && !is_script_aliased => {
            (2809, Status::FORBIDDEN, "Options ExecCGI is off in this directory")
        }
        _ if request.resource.depth > 0 && is_nph(request) => {
            (2810, Status::FORBIDDEN, "attempt to include NPH CGI script")
        }
        Kind::Absent => (2811, Status::NOT_FOUND, "script not found or unable to stat"),
        Kind::Directory => (2812, Status::FORBIDDEN, "attempt to invoke directory as script"),
        Kind::Denied(_) | Kind::Other => {
            (2812, Status::FORBIDDEN, "attempt to invoke something that is no file as script")
        }
        Kind::File if rejects_path && !request.resource.path_info.is_empty() => {
            (2813, Status::NOT_FOUND, "AcceptPathInfo off disallows user's path")
        }
        Kind::File => return Ok(()),
    };
    let file = quoted(request.resource.file.as_bytes());
    let text = format!("stderr from {file}: {text}");
    request.notify(Notice::new(module, Level::Error, number, text));
    Err(status.into())
}

/// Makes a notice of a line that a program has written to its standard error.
#[must_use]
pub fn complaint(module: &'static str, file: &[u8], line: &[u8]) -> Notice {
    let text = format!("stderr from {}: {}", quoted(file), quoted(line));
    Notice::new(module, Level::Error, 1215, text)
}

/// The notice of a program that was silent for too long.
#[must_use]
pub fn silence(module: &'static str, file: &[u8]) -> Notice {
    let text = format!("Timeout waiting for output from CGI script {}", quoted(file));
    Notice::new(module, Level::Warn, 1220, text)
}

/// Makes the order to run the file of a request.
#[must_use]
pub fn order(request: &Request, variables: &Variables, core: &CoreDirectory) -> Order {
    let file = request.resource.file.as_bytes();
    let folder = file.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut environment = script::environment(variables);
    if let Some(zone) = std::env::var_os("TZ")
        && !variables.contains("TZ")
    {
        environment.push((b"TZ".to_vec(), zone.into_vec()));
    }
    Order {
        program: file.to_vec(),
        arguments: arguments(file, request.resource.query.as_deref()),
        variables: environment,
        folder: file.get(..folder).unwrap_or_default().to_vec(),
        limits: core.process_limits,
        question: None,
        service: None,
    }
}

/// Makes the order to run a command of a page by the shell (mod_include: `exec cmd`).
#[must_use]
pub fn shell_order(
    request: &Request,
    variables: &Variables,
    core: &CoreDirectory,
    command: &[u8],
) -> Order {
    const SHELL: &[u8] = b"/bin/sh";
    let arguments = vec![SHELL.to_vec(), b"-c".to_vec(), script::before_nul(command)];
    Order { program: SHELL.to_vec(), arguments, ..order(request, variables, core) }
}

/// Escapes what a shell would read in a value of a page (util.c: `ap_escape_shell_cmd`).
#[must_use]
pub fn escape_for_shell(value: &[u8]) -> Vec<u8> {
    escaped(value)
}

/// The arguments of a program: its name, and the words of a query without `=` (mod_cgi.c:
/// `default_build_command`). No shell reads them; the backslashes are Apache's.
fn arguments(file: &[u8], query: Option<&[u8]>) -> Vec<Vec<u8>> {
    let query = query.filter(|query| !query.is_empty() && !query.contains(&b'='));
    let words = query.into_iter().flat_map(|query| query.split(|byte| *byte == b'+'));
    let mut arguments = vec![script::before_nul(file)];
    arguments.extend(words.take(MOST_ARGUMENTS - 2).map(|word| escaped(&unescaped(word))));
    arguments
}

/// Decodes percent-encoding (util.c: `ap_unescape_url`).
fn unescaped(word: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(word.len()), word);
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if let (b'%', [high, low, after @ ..]) = (first, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            out.push((high << 4) | low);
            rest = after;
            continue;
        }
        out.push(*first);
    }
    script::before_nul(&out)
}

/// Puts a backslash before the bytes that mean something to a shell (util.c:
/// `ap_escape_shell_cmd`).
fn escaped(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    for byte in word {
        if b"&;`'\"|*?~<>^()[]{}$\\\n".contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

/// Logs why a run has failed, and returns the status for the client. `Body` is answered by the
/// pipeline.
pub fn failed(request: &mut Request, module: &'static str, failure: &RunFailure) -> Status {
    let file = request.resource.file.as_bytes().to_vec();
    let (file, name) = (&*file, file.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
    let error = |text: String| Notice::own(module, Level::Error, text);
    let (notice, status) = match failure {
        RunFailure::Unstarted(cause) => {
            let text = format!("couldn't spawn child process: {}", quoted(file));
            let notice = Notice::new(module, Level::Error, 1223, text).because(cause);
            (notice, Status::INTERNAL_SERVER_ERROR)
        }
        RunFailure::Body(_) => {
            let text = "Error reading request entity data".to_owned();
            (Notice::new(module, Level::Error, 1225, text), Status::BAD_REQUEST)
        }
        RunFailure::Silent => {
            let notice = silence(module, file);
            let text = format!("Script timed out before returning headers: {}", quoted(name));
            let second = error(text);
            request.notify(notice);
            (second, Status::GATEWAY_TIMEOUT)
        }
        RunFailure::Head(BadHead::Nothing) => {
            let text = format!("End of script output before headers: {}", quoted(name));
            (error(text), Status::INTERNAL_SERVER_ERROR)
        }
        RunFailure::Head(BadHead::Premature) => {
            let text = format!("Premature end of script headers: {}", quoted(name));
            (error(text), Status::INTERNAL_SERVER_ERROR)
        }
        RunFailure::Head(BadHead::NoColon(line)) => {
            let line = line.get(..line.len().min(30)).unwrap_or_default();
            let text = format!(
                "malformed header from script '{}': Bad header: {}",
                quoted(name),
                quoted(line)
            );
            (error(text), Status::INTERNAL_SERVER_ERROR)
        }
        RunFailure::LargeHead => {
            let text = format!("the head of the output of {} is too large", quoted(file));
            (error(text), Status::INTERNAL_SERVER_ERROR)
        }
        RunFailure::ClientGone => {
            let text = format!("{}: the client has disconnected", quoted(file));
            (Notice::own(module, Level::Debug, text), Status::SERVICE_UNAVAILABLE)
        }
    };
    request.notify(notice);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    fn words(query: &str) -> Vec<String> {
        let arguments = arguments(b"/cgi/x", Some(query.as_bytes()));
        let text = |word: &Vec<u8>| String::from_utf8(word.clone()).unwrap();
        arguments.iter().skip(1).map(text).collect()
    }

    #[test]
    fn a_query_without_an_equals_sign_is_the_arguments() {
        assert_eq!(words("one+two%20three++"), ["one", "two three", "", ""]);
        assert_eq!(words("a%3bb'+%zz+%00x"), ["a\\;b\\'", "%zz", ""]);
        assert!(words("a=b+c").is_empty() && words("").is_empty());
        assert_eq!(words(&"+".repeat(10_000)).len(), MOST_ARGUMENTS - 2);
    }

    #[test]
    fn the_directives_are_read_as_apache_reads_them() {
        let text = "ScriptLog logs/cgi.log\nScriptLogLength 12x\nScriptLogBuffer 5";
        let scope = apply(MODULE, text).unwrap();
        let settings = &scope.server.cgi;
        assert_eq!(settings.log(), Some(Path::new("/etc/base/logs/cgi.log")));
        assert_eq!((settings.length(), settings.kept_body()), (12, 5));
        let of = |line: &str| apply(MODULE, line).map(|scope| scope.directory.cgi.timeout());
        assert_eq!(of("CGIScriptTimeout 20").unwrap(), Some(Duration::from_secs(20)));
        assert_eq!(of("CGIScriptTimeout 0").unwrap(), None);
        assert_eq!(of("CGIScriptTimeout x").unwrap_err(), "CGIScriptTimeout has wrong format");
        // A host whose log has only a length takes the whole log of its base.
        let server = |text: &str| apply(MODULE, text).unwrap().server.cgi;
        let base = server("ScriptLogLength 5");
        assert_eq!(Server::merge(&base, &server("ScriptLogLength 7")).length(), 5);
        assert_eq!(Server::merge(&base, &server("ScriptLog l\nScriptLogLength 7")).length(), 7);
    }
}
