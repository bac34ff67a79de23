//! The distributions of a SURGE workload (Barford and Crovella, SIGMETRICS 1998), by the name of a
//! profile: file sizes, embedded references, pauses and stack distances. Every number from the
//! paper or from a fit is here, once.

use rand::Rng;
use rand_distr::{Distribution, LogNormal, Pareto, Weibull};

/// The distributions of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// The name on the command line.
    pub name: &'static str,
    /// The default number of files.
    pub files: usize,
    /// The sizes of files.
    pub sizes: Sizes,
    /// The number of files that a page has besides its own.
    pub embedded: Embedded,
    /// Pareto distribution of the pause between two pages (inactive OFF), in seconds: least value
    /// and exponent.
    pub think: (f64, f64),
    /// Weibull distribution of the pause between two files of a page (active OFF), in seconds:
    /// scale and shape.
    pub active: Option<(f64, f64)>,
    /// Lognormal distribution of the distance in the stack of recently used pages: mu and sigma.
    pub locality: Option<(f64, f64)>,
    /// The requests for the most popular page. The page of rank r gets this number divided by r
    /// (Zipf).
    pub most_requests: f64,
}

/// File sizes in bytes: a lognormal body and a Pareto tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Mu and sigma of the body.
    pub body: (f64, f64),
    /// The share of files in the body.
    pub body_share: f64,
    /// The least size and the exponent of the tail.
    pub tail: (f64, f64),
    /// The least and the greatest size.
    pub bounds: (f64, f64),
}

/// The number of files that a page has besides its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Embedded {
    /// The integer part of a Pareto value, minus `less`.
    Pareto {
        /// The least value.
        least: f64,
        /// The exponent.
        exponent: f64,
        /// What is subtracted, so that pages without embedded files are possible.
        less: u32,
        /// The greatest number.
        most: u32,
    },
    /// The integer part of a lognormal value.
    LogNormal {
        /// Mu.
        mu: f64,
        /// Sigma.
        sigma: f64,
        /// The greatest number.
        most: u32,
    },
}

/// The parameters of the paper (its tables 1 and 2).
const SURGE98: Profile = Profile {
    name: "surge98",
    files: 2000,
    sizes: Sizes {
        body: (9.357, 1.318),
        body_share: 0.93,
        tail: (133_000.0, 1.1),
        bounds: (1.0, 1e9),
    },
    embedded: Embedded::Pareto { least: 1.0, exponent: 2.43, less: 1, most: 150 },
    think: (1.0, 1.5),
    active: Some((1.46, 0.382)),
    locality: Some((1.5, 0.80)),
    most_requests: 20_000.0,
};

/// Fitted to the output of the original program: 5,000 files, 295,599 pauses, 1,500 pages.
const SURGE_DIST: Profile = Profile {
    name: "surge-dist",
    files: 5000,
    sizes: Sizes {
        body: (7.881, 1.339),
        body_share: 0.93,
        tail: (64_000.0, 1.13),
        bounds: (75.0, 2_980_000.0),
    },
    embedded: Embedded::Pareto { least: 2.0, exponent: 1.28, less: 0, most: 133 },
    think: (1.0, 1.401),
    active: None,
    locality: None,
    most_requests: 50_000.0,
};

/// Current pages: 71 requests and 2,652 KB at the median (HTTP Archive). The distribution of file
/// sizes is this project's choice: a lognormal with a Pareto tail.
const MODERN: Profile = Profile {
    name: "modern",
    files: 10_000,
    sizes: Sizes {
        body: (8.95, 1.45),
        body_share: 0.95,
        tail: (180_000.0, 1.5),
        bounds: (43.0, 50_000_000.0),
    },
    embedded: Embedded::LogNormal { mu: 4.262_679_877, sigma: 0.7, most: 1000 },
    think: (1.0, 1.401),
    active: None,
    locality: Some((1.5, 0.80)),
    most_requests: 50_000.0,
};

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 3] = [SURGE98, SURGE_DIST, MODERN];

    /// The profile with that name.
    ///
    /// # Errors
    ///
    /// There is none; the message lists the names.
    pub fn named(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(|profile| profile.name).join(", ");
        let found = Self::ALL.into_iter().find(|profile| profile.name == name);
        found.ok_or_else(|| format!("{name}: no such profile; there are {names}"))
    }

    /// Draws the pause between two pages, in seconds.
    pub fn draw_think(&self, random: &mut impl Rng) -> f64 {
        pareto(self.think, random)
    }

    /// Draws the pause between two files of a page, in seconds.
    pub fn draw_active(&self, random: &mut impl Rng) -> f64 {
        let weibull = self.active.and_then(|(scale, shape)| Weibull::new(scale, shape).ok());
        weibull.map_or(0.0, |weibull| weibull.sample(random))
    }

    /// Draws how far down the next page is in the stack of recently used pages, from 0.
    pub fn draw_distance(&self, random: &mut impl Rng) -> Option<f64> {
        let (mu, sigma) = self.locality?;
        LogNormal::new(mu, sigma).ok().map(|it| it.sample(random))
    }
}

