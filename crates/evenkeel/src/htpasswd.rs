//! `evenkeel htpasswd`: edits files of users and verifies passwords, with the options of Apache's
//! htpasswd. It writes a new file and renames it to the old name, so that a reader never sees a
//! partial file.

use crate::terminal;
use evenkeel_modules::passwords::{PasswordFile, apr1, sha, to_base64, verify};
use evenkeel_sys::{crypt, random, secret};
use std::fs::{self, File};
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const USAGE: &str = "\
Usage: htpasswd [-cimB25dpsDv] [-C cost] [-r rounds] passwordfile username\n       \
htpasswd -b[cmB25dpsDv] [-C cost] [-r rounds] passwordfile username password\n       \
htpasswd -n[imB25dps] [-C cost] [-r rounds] username\n       \
htpasswd -nb[mB25dps] [-C cost] [-r rounds] username password\n\
 -c  Create a new file.               -n  Print the line and change no file.\n\
 -b  Take the password from the command line.\n\
 -i  Read the password from standard input, and do not ask for it twice.\n\
 -m  MD5 of Apache (default).         -B  bcrypt.    -2  SHA-256.    -5  SHA-512.\n\
 -C  The cost of bcrypt (5; 4 to 17). -r  The rounds of SHA-256 and SHA-512 (5000).\n\
 -d  crypt(3).  -s  SHA-1, without a salt.  -p  No hash at all (lets nobody in on Linux).\n\
 -D  Delete the user.                 -v  Verify the password.";

/// The exit statuses of Apache's htpasswd (passwd_common.h).
const FILE: i32 = 1;
const SYNTAX: i32 = 2;
const MISMATCH: i32 = 3;
const OVERFLOW: i32 = 5;
const BAD_USER: i32 = 6;

/// The exit status and the message of a failure.
type Fault = (i32, String);

/// The scheme for new hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Apr1,
    Bcrypt,
    Sha256,
    Sha512,
    Crypt,
    Plain,
    Sha,
}

/// The parsed command line.
struct Asked {
    creates: bool,
    prints: bool,
    deletes: bool,
    verifies: bool,
    from_arguments: bool,
    from_input: bool,
    scheme: Scheme,
    cost: u32,
    rounds: Option<u32>,
    file: PathBuf,
    user: String,
    password: Option<String>,
}

/// Runs htpasswd with these arguments. Returns the exit status.
pub fn run(words: &[String]) -> i32 {
    match parse(words).and_then(|asked| act(&asked)) {
        Ok(text) if asked_to_print(words) => {
            terminal::say(&text);
            0
        }
        Ok(text) => {
            terminal::complain(&text);
            0
        }
        Err((status, text)) => {
            terminal::complain(&text);
            status
        }
    }
}

fn asked_to_print(words: &[String]) -> bool {
    let options = words.iter().take_while(|word| word.starts_with('-') && *word != "--");
    options.into_iter().any(|word| !word.starts_with("--") && word.contains('n'))
}

fn parse(words: &[String]) -> Result<Asked, Fault> {
    let usage = || (SYNTAX, USAGE.to_owned());
    let mut asked = Asked {
        creates: false,
        prints: false,
        deletes: false,
        verifies: false,
        from_arguments: false,
        from_input: false,
        scheme: Scheme::Apr1,
        cost: 5,
        rounds: None,
        file: PathBuf::new(),
        user: String::new(),
        password: None,
    };
    let mut words = words.iter();
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|it| rest.is_empty() && !it.is_empty())
        else {
            rest.push(word.clone());
            continue;
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if matches!(letter, 'C' | 'r') {
                let attached: String = letters.by_ref().collect();
                let value =
                    if attached.is_empty() { words.next().cloned() } else { Some(attached) };
                let number: u32 = value.and_then(|it| it.parse().ok()).ok_or_else(usage)?;
                match letter {
                    'C' => asked.cost = number,
                    _ => asked.rounds = Some(number),
                }
            } else {
                asked.note(letter).ok_or_else(usage)?;
            }
        }
    }
    asked.check(rest)
}

impl Asked {
    /// Sets an option that has no value. Returns `None` if the option is unknown.
    fn note(&mut self, letter: char) -> Option<()> {
        match letter {
            'c' => self.creates = true,
            'n' => self.prints = true,
            'D' => self.deletes = true,
            'v' => self.verifies = true,
            'b' => self.from_arguments = true,
            'i' => self.from_input = true,
            'm' => self.scheme = Scheme::Apr1,
            'B' => self.scheme = Scheme::Bcrypt,
            '2' => self.scheme = Scheme::Sha256,
            '5' => self.scheme = Scheme::Sha512,
            'd' => self.scheme = Scheme::Crypt,
            'p' => self.scheme = Scheme::Plain,
            's' => self.scheme = Scheme::Sha,
            _ => return None,
        }
        Some(())
    }

