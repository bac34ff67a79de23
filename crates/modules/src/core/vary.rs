//! The Vary field: what conditions add to it while a request is looked at, and the one list that
//! is sent in the end.

use evenkeel_message::{Fields, Name, Request, Response, Variables};

/// Adds the Vary fields of `vary` to those of `fields`.
pub fn merge_vary(fields: &mut Fields, vary: &Fields) {
    for value in vary.all(b"Vary") {
        fields.merge("Vary", value);
    }
}

/// Puts the lists of Vary into one, each name once (http_filters.c: fixup_vary), and takes it
/// out where `force-no-vary` says so.
pub fn settle_vary(request: &mut Request, response: &mut Response) {
    if !response.always.contains(Name::Vary) {
        let mut lists = response.fields.all(Name::Vary);
        match (lists.next(), lists.next()) {
            (None, _) => return,
            // Nearly all have one name.
            (Some(list), None)
                if is_name(list) && !request.resource.env.contains("force-no-vary") =>
            {
                return;
            }
            _ => {}
        }
    }
    let mut list: Vec<&[u8]> = Vec::new();
    let mut known = Variables::new();
    for fields in [&response.always, &response.fields] {
        for token in fields.tokens(b"Vary") {
            let name = token.to_ascii_lowercase();
            if !known.contains(&name) {
                known.set(name, "");
                list.push(token);
            }
        }
    }
    let list = list.join(&b","[..]);
    let in_always = response.always.contains("Vary");
    let unwanted = request.resource.env.contains("force-no-vary");
    if unwanted || in_always {
        response.fields.remove("Vary");
    }
    if unwanted {
        response.always.remove("Vary");
        request.resource.env.set("force-response-1.0", "1");
        return;
    }
    let fields = if in_always { &mut response.always } else { &mut response.fields };
    fields.set("Vary", list);
}

/// Whether a list is one name, as it would be written again.
fn is_name(list: &[u8]) -> bool {
    !list.iter().any(|byte| matches!(byte, b',' | b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead, Status};

    fn settled(env: &str, always: &[&str], fields: &[&str]) -> (Response, Request) {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.resource.env.set(env, "1");
        let mut response = Response::new(Status::OK);
        always.iter().for_each(|value| response.always.add("Vary", value));
        fields.iter().for_each(|value| response.fields.add("Vary", value));
        settle_vary(&mut request, &mut response);
        (response, request)
    }

    #[test]
    fn lists_become_one_with_each_name_once() {
        let (response, _) = settled("x", &["c"], &["a, b,A", "C"]);
        assert_eq!(response.always.first("Vary"), Some(&b"c,a,b"[..]));
        assert!(!response.fields.contains("Vary"));
        let (response, _) = settled("x", &[], &["a, b", "a"]);
        assert_eq!(response.fields.joined(b"Vary"), Some(b"a,b".to_vec()));
    }

    #[test]
    fn one_name_stays_as_it_is() {
        for (value, expected) in [("a", "a"), ("*", "*"), ("", ""), ("a,", "a"), (", a", "a")] {
            let (response, _) = settled("x", &[], &[value]);
            assert_eq!(response.fields.joined(b"Vary"), Some(expected.into()), "{value}");
        }
        let (response, _) = settled("x", &["b"], &["a"]);
        assert_eq!(response.always.first("Vary"), Some(&b"b,a"[..]));
    }

    #[test]
    fn a_client_may_be_spared_it() {
        let (response, request) = settled("force-no-vary", &["c"], &["a"]);
        assert!(!response.always.contains("Vary") && !response.fields.contains("Vary"));
        assert!(request.resource.env.contains("force-response-1.0"));
    }
}
