//! Include and IncludeOptional: expands a path with wildcards and reads the files, in the order of
//! their names. Include lines in these files are handled when those lines are read.

use std::fmt;

use crate::fault::{Level, Notice};
use crate::node::Node;
use crate::path::{absolute, reason};
use crate::pattern::{Wildcards, has_wildcards, matches_wildcards};
use crate::read::{Halt, Reader, Source};

/// Files may include each other to this depth (server/core.c, AP_MAX_INCLUDE_DEPTH).
const INCLUDE_LIMIT: u32 = 128;

/// Folders may be nested to this depth below an included folder.
const FOLDER_LIMIT: u32 = 128;

/// A file that was read. Its Display is a line of `-D DUMP_INCLUDES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// Its path.
    pub file: String,
    /// The line of the Include, from 1; None for the main file.
    pub line: Option<u32>,
    /// How many nested Includes led to it.
    pub depth: u32,
}

impl fmt::Display for Included {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indent = 2 * (self.depth as usize + 1);
        match self.line {
            Some(line) => write!(out, "{:indent$}({line}) {}", "", self.file),
            None => write!(out, "{:indent$}(*) {}", "", self.file),
        }
    }
}

impl Reader<'_> {
    /// Executes Include or IncludeOptional.
    ///
    /// Source: server/core.c, include_config.
    pub(crate) fn include(
        &mut self,
        path: &str,
        optional: bool,
        source: &Source,
    ) -> Result<Vec<Node>, Halt> {
        if self.include_depth >= INCLUDE_LIMIT {
            return Err(format!(
                "Exceeded maximum include depth of {INCLUDE_LIMIT}, There appears to be a \
                 recursion."
            )
            .into());
        }
        let path = absolute(&self.server_root, path);
        self.include_depth += 1;
        let nodes = self.include_files(&path, optional, Some(source.position().line))?;
        self.include_depth -= 1;
        Ok(nodes)
    }

    /// Reads the files that `path` matches. `line` is the line of the Include.
    pub(crate) fn include_files(
        &mut self,
        path: &str,
        optional: bool,
        line: Option<u32>,
    ) -> Result<Vec<Node>, Halt> {
        let mut nodes = Vec::new();
        for file in expand(path, optional)? {
            nodes.extend(self.include_file(file, line)?);
        }
        Ok(nodes)
    }

    /// Reads one file. A fault in it is reported with the directive there and the Includes that led
    /// to it.
    fn include_file(&mut self, file: String, line: Option<u32>) -> Result<Vec<Node>, Halt> {
        let text = self.load(&file)?;
        let included = Included { file: file.clone(), line, depth: self.include_depth };
        self.includes.push(included);
        let mut source = Source::new(file.into(), text);
        self.enter()?;
        let outer = self.blame.take();
        self.trail.extend(outer.clone());
        let built = self.build(&mut source);
        let inner = std::mem::replace(&mut self.blame, outer);
        if self.blame.is_some() {
            self.trail.pop();
        }
        self.leave();
        built.map_err(|mut halt| {
            if let Some(inner) = inner {
                halt.trail.insert(0, inner);
            }
            halt
        })
    }

    /// Reads the bytes of a regular file, or of /dev/null (server/util.c, ap_pcfg_openfile).
    fn load(&mut self, file: &str) -> Result<Vec<u8>, Halt> {
        let refuse = |why: String| format!("Could not open configuration file {file}: {why}");
        let found = std::fs::metadata(file).map_err(|error| refuse(reason(&error)))?;
        if !found.is_file() && file != "/dev/null" {
            let text = format!("Access to file {file} denied by server: not a regular file");
            let notice = Notice { level: Level::Error, ..Notice::warn("core", 554, text) };
            self.remark(notice);
            return Err(refuse("Bad file descriptor".to_owned()).into());
        }
        Ok(std::fs::read(file).map_err(|error| refuse(reason(&error)))?)
    }
}

/// The files that the absolute `path` matches, in the order in which they are read.
///
/// Source: server/util.c, ap_dir_fnmatch and ap_dir_nofnmatch.
fn expand(path: &str, optional: bool) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    if has_wildcards(path) {
        match_segments("", path.trim_start_matches('/'), optional, &mut files)?;
    } else {
        collect(path, optional, 0, &mut files)?;
    }
    Ok(files)
}

