//! The reference manual: the declarations of all modules come in, pages of Markdown go out, one
//! for each module and one that lists them all. It reads and writes no file.

use crate::registry::{MODELS, OFFERS, tables};
use evenkeel_config::{Contexts, Offer, Overrides, Shape, reserved};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A page of the manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its file name.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// What each page is about.
#[rustfmt::skip]
const SUBJECTS: &[(&str, &str)] = &[
    ("core", "What every site needs: sections, virtual hosts, files, limits, error pages."),
    ("mod_access_compat", "Access by host and address in the manner of Apache 2.2."),
    ("mod_alias", "Other places than DocumentRoot for parts of a site, and redirects."),
    ("mod_authz_core", "Who may see what: Require and its containers. With `LogLevel authz_core:info` the error log has a second line for each refusal. It names the Require lines that denied the client, each with its file and line number."),
    ("mod_authz_host", "Access by the client's address and name: `Require ip`, `host`, `local`, `forward-dns`."),
    ("mod_autoindex", "The listing of a folder that has no index."),
    ("mod_deflate", "Bodies compressed for clients that take gzip, and unpacked again: the output filters `DEFLATE` and `INFLATE`. The bodies of requests are not unpacked. A 304 that answers the tag of the plain body has no Vary, as in Apache."),
    ("mod_dir", "The page of a folder, and the slash behind its name."),
    ("mod_env", "Variables of the environment for what answers a request."),
    ("mod_filter", "Which output filters a response goes through, by its media type or by conditions. Those of another status than 200 go through none, unless the variable `filter-errordocs` is set."),
    ("mod_headers", "Fields of requests and responses: set, added, changed, taken away."),
    ("mod_lab", "Applications to measure this server with; no module of Apache's. The handler `lab-wait` answers `?ms=N` after N milliseconds, `lab-burn` after as much CPU time, `lab-gate` after N milliseconds at one of LabGatePlaces places, for which the requests of all children stand in line; all hold a worker meanwhile. A handler is off until its bound is configured, and refuses with 400 what is beyond it."),
    ("mod_log_config", "Access logs: formats, files, programs, conditions."),
    ("mod_logio", "Bytes received and sent, and the time to the first byte, in access logs: `%I`, `%O`, `%S`, `%^FB`."),
    ("mod_macro", "Pieces of configuration with parameters."),
    ("mod_mime", "What a file's extensions say of its content."),
    ("mod_negotiation", "Which of several files is sent: by media type, language, charset and encoding, among those of a folder (MultiViews) or of a type map."),
    ("mod_reqtimeout", "How long a client may take to send a request."),
    ("mod_setenvif", "Variables set by what the request says."),
    ("mod_so", "Which modules are active. Nothing is loaded from a file: the modules are part of the server, and LoadModule lines say which of them are to act. A configuration with such a line, other than for a process model, has the modules that its lines name and those that are always active. Any other has the usual ones as well; `-l` and `-M` show them as static."),
    ("mod_status", "The state of the server as a page: the handler `server-status`, with `?refresh=N`, `?notable`, `?auto` and `?json`. ExtendedStatus is on where this module is active."),
    ("mod_unixd", "Who the children of the server are. Root's server does not start without User; with `-X` it serves as nobody then."),
    ("mod_version", "Configuration that depends on the version spoken: `<IfVersion>`."),
    ("mod_watchdog", "Present for configurations that ask for it: its directive is checked, and nothing is done."),
    ("syntax", "The configuration language: lines, quotes, variables, sections."),
    ("mpm", "The process models event, worker and prefork: addresses, processes, threads. One of them is active, event where none is named."),
];

