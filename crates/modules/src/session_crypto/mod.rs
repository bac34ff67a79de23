//! mod_session_crypto: sessions that the client can neither read nor change.

pub use crate::{NoSettings as Global, NoSettings as Server};

use crate::sessions::{Cipher, Secrets};
use crate::{
    Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive, global_directive,
};
use evenkeel_config::{Call, GlobalCall, Overrides, Shape, next_word};
use evenkeel_message::unquoted;
use evenkeel_sys::open;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// How much of a file of passphrases is read, in bytes.
const LARGEST_FILE: usize = 1 << 20;

/// How much of what a program writes is read, in bytes (MAX_STRING_LEN).
const LONGEST_LINE: u64 = 8192;

const PLACE: Where = Where::CONFIG.or(Overrides::AUTH_CONFIG);

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("SessionCryptoPassphrase", PLACE, Shape::Iterate, "", "The passphrase(s) used to encrypt the session. First will be used for encryption, all phrases will be accepted for decryption", passphrase),
    directive("SessionCryptoPassphraseFile", Where::CONFIG, Shape::One, "", "File containing passphrase(s) used to encrypt the session, one per line. First will be used for encryption, all phrases will be accepted for decryption", passphrase_file),
    directive("SessionCryptoCipher", PLACE, Shape::One, "aes256", "The underlying crypto cipher to use", cipher),
    global_directive("SessionCryptoDriver", Shape::Raw, "", "The underlying crypto library driver to use", driver),
];

/// mod_session_crypto.
pub const MODULE: Module = Module {
    file: "mod_session_crypto.c",
    identifier: "session_crypto_module",
    active: Active::WhenNamed,
    page: "mod_session_crypto",
    subject: "Sessions that are sealed by a passphrase, in the format of Apache's: cookies that \
              one of the servers has written are read by the other.",
    remarks: &[
        "The ciphers are those of Apache with OpenSSL: aes128, aes192, aes256 and 3des192. Another \
         name is refused at the start; Apache logs an error with each request.",
        "SessionCryptoDriver has no effect: the cryptography is built in.",
        "The key of a cookie is derived once in each process and then kept. Cookies that were \
         written within an hour share their salt; their initialization vectors are random.",
        "`exec:` in .htaccess is refused, because no process that serves starts programs.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Default)]
pub struct Directory {
    passphrases: Option<Arc<[Box<[u8]>]>>,
    cipher: Option<Cipher>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; passphrases, cipher)
    }
}

impl Directory {
    /// What seals and opens sessions; none if they are not sealed.
    #[must_use]
    pub fn secrets(&self) -> Option<Secrets> {
        let passphrases = Arc::clone(self.passphrases.as_ref()?);
        Some(Secrets::new(passphrases, self.cipher.unwrap_or_default()))
    }
}

fn passphrase(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    add(scope, call.first())
}

/// Adds a passphrase, or what a program writes.
fn add(scope: &mut Scope, word: &str) -> DirectiveResult {
    let passphrase = match word.strip_prefix("exec:").filter(|program| !program.is_empty()) {
        None => unquoted(word).into_owned(),
        Some(_) if scope.in_htaccess => {
            return Err("SessionCryptoPassphrase: exec: is not allowed in .htaccess".to_owned());
        }
        Some(program) => run(scope, program)?,
    };
    let own = &mut scope.directory.session_crypto.passphrases;
    let known = own.as_deref().unwrap_or_default().iter().cloned();
    *own = Some(known.chain([passphrase.into()]).collect());
    Ok(())
}

/// The first line that a program writes (util.c: ap_get_exec_line).
fn run(scope: &Scope, program: &str) -> Result<Vec<u8>, String> {
    let fault =
        |reason: String| format!("Unable to get bind password from exec of {program}: {reason}");
    let (name, mut rest) = next_word(program);
    let mut command = Command::new(scope.server_path(&name));
    while !rest.trim().is_empty() {
        let (word, behind) = next_word(rest);
        command.arg(std::ffi::OsStr::from_bytes(&unquoted(&word)));
        rest = behind;
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| fault(error.to_string()))?;
    let mut line = Vec::new();
    if let Some(output) = child.stdout.take() {
        let read = BufReader::new(output.take(LONGEST_LINE)).read_until(b'\n', &mut line);
        read.map_err(|error| fault(error.to_string()))?;
    }
    let status = child.wait().map_err(|error| fault(error.to_string()))?;
    let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(line.len());
    line.truncate(end);
    match line.is_empty() {
        true => Err(fault(format!("it wrote no passphrase ({status})"))),
        false => Ok(line),
    }
}

fn passphrase_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_path(call.first());
    let read = open::read_beginning(path.as_os_str().as_bytes(), LARGEST_FILE);
    let text = read.map_err(|error| {
        let (path, reason) = (path.display(), error.to_string());
        let reason = reason.split(" (os error").next().unwrap_or_default();
        format!("SessionCryptoPassphraseFile: Could not open file {path}: {reason}")
    })?;
    let text = String::from_utf8(text).map_err(|_| {
        format!("SessionCryptoPassphraseFile: the file {} is not UTF-8", path.display())
    })?;
    for line in text.lines() {
        let mut rest = line.trim();
        while !rest.is_empty() {
            let (word, behind) = next_word(rest);
            if word.is_empty() || word.starts_with('#') {
                break;
            }
            add(scope, &word)?;
            rest = behind.trim_start();
        }
    }
    Ok(())
}

fn cipher(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = call.first();
    let Some(cipher) = Cipher::named(name) else {
        return Err(format!(
            "cipher '{name}' not recognised, options: 3des192, aes128, aes192, aes256"
        ));
    };
    scope.directory.session_crypto.cipher = Some(cipher);
    Ok(())
}

fn driver(_: &mut Scope, _: &GlobalCall<'_>) -> DirectiveResult {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;
    use std::io::Write as _;

    fn opens(lines: &str, by: &str) -> bool {
        let secrets =
            |lines: &str| apply(MODULE, lines).unwrap().directory.session_crypto.secrets();
        let sealed = secrets(&format!("SessionCryptoPassphrase {by}")).unwrap().seal(b"a=1");
        secrets(lines).unwrap().open(&sealed.unwrap()).as_deref() == Some(b"a=1")
    }

    #[test]
    fn passphrases_come_from_lines_files_and_programs() {
        assert!(opens("SessionCryptoPassphrase one two", "two"));
        assert!(opens("SessionCryptoPassphrase one\nSessionCryptoPassphrase two", "one"));
        assert!(opens(
            "SessionCryptoPassphrase \"exec:/bin/echo from program\"",
            "\"from program\""
        ));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"# no\n\nfirst \"second word\" # more\nthird\n").unwrap();
        let line = format!("SessionCryptoPassphraseFile {}", file.path().display());
        for word in ["first", "\"second word\"", "third"] {
            assert!(opens(&line, word), "{word}");
        }
        assert!(!opens(&line, "more") && !opens(&line, "#"));
    }

    #[test]
    fn what_gives_no_passphrase_is_refused() {
        for bad in [
            "SessionCryptoPassphrase exec:/bin/true",
            "SessionCryptoPassphrase exec:/nowhere",
            "SessionCryptoPassphraseFile /nowhere",
            "SessionCryptoCipher rot13",
        ] {
            assert!(apply(MODULE, bad).is_err(), "{bad}");
        }
        assert!(apply(MODULE, "Nothing").is_err());
        let unset = apply(MODULE, "SessionCryptoCipher aes128\nSessionCryptoDriver openssl x=y");
        assert!(unset.unwrap().directory.session_crypto.secrets().is_none());
    }
}
