//! The refusals of requests with an invalid path: the statuses and log lines of Apache's
//! ap_process_request_internal (request.c).

use crate::refusal::Refusal;
use evenkeel_message::{BadPath, Level, Notice, Status, quoted};

/// The refusal of a request because of its path. The notice quotes `target`.
#[must_use]
pub fn bad_path(reason: BadPath, target: &[u8]) -> Refusal {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let path = quoted(path);
    let notice = match reason {
        BadPath::Invalid => {
            let text = format!("invalid URI path ({})", quoted(target));
            return Refusal::new(Status::BAD_REQUEST, Level::Error, 10244, text);
        }
        BadPath::EncodedSlash => {
            let text = format!("found %2f (encoded '/') in URI path ({path}), returning 404");
            Notice::new("core", Level::Info, 26, text)
        }
        BadPath::Nul => {
            let text = format!("found %00 in URI path ({path}), returning 404");
            Notice::own("core", Level::Info, text)
        }
    };
    Refusal { status: Status::NOT_FOUND, notice, detail: "" }
}
