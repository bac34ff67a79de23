//! A run of the attack: sites are composed, loaded in batches and asked; differences are counted,
//! the first ones of each kind are shrunk and reported. A run that was stopped goes on where its
//! state file says.

use super::accepted::{Entry, accepts};
use super::client::Client;
use super::compose::{BATCH, compose};
use super::judge::{Answered, Class, Difference, judge};
use super::pair::{Pair, Refusal};
use super::shrink::{Bench, Seen, shrink};
use super::site::{Kind, Node, Site, section_name, text};
use super::state;
use crate::answer::Response;
use crate::compare::{normalise, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

/// What is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of all sites.
    pub seed: u64,
    /// The number of the first site.
    pub from: u64,
    /// How many sites.
    pub sites: u64,
    /// How many cases of each kind of difference are shrunk and reported.
    pub cases: usize,
    /// Classes that are shrunk; all where there are none.
    pub classes: Vec<Class>,
    /// Where the number of the next site and the totals are kept, so that a run goes on after it
    /// was stopped.
    pub state: Option<PathBuf>,
    /// The accepted differences.
    pub accepted: Vec<Entry>,
}

/// What came of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many sites were loaded by both.
    pub sites: u64,
    /// How many requests were asked of both.
    pub requests: u64,
    /// How often Apache answered with each hundred of statuses: a run that asks for nothing real
    /// would show here.
    pub statuses: BTreeMap<u16, u64>,
    /// How many differences were accepted, by their entry's name.
    pub accepted: BTreeMap<String, u64>,
    /// How many were not, by their kind.
    pub found: BTreeMap<Difference, u64>,
    /// The reports of those that were shrunk since the run was begun or resumed.
    pub reports: Vec<String>,
    /// The shapes of the cases that were reported.
    pub shapes: BTreeSet<String>,
    /// How many cases of each kind were shrunk.
    pub shrunk: BTreeMap<Difference, usize>,
}

/// A difference at one request of a site.
struct Case {
    number: u64,
    site: Site,
    difference: Difference,
    /// Both answers; none where a configuration was refused.
    answers: Option<[Answered; 2]>,
}

/// Runs the plan; each report is told as it comes. An error is a fault of the attack itself.
pub fn run(pair: &mut Pair, plan: &Plan, tell: &mut dyn FnMut(&str)) -> Result<Totals, String> {
    let (mut next, mut totals) = match &plan.state {
        Some(path) if path.exists() => state::resume(plan, path)?,
        _ => (plan.from, Totals::default()),
    };
    let end = plan.from + plan.sites;
    while next < end {
        let until = end.min((next / BATCH + 1) * BATCH);
        let sites = (next..until).map(|number| (number, compose(plan.seed, number))).collect();
        let cases = attack(pair, plan, sites, &mut totals)?;
        for case in cases {
            if let Some(report) = examine(pair, plan, &case, &mut totals)? {
                tell(&report);
                totals.reports.push(report);
            }
        }
        next = until;
        if let Some(path) = &plan.state {
            state::keep(plan, path, next, &totals)?;
        }
    }
    Ok(totals)
}

/// Loads one batch and asks everything; what is to be shrunk comes out.
fn attack(
    pair: &mut Pair,
    plan: &Plan,
    mut sites: BTreeMap<u64, Site>,
    totals: &mut Totals,
) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for refusal in pair.load(&sites)? {
        let number = refusal.number.or(sites.keys().next().copied()).unwrap_or(0);
        let Some(site) = sites.get(&number).cloned() else { continue };
        let (difference, answers) = (refused(&refusal), None);
        note(plan, totals, &mut cases, Case { number, site, difference, answers });
        match refusal.number {
            Some(number) => drop(sites.remove(&number)),
            None => sites.values_mut().for_each(|site| site.main.clear()),
        }
    }
    let mut client = Client::new(pair.addresses());
    for (number, site) in &sites {
        totals.sites += 1;
        let mut tag = String::new();
        for (index, ask) in site.asks.iter().enumerate() {
            let request = pair.with_place(*number, |place| ask.encode(place, &tag));
            let answers = client.ask(&request, ask.method == "HEAD")?;
            let [oracle, other] = &answers;
            totals.requests += 1;
            if let Ok(response) = oracle {
                *totals.statuses.entry(response.status() / 100).or_default() += 1;
                tag = response.header("ETag").map_or(tag, str::to_owned);
            }
            for difference in judge(oracle, other, *number) {
                let asks = site.asks.get(..=index).unwrap_or_default().to_vec();
                let site = Site { asks, ..site.clone() };
                let answers = Some(answers.clone());
                let case = Case { number: *number, site, difference, answers };
                note(plan, totals, &mut cases, case);
            }
        }
    }
    Ok(cases)
}

