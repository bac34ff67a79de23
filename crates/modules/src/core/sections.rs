//! The sections that hold settings: `<VirtualHost>`, `<Directory>`, `<Location>`, `<Files>`,
//! `<If>`, `<Limit>` and their Match forms. A section's text becomes settings of its own beside
//! a condition; which of them hold for a request is `pipeline`'s to find out.

use super::global::VirtualHost;
use crate::{Access, Directive, DirectorySettings, Place, Scope, Where, global_section, section};
use evenkeel_config::{Block, Contexts, Fault, GlobalCall, Overrides, Position, next_word, words};
use evenkeel_expr::{Condition, Pattern, is_glob};
use evenkeel_message::{MethodSet, quoted_path, unquoted};
use std::sync::Arc;

/// One section: when it holds, and what it says.
#[derive(Clone)]
pub struct Section {
    /// A number that no other section of the site has.
    pub id: u64,
    /// Which of the walks comes upon it.
    pub kind: Kind,
    /// When it holds.
    pub matches: Match,
    /// What it says.
    pub settings: DirectorySettings,
    /// Where it begins.
    pub position: Position,
    /// Bytes of the text of an .htaccess file; 0 for sections within one and for those of the
    /// configuration.
    pub bytes: u64,
}

/// The walks of a request, each of which merges what it finds before it is merged with what the
/// one before has found (request.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `<Directory>`, `<DirectoryMatch>` and .htaccess.
    Directory,
    /// `<Files>`.
    Files,
    /// `<Location>`.
    Location,
    /// `<Proxy>` and `<ProxyMatch>`, which take the place of folders and files for a request that
    /// is passed on.
    Proxy,
    /// `<If>`.
    If,
}

impl std::fmt::Debug for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Section {} {:?}", self.id, self.matches)
    }
}

/// The condition of a section.
#[derive(Clone, Debug)]
pub enum Match {
    /// A path, or a file's name, that must be equal; a directory's ends with a slash.
    Exact(Box<[u8]>),
    /// A path with `*`, `?` and `[ ]`.
    Wild(Box<[u8]>),
    /// A regular expression.
    Pattern(Arc<Pattern>),
    /// `<If>`.
    If(Arc<Condition>),
    /// `<ElseIf>`: holds only if no condition of the chain before it did.
    ElseIf(Arc<Condition>),
    /// `<Else>`.
    Else,
}

impl Match {
    /// The number of slashes of a directory's path or pattern: those with fewer are merged first,
    /// and the root before all (core.c: dirsection, core_reorder_directories).
    #[must_use]
    pub fn depth(&self) -> usize {
        let text = match self {
            Match::Exact(path) | Match::Wild(path) => path,
            Match::Pattern(pattern) => pattern.text().as_bytes(),
            _ => return 0,
        };
        if text == b"/" { 0 } else { text.iter().filter(|byte| **byte == b'/').count() }
    }

    /// The names of the groups of a pattern, which become MATCH_NAME in the environment.
    #[must_use]
    pub fn pattern(&self) -> Option<&Pattern> {
        match self {
            Match::Pattern(pattern) => Some(pattern),
            _ => None,
        }
    }
}

pub(crate) fn plain(path: &str) -> Match {
    let path = unquoted(path);
    if is_glob(&path) { Match::Wild(path.into()) } else { Match::Exact(path.into()) }
}

/// The argument of a section that takes one path, or `~` and a pattern.
struct Argument<'a> {
    is_pattern: bool,
    /// May be empty.
    text: String,
    /// What stands behind it.
    rest: &'a str,
}

impl<'a> Argument<'a> {
    /// `tilde` says whether the section takes a `~`: of the Match forms `<DirectoryMatch>` alone
    /// does (core.c: dirsection, urlsection, filesection).
    fn of(block: &'a Block<'_, Scope>, tilde: bool) -> Result<Self, Fault> {
        let (word, rest) = next_word(block.argument()?);
        if tilde && word == "~" {
            let (text, rest) = next_word(rest);
            return Ok(Self { is_pattern: true, text, rest });
        }
        Ok(Self { is_pattern: block.call.name.ends_with("Match"), text: word, rest })
    }

    /// Refuses what stands behind the argument. Apache looks for it last, so that it tells of a
    /// fault within the section first.
    fn check_rest(&self, block: &Block<'_, Scope>) -> Result<(), Fault> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let name = block.call.name;
        Err(block.fault(format!("Multiple {name}> arguments not (yet) supported.")))
    }
}

pub(crate) fn compile_pattern(
    scope: &Scope,
    block: &Block<'_, Scope>,
    text: &str,
) -> Result<Match, Fault> {
    scope
        .compile_pattern(text)
        .map(|pattern| Match::Pattern(Arc::new(pattern)))
        .map_err(|_| block.fault("Regex could not be compiled"))
}

/// The place of a section that adds no path to the one around it.
fn place_within(scope: &Scope) -> Place {
    match &scope.place {
        Place::Server => Place::Pattern,
        place => place.clone(),
    }
}

