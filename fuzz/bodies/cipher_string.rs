//! Reads the input as the string of SSLCipherSuite, for TLS 1.2 and for TLS 1.3. A suite is
//! selected once at the most, a string selects the same every time, and a ban at its end leaves
//! nothing.

use evenkeel_tls::{Selection, parse_ciphers, parse_new_ciphers};

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(selection) = parse_ciphers(text) {
        let names = names(&selection);
        assert_eq!(names, self::names(&parse_ciphers(text).expect("it was valid before")));
        let banned = parse_ciphers(&format!("{text}:!ALL")).expect("a ban may follow");
        assert!(banned.suites.is_empty(), "{text}");
    }
    if let Ok(selection) = parse_new_ciphers(text) {
        names(&selection);
    }
}

fn names(selection: &Selection) -> Vec<&'static str> {
    let names: Vec<&str> = selection.suites.iter().map(|suite| suite.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len(), "{names:?}");
    names
}
