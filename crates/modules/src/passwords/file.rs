//! Parses the files of users (AuthUserFile) and of groups (AuthGroupFile), whose lines have fields
//! separated by colons. Lines are split and joined as in ap_cfg_getline. Each malformed line yields
//! a complaint with its number.

use super::{Scheme, is_affordable};
use evenkeel_config::words;
use evenkeel_message::quoted;
use std::collections::{HashMap, HashSet};

/// The longest line of a password file, in bytes (MAX_STRING_LEN - 1). Apache stops reading the
/// file at a longer line.
const LINE: usize = 8191;

/// The longest line of a group file, in bytes (VARBUF_MAX_LEN).
const GROUP_LINE: usize = (16 << 20) - 1;

/// The most complaints that are kept for one file.
const COMPLAINTS: usize = 20;

/// A line of a password file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The stored hash: the second field of the line, or the third in an entry of htdigest.
    pub hash: Box<[u8]>,
    /// The line number of the entry.
    pub line: u32,
}

/// The users of a file.
#[derive(Debug, Default)]
pub struct PasswordFile {
    users: HashMap<Box<[u8]>, Entry>,
    /// The entries of htdigest. The key is the user name, a NUL and the realm.
    realms: HashMap<Box<[u8]>, Entry>,
    first: Option<Box<[u8]>>,
    /// The malformed or unusable lines, each with its number and the fault.
    pub complaints: Vec<String>,
}

impl PasswordFile {
    /// Parses the text of a password file. If a user has several lines, the first one counts.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut file = Self::default();
        for (number, line) in Lines::new(text, LINE) {
            let Some(line) = line else {
                file.complain(number, "the line is too long; what follows is not read");
                break;
            };
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            file.add(number, &line);
        }
        file
    }

    fn add(&mut self, line: u32, text: &[u8]) {
        let mut fields = text.split(|byte| *byte == b':');
        let mut next = || fields.next().unwrap_or_default();
        let (user, second, third) = (next(), next(), next());
        if text.contains(&0) {
            self.complain(line, "the line contains a NUL");
            return;
        }
        if !third.is_empty() {
            let key = realm_key(user, second);
            let entry = Entry { hash: third.into(), line };
            self.realms.entry(key).or_insert(entry);
        } else if second.is_empty() {
            self.complain(line, "there is no password behind the name of the user");
        } else if Scheme::of(second).is_none() {
            let text = format!(
                "the password of {} is hashed with an unknown scheme or not at all: nobody can \
                 log in with it",
                quoted(user)
            );
            self.complain(line, &text);
        } else if !is_affordable(second) {
            let text = format!(
                "the password of {} has too high a cost: nobody can log in with it",
                quoted(user)
            );
            self.complain(line, &text);
        } else if self.first.is_none() {
            self.first = Some(second.into());
        }
        self.users.entry(user.into()).or_insert(Entry { hash: second.into(), line });
    }

    fn complain(&mut self, line: u32, text: &str) {
        if self.complaints.len() < COMPLAINTS {
            self.complaints.push(format!("line {line}: {text}"));
        }
    }

    /// The entry of a user.
    #[must_use]
    pub fn user(&self, name: &[u8]) -> Option<&Entry> {
        self.users.get(name)
    }

    /// The entry that htdigest wrote for a user in a realm.
    #[must_use]
    pub fn user_of_realm(&self, name: &[u8], realm: &[u8]) -> Option<&Entry> {
        self.realms.get(&realm_key(name, realm))
    }

    /// The first hash in the file that has a known scheme and an affordable cost. It is hashed for
    /// unknown users, so that they take as long as known ones.
    #[must_use]
    pub fn first_hash(&self) -> Option<&[u8]> {
        self.first.as_deref()
    }
}

fn realm_key(user: &[u8], realm: &[u8]) -> Box<[u8]> {
    [user, b"\0", realm].concat().into()
}

/// A group of a file.
#[derive(Debug)]
struct Group {
    members: HashSet<Box<[u8]>>,
    /// The number of its first line.
    line: u32,
}

/// The groups of a file.
#[derive(Debug, Default)]
pub struct GroupFile {
    groups: HashMap<Box<[u8]>, Group>,
    members: HashSet<Box<[u8]>>,
    /// The malformed lines, each with its number and the fault.
    pub complaints: Vec<String>,
}

