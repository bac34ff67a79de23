//! Parses the text of a wire script into its configuration, files and exchanges. The language has
//! one statement in each line; `#` at the start of a line begins a comment:
//!
//! ```text
//! what SENTENCE                what the script shows
//! modules NAME...              modules to load beyond those of every script
//! ignore HEADER                a header that is not compared; `chunks`: the oracle may send chunks
//!                              where the other server sends a Content-Length
//! latin1                       the configuration and the files with their names are written in
//!                              ISO-8859-1
//! tls                          certificates are in the folder `tls` (src/tls.rs has their names)
//! compare PATH                 a file that must be equal when both servers have stopped,
//!                              except for log ids (%L) after `id=`
//! config                       the lines below, indented by four, follow the base configuration
//! file PATH [mtime=SECONDS] [mode=OCTAL] [bytes=N]
//!                              a file; its contents are the lines below, indented by four, or
//!                              N bytes of digits
//! link PATH TARGET             a symbolic link
//! folder PATH [mode=OCTAL]     an empty folder
//! exchange TITLE               one connection, with these steps, indented by two:
//!   get TARGET                 a request for HTTP/1.1 with `Host: localhost`
//!   head TARGET, ask METHOD TARGET
//!   + NAME: VALUE              one more header (a Host replaces the first)
//!   body TEXT                  its body, with a Content-Length unless a framing header is there
//!   > TEXT                     raw bytes and CRLF
//!   >- TEXT                    raw bytes without CRLF
//!   tls NAME|- [client=WHO] [version=1.2]
//!                              the connection speaks TLS 1.3, asks for NAME (SNI) and has the
//!                              certificate of WHO
//!   read                       wait for one response before the next step
//!   send                       send everything up to here in a segment of its own
//!   close                      end the sending direction
//!   write PATH TEXT            replace a file
//!   remove PATH
//!   filled FOLDER N            wait until Evenkeel has stored N responses in FOLDER
//!   responses N                how many to wait for, if it is not one for each request line
//!   = STATUS...                the statuses of the oracle, 000 for no answer
//!   ~ TEXT                     the oracle's answer contains this
//!   differs REASON             the oracle is wrong, or Evenkeel differs by design; then:
//!   ours [#N] status CODE REASON
//!   ours [#N] header NAME: VALUE
//!   ours [#N] without NAME
//!   ours [#N] body TEXT
//!   ours [#N] drop             Evenkeel does not send it; later numbers count without it
//!   ours only N                Evenkeel sends no more than N responses
//! ```
//!
//! `@ROOT@` and `@PORT@` stand for the scratch folder and the port. In TEXT there may be
//! `\r \n \t \0 \\ \xHH` and `@{N*TEXT}` for TEXT N times. Paths are relative to the scratch
//! folder; `htdocs` is the document root and `logs` exists.

use crate::tls::Tls;

/// One wire script.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The name of the file, without folder and extension.
    pub name: String,
    /// What the script shows, in one sentence.
    pub what: String,
    /// The process model of both servers.
    pub model: &'static str,
    /// The modules in addition to those of every script, such as `alias` for alias_module.
    pub modules: Vec<String>,
    /// The names of headers that are not compared.
    pub ignored: Vec<String>,
    /// The paths of files that must be equal at the end.
    pub compared: Vec<String>,
    /// Whether the configuration and the files are written in ISO-8859-1.
    pub latin1: bool,
    /// Whether there are certificates in the folder `tls`.
    pub tls: bool,
    /// The text after the base configuration.
    pub config: String,
    /// The entries that are created in the scratch folder before a server starts.
    pub files: Vec<File>,
    /// The exchanges with each server, in order.
    pub exchanges: Vec<Exchange>,
}

impl Script {
    /// The bytes of a text in the script's encoding.
    pub fn encode(&self, text: &str) -> Vec<u8> {
        match self.latin1 {
            true => text.chars().map(|char| u8::try_from(char).unwrap_or(b'?')).collect(),
            false => text.as_bytes().to_vec(),
        }
    }
}

/// One entry in the scratch folder.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// The path relative to the scratch folder.
    pub path: String,
    /// The kind.
    pub kind: Kind,
    /// The modification time in seconds since 1970, for contents only.
    pub mtime_seconds: u64,
    /// The permission bits, if they are not the default.
    pub mode: Option<u32>,
}

