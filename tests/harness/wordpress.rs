//! Runs Debian's WordPress with php-fpm and MariaDB and compares two servers. An editor installs
//! WordPress, logs in, sets permalinks, uploads a picture and posts, and a reader visits the site.
//! Debian's apache2 serves the first run. Evenkeel serves the second one, with the same
//! configuration and an empty database. A
//! second test runs the application in a pool of Evenkeel, and in apache2 with mod_php.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::application::{Story, is_the_same_on_both_servers, png};
use evenkeel_tests::php_site::{Application, Runner};
use evenkeel_tests::visitor::{Reply, Visitor};
use std::fs;
use std::path::Path;

const UPLOADS: &str = "/wp-content/uploads";

/// The accepted differences.
const KNOWN: [(&str, &str); 3] = [
    // docs/differences.md: a 416 gives the length of the representation.
    ("harbour.png", "headers [] and [\"Content-Range: bytes */"),
    // Evenkeel does not compress the short body of a script.
    ("rest-nonce", "headers [\"Content-Encoding: gzip\", \"Vary: Accept-Encoding\"] and []"),
    // Evenkeel does not close the client's connection on a script's `Connection: close`.
    ("/xmlrpc.php", "headers [\"Connection: close\"] and []"),
];

const KNOWN_IN_POOL: [(&str, &str); 2] = [KNOWN[0], KNOWN[2]];

/// WordPress, and its parts that Debian packages separately.
const WORDPRESS: Application = Application {
    name: "wordpress",
    packages: &[
        "wordpress",
        "wordpress-theme-twentytwentythree",
        "libjs-cropper",
        "libjs-underscore",
        "php-getid3",
    ],
    web: "usr/share/wordpress",
    glue: None,
    files: &[
        ("usr/share/wordpress/wp-config.php", WP_CONFIG),
        // The package has a link to a file of comments, which an installation has in /etc.
        ("usr/share/wordpress/.htaccess", "# Rules of this blog\n"),
        ("usr/share/wordpress/secure.php", SECURE),
    ],
    php: "",
    https: true,
};

/// A page that says what WordPress and PHP know of the connection.
const SECURE: &str = r"<?php
require __DIR__ . '/wp-load.php';
echo 'is_ssl ', var_export(is_ssl(), true), ' ', wp_login_url(), ' ', home_url(), PHP_EOL;
ksort($_SERVER);
foreach ($_SERVER as $name => $value) {
    // SSL_SESSION_ID is not set here (docs/manual/mod_ssl.md); the name of the library differs.
    if (preg_match('/^(SSL_(?!SESSION_ID|VERSION_LIB)|HTTPS|REQUEST_SCHEME|SERVER_P)/', $name)) {
        echo $name, '=', $value, PHP_EOL;
    }
}
";

/// The file wp-config.php. It disables requests to other servers and scheduled jobs, because their
/// times differ between runs.
const WP_CONFIG: &str = r"<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', 'sea');
define('DB_HOST', 'localhost:@ROOT@/db.sock');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
if (!empty($_SERVER['HTTPS'])) {
    define('WP_HOME', 'https://127.0.0.1:@HTTPS@');
    define('WP_SITEURL', 'https://127.0.0.1:@HTTPS@');
}
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
";

#[test]
fn wordpress_is_the_same_site_on_both_servers() {
    visit(Runner::Fpm, &KNOWN);
}

/// A pool of Evenkeel beside mod_php.
#[test]
fn wordpress_is_the_same_site_in_a_pool() {
    visit(Runner::Module, &KNOWN_IN_POOL);
}

fn visit(runner: Runner, known: &[(&str, &str)]) {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    is_the_same_on_both_servers(&WORDPRESS, runner, &cache, known, &|story| {
        let editor = story.visitor("editor");
        install(story, &editor);
        let picture = publish(story, &editor);
        read(story, &picture);
        files(story, &picture);
        leave(story, &editor);
        visit_over_tls(story);
        for page in ["/", "/a-picture-of-the-harbour/"] {
            story.browse(page, "The Harbour");
        }
        // The browser must have loaded the picture in the size that the page requests.
        let picture = picture.replace("harbour.png", "harbour-1024x640.png");
        story.must_log(format!("GET {picture} HTTP/1.1\" 200"));
        let htaccess = fs::read_to_string(story.site.web().join(".htaccess")).unwrap();
        assert!(htaccess.contains("RewriteRule . /index.php [L]"), "{htaccess}");
        story.keep(htaccess);
    });
}

