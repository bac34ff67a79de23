//! Finds the smallest site that still shows a difference in its last request: leaves out parts in
//! ever smaller groups, and then simplifies what is left. Many candidates are judged at once,
//! because servers take longer to load than to answer.

use super::judge::{Answered, Difference};
use super::site::{Ask, Change, Entry, Kind, Node, Site};
use std::collections::BTreeSet;

/// What was seen for the last request of one site.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The differences.
    pub differences: Vec<Difference>,
    /// Both responses, if both servers accepted the site.
    pub answers: Option<[Answered; 2]>,
}

/// Something that can judge sites with the same main server.
pub trait Bench {
    /// What is seen for each site, in order.
    fn examine(&mut self, sites: &[Site]) -> Result<Vec<Seen>, String>;
}

/// The smallest site that still shows the difference; none if the site itself does not.
pub fn shrink(
    bench: &mut dyn Bench,
    site: &Site,
    wanted: &Difference,
) -> Result<Option<Site>, String> {
    let alone = site.with_last_alone();
    let mut site = match holders(bench, &[alone.clone(), site.clone()], wanted)?.as_slice() {
        [true, ..] => alone,
        [false, true] => site.clone(),
        _ => return Ok(None),
    };
    drop_main(bench, &mut site, wanted)?;
    let mut size = site.parts().div_ceil(2);
    while size > 0 {
        size = if drop_groups(bench, &mut site, wanted, size)? { size } else { size / 2 };
    }
    while let Some(simpler) = first_holder(bench, simpler(&site), wanted)? {
        site = simpler;
    }
    Ok(Some(site))
}

/// Which of the sites show the difference. Each main server is loaded separately.
fn holders(
    bench: &mut dyn Bench,
    sites: &[Site],
    wanted: &Difference,
) -> Result<Vec<bool>, String> {
    let seen = bench.examine(sites)?;
    Ok(seen.iter().map(|seen| seen.differences.contains(wanted)).collect())
}

fn first_holder(
    bench: &mut dyn Bench,
    sites: Vec<Site>,
    wanted: &Difference,
) -> Result<Option<Site>, String> {
    let held = holders(bench, &sites, wanted)?;
    Ok(sites.into_iter().zip(held).find(|(_, held)| *held).map(|(site, _)| site))
}

/// The number of parts of the main server, which are the first ones of the site.
fn main_parts(site: &Site) -> usize {
    let none = (Vec::new(), Vec::new(), Vec::new());
    Site { main: site.main.clone(), hosts: none.0, entries: none.1, asks: none.2 }.parts()
}

/// Leaves out as much of the main server as possible: all of it, or else part by part.
fn drop_main(bench: &mut dyn Bench, site: &mut Site, wanted: &Difference) -> Result<(), String> {
    let bare = Site { main: Vec::new(), ..site.clone() };
    if holders(bench, std::slice::from_ref(&bare), wanted)?.contains(&true) {
        *site = bare;
        return Ok(());
    }
    let mut part = 0;
    while part < main_parts(site) {
        let without = site.prune(&mut |other| other != part);
        if holders(bench, std::slice::from_ref(&without), wanted)?.contains(&true) {
            *site = without;
        } else {
            part += 1;
        }
    }
    Ok(())
}

/// Leaves out groups of `size` parts that do not belong to the main server. Returns whether any
/// could be left out.
fn drop_groups(
    bench: &mut dyn Bench,
    site: &mut Site,
    wanted: &Difference,
    size: usize,
) -> Result<bool, String> {
    let parts: Vec<usize> = (main_parts(site)..site.parts()).collect();
    let groups: Vec<&[usize]> = parts.chunks(size).collect();
    let without = |dropped: &BTreeSet<usize>| site.prune(&mut |part| !dropped.contains(&part));
    let candidates: Vec<Site> =
        groups.iter().map(|group| without(&group.iter().copied().collect())).collect();
    let held = holders(bench, &candidates, wanted)?;
    // Groups that can be left out separately can often be left out together.
    let mut together = BTreeSet::new();
    let mut unions = Vec::new();
    for group in groups.iter().zip(held).filter(|(_, held)| *held).map(|(group, _)| group) {
        together.extend(group.iter().copied());
        unions.push(without(&together));
    }
    unions.reverse();
    match first_holder(bench, unions, wanted)? {
        Some(smaller) => *site = smaller,
        None => return Ok(false),
    }
    Ok(true)
}

/// All variants of the site with one thing simplified.
fn simpler(site: &Site) -> Vec<Site> {
    let mut sites = Vec::new();
    for hosts in simpler_nodes(&site.hosts) {
        sites.push(Site { hosts, ..site.clone() });
    }
    for (index, entry) in site.entries.iter().enumerate() {
        for kind in simpler_kinds(&entry.kind) {
            let mut site = site.clone();
            if let Some(entry) = site.entries.get_mut(index) {
                entry.kind = kind;
            }
            sites.push(site);
        }
    }
    for (index, ask) in site.asks.iter().enumerate() {
        for (number, change) in ask.changes.iter().enumerate() {
            let Change::Put(entry) = change else { continue };
            for kind in simpler_kinds(&entry.kind) {
                let mut site = site.clone();
                let changes = site.asks.get_mut(index).map(|ask| &mut ask.changes);
                if let Some(change) = changes.and_then(|changes| changes.get_mut(number)) {
                    *change = Change::Put(Entry { kind, ..entry.clone() });
                }
                sites.push(site);
            }
        }
    }
    if let Some((last, before)) = site.asks.split_last() {
        for ask in simpler_asks(last) {
            let asks = before.iter().cloned().chain([ask]).collect();
            sites.push(Site { asks, ..site.clone() });
        }
    }
    sites
}

