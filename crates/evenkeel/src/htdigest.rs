//! `evenkeel htdigest`: adds and changes users of Digest authentication, with the command line of
//! Apache's htdigest. With `-i` it reads the password from standard input.

use crate::htpasswd::{replaced, write_anew};
use crate::terminal;
use evenkeel_modules::passwords::htdigest_hash;
use evenkeel_sys::secret;
use std::fs;
use std::io::{self, BufRead as _};
use std::path::Path;

const USAGE: &str = "\
Usage: htdigest [-ci] passwordfile realm username\n \
-c  Create a new file.\n \
-i  Read the password from standard input, and do not ask for it twice.";

/// The longest user name, realm and password, in bytes.
const LONGEST: usize = 255;

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    creates: bool,
    from_input: bool,
    file: &'a Path,
    realm: &'a str,
    user: &'a str,
}

/// Runs htdigest with these arguments. Returns the exit status: 0, or 1 after an error.
pub fn run(words: &[String]) -> i32 {
    match parse(words).and_then(|asked| act(&asked)) {
        Ok(text) => {
            terminal::complain(&text);
            0
        }
        Err(text) => {
            terminal::complain(&text);
            1
        }
    }
}

fn parse(words: &[String]) -> Result<Asked<'_>, String> {
    let (mut creates, mut from_input, mut rest) = (false, false, words);
    while let Some((word, others)) = rest.split_first()
        && let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty())
    {
        for letter in letters.chars() {
            match letter {
                'c' => creates = true,
                'i' => from_input = true,
                _ => return Err(USAGE.to_owned()),
            }
        }
        rest = others;
    }
    let [file, realm, user] = rest else { return Err(USAGE.to_owned()) };
    for (name, text) in [("realm", realm), ("username", user)] {
        if text.len() > LONGEST || text.contains([':', '\n', '\r', '\0']) {
            let text = format!("htdigest: the {name} is too long, or contains ':' or a line end");
            return Err(text);
        }
    }
    // A line that begins with `#` is a comment.
    if user.is_empty() || user.starts_with('#') || user.trim() != user {
        return Err("htdigest: the username is empty, or begins with '#' or a space".to_owned());
    }
    Ok(Asked { creates, from_input, file: Path::new(file), realm, user })
}

fn act(asked: &Asked<'_>) -> Result<String, String> {
    let Asked { creates, from_input, file, realm, user } = asked;
    let told = |error: io::Error| format!("htdigest: the file {}: {error}", file.display());
    let old = match creates {
        true => Vec::new(),
        false => fs::read(file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("{}; use -c to create it", told(error)),
            _ => told(error),
        })?,
    };
    let password = password(*from_input)?;
    let start = format!("{user}:{realm}:").into_bytes();
    let hash = htdigest_hash(user.as_bytes(), realm.as_bytes(), &password);
    let (text, was_there) = replaced(&old, &start, Some(&[&start[..], &hash].concat()));
    write_anew(file, &text).map_err(told)?;
    let verb = if was_there { "Changing password for" } else { "Adding" };
    Ok(format!("{verb} user {user} in realm {realm}"))
}

/// Reads the password from standard input or the terminal.
fn password(from_input: bool) -> Result<Vec<u8>, String> {
    let told = |error: io::Error| format!("htdigest: no password could be read: {error}");
    let password = match from_input {
        true => {
            let mut line = Vec::new();
            let count = io::stdin().lock().read_until(b'\n', &mut line).map_err(told)?;
            if count == 0 {
                return Err("htdigest: standard input is empty".to_owned());
            }
            line.strip_suffix(b"\n").unwrap_or(&line).to_vec()
        }
        false => {
            let password = secret::ask("New password: ").map_err(told)?;
            if secret::ask("Re-type new password: ").map_err(told)? != password {
                return Err("htdigest: the passwords differ".to_owned());
            }
            password
        }
    };
    if password.len() > LONGEST || password.contains(&0) {
        return Err("htdigest: the password is too long (> 255) or contains a NUL".to_owned());
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_command_line_is_apaches() {
        let given = words("-c file realm ann");
        let asked = parse(&given).unwrap();
        assert!(asked.creates && !asked.from_input);
        assert_eq!((asked.file, asked.realm, asked.user), (Path::new("file"), "realm", "ann"));
        let given = words("-i -c file realm ann");
        let both = parse(&given).unwrap();
        assert!(both.creates && both.from_input);
        for wrong in [
            "file realm",
            "-x file realm ann",
            "file realm a:b",
            "file r:m ann",
            "f r #a",
            "f r u x",
        ] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_line_of_a_user_in_a_realm_is_replaced() {
        let old = b"ann:here:1\nann:there:2\n# ann:here:3\nann:here:4\nann:here2:5\n";
        let (text, was_there) = replaced(old, b"ann:here:", Some(b"ann:here:new"));
        assert!(was_there);
        assert_eq!(text, b"ann:here:new\nann:there:2\n# ann:here:3\nann:here2:5\n");
    }
}
