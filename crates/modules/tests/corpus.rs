//! Replays the corpus of the fuzz target `htaccess`: no file of it may make anything panic, and
//! those whose names do not say `refused` are good .htaccess files.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../../fuzz/bodies/htaccess.rs"]
mod body;

#[test]
fn no_htaccess_file_of_the_corpus_does_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/htaccess");
    let (mut count, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let good = body::run(&std::fs::read(entry.path()).unwrap());
        if good == name.contains("refused") {
            wrong.push(name);
        }
        count += 1;
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count > 25, "only {count} files in {folder}");
}
