//! What the children of a server share about the members of its balancers.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, read, wait_for};
use evenkeel_tests::origin::Origin;
use evenkeel_tests::server::free_port;
use std::io::Write as _;
use std::net::TcpStream;

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
