//! The text of refusals in the error log.

use evenkeel_message::{Request, quoted};
use std::os::unix::ffi::OsStrExt;

/// What a refusal names: the file, or the path where there is none.
#[must_use]
pub fn refused_target(request: &Request) -> String {
    let file = request.resource.file.as_os_str().as_bytes();
    if file.is_empty() {
        return format!("uri {}", quoted(&request.resource.path));
    }
    quoted(file).into_owned()
}
