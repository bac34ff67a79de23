//! What the configuration says about the reading of a request: its limits and how strictly the
//! syntax is held to.

/// The limits on a request's head (LimitRequestLine, LimitRequestFieldSize,
/// LimitRequestFields); they bound the trailer fields too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request line. As in Apache, one byte more than this still passes.
    pub line: usize,
    /// Bytes of one field, name and value; again one more passes.
    pub field_size: usize,
    /// Number of fields; 0 sets no limit.
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
    /// `Strict`, else `Unsafe`.
    pub strict: bool,
    /// `RegisteredMethods`, else `LenientMethods`.
    pub registered_methods: bool,
    /// `Allow0.9`, else `Require1.0`.
    pub allow_http09: bool,
}

impl Default for HttpProtocolOptions {
    fn default() -> Self {
        Self { strict: true, registered_methods: false, allow_http09: true }
    }
}
