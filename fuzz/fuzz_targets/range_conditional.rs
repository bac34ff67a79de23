//! Fuzzes ranges and conditional requests; the body says with what.

#![no_main]

#[path = "../bodies/range_conditional.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
