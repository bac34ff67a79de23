//! Pools of application processes: finds the program that runs PHP, opens a pool for a site that
//! needs one, and gives it to the serving threads. A reload keeps the pool and renews it.

use evenkeel_config::ModuleSet;
use evenkeel_message::{Address, Notice};
use evenkeel_modules::php::PoolUser;
use evenkeel_mpm::Settings;
use evenkeel_mpm::apps::{Application, Bounds, Pool, Pools};
use evenkeel_pipeline::{ApplicationPool, Begun, Site};
use evenkeel_scoreboard::{ApplicationLine, Figure, Room};
use evenkeel_sys::channel::wait_readable;
use evenkeel_sys::claims::Claims;
use evenkeel_sys::clock;
use evenkeel_sys::identity::{self, Identity};
use evenkeel_sys::process::{self, End, Pid, usable_cores};
use evenkeel_sys::spawn::Limit;
use evenkeel_sys::waker::Waker;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The folder of the sockets of pools, in that of DefaultRuntimeDir.
const FOLDER: &str = "evenkeel-apps";

/// The beginning of the names of programs that run PHP; the version follows.
const PROGRAM: &str = "evenkeel-php";

/// The name of PHP's module in LoadModule lines.
pub const PHP: &str = "php_module";

/// Whether a program that runs PHP is beside the server's binary.
pub fn has_php() -> bool {
    beside().is_some_and(|folder| newest(&folder).is_some())
}

fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

/// The program with the highest version.
fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let version = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_prefix(PROGRAM)?;
        let (major, minor) = name.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    let programs = entries.filter_map(|entry| Some((version(&entry.path())?, entry.path())));
    programs.max().map(|(_, path)| path)
}

/// The program for a library that a LoadModule line names: `libphp8.2.so` means that of PHP 8.2.
///
/// # Errors
/// There is none of that version. The text says how to get it.
pub fn program_of(library: Option<&str>) -> Result<PathBuf, String> {
    let folder = beside().unwrap_or_default();
    let name = library.and_then(|path| Path::new(path).file_name()?.to_str());
    let version = name.and_then(|name| name.strip_prefix("libphp")?.strip_suffix(".so"));
    let version = version.filter(|version| version.contains('.'));
    let found = match version {
        Some(version) => {
            Some(folder.join(format!("{PROGRAM}{version}"))).filter(|path| path.exists())
        }
        None => newest(&folder),
    };
    let version = version.unwrap_or("8.2");
    found.ok_or_else(|| {
        format!(
            "{PROGRAM}{version}, which runs PHP, is not in {}: `make php PHP={version}` builds it \
             with the packages php{version}-dev and libphp{version}-embed; or let php-fpm run PHP",
            folder.display()
        )
    })
}

/// What the pools of a site run.
#[derive(Default)]
pub struct Planned {
    /// What each pool runs.
    pub applications: Vec<Application>,
    /// The index of the pool of each server.
    pub of_servers: Box<[u32]>,
    /// What the administrator is told of.
    pub remarks: Vec<evenkeel_config::Notice>,
}

/// What the pools of a site run; nothing if the site runs no PHP.
///
/// # Errors
/// The program is missing, or scripts cannot run as the user of AppUser.
pub fn of_site(site: &Site, modules: &ModuleSet, settings: &Settings) -> Result<Planned, String> {
    if !site.runs_php {
        return Ok(Planned::default());
    }
    let program = program_of(modules.path_of(PHP))?;
    let php = &site.global.php;
    let mut arguments = Vec::new();
    if let Some(folder) = &php.ini_dir {
        arguments.extend(["--ini".to_owned(), folder.display().to_string()]);
    }
    let names: Vec<&str> =
        modules.active().iter().map(|it| it.file.trim_end_matches(".c")).collect();
    arguments.extend(["--modules".to_owned(), names.join(" ")]);
    let bounds = &php.bounds;
    let identity = settings.identity.clone().filter(|_| identity::is_root());
    let usual = Application {
        name: "php".to_owned(),
        program,
        arguments,
        server: identity.as_ref().map(|identity| (identity.uid, identity.gid)),
        identity,
        bounds: Bounds {
            most_workers: bounds.max_workers,
            min_spare: bounds.min_spare,
            max_spare: bounds.max_spare,
            most_requests: bounds.max_requests,
            most_memory: bounds.memory,
            request_timeout: (bounds.request_timeout_s > 0)
                .then(|| Duration::from_secs(bounds.request_timeout_s)),
            idle_timeout: Duration::from_secs(bounds.idle_timeout_s),
            slow: (php.slow_log.clone())
                .map(|path| (Duration::from_secs(bounds.slow_timeout_s), path)),
            processes: None,
            nice: bounds.nice,
        },
    };
    let (mut applications, mut indices) = (Vec::new(), HashMap::new());
    let (mut of_servers, mut remarks) = (Vec::new(), Vec::new());
    for server in &site.servers {
        let user = server.settings.php.user.as_deref();
        let index = match indices.entry(user.map(|user| (user.uid, user.gid))) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                applications.push(match user {
                    Some(user) => {
                        let limits = server.defaults.core.process_limits;
                        remarks.extend(of_limits(user, limits));
                        as_user(&usual, user, limits[2])?
                    }
                    None => usual.clone(),
                });
                *new.insert(u32::try_from(applications.len() - 1).unwrap_or(u32::MAX))
            }
        };
        of_servers.push(index);
    }
    Ok(Planned { applications, of_servers: of_servers.into(), remarks })
}

