//! Composes random sites from a seed and a number: virtual hosts, files and requests. Each site
//! uses only some of the rows of the grammar, so that those meet more often. Its requests are sent
//! twice, and files change before and among those of the second time.

use super::dice::Dice;
use super::grammar::{MISSING, NOUNS, ROWS, Row, load_line, place};
use super::site::{Ask, Change, Entry, Kind, Node, Site, section_name};
use crate::digest;

/// The number of sites that share the lines of a main server.
pub const BATCH: u64 = 40;
/// The random stream of a main server is that of its batch, far from those of sites.
const MAIN_STREAMS: u64 = 1 << 48;
/// The depth of nested sections.
const DEPTH: usize = 3;
/// The percentage of rows that a site uses.
const SHARE: usize = 35;
/// The percentage of sites with directives that lead to each other. They use all of `LEADS`, which
/// share a few paths (`$hub`).
const WEBS: usize = 40;
/// The beginnings of such rows.
const LEADS: [&str; 9] = [
    "ErrorDocument ",
    "DirectoryIndex ",
    "FallbackResource ",
    "HeaderName ",
    "ReadmeName ",
    "Alias ",
    "Options ",
    "AllowOverride ",
    "<Location ",
];
/// The number of paths that the directives of a site lead to.
const HUBS: usize = 3;

/// The kind of sites to compose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Sites of everything in the grammar.
    All,
    /// Sites whose directives lead to each other and whose conditions ask about the same few paths.
    /// Faults among these are rare elsewhere.
    Questions,
}

/// Without a bound, apache2's questions about questions do not end in a reasonable time. The answer
/// to a question about itself depends on whether the bound is even.
const NESTINGS: [&str; 4] = [
    "LimitInternalRecursion 10 3",
    "LimitInternalRecursion 10 3",
    "LimitInternalRecursion 10 2",
    "LimitInternalRecursion 3 4",
];
/// Modules that apache2 asks about each subrequest, so that it compares no sections.
const ASKED: [&str; 2] = ["allowmethods", "log_debug"];
/// How much more often conditions occur in a mix of questions.
const CONDITIONS: usize = 4;

/// The site with this number for this seed, including the main server that it shares.
pub fn compose(seed: u64, number: u64, mix: Mix) -> Site {
    let main = compose_main(seed, number / BATCH);
    let mut dice = Dice::new(seed, number);
    let names = Names::grow(&mut dice);
    let mut writer = Writer::new(&mut dice, &names, mix);
    let hosts = writer.hosts();
    let htaccess: Vec<Entry> = writer.htaccess_files();
    let count = writer.dice.between(14, 26);
    let mut asks: Vec<Ask> = (0..count).map(|_| writer.ask()).collect();
    let mut again = asks.clone();
    for _ in 0..writer.dice.between(2, 6) {
        let index = writer.dice.below(again.len() / 2);
        let change = writer.change(&htaccess);
        if let Some(ask) = again.get_mut(index) {
            ask.changes.push(change);
        }
    }
    asks.append(&mut again);
    let entries = names.entries.iter().cloned().chain(htaccess).collect();
    Site { main, hosts, entries, asks }
}

/// The main server of a batch.
fn compose_main(seed: u64, batch: u64) -> Vec<Node> {
    let mut dice = Dice::new(seed, MAIN_STREAMS + batch);
    let names = Names::grow(&mut dice);
    let mut writer = Writer::new(&mut dice, &names, Mix::All);
    let mut nodes = Vec::new();
    if writer.dice.chance(10) {
        let name = writer.dice.word(&ASKED);
        nodes.push(Node::Line(load_line(name)));
    }
    if writer.dice.chance(40) {
        nodes.extend(MISSING.iter().map(|name| Node::Line(load_line(name))));
    }
    if writer.dice.chance(85) {
        let options = writer.dice.word(&["Options FollowSymLinks", "Options None", "Options All"]);
        let root = ["AllowOverride None", options, "Require all denied"];
        nodes.push(section("<Directory />", &root));
        let more = writer.dice.word(&["AllowOverride All", "AllowOverride None"]);
        let sites = ["Options Indexes FollowSymLinks", more, "Require all granted"];
        nodes.push(section("<Directory \"@SITES@\">", &sites));
    }
    if writer.dice.chance(50) {
        let hidden = section("<FilesMatch \"^\\.ht\">", &["Require all denied"]);
        nodes.push(hidden);
    }
    for _ in 0..writer.dice.below(4) {
        writer.write(place::MAIN, false, 1, &mut nodes);
    }
    nodes
}

