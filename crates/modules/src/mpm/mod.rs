//! The directives of the process models (mpm_common.c, event.c, worker.c, prefork.c): recorded as
//! written, since what they come to depends on all of them together; the room `mpm` checks that.

pub use crate::{NoSettings as Directory, NoSettings as Server};

use crate::{Active, Directive, DirectiveResult, Module, Scope, argument, global_directive};
use evenkeel_config::{Call, GlobalCall, Position, Shape};

/// One Listen line.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Address and port, as written.
    pub address: Box<str>,
    /// The protocol, where one is named.
    pub protocol: Option<Box<str>>,
    /// Where it stands.
    pub position: Position,
}

/// What MaxRequestWorkers says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxRequestWorkers {
    /// A number.
    Number(i64),
    /// `auto`, which is ours: the server finds the number.
    Auto,
}

/// The directives as written.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Global {
    pub listen: Vec<Listen>,
    pub listen_backlog: Option<i64>,
    pub listen_tcp_defer_accept_s: Option<u32>,
    pub listen_cores_buckets_ratio: Option<i64>,
    pub listen_buckets: Option<i64>,
    pub pid_file: Option<Box<str>>,
    pub score_board_file: Option<Box<str>>,
    pub start_servers: Option<i64>,
    pub min_spare_servers: Option<i64>,
    pub max_spare_servers: Option<i64>,
    pub min_spare_threads: Option<i64>,
    pub max_spare_threads: Option<i64>,
    pub threads_per_child: Option<i64>,
    /// Where the line stands that says so.
    pub threads_per_child_position: Option<Position>,
    pub thread_limit: Option<i64>,
    pub server_limit: Option<i64>,
    pub max_request_workers: Option<MaxRequestWorkers>,
    /// Whether it was spelled MaxClients.
    pub max_clients_spelling: bool,
    pub async_request_worker_factor: Option<f64>,
    pub overload_shedding_ms: Option<u32>,
    pub max_connections_per_child: Option<i64>,
    pub max_mem_free_kib: Option<i64>,
    pub thread_stack_size: Option<i64>,
    pub send_buffer_size: Option<i64>,
    pub receive_buffer_size: Option<i64>,
    pub graceful_shutdown_timeout_s: Option<i64>,
    pub core_dump_directory: Option<Box<str>>,
}

/// What all process models share (mpm_common.h: LISTEN_COMMANDS and its kin).
#[rustfmt::skip]
const COMMON: &[Directive] = &[
    global_directive("Listen", Shape::Argv, "", "A port number or a numeric IP address and a port number, and an optional protocol", listen),
    global_directive("ListenBacklog", Shape::One, "", "Maximum length of the queue of pending connections, as used by listen(2)", listen_backlog),
    global_directive("ListenTCPDeferAccept", Shape::One, "30", "Value set for the socket option TCP_DEFER_ACCEPT if it is set", listen_tcp_defer_accept),
    global_directive("ListenCoresBucketsRatio", Shape::One, "0", "Ratio between the number of CPU cores (online) and the number of listeners buckets", listen_cores_buckets_ratio),
    global_directive("ListenBuckets", Shape::One, "1", "Number of listeners buckets, whatever the number of cores", listen_buckets),
    global_directive("PidFile", Shape::One, "logs/httpd.pid", "A file for logging the server process ID", pid_file),
    global_directive("ScoreBoardFile", Shape::One, "", "A file for Apache to maintain runtime process management information", score_board_file),
    global_directive("MaxRequestsPerChild", Shape::One, "0", "Maximum number of connections a particular child serves before dying. (DEPRECATED, use MaxConnectionsPerChild)", max_connections_per_child),
    global_directive("MaxConnectionsPerChild", Shape::One, "0", "Maximum number of connections a particular child serves before dying.", max_connections_per_child),
    global_directive("CoreDumpDirectory", Shape::One, "", "The location of the directory Apache changes to before dumping core", core_dump_directory),
    global_directive("MaxMemFree", Shape::One, "2048", "Maximum number of 1k blocks a particular child's allocator may hold.", max_mem_free),
    global_directive("ThreadStackSize", Shape::One, "", "Size in bytes of stack used by threads handling client connections", thread_stack_size),
    global_directive("EnableExceptionHook", Shape::One, "Off", "Controls whether exception hook may be called after a crash", enable_exception_hook),
    global_directive("GracefulShutdownTimeout", Shape::One, "0", "Maximum time in seconds to wait for child processes to complete transactions during shutdown", graceful_shutdown_timeout),
    global_directive("SendBufferSize", Shape::One, "0", "Send buffer size in bytes", send_buffer_size),
    global_directive("ReceiveBufferSize", Shape::One, "0", "Receive buffer size in bytes", receive_buffer_size),
    global_directive("StartServers", Shape::One, "", "Number of child processes launched at server startup", start_servers),
    global_directive("ServerLimit", Shape::One, "", "Maximum number of child processes for this run of Apache", server_limit),
    global_directive("MaxClients", Shape::One, "", "Deprecated name of MaxRequestWorkers", max_clients),
    global_directive("MaxRequestWorkers", Shape::One, "auto", "Maximum number of requests worked on at the same time, or auto", max_request_workers),
];

