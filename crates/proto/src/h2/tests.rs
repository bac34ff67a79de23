//! Dialogues with an engine: frames of a client in, events and frames out.

use super::frame::{
    ACK, END_HEADERS, END_STREAM, FrameHead, HAS_PRIORITY, PADDED, kind, number, write_ping,
    write_reset, write_window_update,
};
use super::*;
use evenkeel_message::{Fields, RequestHead, Response, Status};
use proptest::prelude::*;

/// A client, as its bytes are written.
#[derive(Default)]
struct Client {
    bytes: Vec<u8>,
}

type Field<'a> = (&'a str, &'a str);

const GET: [Field<'_>; 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
const POST: [Field<'_>; 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];

fn block(fields: &[Field<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.extend_from_slice(&[0, name.len() as u8]);
        out.extend_from_slice(name.as_bytes());
        let (value, mut length) = (value.as_bytes(), value.len());
        if length < 127 {
            out.push(length as u8);
        } else {
            out.push(127);
            length -= 127;
            while length >= 128 {
                out.push(length as u8 | 128);
                length >>= 7;
            }
            out.push(length as u8);
        }
        out.extend_from_slice(value);
    }
    out
}

impl Client {
    /// A client that has sent its preface and empty SETTINGS.
    fn new() -> Self {
        let mut client = Self { bytes: PREFACE.to_vec() };
        client.frame(kind::SETTINGS, 0, 0, b"");
        client
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Self {
        FrameHead { length: payload.len(), kind, flags, stream }.write(&mut self.bytes);
        self.bytes.extend_from_slice(payload);
        self
    }

    fn headers(&mut self, stream: u32, fields: &[Field<'_>], end: bool) -> &mut Self {
        let flags = END_HEADERS | if end { END_STREAM } else { 0 };
        self.frame(kind::HEADERS, flags, stream, &block(fields))
    }

    fn data(&mut self, stream: u32, bytes: &[u8], end: bool) -> &mut Self {
        self.frame(kind::DATA, if end { END_STREAM } else { 0 }, stream, bytes)
    }
}

/// An engine with what it has said.
struct Server {
    engine: Engine,
    now_ms: u64,
    out: Vec<u8>,
    events: Vec<String>,
}

impl Server {
    fn new() -> Self {
        Self::with(EngineSettings::default())
    }

    fn with(settings: EngineSettings) -> Self {
        let mut out = Vec::new();
        let engine = Engine::new(settings, 0, &mut out);
        out.clear();
        Self { engine, now_ms: 0, out, events: Vec::new() }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        let mut head = RequestHead::default();
        loop {
            let now_ms = self.now_ms;
            let Some(event) = self.engine.next(&mut bytes, now_ms, &mut head, &mut self.out) else {
                break;
            };
            let event = match event {
                Event::Head { stream, refusal } => {
                    let line = String::from_utf8_lossy(&head.line).into_owned();
                    let refused =
                        refusal.map_or(String::new(), |r| format!(" {}", r.status.code()));
                    format!("{stream} {line} {:?}{refused}", head.length)
                }
                Event::Data { stream, bytes, end } => {
                    let more = format!("{stream} data {}", String::from_utf8_lossy(bytes));
                    // Data is one event for the tests, however it was split.
                    let end = if end { "." } else { "" };
                    if let Some(last) = self.events.last_mut()
                        && last.starts_with(&format!("{stream} data "))
                        && !last.ends_with('.')
                    {
                        let rest = more.split_at(format!("{stream} data ").len()).1;
                        last.push_str(rest);
                        last.push_str(end);
                        continue;
                    }
                    format!("{more}{end}")
                }
                Event::Trailers { stream, fields } => format!("{stream} trailers {fields:?}"),
                Event::Reset { stream, code, fault } => {
                    format!("{stream} reset {} {}", code.name(), fault.unwrap_or("by the client"))
                }
                Event::Malformed { stream, fault } => format!("{stream} malformed {fault}"),
                Event::Failed(fault) => format!("failed {} {}", fault.code.name(), fault.text),
            };
            self.events.push(event);
        }
        assert!(bytes.is_empty());
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// The frames that were written, as texts.
    fn frames(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.out);
        let (mut rest, mut frames) = (&out[..], Vec::new());
        while let Some(head) = FrameHead::parse(rest) {
            let payload = &rest[FRAME_HEAD..FRAME_HEAD + head.length];
            rest = &rest[FRAME_HEAD + head.length..];
            let (stream, flags) = (head.stream, head.flags);
            frames.push(match head.kind {
                kind::DATA => format!("DATA {stream} {} {flags}", payload.len()),
                kind::HEADERS => format!("HEADERS {stream} {flags}"),
                kind::RST_STREAM => {
                    format!(
                        "RST_STREAM {stream} {}",
                        ErrorCode::of(number(payload).unwrap()).name()
                    )
                }
                kind::SETTINGS if head.has(ACK) => "SETTINGS ACK".to_owned(),
                kind::PING => format!("PING {flags}"),
                kind::GOAWAY => {
                    let (last, code) = (number(payload).unwrap(), number(&payload[4..]).unwrap());
                    format!("GOAWAY {last} {}", ErrorCode::of(code).name())
                }
                kind::WINDOW_UPDATE => {
                    format!("WINDOW_UPDATE {stream} {}", number(payload).unwrap())
                }
                other => format!("kind {other} {stream}"),
            });
        }
        assert!(rest.is_empty());
        frames
    }

    fn respond(&mut self, stream: u32, end: bool) {
        let date = crate::http_date(0);
        let frames = Frames { date: &date, server: b"", length: None, proxied: false, memo: None };
        let response = Response::new(Status::OK);
        self.engine.respond(stream, &response, &frames, end, &mut self.out);
    }

    /// Sends data as the windows allow; returns how much.
    fn send(&mut self, stream: u32, length: usize, end: bool) -> usize {
        let count = length.min(self.engine.writable(stream));
        self.engine.data(stream, count, end && count == length, &mut self.out);
        self.out.extend(std::iter::repeat_n(0, count));
        count
    }
}

/// The events of a client that sends all this.
fn events(client: &Client) -> Vec<String> {
    let mut server = Server::new();
    server.take(&client.bytes);
    server.told()
}

#[test]
fn a_request_is_served() {
    let mut client = Client::new();
    client.headers(1, &POST, false).data(1, b"ab", false).data(1, b"c", true);
    let mut server = Server::new();
    server.take(&client.bytes);
    assert_eq!(server.told(), ["1 POST / HTTP/2.0 Chunked", "1 data abc."]);
    assert_eq!(server.frames(), ["SETTINGS ACK"]);
    server.respond(1, false);
    assert_eq!(server.send(1, 5, true), 5);
    server.engine.release(1, &mut server.out);
    assert_eq!(server.frames(), ["HEADERS 1 4", "DATA 1 5 1"]);
    assert!(server.engine.has_no_streams() && !server.engine.is_over());
}

#[test]
fn trailers_end_a_request_and_a_response() {
    let mut client = Client::new();
    client.headers(1, &POST, false).data(1, b"a", false).headers(1, &[("x", "1")], true);
    let mut server = Server::new();
    server.take(&client.bytes);
    let told = server.told();
    assert_eq!(told[1], "1 data a");
    assert!(told[2].starts_with("1 trailers") && told[2].contains('X'), "{told:?}");
    server.frames();
    server.respond(1, false);
    let mut fields = Fields::new();
    fields.add("X", "1");
    server.engine.trailers(1, &fields, &mut server.out);
    assert_eq!(server.frames(), ["HEADERS 1 4", "HEADERS 1 5"]);
    let mut client = Client::new();
    client.headers(1, &POST, false).headers(1, &[("x", "1")], false);
    assert!(events(&client)[1].starts_with("1 reset PROTOCOL_ERROR"));
}

#[test]
fn a_length_that_is_not_kept_resets_the_stream() {
    let fields = [&POST[..], &[("content-length", "3")]].concat();
    for parts in [&["abcd"][..], &["ab", ""], &["ab", "cd"], &[""]] {
        let mut client = Client::new();
        client.headers(1, &fields, false);
        for (at, part) in parts.iter().enumerate() {
            client.data(1, part.as_bytes(), at + 1 == parts.len());
        }
        let told = events(&client);
        assert!(told.last().unwrap().starts_with("1 reset PROTOCOL_ERROR"), "{told:?}");
    }
    let mut client = Client::new();
    client.headers(1, &fields, false).data(1, b"abc", true);
    assert_eq!(events(&client)[1], "1 data abc.");
}

#[test]
fn faults_of_frames_end_the_connection() {
    let failed = |code: &str, write: &dyn Fn(&mut Client)| {
        let mut client = Client::new();
        write(&mut client);
        let told = events(&client);
        let last = told.last().unwrap_or_else(|| panic!("no event, not {code}"));
        assert!(last.starts_with(&format!("failed {code} ")), "{last} is not {code}");
    };
    failed("PROTOCOL_ERROR", &|c| {
        c.data(1, b"x", true);
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.headers(2, &GET, true);
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.headers(0, &GET, true);
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::PUSH_PROMISE, 0, 1, &[0; 4]);
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::CONTINUATION, 0, 1, b"");
    });
    failed("PROTOCOL_ERROR", &|c| write_reset(&mut c.bytes, 1, ErrorCode::Cancel));
    failed("PROTOCOL_ERROR", &|c| write_window_update(&mut c.bytes, 0, 0));
    failed("PROTOCOL_ERROR", &|c| write_window_update(&mut c.bytes, 1, 1));
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::PING, 0, 1, &[0; 8]);
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::SETTINGS, 0, 1, b"");
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::SETTINGS, 0, 0, b"\0\x02\0\0\0\x02");
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::SETTINGS, 0, 0, b"\0\x05\0\0\0\x02");
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::PRIORITY, 0, 0, &[0; 5]);
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::PRIORITY, 0, 1, b"\0\0\0\x01\0");
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.frame(kind::HEADERS, END_STREAM, 1, &block(&GET)).data(1, b"", true);
    });
    failed("PROTOCOL_ERROR", &|c| {
        c.headers(1, &POST, false).frame(kind::DATA, PADDED, 1, b"\x05abc");
    });
    failed("FRAME_SIZE_ERROR", &|c| {
        c.frame(kind::PING, 0, 0, &[0; 7]);
    });
    failed("FRAME_SIZE_ERROR", &|c| {
        c.frame(kind::SETTINGS, 0, 0, &[0; 5]);
    });
    failed("FRAME_SIZE_ERROR", &|c| {
        c.frame(kind::SETTINGS, ACK, 0, &[0; 6]);
    });
    failed("FRAME_SIZE_ERROR", &|c| {
        c.frame(kind::PRIORITY, 0, 1, &[0; 4]);
    });
    failed("FRAME_SIZE_ERROR", &|c| {
        c.frame(kind::GOAWAY, 0, 0, &[0; 4]);
    });
    failed("FRAME_SIZE_ERROR", &|c| {
        c.frame(99, 0, 0, &[0; 16_385]);
    });
    failed("FRAME_SIZE_ERROR", &|c| {
        c.frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]);
    });
    failed("FLOW_CONTROL_ERROR", &|c| write_window_update(&mut c.bytes, 0, 0x7fff_ffff));
    failed("FLOW_CONTROL_ERROR", &|c| {
        c.frame(kind::SETTINGS, 0, 0, b"\0\x04\xff\xff\xff\xff");
    });
    failed("COMPRESSION_ERROR", &|c| {
        c.frame(kind::HEADERS, 5, 1, b"\x80");
    });
    failed("STREAM_CLOSED", &|c| {
        c.headers(1, &POST, false);
        write_reset(&mut c.bytes, 1, ErrorCode::Cancel);
        c.data(1, b"x", true);
    });
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx"] {
        let mut server = Server::new();
        server.take(bytes);
        assert!(server.told()[0].starts_with("failed PROTOCOL_ERROR"));
        assert_eq!(server.frames(), ["GOAWAY 0 PROTOCOL_ERROR"]);
        server.take(b"more");
        assert!(server.told().is_empty(), "a connection that has failed takes nothing");
    }
    let mut server = Server::new();
    server.take(&[PREFACE.as_slice(), &[0, 0, 8, 6, 0, 0, 0, 0, 0], &[0; 8]].concat());
    assert!(server.told()[0].starts_with("failed PROTOCOL_ERROR"), "SETTINGS come first");
}

