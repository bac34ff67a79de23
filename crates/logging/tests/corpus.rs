//! Replays the corpus of the fuzz target `log_format`: no file in it may cause a panic.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test, and the code of a fuzz target, which shall panic"
)]

#[path = "../../../fuzz/bodies/log_format.rs"]
mod body;

#[test]
fn no_file_of_the_corpus_does_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/log_format");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        body::run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 5, "the corpus is there");
}
