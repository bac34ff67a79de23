//! Runs Debian's WordPress with php-fpm and MariaDB and compares two servers. An editor installs
//! WordPress, logs in, sets permalinks, uploads a picture and posts, and a reader visits the site.
//! Debian's apache2 serves the first run. Evenkeel serves the second one, with the same
//! configuration and an empty database.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions beside the tests end a test as the tests do"
)]

use evenkeel_tests::php_site::PhpSite;
use evenkeel_tests::server::{Kind, command};
use evenkeel_tests::visitor::{Reply, Visitor, differences, settled};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const UPLOADS: &str = "/wp-content/uploads";
/// The icon that a browser requests, and the target of WordPress's redirect.
const ICON: [&str; 2] = [" /favicon.ico ", "/w-logo-blue-white-bg.png "];

/// The accepted differences: the end of the request's text and the difference. The test fails if
/// one of them no longer occurs.
const KNOWN: [(&str, &str); 3] = [
    // docs/differences.md: a 416 gives the length of the representation.
    ("harbour.png", "headers [] and [\"Content-Range: bytes */"),
    // Evenkeel does not compress the short body of a script.
    ("rest-nonce", "headers [\"Content-Encoding: gzip\", \"Vary: Accept-Encoding\"] and []"),
    // Evenkeel does not close the client's connection on a script's `Connection: close`.
    ("/xmlrpc.php", "headers [\"Connection: close\"] and []"),
];

/// The results of one run.
struct Visit {
    replies: Vec<Reply>,
    /// The contents of the .htaccess file that WordPress wrote.
    htaccess: String,
    /// The DOM of the pages in a browser.
    pages: Vec<String>,
    access_log: String,
}