#[test]
fn faults_of_a_stream_leave_the_others() {
    let mut client = Client::new();
    client.headers(1, &GET, true).headers(3, &GET, true);
    client.data(1, b"x", true).headers(3, &[("x", "1")], true).headers(5, &GET[..2], true);
    client.headers(7, &POST, false);
    write_window_update(&mut client.bytes, 7, 0);
    client.headers(9, &GET, true);
    let mut server = Server::new();
    server.take(&client.bytes);
    let told = server.told();
    assert!(told[2].starts_with("1 reset STREAM_CLOSED"), "{told:?}");
    assert!(told[3].starts_with("3 reset STREAM_CLOSED"), "{told:?}");
    assert!(told[4].starts_with("5 malformed"), "{told:?}");
    assert!(told[6].starts_with("7 reset PROTOCOL_ERROR"), "{told:?}");
    assert_eq!(told[7], "9 GET / HTTP/2.0 None");
    // What the client sends before it knows of a reset is ignored, and its window comes back.
    let mut more = Client::default();
    more.data(7, &[0; 16_384], false).data(5, b"x", true).headers(7, &[("x", "1")], true);
    server.frames();
    server.take(&more.bytes);
    assert_eq!(server.told(), Vec::<String>::new());
    for stream in [1, 3, 7] {
        server.engine.release(stream, &mut server.out);
    }
    server.take(Client::default().data(7, b"x", true).bytes.as_slice());
    assert_eq!(server.told(), Vec::<String>::new());
    assert_eq!(server.frames(), Vec::<String>::new());
}

