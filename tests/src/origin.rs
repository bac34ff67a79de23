//! An HTTP server for tests of the proxy. Each request says what the response is:
//!
//! - without X-Say, the response is the request as it came: its line, its fields, and the length
//!   and a sum of its body;
//! - with X-Say, it is these bytes: `~` stands for CRLF, `%XX` for a byte, `{N*TEXT}` for TEXT N
//!   times;
//! - X-Do has words: `early` sends the response before the body of the request is read, `close` and
//!   `reset` end the connection after it, `hang` then waits until the proxy ends it, `deaf` closes
//!   the connection without a response, and `tired` does so if it is not the first request on the
//!   connection. `wait` waits for [`Origin::release`] before the response, `half` after the first
//!   half of it. `echo` then sends back what comes, in capital letters, and `END` at its end.

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A running server. Its threads end with the process.
#[derive(Debug)]
pub struct Origin {
    /// The TCP port.
    pub port: u16,
    books: Arc<Books>,
}

/// What the threads of a server share.
#[derive(Debug, Default)]
struct Books {
    connections: AtomicUsize,
    requests: AtomicUsize,
    abandoned: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Books {
    fn wait(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(is_open, |is_open| !*is_open));
    }
}

/// A connection of either kind.
trait Wire: Read + Write + Send + 'static {
    fn duplicate(&self) -> std::io::Result<Box<dyn Wire>>;
    fn reset(&self);

    /// Announces the end, where there is a word for it.
    fn end(&mut self) {}
}

impl Wire for TcpStream {
    fn duplicate(&self) -> std::io::Result<Box<dyn Wire>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn reset(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(self, Some(std::time::Duration::ZERO));
    }
}

/// A connection in TLS. Its session serves one direction at a time.
#[derive(Clone)]
struct Secure(Arc<Mutex<StreamOwned<ServerConnection, TcpStream>>>);

impl Secure {
    fn stream(&self) -> std::sync::MutexGuard<'_, StreamOwned<ServerConnection, TcpStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for Secure {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream().read(buffer)
    }
}

impl Write for Secure {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream().flush()
    }
}

impl Wire for Secure {
    fn duplicate(&self) -> std::io::Result<Box<dyn Wire>> {
        Ok(Box::new(self.clone()))
    }

    fn reset(&self) {
        self.stream().sock.reset();
    }

    fn end(&mut self) {
        let mut stream = self.stream();
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
}

impl Wire for UnixStream {
    fn duplicate(&self) -> std::io::Result<Box<dyn Wire>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn reset(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Origin {
    /// Starts a server on a free port, and on a Unix socket if a path is given.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start(socket: Option<&Path>) -> std::io::Result<Origin> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let origin = Origin { port, books: Arc::default() };
        if let Some(path) = socket {
            let listener = UnixListener::bind(path)?;
            let books = Arc::clone(&origin.books);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    serve_aside(Box::new(stream), &books);
                }
            });
        }
        let books = Arc::clone(&origin.books);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = stream.set_nodelay(true);
                serve_aside(Box::new(stream), &books);
            }
        });
        Ok(origin)
    }

    /// Starts a server that speaks TLS with this configuration on a free port.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start_tls(config: Arc<ServerConfig>) -> std::io::Result<Origin> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let origin = Origin { port, books: Arc::default() };
        let books = Arc::clone(&origin.books);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(session) = ServerConnection::new(Arc::clone(&config)) else { continue };
                let _ = stream.set_nodelay(true);
                let stream = StreamOwned::new(session, stream);
                serve_aside(Box::new(Secure(Arc::new(Mutex::new(stream)))), &books);
            }
        });
        Ok(origin)
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.books.connections.load(Ordering::SeqCst)
    }

    /// How many heads of requests it has read.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.books.requests.load(Ordering::SeqCst)
    }

    /// How many requests with `hang` the proxy has abandoned.
    #[must_use]
    pub fn abandoned(&self) -> usize {
        self.books.abandoned.load(Ordering::SeqCst)
    }

    /// Lets the requests with `wait` and `half` go on, or makes later ones wait again.
    pub fn release(&self, is_open: bool) {
        *self.books.is_open.lock().unwrap_or_else(PoisonError::into_inner) = is_open;
        self.books.opened.notify_all();
    }
}

fn serve_aside(stream: Box<dyn Wire>, books: &Arc<Books>) {
    books.connections.fetch_add(1, Ordering::SeqCst);
    let books = Arc::clone(books);
    std::thread::spawn(move || {
        let _ended = serve(stream, &books);
    });
}