    /// Checks the options, and takes the file, the user name and the password from the arguments
    /// after them.
    fn check(mut self, rest: Vec<String>) -> Result<Self, Fault> {
        let usage = || (SYNTAX, USAGE.to_owned());
        let excluding = [self.creates, self.prints, self.deletes, self.verifies];
        if excluding.iter().filter(|it| **it).count() > 1 || self.from_arguments && self.from_input
        {
            let text = "only one of -c -n -v -D may be specified, and only one of -b and -i";
            return Err((SYNTAX, format!("htpasswd: {text}")));
        }
        if !(4..=17).contains(&self.cost) {
            let text = "htpasswd: the cost of bcrypt must be between 4 and 17";
            return Err((SYNTAX, text.to_owned()));
        }
        if self.rounds.is_some_and(|rounds| !(1000..=999_999_999).contains(&rounds)) {
            let text = "htpasswd: the rounds must be between 1000 and 999999999";
            return Err((SYNTAX, text.to_owned()));
        }
        let mut rest = rest.into_iter();
        if !self.prints {
            self.file = rest.next().ok_or_else(usage)?.into();
        }
        self.user = rest.next().ok_or_else(usage)?;
        if self.from_arguments && !self.deletes {
            self.password = Some(rest.next().ok_or_else(usage)?);
        }
        if rest.next().is_some() {
            return Err(usage());
        }
        if self.user.len() > 255 {
            return Err((OVERFLOW, "htpasswd: username too long (> 255)".to_owned()));
        }
        if self.user.contains([':', '\n', '\r', '\0']) {
            let text = "htpasswd: username contains illegal character ':' or a line end";
            return Err((BAD_USER, text.to_owned()));
        }
        Ok(self)
    }

    /// Reads the password from the command line, standard input or the terminal.
    fn password(&self) -> Result<Vec<u8>, Fault> {
        let told =
            |error: io::Error| (FILE, format!("htpasswd: no password could be read: {error}"));
        let password = if let Some(password) = &self.password {
            password.clone().into_bytes()
        } else if self.from_input {
            let mut line = Vec::new();
            io::stdin().lock().read_until(b'\n', &mut line).map_err(told)?;
            line.strip_suffix(b"\n").unwrap_or(&line).to_vec()
        } else if self.verifies {
            secret::ask("Enter password: ").map_err(told)?
        } else {
            let password = secret::ask("New password: ").map_err(told)?;
            if secret::ask("Re-type new password: ").map_err(told)? != password {
                return Err((MISMATCH, "htpasswd: password verification error".to_owned()));
            }
            password
        };
        if password.len() > 255 || password.contains(&0) {
            return Err((OVERFLOW, "htpasswd: password too long (> 255) or with a NUL".to_owned()));
        }
        Ok(password)
    }

    /// The new line of the user, without a newline.
    fn line(&self) -> Result<Vec<u8>, Fault> {
        let password = self.password()?;
        let fault = |text: &str| (FILE, format!("htpasswd: {text}"));
        let salt = random::bytes::<24>().map_err(|it| fault(&format!("no random salt: {it}")))?;
        let salt: Vec<u8> = salt
            .chunks(3)
            .flat_map(|chunk| match chunk {
                [a, b, c] => {
                    let number = u64::from(*a) | u64::from(*b) << 8 | u64::from(*c) << 16;
                    to_base64(number, 4)
                }
                _ => Vec::new(),
            })
            .collect();
        let part = |length: usize| salt.get(..length).unwrap_or(&salt);
        let rounds = self.rounds.map(|rounds| format!("rounds={rounds}$")).unwrap_or_default();
        let with = |start: String, length| [start.as_bytes(), part(length)].concat();
        let setting = match self.scheme {
            Scheme::Apr1 => return Ok(self.joined(&apr1(&password, part(8)))),
            Scheme::Sha => return Ok(self.joined(&sha(&password))),
            Scheme::Plain => return Ok(self.joined(&password)),
            // The salt has 128 bits: 21 digits hold 126 of them, and the last digit is one of
            // `.`, `O`, `e` and `u`.
            Scheme::Bcrypt => [&*with(format!("$2y${:02}$", self.cost), 21), b"e"].concat(),
            Scheme::Sha256 => with(format!("$5${rounds}"), 16),
            Scheme::Sha512 => with(format!("$6${rounds}"), 16),
            Scheme::Crypt => part(2).to_vec(),
        };
        let hash = crypt::hash(&password, &setting)
            .ok_or_else(|| fault("the machine's crypt(3) does not have this scheme"))?;
        Ok(self.joined(&hash))
    }

    fn joined(&self, hash: &[u8]) -> Vec<u8> {
        [self.user.as_bytes(), b":", hash].concat()
    }
}

