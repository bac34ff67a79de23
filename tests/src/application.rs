//! An application of PHP beside apache2: the same visits to Debian's apache2 and to Evenkeel, with
//! the same configuration and an empty database each, and the differences of the responses.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "functions of tests end a test as the tests do"
)]

use crate::php_site::{Application, PhpSite, Runner};
use crate::server::{Kind, command};
use crate::visitor::{Reply, Visitor, differences, settled};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The icon that a browser requests, and the target of WordPress's redirect.
const ICON: [&str; 2] = ["/favicon.ico ", "/w-logo-blue-white-bg.png "];

/// The results of one run.
#[derive(Debug)]
struct Visit {
    replies: Vec<Reply>,
    /// Files that the application wrote, and the DOM of pages in a browser.
    kept: Vec<String>,
    access_log: String,
}

/// Has `play` visit the application with both servers, and compares the responses, the texts that
/// it keeps, and the access logs. `known` lists the accepted differences: the end of the request's
/// text and the start of the difference. The test fails if one of them no longer occurs.
pub fn is_the_same_on_both_servers(
    application: &'static Application,
    runner: Runner,
    cache: &Path,
    known: &[(&str, &str)],
    play: &dyn Fn(&mut Story<'_>),
) {
    let before = enabled();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
    let site = PhpSite::open(application, runner, &scripts, cache).unwrap();
    let oracle = visit(&site, Kind::Apache, play);
    let other = visit(&site, Kind::Evenkeel, play);
    let mut found = differences(&oracle.replies, &other.replies);
    assert_eq!(oracle.kept.len(), other.kept.len());
    for (a, b) in oracle.kept.iter().zip(&other.kept) {
        if a != b {
            found.push(format!("a text that was kept:\n{a}\n{b}"));
        }
    }
    for (request, what) in known {
        let before = found.len();
        found.retain(|it| !it.contains(&format!("{request}: {what}")));
        assert!(found.len() < before, "no longer a difference: {request}: {what}");
    }
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
    assert_eq!(logged(&oracle.access_log), logged(&other.access_log));
    assert_eq!(enabled(), before, "/etc/apache2 has changed");
}

/// The entries of Debian's `*-enabled` folders, with the targets of the links.
fn enabled() -> BTreeMap<PathBuf, PathBuf> {
    let folders = ["mods-enabled", "conf-enabled", "sites-enabled"];
    let folders = folders.map(|name| Path::new("/etc/apache2").join(name));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read_link(path).unwrap_or_default())).collect()
}

/// The requests and statuses of an access log, sorted. Their order is not compared, because a
/// browser opens several connections. Its requests are compared as a set: the state of its cache
/// decides how often it sends one, and whether it asks for a whole file. Its requests for the icon,
/// which WordPress redirects to its logo, are left out, because it may exit before it sends them.
fn logged(log: &str) -> Vec<String> {
    let mut browsers = BTreeSet::new();
    let mut lines = Vec::new();
    for line in log.lines() {
        // The format is `combined`: request, status and size, referrer, user agent.
        let parts: Vec<&str> = line.split('"').collect();
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        let status = part(2).split_whitespace().next().unwrap_or_default();
        let request = settled(part(1));
        if !part(5).contains("Chrome/") {
            lines.push(format!("{request} {status}"));
        } else if !ICON.iter().any(|icon| request.contains(icon)) {
            let status = if matches!(status, "206" | "304") { "200" } else { status };
            browsers.insert(format!("{request} {status} in the browser"));
        }
    }
    assert!(!browsers.is_empty(), "no request of a browser in the log:\n{log}");
    lines.sort();
    lines.extend(browsers);
    lines
}

/// Plays the visits to one server.
fn visit(site: &PhpSite, kind: Kind, play: &dyn Fn(&mut Story<'_>)) -> Visit {
    site.reset().unwrap();
    let log = site.path("logs/access.log");
    let _absent = fs::remove_file(&log);
    let server = site.serve(kind).unwrap();
    let mut story = Story {
        replies: Vec::new(),
        wrong: Vec::new(),
        kept: Vec::new(),
        logged: Vec::new(),
        site,
    };
    play(&mut story);
    let Story { replies, wrong, kept, logged: wanted, .. } = story;
    assert!(kind != Kind::Apache || wrong.is_empty(), "{}\n{}", wrong.join("\n"), told(site));
    server.stop().unwrap();
    let access_log = fs::read_to_string(log).unwrap();
    for line in wanted {
        assert!(access_log.contains(&line), "{line}\n{access_log}");
    }
    Visit { replies, kept, access_log }
}

/// The ends of the error logs.
fn told(site: &PhpSite) -> String {
    format!("{}\n{}", site.log("error.log"), site.log("fpm.log"))
}

/// A run in progress: the replies so far, the unexpected ones, and further texts to compare.
#[derive(Debug)]
pub struct Story<'a> {
    replies: Vec<Reply>,
    wrong: Vec<String>,
    kept: Vec<String>,
    logged: Vec<String>,
    /// The site that is visited.
    pub site: &'a PhpSite,
}

