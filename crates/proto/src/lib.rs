//! Parses and writes HTTP/1.1, HTTP/2, FastCGI records, SCGI, uWSGI and heads of scripts without
//! I/O, for the server and for the load lab. Callers pass slices of a receive buffer and append
//! output to a buffer of their own. Nothing here reads a socket, a file or a clock, and parsing
//! HTTP allocates nothing once the buffers have grown to their size.

mod chunked;
mod digest;
mod encode;
mod escape;
mod expect;
pub mod fastcgi;
mod field;
mod framing;
mod gateway;
pub mod h2;
mod head;
mod host;
mod line;
mod method;
mod options;
mod origin;
mod proxy_header;
mod refusal;
mod response;
mod scan;
pub mod script;
mod state;
mod target;
mod uri;

pub use chunked::{ChunkedDecoder, Step};
pub use digest::{DigestField, DigestParameters};
pub use encode::{
    BodyFraming, CONTINUE, Head, body_framing, encode_chunk, encode_end, encode_head,
};
pub use escape::{escape_html, escape_path, escape_quotes, escape_uri, escaped_html};
pub use evenkeel_message::{http_date, parse_http_date};
pub use expect::expectation;
pub use framing::body_length;
pub use gateway::{TooLarge, encode_scgi, encode_uwsgi};
pub use head::{HeadParser, Parsed};
pub use host::{KnownHost, address};
pub use method::recognise_method;
pub use options::{HttpProtocolOptions, Limits};
pub use origin::{
    OriginBody, OriginFault, OriginHead, OriginLimits, encode_request_line, parse_origin_head,
};
pub use proxy_header::{ProxyHeader, ProxyHeaderFault};
pub use refusal::Refusal;
pub use response::{Malformed, ResponseHead, ResponseLength, parse_response, response_field};
pub use state::{Ask, KeepAlive, Lifecycle, Next, Persistence, persistence};
pub use target::{Form, Target, raw_path};
pub use uri::bad_path;
