//! The settings that the parent and the connections need, derived from those of the site: listening
//! addresses, the user of the children, the numbers of the process model; timeouts and limits.

use evenkeel_conn::{Http2, ReadTime, Settings as ConnectionSettings};
use evenkeel_logging::BUFFER_BYTES;
use evenkeel_message::{Level, Notice};
use evenkeel_modules::core::{ServerTokens, software};
use evenkeel_modules::mpm::MaxRequestWorkers;
use evenkeel_modules::reqtimeout::ReadTimeout;
use evenkeel_modules::{GlobalSettings, model};
use evenkeel_monitor::Facts;
use evenkeel_mpm::{Configured, Listen, Model, Moment, Settings, check_limits};
use evenkeel_pipeline::{Server, Site};
use evenkeel_proto::KeepAlive;
use evenkeel_proto::h2::{DATA_FRAME, EngineSettings};
use evenkeel_sys::identity::{self, Identity};
use std::path::PathBuf;
use std::time::Duration;

/// Users that exist on every Debian system and own next to nothing.
const STAND_INS: [&str; 2] = ["nobody", "www-data"];

/// The settings of the parent.
///
/// # Errors
///
/// What is impossible: an invalid address, no address at all, a user without groups.
pub fn of_parent(
    site: &Site,
    modules: &evenkeel_config::ModuleSet,
    runtime_dir: Option<&str>,
) -> Result<Settings, String> {
    let mpm = &site.global.mpm;
    let configured = configured(&site.global, model(modules));
    let pid_file = mpm.pid_file.as_deref().unwrap_or("logs/httpd.pid");
    let base = runtime_dir.map_or_else(|| site.server_root.clone(), PathBuf::from);
    Ok(Settings {
        listen: addresses(&site.global)?,
        backlog: mpm.listen_backlog.and_then(|backlog| u32::try_from(backlog).ok()),
        send_buffer: mpm.send_buffer_size.and_then(|size| usize::try_from(size).ok()),
        receive_buffer: mpm.receive_buffer_size.and_then(|size| usize::try_from(size).ok()),
        pid_file: Some(base.join(pid_file)),
        identity: children_identity(&site.global)?,
        chroot: site.global.unixd.chroot.as_deref().map(PathBuf::from),
        core_dumps: mpm.core_dump_directory.as_deref().map(PathBuf::from),
        configured,
        threads_per_child: mpm
            .threads_per_child_position
            .as_ref()
            .map(|position| format!("line {} of {}", position.line, position.file)),
        graceful_shutdown_timeout: mpm
            .graceful_shutdown_timeout_s
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
        log_buffers: serving_threads(&configured),
        log_buffer_bytes: BUFFER_BYTES,
        server_text: site.identity.banner.to_string(),
    })
}

/// The most threads that serve in a child. Each has its own log buffer, whose memory is reserved
/// and used only when lines are written.
fn serving_threads(configured: &Configured) -> usize {
    match configured.model {
        Model::Event => evenkeel_sys::process::usable_cores(),
        Model::Worker => {
            let (limits, _) = check_limits(configured, Moment::Start, 1, 1);
            limits.threads_per_child
        }
        Model::Prefork => 1,
    }
}

fn addresses(global: &GlobalSettings) -> Result<Vec<Listen>, String> {
    let mut all = Vec::new();
    for line in &global.mpm.listen {
        let fault = |text: String| {
            let position = &line.position;
            format!("AH00526: Syntax error on line {} of {}:\n{text}", position.line, position.file)
        };
        let parsed = Listen::parse(&line.address, line.protocol.as_deref()).map_err(fault)?;
        let is_known = |one: &Listen| {
            all.iter().any(|known: &Listen| (known.address, known.port) == (one.address, one.port))
        };
        if parsed.iter().any(is_known) {
            // server/listen.c, alloc_listener
            return Err(fault("Cannot define multiple Listeners on the same IP:port".into()));
        }
        for mut listen in parsed {
            let filters = &global.core.accept_filters;
            let filter = filters.iter().find(|(protocol, _)| **protocol == *listen.protocol);
            if filter.is_some_and(|(_, deferred)| !deferred) {
                listen.defer = None;
            }
            let seconds = global.mpm.listen_tcp_defer_accept_s;
            if let (Some(defer), Some(seconds)) = (&mut listen.defer, seconds) {
                *defer = Duration::from_secs(seconds.into());
            }
            all.push(listen);
        }
    }
    Ok(all)
}

