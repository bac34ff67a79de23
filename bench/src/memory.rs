//! The memory of virtual hosts: measures a server with one host and with many, and after it has
//! reloaded its configuration several times.

use crate::Result;
use crate::contender::Kind;
use evenkeel_lab::peers::{Peer, Server, Setup, Site};
use evenkeel_sys::signal::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The numbers of reloads after which memory is measured.
pub const RELOADS: [usize; 5] = [0, 1, 4, 8, 16];
/// How long a reload may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time that a server has to settle.
const SETTLING: Duration = Duration::from_secs(1);

/// The memory of hosts.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The number of hosts.
    pub hosts: usize,
    /// The bytes of a server with one host.
    pub one: u64,
    /// The bytes of a server with all hosts, after each number of [`RELOADS`].
    pub all: Vec<u64>,
}

impl Taken {
    /// The bytes for each host, after each number of reloads.
    pub fn each(&self) -> Vec<f64> {
        let more = self.hosts.saturating_sub(1).max(1) as f64;
        self.all.iter().map(|bytes| bytes.saturating_sub(self.one) as f64 / more).collect()
    }
}

/// Starts a server with one host and one with all, on all cores, and reloads the latter.
pub fn of_hosts(kind: Kind, site: &Site, hosts: usize) -> Result<Taken> {
    let Kind::Peer(peer) = kind else {
        return Err(format!("{}: has no hosts", kind.name()));
    };
    let start = |hosts: usize| {
        let server = peer.start(site, &Setup { stock: true, hosts, ..Setup::default() })?;
        sleep(SETTLING);
        Ok::<_, String>(server)
    };
    let one = start(1)?.family.memory_bytes();
    let server = start(hosts)?;
    let (mut all, mut done) = (Vec::new(), 0);
    for wanted in RELOADS {
        while done < wanted {
            reload(peer, &server)?;
            done += 1;
        }
        all.push(server.family.memory_bytes());
    }
    Ok(Taken { hosts, one, all })
}

/// Makes a server reload its configuration, and waits until the previous children are gone.
fn reload(peer: Peer, server: &Server) -> Result<()> {
    let signal = if peer.model().is_some() { Signal::User1 } else { Signal::Hangup };
    let before = server.family.descendants();
    server.signal(signal)?;
    let begun = Instant::now();
    loop {
        let now = server.family.descendants();
        if before.is_disjoint(&now) && !now.is_empty() {
            sleep(SETTLING);
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{}: does not reload", server.name));
        }
        sleep(Duration::from_millis(20));
    }
}