/// Answers requests until the connection ends.
fn serve(mut stream: Box<dyn Wire>, books: &Books) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.duplicate()?);
    for number in 0.. {
        let mut head = String::new();
        loop {
            let mut line = Vec::new();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.trim_end().is_empty() && !head.is_empty() {
                break;
            }
            head.push_str(&line);
        }
        books.requests.fetch_add(1, Ordering::SeqCst);
        let field = |name: &str| {
            head.lines().skip(1).find_map(|line| {
                let (found, value) = line.split_once(':')?;
                found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let orders = field("X-Do").unwrap_or_default();
        let is_told = |word: &str| orders.split(' ').any(|it| it == word);
        if is_told("deaf") || (is_told("tired") && number > 0) {
            return Ok(());
        }
        let said = field("X-Say").map(|text| spoken(&text));
        if is_told("early") {
            stream.write_all(said.as_deref().unwrap_or_default())?;
        }
        if field("Expect").is_some_and(|it| it.eq_ignore_ascii_case("100-continue"))
            && !is_told("early")
        {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let (length, sum) = read_body(&mut reader, &field)?;
        if is_told("wait") {
            books.wait();
        }
        match said {
            Some(said) if is_told("half") => {
                let (first, second) = said.split_at(said.len() / 2);
                stream.write_all(first)?;
                books.wait();
                stream.write_all(second)?;
            }
            Some(said) if !is_told("early") => stream.write_all(&said)?,
            Some(_) => {}
            None => {
                let text = format!("{}\n{length} {sum}\n", head.replace('\r', ""));
                let is_head = head.starts_with("HEAD ");
                let body = if is_head { "" } else { &*text };
                let kind = "Content-Type: text/plain";
                let length = text.len();
                let answer =
                    format!("HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes())?;
            }
        }
        if is_told("hang") {
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            books.abandoned.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        if is_told("echo") {
            let mut bytes = [0; 16 << 10];
            loop {
                let count = reader.read(&mut bytes)?;
                let echo = bytes.get(..count).unwrap_or_default().to_ascii_uppercase();
                stream.write_all(if count == 0 { b"END" } else { &echo })?;
                if count == 0 {
                    stream.end();
                    return Ok(());
                }
            }
        }
        if is_told("reset") {
            stream.reset();
            return Ok(());
        }
        if is_told("close") || field("Connection").is_some_and(|it| it == "close") {
            stream.end();
            return Ok(());
        }
    }
    Ok(())
}

/// Reads the body of a request: its length, and a sum of its bytes.
fn read_body(
    reader: &mut BufReader<Box<dyn Wire>>,
    field: &dyn Fn(&str) -> Option<String>,
) -> std::io::Result<(usize, u64)> {
    let (mut length, mut sum) = (0, 0xcbf2_9ce4_8422_2325_u64);
    let mut add = |bytes: &[u8]| {
        length += bytes.len();
        for byte in bytes {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    if field("Transfer-Encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            let mut bytes = vec![0; size + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(size);
            add(&bytes);
            if size == 0 {
                return Ok((length, sum));
            }
        }
    }
    let mut left: usize = field("Content-Length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut bytes = vec![0; 64 << 10];
    while left > 0 {
        let most = left.min(bytes.len());
        let count = reader.read(bytes.get_mut(..most).unwrap_or_default())?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        add(bytes.get(..count).unwrap_or_default());
        left -= count;
    }
    Ok((length, sum))
}

/// A sum of bytes, by which a test compares bodies (FNV-1a).
pub(crate) fn sum_of(bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

/// The bytes that a text of X-Say stands for.
pub(crate) fn spoken(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let behind = rest.get(first.len_utf8()..).unwrap_or_default();
        rest = behind;
        match first {
            '~' => out.extend(b"\r\n"),
            '%' => {
                let byte = behind.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
                out.push(byte.unwrap_or(b'%'));
                rest = behind.get(2..).unwrap_or_default();
            }
            '{' => {
                let inner = behind.split_once('}').and_then(|(inner, after)| {
                    let (count, text) = inner.split_once('*')?;
                    Some((count.parse::<usize>().ok()?, text, after))
                });
                match inner {
                    Some((count, text, after)) => {
                        out.extend(spoken(text).repeat(count));
                        rest = after;
                    }
                    None => out.push(b'{'),
                }
            }
            other => out.extend(other.to_string().as_bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_spoken_as_it_says() {
        assert_eq!(spoken("a~%00{3*b~}{c"), b"a\r\n\0b\r\nb\r\nb\r\n{c");
    }
}
