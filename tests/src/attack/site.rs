//! A site: virtual hosts and sections as a tree of lines, the files below its folder, and the
//! requests that are made on it. It is written out for servers (`text`, `lay_out`), and every part
//! of it has a number by which the shrinker leaves it out (`prune`).

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The user that some links belong to: nobody, as Debian numbers it.
const NOBODY: u32 = 65_534;
/// When the first file was modified, in seconds since 1970; the others follow a day apart.
pub const FIRST_MODIFIED_S: u64 = 1_600_000_000;
const DAY_S: u64 = 86_400;

/// A line of configuration, or a section with what stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// One directive with its arguments.
    Line(String),
    /// A section by its opening line.
    Section(String, Vec<Node>),
}

/// What stands at a path below the site's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file whose contents name it.
    File,
    /// A file with this text.
    Text(String),
    /// A folder.
    Folder,
    /// A symbolic link to this target; the second word says whether it is nobody's.
    Link(String, bool),
    /// A configuration of its folder.
    Htaccess(Vec<Node>),
}

/// An entry of the site's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where, relative to the site's folder, such as `htdocs/dir/a.txt`.
    pub path: String,
    /// What.
    pub kind: Kind,
    /// Permission bits, where they are not the usual ones.
    pub mode: Option<u32>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The method, as it is sent.
    pub method: String,
    /// The target, as it is sent.
    pub target: String,
    /// The protocol's version, such as `HTTP/1.1`.
    pub version: String,
    /// The other header fields, and Host where there is one.
    pub headers: Vec<String>,
    /// The body; it has a Content-Length where it is not empty.
    pub body: String,
}

/// A site and the requests on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Lines of the main server, which all sites of a batch share.
    pub main: Vec<Node>,
    /// The virtual hosts.
    pub hosts: Vec<Node>,
    /// What stands below the folder.
    pub entries: Vec<Entry>,
    /// The requests in their order.
    pub asks: Vec<Ask>,
}

/// What the placeholders of a site stand for.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// The site's number, by which its host and its folder are named.
    pub number: u64,
    /// The folder above those of all sites.
    pub sites: &'a Path,
    /// The port of both servers.
    pub port: u16,
}

impl Place<'_> {
    /// The text with its placeholders replaced.
    pub fn fill(&self, text: &str) -> String {
        if !text.contains('@') {
            return text.to_owned();
        }
        let sites = self.sites.to_string_lossy();
        text.replace("@SITE@", &format!("{sites}/{}", self.number))
            .replace("@SITES@", &sites)
            .replace("@HOST@", &format!("s{}.test", self.number))
            .replace("@N@", &self.number.to_string())
            .replace("@PORT@", &self.port.to_string())
    }
}

/// The lines as text, with their placeholders.
pub fn text(nodes: &[Node]) -> String {
    let mut text = String::new();
    write_nodes(nodes, 0, &mut text);
    text
}

fn write_nodes(nodes: &[Node], depth: usize, text: &mut String) {
    for node in nodes {
        let indent = "  ".repeat(depth);
        match node {
            Node::Line(line) => {
                let _ = writeln!(text, "{indent}{line}");
            }
            Node::Section(open, children) => {
                let _ = writeln!(text, "{indent}{open}");
                write_nodes(children, depth + 1, text);
                let _ = writeln!(text, "{indent}</{}>", section_name(open));
            }
        }
    }
}

/// The name of the section that this line opens.
pub fn section_name(open: &str) -> &str {
    let name = open.trim_start_matches('<');
    name.split([' ', '>']).next().unwrap_or_default()
}

impl Site {
    /// Writes the site's folder anew.
    pub fn lay_out(&self, place: &Place<'_>) -> Result<(), String> {
        let root = place.sites.join(place.number.to_string());
        make_folder(&root.join("htdocs"))?;
        for (index, entry) in self.entries.iter().enumerate() {
            let path = root.join(&entry.path);
            make_folder(path.parent().unwrap_or(&root))?;
            put(entry, &path, index, place).map_err(|it| format!("{}: {it}", path.display()))?;
        }
        // A folder that nobody may enter would keep its own files from being written.
        for entry in &self.entries {
            if let Some(mode) = entry.mode {
                let path = root.join(&entry.path);
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                    .map_err(|it| format!("{}: {it}", path.display()))?;
            }
        }
        Ok(())
    }

    /// How many parts can be left out.
    pub fn parts(&self) -> usize {
        let mut next = 0;
        let _ = self.prune(&mut |_| {
            next += 1;
            true
        });
        next
    }

