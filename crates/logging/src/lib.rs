//! Access logs and error logs: compiles their formats once, and writes a line for each exchange and
//! each notice to files, pipes and syslog. The configuration's levels and conditions decide what is
//! logged.

mod access;
mod clock;
mod cut;
mod error_format;
mod error_line;
mod error_log;
mod escape;
mod exchange;
mod format;
mod line;
mod log_id;
mod program;
mod sink;
mod syslog;
mod target;
mod turns;

pub use access::{AccessLog, AccessLogs, BUFFER_BYTES, Condition, Recorder, Test};
pub use error_format::{ErrorFormat, ErrorFormatKind};
pub use error_line::Origin;
pub use error_log::{ErrorLog, ErrorLogs, startup_text, terminal_text};
pub use exchange::{KeepAliveTold, LoggedExchange};
pub use format::LineFormat;
pub use program::Programs;
pub use target::{Program, Target};
