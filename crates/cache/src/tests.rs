//! The store: what is written is found, and what is damaged, cut or removed is not.

use crate::entry::tests::entry;
use crate::{Draft, Entry, Key, Opened, Place, Shelf, Writer, remove, selecting_values};
use bytes::Bytes;
use evenkeel_message::{Fields, Piece};
use evenkeel_sys::blocking_pool::BlockingPool;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Fixture {
    folder: tempfile::TempDir,
    pool: Arc<BlockingPool>,
    shelf: Shelf,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, pool: Arc::new(BlockingPool::new(1)), shelf: Shelf::default() }
    }

    fn place(&self) -> Place {
        Place { root: self.folder.path().join("cache"), levels: 2, length: 1 }
    }

    fn draft(&self, url: &str) -> Draft {
        let entry = Entry { selecting: Vec::new(), ..entry(url) };
        let (names, length) = (Vec::new(), None);
        Draft { place: self.place(), entry, names, length, least: 1, most: 1 << 30, lock: None }
    }

    /// Waits until the pool has done all that it was given.
    fn settle(&self) {
        let done = self.pool.spawn(|| ());
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(done);
    }

    fn store(&self, draft: Draft, pieces: &[&[u8]]) {
        let mut writer = Writer::new(draft, &self.pool).unwrap();
        pieces.iter().for_each(|piece| writer.add(Piece::Bytes(Bytes::copy_from_slice(piece))));
        writer.finish();
        self.settle();
    }

    fn find(&self, url: &str, request: &[(&str, &str)]) -> Option<Rc<Opened>> {
        let mut fields = Fields::new();
        request.iter().for_each(|(name, value)| fields.add(*name, value));
        self.shelf.find(&self.place(), &key(url), &fields)
    }

    fn files(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
            let Ok(entries) = fs::read_dir(folder) else { return };
            for path in entries.map(|entry| entry.unwrap().path()) {
                if path.is_dir() { walk(&path, files) } else { files.push(path) }
            }
        }
        let mut files = Vec::new();
        walk(self.folder.path(), &mut files);
        files
    }
}

fn key(url: &str) -> Key {
    entry(url).key
}

fn body(opened: Option<Rc<Opened>>) -> Vec<u8> {
    match &opened.expect("a hit").body {
        Piece::Bytes(bytes) => bytes.to_vec(),
        Piece::File { .. } => panic!("in a file"),
    }
}

#[test]
fn what_is_stored_is_found_until_it_is_replaced_or_removed() {
    let cache = Fixture::new();
    assert!(cache.find("http://a:80/?", &[]).is_none());
    cache.store(cache.draft("http://a:80/?"), &[b"one ", b"body"]);
    assert_eq!(body(cache.find("http://a:80/?", &[])), b"one body");
    assert!(cache.find("http://a:80/b?", &[]).is_none());
    cache.store(cache.draft("http://a:80/?"), &[b"two"]);
    assert_eq!(body(cache.find("http://a:80/?", &[])), b"two");
    assert_eq!(cache.files().len(), 1, "nothing is left of the file before");
    remove(&cache.place(), key("http://a:80/?").text()).unwrap();
    assert!(cache.find("http://a:80/?", &[]).is_none());
}

#[test]
fn long_bodies_stay_in_their_files() {
    let cache = Fixture::new();
    let long = vec![b'x'; 70 << 10];
    cache.store(cache.draft("http://a:80/?"), &[&long]);
    let opened = cache.find("http://a:80/?", &[]).unwrap();
    let Piece::File { length, .. } = opened.body else { panic!("in memory") };
    assert_eq!(length, 70 << 10);
    // A body is stored again from its file, as after a 304.
    let mut writer = Writer::new(cache.draft("http://a:80/b?"), &cache.pool).unwrap();
    writer.add(opened.body.clone());
    writer.finish();
    cache.settle();
    assert_eq!(cache.find("http://a:80/b?", &[]).unwrap().body.len(), 70 << 10);
}