#[test]
fn frames_behind_the_end_of_a_stream_are_a_fault_unless_they_may_have_crossed() {
    let mut server = Server::new();
    server.take(&Client::new().headers(1, &GET, true).bytes);
    server.respond(1, true);
    server.engine.release(1, &mut server.out);
    let mut late = Client::default();
    write_reset(&mut late.bytes, 1, ErrorCode::Cancel);
    write_window_update(&mut late.bytes, 1, 1);
    late.frame(kind::PRIORITY, 0, 1, &[0; 5]);
    server.told();
    server.take(&late.bytes);
    assert_eq!(server.told(), Vec::<String>::new());
    server.take(&Client::default().headers(1, &GET, true).bytes);
    assert!(server.told()[0].starts_with("failed STREAM_CLOSED"));
}

#[test]
fn windows_are_given_back_as_bodies_are_read() {
    let mut server = Server::new();
    let mut client = Client::new();
    client.headers(1, &POST, false);
    for _ in 0..4 {
        client.data(1, &[0; 16_000], false);
    }
    server.take(&client.bytes);
    assert_eq!(server.frames(), ["SETTINGS ACK"]);
    server.engine.used(1, 32_000, &mut server.out);
    assert_eq!(server.frames(), Vec::<String>::new());
    server.engine.used(1, 32_000, &mut server.out);
    assert_eq!(server.frames(), ["WINDOW_UPDATE 1 64000"]);
    server.take(&Client::default().data(1, &[0; 1_536], false).bytes);
    server.told();
    // The window of the stream is 65,535 bytes, and 1,535 are left of the first one.
    for _ in 0..4 {
        server.take(&Client::default().data(1, &[0; 16_000], false).bytes);
    }
    assert!(server.told().last().unwrap().starts_with("1 reset FLOW_CONTROL_ERROR"));
}

