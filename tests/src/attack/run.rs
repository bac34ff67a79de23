//! A run of the attack: composes sites, loads them in batches and sends their requests; counts
//! differences, and shrinks and reports the first ones of each kind. A run that was stopped
//! continues where its state file says.

use super::accepted::{Entry, accepts};
use super::client::{Client, SILENCE};
use super::compose::{BATCH, Mix, compose};
use super::judge::{Answered, Class, Difference, given, is_conditional, judge, only_in_other};
use super::pair::{Pair, Refusal};
use super::shrink::{Bench, Seen, shrink};
use super::site::{Ask, Change, Entry as Standing, Kind, Node, Site, section_name, text};
use super::state;
use crate::answer::Response;
use crate::compare::{normalise, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of all sites.
    pub seed: u64,
    /// The kind of sites.
    pub mix: Mix,
    /// The number of the first site.
    pub from: u64,
    /// The number of sites.
    pub sites: u64,
    /// The number of cases of each kind of difference that are shrunk and reported.
    pub cases: usize,
    /// The classes that are shrunk; empty for all.
    pub classes: Vec<Class>,
    /// The file for the number of the next site and the totals, so that a stopped run can continue.
    pub state: Option<PathBuf>,
    /// The accepted differences.
    pub accepted: Vec<Entry>,
}

/// The results of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of sites that both servers loaded.
    pub sites: u64,
    /// The number of requests that were sent to both.
    pub requests: u64,
    /// The number of Apache's responses in each class of statuses. A run whose requests are
    /// meaningless would show here.
    pub statuses: BTreeMap<u16, u64>,
    /// The number of accepted differences, by the name of their entry.
    pub accepted: BTreeMap<String, u64>,
    /// The number of other differences, by kind.
    pub found: BTreeMap<Difference, u64>,
    /// The reports since the run was begun or resumed: the first request with each difference in a
    /// site, and the shrunk cases.
    pub reports: Vec<String>,
    /// The shapes of the cases that were reported.
    pub shapes: BTreeSet<String>,
    /// The number of shrunk cases of each kind.
    pub shrunk: BTreeMap<Difference, usize>,
}

/// The number of sites in a batch that apache2 may leave unanswered before the rest is left out.
const MOST_SILENCES: usize = 3;

/// A difference in one request to a site.
struct Case {
    number: u64,
    site: Site,
    difference: Difference,
    /// Both responses; none if a configuration was refused.
    answers: Option<[Answered; 2]>,
}

