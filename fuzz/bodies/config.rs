//! Reads and applies any bytes as a configuration, both as an .htaccess file and as a server's
//! directives, with more and more modules. Nothing may panic, hang or grow. A text that contains
//! Include is only read as an .htaccess file, where Include is refused: no text may make this read
//! files of the machine.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../crates/config/tests/stub/mod.rs"]
mod stub;

use evenkeel_config::{
    Faults, Grant, Main, Notice, Overrides, Start, Variables, apply, apply_htaccess, print_tree,
    read, read_htaccess,
};

pub fn run(data: &[u8]) {
    let includes = data.windows(5).any(|part| part.eq_ignore_ascii_case(b"clude"));
    for modules in [&[] as &[&str], &["macro_module", "alias_module", "mime_module"]] {
        let mut words = stub::Words::default();
        for name in modules {
            words.modules.load(name, "x", "/x").unwrap();
        }
        let mut notices = Vec::new();
        check(as_htaccess(data, &words, &mut notices), &notices);
        if !includes {
            check(as_server(data, &mut words, &mut notices), &notices);
        }
    }
}

fn variables() -> Variables {
    Variables::new(["Foo".to_owned()], [("HOME".to_owned(), "/root".to_owned())])
}

fn as_htaccess(data: &[u8], words: &stub::Words, notices: &mut Vec<Notice>) -> Result<(), Faults> {
    let grant = Grant { overrides: Overrides::ALL, ..Grant::default() };
    let nodes = read_htaccess(data, "fuzz", "/", &grant, &variables(), words, notices)?;
    Ok(apply_htaccess(&words.tables(), &nodes, &mut stub::Nothing, &grant, notices)?)
}

fn as_server(
    data: &[u8],
    words: &mut stub::Words,
    notices: &mut Vec<Notice>,
) -> Result<(), Faults> {
    let start = Start {
        server_root: "/".into(),
        main: Main::Text { name: "fuzz".into(), text: data.to_vec() },
        before: Vec::new(),
        after: Vec::new(),
        variables: variables(),
    };
    let tree = read(start, words, notices, &mut Vec::new())?;
    let mut text = String::new();
    print_tree(&tree.nodes, &mut text).unwrap();
    apply(&words.tables(), &tree.nodes, &mut stub::Nothing, notices)
}

/// What is logged must stay on its lines, whatever the text contains.
fn check(result: Result<(), Faults>, notices: &[Notice]) {
    let faults = result.err().unwrap_or_default();
    assert!(faults.kept().iter().all(|fault| fault.to_string().lines().count() <= 2));
    assert!(notices.iter().all(|notice| notice.to_string().lines().count() <= 1));
}
