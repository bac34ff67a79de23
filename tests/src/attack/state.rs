//! The file with the progress and the counts of a run, so that a run which was stopped ends with
//! the same totals as one that was not.

use super::compose::Mix;
use super::judge::{Class, Difference};
use super::run::{Plan, Totals};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Stores the number of the next site and the totals. A stop at any moment leaves either the
/// previous state or this one.
pub fn keep(plan: &Plan, path: &Path, next: u64, totals: &Totals) -> Result<(), String> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    fs::write(&new, write(plan, next, totals))
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The number of the next site and the totals of the run that was stopped. It is an error if that
/// run had other sites.
pub fn resume(plan: &Plan, path: &Path) -> Result<(u64, Totals), String> {
    let told = |fault: &str| format!("{}: {fault}", path.display());
    let text = fs::read_to_string(path).map_err(|error| told(&error.to_string()))?;
    let (run, next, totals) = parse(&text).ok_or_else(|| told("no state of a run"))?;
    let (seed, from, mix) = run;
    match run == (plan.seed, plan.from, plan.mix) {
        true => Ok((next, totals)),
        false => Err(told(&format!("that run of {mix:?} has seed {seed} and begins at {from}"))),
    }
}

fn write(plan: &Plan, next: u64, totals: &Totals) -> String {
    let mut text = format!("seed {}\nfrom {}\nnext {next}\n", plan.seed, plan.from);
    let _ = writeln!(text, "questions {}", u8::from(plan.mix == Mix::Questions));
    let _ = writeln!(text, "sites {}\nrequests {}", totals.sites, totals.requests);
    for (hundred, count) in &totals.statuses {
        let _ = writeln!(text, "status {count} {hundred}");
    }
    for (name, count) in &totals.accepted {
        let _ = writeln!(text, "accepted {count} {name}");
    }
    for (difference, count) in &totals.found {
        let _ = writeln!(text, "found {count} {difference}");
    }
    for (difference, count) in &totals.shrunk {
        let _ = writeln!(text, "shrunk {count} {difference}");
    }
    for shape in &totals.shapes {
        let _ = writeln!(text, "shape 1 {shape}");
    }
    text
}

/// The seed, the first site and the mix, the next site, and the totals.
fn parse(text: &str) -> Option<((u64, u64, Mix), u64, Totals)> {
    let mut totals = Totals::default();
    let (mut seed, mut from, mut next) = (None, None, None);
    let mut mix = Mix::All;
    for line in text.lines() {
        let (key, rest) = line.split_once(' ')?;
        let (count, name) = rest.split_once(' ').unwrap_or((rest, ""));
        let count: u64 = count.parse().ok()?;
        match key {
            "seed" => seed = Some(count),
            "from" => from = Some(count),
            "questions" if count == 1 => mix = Mix::Questions,
            "questions" => {}
            "next" => next = Some(count),
            "sites" => totals.sites = count,
            "requests" => totals.requests = count,
            "status" => drop(totals.statuses.insert(name.parse().ok()?, count)),
            "accepted" => drop(totals.accepted.insert(name.to_owned(), count)),
            "found" => drop(totals.found.insert(difference(name)?, count)),
            "shrunk" => {
                let count = usize::try_from(count).ok()?;
                totals.shrunk.insert(difference(name)?, count);
            }
            "shape" => drop(totals.shapes.insert(name.to_owned())),
            _ => return None,
        }
    }
    Some(((seed?, from?, mix), next?, totals))
}

fn difference(said: &str) -> Option<Difference> {
    let (class, detail) = said.split_once(' ')?;
    Some(Difference { class: Class::named(class)?, detail: detail.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64, from: u64) -> Plan {
        let (classes, accepted) = (Vec::new(), Vec::new());
        Plan { seed, mix: Mix::All, from, sites: 100, cases: 1, classes, state: None, accepted }
    }

    fn totals() -> Totals {
        let refused = Difference { class: Class::Refused, detail: "Odd  line: of it".to_owned() };
        let given = Difference { class: Class::Given, detail: "403 -> 200".to_owned() };
        let mut totals = Totals { sites: 40, requests: 1_200, ..Totals::default() };
        totals.statuses.extend([(2, 700), (4, 500)]);
        totals.accepted.insert("header Vary *".to_owned(), 3);
        totals.found.extend([(refused, 1), (given.clone(), 2)]);
        totals.shrunk.insert(given, 1);
        totals.shapes.insert("given 403 -> 200 GET [Directory link]".to_owned());
        totals
    }

    #[test]
    fn what_was_kept_is_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        keep(&plan(7, 20), &path, 80, &totals()).unwrap();
        assert_eq!(resume(&plan(7, 20), &path), Ok((80, totals())));
        let asking = Plan { mix: Mix::Questions, ..plan(7, 20) };
        for other in [plan(8, 20), plan(7, 0), asking] {
            assert!(resume(&other, &path).unwrap_err().contains("seed 7 and begins at 20"));
        }
        fs::write(&path, "seed 7\nfrom 20\n").unwrap();
        assert!(resume(&plan(7, 20), &path).unwrap_err().contains("no state"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
