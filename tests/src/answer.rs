//! Parses the bytes that a server sent on one connection into responses, without the framing of
//! their bodies. It is strict: what is not a response is kept as left-over bytes.

/// Everything that was received on one connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The responses in order, including interim ones.
    pub responses: Vec<Response>,
    /// Bytes that are not a complete response.
    pub rest: Vec<u8>,
    /// What went wrong on the connection itself, such as a time-out.
    pub fault: Option<String>,
}

/// One response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// The status line without its end.
    pub status_line: String,
    /// The header fields in order. Trailers follow, with `trailer ` before their names.
    pub headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The three digits of the status line; 0 if there is none, as in HTTP/0.9.
    pub fn status(&self) -> u16 {
        self.status_line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// The first value of that header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The result of parsing.
pub enum Parsed {
    /// A response, and the number of bytes that it took.
    Whole(Response, usize),
    /// More bytes are needed.
    Part,
}

/// Parses the first response in `bytes`. `head` says that it answers a HEAD request, `ended` that
/// no more bytes follow.
pub fn parse(bytes: &[u8], head: bool, ended: bool) -> Parsed {
    let Some(length) = find(bytes, b"\r\n\r\n").map(|at| at + 4) else { return Parsed::Part };
    if !bytes.starts_with(b"HTTP/") {
        return Parsed::Part;
    }
    let Some((text, body)) = bytes.split_at_checked(length) else { return Parsed::Part };
    let mut response = parse_head(text);
    let status = response.status();
    let taken = if head || status < 200 || status == 204 || status == 304 {
        Some((Vec::new(), Vec::new(), 0))
    } else if response.header("Transfer-Encoding").is_some() {
        parse_chunks(body)
    } else if let Some(size) = response.header("Content-Length").and_then(|it| it.parse().ok()) {
        body.get(..size).map(|body| (body.to_vec(), Vec::new(), size))
    } else if ended {
        Some((body.to_vec(), Vec::new(), body.len()))
    } else {
        None
    };
    let Some((body, trailers, taken)) = taken else { return Parsed::Part };
    response.body = body;
    response.headers.extend(trailers);
    Parsed::Whole(response, length + taken)
}

type Fields = Vec<(String, String)>;

fn parse_head(text: &[u8]) -> Response {
    let text = latin1(text);
    let (status_line, fields) = text.split_once("\r\n").unwrap_or((&text, ""));
    Response {
        status_line: status_line.to_owned(),
        headers: parse_fields(fields),
        body: Vec::new(),
    }
}

fn parse_fields(text: &str) -> Fields {
    let lines = text.split("\r\n").filter(|line| !line.is_empty());
    let split =
        lines.map(|line| line.split_once(": ").or(line.split_once(':')).unwrap_or((line, "")));
    split.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The body, the trailers and the length of a chunked body; none until it is complete.
fn parse_chunks(bytes: &[u8]) -> Option<(Vec<u8>, Fields, usize)> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let end = find(rest, b"\r\n")?;
        let size = latin1(rest.get(..end)?);
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        at += end + 2;
        if size == 0 {
            break;
        }
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
    }
    let rest = bytes.get(at..)?;
    if rest.starts_with(b"\r\n") {
        return Some((body, Vec::new(), at + 2));
    }
    let end = find(rest, b"\r\n\r\n")?;
    let trailers = parse_fields(&latin1(rest.get(..end)?));
    let trailers = trailers.into_iter().map(|(name, value)| (format!("trailer {name}"), value));
    Some((body, trailers.collect(), at + end + 4))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Bytes as text with one character for each byte, so that nothing is lost.
pub fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str, head: bool, ended: bool) -> (Response, usize) {
        match parse(text.as_bytes(), head, ended) {
            Parsed::Whole(response, length) => (response, length),
            Parsed::Part => panic!("not whole: {text}"),
        }
    }

    #[test]
    fn length_decides_where_a_body_ends() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nA: b\r\n\r\nabcHTTP/1.1";
        let (response, length) = whole(text, false, false);
        assert_eq!((response.status(), response.body.as_slice()), (200, b"abc".as_slice()));
        assert_eq!(response.header("a"), Some("b"));
        assert_eq!(length, text.len() - 8);
    }

    #[test]
    fn some_responses_have_no_body() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(whole(text, true, false).1, text.len());
        let text = "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(whole(text, false, false).1, text.len());
    }

    #[test]
    fn chunks_are_joined_and_trailers_kept() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n1;x\r\nd\r\n0\r\nT: v\r\n\r\n";
        let (response, length) = whole(text, false, false);
        assert_eq!(response.body, b"abcd");
        assert_eq!(response.header("trailer T"), Some("v"));
        assert_eq!(length, text.len());
        let cut = text.get(..text.len() - 2).unwrap();
        assert!(matches!(parse(cut.as_bytes(), false, true), Parsed::Part));
    }

    #[test]
    fn without_a_length_the_end_decides() {
        let text = "HTTP/1.1 200 OK\r\n\r\nabc";
        assert!(matches!(parse(text.as_bytes(), false, false), Parsed::Part));
        assert_eq!(whole(text, false, true).0.body, b"abc");
    }
}
