//! Fuzzes PROXY headers; the body says with what.

#![no_main]

#[path = "../bodies/proxy_header.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
