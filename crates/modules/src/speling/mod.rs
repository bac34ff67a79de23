//! mod_speling: leads a request for a name that no file has to the file with a similar name. The
//! name and those of its folder come in, a redirect or a list of choices goes out. The pipeline
//! reads the folder.

mod distance;

pub use crate::{NoSettings as Global, NoSettings as Server};

use crate::core::public_url;
use crate::{
    Active, CoreSettings, Directive, DirectiveResult, Merge, Module, Scope, Where, directive,
};
use distance::{Quality, distance};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Answer, Fields, Level, Method, Notice, Request, Status, quoted};
use evenkeel_proto::{escape_html, escape_uri};
use evenkeel_sys::open::Names;
use std::io;
use std::ops::ControlFlow;

/// The most names that a page offers. Apache bounds none.
const MOST: usize = 1000;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("CheckSpelling", Where::OPTIONS, Shape::Flag, "off", "whether or not to fix miscapitalized/misspelled requests", check_spelling),
    directive("CheckCaseOnly", Where::OPTIONS, Shape::Flag, "off", "whether or not to fix only miscapitalized requests", check_case_only),
    directive("CheckBasenameMatch", Where::OPTIONS, Shape::Flag, "on", "whether or not to fix files with the same base name", check_basename),
];

/// mod_speling.
pub const MODULE: Module = Module {
    file: "mod_speling.c",
    identifier: "speling_module",
    active: Active::WhenNamed,
    page: "mod_speling",
    subject: "Requests for misspelled names, which are led to the file that is meant.",
    remarks: &[
        "As in Apache, names are offered whether or not the client may see the files.",
        "A list of choices has at most 1,000 names.",
        "The names `.` and `..` are not offered. In Apache they are one mistyped character away \
         from names of one character.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// What one section says.
#[derive(Clone, Copy, Debug)]
struct Settings {
    is_on: bool,
    case_only: bool,
    basenames: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { is_on: false, case_only: false, basenames: true }
    }
}

/// The settings of one section. An inner section that says anything replaces all that outer ones
/// say, because mod_speling has no function that merges sections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directory(Option<Settings>);

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        Self(over.0.or(base.0))
    }
}

/// What is looked for, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misspelled {
    /// The folder of the file system.
    pub folder: Vec<u8>,
    /// The name that is not there.
    name: Vec<u8>,
    /// The path of the folder, with its slash.
    url: Vec<u8>,
    settings: (bool, bool),
}

/// A name that is similar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    name: Vec<u8>,
    quality: Quality,
}

/// What a request for a file that is not there looks for; none where nothing is corrected
/// (mod_speling.c: check_speling).
#[must_use]
pub fn wanted(request: &Request, settings: Directory) -> Option<Misspelled> {
    let Settings { is_on: true, case_only, basenames } = settings.0? else { return None };
    let resource = &request.resource;
    let is_get = matches!(resource.method, Method::Get | Method::Head);
    if !is_get || resource.proxied.is_some() || resource.depth > 0 || &*resource.path == b"/" {
        return None;
    }
    let file = resource.file.as_bytes();
    let slash = file.iter().rposition(|byte| *byte == b'/')?;
    let (folder, name) = (file.get(..slash)?, file.get(slash + 1..)?);
    // The path of the request must be that of the file.
    let rest = [name, &resource.path_info].concat();
    let url = resource.path.strip_suffix(rest.as_slice())?;
    let (folder, name, url) = (folder.to_vec(), name.to_vec(), url.to_vec());
    Some(Misspelled { folder, name, url, settings: (case_only, basenames) })
}

impl Misspelled {
    /// The names in the folder that are similar, the most similar first; none where the very name
    /// is there, which is a broken link, say. Errors are those of reading the folder.
    pub fn candidates(&self) -> io::Result<Option<Vec<Candidate>>> {
        let (mut found, mut is_there) = (Vec::new(), false);
        Names::of(if self.folder.is_empty() { b"/" } else { &self.folder })?.each(|name| {
            is_there = name.bytes() == self.name;
            if is_there {
                return ControlFlow::Break(());
            }
            if let Some(quality) = self.quality_of(name.bytes()).filter(|_| found.len() < MOST) {
                found.push(Candidate { name: name.bytes().to_vec(), quality });
            }
            ControlFlow::Continue(())
        })?;
        found.sort_by(|a: &Candidate, b| (a.quality, &a.name).cmp(&(b.quality, &b.name)));
        Ok((!is_there && !found.is_empty()).then_some(found))
    }

