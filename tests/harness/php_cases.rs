//! Plays the scripts of tests/php to Debian's apache2 with mod_php, under prefork, and to Evenkeel
//! with the same configuration. The scripts are in the language of the wire scripts.
//! mod_php is unpacked into a folder of its own and not installed.

use evenkeel_tests::php::{build, oracle};
use evenkeel_tests::play::{Differences, scripts_in};
use evenkeel_tests::script::parse;
use std::fs;

/// What both servers begin with. Both read the same php.ini; extensions are those that PHP has
/// built in.
const BEGINNING: &str = "\
config
    LoadModule php_module @MODPHP@
    PHPINIDir @INI@
    <FilesMatch \".+\\.ph(?:ar|p|tml)$\">
    SetHandler application/x-httpd-php
    </FilesMatch>
    <FilesMatch \".+\\.phps$\">
    SetHandler application/x-httpd-php-source
    </FilesMatch>
";

const INI: &str = "\
output_buffering = 4096
expose_php = Off
display_errors = Off
log_errors = On
register_argc_argv = Off
variables_order = GPCS
date.timezone = UTC
";

#[test]
fn scripts_answer_as_under_mod_php() {
    build().unwrap();
    let module = oracle().unwrap();
    let ini = tempfile::tempdir().unwrap();
    fs::write(ini.path().join("php.ini"), INI).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(ini.path(), permissions).unwrap();
    let only = std::env::var("PHP_CASES").unwrap_or_default();
    let mut differences = Differences::default();
    for (name, text) in scripts_in("php").unwrap() {
        if !name.contains(&only) {
            continue;
        }
        let (modules, rest) = text.split_once("\nconfig\n").unwrap();
        let text = format!("{modules}\n{BEGINNING}{rest}")
            .replace("@MODPHP@", module.to_str().unwrap())
            .replace("@INI@", ini.path().to_str().unwrap());
        let mut script = parse(&name, &text).unwrap();
        script.model = "prefork";
        differences.play(&script).unwrap();
    }
    let report = differences.report(if only.is_empty() { 100 } else { 0 });
    assert!(report.is_empty(), "{report}");
}
