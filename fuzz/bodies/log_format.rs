//! Compiles the first line of the input as a log format and uses the rest as what a client sent.
//! Any format compiles or is refused. Whatever the client sent, a line of a fixed format is one
//! line of printable ASCII.

use evenkeel_logging::{ErrorFormat, ErrorFormatKind, LineFormat, LoggedExchange};
use evenkeel_message::{
    AllowEncodedSlashes, FileName, Peer, Request, RequestHead, Response, Status, Told, Transfer,
    UriOptions, UrlPath,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const FIXED: &str = "%h %u %U %q %m %r %f %{N}i %{Cookie}i %{c}C %{e}e %{n}n %{N}o %{N}^ti %R %V";

pub fn run(data: &[u8]) {
    let (format, client) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &b""[..]),
    };
    let format = String::from_utf8_lossy(format);
    for kind in [ErrorFormatKind::Main, ErrorFormatKind::Connection, ErrorFormatKind::Request] {
        let _ = ErrorFormat::compile(kind, &format);
    }
    let peer = Peer {
        client: "192.0.2.1:4000".parse().unwrap(),
        local: "[2001:db8::1]:80".parse().unwrap(),
    };
    let mut request = request(client, peer);
    request.told = Told { connection: true, request: true };
    let mut response = Response::new(Status::OK);
    response.fields.add("N", client);
    response.trailers.add("N", client);
    let transfer = Transfer { duration_us: client.len() as u64, ..Transfer::default() };
    let exchange = LoggedExchange {
        request: &request,
        response: &response,
        transfer: &transfer,
        server_name: client,
        used_name: client,
        server_port: 80,
        remote_host: Some(client),
        content_length: Some(700),
        keep_alive: true,
        keep_alive_told: None,
        chunked: false,
        track_first_byte: true,
    };
    let mut line = Vec::new();
    if let Ok(compiled) = LineFormat::compile(&format) {
        compiled.write(&exchange, &mut line);
        assert!(line.ends_with(b"\n"), "a line has an end");
    }
    line.clear();
    LineFormat::compile(FIXED).unwrap().write(&exchange, &mut line);
    let (end, text) = line.split_last().unwrap();
    assert_eq!(*end, b'\n');
    assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)), "only printable ASCII");
}

fn request(client: &[u8], peer: Peer) -> Request {
    let target = client.iter().position(|byte| *byte == b' ').unwrap_or(client.len());
    let mut head = RequestHead {
        line: client.to_vec(),
        method_end: client.len().min(3),
        target: (target, client.len()),
        ..RequestHead::default()
    };
    for name in ["N", "n", "Cookie", "Referer"] {
        head.fields.add(name, client);
    }
    let time_us = client.iter().fold(0, |time: u64, byte| time << 8 ^ u64::from(*byte));
    let mut request = Request::new(head, peer, time_us);
    request.trailers.add("N", client);
    // The path is the decoded form of an escaped text.
    let escaped: String = client.iter().map(|byte| format!("%{byte:02x}")).collect();
    let options = UriOptions { encoded_slashes: AllowEncodedSlashes::On, merge_slashes: false };
    let path = UrlPath::parse(format!("/{escaped}").as_bytes(), options);
    request.resource.path = path.unwrap_or_default();
    request.resource.query = Some(client.to_vec());
    request.resource.file = FileName::new(OsStr::from_bytes(client));
    request.resource.user = Some(client.into());
    request.resource.env.set("e", client);
    request.resource.notes.set("n", client);
    request.resource.content.handler = Some(client.into());
    request
}
