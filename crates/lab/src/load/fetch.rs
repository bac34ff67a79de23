//! Fetches one page once and returns its status and body, with bounds on time and size. Commands
//! use it to learn something from a server besides their load.

use super::target::Target;
use super::tls::Trust;
use super::transport::Transport;
use evenkeel_message::Fields;
use evenkeel_proto::{
    ChunkedDecoder, HttpProtocolOptions, Limits, ResponseLength, Step, parse_response,
};
use evenkeel_sys::clock;
use evenkeel_sys::connect::{Local, Remote};
use evenkeel_sys::epoll::{Epoll, Events};
use std::io;
use std::time::Duration;

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The status.
    pub status: u16,
    /// The complete body.
    pub body: Vec<u8>,
}

/// A larger response is refused.
const MOST_BYTES: usize = 64 << 20;
const LIMITS: Limits = Limits { line: 64 << 10, field_size: 64 << 10, fields: 1000 };

/// Requests `target` from the first of `remotes` that accepts a connection, within `most` in total.
///
/// # Errors
///
/// Why there is no complete response. The message begins with the URL.
pub fn fetch(
    target: &Target,
    remotes: &[Remote],
    trust: Option<&Trust>,
    most: Duration,
) -> Result<Fetched, String> {
    let deadline_ns = clock::monotonic_ns() + u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    let mut told = "no address".to_owned();
    for remote in remotes {
        match begin(remote, trust, deadline_ns) {
            Ok(connection) => {
                let answer = connection.ask(target).map_err(|error| match error.kind() {
                    io::ErrorKind::TimedOut => format!("no answer within {} s", most.as_secs_f64()),
                    _ => error.to_string(),
                });
                return answer.map_err(|why| format!("{target}: {why}"));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                told = format!("no connection within {} s", most.as_secs_f64());
            }
            Err(error) => told = error.to_string(),
        }
    }
    Err(format!("{target}: {told}"))
}

pub(super) struct Connection {
    transport: Transport,
    epoll: Epoll,
    deadline_ns: u64,
}

/// Establishes a connection, including the handshake.
pub(super) fn begin(
    remote: &Remote,
    trust: Option<&Trust>,
    deadline_ns: u64,
) -> io::Result<Connection> {
    let transport = Transport::begin(remote, &Local::default(), trust)?;
    let mut connection = Connection { transport, epoll: Epoll::new()?, deadline_ns };
    connection.epoll.add_read_write(&connection.transport, 0)?;
    connection.wait()?;
    connection.transport.outcome()?;
    while !connection.transport.shake()? {
        connection.wait()?;
    }
    Ok(connection)
}

