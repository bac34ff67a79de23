//! The owner of the requested file, for `Require file-owner` and `file-group`. The blocking pool
//! examines the file and asks the system for the name of its owner.

use crate::Asked;
use evenkeel_message::{Level, Notice, Undecided, quoted, quoted_path};
use evenkeel_sys::identity;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The numbers of Apache's messages about the owner or the group of a file.
pub struct Numbers {
    no_file: u16,
    no_status: u16,
    no_name: u16,
}

/// The numbers for `file-owner`.
pub const OWNER: Numbers = Numbers { no_file: 1633, no_status: 1634, no_name: 1636 };

/// The numbers for `file-group`.
pub const GROUP: Numbers = Numbers { no_file: 1638, no_status: 1639, no_name: 1641 };

/// The log message of a denied request.
pub fn failure(asked: &Asked<'_>, reason: &str) -> String {
    let resource = &asked.context.request.resource;
    let user = quoted(resource.user.as_deref().unwrap_or_default());
    let path = quoted(&resource.path);
    format!("Authorization of user {user} to access {path} failed, reason: {reason}")
}

/// Why the owner of a file has no name.
enum Nameless {
    /// The file cannot be examined.
    NoStatus,
    /// The system has no name for the number.
    NoName,
}

/// The name of the user that owns the requested file, or of the group if `numbers` is [`GROUP`].
/// Returns `None` and adds a notice if the name cannot be determined.
///
/// # Errors
/// The name is to be looked up.
pub fn owner(
    asked: &Asked<'_>,
    numbers: &Numbers,
    notices: &mut Vec<Notice>,
) -> Result<Option<String>, Undecided> {
    let is_group = numbers.no_file == GROUP.no_file;
    let mut fail = |number, reason: &str| {
        let text = failure(asked, reason);
        notices.push(Notice::new("authz_owner", Level::Error, number, text));
        Ok(None)
    };
    let file = &asked.context.request.resource.file;
    if file.as_bytes().is_empty() {
        return fail(numbers.no_file, "no filename available");
    }
    let kind: &[u8] = if is_group { b"group of " } else { b"owner of " };
    let key = [kind, file.as_bytes()].concat();
    let path = file.to_path_buf();
    let what = || format!("finding the owner of {}", quoted_path(file));
    let found = asked.find(&key, what, move || look_up(&path, is_group))?;
    match &*found {
        Ok(name) => Ok(Some(name.clone())),
        Err(Nameless::NoStatus) => {
            let reason = format!("could not stat file {}", quoted(file.as_bytes()));
            fail(numbers.no_status, &reason)
        }
        Err(Nameless::NoName) if is_group => {
            fail(numbers.no_name, "could not get name of file group")
        }
        Err(Nameless::NoName) => fail(numbers.no_name, "could not get name of file owner"),
    }
}

fn look_up(path: &Path, is_group: bool) -> Result<String, Nameless> {
    let stat = std::fs::metadata(path).map_err(|_| Nameless::NoStatus)?;
    let name = match is_group {
        true => identity::group_numbered(stat.gid()).ok().flatten(),
        false => match identity::user_numbered(stat.uid()) {
            Ok(Some(user)) => Some(user.name),
            _ => None,
        },
    };
    name.ok_or(Nameless::NoName)
}
