//! RewriteMap: tables in text files, and internal functions. A changed file is read again.

use super::uri::unescape;
use evenkeel_sys::spawn::Order;
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The size of Apache's line buffer in bytes: the rest of a longer line is parsed as a line of its
/// own (`REWRITE_MAX_TXT_MAP_LINE`).
const LINE: usize = 1024;

/// A map.
#[derive(Debug)]
pub(super) enum Map {
    /// `int:`
    Function(Function),
    /// `txt:`, or `rnd:` if `is_choice` is set.
    File { table: Box<TextFile>, is_choice: bool },
    /// `prg:`
    Program(ProgramMap),
}

/// A program that answers with a value for each key.
#[derive(Clone, Debug)]
pub struct ProgramMap {
    /// The program and its arguments.
    pub(super) arguments: Vec<Vec<u8>>,
}

impl ProgramMap {
    /// The order to ask the program for the value of a key. The program has the environment of the
    /// server.
    #[must_use]
    pub fn order(&self, key: &[u8], patience: Duration) -> Order {
        let variables = std::env::vars_os();
        Order {
            program: self.arguments.first().cloned().unwrap_or_default(),
            arguments: self.arguments.clone(),
            variables: variables.map(|(name, it)| (name.into_vec(), it.into_vec())).collect(),
            folder: b"/".to_vec(),
            limits: [None; 3],
            question: Some((key.to_vec(), u32::try_from(patience.as_millis()).unwrap_or(u32::MAX))),
            service: None,
        }
    }

    /// The path of the program.
    #[must_use]
    pub fn program(&self) -> &[u8] {
        self.arguments.first().map_or(&[], Vec::as_slice)
    }
}

/// An internal function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    ToUpper,
    ToLower,
    Escape,
    Unescape,
}

impl Function {
    /// The function with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "toupper" => Function::ToUpper,
            "tolower" => Function::ToLower,
            "escape" => Function::Escape,
            "unescape" => Function::Unescape,
            _ => return None,
        })
    }

    /// Applies the function to a key.
    pub(super) fn of(self, key: &[u8]) -> Vec<u8> {
        match self {
            Function::ToUpper => key.to_ascii_uppercase(),
            Function::ToLower => key.to_ascii_lowercase(),
            Function::Escape => {
                let mut escaped = Vec::with_capacity(key.len());
                evenkeel_proto::escape_uri(&mut escaped, key);
                escaped
            }
            Function::Unescape => unescape(key),
        }
    }
}

/// A text file with a key and a value in each line.
#[derive(Debug)]
pub(super) struct TextFile {
    path: Box<Path>,
    read: Mutex<Option<Table>>,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The value of the key; `None` if the table does not contain it.
    pub value: Option<Vec<u8>>,
    /// Whether the key was already looked up since the file was read. Apache has such keys in its
    /// cache, and logs them differently.
    pub is_known: bool,
}

/// The reason why a lookup failed.
#[derive(Debug)]
pub(super) enum TableFault {
    /// The file does not exist or is not accessible.
    Access(io::Error),
    /// The file cannot be read.
    Open(io::Error),
}

/// Values by key, and whether the key was already looked up.
type Values = HashMap<Box<[u8]>, (Box<[u8]>, bool)>;

/// The contents of a file.
#[derive(Debug)]
struct Table {
    version: Version,
    values: Values,
    /// Keys without a value that were already looked up, for the log.
    absent: HashSet<Box<[u8]>>,
}

/// The maximum number of keys without a value that are remembered. Clients choose the keys.
const ABSENT: usize = 1000;

/// The metadata that reveals a changed file.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    changed: (i64, i64),
    file: (u64, u64),
    bytes: u64,
}

impl Version {
    fn of(facts: &Metadata) -> Self {
        Self {
            changed: (facts.mtime(), facts.mtime_nsec()),
            file: (facts.dev(), facts.ino()),
            bytes: facts.len(),
        }
    }
}

