//! Tests that the server and the load lab find each other: `evenkeel bench` becomes `evenkeel-lab
//! bench`, and `evenkeel-lab sim --config` asks `evenkeel` about a configuration.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::House;
use evenkeel_tests::server::{command, evenkeel, lab};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The standard output and standard error of a command, and its exit status.
fn said(command: &mut Command) -> (String, String, Option<i32>) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The server alone in a folder.
///
/// `cp` writes the copy: a descriptor that this process holds open for writing passes to a child
/// that another test starts meanwhile, and execve(2) would answer ETXTBSY until that child execs.
fn lone_server(folder: &Path) -> PathBuf {
    let server = folder.join("evenkeel");
    assert!(Command::new("cp").arg(evenkeel()).arg(&server).status().unwrap().success());
    server
}

/// An executable shell script, written by a process of its own for the reason of [`lone_server`].
fn script(path: &Path, text: &str) {
    let mut write = Command::new("sh");
    write.args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""]).arg(path).arg(text);
    assert!(write.status().unwrap().success());
}

#[test]
fn each_subcommand_of_the_lab_is_passed_on() {
    for subcommand in ["bench", "replay", "surge", "top", "sim", "report", "lab"] {
        let words = [subcommand, "--help"];
        let (out, err, status) = said(&mut command(&evenkeel(), &words));
        assert!(out.contains(&format!("evenkeel {subcommand}")), "{subcommand}: {out}");
        assert_eq!((err, status), (String::new(), Some(0)));
        assert_eq!(said(&mut command(&lab(), &words)).0, out);
        let wrong = said(&mut command(&evenkeel(), &[subcommand, "--no-such-word"]));
        let named = format!("evenkeel {subcommand}: unexpected argument '--no-such-word' found\n");
        assert!(wrong.1.starts_with(&named), "{wrong:?}");
        assert_eq!((wrong.0.as_str(), wrong.2), ("", Some(2)));
    }
}

#[test]
fn both_programs_complete_their_words_and_name_those_that_make_no_sense() {
    for (program, name) in [(evenkeel(), "evenkeel"), (lab(), "evenkeel-lab")] {
        for shell in ["bash", "zsh", "fish"] {
            let (out, err, status) = said(&mut command(&program, &["completions", shell]));
            assert!(out.contains(name) && out.contains("bench"), "{name} {shell}");
            assert_eq!((err, status), (String::new(), Some(0)));
        }
        let (out, err, status) = said(&mut command(&program, &["completions", "csh"]));
        assert!(out.is_empty() && err.contains("'csh' for '<SHELL>'"), "{err}");
        assert_eq!(status, Some(2));
        let (out, err, status) = said(&mut command(&program, &["--help"]));
        assert!(out.contains(&format!("Usage: {name} ")) && out.contains("\n  bench "), "{out}");
        assert_eq!((err, status), (String::new(), Some(0)));
        let (out, ..) = said(&mut command(&program, &["--version"]));
        assert_eq!(out, format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
    }
    let (_, err, status) = said(&mut command(&lab(), &["bnch"]));
    assert!(err.starts_with("evenkeel-lab: ") && err.contains("'bnch'"), "{err}");
    assert_eq!(status, Some(2));
}

#[test]
fn a_server_without_the_lab_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = lone_server(folder.path());
    for words in [["bench", "http://localhost/"], ["explain", "http://localhost/"]] {
        let (out, err, status) = said(&mut command(&server, &words));
        let wanted = format!(
            "evenkeel {}: the program evenkeel-lab is neither beside {} nor in PATH; install it, or \
             build it with `cargo build --release --package evenkeel-lab`\n",
            words[0],
            server.display()
        );
        assert_eq!((out, err, status), (String::new(), wanted, Some(1)));
    }
}

#[test]
fn a_lab_in_path_gets_the_words_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = lone_server(folder.path());
    let path = folder.path().join("path");
    fs::create_dir(&path).unwrap();
    script(&path.join("evenkeel-lab"), "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n");
    let mut command = command(&server, &["bench", "-n", "1 2", ""]);
    let told = said(command.env("PATH", path));
    assert_eq!(told, ("bench\n-n\n1 2\n\n".to_owned(), String::new(), Some(7)));
}

#[test]
fn explain_asks_the_page_through_the_lab() {
    let site = "LoadModule status_module modules/mod_status.so\n\
                <Location /server-status>\nSetHandler server-status\n</Location>\n";
    let house = House::open(site, &[]).unwrap();
    let (page, pid) =
        (format!("http://{}/server-status", house.address), house.parent().to_string());
    for server in [page, pid] {
        let (out, err, status) = said(&mut command(&evenkeel(), &["explain", &server]));
        assert!(out.starts_with("Limit"), "{server}: {out}{err}");
        assert_eq!((err, status), (String::new(), Some(0)));
    }
}

#[test]
fn a_simulation_has_the_directives_of_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("site.conf"),
        "ServerName localhost\nListen 80\nLoadModule mpm_worker_module modules/mod_mpm_worker.so\n\
         ThreadsPerChild 10\nMaxRequestWorkers 20\n",
    )
    .unwrap();
    fs::write(folder.path().join("bad.conf"), "Limitless On\n").unwrap();
    let run = |program: PathBuf, words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        said(command(&program, &words).current_dir(folder.path()))
    };
    let load = "--law fixed --load 64 --service 100ms --for 4s";
    let spelled = "--threads 10 --workers 20 --min-spare 75 --max-spare 250 --server-limit 16 \
                   --start 2 --backlog 511";
    let wanted = run(lab(), &format!("sim {load} {spelled}"));
    assert_eq!((wanted.1.as_str(), wanted.2), ("", Some(0)));
    for program in [evenkeel(), lab()] {
        let told = run(program.clone(), &format!("sim --config site.conf {load}"));
        assert_eq!(told, wanted);
        let (out, err, status) = run(program, "sim --config bad.conf");
        assert!(err.starts_with("evenkeel sim: ") && err.contains("'Limitless'"), "{err}");
        assert_eq!((out.as_str(), status), ("", Some(1)));
    }
}
