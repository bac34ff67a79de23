//! Applications behind this server: connections to them, the exchanges over FastCGI and HTTP, runs
//! of CGI programs, the places that bound how many requests an application has in progress, and the
//! spool for bodies of requests. All of it belongs to one serving thread, but for the state of the
//! members of balancers, which all children share. [`exchange`], [`ask_origin`] and [`run_program`]
//! are the entries; [`run_checks`] is that of the process that checks members.

mod cgi;
mod check;
mod connect;
mod conversation;
mod failure;
mod fcgi;
mod filter_program;
mod gather;
mod idle;
mod kept;
mod lease;
mod members;
mod origin;
mod origin_failure;
mod origin_link;
mod origin_stream;
mod places;
mod prefetch;
mod report;
mod spool;
mod timer;
mod tunnel;

pub use cgi::{Complain, Remains, Run, RunFailure, ask_program, run_command, run_program};
pub use check::{
    CheckAnswer, CheckFailure, CheckOrder, CheckPlan, CheckRequest, CheckResult, run_checks,
};
pub use connect::Patience;
pub use evenkeel_sys::claims::Claims;
pub use failure::{Failure, FailureKind, program_failure};
pub use fcgi::{Answered, Ask, exchange};
pub use filter_program::{FilterFailure, FilterRun, filter_source};
pub use gather::gather;
pub use lease::Lease;
pub use members::{Busy, Line, MOST_TEXT, Members, Number, ShortText, Text};
pub use origin::{OriginAnswered, OriginAsk, ask_origin};
pub use origin_failure::{OriginFailure, OriginFailureKind};
pub use origin_link::{Upload, UploadFraming};
pub use origin_stream::Tls;
pub use places::{NoPlace, Place, Places, SharedPlace};
pub use prefetch::{Prefetched, prefetch};
pub use report::{OwnPool, pool_failure};
pub use spool::{Spool, SpoolError};
