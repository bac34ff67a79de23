//! mod_proxy_balancer and its lbmethods. Their directives are those of mod_proxy:
//! `proxy/balancer.rs` chooses the member for a request.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::{Active, Module};

/// mod_proxy_balancer.
pub const MODULE: Module = Module {
    file: "mod_proxy_balancer.c",
    identifier: "proxy_balancer_module",
    active: Active::WhenNamed,
    page: "mod_proxy_balancer",
    subject: "Balancers: requests that are divided among HTTP servers.",
    remarks: &[
        "`<Proxy balancer://NAME>` with BalancerMember and ProxySet makes a balancer. ProxyPass, \
         `[P]` and ProxyPassReverse name it. Members are `http:`, `https:`, `ws:` and `wss:` \
         servers; one with `fcgi:` is refused.",
        "byrequests, bytraffic and bybusyness divide the requests, by `loadfactor`. \
         `lbmethod=heartbeat` is refused. `timeout`, `nonce` and `growth` are accepted and have no \
         effect.",
        "ProxyPassReverse finds the URL of a member in a redirect by the name of its balancer.",
        "All child processes share the counts and the states of members. After a graceful restart \
         the counts begin at 0; a member that has failed is still left out until `retry` is over. \
         In Apache it is not, unless BalancerPersist is on.",
        "A request whose member cannot be reached goes on to the next one, if nothing of its body \
         was sent or all of it is still in memory. A request with an idempotent method does so too \
         if the member ends the connection before its response; Apache answers that with 502.",
        "There is no balancer-manager yet.",
        "Every method is there, whichever lbmethod modules are loaded.",
    ],
    directives: &[],
    provides: &[],
};

/// A module that has no directives, whose method `lbmethod` names or whose memory is not needed.
const fn bare(file: &'static str, identifier: &'static str) -> Module {
    Module {
        file,
        identifier,
        active: Active::WhenNamed,
        page: "mod_proxy_balancer",
        subject: "",
        remarks: &[],
        directives: &[],
        provides: &[],
    }
}

/// mod_lbmethod_byrequests.
pub const BYREQUESTS: Module = bare("mod_lbmethod_byrequests.c", "lbmethod_byrequests_module");

/// mod_lbmethod_bytraffic.
pub const BYTRAFFIC: Module = bare("mod_lbmethod_bytraffic.c", "lbmethod_bytraffic_module");

/// mod_lbmethod_bybusyness.
pub const BYBUSYNESS: Module = bare("mod_lbmethod_bybusyness.c", "lbmethod_bybusyness_module");

/// mod_slotmem_shm, where Apache's children share the counts of members.
pub const SLOTMEM: Module = bare("mod_slotmem_shm.c", "slotmem_shm_module");