/// Says which limits of processes do not act on workers, which serve many requests each and share
/// the memory of opcache.
fn of_limits(user: &PoolUser, limits: [Option<Limit>; 3]) -> Option<evenkeel_config::Notice> {
    let [cpu, memory, _] = limits;
    let (name, instead) = match (cpu, memory) {
        (None, None) => return None,
        (Some(_), None) => ("RLimitCPU", "max_execution_time of PHP and AppRequestTimeout bound"),
        (None, Some(_)) => ("RLimitMEM", "memory_limit of PHP and AppMemory bound"),
        (Some(_), Some(_)) => (
            "RLimitCPU and RLimitMEM",
            "max_execution_time and memory_limit of PHP, AppRequestTimeout and AppMemory bound",
        ),
    };
    let text = format!("{name}: not for the PHP scripts of AppUser {}; {instead} them", user.name);
    Some(evenkeel_config::Notice { number: None, ..evenkeel_config::Notice::warn("php", 0, text) })
}

/// The application of a user with a pool of its own, who may have so many processes (RLimitNPROC).
fn as_user(
    usual: &Application,
    user: &PoolUser,
    processes: Option<Limit>,
) -> Result<Application, String> {
    let PoolUser { uid, name, gid, has_other_group } = user;
    let mut application = usual.clone();
    application.bounds.processes = processes;
    application.name = match has_other_group {
        true => format!("php-{name}-{gid}"),
        false => format!("php-{name}"),
    };
    if !identity::is_root() {
        let own = (identity::own_uid(), identity::own_gid());
        return match own == (*uid, *gid) {
            true => Ok(application),
            false => Err(format!(
                "AppUser {name}: only a server that root starts can run scripts as another user"
            )),
        };
    }
    let groups = identity::groups_of(name, *gid)
        .map_err(|error| format!("AppUser {name}: the groups of the user: {error}"))?;
    application.identity = Some(Identity { uid: *uid, gid: *gid, groups });
    Ok(application)
}

/// The pools of the parent.
#[derive(Default)]
pub struct Applications {
    pools: Option<Pools>,
    /// The folder of the sockets.
    folder: Option<PathBuf>,
    /// The number of the next socket.
    next: usize,
}

impl Applications {
    /// The pool of an application: the one that runs it already, renewed, or a new one.
    ///
    /// # Errors
    /// The text for the administrator.
    pub fn open(&mut self, application: Application, runtime: &Path) -> Result<Rc<Pool>, String> {
        let failed = |error: std::io::Error| format!("no pool can be opened: {error}");
        let pools = match &mut self.pools {
            Some(pools) => pools,
            empty => empty.insert(Pools::new().map_err(failed)?),
        };
        let is_same = |pool: &Rc<Pool>| {
            let known = pool.application();
            (&known.program, &known.identity, &known.server)
                == (&application.program, &application.identity, &application.server)
        };
        if let Some(pool) = pools.all().find(is_same) {
            pool.renew(application);
            return Ok(pool);
        }
        let folder = match &self.folder {
            Some(folder) => folder.clone(),
            None => self.folder.insert(folder(runtime)?).clone(),
        };
        let pool = Pool::open(application, &folder, self.next)?;
        self.next += 1;
        pools.add(&pool).map_err(failed)?;
        Ok(pool)
    }

