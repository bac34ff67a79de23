//! A visitor of a site: an HTTP client (curl) with a cookie jar. Also compares the responses of two
//! servers to such visitors. Nonces, times and generated keys differ between runs and are not
//! compared.

use crate::answer::latin1;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs};

/// The timeout of a request, in seconds: longer than the slowest page takes on a busy machine.
const SECONDS: &str = "120";

/// A visitor, with a folder for its cookie jar.
#[derive(Debug)]
pub struct Visitor {
    /// The scheme, host and port of the site.
    pub origin: String,
    folder: PathBuf,
}

/// A request and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The request: the arguments of curl and the target.
    pub asked: String,
    /// The status.
    pub status: u16,
    /// The header fields of the final response, in the order in which they were sent.
    pub headers: Vec<(String, String)>,
    /// The body, without its content coding.
    pub body: Vec<u8>,
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: String = self.text().chars().take(2_000).collect();
        write!(f, "{}: {} {:?}\n{short}", self.asked, self.status, self.headers)
    }
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The part of the body between the first `before` and the next `after`.
    pub fn between(&self, before: &str, after: &str) -> Result<String, String> {
        let text = self.text();
        let found = text.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        let (found, _) = found.ok_or_else(|| {
            format!("{}: {} without '{before}':\n{text}", self.asked, self.status)
        })?;
        Ok(found.to_owned())
    }

    /// The value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        let is_it = |field: &&(String, String)| field.0.eq_ignore_ascii_case(name);
        self.headers.iter().find(is_it).map(|(_, value)| value.as_str())
    }
}

