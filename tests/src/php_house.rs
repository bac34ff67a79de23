//! What the tests of PHP's pool behind a server share: requests for scripts, and the zygote.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use crate::house::{House, children_of, read};
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

/// The configuration of a server whose `.php` files run in its own pool.
pub const MODULES: &str = "\
LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so
DefaultRuntimeDir \"@ROOT@/run\"
<FilesMatch \"\\.php$\">
SetHandler application/x-httpd-php
</FilesMatch>
";

/// The status and the body of a response.
#[must_use]
pub fn get(house: &House, script: &str) -> (u16, String) {
    read(ask(house, script))
}

/// Sends a request for a script.
#[must_use]
pub fn ask(house: &House, script: &str) -> TcpStream {
    ask_for(house, &format!("{script}.php"))
}

/// Sends a request for a path.
#[must_use]
pub fn ask_for(house: &House, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let text = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// The zygote, of which there is one.
#[must_use]
pub fn zygote(house: &House) -> u32 {
    let is_zygote = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "php zygote\n")
    };
    let all: Vec<u32> = children_of(house.parent()).into_iter().filter(is_zygote).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    *all.first().unwrap()
}
