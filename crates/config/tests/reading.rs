//! Reads whole texts and checks the tree, the list of files and the variables, how .htaccess
//! differs, and that no text makes the reader run away.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod stub;

use std::fmt::Write as _;

use evenkeel_config::{
    Fault, Grant, Main, Notice, Overrides, Start, Tree, Variables, apply_htaccess, print_tree,
    read, read_htaccess,
};
use evenkeel_message::unquoted;

fn read_main(main: Main) -> (Result<Tree, Fault>, Vec<Notice>) {
    let (tree, notices, _) = read_listed(main);
    (tree, notices)
}

/// The same, with the lines of `-D DUMP_INCLUDES`.
fn read_listed(main: Main) -> (Result<Tree, Fault>, Vec<Notice>, Vec<String>) {
    let (mut notices, mut includes) = (Vec::new(), Vec::new());
    let variables = Variables::new([], [("HOME".to_owned(), "/root".to_owned())]);
    let (before, after) = (Vec::new(), Vec::new());
    let start = Start { server_root: "/".into(), main, before, after, variables };
    let result = read(start, &mut stub::Words::default(), &mut notices, &mut includes);
    (result, notices, includes.iter().map(ToString::to_string).collect())
}

fn read_text(text: &str) -> (Result<Tree, Fault>, Vec<Notice>) {
    read_main(Main::Text { name: "t".into(), text: text.into() })
}

/// The directives as `NAME ARGUMENTS@LINE`, with the contents of sections in brackets.
fn outline(text: &str) -> String {
    fn walk(nodes: &[evenkeel_config::Node], out: &mut String) {
        for node in nodes {
            write!(out, "{} {}@{} ", node.name, node.arguments, node.position.line).unwrap();
            if let Some(section) = &node.section {
                out.push_str("[ ");
                walk(section, out);
                out.push_str("] ");
            }
        }
    }
    let mut out = String::new();
    walk(&read_text(text).0.unwrap().nodes, &mut out);
    out.trim_end().to_owned()
}

#[test]
fn conditions_and_macros_leave_only_what_they_hold() {
    let text = "A 1\n<S x>\n<IfDefine !Foo>\nB ${HOME} \\\n 2\nDefine Foo\n<T>\n</T>\n</IfDefine>\n\
                <IfDefine !Foo>\nC\n</IfDefine>\n</S>\nD\n";
    assert_eq!(outline(text), "A 1@1 <S x>@2 [ B /root  2@5 <T >@7 [ ] ] D @14");
    let text = "LoadModule macro_module x\n<Macro m $a>\n# note\n<S $a>\nB\n</Macro>\nUse m 1\nC\n\
                </S>\nD";
    assert_eq!(outline(text), "<S 1>@1 [ B @2 C @8 ] D @10");
}

#[test]
fn without_its_module_a_directive_of_the_language_is_like_any_other() {
    assert_eq!(outline("Use m\n<Macro m>\n</Macro>"), "Use m@1 <Macro m>@2 [ ]");
}

#[test]
fn a_condition_that_is_not_closed_ends_with_the_file_and_is_remarked_on() {
    let (tree, notices) = read_text("<IfModule core.c>\n<S>\nA");
    assert_eq!(tree.unwrap().nodes.len(), 1);
    let want = "<IfModule> at t:1 is not closed: it ends with the file";
    assert_eq!(notices[0].to_string(), want);
}

#[test]
fn files_are_listed_as_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap().to_owned();
    std::fs::write(folder.path().join("b.conf"), "B\n").unwrap();
    let include = format!("# one\nInclude {root}/b.conf\nServerRoot {root}/.\nInclude b.conf\n");
    std::fs::write(folder.path().join("a.conf"), include).unwrap();
    let main = Main::File { path: format!("{root}/a.conf"), default: false };
    let (tree, _, lines) = read_listed(main.clone());
    let want = [
        format!("  (*) {root}/a.conf"),
        format!("    (2) {root}/b.conf"),
        format!("    (4) {root}/b.conf"),
    ];
    assert_eq!(lines, want);
    let tree = tree.unwrap();
    assert_eq!(tree.server_root, root);
    let mut text = String::new();
    print_tree(&tree.nodes, &mut text).unwrap();
    assert_eq!(text, format!("# In file: {root}/b.conf\n#   1:\nB\n#   1:\nB\n"));
    // The files are also listed before a fault.
    let broken = format!("Include {root}/b.conf\n</S>\nInclude {root}/b.conf\n");
    std::fs::write(folder.path().join("a.conf"), broken).unwrap();
    let (tree, _, lines) = read_listed(main);
    assert!(tree.is_err());
    assert_eq!(lines, [format!("  (*) {root}/a.conf"), format!("    (1) {root}/b.conf")]);
}

#[test]
fn a_file_that_includes_itself_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.conf").to_str().unwrap().to_owned();
    std::fs::write(&path, format!("Include {path}\n")).unwrap();
    let fault = read_main(Main::File { path, default: false }).0.unwrap_err();
    let want = "Exceeded maximum include depth of 128, There appears to be a recursion.";
    assert_eq!((fault.text.as_str(), fault.trail.len()), (want, 128));
}

#[test]
fn the_default_file_may_be_absent_beside_other_directives() {
    let main = Main::File { path: "/nonexistent/x.conf".into(), default: true };
    let fault = read_main(main.clone()).0.unwrap_err();
    let want = "apache2: Could not open configuration file /nonexistent/x.conf: No such file or \
                directory";
    assert_eq!(fault.to_string(), want);
    let (before, after) = (vec!["A".to_owned()], vec!["B".to_owned()]);
    let variables = Variables::default();
    let start = Start { server_root: "/".into(), main, before, after, variables };
    let mut words = stub::Words::default();
    let tree = read(start, &mut words, &mut Vec::new(), &mut Vec::new()).unwrap();
    assert_eq!(tree.nodes.len(), 2);
}