fn section(open: &str, lines: &[&str]) -> Node {
    let lines = lines.iter().map(|line| Node::Line((*line).to_owned()));
    Node::Section(open.to_owned(), lines.collect())
}

/// The contents of a site's folder, and its names.
#[derive(Debug)]
pub struct Names {
    /// All entries except .htaccess files.
    pub entries: Vec<Entry>,
    /// The folders below `htdocs`, each with a leading slash. The first one is empty.
    folders: Vec<String>,
    /// The files below `htdocs`, and the links.
    files: Vec<String>,
    /// Paths that many directives use.
    hubs: Vec<String>,
}

const FOLDERS: [&str; 11] = [
    "/dir",
    "/dir/secret",
    "/dir/sub",
    "/docs",
    "/docs/secret",
    "/secret",
    "/open",
    "/open/sub",
    "/Dir",
    "/mixed[",
    "/été",
];
const FILES: [&str; 21] = [
    "a.txt",
    "a.txt",
    "x.txt",
    "secret.txt",
    "secret.txt",
    "index.html",
    "index.html",
    "index.txt",
    "x.html.en",
    "x.html.fr",
    "x.fr.html",
    "page.html",
    "page.html.gz",
    ".hidden",
    "sp ace.txt",
    "x.bak",
    "UP.TXT",
    "README.html",
    "index.html.en",
    "x",
    "é.txt",
];
const MAP: &str = "URI: a.txt\nContent-Type: text/plain\nContent-Language: en\n\n\
    URI: secret.txt\nContent-Type: text/html; qs=0.8\nContent-Language: fr\n\n\
    URI: x.html.en\nContent-Type: text/html\n";

impl Names {
    fn grow(dice: &mut Dice) -> Names {
        let mut names = Names {
            entries: Vec::new(),
            folders: vec![String::new()],
            files: Vec::new(),
            hubs: Vec::new(),
        };
        for (path, text) in [("users", USERS), ("more", MORE_USERS), ("groups", GROUPS)] {
            names.add("", path, Kind::Text(text.to_owned()), None);
        }
        let digests = ["ann", "bob"].map(|user| digest::line(user, "here", "password"));
        names.add("", "digests", Kind::Text(digests.concat()), None);
        for folder in FOLDERS {
            if dice.chance(45) {
                names.folders.push(folder.to_owned());
                names.add("htdocs", folder, Kind::Folder, None);
            }
        }
        names.folders.retain(|folder| folder != "/mixed[");
        for folder in names.folders.clone() {
            for _ in 0..dice.between(1, 5) {
                let path = format!("{folder}/{}", dice.word(&FILES));
                let mode = dice.chance(2).then_some(0);
                names.add_file(&path, Kind::File, mode);
            }
            if dice.chance(20) {
                names.add_file(&format!("{folder}/map.var"), Kind::Text(MAP.to_owned()), None);
            }
        }
        for path in ["a.txt", "secret.txt", "index.html", "dir/x.txt", "secret/x.txt", "deep/x.txt"]
        {
            if dice.chance(60) {
                names.add("out/", path, Kind::File, None);
            }
        }
        for _ in 0..dice.below(4) {
            names.add_link(dice);
        }
        for _ in 0..HUBS {
            let folder = dice.pick(&names.folders).cloned().unwrap_or_default();
            let file = dice.pick(&names.files).map(|file| plain(file)).unwrap_or_default();
            names.hubs.push(match dice.below(8) {
                0..=2 => format!("{folder}/"),
                3 => format!("{folder}/none"),
                4 => format!("{folder}/x"),
                5 => file.replacen('/', "//", 1),
                _ => file,
            });
        }
        names.add_pages(dice);
        names
    }

