//! Who owns the file of a request, for `Require file-owner` and `file-group`.

use crate::Asked;
use evenkeel_message::{Level, Notice, quoted};
use evenkeel_sys::identity;
use std::os::unix::fs::MetadataExt as _;

/// Apache's numbers of the messages about one kind of owner.
pub struct Numbers {
    no_file: u16,
    no_status: u16,
    no_name: u16,
}

/// Those of file-owner.
pub const OWNER: Numbers = Numbers { no_file: 1633, no_status: 1634, no_name: 1636 };

/// Those of file-group.
pub const GROUP: Numbers = Numbers { no_file: 1638, no_status: 1639, no_name: 1641 };

/// The text of a refusal.
pub fn failure(asked: &Asked<'_>, reason: &str) -> String {
    let resource = &asked.context.request.resource;
    let user = quoted(resource.user.as_deref().unwrap_or_default());
    let path = quoted(&resource.path);
    format!("Authorization of user {user} to access {path} failed, reason: {reason}")
}

/// The name of the user, or of the group, that owns the request's file.
pub fn owner(asked: &Asked<'_>, numbers: &Numbers, notices: &mut Vec<Notice>) -> Option<String> {
    let is_group = numbers.no_file == GROUP.no_file;
    let mut fail = |number, reason: &str| {
        let text = failure(asked, reason);
        notices.push(Notice::new("authz_owner", Level::Error, number, text));
        None
    };
    let file = &asked.context.request.resource.file;
    if file.as_bytes().is_empty() {
        return fail(numbers.no_file, "no filename available");
    }
    let Ok(stat) = std::fs::metadata(&**file) else {
        let reason = format!("could not stat file {}", quoted(file.as_bytes()));
        return fail(numbers.no_status, &reason);
    };
    let name = match is_group {
        true => identity::group_numbered(stat.gid()).ok().flatten(),
        false => match identity::user_numbered(stat.uid()) {
            Ok(Some(user)) => Some(user.name),
            _ => None,
        },
    };
    match name {
        Some(name) => Some(name),
        None if is_group => fail(numbers.no_name, "could not get name of file group"),
        None => fail(numbers.no_name, "could not get name of file owner"),
    }
}
