//! Compares the responses of the oracle and of the other server, and returns the differences in
//! words. The date, the server's name and a random boundary do not count as differences. Compressed
//! bodies are compared after decompression.

use crate::answer::{Answer, Response, latin1};
use crate::digest::without_nonces;
use crate::script::{Change, Departure};
use std::io::Read;

/// The word that permits the oracle to send chunks where the other server sends a Content-Length.
const CHUNKS: &str = "chunks";

/// How much of a text is shown in a message.
const SHOWN: usize = 400;

/// The differences between two answers to the same exchange; empty if they are equal. Headers in
/// `ignored` are not compared.
pub fn compare(oracle: &Answer, other: &Answer, ignored: &[String]) -> Vec<String> {
    let mut differences = Vec::new();
    let (a, b) = (oracle.responses.len(), other.responses.len());
    if a != b {
        let statuses = |answer: &Answer| {
            let codes = answer.responses.iter().map(|it| it.status().to_string());
            codes.collect::<Vec<_>>().join(" ")
        };
        differences.push(format!(
            "{a} responses ({}) expected, {b} came ({})",
            statuses(oracle),
            statuses(other)
        ));
    }
    for (index, (a, b)) in oracle.responses.iter().zip(&other.responses).enumerate() {
        let mut found = compare_responses(a, b, ignored);
        if oracle.responses.len() > 1 {
            for line in &mut found {
                *line = format!("response {}: {line}", index + 1);
            }
        }
        differences.extend(found);
    }
    if oracle.rest != other.rest {
        let (a, b) = (shown(&oracle.rest), shown(&other.rest));
        differences.push(format!("left over: {a} expected, {b} came"));
    }
    if oracle.fault != other.fault {
        differences.push(format!("fault: {:?} expected, {:?} came", oracle.fault, other.fault));
    }
    differences
}

fn compare_responses(oracle: &Response, other: &Response, ignored: &[String]) -> Vec<String> {
    let (mut oracle, other) = (normalise(oracle), normalise(other));
    let mut differences = Vec::new();
    if ignored.iter().any(|ignored| ignored == CHUNKS) {
        state_length(&mut oracle, &other);
    }
    if oracle.status_line != other.status_line {
        let (a, b) = (&oracle.status_line, &other.status_line);
        differences.push(format!("status: {a:?} expected, {b:?} came"));
    }
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in oracle.headers.iter().chain(&other.headers) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let of = |response: &Response| -> Vec<String> {
            let same = response.headers.iter().filter(|(other, _)| other == name);
            same.map(|(_, value)| value.clone()).collect()
        };
        let (a, b) = (of(&oracle), of(&other));
        if a != b && !ignored.iter().any(|ignored| ignored.eq_ignore_ascii_case(name)) {
            differences.push(format!("{name}: {a:?} expected, {b:?} came"));
        }
    }
    if oracle.body != other.body {
        let (a, b) = (&oracle.body, &other.body);
        let at = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        differences.push(format!(
            "body ({} bytes expected, {} came, equal up to {at}):\n  expected {}\n  came     {}",
            a.len(),
            b.len(),
            shown(a),
            shown(b)
        ));
    }
    differences
}

/// Gives the oracle's response the Content-Length of the other one in place of chunks, or of the
/// end of the connection.
fn state_length(oracle: &mut Response, other: &Response) {
    let is_chunked = oracle.header("Content-Length").is_none();
    let has_length = other.header("Transfer-Encoding").is_none();
    let length = other.header("Content-Length").filter(|_| is_chunked && has_length);
    let Some(length) = length.map(str::to_owned) else { return };
    oracle.headers.retain(|(name, _)| name != "Transfer-Encoding");
    oracle.headers.push(("Content-Length".into(), length));
}

