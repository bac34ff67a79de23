//! What the children of a server share about the members of its balancers, and who checks those.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, read, send, wait_for};
use evenkeel_tests::origin::Origin;
use evenkeel_tests::server::{Kind, free_port};
use evenkeel_tests::tls::{make_certificates, server_config};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The lines that load modules.
fn modules(names: &[&str]) -> String {
    let line = |name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    names.iter().map(line).collect()
}

/// The modules of a balancer.
const BALANCER: [&str; 5] =
    ["proxy", "proxy_http", "proxy_balancer", "slotmem_shm", "lbmethod_byrequests"];

/// Sends a request.
fn ask(house: &House, path: &str, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    stream.write_all(format!("{head}{fields}\r\n").as_bytes()).unwrap();
    stream
}

#[test]
fn all_children_avoid_a_failed_member_and_so_does_the_next_generation() {
    let origin = Origin::start(None).unwrap();
    let dead = free_port().unwrap();
    let rules = format!(
        "{}<Proxy balancer://x>\nBalancerMember http://127.0.0.1:{dead} retry=600\n\
         BalancerMember http://127.0.0.1:{}\n</Proxy>\nProxyPass / balancer://x/\n\
         StartServers 8\nMinSpareServers 8\nMaxSpareServers 8\nMaxRequestWorkers 40\n",
        modules(&[&["mpm_prefork"], &BALANCER[..]].concat()),
        origin.port
    );
    let house = House::open(&rules, &[]).unwrap();
    let attempts = || house.error_log().matches("AH00957: ").count();
    assert_eq!(read(ask(&house, "/", "")).0, 200);
    assert_eq!(read(ask(&house, "/", "")).0, 200);
    assert_eq!(attempts(), 1, "{}", house.error_log());
    // Eight children have a request at once.
    let rush = || {
        let before = origin.requests();
        let held: Vec<_> = (0..8).map(|_| ask(&house, "/", "X-Do: wait\r\n")).collect();
        wait_for("the requests", || origin.requests() >= before + 8).unwrap();
        origin.release(true);
        held.into_iter().for_each(|stream| assert_eq!(read(stream).0, 200));
        origin.release(false);
    };
    rush();
    assert_eq!(attempts(), 1, "{}", house.error_log());
    house.reload().unwrap();
    rush();
    assert_eq!(attempts(), 1, "{}", house.error_log());
}

/// A server that answers checks as the test says.
struct Patient {
    port: u16,
    books: Arc<Books>,
}

#[derive(Default)]
struct Books {
    is_ill: AtomicBool,
    /// The paths that were asked for.
    paths: Mutex<Vec<String>>,
}

impl Patient {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let patient = Self { port, books: Arc::default() };
        let books = Arc::clone(&patient.books);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let books = Arc::clone(&books);
                std::thread::spawn(move || answer(stream, &books));
            }
        });
        patient
    }

    fn set_ill(&self, is_ill: bool) {
        self.books.is_ill.store(is_ill, Ordering::SeqCst);
    }

    /// How often this path was asked for.
    fn asked(&self, path: &str) -> usize {
        self.books.paths.lock().unwrap().iter().filter(|it| *it == path).count()
    }
}

/// Answers one request. A server that is ill says so in the body alone.
fn answer(mut stream: TcpStream, books: &Books) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    books.paths.lock().unwrap().push(path);
    let state = if books.is_ill.load(Ordering::SeqCst) { "DOWN" } else { "UP" };
    let length = state.len();
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
    let _sent = stream.write_all(format!("{head}: {length}\r\n\r\n{state}").as_bytes());
}

/// The processes below the parent that check members.
fn checkers(house: &House) -> Vec<u32> {
    let is_checker = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == "health checks"
    };
    house.children().into_iter().filter(is_checker).collect()
}

/// Two members, of which the first is checked under this path.
fn checked(patient: &Patient, origin: &Origin, path: &str) -> String {
    format!(
        "ProxyHCExpr up {{hc('body') =~ /^UP$/ && %{{REQUEST_STATUS}} == 200}}\n\
         ProxyHCTemplate often hcmethod=GET hcinterval=100ms hcexpr=up hcfails=2 hcpasses=2\n\
         <Proxy balancer://x>\n\
         BalancerMember http://127.0.0.1:{} hctemplate=often hcuri={path}\n\
         BalancerMember http://127.0.0.1:{}\n</Proxy>\nProxyPass / balancer://x/\n",
        patient.port, origin.port
    )
}

fn checked_by(kind: Kind, patient: &Patient, origin: &Origin) -> House {
    let rules = format!(
        "{}LogLevel info\nStartServers 4\nMinSpareServers 4\nMaxSpareServers 4\n\
         MaxRequestWorkers 40\n",
        modules(&[&["mpm_prefork"], &BALANCER[..], &["proxy_hcheck"]].concat()),
    );
    let mut house = House::lay_out(&rules).unwrap();
    house.configure(&checked(patient, origin, "/health")).unwrap();
    house.start_kind(kind).unwrap();
    house
}

/// How many of so many requests at once reach the first member.
fn shares(house: &House, patient: &Patient, requests: usize) -> usize {
    let before = patient.asked("/page");
    let sent: Vec<_> = (0..requests).map(|_| ask(house, "/page", "")).collect();
    sent.into_iter().for_each(|stream| assert_eq!(read(stream).0, 200));
    patient.asked("/page") - before
}

