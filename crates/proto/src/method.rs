//! Methods outside the built-in table: marks the method of a head as registered if
//! RegisterHttpMethod names it (Apache: protocol.c, `read_request_line`).

use crate::HttpProtocolOptions;
use crate::refusal::{Refusal, excerpt};
use evenkeel_message::{Level, Method, RequestHead, Status};

/// Recognises a registered method.
///
/// # Errors
///
/// 501 for an unknown method if HttpProtocolOptions says RegisteredMethods.
pub fn recognise_method(
    head: &mut RequestHead,
    registered: &[Box<str>],
    options: &HttpProtocolOptions,
) -> Result<(), Refusal> {
    if head.method != Method::Other {
        return Ok(());
    }
    if registered.iter().any(|name| name.as_bytes() == head.method_text()) {
        head.method = Method::Registered;
        return Ok(());
    }
    if !options.registered_methods {
        return Ok(());
    }
    let method = excerpt(head.method_text());
    let text = format!(
        "HTTP Request Line; Unrecognized HTTP method: '{method}' (disallowed by \
         RegisteredMethods)"
    );
    Err(Refusal::new(Status::NOT_IMPLEMENTED, Level::Debug, 2423, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(method: &[u8], registered_methods: bool) -> Result<Method, Option<u16>> {
        let mut head = RequestHead {
            line: method.to_vec(),
            method: Method::parse(method),
            method_end: method.len(),
            ..RequestHead::default()
        };
        let options = HttpProtocolOptions { registered_methods, ..HttpProtocolOptions::default() };
        recognise_method(&mut head, &["BREW".into()], &options)
            .map(|()| head.method)
            .map_err(|refusal| refusal.notice.number)
    }

    #[test]
    fn a_registered_method_is_known_and_others_where_lenient() {
        assert_eq!(outcome(b"GET", true), Ok(Method::Get));
        assert_eq!(outcome(b"BREW", true), Ok(Method::Registered));
        assert_eq!(outcome(b"FOO", false), Ok(Method::Other));
        assert_eq!(outcome(b"FOO", true), Err(Some(2423)));
    }
}