    fn quality_of(&self, name: &[u8]) -> Option<Quality> {
        let (case_only, basenames) = self.settings;
        if self.name.eq_ignore_ascii_case(name) {
            return Some(Quality::Miscapitalized);
        }
        if let Some(quality) = distance(&self.name, name).filter(|_| !case_only) {
            return Some(quality);
        }
        let base = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::to_vec);
        let is_same = base(&self.name)
            .zip(base(name))
            .is_some_and(|(own, other)| own.eq_ignore_ascii_case(&other));
        (basenames && is_same).then_some(Quality::Basename)
    }

    /// The answer: a redirect where one name is the most similar, or a list of choices, with the
    /// text of the list and the variable VARIANTS.
    #[must_use]
    pub fn answer(
        &self,
        request: &mut Request,
        candidates: &[Candidate],
        core: CoreSettings<'_>,
    ) -> (Answer, Option<Choices>) {
        let [first, others @ ..] = candidates else { return (Status::NOT_FOUND.into(), None) };
        let is_clear = first.quality != Quality::Basename
            && others.first().is_none_or(|second| second.quality != first.quality);
        let referer = request.fields().first("Referer").map(<[u8]>::to_vec);
        let from = referer.as_ref().map(|referer| format!(" from {}", quoted(referer)));
        let from = from.unwrap_or_default();
        if !is_clear {
            let text = format!(
                "Spelling fix: {}: {} candidates{from}",
                quoted(&request.resource.path),
                candidates.len()
            );
            let number = if referer.is_some() { 3226 } else { 3227 };
            request.notify(Notice::new("speling", Level::Info, number, text));
            let choices = self.choices(request, candidates, referer.as_deref());
            return (Status::MULTIPLE_CHOICES.into(), Some(choices));
        }
        let path = [&self.url, &first.name, &*request.resource.path_info].concat();
        let mut url = Vec::new();
        escape_uri(&mut url, &path);
        if let Some(query) = &request.resource.query {
            url.push(b'?');
            url.extend_from_slice(query);
        }
        let text =
            format!("Fixed spelling: {} to {}{from}", quoted(&request.resource.path), quoted(&url));
        let number = if referer.is_some() { 3224 } else { 3225 };
        request.notify(Notice::new("speling", Level::Info, number, text));
        let mut fields = Fields::new();
        fields.set("Location", public_url(request, core, &url));
        (Answer::with_fields(Status::MOVED_PERMANENTLY, fields), None)
    }

    fn choices(
        &self,
        request: &Request,
        candidates: &[Candidate],
        referer: Option<&[u8]>,
    ) -> Choices {
        let (mut list, mut variants) = (Vec::new(), Vec::new());
        list.extend_from_slice(b"The document name you requested (<code>");
        escape_html(&mut list, &request.resource.path);
        list.extend_from_slice(
            b"</code>) could not be found on this server.\nHowever, we found documents with names \
              similar to the one you requested.<p>Available documents:\n<ul>\n",
        );
        for (index, candidate) in candidates.iter().enumerate() {
            let reason = candidate.quality.name().as_bytes();
            let mut url = [&self.url, &candidate.name, &*request.resource.path_info].concat();
            if let Some(query) = &request.resource.query {
                url.push(b'?');
                url.extend_from_slice(query);
            }
            let mut escaped = Vec::new();
            escape_uri(&mut escaped, &url);
            if index > 0 {
                variants.push(b',');
            }
            variants.extend_from_slice(&[b"\"", &*escaped, b"\";\"", reason, b"\""].concat());
            list.extend_from_slice(&[b"<li><a href=\"", &*escaped, b"\">"].concat());
            escape_html(&mut list, &url);
            list.extend_from_slice(&[b"</a> (", reason, b")\n"].concat());
            let next = candidates.get(index + 1);
            let is_last_close = index > 0
                && candidate.quality != Quality::Basename
                && next.is_some_and(|next| next.quality == Quality::Basename);
            if is_last_close {
                list.extend_from_slice(
                    b"</ul>\nFurthermore, the following related documents were found:\n<ul>\n",
                );
            }
        }
        list.extend_from_slice(b"</ul>\n");
        if let Some(referer) = referer {
            list.extend_from_slice(
                b"Please consider informing the owner of the referring page <tt>",
            );
            escape_html(&mut list, referer);
            list.extend_from_slice(b"</tt> about the broken link.\n");
        }
        Choices { list, variants }
    }
}

