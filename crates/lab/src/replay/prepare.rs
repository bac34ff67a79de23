//! What was asked for becomes a plan: names are looked up and the server is tried once. Here it is
//! decided whether a load may go to that address at all.

use super::Complaint;
use super::options::Options;
use crate::load::{Bounds, Keep, Pace, Plan, Scheme, Target, Timeouts, Trust, Wishes};
use evenkeel_sys::connect::{Local, Remote};
use evenkeel_sys::process;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A server that does not take a connection within this time will not take a load.
const MOST_TRY: Duration = Duration::from_secs(10);
/// Descriptors that the process needs beside its clients' sockets and its logs.
const OTHER_DESCRIPTORS: u64 = 64;

/// Prepares a run of so many clients.
pub(super) fn prepare(options: &Options, clients: u32) -> Result<Plan, Complaint> {
    let url = &options.url;
    let mut remotes = url.resolve(options.unix_socket.as_deref()).map_err(Complaint::plain)?;
    if !Target::is_loopback(&remotes) && !options.is_my_server {
        let text = format!(
            "{}: not on this machine; where the server is yours, or its owner agrees, say so \
             with --yes-this-is-my-server",
            url.host
        );
        return Err(Complaint { text, status: 2 });
    }
    let allowed = process::raise_descriptor_limit();
    if u64::from(clients) + options.parts + OTHER_DESCRIPTORS > allowed {
        let text = format!(
            "{clients} clients need as many open files, and the system allows {allowed} (ulimit -n)"
        );
        return Err(Complaint::plain(text));
    }
    let trust = match url.scheme {
        Scheme::Http => None,
        Scheme::Https => {
            let wishes = Wishes { verify: !options.insecure, ..Wishes::default() };
            Some(Trust::new(&url.host, &wishes).map_err(Complaint::plain)?)
        }
    };
    put_reachable_first(&mut remotes, options.timeout.min(MOST_TRY))?;
    let threads = options.threads.unwrap_or_else(process::usable_cores);
    Ok(Plan {
        remotes,
        local: Local::default(),
        trust,
        threads: threads.clamp(1, clients.max(1) as usize),
        clients,
        stretches: Vec::new(),
        pace: Pace::Greedy,
        keep: if options.keep_alive { Keep::Kept } else { Keep::Once },
        bounds: Bounds { requests: None, time: options.time, at_failure: false },
        timeouts: Timeouts { connect: options.timeout, answer: options.timeout },
        seed: 1,
        keep_exchanges: false,
        hear: false,
    })
}

/// Tries the addresses in turn, and puts the first that takes a connection in front.
fn put_reachable_first(remotes: &mut [Remote], most: Duration) -> Result<(), Complaint> {
    let mut told = Vec::new();
    for (index, remote) in remotes.iter().enumerate() {
        let (tried, shown) = match remote {
            Remote::Internet(address) => {
                (TcpStream::connect_timeout(address, most).map(drop), address.to_string())
            }
            Remote::Unix(path) => (UnixStream::connect(path).map(drop), path.display().to_string()),
        };
        match tried.map_err(|error: io::Error| error.to_string()) {
            Ok(()) => {
                remotes.swap(0, index);
                return Ok(());
            }
            Err(error) => told.push(format!("{shown}: {error}")),
        }
    }
    Err(Complaint::plain(told.join("; ")))
}
