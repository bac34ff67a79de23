//! Fuzzes expressions and patterns; the body says with what.

#![no_main]

#[path = "../bodies/expression.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
