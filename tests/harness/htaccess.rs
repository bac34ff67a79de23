//! Compares what an .htaccess file may contain with Debian's apache2: every directive under every
//! class of AllowOverride, sections within sections, and odd texts. Each case is a folder with an
//! .htaccess file. The status of a request for a file in it and the message in the error log must
//! be those of the oracle.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::House;
use evenkeel_tests::load::{connect, exchange, text};
use evenkeel_tests::server::{Kind, Server, command, program};
use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const MODULES: [&str; 14] = [
    "access_compat",
    "alias",
    "authz_host",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "reqtimeout",
    "setenvif",
    "status",
];

/// The contents of an .htaccess file, and of the section of its folder.
struct Case {
    grant: String,
    text: Vec<u8>,
}

impl Case {
    fn new(grant: &str, text: impl Into<Vec<u8>>) -> Self {
        Self { grant: grant.into(), text: text.into() }
    }
}

/// The status of each case, and the message in the error log.
type Outcomes = Vec<(u16, String)>;

fn configuration(cases: &[Case]) -> String {
    let mut text = String::from("TypesConfig /dev/null\n");
    for module in MODULES {
        let file = format!("/usr/lib/apache2/modules/mod_{module}.so");
        text.push_str(&format!("LoadModule {module}_module {file}\n"));
    }
    for (number, Case { grant, .. }) in cases.iter().enumerate() {
        if !grant.is_empty() {
            let section =
                format!("<Directory \"@ROOT@/htdocs/{number}\">\n{grant}\n</Directory>\n");
            text.push_str(&section);
        }
    }
    text
}

fn outcomes(house: &House, kind: Kind, count: usize) -> Outcomes {
    let _ = fs::remove_file(house.path("logs/error.log"));
    let server = Server::start(kind, &house.path(""), house.address.port()).unwrap();
    let statuses: Vec<u16> = (0..count).map(|number| status(house, number)).collect();
    server.stop().unwrap();
    let mut complaints = HashMap::new();
    for line in house.error_log().lines() {
        let Some((_, place)) = line.split_once("/htdocs/") else { continue };
        let Some((number, text)) = place.split_once("/.htaccess: ") else { continue };
        let text = text.trim();
        // Evenkeel names the line.
        let text = text.rsplit_once("(line ").map_or(text, |(text, _)| text.trim());
        complaints.entry(number.to_owned()).or_insert_with(|| text.to_owned());
    }
    let mut complaint = |number: usize| complaints.remove(&number.to_string()).unwrap_or_default();
    statuses.into_iter().enumerate().map(|(number, status)| (status, complaint(number))).collect()
}

