//! The load lab: what a server bears and what holds it back, found out from the client's side.
//! A target and a pace come in, exchanges are made and counted, figures and reports go out. The
//! server that is measured may be any; nothing here knows the inside of Evenkeel's.

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
