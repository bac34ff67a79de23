//! Fuzzes request heads; the body says with what.

#![no_main]

#[path = "../bodies/request_head.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
