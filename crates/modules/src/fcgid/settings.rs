//! The settings of mod_fcgid: what holds for a virtual host, for the program of FcgidCmdOptions,
//! and for a section.

use crate::Merge;
use std::sync::Arc;

/// The settings of the process.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// FcgidMaxProcesses.
    pub(super) most_processes: Option<u64>,
}

impl Global {
    /// The most processes of all programs.
    #[must_use]
    pub fn most_processes(&self) -> u64 {
        self.most_processes.unwrap_or(1000)
    }
}

/// The bounds of the processes of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// FcgidMaxProcessesPerClass.
    pub most_processes: u64,
    /// FcgidMinProcessesPerClass.
    pub least_processes: u64,
    /// FcgidMaxRequestsPerProcess; 0 is any number.
    pub most_requests: u64,
    /// FcgidIdleTimeout; 0 is never.
    pub idle_timeout_s: u64,
    /// FcgidProcessLifeTime; 0 is any time.
    pub life_time_s: u64,
    /// FcgidIOTimeout.
    pub io_timeout_s: u64,
    /// FcgidConnectTimeout.
    pub connect_timeout_s: u64,
    /// FcgidInitialEnv.
    pub initial_env: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most_processes: 100,
            least_processes: 3,
            most_requests: 0,
            idle_timeout_s: 300,
            life_time_s: 3600,
            io_timeout_s: 40,
            connect_timeout_s: 3,
            initial_env: Vec::new(),
        }
    }
}

/// What the directives of one server say. A field that none has set is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct OfServer {
    pub(super) most_processes: Option<u64>,
    pub(super) least_processes: Option<u64>,
    pub(super) most_requests: Option<u64>,
    pub(super) idle_timeout_s: Option<u64>,
    pub(super) life_time_s: Option<u64>,
    pub(super) io_timeout_s: Option<u64>,
    pub(super) connect_timeout_s: Option<u64>,
    pub(super) busy_timeout_s: Option<u64>,
    pub(super) most_body: Option<u64>,
    pub(super) initial_env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) passed_fields: Vec<Box<str>>,
    pub(super) commands: Vec<(Vec<u8>, Limits)>,
}

/// The settings of a virtual host. `None` without any.
#[derive(Clone, Debug, Default)]
pub struct Server(pub(super) Option<Arc<OfServer>>);

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        let (Some(outer), Some(inner)) = (&base.0, &over.0) else {
            return Self(over.0.clone().or_else(|| base.0.clone()));
        };
        Self(Some(Arc::new(OfServer::merge(outer, inner))))
    }
}

impl Merge for OfServer {
    fn merge(base: &Self, over: &Self) -> Self {
        let mut initial_env = base.initial_env.clone();
        over.initial_env.iter().cloned().for_each(|pair| set_pair(&mut initial_env, pair));
        let mut commands = base.commands.clone();
        commands.retain(|(path, _)| !over.commands.iter().any(|(other, _)| other == path));
        commands.extend(over.commands.iter().cloned());
        Self {
            most_processes: over.most_processes.or(base.most_processes),
            least_processes: over.least_processes.or(base.least_processes),
            most_requests: over.most_requests.or(base.most_requests),
            idle_timeout_s: over.idle_timeout_s.or(base.idle_timeout_s),
            life_time_s: over.life_time_s.or(base.life_time_s),
            io_timeout_s: over.io_timeout_s.or(base.io_timeout_s),
            connect_timeout_s: over.connect_timeout_s.or(base.connect_timeout_s),
            busy_timeout_s: over.busy_timeout_s.or(base.busy_timeout_s),
            most_body: over.most_body.or(base.most_body),
            initial_env,
            passed_fields: [&*base.passed_fields, &*over.passed_fields].concat(),
            commands,
        }
    }
}

pub(super) fn set_pair(all: &mut Vec<(Vec<u8>, Vec<u8>)>, pair: (Vec<u8>, Vec<u8>)) {
    all.retain(|(name, _)| *name != pair.0);
    all.push(pair);
}

impl Server {
    /// The bounds of a program: those of FcgidCmdOptions, or those of the server.
    #[must_use]
    pub fn limits(&self, program: &[u8]) -> Limits {
        let usual = Limits::default();
        let Some(own) = &self.0 else { return usual };
        if let Some((_, limits)) = own.commands.iter().find(|(path, _)| path == program) {
            return limits.clone();
        }
        Limits {
            most_processes: own.most_processes.unwrap_or(usual.most_processes),
            least_processes: own.least_processes.unwrap_or(usual.least_processes),
            most_requests: own.most_requests.unwrap_or(usual.most_requests),
            idle_timeout_s: own.idle_timeout_s.unwrap_or(usual.idle_timeout_s),
            life_time_s: own.life_time_s.unwrap_or(usual.life_time_s),
            io_timeout_s: own.io_timeout_s.unwrap_or(usual.io_timeout_s),
            connect_timeout_s: own.connect_timeout_s.unwrap_or(usual.connect_timeout_s),
            initial_env: own.initial_env.clone(),
        }
    }

    /// FcgidBusyTimeout.
    #[must_use]
    pub fn busy_timeout_s(&self) -> u64 {
        self.0.as_ref().and_then(|own| own.busy_timeout_s).unwrap_or(300)
    }

    /// FcgidMaxRequestLen.
    #[must_use]
    pub fn most_body(&self) -> u64 {
        self.0.as_ref().and_then(|own| own.most_body).unwrap_or(131_072)
    }

    /// FcgidPassHeader.
    pub(super) fn passed_fields(&self) -> impl Iterator<Item = &Box<str>> {
        self.0.iter().flat_map(|own| &own.passed_fields)
    }
}

/// FcgidWrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapper {
    /// The program and its arguments.
    pub command: Vec<Vec<u8>>,
    /// Whether it answers for files that are not there.
    pub is_virtual: bool,
}

/// The wrappers by the endings of file names.
type Wrappers = Vec<(Box<str>, Wrapper)>;

/// The settings of one section: the wrapper of each suffix; an empty suffix is any.
#[derive(Clone, Debug, Default)]
pub struct Directory(pub(super) Option<Arc<Wrappers>>);

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        let mut merged = base.clone();
        merged.add(over);
        merged
    }

    fn add(&mut self, over: &Self) {
        let Some(inner) = &over.0 else { return };
        match &mut self.0 {
            None => self.0 = Some(Arc::clone(inner)),
            Some(outer) => {
                let outer = Arc::make_mut(outer);
                outer.retain(|(suffix, _)| !inner.iter().any(|(other, _)| other == suffix));
                outer.extend(inner.iter().cloned());
            }
        }
    }
}

impl Directory {
    /// The wrapper of a file (fcgid_conf.c: `get_wrapper_info`).
    #[must_use]
    pub fn wrapper(&self, file: &[u8]) -> Option<&Wrapper> {
        let all = self.0.as_ref()?;
        let suffix = file.iter().rposition(|byte| *byte == b'.').and_then(|dot| file.get(dot..));
        let of = |wanted: &[u8]| all.iter().find(|(suffix, _)| suffix.as_bytes() == wanted);
        let found = suffix.and_then(of).or_else(|| of(b""));
        found.map(|(_, wrapper)| wrapper)
    }
}