impl Visitor {
    /// Creates a visitor of the server on this port. `folder` is emptied for its cookie jar.
    pub fn new(port: u16, folder: &Path) -> Result<Visitor, String> {
        let origin = format!("http://127.0.0.1:{port}");
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Visitor { origin, folder: folder.to_owned() })
    }

    /// A visitor of the server's TLS host, who trusts every certificate.
    pub fn secure(https_port: u16, folder: &Path) -> Result<Visitor, String> {
        let origin = format!("https://127.0.0.1:{https_port}");
        Ok(Visitor { origin, ..Self::new(https_port, folder)? })
    }

    /// Sends one request. `more` are further arguments of curl.
    pub fn ask(&self, target: &str, more: &[&str]) -> Result<Reply, String> {
        let file = |name: &str| self.folder.join(name);
        let mut curl = Command::new("curl");
        curl.args(["-q", "-s", "-S", "-g", "--path-as-is", "--compressed", "-m", SECONDS]);
        curl.args([
            "--noproxy",
            "*",
            "-k",
            "-A",
            "Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko",
        ]);
        curl.arg("-b").arg(file("cookies")).arg("-c").arg(file("cookies"));
        curl.arg("-D").arg(file("head")).arg("-o").arg(file("body")).args(more);
        curl.arg(format!("{}{target}", self.origin)).stdin(Stdio::null());
        let _ = fs::remove_file(file("body"));
        let asked = format!("{} {}", more.join(" "), target).trim().to_owned();
        let output = curl.output().map_err(|error| format!("curl: {error}"))?;
        if !output.status.success() {
            return Err(format!("{asked}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let head = fs::read(file("head")).map_err(|error| format!("{asked}: {error}"))?;
        // curl writes no file if the response has no body.
        let body = fs::read(file("body")).unwrap_or_default();
        let (status, headers) = last_head(&latin1(&head)).ok_or(format!("{asked}: no head"))?;
        Ok(Reply { asked, status, headers, body })
    }
}

/// The status and the header fields of the final response. Interim responses may precede it.
fn last_head(text: &str) -> Option<(u16, Vec<(String, String)>)> {
    let head = text.trim_end().rsplit("\r\n\r\n").next()?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    Some((status, lines.filter_map(field).collect()))
}

/// Describes the differences of two visits. The list is empty if the visits are equal.
pub fn differences(oracle: &[Reply], other: &[Reply]) -> Vec<String> {
    let mut found = Vec::new();
    if oracle.len() != other.len() {
        found.push(format!("{} replies and {}", oracle.len(), other.len()));
    }
    for (oracle, other) in oracle.iter().zip(other) {
        let mut note = |what: String| found.push(format!("{}: {what}", oracle.asked));
        if oracle.status != other.status {
            note(format!("status {} and {}", oracle.status, other.status));
        }
        let (a, b) = (fields(oracle), fields(other));
        let missing = |from: &[String], of: &[String]| -> Vec<String> {
            from.iter().filter(|field| !of.contains(field)).cloned().collect()
        };
        let (a_only, b_only) = (missing(&a, &b), missing(&b, &a));
        if !a_only.is_empty() || !b_only.is_empty() {
            note(format!("headers {a_only:?} and {b_only:?}"));
        }
        if oracle.body != other.body {
            let (a, b) = (settled(&latin1(&oracle.body)), settled(&latin1(&other.body)));
            if a != b {
                note(first_difference(&a, &b));
            }
        }
    }
    found
}

fn first_difference(oracle: &str, other: &str) -> String {
    let (mut a, mut b) = (oracle.lines(), other.lines());
    loop {
        match (a.next(), b.next()) {
            (Some(x), Some(y)) if x == y => {}
            (None, None) => return "bodies differ in their line ends".to_owned(),
            (x, y) => {
                let (a, b) = (x.unwrap_or_default(), y.unwrap_or_default());
                let alike = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
                // A line may have many thousand characters.
                let short = |line: Option<&str>| -> String {
                    let part = |it: &str| it.chars().skip(alike.max(200) - 200).take(500).collect();
                    line.map_or("(nothing)".to_owned(), part)
                };
                return format!(
                    "bodies of {} and {} bytes:\n  {}\n  {}",
                    oracle.len(),
                    other.len(),
                    short(x),
                    short(y)
                );
            }
        }
    }
}

/// The header fields that are compared, sorted. Of ETag and Last-Modified only the presence is
/// compared: the wire tests compare their values, and the order of the fields.
fn fields(reply: &Reply) -> Vec<String> {
    let mut fields: Vec<String> = reply
        .headers
        .iter()
        // Whether the length is known depends on compression and on the speed of the script.
        .filter(|(name, _)| {
            !matches!(name.as_str(), "Date" | "Content-Length" | "Transfer-Encoding")
        })
        .map(|(name, value)| match name.as_str() {
            "ETag" | "Last-Modified" => name.clone(),
            _ => format!("{name}: {}", settled(value)),
        })
        .collect();
    fields.sort();
    fields
}

/// Replaces the parts that differ between two runs of the same site with `#`: timestamps, nonces
/// and hashes (10, 13, 14, 24, 26, 32, 40, 43 or 64 letters and digits), times of day, suggested
/// passwords, login cookies, random numbers of forms, how long the application took, and the
/// version of the server.
pub fn settled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let taken = match before {
            _ if before.is_ascii_digit() => 0,
            _ => clock(rest),
        };
        let taken = if taken == 0 && !before.is_ascii_alphanumeric() { key(rest) } else { taken };
        let passed = if taken == 0 { next.len_utf8() } else { taken };
        match taken {
            0 => out.push(next),
            _ => out.push('#'),
        }
        let (head, tail) = rest.split_at(passed);
        before = head.chars().next_back().unwrap_or(' ');
        rest = tail;
    }
    // The hour, minute and second of a post in WordPress's forms.
    let out = ["hh", "mn", "ss"].iter().fold(out, |out, part| {
        let out = without(&out, &format!("<div class=\"{part}\">"), '<');
        let out = without(&out, &format!("_{part}\" value=\""), '"');
        without(&out, &format!("name=\"{part}\" value=\""), '"')
    });
    let out = without(&out, "data-pw=\"", '"');
    let out = without(&out, "Apache/2.4.", ')');
    let cookies =
        ["wordpress_#=", "wordpress_sec_#=", "wordpress_logged_in_#=", "pmaAuth-1=", "pmaUser-1="];
    let out = cookies.iter().fold(out, |out, start| without(&out, start, ';'));
    let out = without(&out, "Query took ", ' ');
    // The numbers of phpMyAdmin's forms.
    let names = ["display_binary_", "display_blob_", "hide_transformation_", "resultsForm_"];
    let names = names.into_iter().chain(["showAll_", "RadioP", "RadioF", "RadioK", "RadioD"]);
    let names = names.chain(["RadioGeom", "RadioWkt", "RadioWkb", "data-for=\""]);
    let out = names.fold(out, |out, start| without(&out, start, '"'));
    let out = without(&out, "data-uniqueId=\"", '"');
    let out = without(&out, "CPU time usage: ", ' ');
    let out = without(&out, "Real time usage: ", ' ');
    let out = without(&out, "calls,template)\n", '-');
    let out = without(&out, "\"wgBackendResponseTime\":", '}');
    let out = without(&out, "fromFormatted=", '&');
    let out = without(&out, "\"cputime\":\"", '"');
    let out = without(&out, "\"walltime\":\"", '"');
    without(&out, "\"timingprofile\":[", ']')
}