/// The kind of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with this text, whose placeholders are still to be replaced.
    Contents(String),
    /// A symbolic link to this target.
    Link(String),
    /// An empty folder.
    Folder,
}

/// One connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// What it shows.
    pub title: String,
    /// The number of its line in the script.
    pub line: usize,
    /// How the connection speaks TLS, if it does.
    pub tls: Option<Tls>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The number of responses to wait for, if it is given.
    pub responses: Option<usize>,
    /// The statuses of the oracle.
    pub statuses: Vec<u16>,
    /// Texts that the oracle's answer contains.
    pub contains: Vec<String>,
    /// Why the two servers differ, if they may.
    pub differs: Option<String>,
    /// Evenkeel's departures from the oracle's answer.
    pub ours: Vec<Change>,
}

/// One step on a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole request, built from its parts.
    Request(Request),
    /// These bytes.
    Raw(Vec<u8>),
    /// Waits for one response.
    Read,
    /// Sends what was written so far in a segment of its own.
    Send,
    /// Ends the sending direction.
    Close,
    /// Replaces the contents of a file.
    Write(String, Vec<u8>),
    /// Removes a file.
    Remove(String),
    /// Waits until so many responses are stored in a folder.
    Filled(String, usize),
}

/// The parts of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The target as it is sent.
    pub target: String,
    /// The header lines as they are sent, without their ends.
    pub headers: Vec<String>,
    /// The body.
    pub body: Option<Vec<u8>>,
}

/// One departure of Evenkeel's answer from the oracle's.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// The number of the response, from 1; the last one if it is not given.
    pub response: Option<usize>,
    /// The difference.
    pub what: Departure,
}

/// A difference in Evenkeel's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Departure {
    /// Status code and reason phrase.
    Status(String),
    /// This header, in place of all with that name.
    Header(String, String),
    /// A header that Evenkeel does not send.
    Without(String),
    /// The body.
    Body(Vec<u8>),
    /// A response that Evenkeel does not send.
    Drop,
    /// The number of responses.
    Only(usize),
}

/// The default modification time: 1 January 2020, 00:00:00 GMT.
const USUAL_TIME_SECONDS: u64 = 1_577_836_800;

/// Parses a script. The error names the line.
pub fn parse(name: &str, text: &str) -> Result<Script, String> {
    let mut script = Script { name: name.to_owned(), model: "event", ..Script::default() };
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let mut block = String::new();
        let takes_block = line == "config" || line.starts_with("file ");
        while takes_block && let Some((_, text)) = lines.peek() {
            let Some(inner) = text.strip_prefix("    ").or(text.is_empty().then_some("")) else {
                break;
            };
            block.push_str(inner);
            block.push('\n');
            lines.next();
        }
        // Empty lines between a block and the next statement do not belong to the block.
        let block = block.trim_end_matches('\n').to_owned() + "\n";
        let done = match line.strip_prefix("  ") {
            Some(step) => match script.exchanges.last_mut() {
                Some(exchange) => parse_step(exchange, step),
                None => Err("a step outside an exchange".to_owned()),
            },
            None => parse_statement(&mut script, line, block, number),
        };
        done.map_err(|reason| format!("{name}.wire:{number}: {reason}: {line}"))?;
    }
    match script.exchanges.iter().find(|exchange| exchange.statuses.is_empty()) {
        Some(exchange) => Err(format!("{name}.wire:{}: no status is expected", exchange.line)),
        None => Ok(script),
    }
}

fn parse_statement(
    script: &mut Script,
    line: &str,
    block: String,
    number: usize,
) -> Result<(), String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    match verb {
        "what" => script.what = rest.to_owned(),
        "modules" => script.modules.extend(rest.split_whitespace().map(str::to_owned)),
        "ignore" => script.ignored.push(rest.to_owned()),
        "compare" => script.compared.push(rest.to_owned()),
        "latin1" => script.latin1 = true,
        "tls" => script.tls = true,
        "config" => script.config.push_str(&block),
        "file" => script.files.push(parse_file(rest, block)?),
        "folder" => {
            let folder = parse_file(rest, String::new())?;
            script.files.push(File { kind: Kind::Folder, ..folder });
        }
        "link" => {
            let (path, target) = rest.split_once(' ').ok_or("a link needs a target")?;
            script.files.push(entry(path, Kind::Link(target.to_owned())));
        }
        "exchange" => script.exchanges.push(Exchange {
            title: rest.to_owned(),
            line: number,
            ..Exchange::default()
        }),
        _ => return Err("unknown statement".to_owned()),
    }
    Ok(())
}