#[test]
fn the_window_of_the_connection_comes_back_when_a_stream_ends_unread() {
    let mut server = Server::new();
    server.take(&Client::new().bytes);
    for stream in (1..200).step_by(2) {
        let mut client = Client::default();
        client.headers(stream, &POST, false);
        for _ in 0..4 {
            client.data(stream, &[0; 16_000], false);
        }
        server.take(&client.bytes);
        server.respond(stream, true);
        server.engine.release(stream, &mut server.out);
    }
    assert!(server.told().iter().all(|event| !event.starts_with("failed")));
    let frames = server.frames();
    assert!(frames.contains(&"RST_STREAM 1 NO_ERROR".to_owned()), "{frames:?}");
    let given: u32 = frames
        .iter()
        .filter_map(|frame| frame.strip_prefix("WINDOW_UPDATE 0 "))
        .map(|increment| increment.parse::<u32>().unwrap())
        .sum();
    assert!(given > 100 * 64_000 - (1 << 20), "{given}");
}

#[test]
fn padding_takes_and_gives_window() {
    let mut server = Server::new();
    let mut client = Client::new();
    client.headers(1, &POST, false);
    for _ in 0..1_000 {
        let padded = [&[255][..], &[b'a'; 256], &[0; 255]].concat();
        client.frame(kind::DATA, PADDED, 1, &padded);
    }
    for chunk in client.bytes.chunks(10_000) {
        server.take(chunk);
        server.engine.used(1, 10_000, &mut server.out);
    }
    let told = server.told();
    assert_eq!(told.len(), 2);
    assert_eq!(told[1].len(), "1 data ".len() + 256_000);
}

