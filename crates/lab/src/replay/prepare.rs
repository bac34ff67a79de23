//! Makes a plan from the options: looks up names and tries the server once. It also decides whether
//! a load may be sent to that address at all.

use super::Complaint;
use super::options::Options;
use crate::load::{
    Bounds, Keep, Pace, Plan, Target, Timeouts, Trust, Wishes, check_descriptors, check_owner,
    put_reachable_first,
};
use evenkeel_sys::connect::Local;
use evenkeel_sys::process;

/// Prepares a run with that many clients.
pub(super) fn prepare(options: &Options, clients: u32) -> Result<Plan, Complaint> {
    let url = &options.url;
    let mut remotes = url.resolve(options.unix_socket.as_deref()).map_err(Complaint::plain)?;
    check_owner(&url.host, Target::is_loopback(&remotes), options.is_my_server)
        .map_err(|text| Complaint { text, status: 2 })?;
    check_descriptors(clients, options.parts).map_err(Complaint::plain)?;
    let wishes =
        Wishes { verify: !options.insecure, full: options.full_handshakes, ..Wishes::default() };
    let trust = Trust::of(url, &wishes).map_err(Complaint::plain)?;
    put_reachable_first(&mut remotes, trust.as_ref(), options.timeout).map_err(Complaint::plain)?;
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
