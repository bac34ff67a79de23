//! Fuzzes connections of HTTP/2; the body says with what.

#![no_main]

#[path = "../bodies/h2_engine.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