fn entry(path: &str, kind: Kind) -> File {
    File { path: path.to_owned(), kind, mtime_seconds: USUAL_TIME_SECONDS, mode: None }
}

fn parse_file(rest: &str, block: String) -> Result<File, String> {
    // A path may contain spaces; the first word that is an option ends it.
    let is_option =
        |word: &&str| ["mtime=", "mode=", "bytes="].iter().any(|it| word.starts_with(it));
    let words: Vec<&str> = rest.split(' ').collect();
    let path: Vec<&str> = words.iter().take_while(|word| !is_option(word)).copied().collect();
    let mut file = entry(&path.join(" "), Kind::Folder);
    let mut contents = if block == "\n" { String::new() } else { block };
    for word in words.iter().skip(path.len()) {
        let (key, value) = word.split_once('=').ok_or("an option is NAME=VALUE")?;
        let bad = |_| format!("bad number in {word}");
        match key {
            "mtime" => file.mtime_seconds = value.parse().map_err(bad)?,
            "mode" => file.mode = Some(u32::from_str_radix(value, 8).map_err(bad)?),
            _ => contents = digits(value.parse().map_err(bad)?),
        }
    }
    file.kind = Kind::Contents(contents);
    Ok(file)
}

fn digits(count: usize) -> String {
    "0123456789".chars().cycle().take(count).collect()
}

fn parse_step(exchange: &mut Exchange, line: &str) -> Result<(), String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    match verb {
        "get" => request(exchange, "GET", rest),
        "head" => request(exchange, "HEAD", rest),
        "ask" => {
            let (method, target) =
                rest.split_once(' ').ok_or("a method and a target are needed")?;
            request(exchange, method, target);
        }
        "+" => last_request(exchange)?
            .headers
            .push(String::from_utf8_lossy(&unescape(rest)?).into_owned()),
        "body" => last_request(exchange)?.body = Some(unescape(rest)?),
        ">" => exchange.steps.push(Step::Raw([unescape(rest)?, b"\r\n".to_vec()].concat())),
        ">-" => exchange.steps.push(Step::Raw(unescape(rest)?)),
        "tls" => exchange.tls = Some(Tls::parse(rest)?),
        "read" => exchange.steps.push(Step::Read),
        "send" => exchange.steps.push(Step::Send),
        "close" => exchange.steps.push(Step::Close),
        "write" => {
            let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
            exchange.steps.push(Step::Write(path.to_owned(), unescape(text)?));
        }
        "remove" => exchange.steps.push(Step::Remove(rest.to_owned())),
        "filled" => {
            let (path, count) = rest.split_once(' ').ok_or("a folder and a number are needed")?;
            let count = count.parse().map_err(|_| "a number is needed")?;
            exchange.steps.push(Step::Filled(path.to_owned(), count));
        }
        "responses" => exchange.responses = Some(rest.parse().map_err(|_| "a number is needed")?),
        "=" => {
            let codes = rest.split_whitespace().map(str::parse);
            exchange.statuses =
                codes.collect::<Result<_, _>>().map_err(|_| "statuses are numbers")?;
        }
        "~" => exchange.contains.push(rest.to_owned()),
        "differs" => exchange.differs = Some(rest.to_owned()),
        "ours" if exchange.differs.is_none() => {
            return Err("'ours' needs a reason: a line 'differs' before it".to_owned());
        }
        "ours" => exchange.ours.push(parse_change(rest)?),
        _ => return Err("unknown step".to_owned()),
    }
    Ok(())
}

fn request(exchange: &mut Exchange, method: &str, target: &str) {
    exchange.steps.push(Step::Request(Request {
        method: method.to_owned(),
        target: target.to_owned(),
        ..Request::default()
    }));
}

fn last_request(exchange: &mut Exchange) -> Result<&mut Request, String> {
    match exchange.steps.last_mut() {
        Some(Step::Request(request)) => Ok(request),
        _ => Err("there is no request to add this to".to_owned()),
    }
}