#[test]
fn data_is_sent_as_the_windows_allow() {
    let mut server = Server::new();
    let mut client = Client::new();
    client.frame(kind::SETTINGS, 0, 0, &[&[0, 4][..], &10_u32.to_be_bytes()].concat());
    client.headers(1, &GET, true).headers(3, &GET, true);
    server.take(&client.bytes);
    server.respond(1, false);
    assert_eq!(server.send(1, 100, true), 10);
    server.engine.set_ready(1, true);
    assert!(server.engine.is_stalled());
    let mut more = Client::default();
    write_window_update(&mut more.bytes, 1, 1_000_000);
    server.take(&more.bytes);
    assert_eq!(server.engine.next_writer(), Some((1, 16_375)));
    let sent: usize = (0..10).map(|_| server.send(1, 20_000, false)).sum();
    assert_eq!(sent, 65_525, "the window of the connection");
    // A smaller window for streams may make one negative.
    let mut more = Client::default();
    more.frame(kind::SETTINGS, 0, 0, &[&[0, 4][..], &0_u32.to_be_bytes()].concat());
    write_window_update(&mut more.bytes, 0, 1_000);
    server.take(&more.bytes);
    assert_eq!((server.engine.writable(1), server.engine.writable(3)), (1_000, 0));
    assert!(!server.told().iter().any(|event| event.starts_with("failed")));
}

#[test]
fn the_most_urgent_stream_sends_first() {
    let mut server = Server::new();
    let mut client = Client::new();
    let with = |priority| [&GET[..], &[("priority", priority)]].concat();
    client.headers(1, &GET, true).headers(3, &with("u=3, i"), true);
    client.headers(5, &with("u=3, i"), true).headers(7, &with("u=1"), true);
    client.frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x09u=0");
    client.headers(9, &GET, true).frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=5");
    server.take(&client.bytes);
    let mut order = Vec::new();
    for stream in [1, 3, 5, 7, 9] {
        server.respond(stream, false);
        server.engine.set_ready(stream, true);
    }
    let mut left = [0, 2, 0, 2, 0, 2, 0, 2, 0, 2];
    while let Some((stream, _)) = server.engine.next_writer() {
        let left = &mut left[stream as usize];
        *left -= 1;
        order.push(stream);
        server.send(stream, 100, *left == 0);
    }
    assert_eq!(order, [9, 9, 7, 7, 3, 5, 3, 5, 1, 1]);
}

