//! Checks the rule about missing modules, which a configuration loads and the server lacks: a use
//! of one is refused with file and line, a configuration without a use starts, and the source of a
//! program is never sent. The tests use modules that the server does not have (lua, dbd, dialup),
//! and EVENKEEL_WITHOUT, which takes a module away from a debug build.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::House;
use evenkeel_tests::server::{Kind, command, program};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const LUA: &str = "LoadModule lua_module modules/mod_lua.so\n";

/// Runs `-t`. Returns whether it accepts the configuration, and its messages.
fn check(text: &str, without: &str) -> (bool, String) {
    let house = House::lay_out("LoadModule mime_module modules/mod_mime.so\n").unwrap();
    fs::write(house.path("mime.types"), "text/html html\n").unwrap();
    house.configure(&format!("TypesConfig \"@ROOT@/mime.types\"\n{text}")).unwrap();
    let program = program(Kind::Evenkeel, &house.path("")).unwrap();
    let file = house.path("httpd.conf");
    let mut command = command(&program, &["-t", "-f", file.to_str().unwrap()]);
    let output = command.env("EVENKEEL_WITHOUT", without).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said.replace(house.path("").to_str().unwrap(), "@ROOT@"))
}

/// The texts of the refusals of a configuration.
fn refused(text: &str) -> String {
    let (is_accepted, said) = check(text, "");
    assert!(!is_accepted, "{text}\n{said}");
    assert!(said.contains("a module that this server does not have"), "{text}\n{said}");
    assert!(said.contains("Syntax error on line "), "{said}");
    assert!(said.contains("Remove the LoadModule line of "), "{said}");
    said
}

fn accepted(text: &str) -> String {
    let (is_accepted, said) = check(text, "");
    assert!(is_accepted, "{text}\n{said}");
    said
}

#[test]
fn what_uses_a_missing_module_is_refused() {
    for line in [
        "LuaRoot /x",
        "<IfModule mod_lua.c>\n<Location />\nRequire all denied\n</Location>\n</IfModule>",
        "<IfModule lua_module>\nDefine guarded\n</IfModule>",
        "<IfDirective LuaRoot>\nTimeout 9\n</IfDirective>",
        "<IfSection LuaQuickHandler>\nTimeout 9\n</IfSection>",
        "<IfModule mod_mime.c>\n<IfModule mod_lua.c>\nTimeout 9\n</IfModule>\n</IfModule>",
        "<Location /x>\nSetHandler lua-script\n</Location>",
        "AddHandler lua-script .lua",
    ] {
        refused(&format!("{LUA}{line}\n"));
    }
    refused("LoadModule charset_lite_module m.so\nAddOutputFilter XLATEOUT .x\n");
    let said = refused(&format!("{LUA}LuaRoot /x\n<IfModule mod_lua.c>\nTimeout 9\n</IfModule>\n"));
    assert_eq!(said.matches("AH00526").count(), 2, "{said}");
}

#[test]
fn a_missing_module_that_nothing_uses_is_named_in_one_warning() {
    let more = "LoadModule dbd_module m.so\nLoadModule dialup_module m.so\n";
    let said = accepted(&format!(
        "{LUA}{more}<IfModule mod_lua.c>\n# a comment\n<IfDefine NO>\nTimeout 9\n</IfDefine>\n\
         </IfModule>\n<IfModule !mod_lua.c>\nTimeout 9\nNonsense\n</IfModule>\n"
    ));
    let want = "nothing in the configuration needs them: mod_lua.c, mod_dbd.c, mod_dialup.c\n";
    assert_eq!(said.matches(want).count(), 1, "{said}");
}

/// Conditions about a module that no LoadModule line names are false, as in Apache.
#[test]
fn a_module_that_is_not_loaded_is_skipped() {
    accepted(
        "<IfModule mod_lua.c>\nTimeout 9\n</IfModule>\n<IfModule !mod_lua.c>\nTimeout 9\n</IfModule>\n",
    );
}

#[test]
fn what_switches_off_is_a_warning_with_file_and_line() {
    for (module, line) in
        [("dav", "Dav off"), ("dav", "<IfModule mod_dav.c>\nDav off\n</IfModule>")]
    {
        let said = accepted(&format!("LoadModule {module}_module m.so\n{line}\n"));
        assert!(said.contains(" has no effect: it is defined by "), "{said}");
        assert!(said.contains("(@ROOT@httpd.conf:"), "{said}");
    }
}

/// EVENKEEL_WITHOUT makes a module of this server a missing one.
#[test]
fn a_module_that_is_taken_away_is_missing() {
    let text = "LoadModule headers_module m.so\n<IfModule mod_headers.c>\nTimeout 9\n</IfModule>\n";
    assert!(check(text, "").0);
    let (is_accepted, said) = check(text, "mod_headers.c");
    assert!(!is_accepted && said.contains("depend on mod_headers, a module"), "{said}");
}