    /// The site with the parts alone whose numbers `keep` is true for. Parts are numbered in their
    /// order: lines and sections with their contents, entries, requests but the last, and the
    /// header fields of that.
    pub fn prune(&self, keep: &mut dyn FnMut(usize) -> bool) -> Site {
        let mut count = 0;
        let mut wanted = || {
            let is_kept = keep(count);
            count += 1;
            is_kept
        };
        let main = prune_nodes(&self.main, &mut wanted);
        let hosts = prune_nodes(&self.hosts, &mut wanted);
        let mut entries = Vec::new();
        for entry in &self.entries {
            let is_kept = wanted();
            let mut entry = entry.clone();
            if let Kind::Htaccess(nodes) = &entry.kind {
                entry.kind = Kind::Htaccess(prune_nodes(nodes, &mut wanted));
            }
            if entry.mode.is_some() && !wanted() {
                entry.mode = None;
            }
            entries.extend(is_kept.then_some(entry));
        }
        let mut asks = Vec::new();
        if let Some((last, before)) = self.asks.split_last() {
            asks.extend(before.iter().filter(|_| wanted()).cloned());
            let mut last = last.clone();
            last.headers.retain(|_| wanted());
            asks.push(last);
        }
        Site { main, hosts, entries, asks }
    }
}

fn prune_nodes(nodes: &[Node], wanted: &mut dyn FnMut() -> bool) -> Vec<Node> {
    let mut kept = Vec::new();
    for node in nodes {
        let is_kept = wanted();
        let node = match node {
            Node::Line(line) => Node::Line(line.clone()),
            Node::Section(open, inner) => Node::Section(open.clone(), prune_nodes(inner, wanted)),
        };
        kept.extend(is_kept.then_some(node));
    }
    kept
}

fn put(entry: &Entry, path: &Path, index: usize, place: &Place<'_>) -> std::io::Result<()> {
    let text = match &entry.kind {
        Kind::Folder => return fs::create_dir_all(path),
        Kind::Link(target, is_nobodys) => {
            symlink(place.fill(target), path)?;
            if *is_nobodys {
                // Only root can give a link away; else all links have one owner.
                let _ = lchown(path, Some(NOBODY), Some(NOBODY));
            }
            return Ok(());
        }
        Kind::File => format!("{}\n{}", mark(&entry.path, place.number), "0123456789".repeat(4)),
        Kind::Text(text) => place.fill(text),
        Kind::Htaccess(nodes) => place.fill(&self::text(nodes)),
    };
    fs::write(path, text)?;
    let days = DAY_S * u64::try_from(index).unwrap_or(0);
    let time = UNIX_EPOCH + Duration::from_secs(FIRST_MODIFIED_S + days);
    fs::File::options().write(true).open(path)?.set_modified(time)
}

/// What the contents of a file begin with, by which it is known in an answer.
pub fn mark(path: &str, number: u64) -> String {
    format!("[file {path} of {number}]")
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

impl Ask {
    /// The bytes that are sent. `tag` stands in for an entity tag that was answered before.
    pub fn encode(&self, place: &Place<'_>, tag: &str) -> Vec<u8> {
        let mut text = format!("{} {} {}\r\n", self.method, self.target, self.version);
        for header in &self.headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        if !self.body.is_empty() {
            let _ = write!(text, "Content-Length: {}\r\n", self.body.len());
        }
        let text = place.fill(&text).replace("@TAG@", tag);
        [text.as_bytes(), b"\r\n", self.body.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Node {
        Node::Line(text.to_owned())
    }

    fn site() -> Site {
        let ask = |target: &str| Ask {
            method: "GET".into(),
            target: target.into(),
            version: "HTTP/1.1".into(),
            headers: vec!["Host: @HOST@".into(), "A: b".into()],
            body: String::new(),
        };
        let htaccess = Kind::Htaccess(vec![line("Options None")]);
        Site {
            main: vec![line("TraceEnable Off")],
            hosts: vec![Node::Section("<Files a>".into(), vec![line("B"), line("C")])],
            entries: vec![Entry { path: "htdocs/.htaccess".into(), kind: htaccess, mode: None }],
            asks: vec![ask("/1"), ask("/2")],
        }
    }

    #[test]
    fn every_part_has_a_number() {
        let site = site();
        assert_eq!(site.parts(), 9);
        assert_eq!(site.prune(&mut |_| true), site);
        let bare = site.prune(&mut |_| false);
        assert!(bare.main.is_empty() && bare.hosts.is_empty() && bare.entries.is_empty());
        assert_eq!(bare.asks.len(), 1);
        assert_eq!((bare.asks[0].target.as_str(), bare.asks[0].headers.len()), ("/2", 0));
        // Parts 2 and 3 stand within the section, which is part 1.
        assert_eq!(text(&site.prune(&mut |part| part != 2).hosts), "<Files a>\n  C\n</Files>\n");
        assert_eq!(site.prune(&mut |part| part != 1).hosts, []);
    }

    #[test]
    fn placeholders_are_replaced() {
        let place = Place { number: 7, sites: Path::new("/x/sites"), port: 80 };
        assert_eq!(
            place.fill("@SITE@/a @HOST@:@PORT@ @SITES@ @N@"),
            "/x/sites/7/a s7.test:80 /x/sites 7"
        );
        let bytes = site().asks[0].encode(&place, "");
        assert_eq!(bytes, b"GET /1 HTTP/1.1\r\nHost: s7.test\r\nA: b\r\n\r\n");
    }
}
