//! Tests the cache with a real folder: after any change, the next look-up shows the new state, both
//! where the kernel reports changes and where each request checks.

mod listed;

use crate::{Files, Kind, Limits, Policy, SymlinkRule};
use evenkeel_message::Piece;
use std::cell::Cell;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

thread_local! {
    static NOW_MS: Cell<u64> = const { Cell::new(0) };
}

struct Site {
    files: Files,
    root: PathBuf,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new(policy: Policy, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let (files, notice) = Files::with_clock(limits, policy, || NOW_MS.get());
        assert_eq!(notice, None);
        Self { files, root, _folder: folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// What a request for the path gets: the text, or what is in its place.
    fn serve(&self, name: &str) -> String {
        let looked = self.files.look_up(bytes(&self.path(name)));
        match looked.found.kind() {
            Kind::File => match self.files.contents(&looked.found) {
                Ok(contents) => {
                    assert_eq!(contents.stat.size, contents.piece.len());
                    match &contents.piece {
                        Piece::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                        Piece::File { file, length, .. } => {
                            let mut text = vec![0; *length as usize];
                            evenkeel_sys::open::read_at(file, &mut text, 0).unwrap();
                            String::from_utf8(text).unwrap()
                        }
                    }
                }
                Err(error) => error.kind().to_string(),
            },
            other => format!("{other:?}"),
        }
    }

    fn access(&self, folder: &str) -> Option<(u64, String)> {
        let looked = self.files.look_up(bytes(&self.path(folder)));
        assert_eq!(looked.found.kind(), Kind::Directory);
        let file = self.files.access_file(looked.found.folder(), b".htaccess").unwrap()?;
        Some((file.serial, String::from_utf8(file.text.to_vec()).unwrap()))
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Runs a test under each policy.
fn each_policy(test: impl Fn(Site)) {
    for policy in [Policy::Told, Policy::ToldIfPossible, Policy::PerRequest] {
        test(Site::new(policy, Limits::default()));
    }
}

#[test]
fn a_rewritten_file_is_never_served_old() {
    each_policy(|site| {
        // Many rounds with the same length within one tick of the file system's clock.
        for round in 0..200 {
            site.write("a.txt", &format!("{round:04}"));
            assert_eq!(site.serve("a.txt"), format!("{round:04}"));
            assert_eq!(site.serve("a.txt"), format!("{round:04}"));
        }
        fs::OpenOptions::new().write(true).open(site.path("a.txt")).unwrap().set_len(2).unwrap();
        assert_eq!(site.serve("a.txt"), "01");
        site.write("b.txt", "renamed");
        fs::rename(site.path("b.txt"), site.path("a.txt")).unwrap();
        assert_eq!(site.serve("a.txt"), "renamed");
        assert_eq!(site.serve("b.txt"), "Absent");
        fs::remove_file(site.path("a.txt")).unwrap();
        assert_eq!(site.serve("a.txt"), "Absent");
        site.write("a.txt", "back");
        assert_eq!(site.serve("a.txt"), "back");
    });
}

#[test]
fn a_change_before_the_request_was_sent_is_always_seen() {
    use std::io::{Read, Write};
    each_policy(|site| {
        site.write("d/page", "0000");
        site.write("d/.htaccess", "0000");
        let path = site.path("d/page");
        let (mut client, mut server) = std::os::unix::net::UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            let rules = path.with_file_name(".htaccess");
            let next = path.with_file_name("next");
            for round in 1..=300_u32 {
                let text = format!("{round:04}");
                match round % 3 {
                    0 => fs::write(&path, &text).unwrap(),
                    1 => {
                        fs::write(&next, &text).unwrap();
                        fs::rename(&next, &path).unwrap();
                    }
                    _ => {
                        fs::remove_file(&path).unwrap();
                        fs::write(&path, &text).unwrap();
                    }
                }
                fs::write(&rules, &text).unwrap();
                client.write_all(text.as_bytes()).unwrap();
                let mut answer = [0; 8];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, *format!("{text}{text}").as_bytes());
            }
        });
        let mut asked = [0; 4];
        while server.read_exact(&mut asked).is_ok() {
            let answer = site.serve("d/page") + &site.access("d").unwrap().1;
            assert_eq!(answer.len(), 8, "{answer}");
            server.write_all(answer.as_bytes()).unwrap();
        }
        writer.join().unwrap();
    });
}

#[test]
fn large_files_are_held_open_and_exchanged_too() {
    for policy in [Policy::Told, Policy::PerRequest] {
        let site = Site::new(policy, Limits { file_bytes: 8, ..Limits::default() });
        site.write("large", "0123456789");
        assert_eq!(site.serve("large"), "0123456789");
        site.write("new", "9876543210");
        fs::rename(site.path("new"), site.path("large")).unwrap();
        assert_eq!(site.serve("large"), "9876543210");
        site.write("large", "0123456789abc");
        assert_eq!(site.serve("large"), "0123456789abc");
        if policy == Policy::Told {
            assert_eq!(site.files.held().1, 1);
        }
    }
}

#[test]
fn a_retargeted_link_and_a_change_of_its_target_are_seen() {
    each_policy(|site| {
        site.write("one/f", "one");
        site.write("two/f", "two");
        site.write("three/f", "three");
        symlink("one", site.path("current")).unwrap();
        symlink(site.path("current/f"), site.path("file")).unwrap();
        assert_eq!((site.serve("current/f"), site.serve("file")), ("one".into(), "one".into()));
        symlink("two", site.path("next")).unwrap();
        fs::rename(site.path("next"), site.path("current")).unwrap();
        assert_eq!((site.serve("current/f"), site.serve("file")), ("two".into(), "two".into()));
        site.write("two/f", "TWO");
        assert_eq!((site.serve("file"), site.serve("current/f")), ("TWO".into(), "TWO".into()));
        fs::rename(site.path("two"), site.path("gone")).unwrap();
        assert_eq!(site.serve("file"), "Absent");
        fs::rename(site.path("three"), site.path("two")).unwrap();
        assert_eq!((site.serve("file"), site.serve("current/f")), ("three".into(), "three".into()));
    });
}

#[test]
fn a_change_through_another_hard_link_is_seen() {
    each_policy(|site| {
        site.write("site/a", "old");
        fs::create_dir(site.path("other")).unwrap();
        fs::hard_link(site.path("site/a"), site.path("other/b")).unwrap();
        assert_eq!(site.serve("site/a"), "old");
        site.write("other/b", "new");
        assert_eq!(site.serve("site/a"), "new");
        fs::remove_file(site.path("other/b")).unwrap();
        assert_eq!(site.serve("site/a"), "new");
    });
}

/// Another name of the inode may be in a folder that is not watched.
#[test]
fn a_change_of_an_access_file_through_another_hard_link_is_seen() {
    each_policy(|site| {
        let text = |folder: &str| site.access(folder).unwrap().1;
        site.write("site/page", "page");
        site.write("other/text", "one");
        fs::hard_link(site.path("other/text"), site.path("site/.htaccess")).unwrap();
        assert_eq!(text("site"), "one");
        site.write("other/text", "two");
        assert_eq!(text("site"), "two");
        fs::hard_link(site.path("other/text"), site.path("other/again")).unwrap();
        site.write("other/again", "three");
        assert_eq!(text("site"), "three");
        // Through a symbolic link.
        fs::create_dir(site.path("by")).unwrap();
        site.write("far/text", "four");
        fs::hard_link(site.path("far/text"), site.path("other/far")).unwrap();
        symlink("../far/text", site.path("by/.htaccess")).unwrap();
        assert_eq!(text("by"), "four");
        site.write("other/far", "five");
        assert_eq!(text("by"), "five");
    });
}

#[test]
fn an_exchanged_ancestor_is_seen() {
    each_policy(|site| {
        site.write("a/b/c/f", "old");
        site.write("z/b/c/f", "new");
        assert_eq!(site.serve("a/b/c/f"), "old");
        fs::rename(site.path("a"), site.path("y")).unwrap();
        assert_eq!(site.serve("a/b/c/f"), "Absent");
        fs::rename(site.path("z"), site.path("a")).unwrap();
        assert_eq!(site.serve("a/b/c/f"), "new");
        fs::remove_dir_all(site.path("a")).unwrap();
        assert_eq!(site.serve("a/b/c/f"), "Absent");
        site.write("a", "a file now");
        assert_eq!(site.serve("a"), "a file now");
    });
}

#[test]
fn what_is_missing_without_its_folder_has_the_name_of_the_folder() {
    each_policy(|site| {
        site.write("d/e/f", "text");
        let path = site.path("d/e/none");
        let rest = || site.files.look_up(bytes(&path)).rest;
        assert_eq!(rest(), bytes(&path).len());
        fs::rename(site.path("d/e"), site.path("e")).unwrap();
        assert_eq!(rest(), bytes(&site.path("d/e")).len());
        fs::remove_dir_all(site.path("d")).unwrap();
        assert_eq!(rest(), bytes(&site.path("d")).len());
    });
}

#[test]
fn changed_permissions_are_seen() {
    each_policy(|site| {
        site.write("d/f", "text");
        let uid = || {
            let looked = site.files.look_up(bytes(&site.path("d/f")));
            looked.found.stat().unwrap().mode & 0o777
        };
        fs::set_permissions(site.path("d/f"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(uid(), 0o640);
        fs::set_permissions(site.path("d/f"), fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(uid(), 0o604);
    });
}

#[test]
fn a_folder_has_the_time_of_its_last_change() {
    each_policy(|site| {
        site.write("d/f", "text");
        let path = site.path("d");
        let told = || site.files.look_up(bytes(&path)).found.stat().unwrap().modified_ns;
        let of_past = fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        fs::File::open(&path).unwrap().set_times(of_past).unwrap();
        assert_eq!(told(), 0);
        site.write("d/g", "text");
        assert!(told() > 0);
    });
}

#[test]
fn what_stands_behind_a_file_is_path_info() {
    each_policy(|site| {
        site.write("d/f", "text");
        let look = |name: &str| {
            let path = site.root.to_str().unwrap().to_owned() + name;
            let looked = site.files.look_up(path.as_bytes());
            (looked.found.kind(), path[looked.rest..].to_owned())
        };
        for _ in 0..2 {
            assert_eq!(look("/d/f"), (Kind::File, String::new()));
            assert_eq!(look("/d/f/"), (Kind::File, "/".into()));
            assert_eq!(look("/d/f/x/y"), (Kind::File, "/x/y".into()));
            assert_eq!(look("/d"), (Kind::Directory, String::new()));
            assert_eq!(look("/d/"), (Kind::Directory, "/".into()));
            assert_eq!(look("//d//f//x"), (Kind::File, "//x".into()));
            assert_eq!(look("/d/none/x"), (Kind::Absent, "/x".into()));
            assert!(matches!(look("/d/../d/f"), (Kind::Denied(13), _)));
        }
        let looked = site.files.look_up(bytes(&site.path("d/f")));
        let folders: Vec<_> = looked.found.folders().iter().map(|f| f.path().to_vec()).collect();
        assert_eq!(folders.first().unwrap(), b"/");
        assert_eq!(folders.last().unwrap(), bytes(&site.path("d")));
        assert_eq!(looked.found.name(), b"f");
    });
}

#[test]
fn access_files_are_seen_when_they_come_change_and_go() {
    each_policy(|site| {
        fs::create_dir(site.path("d")).unwrap();
        assert_eq!(site.access("d"), None);
        site.write("d/.htaccess", "Deny");
        let (first, text) = site.access("d").unwrap();
        assert_eq!(text, "Deny");
        // The answer for the page is invalid together with the file above it.
        site.write("d/f", "text");
        let page = site.files.look_up(bytes(&site.path("d/f"))).found;
        let _ = site.files.access_file(page.folder(), b".htaccess").unwrap();
        for round in 0..100 {
            site.write("d/.htaccess", &format!("{round:03}"));
            assert!(!site.files.holds(&page) || round > 0);
            assert_eq!(site.access("d").unwrap().1, format!("{round:03}"));
        }
        let (second, _) = site.access("d").unwrap();
        assert!(second > first);
        site.write("d/.htaccess", "099");
        assert_eq!(site.access("d").unwrap(), (second, "099".into()));
        site.write("d/text", "linked");
        fs::remove_file(site.path("d/.htaccess")).unwrap();
        assert_eq!(site.access("d"), None);
        symlink("text", site.path("d/.htaccess")).unwrap();
        assert_eq!(site.access("d").unwrap().1, "linked");
        site.write("d/text", "through");
        assert_eq!(site.access("d").unwrap().1, "through");
    });
}

#[test]
fn links_tell_whether_their_owner_matches() {
    each_policy(|site| {
        site.write("mine", "mine");
        symlink("mine", site.path("same")).unwrap();
        symlink("/etc", site.path("folder")).unwrap();
        symlink("nowhere", site.path("broken")).unwrap();
        symlink("loop", site.path("loop")).unwrap();
        let link = |name: &str| site.files.look_up(bytes(&site.path(name))).found.link();
        assert!(SymlinkRule::IfOwnerMatch.admits(link("same")));
        assert!(!SymlinkRule::Refuse.admits(link("same")));
        assert!(!SymlinkRule::Follow.admits(link("broken")));
        assert!(!SymlinkRule::Follow.admits(link("loop")));
        assert_eq!(site.serve("loop"), "Denied(40)");
        let found = site.files.look_up(bytes(&site.path("folder/passwd"))).found;
        assert_eq!((found.kind(), found.link()), (Kind::File, None));
        assert!(found.through_link());
        let links = found.folders().iter().filter(|folder| folder.link().is_some()).count();
        assert_eq!(links, 1);
        // Only root can give files away; for other users the first half of the test must suffice.
        if std::os::unix::fs::lchown(site.path("same"), Some(65534), None).is_ok() {
            assert!(!SymlinkRule::IfOwnerMatch.admits(link("same")));
            assert!(SymlinkRule::Follow.admits(link("same")));
        }
    });
}

#[test]
fn in_a_round_each_folder_is_looked_at_once() {
    let site = Site::new(Policy::PerRequest, Limits::default());
    let rules = || site.access("d").unwrap().1;
    site.write("d/.htaccess", "old");
    assert_eq!(rules(), "old");
    for _ in 0..2 {
        site.write("d/.htaccess", "of before");
        site.files.begin_round(false);
        assert_eq!(rules(), "of before");
        site.write("d/.htaccess", "new");
        assert_eq!(rules(), "of before");
        site.files.end_round();
        assert_eq!(rules(), "new");
    }
}

#[test]
fn the_files_of_a_large_round_are_remembered_by_the_few_caches_that_are_told_of_changes() {
    for policy in [Policy::PerRequest, Policy::ToldIfPossible, Policy::Told] {
        let site = Site::new(policy, Limits::default());
        let names: Vec<String> = (0..50).map(|number| format!("d/{number}")).collect();
        names.iter().for_each(|name| site.write(name, name));
        let kept = |is_large| {
            site.files.begin_round(is_large);
            let look = |name: &String| site.files.look_up(bytes(&site.path(name))).found.is_kept();
            let kept = names.iter().filter(|name| look(name)).count();
            site.files.end_round();
            kept
        };
        let large = if policy == Policy::Told { 50 } else { 0 };
        assert_eq!(kept(true), large, "{policy:?}");
        assert_eq!(site.files.counts().0, large);
        assert_eq!(kept(false), 50);
        assert_eq!(names.iter().map(|name| site.serve(name)).collect::<Vec<_>>(), names);
    }
}

#[test]
fn a_large_round_finds_what_is_in_the_folder_and_the_next_what_took_its_place() {
    each_policy(|site| {
        let kind = |name: &str| site.files.look_up(bytes(&site.path(name))).found.kind();
        site.write("d/file", "1");
        site.write("d/inner/index", "2");
        site.files.begin_round(true);
        assert_eq!(kind("d/file"), Kind::File);
        site.write("d/new", "3");
        std::os::unix::fs::symlink("file", site.path("d/link")).unwrap();
        let names = ["d/new", "d/link", "d/inner", "d/inner/index", "d/nothing", "dd"];
        let kinds = [Kind::File, Kind::File, Kind::Directory, Kind::File, Kind::Absent];
        assert_eq!(names.map(kind), [&kinds[..], &[Kind::Absent]].concat()[..]);
        site.files.end_round();
        fs::rename(site.path("d"), site.path("old")).unwrap();
        site.write("d/other", "4");
        site.files.begin_round(true);
        assert_eq!(["d/other", "d/file", "old/file"].map(kind), {
            [Kind::File, Kind::Absent, Kind::File]
        });
        site.files.end_round();
    });
}

#[test]
fn one_change_leaves_the_rest_alone() {
    let site = Site::new(Policy::Told, Limits::default());
    site.write("page", "text");
    site.write("uploads/a", "a");
    let page = site.files.look_up(bytes(&site.path("page"))).found;
    let upload = site.files.look_up(bytes(&site.path("uploads/a"))).found;
    for round in 0..50 {
        site.write("uploads/log", &round.to_string());
        site.write(&format!("uploads/{round}"), "new");
        assert!(site.files.holds(&page) && site.files.holds(&upload));
    }
    site.write("uploads/a", "b");
    assert!(site.files.holds(&page) && !site.files.holds(&upload));
}

#[test]
fn everything_is_looked_at_again_after_a_second() {
    let site = Site::new(Policy::Told, Limits::default());
    site.write("d/page", "text");
    let page = site.files.look_up(bytes(&site.path("d/page"))).found;
    NOW_MS.set(999);
    assert!(page.is_fresh(NOW_MS.get(), 0));
    NOW_MS.set(1001);
    assert!(!page.is_fresh(NOW_MS.get(), 0));
    assert!(site.files.holds(&page));
    assert!(page.is_fresh(NOW_MS.get(), 0));
}

#[test]
fn a_file_is_looked_at_once_a_second_whenever_its_folders_were() {
    let site = Site::new(Policy::Told, Limits::default());
    let [first, second] = ["d/page", "e/page"].map(|name| {
        site.write(name, "text");
        move |site: &Site| site.files.look_up(bytes(&site.path(name))).found
    });
    let first = first(&site);
    NOW_MS.set(600);
    let second = second(&site);
    NOW_MS.set(1100);
    assert!(site.files.holds(&first));
    NOW_MS.set(1650);
    assert!(site.files.holds(&second));
    NOW_MS.set(2150);
    assert!(second.is_fresh(NOW_MS.get(), 0) && !first.is_fresh(NOW_MS.get() - 40, 0));
}

#[test]
fn a_folder_with_access_files_is_looked_at_once_a_second() {
    let site = Site::new(Policy::Told, Limits::default());
    site.write("d/page", "text");
    assert_eq!(site.access("d"), None);
    let page = site.files.look_up(bytes(&site.path("d/page"))).found;
    // Simulates a file system mounted over it, which is not reported.
    NOW_MS.set(500);
    let folder = Rc::clone(page.folder());
    folder.access.borrow_mut().iter_mut().for_each(|access| access.own = Err(13));
    assert!(site.files.holds(&page));
    NOW_MS.set(1001);
    assert!(!site.files.holds(&page) && !folder.valid.get());
}

#[test]
fn folders_make_room_one_at_a_time() {
    let limits = Limits { folders: 20, ..Limits::default() };
    for policy in [Policy::Told, Policy::PerRequest] {
        let site = Site::new(policy, limits);
        site.write("often/page", "text");
        let page = site.files.look_up(bytes(&site.path("often/page"))).found;
        for round in 0..100 {
            NOW_MS.set(NOW_MS.get() + 400);
            site.write(&format!("{round}/page"), "text");
            assert_eq!(site.serve(&format!("{round}/page")), "text");
            assert!(site.files.holds(&page), "{round}");
            let (_, folders, watches) = site.files.counts();
            assert!(folders <= 20 && watches <= 20, "{folders}");
        }
    }
}

#[test]
fn the_attributes_of_a_path_are_the_current_ones() {
    each_policy(|site| {
        let stat = |name: &str| site.files.stat(bytes(&site.path(name)));
        let real = |name: &str| fs::metadata(site.path(name)).unwrap().ino();
        site.write("users", "1");
        symlink("users", site.path("link")).unwrap();
        assert_eq!(stat("users").unwrap().inode, real("users"));
        for length in 2..20 {
            let text = "1".repeat(length);
            site.write("users", &text);
            let sizes = ["users", "link"].map(|name| stat(name).unwrap().size);
            assert_eq!(sizes, [length as u64; 2]);
        }
        site.write("other", "1");
        fs::rename(site.path("other"), site.path("users")).unwrap();
        assert_eq!(stat("users").unwrap().inode, real("users"));
        assert_eq!(stat("link"), stat("users"));
        fs::remove_file(site.path("users")).unwrap();
        assert_eq!((stat("users"), stat("link"), stat("users/x")), (None, None, None));
    });
}

#[test]
fn a_file_that_is_being_written_is_not_kept() {
    let site = Site::new(Policy::Told, Limits::default());
    site.write("page", "text");
    let writer = fs::OpenOptions::new().append(true).open(site.path("page")).unwrap();
    assert_eq!(site.serve("page"), "text");
    assert_eq!(site.files.held(), (0, 0));
    drop(writer);
    // A test that starts a process at the same time may hold the descriptor for a moment.
    while site.files.held() == (0, 0) {
        assert_eq!(site.serve("page"), "text");
    }
    assert_eq!(site.files.held(), (4, 0));
}

#[test]
fn everything_is_bounded() {
    let limits = Limits {
        entries: 10,
        absent: 5,
        folders: 50,
        access_bytes: 1000,
        file_bytes: 100,
        total_bytes: 300,
        descriptors: 2,
    };
    for policy in [Policy::Told, Policy::PerRequest] {
        let site = Site::new(policy, limits);
        for round in 0..40 {
            site.write(&format!("d{round}/small"), &"s".repeat(60));
            site.write(&format!("d{round}/large"), &"l".repeat(200));
        }
        let mut held = (0, 0);
        for round in 0..200 {
            let folder = round % 40;
            assert_eq!(site.serve(&format!("d{folder}/small")).len(), 60);
            assert_eq!(site.serve(&format!("d{folder}/large")).len(), 200);
            assert_eq!(site.serve(&format!("d{folder}/none{round}")), "Absent");
            let (bytes, descriptors) = site.files.held();
            held = (held.0.max(bytes), held.1.max(descriptors));
            let (entries, folders, watches) = site.files.counts();
            assert!(entries <= 15 && folders <= 50 && watches <= 50, "{entries} {folders}");
        }
        assert!(held.0 <= 300 && held.1 <= 2);
        if policy == Policy::Told {
            assert!(held.0 >= 240 && held.1 == 2, "{held:?}");
        }
        site.files.clear();
        assert_eq!((site.files.held(), site.files.counts()), ((0, 0), (0, 0, 0)));
    }
}

#[test]
fn texts_of_access_files_are_bounded_by_their_bytes() {
    for policy in [Policy::Told, Policy::PerRequest] {
        let site = Site::new(policy, Limits { access_bytes: 10_000, ..Limits::default() });
        for round in 0..30 {
            let (folder, text) = (format!("d{}", round % 6), format!("{round:03000}"));
            site.write(&format!("{folder}/.htaccess"), &text);
            assert_eq!(site.access(&folder).unwrap().1, text);
            assert!(site.files.access_bytes() <= 10_000);
        }
        assert!(site.files.access_bytes() > 6000, "three of them fit");
        site.files.clear();
        assert_eq!(site.files.access_bytes(), 0);
    }
}

#[test]
fn an_access_file_whose_text_was_let_go_is_read_again_and_its_changes_are_told() {
    for is_link in [false, true] {
        let site = Site::new(Policy::Told, Limits { access_bytes: 10_000, ..Limits::default() });
        let name = if is_link { "target" } else { ".htaccess" };
        site.write(&format!("long/{name}"), &"l".repeat(4000));
        if is_link {
            symlink("target", site.path("long/.htaccess")).unwrap();
        }
        site.write("long/page", "text");
        for other in 0..3 {
            site.write(&format!("d{other}/.htaccess"), &"d".repeat(2000));
        }
        let page = || site.files.look_up(bytes(&site.path("long/page"))).found;
        let first = page();
        let (serial, _) = site.access("long").unwrap();
        assert!(site.files.holds(&first));
        let push_out = || {
            let others = ["d0", "d1", "d2"];
            assert!(others.iter().all(|other| site.access(other).is_some()));
        };
        push_out();
        assert!(site.files.holds(&first), "nothing has changed");
        let (again, text) = site.access("long").unwrap();
        assert!(again > serial && text.len() == 4000);
        let second = page();
        assert_eq!(site.access("long").unwrap(), (again, text));
        push_out();
        assert!(site.files.holds(&second));
        site.write(&format!("long/{name}"), "new");
        assert!(!site.files.holds(&second));
        assert_eq!(site.access("long").unwrap().1, "new");
    }
}

#[test]
fn an_access_file_that_is_edited_counts_once() {
    let site = Site::new(Policy::Told, Limits::default());
    for round in 0..20 {
        site.write("d/.htaccess", &format!("{round:04}"));
        assert_eq!(site.access("d").unwrap().1, format!("{round:04}"));
        assert_eq!(site.files.access_bytes(), 260);
    }
}

#[test]
fn an_entry_that_was_pushed_out_no_longer_counts_as_current() {
    let site = Site::new(Policy::Told, Limits { entries: 1, ..Limits::default() });
    site.write("a", "a");
    site.write("b", "b");
    let first = site.files.look_up(bytes(&site.path("a"))).found;
    assert!(site.files.holds(&first));
    assert_eq!(site.serve("b"), "b");
    assert!(!site.files.holds(&first));
}

#[test]
fn an_entry_that_is_asked_whether_it_holds_counts_as_used() {
    let site = Site::new(Policy::Told, Limits { entries: 4, ..Limits::default() });
    site.write("often", "text");
    let often = site.files.look_up(bytes(&site.path("often"))).found;
    for round in 0..50 {
        assert!(site.files.holds(&often), "{round}");
        site.write(&format!("{round}"), "text");
        assert_eq!(site.serve(&format!("{round}")), "text");
    }
}

#[test]
fn an_entry_whose_folder_becomes_void_does_not_hold_and_those_beside_do() {
    let site = Site::new(Policy::Told, Limits::default());
    let [first, second] = ["d/page", "e/page"].map(|name| {
        site.write(name, "text");
        site.files.look_up(bytes(&site.path(name))).found
    });
    for round in 0..3 {
        assert!(site.files.holds(&first) && site.files.holds(&second));
        // Another folder, of which nothing was looked up yet.
        site.write(&format!("f{round}/page"), "text");
        assert_eq!(site.serve(&format!("f{round}/page")), "text");
        fs::remove_dir_all(site.path(&format!("f{round}"))).unwrap();
    }
    fs::rename(site.path("d"), site.path("old")).unwrap();
    assert!(!site.files.holds(&first) && site.files.holds(&second));
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A test that waited for a pipe would never end, because nothing writes to it.
#[test]
fn pipes_are_found_and_never_opened() {
    let site = Site::new(Policy::Told, Limits::default());
    let path = site.path("pipe");
    make_pipe(&path);
    assert_eq!(site.serve("pipe"), "Other");
    let found = site.files.look_up(bytes(&path)).found;
    // Reading an opened pipe fails with ESPIPE.
    let error = site.files.contents(&found).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_pipe_in_the_place_of_a_file_that_was_looked_up_is_no_file() {
    for policy in [Policy::Told, Policy::PerRequest] {
        let site = Site::new(policy, Limits::default());
        site.write("page", "");
        let path = site.path("page");
        let found = site.files.look_up(bytes(&path)).found;
        fs::remove_file(&path).unwrap();
        make_pipe(&path);
        let error = site.files.contents(&found).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
}

/// An access file without rules would admit every client.
#[test]
fn a_pipe_in_the_place_of_an_access_file_is_an_error() {
    let site = Site::new(Policy::Told, Limits::default());
    site.write("d/page", "text");
    make_pipe(&site.path("d/.htaccess"));
    let folder = Rc::clone(site.files.look_up(bytes(&site.path("d"))).found.folder());
    let error = site.files.access_file(&folder, b".htaccess").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_share_has_room_for_access_files_however_many_share() {
    let all = Limits::default();
    assert_eq!(all.shared_by(2).access_bytes, all.access_bytes / 2);
    let least = crate::files::LEAST_ACCESS_BYTES;
    assert!(least > all.access_bytes / 64);
    let share = all.shared_by(64);
    assert_eq!((share.access_bytes, share.entries), (least, all.entries / 64));
    let least = all.shared_by(usize::MAX);
    assert_eq!((least.entries, least.absent, least.folders, least.descriptors), (1, 1, 1, 1));
}

#[test]
fn an_access_file_of_some_mebibytes_is_read() {
    let limits = Limits { access_bytes: 1 << 20, ..Limits::default() };
    let site = Site::new(Policy::Told, limits);
    site.write("d/page", "text");
    let folder = Rc::clone(site.files.look_up(bytes(&site.path("d"))).found.folder());
    let largest = 16 << 20;
    site.write("d/.htaccess", &"#".repeat(largest));
    let file = site.files.access_file(&folder, b".htaccess").unwrap().unwrap();
    assert_eq!(file.text.len(), largest);
    site.write("d/.other", &"#".repeat(largest + 1));
    let error = site.files.access_file(&folder, b".other").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
}
