//! The command line of the benchmarks: what is measured, beside which servers, how often and how
//! long.

use crate::Result;
use crate::contender::Kind;
use crate::scenario::Scenario;
use std::path::PathBuf;

/// The plan of a run.
pub struct Plan {
    /// The scenarios, in order.
    pub scenarios: Vec<Scenario>,
    /// The servers beside Evenkeel, if they are named.
    pub against: Option<Vec<Kind>>,
    /// The number of turns of each contender.
    pub rounds: usize,
    /// The length of a turn in seconds.
    pub seconds: u64,
    /// The number of idle connections in P11.
    pub idle: usize,
    /// The refusals that are timed for users that exist, and for others.
    pub tries: usize,
    /// The file for the page; none for standard output.
    pub out: Option<PathBuf>,
}

impl Plan {
    /// Parses the arguments. The defaults are the values of the published figures.
    pub fn parse(arguments: &[String]) -> Result<Self> {
        let mut plan = Self {
            scenarios: Vec::new(),
            against: None,
            rounds: 5,
            seconds: 3,
            idle: 10_000,
            tries: 2_000,
            out: None,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value =
                || rest.next().ok_or_else(|| format!("{argument} needs a value behind it"));
            match argument.as_str() {
                "--against" => plan.against = Some(kinds(value()?)?),
                "--rounds" => plan.rounds = number(value()?)?,
                "--seconds" => plan.seconds = number(value()?)?,
                "--idle" => plan.idle = number(value()?)?,
                "--tries" => plan.tries = number(value()?)?,
                "--out" => plan.out = Some(PathBuf::from(value()?)),
                name => plan.scenarios.push(Scenario::named(name)?),
            }
        }
        if plan.scenarios.is_empty() {
            return Err(format!("no scenario is named; there are: {}", Scenario::names()));
        }
        Ok(plan)
    }

    /// Evenkeel and the servers beside it in a scenario: those that were named, or the scenario's
    /// own.
    pub fn contenders(&self, own: &[Kind]) -> Vec<Kind> {
        let beside = self.against.as_deref().unwrap_or(own);
        std::iter::once(Kind::EVENKEEL).chain(beside.iter().copied()).collect()
    }
}

fn kinds(names: &str) -> Result<Vec<Kind>> {
    names.split(',').filter(|name| !name.is_empty()).map(Kind::named).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| format!("{text}: a whole number is expected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_lab::peers::Peer;

    fn parse(line: &str) -> Result<Plan> {
        Plan::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn evenkeel_goes_first_and_the_named_follow() {
        let plan = parse("P1 P3 --against nginx,h2o --rounds 2").unwrap();
        let contenders = plan.contenders(&[Kind::Ceiling]);
        assert_eq!(contenders, [Peer::Evenkeel, Peer::Nginx, Peer::H2o].map(Kind::Peer));
        let own = parse("P1").unwrap().contenders(&[Kind::Ceiling]);
        assert_eq!(own, [Kind::EVENKEEL, Kind::Ceiling]);
        assert_eq!((plan.scenarios.len(), plan.rounds), (2, 2));
        let earlier = parse("P1 --against before-worker").unwrap().contenders(&[]);
        assert_eq!(earlier, [Kind::EVENKEEL, Kind::Before(Peer::EvenkeelWorker)]);
        assert_eq!(Kind::named("before-worker").unwrap().name(), "before-worker");
    }

    #[test]
    fn what_is_unknown_is_refused() {
        assert!(parse("P99").is_err());
        assert!(parse("P1 --against iis").is_err());
        assert!(parse("P1 --rounds few").is_err());
        assert!(parse("--rounds 3").is_err());
    }
}
