//! Plays the steps of one exchange to a server and returns its answer. Files are changed when a
//! step says so. Every wait is bounded.

use crate::answer::{Answer, Parsed, Response, parse};
use crate::house::PATIENCE;
use crate::script::{Exchange, Request, Step, unescape};
use crate::tls::Stream;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Plays the exchange to the server on `port` of the loopback address.
pub fn talk(exchange: &Exchange, port: u16, root: &Path) -> Result<Answer, String> {
    let told = |error: std::io::Error| format!("connection: {error}");
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(told)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(told)?;
    stream.set_nodelay(true).map_err(told)?;
    let stream = match &exchange.tls {
        None => Stream::Plain(stream),
        Some(tls) => Stream::over(stream, tls, root)?,
    };
    let mut line = Line { stream, bytes: Vec::new(), answer: Answer::default(), ended: false };
    let heads = methods(exchange);
    let mut pending = Vec::new();
    for step in &exchange.steps {
        match step {
            Step::Request(request) => pending.extend(encode(request, port, root)?),
            Step::Raw(bytes) => pending.extend(replace(bytes, port, root)),
            Step::Send => line.send(&mut pending),
            Step::Read => {
                line.send(&mut pending);
                line.read_one(&heads);
            }
            Step::Close => {
                line.send(&mut pending);
                line.half_close();
            }
            Step::Write(path, text) => {
                let text = replace(text, port, root);
                let path = root.join(path);
                std::fs::write(&path, text)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
            Step::Filled(path, count) => {
                let end = Instant::now() + PATIENCE;
                while stored(&root.join(path)) < *count {
                    if Instant::now() > end {
                        return Err(format!("fewer than {count} responses are stored in {path}"));
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Step::Remove(path) => {
                let path = root.join(path);
                std::fs::remove_file(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    line.send(&mut pending);
    let expected = exchange.responses.unwrap_or(heads.len().max(1));
    while line.final_responses() < expected && !line.ended {
        line.read_one(&heads);
    }
    line.half_close();
    line.read_to_end(&heads);
    Ok(line.answer)
}

/// The number of responses that Evenkeel has stored in a folder: files whose kind stands behind
/// their checksum. It is unbounded for the folder of apache2, which stores a response before it
/// sends its end, and need not be waited for.
fn stored(folder: &Path) -> usize {
    const KIND: usize = 32;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let count = |path: &Path| match path.extension().and_then(|it| it.to_str()) {
        Some("data" | "header") => usize::MAX,
        Some("entry") => {
            let is_response = |bytes: Vec<u8>| bytes.get(KIND) == Some(&1);
            usize::from(std::fs::read(path).is_ok_and(is_response))
        }
        _ => stored(path),
    };
    entries.flatten().fold(0, |sum: usize, entry| sum.saturating_add(count(&entry.path())))
}

/// For each request of the exchange, whether its method is HEAD.
fn methods(exchange: &Exchange) -> Vec<bool> {
    let mut heads = Vec::new();
    for step in &exchange.steps {
        match step {
            Step::Request(request) => heads.push(request.method == "HEAD"),
            Step::Raw(bytes) => {
                for line in bytes.split(|byte| *byte == b'\n') {
                    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
                    let version = words.get(2).is_some_and(|word| word.starts_with(b"HTTP/"));
                    let method = words.first().copied().unwrap_or_default();
                    if version && !method.is_empty() && method.iter().all(u8::is_ascii_uppercase) {
                        heads.push(method == b"HEAD");
                    }
                }
            }
            _ => {}
        }
    }
    heads
}

fn encode(request: &Request, port: u16, root: &Path) -> Result<Vec<u8>, String> {
    let has = |name: &str| {
        let mut names = request.headers.iter().filter_map(|header| header.split_once(':'));
        names.any(|(other, _)| other.eq_ignore_ascii_case(name))
    };
    let mut head = unescape(&format!("{} {} HTTP/1.1", request.method, request.target))?;
    head.extend(b"\r\n");
    if !has("Host") {
        head.extend(b"Host: localhost\r\n");
    }
    for header in &request.headers {
        head.extend(header.as_bytes());
        head.extend(b"\r\n");
    }
    let body = request.body.as_deref();
    if let Some(body) = body.filter(|_| !has("Content-Length") && !has("Transfer-Encoding")) {
        head.extend(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    head.extend(b"\r\n");
    head.extend(body.unwrap_or_default());
    Ok(replace(&head, port, root))
}

/// The bytes with the placeholders replaced; bytes that are not text stay unchanged.
fn replace(bytes: &[u8], port: u16, root: &Path) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(text) => fill(text, port, root).into_bytes(),
        Err(_) => bytes.to_vec(),
    }
}

/// The text with `@ROOT@` and `@PORT@` replaced.
pub fn fill(text: &str, port: u16, root: &Path) -> String {
    text.replace("@ROOT@", &root.to_string_lossy()).replace("@PORT@", &port.to_string())
}

/// A connection, and what was received on it so far.
struct Line {
    stream: Stream,
    bytes: Vec<u8>,
    answer: Answer,
    ended: bool,
}

impl Line {
    /// Sends the pending bytes. A server that refused the first ones may already have closed the
    /// connection; its response counts, even if the rest could not be sent.
    fn send(&mut self, pending: &mut Vec<u8>) {
        let _ = self.stream.write_all(pending);
        pending.clear();
    }

    fn half_close(&mut self) {
        self.stream.half_close();
    }

    fn final_responses(&self) -> usize {
        self.answer.responses.iter().filter(|response| response.status() >= 200).count()
    }

    /// Reads until one more response is complete or the connection has ended.
    fn read_one(&mut self, heads: &[bool]) {
        loop {
            let head = heads.get(self.final_responses()).copied().unwrap_or(false);
            if let Parsed::Whole(response, length) = parse(&self.bytes, head, self.ended) {
                self.bytes.drain(..length);
                self.answer.responses.push(response);
                return;
            }
            if self.ended {
                return;
            }
            self.receive();
        }
    }

    fn read_to_end(&mut self, heads: &[bool]) {
        while !self.ended {
            self.receive();
        }
        let before = usize::MAX;
        let mut count = before;
        while count != self.answer.responses.len() && !self.bytes.is_empty() {
            count = self.answer.responses.len();
            self.read_one(heads);
        }
        self.answer.rest = std::mem::take(&mut self.bytes);
        // HTTP/0.9 has no head: everything that arrives is the body.
        if self.answer.responses.is_empty() && !self.answer.rest.is_empty() {
            let body = std::mem::take(&mut self.answer.rest);
            self.answer.responses.push(Response { body, ..Response::default() });
        }
    }

    fn receive(&mut self) {
        let mut buffer = [0; 16384];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(length) => self.bytes.extend(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A server that closes a connection with unread bytes resets it. A reset after the last
            // response loses nothing that was already received.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.ended = true,
            Err(error) => {
                let silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                let text =
                    if silent { "the server is silent".to_owned() } else { error.to_string() };
                self.answer.fault = Some(text);
                self.ended = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::parse as parse_script;

    #[test]
    fn requests_are_counted_in_raw_bytes_too() {
        let text = "exchange x\n  get /\n  head /\n  > GET / HTTP/1.0\n  > A: b\n  >\n  \
            > HEAD / HTTP/1.1\n  = 200\n";
        let script = parse_script("a", text).unwrap();
        assert_eq!(methods(&script.exchanges[0]), [false, true, false, true]);
    }

    #[test]
    fn a_request_gets_host_and_length() {
        let request = Request {
            method: "PUT".into(),
            target: "/@PORT@".into(),
            headers: vec!["A: b".into()],
            body: Some(b"xyz".to_vec()),
        };
        let bytes = encode(&request, 80, Path::new("/r")).unwrap();
        let text = "PUT /80 HTTP/1.1\r\nHost: localhost\r\nA: b\r\nContent-Length: 3\r\n\r\nxyz";
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}