impl Connection {
    /// Waits for an event.
    fn wait(&self) -> io::Result<()> {
        let mut events = Events::with_capacity(1);
        loop {
            let left_ns = self.deadline_ns.saturating_sub(clock::monotonic_ns());
            if left_ns == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.epoll.wait(&mut events, Some(Duration::from_nanos(left_ns)))?;
            if !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn ask(mut self, target: &Target) -> io::Result<Fetched> {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: evenkeel/{}\r\nConnection: close\r\n\r\n",
            target.path,
            target.authority(),
            env!("CARGO_PKG_VERSION")
        );
        let mut rest = request.as_bytes();
        while !rest.is_empty() {
            match self.transport.send(rest) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error),
            }
        }
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match self.transport.receive(&mut buffer) {
                Ok(count) => {
                    bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
                    if let Some(fetched) = parse(&bytes, count == 0)? {
                        return Ok(fetched);
                    }
                    if bytes.len() > MOST_BYTES {
                        return Err(io::Error::other("the answer has more than 64 MiB"));
                    }
                }
                // Send what TLS still holds, now or when the socket accepts it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.transport.flush() {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                            return Err(error);
                        }
                        _ => self.wait()?,
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The response, if it is complete. `ended` says that nothing follows.
fn parse(bytes: &[u8], ended: bool) -> io::Result<Option<Fetched>> {
    let malformed = || io::Error::other("the answer is no HTTP");
    let mut rest = bytes;
    let parsed = loop {
        match parse_response(rest, false).map_err(|_| malformed())? {
            Some(head) if head.is_interim() => rest = rest.get(head.size..).unwrap_or_default(),
            Some(head) => break Some((head.status, head.length, rest.get(head.size..))),
            None => break None,
        }
    };
    let cut_off = || io::Error::other("the answer ended before its end");
    let Some((status, length, body)) = parsed else {
        return if ended { Err(cut_off()) } else { Ok(None) };
    };
    let body = body.unwrap_or_default();
    let whole = match length {
        ResponseLength::None => Some(Vec::new()),
        ResponseLength::Exact(length) => {
            usize::try_from(length).ok().and_then(|end| body.get(..end)).map(<[u8]>::to_vec)
        }
        ResponseLength::Chunked => chunks(body).map_err(|()| malformed())?,
        ResponseLength::UntilClose => ended.then(|| body.to_vec()),
    };
    match whole {
        Some(body) => Ok(Some(Fetched { status, body })),
        None if ended => Err(cut_off()),
        None => Ok(None),
    }
}

/// The body without the framing of chunks, if its end has arrived.
fn chunks(mut rest: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    let (mut decoder, mut trailers) = (ChunkedDecoder::default(), Fields::default());
    let options = HttpProtocolOptions::default();
    let mut body = Vec::new();
    loop {
        match decoder.decode(rest, &mut trailers, &LIMITS, &options).map_err(drop)? {
            Step::Data { skip, length } => {
                body.extend_from_slice(rest.get(skip..skip + length).unwrap_or_default());
                rest = rest.get(skip + length..).unwrap_or_default();
            }
            Step::Partial => return Ok(None),
            Step::End(_) => return Ok(Some(body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[test]
    fn answers_are_whole_or_none() {
        let read = |text: &[u8], ended| parse(text, ended).map_err(|error| error.to_string());
        let exact = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        let chunked = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 No\r\n\
            Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        for (text, status) in [(&exact[..], 200), (chunked, 404)] {
            for end in 0..text.len() {
                assert_eq!(read(&text[..end], false), Ok(None), "{end}");
                assert!(read(&text[..end], true).unwrap_err().contains("before its end"));
            }
            let whole = Fetched { status, body: b"abc".to_vec() };
            assert_eq!(read(text, false), Ok(Some(whole)));
        }
        let open = b"HTTP/1.0 200 OK\r\n\r\nabc";
        assert_eq!(read(open, false), Ok(None));
        assert_eq!(read(open, true).unwrap().unwrap().body, b"abc");
        assert!(read(b"220 smtp ready\r\n", false).is_err());
    }

    /// A server for one connection that reads a head and sends `answer`, or sends nothing.
    fn server(answer: Option<&'static [u8]>) -> (Target, Vec<Remote>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/status?auto", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let count = stream.read(&mut head).unwrap();
            assert!(head[..count].starts_with(b"GET /status?auto HTTP/1.1\r\nHost: 127.0.0.1:"));
            match answer {
                Some(answer) => stream.write_all(answer).unwrap(),
                // Waits for the other side to close the connection.
                None => drop(stream.read(&mut head)),
            }
        });
        let target = Target::parse(&url).unwrap();
        let remotes = target.resolve(None).unwrap();
        (target, remotes)
    }

    #[test]
    fn a_page_is_fetched_or_the_reason_is_told() {
        let second = Duration::from_secs(10);
        let (target, mut remotes) = server(Some(b"HTTP/1.1 200 OK\r\n\r\nhello"));
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        remotes.insert(0, Remote::Internet(refused));
        assert_eq!(fetch(&target, &remotes, None, second).unwrap().body, b"hello");
        let (target, remotes) = server(None);
        let told = fetch(&target, &remotes, None, Duration::from_millis(50)).unwrap_err();
        assert_eq!(told, format!("{target}: no answer within 0.05 s"));
        let told = fetch(&target, &[Remote::Internet(refused)], None, second).unwrap_err();
        assert_eq!(told, format!("{target}: Connection refused (os error 111)"));
    }
}
