//! The directives of mod_fcgid.

use super::settings::{Limits, OfServer, Wrapper, set_pair};
use crate::command_words::command_words;
use crate::{Directive, DirectiveResult, Scope, Where, argument, directive, global_directive};
use evenkeel_config::{Call, GlobalCall, Shape};
use std::path::Path;
use std::sync::Arc;

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    directive("FcgidAccessChecker", Where::FILE_INFO, Shape::One, "", "a absolute access checker file path", refused),
    directive("FcgidAccessCheckerAuthoritative", Where::FILE_INFO, Shape::Flag, "On", "Set to 'off' to allow access control to be passed along to lower modules upon failure", refused),
    directive("FcgidAuthenticator", Where::FILE_INFO, Shape::One, "", "a absolute authenticator file path", refused),
    directive("FcgidAuthenticatorAuthoritative", Where::FILE_INFO, Shape::Flag, "On", "Set to 'off' to allow authentication to be passed along to lower modules upon failure", refused),
    directive("FcgidAuthorizer", Where::FILE_INFO, Shape::One, "", "a absolute authorizer file path", refused),
    directive("FcgidAuthorizerAuthoritative", Where::FILE_INFO, Shape::Flag, "On", "Set to 'off' to allow authorization to be passed along to lower modules upon failure", refused),
    directive("FcgidBusyScanInterval", Where::SERVER, Shape::One, "120", "scan interval for busy timeout process", ignored),
    directive("FcgidBusyTimeout", Where::SERVER, Shape::One, "300", "a fastcgi application will be killed after handling a request for BusyTimeout", busy_timeout),
    directive("FcgidCmdOptions", Where::SERVER, Shape::Argv, "", "set processing options for a FastCGI command", cmd_options),
    directive("FcgidInitialEnv", Where::SERVER, Shape::OneOrTwo, "", "an environment variable name and optional value to pass to FastCGI.", initial_env),
    directive("FcgidMaxProcessesPerClass", Where::SERVER, Shape::One, "100", "Max process count of one class of fastcgi application", most_processes_of_class),
    directive("FcgidMinProcessesPerClass", Where::SERVER, Shape::One, "3", "Min process count of one class of fastcgi application", least_processes),
    directive("FcgidErrorScanInterval", Where::SERVER, Shape::One, "3", "scan interval for exited process", ignored),
    directive("FcgidIdleScanInterval", Where::SERVER, Shape::One, "120", "scan interval for idle timeout process", ignored),
    directive("FcgidIdleTimeout", Where::SERVER, Shape::One, "300", "an idle fastcgi application will be killed after IdleTimeout", idle_timeout),
    directive("FcgidIOTimeout", Where::SERVER, Shape::One, "40", "Communication timeout to fastcgi server", io_timeout),
    directive("FcgidConnectTimeout", Where::SERVER, Shape::One, "3", "Connect timeout to fastcgi server", connect_timeout),
    global_directive("FcgidMaxProcesses", Shape::One, "1000", "Max total process count", most_processes),
    directive("FcgidMaxRequestInMem", Where::SERVER, Shape::One, "65536", "The part of HTTP request which greater than this limit will swap to disk", ignored),
    directive("FcgidMaxRequestLen", Where::SERVER, Shape::One, "131072", "Max HTTP request length in byte", most_body),
    directive("FcgidMaxRequestsPerProcess", Where::SERVER, Shape::One, "0", "Max requests handled by each fastcgi application", most_requests),
    directive("FcgidOutputBufferSize", Where::SERVER, Shape::One, "65536", "CGI output buffer size", ignored),
    directive("FcgidPassHeader", Where::SERVER, Shape::One, "", "Header name which will be passed to FastCGI as environment variable.", pass_header),
    directive("FcgidFixPathinfo", Where::SERVER, Shape::One, "0", "Set 1, if cgi.fix_pathinfo=1 in php.ini", ignored),
    directive("FcgidProcessLifeTime", Where::SERVER, Shape::One, "3600", "fastcgi application lifetime", life_time),
    directive("FcgidProcessTableFile", Where::SERVER, Shape::One, "", "fastcgi shared memory file path", ignored),
    directive("FcgidIPCDir", Where::SERVER, Shape::One, "", "fastcgi socket file path", ignored),
    directive("FcgidSpawnScore", Where::SERVER, Shape::One, "1", "Score of spawn", ignored),
    directive("FcgidSpawnScoreUpLimit", Where::SERVER, Shape::One, "10", "Spawn score up limit", ignored),
    directive("FcgidTerminationScore", Where::SERVER, Shape::One, "2", "Score of termination", ignored),
    directive("FcgidTimeScore", Where::SERVER, Shape::One, "1", "Score of passage of time (in seconds)", ignored),
    directive("FcgidWrapper", Where::FILE_INFO, Shape::OneTwoOrThree, "", "The CGI wrapper file an optional URL suffix and an optional flag", wrapper),
    directive("FcgidZombieScanInterval", Where::SERVER, Shape::One, "3", "scan interval for zombie process", ignored),
];

