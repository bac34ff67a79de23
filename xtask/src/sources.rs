//! Checks a file for departures from the style, each with its line. What the compiler, rustfmt and
//! clippy already check is left to them.

use std::path::Path;

/// The most lines that a source file may have.
const MOST_LINES: usize = 800;
/// The most characters that a line may have.
const MOST_COLUMNS: usize = 100;
/// Names that do not say what a file or module is for.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "common", "helper", "helpers", "manager", "misc", "shared"];
/// Folders that exist only on a developer's machine. They are written in two parts, so that this
/// file passes its own check.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
/// The ways in which unsafe code can begin.
const UNSAFE_FORMS: [&str; 5] = [
    concat!("unsafe", " {"),
    concat!("unsafe", " fn"),
    concat!("unsafe", " impl"),
    concat!("unsafe", " extern"),
    concat!("allow(unsafe", "_code)"),
];
/// The number of lines above an unsafe block within which its SAFETY comment may begin.
const SAFETY_REACH: usize = 8;

/// Adds the faults of the file at `path`, relative to the root of the repository, whose contents
/// are `text`.
pub fn check(path: &str, text: &str, faults: &mut Vec<String>) {
    // The lock file contains names that Cargo chose, and corpora contain arbitrary bytes.
    if path == "Cargo.lock" || path.contains("/corpus/") {
        return;
    }
    check_machine_paths(path, text, faults);
    if path.ends_with(".rs") {
        check_name(path, faults);
        check_shape(path, text, faults);
        check_lines(path, text, faults);
    }
}

fn check_machine_paths(path: &str, text: &str, faults: &mut Vec<String>) {
    for (index, line) in text.lines().enumerate() {
        for folder in MACHINE_PATHS {
            // Within a longer path (`/var/work/`) the name belongs to something else.
            let at = line.find(folder);
            let before = at.and_then(|at| line.get(..at)).and_then(|head| head.chars().next_back());
            if at.is_some() && !before.is_some_and(|c| c.is_alphanumeric() || "@.-_".contains(c)) {
                faults.push(format!("{path}:{}: `{folder}` is a machine's own path", index + 1));
            }
        }
    }
}

fn check_name(path: &str, faults: &mut Vec<String>) {
    let parts = Path::new(path).with_extension("");
    for part in parts.iter().filter_map(|part| part.to_str()) {
        if EMPTY_NAMES.contains(&part) {
            faults.push(format!("{path}: `{part}` does not say what it is for"));
        }
    }
}

fn check_shape(path: &str, text: &str, faults: &mut Vec<String>) {
    if !text.starts_with("//! ") {
        faults.push(format!("{path}:1: opens without a `//!` sentence on what it is for"));
    } else if !opening(text).trim_end().ends_with(['.', ':']) {
        faults.push(format!("{path}:1: the opening is not a whole sentence"));
    }
    let lines = text.lines().count();
    if lines > MOST_LINES {
        faults.push(format!("{path}: {lines} lines, {MOST_LINES} at most"));
    }
}

/// The first paragraph of the file's documentation.
fn opening(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.take_while(|line| !line.trim().is_empty()).collect()
}

fn check_lines(path: &str, text: &str, faults: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let mut table_ends = None;
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let width = line.chars().count();
        // A table that rustfmt does not format has one row in each line, of any width.
        let indent = line.len() - line.trim_start().len();
        if line.trim() == "#[rustfmt::skip]" {
            table_ends = Some(indent);
        } else if table_ends == Some(indent) && matches!(line.trim(), "];" | "}" | "};" | ")") {
            table_ends = None;
        }
        // rustfmt also does not break a text that stands alone on its line, such as a message that
        // a test compares.
        let lone_text = line.trim_start().starts_with('"');
        if width > MOST_COLUMNS && table_ends.is_none() && !lone_text {
            faults.push(format!("{path}:{number}: {width} columns, {MOST_COLUMNS} at most"));
        }
        let code = code_of(line);
        let code = code.as_str();
        if let Some(name) = empty_module(code) {
            faults.push(format!("{path}:{number}: module `{name}` does not say what it is for"));
        }
        if code.contains(concat!("fn g", "et_")) {
            faults.push(format!("{path}:{number}: a function is named after what it gives"));
        }
        if UNSAFE_FORMS.iter().any(|form| code.contains(form)) {
            let above = index.saturating_sub(SAFETY_REACH)..index;
            let reason = lines.get(above).is_some_and(|it| it.iter().any(|l| l.contains("SAFETY")));
            if !path.starts_with("crates/sys/") {
                faults.push(format!("{path}:{number}: unsafe code outside `sys`"));
            } else if code.contains(UNSAFE_FORMS[0]) && !reason {
                faults.push(format!("{path}:{number}: unsafe block without a SAFETY comment"));
            }
        }
    }
}

