//! mod_authz_groupfile: `Require group` and `file-group`, with the groups of AuthGroupFile. The
//! rules take the file from the password cache; the blocking pool reads it if the cache does not
//! have its current version.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::core::listed;
use crate::ownership::{self, owner};
use crate::passwords::{GroupFile, Store};
use crate::{
    Active, Asked, Directive, DirectiveResult, Merge, Module, ParsedRequirement, Provided,
    RequireProvider, Requirement, Scope, Where, argument, directive,
};
use evenkeel_config::{Call, Shape, words};
use evenkeel_expr::Text;
use evenkeel_message::{Level, Notice, Undecided, quoted, quoted_path, unquoted};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AuthGroupFile", Where::AUTH_CONFIG, Shape::One, "", "text file containing group names and member user IDs", auth_group_file),
];

/// mod_authz_groupfile.
pub const MODULE: Module = Module {
    file: "mod_authz_groupfile.c",
    identifier: "authz_groupfile_module",
    active: Active::Usually,
    page: "mod_authz_groupfile",
    subject: "Access by the groups of a user, which a text file lists: `Require group` and \
              `file-group`.",
    remarks: &[
        "A line that is not a group name, a colon and the members is ignored. Each time the file \
         has changed, the error log names such lines once.",
    ],
    directives: &[DIRECTIVES],
    provides: &[
        Provided::Require(RequireProvider { name: "group", parse: parse_group }),
        Provided::Require(RequireProvider { name: "file-group", parse: parse_file_group }),
    ],
};

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    file: Option<Arc<Path>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; file)
    }
}

/// A compiled Require line of this module.
#[derive(Debug)]
enum GroupRule {
    /// `group`: the user is a member of one of these groups.
    Group(Text),
    /// `file-group`: the user is a member of the group that owns the requested file.
    FileGroup,
}

fn auth_group_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_path(argument(call, 0));
    scope.directory.authz_groupfile.file = Some(path.into());
    Ok(())
}

fn parse_group(scope: &Scope, arguments: &str) -> ParsedRequirement {
    let text = scope
        .compile_text(arguments)
        .map_err(|error| format!("Cannot parse expression in require line: {error}"))?;
    Ok(Arc::new(GroupRule::Group(text)))
}

fn parse_file_group(_: &Scope, _: &str) -> ParsedRequirement {
    Ok(Arc::new(GroupRule::FileGroup))
}

/// Adds a notice for each complaint about a group file, once for all rules of a request.
fn complain(path: &Path, complaints: &[String], notices: &mut Vec<Notice>) {
    for complaint in complaints {
        let text = format!("{}: {complaint}", quoted_path(path));
        let notice = Notice::own("authz_groupfile", Level::Error, text);
        if !notices.contains(&notice) {
            notices.push(notice);
        }
    }
}

/// The groups of a file, from the result of a job of this evaluation or from the cache.
fn load(
    asked: &Asked<'_>,
    path: &Arc<Path>,
    notices: &mut Vec<Notice>,
) -> Result<io::Result<Arc<GroupFile>>, Undecided> {
    let key = [b"groups ", path.as_os_str().as_bytes()].concat();
    let is_read = asked.context.request.lookups.found(&key)?.is_some();
    if !is_read && let Some(known) = Store::of_process().known_groups(path) {
        return Ok(Ok(known));
    }
    let what = || format!("reading the file of groups {}", quoted_path(path));
    let file = Arc::clone(path);
    let read = asked.find(&key, what, move || Store::of_process().groups(&file))?;
    Ok(match &*read {
        Ok(loaded) => {
            if loaded.is_new {
                complain(path, &loaded.parsed.complaints, notices);
            }
            Ok(Arc::clone(&loaded.parsed))
        }
        Err(error) => Err(match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(error.kind(), error.to_string()),
        }),
    })
}

impl GroupRule {
    /// The numbers of Apache's messages: AuthGroupFile is not set, the file cannot be opened, the
    /// user is in no group.
    fn numbers(&self) -> (u16, u16, u16) {
        match self {
            GroupRule::Group(_) => (1664, 1665, 1666),
            GroupRule::FileGroup => (1668, 1669, 1670),
        }
    }

