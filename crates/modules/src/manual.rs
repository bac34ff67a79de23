//! The reference manual: the declarations of all modules come in, pages of Markdown go out, one
//! for each module and one that lists them all. It reads and writes no file.

use crate::{Active, MODULES, Module};
use evenkeel_config::{Contexts, Overrides, Shape, reserved};
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

/// What the page of the language is about.
const SYNTAX_SUBJECT: &str = "The configuration language: lines, quotes, variables, sections.";

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
    for module in MODULES {
        pages.entry(module.page).or_default();
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
    let own = MODULES.iter().flat_map(|module| {
        module.directives.iter().copied().flatten().map(move |directive| Entry {
            name: directive.name,
            shape: directive.shape,
            contexts: directive.contexts,
            overrides: directive.overrides,
            default: directive.default,
            doc: directive.doc,
            modules: vec![module.file],
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

/// The page on which the module of a source file stands.
fn page_of(file: &'static str) -> &'static str {
    MODULES.iter().find(|module| module.file == file).map_or("", |module| module.page)
}

/// The modules of a page.
fn modules_of(page: &str) -> impl Iterator<Item = &'static Module> {
    MODULES.iter().filter(move |module| module.page == page)
}

fn subject(page: &str) -> &'static str {
    modules_of(page).map(|module| module.subject).find(|it| !it.is_empty()).unwrap_or_default()
}

fn syntax_page() -> Page {
    let from = "<!-- Made by `cargo xtask manual` from crates/modules/src/syntax.md. -->\n";
    Page { file: "syntax.md".into(), text: [from, SYNTAX].concat() }
}

/// The remarks on a page, as a list.
fn remarks(page: &str) -> String {
    let lines = modules_of(page).flat_map(|module| module.remarks);
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
    let _ = writeln!(text, "- [syntax](syntax.md): {}", escape(SYNTAX_SUBJECT));
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
    for module in modules_of(name) {
        let Module { identifier, file, .. } = module;
        let _ = writeln!(text, "- Module: `{identifier}` (`{file}`), {}", presence(module));
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
fn presence(module: &Module) -> &'static str {
    match module.active {
        Active::Always => "always active",
        Active::Usually => {
            "active unless the configuration has LoadModule lines and none of them names it"
        }
        Active::WhenNamed => "active where a LoadModule line names it",
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
    fn every_page_has_a_subject_and_is_listed() {
        let list = page_named("README.md");
        for page in manual().iter().skip(1) {
            let name = page.file.strip_suffix(".md").unwrap();
            let has_subject = name == "syntax" || !subject(name).is_empty();
            assert!(has_subject, "no module of the page {name} says what it is about");
            assert!(list.contains(&format!("- [{name}]({name}.md): ")), "{name} is not listed");
        }
    }
}
