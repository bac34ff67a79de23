//! Serves in a child: gives each serving thread a pipeline, a recorder and a cache of files over
//! the shared site. This is where `mpm` (which socket is served), `conn` (the connection) and
//! `pipeline` (the request) are connected; none of them knows another.

use crate::applications;
use crate::launcher::Launcher;
use crate::server::Running;
use crate::settings::{self, OfServers};
use crate::tls::Doors;
use evenkeel_conn::{ConnectionSite, Connections, Done, Settings, SlowBytes, Workplace};
use evenkeel_files::{Files, Limits, Policy};
use evenkeel_logging::{ErrorLogs, KeepAliveTold, LoggedExchange, Origin, Recorder};
use evenkeel_message::{Level, LogLevels, Notice, Peer, Request, Served, Status, Told, quoted};
use evenkeel_modules::ServerState;
use evenkeel_modules::compression::Presses;
use evenkeel_modules::core::public_name;
use evenkeel_modules::lab;
use evenkeel_monitor::{Application, Facts, Snapshot, View};
use evenkeel_mpm::service::{Service, ServiceContext};
use evenkeel_mpm::{Child, Model, event, prefork, worker};
use evenkeel_pipeline::{PhpPools, Pipeline, Server, Site};
use evenkeel_proto::{
    BodyFraming, KnownHost, Persistence, Refusal, address, bad_path, expectation, raw_path,
    recognise_method,
};
use evenkeel_scoreboard::{Counter, Credit, Scoreboard};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::inotify::user_instances;
use evenkeel_sys::process;
use evenkeel_sys::socket::Socket;
use evenkeel_tls::Door;
use std::borrow::Cow;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// The maximum number of requests that all threads together send to an application at a time. The
/// listen queue of a pool of PHP has room for more, so that connect(2) does not fail with EAGAIN.
const MOST_QUEUED: usize = 3072;

/// Serves a site in a child until the parent ends it. Returns the exit status of the process.
pub fn serve(running: &Running, child: Child) -> i32 {
    let Some((access, errors)) = running.logs() else { return 1 };
    lab::init_child(&running.site.global.lab);
    running.site.begin_child(child.index);
    let settings = Arc::new(OfServers::new(&running.site));
    let ports: Arc<[SocketAddr]> = child.listeners.iter().map(|l| l.address).collect();
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let (line, slots, site) = (child.line, child.slots, Arc::clone(&running.site));
    let tls = Arc::clone(&running.tls);
    let writers: Vec<_> = (0..child.buffers.count()).map(|b| child.buffers.writer(b)).collect();
    let writers = Mutex::new(writers);
    let log = Arc::clone(&errors);
    let served = running.pools().map(|pool| Arc::new(applications::Served::of(pool, child.index)));
    let pools: Vec<_> = served.collect();
    let php = (!pools.is_empty()).then(|| {
        Arc::new(PhpPools {
            pools: pools.iter().map(|pool| Arc::clone(pool) as Arc<_>).collect(),
            of_servers: running.pools_of_servers().into(),
        })
    });
    let status: Arc<dyn ServerState> = Arc::new(State {
        board: child.board,
        facts: settings::facts(&running.site, child.settings.configured.model),
        pools,
    });
    let model = child.settings.configured.model;
    let caching = Caching::of(model, &child.limits, child.rank);
    let presses = Presses::new(child.credits.min(MOST_PRESSES));
    let slow_bytes = SlowBytes::new(SlowBytes::USUAL);
    let handshakes = SlowBytes::new(SlowBytes::USUAL);
    // In the other models a thread has one connection, and nothing else to do meanwhile.
    let long_steps = (model == Model::Event)
        .then(|| Arc::new(BlockingPool::with_nice(process::usable_cores(), NICE_OF_LONG_STEPS)));
    // The threads of event share the credits of the child; a thread of another model has one.
    let places = match model {
        Model::Event => {
            let threads = event::threads_of(&child.limits);
            let all = child.limits.max_request_workers.saturating_mul(3) / 4;
            let share = MOST_QUEUED / (child.limits.most_children() * threads).max(1);
            (child.credits / threads, all.min(share))
        }
        Model::Worker | Model::Prefork => (1, 1),
    };
    let launcher = running.launcher().map(Launcher::orders);
    let make = move |context: ServiceContext| {
        let safe = writers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .get_mut(context.thread)
            .and_then(Option::take);
        // Each thread has its own cache; together they may hold as much as one cache otherwise may.
        let limits = Limits::default().shared_by(caching.caches);
        let (files, notice) = Files::new(limits, caching.policy(context.thread));
        if let Some(notice) = notice {
            errors.write_plain(&notice);
        }
        let told = (Arc::clone(&site), Arc::clone(&errors));
        let pipeline = Pipeline::new(
            Arc::clone(&site),
            files,
            Some(Arc::clone(&status)),
            Arc::clone(&context.blocking_pool),
            Arc::clone(&presses),
            places,
            Box::new(move |request| tell_all(&told.0, &told.1, request)),
        );
        pipeline.count_forms_in(line.cell(Counter::CompressedFormBytes));
        if let Some(socket) = &launcher {
            pipeline.use_launcher(Arc::clone(socket));
        }
        if let Some(pools) = &php {
            pipeline.use_php(Arc::clone(pools));
        }
        let thread_site = ThreadSite {
            pipeline,
            settings: Arc::clone(&settings),
            recorder: RefCell::new(Recorder::new(Arc::clone(&access), Arc::clone(&errors), safe)),
            errors: Arc::clone(&errors),
            doors: Doors::new(Arc::clone(&site), Arc::clone(&tls)),
            known_host: KnownHost::default(),
        };
        let place = Workplace {
            gate: Arc::clone(&context.gate),
            bulkhead: Arc::clone(context.blocking_pool.bulkhead()),
            slots: Some(context.worker.as_ref().and_then(|worker| worker.slot).unwrap_or(slots)),
            permits: context.worker.as_ref().and_then(|worker| worker.permits.clone()),
            client_wait: context.worker.map(|worker| worker.client_wait),
            line,
            ports: Arc::clone(&ports),
            addresses: Arc::clone(&addresses),
            slow_bytes: Arc::clone(&slow_bytes),
            handshakes: Arc::clone(&handshakes),
            long_steps: long_steps.clone(),
        };
        Adapter(Connections::new(thread_site, place))
    };
    let served = match model {
        Model::Event => event::serve(child, make),
        Model::Worker => worker::serve(child, make),
        Model::Prefork => prefork::serve(child, make),
    };
    match served {
        Ok(()) => 0,
        Err(error) => {
            let limit = process::descriptor_limit(&error);
            let text = format!("the child cannot serve: {error}{limit}");
            log.write_plain(&Notice::own(model.module(), Level::Crit, text));
            1
        }
    }
}

