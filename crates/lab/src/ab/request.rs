//! The request of ab: options come in, its bytes go out, in the order of fields that ab has
//! (support/ab.c: test).

use super::options::Options;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The request, head and body, and where its head ends.
pub(super) fn encode(options: &Options) -> (Vec<u8>, usize) {
    let target = &options.target;
    let method = match (&options.method, options.head) {
        (Some(method), _) => method.as_str(),
        (None, true) => "HEAD",
        (None, false) => "GET",
    };
    let path = match options.proxy {
        None => target.path.clone(),
        Some(_) => target.to_string(),
    };
    let mut lines = vec![format!("{method} {path} HTTP/1.0")];
    if options.keep_alive {
        lines.push("Connection: Keep-Alive".into());
    }
    if let Some(body) = &options.body {
        lines.push(format!("Content-length: {}", body.len()));
        lines.push(format!("Content-type: {}", options.content_type));
    }
    if !options.cookies.is_empty() {
        lines.push(format!("Cookie: {}", options.cookies.join("; ")));
    }
    let basic = |name: &str, pair: &String| format!("{name}: Basic {}", STANDARD.encode(pair));
    lines.extend(options.auth.iter().map(|pair| basic("Authorization", pair)));
    lines.extend(options.proxy_auth.iter().map(|pair| basic("Proxy-Authorization", pair)));
    lines.extend(options.headers.iter().cloned());
    let says = |name: &str| {
        let named = |line: &&String| {
            line.split_once(':').is_some_and(|(own, _)| own.trim().eq_ignore_ascii_case(name))
        };
        options.headers.iter().any(|line| named(&line))
    };
    if !says("Host") {
        lines.push(format!("Host: {}", target.authority()));
    }
    if !says("User-Agent") {
        lines.push("User-Agent: ApacheBench/2.3".into());
    }
    if !says("Accept") {
        lines.push("Accept: */*".into());
    }
    let mut bytes = lines.join("\r\n").into_bytes();
    bytes.extend_from_slice(b"\r\n\r\n");
    let head = bytes.len();
    bytes.extend_from_slice(options.body.as_deref().unwrap_or_default());
    (bytes, head)
}

#[cfg(test)]
mod tests {
    use super::super::options::{Wish, parse};
    use super::*;

    fn request(text: &str) -> String {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let Ok(Wish::Run(options)) = parse(&words) else { panic!("{text}") };
        String::from_utf8(encode(&options).0).unwrap()
    }

    #[test]
    fn requests_are_as_ab_sends_them() {
        assert_eq!(
            request("-k http://h:81/p?q"),
            "GET /p?q HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: h:81\r\n\
             User-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n"
        );
        assert_eq!(
            request("-C a=b -C c=d -H X-A:1 -H host:me -A u:p http://h:81/"),
            "GET / HTTP/1.0\r\nCookie: a=b; c=d\r\nAuthorization: Basic dTpw\r\nX-A:1\r\n\
             host:me\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n"
        );
        let proxied = request("-i -P a:b -X proxy:3128 http://h/x");
        assert!(proxied.starts_with(
            "HEAD http://h/x HTTP/1.0\r\nProxy-Authorization: Basic YTpi\r\nHost: h\r\n"
        ));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "body").unwrap();
        let posted = request(&format!("-p {} -T text/x h/", file.path().display()));
        assert!(posted.starts_with("POST / HTTP/1.0\r\nContent-length: 4\r\nContent-type: text/x"));
        assert!(posted.ends_with("\r\n\r\nbody"));
        let deleted = request("-m DELETE h/");
        assert!(deleted.starts_with("DELETE / HTTP/1.0\r\n"));
    }
}
