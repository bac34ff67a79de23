//! Replays the corpora of the fuzz targets `htaccess` and `password_file`: no file in them may
//! cause a panic, and files of `htaccess` whose names do not contain `refused` are valid.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../../fuzz/bodies/htaccess.rs"]
mod body;
#[path = "../../../fuzz/bodies/password_file.rs"]
mod password_file;

#[test]
fn no_file_of_users_of_the_corpus_does_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/password_file");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        password_file::run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "only {count} files in {folder}");
}

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
