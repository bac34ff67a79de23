//! Tests of the directives of mod_fcgid.

use super::*;
use crate::{Merge, testing};

fn server(text: &str) -> Server {
    testing::apply(MODULE, text).unwrap().server.fcgid.clone()
}

#[test]
fn bounds_are_those_of_the_program_or_of_the_server() {
    let usual = server("");
    let limits = usual.limits(b"/bin/sh");
    assert_eq!((limits.most_processes, limits.least_processes, limits.io_timeout_s), (100, 3, 40));
    assert_eq!((usual.busy_timeout_s(), usual.most_body()), (300, 131_072));
    let text = "FcgidMaxProcessesPerClass 7\nFcgidMinProcessesPerClass 0\nFcgidIOTimeout 9\n\
        FcgidMaxRequestsPerProcess 500\nFcgidIdleTimeout 20\nFcgidProcessLifeTime 30\n\
        FcgidBusyTimeout 40\nMaxRequestLen 1000\nFcgidInitialEnv A b\nFcgidInitialEnv A c\n\
        FcgidCmdOptions /bin/sh MaxProcesses 2 InitialEnv X=y IOTimeout 3";
    let set = server(text);
    let limits = set.limits(b"/bin/cat");
    assert_eq!((limits.most_processes, limits.least_processes, limits.io_timeout_s), (7, 0, 9));
    assert_eq!((limits.most_requests, limits.idle_timeout_s, limits.life_time_s), (500, 20, 30));
    assert_eq!((set.busy_timeout_s(), set.most_body()), (40, 1000));
    assert_eq!(limits.initial_env, [(b"A".to_vec(), b"c".to_vec())]);
    let own = set.limits(b"/bin/sh");
    assert_eq!((own.most_processes, own.io_timeout_s, own.idle_timeout_s), (2, 3, 300));
    assert_eq!(own.initial_env, [(b"X".to_vec(), b"y".to_vec())]);
    // A virtual host changes what it names.
    let inner = server("FcgidIOTimeout 5\nFcgidInitialEnv B d");
    let merged = Server::merge(&set, &inner).limits(b"/bin/cat");
    assert_eq!((merged.most_processes, merged.io_timeout_s), (7, 5));
    assert_eq!(merged.initial_env.len(), 2);
}

#[test]
fn a_wrapper_is_that_of_the_suffix_or_of_any_file() {
    let wrappers =
        |text: &str| testing::apply(MODULE, text).unwrap().directory.into_settings().fcgid;
    let outer = wrappers("FcgidWrapper \"/bin/sh -c 'a b'\" .pl\nFcgidWrapper /bin/cat virtual");
    let of = |settings: &Directory, file: &str| settings.wrapper(file.as_bytes()).cloned();
    let pl = of(&outer, "/srv/a.pl").unwrap();
    assert_eq!(pl.command, [&b"/bin/sh"[..], b"-c", b"a b"]);
    assert!(!pl.is_virtual && of(&outer, "/srv/a.php").unwrap().is_virtual);
    let inner = wrappers("FcgidWrapper /bin/true .pl");
    let merged = Directory::merge(&outer, &inner);
    assert_eq!(of(&merged, "/srv/a.pl").unwrap().command, [b"/bin/true"]);
    assert_eq!(of(&merged, "/srv/a").unwrap().command, [b"/bin/cat"]);
    assert_eq!(of(&Directory::default(), "/srv/a"), None);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for text in [
        "FcgidWrapper /no/such/program .pl",
        "FcgidWrapper /bin/sh pl",
        "FcgidWrapper /bin/sh .",
        "FcgidWrapper /bin/sh .pl real",
        "FcgidWrapper \"\"",
        "FcgidMaxProcesses 0",
        "FcgidMaxProcessesPerClass none",
        "FcgidIOTimeout 0",
        "FcgidCmdOptions /bin/sh",
        "FcgidCmdOptions /bin/sh Speed 3",
        "FcgidCmdOptions /bin/sh IOTimeout",
        "FcgidCmdOptions /no/such/program IOTimeout 3",
        "FcgidAuthorizer /bin/sh",
    ] {
        assert!(testing::apply(MODULE, text).is_err(), "{text}");
    }
    assert!(testing::apply(MODULE, "FcgidSpawnScore 3\nSocketPath x\nMaxProcessCount 4").is_ok());
}

#[test]
fn the_names_of_passed_fields_become_variables() {
    assert_eq!(variable_of("Authorization"), "HTTP_AUTHORIZATION");
    assert_eq!(variable_of("x-Odd.name"), "HTTP_X_ODD_NAME");
    assert_eq!(variable_of("content-type"), "CONTENT_TYPE");
}
