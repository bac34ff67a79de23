//! Connections that switch to another protocol behind the proxy: what client and server are told,
//! compared with Debian's apache2; how tunnels end; and that they keep nothing from others.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, read, wait_for};
use evenkeel_tests::origin::Origin;
use evenkeel_tests::server::Kind;
use evenkeel_tests::tls::{Stream, Tls, make_certificates, server_config};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const MODULES: [&str; 5] = ["proxy", "proxy_http", "proxy_wstunnel", "rewrite", "status"];

/// The configuration of a house with this process model.
fn configuration(model: &str, more: &str) -> String {
    let model = [format!("mpm_{model}")];
    let modules = model.iter().map(String::as_str).chain(MODULES);
    let modules: String = modules
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    format!("{modules}{more}")
}

/// A request for a tunnel to an echo.
const SWITCH: &str = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nX-Do: echo\r\nX-Say: HTTP/1.1 101 Switching Protocols~\
    Connection: upgrade~Upgrade: websocket~X-Own: 1~~hello\r\n\r\n";

/// Reads until the bytes end with a text.
fn read_to(stream: &mut impl Read, end: &str) -> String {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while !all.ends_with(end.as_bytes()) {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{end:?} is missing: {:?}", String::from_utf8_lossy(&all));
        all.extend_from_slice(buffer.get(..count).unwrap());
    }
    String::from_utf8(all).unwrap()
}

/// Opens a tunnel.
fn open(house: &House) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.write_all(SWITCH.as_bytes()).unwrap();
    assert!(read_to(&mut stream, "hello").starts_with("HTTP/1.1 101 Switching Protocols\r\n"));
    stream
}

fn echo(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    assert_eq!(read_to(stream, &text.to_uppercase()), text.to_uppercase());
}

/// The answer to a page of mod_status.
fn figure(house: &House, key: &str) -> u64 {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.write_all(b"GET /status?auto HTTP/1.0\r\n\r\n").unwrap();
    let (_, page) = read(stream);
    let line = page.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.unwrap_or("0").parse().unwrap()
}

/// What a client receives in all: what it sends goes out in pieces, each after the last answer.
fn talk(house: &House, pieces: &[&str]) -> String {
    let mut stream = TcpStream::connect(house.address).unwrap();
    let (mut all, mut buffer) = (String::new(), [0; 4096]);
    for piece in pieces {
        stream.write_all(piece.as_bytes()).unwrap();
        let count = stream.read(&mut buffer).unwrap();
        all.push_str(&String::from_utf8_lossy(buffer.get(..count).unwrap()));
    }
    // An echo is longer than one read, and comes whole before the end.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_string(&mut all);
    // The order of the fields is not compared, nor the Vary that a RewriteCond leads to, which
    // apache2 loses.
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
    let mut lines: Vec<&str> = head.lines().collect();
    lines.retain(|line| !["Date", "Server", "Vary"].iter().any(|name| line.starts_with(name)));
    lines.sort_unstable();
    format!("{}\n\n{body}", lines.join("\n"))
}

#[test]
fn a_connection_is_switched_as_by_apache2() {
    let origin = Origin::start(None).unwrap();
    let port = origin.port;
    let rules = format!(
        "ProxyPass /switched/ http://127.0.0.1:{port}/s/ upgrade=websocket\n\
         ProxyPass /any/ http://127.0.0.1:{port}/ upgrade=ANY\n\
         ProxyPass /list/ http://127.0.0.1:{port}/l/ upgrade=foo,websocket\n\
         ProxyPass /never/ http://127.0.0.1:{port}/never/\n\
         ProxyPass /ws/ ws://127.0.0.1:{port}/ws/\n\
         RewriteEngine On\n\
         RewriteCond %{{HTTP:Upgrade}} websocket [NC]\n\
         RewriteRule ^/rewritten/(.*) ws://127.0.0.1:{port}/$1 [P,L]\n"
    );
    let switched = "X-Do: echo\r\nX-Say: HTTP/1.1 101 Switching Protocols~Upgrade: websocket~\
                    Connection: upgrade~X-Own: 1~~\r\n";
    let other = switched.replace("Upgrade: websocket", "Upgrade: other");
    let nameless = switched.replace("Upgrade: websocket~", "");
    let plain = "X-Say: HTTP/1.1 200 OK~Content-Length: 5~~plain\r\n";
    let asks = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let mut requests = Vec::new();
    for path in ["switched", "any", "list", "never", "ws", "rewritten"] {
        // The fields that reach the server are its answer.
        requests.push((path, format!("{asks}{plain}"), false));
        requests.push((path, format!("{asks}Sec-WebSocket-Key: k\r\n"), false));
    }
    for path in ["switched", "any", "list", "ws", "rewritten"] {
        requests.push((path, format!("{asks}{switched}"), true));
        requests.push((path, format!("{asks}{other}"), false));
    }
    for (path, fields) in [
        (
            "switched",
            format!("Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n{switched}"),
        ),
        ("switched", format!("Upgrade: websocket\r\n{switched}")),
        ("any", format!("Connection: upgrade\r\nUpgrade: other\r\n{other}")),
    ] {
        requests.push((path, fields, true));
    }
    requests.push(("switched", format!("{asks}{nameless}"), false));
    requests.push(("never", format!("{asks}{switched}"), false));
    requests.push(("switched", plain.to_owned(), false));
    requests.push(("switched", switched.to_owned(), false));
    let mut answers = Vec::new();
    let mut house = House::lay_out(&configuration("event", &rules)).unwrap();
    for kind in [Kind::Apache, Kind::Evenkeel] {
        house.start_kind(kind).unwrap();
        let talks = requests.iter().map(|(path, fields, is_switched)| {
            let close = if *is_switched { "" } else { "X-A: b\r\n" };
            let head = format!("GET /{path}/x HTTP/1.1\r\nHost: localhost\r\n{close}{fields}\r\n");
            let pieces = [&head, "one", "two"];
            talk(&house, if *is_switched { &pieces } else { &pieces[..1] })
        });
        answers.push(talks.collect::<Vec<_>>());
        house.stop().unwrap();
    }
    for (number, (path, fields, is_switched)) in requests.iter().enumerate() {
        let [oracle, ours] = [&answers[0][number], &answers[1][number]];
        assert_eq!(ours, oracle, "/{path}/ {fields}");
        assert_eq!(ours.ends_with("ONETWOEND"), *is_switched, "/{path}/ {fields} {ours}");
    }
}

