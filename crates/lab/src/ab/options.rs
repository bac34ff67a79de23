//! Parses the command line of ab, or refuses it with a message and an exit status. As in ab,
//! options are single letters, their arguments may be joined to them, and of repeated options the
//! last one counts.

use crate::load::{Scheme, Target};
use evenkeel_tls::{Suite, parse_ciphers};
use std::net::IpAddr;
use std::path::PathBuf;

/// The options of ab.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) target: Target,
    /// Host and port as typed, because ab always shows the port.
    pub(super) requests: u64,
    pub(super) concurrency: u32,
    pub(super) limit_s: Option<u64>,
    pub(super) timeout_s: u64,
    pub(super) window: Option<usize>,
    pub(super) bind: Option<IpAddr>,
    pub(super) method: Option<String>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) content_type: String,
    pub(super) cookies: Vec<String>,
    pub(super) headers: Vec<String>,
    pub(super) auth: Option<String>,
    pub(super) proxy_auth: Option<String>,
    pub(super) proxy: Option<(String, u16)>,
    pub(super) verbosity: u32,
    pub(super) html: Option<Html>,
    pub(super) head: bool,
    pub(super) keep_alive: bool,
    pub(super) percentiles: bool,
    pub(super) confidence: bool,
    pub(super) progress: bool,
    pub(super) variable_length: bool,
    pub(super) go_on: bool,
    pub(super) gnuplot: Option<PathBuf>,
    pub(super) csv: Option<PathBuf>,
    pub(super) suites: Option<Vec<&'static Suite>>,
    pub(super) protocol: Option<String>,
    pub(super) identity: Option<PathBuf>,
    pub(super) no_sni: bool,
}

/// The attributes of the HTML report: those of the table, its rows and its cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Html {
    pub(super) table: String,
    pub(super) row: String,
    pub(super) cell: String,
}

/// What the command line requests.
#[derive(Debug)]
pub(super) enum Wish {
    /// A run.
    Run(Box<Options>),
    /// The version.
    Version,
    /// The usage.
    Usage,
}

/// Why the command line is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) text: String,
    /// Whether the usage follows.
    pub(super) usage: bool,
    pub(super) status: i32,
}

impl Complaint {
    /// A message that the usage follows (status EINVAL).
    fn usage(text: impl Into<String>) -> Self {
        Self { text: format!("ab: {}", text.into()), usage: true, status: 22 }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: false, status: 1 }
    }
}

const WITH_ARGUMENT: &str = "nctsbpuTvxyzCHAPXBgemZfE";
const SWITCHES: &str = "ikdSqlrwhVI";
/// The number of requests that ab makes if only a time is given.
const MANY: u64 = 50_000;
const MOST_CONCURRENT: u64 = 20_000;

/// The state while options are parsed one after another.
#[derive(Default)]
struct Reader {
    requests: Option<u64>,
    concurrency: Option<u64>,
    limit_s: Option<u64>,
    timeout_s: Option<u64>,
    attributes: Html,
    html: bool,
    /// The option that determined the method: `p`, `u`, `i` or `m`.
    by: Option<char>,
    rest: Rest,
}

#[derive(Default)]
struct Rest {
    window: Option<usize>,
    bind: Option<IpAddr>,
    method: Option<String>,
    body: Option<Vec<u8>>,
    content_type: Option<String>,
    cookies: Vec<String>,
    headers: Vec<String>,
    auth: Option<String>,
    proxy_auth: Option<String>,
    proxy: Option<(String, u16)>,
    verbosity: u32,
    switches: String,
    gnuplot: Option<PathBuf>,
    csv: Option<PathBuf>,
    suites: Option<Vec<&'static Suite>>,
    protocol: Option<String>,
    identity: Option<PathBuf>,
}

/// Parses the words after the program's name.
pub(super) fn parse(words: &[String]) -> Result<Wish, Complaint> {
    let mut reader = Reader::default();
    let mut words = words.iter();
    let mut urls = Vec::new();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            urls.push(word.as_str());
            urls.extend(words.map(String::as_str));
            break;
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if SWITCHES.contains(letter) {
                match letter {
                    'h' => return Ok(Wish::Usage),
                    'V' => return Ok(Wish::Version),
                    _ => reader.switch(letter)?,
                }
                continue;
            }
            if !WITH_ARGUMENT.contains(letter) {
                return Err(Complaint::usage(format!("illegal option -- {letter}")));
            }
            let joined = letters.as_str();
            let argument =
                if joined.is_empty() { words.next().map(String::as_str) } else { Some(joined) };
            let Some(argument) = argument else {
                return Err(Complaint::usage(format!("option requires an argument -- {letter}")));
            };
            reader.option(letter, argument)?;
            break;
        }
    }
    let [url] = urls.as_slice() else { return Err(Complaint::usage("wrong number of arguments")) };
    reader.finish(url).map(|options| Wish::Run(Box::new(options)))
}

