//! Many cores before one listening socket, in the simulation: how many of them can be used, and
//! what several queues change. Used by the experiment `buckets` and by the tests that hold it
//! against what others have reported.

use super::setup::Accept;
use super::{Directives, Load, Model, Outcome, Setup, Which, simulate};
use crate::load::Think;
use evenkeel_pool::Limits;

/// What accepting costs, fitted to bug 56279 for requests of a millisecond: on 64 threads with one
/// Listen line 60 % of the CPU could be used, and queues of their own gave 20 % at 48 threads and
/// 10 % at 32.
const FITTED: Accept =
    Accept { lock_s: 14e-6, line_s: 0.25e-6, line_cpu_s: 3e-6, mutex_s: 0.0, herd: 0, wake_s: 0.0 };
/// What a mutex around it adds, fitted to the same: with two Listen lines 70 % at 32 threads.
const MUTEX_S: f64 = 27e-6;
/// The CPU time of such a request, in seconds.
const REQUEST_S: f64 = 0.001;

/// How children come to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// All at one queue.
    One,
    /// One after the other, with a mutex around it: Apache with several Listen lines.
    Serialised,
    /// At a queue for every eight cores.
    Split,
}

/// A pool that has all its children, of one thread each, and keeps them.
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

/// Requests of a millisecond on so many cores for so many seconds, with four children and four
/// greedy clients for each core, a connection for each request.
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

/// Twelve workers on twelve cores whose requests burn 20 ms, 400 a second, at so many queues.
pub fn load_twelve_workers(buckets: usize, seconds: f64) -> Outcome {
    let mut setup = fixed(12, 12.0);
    setup.load = Load::parse("open:400").unwrap_or_else(|_| Load::none());
    setup.cpu = Think::Fixed(0.02);
    simulate(&Setup { buckets, seconds, ..setup })
}
