//! Runs Debian's MediaWiki with php-fpm and MariaDB and compares two servers. An editor logs in,
//! writes pages, uploads a picture and searches, and a reader visits the wiki. Debian's apache2
//! serves the first run. Evenkeel serves the second one, with the same configuration, which is the
//! package's, and an empty database. A
//! second test runs the application in a pool of Evenkeel, and in apache2 with mod_php.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "functions beside the tests end a test as the tests do"
)]

use evenkeel_tests::application::{Story, is_the_same_on_both_servers, png};
use evenkeel_tests::house::wait_for;
use evenkeel_tests::php_site::{Application, Runner};
use evenkeel_tests::visitor::{Reply, Visitor};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

const INDEX: &str = "/mediawiki/index.php";
const CAFE: &str = "Caf%C3%A9_%D0%BD%D0%B0_%D0%BF%D1%80%D0%B8%D1%81%D1%82%D0%B0%D0%BD%D0%B8";

/// The accepted differences.
const KNOWN: [(&str, &str); 1] = [
    // docs/differences.md: the place of Content-Language.
    ("-I /mediawiki/index.php/Harbour", "bodies of"),
];

const KNOWN_IN_POOL: [(&str, &str); 2] = [
    KNOWN[0],
    // Evenkeel does not close the client's connection on a script's `Connection: close`.
    ("", "headers [\"Connection: close\"] and []"),
];

const MEDIAWIKI: Application = Application {
    name: "mediawiki",
    packages: &["mediawiki", "mediawiki-classes"],
    web: "htdocs",
    glue: Some("etc/apache2/conf-available/mediawiki.conf"),
    files: &[],
    php: "",
    https: false,
};

/// Further settings of the wiki. PHP makes the thumbnails, and no job runs by chance at the end of
/// a request.
const SETTINGS: &str = "
$wgEnableUploads = true;
$wgUseImageMagick = false;
$wgJobRunRate = 0;
$wgShowExceptionDetails = true;
$wgCacheDirectory = '@ROOT@/var/cache';
wfLoadExtension('ParserFunctions');
wfLoadExtension('WikiEditor');
";

#[test]
fn mediawiki_is_the_same_wiki_on_both_servers() {
    visit(Runner::Fpm, &KNOWN);
}

/// A pool of Evenkeel beside mod_php.
#[test]
#[ignore = "takes a minute; WordPress in a pool is part of every run"]
fn mediawiki_is_the_same_wiki_in_a_pool() {
    visit(Runner::Module, &KNOWN_IN_POOL);
}

fn visit(runner: Runner, known: &[(&str, &str)]) {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    is_the_same_on_both_servers(&MEDIAWIKI, runner, &cache, known, &|story| {
        install(story);
        let editor = story.visitor("editor");
        log_in(story, &editor);
        write(story, &editor);
        let picture = upload(story, &editor);
        read(story);
        files(story, &picture);
        leave(story, &editor);
        story.browse("/mediawiki/index.php/Harbour", "Harbour wiki");
    });
}

/// Runs the installer of MediaWiki, and places its settings as the package expects them.
fn install(story: &Story<'_>) {
    let fill = |text: &str| story.site.fill(text);
    let installed = story.site.run_php(&[
        &fill("@ROOT@/usr/share/mediawiki/maintenance/install.php"),
        &fill("--dbserver=localhost:@ROOT@/db.sock"),
        "--dbname=mediawiki",
        "--dbuser=mediawiki",
        "--dbpass=sea",
        &fill("--server=http://127.0.0.1:@PORT@"),
        "--scriptpath=/mediawiki",
        &fill("--confpath=@ROOT@/tmp"),
        "--pass=low tide at noon",
        "Harbour wiki",
        "Editor",
    ]);
    installed.unwrap();
    let written = story.site.path("tmp/LocalSettings.php");
    let settings = fs::read_to_string(&written).unwrap();
    fs::remove_file(written).unwrap();
    let path = story.site.path("var/lib/mediawiki/LocalSettings.php");
    fs::remove_file(&path).unwrap();
    fs::write(path, settings + &fill(SETTINGS)).unwrap();
    // Feeds sort by the second of a change: the first edit must not be in that of the main page.
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let installed = second();
    wait_for("the next second", || second() > installed).unwrap();
}

