//! mod_fcgid: FastCGI programs that the launcher starts and keeps. [`is_wanted`] and [`check`]
//! decide whether a file is a program, [`order`] asks the launcher for a connection to one of its
//! processes, and [`variables`] makes the parameters of a request. The pipeline asks the process.

mod directives;
mod settings;

pub use settings::{Directory, Global, Limits, Server, Wrapper};

use crate::core::{AcceptPathInfo, Directory as CoreDirectory, Options};
use crate::{Active, Module};
use evenkeel_files::Kind;
use evenkeel_message::{Answer, Level, Notice, Request, Status, Variables, quoted};
use evenkeel_sys::spawn::{Order, Service};
use std::os::unix::ffi::OsStringExt;

/// mod_fcgid.
pub const MODULE: Module = Module {
    file: "mod_fcgid.c",
    identifier: "fcgid_module",
    active: Active::WhenNamed,
    page: "mod_fcgid",
    subject: "FastCGI programs that the server starts, for the handler `fcgid-script`: php-cgi, \
              Perl with FCGI.pm, and any other. The launcher, which starts CGI programs too, keeps \
              their processes and lends one to each request.",
    remarks: &[
        "Requests that find no idle process wait in the order in which they came, for as long as \
         Timeout. Then they are answered with 503. Apache asks again each second, at most eight \
         times.",
        "A new process is started when a request waits and the class has fewer than \
         FcgidMaxProcessesPerClass. FcgidSpawnScore and its kin, the intervals of scans, \
         FcgidIPCDir, FcgidProcessTableFile, FcgidOutputBufferSize, FcgidFixPathinfo and \
         FcgidMaxRequestInMem are accepted and have no effect.",
        "The processes of a program are those of one virtual host and one configuration: after a \
         reload new ones are started, and the old ones end after their requests.",
        "A process whose client leaves, or which takes longer than FcgidBusyTimeout, gets SIGTERM \
         and three seconds later SIGKILL, with its process group.",
        "A status that is no number from 100 to 599 is answered with the page of 500. The field \
         Server does not name mod_fcgid.",
        "Programs do not run as the user of SuexecUserGroup: a host with both is answered with 500.",
        "FcgidAccessChecker, FcgidAuthenticator and FcgidAuthorizer are refused.",
    ],
    directives: &[directives::DIRECTIVES, directives::OLD],
    provides: &[],
};

/// The handler of programs.
const HANDLER: &[u8] = b"fcgid-script";

/// PATH, where the server's environment has none (httpd.h: `DEFAULT_PATH`).
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Fields of the request that are no variables, because they are for the next server alone.
const HOP_BY_HOP: [&str; 5] =
    ["HTTP_KEEP_ALIVE", "HTTP_TE", "HTTP_TRAILER", "HTTP_TRANSFER_ENCODING", "HTTP_UPGRADE"];

/// Whether the file of a request is a program.
#[must_use]
pub fn is_wanted(request: &Request) -> bool {
    request.resource.content.handler_name() == Some(HANDLER)
}

/// Checks that the file of a request may be run (mod_fcgid.c: `fcgid_handler`).
///
/// # Errors
/// 403 without ExecCGI and ScriptAlias and for a folder, 404 for a file that is not there and for
/// PATH_INFO that is not accepted.
pub fn check(
    request: &mut Request,
    core: &CoreDirectory,
    kind: Kind,
    wrapper: Option<&Wrapper>,
) -> Result<(), Answer> {
    let forced = request.resource.notes.value("alias-forced-type");
    let is_script_aliased = forced.is_some_and(|name| name == b"cgi-script");
    let rejects_path = core.accept_path_info == Some(AcceptPathInfo::Off);
    let is_virtual = wrapper.is_some_and(|wrapper| wrapper.is_virtual);
    let (status, text) = match kind {
        _ if !core.options.effective().has(Options::EXEC_CGI) && !is_script_aliased => {
            (Status::FORBIDDEN, "Options ExecCGI is off in this directory")
        }
        _ if rejects_path && !request.resource.path_info.is_empty() => {
            (Status::NOT_FOUND, "AcceptPathInfo off disallows user's path")
        }
        _ if is_virtual => return Ok(()),
        Kind::Absent => (Status::NOT_FOUND, "script not found or unable to stat"),
        Kind::Directory => (Status::FORBIDDEN, "attempt to invoke directory as script"),
        Kind::Denied(_) | Kind::Other => {
            (Status::FORBIDDEN, "attempt to invoke something that is no file as script")
        }
        Kind::File => return Ok(()),
    };
    let text = format!("{}: {text}", quoted(request.resource.file.as_bytes()));
    request.notify(Notice::own("fcgid", Level::Error, text));
    Err(status.into())
}