impl Sizes {
    /// Draws a size in bytes.
    pub fn draw(&self, random: &mut impl Rng) -> u64 {
        let (least, most) = self.bounds;
        loop {
            let in_body = random.random::<f64>() < self.body_share;
            let size = if in_body {
                let size = lognormal(self.body, random);
                // The body ends where the tail begins.
                if size >= self.tail.0 {
                    continue;
                }
                size
            } else {
                pareto(self.tail, random)
            };
            if (least..=most).contains(&size) {
                return size as u64;
            }
        }
    }
}

impl Embedded {
    /// Draws the number of files that a page has besides its own.
    pub fn draw(&self, random: &mut impl Rng) -> u32 {
        loop {
            let (value, less, most) = match *self {
                Embedded::Pareto { least, exponent, less, most } => {
                    (pareto((least, exponent), random), less, most)
                }
                Embedded::LogNormal { mu, sigma, most } => {
                    (lognormal((mu, sigma), random), 0, most)
                }
            };
            let count = (value as u32).saturating_sub(less);
            if count <= most {
                return count;
            }
        }
    }
}

fn pareto((least, exponent): (f64, f64), random: &mut impl Rng) -> f64 {
    // The parameters are constants in this file that the library accepts.
    Pareto::new(least, exponent).map_or(least, |it| it.sample(random))
}

