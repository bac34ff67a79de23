//! The bytes of a connection: in and out, parked and woken, and the end. Nothing here knows a
//! protocol.

pub(crate) mod addresses;
pub(crate) mod linger;
pub(crate) mod link;
pub(crate) mod pace;
pub(crate) mod parked;
pub(crate) mod proxy_header;
