//! mod_mime: what a file's extensions say of its content. A file name and the mappings of its
//! sections go in; media type, encoding, languages, charset and handler come out. Every
//! extension counts, in order, as in Apache (mod_mime.c: find_ct).

mod directives;
mod types;

pub use crate::NoSettings as Server;
pub use directives::MODULE;
pub use types::Types;

use crate::Merge;
use crate::core::FOLDER;
use crate::settings::merged;
use evenkeel_message::{Content, Request, Resource};
use std::borrow::Cow;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What is said of one extension. An empty text takes back what an outer section said (Remove*).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extension {
    /// AddType.
    pub media_type: Option<Box<str>>,
    /// AddEncoding.
    pub encoding: Option<Box<str>>,
    /// AddLanguage.
    pub language: Option<Box<str>>,
    /// AddHandler.
    pub handler: Option<Box<str>>,
    /// AddCharset.
    pub charset: Option<Box<str>>,
    /// AddInputFilter.
    pub input_filters: Option<Box<str>>,
    /// AddOutputFilter.
    pub output_filters: Option<Box<str>>,
}

impl Merge for Extension {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(
            base, over; media_type, encoding, language, handler, charset, input_filters,
            output_filters
        )
    }
}

/// What a section says of extensions.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// By extension, in lower case and without its dot.
    pub extensions: Arc<HashMap<Box<str>, Extension, foldhash::fast::RandomState>>,
    /// DefaultLanguage.
    pub default_language: Option<Box<str>>,
    /// ModMimeUsePathInfo.
    pub use_path_info: Option<bool>,
    /// MultiviewsMatch.
    pub multiviews_match: Option<MultiviewsMatch>,
}

/// Which extensions a name that is negotiated may leave out (MultiviewsMatch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MultiviewsMatch {
    /// Those that say something of the content.
    #[default]
    NegotiatedOnly,
    /// Those, and such as only name a handler or a filter.
    Also {
        /// `Handlers`
        handlers: bool,
        /// `Filters`
        filters: bool,
    },
    /// All.
    Any,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { extensions, default_language, use_path_info, multiviews_match } = over;
        if self.extensions.is_empty() {
            self.extensions = Arc::clone(extensions);
        } else if !extensions.is_empty() {
            let own = Arc::make_mut(&mut self.extensions);
            for (name, extension) in extensions.iter() {
                own.entry(name.clone()).or_default().add(extension);
            }
        }
        self.default_language.add(default_language);
        self.use_path_info.add(use_path_info);
        self.multiviews_match.add(multiviews_match);
    }
}

/// What is said once: the file of media types.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// TypesConfig, absolute.
    pub types_config: Option<PathBuf>,
}

/// Sets the media type, handler, encoding and language of a request by the name of its file, or by
/// the URL to which a rule passes it on. A folder (`is_directory`) has the type and the handler
/// `httpd/unix-directory`; ScriptAlias replaces the handler (mod_dir.c: `fixup_dir`).
pub fn find_type(request: &mut Request, settings: &Directory, types: &Types, is_directory: bool) {
    if is_directory {
        request.resource.content.media_type = Some(FOLDER.into());
        request.resource.content.handler.get_or_insert_with(|| FOLDER.into());
        return;
    }
    let Resource { file, path_info, content, proxied, .. } = &mut request.resource;
    let names_handler = proxied.is_none();
    let mut name = Cow::Borrowed(match proxied.as_deref() {
        None => file.as_os_str().as_bytes(),
        Some(proxied) if proxied.is_raw => {
            proxied.name.split(|byte| *byte == b'?').next().unwrap_or_default()
        }
        Some(proxied) => &proxied.name,
    });
    if settings.use_path_info == Some(true) {
        name.to_mut().extend_from_slice(path_info);
    }
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    describe(content, base, names_handler, settings, types);
}