#[test]
fn a_block_is_put_together_and_a_long_one_is_cut() {
    let block = block(&GET);
    let mut client = Client::new();
    client.frame(kind::HEADERS, END_STREAM, 1, &block[..5]);
    client.frame(kind::CONTINUATION, 0, 1, &block[5..9]);
    client.frame(kind::CONTINUATION, END_HEADERS, 1, &block[9..]);
    let padded = [&[2, 0, 0, 0, 9, 7][..], &block, b"\0\0"].concat();
    client.frame(kind::HEADERS, 5 | PADDED | HAS_PRIORITY, 3, &padded);
    let mut server = Server::new();
    server.take(&client.bytes);
    assert_eq!(server.told(), ["1 GET / HTTP/2.0 None", "3 GET / HTTP/2.0 None"]);
    server.frames();
    let mut fields = Fields::new();
    fields.add("x", [0xff_u8; 40_000]);
    server.respond(1, false);
    server.frames();
    server.engine.trailers(1, &fields, &mut server.out);
    let frames = server.frames();
    assert_eq!(frames, ["HEADERS 1 1", "kind 9 1", "kind 9 1"]);
}

#[test]
fn streams_beyond_the_most_are_refused() {
    let mut server = Server::with(EngineSettings { max_streams: 2, ..EngineSettings::default() });
    let mut client = Client::new();
    client.headers(1, &GET, true).headers(3, &GET, true).headers(5, &GET, true);
    server.take(&client.bytes);
    assert_eq!(server.told().len(), 2);
    assert_eq!(server.frames(), ["SETTINGS ACK", "RST_STREAM 5 REFUSED_STREAM"]);
    // A stream that was reset keeps its place until its request has ended here.
    let mut more = Client::default();
    write_reset(&mut more.bytes, 1, ErrorCode::Cancel);
    more.headers(7, &GET, true);
    server.take(&more.bytes);
    assert_eq!(server.frames(), ["RST_STREAM 7 REFUSED_STREAM"]);
    server.engine.release(1, &mut server.out);
    server.take(&Client::default().headers(9, &GET, true).bytes);
    assert_eq!(server.told(), ["1 reset CANCEL by the client", "9 GET / HTTP/2.0 None"]);
    // Heads may take 256 KiB together.
    let mut server = Server::new();
    let large = "a".repeat(8_000);
    let fields = [&GET[..], &[("x", large.as_str()); 2]].concat();
    let mut client = Client::new();
    for stream in (1..60).step_by(2) {
        client.headers(stream, &fields, true);
    }
    server.take(&client.bytes);
    assert_eq!(server.told().len(), 16);
}

/// How many frames a client gets away with before the connection ends.
fn frames_until_the_end(mut frame: impl FnMut(&mut Client, u32)) -> usize {
    let mut server = Server::new();
    server.take(&Client::new().headers(1, &POST, false).bytes);
    for number in 0..100_000_usize {
        let mut client = Client::default();
        frame(&mut client, number as u32 * 2 + 3);
        server.now_ms = number as u64 / 10;
        server.take(&client.bytes);
        if server.told().iter().any(|event| event.starts_with("failed ENHANCE_YOUR_CALM")) {
            assert!(server.frames().last().unwrap().starts_with("GOAWAY"));
            return number;
        }
        server.engine.release(number as u32 * 2 + 3, &mut server.out);
    }
    usize::MAX
}

