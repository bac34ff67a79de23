//! The configuration of an engine, and the client's SETTINGS (RFC 9113, section 6.5).

use super::flow;
use super::frame::ErrorCode;
use crate::{HttpProtocolOptions, Limits};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The settings of a server for its HTTP/2 connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// The maximum number of open streams (H2MaxSessionStreams).
    pub max_streams: u32,
    /// The maximum number of unread bytes of a request body (H2WindowSize).
    pub window: u32,
    /// The maximum number of unread bytes of all request bodies of a connection.
    pub connection_window: u32,
    /// The maximum size of the fields of a request, as RFC 7541 counts it.
    pub header_list: usize,
    /// The number of malformed streams that a connection survives (H2MaxStreamErrors).
    pub max_stream_errors: u32,
    /// The maximum payload of a DATA frame that the server sends (H2MaxDataFrameLen).
    pub data_frame: usize,
    /// The maximum size of a header block that the server sends (H2MaxHeaderBlockLen).
    pub header_block: usize,
    /// LimitRequestLine, LimitRequestFieldSize, LimitRequestFields.
    pub limits: Limits,
    /// HttpProtocolOptions.
    pub options: HttpProtocolOptions,
    /// Whether the connection is secured by TLS.
    pub is_secure: bool,
}

/// The payload of a DATA frame that fills one TLS record together with its frame head.
pub const DATA_FRAME: usize = 16_384 - super::frame::FRAME_HEAD;

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            max_streams: 100,
            window: flow::INITIAL,
            connection_window: 1 << 20,
            header_list: 64 << 10,
            max_stream_errors: 8,
            data_frame: DATA_FRAME,
            header_block: usize::MAX,
            limits: Limits::default(),
            options: HttpProtocolOptions::default(),
            is_secure: false,
        }
    }
}

impl EngineSettings {
    /// The SETTINGS that differ from the defaults of the RFC.
    pub(crate) fn told(&self) -> [(u16, u32); 4] {
        [
            (MAX_CONCURRENT_STREAMS, self.max_streams),
            (INITIAL_WINDOW_SIZE, self.window),
            (MAX_HEADER_LIST_SIZE, u32::try_from(self.header_list).unwrap_or(u32::MAX)),
            (NO_RFC7540_PRIORITIES, 1),
        ]
    }
}

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const NO_RFC7540_PRIORITIES: u16 = 9;

/// The payload of a SETTINGS frame in a field HTTP2-Settings (RFC 7540, section 3.2.1).
#[must_use]
pub fn settings_of_field(value: &[u8]) -> Option<Vec<u8>> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&URL_SAFE, config).decode(value).ok()
}

/// The client's SETTINGS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSettings {
    /// The initial window of a stream.
    pub(crate) window: u32,
    pub(crate) frame_size: usize,
    /// Whether the client has reduced the size of the dynamic table. The next header block must
    /// begin with a size update (RFC 7541, section 4.2).
    pub(crate) owes_table_size: bool,
    has_dropped_table: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            window: flow::INITIAL,
            frame_size: 16_384,
            owes_table_size: false,
            has_dropped_table: false,
        }
    }
}

impl PeerSettings {
    /// Reads the payload of a SETTINGS frame.
    pub(crate) fn read(&mut self, payload: &[u8]) -> Result<(), (ErrorCode, &'static str)> {
        let (settings, _) = payload.as_chunks::<6>();
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                HEADER_TABLE_SIZE if value < 4096 && !self.has_dropped_table => {
                    (self.owes_table_size, self.has_dropped_table) = (true, true);
                }
                ENABLE_PUSH if value > 1 => {
                    return Err((ErrorCode::ProtocolError, "ENABLE_PUSH is neither 0 nor 1"));
                }
                INITIAL_WINDOW_SIZE if i64::from(value) > flow::MOST => {
                    let text = "INITIAL_WINDOW_SIZE is too large";
                    return Err((ErrorCode::FlowControlError, text));
                }
                INITIAL_WINDOW_SIZE => self.window = value,
                MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                    return Err((ErrorCode::ProtocolError, "MAX_FRAME_SIZE is out of range"));
                }
                MAX_FRAME_SIZE => self.frame_size = value as usize,
                NO_RFC7540_PRIORITIES if value > 1 => {
                    let text = "NO_RFC7540_PRIORITIES is neither 0 nor 1";
                    return Err((ErrorCode::ProtocolError, text));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