/// Installs WordPress, logs in and sets permalinks.
fn install(story: &mut Story<'_>, editor: &Visitor) {
    let first = story.ask(editor, 302, "", "/", &[]);
    assert!(story.location(&first).ends_with("/wp-admin/install.php"));
    story.ask(editor, 200, "weblog_title", "/wp-admin/install.php", &[]);
    let fields = "weblog_title=The+Harbour&user_name=editor&admin_password=low+tide&\
        admin_password2=low+tide&pw_weak=1&admin_email=editor%40example.org&Submit=Install";
    let target = "/wp-admin/install.php?step=2";
    story.ask(editor, 200, "Success!", target, &["-d", fields]);
    story.ask(editor, 200, "Powered by WordPress", "/wp-login.php", &[]);
    let fields = "log=editor&pwd=high+tide&testcookie=1";
    story.ask(editor, 200, "is incorrect", "/wp-login.php", &["-d", fields]);
    let fields = "log=editor&pwd=low+tide&testcookie=1&redirect_to=%2Fwp-admin%2F";
    story.ask(editor, 302, "", "/wp-login.php", &["-d", fields]);
    story.ask(editor, 200, "Dashboard", "/wp-admin/", &[]);
    let form = story.ask(editor, 200, "Permalink", "/wp-admin/options-permalink.php", &[]);
    let nonce = nonce(&form);
    let fields = format!(
        "_wpnonce={nonce}&selection=%2F%25postname%25%2F&permalink_structure=\
        %2F%25postname%25%2F&category_base=&tag_base=&submit=Save"
    );
    let more = ["-d", &fields];
    story.ask(editor, 302, "", "/wp-admin/options-permalink.php", &more);
    // WordPress writes the .htaccess file when it shows the form again.
    let target = "/wp-admin/options-permalink.php?settings-updated=true";
    story.ask(editor, 200, "Permalink structure updated.", target, &[]);
}

/// Uploads a picture and publishes posts with it. Returns the path of the picture.
fn publish(story: &mut Story<'_>, editor: &Visitor) -> String {
    let file = story.site.path("harbour.png");
    fs::write(&file, png(1_280, 800)).unwrap();
    let form = story.ask(editor, 200, "Upload New Media", "/wp-admin/media-new.php", &[]);
    let nonce = format!("_wpnonce={}", nonce(&form));
    let part = format!("async-upload=@{};type=image/png", file.display());
    let more =
        ["-F", "name=harbour.png", "-F", "action=upload-attachment", "-F", &nonce, "-F", &part];
    let reply = story.ask(editor, 200, "\"success\":true", "/wp-admin/async-upload.php", &more);
    let id = reply.between("\"id\":", ",").unwrap();
    let url = reply.between("\"url\":\"", "\"").unwrap().replace('\\', "");
    let large = url.replace("harbour.png", "harbour-1024x640.png");
    let target = "/wp-admin/admin-ajax.php?action=rest-nonce";
    let nonce = format!("X-WP-Nonce: {}", story.ask(editor, 200, "", target, &[]).text());
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
        story.ask(editor, 201, "\"status\":\"publish\"", target, &more);
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
    story.ask(editor, 200, "\"slug\":\"boats\"", "/wp-json/wp/v2/categories/1", &more);
    story.ask(editor, 200, "harbour", "/wp-admin/edit.php", &[]);
    url.split_once(UPLOADS).map(|(_, rest)| format!("{UPLOADS}{rest}")).unwrap()
}

/// Sends the requests of a reader without cookies to WordPress.
fn read(story: &mut Story<'_>, picture: &str) {
    let reader = story.visitor("reader");
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
        (200, "A picture of the harbour", "/wp-json/wp/v2/posts?per_page=3&_fields=id,title,link"),
        (200, "picture of the harbour", "/wp-json/wp/v2/search?search=lighthouse"),
        (200, "\"namespaces\"", "/?rest_route=/"),
        (404, "rest_no_route", "/wp-json/no/such/route"),
        (401, "rest_forbidden_context", "/wp-json/wp/v2/posts?context=edit"),
        (405, "XML-RPC server accepts POST", "/xmlrpc.php"),
    ] {
        story.ask(&reader, status, text, target, &[]);
    }
    story.ask(&reader, 200, "", page, &["-I"]);
    story.ask(&reader, 401, "rest_cannot_create", "/wp-json/wp/v2/posts", &["-d", "title=x"]);
    let call = "<?xml version=\"1.0\"?><methodCall><methodName>demo.sayHello</methodName>\
        </methodCall>";
    let more = ["-H", "Content-Type: text/xml", "-d", call];
    story.ask(&reader, 200, "", "/xmlrpc.php", &more);
    let more = ["-H", "Transfer-Encoding: chunked", "-H", "Content-Type: text/xml", "-d", call];
    story.ask(&reader, 200, "", "/xmlrpc.php", &more);
    let fields = "comment=Lovely&author=Reader&email=reader%40example.org&comment_post_ID=6";
    let kept = story.ask(&reader, 302, "", "/wp-comments-post.php", &["-d", fields]);
    let shown = story.location(&kept).replace(&reader.origin, "");
    story.ask(&reader, 200, "awaiting moderation", &shown, &[]);
}

