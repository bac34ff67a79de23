//! Fuzzes responses of servers behind the proxy; the body says with what.

#![no_main]

#[path = "../bodies/origin_response.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
