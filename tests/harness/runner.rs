//! Tests the runner of wire scripts itself, with apache2 on both sides: equal servers show no
//! difference, and one altered header shows one.

use evenkeel_tests::play::{Cast, Verdict, play};
use evenkeel_tests::script::{Script, parse};
use evenkeel_tests::server::Kind;

/// A file, two requests on one connection, and a file that a step creates.
const TEXT: &str = "\
file htdocs/a.txt
    one

ignore Last-Modified
ignore ETag

exchange a file
  get /a.txt
  = 200
  ~ one
exchange two on a connection
  get /a.txt
  head /none
  = 200 404
exchange a file that comes to be
  get /b.txt
  read
  write htdocs/b.txt two\n
  get /b.txt
  + Range: bytes=0-0
  = 404 206
";

#[expect(clippy::unwrap_used, reason = "the text is in this file")]
fn script() -> Script {
    parse("runner", TEXT).unwrap()
}

fn failing(verdicts: &[Verdict]) -> Vec<&Verdict> {
    verdicts.iter().filter(|verdict| !verdict.differences.is_empty()).collect()
}

#[test]
fn equal_servers_do_not_differ() {
    let verdicts = play(&script(), Cast::Both(Kind::Apache, "")).unwrap();
    assert_eq!(verdicts.len(), 3);
    assert!(failing(&verdicts).is_empty(), "{verdicts:#?}");
}

#[test]
fn an_altered_answer_is_one_difference() {
    let more = "<Files a.txt>\nHeader set X-Altered yes\n</Files>";
    let verdicts = play(&script(), Cast::Both(Kind::Apache, more)).unwrap();
    let failing = failing(&verdicts);
    assert_eq!(failing.len(), 2);
    assert_eq!(failing[0].differences, ["X-Altered: [] expected, [\"yes\"] came"]);
}

#[test]
fn a_script_that_misjudges_the_oracle_fails() {
    let script = parse("runner", "exchange x\n  get /none\n  = 200\n").unwrap();
    let verdicts = play(&script, Cast::Oracle).unwrap();
    assert_eq!(failing(&verdicts).len(), 1);
}
