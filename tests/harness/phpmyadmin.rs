//! Runs Debian's phpMyAdmin with php-fpm and MariaDB and compares two servers. An administrator
//! logs in, makes a table, fills it, uploads a file of SQL, browses the table and exports it.
//! Debian's apache2 serves the first run. Evenkeel serves the second one, with the same
//! configuration (that of Debian's package) and an empty database. A second test runs the
//! application in a pool of Evenkeel, and in apache2 with mod_php.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::application::{Story, is_the_same_on_both_servers};
use evenkeel_tests::php_site::{Application, Runner};
use evenkeel_tests::visitor::Visitor;
use std::fs;
use std::path::Path;

/// The accepted differences.
const KNOWN: [(&str, &str); 0] = [];

const KNOWN_IN_POOL: [(&str, &str); 0] = [];

const PHPMYADMIN: Application = Application {
    name: "phpmyadmin",
    packages: &[
        "phpmyadmin",
        "libjs-codemirror",
        "libjs-jquery",
        "libjs-jquery-mousewheel",
        "libjs-jquery-tablesorter",
        "libjs-jquery-timepicker",
        "libjs-jquery-ui",
        "php-composer-ca-bundle",
        "php-fig-http-message-util",
        "php-getallheaders",
        "php-google-recaptcha",
        "php-mariadb-mysql-kbs",
        "php-nikic-fast-route",
        "php-phpmyadmin-motranslator",
        "php-phpmyadmin-shapefile",
        "php-phpmyadmin-sql-parser",
        "php-psr-cache",
        "php-psr-container",
        "php-psr-http-factory",
        "php-psr-http-message",
        "php-psr-log",
        "php-slim-psr7",
        "php-symfony-cache",
        "php-symfony-cache-contracts",
        "php-symfony-config",
        "php-symfony-dependency-injection",
        "php-symfony-deprecation-contracts",
        "php-symfony-expression-language",
        "php-symfony-filesystem",
        "php-symfony-polyfill-php80",
        "php-symfony-service-contracts",
        "php-symfony-var-exporter",
        "php-twig",
        "php-twig-i18n-extension",
        "php-webmozart-assert",
    ],
    web: "htdocs",
    glue: Some("etc/phpmyadmin/apache.conf"),
    files: &[
        ("usr/share/phpmyadmin/libraries/vendor_config.php", PATHS),
        ("etc/config.inc.php", SETTINGS),
    ],
    php: "php_admin_value[include_path] = .:@ROOT@/usr/share/php\n",
    https: false,
};

/// The package's file of paths, with those of the temporary folder.
const PATHS: &str = "<?php
return [
    'autoloadFile' => ROOT_PATH . 'autoload.php',
    'tempDir' => '@ROOT@/tmp/',
    'changeLogFile' => '@ROOT@/usr/share/doc/phpmyadmin/changelog.gz',
    'licenseFile' => '@ROOT@/usr/share/doc/phpmyadmin/copyright',
    'sqlDir' => ROOT_PATH . 'sql/',
    'configFile' => '@ROOT@/etc/config.inc.php',
    'customHeaderFile' => ROOT_PATH . 'config.header.inc.php',
    'customFooterFile' => ROOT_PATH . 'config.footer.inc.php',
    'versionCheckDefault' => false,
    'localePath' => ROOT_PATH . 'locale/',
    'cacheDir' => ROOT_PATH . 'libraries/cache/',
    'versionSuffix' => '',
];
";

const SETTINGS: &str = "<?php
$cfg['blowfish_secret'] = 'low tide and high tide, in turns';
$cfg['Servers'][1]['auth_type'] = 'cookie';
$cfg['Servers'][1]['host'] = 'localhost';
$cfg['Servers'][1]['socket'] = '@ROOT@/db.sock';
$cfg['SendErrorReports'] = 'never';
";

const ROUTE: &str = "/phpmyadmin/index.php?route=";

#[test]
fn phpmyadmin_is_the_same_site_on_both_servers() {
    visit(Runner::Fpm, &KNOWN);
}

/// A pool of Evenkeel beside mod_php.
#[test]
#[ignore = "takes a minute; WordPress in a pool is part of every run"]
fn phpmyadmin_is_the_same_site_in_a_pool() {
    visit(Runner::Module, &KNOWN_IN_POOL);
}

fn visit(runner: Runner, known: &[(&str, &str)]) {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    is_the_same_on_both_servers(&PHPMYADMIN, runner, &cache, known, &|story| {
        let user = story.visitor("user");
        let token = log_in(story, &user);
        make(story, &user, &token);
        browse(story, &user, &token);
        files(story);
        story.browse("/phpmyadmin/", "Welcome to");
    });
}

