//! Sends frames to an engine of HTTP/2, as a whole and in pieces, which must give the same events
//! and the same answers. The first byte of the input chooses the size of the pieces and whether the
//! server shuts the connection down; each frame of the input is: its kind, its flags, its stream,
//! the length of its payload, and the payload.

use evenkeel_message::{RequestHead, Response, Status};
use evenkeel_proto::h2::{Engine, EngineSettings, Event, Frames, PREFACE};
use evenkeel_proto::http_date;

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let bytes = frames(rest);
    let piece = usize::from(choice % 32) + 1;
    let whole = serve(&bytes, bytes.len(), choice & 32 != 0);
    let parted = serve(&bytes, piece, choice & 32 != 0);
    assert_eq!(whole, parted);
}

/// The frames of a client behind its preface and empty SETTINGS.
fn frames(mut rest: &[u8]) -> Vec<u8> {
    let mut bytes = [PREFACE.as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    while let Some(([kind, flags, stream, length], payload)) = rest.split_first_chunk() {
        let payload = &payload[..usize::from(*length).min(payload.len())];
        bytes.extend_from_slice(&[0, 0, payload.len() as u8, kind % 18, *flags, 0, 0, 0]);
        bytes.push(stream % 16);
        bytes.extend_from_slice(payload);
        rest = &rest[4 + payload.len()..];
    }
    bytes
}

/// What is said to a client that sends these bytes in pieces.
fn serve(mut bytes: &[u8], piece: usize, ends: bool) -> (Vec<String>, Vec<u8>) {
    let settings = EngineSettings { max_streams: 4, ..EngineSettings::default() };
    let (mut events, mut out, mut data): (Vec<String>, _, usize) = (Vec::new(), Vec::new(), 0);
    let mut engine = Engine::new(settings, 0, &mut out);
    let (mut head, mut open) = (RequestHead::default(), Vec::new());
    if ends {
        engine.shut_down(0, &mut out);
    }
    while !bytes.is_empty() {
        let (mut now, later) = bytes.split_at(piece.min(bytes.len()));
        bytes = later;
        while let Some(event) = engine.next(&mut now, 0, &mut head, &mut out) {
            match event {
                Event::Head { stream, refusal } => {
                    assert!(head.line.ends_with(b" HTTP/2.0"));
                    assert!(head.memory() < 128 << 10);
                    open.push(stream);
                    assert!(open.len() <= 4);
                    events.push(format!("{stream} {:?} {}", head.line, refusal.is_some()));
                }
                Event::Data { stream, bytes, end } => {
                    assert!(open.contains(&stream));
                    data += bytes.len() + usize::from(end);
                    engine.used(stream, bytes.len(), &mut out);
                }
                Event::Trailers { stream, fields } => events.push(format!("{stream} {fields:?}")),
                Event::Reset { stream, .. } => {
                    assert!(open.contains(&stream) && !engine.is_open(stream));
                    events.push(format!("{stream} reset"));
                    open.retain(|other| *other != stream);
                    engine.release(stream, &mut out);
                }
                Event::Malformed { stream, .. } => events.push(format!("{stream} malformed")),
                Event::Failed(fault) => events.push(format!("{fault:?}")),
            }
        }
        assert!(now.is_empty());
        assert!(engine.memory() < 64 << 10);
    }
    events.push(format!("{data} bytes"));
    let date = http_date(0);
    let frames = Frames { date: &date, server: b"", length: None, proxied: false, memo: None };
    for stream in open {
        if engine.respond(stream, &Response::new(Status::OK), &frames, false, &mut out) {
            let count = engine.writable(stream);
            engine.data(stream, count, true, &mut out);
            out.resize(out.len() + count, 0);
        }
        engine.release(stream, &mut out);
    }
    assert!(engine.has_no_streams());
    (events, out)
}