/// What an administrator who knows Apache should know of a module, by the page of the manual.
#[rustfmt::skip]
const REMARKS: &[(&str, &[&str])] = &[
    ("core", &[
        "Where Apache differs from RFC 9110, the RFC holds: a Range is for GET alone, If-Unmodified-Since is ignored beside If-Match, and a date of 1970 or before is a date.",
        "A redirect or a refusal goes before LimitRequestBody.",
        "A change of a file acts on the next request, and so does that of a .htaccess file. A change that the kernel tells nobody of acts within a second: a write through a shared mapping, or through a hard link that was made after the file was read.",
        "LAST_MODIFIED in conditions is the time of the file. Apache still has 1970 there.",
        "Under prefork and worker, a response has `Connection: close` while other connections wait for a worker, whatever KeepAlive says: at once where clients pause between requests, else after eight requests or a tenth of a second. A connection that is idle for three quarters of a second meanwhile is closed. Apache keeps connections for KeepAliveTimeout, and others wait as long.",
        "-U and -F of conditions lead to one another four times at most. Where an answer depends on \
         questions beyond that, there is none, and the request is answered with 500: Apache asks on \
         up to ten times, and each time may turn the answer round.",
        "What cannot be decided lets nobody through: a pattern or an expression that takes too many steps is answered with 500. Apache takes it for one that does not hold.",
    ]),
    ("mod_access_compat", &[
        "A line of this module that an .htaccess file may not say, and that `AllowOverride Nonfatal=Override` leaves out, undoes Satisfy of the sections outside and not their Order, Allow and Deny. Apache forgets all of these, so that such a line lifts a denial.",
    ]),
    ("mod_alias", &[
        "An Alias in a section whose expression cannot be evaluated is answered with 500. Apache goes on with an empty path.",
    ]),
    ("mod_headers", &[
        "A request is answered with 500 where the condition or value of a RequestHeader line asks for a file that cannot be read. Apache carries the line out.",
    ]),
];

/// The page of the language, which has no directives.
const SYNTAX: &str = include_str!("syntax.md");

/// One directive as the manual shows it.
struct Entry {
    name: &'static str,
    shape: Shape,
    contexts: Contexts,
    overrides: Overrides,
    default: &'static str,
    doc: &'static str,
    /// The source files of the modules that have it.
    modules: Vec<&'static str>,
}

/// All pages: first the list, then the modules by name.
#[must_use]
pub fn manual() -> Vec<Page> {
    let mut pages: BTreeMap<&'static str, Vec<Entry>> = BTreeMap::new();
    for offer in OFFERS {
        pages.entry(page_of(offer.file)).or_default();
    }
    for entry in entries() {
        let Some(module) = entry.modules.first() else { continue };
        let page = pages.entry(page_of(module)).or_default();
        match page.iter_mut().find(|known| known.name == entry.name) {
            Some(known) => known.modules.extend(entry.modules),
            None => page.push(entry),
        }
    }
    for entries in pages.values_mut() {
        entries.sort_by_key(|entry| bare(entry.name).to_ascii_lowercase());
    }
    let mut all = vec![list(&pages), syntax_page()];
    all.extend(pages.iter().map(|(name, entries)| page(name, entries)));
    all
}

/// The directives of the modules and those of the language itself.
fn entries() -> impl Iterator<Item = Entry> {
    let own = tables().flat_map(|table| {
        table.directives.iter().map(move |directive| Entry {
            name: directive.name,
            shape: directive.shape,
            contexts: directive.contexts,
            overrides: directive.overrides,
            default: directive.default,
            doc: directive.doc,
            modules: vec![table.module],
        })
    });
    let language = reserved().iter().map(|reserved| Entry {
        name: reserved.name,
        shape: reserved.shape,
        contexts: reserved.contexts,
        overrides: reserved.overrides,
        default: "",
        doc: reserved.doc,
        modules: vec![reserved.module],
    });
    own.chain(language)
}

/// The page on which a module stands: the process models share one, and so does the core.
fn page_of(file: &'static str) -> &'static str {
    match file {
        "event.c" | "worker.c" | "prefork.c" => "mpm",
        "http_core.c" => "core",
        file => file.strip_suffix(".c").unwrap_or(file),
    }
}

fn subject(page: &str) -> &'static str {
    SUBJECTS.iter().find(|(name, _)| *name == page).map_or("", |(_, subject)| subject)
}

fn syntax_page() -> Page {
    let from = "<!-- Made by `cargo xtask manual` from crates/modules/src/syntax.md. -->\n";
    Page { file: "syntax.md".into(), text: [from, SYNTAX].concat() }
}

