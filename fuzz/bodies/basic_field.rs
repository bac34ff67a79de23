//! Parses any bytes as an Authorization field, and as the credentials of a field of the scheme
//! Basic that is written as RFC 7617 says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_modules::passwords::Login;

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    if let Some(login) = Login::parse(data) {
        assert!(login.user().len() + login.password().len() < data.len());
        assert!(!login.user().iter().any(|byte| matches!(byte, b':' | 0)));
    }
    let field = format!("Basic {}", STANDARD.encode(data));
    let login = Login::parse(field.as_bytes()).expect("the scheme is Basic");
    // A user name ends at the first colon. Names with a NUL are left to the tests of the module.
    if data.contains(&0) {
        return;
    }
    let end = data.iter().position(|byte| *byte == b':').unwrap_or(data.len());
    assert_eq!(login.user(), data.get(..end).unwrap_or_default());
    assert_eq!(login.password(), data.get(end + 1..).unwrap_or_default());
}