/// The response without what may differ between runs.
pub fn normalise(response: &Response) -> Response {
    let boundary = response
        .header("Content-Type")
        .and_then(|value| value.strip_prefix("multipart/byteranges; boundary="))
        .map(str::to_owned);
    let clean = |text: &str| {
        let text = match &boundary {
            Some(boundary) => text.replace(boundary, "BOUNDARY"),
            None => text.to_owned(),
        };
        clean_name(&text)
    };
    let unpacked = unpack(response);
    let is_packed = coding(response).is_some();
    let own_body = unpacked.as_ref().unwrap_or(&response.body);
    let body = latin1(own_body);
    let cleaned = clean(&body);
    let body_length = response.body.len().to_string();
    // Servers compress differently, and decide at different times when the length is known.
    let is_framing = |name: &str| matches!(name, "Content-Length" | "Transfer-Encoding");
    let is_compared = |name: &str| name != "Date" && !(is_packed && is_framing(name));
    let fields = response.headers.iter().filter(|(name, _)| is_compared(name));
    // Apache lists the methods in the order of a hash table, whose seed differs in each process.
    let multipart = boundary.is_some();
    let value = |name: &str, value: &str| match name {
        "Allow" => sorted(value),
        "WWW-Authenticate" | "Authentication-Info" => without_nonces(value),
        // What expires at once does so in the second of the response.
        "Expires" if response.header("Date") == Some(value) => "the Date".to_owned(),
        // The length of a boundary is random too; the body is compared with one of equal length.
        "Content-Length" if multipart && value == body_length => cleaned.len().to_string(),
        _ => clean(value),
    };
    Response {
        status_line: response.status_line.clone(),
        headers: fields.map(|(name, text)| (name.clone(), value(name, text))).collect(),
        body: if cleaned == body { own_body.clone() } else { cleaned.into_bytes() },
    }
}

/// A content coding in which servers compress.
enum Coding {
    Gzip,
    Brotli,
}

fn coding(response: &Response) -> Option<Coding> {
    match response.header("Content-Encoding")?.to_ascii_lowercase().as_str() {
        "gzip" => Some(Coding::Gzip),
        "br" => Some(Coding::Brotli),
        _ => None,
    }
}

/// The decompressed body. `None` if it is not compressed, or damaged.
fn unpack(response: &Response) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    let mut packed = response.body.as_slice();
    let read = match coding(response)? {
        Coding::Gzip => flate2::read::GzDecoder::new(packed).read_to_end(&mut unpacked).map(drop),
        Coding::Brotli => brotli::BrotliDecompress(&mut packed, &mut unpacked),
    };
    read.is_ok().then_some(unpacked)
}

/// The parts of a list, sorted by their bytes.
fn sorted(value: &str) -> String {
    let mut parts: Vec<&str> = value.split(',').map(str::trim).collect();
    parts.sort_unstable();
    parts.join(",")
}

/// The text with the server's version and the name in brackets replaced, so that both are equal.
fn clean_name(text: &str) -> String {
    let mut cleaned = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("Apache/2.4.") {
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let after = ["(Debian)", "(Evenkeel)"]
            .iter()
            .find_map(|name| after.trim_start().strip_prefix(name))
            .unwrap_or(after);
        cleaned.push_str(before);
        cleaned.push_str("Apache/VERSION");
        rest = after;
    }
    cleaned + rest
}

/// The oracle's answer with Evenkeel's intended departures from it.
pub fn depart(oracle: &Answer, changes: &[Change]) -> Answer {
    let mut ours = oracle.clone();
    for change in changes {
        if let Departure::Only(count) = change.what {
            ours.responses.truncate(count);
            continue;
        }
        let index = change.response.unwrap_or(ours.responses.len()).saturating_sub(1);
        let Some(response) = ours.responses.get_mut(index) else { continue };
        match &change.what {
            Departure::Status(text) => response.status_line = format!("HTTP/1.1 {text}"),
            Departure::Header(name, value) => {
                response.headers.retain(|(other, _)| other != name);
                response.headers.push((name.clone(), value.clone()));
            }
            Departure::Without(name) => response.headers.retain(|(other, _)| other != name),
            Departure::Body(body) => response.body.clone_from(body),
            Departure::Drop => {
                ours.responses.remove(index);
            }
            Departure::Only(_) => {}
        }
    }
    ours
}

