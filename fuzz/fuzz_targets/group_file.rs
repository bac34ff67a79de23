//! Fuzzes files of groups; the body says with what.

#![no_main]

#[path = "../bodies/group_file.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
