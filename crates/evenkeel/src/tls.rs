//! TLS of a site: makes the hosts from their settings in the parent, keeps what all its children
//! share over reloads and changes of the program, and chooses the host of a connection by the name
//! in its ClientHello.

use crate::settings::application_protocols;
use evenkeel_message::Notice;
use evenkeel_modules::ssl::{self, Identified, Sharing};
use evenkeel_pipeline::Site;
use evenkeel_sys::clock;
use evenkeel_sys::memory::SharedFile;
use evenkeel_tls::{Cache, Door, Hello, Host, Protocols, SECRETS_WORDS, Secrets, Words};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Doors that a thread keeps, one for each local address. A machine may answer for whole networks.
const MOST_DOORS: usize = 1024;

/// Memory that is shared with the children.
struct Memory(SharedFile);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.0.words().len()).finish()
    }
}

impl Words for Memory {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// The names under which a program that takes over gets the keys and the table. A change of what
/// the memory holds changes its name.
const KEYS: &str = "evenkeel-tls-keys-1";
const TABLE: &str = "evenkeel-tls-table-1";

/// What the parent keeps for the hosts of all its configurations. It is made when the first
/// configuration with TLS is loaded, unless a predecessor has passed it.
#[derive(Debug, Default)]
pub struct Kept {
    /// What the predecessor has passed, until the first configuration is loaded.
    inherited: Vec<(OwnedFd, String)>,
    secrets: Option<(Arc<Memory>, Arc<Secrets>)>,
    table: Option<(Arc<Memory>, Arc<Cache>)>,
}

/// The memory with this name that the predecessor has passed if it has this size, else new memory.
fn memory(
    inherited: &mut Vec<(OwnedFd, String)>,
    name: &str,
    words: usize,
) -> Result<Arc<Memory>, String> {
    let at = inherited.iter().position(|(_, known)| known == name);
    let passed = at.map(|at| SharedFile::adopt(inherited.swap_remove(at).0, words));
    // The size of the table may have changed with the configuration.
    let shared = passed.and_then(Result::ok).map_or_else(|| SharedFile::new(words), Ok);
    shared.map(|shared| Arc::new(Memory(shared))).map_err(|error| {
        format!("AH00004: Unable to create the shared memory of TLS sessions: {error}")
    })
}

impl Kept {
    /// What a program that takes over needs, so that clients continue their sessions.
    pub fn bequest(&self) -> Vec<(BorrowedFd<'_>, &'static str)> {
        let keys = self.secrets.as_ref().map(|(memory, _)| (memory.0.as_fd(), KEYS));
        let table = self.table.as_ref().map(|(memory, _)| (memory.0.as_fd(), TABLE));
        keys.into_iter().chain(table).collect()
    }

    /// Takes the [`Kept::bequest`] of a predecessor.
    pub fn inherit(&mut self, bequest: Vec<(OwnedFd, String)>) {
        self.inherited = bequest;
    }

    /// What the hosts of a site share.
    fn sharing(&mut self, bytes: Option<usize>) -> Result<Sharing, String> {
        let mut inherited = std::mem::take(&mut self.inherited);
        if self.secrets.is_none() {
            let mut memory_of_keys = memory(&mut inherited, KEYS, SECRETS_WORDS)?;
            let mut secrets = Secrets::Shared(memory_of_keys.clone());
            if !secrets.is_complete() {
                memory_of_keys = memory(&mut Vec::new(), KEYS, SECRETS_WORDS)?;
                secrets = Secrets::Shared(memory_of_keys.clone());
            }
            self.secrets = Some((memory_of_keys, Arc::new(secrets)));
        }
        self.roll()?;
        let words = bytes.map(Cache::words);
        match (words, &self.table) {
            (None, _) => self.table = None,
            (Some(words), Some((memory, _))) if memory.words().len() == words => {}
            (Some(words), _) => {
                let memory = memory(&mut inherited, TABLE, words)?;
                self.table = Some((memory.clone(), Arc::new(Cache::new(memory))));
            }
        }
        let secrets = self.secrets.as_ref().map(|(_, secrets)| Arc::clone(secrets));
        let cache = self.table.as_ref().map(|(_, cache)| Arc::clone(cache));
        Ok(Sharing { secrets, cache })
    }