/// How the threads of a child cache files.
struct Caching {
    /// The number of caches among which the limits of one cache are divided.
    caches: usize,
    /// The policy of the first threads.
    policy: Policy,
    /// The number of these threads. The others call lstat(2) for each request.
    told: usize,
}

impl Caching {
    /// Event has a thread for each core, and each thread gets an inotify instance. Worker and
    /// prefork may have more threads and processes than the kernel grants instances to a user.
    /// There, the children with the lowest ranks get an instance for each thread: under a low load,
    /// they are the only children.
    fn of(model: Model, limits: &evenkeel_mpm::Limits, rank: usize) -> Self {
        let cores = evenkeel_sys::process::usable_cores();
        let (caches, policy, threads) = match model {
            Model::Event => return Self { caches: cores, policy: Policy::Told, told: usize::MAX },
            Model::Worker => {
                (limits.threads_per_child, Policy::ToldIfPossible, limits.threads_per_child)
            }
            Model::Prefork => (limits.most_children().min(MOST_CACHES), Policy::ToldIfPossible, 1),
        };
        let descriptors = process::most_descriptors();
        let told = told_threads(user_instances(), descriptors, rank, threads);
        Self { caches, policy, told }
    }

    fn policy(&self, thread: usize) -> Policy {
        if thread < self.told { self.policy } else { Policy::PerRequest }
    }
}

/// The number of threads of a child that get an inotify instance. `granted` is the kernel's limit
/// of instances for the user, `descriptors` the limit of open files of a process. All children of a
/// configuration together use at most half of the instances, because the children of two
/// configurations serve during a reload. A child with few descriptors keeps them for connections.
fn told_threads(granted: usize, descriptors: u64, rank: usize, threads: usize) -> usize {
    let all = (granted / 2).min(MOST_INSTANCES);
    let taken = (threads as u64).saturating_mul(4).saturating_add(SPARE_DESCRIPTORS);
    let left = usize::try_from(descriptors.saturating_sub(taken)).unwrap_or(usize::MAX);
    all.saturating_sub(rank.saturating_mul(threads)).min(threads).min(left)
}

/// The number of descriptors that a child needs besides four for each thread: for its listeners,
/// its logs and the files that it serves.
const SPARE_DESCRIPTORS: u64 = 64;

/// The maximum number of inotify instances of all children of worker or prefork. An instance
/// receives the events of the folders that its thread serves from. While the thread is idle, the
/// kernel queues up to fs.inotify.max_queued_events of them.
const MOST_INSTANCES: usize = 64;

/// The bounds of one cache are divided among no more than this many, because smaller caches would
/// be useless for a site of a few hundred files.
const MOST_CACHES: usize = 64;

