//! Tests listeners of both address families: several Listen lines, and which virtual host answers
//! under which name, in responses, logs and on the status page.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, send, wait_for};
use evenkeel_tests::load::{connect, probe};
use evenkeel_tests::server::{Kind, command, free_port, program};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// `@DUAL@` is a port of all addresses of both families.
const MORE: &str = "\
LoadModule authz_host_module /usr/lib/apache2/modules/mod_authz_host.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so
LoadModule status_module /usr/lib/apache2/modules/mod_status.so
Listen [::1]:@PORT@
Listen 127.0.0.2:@PORT@
Listen @DUAL@
LogFormat \"%U %>s %h %a %A %{local}p %v %V\" who
CustomLog \"@ROOT@/logs/who.log\" who
<VirtualHost *:@PORT@ *:@DUAL@>
ServerName any.example
Header always set X-Host any
</VirtualHost>
<VirtualHost 127.0.0.1:@DUAL@>
ServerName four.example
Header always set X-Host four
</VirtualHost>
<VirtualHost [::1]:@PORT@ [::1]:@DUAL@>
ServerName six.example
Header always set X-Host six
Redirect /from /small.txt
<Location /canonical>
UseCanonicalName On
</Location>
Redirect /canonical /small.txt
<Location /physical>
UseCanonicalPhysicalPort On
</Location>
Redirect /physical /small.txt
<Location /only-six>
Require ip ::1
</Location>
</VirtualHost>
<VirtualHost [::1]:@PORT@>
ServerName bare.example
ServerAlias ::1
Header always set X-Host bare
Redirect /canonical /small.txt
UseCanonicalName On
</VirtualHost>
ServerSignature On
<Location /server-status>
SetHandler server-status
</Location>
<Location /only-four>
Require ip 127.0.0.1
</Location>
<Location /local>
Require local
</Location>
";

struct Site {
    house: House,
    dual: u16,
}

impl Site {
    fn open() -> Site {
        let dual = free_port().unwrap();
        let house = House::open(&MORE.replace("@DUAL@", &dual.to_string()), &[]).unwrap();
        for name in ["folder", "only-six", "only-four", "local"] {
            fs::create_dir(house.path("htdocs").join(name)).unwrap();
            fs::write(house.path("htdocs").join(name).join("index.html"), name).unwrap();
        }
        Site { house, dual }
    }

    fn port(&self) -> u16 {
        self.house.address.port()
    }

    /// The answer at an address.
    fn get(&self, ip: IpAddr, port: u16, target: &str, host: Option<&str>) -> String {
        let mut stream = connect(SocketAddr::new(ip, port)).unwrap();
        let request = match host {
            Some(host) => {
                format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            }
            None => format!("GET {target} HTTP/1.0\r\n\r\n"),
        };
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// The value of a field.
fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Runs the words after it where socket(2) refuses IPv6 (EAFNOSUPPORT), as in a kernel without it:
/// a filter of seccomp(2), whose rows are those of struct sock_filter.
const NO_IPV6: &str = "
import ctypes, os, platform, struct, sys
socket = {'x86_64': 41, 'aarch64': 198}[platform.machine()]
rows = [(0x20, 0, 0, 0), (0x15, 0, 3, socket), (0x20, 0, 0, 16), (0x15, 0, 1, 10),
        (0x06, 0, 0, 0x50000 | 97), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *row) for row in rows))
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('rows', ctypes.c_void_p)]
program = Program(len(rows), ctypes.addressof(code))
if ctypes.CDLL(None).prctl(22, 2, ctypes.byref(program), 0, 0):
    sys.exit('there is no seccomp')
os.execv(sys.argv[1], sys.argv[1:])
";

/// Runs the words after it in a network of their own, whose kernel has IPv6 switched off.
const IPV6_OFF: &str = "
import ctypes, fcntl, os, socket, struct, sys
if ctypes.CDLL(None).unshare(0x40000000):
    sys.exit('there is no network namespace')
