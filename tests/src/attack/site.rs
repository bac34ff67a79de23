//! A site: virtual hosts and sections as a tree of lines, the files in its folder, and the requests
//! to it. `text` and `lay_out` write it for servers, and every part has a number with which the
//! shrinker leaves it out (`prune`).

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The owner of some links: nobody, with Debian's number.
const NOBODY: u32 = 65_534;
/// The modification time of the first file, in seconds since 1970. The others follow a day apart.
pub const FIRST_MODIFIED_S: u64 = 1_600_000_000;
const DAY_S: u64 = 86_400;

/// A line of configuration, or a section with its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// One directive with its arguments.
    Line(String),
    /// A section by its opening line.
    Section(String, Vec<Node>),
}

/// The kind of an entry in the site's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file whose contents name it.
    File,
    /// A file with this text.
    Text(String),
    /// A folder.
    Folder,
    /// A symbolic link to this target. The second field says whether it belongs to nobody.
    Link(String, bool),
    /// An .htaccess file.
    Htaccess(Vec<Node>),
}

/// An entry of the site's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path relative to the site's folder, such as `htdocs/dir/a.txt`.
    pub path: String,
    /// The kind.
    pub kind: Kind,
    /// The permission bits, if they are not the default.
    pub mode: Option<u32>,
}

/// A change of the contents of the site's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Creates this entry, in place of whatever was there.
    Put(Entry),
    /// Removes this path.
    Remove(String),
    /// Moves the first path to the second.
    Move(String, String),
}

/// A request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    /// The changes before it is sent.
    pub changes: Vec<Change>,
    /// The method as it is sent.
    pub method: String,
    /// The target as it is sent.
    pub target: String,
    /// The protocol's version, such as `HTTP/1.1`.
    pub version: String,
    /// The other header fields, including Host if there is one.
    pub headers: Vec<String>,
    /// The body. If it is not empty, Content-Length is sent.
    pub body: String,
}

/// A site and the requests on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The lines of the main server, which all sites of a batch share.
    pub main: Vec<Node>,
    /// The virtual hosts.
    pub hosts: Vec<Node>,
    /// The entries of the folder.
    pub entries: Vec<Entry>,
    /// The requests, in order.
    pub asks: Vec<Ask>,
}

