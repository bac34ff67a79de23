//! Compares two responses to the same request, apache2's first, and classifies every difference.
//! The classes are ordered by severity: a file that Apache denies and the other server gives comes
//! first.

use super::site::mark;
use crate::answer::Response;
use crate::compare::normalise;
use std::collections::BTreeSet;
use std::fmt;

/// The class of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Apache denies the request, or answers without the file, and the other server gives the file.
    /// The attack looks for this, and it is never accepted.
    Given,
    /// A listing shows a name that Apache's listing does not show. It is never accepted.
    Shown,
    /// The other server accepts a configuration that Apache refuses.
    Taken,
    /// Apache gives the file, and the other server denies it.
    Withheld,
    /// The other server refuses a configuration that Apache accepts.
    Refused,
    /// The other server answers with a file that is not in Apache's response and may be one that
    /// Apache denies. It is never accepted.
    OtherFile,
    /// Another status.
    Status,
    /// Another URL in Location.
    Location,
    /// A header field with another value, or in one response only.
    Header,
    /// Another body.
    Body,
    /// One of the two sent no complete response, or its server has ended.
    Broken,
}

impl Class {
    const ALL: [(Class, &str); 11] = [
        (Class::Given, "given"),
        (Class::Shown, "shown"),
        (Class::Taken, "taken"),
        (Class::Withheld, "withheld"),
        (Class::Refused, "refused"),
        (Class::OtherFile, "other-file"),
        (Class::Status, "status"),
        (Class::Location, "location"),
        (Class::Header, "header"),
        (Class::Body, "body"),
        (Class::Broken, "broken"),
    ];

    /// The class with this name.
    pub fn named(name: &str) -> Option<Class> {
        Self::ALL.iter().find(|(_, other)| *other == name).map(|(class, _)| *class)
    }

    /// Whether no reason can make it acceptable.
    pub fn is_never_accepted(self) -> bool {
        matches!(self, Class::Given | Class::Shown | Class::OtherFile)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(class, _)| class == self);
        f.write_str(named.map_or("", |(_, name)| name))
    }
}

/// A difference. Those with the same class and detail are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The class.
    pub class: Class,
    /// The two statuses, the name of the header field, or both.
    pub detail: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class, self.detail)
    }
}

/// The response of a server to one request, or what went wrong instead.
pub type Answered = Result<Response, String>;

/// The differences between two responses from the site with this number, most severe first. `had`
/// are files that the oracle gives the client anyway: for the request without its preconditions, or
/// for a request for the file itself.
pub fn judge(
    oracle: &Answered,
    other: &Answered,
    had: &BTreeSet<String>,
    number: u64,
) -> Vec<Difference> {
    let (a, b) = match (oracle, other) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(a), Err(b)) if a == b => return Vec::new(),
        (a, b) => {
            let told = |it: &Answered| match it {
                Ok(response) => response.status().to_string(),
                Err(reason) => reason.clone(),
            };
            let detail = format!("{} -> {}", told(a), told(b));
            return vec![Difference { class: Class::Broken, detail }];
        }
    };
    let (from, to) = (a.status(), b.status());
    let statuses = if from == to { from.to_string() } else { format!("{from} -> {to}") };
    let one = |class| vec![Difference { class, detail: statuses.clone() }];
    let (files_a, files_b) = (marks(a, number), marks(b, number));
    let is_more = !files_b.is_subset(&files_a);
    let is_denied = files_b.difference(&files_a).any(|file| !had.contains(file));
    if denies(from) && (gives(to) || is_denied) || !gives(from) && gives(to) && is_denied {
        return one(Class::Given);
    }
    if !names(b).is_subset(&names(a)) && from == to {
        return one(Class::Shown);
    }
    if gives(from) && denies(to) {
        return one(Class::Withheld);
    }
    if from != to {
        return one(Class::Status);
    }
    if is_more && (gives(to) || is_denied) {
        return one(Class::OtherFile);
    }
    let mut differences = Vec::new();
    let (a, b) = (normalise(a), normalise(b));
    let names: BTreeSet<&String> = a.headers.iter().chain(&b.headers).map(|(it, _)| it).collect();
    for name in names {
        let of = |response: &Response| -> Vec<String> {
            let same = response.headers.iter().filter(|(other, _)| other == name);
            same.map(|(_, value)| ordered(name, value)).collect()
        };
        let class = if name == "Location" { Class::Location } else { Class::Header };
        let detail = format!("{name} {statuses}");
        differences.extend((of(&a) != of(&b)).then_some(Difference { class, detail }));
    }
    if a.body != b.body {
        // A body of another length also changes Content-Length. That is one difference.
        differences.retain(|it| !it.detail.starts_with("Content-Length "));
        differences.push(Difference { class: Class::Body, detail: statuses });
    }
    differences.sort();
    differences
}

