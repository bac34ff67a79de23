//! Fuzzes .htaccess files with the directives of every module; the body says with what.

#![no_main]

#[path = "../bodies/htaccess.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::run(data);
});
