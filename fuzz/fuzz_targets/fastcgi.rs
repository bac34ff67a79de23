//! Fuzzes FastCGI records; the body says with what.

#![no_main]

#[path = "../bodies/fastcgi.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
