//! The work of a run, determined by a seed: the sizes of the files, which of them are pages, what a
//! page embeds, and in which order pages are requested. The same seed gives the same work on any
//! machine.

use super::profile::Profile;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// The files of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSet {
    /// The sizes in bytes. A file's number is its index.
    pub sizes: Vec<u64>,
    /// The pages, most popular first.
    pub pages: Vec<Page>,
}

/// A file with those that are requested after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its own file.
    pub file: u32,
    /// The files that it embeds.
    pub embedded: Vec<u32>,
    /// How often it is requested in one round of the work.
    pub requests: u64,
}

/// The random streams of one seed, which are independent of each other.
#[derive(Clone, Copy)]
enum Stream {
    Sizes,
    Pages,
    Order,
    User,
}

/// The share of files that are pages. The others are embedded in them.
const PAGES: f64 = 0.3;

fn stream(seed: u64, stream: Stream, number: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream((stream as u64) << 32 | number);
    random
}

/// The random stream of one user's pauses.
pub(super) fn user_stream(seed: u64, user: u32) -> ChaCha8Rng {
    stream(seed, Stream::User, user.into())
}

impl FileSet {
    /// The set of `count` files for a seed.
    #[must_use]
    pub fn draw(profile: &Profile, count: usize, seed: u64) -> Self {
        let mut random = stream(seed, Stream::Sizes, 0);
        let sizes: Vec<u64> = (0..count).map(|_| profile.sizes.draw(&mut random)).collect();
        let mut random = stream(seed, Stream::Pages, 0);
        // Popularity is independent of size: pages are drawn in random order.
        let mut numbers: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
        numbers.shuffle(&mut random);
        let most = ((count as f64 * PAGES).round() as usize).clamp(usize::from(count > 0), count);
        let (own, others) = numbers.split_at(most);
        let pages = own.iter().enumerate().map(|(rank, file)| {
            let wanted = profile.embedded.draw(&mut random) as usize;
            let embedded = (0..wanted).filter_map(|_| choose(others, &mut random)).collect();
            let requests = (profile.most_requests / (rank + 1) as f64).round().max(1.0) as u64;
            Page { file: *file, embedded, requests }
        });
        Self { pages: pages.collect(), sizes }
    }

    /// The bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// The path of a file below the folder of the workload, with a thousand files in a folder.
    #[must_use]
    pub fn path(file: u32) -> String {
        format!("{:03}/{file}.bin", file / 1000)
    }
}

fn choose(among: &[u32], random: &mut ChaCha8Rng) -> Option<u32> {
    if among.is_empty() {
        return None;
    }
    among.get(random.random_range(0..among.len())).copied()
}

/// The order in which pages are requested: each as often as its rank says, and recently used ones
/// sooner again than others. One round follows another.
pub struct Order {
    profile: Profile,
    requests: Vec<u64>,
    /// The pages that are left in this round, most recently used first, and how often each.
    stack: VecDeque<(u32, u64)>,
    random: ChaCha8Rng,
}

/// How many neighbours of the drawn distance are considered. Among them popular pages come first.
const WINDOW: usize = 8;

impl Order {
    /// The order for a seed.
    #[must_use]
    pub fn new(profile: &Profile, files: &FileSet, seed: u64) -> Self {
        let requests = files.pages.iter().map(|page| page.requests).collect();
        let random = stream(seed, Stream::Order, 0);
        Self { profile: *profile, requests, stack: VecDeque::new(), random }
    }

    /// The next page, by its rank from 0; none if there are no pages.
    pub fn next_page(&mut self) -> Option<u32> {
        if self.stack.is_empty() {
            self.begin_round();
        }
        let at = self.place()?;
        let (page, left) = self.stack.remove(at)?;
        if left > 1 {
            self.stack.push_front((page, left - 1));
        }
        Some(page)
    }

    fn begin_round(&mut self) {
        let mut all: Vec<(u32, u64)> = (0_u32..).zip(self.requests.iter().copied()).collect();
        all.shuffle(&mut self.random);
        self.stack = all.into();
    }

