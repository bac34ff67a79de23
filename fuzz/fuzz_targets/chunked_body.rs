//! Fuzzes bodies in chunks; the body says with what.

#![no_main]

#[path = "../bodies/chunked_body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
