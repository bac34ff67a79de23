//! Fuzzes OpenSSL's cipher strings; the body says with what.

#![no_main]

#[path = "../bodies/cipher_string.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
