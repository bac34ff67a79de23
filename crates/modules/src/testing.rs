//! For tests under directives: lines of a configuration and a table go in, the scope that they
//! fill comes out. It knows no sections.

use crate::{Place, Scope, Table};
use evenkeel_config::{Node, Position, Tables};
use std::path::Path;

/// Applies lines that stand outside of all sections.
///
/// # Errors
/// The text of the first fault.
pub(crate) fn apply(table: Table, text: &str) -> Result<Scope, String> {
    apply_in(table, Place::Server, text)
}

/// Applies lines in that place. Their context is the server's all the same: a directive of
/// `Where::SECTION` is refused here.
///
/// # Errors
/// The text of the first fault.
pub(crate) fn apply_in(table: Table, place: Place, text: &str) -> Result<Scope, String> {
    let node = |(index, line): (usize, &str)| {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        Node {
            name: name.into(),
            arguments: arguments.into(),
            position: Position {
                file: "test.conf".into(),
                line: u32::try_from(index).unwrap() + 1,
            },
            section: None,
        }
    };
    let nodes: Vec<Node> = text.lines().enumerate().map(node).collect();
    let mut scope = Scope::new(Path::new("/etc/base"));
    scope.place = place;
    evenkeel_config::apply(&Tables::new(&[table], &[]), &nodes, &mut scope, &mut Vec::new())
        .map_err(|fault| fault.text)?;
    Ok(scope)
}