/// Applies the directives of a section to new settings and returns them. `path` is the path, name
/// or pattern of the section (Apache: cmd->path).
pub(crate) fn inner_settings(
    scope: &mut Scope,
    block: &Block<'_, Scope>,
    place: Place,
    path: &str,
) -> Result<DirectorySettings, Fault> {
    let outer = std::mem::take(&mut scope.directory);
    let outer_place = std::mem::replace(&mut scope.place, place);
    let outer_path = scope.section_path.replace(path.into());
    let walked = block.walk(scope, Contexts::DIRECTORY);
    (scope.place, scope.section_path) = (outer_place, outer_path);
    let inner = std::mem::replace(&mut scope.directory, outer);
    walked.map(|()| inner.into_settings())
}

pub(crate) fn numbered(
    scope: &mut Scope,
    block: &Block<'_, Scope>,
    kind: Kind,
    matches: Match,
    mut settings: DirectorySettings,
) -> Arc<Section> {
    let position = block.call.position.clone();
    let id = scope.number_section();
    settings.setenvif.prepare();
    settings.authz_core.rules.iter_mut().for_each(|rules| rules.share());
    Arc::new(Section { id, kind, matches, settings, position, bytes: 0 })
}

fn directory(scope: &mut Scope, block: &Block<'_, Scope>) -> Result<(), Fault> {
    let argument = Argument::of(block, true)?;
    let (matches, place) = if argument.is_pattern {
        (compile_pattern(scope, block, &argument.text)?, Place::Pattern)
    } else {
        let path = directory_path(scope, &argument.text);
        (plain(&path), Place::Directory(path.into()))
    };
    let path = place.path().unwrap_or(&argument.text).to_owned();
    let settings = inner_settings(scope, block, place, &path)?;
    argument.check_rest(block)?;
    let section = numbered(scope, block, Kind::Directory, matches, settings);
    scope.server.core.sections.directories.push(section);
    Ok(())
}

/// The canonical path of a directory, with a slash at its end. One that is not absolute stays so,
/// and is that of no directory (core.c: dirsection).
fn directory_path(scope: &Scope, argument: &str) -> String {
    if !argument.starts_with('/') {
        return format!("./{argument}");
    }
    let mut path = quoted_path(&scope.server_path(argument)).into_owned();
    if !path.ends_with('/') {
        path.push('/');
    }
    path
}

fn location(scope: &mut Scope, block: &Block<'_, Scope>) -> Result<(), Fault> {
    let argument = Argument::of(block, block.call.name == "<Location")?;
    let (matches, place) = if argument.is_pattern {
        let pattern = argument.text.as_str().into();
        (compile_pattern(scope, block, &argument.text)?, Place::LocationMatch(pattern))
    } else {
        (plain(&argument.text), Place::Location(argument.text.as_str().into()))
    };
    let settings = inner_settings(scope, block, place, &argument.text)?;
    argument.check_rest(block)?;
    let section = numbered(scope, block, Kind::Location, matches, settings);
    scope.server.core.sections.locations.push(section);
    Ok(())
}

fn files(scope: &mut Scope, block: &Block<'_, Scope>) -> Result<(), Fault> {
    let argument = Argument::of(block, block.call.name == "<Files")?;
    let (matches, path) = match argument.is_pattern {
        true => (compile_pattern(scope, block, &argument.text)?, argument.text.clone()),
        false => {
            let name = canonical_name(&argument.text);
            (plain(&name), name)
        }
    };
    let place = place_within(scope);
    let settings = inner_settings(scope, block, place, &path)?;
    argument.check_rest(block)?;
    let section = numbered(scope, block, Kind::Files, matches, settings);
    scope.directory.core.files.push(section);
    Ok(())
}

/// The name of a `<Files>` section without `.`, `..` and empty segments (core.c: filesection). One
/// that still has a slash then is no file's.
fn canonical_name(argument: &str) -> String {
    let rooted = argument.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for segment in argument.split_inclusive('/') {
        match segment.trim_end_matches('/') {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| last.trim_end_matches('/') != "..") => {
                kept.pop();
            }
            ".." if rooted => {}
            _ => kept.push(segment),
        }
    }
    format!("{}{}", if rooted { "/" } else { "" }, kept.concat())
}

/// `<If>`, `<ElseIf>`, `<Else>`. The checks come in the order of core.c: ifsection.
fn condition(scope: &mut Scope, block: &Block<'_, Scope>) -> Result<(), Fault> {
    let name = block.call.name;
    let (matches, rest) = if name == "<Else" {
        if block.call.raw.trim_end_matches('>').trim() != "" {
            return Err(block.fault("<Else> does not take an argument"));
        }
        (Match::Else, "")
    } else {
        let (text, rest) = next_word(block.argument()?);
        let compiled = scope.compile_condition(&text);
        let condition = Arc::new(
            compiled
                .map_err(|error| block.fault(format!("Cannot parse condition clause: {error}")))?,
        );
        (if name == "<If" { Match::If(condition) } else { Match::ElseIf(condition) }, rest)
    };
    let place = place_within(scope);
    let settings = inner_settings(scope, block, place, "*If")?;
    if !rest.is_empty() {
        return Err(block.fault(format!("Multiple {name}> arguments not supported.")));
    }
    if !matches!(matches, Match::If(_)) && scope.directory.core.conditions.is_empty() {
        let text = "<Else> or <ElseIf> section without previous <If> or <ElseIf> section in same \
                    scope";
        return Err(block.fault(text));
    }
    let section = numbered(scope, block, Kind::If, matches, settings);
    scope.directory.core.conditions.push(section);
    Ok(())
}

