//! Replays the table that `oracle/generate.py` made with Debian's apache2: every expression must be
//! refused with the same words, or give the same answer for the same request. The test does not
//! need apache2.

#![expect(clippy::unwrap_used, reason = "a scratch folder that fails is a failed test")]

use evenkeel_expr::{Author, Condition, Context, Text, Variable};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The request, the environment and the files of `generate.py`.
struct Exchange {
    root: tempfile::TempDir,
}

impl Exchange {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let www = root.path().join("www");
        std::fs::create_dir(&www).unwrap();
        std::fs::write(www.join("page.html"), "hello\n").unwrap();
        std::fs::write(www.join("empty"), "").unwrap();
        std::os::unix::fs::symlink("page.html", www.join("link")).unwrap();
        Self { root }
    }

    fn path(&self, below: &str) -> Cow<'_, [u8]> {
        let path: PathBuf = self.root.path().join(below);
        Cow::Owned(path.as_os_str().as_bytes().to_vec())
    }
}

const HEADERS: &[(&str, &str)] = &[
    ("Host", "Site.test"),
    ("User-Agent", "Lab/1.0 (Linux; rv:5)"),
    ("Accept", "text/html"),
    ("Referer", "http://other.test/from"),
    ("Cookie", "session=abc"),
    ("X-List", "b"),
    ("X-Num", "42"),
    ("X-Empty", ""),
    ("X-Long", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"),
    ("Connection", "close"),
];

fn find(table: &[(&str, &'static str)], name: &[u8]) -> Option<Cow<'static, [u8]>> {
    let row = table.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
    row.map(|(_, value)| Cow::Borrowed(value.as_bytes()))
}

impl Context for Exchange {
    fn variable(&self, variable: Variable) -> Cow<'_, [u8]> {
        let value = match variable {
            Variable::RequestFilename | Variable::ScriptFilename => {
                return self.path("www/page.html");
            }
            Variable::DocumentRoot | Variable::ContextDocumentRoot => return self.path("www"),
            Variable::RequestMethod => "GET",
            Variable::RequestScheme => "http",
            Variable::RequestUri | Variable::DocumentUri => "/page.html/extra",
            Variable::PathInfo => "/extra",
            Variable::QueryString => "name=value&x=1",
            Variable::IsSubreq => "false",
            Variable::TheRequest => "GET /page.html/extra?name=value&x=1 HTTP/1.1",
            Variable::RemoteAddr | Variable::RemoteHost | Variable::ConnRemoteAddr => "127.0.0.1",
            Variable::ServerName => "site.test",
            Variable::ServerPort => "80",
            Variable::ServerAdmin => "admin@site.test",
            Variable::ServerProtocol => "HTTP/1.1",
            Variable::ContentType | Variable::Handler => "text/html",
            Variable::Http2 | Variable::Https | Variable::Ipv6 => "off",
            Variable::RequestStatus => "200",
            Variable::ApiVersion => "20120211",
            Variable::TimeYear => "2026",
            Variable::TimeWday => "6",
            Variable::Time => "20261121013000",
            _ => "",
        };
        Cow::Borrowed(value.as_bytes())
    }

    fn request_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        find(HEADERS, name)
    }

    fn response_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        find(&[("X-Reply", "shown")], name)
    }

    fn request_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        find(&[("COLOUR", "blue"), ("EMPTY", "")], name)
    }

    fn note(&self, _name: &[u8]) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn process_environment(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        find(&[("LAB_OS", "sea")], name)
    }

    fn client_address(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn file_allowed(&self, _path: &[u8]) -> Option<bool> {
        Some(false)
    }

    fn url_allowed(&self, _url: &[u8]) -> Option<bool> {
        Some(true)
    }
}

/// The answer to the expression for the request, in the form of the table.
fn answer(kind: &str, expression: &str, exchange: &Exchange) -> String {
    if kind == "if" {
        return match Condition::compile(expression, Author::Server) {
            Err(error) => format!("refused: {error}"),
            // Apache logs an evaluation that fails and treats it as false.
            Ok(condition) => condition.holds(exchange).unwrap_or(false).to_string(),
        };
    }
    match Text::compile(expression, Author::Server) {
        Err(error) => format!("refused: {error}"),
        Ok(text) => {
            // Likewise, a header without a value is not set.
            let value = text.value(exchange).unwrap_or_default();
            let root = exchange.root.path().to_str().unwrap();
            // A header's value has no white space at its ends.
            let shown = value.trim_ascii().iter().map(|byte| match byte {
                b'\\' | 0..32 | 127.. => format!("\\x{byte:02x}"),
                plain => char::from(*plain).to_string(),
            });
            format!("= {}", shown.collect::<String>().replace(root, "ROOT"))
        }
    }
}

#[test]
fn expressions_answer_as_apache_does() {
    let exchange = Exchange::new();
    let table = include_str!("oracle/cases.tsv");
    let mut count = 0;
    let mut differences = Vec::new();
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let [kind, expression, expected] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {row}");
        };
        count += 1;
        let given = answer(kind, expression, &exchange);
        if given != expected {
            differences.push(format!("{kind} {expression}\n  Apache {expected}\n  here   {given}"));
        }
    }
    assert!(count >= 80, "only {count} rows");
    assert!(
        differences.is_empty(),
        "{} of {count}:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