    /// The groups, if the user is in any of them.
    fn groups(
        &self,
        asked: &Asked<'_>,
        notices: &mut Vec<Notice>,
    ) -> Result<Option<Arc<GroupFile>>, Undecided> {
        let (unnamed, unopened, unknown) = self.numbers();
        let Some(path) = &asked.sections.authz_groupfile.file else {
            let text = "No group file was specified in the configuration";
            notices.push(Notice::new("authz_groupfile", Level::Error, unnamed, text));
            return Ok(None);
        };
        let groups = match load(asked, path, notices)? {
            Ok(groups) => groups,
            Err(error) => {
                let text = format!("Could not open group file: {}", quoted_path(path));
                let notice = Notice::new("authz_groupfile", Level::Error, unopened, text);
                notices.push(notice.because(&error));
                return Ok(None);
            }
        };
        let resource = &asked.context.request.resource;
        let Some(user) = resource.user.as_deref() else { return Ok(None) };
        if groups.knows(user) {
            return Ok(Some(groups));
        }
        let text = format!(
            "Authorization of user {} to access {} failed, reason: user doesn't appear in group \
             file ({}).",
            quoted(user),
            quoted(&resource.path),
            quoted_path(path)
        );
        let is_group = matches!(self, GroupRule::Group(_));
        let level = if is_group { Level::Info } else { Level::Error };
        notices.push(Notice::new("authz_groupfile", level, unknown, text));
        Ok(None)
    }

    fn fail(asked: &Asked<'_>, number: u16, what: &str) -> Notice {
        let resource = &asked.context.request.resource;
        let text = format!(
            "Authorization of user {} to access {} failed, reason: user is not part of the \
             'require'ed {what}.",
            quoted(resource.user.as_deref().unwrap_or_default()),
            quoted(&resource.path)
        );
        Notice::new("authz_groupfile", Level::Debug, number, text)
    }
}

impl Requirement for GroupRule {
    fn is_met(&self, asked: &Asked<'_>, notices: &mut Vec<Notice>) -> Result<bool, Undecided> {
        let Some(groups) = self.groups(asked, notices)? else { return Ok(false) };
        let Some(user) = asked.context.request.resource.user.as_deref() else { return Ok(false) };
        match self {
            GroupRule::Group(names) => {
                let names = match names.value(&asked.context) {
                    Ok(names) => names,
                    Err(error) => {
                        let text = format!(
                            "authz_groupfile authorize: require group: Can't evaluate require \
                             expression: {error}"
                        );
                        notices.push(Notice::new("authz_groupfile", Level::Error, 2592, text));
                        return Ok(false);
                    }
                };
                let names = words(&quoted(&names));
                let mut names = names.iter().take_while(|name| !name.is_empty());
                if names.any(|name| groups.is_member(user, &unquoted(name))) {
                    return Ok(true);
                }
                notices.push(Self::fail(asked, 1667, "group(s)"));
            }
            GroupRule::FileGroup => {
                let Some(group) = owner(asked, &ownership::GROUP, notices)? else {
                    return Ok(false);
                };
                if groups.is_member(user, group.as_bytes()) {
                    return Ok(true);
                }
                notices.push(Self::fail(asked, 1671, "file group"));
            }
        }
        Ok(false)
    }

    /// The lines of the group file that the groups of the rule have.
    fn explain(&self, asked: &Asked<'_>) -> Option<String> {
        let path = asked.sections.authz_groupfile.file.as_ref()?;
        let groups = load(asked, path, &mut Vec::new()).ok()?.ok()?;
        let path = quoted_path(path);
        let GroupRule::Group(names) = self else { return None };
        let names = names.value(&asked.context).ok()?;
        let names = words(&quoted(&names));
        let places = names.iter().take_while(|name| !name.is_empty()).map(|name| {
            match groups.line(&unquoted(name)) {
                Some(line) => format!("{name} ({path}:{line})"),
                None => format!("{name} (not in {path})"),
            }
        });
        Some(format!("not in the groups {}", listed(&places.collect::<Vec<_>>())))
    }

    fn needs_user(&self) -> bool {
        true
    }
}