/// The value of a field, sorted if its order has no meaning.
fn ordered(name: &str, value: &str) -> String {
    if name != "Vary" {
        return value.to_owned();
    }
    let names: BTreeSet<&str> = value.split(',').map(str::trim).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

/// The files that are not in the oracle's response but in an error page of the other server, or in
/// its response where the oracle redirects.
pub fn only_in_other(oracle: &Answered, other: &Answered, number: u64) -> BTreeSet<String> {
    match (oracle, other) {
        (Ok(oracle), Ok(other))
            if denies(other.status()) || (300..400).contains(&oracle.status()) =>
        {
            &marks(other, number) - &marks(oracle, number)
        }
        _ => BTreeSet::new(),
    }
}

/// The files that a response contains.
pub fn given(answer: &Answered, number: u64) -> BTreeSet<String> {
    let given = answer.as_ref().ok().filter(|answer| gives(answer.status()));
    given.map(|answer| marks(answer, number)).unwrap_or_default()
}

/// Whether a precondition or a range failed, so that the request without it shows what the client
/// may have.
pub fn is_conditional(status: u16) -> bool {
    matches!(status, 412 | 416)
}

/// Whether this status withholds the requested file from the client. A failed precondition, range
/// or negotiation is not a denial.
fn denies(status: u16) -> bool {
    status >= 400 && !matches!(status, 406 | 412 | 416)
}

/// Whether this status says that the requested file exists.
fn gives(status: u16) -> bool {
    matches!(status, 200..=299 | 304)
}

/// The files of the site whose contents are in the response.
fn marks(response: &Response, number: u64) -> BTreeSet<String> {
    let normal = normalise(response);
    let body = String::from_utf8_lossy(&normal.body).into_owned();
    let end = mark("", number);
    let Some((open, close)) = end.split_once("file ") else { return BTreeSet::new() };
    let start = format!("{open}file ");
    let parts = body.split(&start).skip(1);
    let names = parts.filter_map(|part| part.split_once(close).map(|(name, _)| name.to_owned()));
    names.collect()
}

/// The names in a listing; empty if the response is not a listing. The offered orders and the
/// administrator in the signature are not names.
fn names(response: &Response) -> BTreeSet<String> {
    let body = String::from_utf8_lossy(&response.body).into_owned();
    if !body.contains("<title>Index of ") && !body.contains("<ul><li>") {
        return BTreeSet::new();
    }
    let links = body.split("<a href=\"").skip(1);
    let links = links.filter_map(|part| part.split('"').next());
    let is_name = |link: &&str| !link.starts_with('?') && !link.starts_with("mailto:");
    links.filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Answered {
        let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Ok(Response {
            status_line: format!("HTTP/1.1 {status} X"),
            headers: headers.collect(),
            body: body.into(),
        })
    }

    fn judged(a: &Answered, b: &Answered) -> String {
        let found =
            judge(a, b, &BTreeSet::new(), 7).iter().map(Difference::to_string).collect::<Vec<_>>();
        found.join(", ")
    }

    #[test]
    fn what_is_denied_and_given_is_the_gravest() {
        let denied = answer(403, &[("A", "b")], "denied");
        let given = answer(200, &[], "[file htdocs/a.txt of 7]");
        assert_eq!(judged(&denied, &given), "given 403 -> 200");
        assert_eq!(judged(&given, &denied), "withheld 200 -> 403");
        assert_eq!(judged(&answer(404, &[], ""), &answer(304, &[], "")), "given 404 -> 304");
        assert_eq!(judged(&answer(412, &[], ""), &answer(304, &[], "")), "status 412 -> 304");
        assert_eq!(judged(&denied, &denied), "");
    }

    #[test]
    fn a_file_that_apache_does_not_answer_with_is_given() {
        let file = answer(200, &[], "[file htdocs/a.txt of 7]");
        for status in [300, 302, 406, 412, 416] {
            let expected = format!("given {status} -> 200");
            assert_eq!(judged(&answer(status, &[], ""), &file), expected);
        }
        // A file that only a precondition withholds is not denied.
        let failed = answer(412, &[], "");
        let judged = |freed: &Answered| judge(&failed, &file, &given(freed, 7), 7)[0].to_string();
        assert_eq!(judged(&file), "status 412 -> 200");
        assert_eq!(judged(&answer(403, &[], "")), "given 412 -> 200");
    }

    #[test]
    fn a_file_in_an_error_page_is_given_too() {
        let denied = answer(403, &[], "denied");
        let page = answer(403, &[], "[file htdocs/a.txt of 7]");
        assert_eq!(judged(&denied, &page), "given 403");
        assert_eq!(judged(&page, &denied), "body 403");
        assert_eq!(only_in_other(&denied, &page, 7), BTreeSet::from(["htdocs/a.txt".to_owned()]));
        // A file that the client may have is not secret.
        let had = given(&answer(200, &[], "[file htdocs/a.txt of 7]"), 7);
        let fault = answer(500, &[], "");
        assert_eq!(judge(&fault, &page, &had, 7)[0].to_string(), "status 500 -> 403");
        let moved = answer(301, &[], "moved");
        let page = answer(200, &[], "[file htdocs/a.txt of 7]");
        assert_eq!(only_in_other(&moved, &page, 7), BTreeSet::from(["htdocs/a.txt".to_owned()]));
        assert_eq!(judged(&moved, &page), "given 301 -> 200");
        assert_eq!(judge(&moved, &page, &had, 7)[0].to_string(), "status 301 -> 200");
        let other = answer(200, &[], "[file htdocs/b.txt of 7]");
        assert_eq!(judged(&answer(200, &[], "[file htdocs/a.txt of 7]"), &other), "other-file 200");
    }

    #[test]
    fn a_listing_may_show_no_more_than_apaches() {
        let listing = |names: &[&str]| {
            let links = names.iter().map(|name| format!("<a href=\"{name}\">x</a>"));
            answer(200, &[], &format!("<title>Index of /</title>{}", links.collect::<String>()))
        };
        assert_eq!(judged(&listing(&["?C=N", "a"]), &listing(&["a", "b"])), "shown 200");
        assert_eq!(judged(&listing(&["a", "b"]), &listing(&["a"])), "body 200");
        assert_eq!(judged(&listing(&["a"]), &listing(&["mailto:a@example.test"])), "body 200");
    }

    #[test]
    fn fields_and_bodies_are_compared() {
        let a = answer(301, &[("Location", "/a"), ("Vary", "x"), ("Date", "1")], "1");
        let b = answer(301, &[("Location", "/b"), ("Date", "2")], "2");
        assert_eq!(judged(&a, &b), "location Location 301, header Vary 301, body 301");
        assert_eq!(judged(&a, &Err("the end".into())), "broken 301 -> the end");
        assert_eq!(judged(&Err("the end".into()), &Err("the end".into())), "");
    }

    #[test]
    fn names_in_vary_have_no_order() {
        let vary = |names| answer(200, &[("Vary", names)], "");
        assert_eq!(judged(&vary("A,B"), &vary("B, A")), "");
        assert_eq!(judged(&vary("A,B"), &vary("A")), "header Vary 200");
    }

    #[test]
    fn classes_have_names() {
        assert!(Class::ALL.iter().all(|(class, name)| Class::named(name) == Some(*class)));
        assert_eq!(Class::named("nothing"), None);
    }
}