/// The names of versions before 2.3.
#[rustfmt::skip]
pub(super) const OLD: &[Directive] = &[
    directive("BusyTimeout", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidBusyTimeout' instead", busy_timeout),
    directive("BusyScanInterval", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidBusyScanInterval' instead", ignored),
    directive("DefaultInitEnv", Where::SERVER, Shape::OneOrTwo, "", "Deprecated - Use 'FcgidInitialEnv' instead", initial_env),
    directive("DefaultMaxClassProcessCount", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidMaxProcessesPerClass' instead", most_processes_of_class),
    directive("DefaultMinClassProcessCount", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidMinProcessesPerClass' instead", least_processes),
    directive("ErrorScanInterval", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidErrorScanInterval' instead", ignored),
    directive("FCGIWrapper", Where::FILE_INFO, Shape::OneTwoOrThree, "", "Deprecated - Use 'FcgidWrapper' instead", wrapper),
    directive("IdleScanInterval", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidIdleScanInterval' instead", ignored),
    directive("IdleTimeout", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidIdleTimeout' instead", idle_timeout),
    directive("IPCCommTimeout", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidIOTimeout' instead", io_timeout),
    directive("IPCConnectTimeout", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidConnectTimeout' instead", connect_timeout),
    global_directive("MaxProcessCount", Shape::One, "", "Deprecated - Use 'FcgidMaxProcesses' instead", most_processes),
    directive("MaxRequestInMem", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidMaxRequestInMem' instead", ignored),
    directive("MaxRequestLen", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidMaxRequestLen' instead", most_body),
    directive("MaxRequestsPerProcess", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidMaxRequestsPerProcess' instead", most_requests),
    directive("OutputBufferSize", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidOutputBufferSize' instead", ignored),
    directive("PassHeader", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidPassHeader' instead", pass_header),
    directive("PHP_Fix_Pathinfo_Enable", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidFixPathinfo' instead", ignored),
    directive("ProcessLifeTime", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidProcessLifeTime' instead", life_time),
    directive("SharememPath", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidProcessTableFile' instead", ignored),
    directive("SocketPath", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidIPCDir' instead", ignored),
    directive("SpawnScore", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidSpawnScore' instead", ignored),
    directive("SpawnScoreUpLimit", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidSpawnScoreUpLimit' instead", ignored),
    directive("TerminationScore", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidTerminationScore' instead", ignored),
    directive("TimeScore", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidTimeScore' instead", ignored),
    directive("ZombieScanInterval", Where::SERVER, Shape::One, "", "Deprecated - Use 'FcgidZombieScanInterval' instead", ignored),
];

/// The longest command line (fcgid_global.h: FCGID_CMDLINE_MAX).
const MOST_COMMAND: usize = 512;

fn ignored(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Ok(())
}

fn refused(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    Err(format!(
        "{} is not there: FastCGI programs answer requests here, and do not decide on access",
        call.name
    ))
}

fn own(scope: &mut Scope) -> &mut OfServer {
    Arc::make_mut(scope.server.fcgid.0.get_or_insert_default())
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{name} {text}: a number from 0 on is meant"))
}

fn only(call: &Call<'_>) -> Result<u64, String> {
    number(call.name, argument(call, 0))
}

fn busy_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).busy_timeout_s = Some(only(call)?);
    Ok(())
}

fn idle_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).idle_timeout_s = Some(only(call)?);
    Ok(())
}

fn io_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).io_timeout_s = Some(at_least_one(call)?);
    Ok(())
}

fn connect_timeout(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).connect_timeout_s = Some(at_least_one(call)?);
    Ok(())
}

fn life_time(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).life_time_s = Some(only(call)?);
    Ok(())
}

fn at_least_one(call: &Call<'_>) -> Result<u64, String> {
    match only(call)? {
        0 => Err(format!("{} 0: a number from 1 on is meant", call.name)),
        number => Ok(number),
    }
}

fn most_processes(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let count = number("FcgidMaxProcesses", argument(call, 0))?;
    if count == 0 {
        return Err("FcgidMaxProcesses 0: a number from 1 on is meant".to_owned());
    }
    scope.global_mut(call).fcgid.most_processes = Some(count);
    Ok(())
}

fn most_processes_of_class(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).most_processes = Some(at_least_one(call)?);
    Ok(())
}

fn least_processes(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).least_processes = Some(only(call)?);
    Ok(())
}

/// `-1` is any number too (fcgid_conf.c: `set_max_requests_per_process`).
fn most_requests(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let count = if argument(call, 0) == "-1" { 0 } else { only(call)? };
    own(scope).most_requests = Some(count);
    Ok(())
}

fn most_body(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).most_body = Some(only(call)?);
    Ok(())
}

/// Without a value, that of the server's environment.
fn initial_env(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let pair = pair_of(argument(call, 0), call.words.get(1).map(|word| &**word));
    set_pair(&mut own(scope).initial_env, pair);
    Ok(())
}

fn pair_of(name: &str, value: Option<&str>) -> (Vec<u8>, Vec<u8>) {
    let value = value.map(str::to_owned).or_else(|| std::env::var(name).ok());
    (name.as_bytes().to_vec(), value.unwrap_or_default().into_bytes())
}

fn pass_header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    own(scope).passed_fields.push(argument(call, 0).into());
    Ok(())
}

fn missing(what: &str, path: &str) -> Option<String> {
    let error = std::fs::metadata(path).err()?;
    Some(match error.raw_os_error() {
        Some(2) => format!("{what} {path} cannot be accessed: (2)No such file or directory"),
        _ => format!("{what} {path} cannot be accessed: {error}"),
    })
}

fn wrapper(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut suffix = call.words.get(1).map(|word| &**word);
    let mut flag = call.words.get(2).map(|word| &**word);
    if flag.is_none() && suffix.is_some_and(|word| word.eq_ignore_ascii_case("virtual")) {
        flag = suffix.take();
    }
    if flag.is_some_and(|word| !word.eq_ignore_ascii_case("virtual")) {
        return Err("Invalid wrapper flag".to_owned());
    }
    let is_suffix =
        |word: &str| word.len() > 1 && word.starts_with('.') && !word.contains(['/', '\\']);
    if suffix.is_some_and(|word| !is_suffix(word)) {
        return Err("Invalid wrapper file extension".to_owned());
    }
    let line = argument(call, 0);
    let words = command_words(line);
    let path = words.first().cloned().unwrap_or_default();
    if path.is_empty() {
        return Err("Invalid wrapper config".to_owned());
    }
    if let Some(text) = missing("Wrapper", &path) {
        return Err(text);
    }
    if line.len() >= MOST_COMMAND {
        return Err("Command line length exceeds compiled-in limit".to_owned());
    }
    let command = words.into_iter().map(String::into_bytes).collect();
    let wrapper = Wrapper { command, is_virtual: flag.is_some() };
    let all = Arc::make_mut(scope.directory.fcgid.0.get_or_insert_default());
    let suffix = suffix.unwrap_or_default();
    all.retain(|(known, _)| **known != *suffix);
    all.push((suffix.into(), wrapper));
    Ok(())
}

/// `FcgidCmdOptions path name value ...` (fcgid_conf.c: `set_cmd_options`).
fn cmd_options(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut words = call.words.iter().map(|word| &**word);
    let path = words.next().ok_or("No command given for FcgidCmdOptions")?;
    if !Path::new(path).is_absolute() || std::fs::metadata(path).is_err() {
        return Err(missing("Command", path).unwrap_or_else(|| format!("Command {path}: no path")));
    }
    let mut limits = Limits::default();
    let mut has_some = false;
    while let Some(name) = words.next() {
        has_some = true;
        let value = words.next().ok_or_else(|| format!("{name} requires an argument"))?;
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("InitialEnv") {
            let (name, value) = match value.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (value, None),
            };
            set_pair(&mut limits.initial_env, pair_of(name, value));
            continue;
        }
        let field = match name {
            _ if is("ConnectTimeout") => &mut limits.connect_timeout_s,
            _ if is("IdleTimeout") => &mut limits.idle_timeout_s,
            _ if is("IOTimeout") => &mut limits.io_timeout_s,
            _ if is("MaxProcesses") => &mut limits.most_processes,
            _ if is("MaxProcessLifetime") => &mut limits.life_time_s,
            _ if is("MaxRequestsPerProcess") => &mut limits.most_requests,
            _ if is("MinProcesses") => &mut limits.least_processes,
            _ => return Err(format!("Invalid option for FcgidCmdOptions: {name}")),
        };
        *field = number(name, value)?;
    }
    if !has_some {
        return Err("At least one option must be specified for FcgidCmdOptions".to_owned());
    }
    let commands = &mut own(scope).commands;
    commands.retain(|(known, _)| known != path.as_bytes());
    commands.push((path.as_bytes().to_vec(), limits));
    Ok(())
}
