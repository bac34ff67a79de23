//! A user equivalent: it requests a page, then each file that the page embeds, and thinks. The next
//! page is chosen for all users together; the pauses are its own.

use super::profile::Profile;
use super::work::{FileSet, Order, user_stream};
use crate::load::{Exchange, Failure, Request, Source, Step, Think};
use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// What all users share.
pub(super) struct Workload {
    profile: Profile,
    files: FileSet,
    order: Mutex<Order>,
    /// The encoded request for each file.
    requests: Vec<Arc<Request>>,
    /// Pauses in place of the profile's.
    think: Option<Think>,
    seed: u64,
    /// The number of exchanges whose body had another size than the file.
    pub(super) other_sizes: std::sync::atomic::AtomicU64,
}

/// One user.
pub(super) struct User {
    workload: Arc<Workload>,
    random: ChaCha8Rng,
    /// The files of the current page that are still to be requested.
    left: VecDeque<u32>,
    /// Whether the pause before the next request was taken.
    paused: bool,
    fresh: bool,
    asked: u32,
}

impl Workload {
    /// The workload over files below `prefix` of the target, for `host`.
    pub(super) fn new(
        profile: Profile,
        files: FileSet,
        seed: u64,
        think: Option<Think>,
        (host, prefix): (&str, &str),
    ) -> Arc<Self> {
        let prefix = prefix.trim_end_matches('/');
        let request = |file: u32| {
            let path = FileSet::path(file);
            let text = format!("GET {prefix}/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            Arc::new(Request { bytes: Bytes::from(text), no_body: false, label: file.into() })
        };
        let count = u32::try_from(files.sizes.len()).unwrap_or(u32::MAX);
        let requests = (0..count).map(request).collect();
        let order = Mutex::new(Order::new(&profile, &files, seed));
        let other_sizes = 0.into();
        Arc::new(Self { profile, files, order, requests, think, seed, other_sizes })
    }

    fn next_page(&self) -> Option<u32> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).next_page()
    }
}

impl User {
    pub(super) fn new(workload: &Arc<Workload>, number: u32) -> Self {
        Self {
            workload: Arc::clone(workload),
            random: user_stream(workload.seed, number),
            left: VecDeque::new(),
            paused: false,
            fresh: true,
            asked: 0,
        }
    }

    /// The pause before the next request, in nanoseconds.
    fn pause_ns(&mut self) -> u64 {
        let within = !self.left.is_empty();
        let seconds = match (within, self.workload.think) {
            (true, _) => self.workload.profile.draw_active(&mut self.random),
            (false, None) => self.workload.profile.draw_think(&mut self.random),
            (false, Some(think)) => return think.draw_ns(&mut self.random),
        };
        (seconds * 1e9) as u64
    }
}

impl Source for User {
    fn next(&mut self, now_ns: u64) -> Step {
        if !self.fresh && !std::mem::replace(&mut self.paused, true) {
            let pause_ns = self.pause_ns();
            if pause_ns > 0 {
                return Step::Wait(now_ns.saturating_add(pause_ns));
            }
        }
        (self.fresh, self.paused) = (false, false);
        let file = self.left.pop_front().or_else(|| {
            let rank = self.workload.next_page()?;
            let page = self.workload.files.pages.get(rank as usize)?;
            self.left.extend(&page.embedded);
            Some(page.file)
        });
        let request = file.and_then(|file| {
            self.asked = file;
            self.workload.requests.get(file as usize)
        });
        request.map_or(Step::Over, |request| Step::Send(Arc::clone(request)))
    }

    fn heed(&mut self, outcome: Result<&Exchange, Failure>) {
        let Ok(exchange) = outcome else { return };
        let size = self.workload.files.sizes.get(self.asked as usize);
        if exchange.status != 200 || size != Some(&exchange.body_bytes) {
            self.workload.other_sizes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_asks_for_a_page_and_what_it_embeds_and_thinks() {
        let profile = Profile::named("surge-dist").unwrap();
        let files = FileSet::draw(&profile, 100, 3);
        let mut order = Order::new(&profile, &files, 3);
        let page = files.pages[order.next_page().unwrap() as usize].clone();
        let workload = Workload::new(profile, files, 3, None, ("h", "/s/"));
        let mut user = User::new(&workload, 0);
        for file in std::iter::once(page.file).chain(page.embedded) {
            let Step::Send(request) = user.next(5) else { panic!("no pause within a page") };
            assert_eq!(request.label, u64::from(file));
            let wanted = format!("GET /s/{} HTTP/1.1\r\n", FileSet::path(file));
            assert!(request.bytes.starts_with(wanted.as_bytes()));
        }
        let Step::Wait(until) = user.next(5) else { panic!("a pause between pages") };
        assert!(until >= 1_000_000_005);
        assert!(matches!(user.next(until), Step::Send(_)));
    }
}