fn simpler_kinds(kind: &Kind) -> Vec<Kind> {
    match kind {
        Kind::Htaccess(nodes) => simpler_nodes(nodes).into_iter().map(Kind::Htaccess).collect(),
        Kind::Link(target, true) => vec![Kind::Link(target.clone(), false)],
        _ => Vec::new(),
    }
}

fn simpler_nodes(nodes: &[Node]) -> Vec<Vec<Node>> {
    let mut all = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let mut replace = |by: Vec<Node>| {
            let mut nodes = nodes.to_vec();
            nodes.splice(index..=index, by);
            all.push(nodes);
        };
        match node {
            Node::Section(open, children) => {
                // The host itself is not a section that could be removed.
                if !open.starts_with("<VirtualHost") {
                    replace(children.clone());
                }
                for children in simpler_nodes(children) {
                    replace(vec![Node::Section(open.clone(), children)]);
                }
            }
            Node::Line(line) => {
                let words: Vec<&str> = line.split(' ').collect();
                // A directive without arguments is a different fault.
                for dropped in (1..words.len()).filter(|_| words.len() > 2) {
                    let kept = words.iter().enumerate().filter(|(word, _)| *word != dropped);
                    let kept: Vec<&str> = kept.map(|(_, word)| *word).collect();
                    replace(vec![Node::Line(kept.join(" "))]);
                }
            }
        }
    }
    all
}

fn simpler_asks(ask: &Ask) -> Vec<Ask> {
    let mut asks = Vec::new();
    if ask.method != "GET" {
        asks.push(Ask { method: "GET".to_owned(), ..ask.clone() });
    }
    if ask.version != "HTTP/1.1" {
        asks.push(Ask { version: "HTTP/1.1".to_owned(), ..ask.clone() });
    }
    if !ask.body.is_empty() {
        asks.push(Ask { body: String::new(), ..ask.clone() });
    }
    let mut target = |target: String| {
        if target.starts_with('/') && target != ask.target {
            asks.push(Ask { target, ..ask.clone() });
        }
    };
    target(ask.target.replace("http://@HOST@", ""));
    target(ask.target.split('?').next().unwrap_or_default().to_owned());
    target(ask.target.replace("//", "/"));
    for (at, _) in ask.target.match_indices('/') {
        let (before, after) = ask.target.split_at(at);
        let rest = after.get(1..).unwrap_or_default();
        let next = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default();
        target(format!("{before}{next}"));
    }
    for (at, _) in ask.target.match_indices('%') {
        let (before, after) = ask.target.split_at(at);
        let byte = after.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = byte.filter(u8::is_ascii_graphic) {
            let rest = after.get(3..).unwrap_or_default();
            target(format!("{before}{}{rest}", char::from(byte)));
        }
    }
    asks
}

#[cfg(test)]
mod tests {
    use super::super::compose::{Mix, compose};
    use super::super::judge::Class;
    use super::super::site::text;
    use super::*;

    fn wanted() -> Difference {
        Difference { class: Class::Given, detail: "403 -> 200".to_owned() }
    }

    /// Shows the difference if all of these texts are in the site.
    struct Needs(Vec<&'static str>, usize);

    impl Bench for Needs {
        fn examine(&mut self, sites: &[Site]) -> Result<Vec<Seen>, String> {
            self.1 += 1;
            let seen = |site: &Site| {
                let all = format!("{}{}{site:?}", text(&site.main), text(&site.hosts));
                let is_found = self.0.iter().all(|needed| all.contains(needed));
                let differences = if is_found { vec![wanted()] } else { Vec::new() };
                Seen { differences, answers: None }
            };
            Ok(sites.iter().map(seen).collect())
        }
    }

    fn line(text: &str) -> Node {
        Node::Line(text.to_owned())
    }

    #[test]
    fn what_is_not_needed_is_left_out() {
        let mut site = compose(1, 5, Mix::All);
        site.asks.iter_mut().for_each(|ask| ask.changes.clear());
        let section = Node::Section("<Files a>".into(), vec![line("Needed b c"), line("Other")]);
        let host = Node::Section("<VirtualHost *>".into(), vec![line("A"), section, line("B")]);
        site.hosts.push(host);
        let path = "htdocs/needed.txt".to_owned();
        site.entries.insert(1, Entry { path, kind: Kind::File, mode: Some(0) });
        if let Some(last) = site.asks.last_mut() {
            last.method = "POST".to_owned();
            last.target = "/one//needed/%74hree?q".to_owned();
        }
        let mut bench = Needs(vec!["Needed", "htdocs/needed.txt", "needed/"], 0);
        let small = shrink(&mut bench, &site, &wanted()).unwrap().unwrap();
        assert_eq!(small.main, []);
        // The contents of a section move out of it, and words are removed.
        assert_eq!(text(&small.hosts), "<VirtualHost *>\n  Needed c\n</VirtualHost>\n");
        assert_eq!((small.entries.len(), small.asks.len()), (1, 1));
        assert_eq!(small.entries[0].mode, None);
        let ask = &small.asks[0];
        assert_eq!((ask.method.as_str(), ask.target.as_str()), ("GET", "/needed/three"));
        assert_eq!(ask.headers, Vec::<String>::new());
        assert!(bench.1 < 200, "{} loads", bench.1);
    }

    #[test]
    fn what_is_not_repeated_is_told() {
        let mut bench = Needs(vec!["not there"], 0);
        assert_eq!(shrink(&mut bench, &compose(1, 5, Mix::All), &wanted()), Ok(None));
    }
}
