//! A FastCGI application to which both servers pass requests on. It answers each request with the
//! name of its script, so that a request which only one of the servers passes on, or which the two
//! pass on to different scripts, is a difference.

use evenkeel_proto::fastcgi::{Record, RecordReader, Stream, encode_content, pairs, record_header};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// END_REQUEST with status 0, for request 1 (specification, section 5.5).
const END: [u8; 16] = [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Answers at this address until the process ends.
pub fn start(address: SocketAddr) -> Result<(), String> {
    let told = |error: std::io::Error| format!("the application at {address}: {error}");
    let listener = TcpListener::bind(address).map_err(told)?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // What a server does that breaks a connection off shows in its own answer.
            let _ = answer(stream);
        }
    };
    std::thread::Builder::new().name("application".to_owned()).spawn(serve).map_err(told)?;
    Ok(())
}

/// Reads one request to its end, and answers it.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut reader, mut params) = (RecordReader::new(), Vec::new());
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        let mut rest = buffer.get(..count).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        while !rest.is_empty() {
            let used = match reader.read(rest).map_err(|_| std::io::ErrorKind::InvalidData)? {
                Record::Partial => break,
                Record::Content { stream: kind, skip, length } => {
                    let content = rest.get(skip..skip + length).unwrap_or_default();
                    if kind == Stream::Params {
                        params.extend_from_slice(content);
                    }
                    skip + length
                }
                Record::Closed { stream: Stream::Stdin, .. } => return respond(stream, &params),
                Record::Closed { skip, .. }
                | Record::Begin { skip, .. }
                | Record::End { skip, .. }
                | Record::Other { skip, .. } => skip,
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }
}

fn respond(mut stream: TcpStream, params: &[u8]) -> std::io::Result<()> {
    let script = pairs(params).find(|(name, _)| *name == b"SCRIPT_FILENAME");
    let (_, script) = script.unwrap_or_default();
    let head = b"Content-Type: text/plain\r\n\r\nscript ";
    // Filters treat a short response that comes at once in another way.
    let end = [b"\n", &*"0123456789abcdef".repeat(8).into_bytes()].concat();
    let mut out = Vec::new();
    encode_content(&mut out, Stream::Stdout, &[head, script, &end].concat());
    out.extend_from_slice(&record_header(Stream::Stdout, 0));
    out.extend_from_slice(&END);
    stream.write_all(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::Variables;
    use evenkeel_proto::fastcgi::{encode_begin, encode_params};

    #[test]
    fn a_request_is_answered_with_its_script() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        start(free).unwrap();
        let mut client = TcpStream::connect(free).unwrap();
        let (mut variables, mut out) = (Variables::new(), Vec::new());
        variables.set("SCRIPT_FILENAME", "/a.php");
        encode_begin(&mut out, false);
        encode_params(&mut out, &variables);
        out.extend_from_slice(&record_header(Stream::Stdin, 0));
        client.write_all(&out).unwrap();
        let mut text = Vec::new();
        client.read_to_end(&mut text).unwrap();
        assert!(String::from_utf8_lossy(&text).contains("script /a.php\n"));
    }
}