/// The bytes in readable form.
pub fn shown(bytes: &[u8]) -> String {
    let text = latin1(bytes);
    let short: String = text.chars().take(SHOWN).collect();
    let more = if short.len() < text.len() { " ..." } else { "" };
    format!("{short:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let response = Response {
            status_line: "HTTP/1.1 200 OK".into(),
            headers: headers.collect(),
            body: body.into(),
        };
        Answer { responses: vec![response], ..Answer::default() }
    }

    #[test]
    fn date_name_and_order_are_no_differences() {
        let a = answer(
            &[("Date", "1"), ("Server", "Apache/2.4.71 (Debian)"), ("A", "b")],
            "<address>Apache/2.4.71 (Debian) Server at a</address>",
        );
        let b = answer(
            &[("A", "b"), ("Server", "Apache/2.4.99 (Evenkeel)"), ("Date", "2")],
            "<address>Apache/2.4.99 (Evenkeel) Server at a</address>",
        );
        assert_eq!(compare(&a, &b, &[]), Vec::<String>::new());
    }

    #[test]
    fn methods_are_a_set() {
        let a = answer(&[("Allow", "GET,HEAD,POST")], "");
        assert_eq!(compare(&a, &answer(&[("Allow", "POST,GET,HEAD")], ""), &[]).len(), 0);
        assert_eq!(compare(&a, &answer(&[("Allow", "POST,GET")], ""), &[]).len(), 1);
    }

    #[test]
    fn each_altered_part_is_one_difference() {
        let a = answer(&[("A", "b"), ("C", "d")], "x");
        assert_eq!(compare(&a, &answer(&[("A", "c"), ("C", "d")], "x"), &[]).len(), 1);
        assert_eq!(compare(&a, &answer(&[("C", "d")], "x"), &[]).len(), 1);
        assert_eq!(compare(&a, &answer(&[("C", "d")], "x"), &["a".into()]).len(), 0);
        assert_eq!(compare(&a, &answer(&[("A", "b"), ("C", "d")], "y"), &[]).len(), 1);
        assert_eq!(compare(&a, &Answer::default(), &[]).len(), 1);
    }

    #[test]
    fn boundaries_are_random() {
        let range = |boundary: &str| {
            let content_type = format!("multipart/byteranges; boundary={boundary}");
            let length = (boundary.len() + 6).to_string();
            answer(
                &[("Content-Type", &content_type), ("Content-Length", &length)],
                &format!("\r\n--{boundary}\r\n"),
            )
        };
        assert_eq!(compare(&range("abc"), &range("vwxyz"), &[]), Vec::<String>::new());
    }

    #[test]
    fn compressed_bodies_are_compared_by_what_they_unpack_to() {
        use std::io::Write;
        let packed = |level: u32, text: &str| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
            encoder.write_all(text.as_bytes()).unwrap();
            let body = encoder.finish().unwrap();
            let length = body.len().to_string();
            let mut it = answer(&[("Content-Encoding", "gzip"), ("Content-Length", &length)], "");
            it.responses[0].body = body;
            it
        };
        let text = "abc".repeat(100);
        assert_ne!(packed(0, &text), packed(9, &text));
        assert_eq!(compare(&packed(0, &text), &packed(9, &text), &[]), Vec::<String>::new());
        assert_eq!(compare(&packed(9, "a"), &packed(9, "b"), &[]).len(), 1);
    }

    #[test]
    fn departures_change_the_expectation() {
        let status = Change { response: None, what: Departure::Status("400 Bad Request".into()) };
        let header = Change { response: Some(1), what: Departure::Header("A".into(), "z".into()) };
        let interim = Change { response: Some(1), what: Departure::Drop };
        let mut oracle = answer(&[("A", "b")], "x");
        oracle.responses.insert(0, Response::default());
        let ours = depart(&oracle, &[interim, status, header]);
        assert_eq!(ours.responses.len(), 1);
        assert_eq!(ours.responses[0].status(), 400);
        assert_eq!(ours.responses[0].header("A"), Some("z"));
    }
}
