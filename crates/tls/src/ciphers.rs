//! OpenSSL's cipher strings (`openssl-ciphers(1)`, ssl/ssl_ciph.c: ssl_cipher_process_rulestr),
//! applied to the suites that the server has. A word selects a set of suites; a command adds,
//! removes, moves or bans them.

use crate::suites::{NEW, OLD, Suite};

/// Which suites a string has selected, most wanted first.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The suites.
    pub suites: Vec<&'static Suite>,
    /// Names of suites and unknown words in the string which add nothing here.
    pub lacking: Vec<String>,
}

/// Why a string is refused. OpenSSL refuses it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

/// One bit for each suite of [`OLD`].
type Set = u8;

const ALL: Set = 0b11_1111;
const ECDSA: Set = 0b01_0101;
const RSA: Set = 0b10_1010;
const AES256: Set = 0b00_0011;
const CHACHA20: Set = 0b00_1100;
const AES128: Set = 0b11_0000;
const BITS256: Set = AES256 | CHACHA20;

/// OpenSSL's words for groups of suites, and what they select here. The words of the last line
/// select nothing that the server has.
const WORDS: &[(Set, &str)] = &[
    (ALL, "ALL HIGH TLSv1.2 ECDHE EECDH kECDHE kEECDH ECDH"),
    (RSA, "aRSA"),
    (ECDSA, "aECDSA ECDSA"),
    (AES256 | AES128, "AES AESGCM FIPS"),
    (AES256, "AES256"),
    (AES128, "AES128"),
    (CHACHA20, "CHACHA20"),
    (
        0,
        "COMPLEMENTOFALL COMPLEMENTOFDEFAULT kRSA kEDH kDHE DH kPSK kRSAPSK kECDHEPSK kDHEPSK \
         kSRP kGOST kGOST18 kDHr kDHd kECDHr kECDHe kECDH aDSS DSS aNULL aPSK aGOST01 aGOST12 \
         aGOST aSRP aDH aECDH EDH DHE NULL RSA ADH AECDH PSK SRP DES 3DES RC4 RC2 IDEA SEED \
         eNULL GOST89 AESCCM AESCCM8 CAMELLIA128 CAMELLIA256 CAMELLIA ARIA ARIAGCM ARIA128 \
         ARIA256 CBC MD5 SHA1 SHA GOST94 GOST89MAC SHA256 SHA384 GOST12 SSLv2 SSLv3 TLSv1 \
         TLSv1.0 LOW MEDIUM EXP EXPORT EXPORT40 EXPORT56 KRB5",
    ),
];

/// What a word selects, or nothing if OpenSSL would not find it among what the server has.
fn set(word: &str) -> Option<Set> {
    let group =
        |(set, words): &(Set, &str)| words.split(' ').any(|one| one == word).then_some(*set);
    let single = || OLD.iter().position(|suite| suite.name == word).map(|index| 1 << index);
    WORDS.iter().find_map(group).or_else(single)
}

/// The suites of TLS 1.2 as a list that commands reorder, and which of them are selected.
struct List {
    entries: Vec<(usize, bool)>,
}

impl List {
    fn new() -> Self {
        Self { entries: (0..OLD.len()).map(|index| (index, false)).collect() }
    }

    /// Applies a command (ssl_cipher_apply_rule).
    fn apply(&mut self, command: Command, set: Set) {
        let has = |index: usize| set & (1 << index) != 0;
        let (matching, others): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|(index, active)| match command {
                Command::Add => has(*index) && !active,
                Command::Move | Command::Remove => has(*index) && *active,
                Command::Ban => has(*index),
            });
        let with = |active| matching.iter().map(move |(index, _)| (*index, active));
        self.entries = match command {
            Command::Add | Command::Move => others.into_iter().chain(with(true)).collect(),
            Command::Remove => with(false).chain(others).collect(),
            Command::Ban => others,
        };
    }
}

#[derive(Clone, Copy)]
enum Command {
    Add,
    Remove,
    Move,
    Ban,
}