/// The user and group of the children; none if root did not start the server.
fn children_identity(global: &GlobalSettings) -> Result<Option<Identity>, String> {
    if !identity::is_root() {
        return Ok(None);
    }
    let Some((uid, name)) = &global.unixd.user else { return Ok(None) };
    let own = identity::user_numbered(*uid).ok().flatten();
    let own_gid = own.map_or(*uid, |user| user.gid);
    identity_of(global, *uid, name, own_gid).map(Some)
}

/// A user with the configured group, or with its own group if none is configured.
fn identity_of(
    global: &GlobalSettings,
    uid: u32,
    name: &str,
    own_gid: u32,
) -> Result<Identity, String> {
    let gid = global.unixd.group.as_ref().map_or(own_gid, |(gid, _)| *gid);
    let groups = identity::groups_of(name, gid).map_err(|error| {
        format!(
            "AH02157: initgroups: unable to set groups for User {name} and Group {gid}: {error}"
        )
    })?;
    Ok(Identity { uid, gid, groups })
}

/// The user that serves, with its name, if root starts one process and there is no User (`-X`,
/// which is for development).
///
/// # Errors
///
/// That user does not exist either.
pub fn stand_in(global: &GlobalSettings) -> Result<(Identity, &'static str), String> {
    let known = |name| Some((identity::user_named(name).ok().flatten()?, name));
    let (user, name) = STAND_INS
        .into_iter()
        .find_map(known)
        .ok_or_else(|| format!("there is no user {}: set User", STAND_INS.join(" or ")))?;
    Ok((identity_of(global, user.uid, name, user.gid)?, name))
}

fn configured(global: &GlobalSettings, model: &str) -> Configured {
    let mpm = &global.mpm;
    Configured {
        model: match model {
            "mpm_prefork_module" => Model::Prefork,
            "mpm_worker_module" => Model::Worker,
            _ => Model::Event,
        },
        start_servers: mpm.start_servers,
        min_spare_servers: mpm.min_spare_servers,
        max_spare_servers: mpm.max_spare_servers,
        min_spare_threads: mpm.min_spare_threads,
        max_spare_threads: mpm.max_spare_threads,
        threads_per_child: mpm.threads_per_child,
        thread_limit: mpm.thread_limit,
        server_limit: mpm.server_limit,
        max_request_workers: match mpm.max_request_workers {
            Some(MaxRequestWorkers::Number(number)) => Some(number),
            Some(MaxRequestWorkers::Auto) | None => None,
        },
        auto: matches!(mpm.max_request_workers, Some(MaxRequestWorkers::Auto)),
        max_clients_spelling: mpm.max_clients_spelling,
        async_request_worker_factor: mpm.async_request_worker_factor,
        max_connections_per_child: mpm.max_connections_per_child,
        overload_shedding_ms: mpm.overload_shedding_ms,
        listen_backlog: mpm.listen_backlog,
        listen_cores_buckets_ratio: mpm.listen_cores_buckets_ratio,
        listen_buckets: mpm.listen_buckets,
    }
}

/// RequestReadTimeout for one stage; none if mod_reqtimeout is not active.
fn read_time(site: &Site, stage: Option<ReadTimeout>) -> Option<ReadTime> {
    let active = site.language.vocabulary.module_loaded("mod_reqtimeout.c");
    let ReadTimeout { timeout_s, most_s, min_rate } = stage.filter(|_| active)?;
    let most_ms = (most_s > 0).then_some(u64::from(most_s) * 1000);
    Some(ReadTime { initial_ms: u64::from(timeout_s) * 1000, most_ms, rate: u64::from(min_rate) })
}

/// The facts about the server on every status page. ExtendedStatus is on if mod_status is active,
/// unless it was turned off (mod_status.c: status_pre_config).
pub fn facts(site: &Site, model: Model) -> Facts {
    Facts {
        version: software(ServerTokens::Full).into(),
        mpm: model.name().to_owned(),
        built: crate::BUILT.to_owned(),
        asynchronous: model == Model::Event,
        extended: site.global.core.extended_status.unwrap_or(true),
    }
}

/// The settings of connections, by server. Servers with equal settings share them, because each
/// child has its own copy for perhaps ten thousand hosts.
pub struct OfServers {
    /// The different settings. Those of the main server come first.
    all: Vec<ConnectionSettings>,
    /// The index of each server's settings in `all`.
    by_server: Vec<u32>,
}