/// Counts a difference, and keeps its case where it is to be shrunk.
fn note(plan: &Plan, totals: &mut Totals, cases: &mut Vec<Case>, case: Case) {
    let ask = case.site.asks.last();
    let answers = case.answers.as_ref();
    if let Some(entry) = accepts(&plan.accepted, &case.difference, &case.site, ask, answers) {
        *totals.accepted.entry(entry.difference.clone()).or_default() += 1;
        return;
    }
    *totals.found.entry(case.difference.clone()).or_default() += 1;
    let is_wanted = plan.classes.is_empty() || plan.classes.contains(&case.difference.class);
    let shrunk = totals.shrunk.entry(case.difference.clone()).or_default();
    // One site tends to show one difference at many requests.
    let is_new =
        cases.iter().all(|it| it.number != case.number || it.difference != case.difference);
    if is_wanted && is_new && *shrunk < plan.cases {
        *shrunk += 1;
        cases.push(case);
    }
}

/// The difference that a refusal is.
fn refused(refusal: &Refusal) -> Difference {
    let class = if refusal.is_oracles { Class::Taken } else { Class::Refused };
    let said = refusal.said.lines().last().unwrap_or_default();
    let is_plain = |c: &char| !c.is_ascii_digit();
    Difference { class, detail: said.chars().filter(is_plain).take(60).collect() }
}

/// Shrinks a case and writes its report; none where one of the same shape was reported.
fn examine(
    pair: &mut Pair,
    plan: &Plan,
    case: &Case,
    totals: &mut Totals,
) -> Result<Option<String>, String> {
    let mut bench = Sites { pair, next: 1 << 32 };
    let head = format!("{} (seed {}, site {})", case.difference, plan.seed, case.number);
    let Some(small) = shrink(&mut bench, &case.site, &case.difference)? else {
        return Ok(Some(format!("== {head}\nnot repeated by the site alone\n")));
    };
    let seen = bench.examine(std::slice::from_ref(&small))?;
    let shape = shape(&small, &case.difference);
    if !totals.shapes.insert(shape.clone()) {
        return Ok(None);
    }
    let answers = seen.into_iter().next().and_then(|seen| seen.answers);
    Ok(Some(format!("== {head}\nshape: {shape}\n{}", write_case(&small, answers.as_ref()))))
}

