//! HTTP/2 beside Debian's mod_http2: what curl gets, and the log lines; floods, which end with
//! GOAWAY while others are served; reloads, which lose no stream.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::frames::{ACK, Client, END_HEADERS, END_STREAM, block, get, kind};
use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::server::Kind;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const MODULES: &str = "/usr/lib/apache2/modules";

/// The lines of a site for both servers.
fn site() -> String {
    let names =
        ["http2", "mime", "dir", "headers", "deflate", "filter", "rewrite", "alias", "cgid"];
    let modules: String = names
        .iter()
        .map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n"))
        .collect();
    format!(
        "{modules}\
        TypesConfig /etc/mime.types\n\
        ScriptSock @ROOT@/run/cgisock\n\
        Protocols h2c http/1.1\n\
        LogFormat \"%r|%>s|%B|%H|%{{H2_STREAM_ID}}e|%{{HTTP2}}e|%{{H2PUSH}}e\" test\n\
        CustomLog @ROOT@/logs/access.log test\n\
        DirectoryIndex index.html\n\
        ScriptAlias /cgi/ @ROOT@/cgi/\n\
        <Directory @ROOT@/cgi>\nRequire all granted\n</Directory>\n\
        ErrorDocument 410 \"gone for good\"\n\
        RewriteEngine on\n\
        RewriteRule ^/gone$ - [G]\n\
        RewriteRule ^/moved$ /small.txt [R=301]\n\
        RewriteCond %{{ENV:HTTP2}} on [OR]\n\
        RewriteCond %{{SERVER_PROTOCOL}} ^HTTP/2\n\
        RewriteRule ^/which$ /two.txt\n\
        RewriteRule ^/which$ /one.txt\n\
        <Location /denied>\nRequire all denied\n</Location>\n\
        <Location /lost>\nErrorDocument 404 /small.txt\n</Location>\n\
        <Location /page.html>\nSetOutputFilter DEFLATE\n\
        Header set X-Version %{{HTTP2}}e\n</Location>\n\
        <LocationMatch ^/small>\nHeader append Vary Cookie\n\
        Header set Connection x\n</LocationMatch>\n"
    )
}

/// Writes what the site serves.
fn furnish(house: &House) {
    let write = |name: &str, text: &str| fs::write(house.path("htdocs").join(name), text).unwrap();
    write("index.html", "<p>index</p>\n");
    write("one.txt", "one\n");
    write("two.txt", "two\n");
    write("page.html", &"<p>a page that is worth compressing</p>\n".repeat(100));
    fs::create_dir(house.path("htdocs/folder")).unwrap();
    fs::create_dir(house.path("cgi")).unwrap();
    for (name, text) in [
        ("count", "echo Content-Type: text/plain; echo; wc -c"),
        ("total", "total=$(wc -c); echo Content-Type: text/plain; echo; echo $total"),
        ("echo", "echo Content-Type: text/plain; echo; echo \"$HTTP_COOKIE|$REQUEST_METHOD\"; cat"),
        ("teapot", "echo Status: 418 Short; echo Content-Type: text/plain; echo; echo tea"),
        ("fields", "echo Content-Type: text/plain; echo X-A: 1; echo X-A: 2; echo; echo x"),
        ("large", "echo Content-Type: text/plain; echo; head -c 300000 /dev/zero"),
    ] {
        let path = house.path("cgi").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(house.path("ten.bin"), vec![b'x'; 10 << 20]).unwrap();
    // Entity tags of files that have just changed are weak.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    for name in ["index.html", "one.txt", "two.txt", "page.html"] {
        let file = fs::File::options().write(true).open(house.path("htdocs").join(name)).unwrap();
        file.set_modified(old).unwrap();
    }
}

