//! Simulates many cores at one listening socket: how many of them can be used, and what several
//! queues change. The experiment `buckets` uses it, and tests compare it with published reports.

use super::setup::Accept;
use super::{Directives, Load, Model, Outcome, Setup, Which, simulate};
use crate::load::Think;
use evenkeel_pool::Limits;

/// The cost of accepting, fitted to bug 56279 for requests of a millisecond: with 64 threads and
/// one Listen line 60 % of the CPU could be used, and a queue for each listener gave 20 % at 48
/// threads and 10 % at 32.
const FITTED: Accept =
    Accept { lock_s: 14e-6, line_s: 0.25e-6, line_cpu_s: 3e-6, mutex_s: 0.0, herd: 0, wake_s: 0.0 };
/// What a mutex adds, fitted to the same report: with two Listen lines, 70 % at 32 threads.
const MUTEX_S: f64 = 27e-6;
/// The CPU time of such a request, in seconds.
const REQUEST_S: f64 = 0.001;

/// How children get connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// All from one queue.
    One,
    /// One after the other, with a mutex around accept: Apache with several Listen lines.
    Serialised,
    /// From a queue for every eight cores.
    Split,
}

/// A pool that has all its children from the beginning, with one thread each, and keeps them.
pub(super) fn fixed(children: usize, cores: f64) -> Setup {
    let limits = Limits { threads: 1, min_spare: 1, max_spare: 9999, children, slots: children };
    let model = Model::Prefork;
    Setup {
        law: Which::Fixed,
        directives: Directives { model, start_servers: children, limits, ..Directives::default() },
        wait: Think::None,
        cores,
        ..Setup::default()
    }
}

/// Requests of a millisecond on `cores` cores for `seconds` seconds, with four children and four
/// greedy clients for each core and a connection for each request.
pub fn load_many_cores(cores: usize, taking: Taking, seconds: f64) -> Outcome {
    let mut setup = fixed(cores * 4, cores as f64);
    let clients = Load::parse(&(cores * 4).to_string());
    setup.load = clients.unwrap_or_else(|_| Load::none());
    setup.cpu = Think::Exponential(REQUEST_S);
    setup.accept = FITTED;
    match taking {
        Taking::One => {}
        Taking::Serialised => setup.accept.mutex_s = MUTEX_S,
        Taking::Split => setup.buckets = (cores / 8).max(1),
    }
    setup.seconds = seconds;
    simulate(&setup)
}

/// Twelve workers on twelve cores whose requests burn 20 ms, 400 a second, with `buckets` queues.
pub fn load_twelve_workers(buckets: usize, seconds: f64) -> Outcome {
    let mut setup = fixed(12, 12.0);
    setup.load = Load::parse("open:400").unwrap_or_else(|_| Load::none());
    setup.cpu = Think::Fixed(0.02);
    simulate(&Setup { buckets, seconds, ..setup })
}