impl Reader {
    fn switch(&mut self, letter: char) -> Result<(), Complaint> {
        match letter {
            'i' => self.decide_method('i')?,
            'w' => self.html = true,
            _ => {}
        }
        self.rest.switches.push(letter);
        Ok(())
    }

    /// Checks that only one option determines the method. `-m` replaces the method of `-p` and
    /// `-u`.
    fn decide_method(&mut self, by: char) -> Result<(), Complaint> {
        let what = match by {
            'i' => "HEAD",
            'p' => "POST",
            'u' => "PUT",
            _ => "custom",
        };
        match self.by.replace(by) {
            None => Ok(()),
            Some(_) if by == 'm' => Ok(()),
            Some(_) => Err(Complaint::plain(format!("Cannot mix {what} with other methods\n"))),
        }
    }

    fn option(&mut self, letter: char, argument: &str) -> Result<(), Complaint> {
        let text = || Some(argument.to_owned());
        match letter {
            'n' => self.requests = Some(positive(argument, "Invalid number of requests\n")?),
            'c' => self.concurrency = Some(number(argument)),
            't' => {
                self.limit_s = Some(positive(argument, "Invalid time limit\n")?);
                self.requests = Some(MANY);
            }
            's' => self.timeout_s = Some(number(argument)),
            'b' => self.rest.window = usize::try_from(number(argument)).ok().filter(|n| *n > 0),
            'B' => {
                let address = argument.parse().map_err(|_| {
                    Complaint::plain(format!("ab: {argument}: -B takes an address of this machine"))
                })?;
                self.rest.bind = Some(address);
            }
            'p' | 'u' => {
                self.decide_method(letter)?;
                self.rest.body = Some(read_body(argument)?);
                self.rest.method.get_or_insert(if letter == 'p' { "POST" } else { "PUT" }.into());
            }
            'm' => {
                self.decide_method('m')?;
                self.rest.method = text();
            }
            'T' => self.rest.content_type = text(),
            'C' => self.rest.cookies.push(argument.to_owned()),
            'H' => self.rest.headers.push(argument.to_owned()),
            'A' => self.rest.auth = text(),
            'P' => self.rest.proxy_auth = text(),
            'X' => self.rest.proxy = Some(proxy(argument)?),
            'v' => self.rest.verbosity = u32::try_from(number(argument)).unwrap_or(u32::MAX),
            'x' | 'y' | 'z' => {
                self.html = true;
                let attribute = match letter {
                    'x' => &mut self.attributes.table,
                    'y' => &mut self.attributes.row,
                    _ => &mut self.attributes.cell,
                };
                argument.clone_into(attribute);
            }
            'g' => self.rest.gnuplot = Some(argument.into()),
            'e' => self.rest.csv = Some(argument.into()),
            'Z' => self.rest.suites = Some(suites(argument)?),
            'f' => self.rest.protocol = text(),
            _ => self.rest.identity = Some(argument.into()),
        }
        Ok(())
    }

    fn finish(self, url: &str) -> Result<Options, Complaint> {
        let target = target(url)?;
        let concurrency = self.concurrency.unwrap_or(1);
        if concurrency == 0 || concurrency > MOST_CONCURRENT {
            let text = format!("Invalid Concurrency [Range 0..{MOST_CONCURRENT}]");
            return Err(Complaint::usage(text));
        }
        let requests = self.requests.unwrap_or(1);
        if concurrency > requests {
            let text = "Cannot use concurrency level greater than total number of requests";
            return Err(Complaint::usage(text));
        }
        let rest = self.rest;
        let has = |letter| rest.switches.contains(letter);
        Ok(Options {
            target,
            requests,
            concurrency: u32::try_from(concurrency).unwrap_or(1),
            limit_s: self.limit_s,
            timeout_s: self.timeout_s.unwrap_or(30),
            method: rest.method,
            html: self.html.then_some(self.attributes),
            head: has('i'),
            keep_alive: has('k'),
            percentiles: !has('d'),
            confidence: !has('S'),
            progress: !has('q'),
            variable_length: has('l'),
            go_on: has('r'),
            no_sni: has('I'),
            window: rest.window,
            bind: rest.bind,
            body: rest.body,
            content_type: rest.content_type.unwrap_or_else(|| "text/plain".into()),
            cookies: rest.cookies,
            headers: rest.headers,
            auth: rest.auth,
            proxy_auth: rest.proxy_auth,
            proxy: rest.proxy,
            verbosity: rest.verbosity,
            gnuplot: rest.gnuplot,
            csv: rest.csv,
            suites: rest.suites,
            protocol: rest.protocol,
            identity: rest.identity,
        })
    }
}

/// Parses the URL. ab requires a path, if only a slash, and accepts http URLs without a scheme.
fn target(url: &str) -> Result<Target, Complaint> {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    if !authority.contains('/') {
        return Err(Complaint::usage("invalid URL"));
    }
    Target::parse(url).map_err(|_| Complaint::usage("invalid URL"))
}