    /// Adds pages with server-side includes. Their elements name files and folders of the site.
    fn add_pages(&mut self, dice: &mut Dice) {
        for _ in 0..dice.below(4) {
            let folder = dice.pick(&self.folders).cloned().unwrap_or_default();
            let mut text = String::from("page\n");
            for _ in 0..dice.between(1, 5) {
                let places = if dice.chance(30) { &self.hubs } else { &self.files };
                let place = dice.pick(places).cloned().unwrap_or_default();
                let within = place.strip_prefix(&*format!("{folder}/")).unwrap_or(&place);
                text += &match dice.below(9) {
                    0..=2 => format!("<!--#include virtual=\"{place}\" -->\n"),
                    3 => format!("<!--#include virtual=\"{within}\" -->\n"),
                    4 | 5 => format!("<!--#include file=\"{within}\" -->\n"),
                    6 => format!("<!--#fsize virtual=\"{place}\" -->\n"),
                    7 => format!("<!--#exec cgi=\"{place}\" -->\n"),
                    _ => format!(
                        "<!--#if expr=\"-A '{place}'\" -->open<!--#else -->shut<!--#endif -->\n"
                    ),
                };
            }
            let name = dice.word(&["p.shtml", "p.shtml", "q.shtml", "index.html"]);
            self.add_file(&format!("{folder}/{name}"), Kind::Text(text), None);
        }
    }

    fn add_link(&mut self, dice: &mut Dice) {
        let folder = dice.pick(&self.folders).cloned().unwrap_or_default();
        let file = dice.pick(&self.files).cloned().unwrap_or_default();
        let (name, target) = match dice.below(5) {
            0 => ("link.txt", format!("@SITE@/htdocs{file}")),
            1 => ("link", format!("@SITE@/htdocs{folder}")),
            2 => ("away", "@SITE@/out".to_owned()),
            3 => ("away.txt", "@SITE@/out/a.txt".to_owned()),
            _ => ("lost", "nothing".to_owned()),
        };
        let within = dice.pick(&self.folders).cloned().unwrap_or_default();
        // A link to a folder above itself would be endless.
        if name == "link" && within.starts_with(&folder) {
            return;
        }
        let is_nobodys = dice.chance(40);
        self.add_file(&format!("{within}/{name}"), Kind::Link(target, is_nobodys), None);
        if name == "away" || name == "link" {
            self.files.push(format!("{within}/{name}/a.txt"));
            self.files.push(format!("{within}/{name}/x.txt"));
        }
    }

    fn add_file(&mut self, path: &str, kind: Kind, mode: Option<u32>) {
        if self.files.iter().any(|other| other == path) {
            return;
        }
        self.files.push(path.to_owned());
        self.add("htdocs", path, kind, mode);
    }

    fn add(&mut self, root: &str, path: &str, kind: Kind, mode: Option<u32>) {
        self.entries.push(Entry { path: format!("{root}{path}"), kind, mode });
    }
}

/// Writes one site.
struct Writer<'a> {
    dice: &'a mut Dice,
    names: &'a Names,
    /// The rows that the site uses.
    rows: Vec<&'static Row>,
    mix: Mix,
}