/// Adds to the content what the last part of a file's name says. `names_handler` tells whether an
/// extension names the handler.
pub fn describe(
    content: &mut Content,
    base: &[u8],
    names_handler: bool,
    settings: &Directory,
    types: &Types,
) {
    let mut charset: Option<&str> = None;
    let leading = base.iter().take_while(|byte| **byte == b'.').count();
    let parts = base.get(leading..).unwrap_or_default().split(|byte| *byte == b'.').skip(1);
    for part in parts.filter(|part| !part.is_empty()) {
        let Ok(part) = std::str::from_utf8(part) else { continue };
        let part = in_lower_case(part);
        let known = settings.extensions.get(&*part);
        let own_type = known.and_then(|extension| extension.media_type.as_deref());
        if let Some(media_type) = own_type.or_else(|| types.of(&part)).filter(|t| !t.is_empty()) {
            content.media_type = Some(media_type.as_bytes().into());
        }
        if let Some(extension) = known {
            apply(content, extension, names_handler);
            charset = extension.charset.as_deref().filter(|c| !c.is_empty()).or(charset);
        }
    }
    // What is no type has no parameters (mod_mime.c: analyze_ct).
    let media_type = content.media_type.as_ref().filter(|it| it.contains(&b'/'));
    if let (Some(charset), Some(media_type)) = (charset, media_type) {
        let with_charset = [media_type, &b"; charset="[..], charset.as_bytes()].concat();
        content.media_type = Some(with_charset.into());
        content.charset_fixed = true;
    }
    if let (true, Some(language)) = (content.languages.is_empty(), &settings.default_language) {
        content.languages.push(language.as_bytes().into());
    }
}

/// The parts of a file's name that say nothing of its content, the first of all among them: what
/// a request that is negotiated must name. None where no part says anything (mod_mime.c: find_ct,
/// its exception list).
#[must_use]
pub fn silent_parts<'a>(
    base: &'a [u8],
    settings: &Directory,
    types: &Types,
) -> Option<Vec<&'a [u8]>> {
    let leading = base.iter().take_while(|byte| **byte == b'.').count();
    let rest = base.get(leading..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == b'.').unwrap_or(rest.len());
    let (first, rest) = base.split_at_checked(leading + end).unwrap_or_default();
    let rule = settings.multiviews_match.unwrap_or_default();
    let (mut silent, mut found) = (vec![first], false);
    for part in rest.split(|byte| *byte == b'.').filter(|part| !part.is_empty()) {
        if speaks(part, settings, types, rule) {
            found = true;
        } else {
            silent.push(part);
        }
    }
    found.then_some(silent)
}

/// Whether an extension counts as saying something.
fn speaks(part: &[u8], settings: &Directory, types: &Types, rule: MultiviewsMatch) -> bool {
    if rule == MultiviewsMatch::Any {
        return true;
    }
    let Ok(part) = std::str::from_utf8(part) else { return false };
    let part = in_lower_case(part);
    let known = settings.extensions.get(&*part);
    let says = |text: &Option<Box<str>>| text.as_deref().is_some_and(|text| !text.is_empty());
    let typed = match known.and_then(|known| known.media_type.as_deref()) {
        Some(own) => !own.is_empty(),
        None => types.of(&part).is_some(),
    };
    let also = |known: &Extension| match rule {
        MultiviewsMatch::Also { handlers, filters } => {
            (handlers && says(&known.handler))
                || (filters && (says(&known.input_filters) || says(&known.output_filters)))
        }
        MultiviewsMatch::NegotiatedOnly | MultiviewsMatch::Any => false,
    };
    let described = |known: &Extension| {
        says(&known.charset) || says(&known.language) || says(&known.encoding) || also(known)
    };
    typed || known.is_some_and(described)
}

/// An extension as the tables have it: it is copied only where it has capitals.
fn in_lower_case(part: &str) -> Cow<'_, str> {
    if part.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(part.to_ascii_lowercase())
    } else {
        Cow::Borrowed(part)
    }
}

