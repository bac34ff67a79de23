//! Checks that the source files which a document names exist. Whether what it says about them is
//! true is for readers to judge.

/// Adds a fault for each file or folder in backquotes in the document at `path` that does not
/// exist. A path begins at the root of the repository or in `crates`; a name without folders may be
/// anywhere.
pub fn check(path: &str, text: &str, files: &[&str], faults: &mut Vec<String>) {
    if !path.ends_with(".md") || path.starts_with("docs/") {
        return;
    }
    for (index, line) in text.lines().enumerate() {
        // The texts between the first and second backquote, the third and fourth, and so on.
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_source(name)) {
            if !files.iter().any(|file| is_named(file, name)) {
                faults.push(format!("{path}:{}: there is no `{name}`", index + 1));
            }
        }
    }
}

/// Whether it has the form of a source file or a folder, and of nothing else.
fn is_source(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    (name.ends_with(".rs") || name.ends_with('/')) && name.chars().all(known)
}

fn is_named(file: &str, name: &str) -> bool {
    let begins = |text: &str| match name.ends_with('/') {
        true => text.starts_with(name),
        false => text == name,
    };
    if name.trim_end_matches('/').contains('/') {
        return begins(file) || file.strip_prefix("crates/").is_some_and(begins);
    }
    let after_slash = file.match_indices('/').filter_map(|(at, _)| file.get(at + 1..));
    begins(file) || after_slash.into_iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::check;

    const FILES: [&str; 3] = ["crates/mpm/src/event.rs", "crates/mpm/src/event/park.rs", "a/b.rs"];

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(path, text, &FILES, &mut faults);
        faults
    }

    #[test]
    fn files_and_folders_that_are_there_may_be_named() {
        let text = "`mpm/src/event.rs`, `event/`, `park.rs`, `mpm/src/`, `a/b.rs`\n`*/none.rs`";
        assert!(faults_of("A.md", text).is_empty());
    }

    #[test]
    fn others_are_told_with_their_line() {
        let text = "Two\n`mpm/src/park.rs` and `vent/`, not `b.rs` but `none.rs`";
        let told = ["mpm/src/park.rs", "vent/", "none.rs"];
        let expected = told.map(|name| format!("A.md:2: there is no `{name}`"));
        assert_eq!(faults_of("A.md", text), expected);
        assert!(faults_of("docs/A.md", text).is_empty());
    }
}