impl<'a> Writer<'a> {
    fn new(dice: &'a mut Dice, names: &'a Names, mix: Mix) -> Writer<'a> {
        let is_web = dice.chance(WEBS) || mix == Mix::Questions;
        let share = if mix == Mix::Questions { SHARE / 3 } else { SHARE };
        let leads = |row: &Row| LEADS.iter().any(|lead| row.text.starts_with(lead));
        // The attack is about access, so its rows are always used. A redirect in a condition would
        // end most requests.
        let is_end = |row: &Row| mix == Mix::Questions && row.text.starts_with("Redirect");
        let is_drawn = |row: &&Row| {
            if is_end(row) {
                return false;
            }
            row.module == "authz_core" && row.weight > 3
                || is_web && leads(row)
                || dice.chance(share)
        };
        let rows = ROWS.iter().filter(is_drawn).collect();
        Writer { dice, names, rows, mix }
    }

    fn hosts(&mut self) -> Vec<Node> {
        let mut hosts = Vec::new();
        for (index, host) in ["@HOST@", "second.@HOST@"].into_iter().enumerate() {
            if index > 0 && !self.dice.chance(15) {
                break;
            }
            let mut lines = vec![Node::Line(format!("ServerName {host}"))];
            let root = match self.dice.below(20) {
                0 => "@SITE@/htdocs/",
                1 => "@SITE@/./htdocs",
                2 => "@SITE@//htdocs",
                3 => "@SITE@/out/../htdocs",
                _ => "@SITE@/htdocs",
            };
            lines.push(Node::Line(format!("DocumentRoot \"{root}\"")));
            if self.mix == Mix::Questions {
                lines.push(Node::Line(self.dice.word(&NESTINGS).to_owned()));
            }
            if index == 0 && self.dice.chance(20) {
                lines.push(Node::Line("ServerAlias alias.@HOST@ *.wild.@HOST@".to_owned()));
            }
            if self.dice.chance(10) {
                lines.push(Node::Line("ServerPath /sp@N@".to_owned()));
            }
            if self.dice.chance(70) {
                let overrides = self.expand("AllowOverride $overrides");
                let options = self.expand("Options $options");
                lines.push(section("<Directory \"@SITE@/htdocs\">", &[&overrides, &options]));
            }
            for _ in 0..self.dice.between(3, 12) {
                self.write(place::HOST, false, 0, &mut lines);
            }
            hosts.push(Node::Section("<VirtualHost *:@PORT@>".to_owned(), lines));
        }
        hosts
    }

    fn htaccess_files(&mut self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for _ in 0..self.dice.below(4) {
            let folder = self.dice.pick(&self.names.folders).cloned().unwrap_or_default();
            let name = if self.dice.chance(5) { ".other" } else { ".htaccess" };
            let path = format!("htdocs{folder}/{name}");
            let nodes = self.rules();
            if entries.iter().all(|entry| entry.path != path) {
                entries.push(Entry { path, kind: Kind::Htaccess(nodes), mode: None });
            }
        }
        entries
    }

    /// A change of the files.
    fn change(&mut self, htaccess: &[Entry]) -> Change {
        let names = self.names;
        let file = self.dice.pick(&names.files).cloned().unwrap_or_default();
        let folder = self.dice.pick(&names.folders).cloned().unwrap_or_default();
        let other = self.dice.pick(&names.folders).cloned().unwrap_or_default();
        let path = format!("htdocs{folder}/{}", self.dice.word(&FILES));
        let put = |path, kind| Change::Put(Entry { path, kind, mode: None });
        match self.dice.below(16) {
            0..=4 => put(format!("htdocs{folder}/.htaccess"), Kind::Htaccess(self.rules())),
            5 => match self.dice.pick(htaccess) {
                Some(entry) => Change::Remove(entry.path.clone()),
                None => Change::Remove(path),
            },
            6 | 7 => Change::Remove(format!("htdocs{file}")),
            8 | 9 => put(path, Kind::File),
            10 => put(format!("htdocs{file}"), Kind::Link("@SITE@/out/a.txt".to_owned(), true)),
            11 => put(
                format!("htdocs{folder}/link"),
                Kind::Link(format!("@SITE@/htdocs{file}"), false),
            ),
            12 => put(format!("htdocs{file}"), Kind::Folder),
            13 => Change::Move(format!("htdocs{file}"), path),
            14 if !folder.is_empty() => {
                Change::Move(format!("htdocs{folder}"), format!("htdocs{other}/sub"))
            }
            _ if !folder.is_empty() => Change::Remove(format!("htdocs{folder}")),
            _ => Change::Move(path, format!("htdocs{file}")),
        }
    }

    /// The lines of an .htaccess file.
    fn rules(&mut self) -> Vec<Node> {
        let mut nodes = Vec::new();
        for _ in 0..self.dice.between(1, 4) {
            self.write(place::HTACCESS, true, 0, &mut nodes);
        }
        nodes
    }

    /// Adds a random directive or section that may stand in `place`, and what must follow it.
    fn write(&mut self, place: u16, htaccess: bool, depth: usize, nodes: &mut Vec<Node>) {
        let may_stand = |row: &&Row| {
            row.places & place != 0
                && (!htaccess || row.places & place::HTACCESS != 0 || place & TREES != 0)
                && (depth < DEPTH || !row.text.starts_with('<'))
        };
        let fitting: Vec<&Row> = self.rows.iter().copied().filter(may_stand).collect();
        let is_often = |row: &Row| self.mix == Mix::Questions && row.text.starts_with("<If ");
        let weight = |row: &Row| row.weight * if is_often(row) { CONDITIONS } else { 1 };
        let total = fitting.iter().map(|row| weight(row)).sum();
        let mut drawn = self.dice.below(total);
        let fits = |row: &&&Row| {
            let weight = weight(row);
            let is_it = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            is_it
        };
        let Some(row) = fitting.iter().find(fits) else { return };
        let text = self.expand(row.text);
        if !text.starts_with('<') {
            nodes.push(Node::Line(text));
            return;
        }
        let is_condition = text.starts_with("<If ");
        self.write_section(text, place, htaccess, depth, nodes);
        if is_condition && self.dice.chance(20) {
            let open = self.expand("<ElseIf \"$condition\">");
            self.write_section(open, place, htaccess, depth, nodes);
        }
        if is_condition && self.dice.chance(25) {
            self.write_section("<Else>".to_owned(), place, htaccess, depth, nodes);
        }
    }

    fn write_section(
        &mut self,
        open: String,
        outer: u16,
        htaccess: bool,
        depth: usize,
        nodes: &mut Vec<Node>,
    ) {
        let inner = inside(section_name(&open), outer);
        let mut children = Vec::new();
        for _ in 0..self.dice.between(1, 3) {
            self.write(inner, htaccess, depth + 1, &mut children);
        }
        nodes.push(Node::Section(open, children));
    }

    /// The text with its nouns replaced.
    fn expand(&mut self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            let is_of_noun = |c: char| c.is_ascii_lowercase() || c == '_';
            let length = after.find(|c| !is_of_noun(c)).unwrap_or(after.len());
            let (noun, after) = after.split_at(length);
            match self.noun(noun) {
                Some(word) => expanded.push_str(&word),
                None => expanded.push_str(&format!("${noun}")),
            }
            rest = after;
        }
        expanded + rest
    }

    /// One text for the noun; none if there is no such noun.
    fn noun(&mut self, noun: &str) -> Option<String> {
        let files = &self.names.files;
        let folders = &self.names.folders;
        Some(match noun {
            "in_folder" => self.dice.pick(folders)?.clone(),
            "folder_uri" => self.dice.pick(folders)?.clone(),
            "in_file" => plain(self.dice.pick(files)?),
            "some_file" => plain(self.dice.pick(files)?).rsplit('/').next()?.to_owned(),
            "hub" => self.dice.pick(&self.names.hubs)?.clone(),
            "uri" if self.dice.chance(30) => match self.dice.pick(folders)?.as_str() {
                "" => "/dir".to_owned(),
                folder => folder.to_owned(),
            },
            "uri" => plain(self.dice.pick(files)?),
            "test" if self.mix == Mix::Questions && self.dice.chance(35) => {
                self.expand("-U '$hub'")
            }
            _ => {
                let (_, texts) = NOUNS.iter().find(|(name, _)| *name == noun)?;
                let text = self.dice.word(texts);
                self.expand(text)
            }
        })
    }

    fn ask(&mut self) -> Ask {
        let method = self.expand("$method");
        let version = self.expand("$version");
        let mut target = match self.dice.below(27) {
            0..=13 => self.dice.pick(&self.names.files).cloned().unwrap_or_default(),
            14..=17 => self.dice.pick(&self.names.folders).cloned().unwrap_or_default() + "/",
            18 => self.dice.pick(&self.names.folders).cloned().unwrap_or_default(),
            19 | 20 => self.expand("$prefix/$some_file"),
            21 => self.expand("/$name.$ending"),
            22 => {
                let text = self.dice.word(&["/am$uri", "/am/$some_file", "/go/x"]);
                self.expand(text)
            }
            23 => self.expand("/$name/$name"),
            _ => self.expand("$hub"),
        };
        target = target.replace(' ', "%20");
        if self.dice.chance(70) {
            target = target.replace('é', self.dice.word(&["%c3%a9", "%C3%A9", "%c3%a9", "%e9"]));
        }
        if self.dice.chance(50) {
            for _ in 0..self.dice.between(1, 3) {
                target = self.bend(&target);
            }
        }
        if target.is_empty() {
            target.push('/');
        }
        let mut headers = Vec::new();
        if version == "HTTP/1.1" || self.dice.chance(70) {
            headers.push(self.expand("Host: $host"));
        }
        for _ in 0..self.dice.below(6).saturating_sub(3) {
            headers.push(self.expand("$header"));
        }
        let has_body = matches!(method.as_str(), "POST" | "PUT" | "PATCH") && self.dice.chance(60);
        let body = if has_body { "field=value" } else { "" };
        Ask { method, target, version, headers, body: body.to_owned(), changes: Vec::new() }
    }

    /// The target with one change that may bypass a rule.
    fn bend(&mut self, target: &str) -> String {
        // The absolute form must be the last change, because its host is not a path.
        if !target.starts_with('/') {
            return target.to_owned();
        }
        let slashes: Vec<usize> = target.match_indices('/').map(|(at, _)| at).collect();
        let slash = self.dice.pick(&slashes).copied().unwrap_or(0);
        let letters: Vec<usize> = target
            .char_indices()
            .filter(|(_, c)| c.is_ascii_alphanumeric() || *c == '.')
            .map(|(at, _)| at)
            .collect();
        let letter = self.dice.pick(&letters).copied();
        let put = |at: usize, length: usize, text: &str| {
            let (before, after) = (target.get(..at), target.get(at + length..));
            format!("{}{text}{}", before.unwrap_or_default(), after.unwrap_or_default())
        };
        let byte = letter.and_then(|at| target.as_bytes().get(at)).copied().unwrap_or(b'/');
        match self.dice.below(16) {
            0 | 1 => self.expand(&format!("{target}$tail")),
            2 | 3 => put(slash, 1, "//"),
            4 => put(slash, 1, self.dice.word(&["%2f", "%2F", "/%2f", "%5c"])),
            5 => put(
                slash,
                1,
                self.dice.word(&["/./", "/x/../", "/../", "/..//", "/%2e/", "/.%2e/"]),
            ),
            6 | 7 => match letter {
                Some(at) => put(at, 1, &format!("%{byte:02x}")),
                None => target.to_owned(),
            },
            8 => match letter {
                Some(at) => put(at, 1, &char::from(byte ^ 0x20).to_string().replace('\x0e', ".")),
                None => target.to_owned(),
            },
            9 => format!("/{target}"),
            10 => match target.rsplit_once('.') {
                Some((stem, _)) => stem.to_owned(),
                None => target.to_owned(),
            },
            11 | 12 => self.expand(&format!("{target}?$query")),
            13 => format!("http://@HOST@{target}"),
            14 => format!("/sp@N@{target}"),
            _ => format!("{target}/"),
        }
    }
}

