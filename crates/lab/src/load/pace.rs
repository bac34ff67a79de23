//! How fast clients send requests: as fast as they are answered, with pauses, or at a given rate.
//! Parses the figures of the command line, and draws each pause and each arrival from a seeded
//! stream, so that a run can be repeated.

use rand::Rng;
use rand_distr::{Distribution, Exp1, LogNormal, Pareto, Weibull};
use std::fmt;

/// When requests begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Pace {
    /// Each client sends its next request when it was answered (closed loop).
    #[default]
    Greedy,
    /// The same, with a pause between response and request.
    Think(Think),
    /// Requests are due at a rate, whether or not clients are free (open loop). They wait for a
    /// client, and their latency counts from when they were due. Arrivals are Poisson or evenly
    /// spaced.
    Open {
        /// Requests a second.
        rate: f64,
        /// Whether arrivals are evenly spaced.
        even: bool,
    },
    /// Clients arrive at a rate, make some requests with pauses, and leave (partly open: Schroeder,
    /// Wierman and Harchol-Balter, NSDI 2006).
    PartlyOpen {
        /// Clients a second, Poisson.
        rate: f64,
        /// The mean number of requests of each client, geometrically distributed.
        requests: f64,
        /// The pauses.
        think: Think,
    },
}

/// A pause between a response and the next request, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    /// None.
    None,
    /// Always the same.
    Fixed(f64),
    /// Uniform between the two.
    Uniform(f64, f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Lognormal with mu and sigma of its logarithm.
    LogNormal(f64, f64),
    /// Pareto with a least value and an exponent.
    Pareto(f64, f64),
    /// Weibull with scale and shape.
    Weibull(f64, f64),
}

/// The number of clients from some time on. With `ramp`, the number changes linearly up to the next
/// stretch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// The beginning, in seconds since the beginning of the run.
    pub from_s: f64,
    /// The number of clients at its beginning.
    pub clients: u32,
    /// Whether the number moves towards that of the next stretch.
    pub ramp: bool,
}

impl Think {
    /// Parses `0`, `500ms`, `1s..3s`, `exp:1s`, `lognormal:MU,SIGMA`, `pareto:1s,1.5`,
    /// `weibull:SCALE,SHAPE`. Times have a unit: us, ms, s or m; a number without a unit is in
    /// seconds.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "{text}: a pause is a time (500ms), a range (1s..3s), exp:MEAN, lognormal:MU,SIGMA, pareto:LEAST,EXPONENT or weibull:SCALE,SHAPE"
            )
        };
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (parse_time(low).ok_or_else(bad)?, parse_time(high).ok_or_else(bad)?);
            return if low <= high { Ok(Think::Uniform(low, high)) } else { Err(bad()) };
        }
        let Some((name, values)) = text.split_once(':') else {
            let time = parse_time(text).ok_or_else(bad)?;
            return Ok(if time == 0.0 { Think::None } else { Think::Fixed(time) });
        };
        let positive = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        let pair = values.split_once(',');
        let think = match (name, pair) {
            ("exp", None) => parse_time(values).map(Think::Exponential),
            ("lognormal", Some((mu, sigma))) => {
                let mu = mu.parse::<f64>().ok().filter(|mu| mu.is_finite());
                mu.zip(positive(sigma)).map(|(mu, sigma)| Think::LogNormal(mu, sigma))
            }
            ("pareto", Some((least, exponent))) => parse_time(least)
                .filter(|least| *least > 0.0)
                .zip(positive(exponent))
                .map(|(least, exponent)| Think::Pareto(least, exponent)),
            ("weibull", Some((scale, shape))) => parse_time(scale)
                .filter(|scale| *scale > 0.0)
                .zip(positive(shape))
                .map(|(scale, shape)| Think::Weibull(scale, shape)),
            _ => None,
        };
        think.ok_or_else(bad)
    }

    /// Whether there is no pause.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Think::None
    }

    /// Draws a pause, in nanoseconds.
    pub fn draw_ns(self, random: &mut impl Rng) -> u64 {
        // The parameters were checked by the parser. Impossible ones give no pause.
        let seconds = match self {
            Think::None => 0.0,
            Think::Fixed(time) => time,
            Think::Uniform(low, high) => low + (high - low) * random.random::<f64>(),
            Think::Exponential(mean) => mean * random.sample::<f64, _>(Exp1),
            Think::LogNormal(mu, sigma) => {
                LogNormal::new(mu, sigma).map_or(0.0, |it| it.sample(random))
            }
            Think::Pareto(least, exponent) => {
                Pareto::new(least, exponent).map_or(0.0, |it| it.sample(random))
            }
            Think::Weibull(scale, shape) => {
                Weibull::new(scale, shape).map_or(0.0, |it| it.sample(random))
            }
        };
        to_ns(seconds)
    }
}