/// Reads the string of SSLCipherSuite for TLS 1.2.
///
/// # Errors
/// The string has a faulty command.
pub fn parse(text: &str) -> Result<Selection, Invalid> {
    let (mut list, mut lacking, mut least_bits) = (List::new(), Vec::new(), 0);
    let mut rest = text;
    // Red Hat's policy files and Suite B are words for whole strings.
    for (word, meaning) in [
        ("PROFILE=SYSTEM", "ALL"),
        ("DEFAULT", "ALL"),
        ("SUITEB128ONLY", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("SUITEB128", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("SUITEB192", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ] {
        if let Some(behind) = text.strip_prefix(word) {
            for word in meaning.split(':') {
                list.apply(Command::Add, set(word).unwrap_or_default());
            }
            rest = behind;
            break;
        }
    }
    while let Some(first) = rest.chars().next() {
        if is_separator(first) {
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        let command = match first {
            '-' => Some(Command::Remove),
            '+' => Some(Command::Move),
            '!' => Some(Command::Ban),
            '@' => None,
            _ => Some(Command::Add),
        };
        if matches!(first, '-' | '+' | '!' | '@') {
            rest = rest.get(1..).unwrap_or_default();
        }
        let Some(command) = command else {
            let (word, behind) = split_word(rest)?;
            special(word, &mut list, &mut least_bits)?;
            rest = skip(behind);
            continue;
        };
        let (mut selected, mut unknown) = (ALL, false);
        loop {
            let (word, behind) = split_word(rest)?;
            rest = behind;
            match set(word) {
                Some(set) => selected &= set,
                None => {
                    if matches!(command, Command::Add) {
                        lacking.push(word.to_owned());
                    }
                    unknown = true;
                    break;
                }
            }
            let Some(behind) = rest.strip_prefix('+') else { break };
            rest = behind;
        }
        if unknown {
            rest = skip(rest);
        } else {
            list.apply(command, selected);
        }
    }
    let chosen = list.entries.iter().filter(|(_, active)| *active);
    let suites = chosen.filter_map(|(index, _)| OLD.get(*index));
    Ok(Selection { suites: suites.filter(|suite| suite.bits >= least_bits).collect(), lacking })
}

/// Reads the list of suites of TLS 1.3 (`SSLCipherSuite TLSv1.3 LIST`).
///
/// # Errors
/// The list names no suite.
pub fn parse_new(text: &str) -> Result<Selection, Invalid> {
    let mut selection = Selection { suites: Vec::new(), lacking: Vec::new() };
    for word in text.split(':').map(str::trim).filter(|word| !word.is_empty()) {
        match NEW.iter().find(|suite| suite.name == word) {
            Some(suite) if selection.suites.iter().any(|one| one.name == suite.name) => {}
            Some(suite) => selection.suites.push(suite),
            None => selection.lacking.push(word.to_owned()),
        }
    }
    if selection.suites.is_empty() && selection.lacking.is_empty() {
        return Err(Invalid("the list names no cipher suite".to_owned()));
    }
    Ok(selection)
}

fn special(word: &str, list: &mut List, least_bits: &mut u16) -> Result<(), Invalid> {
    match (word, word.strip_prefix("SECLEVEL=")) {
        ("STRENGTH", _) => {
            list.apply(Command::Move, BITS256);
            list.apply(Command::Move, AES128);
            Ok(())
        }
        // The security level in bits (SSL_CTX_set_security_level(3)): 128 at 3, 192 at 4, 256 at 5.
        (_, Some("0" | "1" | "2" | "3")) => {
            *least_bits = 0;
            Ok(())
        }
        (_, Some("4" | "5")) => {
            *least_bits = 192;
            Ok(())
        }
        _ => Err(Invalid(format!("@{word} is no command"))),
    }
}

fn is_separator(char: char) -> bool {
    matches!(char, ':' | ' ' | ';' | ',')
}

fn split_word(text: &str) -> Result<(&str, &str), Invalid> {
    let in_word = |char: char| char.is_ascii_alphanumeric() || "-_.=".contains(char);
    let end = text.find(|char| !in_word(char)).unwrap_or(text.len());
    match text.split_at(end) {
        ("", "") => Err(Invalid("the string ends with a command".to_owned())),
        ("", rest) => {
            let char: String = rest.chars().take(1).collect();
            Err(Invalid(format!("'{char}' is not part of a word")))
        }
        parts => Ok(parts),
    }
}

fn skip(text: &str) -> &str {
    text.find(is_separator).and_then(|end| text.get(end..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> String {
        let names = parse(text).unwrap().suites.into_iter().map(|suite| {
            let name = suite.name.strip_prefix("ECDHE-").unwrap();
            let name = name.replace("-POLY1305", "").replace("-SHA256", "");
            name.replace("-SHA384", "")
                .replace("-GCM", "")
                .replace("ECDSA", "E")
                .replace("RSA", "R")
        });
        names.collect::<Vec<_>>().join(" ")
    }

    /// Each pair was checked against `openssl ciphers -tls1_2 -s` 3.0, less what the server lacks.
    #[test]
    fn strings_select_what_openssl_selects() {
        let all = "E-AES256 R-AES256 E-CHACHA20 R-CHACHA20 E-AES128 R-AES128";
        for (text, want) in [
            ("HIGH:!aNULL", all),
            ("DEFAULT", all),
            ("PROFILE=SYSTEM", all),
            ("HIGH:MEDIUM:!MD5:!RC4:!3DES:!kDH", all),
            ("EECDH+AESGCM:EDH+AESGCM:AES256+EECDH", "E-AES256 R-AES256 E-AES128 R-AES128"),
            ("ECDHE+AESGCM:!aECDSA", "R-AES256 R-AES128"),
            ("HIGH:-AES:AES", "E-CHACHA20 R-CHACHA20 E-AES256 R-AES256 E-AES128 R-AES128"),
            ("ALL:+AES256", "E-CHACHA20 R-CHACHA20 E-AES128 R-AES128 E-AES256 R-AES256"),
            ("AES128:CHACHA20:@STRENGTH", "E-CHACHA20 R-CHACHA20 E-AES128 R-AES128"),
            ("ALL@STRENGTH", all),
            ("HIGH:@SECLEVEL=4", "E-AES256 R-AES256 E-CHACHA20 R-CHACHA20"),
            ("!AES128:ALL:AES128", "E-AES256 R-AES256 E-CHACHA20 R-CHACHA20"),
            ("SUITEB128", "E-AES128 E-AES256"),
            ("DEFAULT+AES", "E-CHACHA20 R-CHACHA20 E-AES256 R-AES256 E-AES128 R-AES128"),
            (
                "ECDHE-RSA-AES128-GCM-SHA256 AES256,CHACHA20;FOO",
                "R-AES128 E-AES256 R-AES256 E-CHACHA20 R-CHACHA20",
            ),
            (
                "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
              ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
              ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:\
              DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305",
                "E-AES128 R-AES128 E-AES256 R-AES256 E-CHACHA20 R-CHACHA20",
            ),
            ("3DES:AES128-SHA", ""),
            ("SHA256:kRSA+AES", ""),
        ] {
            assert_eq!(names(text), want, "{text}");
        }
    }

    #[test]
    fn what_is_lacking_is_listed_and_commands_that_openssl_refuses_are_refused() {
        assert_eq!(parse("AES128-SHA:HIGH:!RC4-SHA:FOO").unwrap().lacking, ["AES128-SHA", "FOO"]);
        for text in ["HIGH:@FOO", "HIGH+", "HIGH:!", "@SECLEVEL=9", "HIGH:*", "HIGH:é"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn suites_of_tls_1_3_are_chosen_by_name() {
        let selection =
            parse_new("TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256:TLS_AES_256_GCM_SHA384");
        let selection = selection.unwrap();
        let names: Vec<_> = selection.suites.iter().map(|suite| suite.name).collect();
        assert_eq!(names, ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"]);
        assert_eq!(selection.lacking, ["TLS_AES_128_CCM_SHA256"]);
        assert!(parse_new(":").is_err());
    }

    /// The suites that `openssl ciphers` selects, less what the server lacks; none if it refuses
    /// the string.
    fn openssl(text: &str) -> Option<Vec<String>> {
        let run = std::process::Command::new("openssl")
            .args(["ciphers", "-s", "-tls1_2", text])
            .output()
            .expect("the package openssl");
        let list = String::from_utf8(run.stdout).unwrap();
        let names = list.trim().split(':').filter(|name| OLD.iter().any(|one| one.name == *name));
        run.status.success().then(|| names.map(str::to_owned).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        /// A string that OpenSSL takes selects the same here, and one that both find faulty has no
        /// other suites. OpenSSL also refuses strings that select nothing.
        #[test]
        fn any_string_selects_what_openssl_selects(parts in proptest::collection::vec(
            (proptest::sample::select(vec!["", "!", "-", "+", "@"]),
             proptest::sample::select(vec![
                "ALL", "HIGH", "AES", "AES128", "AES256", "AESGCM", "CHACHA20", "aRSA", "aECDSA",
                "ECDHE", "kRSA", "DHE", "RSA", "STRENGTH", "SECLEVEL=1", "FOO", "MD5", "SHA256",
                "FIPS", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE+AES128", "aECDSA+AESGCM", "eNULL",
                "TLSv1.2+CHACHA20", "DEFAULT", "AES128-SHA", "3DES",
             ]),
             proptest::sample::select(vec![":", " ", ",", ";"])), 1..6)) {
            let text: String =
                parts.iter().map(|(command, word, end)| format!("{command}{word}{end}")).collect();
            let ours = parse(&text).map(|selection| {
                selection.suites.iter().map(|suite| suite.name.to_owned()).collect::<Vec<_>>()
            });
            match (openssl(&text), ours) {
                (Some(want), Ok(have)) => prop_assert_eq!(have, want, "{}", text),
                (Some(_), Err(error)) => prop_assert!(false, "{}: {:?}", text, error),
                (None, _) => {}
            }
        }

        #[test]
        fn any_text_is_read(text in ".{0,60}") {
            let _ = (parse(&text), parse_new(&text));
        }
    }
}
