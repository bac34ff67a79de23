//! mod_userdir: maps `/~name` to the directory of a user. The pipeline looks up the home directory
//! of the user ([`wanted_home`]) before it calls [`translate`], because the password database may
//! block.

pub use crate::{NoSettings as Directory, NoSettings as Global};

mod homes;

pub use homes::Homes;

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape, words};
use evenkeel_message::{Answer, Fields, FileName, Request, Status, unquoted};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("UserDir", Where::SERVER, Shape::Raw, "", "the public subdirectory in users' home directories, or 'disabled', or 'disabled username username...', or 'enabled username username...'", user_dir).of_bytes(),
];

/// mod_userdir.
pub const MODULE: Module = Module {
    file: "mod_userdir.c",
    identifier: "userdir_module",
    active: Active::Usually,
    page: "mod_userdir",
    subject: "The folders of users, `/~name`.",
    remarks: &[
        "As in Apache, a virtual host that has a UserDir line of its own does not inherit the \
         names of `enabled` and `disabled` lines.",
        "Home directories are looked up in the password database in the blocking pool, and cached \
         for a minute.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of a server. `None` if the server has no UserDir.
#[derive(Clone, Debug, Default)]
pub struct Server(Option<Arc<Said>>);

#[derive(Clone, Debug, Default)]
struct Said {
    /// Whether users are disabled that are not in `enabled` (`UserDir disabled`,
    /// `UserDir enabled`).
    is_disabled: Option<bool>,
    /// The locations of user directories, in the order in which they are tried.
    places: Option<Vec<Place>>,
    enabled: Vec<Box<[u8]>>,
    disabled: Vec<Box<[u8]>>,
}

/// The location of a user's directory.
#[derive(Clone, Debug)]
enum Place {
    /// `public_html`: relative to the home directory.
    Home(Box<[u8]>),
    /// `/www` and `/www/*/docs`: the text before and after the user name.
    Folder(Box<[u8]>, Box<[u8]>),
    /// `http://host/*`: a redirect to another server.
    Elsewhere(Box<[u8]>),
}

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        let (Some(outer), Some(inner)) = (&base.0, &over.0) else {
            return if over.0.is_some() { over.clone() } else { base.clone() };
        };
        let Said { is_disabled, places, enabled, disabled } = Said::clone(inner);
        Self(Some(Arc::new(Said {
            is_disabled: is_disabled.or(outer.is_disabled),
            places: places.or_else(|| outer.places.clone()),
            enabled,
            disabled,
        })))
    }
}

/// Returns the user of a path, the rest of the path, and the locations. Returns `None` if the path
/// has no user or the user is disabled.
fn user<'a>(path: &'a [u8], server: &'a Server) -> Option<(&'a [u8], &'a [u8], &'a [Place])> {
    let said = server.0.as_deref()?;
    let places = said.places.as_deref()?;
    let named = path.strip_prefix(b"/~")?;
    let end = named.iter().position(|byte| *byte == b'/').unwrap_or(named.len());
    let (user, rest) = named.split_at(end);
    if matches!(user, b"" | b"." | b"..") {
        return None;
    }
    let is_in = |names: &[Box<[u8]>]| names.iter().any(|name| name.eq_ignore_ascii_case(user));
    if is_in(&said.disabled) || said.is_disabled == Some(true) && !is_in(&said.enabled) {
        return None;
    }
    Some((user, rest, places))
}

/// Returns the user whose home directory [`translate`] needs for the request. Returns `None` for
/// most requests.
#[must_use]
pub fn wanted_home<'a>(request: &'a Request, server: &'a Server) -> Option<&'a str> {
    server.0.as_ref()?;
    let (user, _, places) = user(&request.resource.path, server)?;
    let needs_home = places.iter().any(|place| matches!(place, Place::Home(_)));
    std::str::from_utf8(user).ok().filter(|_| needs_home)
}

/// The note with the user of a path below `/~user`.
pub const USER_NOTE: &str = "mod_userdir_user";

/// Maps a path to a file. Returns `None` if the path is not in a user's directory.
///
/// # Errors
/// The redirect to another server.
pub fn translate(
    request: &mut Request,
    server: &Server,
    home: Option<&[u8]>,
) -> Result<Option<FileName>, Answer> {
    if server.0.is_none() {
        return Ok(None);
    }
    let Some((user, rest, places)) = user(&request.resource.path, server) else {
        return Ok(None);
    };
    let last = places.len().saturating_sub(1);
    for (index, place) in places.iter().enumerate() {
        let folder = match place {
            Place::Elsewhere(start) => {
                let mut location = [&**start, user].concat();
                location.extend_from_slice(rest);
                let mut fields = Fields::new();
                fields.set("Location", location);
                return Err(Answer::with_fields(Status::FOUND, fields));
            }
            Place::Folder(before, behind) => [&**before, user, behind].concat(),
            Place::Home(name) => match home {
                Some(home) => [home, b"/", name].concat(),
                None => continue,
            },
        };
        let exists = || Path::new(OsStr::from_bytes(&folder)).metadata().is_ok();
        if index == last || exists() {
            let file = [&*folder, rest].concat();
            let prefix = [b"/~", user].concat();
            let notes = &mut request.resource.notes;
            notes.set(USER_NOTE, user);
            notes.set("context-prefix", prefix);
            notes.set("context-document-root", folder);
            return Ok(Some(FileName::new(OsString::from_vec(file))));
        }
    }
    Ok(None)
}