fn limit(scope: &mut Scope, block: &Block<'_, Scope>) -> Result<(), Fault> {
    let except = block.call.name == "<LimitExcept";
    let mut methods = MethodSet::default();
    for word in words(block.argument()?) {
        if word == "TRACE" && !except {
            let text = "TRACE cannot be controlled by <Limit>, see TraceEnable";
            return Err(block.fault(text));
        }
        if !scope.global().core.knows_method(&word) {
            // A server's configuration may name methods that a later module registers, and
            // registers them thereby; a typo in .htaccess would leave the folder open.
            if scope.in_htaccess {
                let name = block.call.name;
                return Err(block.fault(format!(
                    "Could not register method '{word}' for {name} from .htaccess configuration"
                )));
            }
            scope.register_method(&word);
        }
        methods.add(word.as_bytes());
    }
    let methods = Arc::new(methods);
    let access = if except { Access::Except(methods) } else { Access::Only(methods) };
    let name = block.call.name;
    let Some(access) = access.within(scope.limit.as_ref()) else {
        return Err(block.fault(format!("{name}> directive excludes all methods")));
    };
    if scope.limit.as_ref() == Some(&access) {
        return Err(block.fault(format!("{name}> directive specifies methods already excluded")));
    }
    let outer = scope.limit.replace(access);
    let walked = block.walk(scope, Contexts::LIMIT);
    scope.limit = outer;
    walked
}

fn virtual_host(
    scope: &mut Scope,
    block: &Block<'_, Scope>,
    call: &GlobalCall<'_>,
) -> Result<(), Fault> {
    let addresses: Vec<_> =
        words(block.argument()?).into_iter().map(String::into_boxed_str).collect();
    if scope.in_virtual_host {
        return Err(block.fault("<VirtualHost> doesn't nest!"));
    }
    let main = std::mem::take(&mut scope.server);
    let outer = std::mem::take(&mut scope.directory);
    // The port of its first address is a host's own, until ServerName says otherwise
    // (vhost.c: ap_init_virtual_host).
    let port = addresses.first().and_then(|address| address.rsplit_once(':'));
    scope.server.core.port = port.and_then(|(_, port)| port.parse().ok());
    scope.in_virtual_host = true;
    let walked = block.walk(scope, Contexts::VHOST);
    scope.in_virtual_host = false;
    let server = std::mem::replace(&mut scope.server, main);
    let directory = std::mem::replace(&mut scope.directory, outer);
    walked?;
    let position = block.call.position.clone();
    let directory = directory.is_said().then(|| Box::new(directory.into_settings()));
    let virtual_host = VirtualHost { addresses, position, server, directory };
    scope.global_mut(call).core.virtual_hosts.push(virtual_host);
    Ok(())
}

/// Not where a path is already a URL's (core.c: filesection).
const FILES: Where = CONDITION.with(Contexts::NOT_IN_LOCATION);
/// Not where what stands within is for some methods alone (core.c: ifsection).
const CONDITION: Where = Where::ANYWHERE.with(Contexts::NOT_IN_LIMIT);

/// The sections as directives of the core.
#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    global_section("<VirtualHost", "Container to map directives to a particular virtual host, takes one or more host addresses", virtual_host),
    section("<Directory", Where::SERVER, "Container for directives affecting resources located in the specified directories", directory).of_bytes(),
    section("<DirectoryMatch", Where::SERVER, "Container for directives affecting resources located in the specified directories", directory).of_bytes(),
    section("<Location", Where::SERVER, "Container for directives affecting resources accessed through the specified URL paths", location).of_bytes(),
    section("<LocationMatch", Where::SERVER, "Container for directives affecting resources accessed through the specified URL paths", location).of_bytes(),
    section("<Files", FILES, "Container for directives affecting files matching specified patterns", files).of_bytes(),
    section("<FilesMatch", FILES, "Container for directives affecting files matching specified patterns", files).of_bytes(),
    section("<If", CONDITION, "Container for directives to be conditionally applied", condition).of_bytes(),
    section("<ElseIf", CONDITION, "Container for directives to be conditionally applied", condition).of_bytes(),
    section("<Else", CONDITION, "Container for directives to be conditionally applied", condition).of_bytes(),
    section("<Limit", Where::LIMIT.or(Overrides::AUTH_CONFIG), "Container for authentication directives when accessed using specified HTTP methods", limit),
    section("<LimitExcept", Where::LIMIT.or(Overrides::AUTH_CONFIG), "Container for authentication directives to be applied when any HTTP method other than those specified is used to access the resource", limit),
];
