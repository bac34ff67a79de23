//! The order of filters.

/// The position of a filter among those of a response, which goes through them in ascending order
/// (Apache: ap_filter_type).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterPosition(u8);

impl FilterPosition {
    /// Filters that change the content (AP_FTYPE_RESOURCE).
    pub const RESOURCE: Self = Self(10);
    /// Filters that change how the content is encoded (AP_FTYPE_CONTENT_SET).
    pub const CONTENT_SET: Self = Self(20);
    /// Filters of the protocol (AP_FTYPE_PROTOCOL).
    pub const PROTOCOL: Self = Self(30);
    /// Filters that encode a whole message (AP_FTYPE_TRANSCODE).
    pub const TRANSCODE: Self = Self(40);
    /// Filters of the connection (AP_FTYPE_CONNECTION).
    pub const CONNECTION: Self = Self(50);
    /// Filters that write to the network (AP_FTYPE_NETWORK).
    pub const NETWORK: Self = Self(60);

    /// The position with this number (ExtFilterDefine's ftype).
    #[must_use]
    pub const fn numbered(number: u8) -> Self {
        Self(number)
    }

    /// The position just before this one.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}