impl Story<'_> {
    /// A visitor without cookies.
    #[must_use]
    pub fn visitor(&self, name: &str) -> Visitor {
        Visitor::new(self.site.port, &self.site.path(name)).unwrap()
    }

    /// A visitor of the TLS host without cookies.
    #[must_use]
    pub fn secure_visitor(&self, name: &str) -> Visitor {
        Visitor::secure(self.site.https_port, &self.site.path(name)).unwrap()
    }

    /// Keeps a text that both runs must have alike.
    pub fn keep(&mut self, text: String) {
        self.kept.push(text);
    }

    /// Sends a request. The reply is unexpected if it has another status, or if its body does not
    /// contain `text`.
    pub fn ask(
        &mut self,
        who: &Visitor,
        status: u16,
        text: &str,
        target: &str,
        more: &[&str],
    ) -> Reply {
        let reply = who.ask(target, more);
        let reply = reply.unwrap_or_else(|error| panic!("{error}\n{}", self.told()));
        let body = reply.text();
        if reply.status != status || !body.contains(text) {
            self.wrong.push(format!("not {status} with '{text}': {reply}"));
        }
        self.replies.push(reply.clone());
        reply
    }

    /// The Location field of a reply. Panics if the field is missing, because the run needs it.
    #[must_use]
    pub fn location(&self, reply: &Reply) -> String {
        let location = reply.header("Location");
        location.unwrap_or_else(|| panic!("{reply}\n{}", self.told())).to_owned()
    }

    /// The part of the last reply's body between the first `before` and the next `after`. Panics if
    /// there is none, because the run needs it.
    #[must_use]
    pub fn between(&self, before: &str, after: &str) -> String {
        let last = self.replies.last().expect("a request was sent");
        last.between(before, after).unwrap_or_else(|error| panic!("{error}\n{}", self.told()))
    }

    /// The unexpected replies, and the ends of the error logs.
    #[must_use]
    pub fn told(&self) -> String {
        format!("{}\n{}", self.wrong.join("\n"), told(self.site))
    }

    /// Requires a line of the access log with this text at the end of the run.
    pub fn must_log(&mut self, line: String) {
        self.logged.push(line);
    }

    /// Keeps the DOM of a page in a headless browser, in which `text` must occur.
    pub fn browse(&mut self, target: &str, text: &str) {
        let page = browse(self.site, target);
        assert!(page.contains(text) && page.contains("</html>"), "{target}: {page}");
        self.keep(page);
    }
}

/// The DOM of a page in a headless browser, with the parts that differ between runs replaced.
fn browse(site: &PhpSite, target: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{}{target}", site.port);
    let mut browser =
        command(Path::new("chromium"), &["--headless", "--no-sandbox", "--disable-gpu"]);
    browser.args(["--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"]);
    browser.args(["--window-size=1000,1400", "--hide-scrollbars", "--virtual-time-budget=10000"]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.args(["--dump-dom", &url]).env("HOME", profile.path());
    let output = browser.output().expect("chromium (package chromium) is not installed");
    settled(&String::from_utf8_lossy(&output.stdout))
}

/// Encodes a PNG picture of coloured bands.
#[must_use]
pub fn png(width: u32, height: u32) -> Vec<u8> {
    let mut rows = Vec::new();
    for y in 0..height {
        rows.push(0);
        let band = u8::try_from(y * 255 / height).unwrap();
        for x in 0..width {
            rows.extend([band, u8::try_from(x * 255 / width).unwrap(), 160]);
        }
    }
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&rows).unwrap();
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    // Bit depth 8, colour type 2 (RGB).
    let head = [size, vec![8, 2, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, data) in
        [(b"IHDR", head), (b"IDAT", packed.finish().unwrap()), (b"IEND", Vec::new())]
    {
        let mut sum = flate2::Crc::new();
        sum.update(name);
        sum.update(&data);
        file.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        file.extend(name);
        file.extend(&data);
        file.extend(sum.sum().to_be_bytes());
    }
    file
}
