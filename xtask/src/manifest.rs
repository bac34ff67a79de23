//! Checks that the workspace manifest gives a reason for each dependency. Versions and features are
//! not checked here.

/// Adds a fault for each external dependency of the workspace without a comment above it, or above
/// the unbroken run of dependencies that contains it.
pub fn check(text: &str, faults: &mut Vec<String>) {
    let mut inside = false;
    let mut explained = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
            explained = false;
        } else if line.is_empty() {
            explained = false;
        } else if line.starts_with('#') {
            explained = true;
        } else if inside && let Some((name, _)) = line.split_once('=') {
            let name = name.trim();
            if !explained && !name.starts_with("evenkeel") {
                let number = index + 1;
                faults.push(format!("Cargo.toml:{number}: dependency `{name}` without a reason"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_asked_of_external_dependencies_alone() {
        let mut faults = Vec::new();
        check(
            "[package]\nname = \"a\"\n[workspace.dependencies]\nevenkeel-sys = { path = \"x\" }\n\
             # Why.\nsha1 = \"1\"\nmd-5 = \"1\"\n\nbare = \"1\"\n[lints]\nall = \"warn\"\n",
            &mut faults,
        );
        assert_eq!(faults, ["Cargo.toml:9: dependency `bare` without a reason"]);
    }
}