#[test]
fn floods_end_within_a_thousand_frames() {
    let most = 1_000;
    let rapid_reset = frames_until_the_end(|client, stream| {
        client.headers(stream, &GET, true);
        write_reset(&mut client.bytes, stream, ErrorCode::Cancel);
    });
    assert!(rapid_reset < most, "{rapid_reset}");
    let made_you_reset = frames_until_the_end(|client, stream| {
        client.headers(stream, &GET, true);
        write_window_update(&mut client.bytes, stream, 0);
    });
    assert_eq!(made_you_reset, 8);
    let ping = frames_until_the_end(|client, _| write_ping(&mut client.bytes, 0, &[0; 8]));
    assert!(ping < most, "{ping}");
    for (kind, flags, stream, payload) in [
        (kind::SETTINGS, 0, 0, &b"\0\x04\0\0\0\x01"[..]),
        (kind::SETTINGS, ACK, 0, b""),
        (kind::PRIORITY, 0, 7, &[0; 5]),
        (kind::PRIORITY_UPDATE, 0, 0, b"\0\0\x01\x01u=1"),
        (77, 0, 0, b"x"),
        (kind::DATA, 0, 1, b""),
        (kind::DATA, 0, 1, b"a"),
        (kind::WINDOW_UPDATE, 0, 0, b"\0\0\0\x01"),
        (kind::WINDOW_UPDATE, 0, 1, b"\0\0\0\x01"),
        (kind::GOAWAY, 0, 0, &[0; 8]),
    ] {
        let frames = frames_until_the_end(|client, _| {
            client.frame(kind, flags, stream, payload);
        });
        assert!(frames < most, "kind {kind}: {frames}");
    }
    let malformed = frames_until_the_end(|client, stream| {
        client.headers(stream, &GET[..2], true);
    });
    assert_eq!(malformed, 8);
}

#[test]
fn header_blocks_are_bounded() {
    let mut server = Server::new();
    server.take(&Client::new().frame(kind::HEADERS, END_STREAM, 1, &block(&GET)).bytes);
    let mut frames = 0;
    while server.told().is_empty() {
        server.take(&Client::default().frame(kind::CONTINUATION, 0, 1, b"\x82").bytes);
        frames += 1;
    }
    assert_eq!(frames, 9);
    // A bomb: an entry of 4,000 bytes, and as many references to it as fit into a frame.
    let large = "a".repeat(4_000);
    let mut fields = block(&GET);
    let mut entry = block(&[("x", &large)]);
    entry[0] = 0x40;
    fields.extend_from_slice(&entry);
    fields.extend_from_slice(&[0xbe; 10_000]);
    let mut server = Server::new();
    server.take(&Client::new().frame(kind::HEADERS, 5, 1, &fields).bytes);
    assert!(server.told()[0].starts_with("failed ENHANCE_YOUR_CALM"));
    fields.truncate(fields.len() - 9_980);
    let mut server = Server::new();
    server.take(&Client::new().frame(kind::HEADERS, 5, 1, &fields).bytes);
    assert_eq!(server.told(), ["1 GET / HTTP/2.0 None 431"]);
}

#[test]
fn a_connection_ends_without_losing_a_stream() {
    let mut server = Server::new();
    server.take(&Client::new().headers(1, &GET, true).bytes);
    server.frames();
    server.engine.shut_down(0, &mut server.out);
    assert_eq!(server.frames(), ["GOAWAY 2147483647 NO_ERROR", "PING 0"]);
    assert_eq!(server.engine.tick(400, &mut server.out), Some(600));
    // A stream that crosses the announcement is served, one behind its answer is not.
    server.take(&Client::default().headers(3, &GET, true).bytes);
    let mut answer = Client::default();
    write_ping(&mut answer.bytes, ACK, b"evenkeel");
    answer.headers(5, &POST, false).data(5, b"x", true);
    server.take(&answer.bytes);
    assert_eq!(server.told(), ["1 GET / HTTP/2.0 None", "3 GET / HTTP/2.0 None"]);
    assert_eq!(server.frames(), ["GOAWAY 3 NO_ERROR"]);
    assert_eq!(server.engine.tick(2_000, &mut server.out), None);
    for stream in [1, 3] {
        assert!(!server.engine.is_over());
        server.respond(stream, true);
        server.engine.release(stream, &mut server.out);
    }
    assert!(server.engine.is_over() && !server.engine.has_failed());
    let mut silent = Server::new();
    silent.take(&Client::new().bytes);
    silent.frames();
    silent.engine.shut_down(0, &mut silent.out);
    assert_eq!(silent.engine.tick(1_000, &mut silent.out), None);
    assert_eq!(silent.frames().last().unwrap(), "GOAWAY 0 NO_ERROR");
    assert!(silent.engine.is_over());
}