/// Sends requests for static files, folders and forbidden paths.
fn files(story: &mut Story<'_>, picture: &str) {
    let reader = story.visitor("reader");
    let sizes = ["harbour-300x188.png", "harbour-150x150.png", "harbour-1024x640.png"];
    for size in sizes {
        story.ask(&reader, 200, "", &picture.replace("harbour.png", size), &[]);
    }
    let whole = story.ask(&reader, 200, "", picture, &[]);
    assert_eq!(whole.body, fs::read(story.site.path("harbour.png")).unwrap());
    story.ask(&reader, 206, "", picture, &["-r", "100-199"]);
    story.ask(&reader, 416, "", picture, &["-r", "9000000-"]);
    let tag = format!("If-None-Match: {}", whole.header("ETag").unwrap());
    story.ask(&reader, 304, "", picture, &["-H", &tag]);
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
        story.ask(&reader, status, text, target, &[]);
    }
}

/// Visits the TLS host: pages, what PHP is told of the connection, and a login.
fn visit_over_tls(story: &mut Story<'_>) {
    let reader = story.secure_visitor("secure-reader");
    let told = story.ask(&reader, 200, "is_ssl true https://", "/secure.php", &[]).text();
    for line in ["HTTPS=on", "REQUEST_SCHEME=https", "SSL_PROTOCOL=TLSv1.3", "SSL_CLIENT_VERIFY="] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let plain = story.visitor("plain-reader");
    story.ask(&plain, 200, "is_ssl false http://", "/secure.php", &[]);
    for (status, text, target) in [
        (200, "lighthouse", "/"),
        (200, "lighthouse", "/a-picture-of-the-harbour/"),
        (301, "", "/a-picture-of-the-harbour"),
        (200, "<rss", "/feed/"),
        (404, "be found", "/no-such-page/"),
        (302, "", "/wp-admin/"),
    ] {
        story.ask(&reader, status, text, target, &[]);
    }
    let editor = story.secure_visitor("secure-editor");
    story.ask(&editor, 200, "Powered by WordPress", "/wp-login.php", &[]);
    let fields = "log=editor&pwd=low+tide&testcookie=1";
    let login = story.ask(&editor, 302, "", "/wp-login.php", &["-d", fields]);
    let is_cookie = |field: &&(String, String)| field.0.eq_ignore_ascii_case("Set-Cookie");
    let cookies: Vec<&String> = login.headers.iter().filter(is_cookie).map(|it| &it.1).collect();
    let of_login = |cookie: &&&String| cookie.starts_with("wordpress_sec_");
    assert!(cookies.iter().find(of_login).is_some(), "{cookies:?}");
    assert!(cookies.iter().all(|cookie| cookie.to_lowercase().contains("; secure")), "{cookies:?}");
    story.ask(&editor, 200, "Dashboard", "/wp-admin/", &[]);
    story.ask(&editor, 200, "editor@example.org", "/wp-admin/profile.php", &[]);
}

fn leave(story: &mut Story<'_>, editor: &Visitor) {
    let profile = story.ask(editor, 200, "editor@example.org", "/wp-admin/profile.php", &[]);
    let nonce = profile.between("action=logout&#038;_wpnonce=", "\"").unwrap();
    let nonce: String = nonce.chars().take_while(char::is_ascii_alphanumeric).collect();
    let target = format!("/wp-login.php?action=logout&_wpnonce={nonce}");
    story.ask(editor, 302, "", &target, &[]);
    story.ask(editor, 302, "", "/wp-admin/profile.php", &[]);
}

fn nonce(form: &Reply) -> String {
    form.between("name=\"_wpnonce\" value=\"", "\"").unwrap()
}
