//! Tests that a page which changes is never served in an older compressed form, in any process
//! model, whether the page is overwritten or replaced, short or long.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::load::{answer, connect};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

/// The changes of a page. Each is the number of the page, read back by clients.
const CHANGES: u32 = 300;

const MODULES: &str = "\
LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
LoadModule brotli_module /usr/lib/apache2/modules/mod_brotli.so
SetOutputFilter BROTLI_COMPRESS;DEFLATE
";

/// The page, unpacked, and the coding in which it came.
fn page(address: SocketAddr, coding: &str) -> String {
    let mut stream = connect(address).unwrap();
    let request = format!(
        "GET /page.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Accept-Encoding: {coding}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let response = answer(stream).unwrap();
    assert_eq!(response.header("Content-Encoding"), Some(coding), "{}", response.status_line);
    let mut text = String::new();
    let mut packed = response.body.as_slice();
    match coding {
        "gzip" => drop(flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap()),
        _ => {
            let mut bytes = Vec::new();
            brotli::BrotliDecompress(&mut packed, &mut bytes).unwrap();
            text = String::from_utf8(bytes).unwrap();
        }
    }
    text
}

fn no_older_form_is_served(model: &str) {
    let load =
        format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
    let house = House::open(&format!("{load}{MODULES}"), &[]).unwrap();
    let (file, next) = (house.path("htdocs/page.txt"), house.path("htdocs/next.txt"));
    for number in 0..CHANGES {
        // Every length stays the same, so that only the times of the file tell of a change.
        let lines = if number % 20 < 10 { 500 } else { 20_000 };
        let text = format!("{number:08}\n").repeat(lines);
        match number % 3 {
            0 => {
                fs::write(&next, &text).unwrap();
                fs::rename(&next, &file).unwrap();
            }
            _ => fs::write(&file, &text).unwrap(),
        }
        // The second request of a coding may be answered from the kept form.
        for coding in ["gzip", "br", "gzip", "br"] {
            assert!(page(house.address, coding) == text, "change {number}, {coding}");
        }
    }
}

#[test]
fn event_serves_no_older_form() {
    no_older_form_is_served("event");
}

#[test]
fn worker_serves_no_older_form() {
    no_older_form_is_served("worker");
}

#[test]
fn prefork_serves_no_older_form() {
    no_older_form_is_served("prefork");
}

#[test]
fn the_status_page_says_how_many_bytes_the_caches_of_forms_hold() {
    let status = "LoadModule status_module /usr/lib/apache2/modules/mod_status.so\n\
        <Location /status>\nSetHandler server-status\n</Location>\n";
    let house = House::open(&format!("{MODULES}{status}"), &[]).unwrap();
    let held = || {
        let mut stream = connect(house.address).unwrap();
        let request = "GET /status?auto HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let body = String::from_utf8(answer(stream).unwrap().body).unwrap();
        let value = |line: &str| line.strip_prefix("CompressedFormBytes: ")?.parse::<u64>().ok();
        body.lines().find_map(value).unwrap()
    };
    let file = house.path("htdocs/page.txt");
    fs::write(&file, "a line of the page\n".repeat(500)).unwrap();
    assert_eq!(held(), 0);
    // A request that is served before the cache of files holds the page leaves no form behind.
    wait_for("a form to be kept", || {
        page(house.address, "gzip");
        held() > 0
    })
    .unwrap();
    fs::remove_file(&file).unwrap();
    wait_for("the forms of the removed page to be dropped", || held() == 0).unwrap();
}
