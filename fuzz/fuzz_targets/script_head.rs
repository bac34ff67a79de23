//! Fuzzes heads of scripts; the body says with what.

#![no_main]

#[path = "../bodies/script_head.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
