//! Tests bounds other than the number of requests: the memory that authors of .htaccess files can
//! make a server hold, and the work in large folders, for clients that stay and for those that
//! disconnect. Nothing is timed.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::load::{answer, ask, connect, probe};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;

/// One process, and a log of the requests.
const ONE: &str = "\
ServerLimit 1
StartServers 1
LogFormat \"%>s %r\" line
CustomLog \"@ROOT@/logs/access.log\" line
";

/// Requests a path and reads the response to its end.
fn get(house: &House, path: &str) -> String {
    let mut stream = connect(house.address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Creates a folder with `files` empty files.
fn fill(house: &House, name: &str, files: usize) {
    let folder = house.path("htdocs").join(name);
    fs::create_dir(&folder).unwrap();
    for number in 0..files {
        fs::File::create(folder.join(format!("{number:05}"))).unwrap();
    }
}

/// The memory of the only child, in KiB.
fn memory_kib(house: &House) -> usize {
    let child = *house.children().first().unwrap();
    let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn edits_of_an_htaccess_file_leave_nothing_behind() {
    let more = "\
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
<Directory \"@ROOT@/htdocs\">
AllowOverride All
</Directory>
";
    let house = House::open(&format!("{ONE}{more}"), &[]).unwrap();
    fs::create_dir(house.path("htdocs/d")).unwrap();
    fs::write(house.path("htdocs/d/page.txt"), "text").unwrap();
    let edit = |round: usize| {
        let mut text = String::new();
        for number in 0..10_000 {
            writeln!(text, "AddType text/{round}-{number} .e{round}x{number}").unwrap();
        }
        fs::write(house.path("htdocs/d/.htaccess"), text).unwrap();
        // Each serving thread holds what it has made of the file.
        for _ in 0..8 {
            assert!(get(&house, "/d/page.txt").starts_with("HTTP/1.1 200 "));
        }
        memory_kib(&house)
    };
    let first = (0..4).map(edit).max().unwrap();
    let last = (4..28).map(edit).max().unwrap();
    // In the first rounds some threads may not have served yet.
    assert!(last < 2 * first, "{first} KiB after 4 edits, {last} KiB after 28");
}

/// Folders whose .htaccess files may contain everything.
const OVERRIDES: &str = "\
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
<Directory \"@ROOT@/htdocs\">
AllowOverride All
</Directory>
";

#[test]
fn what_is_absent_is_so_until_it_appears() {
    let house = House::open(&format!("{ONE}{OVERRIDES}"), &[]).unwrap();
    fs::create_dir(house.path("htdocs/d")).unwrap();
    // Each serving thread holds what it has found out.
    let all = |path: &str, answer: &str| {
        for _ in 0..8 {
            let got = get(&house, path);
            assert!(got.starts_with("HTTP/1.1 ") && got.contains(answer), "{path}: {got}");
        }
    };
    let nobody = "not found on this server";
    for path in ["/d/page.txt", "/d/in/side.txt", "/new/page.txt"] {
        all(path, nobody);
    }
    fs::write(house.path("htdocs/d/.htaccess"), "ErrorDocument 404 \"ours\"\n").unwrap();
    for path in ["/d/page.txt", "/d/in/side.txt"] {
        all(path, "ours");
    }
    all("/new/page.txt", nobody);
    fs::write(house.path("htdocs/d/.htaccess"), "ErrorDocument 404 \"theirs\"\n").unwrap();
    all("/d/page.txt", "theirs");
    fs::remove_file(house.path("htdocs/d/.htaccess")).unwrap();
    all("/d/page.txt", nobody);
    for folder in ["htdocs/d/in", "htdocs/new"] {
        fs::create_dir(house.path(folder)).unwrap();
    }
    for path in ["/d/page.txt", "/d/in/side.txt", "/new/page.txt"] {
        all(path, nobody);
        fs::write(house.path("htdocs").join(&path[1..]), "here").unwrap();
        all(path, "here");
        fs::remove_file(house.path("htdocs").join(&path[1..])).unwrap();
        all(path, nobody);
    }
}

#[test]
fn names_of_what_is_absent_take_no_more_memory_however_many_there_are() {
    let house = House::open(&format!("{ONE}{OVERRIDES}"), &[]).unwrap();
    let ask = |names: std::ops::Range<usize>| {
        let mut stream = connect(house.address).unwrap();
        let mut requests = String::new();
        for name in names.clone() {
            let end = if name + 1 == names.end { "Connection: close\r\n" } else { "" };
            let line = format!("GET /none/{name:0200} HTTP/1.1");
            write!(requests, "{line}\r\nHost: localhost\r\n{end}\r\n").unwrap();
        }
        let mut answers = String::new();
        stream.write_all(requests.as_bytes()).unwrap();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 404 ").count(), names.len());
    };
    let until = |end: usize| {
        for begin in ((end - 20_000)..end).step_by(100) {
            ask(begin..begin + 100);
        }
        memory_kib(&house)
    };
    let first = until(20_000);
    let last = (2..5).map(|round| until(round * 20_000)).max().unwrap();
    assert!(last < first + first / 4, "{first} KiB after 20,000 names, {last} KiB after 80,000");
}

/// The configuration for listings.
const LISTS: &str = "\
LoadModule autoindex_module /usr/lib/apache2/modules/mod_autoindex.so
<Directory \"@ROOT@/htdocs\">
Options +Indexes
</Directory>
";

#[test]
fn the_listing_of_a_large_folder_ends_with_its_client() {
    let house = House::open(&format!("{ONE}{LISTS}"), &[]).unwrap();
    fill(&house, "large", 20_000);
    let mut stream = connect(house.address).unwrap();
    stream.write_all(b"GET /large/ HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    drop(stream);
    let log = || fs::read_to_string(house.path("logs/access.log")).unwrap();
    wait_for("its line", || log().ends_with('\n')).unwrap();
    assert_eq!(log(), "503 GET /large/ HTTP/1.1\n");
    probe(house.address).unwrap();
    assert!(get(&house, "/large/").contains("19999"));
}

#[test]
fn a_client_that_has_ended_its_side_gets_the_listing_of_a_small_folder() {
    let house = House::open(&format!("{ONE}{LISTS}"), &[]).unwrap();
    fill(&house, "small", 500);
    let mut stream = connect(house.address).unwrap();
    stream.write_all(b"GET /small/ HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("00499"), "{answer}");
}

#[test]
fn a_file_is_chosen_among_many() {
    let more = "\
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule negotiation_module /usr/lib/apache2/modules/mod_negotiation.so
DirectoryIndex none page
HeaderName HEAD
<Directory \"@ROOT@/htdocs\">
Options +MultiViews
</Directory>
";
    let house = House::open(&format!("{ONE}{LISTS}{more}"), &[]).unwrap();
    fill(&house, "many", 2_000);
    fs::write(house.path("htdocs/many/page.html"), "the page").unwrap();
    for path in ["/many/page", "/many/"] {
        let answer = get(&house, path);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("the page"), "{answer}");
    }
    assert!(get(&house, "/many/nothing").starts_with("HTTP/1.1 404 "));
    fill(&house, "listed", 2_000);
    fs::write(house.path("htdocs/listed/HEAD.html"), "the header").unwrap();
    let answer = get(&house, "/listed/");
    assert!(answer.contains("the header") && answer.contains("01999"), "{answer}");
}

/// The paths of the responses so far, in order.
fn answered(house: &House) -> Vec<String> {
    let log = fs::read_to_string(house.path("logs/access.log")).unwrap_or_default();
    log.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect()
}

#[test]
fn a_crowd_of_listings_leaves_room_for_a_file() {
    const CROWD: usize = 20;
    let more = "\
LoadModule autoindex_module /usr/lib/apache2/modules/mod_autoindex.so
ThreadsPerChild 4
MaxRequestWorkers 4
<Directory \"@ROOT@/htdocs/many\">
Options Indexes
</Directory>
";
    // One core: one serving thread, and one for expensive work.
    let house = House::open(&format!("{ONE}{more}"), &["taskset", "-c", "0"]).unwrap();
    fill(&house, "many", 3_000);
    let crowd: Vec<_> = (0..CROWD).map(|_| ask(house.address, "/many/").unwrap()).collect();
    let file = answer(ask(house.address, "/small.txt").unwrap()).unwrap();
    assert_eq!(file.body.len(), 1 << 10);
    for listing in crowd {
        assert_eq!(answer(listing).unwrap().status(), 200);
    }
    wait_for("all lines", || answered(&house).len() > CROWD).unwrap();
    let order = answered(&house);
    let place = order.iter().position(|path| path == "/small.txt").unwrap();
    // If listings held all credits, the file would be served after almost all of them.
    assert!(place < CROWD - 4, "{place} of {CROWD} listings came first");
}

#[test]
fn a_listing_that_reads_many_folders_lets_others_have_their_turn() {
    let more = "\
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule autoindex_module /usr/lib/apache2/modules/mod_autoindex.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
LoadModule negotiation_module /usr/lib/apache2/modules/mod_negotiation.so
<Directory \"@ROOT@/htdocs\">
Options Indexes FollowSymLinks
</Directory>
<Directory \"@ROOT@/htdocs/folders\">
Options +MultiViews
DirectoryIndex index
</Directory>
";
    let house = House::open(&format!("{ONE}{more}"), &["taskset", "-c", "0"]).unwrap();
    // Ten times as many turns for the files as the folders would have if each took as little work.
    fill(&house, "files", 3_000);
    fill(&house, "folder", 900);
    fs::create_dir(house.path("htdocs/folders")).unwrap();
    for number in 0..300 {
        let link = house.path(&format!("htdocs/folders/{number}"));
        std::os::unix::fs::symlink("../folder", link).unwrap();
    }
    let folders = ask(house.address, "/folders/").unwrap();
    let files = ask(house.address, "/files/").unwrap();
    assert_eq!(answer(files).unwrap().status(), 200);
    assert_eq!(answer(folders).unwrap().status(), 200);
    wait_for("both lines", || answered(&house).len() == 2).unwrap();
    assert_eq!(answered(&house), ["/files/", "/folders/"]);
}