impl OfServers {
    pub fn new(site: &Site) -> Self {
        let (mut all, mut by_server) = (Vec::<ConnectionSettings>::new(), Vec::new());
        for server in &site.servers {
            let own = of_connections(site, server);
            // Hosts that differ from the main server are usually adjacent, so a longer search is
            // not worth it.
            let known = [0, all.len().saturating_sub(1)];
            let known = known.into_iter().find(|place| all.get(*place) == Some(&own));
            by_server.push(known.unwrap_or(all.len()) as u32);
            if known.is_none() {
                all.push(own);
            }
        }
        Self { all, by_server }
    }

    /// The settings of a server; the main server's for one that does not exist.
    #[expect(clippy::indexing_slicing, reason = "a site always has its main server")]
    pub fn of(&self, server: usize) -> &ConnectionSettings {
        let place = self.by_server.get(server).map_or(0, |place| *place as usize);
        self.all.get(place).unwrap_or(&self.all[0])
    }
}

/// How long a TLS handshake may take where RequestReadTimeout does not say, in milliseconds. Apache
/// has no such bound by default.
const HANDSHAKE_MS: u64 = 20_000;

/// Whether the site has HTTP/2: mod_http2 is active, and the process model is not prefork.
pub fn has_http2(site: &Site) -> bool {
    let vocabulary = &site.language.vocabulary;
    vocabulary.module_loaded("mod_http2.c") && !vocabulary.module_loaded("prefork.c")
}

/// The warning that prefork has no HTTP/2 (mod_http2.c: h2_post_config).
pub fn note_without_http2(site: &Site) -> Option<Notice> {
    let vocabulary = &site.language.vocabulary;
    let is_without =
        vocabulary.module_loaded("mod_http2.c") && vocabulary.module_loaded("prefork.c");
    let text = "The mpm module (prefork.c) is not supported by mod_http2: the server works, and \
                HTTP/2 is inactive. event and worker have it.";
    is_without.then(|| Notice::new("http2", Level::Warn, 10034, text))
}

/// Whether Protocols of a server names a protocol.
fn names_protocol(server: &Server, name: &str) -> bool {
    let protocols = server.settings.core.conduct.protocols.as_deref().unwrap_or_default();
    protocols.iter().any(|protocol| protocol.eq_ignore_ascii_case(name))
}

/// The application protocols that a server offers in the handshake of TLS, most wanted first.
pub fn application_protocols(site: &Site, server: &Server) -> Vec<Vec<u8>> {
    let named = server.settings.core.conduct.protocols.as_deref().unwrap_or_default();
    let is_offered = |name: &&str| match *name {
        "h2" => has_http2(site),
        name => name == "http/1.1",
    };
    let names = named.iter().map(|name| name.to_ascii_lowercase());
    let mut offered: Vec<Vec<u8>> =
        names.filter(|name| is_offered(&name.as_str())).map(String::into_bytes).collect();
    if offered.is_empty() {
        offered.push(b"http/1.1".to_vec());
    }
    offered
}

/// The settings of a server for HTTP/2.
fn http2(site: &Site, server: &Server) -> Http2 {
    let said = &server.settings.http2;
    let timeout_ms = u64::try_from(server.timeout().as_millis()).unwrap_or(u64::MAX);
    let stream_timeout_ms = said.stream_timeout_ms.filter(|time| *time > 0).unwrap_or(timeout_ms);
    let defaults = EngineSettings::default();
    let bound = |said: Option<usize>| said.filter(|most| *most > 0).unwrap_or(usize::MAX);
    let engine = EngineSettings {
        max_streams: said.max_streams.unwrap_or(defaults.max_streams),
        window: said.window.unwrap_or(defaults.window),
        max_stream_errors: said.max_stream_errors.unwrap_or(defaults.max_stream_errors),
        data_frame: bound(said.max_data_frame).min(DATA_FRAME),
        header_block: bound(said.max_header_block),
        limits: server.limits(),
        options: server.protocol_options(),
        ..defaults
    };
    let speaks = |protocol| has_http2(site) && names_protocol(server, protocol);
    Http2 {
        is_direct: speaks("h2c") && said.is_direct.unwrap_or(true),
        is_upgradable: speaks("h2c") && said.is_upgradable.unwrap_or(true),
        is_direct_secure: speaks("h2") && said.is_direct.unwrap_or(false),
        stream_timeout_ms,
        engine,
    }
}