/// The words `disabled` and `enabled` precede a list of names. All other words are locations.
fn user_dir(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let words = words(call.raw);
    let mut words = words.iter().take_while(|word| !word.is_empty());
    let Some(first) = words.next() else { return Err("UserDir requires an argument.".into()) };
    let said = Arc::make_mut(scope.server.userdir.0.get_or_insert_default());
    let is_disabled = match first.to_ascii_lowercase().as_str() {
        "disable" | "disabled" => true,
        "enable" | "enabled" => false,
        _ => {
            let places = std::iter::once(first).chain(words);
            said.places = Some(places.map(|word| place(&unquoted(word))).collect());
            return Ok(());
        }
    };
    let mut names = words.map(|word| Box::from(&*unquoted(word))).peekable();
    if names.peek().is_none() {
        said.is_disabled = Some(is_disabled);
    } else if is_disabled {
        said.disabled.extend(names);
    } else {
        said.enabled.extend(names);
    }
    Ok(())
}

/// Parses a location (mod_userdir.c: translate_userdir).
fn place(word: &[u8]) -> Place {
    let is_absolute = word.starts_with(b"/");
    let star = word.iter().position(|byte| *byte == b'*');
    let Some(star) = star else {
        return match is_absolute {
            true => Place::Folder([word, b"/"].concat().into(), Box::default()),
            false => Place::Home(word.into()),
        };
    };
    let (before, behind) = word.split_at(star);
    let stars = behind.iter().take_while(|byte| **byte == b'*').count();
    let behind = behind.get(stars..).unwrap_or_default();
    if !is_absolute && before.contains(&b':') {
        Place::Elsewhere(before.into())
    } else if is_absolute || behind.is_empty() {
        Place::Folder(before.into(), behind.into())
    } else {
        Place::Home(behind.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::{Peer, RequestHead, UriOptions, UrlPath};

    fn server(text: &str) -> Server {
        apply(MODULE, text).unwrap().server.userdir
    }

    /// Returns the file of a path. Users have the home directory `/home/x`.
    fn file(server: &Server, path: &str) -> String {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.path = UrlPath::parse(path.as_bytes(), UriOptions::default()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match translate(&mut request, server, Some(b"/home/x")) {
            Ok(None) => "none".into(),
            Ok(Some(file)) => text(file.as_bytes()),
            Err(Answer::Status(_, Some(fields))) => text(fields.first("Location").unwrap()),
            Err(other) => format!("{other:?}"),
        }
    }

    #[test]
    fn a_folder_is_at_home_below_a_name_or_elsewhere() {
        for (text, path, expected) in [
            ("UserDir public_html", "/~x/a/b", "/home/x/public_html/a/b"),
            ("UserDir public_html", "/~x", "/home/x/public_html"),
            ("UserDir /www", "/~x/a", "/www/x/a"),
            ("UserDir /www/*/docs", "/~x/a", "/www/x/docs/a"),
            ("UserDir http://h/*", "/~x/a", "http://h/x/a"),
            ("UserDir http://h/*/z", "/~x/a", "http://h/x/a"),
            ("UserDir a*b", "/~x/a", "/home/x/b/a"),
            ("UserDir /none/*/x public_html", "/~x/a", "/home/x/public_html/a"),
            ("UserDir public_html", "/x", "none"),
            ("UserDir public_html", "/~", "none"),
            ("UserDir public_html", "/~./a", "none"),
            ("UserDir /www", "/~x../a", "/www/x../a"),
            ("UserDir enabled", "/~x", "none"),
        ] {
            assert_eq!(file(&server(text), path), expected, "{text} {path}");
        }
    }

    #[test]
    fn names_are_enabled_and_disabled_without_inheritance() {
        let base = server("UserDir public_html\nUserDir disabled root X");
        assert_eq!(file(&base, "/~x/"), "none");
        assert_eq!(file(&base, "/~y/"), "/home/x/public_html/");
        let over = server("UserDir disabled\nUserDir enabled y x");
        let merged = Server::merge(&base, &over);
        assert_eq!(file(&merged, "/~x/"), "/home/x/public_html/");
        assert_eq!(file(&merged, "/~root/"), "none");
        assert_eq!(file(&Server::merge(&base, &Server::default()), "/~root/"), "none");
        let other = Server::merge(&base, &server("UserDir web"));
        assert_eq!(file(&other, "/~root/"), "/home/x/web/");
    }
}
