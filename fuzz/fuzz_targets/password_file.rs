//! Fuzzes files of users; the body says with what.

#![no_main]

#[path = "../bodies/password_file.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