#[test]
fn modules_of_others_are_refused_with_what_replaces_them() {
    let (is_accepted, said) = check(
        "LoadModule php_module libphp7.9.so\nLoadModule security2_module m.so\nLoadModule jk_module m.so\n\
         LoadModule pagespeed_module m.so\nNonsense\n",
        "",
    );
    assert!(!is_accepted && said.contains("evenkeel-php7.9, which runs PHP"), "{said}");
    assert!(said.contains("security2_module: nothing replaces"), "{said}");
    let parts = "pagespeed_module: nothing replaces it as a whole; mod_deflate, mod_brotli and";
    assert!(said.contains(parts), "{said}");
    assert!(said.contains("jk_module") && said.contains("Nonsense"), "{said}");
}

#[test]
fn fifty_refusals_are_shown_and_the_others_are_counted() {
    let (_, said) = check(&"Nonsense\n".repeat(64), "");
    assert_eq!(said.matches("Invalid command 'Nonsense'").count(), 50);
    assert!(said.contains("14 more refusals are not shown"), "{said}");
}

fn get(house: &House, path: &str) -> (u16, String) {
    let mut client = TcpStream::connect(house.address).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    (answer.get(9..12).unwrap().parse().unwrap(), answer)
}

/// A use in an .htaccess file is a 500, also under `AllowOverride Nonfatal=`.
#[test]
fn a_use_in_htaccess_is_answered_with_500() {
    let more = format!(
        "{LUA}<Directory \"@ROOT@/htdocs\">\nAllowOverride All Nonfatal=All\n</Directory>\n"
    );
    let mut house = House::lay_out(&more).unwrap();
    let write = |folder: &str, text: &str| {
        fs::create_dir(house.path(&format!("htdocs/{folder}"))).unwrap();
        fs::write(house.path(&format!("htdocs/{folder}/a.txt")), "secret").unwrap();
        fs::write(house.path(&format!("htdocs/{folder}/.htaccess")), text).unwrap();
    };
    write("condition", "<IfModule mod_lua.c>\nRequire all denied\n</IfModule>\n");
    write("directive", "# first\nLuaRoot /x\n");
    write("unused", "<IfModule mod_lua.c>\n# nothing\n</IfModule>\n");
    write("unknown", "Nonsense\n");
    house.start(&[]).unwrap();
    assert_eq!(get(&house, "/condition/a.txt").0, 500);
    assert_eq!(get(&house, "/directive/a.txt").0, 500);
    assert_eq!(get(&house, "/unused/a.txt").0, 200);
    assert_eq!(get(&house, "/unknown/a.txt").0, 200);
    house.stop().unwrap();
    let log = house.error_log();
    assert!(log.contains("condition/.htaccess: <IfModule mod_lua.c> contains"), "{log}");
    assert!(log.contains("(line 1)") && log.contains("(line 2)"), "{log}");
}

/// Apache sends the file where no module has the handler.
#[test]
fn the_source_of_a_program_is_never_sent() {
    let types = "LoadModule mime_module modules/mod_mime.so\nTypesConfig /dev/null\n";
    let more = "AddHandler cgi-script .cgi\nAddType application/x-httpd-php .php\n\
         AddHandler fcgid-script .fcgi\n<Files proxied.txt>\n\
         SetHandler \"proxy:unix:/run/php.sock|fcgi://localhost\"\n</Files>\n\
         AddHandler other-handler .other\n";
    let mut house = House::lay_out(&format!("{types}{more}")).unwrap();
    for name in ["a.cgi", "a.php", "a.fcgi", "proxied.txt", "a.other"] {
        fs::write(house.path(&format!("htdocs/{name}")), "secret").unwrap();
    }
    house.start(&[]).unwrap();
    for name in ["a.cgi", "a.php", "a.fcgi", "proxied.txt", "a%2ephp"] {
        let (status, answer) = get(&house, &format!("/{name}"));
        assert!(status == 500 && !answer.contains("secret"), "{name}: {answer}");
    }
    assert_eq!(get(&house, "/b.php").0, 404);
    assert!(get(&house, "/a.other").1.ends_with("secret"));
    house.stop().unwrap();
    assert!(house.error_log().contains("a.cgi: the configuration gives this file to the handler"));
}

/// Stock configurations start, or one report says all that they lack: nothing else in them is
/// refused.
#[test]
fn stock_configurations_start_or_say_all_that_they_lack() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("stock");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let house = House::lay_out("").unwrap();
        let root = house.path("");
        let root = root.to_str().unwrap().trim_end_matches('/');
        for folder in ["htdocs/cgi-bin", "icons", "error", "extra"] {
            fs::create_dir(house.path(folder)).unwrap();
        }
        fs::write(house.path("mime.types"), "text/html html\n").unwrap();
        fs::write(house.path("extra/proxy-html.conf"), "# nothing\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("@ROOT@", root).replace("@PORT@", "8080");
        let file = house.path("stock.conf");
        fs::write(&file, text).unwrap();
        let program = program(Kind::Evenkeel, &house.path("")).unwrap();
        let output = command(&program, &["-t", "-f", file.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let refusals = said.matches("AH00526: ").count();
        let lacking =
            said.lines().filter(|line| line.ends_with("a module that this server does not have"));
        assert_eq!(refusals, lacking.count(), "{name}: {said}");
        assert_eq!(output.status.success(), refusals == 0, "{name}: {said}");
        assert_eq!(refusals > 0, said.contains("Remove the LoadModule line of "), "{name}: {said}");
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["arch", "bitnami", "docker", "redhat", "upstream"]);
}
