//! The reference manual: the pages that the modules' declarations make come in, files below
//! docs/manual go out, or the names of those that are not as they should be.

use evenkeel_modules::manual;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes every page and deletes what is no page any more; tells how many were written.
pub fn write(root: &Path) -> Result<usize, String> {
    let folder = root.join("docs/manual");
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(told)?;
    let pages = manual();
    for page in &pages {
        fs::write(folder.join(&page.file), &page.text).map_err(told)?;
    }
    for path in files(&folder) {
        let named = |file: &str| path.file_name().is_some_and(|name| name == file);
        if !pages.iter().any(|page| named(&page.file)) {
            fs::remove_file(&path).map_err(told)?;
        }
    }
    Ok(pages.len())
}

/// Adds a fault for each page that differs from its declarations, and for each file that is none.
pub fn check(root: &Path, faults: &mut Vec<String>) {
    let folder = root.join("docs/manual");
    let pages = manual();
    for page in &pages {
        let text = fs::read_to_string(folder.join(&page.file)).unwrap_or_default();
        if text != page.text {
            let file = &page.file;
            faults.push(format!("docs/manual/{file}: not up to date, run `cargo xtask manual`"));
        }
    }
    for path in files(&folder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !pages.iter().any(|page| page.file == name) {
            faults.push(format!("docs/manual/{name}: no page of the manual"));
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_is_up_to_date() {
        let mut faults = Vec::new();
        check(&crate::root(), &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn what_differs_is_told_and_writing_mends_it() {
        let root = std::env::temp_dir().join(format!("evenkeel-manual-{}", std::process::id()));
        let folder = root.join("docs/manual");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mod_gone.md"), "gone").unwrap();
        let mut faults = Vec::new();
        check(&root, &mut faults);
        assert!(faults.contains(&"docs/manual/mod_gone.md: no page of the manual".to_owned()));
        assert_eq!(faults.len(), manual().len() + 1);
        write(&root).unwrap();
        faults.clear();
        check(&root, &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        fs::remove_dir_all(&root).unwrap();
    }
}
