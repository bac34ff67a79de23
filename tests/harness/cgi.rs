//! Checks CGI programs that fail, the launcher that starts them, and what a program can see of the
//! server. The programs are shell scripts of the test.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE, Successor, children_of, send, wait_for};
use evenkeel_tests::server::{Kind, Server};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const MODULES: &str = "\
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule env_module /usr/lib/apache2/modules/mod_env.so
LoadModule cgi_module /usr/lib/apache2/modules/mod_cgi.so
ScriptAlias /cgi/ \"@ROOT@/cgi/\"
<Directory \"@ROOT@/cgi\">
Require all granted
</Directory>
CGIScriptTimeout 2
";

/// The programs. `marks` is a folder that they may write to.
const PROGRAMS: &[(&str, &str)] = &[
    ("hello", "printf 'Content-Type: text/plain\\n\\nhello\\n'"),
    ("nothing", "exit 0"),
    ("half", "printf 'Content-Type: text/plain\\n'"),
    ("malformed", "printf 'no colon\\n\\nbody\\n'"),
    ("dies", "printf 'Content-Type: text/plain\\n'; kill -9 $$"),
    ("complains", "echo one >&2; echo two >&2; printf 'Content-Type: text/plain\\n\\nx\\n'"),
    ("hangs", "exec sleep 600"),
    ("floods", "i=0; while :; do i=$((i+1)); echo \"X-$i: 12345678901234567890\"; done"),
    ("floods-errors", "yes complaint | head -c 3000000 >&2; printf 'A: b\\n\\nx\\n'"),
    (
        "waits",
        "exec 2>/dev/null; echo $$ >\"$MARKS/pid\"; trap 'echo >\"$MARKS/ended\"; exit' TERM
         printf 'Content-Type: text/plain\\n\\nfirst\\n'; while :; do sleep 0.05; done",
    ),
    (
        "stubborn",
        "trap '' TERM; echo $$ >\"$MARKS/pid\"; printf 'Content-Type: text/plain\\n\\nfirst\\n'
         while :; do sleep 0.05; done",
    ),
    // Its child has the output and ignores SIGTERM.
    (
        "leaves-a-child",
        "(trap '' TERM; exec sleep 600) & echo $! >\"$MARKS/pid\"
         printf 'Content-Type: text/plain\\n\\nfirst\\n'",
    ),
    (
        "leaves-a-job",
        "sleep 600 >/dev/null 2>&1 & echo $! >\"$MARKS/pid\"
         printf 'Content-Type: text/plain\\n\\nfirst\\n'",
    ),
    ("leaves-a-job-and-no-head", "sleep 600 >/dev/null 2>&1 & echo $! >\"$MARKS/pid\""),
    (
        "slow",
        "echo $$ >\"$MARKS/pid\"; while ! [ -e \"$MARKS/go\" ]; do sleep 0.05; done
         printf 'Content-Type: text/plain\\n\\nslow\\n'",
    ),
    (
        "sees",
        "printf 'Content-Type: text/plain\\n\\n'
         while read -r name value; do
           case $name in NoNewPrivs:|CapEff:|SigBlk:) printf '%s\\t%s\\n' $name $value ;; esac
         done </proc/$$/status
         env | grep -i proxy
         [ \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$ ] && echo leader
         exec ls -m /proc/self/fd",
    ),
];

/// An executable shell script, written by a process of its own: a descriptor that this process
/// holds open for writing would pass to a child that another test starts meanwhile.
fn script(path: &Path, text: &str) {
    let mut write = Command::new("sh");
    write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\""]);
    assert!(write.arg(path).arg(text).status().unwrap().success());
}

fn lay_out(more: &str) -> House {
    let house = House::lay_out(&[MODULES, "SetEnv MARKS \"@ROOT@/marks\"\n", more].concat());
    let house = house.unwrap();
    for folder in ["cgi", "marks"] {
        fs::create_dir(house.path(folder)).unwrap();
        fs::set_permissions(house.path(folder), fs::Permissions::from_mode(0o777)).unwrap();
    }
    for (name, text) in PROGRAMS {
        script(&house.path("cgi").join(name), text);
    }
    house
}

