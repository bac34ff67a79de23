//! Encodes the request of ab, with the fields in ab's order (support/ab.c: test).

use super::options::Options;
use crate::load::Request;
use crate::request::{Draft, basic_credentials};
use bytes::Bytes;

/// The request.
///
/// # Errors
///
/// The method or the value of a field cannot be sent.
pub(super) fn encode(options: &Options) -> Result<Request, String> {
    let target = &options.target;
    let method = match (&options.method, options.head) {
        (Some(method), _) => method.as_str(),
        (None, true) => "HEAD",
        (None, false) => "GET",
    };
    let mut draft = Draft::new(method, target).of_http_1_0();
    if options.proxy.is_some() {
        draft = draft.through_proxy(target);
    }
    if options.keep_alive {
        draft = draft.with_field("Connection", "Keep-Alive")?;
    }
    if let Some(body) = &options.body {
        draft = draft.with_field("Content-length", body.len().to_string())?;
        draft = draft.with_field("Content-type", &options.content_type)?;
        draft = draft.with_body(Bytes::copy_from_slice(body));
    }
    if !options.cookies.is_empty() {
        draft = draft.with_line(&format!("Cookie: {}", options.cookies.join("; ")));
    }
    if let Some(pair) = &options.auth {
        draft = draft.with_field("Authorization", basic_credentials(pair))?;
    }
    if let Some(pair) = &options.proxy_auth {
        draft = draft.with_field("Proxy-Authorization", basic_credentials(pair))?;
    }
    // Fields on the command line replace only these three.
    let typed = |name: &str| {
        let named = |line: &String| {
            line.split_once(':').is_some_and(|(own, _)| own.trim().eq_ignore_ascii_case(name))
        };
        options.headers.iter().any(named)
    };
    let usual = [
        ("Host", target.authority()),
        ("User-Agent", "ApacheBench/2.3".to_owned()),
        ("Accept", "*/*".to_owned()),
    ];
    draft = options.headers.iter().fold(draft, |draft, line| draft.with_line(line));
    for (name, value) in usual.into_iter().filter(|(name, _)| !typed(name)) {
        draft = draft.with_field(name, value)?;
    }
    let request = draft.encode()?;
    // ab decides by -i whether there is a body, unless the method is called HEAD.
    Ok(Request { no_body: options.head && options.method.is_none(), ..request })
}

#[cfg(test)]
mod tests {
    use super::super::options::{Wish, parse};
    use super::*;

    fn request(text: &str) -> String {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let Ok(Wish::Run(options)) = parse(&words) else { panic!("{text}") };
        String::from_utf8(encode(&options).unwrap().bytes.to_vec()).unwrap()
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