/// The settings of a server that concern its connections.
fn of_connections(site: &Site, server: &Server) -> ConnectionSettings {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let requests = server.keep_alive_requests();
    ConnectionSettings {
        keep_alive: KeepAlive {
            on: requests.is_some(),
            timeout_ms: millis(server.keep_alive_timeout()),
            max: requests.filter(|most| *most != u32::MAX).unwrap_or(0),
        },
        timeout_ms: millis(server.timeout()),
        flush_threshold: server.settings.core.conduct.flush_max_threshold.unwrap_or(65_535) as u64,
        handshake_ms: server
            .settings
            .reqtimeout
            .handshake()
            .map_or(HANDSHAKE_MS, |stage| u64::from(stage.timeout_s) * 1000),
        header_time: read_time(site, server.settings.reqtimeout.header()),
        body_time: read_time(site, server.settings.reqtimeout.body()),
        limits: server.limits(),
        options: server.protocol_options(),
        merges_trailers: server.settings.core.conduct.merge_trailers == Some(true),
        http2: http2(site, server),
        server_field: site.identity.banner.as_bytes().into(),
        see_request_tail: site.global.core.see_request_tail,
        shows_requests: site.global.core.extended_status.unwrap_or(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_modules::{Module, mpm};

    #[test]
    fn connections_wait_for_data_as_long_as_is_said_where_they_wait_at_all() {
        let position = evenkeel_config::Position { file: "t".into(), line: 1 };
        let line = evenkeel_modules::mpm::Listen { address: "80".into(), protocol: None, position };
        let mut global = GlobalSettings::default();
        global.mpm.listen.push(line);
        let waits = |global: &GlobalSettings| {
            let all = addresses(global).unwrap();
            all.iter().map(|listen| listen.defer.map(|time| time.as_secs())).collect::<Vec<_>>()
        };
        assert!(waits(&global).iter().all(|wait| *wait == Some(30)));
        global.mpm.listen_tcp_defer_accept_s = Some(3);
        assert!(waits(&global).iter().all(|wait| *wait == Some(3)));
        global.core.accept_filters.push(("http".into(), false));
        assert!(waits(&global).iter().all(Option::is_none));
    }

    #[test]
    fn a_virtual_host_has_bounds_of_its_own() {
        let text = "Listen 127.0.0.1:8099\nFlushMaxThreshold 1000\nTimeout 7\n\
                    <VirtualHost *>\nFlushMaxThreshold 2000\nFlushMaxPipelined 3\n</VirtualHost>\n\
                    <VirtualHost *>\nServerName other\n</VirtualHost>\n";
        let choice = crate::configuration::Choice::of_text(text.into());
        let site = choice.read().ok().unwrap().site;
        let of = |server| of_connections(&site, server);
        let bounds = |server| (of(server).flush_threshold, of(server).timeout_ms);
        let all: Vec<_> = site.servers.iter().map(bounds).collect();
        assert_eq!(all, [(1000, 7000), (2000, 7000), (1000, 7000)]);
        let pipelined = |server: &Server| server.settings.core.conduct.flush_max_pipelined;
        assert_eq!(site.servers.iter().map(pipelined).collect::<Vec<_>>(), [None, Some(3), None]);
    }

    /// The room `mpm` knows no directive and the modules know no limit, so both state the numbers.
    #[test]
    fn declared_defaults_of_the_pool_are_those_that_hold() {
        let declared = |module: Module, name: &str| {
            let mut directives = module.directives.iter().copied().flatten();
            directives.find(|it| it.name == name).unwrap().default
        };
        for (model, module) in [(Model::Event, mpm::MODULE), (Model::Worker, mpm::WORKER)] {
            let configured = Configured { model, ..Configured::default() };
            let (limits, _) = check_limits(&configured, Moment::Start, 2, 4096);
            for (name, held) in [
                ("MinSpareThreads", limits.min_spare),
                ("MaxSpareThreads", limits.max_spare),
                ("ThreadsPerChild", limits.threads_per_child),
                ("ThreadLimit", limits.thread_limit),
            ] {
                assert_eq!(declared(module, name), held.to_string(), "{}: {name}", module.file);
            }
        }
        let configured = Configured { model: Model::Prefork, ..Configured::default() };
        let (limits, _) = check_limits(&configured, Moment::Start, 2, 4096);
        for (name, held) in
            [("MinSpareServers", limits.min_spare), ("MaxSpareServers", limits.max_spare)]
        {
            assert_eq!(declared(mpm::PREFORK, name), held.to_string(), "{name}");
        }
    }
}