/// Adds what an extension says. It names no handler of a request that a rule passes on.
fn apply(content: &mut Content, extension: &Extension, names_handler: bool) {
    let said = |text: &Option<Box<str>>| -> Option<Box<[u8]>> {
        text.as_deref().filter(|text| !text.is_empty()).map(|text| text.as_bytes().into())
    };
    if let Some(language) = said(&extension.language) {
        content.languages.push(language);
    }
    if let Some(encoding) = said(&extension.encoding) {
        content.encoding = Some(match content.encoding.take() {
            None => encoding,
            Some(outer) => [&outer, &b", "[..], &encoding].concat().into(),
        });
    }
    if let Some(handler) = said(&extension.handler).filter(|_| names_handler) {
        content.handler = Some(handler);
    }
    let add = |list: &mut Option<Box<[u8]>>, filters: Box<[u8]>| {
        *list = Some(match list.take() {
            None => filters,
            Some(before) => [&before, &b";"[..], &filters].concat().into(),
        });
    };
    if let Some(filters) = said(&extension.output_filters) {
        add(&mut content.output_filters, filters);
    }
    if let Some(filters) = said(&extension.input_filters) {
        add(&mut content.input_filters, filters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{FileName, Peer, RequestHead};

    fn settings(entries: &[(&str, Extension)]) -> Directory {
        let extensions =
            entries.iter().map(|(name, extension)| ((*name).into(), extension.clone())).collect();
        Directory { extensions: Arc::new(extensions), ..Directory::default() }
    }

    fn found(file: &str, settings: &Directory) -> evenkeel_message::Content {
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.file = FileName::new(file);
        let types = Types::parse("text/html html htm\n# no\nimage/png png\n");
        find_type(&mut request, settings, &types, false);
        request.resource.content
    }

    fn said(text: &str) -> Option<Box<str>> {
        Some(text.into())
    }

    #[test]
    fn every_extension_counts_and_the_last_type_wins() {
        let rules = settings(&[
            ("fr", Extension { language: said("fr"), ..Extension::default() }),
            ("gz", Extension { encoding: said("x-gzip"), ..Extension::default() }),
            ("utf8", Extension { charset: said("utf-8"), ..Extension::default() }),
            ("htm", Extension { media_type: said("text/x-own"), ..Extension::default() }),
        ]);
        let content = found("/a/x.fr.HTML.utf8.gz", &rules);
        assert_eq!(content.media_type.as_deref(), Some(&b"text/html; charset=utf-8"[..]));
        assert_eq!(content.encoding.as_deref(), Some(&b"x-gzip"[..]));
        assert_eq!(content.languages, [b"fr"[..].into()]);
        assert_eq!(found("x.htm", &rules).media_type.as_deref(), Some(&b"text/x-own"[..]));
        assert_eq!(found("x.png.bak", &rules).media_type.as_deref(), Some(&b"image/png"[..]));
    }

    #[test]
    fn parts_that_say_nothing_are_told() {
        let mut rules = settings(&[
            ("fr", Extension { language: said("fr"), ..Extension::default() }),
            ("var", Extension { handler: said("type-map"), ..Extension::default() }),
            ("sh", Extension { output_filters: said("INCLUDES"), ..Extension::default() }),
        ]);
        let types = Types::parse("text/html html\n");
        let parts = |rules: &Directory, name: &str| {
            let silent = silent_parts(name.as_bytes(), rules, &types)?;
            Some(silent.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect())
        };
        let told = |list: &[&str]| Some(list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parts(&rules, "a.HTML.x.fr"), told(&["a", "x"]));
        assert_eq!(parts(&rules, ".html.html"), told(&[".html"]));
        assert_eq!(parts(&rules, "a.html.var.sh"), told(&["a", "var", "sh"]));
        assert_eq!(parts(&rules, "a.txt"), None);
        assert_eq!(parts(&rules, "html"), None);
        rules.multiviews_match = Some(MultiviewsMatch::Also { handlers: true, filters: false });
        assert_eq!(parts(&rules, "a.var.sh"), told(&["a", "sh"]));
        rules.multiviews_match = Some(MultiviewsMatch::Any);
        assert_eq!(parts(&rules, "a.b.c"), told(&["a"]));
    }

    #[test]
    fn a_first_part_is_no_extension_and_removal_empties() {
        let none = settings(&[]);
        assert_eq!(found("html", &none).media_type, None);
        assert_eq!(found(".html", &none).media_type, None);
        let outer = settings(&[("x", Extension { handler: said("h"), ..Extension::default() })]);
        let inner = settings(&[("x", Extension { handler: said(""), ..Extension::default() })]);
        assert!(found("a.x", &outer).handler.is_some());
        assert!(found("a.x", &Directory::merge(&outer, &inner)).handler.is_none());
    }
}
