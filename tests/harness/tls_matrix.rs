//! Every combination of version, cipher suite, key, name and client certificate, and more: what
//! `openssl s_client` gets from Evenkeel and from Debian's mod_ssl. The table in `tests/tls/matrix`
//! says what that is.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, Successor, children_of, halt, send, wait_for};
use evenkeel_tests::server::{Kind, free_port};
use evenkeel_tests::tls::make_all_certificates;
use rustix::process::Signal;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A line of the table.
struct Rule {
    line: usize,
    words: Vec<String>,
    own: String,
    oracle: String,
    is_used: AtomicBool,
}

impl Rule {
    fn fits(&self, case: &[String]) -> bool {
        let fits = |(word, value): (&String, &String)| {
            word.split('|').any(|one| match one.strip_suffix('*') {
                Some(begin) => value.starts_with(begin),
                None => one == value,
            })
        };
        self.words.len() == case.len() && self.words.iter().zip(case).all(fits)
    }
}

/// The rules of a section.
struct Section(&'static str, Vec<Rule>);

impl Section {
    fn read(name: &'static str) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tls/matrix");
        let text = fs::read_to_string(path).unwrap();
        let mut is_here = false;
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if let Some(head) = line.strip_prefix("section ") {
                is_here = head.split(':').next() == Some(name);
                continue;
            }
            if !is_here || line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (words, outcomes) = line.split_once(" -> ").unwrap();
            let (own, oracle) = outcomes.split_once(" | ").unwrap_or((outcomes, outcomes));
            rules.push(Rule {
                line: index + 1,
                words: words.split_whitespace().map(str::to_owned).collect(),
                own: own.to_owned(),
                oracle: oracle.to_owned(),
                is_used: AtomicBool::new(false),
            });
        }
        assert!(!rules.is_empty(), "no section {name}");
        Self(name, rules)
    }

    /// Tries all cases, several at a time, and returns what is unlike the table.
    fn check(
        &self,
        kind: Kind,
        cases: &[Vec<String>],
        outcome: &(dyn Fn(&[String]) -> String + Sync),
    ) -> Vec<String> {
        let (next, unlike) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                unlike.lock().unwrap().extend(self.judge(kind, case, &outcome(case)));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(work);
            }
        });
        unlike.into_inner().unwrap()
    }

    fn judge(&self, kind: Kind, case: &[String], found: &str) -> Option<String> {
        let words = format!("{}: {}", self.0, case.join(" "));
        let Some(rule) = self.1.iter().find(|rule| rule.fits(case)) else {
            return Some(format!("{words}: no rule"));
        };
        rule.is_used.store(true, Ordering::Relaxed);
        let wanted = if kind == Kind::Apache { &rule.oracle } else { &rule.own };
        let line = rule.line;
        (wanted != found).then(|| format!("{kind:?}: {words}: {found}, not {wanted} (line {line})"))
    }

    fn unused(&self) -> Vec<String> {
        let unused = self.1.iter().filter(|rule| !rule.is_used.load(Ordering::Relaxed));
        unused.map(|rule| format!("{}: line {} fits no case", self.0, rule.line)).collect()
    }
}

/// All combinations of the columns' values.
fn product(columns: &[&[&str]]) -> Vec<Vec<String>> {
    columns.iter().fold(vec![Vec::new()], |rows, column| {
        let longer = |row: &Vec<String>| {
            let row = row.clone();
            column.iter().map(move |value| [row.clone(), vec![(*value).to_owned()]].concat())
        };
        rows.iter().flat_map(longer).collect()
    })
}

const KEYS: &[&str] = &["rsa", "ecdsa", "both"];
const NAMES: &[&str] = &["none", "known", "unknown"];
const CLIENTS: &[&str] = &["none", "good", "expired", "revoked", "stranger"];
const ASKS: &[&str] = &["none", "optional", "require", "optional_no_ca", "no-lists"];
const VERSIONS: &[&str] = &["1.0", "1.1", "1.2", "1.3"];
const NEW: &[&str] = &["1.2", "1.3"];
const PROTOCOLS: &[&str] = &["all-TLSv1.3", "TLSv1.3"];
const OFFERS: &[&str] = &["none", "http/1.1", "h2,http/1.1", "http/1.1,h2", "h2", "foo"];
const WAYS: &[&str] = &["ticket", "id"];