#[test]
fn both_directions_pass_whole_and_one_may_end_before_the_other() {
    for model in ["event", "worker", "prefork"] {
        let origin = Origin::start(None).unwrap();
        let rules = format!("ProxyPass / ws://127.0.0.1:{}/\n", origin.port);
        let house = House::open(&configuration(model, &rules), &[]).unwrap();
        let mut stream = open(&house);
        echo(&mut stream, "one");
        let mut writer = stream.try_clone().unwrap();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|n| b'a' + (n % 7) as u8).collect();
        let expected = sent.to_ascii_uppercase();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        writing.join().unwrap();
        assert_eq!(received.split_off(expected.len()), b"END", "{model}");
        assert!(received == expected, "{model}");
        // What follows the head at once goes through, too.
        let mut stream = TcpStream::connect(house.address).unwrap();
        stream.write_all(format!("{SWITCH}early").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(read_to(&mut stream, "END").ends_with("\r\n\r\nhelloEARLYEND"), "{model}");
    }
}

#[test]
fn a_tunnel_goes_through_tls_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path()).unwrap();
    let config = server_config(folder.path(), "localhost", false).unwrap();
    let origin = Origin::start_tls(config).unwrap();
    let rules = format!("SSLProxyEngine on\nProxyPass / wss://localhost:{}/\n", origin.port);
    let house = House::open_tls(&configuration("event", &rules)).unwrap();
    let stream = TcpStream::connect(house.address).unwrap();
    let tls = Tls::parse("localhost").unwrap();
    let mut client = Stream::over(stream, &tls, folder.path()).unwrap();
    client.write_all(SWITCH.as_bytes()).unwrap();
    read_to(&mut client, "hello");
    let text = "abc".repeat(100_000);
    client.write_all(text.as_bytes()).unwrap();
    let mut received = vec![0; text.len()];
    client.read_exact(&mut received).unwrap();
    assert!(received == text.to_uppercase().into_bytes());
    client.half_close();
    assert_eq!(read_to(&mut client, "END"), "END");
}

#[test]
fn silence_ends_a_tunnel() {
    let origin = Origin::start(None).unwrap();
    let rules = format!("LogLevel info\nProxyPass / ws://127.0.0.1:{}/ timeout=1\n", origin.port);
    let house = House::open(&configuration("event", &rules), &[]).unwrap();
    let mut stream = open(&house);
    echo(&mut stream, "one");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "nothing is said at the end");
    wait_for("the line in the log", || house.error_log().contains("was broken off")).unwrap();
}

#[test]
fn tunnels_hold_no_worker_are_counted_and_outlive_a_reload() {
    let origin = Origin::start(None).unwrap();
    let rules = format!(
        "StartServers 1\nThreadsPerChild 2\nMaxRequestWorkers 2\n\
         <Location /status>\nSetHandler server-status\n</Location>\nProxyPass /status !\n\
         ProxyPass / ws://127.0.0.1:{}/\n",
        origin.port
    );
    let house = House::open(&configuration("event", &rules), &[]).unwrap();
    let mut tunnels: Vec<TcpStream> = (0..8).map(|_| open(&house)).collect();
    assert_eq!(figure(&house, "Tunnels"), 8);
    assert_eq!(figure(&house, "BusyWorkers"), 1, "the page itself");
    house.reload().unwrap();
    tunnels.iter_mut().for_each(|stream| echo(stream, "after"));
    let mut new = open(&house);
    echo(&mut new, "new");
    drop(tunnels.split_off(4));
    wait_for("their ends", || figure(&house, "Tunnels") == 5).unwrap();
    tunnels.iter_mut().for_each(|stream| echo(stream, "still"));
    drop((tunnels, new));
    wait_for("the other ends", || figure(&house, "Tunnels") == 0).unwrap();
}

#[test]
fn a_side_that_breaks_off_ends_the_other() {
    for model in ["event", "prefork"] {
        let origin = Origin::start(None).unwrap();
        let rules = format!("ProxyPass / ws://127.0.0.1:{}/\n", origin.port);
        let house = House::open(&configuration(model, &rules), &[]).unwrap();
        // The server goes: both of its directions end.
        let request = SWITCH.replace("echo", "close");
        let mut stream = TcpStream::connect(house.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        read_to(&mut stream, "hello");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "{model}");
        // The client goes: the server is told.
        let request = SWITCH.replace("echo", "hang");
        let mut stream = TcpStream::connect(house.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        read_to(&mut stream, "hello");
        drop(stream);
        wait_for("the end at the server", || origin.abandoned() == 1).unwrap();
    }
}
