//! Replays the fuzzer's corpus: every text in it is read and applied again.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../../fuzz/bodies/config.rs"]
mod body;

#[test]
fn the_corpus_is_read_without_a_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        body::run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 20, "only {count} texts in {folder}");
}