/// What a shrunk case is made of: cases of the same make have the same cause, more often than not.
fn shape(site: &Site, difference: &Difference) -> String {
    let mut words = BTreeSet::new();
    collect(&site.main, &mut words);
    collect(&site.hosts, &mut words);
    for entry in &site.entries {
        match &entry.kind {
            Kind::Htaccess(nodes) => {
                words.insert(".htaccess".to_owned());
                collect(nodes, &mut words);
            }
            Kind::Link(..) => drop(words.insert("link".to_owned())),
            _ => {}
        }
    }
    for name in ["VirtualHost", "ServerName", "DocumentRoot"] {
        words.remove(name);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let method = site.asks.last().map_or("", |ask| &ask.method);
    format!("{difference} {method} [{}]", words.join(" "))
}

fn collect(nodes: &[Node], words: &mut BTreeSet<String>) {
    for node in nodes {
        match node {
            Node::Line(line) => drop(words.insert(line.split(' ').next().unwrap_or("").to_owned())),
            Node::Section(open, children) => {
                words.insert(section_name(open).to_owned());
                collect(children, words);
            }
        }
    }
}

fn write_case(site: &Site, answers: Option<&[Answered; 2]>) -> String {
    let mut report = String::new();
    if !site.main.is_empty() {
        let _ = writeln!(report, "--- main server\n{}", text(&site.main).trim_end());
    }
    let _ = writeln!(report, "--- host\n{}", text(&site.hosts).trim_end());
    for entry in &site.entries {
        let _ = write!(report, "--- {}", entry.path);
        let _ = match &entry.kind {
            Kind::File => writeln!(report),
            Kind::Folder => writeln!(report, "/"),
            Kind::Text(text) => writeln!(report, "\n{}", text.trim_end()),
            Kind::Link(target, false) => writeln!(report, " -> {target}"),
            Kind::Link(target, true) => writeln!(report, " -> {target} (nobody's)"),
            Kind::Htaccess(nodes) => writeln!(report, "\n{}", text(nodes).trim_end()),
        };
        if let Some(mode) = entry.mode {
            let _ = writeln!(report, "(mode {mode:o})");
        }
    }
    for ask in &site.asks {
        let _ = writeln!(report, "--- {} {} {}", ask.method, ask.target, ask.version);
        for header in &ask.headers {
            let _ = writeln!(report, "{header}");
        }
        if !ask.body.is_empty() {
            let _ = writeln!(report, "\n{}", ask.body);
        }
    }
    if let Some([oracle, other]) = answers {
        let _ = writeln!(report, "--- apache2: {}", write_answer(oracle, other));
        let _ = writeln!(report, "--- ours:    {}", write_answer(other, oracle));
    }
    report
}

/// The status and what the other answer does not have.
fn write_answer(own: &Answered, other: &Answered) -> String {
    let own = match own {
        Ok(response) => normalise(response),
        Err(reason) => return reason.clone(),
    };
    let other = other.as_ref().map_or(Response::default(), normalise);
    let mut text = own.status_line.clone();
    for (name, value) in own.headers.iter().filter(|field| !other.headers.contains(field)) {
        let _ = write!(text, "\n    {name}: {value}");
    }
    if own.body != other.body {
        let _ = write!(text, "\n    {}", shown(&own.body));
    }
    text
}

/// Judges sites for the shrinker: each gets a number that no site had before.
struct Sites<'a> {
    pair: &'a mut Pair,
    next: u64,
}

impl Bench for Sites<'_> {
    fn examine(&mut self, sites: &[Site]) -> Result<Vec<Seen>, String> {
        let first = self.next;
        let mut numbered = BTreeMap::new();
        for site in sites {
            numbered.insert(self.next, site.clone());
            self.next += 1;
        }
        let mut seen = vec![Seen::default(); sites.len()];
        if sites.is_empty() {
            return Ok(seen);
        }
        let place = |number: u64| usize::try_from(number - first).unwrap_or(usize::MAX);
        let mut refused_numbers = BTreeSet::new();
        for refusal in self.pair.load(&numbered)? {
            let number = refusal.number.unwrap_or(first);
            refused_numbers.insert(number);
            if let Some(seen) = seen.get_mut(place(number)) {
                seen.differences.push(refused(&refusal));
            }
        }
        let mut client = Client::new(self.pair.addresses());
        for (number, site) in &numbered {
            if refused_numbers.contains(number) {
                continue;
            }
            let mut tag = String::new();
            for (index, ask) in site.asks.iter().enumerate() {
                let request = self.pair.with_place(*number, |place| ask.encode(place, &tag));
                let answers = client.ask(&request, ask.method == "HEAD")?;
                let found = answers.first().and_then(|it| it.as_ref().ok()?.header("ETag"));
                tag = found.map_or(tag, str::to_owned);
                if let Some(seen) =
                    seen.get_mut(place(*number)).filter(|_| index + 1 == site.asks.len())
                {
                    let [oracle, other] = &answers;
                    seen.differences = judge(oracle, other, *number);
                    seen.answers = Some(answers);
                }
            }
        }
        Ok(seen)
    }
}

impl Totals {
    /// Whether nothing was found that is not accepted.
    pub fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// The counts, in words.
    pub fn summary(&self) -> String {
        let mut text = format!("{} sites, {} requests;", self.sites, self.requests);
        for (hundred, count) in &self.statuses {
            let _ = write!(text, " {hundred}xx {count}");
        }
        text.push('\n');
        for (name, count) in &self.accepted {
            let _ = writeln!(text, "accepted {count:>7}  {name}");
        }
        for (difference, count) in &self.found {
            let _ = writeln!(text, "found    {count:>7}  {difference}");
        }
        text
    }
}
