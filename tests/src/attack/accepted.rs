//! Reads and checks `tests/attack/accepted`, the list of accepted differences. Each entry names a
//! difference as narrowly as possible, the reason, and the sentence of the manual that documents it
//! for administrators. A file that Apache denies and Evenkeel serves is never accepted.

use super::judge::{Answered, Class, Difference};
use super::site::{Ask, Kind, Site, text};
use std::path::Path;

/// One entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The difference in its reported form, such as `header Vary 200`. A `*` stands for any one
    /// word.
    pub difference: String,
    /// Texts that the configuration must contain, including .htaccess files.
    pub config: Vec<String>,
    /// Texts that the request must contain.
    pub request: Vec<String>,
    /// Texts that apache2's response must contain, in its status line, a field or its body.
    pub apache: Vec<String>,
    /// Texts that Evenkeel's response must contain.
    pub ours: Vec<String>,
    /// The reason.
    pub reason: String,
    /// The page of the manual and a sentence on it, separated by `: `.
    pub manual: String,
}

/// The entries in the file `path` of the repository at `root`.
pub fn read(root: &Path, path: &str) -> Result<Vec<Entry>, String> {
    let load = |path: &str| {
        std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let entries = parse(&load(path)?)?;
    for entry in &entries {
        let (page, sentence) = entry.manual.split_once(": ").unwrap_or_default();
        // A page may break a sentence anywhere.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        if sentence.is_empty() || !words(&load(page)?).contains(&words(sentence)) {
            return Err(format!("{path}: {page:?} does not say: {sentence}"));
        }
    }
    Ok(entries)
}

/// Parses entries: lines of `key = value`, with an empty line between two entries.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = vec![Entry::default()];
    for (index, line) in text.lines().enumerate() {
        let told = |fault: &str| format!("accepted:{}: {fault}: {line}", index + 1);
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            entries.push(Entry::default());
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| told("no key"))?;
        let value = value.trim().to_owned();
        let Some(entry) = entries.last_mut() else { continue };
        match key.trim() {
            "difference" => entry.difference = value,
            "config" => entry.config.push(value),
            "request" => entry.request.push(value),
            "apache" => entry.apache.push(value),
            "ours" => entry.ours.push(value),
            "reason" => entry.reason = value,
            "manual" => entry.manual = value,
            _ => return Err(told("no such key")),
        }
    }
    entries.retain(|entry| *entry != Entry::default());
    entries.iter().try_for_each(check)?;
    Ok(entries)
}

fn check(entry: &Entry) -> Result<(), String> {
    let told = |fault: &str| Err(format!("accepted: {fault}: {}", entry.difference));
    let class = entry.difference.split(' ').next().and_then(Class::named);
    let Some(class) = class else { return told("no such class") };
    if class.is_never_accepted() {
        return told("what Apache denies and we give is never accepted");
    }
    if entry.reason.is_empty() || entry.manual.is_empty() {
        return told("no reason, or no sentence of the manual");
    }
    if entry.config.is_empty() && entry.request.is_empty() {
        return told("it would accept this difference everywhere");
    }
    Ok(())
}

/// The entry that accepts this difference for this request to the site, or for its configuration.
/// `answers` are those of both servers, apache2 first.
pub fn accepts<'a>(
    entries: &'a [Entry],
    difference: &Difference,
    site: &Site,
    ask: Option<&Ask>,
    answers: Option<&[Answered; 2]>,
) -> Option<&'a Entry> {
    let said = difference.to_string();
    let mut of_kind = entries.iter().filter(|entry| fits(&entry.difference, &said)).peekable();
    of_kind.peek()?;
    let mut config = text(&site.main) + &text(&site.hosts);
    for entry in site.all_entries() {
        if let Kind::Htaccess(nodes) = &entry.kind {
            config.push_str(&text(nodes));
        }
    }
    let request = ask.map_or(String::new(), |ask| {
        let fields = ask.headers.join("\n");
        format!("{} {} {}\n{fields}\n{}", ask.method, ask.target, ask.version, ask.body)
    });
    let [apache, ours] = answers.map(|both| both.each_ref().map(written)).unwrap_or_default();
    let has = |text: &str, needed: &[String]| needed.iter().all(|it| text.contains(it.as_str()));
    of_kind.find(|entry| {
        has(&config, &entry.config)
            && has(&request, &entry.request)
            && has(&apache, &entry.apache)
            && has(&ours, &entry.ours)
    })
}

/// A response as text.
fn written(answer: &Answered) -> String {
    let Ok(response) = answer else { return String::new() };
    let mut text = format!("{}\n", response.status_line);
    for (name, value) in &response.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text + &String::from_utf8_lossy(&response.body)
}

