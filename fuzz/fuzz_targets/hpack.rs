//! Fuzzes header blocks of HTTP/2; the body says with what.

#![no_main]

#[path = "../bodies/hpack.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