#[test]
fn an_upgraded_connection_begins_with_a_stream() {
    let mut server = Server::new();
    let head = RequestHead::default();
    server.engine.upgrade(&head, &[&[0, 4][..], &20_u32.to_be_bytes()].concat()).unwrap();
    server.respond(1, false);
    assert_eq!(server.send(1, 100, true), 20);
    server.take(&Client::new().headers(3, &GET, true).bytes);
    assert_eq!(server.told(), ["3 GET / HTTP/2.0 None"]);
    assert!(Server::new().engine.upgrade(&head, b"abc").is_err());
    assert_eq!(settings_of_field(b"AAMAAABk").as_deref(), Some(&b"\0\x03\0\0\0d"[..]));
    assert_eq!(settings_of_field(b"AAMAAABkAA==").map(|it| it.len()), Some(7));
    assert_eq!(settings_of_field(b"a+b/"), None, "another alphabet");
}

#[test]
fn an_encoder_tells_that_it_needs_no_table() {
    let mut server = Server::new();
    let mut client = Client::new();
    client.frame(kind::SETTINGS, 0, 0, b"\0\x01\0\0\0\0");
    client.headers(1, &GET, true).headers(3, &GET, true);
    server.take(&client.bytes);
    server.out.clear();
    server.respond(1, true);
    server.respond(3, true);
    let first = server.out[FRAME_HEAD];
    let second = FrameHead::parse(&server.out).unwrap().length + FRAME_HEAD * 2;
    assert_eq!((first, server.out[second]), (0x20, 0x88));
}

#[test]
fn an_engine_at_rest_is_small() {
    let mut server = Server::new();
    let mut client = Client::new();
    let mut entry = block(&[("cookie", &"a".repeat(500))]);
    entry[0] = 0x40;
    let mut fields = block(&GET);
    fields.extend_from_slice(&entry);
    client.frame(kind::HEADERS, 5, 1, &fields);
    for byte in &client.bytes {
        server.take(std::slice::from_ref(byte));
    }
    server.respond(1, true);
    server.engine.release(1, &mut server.out);
    server.engine.pack();
    assert!(!server.engine.has_partial());
    assert!(server.engine.memory() < 1_600, "{}", server.engine.memory());
}

/// What clients send, well-formed or not.
fn dialogue() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(1_u32), Just(3), Just(5), Just(0), Just(2)];
    let fields = prop_oneof![
        Just(block(&GET)),
        Just(block(&POST)),
        Just(block(&[("x-trailer", "1")])),
        Just(block(&[("content-length", "3")])),
        Just(b"\x82\x84\x86\x41\x01a".to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    let frame = prop_oneof![
        4 => (stream.clone(), 0_u8..64, fields).prop_map(|(s, f, p)| (kind::HEADERS, f, s, p)),
        2 => (stream.clone(), 0_u8..16, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(s, f, p)| (kind::DATA, f, s, p)),
        1 => (stream.clone(), 0_u8..8, prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(s, f, p)| (kind::CONTINUATION, f, s, p)),
        2 => (stream, 2_u8..20, 0_u8..2, prop::collection::vec(any::<u8>(), 0..13))
            .prop_map(|(s, k, f, p)| (k, f, s, p)),
    ];
    prop::collection::vec(frame, 0..12).prop_map(|frames| {
        let mut client = Client::new();
        for (kind, flags, stream, payload) in frames {
            client.frame(kind, flags, stream, &payload);
        }
        client.bytes
    })
}

proptest! {
    #[test]
    fn splitting_changes_nothing(
        bytes in dialogue(),
        cuts in prop::collection::vec(1_usize..30, 1..9),
    ) {
        let mut whole = Server::new();
        whole.take(&bytes);
        let (mut split, mut rest) = (Server::new(), &bytes[..]);
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            split.take(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(whole.told(), split.told());
        prop_assert_eq!(whole.frames(), split.frames());
    }
}