/// The value of a hidden field of a form.
fn field(form: &Reply, name: &str) -> String {
    let text = form.text();
    let mark = format!("name=\"{name}\"");
    let tag = text.split('<').find(|it| it.starts_with("input") && it.contains(&mark));
    let tag = tag.unwrap_or_else(|| panic!("no {name}: {form}"));
    let value = tag.split_once("value=\"").unwrap_or_else(|| panic!("no value: {tag}")).1;
    value.split('"').next().unwrap().to_owned()
}

fn log_in(story: &mut Story<'_>, editor: &Visitor) {
    let target = format!("{INDEX}?title=Special:UserLogin");
    for (password, status, text) in
        [("high tide", 200, "Incorrect username or password"), ("low tide at noon", 302, "")]
    {
        let form = story.ask(editor, 200, "Log in", &target, &[]);
        let token = format!("wpLoginToken={}", field(&form, "wpLoginToken"));
        let password = format!("wpPassword={password}");
        let fields = "wpName=Editor&wploginattempt=Log+in&wpEditToken=%2B%5C&authAction=login";
        let more = ["-d", fields, "--data-urlencode", &token, "--data-urlencode", &password];
        story.ask(editor, status, text, &target, &more);
    }
    story.ask(editor, 200, "Editor", &format!("{INDEX}/Special:Contributions/Editor"), &[]);
}

/// Writes a page.
fn save(story: &mut Story<'_>, editor: &Visitor, title: &str, text: &str) {
    let target = format!("{INDEX}?title={title}&action=edit");
    let form = story.ask(editor, 200, "wpTextbox1", &target, &[]);
    let mut fields = vec![format!("wpTextbox1={text}")];
    for name in [
        "wpUnicodeCheck",
        "wpEditToken",
        "wpStarttime",
        "wpEdittime",
        "editRevId",
        "parentRevId",
        "oldid",
        "wpAutoSummary",
    ] {
        fields.push(format!("{name}={}", field(&form, name)));
    }
    let fixed = ["wpSummary=A note", "wpSave=Save", "model=wikitext", "format=text/x-wiki"];
    fields.extend(fixed.map(str::to_owned));
    fields.push("wpUltimateParam=1".to_owned());
    let more: Vec<&str> = fields.iter().flat_map(|it| ["--data-urlencode", it]).collect();
    let target = format!("{INDEX}?title={title}&action=submit");
    story.ask(editor, 302, "", &target, &more);
    // The order of changes in the same second is undefined.
    sleep(Duration::from_millis(1_100));
}

fn write(story: &mut Story<'_>, editor: &Visitor) {
    let text = "The '''lighthouse''' at dusk.\n\n== Boats ==\n* [[Café на пристани]]\n\n\
        [[Category:Sea]]";
    save(story, editor, "Harbour", text);
    save(story, editor, CAFE, "Coffee & cake.");
    save(story, editor, "Harbour", &format!("{text}\n\n{{{{#if:|Open|Closed}}}}"));
}

/// Uploads a picture, shows it in a page, and returns its path.
fn upload(story: &mut Story<'_>, editor: &Visitor) -> String {
    let file = story.site.path("boats.png");
    fs::write(&file, png(1_280, 800)).unwrap();
    let target = format!("{INDEX}/Special:Upload");
    let form = story.ask(editor, 200, "wpUploadFile", &target, &[]);
    let fields = [
        "title=Special:Upload".to_owned(),
        "wpSourceType=file".to_owned(),
        "wpDestFile=Boats.png".to_owned(),
        "wpUploadDescription=Boats at dusk".to_owned(),
        "wpDestFileWarningAck=1".to_owned(),
        "wpIgnoreWarning=1".to_owned(),
        "wpUpload=Upload file".to_owned(),
        format!("wpEditToken={}", field(&form, "wpEditToken")),
        format!("wpUploadFile=@{};type=image/png", file.display()),
    ];
    let more: Vec<&str> = fields.iter().flat_map(|it| ["-F", it]).collect();
    story.ask(editor, 302, "", &target, &more);
    let page = story.ask(editor, 200, "Boats at dusk", &format!("{INDEX}/File:Boats.png"), &[]);
    let path = page.between("<div class=\"fullMedia\"><p><a href=\"", "\"").unwrap();
    save(story, editor, "Harbour", "The '''lighthouse'''. [[File:Boats.png|thumb|Boats]]");
    path
}