/// The words of curl for each request.
fn requests(root: &Path) -> Vec<Vec<String>> {
    let long = "a".repeat(9_000);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let ten = format!("--data-binary @{}", root.join("ten.bin").display());
    let mut all: Vec<Vec<String>> = [
        "/",
        "/small.txt",
        "-I /small.txt",
        "/large.bin",
        "-I /large.bin",
        "/absent",
        "/lost/file",
        "/gone",
        "/moved",
        "/which",
        "/denied",
        "-I /denied",
        "/folder",
        "/folder/",
        "/small.txt?query=1",
        "/%73mall.txt",
        "/%2e%2e/etc/passwd",
        "-r 0-9 /small.txt",
        "-r 5000- /small.txt",
        "-r -10 /small.txt",
        "-H If-None-Match:* /small.txt",
        "-H If-Match:\"x\" /small.txt",
        "--compressed /page.html",
        "-I --compressed /page.html",
        "/cgi/teapot",
        "/cgi/fields",
        "/cgi/large",
        "-X POST /cgi/count",
        "-d abc /cgi/count",
        "-d abc /small.txt",
        "-d abc -H Expect:100-continue /cgi/count",
        "-H Cookie:a=1 -H Cookie:b=2 /cgi/echo",
        "-X PUT -d abc /cgi/echo",
        "-X PUT -d abc /small.txt",
        "-X DELETE /small.txt",
        "-X OPTIONS /small.txt",
        "-X TRACE /small.txt",
        "-X BREW /small.txt",
        "-H Expect:tea /small.txt",
    ]
    .into_iter()
    .map(words)
    .collect();
    all.push(words(&format!("{ten} /cgi/count")));
    all.push(words(&format!("{ten} /small.txt")));
    all.push(vec![format!("/{long}")]);
    all.push(vec!["-H".into(), format!("X-Long: {long}"), "/small.txt".into()]);
    let mut many: Vec<String> = Vec::new();
    for number in 0..120 {
        many.extend(["-H".to_owned(), format!("X-{number}: 1")]);
    }
    many.push("/small.txt".to_owned());
    all.push(many);
    all
}

/// What curl says: the status, the fields in order of their names, and the body.
fn answer(words: &[String], base: &str) -> String {
    let (path, options) = words.split_last().unwrap();
    let mut command = Command::new("curl");
    command.arg("--http2-prior-knowledge").args(options).arg(format!("{base}{path}"));
    told(&mut command)
}