/// Runs the plan. Each report is passed to `tell` as it comes. An error is a fault of the attack
/// itself.
pub fn run(pair: &mut Pair, plan: &Plan, tell: &mut dyn FnMut(&str)) -> Result<Totals, String> {
    let (mut next, mut totals) = match &plan.state {
        Some(path) if path.exists() => state::resume(plan, path)?,
        _ => (plan.from, Totals::default()),
    };
    let end = plan.from + plan.sites;
    while next < end {
        let until = end.min((next / BATCH + 1) * BATCH);
        let sites =
            (next..until).map(|number| (number, compose(plan.seed, number, plan.mix))).collect();
        let told = totals.reports.len();
        let cases = attack(pair, plan, sites, &mut totals)?;
        totals.reports.iter().skip(told).for_each(|line| tell(line));
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

/// Loads one batch and sends all requests. Returns the cases to be shrunk.
fn attack(
    pair: &mut Pair,
    plan: &Plan,
    mut sites: BTreeMap<u64, Site>,
    totals: &mut Totals,
) -> Result<Vec<Case>, String> {
    let mut cases = Cases::default();
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
    let mut silences = 0;
    for (number, site) in &sites {
        if silences == MOST_SILENCES {
            break;
        }
        totals.sites += 1;
        let mut tag = String::new();
        for (index, ask) in site.asks.iter().enumerate() {
            let (answers, differences) = compare(pair, &mut client, (*number, site), ask, &tag)?;
            totals.requests += 1;
            if answers.first().is_some_and(is_silent) {
                silences += 1;
                break;
            }
            if let [Ok(response), _] = &answers {
                *totals.statuses.entry(response.status() / 100).or_default() += 1;
                tag = response.header("ETag").map_or(tag, str::to_owned);
            }
            for difference in differences {
                let asks = site.asks.get(..=index).unwrap_or_default().to_vec();
                let site = Site { asks, ..site.clone() };
                let answers = Some(answers.clone());
                let case = Case { number: *number, site, difference, answers };
                note(plan, totals, &mut cases, case);
            }
        }
    }
    Ok(cases.shrinkable)
}

/// Whether a server did not answer in time. apache2 does not where questions lead to questions
/// (`-U`): their number grows with a power of what LimitInternalRecursion allows.
fn is_silent(answer: &Answered) -> bool {
    answer.as_ref().is_err_and(|reason| reason == SILENCE)
}

/// Makes the changes before a request, sends it to both servers and compares their responses.
fn compare(
    pair: &Pair,
    client: &mut Client,
    (number, site): (u64, &Site),
    ask: &Ask,
    tag: &str,
) -> Result<([Answered; 2], Vec<Difference>), String> {
    let is_head = ask.method == "HEAD";
    let encode = |ask: &Ask| pair.with_place(number, |place| ask.encode(place, tag));
    pair.with_place(number, |place| ask.changes.iter().for_each(|it| site.change(it, place)));
    let answers = client.ask(&encode(ask), is_head)?;
    let [oracle, other] = &answers;
    let mut had = BTreeSet::new();
    let has_failed =
        |answer: &Answered| answer.as_ref().is_ok_and(|it| is_conditional(it.status()));
    if has_failed(oracle) && !has_failed(other) {
        let freed = client.ask(&encode(&without_conditions(ask)), is_head)?;
        had.extend(freed.first().map(|freed| given(freed, number)).unwrap_or_default());
    }
    for file in only_in_other(oracle, other, number) {
        for path in paths_of(site, &file) {
            let alone = client.ask(&encode(&asked_alone(ask, path)), false)?;
            had.extend(alone.first().map(|alone| given(alone, number)).unwrap_or_default());
        }
    }
    let differences = judge(oracle, other, &had, number);
    Ok((answers, differences))
}

/// The paths below the site's folder that lead to a file: its own, and those of links.
fn paths_of<'a>(site: &'a Site, file: &'a str) -> impl Iterator<Item = &'a str> {
    let links = site.entries.iter().filter(move |entry| match &entry.kind {
        Kind::Link(target, _) => target.strip_suffix(file).is_some_and(|it| it.ends_with('/')),
        _ => false,
    });
    std::iter::once(file).chain(links.map(|entry| &*entry.path))
}

/// The request without the fields that depend on what the client has.
fn without_conditions(ask: &Ask) -> Ask {
    let mut ask = ask.clone();
    ask.headers.retain(|header| !header.starts_with("If-") && !header.starts_with("Range:"));
    ask
}

/// A request to the same host for just a file of the site.
fn asked_alone(ask: &Ask, file: &str) -> Ask {
    let mut target = String::new();
    for byte in file.strip_prefix("htdocs").unwrap_or(file).bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                target.push(byte.into())
            }
            _ => target.push_str(&format!("%{byte:02x}")),
        }
    }
    // The host of an absolute target wins over the field.
    let named = ask.target.strip_prefix("http://").and_then(|rest| rest.split(['/', '?']).next());
    let headers = match named {
        Some(host) => vec![format!("Host: {host}")],
        None => ask.headers.iter().filter(|it| it.starts_with("Host:")).cloned().collect(),
    };
    let (method, version) = ("GET".to_owned(), ask.version.clone());
    Ask { method, target, version, headers, ..Ask::default() }
}

/// The differences of one batch.
#[derive(Default)]
struct Cases {
    /// Those that were reported, with the numbers of their sites.
    told: BTreeSet<(u64, Difference)>,
    /// Those that are to be shrunk.
    shrinkable: Vec<Case>,
}

/// Counts a difference, and keeps its case if it is to be shrunk.
fn note(plan: &Plan, totals: &mut Totals, cases: &mut Cases, case: Case) {
    let ask = case.site.asks.last();
    let answers = case.answers.as_ref();
    if let Some(entry) = accepts(&plan.accepted, &case.difference, &case.site, ask, answers) {
        *totals.accepted.entry(entry.difference.clone()).or_default() += 1;
        return;
    }
    *totals.found.entry(case.difference.clone()).or_default() += 1;
    // One site often shows the same difference for many requests.
    if !cases.told.insert((case.number, case.difference.clone())) {
        return;
    }
    totals.reports.push(sighting(plan, &case));
    let is_wanted = plan.classes.is_empty() || plan.classes.contains(&case.difference.class);
    let shrunk = totals.shrunk.entry(case.difference.clone()).or_default();
    if is_wanted && *shrunk < plan.cases {
        *shrunk += 1;
        cases.shrinkable.push(case);
    }
}