/// What the placeholders of a site stand for.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// The number of the site, which is in the names of its host and its folder.
    pub number: u64,
    /// The folder that contains those of all sites.
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
        // A folder without permissions would keep its own files from being written, so permissions
        // come last.
        for entry in &self.entries {
            if let Some(mode) = entry.mode {
                let path = root.join(&entry.path);
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                    .map_err(|it| format!("{}: {it}", path.display()))?;
            }
        }
        Ok(())
    }

    /// The site with only its last request, and all changes before it.
    pub fn with_last_alone(&self) -> Site {
        let changes = self.asks.iter().flat_map(|ask| &ask.changes).cloned().collect();
        let last = self.asks.last().map(|last| Ask { changes, ..last.clone() });
        Site { asks: last.into_iter().collect(), ..self.clone() }
    }

    /// The entries of the folder, including those that changes create.
    pub fn all_entries(&self) -> impl Iterator<Item = &Entry> {
        let changes = self.asks.iter().flat_map(|ask| &ask.changes);
        let put = changes.filter_map(|change| match change {
            Change::Put(entry) => Some(entry),
            _ => None,
        });
        self.entries.iter().chain(put)
    }

    /// Makes a change in the site's folder. A change that cannot be made is skipped, because both
    /// servers see the same.
    pub fn change(&self, change: &Change, place: &Place<'_>) {
        let root = place.sites.join(place.number.to_string());
        let _ = match change {
            Change::Put(entry) => {
                let path = root.join(&entry.path);
                let is_written = |it: fs::Metadata| it.is_file() && entry.kind.is_contents();
                if !fs::symlink_metadata(&path).is_ok_and(is_written) {
                    let _ = remove(&path);
                }
                let _ = make_folder(path.parent().unwrap_or(&root));
                put(entry, &path, self.entries.len(), place)
            }
            Change::Remove(path) => remove(&root.join(path)),
            Change::Move(from, to) => fs::rename(root.join(from), root.join(to)),
        };
    }

    /// The number of parts that can be left out.
    pub fn parts(&self) -> usize {
        let mut next = 0;
        let _ = self.prune(&mut |_| {
            next += 1;
            true
        });
        next
    }

    /// The site with only those parts for whose numbers `keep` returns true. Parts are numbered in
    /// order: lines and sections with their contents, entries, changes, requests except the last,
    /// and the header fields of the last. The changes before a request stay if it is left out.
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
        let mut changes = Vec::new();
        for (index, ask) in self.asks.iter().enumerate() {
            let is_last = index + 1 == self.asks.len();
            changes.extend(ask.changes.iter().filter(|_| wanted()).cloned());
            let mut ask = ask.clone();
            if is_last {
                ask.headers.retain(|_| wanted());
            }
            if is_last || wanted() {
                asks.push(Ask { changes: std::mem::take(&mut changes), ..ask });
            }
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

impl Kind {
    /// Whether it is the contents of a file.
    fn is_contents(&self) -> bool {
        matches!(self, Kind::File | Kind::Text(_) | Kind::Htaccess(_))
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

fn put(entry: &Entry, path: &Path, index: usize, place: &Place<'_>) -> std::io::Result<()> {
    let text = match &entry.kind {
        Kind::Folder => return fs::create_dir_all(path),
        Kind::Link(target, is_nobodys) => {
            symlink(place.fill(target), path)?;
            if *is_nobodys {
                // Only root can give a link away; otherwise all links have the same owner.
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

/// The beginning of a file's contents, by which it is recognised in a response.
pub fn mark(path: &str, number: u64) -> String {
    format!("[file {path} of {number}]")
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

impl Ask {
    /// The bytes to send. `tag` replaces the placeholder for an entity tag from an earlier
    /// response.
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
            ..Ask::default()
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
        // Parts 2 and 3 are in the section, which is part 1.
        assert_eq!(text(&site.prune(&mut |part| part != 2).hosts), "<Files a>\n  C\n</Files>\n");
        assert_eq!(site.prune(&mut |part| part != 1).hosts, []);
    }

    #[test]
    fn what_is_changed_before_a_request_stays_without_it() {
        let mut site = site();
        site.asks[0].changes.push(Change::Remove("htdocs/a.txt".to_owned()));
        assert_eq!(site.parts(), 10);
        // The request is part 7, its change part 6.
        let without = site.prune(&mut |part| part != 7);
        assert_eq!((without.asks.len(), without.asks[0].changes.len()), (1, 1));
        assert_eq!(site.prune(&mut |_| false).asks[0].changes, []);
    }

    #[test]
    fn the_folder_is_changed() {
        let sites = tempfile::tempdir().unwrap();
        let place = Place { number: 7, sites: sites.path(), port: 80 };
        let site = site();
        site.lay_out(&place).unwrap();
        let entry = |path: &str, kind| Entry { path: path.to_owned(), kind, mode: None };
        let rules = || Kind::Htaccess(vec![line("Options All")]);
        site.change(&Change::Put(entry("htdocs/.htaccess", rules())), &place);
        site.change(&Change::Put(entry("htdocs/new/a.txt", Kind::File)), &place);
        site.change(&Change::Move("htdocs/new".into(), "htdocs/moved".into()), &place);
        site.change(&Change::Remove("nothing".into()), &place);
        let read = |path: &str| fs::read_to_string(sites.path().join("7/htdocs").join(path));
        assert_eq!(read(".htaccess").unwrap(), "Options All\n");
        assert!(read("moved/a.txt").unwrap().starts_with("[file htdocs/new/a.txt of 7]"));
        site.change(&Change::Put(entry("htdocs/moved", Kind::File)), &place);
        assert!(read("moved").unwrap().starts_with("[file htdocs/moved of 7]"));
        site.change(&Change::Remove("htdocs/moved".into()), &place);
        assert!(read("moved").is_err());
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