impl GroupFile {
    /// Parses the text of a group file. If a group has several lines, it has the members of all.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut file = Self::default();
        for (number, line) in Lines::new(text, GROUP_LINE) {
            let Some(line) = line else {
                file.complaints.push(format!("line {number}: the line is too long"));
                break;
            };
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let mut fields = line.splitn(2, |byte| *byte == b':');
            let name = fields.next().unwrap_or_default().trim_ascii_end();
            let Some(members) = fields.next().filter(|_| !line.contains(&0)) else {
                if file.complaints.len() < COMPLAINTS {
                    let text = "the line is no name of a group, a colon and its members";
                    file.complaints.push(format!("line {number}: {text}"));
                }
                continue;
            };
            // The names of groups are case-insensitive (apr_table_get).
            let group = file
                .groups
                .entry(name.to_ascii_lowercase().into())
                .or_insert_with(|| Group { members: HashSet::new(), line: number });
            for member in words(&quoted(members)) {
                let member: Box<[u8]> = evenkeel_message::unquoted(&member).into();
                file.members.insert(member.clone());
                group.members.insert(member);
            }
        }
        file
    }

    /// Whether the user is a member of any group.
    #[must_use]
    pub fn knows(&self, user: &[u8]) -> bool {
        self.members.contains(user)
    }

    /// Whether the user is a member of the group.
    #[must_use]
    pub fn is_member(&self, user: &[u8], group: &[u8]) -> bool {
        let group = self.groups.get(group.to_ascii_lowercase().as_slice());
        group.is_some_and(|group| group.members.contains(user))
    }

    /// The number of the first line of a group.
    #[must_use]
    pub fn line(&self, group: &[u8]) -> Option<u32> {
        self.groups.get(group.to_ascii_lowercase().as_slice()).map(|group| group.line)
    }
}

/// The lines of a text, trimmed of white space, each with its number. A line that ends with a
/// backslash is joined with the next one, and the number is that of the last line joined. The item
/// of a line that is too long is `None`.
struct Lines<'a> {
    rest: Option<&'a [u8]>,
    number: u32,
    longest: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a [u8], longest: usize) -> Self {
        Self { rest: Some(text), number: 0, longest }
    }
}

impl Iterator for Lines<'_> {
    type Item = (u32, Option<Vec<u8>>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        loop {
            let rest = self.rest.filter(|rest| !rest.is_empty());
            let Some(rest) = rest else {
                return (!line.is_empty()).then_some((self.number, Some(line)));
            };
            self.number += 1;
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (text, behind) = match end {
                Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end + 1..)),
                None => (rest, None),
            };
            self.rest = behind;
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let continued = text.strip_suffix(b"\\").filter(|_| end.is_some());
            line.extend_from_slice(continued.unwrap_or(text));
            if line.len() > self.longest {
                return Some((self.number, None));
            }
            if continued.is_none() {
                return Some((self.number, Some(line.trim_ascii().to_vec())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_first_line() {
        let text =
            b"# a comment\n\n  ann:{SHA}a:more \r\nann:{SHA}b\nbob:{SHA}c\\\nd\n:{SHA}e\nlast";
        let file = PasswordFile::parse(text);
        let hash = |user: &str| file.user(user.as_bytes()).map(|entry| entry.hash.to_vec());
        assert_eq!(hash("ann"), Some(b"{SHA}a".to_vec()));
        assert_eq!(hash("bob"), Some(b"{SHA}cd".to_vec()));
        assert_eq!(hash(""), Some(b"{SHA}e".to_vec()));
        assert_eq!(hash("# a comment"), None);
        assert_eq!(file.user(b"bob").unwrap().line, 6);
        assert_eq!(file.user_of_realm(b"ann", b"{SHA}a").unwrap().hash[..], *b"more");
        assert_eq!(file.user_of_realm(b"bob", b""), None);
        assert_eq!(file.first_hash(), Some(&b"{SHA}b"[..]));
        assert_eq!(file.complaints, ["line 8: there is no password behind the name of the user"]);
    }

    #[test]
    fn what_cannot_be_a_password_is_told_with_its_line() {
        let file = PasswordFile::parse(b"ann:secret\nbob:$2y$31$x\nc\0d:{SHA}x\n");
        assert_eq!(file.complaints.len(), 3);
        assert!(file.complaints[0].starts_with("line 1: the password of ann is hashed with an"));
        assert!(file.complaints[1].starts_with("line 2: the password of bob has too high a cost"));
        assert_eq!((file.user(b"c"), file.first_hash()), (None, None));
        let long = [b"a:{SHA}x\n".to_vec(), vec![b'x'; LINE + 1], b"\nb:{SHA}y\n".to_vec()];
        let file = PasswordFile::parse(&long.concat());
        assert!(file.user(b"a").is_some() && file.user(b"b").is_none());
    }

    #[test]
    fn groups_have_members_of_all_their_lines() {
        let text = b"Staff : ann \"b c\"\nstaff: dan\nnone\nother:\\\n eve\n# x: y\n";
        let file = GroupFile::parse(text);
        for (user, group, is) in [
            ("ann", "staff", true),
            ("b c", "STAFF", true),
            ("dan", "Staff", true),
            ("eve", "other", true),
            ("eve", "staff", false),
            ("ann", "none", false),
            ("y", "# x", false),
        ] {
            assert_eq!(file.is_member(user.as_bytes(), group.as_bytes()), is, "{user} {group}");
        }
        assert!(file.knows(b"eve") && !file.knows(b"y"));
        let lines = ["STAFF", "other", "none"].map(|name| file.line(name.as_bytes()));
        assert_eq!(lines, [Some(1), Some(5), None]);
        assert_eq!(file.complaints.len(), 1);
    }
}