fn status(house: &House, number: usize) -> u16 {
    let mut client = TcpStream::connect(house.address).unwrap();
    let request = format!("GET /{number}/a.txt HTTP/1.0\r\nHost: localhost\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let code = answer.get(9..12).and_then(|code| std::str::from_utf8(code).ok());
    code.and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Has both servers answer all cases, and returns how often apache2 answered 200 and 500.
fn compare(cases: &[Case]) -> (usize, usize) {
    let house = House::lay_out(&configuration(cases)).unwrap();
    for (number, Case { text, .. }) in cases.iter().enumerate() {
        let folder = house.path(&format!("htdocs/{number}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.txt"), "").unwrap();
        fs::write(folder.join(".htaccess"), text).unwrap();
    }
    let theirs = outcomes(&house, Kind::Apache, cases.len());
    let ours = outcomes(&house, Kind::Evenkeel, cases.len());
    let mut wrong = String::new();
    for ((case, theirs), ours) in cases.iter().zip(&theirs).zip(&ours) {
        if theirs != ours {
            let text = case.text.escape_ascii().to_string();
            let text = text.get(..200).unwrap_or(&text);
            wrong.push_str(&format!("{}: {text}\n  {theirs:?}\n  {ours:?}\n", case.grant));
        }
    }
    assert!(wrong.is_empty(), "apache2, then ours:\n{wrong}");
    let count = |status| theirs.iter().filter(|(theirs, _)| *theirs == status).count();
    (count(200), count(500))
}

/// Arguments by directive, in lower case; `on` and `x` for those that are not listed.
#[rustfmt::skip]
const ARGUMENTS: &[(&str, &[&str])] = &[
    ("acceptpathinfo", &["on"]),
    ("addalt", &["x y"]),
    ("addaltbyencoding", &["x x-gzip"]),
    ("addaltbytype", &["x text/*"]),
    ("addcharset", &["utf-8 .x"]),
    ("adddefaultcharset", &["on", "off", "bogus"]),
    ("adddescription", &["\"x\" y"]),
    ("addencoding", &["x-gzip .gz"]),
    ("addhandler", &["h .x"]),
    ("addicon", &["/x .y"]),
    ("addiconbyencoding", &["/x x-gzip"]),
    ("addiconbytype", &["/x text/*"]),
    ("addinputfilter", &["DEFLATE .x"]),
    ("addlanguage", &["en .en"]),
    ("addoutputfilter", &["DEFLATE .x"]),
    ("addoutputfilterbytype", &["DEFLATE text/x"]),
    ("addtype", &["text/x .x"]),
    ("aliaspreservepath", &["on"]),
    ("allow", &["from all", "from env=x", "from 1.2.3.4", "1.2"]),
    ("authmerging", &["off", "and", "or", "x"]),
    ("authname", &["x"]),
    ("authtype", &["none", "basic"]),
    ("authzsendforbiddenonfailure", &["on"]),
    ("browsermatch", &["x y"]),
    ("browsermatchnocase", &["x y"]),
    ("cachenegotiateddocs", &["on"]),
    ("cgipassauth", &["on"]),
    ("cgivar", &["REQUEST_URI original-uri"]),
    ("contentdigest", &["on"]),
    ("defaulticon", &["x"]),
    ("defaultlanguage", &["en"]),
    ("defaulttype", &["none"]),
    ("define", &["X"]),
    ("deny", &["from none", "all", "from"]),
    ("directorycheckhandler", &["on"]),
    ("directoryindex", &["x"]),
    ("directoryindexredirect", &["on"]),
    ("directoryslash", &["off"]),
    ("enablemmap", &["on"]),
    ("enablesendfile", &["on"]),
    ("error", &["text"]),
    ("errordocument", &["404 x", "404 /x", "999 x"]),
    ("fallbackresource", &["/x"]),
    ("fileetag", &["None"]),
    ("filterchain", &["x"]),
    ("filterdeclare", &["x"]),
    ("filterprotocol", &["x change=no"]),
    ("filterprovider", &["x DEFLATE true"]),
    ("filtertrace", &["x 1"]),
    ("forcelanguagepriority", &["prefer"]),
    ("forcetype", &["text/plain"]),
    ("header", &["set a b", "bogus a b"]),
    ("headername", &["x"]),
    ("include", &["/dev/null"]),
    ("includeoptional", &["/dev/null"]),
    ("indexheadinsert", &["x"]),
    ("indexignore", &["x"]),
    ("indexignorereset", &["on"]),
    ("indexoptions", &["FancyIndexing"]),
    ("indexorderdefault", &["ascending name"]),
    ("indexstylesheet", &["x"]),
    ("languagepriority", &["en"]),
    ("limitrequestbody", &["1000"]),
    ("limitxmlrequestbody", &["100"]),
    ("modmimeusepathinfo", &["on"]),
    ("multiviewsmatch", &["any"]),
    ("options", &["+Indexes", "-Indexes", "Indexes", "None", "All", "FollowSymLinks", "+FollowSymLinks", "SymLinksIfOwnerMatch", "+SymLinksIfOwnerMatch", "-SymLinksIfOwnerMatch", "MultiViews", "+MultiViews", "ExecCGI", "Includes", "+Includes", "IncludesNOEXEC", "-Includes", "+IncludesNOEXEC", "runscripts", "+runscripts", "+All", "-All", "+None", "Indexes +MultiViews", "+Indexes MultiViews", "", "+", "Bogus", "Indexes MultiViews SymLinksIfOwnerMatch", "indexes", "\"\"", "+Indexes \"\""]),
    ("order", &["allow,deny", "deny,allow", "mutual-failure", "x"]),
    ("passenv", &["a"]),
    ("qualifyredirecturl", &["on"]),
    ("readmename", &["x"]),
    ("redirect", &["/x /y", "gone /x", "302 /x"]),
    ("redirectmatch", &["x /y"]),
    ("redirectpermanent", &["/x /y"]),
    ("redirectrelative", &["on"]),
    ("redirecttemp", &["/x /y"]),
    ("removecharset", &[".x"]),
    ("removeencoding", &[".x"]),
    ("removehandler", &[".x"]),
    ("removeinputfilter", &[".x"]),
    ("removelanguage", &[".x"]),
    ("removeoutputfilter", &[".x"]),
    ("removetype", &[".x"]),
    ("requestheader", &["set a b"]),
    ("require", &["all granted", "all denied", "ip 127.0.0.1", "method GET", "method FOO", "method get", "not all denied", "env x", "expr true", "host localhost", "local", "valid-user", "user x", "group x", "bogus", "", "forward-dns x", "not", "all"]),
    ("rlimitcpu", &["1"]),
    ("rlimitmem", &["100000"]),
    ("rlimitnproc", &["10"]),
    ("satisfy", &["any", "all", "x"]),
    ("serversignature", &["on"]),
    ("setenv", &["a b"]),
    ("setenvif", &["a b c"]),
    ("setenvifexpr", &["true x"]),
    ("setenvifnocase", &["a b c"]),
    ("sethandler", &["none"]),
    ("setinputfilter", &["DEFLATE"]),
    ("setoutputfilter", &["DEFLATE"]),
    ("undefine", &["X"]),
    ("undefmacro", &["x"]),
    ("unsetenv", &["a"]),
    ("use", &["x"]),
];

/// The opening line of each section.
#[rustfmt::skip]
const SECTIONS: &[(&str, &str)] = &[
    ("<authzprovideralias", "x y z"),
    ("<directory", "/"),
    ("<directorymatch", "/"),
    ("<else", ""),
    ("<elseif", "\"true\""),
    ("<files", "x.y"),
    ("<filesmatch", "x"),
    ("<if", "\"true\""),
    ("<ifdefine", "!X"),
    ("<ifdirective", "Alias"),
    ("<iffile", "/dev/null"),
    ("<ifmodule", "core.c"),
    ("<ifsection", "Directory"),
    ("<ifversion", ">= 2.4"),
    ("<limit", "GET"),
    ("<limitexcept", "GET"),
    ("<location", "/"),
    ("<locationmatch", "/"),
    ("<macro", "x"),
    ("<requireall", ""),
    ("<requireany", ""),
    ("<requirenone", ""),
    ("<virtualhost", "*"),
];

const CLASSES: [&str; 7] =
    ["None Nonfatal=Unknown", "AuthConfig", "FileInfo", "Indexes", "Limit", "Options", "All"];

/// The options that AllowOverride may allow.
const OPTIONS: [&str; 14] = [
    "All",
    "MultiViews,All",
    "ExecCGI",
    "FollowSymLinks",
    "Includes",
    "IncludesNOEXEC",
    "Indexes",
    "Indexes,,MultiViews",
    "MultiViews",
    "MultiViews,None",
    "None",
    "None,Indexes",
    "SymLinksIfOwnerMatch",
    "runscripts",
];

/// A section with contents.
fn section(name: &str, argument: &str, inner: &str) -> String {
    let name = name.trim_start_matches('<');
    let before = if name.starts_with("else") { "<If \"true\">\n</If>\n" } else { "" };
    let inner = if name.starts_with("require") && inner.is_empty() {
        "Require all granted\n"
    } else {
        inner
    };
    let open = format!("{name} {argument}");
    format!("{before}<{}>\n{inner}</{name}>\n", open.trim_end())
}

/// Every directive that apache2 has with these modules, each with a few arguments.
fn directives() -> Vec<String> {
    let house = House::lay_out(&configuration(&[])).unwrap();
    let file = house.path("httpd.conf").to_string_lossy().into_owned();
    let apache = program(Kind::Apache, &house.path("")).unwrap();
    let listed = command(&apache, &["-f", &file, "-L"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let heads = listed.lines().filter(|line| !line.starts_with('\t'));
    let names: Vec<String> =
        heads.filter_map(|head| Some(head.split_once(" (")?.0.to_ascii_lowercase())).collect();
    assert!(names.len() > 200, "{names:?}");
    let mut texts = Vec::new();
    for name in &names {
        if name.starts_with('<') {
            let known = SECTIONS.iter().find(|(known, _)| known == name);
            texts.push(section(name, known.map_or("x", |(_, argument)| argument), ""));
            continue;
        }
        let known = ARGUMENTS.iter().find(|(known, _)| known == name);
        let arguments = known.map_or(&["on", "x"][..], |(_, arguments)| arguments);
        texts.extend(arguments.iter().map(|argument| format!("{name} {argument}\n")));
    }
    texts
}

#[test]
fn every_directive_is_admitted_by_the_classes_that_apache_says() {
    let mut cases = Vec::new();
    let texts = directives();
    for class in CLASSES {
        let grant = format!("AllowOverride {class}");
        cases.extend(texts.iter().map(|text| Case::new(&grant, text.as_bytes())));
    }
    for list in OPTIONS {
        let grant = format!("AllowOverride Options={list}");
        let options = texts.iter().filter(|text| text.starts_with("options "));
        cases.extend(options.map(|text| Case::new(&grant, text.as_bytes())));
    }
    let (passed, refused) = compare(&cases);
    assert!(passed > 300 && refused > 1000, "{passed} {refused}");
}

/// A directive of each class, and directives that belong to no class or to every class.
const PROBES: [&str; 17] = [
    "ErrorDocument 404 x",
    "DirectoryIndex x",
    "Order allow,deny\nAllow from all",
    "Require all granted",
    "Options +Indexes",
    "Options +MultiViews",
    "Options +SymLinksIfOwnerMatch",
    "Bogus x",
    "<Bogus x>\n</Bogus>",
    "<IfModule core.c>\n</IfModule>",
    "<Files x>\n</Files>",
    "<Limit GET>\n</Limit>",
    "Error \"x\"",
    "Listen 80",
    "AllowOverride None",
    "AllowOverrideList None",
    "# nothing",
];

/// The contents of the section of a folder; the lines belong to the same section.
const OUTER: [&str; 29] = [
    "",
    "AllowOverride None",
    "AllowOverride All",
    "AllowOverride FileInfo",
    "AllowOverride Options",
    "AllowOverride Options=Indexes",
    "AllowOverride Options=Indexes\nAllowOverride All",
    "AllowOverride Options=Indexes\nAllowOverride Options",
    "AllowOverride All Options=Indexes",
    "AllowOverride Options=Indexes All",
    "AllowOverride Options=Indexes Options=MultiViews",
    "AllowOverride FileInfo None",
    "AllowOverride None FileInfo=x",
    "AllowOverride Nonfatal=Override FileInfo",
    "AllowOverride Nonfatal=Unknown FileInfo",
    "AllowOverride FileInfo Nonfatal=All",
    "AllowOverride Nonfatal=All All",
    "AllowOverride Nonfatal=All None",
    "AllowOverride None Nonfatal=All",
    "AllowOverride Nonfatal=Override",
    "AllowOverride Nonfatal=UNKNOWN",
    "AllowOverride",
    "AllowOverrideList Order Allow",
    "AllowOverrideList None",
    "AllowOverrideList <Files errordocument",
    "AllowOverrideList AllowOverride Listen",
    "AllowOverrideList AllowOverrideList",
    "AllowOverride Options=Indexes\nAllowOverrideList Options ErrorDocument",
    "AllowOverride Nonfatal=Override\nAllowOverrideList Require Error",
];

/// The contents of a section of the same folder that is merged over it.
const INNER: [&str; 5] = [
    "",
    "AllowOverride All",
    "AllowOverride None",
    "AllowOverride FileInfo",
    "AllowOverrideList Options",
];

/// Words that replace one of a directive's words, or follow all of them.
const WORDS: [&str; 10] =
    ["x", "\"\"", "on", "none", "-1", "99999999999999999999", "!x", "(", "%{x", "a=b"];

/// Variants of a directive's line: each of its words in turn omitted, replaced or followed by
/// another.
fn changed(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.trim().split(' ').collect();
    let mut lines = vec![words.iter().take(1).copied().collect::<String>()];
    for place in 1..=words.len() {
        let (before, rest) = words.split_at(place);
        let behind = rest.get(1..).unwrap_or_default();
        lines.push([before, behind].concat().join(" "));
        for word in WORDS {
            lines.push([before, &[word], behind].concat().join(" "));
        }
        if let Some(word) = rest.first() {
            lines.push([before, &[&*word.to_uppercase()], behind].concat().join(" "));
            lines.push([before, &[word, word], behind].concat().join(" "));
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

#[test]
fn every_directive_takes_the_arguments_that_apache_takes() {
    let lines: Vec<String> = directives();
    // Limits of processes that are not numbers are refused here; apache2 sets no limit then.
    let lines = lines.iter().filter(|line| !line.starts_with("rlimit") && !line.starts_with('<'));
    let texts = lines.flat_map(|line| changed(line)).map(|line| line + "\n");
    let sections = SECTIONS.iter().flat_map(|(name, argument)| {
        let heads = changed(&format!("{name} {argument}"));
        heads.into_iter().map(move |head| section(name, head.get(name.len()..).unwrap(), ""))
    });
    let cases: Vec<Case> =
        texts.chain(sections).map(|text| Case::new("AllowOverride All", text)).collect();
    let (passed, refused) = compare(&cases);
    assert!(passed > 1_000 && refused > 1_000, "{passed} {refused}");
}

#[test]
fn what_sections_grant_is_merged_as_in_apache() {
    let mut cases = Vec::new();
    for outer in OUTER {
        for inner in INNER {
            // The second section of a path is merged over the first.
            let next = cases.len();
            let again = |at: usize| {
                format!("{outer}\n</Directory>\n<Directory \"@ROOT@/htdocs/{at}\">\n{inner}")
            };
            let probes = PROBES.iter().zip(next..);
            cases.extend(probes.map(|(probe, at)| Case::new(&again(at), probe.as_bytes())));
        }
    }
    let (passed, refused) = compare(&cases);
    assert!(passed > 300 && refused > 300, "{passed} {refused}");
}

#[test]
fn sections_stand_within_sections_as_in_apache() {
    let outer = ["<files", "<if", "<else", "<limit", "<limitexcept", "<ifmodule", "<requireall"];
    let of = |name: &str| SECTIONS.iter().find(|(known, _)| *known == name).unwrap().1;
    let mut cases = Vec::new();
    for (name, argument) in SECTIONS {
        let innermost = section(name, argument, "");
        for middle in outer {
            let within = section(middle, of(middle), &innermost);
            for outermost in outer {
                cases.push(Case::new(
                    "AllowOverride All",
                    section(outermost, of(outermost), &within),
                ));
            }
            cases.push(Case::new("AllowOverride All", within));
        }
        cases.push(Case::new("AllowOverride All", innermost));
    }
    let (passed, refused) = compare(&cases);
    assert!(passed > 300 && refused > 300, "{passed} {refused}");
}

#[test]
fn methods_are_those_that_are_known() {
    let methods = [
        "GET",
        "get",
        "HEAD",
        "TRACE",
        "trace",
        "GET gte",
        "gte",
        "GET,POST",
        "PATCH",
        "BREW",
        "MADE",
        "brew",
        "\"\"",
        "GET \"\"",
        "*",
        "BASELINE-CONTROL",
        "SEARCH",
    ];
    let mut cases = Vec::new();
    for method in methods {
        for text in [
            format!("<Limit {method}>\n</Limit>\n"),
            format!("<LimitExcept {method}>\n</LimitExcept>\n"),
            format!("<Limit GET MADE>\n<Limit {method}>\n</Limit>\n</Limit>\n"),
            format!("<LimitExcept POST>\n<LimitExcept {method}>\n</LimitExcept>\n</LimitExcept>\n"),
            format!("<RequireAny>\nRequire method {method}\nRequire all granted\n</RequireAny>\n"),
        ] {
            cases.push(Case::new("AllowOverride All", text));
        }
    }
    // BREW is registered, and MADE is registered by its use in a section of the server.
    let registered = "AllowOverride All\n</Directory>\nRegisterHttpMethod BREW\n\
                      <Directory /nowhere>\n<Limit MADE>\nRequire all denied\n</Limit>";
    cases.push(Case::new(registered, ""));
    let (passed, refused) = compare(&cases);
    assert!(passed > 20 && refused > 20, "{passed} {refused}");
}

/// Texts that are not well-formed lines, except those that end apache2.
#[rustfmt::skip]
const ODD: &[&[u8]] = &[
    b"ErrorDocument 404 x",
    b"ErrorDocument 404 x\0junk\nErrorDocument 403 y\n",
    b"\0Bogus\nErrorDocument 404 x\n",
    b"Error\0Document 404 x\n",
    b"ErrorDocument 404 x\0\\\nBogus line\n",
    b"ErrorDocument 404 x\n\0",
    b"\0",
    b"# a\0b\nBogus\n",
    b"ErrorDocument 404 x\r\nErrorDocument 403 y\r\n",
    b"ErrorDocument 404 x\rBogus y\n",
    b"ErrorDocument 404 x\r\r\n",
    b"ErrorDocument 404 x\r",
    b"ErrorDocument \\\n404 \\\n x\n",
    b"ErrorDocument \\\r\n404 x\r\n",
    b"ErrorDocument 404 x\\\n",
    b"ErrorDocument 404 x \\ \nBogus\n",
    b"# foo \\\nBogus\nErrorDocument 404 x\n",
    b"ErrorDocument 404 x\\\\\nBogus\n",
    b"ErrorDocument 404 x\\\\\\\nBogus\n",
    b"<Files x>\n",
    b"<Files x>\n<Limit GET>\n</Files>\n",
    b"</Files>\n",
    b"<Files x>\n</FilesMatch>\n",
    b"<Files x\n</Files>\n",
    b"<Files x>\n</Files\n",
    b"<FILES x>\n</files>\n",
    b"<Files x>\n</Files> junk\n",
    b"< Files x>\n</Files>\n",
    b"<Files x >\n</Files >\n",
    b"<Files x>\n</ Files>\n",
    b"<Files x> <Files y>\n</Files>\n",
    b"<Files \"a>b\">\n</Files>\n",
    b"<Files x>>\n</Files>\n",
    b"<>\n</>\n",
    b"<\n",
    b"</\n",
    b"</>\n",
    b">\n",
    b"<IfModule core.c>\n",
    b"<IfModule nope>\n",
    b"<IfModule core.c>\n</IfDefine>\n",
    b"<IfModule nope>\n<Files x>\n</IfModule>\n",
    b"<IfModule nope>\nBogus\n</IfModule>\n",
    b"<IfModule nope>\n<Bogus x>\n</Bogus>\n</IfModule>\n",
    b"<IfModule nope>\n</Bogus>\n</IfModule>\n",
    b"<IfModule nope>\n<Bogus x\n</Bogus>\n</IfModule>\n",
    b"<Files x>\n<IfModule core.c>\n</Files>\n</IfModule>\n",
    b"<IfModule nope>\nfoo \\\n</IfModule>\n</IfModule>\n",
    b"<IfModule nope>\n# </IfModule>\n</IfModule>\n",
    b"<IfModule nope>\n\"</IfModule>\n</IfModule>\n",
    b"<IfModule nope>\n<${NOPE} x>\n</IfModule>\n",
    b"<IfModule nope>\nFoo ${NOPE}\n</IfModule>\n",
    b"ErrorDocument 404 ${NOPE}\n",
    b"ErrorDocument 404 ${\n",
    b"ErrorDocument 404 ${}\n",
    b"ErrorDocument 404 ${PATH}\n",
    b"${NOPE} 404\n",
    b"<IfModule !nope>\nBogus\n</IfModule>\n",
    b"<IfModule>\n</IfModule>\n",
    b"<IfModule !>\n</IfModule>\n",
    b"<IfModule core.c\n</IfModule>\n",
    b"<IfModule core.c nope>\n</IfModule>\n",
    b"<IfModule \"core.c\">\n</IfModule>\n",
    b"<IfModule core.c>\n</IfModule> x\n",
    b"<IfModule nope>\n</IfModule> x\n",
    b"<IfModule nope>\n</IfModule x>\n",
    b"<IfModule nope>\n</IfModule >\n",
    b"<IfModule nope>\n</IfModul>\n</IfModule>\n",
    b"<IfModule nope>\n</IfModule\n",
    b"\tErrorDocument\t404\tx\t\n",
    b"\x0bErrorDocument\x0b404 x\x0c\n",
    b"\xef\xbb\xbfErrorDocument 404 x\n",
    b"\x01ErrorDocument 404 x\n",
    b"ErrorDocument 404 x\x7f\n",
    b"ErrorDocument 404 \"x\n",
    b"\"ErrorDocument\" 404 x\n",
    b"\"<Files\" x>\n</Files>\n",
    b"Error\\Document 404 x\n",
    b"ErrorDocument 404 x # y\n",
    b" # y\n",
    b"#\n",
    b"ErrorDocument 404 x; y\n",
    b"",
    b"\n",
    b"   ",
    b"ErrorDocument 404 x\n<Files\n",
];

#[test]
fn odd_texts_are_read_as_apache_reads_them() {
    let mut cases: Vec<Case> =
        ODD.iter().map(|text| Case::new("AllowOverride All", *text)).collect();
    for bytes in [200, 8_000, 8_188, 8_189, 8_190, 8_191, 8_192, 8_193, 8_200, 100_000] {
        let long = |byte: &str, bytes: usize| byte.repeat(bytes);
        for text in [
            format!("#{}\n", long("x", bytes - 1)),
            format!("#{}", long("x", bytes - 1)),
            format!("#{}\r\n", long("x", bytes - 1)),
            format!("{}#\n", long(" ", bytes - 1)),
            format!("ErrorDocument 404 x{}\n", long(" ", bytes)),
            format!("<IfModule nope>\n{}\n</IfModule>\n", long("x", bytes)),
            // Apache counts the line on which its buffer is full, even if the line is continued
            // there.
            format!(
                "#{}\\\n{}\n",
                long("x", bytes.min(9_000) / 2),
                long("x", bytes.min(9_000) / 2 - 1)
            ),
        ] {
            cases.push(Case::new("AllowOverride All", text));
        }
    }
    let (passed, refused) = compare(&cases);
    assert!(passed > 80 && refused > 40, "{passed} {refused}");
}

/// The lines of the error log that contain one of these numbers, from the number on.
fn numbered(log: &str, numbers: &[&str]) -> Vec<String> {
    let from = |line: &str| numbers.iter().find_map(|it| line.find(it)).map(|at| line[at..].into());
    log.lines().filter_map(from).collect()
}

#[test]
fn what_an_access_file_skips_is_in_the_error_log() {
    const NUMBERS: [&str; 4] = ["AH00111", "AH00117", "AH02295", "AH02296"];
    let more = "<Directory \"@ROOT@/htdocs/d\">\nAllowOverride FileInfo Nonfatal=All\n\
                </Directory>\n";
    let mut house = House::lay_out(more).unwrap();
    let rules = "Bogus x\nOptions +Indexes\nErrorDocument 404 ${nobody}\nDefaultType text/plain\n\
                DefaultType off\n";
    fs::create_dir(house.path("htdocs/d")).unwrap();
    fs::write(house.path("htdocs/d/.htaccess"), rules).unwrap();
    fs::write(house.path("htdocs/d/a.txt"), "").unwrap();
    let [theirs, ours] = [Kind::Apache, Kind::Evenkeel].map(|kind| {
        let _ = fs::remove_file(house.path("logs/error.log"));
        let server = Server::start(kind, &house.path(""), house.address.port()).unwrap();
        text(house.address, "/d/a.txt").unwrap();
        server.stop().unwrap();
        numbered(&house.error_log(), &NUMBERS)
    });
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 4, "{ours:?}");
    // A file that is kept has been reported.
    let _ = fs::remove_file(house.path("logs/error.log"));
    house.start(&[]).unwrap();
    let mut stream = connect(house.address).unwrap();
    for _ in 0..20 {
        exchange(&mut stream, b"GET /d/a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    house.stop().unwrap();
    assert_eq!(numbered(&house.error_log(), &NUMBERS), ours);
}

#[test]
fn a_pattern_that_does_not_compile_is_named_by_its_line() {
    let more = "<Directory \"@ROOT@/htdocs/d\">\nAllowOverride All\n</Directory>\n\
                LoadModule setenvif_module /usr/lib/apache2/modules/mod_setenvif.so\n";
    let mut house = House::lay_out(more).unwrap();
    fs::create_dir(house.path("htdocs/d")).unwrap();
    fs::write(house.path("htdocs/d/.htaccess"), "\nSetEnvIf a b c\nSetEnvIf a ( c\n").unwrap();
    house.start(&[]).unwrap();
    assert!(text(house.address, "/d/").unwrap().contains("Internal Server Error"));
    house.stop().unwrap();
    let log = house.error_log();
    let want = "/d/.htaccess: SetEnvIf regex could not be compiled. (line 3)";
    assert!(log.contains(want), "{log}");
}

#[test]
fn an_access_file_of_two_mebibytes_holds() {
    let more = "<Directory \"@ROOT@/htdocs/d\">\nAllowOverride All\n</Directory>\n";
    let house = House::lay_out(more).unwrap();
    fs::create_dir(house.path("htdocs/d")).unwrap();
    let rules = format!("#{}\n", "x".repeat(8000)).repeat(270) + "ErrorDocument 404 said-here\n";
    fs::write(house.path("htdocs/d/.htaccess"), rules).unwrap();
    for kind in [Kind::Apache, Kind::Evenkeel] {
        let server = Server::start(kind, &house.path(""), house.address.port()).unwrap();
        assert_eq!(text(house.address, "/d/none").unwrap(), "said-here");
        server.stop().unwrap();
    }
}