/// Logs in, and returns the token of the session.
fn log_in(story: &mut Story<'_>, user: &Visitor) -> String {
    story.ask(user, 301, "", "/phpmyadmin", &[]);
    for (password, status, text) in [("pebble", 200, "Access denied"), ("sea", 302, "")] {
        story.ask(user, 200, "Welcome to", "/phpmyadmin/", &[]);
        let session = story.between("name=\"set_session\" value=\"", "\"");
        let token = story.between("name=\"token\" value=\"", "\"");
        let fields = format!(
            "set_session={session}&pma_username=phpmyadmin&pma_password={password}&server=1&\
            target=index.php&lang=en&token={token}"
        );
        story.ask(user, status, text, &format!("{ROUTE}/"), &["-d", &fields]);
    }
    story.ask(user, 200, "phpMyAdmin", &format!("{ROUTE}/"), &[]);
    story.between("token:\"", "\"")
}

/// Makes a table, and fills it by a statement and by a file that is uploaded.
fn make(story: &mut Story<'_>, user: &Visitor, token: &str) {
    let token = format!("token={token}");
    for statement in [
        "CREATE TABLE boats (id INT PRIMARY KEY, name VARCHAR(40), length INT)",
        "INSERT INTO boats VALUES (1, 'Café & quay', 12), (2, 'Lighthouse', 7)",
    ] {
        let statement = format!("sql_query={statement}");
        let fixed = "ajax_request=true&db=phpmyadmin";
        let more = ["-d", fixed, "-d", &token, "--data-urlencode", &statement];
        story.ask(user, 200, "\"success\":true", &format!("{ROUTE}/sql"), &more);
    }
    let file = story.site.path("boats.sql");
    let row = |id: u32| format!("({id}, 'boat {id}', {})", id % 30);
    let rows: Vec<String> = (3..2_000).map(row).collect();
    fs::write(&file, format!("INSERT INTO boats VALUES {};\n", rows.join(",\n"))).unwrap();
    let part = format!("import_file=@{};type=application/sql", file.display());
    let fields = [
        &token,
        "db=phpmyadmin",
        "import_type=database",
        "format=sql",
        "charset_of_file=utf-8",
        "skip_queries=0",
        "sql_compatibility=NONE",
        &part,
    ];
    let more: Vec<&str> = fields.iter().flat_map(|it| ["-F", it]).collect();
    story.ask(user, 200, "", &format!("{ROUTE}/import"), &more);
}

fn browse(story: &mut Story<'_>, user: &Visitor, token: &str) {
    for (status, text, route) in [
        (200, "phpmyadmin", "/server/databases"),
        (200, "boats", "/database/structure&db=phpmyadmin"),
        (200, "length", "/table/structure&db=phpmyadmin&table=boats"),
        (200, "Lighthouse", "/sql&db=phpmyadmin&table=boats&pos=0"),
        (200, "boat 1999", "/sql&db=phpmyadmin&table=boats&pos=1975"),
        (200, "length", "/table/search&db=phpmyadmin&table=boats"),
        (200, "length", "/table/change&db=phpmyadmin&table=boats"),
        (200, "sql_query", "/table/sql&db=phpmyadmin&table=boats"),
        (404, "", "/no-such-route"),
    ] {
        story.ask(user, status, text, &format!("{ROUTE}{route}"), &[]);
    }
    let fields = format!(
        "token={token}&db=phpmyadmin&table=boats&export_type=table&export_method=quick&\
        quick_or_custom=quick&what=csv&csv_separator=%2C&csv_enclosed=%22&csv_escaped=%22&\
        csv_terminated=AUTO&csv_null=NULL&csv_structure_or_data=data&allrows=1&asfile=sendit&\
        filename_template=%40TABLE%40"
    );
    story.ask(user, 200, "Lighthouse", &format!("{ROUTE}/export"), &["-d", &fields]);
    let fields = format!("token={token}");
    story.ask(user, 302, "", &format!("{ROUTE}/logout"), &["-d", &fields]);
    let target = format!("{ROUTE}/sql&db=phpmyadmin&table=boats");
    story.ask(user, 200, "Welcome to", &target, &[]);
}

/// Sends requests for static files, folders and forbidden paths.
fn files(story: &mut Story<'_>) {
    let reader = story.visitor("reader");
    for (status, target) in [
        (200, "/phpmyadmin/robots.txt"),
        (200, "/phpmyadmin/favicon.ico"),
        (200, "/phpmyadmin/js/vendor/jquery/jquery.min.js"),
        (200, "/phpmyadmin/themes/pmahomme/css/theme.css"),
        (200, "/phpmyadmin/themes/pmahomme/jquery/jquery-ui.css"),
        (403, "/phpmyadmin/libraries/"),
        (403, "/phpmyadmin/libraries/vendor_config.php"),
        (403, "/phpmyadmin/templates/login/form.twig"),
        (403, "/phpmyadmin/themes/"),
        (404, "/phpmyadmin/no-such-file"),
        (404, "/phpmyadmin/no-such-file.php"),
    ] {
        story.ask(&reader, status, "", target, &[]);
    }
    let part = ["-r", "10-99", "-H", "Accept-Encoding:"];
    story.ask(&reader, 206, "", "/phpmyadmin/js/vendor/jquery/jquery.min.js", &part);
}
