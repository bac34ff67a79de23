//! The directives of a configuration as HTML, all of them or those of one module (mod_info.c:
//! mod_info_module_cmds).

use super::page::escaped;
use evenkeel_config::Node;

/// Writes the directives for which `is_shown` returns true, within their sections.
pub(super) fn write(out: &mut String, nodes: &[Node], is_shown: &dyn Fn(&Node) -> bool) {
    let mut writer = Writer { out, file: None, open: Vec::new(), shown: 0, is_shown };
    writer.level(nodes);
}

struct Writer<'a, 'b> {
    out: &'b mut String,
    /// The file of the line before.
    file: Option<&'a str>,
    /// The sections around the current level.
    open: Vec<&'a Node>,
    /// How many of these have been written.
    shown: usize,
    is_shown: &'b dyn Fn(&Node) -> bool,
}

impl<'a> Writer<'a, '_> {
    fn level(&mut self, nodes: &'a [Node]) {
        let depth = self.open.len();
        for node in nodes {
            match node.section.as_deref() {
                Some(section) if !section.is_empty() => {
                    self.open.push(node);
                    self.level(section);
                    self.open.pop();
                    if self.shown > depth {
                        self.shown = depth;
                        self.close(node, depth);
                    }
                }
                _ if (self.is_shown)(node) => {
                    self.show_sections();
                    self.begin(node, node.position.line, depth);
                    let (name, arguments) = (escaped(&node.name), escaped(&node.arguments));
                    self.out.push_str(&format!("{name} <i>{arguments}</i></tt></dd>\n"));
                }
                _ => {}
            }
        }
    }

    /// Writes the openings of the sections that have not been written.
    fn show_sections(&mut self) {
        let sections: Vec<&Node> = self.open.iter().skip(self.shown).copied().collect();
        for (index, node) in sections.into_iter().enumerate() {
            self.begin(node, node.position.line, self.shown + index);
            let (name, arguments) = (escaped(&node.name), escaped(&node.arguments));
            self.out.push_str(&format!("{name} {arguments}</tt></dd>\n"));
        }
        self.shown = self.open.len();
    }

    fn close(&mut self, node: &'a Node, depth: usize) {
        self.begin(node, 0, depth);
        let name = escaped(node.name.strip_prefix('<').unwrap_or(&node.name));
        self.out.push_str(&format!("&lt;/{name}&gt;</tt></dd>"));
    }

    /// Begins a line (mod_info_indent).
    fn begin(&mut self, node: &'a Node, line: u32, depth: usize) {
        let file = &*node.position.file;
        if self.file != Some(file) {
            self.file = Some(file);
            let line = format!("<dd><tt><strong>In file: {}</strong></tt></dd>\n", escaped(file));
            self.out.push_str(&line);
        }
        let number = if line == 0 { String::new() } else { line.to_string() };
        let spaces = "&nbsp;".repeat(4_usize.saturating_sub(number.len()));
        let indent = "&nbsp;&nbsp;".repeat(depth);
        self.out.push_str(&format!("<dd><tt>{spaces}{number}:&nbsp;{indent}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_config::Position;

    fn node(line: u32, name: &str, arguments: &str, section: Option<Vec<Node>>) -> Node {
        let position = Position { file: "a&b.conf".into(), line };
        Node { name: name.into(), arguments: arguments.into(), position, section }
    }

    fn tree() -> Vec<Node> {
        let inner = node(3, "Options", "None", None);
        let files = node(2, "<Files", "\"x\">", Some(vec![inner]));
        let other = node(5, "Require", "all \"<granted>\"", None);
        vec![
            node(1, "<Directory", "/>", Some(vec![files, other])),
            node(12, "<Location", "/empty>", Some(Vec::new())),
        ]
    }

    #[test]
    fn all_lines_are_written_with_their_numbers_and_escaped() {
        let mut out = String::new();
        write(&mut out, &tree(), &|_| true);
        let nbsp = |count| "&nbsp;".repeat(count);
        let want = [
            "<dd><tt><strong>In file: a&amp;b.conf</strong></tt></dd>\n".to_owned(),
            format!("<dd><tt>{}1:&nbsp;&lt;Directory /&gt;</tt></dd>\n", nbsp(3)),
            format!("<dd><tt>{}2:&nbsp;{}&lt;Files \"x\"&gt;</tt></dd>\n", nbsp(3), nbsp(2)),
            format!("<dd><tt>{}3:&nbsp;{}Options <i>None</i></tt></dd>\n", nbsp(3), nbsp(4)),
            format!("<dd><tt>{}:&nbsp;{}&lt;/Files&gt;</tt></dd>", nbsp(4), nbsp(2)),
            format!(
                "<dd><tt>{}5:&nbsp;{}Require <i>all \"&lt;granted&gt;\"</i></tt></dd>\n",
                nbsp(3),
                nbsp(2)
            ),
            format!("<dd><tt>{}:&nbsp;&lt;/Directory&gt;</tt></dd>", nbsp(4)),
            format!("<dd><tt>{}12:&nbsp;&lt;Location <i>/empty&gt;</i></tt></dd>\n", nbsp(2)),
        ];
        let plain = out.replace("&quot;", "\"");
        assert_eq!(plain, want.concat());
    }

    #[test]
    fn the_lines_of_a_module_stand_in_their_sections() {
        let mut out = String::new();
        write(&mut out, &tree(), &|node| &*node.name == "Require");
        assert!(out.contains("Directory") && out.contains("Require"), "{out}");
        assert!(!out.contains("Files") && !out.contains("Location"), "{out}");
        let mut none = String::new();
        write(&mut none, &tree(), &|_| false);
        assert_eq!(none, "");
    }
}