impl TextFile {
    /// Creates a table that reads `path` at the first lookup.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.into(), read: Mutex::default() }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks a key up. Reads the file first if it has changed.
    ///
    /// # Errors
    /// The file does not exist or cannot be read.
    pub(super) fn look_up(&self, key: &[u8]) -> Result<Found, TableFault> {
        let facts = std::fs::metadata(&self.path).map_err(TableFault::Access)?;
        let version = Version::of(&facts);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let table = match &mut *read {
            Some(table) if table.version == version => table,
            outdated => {
                let text = std::fs::read(&self.path).map_err(TableFault::Open)?;
                let absent = HashSet::new();
                outdated.insert(Table { version, values: values(&text), absent })
            }
        };
        Ok(match table.values.get_mut(key) {
            Some((value, is_known)) => {
                Found { value: Some(value.to_vec()), is_known: std::mem::replace(is_known, true) }
            }
            None => {
                let is_known = table.absent.contains(key);
                if !is_known && table.absent.len() < ABSENT {
                    table.absent.insert(key.into());
                }
                Found { value: None, is_known }
            }
        })
    }
}

/// Parses the lines of a table. The first value of a key is kept (mod_rewrite.c:
/// lookup_map_txtfile).
fn values(text: &[u8]) -> Values {
    let mut values = HashMap::new();
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let lines = text.split_inclusive(|byte| *byte == b'\n').flat_map(|line| line.chunks(LINE));
    for line in lines {
        if line.first().is_none_or(|first| *first == b'#' || is_space(first)) {
            continue;
        }
        let mut words = line.split(is_space).filter(|word| !word.is_empty());
        if let (Some(key), Some(value)) = (words.next(), words.next()) {
            values.entry(key.into()).or_insert_with(|| (value.into(), false));
        }
    }
    values
}

/// Returns a random one of the parts of a value, which `|` separates.
pub(super) fn choose(value: &[u8]) -> &[u8] {
    let parts = value.split(|byte| *byte == b'|').count();
    let random = RandomState::new().build_hasher().finish();
    let number = usize::try_from(random % parts as u64).unwrap_or_default();
    value.split(|byte| *byte == b'|').nth(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_apache_does() {
        let long = format!("long {}second value\n", "x".repeat(LINE - 5));
        let text = format!("# no\n no\na 1 more\nb\na 2\n\nc\t 3\n{long}last 4");
        let values = values(text.as_bytes());
        let value = |key: &str| {
            let value = values.get(key.as_bytes()).map(|(value, _)| value.to_vec());
            value.map(|value| String::from_utf8(value).unwrap())
        };
        assert_eq!(value("a").as_deref(), Some("1"));
        assert_eq!(value("c").as_deref(), Some("3"));
        assert_eq!(value("last").as_deref(), Some("4"));
        assert_eq!(value("second").as_deref(), Some("value"));
        for none in ["no", "#", "b", ""] {
            assert_eq!(value(none), None, "{none}");
        }
    }

    #[test]
    fn a_file_that_changes_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.txt");
        let table = TextFile::new(&path);
        assert!(matches!(table.look_up(b"a"), Err(TableFault::Access(_))));
        std::fs::write(&path, "a 1\n").unwrap();
        let found = |value: &str, is_known| Found { value: Some(value.into()), is_known };
        assert_eq!(table.look_up(b"a").unwrap(), found("1", false));
        assert_eq!(table.look_up(b"a").unwrap(), found("1", true));
        assert_eq!(table.look_up(b"b").unwrap(), Found { value: None, is_known: false });
        assert_eq!(table.look_up(b"b").unwrap(), Found { value: None, is_known: true });
        std::fs::write(&path, "a 1234\n").unwrap();
        assert_eq!(table.look_up(b"a").unwrap(), found("1234", false));
    }

    #[test]
    fn functions_and_choices() {
        assert_eq!(Function::named("toupper").unwrap().of(b"aB/"), b"AB/");
        assert_eq!(Function::named("tolower").unwrap().of(b"aB/"), b"ab/");
        assert_eq!(Function::named("escape").unwrap().of(b"a b?"), b"a%20b%3f");
        assert_eq!(Function::named("unescape").unwrap().of(b"a%20b"), b"a b");
        assert_eq!(Function::named("ToUpper"), None);
        let chosen: HashSet<&[u8]> = (0..200).map(|_| choose(b"a|b||c")).collect();
        assert_eq!(chosen, HashSet::from([&b"a"[..], b"b", b"", b"c"]));
        assert_eq!(choose(b"alone"), b"alone");
    }
}
