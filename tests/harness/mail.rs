//! Sends mail from programs of requests through Debian's exim4. Its program runs with the rights of
//! root (set-user-ID), so that it fails under no_new_privs. CGI programs, under apache2 too, and a
//! script of PHP hand over messages, which are found in the queue and removed. Root alone may list
//! it: the tests need the rights of root and the package exim4-daemon-light.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE};
use evenkeel_tests::php::build;
use evenkeel_tests::server::{Kind, Server};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

const MODULES: &str = "\
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule cgi_module /usr/lib/apache2/modules/mod_cgi.so
ScriptAlias /cgi/ \"@ROOT@/cgi/\"
<Directory \"@ROOT@/cgi\">
Require all granted
</Directory>
";

const PHP: &str = "\
LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so
DefaultRuntimeDir \"@ROOT@/run\"
<FilesMatch \"\\.php$\">
SetHandler application/x-httpd-php
php_admin_value sendmail_path \"/usr/sbin/sendmail -odq -t -i\"
</FilesMatch>
";

/// The shell program calls sendmail itself, the other one has PHP's mail() do so.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "shell",
        "printf 'To: root@localhost\\nSubject: %s\\n\\nA note.\\n' \"$QUERY_STRING\" |
         /usr/sbin/sendmail -odq -t -i 2>&1 && echo sent",
    ),
    (
        "php",
        "exec php8.2 -d sendmail_path='/usr/sbin/sendmail -odq -t -i' -r '
         $is_sent = mail(\"root@localhost\", getenv(\"QUERY_STRING\"), \"A note.\");
         echo $is_sent ? \"sent\" : \"failed\";'",
    ),
];

const SCRIPT: &str = "<?php
echo mail('root@localhost', $_SERVER['QUERY_STRING'], 'A note.') ? 'sent' : 'failed';
";

fn get(house: &House, path: &str) -> String {
    let mut client = TcpStream::connect(house.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn exim(arguments: &[&str]) -> String {
    let output = Command::new("/usr/sbin/exim4").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Removes the message with this subject from the queue, and returns its header. Its sender is the
/// user of the program.
fn take(subject: &str) -> Option<String> {
    let queue = exim(&["-bpru"]);
    // A message: its age, its size, its identifier and its sender.
    let ids = queue.lines().filter_map(|line| line.split_whitespace().nth(2));
    let wanted = format!("Subject: {subject}\n");
    // Another program may send the message of another test meanwhile.
    let header = |id: &str| {
        let shown = Command::new("/usr/sbin/exim4").args(["-Mvh", id]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    };
    let (id, header) = ids.map(|id| (id, header(id))).find(|(_, it)| it.contains(&wanted))?;
    exim(&["-Mrm", id]);
    Some(header)
}

/// The request is answered with `sent`, and the queue has the message, by the user of the children.
fn sends(house: &House, path: &str, subject: &str) {
    let answer = get(house, &format!("{path}?{subject}"));
    let header = take(subject);
    assert!(answer.contains("200 OK") && answer.contains("sent"), "{path}: {answer}");
    let header = header.unwrap_or_default();
    assert!(header.contains("<www-data@"), "{path}: {header}");
}

#[test]
fn cgi_programs_send_mail() {
    for kind in [Kind::Apache, Kind::Evenkeel] {
        let mut house = House::lay_out(MODULES).unwrap();
        fs::create_dir(house.path("cgi")).unwrap();
        for (name, text) in PROGRAMS {
            let mut write = Command::new("sh");
            write.args(["-c", "printf '%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\""]);
            let text = format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n{text}");
            let path = house.path("cgi").join(name);
            assert!(write.arg(path).arg(text).status().unwrap().success());
        }
        let root = house.path("");
        house.server = Some(Server::start(kind, &root, house.address.port()).unwrap());
        for (name, _) in PROGRAMS {
            let subject = format!("{name}-{kind:?}-{}", std::process::id());
            sends(&house, &format!("/cgi/{name}"), &subject);
        }
        house.stop().unwrap();
    }
}

#[test]
fn scripts_of_the_pool_of_php_send_mail() {
    build().unwrap();
    let mut house = House::lay_out(PHP).unwrap();
    fs::create_dir_all(house.path("run")).unwrap();
    fs::write(house.path("htdocs/mail.php"), SCRIPT).unwrap();
    house.start(&[]).unwrap();
    sends(&house, "/mail.php", &format!("pool-{}", std::process::id()));
    house.stop().unwrap();
}
