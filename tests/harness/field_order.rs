//! Compares the order of the response fields with apache2's, for users who compare dumps. Wire
//! scripts compare only the values.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::House;
use evenkeel_tests::load::ask;
use evenkeel_tests::server::{Kind, Server};
use std::io::Read as _;

const LINES: &str = "\
LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
Redirect /old http://localhost/new
RedirectMatch 404 ^/gone
ServerTokens Prod
Header set X-A a
Header add X-B b
Header always set X-C c
";

/// Returns the names of the fields of a response, in order.
fn names(house: &House, target: &str) -> Vec<String> {
    let mut bytes = Vec::new();
    ask(house.address, target).unwrap().read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let lines = head.lines().skip(1);
    lines.filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

#[test]
fn fields_come_in_apaches_order() {
    let house = House::lay_out(LINES).unwrap();
    let [theirs, ours] = [Kind::Apache, Kind::Evenkeel].map(|kind| {
        let server = Server::start(kind, &house.path(""), house.address.port()).unwrap();
        let all = ["/small.txt", "/large.bin", "/old/x", "/gone", "/none", "/"];
        let named = all.map(|target| (target, names(&house, target)));
        server.stop().unwrap();
        named
    });
    assert_eq!(ours, theirs);
}
