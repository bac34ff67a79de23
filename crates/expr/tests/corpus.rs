//! Replays the corpus of the fuzz target `expression`: no file in it may cause a panic.

#[path = "../../../fuzz/bodies/expression.rs"]
mod body;

#[test]
fn no_file_of_the_corpus_does_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/expression");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        body::run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "only {count} files in {folder}");
}
