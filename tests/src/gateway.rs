//! An application for tests of mod_proxy_scgi and mod_proxy_uwsgi, in either protocol. A request
//! with X-Say is answered by these bytes, in the notation of [`crate::origin`], and X-Do has words
//! in its sense: `deaf`, `reset` and `hang`. Other requests are answered by their variables (except
//! those that differ between servers and runs), the length of their body, and a sum of its bytes.

use crate::origin::{spoken, sum_of};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// The protocol of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SCGI, and the head of a CGI program.
    Scgi,
    /// The protocol of uWSGI, and the head of an HTTP server.
    Uwsgi,
}

/// Variables that are left out of a response.
const OWN: [&str; 7] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "REMOTE_PORT",
    "SERVER_PORT",
    "SERVER_SIGNATURE",
    "SERVER_SOFTWARE",
    "UNIQUE_ID",
];

/// Starts an application on a free port, and returns the port. Its threads end with the process.
///
/// # Errors
/// It cannot listen.
pub fn start(protocol: Protocol) -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, protocol));
        }
    });
    Ok(port)
}

/// Answers one request.
fn serve(mut stream: TcpStream, protocol: Protocol) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let variables = match protocol {
        Protocol::Scgi => read_scgi(&mut reader)?,
        Protocol::Uwsgi => read_uwsgi(&mut reader)?,
    };
    let value = |name: &str| {
        let found = variables.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    let length = value("CONTENT_LENGTH").parse().unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    // Nothing may follow the body.
    stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    let behind = reader.read(&mut [0]).unwrap_or(0);
    let is_told = |word: &str| value("HTTP_X_DO").split(' ').any(|it| it == word);
    if is_told("deaf") {
        return Ok(());
    }
    let head = match protocol {
        Protocol::Scgi => "Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n",
        Protocol::Uwsgi => "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
    };
    match value("HTTP_X_SAY") {
        "" => {
            let shown = variables.iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
            // The order of variables is that of the server's tables.
            let sorted: BTreeMap<_, _> = shown.map(|(name, value)| (name, value)).collect();
            let first = variables.first().map(|(name, _)| name.as_str()).unwrap_or_default();
            let first = if protocol == Protocol::Scgi { first } else { "-" };
            let mut text = format!("{head}first {first}\n");
            for (name, value) in sorted {
                text.push_str(&format!("{name}={value}\n"));
            }
            text.push_str(&format!("{length} {} {behind}\n", sum_of(&body)));
            stream.write_all(text.as_bytes())?;
        }
        said => stream.write_all(&spoken(said))?,
    }
    if is_told("reset") {
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    }
    if is_told("hang") {
        stream.set_read_timeout(None)?;
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    }
    Ok(())
}

type Pairs = Vec<(String, String)>;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn malformed(what: &str) -> std::io::Error {
    std::io::Error::other(what.to_owned())
}

/// Reads the netstring of variables.
fn read_scgi(reader: &mut impl BufRead) -> std::io::Result<Pairs> {
    let mut size = Vec::new();
    reader.read_until(b':', &mut size)?;
    let size = size.strip_suffix(b":").ok_or_else(|| malformed("no size"))?;
    let size: usize = text(size).parse().map_err(std::io::Error::other)?;
    let mut block = vec![0; size + 1];
    reader.read_exact(&mut block)?;
    let block = block.strip_suffix(b"\0,").ok_or_else(|| malformed("no end"))?;
    let words: Vec<&[u8]> = block.split(|byte| *byte == 0).collect();
    let pair = |pair: &[&[u8]]| match pair {
        [name, value] => Ok((text(name), text(value))),
        _ => Err(malformed("a name without a value")),
    };
    words.chunks(2).map(pair).collect()
}

/// Reads the packet of variables.
fn read_uwsgi(reader: &mut impl BufRead) -> std::io::Result<Pairs> {
    let mut header = [0; 4];
    reader.read_exact(&mut header)?;
    let [0, low, high, 0] = header else { return Err(malformed("another type of packet")) };
    let mut block = vec![0; usize::from(u16::from_le_bytes([low, high]))];
    reader.read_exact(&mut block)?;
    let (mut pairs, mut rest) = (Vec::new(), &*block);
    let mut next = || {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let (word, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        rest = behind;
        Some(text(word))
    };
    while let Some(name) = next() {
        pairs.push((name, next().ok_or_else(|| malformed("a name without a value"))?));
    }
    Ok(pairs)
}