fn ask(house: &House, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(house.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nProxy: evil\r\nConnection: close\r\n\r\n"
    );
    client.write_all(request.as_bytes()).unwrap();
    client
}

fn read(mut client: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    // A response that the server cuts off may end with a reset.
    let _ = client.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (text.get(9..12).unwrap_or("0").parse().unwrap_or(0), text)
}

fn get(house: &House, path: &str) -> (u16, String) {
    read(ask(house, path))
}

/// The status of one request, and the messages of the module.
fn fail(kind: Kind, path: &str) -> (u16, BTreeSet<String>) {
    let mut house = lay_out("");
    let root = house.path("");
    house.server = Some(Server::start(kind, &root, house.address.port()).unwrap());
    let (status, _) = get(&house, path);
    assert_eq!(get(&house, "/cgi/hello").0, 200, "{kind:?} after {path}");
    house.stop().unwrap();
    let log = house.error_log();
    let lines = log.lines().filter(|line| line.contains("[cgi:"));
    let text = |line: &str| {
        let text = line.split_once("[client ")?.1.split_once("] ")?.1;
        Some(text.replace(&*root.to_string_lossy(), ""))
    };
    (status, lines.filter_map(text).collect())
}

#[test]
fn a_program_that_fails_is_answered_for_as_by_apache2() {
    let mut differences = Vec::new();
    for name in ["nothing", "half", "malformed", "dies", "complains", "hangs", "absent", ""] {
        let path = format!("/cgi/{name}");
        let (apache, ours) = (fail(Kind::Apache, &path), fail(Kind::Evenkeel, &path));
        if apache != ours {
            differences.push(format!("{path}: {apache:?} expected, {ours:?} came"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Apache reads a flood of fields without end.
#[test]
fn a_program_that_floods_is_bounded() {
    let mut house = lay_out("");
    house.start(&[]).unwrap();
    assert_eq!(get(&house, "/cgi/floods").0, 500);
    let (status, text) = get(&house, "/cgi/floods-errors");
    assert!(status == 200 && text.contains("x\n"), "{text}");
    house.stop().unwrap();
    let complaints = house.error_log().lines().filter(|line| line.contains("AH01215")).count();
    assert_eq!(complaints, 1000);
}

fn is_there(house: &House, name: &str) -> bool {
    fs::read_to_string(house.path("marks").join(name)).is_ok_and(|text| text.ends_with('\n'))
}

/// The process of the program that has written its number.
fn program(house: &House) -> u32 {
    wait_for("a program", || is_there(house, "pid")).unwrap();
    let text = fs::read_to_string(house.path("marks/pid")).unwrap();
    text.trim().parse().unwrap()
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_program_ends_when_its_client_leaves() {
    let mut house = lay_out("CGIScriptTimeout 600\n");
    house.start(&[]).unwrap();
    let mut client = ask(&house, "/cgi/waits");
    let pid = program(&house);
    client.read_exact(&mut [0; 16]).unwrap();
    drop(client);
    wait_for("the end of the program", || is_there(&house, "ended") && !lives(pid)).unwrap();
    fs::remove_file(house.path("marks/pid")).unwrap();
    let client = ask(&house, "/cgi/stubborn");
    let pid = program(&house);
    drop(client);
    wait_for("SIGKILL", || !lives(pid)).unwrap();
    house.stop().unwrap();
}

/// A child that holds the output of a program that has ended: the request waits for it as apache2
/// waits, and ends it when the client leaves or the time is over.
#[test]
fn children_that_hold_the_output_end_with_the_request() {
    for (more, leaves) in [("CGIScriptTimeout 600\n", true), ("CGIScriptTimeout 1\n", false)] {
        let mut house = lay_out(more);
        house.start(&[]).unwrap();
        let mut client = ask(&house, "/cgi/leaves-a-child");
        let child = program(&house);
        client.read_exact(&mut [0; 16]).unwrap();
        assert!(lives(child));
        if leaves {
            drop(client);
        } else {
            read(client);
        }
        wait_for("the end of the child", || !lives(child)).unwrap();
        house.stop().unwrap();
    }
}

/// A job that gives up the output lives on after the request, beside apache2 and here.
#[test]
fn jobs_that_give_up_the_output_outlive_the_request() {
    for kind in [Kind::Apache, Kind::Evenkeel] {
        for (name, status) in [("leaves-a-job", 200), ("leaves-a-job-and-no-head", 500)] {
            let mut house = lay_out("");
            let root = house.path("");
            house.server = Some(Server::start(kind, &root, house.address.port()).unwrap());
            let begun = Instant::now();
            assert_eq!(get(&house, &format!("/cgi/{name}")).0, status, "{kind:?} {name}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{kind:?} waits for a job");
            // Longer than the time after which a group would be killed.
            sleep(Duration::from_secs(5));
            let job = program(&house);
            assert!(lives(job), "{kind:?} {name}");
            send(job, Signal::KILL);
            house.stop().unwrap();
        }
    }
}

const MODELS: [&str; 3] = ["event", "worker", "prefork"];

fn model(name: &str) -> String {
    format!("LoadModule mpm_{name}_module /usr/lib/apache2/modules/mod_mpm_{name}.so\n")
}

#[test]
fn a_program_sees_three_descriptors_and_nothing_of_the_server() {
    for name in MODELS {
        let mut house = lay_out(&model(name));
        house.start(&[]).unwrap();
        let (status, text) = get(&house, "/cgi/sees");
        assert_eq!(status, 200, "{name}: {text}");
        // The fourth is the folder that ls lists.
        assert!(text.contains("0, 1, 2, 3\n"), "{name}: {text}");
        assert!(!text.contains("evil"), "{name}: {text}");
        for line in ["NoNewPrivs:\t0", "CapEff:\t0000000000000000", "SigBlk:\t0000000000000000"] {
            assert!(text.contains(line), "{name}: {text}");
        }
        assert!(text.contains("leader"), "{name}: {text}");
        house.stop().unwrap();
    }
}

/// The launcher: the child of the parent that has no thread but its own and is named so.
fn launchers(house: &House) -> Vec<u32> {
    let is_launcher = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "launcher\n")
    };
    children_of(house.parent()).into_iter().filter(is_launcher).collect()
}

/// The launcher, which the parent forks after it has begun to listen.
fn launcher(house: &House) -> u32 {
    wait_for("a launcher", || launchers(house).len() == 1).unwrap();
    launchers(house).into_iter().next().unwrap()
}

#[test]
fn a_launcher_that_dies_is_replaced() {
    for name in MODELS {
        let mut house = lay_out(&model(name));
        house.start(&[]).unwrap();
        let before = launcher(&house);
        assert_eq!(get(&house, "/cgi/hello").0, 200);
        send(before, Signal::KILL);
        // The order of this request waits for the next launcher.
        assert_eq!(get(&house, "/cgi/hello").0, 200, "{name}");
        assert_ne!(launcher(&house), before);
        house.stop().unwrap();
        let log = house.error_log();
        assert!(log.contains("the launcher of CGI programs (pid"), "{log}");
    }
}

#[test]
fn a_program_outlives_a_reload_and_the_launcher_goes_with_its_children() {
    let mut house = lay_out("CGIScriptTimeout 600\n");
    house.start(&[]).unwrap();
    let before = launcher(&house);
    let client = ask(&house, "/cgi/slow");
    let pid = program(&house);
    house.reload().unwrap();
    assert!(lives(pid));
    assert_eq!(get(&house, "/cgi/hello").0, 200);
    fs::write(house.path("marks/go"), "").unwrap();
    let (status, text) = read(client);
    assert!(status == 200 && text.contains("slow\n"), "{text}");
    wait_for("the end of the old launcher", || !lives(before)).unwrap();
    assert_ne!(launcher(&house), before);
    let parent = house.parent();
    house.stop().unwrap();
    wait_for("the end of all", || children_of(parent).is_empty()).unwrap();
}

/// A change of the program: the request that runs is answered by the launcher that started it.
#[test]
fn a_program_outlives_a_change_of_the_server() {
    for name in MODELS {
        let mut house = lay_out(&["CGIScriptTimeout 600\n", &model(name)].concat());
        house.start(&[]).unwrap();
        let before = launcher(&house);
        let client = ask(&house, "/cgi/slow");
        let pid = program(&house);
        house.change_program().unwrap();
        let _successor = Successor(&house);
        assert!(lives(pid), "{name}");
        assert_eq!(get(&house, "/cgi/hello").0, 200, "{name}");
        fs::write(house.path("marks/go"), "").unwrap();
        let (status, text) = read(client);
        assert!(status == 200 && text.contains("slow\n"), "{name}: {text}");
        wait_for("the end of the old launcher", || !lives(before)).unwrap();
    }
}

const FILTERS: &str = "\
LoadModule ext_filter_module /usr/lib/apache2/modules/mod_ext_filter.so
ExtFilterDefine dies cmd=@ROOT@/cgi/filter-dies
ExtFilterDefine hangs cmd=@ROOT@/cgi/filter-hangs
ExtFilterDefine stalls cmd=@ROOT@/cgi/filter-stalls
ExtFilterDefine broken cmd=@ROOT@/cgi/filter-broken
ExtFilterDefine floods cmd=@ROOT@/cgi/filter-floods
ExtFilterDefine forks cmd=@ROOT@/cgi/filter-forks
ExtFilterDefine late cmd=@ROOT@/cgi/filter-late
";

/// Programs that filter badly. The file that they read is of 8 MiB.
#[test]
fn an_external_filter_that_fails_is_bounded_and_named() {
    let names = ["dies", "hangs", "stalls", "broken", "floods", "forks", "late"];
    let sections = names.map(|name| {
        format!(
            "<Location /{name}.bin>\nSetOutputFilter {name}\nExtFilterOptions LogStderr\n\
             </Location>\n"
        )
    });
    for model_name in MODELS {
        let mut house = lay_out(&[&model(model_name), FILTERS, &sections.concat()].concat());
        let text = fs::read_to_string(house.path("httpd.conf")).unwrap();
        fs::write(house.path("httpd.conf"), text.replace("Timeout 600\n", "Timeout 1\n")).unwrap();
        for (name, text) in [
            ("filter-dies", "kill -9 $$"),
            ("filter-hangs", "exec sleep 600"),
            ("filter-stalls", "cat >/dev/null; exec sleep 600"),
            ("filter-floods", "cat >/dev/null; yes x | head -c 1000000 >&2; echo done"),
            ("filter-forks", "sleep 600 & echo $! >\"$MARKS/pid\"; wc -c"),
            ("filter-late", "head -c 100000; sleep 1000"),
        ] {
            script(&house.path("cgi").join(name), text);
        }
        fs::write(house.path("cgi/filter-broken"), "#!/nonexistent/interpreter\n").unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(house.path("cgi/filter-broken"), mode).unwrap();
        for name in names {
            let large = house.path("htdocs/large.bin");
            fs::hard_link(large, house.path("htdocs").join(format!("{name}.bin"))).unwrap();
        }
        house.start(&[]).unwrap();
        for name in ["dies", "hangs", "stalls", "broken"] {
            assert_eq!(get(&house, &format!("/{name}.bin")).0, 500, "{model_name}: {name}");
        }
        let (status, text) = get(&house, "/floods.bin");
        assert!(status == 200 && text.contains("done\n"), "{model_name}: {text}");
        let (status, text) = get(&house, "/late.bin");
        assert!(status == 200 && !text.ends_with("0\r\n\r\n"), "{model_name}: the end is missing");
        // A process that the program leaves behind holds the output open, which ends all the same.
        assert_eq!(get(&house, "/forks.bin").0, 200);
        send(program(&house), Signal::KILL);
        fs::remove_file(house.path("marks/pid")).unwrap();
        assert_eq!(get(&house, "/small.txt").0, 200);
        house.stop().unwrap();
        let log = house.error_log();
        let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        for name in ["dies", "hangs", "stalls", "broken", "late"] {
            let shown = format!("filter-{name}' (ExtFilterDefine {name}, ");
            let named = log.lines().filter(|line| line.contains(&shown));
            assert_eq!(named.count(), 1, "{model_name}: {name}: {log}");
        }
        assert!(count("stderr from") <= 1000 && count("httpd.conf:") >= 5, "{model_name}");
    }
}

/// A page that is the output of a program and includes programs: under prefork, a thread has one
/// place for programs.
#[test]
fn a_page_of_a_program_includes_programs() {
    const INCLUDE: &str = "LoadModule include_module /usr/lib/apache2/modules/mod_include.so\n\
        <Location /cgi/page>\nSetOutputFilter INCLUDES\n</Location>\n\
        <Directory \"@ROOT@/cgi\">\nOptions +Includes\n</Directory>\n";
    for name in MODELS {
        let mut house = lay_out(&[&model(name), INCLUDE].concat());
        let text = "printf 'Content-Type: text/html\\n\\n'
            i=0; while [ $i -lt 3 ]; do i=$((i+1))
            echo '<!--#include virtual=\"/cgi/hello\" --><!--#exec cmd=\"echo command\" -->'
            sleep 0.1; done";
        script(&house.path("cgi/page"), text);
        house.start(&[]).unwrap();
        let (status, text) = get(&house, "/cgi/page");
        let count = |what: &str| text.matches(what).count();
        assert_eq!((status, count("hello\n"), count("command\n")), (200, 3, 3), "{name}: {text}");
        house.stop().unwrap();
    }
}

/// The program tries to look into the server's processes, which run as the same user.
#[test]
fn a_program_finds_no_way_into_the_server() {
    let mut house = lay_out("");
    let text = "printf 'Content-Type: text/plain\\n\\n'
        for pid in $(cat \"$MARKS/pids\"); do
          kill -0 $pid 2>/dev/null || [ -d /proc/$pid ] || echo gone
          for name in fd cwd root fdinfo map_files; do
            ls -L /proc/$pid/$name/ >/dev/null 2>&1 && echo \"open: $pid $name\"
          done
          for name in environ maps mem auxv stack; do
            head -c 1 /proc/$pid/$name >/dev/null 2>&1 && echo \"open: $pid $name\"
          done
        done
        while read -r name value; do
          case $name in SigIgn:|SigBlk:|CapPrm:|CapInh:|CapAmb:) echo \"$name $value\" ;; esac
        done </proc/self/status
        echo \"groups: $(id -G), user of a set-id program: $(\"$MARKS/id\" -u)\"";
    script(&house.path("cgi/attacks"), text);
    // A program that delivers mail needs its set-user-id bit.
    let helper = house.path("marks/id");
    let copied = Command::new("cp").arg("/usr/bin/id").arg(&helper).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o4755)).unwrap();
    house.start(&[]).unwrap();
    launcher(&house);
    let mut pids = children_of(house.parent());
    pids.push(house.parent());
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    fs::write(house.path("marks/pids"), pids.join("\n")).unwrap();
    let (status, text) = get(&house, "/cgi/attacks");
    assert_eq!(status, 200, "{text}");
    assert!(!text.contains("open: ") && !text.contains("gone"), "{text}");
    // posix_spawn(3) of glibc starts programs with signals 32 and 33 ignored, which glibc itself
    // uses.
    let text = text.replace("SigIgn: 0000000180000000", "SigIgn: 0000000000000000");
    for name in ["SigIgn", "SigBlk", "CapPrm", "CapInh", "CapAmb"] {
        assert!(text.contains(&format!("{name}: 0000000000000000\n")), "{text}");
    }
    if rustix::process::geteuid().is_root() {
        let www = Command::new("id").args(["-g", "www-data"]).output().unwrap();
        let group = String::from_utf8(www.stdout).unwrap();
        // The set-user-id bit of the copy of id(1) acts: its user is root.
        let wanted = format!("groups: {}, user of a set-id program: 0\n", group.trim());
        assert!(text.contains(&wanted), "{text}");
    }
    house.stop().unwrap();
}

/// Some clients request a program and others a file, while the launcher is killed repeatedly.
#[test]
fn a_launcher_that_is_killed_under_load_fails_its_own_programs_alone() {
    const CLIENTS: usize = 6;
    const KILLS: usize = 5;
    let mut house = lay_out("");
    house.start(&[]).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let counts = std::sync::Mutex::new((0_usize, 0_usize));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (house, is_over, counts) = (&house, &is_over, &counts);
            scope.spawn(move || {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    if client % 2 == 0 {
                        assert_eq!(get(house, "/small.txt").0, 200);
                        continue;
                    }
                    let is_well = get(house, "/cgi/hello").0 == 200;
                    let mut counts = counts.lock().unwrap();
                    counts.0 += usize::from(is_well);
                    counts.1 += usize::from(!is_well);
                }
            });
        }
        let answered = || counts.lock().unwrap().0;
        for _ in 0..KILLS {
            let before = answered();
            wait_for("answers of programs", || answered() > before + 5).unwrap();
            let pid = launcher(&house);
            send(pid, Signal::KILL);
            wait_for("the next launcher", || launchers(&house).iter().any(|it| *it != pid))
                .unwrap();
        }
        let before = answered();
        wait_for("answers after the last one", || answered() > before + 5).unwrap();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let (well, failed) = counts.into_inner().unwrap();
    // Each client has one program in progress.
    assert!(failed <= KILLS * CLIENTS / 2, "{failed} of {} failed", well + failed);
    house.stop().unwrap();
}

