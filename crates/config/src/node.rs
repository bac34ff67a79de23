//! The tree of directives that reading the text produces and applying it walks. A node holds a
//! directive as it was written, after `${}` is replaced and before its arguments are interpreted.

use std::fmt;
use std::sync::Arc;

/// The position of a directive: the file (or `-c/-C directives`, or the use of a macro) and the
/// line number, from 1. A directive that is continued over several lines has the number of the last
/// one, as in Apache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Position {
    /// The path of the file, or a description of what takes its place.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

/// One directive or section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The name as written. The name of a section begins with `<` and has no closing bracket:
    /// `<Directory`.
    pub name: Box<str>,
    /// The text after the name, with `${}` replaced. For a section it ends with the `>`.
    pub arguments: Box<str>,
    /// The position.
    pub position: Position,
    /// The contents of a section; None for a directive.
    pub section: Option<Vec<Node>>,
}

/// Prints `nodes` as `-D DUMP_CONFIG` does (mod_info.c, mod_info_show_cmd): each directive after
/// its line number, and the name of the file whenever it changes.
///
/// # Errors
///
/// Those of `out`.
pub fn print_tree(nodes: &[Node], out: &mut dyn fmt::Write) -> fmt::Result {
    let mut file = None;
    print_level(nodes, 0, &mut file, out)
}

fn print_level<'a>(
    nodes: &'a [Node],
    depth: usize,
    file: &mut Option<&'a str>,
    out: &mut dyn fmt::Write,
) -> fmt::Result {
    let indent = depth * 2;
    for node in nodes {
        name_file(node, file, out)?;
        writeln!(out, "{:indent$}# {:>3}:", "", node.position.line)?;
        let gap = if node.arguments.is_empty() || &*node.arguments == ">" { "" } else { " " };
        writeln!(out, "{:indent$}{}{gap}{}", "", node.name, node.arguments)?;
        if let Some(section) = &node.section {
            print_level(section, depth + 1, file, out)?;
            name_file(node, file, out)?;
            let name = node.name.strip_prefix('<').unwrap_or(&node.name);
            writeln!(out, "{:indent$}</{name}>", "")?;
        }
    }
    Ok(())
}

/// Prints the name of a line's file if it differs from that of the line before.
fn name_file<'a>(
    node: &'a Node,
    file: &mut Option<&'a str>,
    out: &mut dyn fmt::Write,
) -> fmt::Result {
    if *file == Some(&*node.position.file) {
        return Ok(());
    }
    *file = Some(&*node.position.file);
    writeln!(out, "# In file: {}", node.position.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_prints_as_text() {
        let at = |line| Position { file: "a.conf".into(), line };
        let inner = Node {
            name: "Options".into(),
            arguments: "None".into(),
            position: at(2),
            section: None,
        };
        let outer = Node {
            name: "<Directory".into(),
            arguments: "/>".into(),
            position: at(1),
            section: Some(vec![inner]),
        };
        let mut text = String::new();
        print_tree(&[outer], &mut text).unwrap();
        let want =
            "# In file: a.conf\n#   1:\n<Directory />\n  #   2:\n  Options None\n</Directory>\n";
        assert_eq!(text, want);
    }
}