#[test]
fn responses_that_differ_by_fields_are_found_by_them() {
    let cache = Fixture::new();
    let names: Vec<Box<str>> = vec!["accept".into()];
    let store = |accept: &str, text: &[u8]| {
        let mut fields = Fields::new();
        fields.add("Accept", accept);
        let selecting = selecting_values(&names, &fields);
        let draft = cache.draft("http://a:80/?");
        let entry = Entry { selecting, ..draft.entry };
        cache.store(Draft { entry, names: names.clone(), ..draft }, &[text]);
    };
    store("a/b", b"first");
    store("c/d", b"second");
    assert_eq!(body(cache.find("http://a:80/?", &[("Accept", "a/b")])), b"first");
    assert_eq!(body(cache.find("http://a:80/?", &[("Accept", "c/d")])), b"second");
    assert!(cache.find("http://a:80/?", &[]).is_none());
    remove(&cache.place(), key("http://a:80/?").text()).unwrap();
    store("c/d", b"third");
    assert!(cache.find("http://a:80/?", &[("Accept", "a/b")]).is_none(), "removed with the index");
    assert_eq!(body(cache.find("http://a:80/?", &[("Accept", "c/d")])), b"third");
}

#[test]
fn what_is_not_whole_or_out_of_bounds_is_not_stored() {
    let cache = Fixture::new();
    let url = "http://a:80/?";
    let mut writer = Writer::new(cache.draft(url), &cache.pool).unwrap();
    writer.add(Piece::Bytes(Bytes::from_static(b"half")));
    drop(writer);
    cache.store(Draft { length: Some(5), ..cache.draft(url) }, &[b"four"]);
    cache.store(Draft { most: 3, ..cache.draft(url) }, &[b"four"]);
    cache.store(Draft { least: 5, ..cache.draft(url) }, &[b"four"]);
    assert!(Writer::new(Draft { length: Some(0), ..cache.draft(url) }, &cache.pool).is_none());
    assert!(cache.files().is_empty(), "{:?}", cache.files());
    cache.store(Draft { length: Some(4), ..cache.draft(url) }, &[b"four"]);
    assert_eq!(cache.files().len(), 1);
}

#[test]
fn a_body_that_waits_for_the_disk_is_dropped() {
    let cache = Fixture::new();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let blocked = cache.pool.spawn(move || receiver.recv());
    let mut writer = Writer::new(cache.draft("http://a:80/?"), &cache.pool).unwrap();
    for _ in 0..40 {
        writer.add(Piece::Bytes(Bytes::from(vec![0; 32 << 10])));
    }
    writer.finish();
    sender.send(()).unwrap();
    drop(blocked);
    cache.settle();
    assert!(cache.files().is_empty());
}

#[test]
fn a_damaged_or_foreign_file_is_a_miss() {
    let cache = Fixture::new();
    cache.store(cache.draft("http://a:80/?"), &[b"body"]);
    let path = cache.files().remove(0);
    let whole = fs::read(&path).unwrap();
    let (mut flipped, mut longer) = (whole.clone(), whole.clone());
    flipped[40] ^= 1;
    longer.push(b'x');
    for damaged in [&whole[..whole.len() - 1], &flipped, &longer, b"", b"EVKCACH\x02 other"] {
        fs::remove_file(&path).unwrap();
        fs::write(&path, damaged).unwrap();
        assert!(cache.find("http://a:80/?", &[]).is_none());
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, &whole).unwrap();
    assert!(cache.find("http://a:80/?", &[]).is_some());
    let other = cache.place().path_of(key("http://b:80/?").text());
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::copy(&path, other).unwrap();
    assert!(cache.find("http://b:80/?", &[]).is_none(), "the key of another URL");
}

#[test]
fn a_folder_that_cannot_be_written_to_is_reported_once() {
    let cache = Fixture::new();
    fs::write(cache.folder.path().join("cache"), "a file").unwrap();
    let before = Instant::now();
    cache.store(cache.draft("http://a:80/?"), &[b"body"]);
    cache.store(cache.draft("http://a:80/?"), &[b"body"]);
    let complaint = crate::take_complaint().unwrap();
    assert!(complaint.contains("CacheRoot") && complaint.contains("cannot be stored"));
    assert!(crate::take_complaint().is_none() || before.elapsed() > Duration::from_secs(60));
}

#[test]
fn the_shelf_closes_what_is_not_used_and_is_bounded() {
    let cache = Fixture::new();
    let url = |number: u32| format!("http://a:80/{number}?");
    for number in 0..300 {
        cache.store(cache.draft(&url(number)), &[b"body"]);
        assert!(cache.find(&url(number), &[]).is_some());
    }
    assert!(cache.find(&url(0), &[]).is_some(), "closed and opened again");
    (0..10).for_each(|_| cache.shelf.tick());
    assert!(cache.shelf.is_empty());
}
