//! The directive tree: what reading the text yields and what applying it walks. A node holds a
//! directive as it was written, after `${}` and before anything is made of its arguments.

use std::fmt;
use std::sync::Arc;

/// Where a directive stands: the file (or `-c/-C directives`, or a macro's use) and the number of
/// the line, from 1. A directive continued over several lines stands at its last one, as in Apache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Position {
    /// The path of the file, or the description of what stands in for one.
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
    /// The name as written; a section's begins with `<` and has no closing bracket: `<Directory`.
    pub name: Box<str>,
    /// What follows the name, after `${}`; a section's ends with its `>`.
    pub arguments: Box<str>,
    /// Where it stands.
    pub position: Position,
    /// What stands between a section's opening and closing lines; None for a directive.
    pub section: Option<Vec<Node>>,
}

/// Prints `nodes` as `-D DUMP_CONFIG` does (mod_info.c, mod_info_show_cmd): each directive behind
/// the number of its line, the file named whenever it changes.
///
/// # Errors
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

/// Names the file of a line where it is not that of the line before.
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
