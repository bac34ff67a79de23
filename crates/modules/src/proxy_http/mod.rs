//! mod_proxy_http: HTTP servers behind this one. It has no settings of its own: `proxy/http.rs`
//! makes the requests and the responses, by the settings of mod_proxy.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::{Active, Module};

/// mod_proxy_http.
pub const MODULE: Module = Module {
    file: "mod_proxy_http.c",
    identifier: "proxy_http_module",
    active: Active::WhenNamed,
    page: "mod_proxy_http",
    subject: "HTTP servers behind this one.",
    remarks: &[
        "A response is refused with 502 if its end is in doubt: with two lengths that differ, with \
         both Content-Length and Transfer-Encoding, with another coding than `chunked`, or with a \
         Transfer-Encoding in HTTP/1.0. Apache passes some of these on. So is a response without a \
         status line, which Apache takes for one of HTTP/0.9.",
        "A head of more than 128 KiB or 256 fields is refused with 502. Apache refuses a field of \
         more than `responsefieldsize` (8 KiB if it is not set); here there is no other bound than \
         that on the head unless the parameter is set.",
        "The host of a request is named in X-Forwarded-Host even if the Connection of the client \
         names Host.",
        "A connection to a server is used again after a response with a known end. Each serving \
         thread keeps up to 64 idle ones for 60 seconds, for `ttl`, or for the time that the \
         server states in Keep-Alive.",
        "If the server closes a kept connection while a request is being sent on it, the request \
         is sent again by a new connection if its method is idempotent (RFC 9110, section 9.2.2). \
         Other methods take a kept connection only if it was used within the last second, and are \
         answered with 502 in that case. Apache closes the connection of the client without a \
         response.",
        "A response that begins before the request was sent to its end is passed on. Apache sends \
         the body first.",
        "`Expect: 100-continue` of a client is passed on, and the body follows when the server has \
         said 100 or after a second.",
        "A field that Connection names is removed, unless the configuration has set or changed it \
         (RequestHeader). X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Server and Via are added \
         after that.",
        "Trailer fields are not passed on.",
        "A response keeps the Vary that a RewriteCond about a field of the request leads to. Apache \
         loses it.",
        "The variable proxy-sendextracrlf is ignored: the bytes could be taken for a part of the \
         next request.",
    ],
    directives: &[],
    provides: &[],
};
