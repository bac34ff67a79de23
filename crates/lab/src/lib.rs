//! The load lab: measures from the client's side how much load a server can take and what limits
//! it. It makes and counts exchanges with a target at a given pace, and reports the figures. The
//! server can be any HTTP server; nothing here depends on Evenkeel's internals.

pub mod ab;
pub mod backend;
pub mod bench;
pub mod calls;
pub mod experiments;
pub mod explain;
pub mod family;
mod histogram;
pub mod load;
mod numbers;
pub mod peers;
pub mod plot;
pub mod program;
pub mod replay;
pub mod report;
pub mod request;
pub mod results;
pub mod server_side;
pub mod sim;
pub mod slow;
mod status;
pub mod surge;
pub mod sweep;
pub mod top;
mod watching;
mod words;