/// With suites that are not spoken, the handshake ends before the certificate of the client.
fn handshakes() -> Vec<Vec<String>> {
    let cases = |versions: &[&str], suites: &[&str], clients: &[&str]| {
        product(&[versions, suites, KEYS, NAMES, clients])
    };
    let of_12 = [
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ];
    let not_spoken = ["ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "AES128-GCM-SHA256"];
    let of_13 =
        ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
    [
        cases(&["1.0", "1.1"], &["ECDHE-RSA-AES128-SHA", "AES128-SHA"], &["none", "good"]),
        cases(&["1.2"], &of_12, CLIENTS),
        cases(&["1.2"], &not_spoken, &["none", "good"]),
        cases(&["1.3"], &of_13, CLIENTS),
    ]
    .concat()
}

/// The ports of the server, by the words of what is special there.
struct Ports(Vec<(String, u16)>);

impl Ports {
    fn of(&self, words: &str) -> u16 {
        self.0.iter().find(|(known, _)| known == words).unwrap().1
    }
}

/// The configuration: two hosts on each port.
fn configuration() -> (Ports, String) {
    let mut ports = Vec::new();
    let mut text = String::from(
        "LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so\n\
         LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so\n\
         LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so\n\
         ThreadsPerChild 4\nServerLimit 2\nStartServers 2\nMaxRequestWorkers 8\n\
         MinSpareThreads 8\nMaxSpareThreads 8\n\
         SSLProtocol all -SSLv3 -TLSv1 -TLSv1.1\n\
         SSLSessionCache shmcb:@ROOT@/logs/sessions(512000)\n\
         SSLCACertificateFile @ROOT@/tls/ca.pem\n\
         SSLCARevocationCheck chain\nSSLCARevocationFile @ROOT@/tls/ca.crl\n\
         Header always set X-Verify expr=%{SSL_CLIENT_VERIFY}\n",
    );
    let mut add = |words: String, keys: &str, lines: &str| {
        let port = free_port().unwrap();
        text += &format!("Listen 127.0.0.1:{port}\n");
        for name in ["localhost", "other.example"] {
            text += &format!("<VirtualHost *:{port}>\nServerName {name}\nSSLEngine on\n{lines}\n");
            for file in [format!("{name}-rsa"), name.to_owned()] {
                let is_rsa = file.ends_with("-rsa");
                if (is_rsa && keys != "ecdsa") || (!is_rsa && keys != "rsa") {
                    text += &format!("SSLCertificateFile @ROOT@/tls/{file}.pem\n");
                    text += &format!("SSLCertificateKeyFile @ROOT@/tls/{file}.key\n");
                }
            }
            text += "</VirtualHost>\n";
        }
        ports.push((words, port));
    };
    for keys in KEYS {
        for (way, tickets) in [("ticket", "on"), ("id", "off")] {
            let lines = format!("SSLVerifyClient optional\nSSLSessionTickets {tickets}");
            add(format!("{way} {keys}"), keys, &lines);
        }
    }
    for asks in ASKS {
        let lines = match *asks {
            "no-lists" => "SSLVerifyClient optional_no_ca\nSSLCARevocationCheck none".to_owned(),
            asks => format!("SSLVerifyClient {asks}"),
        };
        add(format!("asks {asks}"), "ecdsa", &lines);
    }
    for protocol in PROTOCOLS {
        let words = protocol.replace('-', " -");
        add(format!("protocol {protocol}"), "ecdsa", &format!("SSLProtocol {words}"));
    }
    add("strict".to_owned(), "ecdsa", "SSLStrictSNIVHostCheck on");
    (Ports(ports), text)
}

/// A client: what it asks for and with what.
#[derive(Clone, Copy)]
struct Asking<'a> {
    port: u16,
    version: &'a str,
    suite: Option<&'a str>,
    name: &'a str,
    client: &'a str,
    offer: &'a str,
}

/// What it got.
#[derive(Debug, Default)]
struct Got {
    text: String,
    alert: Option<String>,
    status: String,
}

impl Got {
    /// What follows `begin` in its line.
    fn word(&self, begin: &str) -> &str {
        let mut found = self.text.lines().filter_map(|line| line.split_once(begin));
        found.next().map_or("", |(_, rest)| rest.trim())
    }