fn lognormal((mu, sigma): (f64, f64), random: &mut impl Rng) -> f64 {
    LogNormal::new(mu, sigma).map_or(0.0, |it| it.sample(random))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const DRAWS: usize = 100_000;
    /// Kolmogorov's bound for a distance at the level of one in a thousand.
    const CRITICAL: f64 = 1.95;

    fn draws(mut draw: impl FnMut(&mut ChaCha8Rng) -> f64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(1998);
        let mut all: Vec<f64> = (0..DRAWS).map(|_| draw(&mut random)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// The greatest distance between the draws and a distribution function, multiplied by the root
    /// of their number (Kolmogorov and Smirnov).
    fn distance(draws: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
        let n = draws.len() as f64;
        let apart = draws.iter().enumerate().map(|(index, value)| {
            let expected = cdf(*value);
            let (below, at) = (index as f64 / n, (index + 1) as f64 / n);
            (expected - below).abs().max((expected - at).abs())
        });
        apart.fold(0.0, f64::max) * n.sqrt()
    }

    fn pareto_cdf((least, exponent): (f64, f64)) -> impl Fn(f64) -> f64 {
        move |x| if x < least { 0.0 } else { 1.0 - (least / x).powf(exponent) }
    }

    /// Phi from the complementary error function (Abramowitz and Stegun 7.1.26; error 1.5e-7).
    fn normal_cdf(z: f64) -> f64 {
        let x = z.abs() / std::f64::consts::SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * x);
        let poly = t
            * (0.254_829_592
                + t * (-0.284_496_736
                    + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
        let half = 0.5 * poly * (-x * x).exp();
        if z > 0.0 { 1.0 - half } else { half }
    }

    fn lognormal_cdf((mu, sigma): (f64, f64)) -> impl Fn(f64) -> f64 {
        move |x| if x <= 0.0 { 0.0 } else { normal_cdf((x.ln() - mu) / sigma) }
    }

    /// The distribution of sizes before they are cut to whole bytes.
    fn size_cdf(sizes: Sizes) -> impl Fn(f64) -> f64 {
        let (body, tail) = (lognormal_cdf(sizes.body), pareto_cdf(sizes.tail));
        let cut = sizes.tail.0;
        // Draws of the body that reach into the tail are drawn again, from the body or the tail.
        let body_mass = sizes.body_share * body(cut);
        let tail_mass = 1.0 - sizes.body_share;
        let raw = move |x: f64| {
            let in_body = sizes.body_share * body(x.min(cut));
            (in_body + tail_mass * tail(x)) / (body_mass + tail_mass)
        };
        let (least, most) = sizes.bounds;
        let (low, high) = (raw(least), raw(most));
        move |x| (raw(x) - low) / (high - low)
    }

    #[test]
    fn pauses_fit() {
        for profile in Profile::ALL {
            let think = draws(|random| profile.draw_think(random));
            assert!(distance(&think, pareto_cdf(profile.think)) < CRITICAL, "{}", profile.name);
            let Some((scale, shape)) = profile.active else { continue };
            let active = draws(|random| profile.draw_active(random));
            let cdf = |x: f64| 1.0 - (-(x / scale).powf(shape)).exp();
            assert!(distance(&active, cdf) < CRITICAL, "{}", profile.name);
        }
    }

    #[test]
    fn distances_fit() {
        for profile in Profile::ALL {
            let Some(locality) = profile.locality else { continue };
            let found = draws(|random| profile.draw_distance(random).unwrap());
            assert!(distance(&found, lognormal_cdf(locality)) < CRITICAL, "{}", profile.name);
        }
    }

    #[test]
    fn sizes_fit() {
        for profile in Profile::ALL {
            // Spread whole bytes evenly over the interval that they were cut from.
            let mut spread = ChaCha8Rng::seed_from_u64(7);
            let found = draws(|random| profile.sizes.draw(random) as f64 + spread.random::<f64>());
            let apart = distance(&found, size_cdf(profile.sizes));
            assert!(apart < CRITICAL, "{}: {apart}", profile.name);
        }
    }

    #[test]
    fn the_fitted_profile_has_the_sizes_of_the_original() {
        let sizes = draws(|random| SURGE_DIST.sizes.draw(random) as f64);
        let median = sizes[DRAWS / 2];
        let mean = sizes.iter().sum::<f64>() / DRAWS as f64;
        assert!((median / 2700.0 - 1.0).abs() < 0.12, "{median}");
        assert!((mean / 20_600.0 - 1.0).abs() < 0.05, "{mean}");
        assert!(sizes[0] >= 75.0 && sizes[DRAWS - 1] <= 2_980_000.0);
        let thinks = draws(|random| SURGE_DIST.draw_think(random));
        assert!((thinks[DRAWS / 2] / 1.64 - 1.0).abs() < 0.02);
    }

    /// Pearson's sum over the counts up to a value above which fewer than 50 draws are expected.
    fn chi_square(found: &[f64], probability: impl Fn(u32) -> f64, from: u32) -> (f64, usize) {
        let (mut sum, mut cells, mut left_p, mut left) = (0.0, 0, 1.0, DRAWS as f64);
        let mut value = from;
        loop {
            let p = probability(value);
            if p * (DRAWS as f64) < 50.0 {
                break;
            }
            let count = found.iter().filter(|it| **it == f64::from(value)).count() as f64;
            sum += (count - p * DRAWS as f64).powi(2) / (p * DRAWS as f64);
            (cells, left_p, left) = (cells + 1, left_p - p, left - count);
            value += 1;
        }
        let rest = left_p * DRAWS as f64;
        (sum + (left - rest).powi(2) / rest, cells)
    }

    #[test]
    fn embedded_references_fit() {
        for profile in Profile::ALL {
            let found = draws(|random| f64::from(profile.embedded.draw(random)));
            let (cdf, from, most): (Box<dyn Fn(f64) -> f64>, u32, u32) = match profile.embedded {
                Embedded::Pareto { least, exponent, less, most } => {
                    let cdf = pareto_cdf((least, exponent));
                    (Box::new(move |x| cdf(x + f64::from(less))), least as u32 - less, most)
                }
                Embedded::LogNormal { mu, sigma, most } => {
                    (Box::new(lognormal_cdf((mu, sigma))), 0, most)
                }
            };
            let all = cdf(f64::from(most) + 1.0);
            let from = (from..).find(|at| {
                (cdf(f64::from(*at) + 1.0) - cdf(f64::from(*at))) * DRAWS as f64 >= 50.0
            });
            let from = from.unwrap();
            let below = cdf(f64::from(from)) / all;
            let share = |value: u32| (cdf(f64::from(value) + 1.0) - cdf(f64::from(value))) / all;
            let fitting: Vec<f64> =
                found.iter().copied().filter(|it| *it >= f64::from(from)).collect();
            assert!((1.0 - fitting.len() as f64 / DRAWS as f64 - below).abs() < 0.01);
            let (sum, cells) = chi_square(&fitting, share, from);
            // The mean of chi-square is its number of degrees of freedom, and its variance twice
            // that.
            let bound = cells as f64 + 4.0 * (2.0 * cells as f64).sqrt() + 10.0;
            assert!(sum < bound, "{}: {sum} over {cells}", profile.name);
        }
        let mean = |profile: Profile| {
            draws(|random| f64::from(profile.embedded.draw(random))).iter().sum::<f64>()
                / DRAWS as f64
        };
        assert!((mean(SURGE_DIST) / 6.2 - 1.0).abs() < 0.1, "{}", mean(SURGE_DIST));
    }

    #[test]
    fn a_modern_page_has_the_requests_and_bytes_of_todays() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut pages: Vec<(u32, u64)> = (0..4000)
            .map(|_| {
                let requests = MODERN.embedded.draw(&mut random) + 1;
                let bytes = (0..requests).map(|_| MODERN.sizes.draw(&mut random)).sum();
                (requests, bytes)
            })
            .collect();
        pages.sort_unstable();
        let requests = f64::from(pages[2000].0);
        pages.sort_unstable_by_key(|(_, bytes)| *bytes);
        let bytes = pages[2000].1 as f64;
        assert!((requests / 71.0 - 1.0).abs() < 0.05, "{requests}");
        assert!((bytes / 2_652_000.0 - 1.0).abs() < 0.1, "{bytes}");
    }
}