/// The remarks on a page, as a list.
fn remarks(page: &str) -> String {
    let of_page = REMARKS.iter().filter(|(name, _)| *name == page);
    let lines = of_page.flat_map(|(_, remarks)| *remarks);
    let text: String = lines.map(|remark| format!("- {}\n", escape(remark))).collect();
    if text.is_empty() { text } else { format!("To know besides:\n\n{text}\n") }
}

/// A directive's name without the bracket of a section.
fn bare(name: &str) -> &str {
    name.trim_start_matches('<')
}

fn list(pages: &BTreeMap<&'static str, Vec<Entry>>) -> Page {
    let mut text = String::from(
        "# Manual\n\nEvery module and directive, made by `cargo xtask manual` from their \
         declarations.\n\n## The language\n\n",
    );
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "- [syntax](syntax.md): {}", escape(subject("syntax")));
    text.push_str("\n## Modules\n\n");
    for name in pages.keys() {
        let _ = writeln!(text, "- [{name}]({name}.md): {}", escape(subject(name)));
    }
    let mut directives: Vec<(&str, &str)> = pages
        .iter()
        .flat_map(|(page, entries)| entries.iter().map(move |entry| (entry.name, *page)))
        .collect();
    directives.sort_by_key(|(name, page)| (bare(name).to_ascii_lowercase(), *page));
    text.push_str("\n## Directives\n\n");
    for (name, page) in directives {
        let anchor = bare(name).to_ascii_lowercase();
        let _ = writeln!(text, "- [{}]({page}.md#{anchor}) ({page})", title(name));
    }
    Page { file: "README.md".into(), text }
}

fn page(name: &'static str, entries: &[Entry]) -> Page {
    let mut text = format!(
        "<!-- Made by `cargo xtask manual` from the declarations. -->\n# {name}\n\n{}\n\n{}",
        escape(subject(name)),
        remarks(name)
    );
    let offers = OFFERS.iter().filter(|offer| page_of(offer.file) == name);
    for offer in offers {
        let _ = writeln!(
            text,
            "- Module: `{}` (`{}`), {}",
            offer.identifier,
            offer.file,
            presence(offer)
        );
    }
    if entries.is_empty() {
        text.push_str("\nThis module has no directives.\n");
    }
    for entry in entries {
        let _ = describe(name, entry, &mut text);
    }
    Page { file: format!("{name}.md"), text }
}

/// When a module is active.
fn presence(offer: &Offer) -> &'static str {
    match offer {
        Offer { identifier, default: false, .. } if MODELS.contains(identifier) => {
            "active where a LoadModule line names it"
        }
        Offer { builtin: true, .. } => "always active",
        Offer { default: true, .. } => {
            "active unless the configuration has LoadModule lines and none of them names it"
        }
        _ => "active where a LoadModule line names it",
    }
}

fn describe(page: &str, entry: &Entry, text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n## {}\n\n{}\n", title(entry.name), escape(entry.doc))?;
    writeln!(text, "- Syntax: `{}`", syntax(entry))?;
    if !entry.default.is_empty() {
        writeln!(text, "- Default: `{} {}`", entry.name, entry.default)?;
    }
    writeln!(text, "- Context: {}", context(entry))?;
    if entry.overrides == Overrides::ALL {
        writeln!(text, "- Override: any class")?;
    } else if !entry.overrides.is_none() {
        writeln!(text, "- Override: {}", entry.overrides)?;
    }
    if page == "mpm" {
        let models: Vec<_> = entry.modules.iter().filter_map(|m| m.strip_suffix(".c")).collect();
        writeln!(text, "- Models: {}", models.join(", "))?;
    }
    Ok(())
}

fn title(name: &str) -> String {
    match name.strip_prefix('<') {
        Some(section) => format!("&lt;{section}&gt;"),
        None => name.to_owned(),
    }
}