/// What is added to the nice value of the threads that sign with long RSA keys. Where no core idles
/// they get a third of the time that the serving threads get (sched(7)), so that a flood of new
/// clients delays those that are served, and does not stop them.
const NICE_OF_LONG_STEPS: i32 = 5;

/// The most bodies that a child compresses at a time, each with about 300 KiB. A budget of credits
/// that adjusts itself may be far larger.
const MOST_PRESSES: usize = 256;

/// If there are more pools, those that were never asked are not on the status page.
const MOST_IDLE_POOLS: usize = 16;

/// The state of the server for the status page.
struct State {
    board: Scoreboard,
    facts: Facts,
    /// The pools that run PHP.
    pools: Vec<Arc<applications::Served>>,
}

impl ServerState for State {
    fn snapshot(&self, view: View) -> Snapshot {
        let mut snapshot =
            evenkeel_monitor::collect(&self.board, &self.facts, view, clock::realtime_us());
        let figures = self.pools.iter().map(|pool| pool.figures(self.facts.extended));
        // A host of many users has many pools, of which few are in use.
        let is_shown = |pool: &Application| self.pools.len() <= MOST_IDLE_POOLS || pool.asked > 0;
        snapshot.applications = figures.filter(is_shown).collect();
        snapshot.pool = snapshot.pool.map(|pool| pool.limited_by(&snapshot.applications));
        snapshot
    }
}

/// Adapts the connections of a thread to the process model.
struct Adapter(Connections<ThreadSite>);

impl Service for Adapter {
    fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        credit: &mut Option<Credit>,
        requests_left: &mut u32,
    ) -> Outcome {
        self.0.serve(socket, event, credit, requests_left)
    }

    fn shed(&mut self, socket: Socket, event: ReadyEvent, requests_left: &mut u32) -> Outcome {
        self.0.shed(socket, event, requests_left)
    }

    fn expire(&mut self, socket: Socket, reason: ParkReason, state: ParkedState, late: bool) {
        self.0.expire(socket, reason, state, late);
    }

    fn retire(&mut self, retiring: bool) {
        self.0.retire(retiring);
    }

    fn is_short_of_room(&self) -> bool {
        self.0.is_short_of_room()
    }

    fn set_contended(&mut self, contended: bool) {
        self.0.set_contended(contended);
    }

    fn tick(&mut self) {
        self.0.tick();
    }

    fn awaits_tick(&self) -> bool {
        self.0.awaits_tick()
    }

    fn may_begin(&self) -> bool {
        self.0.may_begin()
    }

    fn notify(&mut self, notice: Notice) {
        self.0.site().errors.write_plain(&notice);
    }
}

/// The site as seen by one serving thread.
struct ThreadSite {
    pipeline: Rc<Pipeline>,
    settings: Arc<OfServers>,
    recorder: RefCell<Recorder>,
    errors: Arc<ErrorLogs>,
    doors: Doors,
    known_host: KnownHost,
}

impl ThreadSite {
    fn site(&self) -> &Site {
        &self.pipeline.site
    }

    /// StrictHostCheck: refuses a host that is not a name of any virtual host of the address.
    fn check_host(&self, server: usize, local: SocketAddr, host: &[u8]) -> Result<(), Refusal> {
        let server = self.site().server(server);
        let strict = server.settings.core.conduct.strict_host_check == Some(true);
        if !strict || host.is_empty() || self.site().hosts.knows(local, host) {
            return Ok(());
        }
        let place = server.position.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "Requested hostname '{}' did not match any ServerName/ServerAlias in the matching \
             virtual host (default vhost for current connection is {place})",
            quoted(host)
        );
        Err(Refusal::new(Status::BAD_REQUEST, Level::Warn, 10157, text))
    }
}

/// Writes the notices of a request to the error log of its host and removes them from it.
fn tell_all(site: &Site, errors: &ErrorLogs, request: &mut Request) {
    if request.notices.is_empty() {
        return;
    }
    let mut notices = std::mem::take(&mut request.notices);
    let mut told = request.told;
    let server = site.server(request.server);
    let name = used_name(request, server);
    let levels = request.log_levels.as_deref();
    let origin = Origin {
        server_name: server.name().as_bytes(),
        used_name: &name,
        ..Origin::of_request(request)
    };
    for notice in notices.iter().filter(|notice| is_worth_a_line(server, levels, notice)) {
        errors.write(request.server, notice, &origin, &mut told);
    }
    drop(name);
    request.told = told;
    notices.clear();
    request.notices = notices;
}

/// The name under which the server answers a request.
fn used_name<'a>(request: &'a Request, server: &'a Server) -> Cow<'a, [u8]> {
    match &request.used_name {
        Some(name) => Cow::Borrowed(name),
        None => public_name(request, server.core(&server.defaults)),
    }
}