/// A list of choices.
#[derive(Debug)]
pub struct Choices {
    /// The text of the page.
    pub list: Vec<u8>,
    /// The variable VARIANTS.
    pub variants: Vec<u8>,
}

fn check_spelling(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.speling.0.get_or_insert_default().is_on = call.flag;
    Ok(())
}

fn check_case_only(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.speling.0.get_or_insert_default().case_only = call.flag;
    Ok(())
}

fn check_basename(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.speling.0.get_or_insert_default().basenames = call.flag;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, core_settings};
    use evenkeel_message::{FileName, Peer, RequestHead, UriOptions, UrlPath};

    fn request(path: &str, file: &str, path_info: &str) -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.path = UrlPath::parse(path.as_bytes(), UriOptions::default()).unwrap();
        request.resource.file = FileName::new(file);
        request.resource.path_info = path_info.into();
        request
    }

    fn settings(directives: &str) -> Directory {
        apply(MODULE, directives).unwrap().directory.speling
    }

    #[test]
    fn only_a_path_that_is_that_of_the_file_is_corrected() {
        let on = settings("CheckSpelling on");
        let found = wanted(&request("/a/fyle/x", "/srv/a/fyle", "/x"), on).unwrap();
        assert_eq!(
            (&*found.folder, &*found.name, &*found.url),
            (&b"/srv/a"[..], &b"fyle"[..], &b"/a/"[..])
        );
        assert_eq!(wanted(&request("/alias", "/srv/a/fyle", ""), on), None);
        assert_eq!(wanted(&request("/", "/srv/", ""), on), None);
        assert_eq!(
            wanted(&request("/a/fyle", "/srv/a/fyle", ""), settings("CheckCaseOnly on")),
            None
        );
    }

    #[test]
    fn the_most_similar_name_is_taken_and_others_are_offered() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["Index.html", "indes.html", "index.db", "page.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let answer = |directives: &str, name: &str| {
            let mut request = request(&format!("/{name}"), &file(name), "");
            request.resource.query = Some(b"q".to_vec());
            let misspelled = wanted(&request, settings(directives))?;
            let candidates = misspelled.candidates().unwrap()?;
            let names = candidates.iter().map(|it| String::from_utf8(it.name.clone()).unwrap());
            let names = names.collect::<Vec<_>>();
            let (answer, choices) = misspelled.answer(&mut request, &candidates, core_settings());
            let Answer::Status(status, _) = answer else { panic!("{answer:?}") };
            Some((status.code(), names.join(" "), choices))
        };
        let (status, names, choices) = answer("CheckSpelling on", "index.html").unwrap();
        assert_eq!((status, &*names), (301, "Index.html indes.html index.db"));
        assert!(choices.is_none());
        let case = "CheckSpelling on\nCheckCaseOnly on\nCheckBasenameMatch off";
        assert_eq!(answer(case, "PAGE.txt").unwrap().1, "page.txt");
        assert!(answer(case, "pag.txt").is_none());
        let (status, names, choices) = answer("CheckSpelling on", "page.html").unwrap();
        assert_eq!((status, &*names), (300, "page.txt"));
        let choices = choices.unwrap();
        assert_eq!(choices.variants, b"\"/page.txt%3fq\";\"common basename\"");
        assert!(answer("CheckSpelling on", "nothing").is_none());
        assert!(answer("CheckSpelling on", "page.txt").is_none(), "the very name is there");
    }
}