    /// What wakes the parent for [`Applications::turn`].
    pub fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.pools.as_ref().map(Pools::descriptor)
    }

    /// When [`Applications::turn`] is due, in microseconds of the monotonic clock.
    pub fn next_us(&self) -> Option<u64> {
        self.pools.as_ref().and_then(Pools::next_us)
    }

    /// Does what is due.
    pub fn turn(&mut self) -> Vec<Notice> {
        self.pools.as_mut().map(Pools::turn).unwrap_or_default()
    }

    /// Handles the end of a process: the notices, if it was one of a pool.
    pub fn ended(&mut self, pid: Pid, end: End) -> Option<Vec<Notice>> {
        let mut notices = Vec::new();
        let pools = self.pools.as_mut()?;
        pools.ended(pid, end, &mut notices).then_some(notices)
    }

    /// A serving child has ended.
    pub fn child_ended(&self, index: usize) {
        if let Some(pools) = &self.pools {
            pools.child_ended(index);
        }
    }
}

/// The longest sleep of a process that looks after pools.
const REST: Duration = Duration::from_secs(1);

impl Applications {
    /// Looks after the pools until the other end of a pipe is closed, and then ends them. `say`
    /// gets what is for the error log.
    pub fn keep(&mut self, pipe: &OwnedFd, say: impl Fn(&Notice)) {
        while !is_closed(pipe) {
            while let Some((pid, end)) = process::reap() {
                self.ended(pid, end).iter().flatten().for_each(&say);
            }
            self.turn().iter().for_each(&say);
            let now_us = clock::monotonic_us();
            let wait = self
                .next_us()
                .map_or(REST, |at| Duration::from_micros(at.saturating_sub(now_us)).min(REST));
            let descriptors: Vec<_> = self.descriptor().into_iter().chain([pipe.as_fd()]).collect();
            if wait_readable(&descriptors, Some(wait)).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // The process that has opened them may have become a user who cannot.
        self.pools.iter().flat_map(Pools::all).for_each(|pool| pool.remove_socket());
    }
}

/// Whether the other end of a pipe, on which nothing is ever sent, is closed.
fn is_closed(pipe: &OwnedFd) -> bool {
    wait_readable(&[pipe.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| ready == [true])
}

/// The folder of the sockets, in which every user can find those that are open to it: in that of
/// DefaultRuntimeDir, or in that of temporary files where this process may not write there.
fn folder(runtime: &Path) -> Result<PathBuf, String> {
    let usual = runtime.join(FOLDER);
    let Err(error) = prepare(&usual) else { return Ok(usual) };
    if identity::is_root() {
        return Err(format!("{}, for sockets of pools: {error}", usual.display()));
    }
    let own = std::env::temp_dir().join(format!("{FOLDER}-{}", identity::own_uid()));
    prepare(&own).map_err(|error| format!("{}, for sockets of pools: {error}", own.display()))?;
    Ok(own)
}

/// Makes the folder, and removes sockets of servers that are gone.
fn prepare(folder: &Path) -> io::Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o711).create(folder);
    made.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    })?;
    // What others could have made, they could change too.
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != identity::own_uid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            let _gone = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// A pool for the serving threads of a child.
pub struct Served {
    name: String,
    address: Address,
    secret: [u8; 16],
    line: Arc<ApplicationLine>,
    claims: Arc<Claims>,
    waker: Arc<Waker>,
    child: usize,
}

impl Served {
    /// The pool for the child with this index on the scoreboard, which gives up what belongs to the
    /// parent.
    pub fn of(pool: &Pool, child: usize) -> Self {
        let served = Self {
            name: pool.application().name,
            address: Address::Unix(pool.path().to_owned()),
            secret: *pool.secret(),
            line: Arc::clone(pool.line()),
            claims: Arc::clone(pool.claims()),
            waker: Arc::clone(pool.waker()),
            child,
        };
        pool.forget();
        served
    }

    /// What the status page shows, with the scripts where `is_extended`.
    pub fn figures(&self, is_extended: bool) -> evenkeel_monitor::Application {
        evenkeel_monitor::Application::read(&self.name, &self.line, usable_cores(), is_extended)
    }
}

impl ApplicationPool for Served {
    fn name(&self) -> &str {
        &self.name
    }

    fn address(&self) -> &Address {
        &self.address
    }

    fn secret(&self) -> &[u8] {
        &self.secret
    }

    fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    fn begin(&self) -> Option<Begun> {
        if self.line.read(Figure::DownUntilUs) > clock::monotonic_us() {
            self.line.add(Figure::Failed, 1);
            return None;
        }
        let (in_flight, room) = self.line.begin(self.child);
        if room == Room::NewlyFull {
            self.waker.wake();
        }
        let workers = usize::try_from(self.line.read(Figure::Supply)).unwrap_or(0);
        Some(Begun { in_flight: Box::new(in_flight), may_claim: room == Room::Free, workers })
    }

    fn note_failure(&self) {
        self.line.add(Figure::Failed, 1);
    }

    fn note_line_us(&self, line_us: u64) {
        self.line.add(Figure::LineUs, line_us);
    }
}