    fn failed(&self) -> Option<String> {
        self.alert.as_ref().map(|number| format!("alert {number}"))
    }

    fn or_odd(&self, is_right: bool, right: &str) -> String {
        match self.failed() {
            Some(alert) => alert,
            None if is_right => right.to_owned(),
            None => format!("odd: {}", self.text),
        }
    }
}

impl Asking<'_> {
    fn ask(&self, house: &House, session: Option<&PathBuf>) -> Got {
        let (host, name) = match self.name {
            "known" => ("other.example", Some("other.example")),
            "unknown" => ("nobody.example", Some("nobody.example")),
            _ => ("localhost", None),
        };
        let mut command = Command::new("openssl");
        command.env("OPENSSL_CONF", "/dev/null").args(["s_client", "-ign_eof"]);
        // Reading all authorities of the system would take most of the time.
        command.args(["-no-CAfile", "-no-CApath", "-no-CAstore", "-connect"]);
        command.arg(format!("127.0.0.1:{}", self.port));
        command.arg(match self.version {
            "1.0" => "-tls1",
            "1.1" => "-tls1_1",
            "1.2" => "-tls1_2",
            _ => "-tls1_3",
        });
        match self.suite {
            Some(suite) if self.version == "1.3" => command.args(["-ciphersuites", suite]),
            Some(suite) => command.arg("-cipher").arg(format!("{suite}:@SECLEVEL=0")),
            None => command.arg("-cipher").arg("ALL:@SECLEVEL=0"),
        };
        match name {
            Some(name) => command.args(["-servername", name]),
            None => command.arg("-noservername"),
        };
        let who = if self.client == "good" { "user" } else { self.client };
        if who != "none" {
            command.arg("-cert").arg(house.path(&format!("tls/{who}.pem")));
            command.arg("-key").arg(house.path(&format!("tls/{who}.key")));
        }
        if self.offer != "none" {
            command.args(["-alpn", self.offer]);
        }
        if let Some(file) = session {
            command.arg("-sess_out").arg(file);
            if file.exists() {
                command.arg("-sess_in").arg(file);
            }
        }
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = pipes.spawn().unwrap();
        let request =
            format!("GET /small.txt HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        // A client whose handshake has failed does not read.
        let _ = process.stdin.as_mut().unwrap().write_all(request.as_bytes());
        let output = process.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let got = Got { text, ..Got::default() };
        let alert = got.word("SSL alert number ").to_owned();
        let status = got.word("HTTP/1.1 ").split(' ').next().unwrap_or("").to_owned();
        Got { alert: Some(alert).filter(|it| !it.is_empty()), status, ..got }
    }
}

/// A house with all hosts.
fn house() -> (Ports, House) {
    let (ports, text) = configuration();
    let house = House::lay_out(&text).unwrap();
    make_all_certificates(&house.path("tls")).unwrap();
    (ports, house)
}