/// Sends the requests of a reader without cookies to MediaWiki.
fn read(story: &mut Story<'_>) {
    let reader = story.visitor("reader");
    let at = |rest: &str| format!("/mediawiki/{rest}");
    for (status, text, target) in [
        (301, "", "/mediawiki".to_owned()),
        (301, "", at("")),
        (301, "", at("index.php")),
        (200, "MediaWiki has been installed", at("index.php/Main_Page")),
        (200, "lighthouse", at("index.php/Harbour")),
        (200, "lighthouse", at("index.php?title=Harbour")),
        (200, "lighthouse", at("index.php?title=Harbour&action=raw")),
        (200, "A note", at("index.php?title=Harbour&action=history")),
        (200, "Page ID", at("index.php?title=Harbour&action=info")),
        (200, "Closed", at("index.php?title=Harbour&diff=4&oldid=2")),
        (200, "Coffee &amp; cake", at(&format!("index.php/{CAFE}"))),
        (404, "There is currently no text", at("index.php/No_such_page")),
        (404, "", at("index.php/A%26b%3Fc%2Bd")),
        (200, "searchmatch", at("index.php?search=lighthouse&fulltext=1")),
        (302, "", at("index.php?search=Harbour&go=Go")),
        (200, "Harbour", at("index.php/Special:RecentChanges?days=30")),
        (200, "Harbour", at("index.php/Special:AllPages")),
        (200, "Boats.png", at("index.php/Special:ListFiles")),
        (302, "", at("index.php?title=Special:RecentChanges&feed=atom")),
        (200, "<feed", at("api.php?action=feedrecentchanges&feedformat=atom&days=7&limit=50")),
        (200, "Harbour wiki", at("api.php?action=query&meta=siteinfo&format=json")),
        (
            200,
            "Harbour",
            at("api.php?action=query&list=search&srwhat=text&srsearch=lighthouse&format=json"),
        ),
        (200, "badvalue", at("api.php?action=no-such&format=json")),
        (200, "\"title\":\"Harbour\"", at("rest.php/v1/page/Harbour")),
        (404, "", at("rest.php/v1/page/No_such_page")),
        (200, "mw.loader", at("load.php?lang=en&modules=startup&only=scripts&raw=1&skin=vector")),
        (200, "jQuery", at("load.php?lang=en&modules=jquery&skin=vector")),
        (200, "<OpenSearchDescription", at("opensearch_desc.php")),
    ] {
        story.ask(&reader, status, text, &target, &[]);
    }
    story.ask(&reader, 200, "", "/mediawiki/index.php/Harbour", &["-I"]);
    let page = story.ask(&reader, 200, "", "/mediawiki/index.php/Harbour", &[]);
    let since = format!("If-Modified-Since: {}", page.header("Last-Modified").unwrap());
    story.ask(&reader, 304, "", "/mediawiki/index.php/Harbour", &["-H", &since]);
}

/// Sends requests for static files, folders and forbidden paths.
fn files(story: &mut Story<'_>, picture: &str) {
    let reader = story.visitor("reader");
    let whole = story.ask(&reader, 200, "", picture, &[]);
    assert_eq!(whole.body, fs::read(story.site.path("boats.png")).unwrap());
    story.ask(&reader, 206, "", picture, &["-r", "100-199"]);
    let tag = format!("If-None-Match: {}", whole.header("ETag").unwrap());
    story.ask(&reader, 304, "", picture, &["-H", &tag]);
    story.ask(&reader, 200, "", "/mediawiki/index.php/Harbour", &[]);
    let thumb = story.between("src=\"/mediawiki/images/", "\"");
    story.ask(&reader, 200, "", &format!("/mediawiki/images/{thumb}"), &[]);
    for (status, target) in [
        (200, "/mediawiki/skins/Vector/skin.json"),
        (200, "/mediawiki/LocalSettings.php"),
        (403, "/mediawiki/images/"),
        (403, "/mediawiki/includes/"),
        (403, "/mediawiki/includes/DefaultSettings.php"),
        (403, "/mediawiki/maintenance/install.php"),
        (403, "/mediawiki/cache/"),
        (404, "/mediawiki/no-such-file.php"),
        (404, "/mediawiki/images/no-such.png"),
    ] {
        story.ask(&reader, status, "", target, &[]);
    }
}

fn leave(story: &mut Story<'_>, editor: &Visitor) {
    let target = format!("{INDEX}/Special:UserLogout");
    let form = story.ask(editor, 200, "log out", &target, &[]);
    let token = format!("wpEditToken={}", field(&form, "wpEditToken"));
    let more = ["-d", "title=Special:UserLogout", "--data-urlencode", &token];
    story.ask(editor, 200, "logged out", &target, &more);
}
