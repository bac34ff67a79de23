//! Holds the cost of a compressed page to that of a plain file, in instructions. The ratio of two
//! counts of one build depends neither on the machine nor on the compiler's release, as counts do.

use std::process::Command;

/// The requests of the shorter of two runs. Valgrind takes a second for some thousand.
const REQUESTS: &str = "1000";

/// What the compressed page may cost, as a multiple of a plain file of the same size: a search for
/// the compressed form is more, a compression would be more than ten times as much.
const BOUND: f64 = 1.35;

#[test]
fn a_page_that_was_compressed_costs_little_more_than_a_plain_file() {
    let arguments = ["count", "P16", "P16-plain", "--requests", REQUESTS];
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let count = |name: &str| -> f64 {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap()
    };
    let (compressed, plain) = (count("P16"), count("P16-plain"));
    assert!(plain > 1000.0 && compressed < plain * BOUND, "{said}");
}