#[test]
fn wordpress_is_the_same_site_on_both_servers() {
    let before = enabled();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let site = PhpSite::open(&scripts, &cache).unwrap();
    let oracle = visit(&site, Kind::Apache);
    assert!(oracle.htaccess.contains("RewriteRule . /index.php [L]"), "{}", oracle.htaccess);
    let other = visit(&site, Kind::Evenkeel);
    let mut found = differences(&oracle.replies, &other.replies);
    if oracle.htaccess != other.htaccess {
        found.push(format!(".htaccess:\n{}\n{}", oracle.htaccess, other.htaccess));
    }
    for (a, b) in oracle.pages.iter().zip(&other.pages) {
        if a != b {
            found.push(format!("a page in the browser:\n{a}\n{b}"));
        }
    }
    for (request, what) in KNOWN {
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

/// Runs all requests with one server.
fn visit(site: &PhpSite, kind: Kind) -> Visit {
    site.reset().unwrap();
    let log = site.path("logs/access.log");
    let _ = fs::remove_file(&log);
    let server = site.serve(kind).unwrap();
    let told = || format!("{kind:?}\n{}\n{}", site.log("error.log"), site.log("fpm.log"));
    let mut story = Story { replies: Vec::new(), wrong: Vec::new(), site, told: &told };
    let editor = Visitor::new(site.port, &site.path("editor")).unwrap();
    story.install(&editor);
    let picture = story.publish(&editor);
    story.read(&picture);
    story.files(&picture);
    story.leave(&editor);
    let pages = ["/", "/a-picture-of-the-harbour/"].map(|page| browse(site, page)).to_vec();
    let (replies, wrong) = (story.replies, story.wrong);
    assert!(kind != Kind::Apache || wrong.is_empty(), "{}\n{}", wrong.join("\n"), told());
    server.stop().unwrap();
    let access_log = fs::read_to_string(log).unwrap();
    // The browser must have loaded the picture in the size that the page requests.
    let shown =
        format!("GET {} HTTP/1.1\" 200", picture.replace("harbour.png", "harbour-1024x640.png"));
    assert!(access_log.contains(&shown), "{shown}\n{access_log}");
    let htaccess = fs::read_to_string(site.web().join(".htaccess")).unwrap();
    Visit { replies, htaccess, pages, access_log }
}

/// A run in progress: the replies so far, and the unexpected ones.
struct Story<'a> {
    replies: Vec<Reply>,
    wrong: Vec<String>,
    site: &'a PhpSite,
    told: &'a dyn Fn() -> String,
}

impl Story<'_> {
    /// Sends a request. The reply is unexpected if it has another status, or if its body does not
    /// contain `text`.
    fn ask(
        &mut self,
        who: &Visitor,
        status: u16,
        text: &str,
        target: &str,
        more: &[&str],
    ) -> Reply {
        let reply = who.ask(target, more);
        let reply = reply.unwrap_or_else(|error| panic!("{error}\n{}", (self.told)()));
        let body = reply.text();
        if reply.status != status || !body.contains(text) {
            self.wrong.push(format!("not {status} with '{text}': {reply}"));
        }
        self.replies.push(reply.clone());
        reply
    }

    /// The Location field of a reply. Panics if the field is missing, because the run needs it.
    fn location(&self, reply: &Reply) -> String {
        let location = reply.header("Location");
        location.unwrap_or_else(|| panic!("{reply}\n{}", (self.told)())).to_owned()
    }

    /// Installs WordPress, logs in and sets permalinks.
    fn install(&mut self, editor: &Visitor) {
        let first = self.ask(editor, 302, "", "/", &[]);
        assert!(self.location(&first).ends_with("/wp-admin/install.php"));
        self.ask(editor, 200, "weblog_title", "/wp-admin/install.php", &[]);
        let fields = "weblog_title=The+Harbour&user_name=editor&admin_password=low+tide&\
            admin_password2=low+tide&pw_weak=1&admin_email=editor%40example.org&Submit=Install";
        let target = "/wp-admin/install.php?step=2";
        self.ask(editor, 200, "Success!", target, &["-d", fields]);
        self.ask(editor, 200, "Powered by WordPress", "/wp-login.php", &[]);
        let fields = "log=editor&pwd=high+tide&testcookie=1";
        self.ask(editor, 200, "is incorrect", "/wp-login.php", &["-d", fields]);
        let fields = "log=editor&pwd=low+tide&testcookie=1&redirect_to=%2Fwp-admin%2F";
        self.ask(editor, 302, "", "/wp-login.php", &["-d", fields]);
        self.ask(editor, 200, "Dashboard", "/wp-admin/", &[]);
        let form = self.ask(editor, 200, "Permalink", "/wp-admin/options-permalink.php", &[]);
        let nonce = nonce(&form);
        let fields = format!(
            "_wpnonce={nonce}&selection=%2F%25postname%25%2F&permalink_structure=\
            %2F%25postname%25%2F&category_base=&tag_base=&submit=Save"
        );
        let more = ["-d", &fields];
        self.ask(editor, 302, "", "/wp-admin/options-permalink.php", &more);
        // WordPress writes the .htaccess file when it shows the form again.
        let target = "/wp-admin/options-permalink.php?settings-updated=true";
        self.ask(editor, 200, "Permalink structure updated.", target, &[]);
    }

    /// Uploads a picture and publishes posts with it. Returns the path of the picture.
    fn publish(&mut self, editor: &Visitor) -> String {
        let file = self.site.path("harbour.png");
        fs::write(&file, png(1_280, 800)).unwrap();
        let form = self.ask(editor, 200, "Upload New Media", "/wp-admin/media-new.php", &[]);
        let nonce = format!("_wpnonce={}", nonce(&form));
        let part = format!("async-upload=@{};type=image/png", file.display());
        let more =
            ["-F", "name=harbour.png", "-F", "action=upload-attachment", "-F", &nonce, "-F", &part];
        let reply = self.ask(editor, 200, "\"success\":true", "/wp-admin/async-upload.php", &more);
        let id = reply.between("\"id\":", ",").unwrap();
        let url = reply.between("\"url\":\"", "\"").unwrap().replace('\\', "");
        let large = url.replace("harbour.png", "harbour-1024x640.png");
        let target = "/wp-admin/admin-ajax.php?action=rest-nonce";
        let nonce = format!("X-WP-Nonce: {}", self.ask(editor, 200, "", target, &[]).text());
        let content = format!(
            "content=<!-- wp:image {{\"id\":{id},\"sizeSlug\":\"large\"}} -->\n\
            <figure class=\"wp-block-image size-large\"><img src=\"{large}\" alt=\"Boats\" \
            class=\"wp-image-{id}\"/></figure>\n<!-- /wp:image -->\n<!-- wp:paragraph -->\n\
            <p>The lighthouse at dusk.</p>\n<!-- /wp:paragraph -->"
        );
        let target = "/wp-json/wp/v2/posts";
        // The dates differ, because the order of posts with equal dates is undefined.
        let post = |title: &str, date: &str| -> Vec<String> {
            [
                "-H",
                &nonce,
                "--data-urlencode",
                title,
                "-d",
                "status=publish",
                "-d",
                date,
                "--data-urlencode",
                &content,
            ]
            .map(str::to_owned)
            .to_vec()
        };
        for (title, date) in [
            ("title=A picture of the harbour", "date=2024-03-01T10:00:00"),
            ("title=Café на пристани", "date=2024-03-02T10:00:00"),
        ] {
            let more = post(title, date);
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            self.ask(editor, 201, "\"status\":\"publish\"", target, &more);
        }
        let more = [
            "-H",
            &nonce,
            "-X",
            "PUT",
            "-H",
            "Content-Type: application/json",
            "-d",
            "{\"name\":\"Boats & quays\",\"slug\":\"boats\"}",
        ];
        self.ask(editor, 200, "\"slug\":\"boats\"", "/wp-json/wp/v2/categories/1", &more);
        self.ask(editor, 200, "harbour", "/wp-admin/edit.php", &[]);
        url.split_once(UPLOADS).map(|(_, rest)| format!("{UPLOADS}{rest}")).unwrap()
    }

    /// Sends the requests of a reader without cookies to WordPress.
    fn read(&mut self, picture: &str) {
        let reader = Visitor::new(self.site.port, &self.site.path("reader")).unwrap();
        let cafe = "/cafe-%D0%BD%D0%B0-%D0%BF%D1%80%D0%B8%D1%81%D1%82%D0%B0%D0%BD%D0%B8/";
        let page = "/a-picture-of-the-harbour/";
        let picture = picture.replace("harbour.png", "harbour-1024x640.png");
        for (status, text, target) in [
            (200, "lighthouse", "/"),
            (200, &*picture, page),
            (301, "", "/a-picture-of-the-harbour"),
            (301, "", "/?p=6"),
            (200, "Café на пристани", cafe),
            (301, "", "/index.php/a-picture-of-the-harbour/"),
            (200, "A picture of the harbour", "/?s=lighthouse"),
            (200, "A picture of the harbour", "/search/lighthouse/"),
            (200, "Café", "/search/caf%C3%A9/"),
            (200, "", "/search/100%25+%26+%3F+a%2Bb/"),
            (200, "A picture of the harbour", "/category/boats/"),
            (200, "A picture of the harbour", "/author/editor/"),
            (200, "<rss", "/feed/"),
            (200, "<rss", "/a-picture-of-the-harbour/feed/"),
            (200, "Sample Page", "/sample-page/"),
            (200, "User-agent: *", "/robots.txt"),
            (404, "be found", "/no-such-page/"),
            (404, "be found", "/no-such-folder/no-such-file.php?a=b"),
            (404, "be found", "/wp-content/no-such-picture.png"),
            (302, "", "/login"),
            (302, "", "/wp-admin/"),
            (200, "\"namespaces\"", "/wp-json/"),
            (
                200,
                "A picture of the harbour",
                "/wp-json/wp/v2/posts?per_page=3&_fields=id,title,link",
            ),
            (200, "picture of the harbour", "/wp-json/wp/v2/search?search=lighthouse"),
            (200, "\"namespaces\"", "/?rest_route=/"),
            (404, "rest_no_route", "/wp-json/no/such/route"),
            (401, "rest_forbidden_context", "/wp-json/wp/v2/posts?context=edit"),
            (405, "XML-RPC server accepts POST", "/xmlrpc.php"),
        ] {
            self.ask(&reader, status, text, target, &[]);
        }
        self.ask(&reader, 200, "", page, &["-I"]);
        self.ask(&reader, 401, "rest_cannot_create", "/wp-json/wp/v2/posts", &["-d", "title=x"]);
        let call = "<?xml version=\"1.0\"?><methodCall><methodName>demo.sayHello</methodName>\
            </methodCall>";
        let more = ["-H", "Content-Type: text/xml", "-d", call];
        self.ask(&reader, 200, "", "/xmlrpc.php", &more);
        let more = ["-H", "Transfer-Encoding: chunked", "-H", "Content-Type: text/xml", "-d", call];
        self.ask(&reader, 200, "", "/xmlrpc.php", &more);
        let fields = "comment=Lovely&author=Reader&email=reader%40example.org&comment_post_ID=6";
        let kept = self.ask(&reader, 302, "", "/wp-comments-post.php", &["-d", fields]);
        let shown = self.location(&kept).replace(&reader.origin, "");
        self.ask(&reader, 200, "awaiting moderation", &shown, &[]);
    }

    /// Sends requests for static files, folders and forbidden paths.
    fn files(&mut self, picture: &str) {
        let reader = Visitor::new(self.site.port, &self.site.path("reader")).unwrap();
        let sizes = ["harbour-300x188.png", "harbour-150x150.png", "harbour-1024x640.png"];
        for size in sizes {
            self.ask(&reader, 200, "", &picture.replace("harbour.png", size), &[]);
        }
        let whole = self.ask(&reader, 200, "", picture, &[]);
        assert_eq!(whole.body, fs::read(self.site.path("harbour.png")).unwrap());
        self.ask(&reader, 206, "", picture, &["-r", "100-199"]);
        self.ask(&reader, 416, "", picture, &["-r", "9000000-"]);
        let tag = format!("If-None-Match: {}", whole.header("ETag").unwrap());
        self.ask(&reader, 304, "", picture, &["-H", &tag]);
        for (status, text, target) in [
            (200, "wp-block", "/wp-includes/css/dist/block-library/style.min.css?ver=6.1.9"),
            (200, "emoji", "/wp-includes/js/wp-emoji-release.min.js"),
            (200, "_.", "/wp-includes/js/underscore.min.js"),
            (200, "WordPress", "/readme.html"),
            (200, "", "/wp-config.php"),
            (403, "Forbidden", "/wp-content/"),
            (301, "", "/wp-content"),
            (403, "Forbidden", "/wp-content/uploads/"),
            (403, "Forbidden", "/.htaccess"),
            (403, "Forbidden", "/wp-includes/"),
            (301, "", "/wp-admin"),
            (404, "be found", "/wp-config.php.bak"),
            (404, "", "/readme.html/more"),
        ] {
            self.ask(&reader, status, text, target, &[]);
        }
    }

    fn leave(&mut self, editor: &Visitor) {
        let profile = self.ask(editor, 200, "editor@example.org", "/wp-admin/profile.php", &[]);
        let nonce = profile.between("action=logout&#038;_wpnonce=", "\"").unwrap();
        let nonce: String = nonce.chars().take_while(char::is_ascii_alphanumeric).collect();
        let target = format!("/wp-login.php?action=logout&_wpnonce={nonce}");
        self.ask(editor, 302, "", &target, &[]);
        self.ask(editor, 302, "", "/wp-admin/profile.php", &[]);
    }
}

fn nonce(form: &Reply) -> String {
    form.between("name=\"_wpnonce\" value=\"", "\"").unwrap()
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
    let page = settled(&String::from_utf8_lossy(&output.stdout));
    assert!(page.contains("The Harbour") && page.contains("</html>"), "{target}: {page}");
    page
}

/// Encodes a PNG picture of coloured bands.
fn png(width: u32, height: u32) -> Vec<u8> {
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
