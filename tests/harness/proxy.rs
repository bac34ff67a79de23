//! Plays the scripts of tests/proxy to Debian's apache2 and to Evenkeel, with the same HTTP server
//! behind both (src/origin.rs). The scripts are in the language of the wire scripts, with
//! `@ORIGIN@` for the port of that server, `@SOCKET@` for its Unix socket, and `@DEAD@` for a port
//! where nothing listens. `@SCGI@` and `@UWSGI@` are ports of applications (src/gateway.rs).
//! `@TLS@`, `@OTHER@`, `@EXPIRED@` and `@ASKS@` are ports of the same server over TLS, with the
//! certificates of `localhost`, of `other.example` and one that has expired; the last one asks for
//! a certificate. `@CERTS@` is the folder of the certificates. The other tests are about
//! connections: what happens when they end, when a client leaves and when the server is reloaded.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::gateway::{self, Protocol};
use evenkeel_tests::house::{House, read, wait_for};
use evenkeel_tests::origin::Origin;
use evenkeel_tests::play::{Differences, scripts_in};
use evenkeel_tests::script::parse;
use evenkeel_tests::server::free_port;
use evenkeel_tests::tls::{make_certificates, server_config};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn an_http_server_answers_as_behind_apache2() {
    let folder = tempfile::Builder::new().prefix("proxy-").tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("origin.sock");
    let origin = Origin::start(Some(&socket)).unwrap();
    // The children of the servers run as another user.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let dead = free_port().unwrap();
    let certificates = folder.path().join("certs");
    make_certificates(&certificates).unwrap();
    // A client has its certificate and its key in one file.
    let both = ["user.pem", "user.key"].map(|name| fs::read(certificates.join(name)).unwrap());
    fs::write(certificates.join("user-both.pem"), both.concat()).unwrap();
    let secure = |name, asks| {
        Origin::start_tls(server_config(&certificates, name, asks).unwrap()).unwrap().port
    };
    let secure = [
        ("@TLS@", secure("localhost", false)),
        ("@OTHER@", secure("other.example", false)),
        ("@EXPIRED@", secure("expired", false)),
        ("@ASKS@", secure("localhost", true)),
    ];
    let applications = [("@SCGI@", Protocol::Scgi), ("@UWSGI@", Protocol::Uwsgi)]
        .map(|(name, protocol)| (name, gateway::start(protocol).unwrap()));
    let mut differences = Differences::default();
    let only = std::env::var("PROXY_SCRIPT").ok();
    for (name, text) in scripts_in("proxy").unwrap() {
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let text = text
            .replace("@ORIGIN@", &origin.port.to_string())
            .replace("@DEAD@", &dead.to_string())
            .replace("@CERTS@", certificates.to_str().unwrap())
            .replace("@SOCKET@", socket.to_str().unwrap());
        let text = secure
            .iter()
            .chain(&applications)
            .fold(text, |text, (name, port)| text.replace(name, &port.to_string()));
        let script = parse(&name, &text).unwrap();
        differences.play(&script).unwrap();
    }
    let report = differences.report(if only.is_none() { 40 } else { 0 });
    assert!(report.is_empty(), "{report}");
}