/// The log of failed programs, with the times left out.
fn script_log(kind: Kind) -> String {
    const LOG: &str = "ScriptLog \"@ROOT@/marks/script.log\"\nScriptLogBuffer 5\n";
    let mut house = lay_out(LOG);
    script(&house.path("cgi/reads"), "cat >/dev/null; echo complaint >&2; echo no colon; echo");
    let root = house.path("");
    house.server = Some(Server::start(kind, &root, house.address.port()).unwrap());
    for path in ["/cgi/reads?query", "/cgi/nothing", "/cgi/absent", "/cgi/hello"] {
        let mut client = TcpStream::connect(house.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Some: field\r\nConnection: close\r\n\
             Content-Length: 9\r\n\r\n123456789"
        );
        client.write_all(request.as_bytes()).unwrap();
        read(client);
    }
    house.stop().unwrap();
    let text = fs::read_to_string(house.path("marks/script.log")).unwrap();
    let text = text.replace(&*root.to_string_lossy(), "/");
    let without_time = |line: &str| match line.split_once("] ") {
        Some((moment, rest)) if moment.starts_with("%% [") => format!("%% {rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(without_time).collect()
}

/// The entries of one program.
fn entries<'a>(log: &'a str, program: &str) -> Vec<&'a str> {
    log.split("%% POST ").filter(|entry| entry.starts_with(program)).collect()
}

/// Apache has an entry of its own for standard error, and shows a malformed head as %response.
#[test]
fn the_log_of_failed_programs_is_that_of_apache2() {
    let (apache, ours) = (script_log(Kind::Apache), script_log(Kind::Evenkeel));
    assert_eq!(entries(&ours, "/cgi/nothing"), entries(&apache, "/cgi/nothing"));
    assert_eq!(entries(&ours, "/cgi/nothing").len(), 1);
    for log in [&apache, &ours] {
        let said = entries(log, "/cgi/reads?query").concat();
        for text in ["%% 500 /cgi/reads\n%request\n", "\n\n12345\n", "no colon\n", "complaint\n"] {
            assert!(said.contains(text), "{text} in {said}");
        }
    }
    assert!(entries(&ours, "/cgi/hello").is_empty());
}