/// The length of a time of day at the start of the text. Returns 0 if there is none.
fn clock(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).take(3).count()
    };
    let hour = digits(0);
    if !(1..=2).contains(&hour) || bytes.get(hour) != Some(&b':') || digits(hour + 1) != 2 {
        return 0;
    }
    let minute = hour + 3;
    match bytes.get(minute) == Some(&b':') && digits(minute + 1) == 2 {
        true => minute + 3,
        false => minute,
    }
}

/// The length of a nonce, hash or timestamp at the start of the text. Returns 0 if there is none.
fn key(text: &str) -> usize {
    let run = text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let is_hex = text.bytes().take(run).all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let has_digit = text.bytes().take(run).any(|byte| byte.is_ascii_digit());
    let is_key = match run {
        10 | 13 | 24 | 40 | 64 => is_hex,
        14 => text.bytes().take(run).all(|byte| byte.is_ascii_digit()),
        // The identifiers of PHP's sessions and of MediaWiki's.
        26 | 32 => {
            has_digit
                && text.bytes().take(run).all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'v'))
        }
        43 => has_digit,
        _ => false,
    };
    if is_key { run } else { 0 }
}

/// Replaces the text between each `start` and the next `end` with `#`.
fn without(text: &str, start: &str, end: char) -> String {
    let mut parts = text.split(start);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find(end).and_then(|at| part.get(at..)).unwrap_or_default();
        out.push_str(start);
        out.push('#');
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_runs_is_settled_and_nothing_else_is() {
        let cases = [
            ("_wpnonce=a1b2c3d4e5&x=1", "_wpnonce=#&x=1"),
            ("at 2026-11-25T17:40:15+00:00", "at 2026-11-25T#+#"),
            ("on November 25 at 5:40 pm", "on November 25 at # pm"),
            ("decorated and 12:345", "decorated and 12:345"),
            ("ver=6.1.9 id=1764092415", "ver=6.1.9 id=#"),
            ("name=\"ss\" value=\"05\" />", "name=\"ss\" value=\"#\" />"),
            ("<div class=\"mn\">12</div>", "<div class=\"mn\">#</div>"),
            ("id=m0ck26fk1ov23n9d1hcn3dqp2e 20261128130758", "id=# #"),
            ("Query took 0.0624 seconds", "Query took # seconds"),
            ("data-pw=\"x!y\" value", "data-pw=\"#\" value"),
        ];
        for (text, wanted) in cases {
            assert_eq!(settled(text), wanted);
        }
    }

    #[test]
    fn each_difference_is_found() {
        let reply = |status, value: &str, body: &str| Reply {
            asked: "/".to_owned(),
            status,
            headers: vec![("X".to_owned(), value.to_owned())],
            body: body.as_bytes().to_vec(),
        };
        let oracle = [reply(200, "a", "one\ntwo")];
        assert!(differences(&oracle, &oracle).is_empty());
        for other in
            [reply(404, "a", "one\ntwo"), reply(200, "b", "one\ntwo"), reply(200, "a", "one")]
        {
            assert_eq!(differences(&oracle, &[other]).len(), 1);
        }
        assert_eq!(differences(&oracle, &[]).len(), 1);
    }
}
