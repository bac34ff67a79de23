//! For tests under directives: lines of a configuration and a module go in, the scope that they
//! fill comes out. It knows no sections.

use crate::core::{Directory, Server};
use crate::{CoreSettings, Module, Place, Scope};
use evenkeel_config::{Node, Position, Tables};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Applies lines that stand outside of all sections.
///
/// # Errors
/// The text of the first fault.
pub(crate) fn apply(module: Module, text: &str) -> Result<Scope, String> {
    apply_in(module, Place::Server, text)
}

/// Applies lines in that place. Their context is the server's all the same: a directive of
/// `Where::SECTION` is refused here.
///
/// # Errors
/// The text of the first fault.
pub(crate) fn apply_in(module: Module, place: Place, text: &str) -> Result<Scope, String> {
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
    let mut scope = Scope::new(Path::new("/etc/base"), Arc::default());
    scope.section_path = place.path().map(Into::into);
    scope.place = place;
    evenkeel_config::apply(&tables(&[module]), &nodes, &mut scope, &mut Vec::new())
        .map_err(|faults| faults.kept()[0].text.clone())?;
    Ok(scope)
}

/// The directives of these modules.
pub(crate) fn tables(modules: &[Module]) -> Tables<Scope> {
    let tables: Vec<_> = modules.iter().copied().flat_map(Module::tables).collect();
    Tables::new(&tables, &[], evenkeel_config::Missing::default())
}

/// The settings of the core where nothing is configured.
pub(crate) fn core_settings() -> CoreSettings<'static> {
    static SETTINGS: LazyLock<(Server, Directory)> = LazyLock::new(Default::default);
    let (server, directory) = &*SETTINGS;
    CoreSettings { server, directory }
}
