//! Fuzzes Authorization fields of Digest; the body says with what.

#![no_main]

#[path = "../bodies/digest_field.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
