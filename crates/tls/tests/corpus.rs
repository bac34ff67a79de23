//! Replays the fuzzer's corpus: every text and every stream in it is read again.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/bodies/cipher_string.rs"]
mod cipher_string;
#[path = "../../../fuzz/bodies/client_hello.rs"]
mod client_hello;
#[path = "../../../fuzz/bodies/tls_records.rs"]
mod tls_records;

#[test]
fn the_corpus_is_read_without_a_panic() {
    replay("cipher_string", cipher_string::run);
    replay("client_hello", client_hello::run);
    replay("tls_records", tls_records::run);
}

fn replay(name: &str, run: fn(&[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "only {count} inputs in {folder}");
}
