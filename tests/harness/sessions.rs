//! Sessions that one of Debian's apache2 and Evenkeel has sealed are read by the other, under every
//! cipher and after a change of the passphrase, and changed cookies are no sessions.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::House;
use evenkeel_tests::server::Kind;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const MODULES: [&str; 9] = [
    "authn_core",
    "authn_file",
    "authz_user",
    "auth_form",
    "request",
    "session",
    "session_cookie",
    "session_crypto",
    "alias",
];

const CIPHERS: [&str; 4] = ["3des192", "aes128", "aes192", "aes256"];

/// A place for each cipher, and one whose passphrase has changed since.
fn configuration() -> String {
    let load = |name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let mut text: String = MODULES.into_iter().map(load).collect();
    let place = |path: &str, cipher: &str, passphrases: &str| {
        format!(
            "Alias /{path} \"@ROOT@/htdocs\"\n<Location /{path}>\nAuthType form\nAuthName realm\n\
             AuthUserFile \"@ROOT@/users\"\nAuthFormProvider file\nSession On\n\
             SessionCookieName session path=/\nSessionMaxAge 600\n\
             SessionCryptoPassphrase {passphrases}\nSessionCryptoCipher {cipher}\n\
             Require valid-user\n</Location>\n"
        )
    };
    for cipher in CIPHERS {
        text.push_str(&place(cipher, cipher, "secret"));
    }
    text.push_str(&place("rotated", "aes256", "new secret"));
    text.push_str(&place("other", "aes256", "another"));
    text
}

/// The status and the text of a response.
fn ask(house: &House, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(house.address).unwrap();
    let length = body.len();
    let request = format!(
        "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

/// The status of a request with a session.
fn status(house: &House, path: &str, session: &str) -> u16 {
    ask(house, &format!("GET /{path}/small.txt HTTP/1.1\r\nCookie: session={session}"), "").0
}

/// Logs in and returns the session.
fn log_in(house: &House, path: &str) -> String {
    let head = format!(
        "POST /{path}/small.txt HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded"
    );
    let form = "httpd_username=ann&httpd_password=password&httpd_location=/there";
    let (status, answer) = ask(house, &head, form);
    assert_eq!(status, 302, "{answer}");
    let cookie = answer.split("Set-Cookie: session=").nth(1).unwrap();
    let session = cookie.split(';').next().unwrap();
    assert!(cookie.starts_with(&format!("{session};Max-Age=600;path=/\r\n")), "{answer}");
    session.to_owned()
}

#[test]
fn sealed_sessions_survive_the_move_from_apache_and_the_way_back() {
    let mut house = House::lay_out(&configuration()).unwrap();
    fs::write(house.path("users"), "ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n").unwrap();
    let kinds = [Kind::Apache, Kind::Evenkeel, Kind::Apache];
    let mut sealed: Vec<(&str, String)> = Vec::new();
    for kind in kinds {
        house.start_kind(kind).unwrap();
        for (cipher, session) in &sealed {
            assert_eq!(status(&house, cipher, session), 200, "{cipher}");
            let is_known = *cipher == "aes256";
            assert_eq!(status(&house, "rotated", session), if is_known { 200 } else { 401 });
            assert_eq!(status(&house, "other", session), 401, "{cipher}");
            let mut changed = session.clone().into_bytes();
            let middle = changed.len() / 2;
            changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
            assert_eq!(status(&house, cipher, &String::from_utf8(changed).unwrap()), 401);
            assert_eq!(status(&house, cipher, &session[..middle]), 401);
        }
        sealed = CIPHERS.into_iter().map(|cipher| (cipher, log_in(&house, cipher))).collect();
        for (cipher, session) in &sealed {
            assert_eq!(status(&house, cipher, session), 200, "{cipher}");
        }
        assert_eq!(status(&house, "aes256", "realm-user=ann&realm-pw=password"), 401);
        house.stop().unwrap();
    }
}