#[rustfmt::skip]
const THREADED: &[Directive] = &[
    global_directive("MinSpareThreads", Shape::One, "75", "Minimum number of idle threads, to handle request spikes", min_spare_threads),
    global_directive("MaxSpareThreads", Shape::One, "250", "Maximum number of idle threads", max_spare_threads),
    global_directive("ThreadsPerChild", Shape::One, "25", "Number of threads each child creates", threads_per_child),
    global_directive("ThreadLimit", Shape::One, "64", "Maximum number of worker threads per child process for this run of Apache - Upper limit for ThreadsPerChild", thread_limit),
];

#[rustfmt::skip]
const EVENT: &[Directive] = &[
    global_directive("AsyncRequestWorkerFactor", Shape::One, "2", "How many additional connects will be accepted per idle worker thread", async_request_worker_factor),
    global_directive("OverloadShedding", Shape::One, "Off", "Milliseconds beyond which a standing line of requests before the workers is shed with 503, or Off", overload_shedding),
];

#[rustfmt::skip]
const PREFORK_DIRECTIVES: &[Directive] = &[
    global_directive("MinSpareServers", Shape::One, "5", "Minimum number of idle children, to handle request spikes", min_spare_servers),
    global_directive("MaxSpareServers", Shape::One, "10", "Maximum number of idle children", max_spare_servers),
];

/// The process model event, which holds where none is named.
pub const MODULE: Module = Module {
    file: "event.c",
    identifier: "mpm_event_module",
    active: Active::Usually,
    page: "mpm",
    subject: "The process models event, worker and prefork: addresses, processes, threads. One of \
              them is active, event where none is named.",
    remarks: &[],
    directives: &[COMMON, THREADED, EVENT],
    provides: &[],
};

/// The process model worker.
pub const WORKER: Module = Module {
    file: "worker.c",
    identifier: "mpm_worker_module",
    active: Active::WhenNamed,
    page: "mpm",
    subject: "",
    remarks: &[],
    directives: &[COMMON, THREADED],
    provides: &[],
};

/// The process model prefork.
pub const PREFORK: Module = Module {
    file: "prefork.c",
    identifier: "mpm_prefork_module",
    active: Active::WhenNamed,
    page: "mpm",
    subject: "",
    remarks: &[],
    directives: &[COMMON, PREFORK_DIRECTIVES],
    provides: &[],
};

fn listen(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    if !(1..=2).contains(&call.words.len()) {
        return Err("Listen requires 1 or 2 arguments.".into());
    }
    let protocol = call.second().map(Into::into);
    let listen = Listen { address: call.first().into(), protocol, position: call.position.clone() };
    scope.global_mut(call).mpm.listen.push(listen);
    Ok(())
}

/// The first argument as a whole number; `atoi`'s zero for anything else is not copied.
fn number(call: &Call<'_>) -> Result<Option<i64>, String> {
    let text = argument(call, 0);
    let number = text.parse().map_err(|_| format!("{} \"{text}\" must be a number", call.name))?;
    Ok(Some(number))
}

macro_rules! numbers {
    ($($name:ident = $field:ident),+ $(,)?) => {
        $(fn $name(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
            scope.global_mut(call).mpm.$field = number(call)?;
            Ok(())
        })+
    };
}

numbers! {
    start_servers = start_servers,
    min_spare_servers = min_spare_servers,
    max_spare_servers = max_spare_servers,
    min_spare_threads = min_spare_threads,
    max_spare_threads = max_spare_threads,
    thread_limit = thread_limit,
    server_limit = server_limit,
    max_connections_per_child = max_connections_per_child,
}

fn threads_per_child(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).mpm.threads_per_child = number(call)?;
    scope.global_mut(call).mpm.threads_per_child_position = Some(call.position.clone());
    Ok(())
}

fn listen_backlog(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let backlog = number(call)?;
    if backlog.is_some_and(|backlog| backlog <= 0) {
        return Err("ListenBacklog must be > 0".into());
    }
    scope.global_mut(call).mpm.listen_backlog = backlog;
    Ok(())
}