/// The order for a connection to a process of the program that answers a request.
#[must_use]
pub fn order(
    request: &Request,
    server: &Server,
    global: &Global,
    wrapper: Option<&Wrapper>,
    patience_ms: u64,
) -> Order {
    let file = request.resource.file.as_bytes();
    let arguments = match wrapper {
        Some(wrapper) => wrapper.command.clone(),
        None => vec![file.to_vec()],
    };
    let program = arguments.first().cloned().unwrap_or_default();
    let limits = server.limits(&program);
    let folder = program.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut class = request.server.to_le_bytes().to_vec();
    for argument in &arguments {
        class.extend_from_slice(argument);
        class.push(0);
    }
    let millis = |seconds: u64| seconds.saturating_mul(1000);
    let service = Service {
        class,
        most: limits.most_processes,
        most_of_all: global.most_processes(),
        least: limits.least_processes,
        most_requests: limits.most_requests,
        idle_ms: millis(limits.idle_timeout_s),
        life_ms: millis(limits.life_time_s),
        busy_ms: millis(server.busy_timeout_s()).max(1),
        patience_ms,
    };
    Order {
        folder: program.get(..folder).unwrap_or_default().to_vec(),
        program,
        arguments,
        variables: environment(&limits),
        limits: [None; 3],
        question: None,
        service: Some(service),
    }
}

/// The environment of a process: FcgidInitialEnv, and the search paths of the server (mod_fcgid.c:
/// `init_process_env`).
fn environment(limits: &Limits) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = limits.initial_env.clone();
    for (name, default) in [("PATH", Some(DEFAULT_PATH)), ("LD_LIBRARY_PATH", None)] {
        if all.iter().any(|(known, _)| known == name.as_bytes()) {
            continue;
        }
        let value = std::env::var_os(name).map(OsStringExt::into_vec);
        let value = value.or_else(|| default.map(|text| text.as_bytes().to_vec()));
        all.extend(value.map(|value| (name.as_bytes().to_vec(), value)));
    }
    all
}

/// Changes the variables of a CGI program into those of a FastCGI program.
pub fn fix_variables(request: &Request, server: &Server, variables: &mut Variables) {
    for name in server.passed_fields() {
        if let Some(value) = request.fields().first(&**name) {
            let value = value.to_vec();
            // Names of variables have no other characters (util_script.c: ap_create_environment).
            let is_plain = |char: char| char.is_ascii_alphanumeric();
            let plain: String =
                name.chars().map(|it| if is_plain(it) { it } else { '_' }).collect();
            variables.set(plain, value.clone());
            variables.set(variable_of(name), value);
        }
    }
    HOP_BY_HOP.iter().for_each(|name| variables.unset(name.as_bytes()));
    variables.set("HTTP_CONNECTION", "close");
    if let Some(zone) = std::env::var_os("TZ")
        && !variables.contains("TZ")
    {
        variables.set("TZ", zone.into_vec());
    }
}

/// The name of the variable of a field (util_script.c: `http2env`).
fn variable_of(name: &str) -> String {
    match name {
        _ if name.eq_ignore_ascii_case("Content-Type") => "CONTENT_TYPE".to_owned(),
        _ if name.eq_ignore_ascii_case("Content-Length") => "CONTENT_LENGTH".to_owned(),
        _ => {
            let upper = name.bytes().map(|byte| match byte.to_ascii_uppercase() {
                byte if byte.is_ascii_alphanumeric() => char::from(byte),
                _ => '_',
            });
            "HTTP_".chars().chain(upper).collect()
        }
    }
}

#[cfg(test)]
mod tests;