/// What this curl says.
fn told(curl: &mut Command) -> String {
    let out = curl.args(["-s", "-i", "-m", "60", "--path-as-is", "-o", "-"]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut rest = text.as_str();
    let (mut heads, mut body) = (Vec::new(), "");
    while rest.starts_with("HTTP/") {
        let (head, after) = rest.split_once("\r\n\r\n").unwrap_or((rest, ""));
        let mut lines: Vec<&str> = head.lines().collect();
        // Whose they are is not compared, and mod_http2 sends some lengths as the end of a stream
        // alone. curl checks those that are sent.
        // apache2 also offers an upgrade to HTTP/2 over TLS.
        let is_compared = |line: &str| {
            let names = ["date:", "server:", "content-length:", "upgrade:", "connection: upgrade"];
            !names.iter().any(|name| line.to_ascii_lowercase().starts_with(name))
        };
        lines.retain(|line| is_compared(line));
        let mut lines: Vec<String> = lines.into_iter().map(in_order).collect();
        if let Some((_, fields)) = lines.split_first_mut() {
            fields.sort_unstable();
        }
        heads.push(lines.join("\n"));
        (rest, body) = (after, after);
    }
    let whole = format!("{} bytes of body", body.len());
    let body = if body.len() > 2_000 { &whole } else { body };
    format!("{}\n\n{body}\ncurl: {:?}", heads.join("\n\n"), out.status.code())
}

/// A line of a head. The methods of Allow stand in the order of their names.
fn in_order(line: &str) -> String {
    let Some(methods) = line.strip_prefix("allow: ") else { return line.to_owned() };
    let mut methods: Vec<&str> = methods.split(',').collect();
    methods.sort_unstable();
    format!("allow: {}", methods.join(","))
}

/// What differs by design: a part of the words, and why.
const DIFFERENT: [(&str, &str); 4] = [
    ("-r 5000-", "Content-Range of 416 is missing in mod_http2 (RFC 9110, 15.5.17)"),
    ("ten.bin /small.txt", "mod_http2 resets the stream of a body that nobody reads"),
    ("-d abc /small.txt", "mod_http2 may do so with a short body"),
    ("/aaaa", "mod_http2 drops a path that is too long, and fails over its own error page"),
];

/// The lines of a log, in the order of their texts: each thread writes its own when it likes. Of a
/// response to HEAD, mod_http2 counts the body that it does not send; compressed lengths differ.
fn lines_of(log: &str) -> Vec<String> {
    let uncounted = |line: &str| {
        let mut parts: Vec<&str> = line.split('|').collect();
        if line.starts_with("HEAD") || line.starts_with("GET /page.html") {
            parts.remove(2);
        }
        parts.join("|")
    };
    let is_compared = |line: &&str| !line.contains("|414|");
    let mut lines: Vec<String> = log.lines().filter(is_compared).map(uncounted).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn answers_and_log_lines_are_those_of_apache2() {
    let mut house = House::lay_out(&site()).unwrap();
    furnish(&house);
    let base = format!("http://{}", house.address);
    let requests = requests(&house.path(""));
    let mut said = Vec::new();
    for kind in [Kind::Apache, Kind::Evenkeel] {
        house.start_kind(kind).unwrap();
        let answers: Vec<String> = requests.iter().map(|words| answer(words, &base)).collect();
        let lines = || fs::read_to_string(house.path("logs/access.log")).unwrap_or_default();
        wait_for("the log", || lines().lines().count() >= requests.len()).unwrap();
        said.push((answers, lines()));
        house.stop().unwrap();
        fs::remove_file(house.path("logs/access.log")).unwrap();
    }
    let ((ours, our_log), (theirs, their_log)) = (said.pop().unwrap(), said.pop().unwrap());
    let mut unlike = Vec::new();
    for (at, words) in requests.iter().enumerate() {
        let words = words.join(" ");
        let words: String = words.chars().take(80).collect();
        if DIFFERENT.iter().any(|(part, _)| words.contains(part)) {
            continue;
        }
        let (theirs, ours) = (theirs.get(at).unwrap(), ours.get(at).unwrap());
        if theirs != ours {
            unlike.push(format!("{words}\n-- apache2\n{}\n-- evenkeel\n{}\n", theirs, ours));
        }
    }
    for (theirs, ours) in lines_of(&their_log).iter().zip(lines_of(&our_log)) {
        if *theirs != ours {
            unlike.push(format!("-- {theirs}\n-- {ours}\n"));
        }
    }
    assert!(unlike.is_empty(), "{} differ:\n{}", unlike.len(), unlike.join("\n"));
}

/// A part of the body of a request, and whether it ends the body.
#[derive(Clone, Copy)]
enum Part {
    Data(&'static str, bool),
    Trailers(&'static [(&'static str, &'static str)], bool),
}

/// A request with a body: its method, its path, more fields, and the parts of its body.
type Upload =
    (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [Part]);

const ABC: Part = Part::Data("abc", false);
const SUM: Part = Part::Trailers(&[("x-sum", "1"), ("x-sum", "2")], true);
const EXPECTS: (&str, &str) = ("expect", "100-continue");

const UPLOADS: [Upload; 16] = [
    ("POST", "/cgi/total", &[], &[ABC, SUM]),
    ("POST", "/cgi/total", &[("content-length", "3")], &[ABC, SUM]),
    ("POST", "/cgi/total", &[("trailer", "x-sum")], &[ABC, ABC, SUM]),
    ("POST", "/cgi/total", &[], &[SUM]),
    ("POST", "/cgi/total", &[], &[Part::Data("", false), SUM]),
    ("POST", "/cgi/total", &[("x-sum", "0")], &[ABC, SUM]),
    ("POST", "/cgi/total", &[], &[ABC, Part::Trailers(&[], true)]),
    (
        "POST",
        "/cgi/total",
        &[],
        &[ABC, Part::Trailers(&[("host", "b"), ("cookie", "c"), ("x-sum", "1")], true)],
    ),
    ("POST", "/cgi/total", &[EXPECTS], &[Part::Data("abc", true)]),
    ("POST", "/cgi/total", &[EXPECTS, ("content-length", "3")], &[Part::Data("abc", true)]),
    ("POST", "/cgi/total", &[EXPECTS], &[ABC, SUM]),
    ("POST", "/denied", &[EXPECTS], &[Part::Data("abc", true)]),
    ("POST", "/gone", &[EXPECTS], &[Part::Data("abc", true)]),
    ("PUT", "/small.txt", &[EXPECTS], &[Part::Data("abc", true)]),
    ("POST", "/cgi/total", &[("expect", "tea")], &[Part::Data("abc", true)]),
    ("POST", "/absent", &[EXPECTS], &[Part::Data("abc", true)]),
];

/// Requests whose trailers or length are malformed (RFC 9113, sections 8.1 and 8.1.1).
const MALFORMED: [Upload; 5] = [
    ("POST", "/cgi/total", &[], &[ABC, Part::Trailers(&[(":path", "/")], true)]),
    ("POST", "/cgi/total", &[], &[ABC, Part::Trailers(&[("connection", "close")], true)]),
    ("POST", "/cgi/total", &[], &[ABC, Part::Trailers(&[("x-sum", "1")], false)]),
    ("POST", "/cgi/total", &[("content-length", "5")], &[ABC, SUM]),
    ("POST", "/cgi/total", &[("content-length", "2")], &[ABC, SUM]),
];

/// Sends a request on a connection of its own and returns the transcript of the answer. A client
/// that expects 100 sends the body once it has it.
fn upload(house: &House, (method, path, more, parts): Upload) -> String {
    let mut client = Client::connect(house.address, b"").unwrap();
    let mut fields = get(path);
    if let Some(first) = fields.first_mut() {
        first.1 = method;
    }
    fields.extend_from_slice(more);
    client.send(kind::HEADERS, END_HEADERS, 1, &block(&fields)).unwrap();
    let mut before = String::new();
    if more.contains(&EXPECTS) {
        let frame = loop {
            let Some(frame) = client.read_frame() else { return "closed".to_owned() };
            if frame.stream == 1 {
                break frame;
            }
        };
        if frame.kind == kind::RST_STREAM {
            return format!("reset {}", frame.number(0));
        }
        let status = client.status(&frame);
        before = format!("{status} ");
        if status != 100 {
            return before;
        }
    }
    for part in parts {
        // A server that has answered may have closed the connection.
        let _ = match *part {
            Part::Data(text, ends) => {
                client.send(kind::DATA, u8::from(ends) * END_STREAM, 1, text.as_bytes())
            }
            Part::Trailers(fields, ends) => {
                let flags = END_HEADERS | (u8::from(ends) * END_STREAM);
                client.send(kind::HEADERS, flags, 1, &block(fields))
            }
        };
    }
    before + &client.transcript(1)
}

#[test]
fn trailers_and_expectations_are_treated_as_by_apache2() {
    let log = "LogFormat \"%r|%>s|%{X-Sum}^ti|%{X-Sum}i|%{Host}^ti|%{Cookie}^ti\" trailers\n\
               CustomLog @ROOT@/logs/trailers.log trailers\n";
    for merge in ["", "MergeTrailers on\n"] {
        let mut house = House::lay_out(&format!("{}{log}{merge}", site())).unwrap();
        furnish(&house);
        let mut said = Vec::new();
        for kind in [Kind::Apache, Kind::Evenkeel] {
            house.start_kind(kind).unwrap();
            let mut lines = UPLOADS.map(|one| upload(&house, one)).to_vec();
            // The log is complete once the server has stopped.
            house.stop().unwrap();
            let path = house.path("logs/trailers.log");
            let mut logged: Vec<String> =
                fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
            logged.sort_unstable();
            lines.extend(logged);
            fs::remove_file(path).unwrap();
            said.push(lines);
        }
        let (ours, theirs) = (said.pop().unwrap(), said.pop().unwrap());
        assert_eq!(theirs.join("\n"), ours.join("\n"), "{merge}");
        house.start_kind(Kind::Evenkeel).unwrap();
        assert_eq!(MALFORMED.map(|one| upload(&house, one)), ["reset 1"; 5]);
    }
}

#[test]
fn hosts_whose_tls_differs_are_misdirected_as_by_apache2() {
    let mut hosts = String::new();
    for (name, more) in [
        ("localhost", ""),
        ("same.example", "Header set X-Host same\n"),
        ("clients.example", "SSLVerifyClient require\nSSLCACertificateFile @ROOT@/tls/ca.pem\n"),
        ("ciphers.example", "SSLCipherSuite ECDHE-ECDSA-AES256-GCM-SHA384\n"),
        ("versions.example", "SSLProtocol TLSv1.2\n"),
    ] {
        hosts.push_str(&format!(
            "<VirtualHost *:@PORT@>\nServerName {name}\nSSLEngine on\n\
             SSLCertificateFile @ROOT@/tls/localhost.pem\n\
             SSLCertificateKeyFile @ROOT@/tls/localhost.key\n\
             CustomLog @ROOT@/logs/access.log \"%r|%>s|%v\"\n{more}</VirtualHost>\n"
        ));
    }
    for policy in ["", "SSLVHostSNIPolicy strict\n", "SSLVHostSNIPolicy authonly\n"] {
        let mut house = House::lay_out_tls(&format!(
            "LoadModule http2_module {MODULES}/mod_http2.so\n\
             LoadModule headers_module {MODULES}/mod_headers.so\n\
             Protocols h2 http/1.1\n{policy}{hosts}"
        ))
        .unwrap();
        let (port, mut said) = (house.address.port(), Vec::new());
        for kind in [Kind::Apache, Kind::Evenkeel] {
            house.start_kind(kind).unwrap();
            let mut text = String::new();
            for version in ["--http2", "--http1.1"] {
                for name in ["localhost", "same", "clients", "ciphers", "versions", "unknown"] {
                    let name = if name == "localhost" { name } else { &format!("{name}.example") };
                    let mut curl = Command::new("curl");
                    curl.args(["-k", version, "-H", &format!("Host: {name}"), "--resolve"]);
                    curl.arg(format!("localhost:{port}:127.0.0.1"));
                    curl.arg(format!("https://localhost:{port}/small.txt"));
                    text.push_str(&format!("{version} {name}: {}\n", told(&mut curl)));
                }
            }
            house.stop().unwrap();
            let path = house.path("logs/access.log");
            let logged = fs::read_to_string(&path).unwrap();
            fs::remove_file(path).unwrap();
            said.push((text, lines_of(&logged)));
        }
        let (ours, theirs) = (said.pop().unwrap(), said.pop().unwrap());
        assert!(ours.0.contains("HTTP/2 421"), "{}", ours.0);
        assert_eq!(theirs.0, ours.0, "{policy}");
        assert_eq!(theirs.1, ours.1, "{policy}");
    }
}

/// A site of Evenkeel alone.
fn open(model: &str, more: &str) -> House {
    let lines = format!(
        "LoadModule mpm_{model}_module {MODULES}/mod_mpm_{model}.so\n\
         LoadModule http2_module {MODULES}/mod_http2.so\nProtocols h2c http/1.1\n\
         LogLevel http2:info\n{more}"
    );
    House::open(&lines, &[]).unwrap()
}

/// The code by which a connection ends that sends what `attack` does, which is given the number of
/// each frame; and how many that were.
fn ends_with(
    house: &House,
    mut attack: impl FnMut(&mut Client, u32) -> std::io::Result<()>,
) -> (Option<u32>, u32) {
    let mut client = Client::connect(house.address, b"").unwrap();
    for number in 0..3_000 {
        if attack(&mut client, number).is_err() {
            return (client.goaway(), number);
        }
    }
    (client.goaway(), 3_000)
}

const CALM: u32 = 11;

/// The resident memory of the children, in KiB.
fn memory(house: &House) -> u64 {
    let of = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).map(str::to_owned);
        let digits = line.and_then(|line| line.split_whitespace().next().map(str::to_owned));
        digits.and_then(|digits| digits.parse::<u64>().ok()).unwrap_or(0)
    };
    house.children().into_iter().map(of).sum()
}

fn floods(model: &str) {
    // One child of few threads: others that start meanwhile would count as memory of the floods.
    let house = open(
        model,
        "ServerLimit 1\nStartServers 1\nThreadsPerChild 4\nMaxRequestWorkers 4\n\
         MinSpareThreads 1\nMaxSpareThreads 4\n",
    );
    let mut other = Client::connect(house.address, b"").unwrap();
    let mut next = 1;
    let mut check = |what: &str, ended: (Option<u32>, u32)| {
        assert_eq!(ended.0, Some(CALM), "{what} after {} frames", ended.1);
        other.ask(next, &get("/small.txt")).unwrap();
        assert_eq!(other.response(next), Some((200, 1024)), "beside {what}");
        next += 2;
    };
    let before = memory(&house);
    check(
        "rapid reset",
        ends_with(&house, |client, number| {
            client.ask(number * 2 + 1, &get("/large.bin"))?;
            client.send(kind::RST_STREAM, 0, number * 2 + 1, &8_u32.to_be_bytes())
        }),
    );
    check(
        "MadeYouReset",
        ends_with(&house, |client, number| {
            client.ask(number * 2 + 1, &get("/large.bin"))?;
            client.send(kind::WINDOW_UPDATE, 0, number * 2 + 1, &[0; 4])
        }),
    );
    check(
        "malformed requests",
        ends_with(&house, |client, number| {
            client.ask(number * 2 + 1, &[(":method", "GET"), (":scheme", "http")])
        }),
    );
    check(
        "CONTINUATION",
        ends_with(&house, |client, number| match number {
            0 => client.send(kind::HEADERS, END_STREAM, 1, &block(&get("/"))),
            _ => client.send(kind::CONTINUATION, 0, 1, &block(&[("x", "y")])),
        }),
    );
    check(
        "empty CONTINUATION",
        ends_with(&house, |client, number| match number {
            0 => client.send(kind::HEADERS, END_STREAM, 1, &block(&get("/"))),
            _ => client.send(kind::CONTINUATION, 0, 1, b""),
        }),
    );
    let mut bomb = block(&get("/"));
    bomb.extend_from_slice(b"\x40\x01x\x7f\xa1\x1e");
    bomb.extend_from_slice(&[b'a'; 4_000]);
    bomb.extend_from_slice(&[0xbe; 12_000]);
    check(
        "an HPACK bomb",
        ends_with(&house, |client, number| {
            client.send(kind::HEADERS, END_STREAM | END_HEADERS, number * 2 + 1, &bomb)
        }),
    );
    check("PING", ends_with(&house, |client, _| client.send(kind::PING, 0, 0, &[0; 8])));
    check(
        "SETTINGS",
        ends_with(&house, |client, _| client.send(kind::SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff")),
    );
    check("SETTINGS ACK", ends_with(&house, |client, _| client.send(kind::SETTINGS, ACK, 0, b"")));
    check("unknown frames", ends_with(&house, |client, _| client.send(99, 0, 0, b"")));
    check(
        "PRIORITY_UPDATE",
        ends_with(&house, |client, _| client.send(16, 0, 0, b"\0\0\0\x01u=1")),
    );
    check(
        "WINDOW_UPDATE",
        ends_with(&house, |client, _| client.send(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())),
    );
    check(
        "empty DATA",
        ends_with(&house, |client, number| match number {
            0 => {
                let post = [("content-length", "5")];
                let mut fields = get("/small.txt");
                fields.retain(|(name, _)| *name != ":method");
                let fields = [&[(":method", "POST")], fields.as_slice(), &post].concat();
                client.send(kind::HEADERS, END_HEADERS, 1, &block(&fields))
            }
            _ => client.send(kind::DATA, 0, 1, b""),
        }),
    );
    let grown = memory(&house).saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more memory");
    let log = house.error_log();
    assert!(log.contains("ends with ENHANCE_YOUR_CALM"), "{log}");
}

#[test]
fn floods_end_with_goaway_in_event() {
    floods("event");
}

#[test]
fn floods_end_with_goaway_in_worker() {
    floods("worker");
}

#[test]
fn clients_that_give_no_window_are_let_go_and_hold_no_credit() {
    // One credit: a stream that waits for its client must not hold it.
    let house = open(
        "event",
        "ServerLimit 1\nThreadsPerChild 1\nMaxRequestWorkers 1\nMinSpareThreads 1\n\
         H2StreamTimeout 2\n",
    );
    let mut still = Client::connect(house.address, b"\0\x04\0\0\0\0").unwrap();
    for stream in 0..50 {
        still.ask(stream * 2 + 1, &get("/large.bin")).unwrap();
    }
    let mut other = Client::connect(house.address, b"").unwrap();
    for stream in 0..20 {
        other.ask(stream * 2 + 1, &get("/small.txt")).unwrap();
        assert_eq!(other.response(stream * 2 + 1), Some((200, 1024)));
    }
    let mut resets = 0;
    while resets < 50 {
        let frame = still.read_frame().unwrap();
        resets += u32::from(frame.kind == kind::RST_STREAM);
    }
    still.ask(201, &get("/absent")).unwrap();
    let frame = still.read_frame().unwrap();
    assert_eq!((frame.kind, still.status(&frame)), (kind::HEADERS, 404));
}

/// Asks on one connection after another until it is told to stop: each stream that the server has
/// not disowned must be answered.
fn ask_on(house: &House, stops: &AtomicBool, answered: &AtomicU32) -> u32 {
    let mut lost = 0;
    while !stops.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::connect(house.address, b"") else {
            lost += 1;
            continue;
        };
        let (mut stream, mut last) = (1, u32::MAX);
        'connection: loop {
            // Three at a time.
            let streams = [stream, stream + 2, stream + 4];
            let asked = streams.map(|one| client.ask(one, &get("/small.txt")).is_ok());
            let mut left = asked.iter().filter(|asked| **asked).count() as u32;
            let mut ended = 0_u32;
            while left > 0 {
                let Some(frame) = client.read_frame() else {
                    // What is above the last stream of a GOAWAY was not begun.
                    let disowned = streams.iter().filter(|one| **one > last).count() as u32;
                    lost += 3_u32.saturating_sub(ended).saturating_sub(disowned);
                    break 'connection;
                };
                if frame.kind == kind::DATA && !frame.payload.is_empty() {
                    let increment = (frame.payload.len() as u32).to_be_bytes();
                    let _ = client.send(kind::WINDOW_UPDATE, 0, 0, &increment);
                }
                match frame.kind {
                    kind::GOAWAY => last = frame.number(0),
                    // The client's PING is answered, so that the server knows that it knows.
                    kind::PING if frame.flags & ACK == 0 => {
                        let _ = client.send(kind::PING, ACK, 0, &frame.payload);
                    }
                    kind::HEADERS | kind::DATA if frame.flags & END_STREAM != 0 => {
                        (ended, left) = (ended + 1, left - 1);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    kind::RST_STREAM => left -= 1,
                    _ => {}
                }
                if left > 0 && streams.iter().filter(|one| **one <= last).count() as u32 == ended {
                    break;
                }
            }
            stream += 6;
            if last != u32::MAX || stops.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    lost
}

fn reloads(model: &str) {
    let house = open(model, "");
    let (stops, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let lost: u32 = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..4).map(|_| scope.spawn(|| ask_on(&house, &stops, &answered))).collect();
        for _ in 0..10 {
            let before = answered.load(Ordering::Relaxed);
            wait_for("answers", || answered.load(Ordering::Relaxed) > before + 100).unwrap();
            house.reload().unwrap();
        }
        stops.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(lost, 0, "of {} answered", answered.load(Ordering::Relaxed));
}

#[test]
fn reloads_lose_no_stream_in_event() {
    reloads("event");
}

#[test]
fn reloads_lose_no_stream_in_worker() {
    reloads("worker");
}

/// The version that curl speaks, with the status.
fn version(words: &[&str]) -> String {
    let out = Command::new("curl")
        .args(["-s", "-k", "-m", "60", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"])
        .args(words)
        .output()
        .unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn a_host_speaks_over_tls_what_protocols_names() {
    for (model, protocols, spoken) in [
        ("event", "h2 http/1.1", ["2 200", "1.1 200"]),
        ("event", "http/1.1 h2", ["1.1 200", "1.1 200"]),
        ("event", "http/1.1", ["1.1 200", "1.1 200"]),
        ("worker", "h2 http/1.1", ["2 200", "1.1 200"]),
        ("prefork", "h2 http/1.1", ["1.1 200", "1.1 200"]),
    ] {
        let house = House::open_tls(&format!(
            "LoadModule mpm_{model}_module {MODULES}/mod_mpm_{model}.so\n\
             LoadModule http2_module {MODULES}/mod_http2.so\nProtocols {protocols}\n"
        ))
        .unwrap();
        let url = format!("https://{}/small.txt", house.address);
        let said = [version(&["--http2", &url]), version(&["--http1.1", &url])];
        assert_eq!(said, spoken, "{model}, {protocols}");
        let warns = house.error_log().contains("AH10034");
        assert_eq!(warns, model == "prefork", "{}", house.error_log());
    }
}

#[test]
fn the_order_of_the_client_counts_where_it_shall() {
    let house = House::open_tls(&format!(
        "LoadModule http2_module {MODULES}/mod_http2.so\nProtocols http/1.1 h2\n\
         ProtocolsHonorOrder off\n"
    ))
    .unwrap();
    // curl offers h2 first.
    let url = format!("https://{}/small.txt", house.address);
    assert_eq!(version(&["--http2", &url]), "2 200");
}

#[test]
fn clear_text_begins_with_the_preface_or_an_upgrade_where_that_is_allowed() {
    for (more, direct, upgraded) in [
        ("", "2 200", "2 200"),
        ("H2Direct off\n", "0 000", "2 200"),
        ("H2Upgrade off\n", "2 200", "1.1 200"),
        ("Protocols http/1.1\nH2Direct on\n", "2 200", "2 200"),
    ] {
        let house = open("event", more);
        let url = format!("http://{}/small.txt", house.address);
        let said = version(&["--http2-prior-knowledge", &url]);
        assert!(said == direct || direct == "0 000" && !said.starts_with('2'), "{more}: {said}");
        assert_eq!(version(&["--http2", &url]), upgraded, "{more}");
        // A request with a body is answered in HTTP/1.1.
        assert_eq!(version(&["--http2", "-d", "abc", &url]), "1.1 200", "{more}");
    }
}