/// Whether the words of the two are equal, except for `*`.
fn fits(pattern: &str, said: &str) -> bool {
    let (mut pattern, mut said) = (pattern.split(' '), said.split(' '));
    loop {
        match (pattern.next(), said.next()) {
            (None, None) => return true,
            (Some(wanted), Some(word)) if wanted == "*" || wanted == word => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::site::Node;
    use super::*;
    use crate::answer::Response;

    const GOOD: &str = "# A comment.\n\ndifference = header Vary 200\nconfig = MultiViews\n\
        request = Accept:\nreason = it is so\nmanual = docs/a.md: It is so.\n";

    fn site(line: &str) -> Site {
        let hosts = vec![Node::Line(line.to_owned())];
        Site { main: Vec::new(), hosts, entries: Vec::new(), asks: Vec::new() }
    }

    fn ask(header: &str) -> Ask {
        Ask {
            method: "GET".into(),
            target: "/".into(),
            version: "HTTP/1.1".into(),
            headers: vec![header.to_owned()],
            ..Ask::default()
        }
    }

    fn answer(status: u16) -> Answered {
        Ok(Response {
            status_line: "HTTP/1.1".to_owned(),
            headers: vec![("X".to_owned(), status.to_string())],
            body: format!("body of {status}").into(),
        })
    }

    #[test]
    fn an_entry_accepts_what_it_names_alone() {
        let entries = parse(GOOD).unwrap();
        let difference = Difference { class: Class::Header, detail: "Vary 200".to_owned() };
        let accepts = |difference: &Difference, line: &str, header: &str| {
            let both = [200, 404].map(answer);
            let ask = ask(header);
            super::accepts(&entries, difference, &site(line), Some(&ask), Some(&both)).is_some()
        };
        assert!(accepts(&difference, "Options MultiViews", "Accept: a"));
        assert!(!accepts(&difference, "Options None", "Accept: a"));
        assert!(!accepts(&difference, "Options MultiViews", "X: a"));
        let other = Difference { detail: "Vary 304".to_owned(), ..difference };
        assert!(!accepts(&other, "Options MultiViews", "Accept: a"));
    }

    #[test]
    fn an_entry_may_ask_for_a_text_of_either_answer() {
        let difference = Difference { class: Class::Header, detail: "Vary 200".to_owned() };
        let accepts = |more: &str, statuses: [u16; 2]| {
            let entries = parse(&GOOD.replace("reason", &format!("{more}\nreason"))).unwrap();
            let (site, ask) = (site("Options MultiViews"), ask("Accept: a"));
            let answers = statuses.map(answer);
            super::accepts(&entries, &difference, &site, Some(&ask), Some(&answers)).is_some()
        };
        for more in ["apache = X: 200", "ours = X: 404", "ours = body of 404"] {
            assert!(accepts(more, [200, 404]), "{more}");
            assert!(!accepts(more, [404, 200]), "{more}");
        }
    }

    #[test]
    fn a_star_stands_for_one_word() {
        assert!(fits("status * -> 400", "status 301 -> 400"));
        assert!(!fits("status * -> 400", "status 301 -> 403"));
        assert!(!fits("status *", "status 301 -> 400"));
        assert!(parse(&GOOD.replace("header Vary", "* Vary")).is_err());
    }

    #[test]
    fn what_apache_denies_is_never_accepted() {
        for class in ["given 403 -> 200", "shown 200", "other-file 200"] {
            let text = GOOD.replace("header Vary 200", class);
            assert!(parse(&text).unwrap_err().contains("never accepted"));
        }
        assert!(parse(&GOOD.replace("header", "hedaer")).is_err());
        assert!(parse(&GOOD.replace("reason = it is so\n", "")).is_err());
        assert!(parse(&GOOD.replace("manual", "manul")).is_err());
        let wide = GOOD.replace("config = MultiViews\n", "").replace("request = Accept:\n", "");
        assert!(parse(&wide).unwrap_err().contains("everywhere"));
    }

    #[test]
    fn the_manual_says_what_an_entry_says_that_it_says() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("accepted"), GOOD).unwrap();
        std::fs::write(root.path().join("docs/a.md"), "Well. It\nis so.\n").unwrap();
        assert_eq!(read(root.path(), "accepted").unwrap().len(), 1);
        std::fs::write(root.path().join("docs/a.md"), "It is not.\n").unwrap();
        assert!(read(root.path(), "accepted").unwrap_err().contains("does not say"));
    }
}