/// The seconds for which a connection without data may wait for its turn to be accepted, where
/// AcceptFilter has it wait at all (listen.c: ap_set_listendeferaccept).
fn listen_tcp_defer_accept(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let seconds = argument(call, 0).parse().ok().filter(|seconds| *seconds > 0);
    let seconds = seconds.ok_or("ListenTCPDeferAccept must be > 0")?;
    scope.global_mut(call).mpm.listen_tcp_defer_accept_s = Some(seconds);
    Ok(())
}

fn listen_cores_buckets_ratio(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let ratio = number(call)?;
    if ratio.is_some_and(|ratio| ratio <= 0) {
        return Err("ListenCoresBucketsRatio must be > 0".into());
    }
    scope.global_mut(call).mpm.listen_cores_buckets_ratio = ratio;
    Ok(())
}

/// Ours: the number that ListenCoresBucketsRatio makes of the cores.
fn listen_buckets(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let count = number(call)?;
    if count.is_some_and(|count| count <= 0) {
        return Err("ListenBuckets must be > 0".into());
    }
    scope.global_mut(call).mpm.listen_buckets = count;
    Ok(())
}

/// Ours: `Off`, or the time that requests may wait for a worker where they wait for long.
fn overload_shedding(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    if text.eq_ignore_ascii_case("off") {
        scope.global_mut(call).mpm.overload_shedding_ms = None;
        return Ok(());
    }
    let most = 60_000;
    let time = text.parse().ok().filter(|ms| (1..=most).contains(ms));
    let time = time.ok_or_else(|| {
        format!("OverloadShedding \"{text}\" must be Off or milliseconds, 1 to {most}")
    })?;
    scope.global_mut(call).mpm.overload_shedding_ms = Some(time);
    Ok(())
}

fn pid_file(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).mpm.pid_file = Some(argument(call, 0).into());
    Ok(())
}

fn score_board_file(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).mpm.score_board_file = Some(argument(call, 0).into());
    Ok(())
}

fn core_dump_directory(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let path = scope.server_path(argument(call, 0));
    if !path.is_dir() {
        return Err(format!(
            "CoreDumpDirectory {} does not exist or is not a directory",
            path.display()
        ));
    }
    scope.global_mut(call).mpm.core_dump_directory = Some(path.to_string_lossy().into());
    Ok(())
}

fn max_mem_free(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let size = number(call).map_err(|_| "Invalid MaxMemFree value: must be a number".to_owned())?;
    scope.global_mut(call).mpm.max_mem_free_kib = size;
    Ok(())
}

fn thread_stack_size(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let size = number(call)?;
    if size.is_some_and(|size| size < 0) {
        return Err(format!("Invalid ThreadStackSize value: {}", argument(call, 0)));
    }
    scope.global_mut(call).mpm.thread_stack_size = size;
    Ok(())
}

fn enable_exception_hook(_: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    match argument(call, 0) {
        word if word.eq_ignore_ascii_case("on") || word.eq_ignore_ascii_case("off") => Ok(()),
        _ => Err("parameter must be 'on' or 'off'".into()),
    }
}

fn graceful_shutdown_timeout(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let seconds = number(call)?;
    if seconds.is_some_and(|seconds| seconds < 0) {
        return Err("GracefulShutdownTimeout must be a number of seconds".into());
    }
    scope.global_mut(call).mpm.graceful_shutdown_timeout_s = seconds;
    Ok(())
}

/// A size of a socket's buffer: 0 leaves it to the system, else at least 512 bytes.
fn buffer_size(call: &Call<'_>) -> Result<Option<i64>, String> {
    let size = number(call)?;
    if size.is_some_and(|size| size != 0 && size < 512) {
        return Err(format!("{} must be >= 512 bytes, or 0 for system default.", call.name));
    }
    Ok(size)
}

fn send_buffer_size(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).mpm.send_buffer_size = buffer_size(call)?;
    Ok(())
}

fn receive_buffer_size(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).mpm.receive_buffer_size = buffer_size(call)?;
    Ok(())
}

fn max_clients(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    scope.global_mut(call).mpm.max_clients_spelling = true;
    max_request_workers(scope, call)
}

fn max_request_workers(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let auto = argument(call, 0).eq_ignore_ascii_case("auto");
    scope.global_mut(call).mpm.max_request_workers = if auto {
        Some(MaxRequestWorkers::Auto)
    } else {
        number(call)?.map(MaxRequestWorkers::Number)
    };
    Ok(())
}

fn async_request_worker_factor(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let factor: f64 = argument(call, 0)
        .parse()
        .ok()
        .filter(|factor: &f64| factor.is_finite())
        .ok_or("error parsing value")?;
    if factor <= 0.0 {
        return Err("AsyncRequestWorkerFactor argument must be a positive number".into());
    }
    scope.global_mut(call).mpm.async_request_worker_factor = Some(factor);
    Ok(())
}