impl fmt::Display for Think {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Think::None => write!(out, "0"),
            Think::Fixed(time) => write!(out, "{time}s"),
            Think::Uniform(low, high) => write!(out, "{low}s..{high}s"),
            Think::Exponential(mean) => write!(out, "exp:{mean}s"),
            Think::LogNormal(mu, sigma) => write!(out, "lognormal:{mu},{sigma}"),
            Think::Pareto(least, exponent) => write!(out, "pareto:{least}s,{exponent}"),
            Think::Weibull(scale, shape) => write!(out, "weibull:{scale}s,{shape}"),
        }
    }
}

/// The seconds of `10us`, `5ms`, `1.5s`, `2m`, `1h` or a number without a unit; never negative.
#[must_use]
pub fn parse_time(text: &str) -> Option<f64> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    let value: f64 = number.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value * unit)
}

pub(super) fn to_ns(seconds: f64) -> u64 {
    // A float that is too large for the type becomes its largest value.
    (seconds * 1e9) as u64
}

/// The number of clients at `at_s`, from stretches ordered by time.
#[must_use]
pub fn clients_at(stretches: &[Stretch], at_s: f64) -> u32 {
    let next = stretches.partition_point(|stretch| stretch.from_s <= at_s);
    let Some(now) = next.checked_sub(1).and_then(|last| stretches.get(last)) else { return 0 };
    match stretches.get(next).filter(|_| now.ramp) {
        None => now.clients,
        Some(then) => {
            let share = (at_s - now.from_s) / (then.from_s - now.from_s);
            let (from, to) = (f64::from(now.clients), f64::from(then.clients));
            (from + (to - from) * share).round() as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn pauses_are_read_and_shown() {
        for text in ["0", "0.5s", "1s..3s", "exp:1s", "lognormal:1.5,0.8", "pareto:1s,1.5"] {
            assert_eq!(Think::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Think::parse("1us").unwrap(), Think::Fixed(1e-6));
        for text in ["", "x", "-1s", "3s..1s", "exp:", "pareto:0s,1", "weibull:1s", "nan"] {
            assert!(Think::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pauses_have_the_mean_that_was_asked_for() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for (think, mean) in [
            (Think::Fixed(0.01), 0.01),
            (Think::Uniform(0.0, 2.0), 1.0),
            (Think::Exponential(0.5), 0.5),
            (Think::Pareto(1.0, 3.0), 1.5),
            (Think::Weibull(1.0, 1.0), 1.0),
            (Think::LogNormal(0.0, 0.5), (0.125_f64).exp()),
        ] {
            let sum: f64 = (0..40_000).map(|_| think.draw_ns(&mut random) as f64 / 1e9).sum();
            let found = sum / 40_000.0;
            assert!((found / mean - 1.0).abs() < 0.03, "{think}: {found}");
        }
    }

    #[test]
    fn ramps_go_straight_and_steps_stand() {
        let ramp = |from_s, clients, ramp| Stretch { from_s, clients, ramp };
        let all = [ramp(0.0, 0, true), ramp(10.0, 100, false), ramp(20.0, 50, false)];
        let at = |time| clients_at(&all, time);
        assert_eq!((at(0.0), at(5.0), at(10.0), at(19.9), at(30.0)), (0, 50, 100, 100, 50));
    }
}
