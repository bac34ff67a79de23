//! Reads Debian's complete stock configuration, as the package apache2 installs it: every file is
//! found, and the table of known directives contains everything in it.

#![allow(clippy::unwrap_used, missing_docs)]

mod stub;

use evenkeel_config::{Main, Node, Start, Variables, module_of, read};

fn unknown<'a>(nodes: &'a [Node], names: &mut Vec<&'a str>) {
    for node in nodes {
        if module_of(&node.name).is_none() {
            names.push(&node.name);
        }
        unknown(node.section.as_deref().unwrap_or_default(), names);
    }
}

#[test]
fn the_stock_configuration_of_debian_is_read() {
    // What /etc/apache2/envvars sets for the files below it.
    let environment = ["RUN_DIR", "PID_FILE", "RUN_USER", "RUN_GROUP", "LOG_DIR", "LOCK_DIR"]
        .map(|name| (format!("APACHE_{name}"), "/tmp".to_owned()));
    let main = Main::File { path: "apache2.conf".into(), default: true };
    let variables = Variables::new([], environment);
    let server_root = "/etc/apache2".to_owned();
    let start = Start { server_root, main, before: Vec::new(), after: Vec::new(), variables };
    let (mut notices, mut includes) = (Vec::new(), Vec::new());
    let mut words = stub::Words::default();
    let tree = read(start, &mut words, &mut notices, &mut includes).unwrap();
    assert!(includes.len() > 20, "{includes:?}");
    assert_eq!(tree.runtime_dir.as_deref(), Some("/tmp"));
    assert!(notices.iter().all(|notice| notice.module == "so"), "{notices:?}");
    let mut names = Vec::new();
    unknown(&tree.nodes, &mut names);
    assert!(names.is_empty(), "{names:?}");
}