/// Whether LogLevel lets a notice pass, either that of its section or that of the host.
fn is_worth_a_line(server: &Server, section: Option<&LogLevels>, notice: &Notice) -> bool {
    notice.passed || server.settings.core.is_logged(section, notice.module, notice.level)
}

impl ConnectionSite for ThreadSite {
    fn server_of(&self, local: SocketAddr) -> usize {
        self.site().hosts.server(local, b"", b"")
    }

    fn awaits_proxy_header(&self, local: SocketAddr, client: IpAddr) -> bool {
        self.site().proxy_protocol.is_wanted(local, client)
    }

    fn door(&self, local: SocketAddr) -> Option<Arc<dyn Door>> {
        self.doors.of(local)
    }

    fn settings(&self, server: usize) -> &Settings {
        self.settings.of(server)
    }

    fn name(&self, server: usize) -> &[u8] {
        self.site().server(server).name().as_bytes()
    }

    fn address(&self, request: &mut Request) -> Result<(), Refusal> {
        let options = &self.settings(request.server).options;
        recognise_method(request.head.receive(), &self.site().global.core.methods, options)?;
        let addressed = address(request, options, &self.known_host);
        let Request { head, peer, server, host, resource, has_bad_path, .. } = request;
        let raw = raw_path(head);
        // A refusal that keeps the host is sent by the virtual host of that name.
        if addressed.is_ok() || !host.is_empty() {
            *server = self.site().hosts.server(peer.local, host, raw);
        }
        addressed?;
        self.check_host(*server, peer.local, host)?;
        expectation(head, true)?;
        let options = self.site().server(*server).uri_options();
        let read = resource.path.read(raw, options);
        *has_bad_path = read.is_err();
        read.map_err(|reason| bad_path(reason, head.target()))
    }

    fn serve(&self, request: Box<Request>) -> Served {
        self.pipeline.serve(request)
    }

    fn refuse(&self, request: Box<Request>, status: Status) -> Served {
        self.pipeline.refuse(request, status)
    }

    fn record(&self, done: &Done<'_>) {
        let server = self.site().server(done.request.server);
        let name = used_name(done.request, server);
        let names = done.request.names.as_deref();
        let remote_host = names.and_then(|names| names.client.as_deref());
        self.recorder.borrow_mut().record(&LoggedExchange {
            request: done.request,
            response: done.response,
            transfer: done.transfer,
            server_name: server.name().as_bytes(),
            used_name: &name,
            server_port: server
                .settings
                .core
                .port
                .filter(|port| *port != 0)
                .unwrap_or(done.request.default_port()),
            remote_host: remote_host.map(str::as_bytes),
            content_length: match done.framing {
                BodyFraming::Exact(length) => Some(length),
                _ => None,
            },
            keep_alive: done.keep_alive,
            keep_alive_told: match done.persistence {
                Persistence::KeepTold { timeout_s, max } => Some(KeepAliveTold { timeout_s, max }),
                Persistence::Keep | Persistence::Close => None,
            },
            chunked: done.framing == BodyFraming::Chunked,
            track_first_byte: server.settings.log_config.track_first_byte == Some(true),
        });
    }

    fn tell_all(&self, request: &mut Request) {
        tell_all(self.site(), &self.errors, request);
    }

    fn tell(&self, notice: &Notice, peer: &Peer) -> bool {
        let index = self.server_of(peer.local);
        let server = self.site().server(index);
        if !is_worth_a_line(server, None, notice) {
            return false;
        }
        let origin = Origin {
            server_name: server.name().as_bytes(),
            used_name: server.name().as_bytes(),
            ..Origin::of_connection(peer)
        };
        self.errors.write(index, notice, &origin, &mut Told::default());
        true
    }

    fn may_begin(&self) -> bool {
        !self.recorder.borrow().is_blocked()
    }

    fn tick(&self) {
        self.recorder.borrow_mut().flush(clock::realtime_us());
        for notice in self.pipeline.tick() {
            self.errors.write_plain(&notice);
        }
        self.errors.retry();
    }

    fn awaits_tick(&self) -> bool {
        let logs = self.recorder.borrow().is_waiting() || self.errors.is_waiting();
        logs || self.pipeline.awaits_tick()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_children_share_half_of_the_inotify_instances_of_the_user() {
        let told = |granted, threads| {
            [0, 1, 2, 3, 63, 64, usize::MAX].map(|rank| told_threads(granted, 1024, rank, threads))
        };
        assert_eq!(told(128, 25), [25, 25, 14, 0, 0, 0, 0]);
        assert_eq!(told(128, 1), [1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(told(8_192, 64), [64, 0, 0, 0, 0, 0, 0]);
        assert_eq!(told(5, 1), [1, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_process_with_few_descriptors_keeps_them_for_connections() {
        let told = [600, 1064, 1074, 4096].map(|most| told_threads(128, most, 0, 250));
        assert_eq!(told, [0, 0, 10, 64]);
    }
}