fn htaccess(text: &str, grant: &Grant) -> (Result<(), String>, Vec<String>) {
    let mut words = stub::Words::default();
    words.modules.load("alias_module", "x", "/x").unwrap();
    let mut notices = Vec::new();
    let mut variables = Variables::default();
    variables.define("V", Some("/v"));
    let result = read_htaccess(text.as_bytes(), "h", "/", grant, &variables, &words, &mut notices)
        .and_then(|nodes| {
            let tables = words.tables();
            apply_htaccess(&tables, &nodes, &mut stub::Nothing, grant, &mut notices)
        })
        .map_err(|fault| fault.text);
    (result, notices.iter().map(ToString::to_string).collect())
}

#[test]
fn htaccess_has_conditions_but_no_includes() {
    let grant = Grant { overrides: Overrides::FILE_INFO, ..Grant::default() };
    let text = "<IfModule mod_alias.c>\nRedirect ${V} /b\n<Files x>\nRedirect /a /b\n</Files>\n\
                </IfModule>\n";
    assert_eq!(htaccess(text, &grant), (Ok(()), vec![]));
    for name in ["Include x", "Define x", "ServerRoot /", "LoadModule a b"] {
        let word = name.split(' ').next().unwrap();
        assert_eq!(htaccess(name, &grant).0.unwrap_err(), format!("{word} not allowed here"));
    }
    let limit = "<Limit GET>\n</Limit>";
    assert_eq!(htaccess(limit, &grant).0.unwrap_err(), "<Limit not allowed here");
    let text = htaccess("<Files x>\nTimeout 3\n</Files>", &grant).0.unwrap_err();
    assert_eq!(text, "Timeout not allowed in <Files> context");
}

#[test]
fn a_list_of_directives_does_not_lift_rules_of_place() {
    let directives = ["Define", "ServerRoot", "Redirect"].map(str::to_owned).to_vec();
    let grant = Grant { directives, ..Grant::default() };
    assert_eq!(htaccess("Redirect a b", &grant).0, Ok(()));
    let text = htaccess("Define a b", &grant).0.unwrap_err();
    assert_eq!(text, "Define cannot occur within htaccess files");
    let text = htaccess("ServerRoot /", &grant).0.unwrap_err();
    assert_eq!(text, "ServerRoot cannot occur within directory context");
}

#[test]
fn htaccess_goes_on_where_it_may() {
    let grant =
        Grant { overrides: Overrides::FILE_INFO, nonfatal_override: true, ..Grant::default() };
    let (result, notices) = htaccess("Include x\nTimeout 3\nRedirect a b", &grant);
    let want = [
        "AH02295: Include in .htaccess forbidden by AllowOverride",
        "AH02295: Timeout in .htaccess forbidden by AllowOverride",
    ];
    assert_eq!((result, notices), (Ok(()), want.map(str::to_owned).to_vec()));
}

#[test]
fn texts_that_would_grow_without_end_are_stopped() {
    let mut doubling = "LoadModule macro_module x\n<Macro m0>\nA\n</Macro>\n".to_owned();
    for number in 1..40 {
        let below = number - 1;
        write!(doubling, "<Macro m{number}>\nUse m{below}\nUse m{below}\n</Macro>\n").unwrap();
    }
    doubling.push_str("Use m39\n");
    let grant = Grant { overrides: Overrides::ALL, ..Grant::default() };
    let mut words = stub::Words::default();
    words.modules.load("macro_module", "x", "/x").unwrap();
    let body = doubling.split_once('\n').unwrap().1;
    let (variables, mut notices) = (Variables::default(), Vec::new());
    let fault = read_htaccess(body.as_bytes(), "h", "/", &grant, &variables, &words, &mut notices)
        .unwrap_err();
    assert_eq!(fault.text, "The configuration has too many lines");

    let mut values = "Define a 0123456789\n".to_owned();
    values.push_str(&"Define a ${a}${a}${a}${a}\n".repeat(20));
    assert!(read_text(&values).0.unwrap_err().text.ends_with("Line too long"));

    let deep = read_text(&"<A>\n".repeat(300)).0.unwrap_err();
    assert_eq!(deep.text, "Sections are nested deeper than 256");
    let deep = read_text(&"<IfModule core.c>\n".repeat(300)).0.unwrap_err();
    assert_eq!(deep.text, "Sections are nested deeper than 256");
    let skipped = read_text(&"<IfModule foo.c>\n".repeat(100_000)).0.unwrap_err();
    assert_eq!(skipped.text, "Expected </IfModule> before end of configuration");
}

/// Bytes that are not part of UTF-8 are kept. Names of files that the language opens must be UTF-8.
#[test]
fn a_line_in_another_encoding_keeps_its_bytes() {
    let read = |text: &[u8]| read_main(Main::Text { name: "t".into(), text: text.into() }).0;
    let text = b"LoadModule macro_module x\n<Macro m>\nB \xe9\n</Macro>\nUse m\nA \xe9\n";
    let arguments: Vec<_> =
        read(text).unwrap().nodes.into_iter().map(|node| node.arguments).collect();
    let bytes: Vec<_> = arguments.iter().map(|text| unquoted(text).into_owned()).collect();
    assert_eq!(bytes, [b"\xe9", b"\xe9"]);
    for line in [&b"Include \xe9"[..], b"ServerRoot /\xe9", b"<IfFile \xe9>\n</IfFile>"] {
        assert!(read(line).unwrap_err().text.ends_with("must be UTF-8"), "{line:?}");
    }
}
