//! Logs: the format strings of the configuration are compiled once, each exchange and each
//! notice becomes a line. What comes in is an exchange or a notice, what goes out are whole
//! lines in files, pipes and syslog. It never decides what is worth a line: the levels and the
//! conditions are the configuration's.

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
pub use exchange::{Exchange, KeepAliveTold};
pub use format::LineFormat;
pub use program::Programs;
pub use target::{Program, Target};