/// Parses a number like C's atoi: the digits at the front, 0 for anything else.
impl Options {
    /// The name that a TLS handshake asks for: that of a Host field, else the URL's. An address is
    /// no name.
    pub(super) fn server_name(&self) -> Option<String> {
        let value = |line: &String| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("Host").then(|| value.trim().to_owned())
        };
        let typed = self.headers.iter().rev().find_map(value);
        let name = typed.unwrap_or_else(|| self.target.host.clone());
        let usable = !self.no_sni && !name.is_empty() && name.parse::<IpAddr>().is_err();
        usable.then_some(name)
    }
}

fn number(text: &str) -> u64 {
    let digits = text.trim_start().trim_start_matches('+');
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn positive(text: &str, complaint: &str) -> Result<u64, Complaint> {
    Some(number(text)).filter(|number| *number > 0).ok_or_else(|| Complaint::plain(complaint))
}

fn read_body(path: &str) -> Result<Vec<u8>, Complaint> {
    std::fs::read(path).map_err(|error| {
        let why = error.to_string();
        let why = why.split(" (os error").next().unwrap_or_default();
        Complaint::plain(format!("ab: Could not open POST data file ({path}): {why}"))
    })
}

fn proxy(text: &str) -> Result<(String, u16), Complaint> {
    let bad = || Complaint::usage(format!("{text}: a proxy is host:port"));
    let parsed = Target::parse(text).map_err(|_| bad())?;
    if parsed.scheme == Scheme::Https { Err(bad()) } else { Ok((parsed.host, parsed.port)) }
}

/// The suites of TLS 1.2 that a cipher string of OpenSSL selects. Like SSL_CTX_set_cipher_list, it
/// does not concern TLS 1.3.
fn suites(text: &str) -> Result<Vec<&'static Suite>, Complaint> {
    match parse_ciphers(text) {
        Ok(selection) if !selection.suites.is_empty() => Ok(selection.suites),
        _ => Err(Complaint::plain(format!("error setting ciphersuite list [{text}]"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options, Complaint> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match parse(&words)? {
            Wish::Run(options) => Ok(*options),
            _ => panic!("no run"),
        }
    }

    #[test]
    fn options_are_joined_or_apart_and_the_last_holds() {
        let all = options("-n5 -c 2 -kq -n 10 -H A:b -HC:d -t 3 -n 7 http://h:81/x").unwrap();
        assert_eq!((all.requests, all.concurrency, all.limit_s), (7, 2, Some(3)));
        assert!(all.keep_alive && !all.progress && all.headers == ["A:b", "C:d"]);
        assert_eq!((all.target.port, all.timeout_s), (81, 30));
        assert_eq!(options("-t 2 h/").unwrap().requests, 50_000);
    }

    #[test]
    fn complaints_are_as_ab_has_them() {
        let text = |line: &str| options(line).unwrap_err();
        assert_eq!(text("-n 0 h/").text, "Invalid number of requests\n");
        let many = text("-n 3 -c 5 h/");
        assert!(many.usage && many.status == 22 && many.text.contains("concurrency level"));
        assert_eq!(text("").text, "ab: wrong number of arguments");
        assert_eq!(text("http://h").text, "ab: invalid URL");
        assert_eq!(text("-Z").text, "ab: option requires an argument -- Z");
        assert_eq!(text("-Q h/").text, "ab: illegal option -- Q");
        let absent = text("-p /nonexistent h/");
        let wanted = "ab: Could not open POST data file (/nonexistent): No such file or directory";
        assert_eq!((absent.text.as_str(), absent.status), (wanted, 1));
        assert_eq!(text("-m GET -i h/").text, "Cannot mix HEAD with other methods\n");
    }

    #[test]
    fn names_for_sni_come_from_the_host_field_or_the_url() {
        let name = |line: &str| options(line).unwrap().server_name();
        assert_eq!(name("https://h/").as_deref(), Some("h"));
        assert_eq!(name("-H Host:a -H host:b https://h/").as_deref(), Some("b"));
        for line in ["-I https://h/", "https://127.0.0.1/", "-H Host:::1 https://h/"] {
            assert_eq!(name(line), None, "{line}");
        }
    }

    #[test]
    fn suites_are_those_of_an_openssl_string() {
        let names = |text: &str| -> Vec<&str> {
            suites(text).unwrap().iter().map(|suite| suite.name).collect()
        };
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256"), ["ECDHE-RSA-AES128-GCM-SHA256"]);
        let both = ["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"];
        assert_eq!(names("ECDHE+CHACHA20"), both);
        let told = suites("RC4-MD5").unwrap_err();
        assert_eq!(
            (told.text.as_str(), told.status),
            ("error setting ciphersuite list [RC4-MD5]", 1)
        );
    }
}