/// Performs the action of the command line. Returns the text to print.
fn act(asked: &Asked) -> Result<String, Fault> {
    if asked.prints {
        return Ok(format!("{}\n", String::from_utf8_lossy(&asked.line()?)));
    }
    let user = &asked.user;
    let told =
        |error: io::Error| (FILE, format!("htpasswd: the file {}: {error}", asked.file.display()));
    let old = match asked.creates {
        true => Vec::new(),
        false => fs::read(&asked.file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let text = "does not exist; use -c to create it";
                (FILE, format!("htpasswd: the file {} {text}", asked.file.display()))
            }
            _ => told(error),
        })?,
    };
    if asked.verifies {
        let users = PasswordFile::parse(&old);
        let Some(entry) = users.user(user.as_bytes()) else {
            return Err((BAD_USER, format!("User {user} not found")));
        };
        return match verify(&asked.password()?, &entry.hash) {
            true => Ok(format!("Password for user {user} correct.")),
            false => Err((MISMATCH, "password verification failed".to_owned())),
        };
    }
    let line = if asked.deletes { None } else { Some(asked.line()?) };
    let (text, was_there) = replaced(&old, format!("{user}:").as_bytes(), line.as_deref());
    if asked.deletes && !was_there {
        return Ok(format!("User {user} not found"));
    }
    write_anew(&asked.file, &text).map_err(told)?;
    let verb = match (asked.deletes, was_there) {
        (true, _) => "Deleting",
        (false, true) => "Updating",
        (false, false) => "Adding",
    };
    Ok(format!("{verb} password for user {user}"))
}

/// Replaces the first line of a user with `line` and removes the user's other lines. `start` is the
/// start of these lines: the user name and a colon, and in a file of htdigest the realm and another
/// colon. Appends `line` if the user has none. If `line` is `None`, all lines of the user are
/// removed. Returns the new text, and whether the user had a line.
pub fn replaced(old: &[u8], start: &[u8], line: Option<&[u8]>) -> (Vec<u8>, bool) {
    let (mut text, mut was_there) = (Vec::with_capacity(old.len() + 128), false);
    for kept in old.split_inclusive(|byte| *byte == b'\n') {
        let is_users = kept.trim_ascii_start().starts_with(start);
        let is_comment = kept.trim_ascii_start().starts_with(b"#");
        match is_users && !is_comment {
            false => text.extend_from_slice(kept),
            true if was_there => {}
            true => {
                was_there = true;
                text.extend(line.iter().flat_map(|line| [line, &b"\n"[..]].concat()));
            }
        }
    }
    if !was_there && let Some(line) = line {
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend_from_slice(&[line, b"\n"].concat());
    }
    (text, was_there)
}

/// Writes a new file in the same folder, with the mode and the owner of the old file, and renames
/// it to `path`.
pub fn write_anew(path: &Path, text: &[u8]) -> io::Result<()> {
    // A symbolic link is kept, and its target is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(path).ok();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text)?;
        let mode = old.as_ref().map_or(0o644, |old| old.mode() & 0o7777);
        if let Some(old) = &old {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_user_is_added_changed_verified_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let name = file.to_str().unwrap();
        let run = |text: &str| run(&words(&text.replace("FILE", name)));
        assert_eq!(run("-b FILE ann secret"), FILE, "it is not there");
        assert_eq!(run("-cb FILE ann secret"), 0);
        for option in ["-bB", "-b2", "-b5", "-bd", "-bs", "-bm", "-bB -C 4", "-b5 -r 1000"] {
            assert_eq!(run(&format!("{option} FILE bob hidden")), 0, "{option}");
            assert_eq!(run("-vb FILE bob hidden"), 0, "{option}");
            assert_eq!(run("-vb FILE bob other"), MISMATCH, "{option}");
        }
        assert_eq!(run("-vb FILE zoe x"), BAD_USER);
        assert_eq!(run("-D FILE ann"), 0);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!((text.lines().count(), text.starts_with("bob:$6$rounds=1000$")), (1, true));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn wrong_words_are_refused() {
        for (text, status) in [
            ("-b x", SYNTAX),
            ("-cD f u", SYNTAX),
            ("-bi f u p", SYNTAX),
            ("-X f u", SYNTAX),
            ("-bB -C 18 f u p", SYNTAX),
            ("-nb a:b p", BAD_USER),
        ] {
            assert_eq!(run(&words(text)), status, "{text}");
        }
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        let old = b"# ann:x\nann:1\nb:2\nann:3\nlast:4";
        let (text, was_there) = replaced(old, b"ann:", Some(b"ann:5"));
        assert_eq!((&text[..], was_there), (&b"# ann:x\nann:5\nb:2\nlast:4"[..], true));
        let (text, was_there) = replaced(old, b"new:", Some(b"new:5"));
        assert!(!was_there && text.ends_with(b"last:4\nnew:5\n"));
        assert_eq!(replaced(old, b"last:", None).0, b"# ann:x\nann:1\nb:2\nann:3\n");
    }
}