/// Where a difference was seen, in one line.
fn sighting(plan: &Plan, case: &Case) -> String {
    let asked = case.site.asks.last().filter(|_| case.answers.is_some());
    let asked = asked.map_or(String::new(), |ask| {
        let number = case.site.asks.len() - 1;
        format!(", request {number}: {} {}", ask.method, ask.target)
    });
    format!("-- {} (seed {}, site {}{asked})", case.difference, plan.seed, case.number)
}

/// What Evenkeel says of a configuration that uses a module which it does not have.
const LACKS: &str = "a module that this server does not have";

/// The difference for a refusal. A configuration that is refused for a module that is missing opens
/// nothing, so that such refusals are one kind.
fn refused(refusal: &Refusal) -> Difference {
    if !refusal.is_oracles && refusal.said.contains(LACKS) {
        return Difference { class: Class::Refused, detail: "whole".to_owned() };
    }
    let class = if refusal.is_oracles { Class::Taken } else { Class::Refused };
    let said = refusal.said.lines().last().unwrap_or_default();
    let is_plain = |c: &char| !c.is_ascii_digit();
    Difference { class, detail: said.chars().filter(is_plain).take(60).collect() }
}

/// Shrinks a case and writes its report; none if one of the same shape was reported.
fn examine(
    pair: &mut Pair,
    plan: &Plan,
    case: &Case,
    totals: &mut Totals,
) -> Result<Option<String>, String> {
    let mut bench = Sites { pair, next: 1 << 32 };
    let head = format!("{} (seed {}, site {})", case.difference, plan.seed, case.number);
    let Some(small) = shrink(&mut bench, &case.site, &case.difference)? else {
        let whole = write_case(&case.site, case.answers.as_ref());
        return Ok(Some(format!("== {head}\nnot repeated under another name\n{whole}")));
    };
    let seen = bench.examine(std::slice::from_ref(&small))?;
    let shape = shape(&small, &case.difference);
    if !totals.shapes.insert(shape.clone()) {
        return Ok(None);
    }
    let answers = seen.into_iter().next().and_then(|seen| seen.answers);
    Ok(Some(format!("== {head}\nshape: {shape}\n{}", write_case(&small, answers.as_ref()))))
}

/// The elements of a shrunk case. Cases with the same elements usually have the same cause.
fn shape(site: &Site, difference: &Difference) -> String {
    let mut words = BTreeSet::new();
    collect(&site.main, &mut words);
    collect(&site.hosts, &mut words);
    for entry in site.all_entries() {
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
    site.entries.iter().for_each(|entry| write_entry(&mut report, "---", entry));
    for ask in &site.asks {
        for change in &ask.changes {
            let _ = match change {
                Change::Remove(path) => writeln!(report, "--- then remove {path}"),
                Change::Move(from, to) => writeln!(report, "--- then move {from} to {to}"),
                Change::Put(entry) => {
                    write_entry(&mut report, "--- then put", entry);
                    continue;
                }
            };
        }
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

fn write_entry(report: &mut String, head: &str, entry: &Standing) {
    let _ = write!(report, "{head} {}", entry.path);
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

/// The status, and what the other response does not have.
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

/// Judges sites for the shrinker. Each gets a number that no site had before.
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
                let (answers, differences) =
                    compare(self.pair, &mut client, (*number, site), ask, &tag)?;
                let found = answers.first().and_then(|it| it.as_ref().ok()?.header("ETag"));
                tag = found.map_or(tag, str::to_owned);
                if let Some(seen) =
                    seen.get_mut(place(*number)).filter(|_| index + 1 == site.asks.len())
                {
                    seen.differences = differences;
                    seen.answers = Some(answers);
                }
            }
        }
        Ok(seen)
    }
}

impl Totals {
    /// Whether every difference that was found is accepted.
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