/// The sections that one running server answers for.
fn check_all(kind: Kind, house: &House, ports: &Ports, sections: &[Section; 5]) -> Vec<String> {
    let plain = Asking {
        port: 0,
        version: "1.3",
        suite: None,
        name: "none",
        client: "none",
        offer: "none",
    };
    let [of_handshakes, of_clients, of_protocols, of_strict, of_alpn] = sections;
    let handshake = |case: &[String]| {
        let [version, suite, keys, name, client] = case else { return String::new() };
        let port = ports.of(&format!("ticket {keys}"));
        let got =
            Asking { port, version, suite: Some(suite), name, client, ..plain }.ask(house, None);
        let is_rsa = match keys.as_str() {
            "both" => {
                suite.contains("RSA-") && !suite.contains("ECDSA") || suite.starts_with("AES")
            }
            keys => keys == "rsa",
        };
        let host = if name == "known" { "other.example" } else { "localhost" };
        let verify = if client == "none" { "NONE" } else { "SUCCESS" };
        let is_right = got.status == "200"
            && got.word("New, ").ends_with(&format!("Cipher is {suite}"))
            && (version != "1.3" || got.word("New, ").starts_with("TLSv1.3"))
            && got.word("subject=").ends_with(&format!("CN = {host}"))
            && got.word("Server public key is ") == if is_rsa { "2048 bit" } else { "256 bit" }
            && got.word("X-Verify: ") == verify;
        got.or_odd(is_right, "ok")
    };
    let client = |case: &[String]| {
        let [asks, version, client] = case else { return String::new() };
        let port = ports.of(&format!("asks {asks}"));
        let got = Asking { port, version, client, ..plain }.ask(house, None);
        got.or_odd(got.status == "200", got.word("X-Verify: "))
    };
    let protocol = |case: &[String]| {
        let [protocol, version] = case else { return String::new() };
        let port = ports.of(&format!("protocol {protocol}"));
        let got = Asking { port, version, ..plain }.ask(house, None);
        got.or_odd(got.status == "200", "ok")
    };
    let strict = |case: &[String]| {
        let [version, name] = case else { return String::new() };
        let got = Asking { port: ports.of("strict"), version, name, ..plain }.ask(house, None);
        got.or_odd(!got.status.is_empty(), &got.status)
    };
    let alpn = |case: &[String]| {
        let [version, offer] = case else { return String::new() };
        let port = ports.of("asks none");
        let got = Asking { port, version, offer, ..plain }.ask(house, None);
        match got.word("ALPN protocol: ") {
            _ if got.text.contains("parse_stoc_alpn:bad extension") => "refused".to_owned(),
            "" => got.or_odd(got.status == "200", "none"),
            agreed => got.or_odd(got.status == "200", agreed),
        }
    };
    [
        of_handshakes.check(kind, &handshakes(), &handshake),
        of_clients.check(kind, &product(&[ASKS, NEW, CLIENTS]), &client),
        of_protocols.check(kind, &product(&[PROTOCOLS, VERSIONS]), &protocol),
        of_strict.check(kind, &product(&[NEW, NAMES]), &strict),
        of_alpn.check(kind, &product(&[NEW, OFFERS]), &alpn),
    ]
    .concat()
}

fn none(unlike: &[String]) {
    assert!(unlike.is_empty(), "{} cases:\n{}", unlike.len(), unlike.join("\n"));
}

#[test]
fn handshakes_are_as_the_table_says_beside_mod_ssl() {
    let (ports, mut house) = house();
    let sections = ["handshakes", "clients", "protocols", "strict", "alpn"].map(Section::read);
    let mut unlike = Vec::new();
    for kind in [Kind::Apache, Kind::Evenkeel] {
        house.start_kind(kind).unwrap();
        unlike.extend(check_all(kind, &house, &ports, &sections));
        house.stop().unwrap();
    }
    unlike.extend(sections.iter().flat_map(Section::unused));
    none(&unlike);
}

#[test]
fn sessions_are_resumed_as_the_table_says() {
    let (ports, mut house) = house();
    house.start_kind(Kind::Evenkeel).unwrap();
    wait_for("both children", || house.children().len() == 2).unwrap();
    let section = Section::read("resumption");
    let cases = product(&[NEW, WAYS, KEYS, &["none", "good"]]);
    let visit = |case: &[String]| {
        let [version, way, keys, client, ..] = case else { return String::new() };
        let port = ports.of(&format!("{way} {keys}"));
        let asking = Asking { port, version, suite: None, name: "none", client, offer: "none" };
        let file = house.path(&format!("{}.session", case[..4].join("-")));
        let got = asking.ask(&house, Some(&file));
        let is_resumed = got.text.lines().any(|line| line.starts_with("Reused, "));
        got.or_odd(got.status == "200", if is_resumed { "resumed" } else { "new" })
    };
    let mut unlike: Vec<String> =
        cases.iter().map(|case| visit(case)).filter(|found| found != "new").collect();
    let mut again = |when: &str| {
        let cases: Vec<_> =
            cases.iter().map(|case| [case.clone(), vec![when.to_owned()]].concat()).collect();
        unlike.extend(section.check(Kind::Evenkeel, &cases, &visit));
    };
    again("at-once");
    for child in house.children() {
        halt(&[child]).unwrap();
        again("in-one-child");
        send(child, Signal::CONT);
    }
    house.reload().unwrap();
    again("after-a-reload");
    let _successor = Successor(&house);
    house.change_program().unwrap();
    wait_for("both children", || children_of(house.named_parent()).len() == 2).unwrap();
    again("after-a-change-of-the-program");
    unlike.extend(section.unused());
    none(&unlike);
}