    /// Replaces the keys of tickets if they are due.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn roll(&self) -> Result<(), String> {
        match &self.secrets {
            Some((_, secrets)) => secrets.roll(clock::realtime_us() / 1_000_000),
            None => Ok(()),
        }
    }
}

/// The TLS hosts of a site, by the number of their servers.
#[derive(Debug, Default)]
pub struct Hosts(Vec<Option<Arc<Host>>>);

impl Hosts {
    /// Makes the hosts of all servers with `SSLEngine on`, and adds warnings to `notices`.
    ///
    /// # Errors
    /// A file or a setting is not usable; the text names file and line.
    pub fn make(site: &Site, kept: &mut Kept, notices: &mut Vec<Notice>) -> Result<Self, String> {
        let on = |server: &evenkeel_pipeline::Server| server.settings.ssl.is_on();
        if !site.servers.iter().any(on) {
            kept.inherited.clear();
            return Ok(Self::default());
        }
        let sharing = kept.sharing(site.global.ssl.cache_bytes())?;
        let now_s = i64::try_from(clock::realtime_us() / 1_000_000).unwrap_or(i64::MAX);
        let mut hosts = Vec::with_capacity(site.servers.len());
        for (index, server) in site.servers.iter().enumerate() {
            if !on(server) {
                hosts.push(None);
                continue;
            }
            let port = server.settings.core.port.filter(|port| *port != 0).unwrap_or(443);
            let name = format!("{}:{port}", server.name());
            let names = [server.name().to_owned()];
            let firsts = site.hosts.firsts(index).filter(|first| *first != index);
            let firsts = firsts.filter_map(|first| site.servers.get(first));
            let settings = server.settings.ssl.behind(firsts.map(|first| &first.settings.ssl));
            let global = &site.global.ssl;
            let protocols = Protocols {
                names: application_protocols(site, server),
                by_client: server.settings.core.conduct.protocols_honor_order == Some(false),
            };
            let identified = Identified { index, name: &name, names: &names, protocols };
            let made = ssl::make_host(&settings, global, identified, &sharing, now_s)?;
            notices.extend(made.notices);
            hosts.push(Some(Arc::new(made.host)));
        }
        Ok(Self(hosts))
    }

    fn of(&self, server: usize) -> Option<&Arc<Host>> {
        self.0.get(server)?.as_ref()
    }
}

/// The doors of a serving thread.
pub struct Doors {
    site: Arc<Site>,
    hosts: Arc<Hosts>,
    known: RefCell<HashMap<SocketAddr, Option<Arc<dyn Door>>>>,
}

impl Doors {
    /// The doors to the hosts of a site.
    pub fn new(site: Arc<Site>, hosts: Arc<Hosts>) -> Self {
        Self { site, hosts, known: RefCell::default() }
    }

    /// The door of a local address; none if its connections are in clear text.
    pub fn of(&self, local: SocketAddr) -> Option<Arc<dyn Door>> {
        if self.hosts.0.is_empty() {
            return None;
        }
        let mut known = self.known.borrow_mut();
        if let Some(door) = known.get(&local) {
            return door.clone();
        }
        let first = self.site.hosts.server(local, b"", b"");
        let door = self.hosts.of(first).map(|first| -> Arc<dyn Door> {
            let (site, hosts) = (Arc::clone(&self.site), Arc::clone(&self.hosts));
            Arc::new(AddressDoor { site, hosts, local, first: Arc::clone(first) })
        });
        if known.len() >= MOST_DOORS {
            known.clear();
        }
        known.insert(local, door.clone());
        door
    }
}

/// The hosts of one address.
struct AddressDoor {
    site: Arc<Site>,
    hosts: Arc<Hosts>,
    local: SocketAddr,
    first: Arc<Host>,
}

impl fmt::Debug for AddressDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressDoor").field("local", &self.local).finish()
    }
}

impl Door for AddressDoor {
    /// The named host; the first of the address if the client names none, or one that is unknown or
    /// does not speak TLS (ssl_engine_kernel.c, init_vhost).
    fn host(&self, hello: &Hello<'_>) -> Option<Arc<Host>> {
        let named = hello.name.and_then(|name| {
            let server = self.site.hosts.server(self.local, name.as_bytes(), b"");
            self.hosts.of(server)
        });
        Some(Arc::clone(named.unwrap_or(&self.first)))
    }
}
