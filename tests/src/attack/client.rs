//! A client of both servers: sends each request to both at once, on connections that are kept as
//! long as both servers keep theirs, and returns both responses. Every wait is bounded.

use super::judge::Answered;
use crate::answer::{Parsed, parse};
use crate::digest::{Challenge, with_login};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long apache2 may be silent before its response counts as lost. Where questions lead to
/// questions it takes minutes, and the site is left out.
const PATIENCE_WITH_ORACLE: Duration = Duration::from_secs(10);

/// How long the other server may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// After a response that took this long, the kept connection to the other server may have ended.
const LONG: Duration = Duration::from_secs(1);

/// The description of a server that did not answer in time.
pub const SILENCE: &str = "silence";

/// The connections to the two servers.
#[derive(Debug)]
pub struct Client {
    addresses: [SocketAddr; 2],
    lines: Option<[Line; 2]>,
    /// The last challenge of each server, for logins with Digest.
    challenges: [Challenge; 2],
    /// The number of requests so far, which is their nonce count.
    count: u32,
}

#[derive(Debug)]
struct Line {
    stream: TcpStream,
    bytes: Vec<u8>,
    ended: bool,
}

impl Client {
    /// A client without connections.
    pub fn new(addresses: [SocketAddr; 2]) -> Client {
        Client { addresses, lines: None, challenges: Default::default(), count: 0 }
    }

    /// Sends a request to both servers. It is an error if one of them accepts no connection.
    pub fn ask(&mut self, request: &[u8], is_head: bool) -> Result<[Answered; 2], String> {
        if let Some(lines) = self.lines.take() {
            let answers = self.ask_on(lines, request, is_head);
            // The oracle may close a kept connection without notice, and any client then repeats
            // the request. If only Evenkeel does so, it is a difference.
            if answers.first().is_some_and(Result::is_ok) {
                return Ok(answers);
            }
        }
        let [a, b] = self.addresses;
        let lines = [Line::open(a, PATIENCE_WITH_ORACLE)?, Line::open(b, PATIENCE)?];
        Ok(self.ask_on(lines, request, is_head))
    }

    fn ask_on(&mut self, mut lines: [Line; 2], request: &[u8], is_head: bool) -> [Answered; 2] {
        self.count += 1;
        for (line, challenge) in lines.iter_mut().zip(&self.challenges) {
            // A response that was sent before the connection was closed counts, even if the rest of
            // the request was not sent.
            let _ = line.stream.write_all(&with_login(request, challenge, self.count));
        }
        let begun = Instant::now();
        let [a, b] = &mut lines;
        let answers = [a.read(is_head), b.read(is_head)];
        for (challenge, answer) in self.challenges.iter_mut().zip(&answers) {
            let new = answer.as_ref().map(Challenge::of).unwrap_or_default();
            if !new.nonce.is_empty() {
                *challenge = new;
            }
        }
        self.lines = None;
        let are_kept =
            answers.iter().zip(&lines).all(|(answer, line)| is_kept(answer) && !line.ended);
        if are_kept && begun.elapsed() < LONG {
            self.lines = Some(lines);
        }
        answers
    }
}

fn is_kept(answer: &Answered) -> bool {
    let Ok(response) = answer else { return false };
    let connection = response.header("Connection").unwrap_or_default();
    let said = |word: &str| connection.eq_ignore_ascii_case(word);
    said("keep-alive") || response.status_line.starts_with("HTTP/1.1") && !said("close")
}

impl Line {
    fn open(address: SocketAddr, patience: Duration) -> Result<Line, String> {
        let told = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect(address).map_err(told)?;
        stream.set_read_timeout(Some(patience)).map_err(told)?;
        stream.set_write_timeout(Some(patience)).map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        Ok(Line { stream, bytes: Vec::new(), ended: false })
    }

    /// The next final response.
    fn read(&mut self, is_head: bool) -> Answered {
        loop {
            if let Parsed::Whole(response, length) = parse(&self.bytes, is_head, self.ended) {
                self.bytes.drain(..length);
                if response.status() >= 200 {
                    return Ok(response);
                }
                continue;
            }
            if self.ended {
                return Err("the end of the stream".to_owned());
            }
            let mut buffer = [0; 16_384];
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(length) => self.bytes.extend(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => self.ended = true,
                Err(_) => return Err(SILENCE.to_owned()),
            }
        }
    }
}
