//! Frames: their heads, their kinds, and the encoders of those that have no fields (RFC 9113,
//! sections 4 and 6).

/// The connection preface of a client (RFC 9113, section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of the head of a frame.
pub const FRAME_HEAD: usize = 9;

/// The maximum payload of a client's frame: the server's SETTINGS leave the default.
pub(crate) const MOST_PAYLOAD: usize = 16_384;

/// The kinds of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    /// RFC 9218, section 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const HAS_PRIORITY: u8 = 32;

/// Why a stream or a connection ends (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the RFC")]
pub enum ErrorCode {
    NoError,
    ProtocolError,
    InternalError,
    FlowControlError,
    SettingsTimeout,
    StreamClosed,
    FrameSizeError,
    RefusedStream,
    Cancel,
    CompressionError,
    ConnectError,
    EnhanceYourCalm,
    InadequateSecurity,
    Http11Required,
    /// A code that the RFC does not name.
    Other(u32),
}

const CODES: [(ErrorCode, &str); 14] = [
    (ErrorCode::NoError, "NO_ERROR"),
    (ErrorCode::ProtocolError, "PROTOCOL_ERROR"),
    (ErrorCode::InternalError, "INTERNAL_ERROR"),
    (ErrorCode::FlowControlError, "FLOW_CONTROL_ERROR"),
    (ErrorCode::SettingsTimeout, "SETTINGS_TIMEOUT"),
    (ErrorCode::StreamClosed, "STREAM_CLOSED"),
    (ErrorCode::FrameSizeError, "FRAME_SIZE_ERROR"),
    (ErrorCode::RefusedStream, "REFUSED_STREAM"),
    (ErrorCode::Cancel, "CANCEL"),
    (ErrorCode::CompressionError, "COMPRESSION_ERROR"),
    (ErrorCode::ConnectError, "CONNECT_ERROR"),
    (ErrorCode::EnhanceYourCalm, "ENHANCE_YOUR_CALM"),
    (ErrorCode::InadequateSecurity, "INADEQUATE_SECURITY"),
    (ErrorCode::Http11Required, "HTTP_1_1_REQUIRED"),
];

impl ErrorCode {
    /// The code as its number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            ErrorCode::Other(number) => number,
            code => CODES.iter().zip(0..).find(|((known, _), _)| *known == code).map_or(2, |c| c.1),
        }
    }

    /// The code of a number.
    #[must_use]
    pub fn of(number: u32) -> Self {
        let known = usize::try_from(number).ok().and_then(|at| CODES.get(at));
        known.map_or(ErrorCode::Other(number), |(code, _)| *code)
    }

    /// The name of the code.
    #[must_use]
    pub fn name(self) -> &'static str {
        CODES.iter().find(|(known, _)| *known == self).map_or("an unknown error", |(_, name)| name)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    /// The head at the front of `bytes`, if it is whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<FRAME_HEAD>()?;
        Some(Self {
            length: u32::from_be_bytes([0, *a, *b, *c]) as usize,
            kind: *kind,
            flags: *flags,
            // The first bit is reserved and ignored.
            stream: u32::from_be_bytes(*stream) & 0x7fff_ffff,
        })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn bytes(self) -> [u8; FRAME_HEAD] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Appends the head.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    /// Writes the head over the bytes that were reserved for it at `start`.
    pub(crate) fn write_at(self, out: &mut [u8], start: usize) {
        if let Some(place) = out.get_mut(start..start + FRAME_HEAD) {
            place.copy_from_slice(&self.bytes());
        }
    }
}

/// The first four bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

pub(crate) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let length = settings.len() * 6;
    FrameHead { length, kind: kind::SETTINGS, flags: 0, stream: 0 }.write(out);
    for (setting, value) in settings {
        out.extend_from_slice(&setting.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn write_settings_ack(out: &mut Vec<u8>) {
    FrameHead { length: 0, kind: kind::SETTINGS, flags: ACK, stream: 0 }.write(out);
}

pub(crate) fn write_ping(out: &mut Vec<u8>, flags: u8, payload: &[u8]) {
    FrameHead { length: payload.len(), kind: kind::PING, flags, stream: 0 }.write(out);
    out.extend_from_slice(payload);
}

pub(crate) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    FrameHead { length: 4, kind: kind::WINDOW_UPDATE, flags: 0, stream }.write(out);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(crate) fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    FrameHead { length: 4, kind: kind::RST_STREAM, flags: 0, stream }.write(out);
    out.extend_from_slice(&code.number().to_be_bytes());
}

pub(crate) fn write_goaway(out: &mut Vec<u8>, last: u32, code: ErrorCode, text: &str) {
    FrameHead { length: 8 + text.len(), kind: kind::GOAWAY, flags: 0, stream: 0 }.write(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.number().to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = FrameHead { length: 0x01_02_03, kind: 1, flags: 5, stream: 0x7fff_fffe };
        let mut out = Vec::new();
        head.write(&mut out);
        assert_eq!(out, b"\x01\x02\x03\x01\x05\x7f\xff\xff\xfe");
        assert_eq!(FrameHead::parse(&out), Some(head));
        out[5] |= 0x80;
        assert_eq!(FrameHead::parse(&out), Some(head), "the reserved bit does not count");
        assert_eq!(FrameHead::parse(&out[..8]), None);
    }

    #[test]
    fn codes_have_the_numbers_of_the_rfc() {
        for (code, number) in [
            (ErrorCode::NoError, 0),
            (ErrorCode::StreamClosed, 5),
            (ErrorCode::EnhanceYourCalm, 11),
            (ErrorCode::Http11Required, 13),
            (ErrorCode::Other(99), 99),
        ] {
            assert_eq!((code.number(), ErrorCode::of(number)), (number, code));
        }
    }
}
