//! Folders of generated pages, which contain nothing else: writes the pages, or lists those that
//! are not up to date.

use std::fs;
use std::path::{Path, PathBuf};

/// A page.
#[derive(Debug)]
pub struct Page {
    /// The name of the file.
    pub file: String,
    /// The contents.
    pub text: String,
}

/// A folder of generated pages.
#[derive(Debug)]
pub struct Pages {
    /// The folder, relative to the root of the repository.
    pub folder: &'static str,
    /// The task that writes it.
    pub task: &'static str,
    /// The pages.
    pub pages: Vec<Page>,
}

impl Pages {
    /// Writes every page and deletes files that are no longer pages. Returns the number of pages
    /// written.
    pub fn write(&self, root: &Path) -> Result<usize, String> {
        let folder = root.join(self.folder);
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(told)?;
        for page in &self.pages {
            fs::write(folder.join(&page.file), &page.text).map_err(told)?;
        }
        for path in files(&folder) {
            let named = |file: &str| path.file_name().is_some_and(|name| name == file);
            if !self.pages.iter().any(|page| named(&page.file)) {
                fs::remove_file(&path).map_err(told)?;
            }
        }
        Ok(self.pages.len())
    }

    /// Adds a fault for each page that differs from its declaration, and for each other file.
    pub fn check(&self, root: &Path, faults: &mut Vec<String>) {
        let Self { folder: name, task, .. } = self;
        let folder = root.join(name);
        for page in &self.pages {
            let file = &page.file;
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            if text != page.text {
                faults.push(format!("{name}/{file}: not up to date, run `cargo xtask {task}`"));
            }
        }
        for path in files(&folder) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            if !self.pages.iter().any(|page| page.file == file) {
                faults.push(format!("{name}/{file}: no page of `cargo xtask {task}`"));
            }
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
    fn what_differs_is_told_and_writing_mends_it() {
        let root = std::env::temp_dir().join(format!("evenkeel-pages-{}", std::process::id()));
        let page = |file: &str| Page { file: file.to_owned(), text: format!("{file}\n") };
        let pages =
            Pages { folder: "docs/some", task: "some", pages: vec![page("a.md"), page("b.md")] };
        fs::create_dir_all(root.join("docs/some")).unwrap();
        for (file, text) in [("a.md", "a.md\n"), ("b.md", "old"), ("gone.md", "gone")] {
            fs::write(root.join("docs/some").join(file), text).unwrap();
        }
        let mut faults = Vec::new();
        pages.check(&root, &mut faults);
        assert_eq!(
            faults,
            [
                "docs/some/b.md: not up to date, run `cargo xtask some`",
                "docs/some/gone.md: no page of `cargo xtask some`"
            ]
        );
        assert_eq!(pages.write(&root), Ok(2));
        faults.clear();
        pages.check(&root, &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        fs::remove_dir_all(&root).unwrap();
    }
}
