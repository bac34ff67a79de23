//! Fuzzes pages with server-side includes; the body says with what.

#![no_main]

#[path = "../bodies/ssi_page.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