/// Matches the segments of `pattern` below `folder`, one after another.
fn match_segments(
    folder: &str,
    pattern: &str,
    optional: bool,
    files: &mut Vec<String>,
) -> Result<(), String> {
    let (segment, rest) = match pattern.split_once('/') {
        Some((segment, rest)) => (segment, Some(rest)),
        None => (pattern, None),
    };
    if !has_wildcards(segment) {
        let path = format!("{folder}/{segment}");
        return match rest {
            Some(rest) => match_segments(&path, rest, optional, files),
            None => collect(&path, optional, 0, files),
        };
    }
    let shown = if folder.is_empty() { "/" } else { folder };
    let how = Wildcards { period: true, ..Wildcards::default() };
    let mut names = match list(shown) {
        Ok(names) => names,
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(no_folder(shown, &error)),
    };
    names.retain(|name| matches_wildcards(segment, name, how));
    if rest.is_some() {
        names.retain(|name| {
            std::fs::metadata(format!("{folder}/{name}")).is_ok_and(|found| found.is_dir())
        });
    }
    if names.is_empty() && !optional {
        return Err(format!(
            "Include/IncludeOptional: No matches for the wildcard '{segment}' in '{shown}', failing"
        ));
    }
    for name in names {
        let path = format!("{folder}/{name}");
        match rest {
            Some(rest) => match_segments(&path, rest, optional, files)?,
            None => collect(&path, optional, 0, files)?,
        }
    }
    Ok(())
}

/// Adds the file at `path`, or all files below it if it is a folder.
fn collect(path: &str, optional: bool, depth: u32, files: &mut Vec<String>) -> Result<(), String> {
    let found = std::fs::metadata(path);
    if !found.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
        if found.is_ok() || !optional {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let path = path.trim_end_matches('/');
    if depth >= FOLDER_LIMIT {
        return Err(format!(
            "Include/IncludeOptional: Directory '{path}' exceeds the maximum include directory \
             nesting level of {FOLDER_LIMIT}. You have probably a recursion somewhere."
        ));
    }
    for name in list(path).map_err(|error| no_folder(path, &error))? {
        collect(&format!("{path}/{name}"), optional, depth + 1, files)?;
    }
    Ok(())
}

/// The names in `folder`, sorted by their bytes.
fn list(folder: &str) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().into_string().map_err(|name| {
            std::io::Error::other(format!("the file name {} is not UTF-8", name.display()))
        })?;
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

fn no_folder(folder: &str, error: &std::io::Error) -> String {
    format!("Include/IncludeOptional: Could not open directory {folder}: {}", reason(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap().to_owned();
        for path in ["b.conf", "a.conf", ".c.conf", "d/x/1", "e/x/2", "f"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        (folder, root)
    }

    fn names(root: &str, pattern: &str, optional: bool) -> Result<Vec<String>, String> {
        let files = expand(&format!("{root}/{pattern}"), optional)?;
        Ok(files.iter().map(|file| file.strip_prefix(root).unwrap().to_owned()).collect())
    }

    #[test]
    fn wildcards_expand_in_order_in_any_segment() {
        let (_folder, root) = tree();
        assert_eq!(names(&root, "*.conf", false).unwrap(), ["/a.conf", "/b.conf"]);
        assert_eq!(names(&root, "[de]/x", false).unwrap(), ["/d/x/1", "/e/x/2"]);
        assert_eq!(names(&root, "*/x/?", false).unwrap(), ["/d/x/1", "/e/x/2"]);
        let all = ["/.c.conf", "/a.conf", "/b.conf", "/d/x/1", "/e/x/2", "/f"];
        assert_eq!(names(&root, "", false).unwrap(), all);
    }

    #[test]
    fn what_is_not_there_may_be_optional() {
        let (_folder, root) = tree();
        assert!(names(&root, "*.none", false).unwrap_err().contains("No matches for the wildcard"));
        assert!(names(&root, "no/*.c", false).unwrap_err().contains("Could not open directory"));
        assert_eq!(names(&root, "none.conf", false).unwrap(), ["/none.conf"]);
        for pattern in ["*.none", "no/*.c", "none.conf", "*/x/3"] {
            assert!(names(&root, pattern, true).unwrap().is_empty(), "{pattern}");
        }
    }
}
