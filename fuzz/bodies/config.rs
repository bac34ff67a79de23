//! Any bytes come in as a configuration, which is read and applied as a .htaccess file's and as a
//! server's directives, with more and more modules. Nothing may panic, hang or grow. It is always
//! read as .htaccess, with all of the language granted but Include: no text may make this read the
//! machine's files.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../crates/config/tests/stub/mod.rs"]
mod stub;

use evenkeel_config::{
    Grant, Overrides, Variables, apply, apply_htaccess, print_tree, read_htaccess,
};

pub fn run(data: &[u8]) {
    let words = ["Define", "UnDefine", "LoadFile", "DefaultRuntimeDir", "Error"];
    let grant = Grant {
        overrides: Overrides::ALL,
        directives: words.map(str::to_owned).to_vec(),
        ..Grant::default()
    };
    let environment = [("HOME".to_owned(), "/root".to_owned())];
    let variables = Variables::new(["Foo".to_owned()], environment);
    let mut vocabulary = stub::Words::default();
    for name in ["", "macro_module", "alias_module", "mime_module"] {
        if !name.is_empty() {
            vocabulary.modules.load(name, "x", "/x").unwrap();
        }
        let mut notices = Vec::new();
        let read = read_htaccess(data, "fuzz", "/", &grant, &variables, &vocabulary, &mut notices);
        let result = read.and_then(|nodes| {
            let mut text = String::new();
            print_tree(&nodes, &mut text).unwrap();
            let tables = vocabulary.tables();
            let _ = apply(&tables, &nodes, &mut stub::Nothing, &mut notices);
            apply_htaccess(&tables, &nodes, &mut stub::Nothing, &grant, &mut notices)
        });
        let shown = result.map_or_else(|fault| fault.to_string(), |()| String::new());
        let lines = shown.lines().count();
        assert!(lines <= 2 && notices.iter().all(|notice| notice.to_string().lines().count() <= 1));
    }
}