fn is_left_out_and_taken_back(house: &House, patient: &Patient) {
    let logged = |what: &str| house.error_log().matches(what).count();
    let (out, back) = ("AH03303: ", "AH03302: ");
    let (outs, backs) = (logged(out), logged(back));
    patient.set_ill(true);
    wait_for("the member to be left out", || logged(out) > outs).unwrap();
    assert_eq!(shares(house, patient, 8), 0, "{}", house.error_log());
    patient.set_ill(false);
    wait_for("the member to be used again", || logged(back) > backs).unwrap();
    assert!(shares(house, patient, 8) > 0, "{}", house.error_log());
}

#[test]
fn all_children_leave_out_a_member_whose_checks_fail_as_those_of_apache_do() {
    for kind in [Kind::Apache, Kind::Evenkeel] {
        let (patient, origin) = (Patient::start(), Origin::start(None).unwrap());
        let mut house = checked_by(kind, &patient, &origin);
        is_left_out_and_taken_back(&house, &patient);
        house.stop().unwrap();
    }
}

#[test]
fn checks_go_on_without_the_process_that_made_them_and_by_the_next_configuration() {
    let (patient, origin) = (Patient::start(), Origin::start(None).unwrap());
    let mut house = checked_by(Kind::Evenkeel, &patient, &origin);
    wait_for("a check", || patient.asked("/health") > 0).unwrap();
    let [first] = checkers(&house)[..] else { panic!("{:?}", checkers(&house)) };
    send(first, Signal::KILL);
    wait_for("another process", || checkers(&house).iter().any(|pid| *pid != first)).unwrap();
    is_left_out_and_taken_back(&house, &patient);

    patient.set_ill(true);
    wait_for("the member to be left out", || house.error_log().matches("AH03303").count() > 1)
        .unwrap();
    house.configure(&checked(&patient, &origin, "/other")).unwrap();
    house.reload().unwrap();
    wait_for("a check of the new kind", || patient.asked("/other") > 0).unwrap();
    wait_for("one process", || checkers(&house).len() == 1).unwrap();
    let before = patient.asked("/health");
    wait_for("more checks", || patient.asked("/other") > 5).unwrap();
    assert_eq!(patient.asked("/health"), before);
    is_left_out_and_taken_back_from_ill(&house, &patient);

    let [last] = checkers(&house)[..] else { panic!("{:?}", checkers(&house)) };
    house.stop().unwrap();
    wait_for("its end", || !std::path::Path::new(&format!("/proc/{last}")).exists()).unwrap();
}

/// The same where the member is ill already.
fn is_left_out_and_taken_back_from_ill(house: &House, patient: &Patient) {
    wait_for("the member to be left out", || shares(house, patient, 4) == 0).unwrap();
    patient.set_ill(false);
    wait_for("the member to be used again", || shares(house, patient, 4) > 0).unwrap();
}

#[test]
fn members_are_checked_over_sockets_and_tls_and_a_silent_one_delays_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let _origin = Origin::start(Some(&socket)).unwrap();
    // The process that checks runs as another user.
    for path in [folder.path(), &socket] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    // The kernel accepts connections, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|it| (it.port(), silent)).unwrap();
    let dead = free_port().unwrap();
    let house = House::lay_out(&modules(&[&BALANCER[..], &["proxy_hcheck", "ssl"]].concat()));
    let mut house = house.unwrap();
    make_certificates(&house.path("tls")).unwrap();
    let tls = server_config(&house.path("tls"), "localhost", false).unwrap();
    let secure = Origin::start_tls(tls).unwrap();
    let rules = format!(
        "LogLevel proxy_hcheck:debug\n<Proxy balancer://plain>\n\
         BalancerMember unix:{}|http://app hcmethod=OPTIONS11 hcinterval=100ms\n\
         BalancerMember http://127.0.0.1:{} hcmethod=HEAD hcinterval=100ms timeout=1\n\
         BalancerMember http://127.0.0.1:{dead} hcmethod=TCP hcinterval=100ms\n\
         BalancerMember https://127.0.0.1:{}/off hcmethod=GET hcinterval=100ms\n</Proxy>\n\
         <Proxy balancer://tls>\nSSLProxyEngine On\nSSLProxyCheckPeerName Off\n\
         BalancerMember https://127.0.0.1:{} hcmethod=GET11 hcinterval=100ms\n</Proxy>\n\
         ProxyPass /a balancer://plain/\nProxyPass /b balancer://tls/\n",
        socket.display(),
        silent.0,
        secure.port,
        secure.port,
    );
    house.configure(&rules).unwrap();
    house.start(&[]).unwrap();
    for said in [
        "Health check OPTIONS11 Status (0) for http://app.".to_owned(),
        format!("Health check HEAD Status (1) for http://127.0.0.1:{}.", silent.0),
        format!("Health check TCP Status (1) for http://127.0.0.1:{dead}."),
        format!("Health check GET Status (1) for https://127.0.0.1:{}/off.", secure.port),
        format!("Health check GET11 Status (0) for https://127.0.0.1:{}.", secure.port),
    ] {
        let is_said = || house.error_log().contains(&said);
        wait_for(&said, is_said).unwrap_or_else(|late| panic!("{late}: {}", house.error_log()));
    }
    let text = format!("AH00957: HCTCP: attempt to connect to 127.0.0.1:{dead} ");
    assert!(house.error_log().contains(&text), "{}", house.error_log());
    assert!(house.error_log().contains("AH10272: "), "{}", house.error_log());
    house.stop().unwrap();
}
