//! mod_proxy_wstunnel: WebSocket servers behind this one. The requests are those of
//! mod_proxy_http, which asks the server to switch protocols (`proxy/worker.rs`); the tunnel that
//! follows is in the room `upstream`.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape};

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("ProxyWebsocketFallbackToProxyHttp", Where::CONFIG, Shape::Flag, "On", "whether to let mod_proxy_http handle the upgrade and tunneling, On by default", fallback),
];

/// mod_proxy_wstunnel.
pub const MODULE: Module = Module {
    file: "mod_proxy_wstunnel.c",
    identifier: "proxy_wstunnel_module",
    active: Active::WhenNamed,
    page: "mod_proxy_wstunnel",
    subject: "WebSocket servers behind this one.",
    remarks: &[
        "A `ws:` target is an HTTP server that a client may have switched to WebSocket. A request \
         without `Upgrade: websocket` is passed on to it as a plain one, as in Apache with \
         mod_proxy_http loaded.",
        "With the parameter `upgrade` of ProxyPass, a client may have any target of mod_proxy_http \
         switched to the protocols that it names. `ANY` names all of them.",
        "A client of HTTP/1.0, and one that asks for several protocols at once, cannot switch \
         (RFC 9110, section 7.8). Apache sends such a client the bytes of the server without a \
         response, or 502.",
        "After the response 101, bytes pass in both directions until both sides have ended. One \
         side may end before the other. The tunnel ends when nothing has passed for the \
         parameter `timeout`, ProxyTimeout or Timeout.",
        "In event, a tunnel holds no worker. In worker and prefork, it holds its worker as long as \
         it lasts.",
        "A tunnel outlives a graceful restart, until GracefulShutdownTimeout.",
        "`Tunnels` on the page `?auto` of mod_status counts them.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// Both values mean the same, because the requests are always those of mod_proxy_http.
fn fallback(_: &mut Scope, _: &Call<'_>) -> DirectiveResult {
    Ok(())
}