/// The line without its comment and without text in quotes.
fn code_of(line: &str) -> String {
    let code = line.split("//").next().unwrap_or_default();
    code.replace("\\\"", "").split('"').step_by(2).collect()
}

/// The name of the module that this line declares, if it is one of the empty names.
fn empty_module(code: &str) -> Option<&'static str> {
    let code = code.trim().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
    let name = code.strip_prefix("mod ")?.trim_end_matches([' ', ';', '{']);
    EMPTY_NAMES.into_iter().find(|empty| *empty == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(path, text, &mut faults);
        faults
    }

    #[test]
    fn a_good_file_has_no_faults() {
        assert!(faults_of("crates/mpm/src/lib.rs", "//! One thing.\n\nfn a() {}\n").is_empty());
    }

    #[test]
    fn the_opening_is_a_sentence() {
        assert_eq!(faults_of("a.rs", "fn a() {}\n").len(), 1);
        assert_eq!(faults_of("a.rs", "//! no full stop\n").len(), 1);
        assert!(faults_of("a.rs", "//! Two\n//! lines.\n//!\n//! - list\n").is_empty());
    }

    #[test]
    fn length_and_width_are_bounded() {
        let long = format!("//! A.\n{}", "\n".repeat(MOST_LINES));
        assert_eq!(faults_of("a.rs", &long).len(), 1);
        let wide = format!("//! A.\n// {}\n", "é".repeat(MOST_COLUMNS - 2));
        assert_eq!(faults_of("a.rs", &wide), ["a.rs:2: 101 columns, 100 at most"]);
    }

    #[test]
    fn tables_may_be_wide() {
        let row = "x".repeat(120);
        let table = format!("//! A.\n#[rustfmt::skip]\nconst A: &[B] = &[\n    {row}\n];\n");
        assert!(faults_of("a.rs", &table).is_empty());
        assert_eq!(faults_of("a.rs", &format!("{table}    {row}\n")).len(), 1);
    }

    #[test]
    fn unsafe_code_is_for_sys_and_with_a_reason() {
        let bare = format!("//! A.\nfn a() {{ {} b() }} }}\n", UNSAFE_FORMS[0]);
        let told = format!("//! A.\n// SAFETY: b has no conditions.\n{} b() }}\n", UNSAFE_FORMS[0]);
        assert_eq!(faults_of("crates/mpm/src/a.rs", &told).len(), 1);
        assert_eq!(faults_of("crates/sys/src/a.rs", &bare).len(), 1);
        assert!(faults_of("crates/sys/src/a.rs", &told).is_empty());
        let quoted = format!("//! A.\nfn a() {{ b(\"{} c }}\") }}\n", UNSAFE_FORMS[0]);
        assert!(faults_of("crates/mpm/src/a.rs", &quoted).is_empty());
    }

    #[test]
    fn empty_names_are_refused() {
        let name = EMPTY_NAMES[0];
        assert_eq!(faults_of(&format!("crates/a/src/{name}.rs"), "//! A.\n").len(), 1);
        assert_eq!(faults_of("a.rs", &format!("//! A.\npub mod {name};\n")).len(), 1);
        assert_eq!(faults_of("a.rs", &format!("//! A.\nfn {}x() {{}}\n", "get_")).len(), 1);
    }

    #[test]
    fn machine_paths_are_found_in_any_file() {
        let line = format!("see {}notes\n", MACHINE_PATHS[0]);
        assert_eq!(faults_of("README.md", &line).len(), 1);
        assert!(faults_of("README.md", &format!("/var{}x\n", MACHINE_PATHS[0])).is_empty());
        assert!(faults_of("Cargo.lock", &line).is_empty());
    }
}
