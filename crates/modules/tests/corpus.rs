//! Replays the corpora of the fuzz targets of this crate: no file in them may cause a panic, and
//! files of `htaccess` whose names do not contain `refused` are valid.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/bodies/basic_field.rs"]
mod basic_field;
#[path = "../../../fuzz/bodies/htaccess.rs"]
mod body;
#[path = "../../../fuzz/bodies/group_file.rs"]
mod group_file;
#[path = "../../../fuzz/bodies/password_file.rs"]
mod password_file;
#[path = "../../../fuzz/bodies/ssi_page.rs"]
mod ssi_page;

/// Runs a target with each file of its corpus.
fn replay(target: &str, mut run: impl FnMut(&str, &[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        run(&entry.file_name().to_string_lossy(), &std::fs::read(entry.path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "only {count} files in {folder}");
}

#[test]
fn the_corpus_of_password_file_does_no_harm() {
    replay("password_file", |_, data| password_file::run(data));
}

#[test]
fn the_corpus_of_group_file_does_no_harm() {
    replay("group_file", |_, data| group_file::run(data));
}

#[test]
fn the_corpus_of_basic_field_does_no_harm() {
    replay("basic_field", |_, data| basic_field::run(data));
}

#[test]
fn the_corpus_of_ssi_page_does_no_harm() {
    replay("ssi_page", |_, data| ssi_page::run(data));
}

#[test]
fn no_htaccess_file_of_the_corpus_does_harm() {
    let mut wrong = Vec::new();
    replay("htaccess", |name, data| {
        if body::run(data) == name.contains("refused") {
            wrong.push(name.to_owned());
        }
    });
    assert_eq!(wrong, Vec::<String>::new());
}