up = struct.pack('16sH14x', b'lo', 0x41)
fcntl.ioctl(socket.socket(), 0x8914, up)
open('/proc/sys/net/ipv6/conf/all/disable_ipv6', 'w').write('1')
os.execv(sys.argv[1], sys.argv[1:])
";

/// Lines that name the same addresses where there is no IPv6.
const ALL_OF_BOTH: [&str; 2] =
    ["Listen 0.0.0.0:@DUAL@\nListen @DUAL@\n", "Listen @DUAL@\nListen 0.0.0.0:@DUAL@\n"];

#[test]
fn all_addresses_are_served_where_the_kernel_has_no_ipv6() {
    for lines in ALL_OF_BOTH {
        let dual = free_port().unwrap();
        let mut house = House::lay_out(&lines.replace("@DUAL@", &dual.to_string())).unwrap();
        house.start(&["python3", "-c", NO_IPV6]).unwrap();
        probe(SocketAddr::new(V4, dual)).unwrap();
        assert!(std::net::TcpStream::connect((V6, dual)).is_err(), "IPv6 is there");
        house.reload().unwrap();
        probe(SocketAddr::new(V4, dual)).unwrap();
        house.stop().unwrap();
    }
}

#[test]
fn a_server_starts_where_ipv6_is_switched_off() {
    for lines in ALL_OF_BOTH {
        let dual = free_port().unwrap();
        let house = House::lay_out(&lines.replace("@DUAL@", &dual.to_string())).unwrap();
        let program = program(Kind::Evenkeel, &house.path("")).unwrap();
        let (program, file) = (program.to_string_lossy(), house.path("httpd.conf"));
        let file = file.to_string_lossy();
        let words = ["-c", IPV6_OFF, &*program, "-f", &*file, "-k", "start"];
        let started = command(Path::new("/usr/bin/python3"), &words).output().unwrap();
        let told = String::from_utf8_lossy(&started.stderr).into_owned();
        assert!(started.status.success() && told.is_empty(), "{told}");
        send(house.named_parent(), Signal::TERM);
        wait_for("the end", || !house.path("logs/httpd.pid").exists()).unwrap();
    }
}