/// The configuration of a house with this process model and the server behind it.
fn configuration(model: &str, origin: &Origin) -> String {
    let modules: String = [&format!("mpm_{model}")[..], "proxy", "proxy_http"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let port = origin.port;
    format!("{modules}ProxyPass / http://127.0.0.1:{port}/\nMaxRequestWorkers 40\n")
}

/// Sends a request with fields for the server behind the proxy.
fn ask(house: &House, method: &str, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    let head = format!("{method} /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    stream.write_all(format!("{head}{fields}\r\n").as_bytes()).unwrap();
    stream
}

#[test]
fn a_reload_loses_no_request_that_is_in_progress() {
    for model in ["event", "worker", "prefork"] {
        let origin = Origin::start(None).unwrap();
        let house = House::open(&configuration(model, &origin), &[]).unwrap();
        let said = "X-Say: HTTP/1.1 200 OK~Content-Length: 200000~~{20000*0123456789}\r\n";
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(ask(&house, "GET", &format!("X-Do: wait\r\n{said}")));
            streams.push(ask(&house, "GET", &format!("X-Do: half\r\n{said}")));
            let post = format!("Content-Length: 5\r\nX-Do: wait\r\n{said}");
            streams.push(ask(&house, "POST", &post));
        }
        wait_for("the heads of the requests", || origin.requests() >= 8).unwrap();
        house.reload().unwrap();
        // The new generation serves while the old one still does.
        assert_eq!(read(ask(&house, "GET", "")).0, 200, "{model}");
        for (number, stream) in streams.iter_mut().enumerate() {
            if number % 3 == 2 {
                stream.write_all(b"hello").unwrap();
            }
        }
        wait_for("the other heads", || origin.requests() >= 13).unwrap();
        origin.release(true);
        for stream in streams {
            let (status, body) = read(stream);
            assert_eq!((status, body.len()), (200, 200_000), "{model}");
        }
    }
}

#[test]
fn a_connection_is_used_again_and_what_it_loses_is_sent_again_if_it_may_be() {
    let origin = Origin::start(None).unwrap();
    let house = House::open(&configuration("prefork", &origin), &[]).unwrap();
    // One connection of a client is served by one process.
    let mut client = TcpStream::connect(house.address).unwrap();
    let mut exchange = |method: &str, fields: &str| {
        let head = format!("{method} /x HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let mut text = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let count = client.read(&mut buffer).unwrap();
            text.extend_from_slice(&buffer[..count]);
            let whole = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
            let length = head.split_once("Content-Length: ").unwrap().1;
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            if body.len() >= length || method == "HEAD" {
                return head.get(9..12).unwrap().to_owned();
            }
        }
    };
    for method in ["GET", "POST", "HEAD", "GET", "DELETE"] {
        assert_eq!(exchange(method, ""), "200");
    }
    assert_eq!((origin.connections(), origin.requests()), (1, 5));
    // The server closes the connection when it has read the request: the request is sent again.
    assert_eq!(exchange("GET", "X-Do: tired\r\n"), "200");
    assert_eq!((origin.connections(), origin.requests()), (2, 7));
    assert_eq!(exchange("PUT", "Content-Length: 0\r\nX-Do: tired\r\n"), "200");
    assert_eq!((origin.connections(), origin.requests()), (3, 9));
    // A POST may have been acted upon.
    assert_eq!(exchange("POST", "X-Do: tired\r\n"), "502");
    assert_eq!((origin.connections(), origin.requests()), (3, 10));
    // A new connection that ends without a response is a failure for every method.
    assert_eq!(exchange("GET", "X-Do: deaf\r\n"), "502");
    assert_eq!((origin.connections(), origin.requests()), (4, 11));
}

#[test]
fn a_client_that_leaves_ends_its_request_at_the_server() {
    for model in ["event", "worker", "prefork"] {
        let origin = Origin::start(None).unwrap();
        let house = House::open(&configuration(model, &origin), &[]).unwrap();
        let silent = ask(&house, "GET", "X-Do: hang\r\nX-Say: HTTP/1.1 200\r\n");
        let begun = ask(
            &house,
            "GET",
            "X-Do: hang\r\nX-Say: HTTP/1.1 200 OK~Content-Length: 10~~hello\r\n",
        );
        wait_for("the requests", || origin.requests() == 2).unwrap();
        drop((silent, begun));
        wait_for("their ends", || origin.abandoned() == 2).unwrap();
    }
}

#[test]
fn a_balancer_divides_requests_and_loses_none_when_a_member_ends() {
    for model in ["event", "prefork"] {
        let (first, second) = (Origin::start(None).unwrap(), Origin::start(None).unwrap());
        let dead = free_port().unwrap();
        let modules: String =
            ["proxy_balancer", "slotmem_shm", "lbmethod_byrequests", "lbmethod_bybusyness"]
                .map(|name| {
                    format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
                })
                .concat();
        let balancer = format!(
            "{modules}<Proxy balancer://x>\n\
             BalancerMember http://127.0.0.1:{} loadfactor=3\n\
             BalancerMember http://127.0.0.1:{}\n\
             BalancerMember http://127.0.0.1:{dead}\n\
             </Proxy>\nProxyPass / balancer://x/\nStartServers 1\nServerLimit 1\n",
            first.port, second.port
        );
        let rules = configuration(model, &first).replace("ProxyPass / ", "ProxyPass /first ");
        let rules = rules.replace("MaxRequestWorkers 40\n", "MaxRequestWorkers 1\n");
        let rules = match model {
            "event" => format!("{rules}ThreadsPerChild 1\n{balancer}"),
            _ => format!("{rules}{balancer}"),
        };
        let house = House::open(&rules, &[]).unwrap();
        for number in 0..40 {
            let post = "Content-Length: 5\r\n";
            let (method, fields) = if number % 2 == 0 { ("GET", "") } else { ("POST", post) };
            let mut stream = ask(&house, method, fields);
            if method == "POST" {
                stream.write_all(b"hello").unwrap();
            }
            let (status, body) = read(stream);
            assert_eq!(status, 200, "{model}");
            assert!(method == "GET" || body.ends_with("\n5 11831194018420276491\n"), "{body}");
        }
        let counts = (first.requests(), second.requests());
        assert_eq!(counts.0 + counts.1, 40, "{model}");
        // The member that cannot be reached has taken turns until it was known.
        assert!((28..=32).contains(&counts.0), "{model} {counts:?}");
    }
}

#[test]
fn a_member_that_hangs_up_passes_what_may_be_repeated_on_to_another() {
    let origin = Origin::start(None).unwrap();
    let modules: String = ["proxy_balancer", "slotmem_shm", "lbmethod_byrequests"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    // Both members are the same server, which closes each connection without a response.
    let balancer = format!(
        "{modules}<Proxy balancer://x>\nBalancerMember http://127.0.0.1:{0}\n\
         BalancerMember http://localhost:{0}\n</Proxy>\nProxyPass / balancer://x/\n",
        origin.port
    );
    let rules = configuration("event", &origin).replace("ProxyPass / ", "ProxyPass /first ");
    let house = House::open(&format!("{rules}{balancer}"), &[]).unwrap();
    assert_eq!(read(ask(&house, "GET", "X-Do: deaf\r\n")).0, 502);
    assert_eq!(origin.requests(), 2, "each of them was asked");
    assert_eq!(read(ask(&house, "POST", "X-Do: deaf\r\n")).0, 502);
    assert_eq!(origin.requests(), 3, "a POST may have been acted upon");
    assert_eq!(read(ask(&house, "GET", "")).0, 200, "they have not failed");
}

#[test]
fn a_connection_over_tls_is_used_again_until_the_server_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path()).unwrap();
    let config = server_config(folder.path(), "localhost", false).unwrap();
    let origin = Origin::start_tls(config).unwrap();
    let modules: String = ["mpm_prefork", "proxy", "proxy_http", "ssl"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let rules = format!(
        "{modules}SSLProxyEngine on\nProxyPass / https://localhost:{}/\n\
         StartServers 1\nMinSpareServers 1\nMaxSpareServers 1\nMaxRequestWorkers 1\n",
        origin.port
    );
    let house = House::open(&rules, &[]).unwrap();
    for _ in 0..5 {
        assert_eq!(read(ask(&house, "GET", "")).0, 200);
    }
    assert_eq!((origin.connections(), origin.requests()), (1, 5));
    // The server closes the connection when it has read the request: the request is sent again.
    assert_eq!(read(ask(&house, "GET", "X-Do: tired\r\n")).0, 200);
    assert_eq!((origin.connections(), origin.requests()), (2, 7));
    // It closes the connection behind its response, which is seen before the next request.
    assert_eq!(read(ask(&house, "GET", "X-Do: close\r\nX-Say: HTTP/1.1 204 No~~\r\n")).0, 204);
    assert_eq!(read(ask(&house, "POST", "Content-Length: 0\r\n")).0, 200);
    assert_eq!((origin.connections(), origin.requests()), (3, 9));
}
