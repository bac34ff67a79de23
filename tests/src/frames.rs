//! A client of HTTP/2 that writes what it is told to, well-formed or not, and reads the frames that
//! come back.

use evenkeel_message::Name;
use evenkeel_proto::h2::{Decoder, Encoder, FRAME_HEAD, PREFACE};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The kinds of frames.
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
    /// RST_STREAM.
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 4;
    /// PING.
    pub const PING: u8 = 6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 7;
    /// WINDOW_UPDATE.
    pub const WINDOW_UPDATE: u8 = 8;
    /// CONTINUATION.
    pub const CONTINUATION: u8 = 9;
}

/// Ends a stream.
pub const END_STREAM: u8 = 1;

/// Ends a header block.
pub const END_HEADERS: u8 = 4;

/// The frame was received.
pub const ACK: u8 = 1;

/// A frame of the server.
#[derive(Debug)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The first four bytes of the payload from `at` on, as a number.
    #[must_use]
    pub fn number(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes))
    }
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    decoder: Decoder,
}

/// The fields of a plain request.
#[must_use]
pub fn get(path: &str) -> Vec<(&str, &str)> {
    vec![(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
}

/// Fields as a header block. Pseudo-fields have no place in the server's encoder.
#[must_use]
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        let known = if name.starts_with(':') { Name::Other } else { Name::of(name.as_bytes()) };
        Encoder::new(&mut out).field(known, name.as_bytes(), value.as_bytes());
    }
    out
}

impl Client {
    /// Connects, and sends the preface and SETTINGS with this payload.
    pub fn connect(address: SocketAddr, settings: &[u8]) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        let mut client = Self { stream, decoder: Decoder::new() };
        client.stream.write_all(PREFACE)?;
        client.send(kind::SETTINGS, 0, 0, settings)?;
        Ok(client)
    }

    /// Sends a frame.
    pub fn send(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        let [d, e, f, g] = stream.to_be_bytes();
        let head = [a, b, c, kind, flags, d, e, f, g];
        self.stream.write_all(&[&head, payload].concat())
    }

    /// Sends a request without a body.
    pub fn ask(&mut self, stream: u32, fields: &[(&str, &str)]) -> std::io::Result<()> {
        self.send(kind::HEADERS, END_STREAM | END_HEADERS, stream, &block(fields))
    }

    /// The next frame; none at the end of the connection.
    pub fn read_frame(&mut self) -> Option<Frame> {
        let mut head = [0; FRAME_HEAD];
        self.stream.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The status in a HEADERS frame.
    pub fn status(&mut self, frame: &Frame) -> u16 {
        let mut status = 0;
        let decoded = self.decoder.decode(&frame.payload, |name, value| {
            if name == b":status" {
                status =
                    std::str::from_utf8(value).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
            }
            true
        });
        if decoded.is_ok() { status } else { 0 }
    }

    /// Reads the response on a stream to its end: the status and the length of its body.
    pub fn response(&mut self, stream: u32) -> Option<(u16, usize)> {
        let (mut status, mut length) = (0, 0);
        loop {
            let frame = self.read_frame()?;
            if frame.stream != stream {
                continue;
            }
            match frame.kind {
                kind::HEADERS if status < 200 => status = self.status(&frame),
                kind::DATA => {
                    length += frame.payload.len();
                    let increment = (frame.payload.len() as u32).to_be_bytes();
                    if !frame.payload.is_empty() {
                        self.send(kind::WINDOW_UPDATE, 0, 0, &increment).ok()?;
                        self.send(kind::WINDOW_UPDATE, 0, stream, &increment).ok()?;
                    }
                }
                kind::RST_STREAM => return None,
                _ => {}
            }
            if frame.flags & END_STREAM != 0 && matches!(frame.kind, kind::DATA | kind::HEADERS) {
                return Some((status, length));
            }
        }
    }

    /// Reads the response on a stream to its end: each status, the body, and how it ends. A body is
    /// acknowledged to neither window.
    pub fn transcript(&mut self, stream: u32) -> String {
        let (mut text, mut body) = (String::new(), Vec::new());
        loop {
            let Some(frame) = self.read_frame() else { return format!("{text}closed") };
            match frame.kind {
                kind::HEADERS if frame.stream == stream => {
                    text.push_str(&format!("{} ", self.status(&frame)));
                }
                kind::DATA if frame.stream == stream => body.extend_from_slice(&frame.payload),
                kind::RST_STREAM if frame.stream == stream => {
                    return format!("{text}reset {}", frame.number(0));
                }
                kind::GOAWAY => return format!("{text}goaway {}", frame.number(4)),
                _ => continue,
            }
            if frame.flags & END_STREAM != 0 {
                return format!("{text}{:?}", String::from_utf8_lossy(&body));
            }
        }
    }

    /// Reads up to the GOAWAY that ends the connection, and returns its code.
    pub fn goaway(&mut self) -> Option<u32> {
        loop {
            let frame = self.read_frame()?;
            if frame.kind == kind::GOAWAY {
                return Some(frame.number(4));
            }
        }
    }
}
