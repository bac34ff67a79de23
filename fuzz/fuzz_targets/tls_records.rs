//! Fuzzes TLS sessions; the body says with what.

#![no_main]

#[path = "../bodies/tls_records.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
