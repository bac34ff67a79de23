//! Status codes with Apache's reason phrases (http_protocol.c's table). Some phrases are older than
//! those of RFC 9110, but scripts compare them.

/// A status code from 100 to 999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal),+ $(,)?) => {
        #[allow(missing_docs)]
        impl Status {
            $(#[doc = $reason] pub const $name: Status = Status($code);)+

            /// The reason phrase, or none for a code that is not in the table.
            #[must_use]
            pub const fn reason(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($reason),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    CONTINUE = 100 "Continue",
    SWITCHING_PROTOCOLS = 101 "Switching Protocols",
    PROCESSING = 102 "Processing",
    OK = 200 "OK",
    CREATED = 201 "Created",
    ACCEPTED = 202 "Accepted",
    NON_AUTHORITATIVE = 203 "Non-Authoritative Information",
    NO_CONTENT = 204 "No Content",
    RESET_CONTENT = 205 "Reset Content",
    PARTIAL_CONTENT = 206 "Partial Content",
    MULTI_STATUS = 207 "Multi-Status",
    ALREADY_REPORTED = 208 "Already Reported",
    IM_USED = 226 "IM Used",
    MULTIPLE_CHOICES = 300 "Multiple Choices",
    MOVED_PERMANENTLY = 301 "Moved Permanently",
    FOUND = 302 "Found",
    SEE_OTHER = 303 "See Other",
    NOT_MODIFIED = 304 "Not Modified",
    USE_PROXY = 305 "Use Proxy",
    TEMPORARY_REDIRECT = 307 "Temporary Redirect",
    PERMANENT_REDIRECT = 308 "Permanent Redirect",
    BAD_REQUEST = 400 "Bad Request",
    UNAUTHORIZED = 401 "Unauthorized",
    PAYMENT_REQUIRED = 402 "Payment Required",
    FORBIDDEN = 403 "Forbidden",
    NOT_FOUND = 404 "Not Found",
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed",
    NOT_ACCEPTABLE = 406 "Not Acceptable",
    PROXY_AUTHENTICATION_REQUIRED = 407 "Proxy Authentication Required",
    REQUEST_TIMEOUT = 408 "Request Timeout",
    CONFLICT = 409 "Conflict",
    GONE = 410 "Gone",
    LENGTH_REQUIRED = 411 "Length Required",
    PRECONDITION_FAILED = 412 "Precondition Failed",
    CONTENT_TOO_LARGE = 413 "Request Entity Too Large",
    URI_TOO_LONG = 414 "Request-URI Too Long",
    UNSUPPORTED_MEDIA_TYPE = 415 "Unsupported Media Type",
    RANGE_NOT_SATISFIABLE = 416 "Requested Range Not Satisfiable",
    EXPECTATION_FAILED = 417 "Expectation Failed",
    IM_A_TEAPOT = 418 "I'm A Teapot",
    MISDIRECTED_REQUEST = 421 "Misdirected Request",
    UNPROCESSABLE_CONTENT = 422 "Unprocessable Entity",
    LOCKED = 423 "Locked",
    FAILED_DEPENDENCY = 424 "Failed Dependency",
    TOO_EARLY = 425 "Too Early",
    UPGRADE_REQUIRED = 426 "Upgrade Required",
    PRECONDITION_REQUIRED = 428 "Precondition Required",
    TOO_MANY_REQUESTS = 429 "Too Many Requests",
    HEADER_FIELDS_TOO_LARGE = 431 "Request Header Fields Too Large",
    UNAVAILABLE_FOR_LEGAL_REASONS = 451 "Unavailable For Legal Reasons",
    INTERNAL_SERVER_ERROR = 500 "Internal Server Error",
    NOT_IMPLEMENTED = 501 "Not Implemented",
    BAD_GATEWAY = 502 "Bad Gateway",
    SERVICE_UNAVAILABLE = 503 "Service Unavailable",
    GATEWAY_TIMEOUT = 504 "Gateway Timeout",
    VERSION_NOT_SUPPORTED = 505 "HTTP Version Not Supported",
    VARIANT_ALSO_NEGOTIATES = 506 "Variant Also Negotiates",
    INSUFFICIENT_STORAGE = 507 "Insufficient Storage",
    LOOP_DETECTED = 508 "Loop Detected",
    NOT_EXTENDED = 510 "Not Extended",
    NETWORK_AUTHENTICATION_REQUIRED = 511 "Network Authentication Required",
}

impl Status {
    /// The status with that code; none unless the code is from 100 to 999.
    #[must_use]
    pub const fn new(code: u16) -> Option<Status> {
        if code >= 100 && code <= 999 { Some(Status(code)) } else { None }
    }

    /// The status of a final response with that code, from 200 to 599 (RFC 9110, section 15). After
    /// a status of 1xx the client waits for the final response, and would take the next response on
    /// the connection for it.
    #[must_use]
    pub const fn new_final(code: u16) -> Option<Status> {
        if code >= 200 && code <= 599 { Some(Status(code)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// 1xx.
    #[must_use]
    pub const fn is_informational(self) -> bool {
        self.0 < 200
    }

    /// 2xx.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >= 200 && self.0 < 300
    }

    /// 3xx.
    #[must_use]
    pub const fn is_redirect(self) -> bool {
        self.0 >= 300 && self.0 < 400
    }

    /// 4xx and 5xx.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 400
    }

    /// Whether a response with this status never has content (RFC 9110, section 6.4.1).
    #[must_use]
    pub const fn is_bodiless(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }

    /// Whether the connection ends after this status, because what follows on it cannot be trusted
    /// (Apache: `ap_status_drops_connection`).
    #[must_use]
    pub const fn drops_connection(self) -> bool {
        matches!(self.0, 400 | 408 | 411 | 413 | 414 | 500 | 501 | 503)
    }

    /// `404 Not Found`. A code that is not in the table is written as `Status 299`, as in Apache.
    #[must_use]
    pub fn line(self) -> String {
        match self.reason() {
            Some(reason) => format!("{} {reason}", self.0),
            None => format!("{} Status {}", self.0, self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn codes_are_bounded_and_named() {
        assert_eq!(Status::new(99), None);
        assert_eq!(Status::new(1000), None);
        assert_eq!([199, 600].map(Status::new_final), [None; 2]);
        assert_eq!([200, 599].map(Status::new_final), [200, 599].map(Status::new));
        assert_eq!(Status::NOT_FOUND.line(), "404 Not Found");
        assert!(Status::NOT_MODIFIED.is_bodiless() && !Status::OK.is_bodiless());
    }
}