/// Users with the password `password`.
const USERS: &str =
    "ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\nbob:$apr1$saltsalt$yAAkm4libquA.ZWLHbSBq/\n";
const MORE_USERS: &str = "zoe:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\nann:{SHA}x\n";
const GROUPS: &str = "staff: ann zoe\nother: bob\n";

/// The sections of Require.
const TREES: u16 = place::ANY | place::ALL;

/// What may stand in the named section, which stands in `outer`.
fn inside(name: &str, outer: u16) -> u16 {
    match name {
        "Directory" | "DirectoryMatch" => place::FOLDER,
        "Location" | "LocationMatch" => place::LOCATION,
        "Files" | "FilesMatch" => place::FILES,
        "If" | "ElseIf" | "Else" => place::IF,
        "Limit" | "LimitExcept" => place::LIMIT,
        "RequireAny" | "RequireNone" => place::ANY,
        "RequireAll" => place::ALL,
        _ => outer,
    }
}

/// A path that needs no quotes and is not a pattern.
fn plain(path: &str) -> String {
    path.replace(' ', "_")
}

#[cfg(test)]
mod tests {
    use super::super::site::text;
    use super::*;

    #[test]
    fn a_site_is_repeated_exactly() {
        assert_eq!(compose(1, 2, Mix::All), compose(1, 2, Mix::All));
        assert_ne!(compose(1, 2, Mix::All), compose(1, 3, Mix::All));
        assert_ne!(compose(1, 2, Mix::All), compose(2, 2, Mix::All));
    }

