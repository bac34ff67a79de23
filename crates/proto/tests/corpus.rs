//! Replays the corpora of the fuzz targets: no file in them may cause a panic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test, and the code of fuzz targets, which shall panic"
)]

#[path = "../../../fuzz/bodies/chunked_body.rs"]
mod chunked_body;
#[path = "../../../fuzz/bodies/digest_field.rs"]
mod digest_field;
#[path = "../../../fuzz/bodies/fastcgi.rs"]
mod fastcgi;
#[path = "../../../fuzz/bodies/h2_engine.rs"]
mod h2_engine;
#[path = "../../../fuzz/bodies/hpack.rs"]
mod hpack;
#[path = "../../../fuzz/bodies/origin_response.rs"]
mod origin_response;
#[path = "../../../fuzz/bodies/proxy_header.rs"]
mod proxy_header;
#[path = "../../../fuzz/bodies/request_head.rs"]
mod request_head;
#[path = "../../../fuzz/bodies/script_head.rs"]
mod script_head;
#[path = "../../../fuzz/bodies/uri.rs"]
mod uri;

fn replay(name: &str, run: fn(&[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "only {count} files in {folder}");
}

#[test]
fn the_corpus_of_request_head_does_no_harm() {
    replay("request_head", request_head::run);
}

#[test]
fn the_corpus_of_chunked_body_does_no_harm() {
    replay("chunked_body", chunked_body::run);
}

#[test]
fn the_corpus_of_proxy_header_does_no_harm() {
    replay("proxy_header", proxy_header::run);
}

#[test]
fn the_corpus_of_digest_field_does_no_harm() {
    replay("digest_field", digest_field::run);
}

#[test]
fn the_corpus_of_uri_does_no_harm() {
    replay("uri", uri::run);
}

#[test]
fn the_corpus_of_fastcgi_does_no_harm() {
    replay("fastcgi", fastcgi::run);
}

#[test]
fn the_corpus_of_script_head_does_no_harm() {
    replay("script_head", script_head::run);
}

#[test]
fn the_corpus_of_origin_response_does_no_harm() {
    replay("origin_response", origin_response::run);
}

#[test]
fn the_corpus_of_hpack_does_no_harm() {
    replay("hpack", hpack::run);
}

#[test]
fn the_corpus_of_h2_engine_does_no_harm() {
    replay("h2_engine", h2_engine::run);
}
