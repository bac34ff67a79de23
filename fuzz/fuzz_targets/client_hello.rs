//! Fuzzes the first messages of TLS clients; the body says with what.

#![no_main]

#[path = "../bodies/client_hello.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
