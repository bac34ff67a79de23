//! The load of a simulation: how many clients there are, or how many requests come each second,
//! over time. Parsed from the command line.

use crate::load::parse_time;

/// Clients over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Whether requests come at a rate, whether or not they are answered. Otherwise clients wait
    /// for their answers.
    pub open: bool,
    /// The mean number of requests of each client that comes at a rate.
    pub visit: f64,
    /// The number of clients, or requests a second, from each moment in seconds on.
    levels: Vec<(f64, f64)>,
    /// The seconds after which the load repeats.
    cycle: Option<f64>,
}

/// The time of a step. What is there at the beginning has settled by then.
const STEP_S: f64 = 10.0;

/// The steps of a ramp.
const RAMP_STEPS: u32 = 100;

/// The forms that [`Load::parse`] accepts, for help and errors.
pub const FORMS: &str = "a load is a number of clients (390), step:[FROM..]TO[@TIME], \
    ramp:FROM..TO/TIME, square:LOW,HIGH,TIME_HIGH,TIME_LOW or burst:LOW,HIGH,TIME,EVERY; with \
    open: before it, requests a second in place of clients (open:step:50..200), with partly:N: \
    clients a second that make N requests each, on the average";

impl Load {
    /// No clients.
    pub fn none() -> Self {
        Self { open: false, visit: 1.0, levels: Vec::new(), cycle: None }
    }

    /// Parses a load; see [`FORMS`].
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text}: {FORMS}");
        let partly = text.strip_prefix("partly:").and_then(|rest| rest.split_once(':'));
        let (open, visit, rest) = match (text.strip_prefix("open:"), partly) {
            (Some(rest), _) => (true, 1.0, rest),
            (None, Some((visit, rest))) => (true, visit.parse().map_err(|_| bad())?, rest),
            (None, None) => (false, 1.0, text),
        };
        if !(1.0..=1e6).contains(&visit) {
            return Err(bad());
        }
        let number = |text: &str| {
            text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0 && *n <= 1e7)
        };
        let time = |text: &str| parse_time(text.trim()).filter(|t| *t > 0.0);
        let shape = rest.split_once(':');
        let parsed = match shape {
            None => number(rest).map(|level| (vec![(0.0, level)], None)),
            Some(("step", step)) => {
                let (levels, at) = match step.split_once('@') {
                    Some((levels, at)) => (levels, time(at)),
                    None => (step, Some(STEP_S)),
                };
                let (from, to) = levels.split_once("..").unwrap_or(("0", levels));
                let both = number(from).zip(number(to)).zip(at);
                both.map(|((from, to), at)| (vec![(0.0, from), (at, to)], None))
            }
            Some(("ramp", ramp)) => ramp.split_once('/').and_then(|(levels, within)| {
                let (from, to) = levels.split_once("..")?;
                let (from, to, within) = (number(from)?, number(to)?, time(within)?);
                let step = |step| {
                    let part = f64::from(step) / f64::from(RAMP_STEPS);
                    (STEP_S + within * part, from + (to - from) * part)
                };
                let mut levels = vec![(0.0, from)];
                levels.extend((0..=RAMP_STEPS).map(step));
                Some((levels, None))
            }),
            Some((name @ ("square" | "burst"), four)) => {
                let four: Vec<&str> = four.split(',').collect();
                match four.as_slice() {
                    [low, high, first, second] => number(low)
                        .zip(number(high))
                        .zip(time(first).zip(time(second)))
                        .map(|((low, high), (up, other))| {
                            let cycle = if name == "square" { up + other } else { other };
                            (vec![(0.0, high), (up.min(cycle), low)], Some(cycle))
                        }),
                    _ => None,
                }
            }
            Some(_) => None,
        };
        let (levels, cycle) = parsed.ok_or_else(bad)?;
        Ok(Self { open, visit, levels, cycle })
    }

    /// The number from this second on, and until when it holds.
    pub fn at(&self, second: f64) -> (f64, Option<f64>) {
        let (base, place) = match self.cycle {
            // The end of a cycle belongs to the next one, despite rounding.
            Some(cycle) => {
                let turn = ((second + 1e-9) / cycle).floor();
                (turn * cycle, second - turn * cycle)
            }
            None => (0.0, second),
        };
        let later = self.levels.partition_point(|(from, _)| *from <= place + 1e-9);
        let level = later.checked_sub(1).and_then(|index| self.levels.get(index));
        let next = self.levels.get(later).map(|(from, _)| base + from);
        let next = next.or(self.cycle.map(|cycle| base + cycle));
        (level.map_or(0.0, |(_, level)| *level), next)
    }

    /// When the number first rises after the beginning. The time until the pool is full counts from
    /// here.
    pub fn first_rise_s(&self) -> f64 {
        let pairs = self.levels.iter().zip(self.levels.iter().skip(1));
        pairs.into_iter().find(|(a, b)| b.1 > a.1).map_or(0.0, |(_, b)| b.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Load {
        Load::parse(text).unwrap()
    }

    #[test]
    fn loads_are_what_they_say() {
        assert_eq!(load("390").at(77.0), (390.0, None));
        let step = load("step:60..390@20s");
        assert_eq!((step.at(0.0), step.at(20.0)), ((60.0, Some(20.0)), (390.0, None)));
        assert_eq!(load("step:390").first_rise_s(), STEP_S);
        let square = load("square:60,390,60s,120s");
        assert_eq!(square.at(0.0), (390.0, Some(60.0)));
        assert_eq!(square.at(60.0), (60.0, Some(180.0)));
        assert_eq!(square.at(180.0), (390.0, Some(240.0)));
        let ramp = load("open:ramp:0..100/10s");
        assert!(ramp.open);
        assert_eq!(ramp.at(15.0).0, 50.0);
        let partly = load("partly:6.5:40");
        assert_eq!((partly.open, partly.visit, partly.at(3.0).0), (true, 6.5, 40.0));
        assert_eq!(load("burst:10,500,2s,60s").at(2.0), (10.0, Some(60.0)));
    }

    #[test]
    fn what_is_no_load_is_told() {
        for text in [
            "",
            "many",
            "step:",
            "step:1..x",
            "square:1,2,3s",
            "-3",
            "ramp:1..2",
            "open:wave:3",
            "partly:0:3",
            "partly:x:3",
        ] {
            assert!(Load::parse(text).unwrap_err().contains("a load is"), "{text}");
        }
    }
}
