//! The directives about parsing a request: its limits, and how strictly the syntax is checked.

/// The limits on the head of a request (LimitRequestLine, LimitRequestFieldSize,
/// LimitRequestFields), which also bound the trailer fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of the request line. As in Apache, one byte more still passes.
    pub line: usize,
    /// The bytes of one field, name and value; again one more passes.
    pub field_size: usize,
    /// The number of fields; 0 means no limit.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line: 8190, field_size: 8190, fields: 100 }
    }
}

/// The directive HttpProtocolOptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpProtocolOptions {
    /// `Strict`; otherwise `Unsafe`.
    pub strict: bool,
    /// `RegisteredMethods`; otherwise `LenientMethods`.
    pub registered_methods: bool,
    /// `Allow0.9`; otherwise `Require1.0`.
    pub allow_http09: bool,
}

impl Default for HttpProtocolOptions {
    fn default() -> Self {
        Self { strict: true, registered_methods: false, allow_http09: true }
    }
}
