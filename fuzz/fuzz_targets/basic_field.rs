//! Fuzzes Authorization fields of Basic; the body says with what.

#![no_main]

#[path = "../bodies/basic_field.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