    /// The place of the next page in the stack. Around the drawn distance, a page is chosen in
    /// proportion to its remaining requests, so that both popularity and locality hold (Barford and
    /// Crovella, section 4.2).
    fn place(&mut self) -> Option<usize> {
        let last = self.stack.len().checked_sub(1)?;
        let (from, to) = match self.profile.draw_distance(&mut self.random) {
            Some(distance) => {
                let middle = (distance as usize).min(last);
                (middle.saturating_sub(WINDOW / 2), (middle + WINDOW / 2).min(last))
            }
            None => (0, last),
        };
        let window = || self.stack.range(from..=to).map(|(_, left)| *left);
        let mut drawn = self.random.random_range(0..window().sum::<u64>().max(1));
        for (offset, left) in window().enumerate() {
            if drawn < left {
                return Some(from + offset);
            }
            drawn -= left;
        }
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(profile: &Profile, files: &FileSet, seed: u64, count: usize) -> Vec<u32> {
        let mut order = Order::new(profile, files, seed);
        (0..count).map(|_| order.next_page().unwrap()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_work() {
        for profile in Profile::ALL {
            let files = FileSet::draw(&profile, 1000, 42);
            assert_eq!(files, FileSet::draw(&profile, 1000, 42));
            let pages = order(&profile, &files, 42, 10_000);
            assert_eq!(pages, order(&profile, &files, 42, 10_000));
            assert_ne!(pages, order(&profile, &files, 43, 10_000));
            assert_ne!(files, FileSet::draw(&profile, 1000, 43));
        }
    }

    /// The work of a seed must not change between versions, because results could not be compared.
    #[test]
    fn the_work_of_a_seed_is_what_it_was() {
        let found = Profile::ALL.map(|profile| {
            let files = FileSet::draw(&profile, 500, 1);
            let pages = order(&profile, &files, 1, 10_000);
            // FNV-1a, written here so that no library can change it.
            let words = files.sizes.iter().copied().chain(pages.iter().map(|it| u64::from(*it)));
            words.fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
                (hash ^ word).wrapping_mul(0x0100_0000_01b3)
            })
        });
        assert_eq!(
            found,
            [3_572_759_459_320_480_393, 18_376_744_141_344_124_877, 10_776_050_864_021_688_826]
        );
    }

    #[test]
    fn pages_are_asked_for_as_their_ranks_say() {
        for profile in Profile::ALL {
            let profile = Profile { most_requests: 300.0, ..profile };
            let files = FileSet::draw(&profile, 400, 5);
            let round: u64 = files.pages.iter().map(|page| page.requests).sum();
            let pages = order(&profile, &files, 5, usize::try_from(round).unwrap());
            for (rank, page) in files.pages.iter().enumerate() {
                let count = pages.iter().filter(|it| **it as usize == rank).count() as u64;
                assert_eq!(count, page.requests, "{} {rank}", profile.name);
            }
        }
    }

    #[test]
    fn what_was_used_last_comes_sooner_again() {
        let profile = Profile::named("surge98").unwrap();
        let anywhere = Profile { locality: None, ..profile };
        let files = FileSet::draw(&profile, 2000, 9);
        // The median number of other pages between two requests for the same one.
        let median = |profile: &Profile| {
            let pages = order(profile, &files, 9, 20_000);
            let mut stack: Vec<u32> = Vec::new();
            let mut distances = Vec::new();
            for page in pages {
                if let Some(at) = stack.iter().position(|it| *it == page) {
                    distances.push(at);
                    stack.remove(at);
                }
                stack.insert(0, page);
            }
            distances.sort_unstable();
            distances[distances.len() / 2]
        };
        let (local, any) = (median(&profile), median(&anywhere));
        assert!(local < any, "{local} {any}");
    }

    #[test]
    fn a_set_may_be_small_or_empty() {
        let profile = Profile::named("modern").unwrap();
        let none = FileSet::draw(&profile, 0, 1);
        assert!(none.pages.is_empty() && Order::new(&profile, &none, 1).next_page().is_none());
        let one = FileSet::draw(&profile, 1, 1);
        assert_eq!((one.pages.len(), one.pages[0].embedded.len()), (1, 0));
        assert_eq!(FileSet::path(12_345), "012/12345.bin");
    }
}