#[test]
fn every_address_is_served_by_its_host() {
    let site = Site::open();
    let port = site.port();
    let four2 = IpAddr::from([127, 0, 0, 2]);
    let table = [
        (V4, port, "any"),
        (four2, port, "any"),
        (V6, port, "six"),
        (V4, site.dual, "four"),
        (four2, site.dual, "any"),
        (V6, site.dual, "six"),
    ];
    for (ip, port, host) in table {
        let answer = site.get(ip, port, "/small.txt", Some("x"));
        assert_eq!(field(&answer, "X-Host"), Some(host), "{ip} {port}");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    // By name among the hosts of one address. Brackets and port are not part of the name.
    for host in ["[::1]".to_owned(), format!("[::1]:{port}")] {
        let answer = site.get(V6, port, "/small.txt", Some(&host));
        assert_eq!(field(&answer, "X-Host"), Some("bare"), "{host}");
    }
}

#[test]
fn the_log_has_both_ends_as_addresses_of_their_family() {
    let site = Site::open();
    for (ip, port) in [(V4, site.port()), (V6, site.port()), (V4, site.dual), (V6, site.dual)] {
        site.get(ip, port, "/small.txt", Some("x"));
    }
    site.get(V6, site.port(), "/canonical", Some("x"));
    site.get(V6, site.dual, "/none", Some("[::1]"));
    site.get(V6, site.port(), "/none", Some("[::1]"));
    site.get(V6, site.port(), "/none", Some("[::1"));
    let log = || fs::read_to_string(site.house.path("logs/who.log")).unwrap_or_default();
    wait_for("the lines", || log().lines().count() == 8).unwrap();
    let (port, dual) = (site.port(), site.dual);
    let mut lines: Vec<String> = log().lines().map(str::to_owned).collect();
    lines.sort();
    let mut expected = [
        format!("/small.txt 200 127.0.0.1 127.0.0.1 127.0.0.1 {port} any.example x"),
        format!("/small.txt 200 ::1 ::1 ::1 {port} six.example x"),
        format!("/small.txt 200 127.0.0.1 127.0.0.1 127.0.0.1 {dual} four.example x"),
        format!("/small.txt 200 ::1 ::1 ::1 {dual} six.example x"),
        format!("/canonical 302 ::1 ::1 ::1 {port} six.example six.example"),
        format!("/none 404 ::1 ::1 ::1 {dual} six.example ::1"),
        format!("/none 404 ::1 ::1 ::1 {port} bare.example bare.example"),
        format!("/none 400 ::1 ::1 ::1 {port} six.example six.example"),
    ];
    expected.sort();
    assert_eq!(lines, expected);
}

#[test]
fn redirects_name_the_address_in_brackets() {
    let site = Site::open();
    let (port, dual) = (site.port(), site.dual);
    let table = [
        (port, "/from", Some("x".to_owned()), "http://x/small.txt".to_owned()),
        (port, "/from", Some(format!("x:{port}")), format!("http://x:{port}/small.txt")),
        (dual, "/from", Some(format!("[::1]:{dual}")), format!("http://[::1]:{dual}/small.txt")),
        (dual, "/from", Some("[::1]".to_owned()), "http://[::1]/small.txt".to_owned()),
        (dual, "/folder", Some(format!("[::1]:{dual}")), format!("http://[::1]:{dual}/folder/")),
        (port, "/from", None, "http://six.example/small.txt".to_owned()),
        (port, "/canonical", Some(format!("x:{port}")), "http://six.example/small.txt".to_owned()),
        (port, "/physical", None, format!("http://six.example:{port}/small.txt")),
        (port, "/canonical", Some("[::1]".to_owned()), "http://bare.example/small.txt".to_owned()),
        (dual, "/from", Some("[0:0::A]".to_owned()), "http://[0:0::a]/small.txt".to_owned()),
    ];
    for (port, target, host, location) in table {
        let answer = site.get(V6, port, target, host.as_deref());
        assert_eq!(field(&answer, "Location"), Some(&*location), "{target} {host:?}");
    }
}

#[test]
fn access_is_decided_by_the_address_that_the_client_has() {
    let site = Site::open();
    let (port, dual) = (site.port(), site.dual);
    let table = [
        (V6, port, "/only-six/", 200),
        (V6, dual, "/only-six/", 200),
        (V6, dual, "/only-four/", 403),
        (V4, dual, "/only-four/", 200),
        (V4, dual, "/local/", 200),
        (V6, dual, "/local/", 200),
    ];
    for (ip, port, target, status) in table {
        let answer = site.get(ip, port, target, Some("x"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{ip} {target}: {answer}");
    }
    // The page shows the server's name as its log does, without brackets.
    let page = site.get(V6, dual, "/only-four/", Some("[::1]:99"));
    assert!(page.contains(" Server at ::1 Port 99</address>"), "{page}");
    let log = site.house.error_log();
    let refusal = log.lines().find(|line| line.contains("AH01630")).unwrap();
    assert!(refusal.contains("[client ::1:"), "{refusal}");
}

#[test]
fn the_status_page_shows_clients_and_hosts_of_both_families() {
    let site = Site::open();
    let table = [
        (V4, site.port(), "any.example"),
        (V6, site.port(), "six.example"),
        (V4, site.dual, "four.example"),
        (V6, site.dual, "six.example"),
    ];
    for (ip, port, host) in table {
        // The row of the request for the page itself.
        let page = site.get(ip, port, "/server-status", Some("x"));
        let row = format!(
            "<td>{ip}</td><td>http/1.1</td><td nowrap>{host}:{port}</td>\
             <td nowrap>GET /server-status HTTP/1.1</td>"
        );
        assert!(page.replace('\n', "").contains(&row), "{row}: {page}");
    }
}
