//! Fuzzes formats of logs and what clients put into the lines; the body says with what.

#![no_main]

#[path = "../bodies/log_format.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