fn syntax(entry: &Entry) -> String {
    let name = entry.name;
    if let Some(section) = name.strip_prefix('<') {
        return format!("<{section} ...> ... </{section}>");
    }
    let arguments = match entry.shape {
        Shape::None => "",
        Shape::Raw => " ...",
        Shape::One => " value",
        Shape::Two => " value value",
        Shape::Three => " value value value",
        Shape::OneOrTwo => " value [value]",
        Shape::OneTwoOrThree => " value [value] [value]",
        Shape::TwoOrThree => " value value [value]",
        Shape::OneOrThree => " value [value value]",
        Shape::Iterate => " value [value] ...",
        Shape::IterateTwo => " value value [value] ...",
        Shape::Flag => " On|Off",
        Shape::Argv => " [value] ...",
    };
    format!("{name}{arguments}")
}

/// The places in the words of Apache's manual.
fn context(entry: &Entry) -> String {
    let has = |contexts| entry.contexts.contains(contexts);
    let open = Overrides::OPTIONS.with(Overrides::FILE_INFO).with(Overrides::INDEXES);
    let mut places = Vec::new();
    if has(Contexts::SERVER) || entry.overrides.meets(open) {
        places.push("server config");
        if !has(Contexts::NOT_IN_VIRTUALHOST) {
            places.push("virtual host");
        }
    }
    let inside = has(Contexts::DIRECTORY) || !entry.overrides.is_none();
    if inside && !has(Contexts::NOT_IN_DIR_CONTEXT) {
        places.push("directory");
    }
    if !entry.overrides.is_none() && !has(Contexts::NOT_IN_HTACCESS) {
        places.push(".htaccess");
    }
    places.join(", ")
}

/// Text that Markdown shows as it stands; what is in backquotes stays.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_code = false;
    for c in text.chars() {
        in_code ^= c == '`';
        match c {
            '<' if !in_code => out.push_str("&lt;"),
            '>' if !in_code => out.push_str("&gt;"),
            '*' | '_' | '[' if !in_code => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_named(name: &str) -> String {
        manual().into_iter().find(|page| page.file == name).unwrap().text
    }

    #[test]
    fn a_directive_shows_what_its_declaration_says() {
        let page = page_named("mod_lab.md");
        assert!(page.contains("# mod_lab\n"), "{page}");
        assert!(page.contains("- Syntax: `LabMaxWait value`\n- Default: `LabMaxWait 0`\n"));
        assert!(page.contains("- Context: server config\n"), "{page}");
    }

    #[test]
    fn places_and_classes_are_named() {
        let mime = page_named("mod_mime.md");
        let places = "- Context: server config, virtual host, directory, .htaccess\n";
        assert!(mime.contains(&format!("{places}- Override: FileInfo\n")), "{mime}");
        let core = page_named("core.md");
        assert!(core.contains("## &lt;Directory&gt;\n"), "{core}");
        assert!(core.contains("- Syntax: `<Directory ...> ... </Directory>`\n"), "{core}");
        assert!(core.contains("## IncludeOptional\n"), "{core}");
    }

    #[test]
    fn the_models_share_a_page_and_each_directive_stands_there_once() {
        let page = page_named("mpm.md");
        assert_eq!(page.matches("\n## Listen\n").count(), 1);
        assert!(page.contains("- Models: event, worker, prefork\n"), "{page}");
        assert!(page.contains("- Models: prefork\n"), "{page}");
    }

    #[test]
    fn remarks_stand_on_a_page_that_is_there() {
        for (name, remarks) in REMARKS {
            let page = page_named(&format!("{name}.md"));
            let stands = |remark: &&str| page.contains(&format!("- {}\n", escape(remark)));
            assert!(remarks.iter().all(stands), "{page}");
        }
    }

    #[test]
    fn every_page_has_a_subject_and_is_listed() {
        let list = page_named("README.md");
        for page in manual().iter().skip(1) {
            let name = page.file.strip_suffix(".md").unwrap();
            assert!(!subject(name).is_empty(), "{name} is missing in SUBJECTS of this file");
            assert!(list.contains(&format!("- [{name}]({name}.md): ")), "{name} is not listed");
        }
    }
}