fn parse_change(rest: &str) -> Result<Change, String> {
    let (response, rest) = match rest.strip_prefix('#').and_then(|rest| rest.split_once(' ')) {
        Some((number, rest)) => (Some(number.parse().map_err(|_| "a number follows #")?), rest),
        None => (None, rest),
    };
    let (verb, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let what = match verb {
        "status" => Departure::Status(rest.to_owned()),
        "header" => {
            let (name, value) = rest.split_once(": ").ok_or("a header is NAME: VALUE")?;
            Departure::Header(name.to_owned(), value.to_owned())
        }
        "without" => Departure::Without(rest.to_owned()),
        "body" => Departure::Body(unescape(rest)?),
        "drop" => Departure::Drop,
        "only" => Departure::Only(rest.parse().map_err(|_| "a number is needed")?),
        _ => return Err("unknown departure".to_owned()),
    };
    Ok(Change { response, what })
}

/// The bytes for an escaped text; `@{N*TEXT}` is TEXT N times.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(inner) = rest.strip_prefix("@{") {
            let (inner, after) = inner.split_once('}').ok_or("@{ without }")?;
            let (count, piece) = inner.split_once('*').ok_or("@{N*TEXT} is the form")?;
            let count = count.parse().map_err(|_| "bad number after @{")?;
            bytes.extend(unescape(piece)?.repeat(count));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('\\') {
            let mark = after.chars().next().ok_or("a backslash at the end")?;
            let simple = match mark {
                'r' => Some(b'\r'),
                'n' => Some(b'\n'),
                't' => Some(b'\t'),
                '0' => Some(0),
                '\\' => Some(b'\\'),
                _ => None,
            };
            let hex = || after.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
            let (byte, length) = match simple {
                Some(byte) => (byte, 1),
                None if mark == 'x' => (hex().ok_or("two digits follow \\x")?, 3),
                None => return Err(format!("unknown escape \\{mark}")),
            };
            bytes.push(byte);
            rest = after.get(length..).unwrap_or_default();
        } else {
            let mut buffer = [0; 4];
            bytes.extend_from_slice(first.encode_utf8(&mut buffer).as_bytes());
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_read_whole() {
        let text = "# About.\nwhat It serves.\nmodules actions\n\
            config\n    Alias /a /b\n\n    X y\n\n\
            file htdocs/a.txt mtime=5 mode=600\n    one\n\nexchange first\n  get /a.txt\n\
            \x20 + Range: bytes=0-1\n  = 206\n  differs why\n  ours #1 status 200 OK\n";
        let script = parse("a00", text).unwrap();
        assert_eq!(script.what, "It serves.");
        assert_eq!(script.config, "Alias /a /b\n\nX y\n");
        assert_eq!(script.files[0].kind, Kind::Contents("one\n".into()));
        assert_eq!((script.files[0].mtime_seconds, script.files[0].mode), (5, Some(0o600)));
        let exchange = &script.exchanges[0];
        assert_eq!(exchange.statuses, [206]);
        assert_eq!(
            exchange.ours,
            [Change { response: Some(1), what: Departure::Status("200 OK".into()) }]
        );
        let Step::Request(request) = &exchange.steps[0] else { panic!("a request") };
        assert_eq!(request.headers, ["Range: bytes=0-1"]);
    }

    #[test]
    fn faults_name_their_line() {
        let fault = parse("a", "what x\nbogus\n").unwrap_err();
        assert!(fault.starts_with("a.wire:2: unknown statement"));
        assert!(parse("a", "exchange x\n  get /\n").unwrap_err().contains("no status is expected"));
        assert!(parse("a", "  get /\n").unwrap_err().contains("outside an exchange"));
        assert!(parse("a", "exchange x\n  + A: b\n").unwrap_err().contains("no request"));
        let unexplained = "exchange x\n  get /\n  = 200\n  ours only 0\n";
        assert!(parse("a", unexplained).unwrap_err().contains("needs a reason"));
    }

    #[test]
    fn texts_are_unescaped() {
        assert_eq!(unescape(r"a\r\n\x00\\@{3*b}é").unwrap(), b"a\r\n\0\\bbb\xc3\xa9");
        assert!(unescape(r"\q").is_err());
        assert!(unescape("@{3}").is_err());
    }
}