    #[test]
    fn sites_of_a_batch_share_their_main_server() {
        let mains: Vec<_> =
            (0..BATCH * 8).map(|number| compose(5, number, Mix::All).main).collect();
        assert!(mains.chunks(BATCH as usize).all(|batch| batch.iter().all(|it| *it == batch[0])));
        assert!(mains.iter().any(|main| *main != mains[0]));
    }

    #[test]
    fn every_row_and_every_noun_is_drawn() {
        let mut all = String::new();
        for number in 0..3_000 {
            let site = compose(1, number, Mix::All);
            all.push_str(&text(&site.main));
            all.push_str(&text(&site.hosts));
            for entry in &site.entries {
                if let Kind::Htaccess(nodes) = &entry.kind {
                    all.push_str(&text(nodes));
                }
            }
        }
        for row in ROWS {
            let word = row.text.split(' ').next().unwrap();
            // A row that is a noun shows as one of its texts.
            if word.starts_with('$') {
                continue;
            }
            assert!(all.contains(word), "{word} never comes");
        }
        for (noun, _) in NOUNS {
            let used = NOUNS.iter().flat_map(|(_, texts)| texts.iter().copied());
            let used = used.chain(ROWS.iter().map(|row| row.text));
            let asked = ["method", "version", "host", "header", "query", "tail", "ending"];
            let name = format!("${noun}");
            assert!(
                used.into_iter().any(|it| it.contains(&name)) || asked.contains(noun),
                "{noun}"
            );
        }
    }

    #[test]
    fn every_noun_is_known() {
        let mut dice = Dice::new(1, 1);
        let names = Names::grow(&mut dice);
        let mut writer = Writer::new(&mut dice, &names, Mix::All);
        let texts = NOUNS.iter().flat_map(|(_, texts)| texts.iter().copied());
        for text in texts.chain(ROWS.iter().map(|row| row.text)) {
            let mut rest = text;
            while let Some((_, after)) = rest.split_once('$') {
                let is_of_noun = |c: char| c.is_ascii_lowercase() || c == '_';
                let noun = &after[..after.find(|c| !is_of_noun(c)).unwrap_or(after.len())];
                assert!(noun.is_empty() || writer.noun(noun).is_some(), "{noun} in {text:?}");
                rest = after;
            }
        }
    }
}
