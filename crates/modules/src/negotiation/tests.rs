//! Negotiations as RFC 2296 and Apache's manual have them.

use super::*;
use evenkeel_message::{Peer, RequestHead};

fn request(fields: &[(&str, &str)]) -> Request {
    let mut head = RequestHead::default();
    fields.iter().for_each(|(name, value)| head.fields.add(name, value));
    let address = "127.0.0.1:80".parse().unwrap();
    Request::new(head, Peer { client: address, local: address }, 0)
}

fn variant(name: &str, media_type: &str, language: &str, length: u64) -> Variant {
    let mut variant = Variant::new(name.as_bytes(), media_type.as_bytes());
    variant.set_languages(language.as_bytes());
    variant.length = Some(length);
    variant
}

const PLAIN: Resource = Resource { prefers_programs: false };

fn chosen(fields: &[(&str, &str)], settings: &Directory, variants: &mut [Variant]) -> String {
    match negotiate(&mut request(fields), settings, variants, PLAIN) {
        Outcome::Choice { index, .. } => String::from_utf8(variants[index].name.clone()).unwrap(),
        Outcome::List { status, .. } => status.code().to_string(),
    }
}

fn languages() -> Vec<Variant> {
    vec![
        variant("x.html.de", "text/html", "de", 5),
        variant("x.html.en", "text/html", "en", 9),
        variant("x.html.fr", "text/html", "fr", 7),
    ]
}

fn priority(words: &[&str], force: Option<Force>) -> Directory {
    let list = words.iter().map(|word| Box::from(*word)).collect();
    Directory { priority: Some(Arc::new(list)), force }
}

#[test]
fn languages_are_chosen_by_rank_then_priority_then_length() {
    let none = Directory::default();
    let asked = |text| chosen(&[("Accept-Language", text)], &none, &mut languages());
    assert_eq!(asked("fr"), "x.html.fr");
    assert_eq!(asked("fr;q=0.3, en;q=0.7"), "x.html.en");
    assert_eq!(asked("en-GB"), "x.html.en");
    assert_eq!(asked("da"), "406");
    assert_eq!(asked("*, de;q=0.1"), "x.html.fr");
    assert_eq!(chosen(&[], &none, &mut languages()), "x.html.de");
    let set = priority(&["fr", "en"], None);
    assert_eq!(chosen(&[], &set, &mut languages()), "x.html.fr");
    assert_eq!(chosen(&[("Accept-Language", "en, fr")], &set, &mut languages()), "x.html.fr");
}

#[test]
fn fallback_sends_what_nobody_asked_for() {
    let both = Some(Force { prefer: true, fallback: true });
    let da = [("Accept-Language", "da")];
    assert_eq!(chosen(&da, &priority(&["en"], both), &mut languages()), "x.html.en");
    assert_eq!(chosen(&da, &priority(&["nl"], both), &mut languages()), "406");
    assert_eq!(chosen(&da, &priority(&["en"], Some(Force::NONE)), &mut languages()), "406");
}

#[test]
fn media_types_outrank_languages() {
    let none = Directory::default();
    let mut two =
        [variant("x.html", "text/html", "", 9), variant("x.txt", "text/plain;qs=0.5", "", 5)];
    assert_eq!(chosen(&[], &none, &mut two), "x.html");
    assert_eq!(chosen(&[("Accept", "text/plain, */*")], &none, &mut two), "x.txt");
    assert_eq!(chosen(&[("Accept", "text/plain;q=0.9, */*;q=0.5")], &none, &mut two), "x.html");
    assert_eq!(chosen(&[("Accept", "image/png")], &none, &mut two), "406");
}

#[test]
fn an_encoded_variant_is_sent_to_those_who_can_read_it() {
    let none = Directory::default();
    let mut two = [variant("x.html", "text/html", "", 9), variant("x.html.gz", "text/html", "", 5)];
    two[1].encoding = Some(b"x-gzip".to_vec());
    assert_eq!(chosen(&[], &none, &mut two), "x.html");
    assert_eq!(chosen(&[("Accept-Encoding", "gzip")], &none, &mut two), "x.html.gz");
    assert_eq!(chosen(&[("Accept-Encoding", "br")], &none, &mut two), "x.html");
    let mut spared = request(&[("Accept-Encoding", "gzip")]);
    spared.resource.env.set("no-gzip", "1");
    let outcome = negotiate(&mut spared, &none, &mut two, PLAIN);
    assert!(matches!(outcome, Outcome::Choice { index: 0, .. }));
}

#[test]
fn a_charset_that_is_not_wanted_is_not_sent() {
    let none = Directory::default();
    let mut two = [
        variant("x.l1", "text/html;charset=iso-8859-1", "", 5),
        variant("x.u8", "text/html;charset=utf-8", "", 9),
    ];
    assert_eq!(chosen(&[], &none, &mut two), "x.u8");
    assert_eq!(chosen(&[("Accept-Charset", "iso-8859-1")], &none, &mut two), "x.l1");
    assert_eq!(chosen(&[("Accept-Charset", "koi8-r")], &none, &mut two), "x.l1");
    assert_eq!(chosen(&[("Accept-Charset", "koi8-r, *;q=0.1")], &none, &mut two), "x.u8");
}

#[test]
fn clients_that_know_transparent_negotiation_get_the_list() {
    let none = Directory::default();
    let outcome = |negotiates: &str, language: &str| {
        let accept = [("Accept", "text/html"), ("Accept-Language", language)];
        let mut asked = request(&[("Negotiate", negotiates), accept[0], accept[1]]);
        negotiate(&mut asked, &none, &mut languages(), PLAIN)
    };
    let Outcome::List { status, fields, list } = outcome("vlist", "en") else { panic!("a choice") };
    assert_eq!(status, Status::MULTIPLE_CHOICES);
    assert_eq!(fields.first("TCN"), Some(&b"list"[..]));
    assert_eq!(fields.first("Vary"), Some(&b"negotiate, accept-language"[..]));
    let alternates = String::from_utf8_lossy(fields.first("Alternates").unwrap()).into_owned();
    let first = "{\"x.html.de\" 1 {type text/html} {language de} {length 5}}, {";
    assert!(alternates.starts_with(first), "{alternates}");
    let list = String::from_utf8(list).unwrap();
    let line = "<li><a href=\"x.html.de\">x.html.de</a> , type text/html, language de</li>\n";
    assert!(list.contains(line), "{list}");
    let sure = outcome("1.0", "en");
    assert!(matches!(sure, Outcome::Choice { index: 1, transparent: true, .. }));
    assert!(matches!(outcome("1.0", "*"), Outcome::List { .. }));
    assert!(matches!(outcome("*", "*"), Outcome::Choice { .. }));
}

#[test]
fn qualities_are_told_in_short() {
    let told = |quality: f32| {
        let mut variant = Variant::new(b"a b", b"");
        variant.source_quality = quality;
        let mut fields = answer::describe(&[variant], false, true, false);
        let told = fields.first("Alternates").unwrap().to_vec();
        fields.clear();
        String::from_utf8(told).unwrap()
    };
    assert_eq!(told(1.0), "{\"a%20b\" 1}");
    assert_eq!(told(0.25), "{\"a%20b\" 0.25}");
    assert_eq!(told(0.0), "{\"a%20b\" 0}");
}

#[test]
fn an_encoding_is_spelled_as_the_client_does() {
    let spelled = |own: &str, asked: &str| {
        let mut request = request(&[("Accept-Encoding", asked)]);
        request.resource.content.encoding = Some(own.as_bytes().into());
        spell_encoding(&mut request);
        String::from_utf8(request.resource.content.encoding.unwrap().to_vec()).unwrap()
    };
    assert_eq!(spelled("x-gzip", "br, gzip;q=0.5"), "gzip");
    assert_eq!(spelled("gzip", "x-gzip"), "x-gzip");
    assert_eq!(spelled("x-gzip", "br"), "x-gzip");
}

#[test]
fn a_type_map_is_known_by_handler_or_type() {
    let content = |handler: Option<&str>, media_type: &str| Content {
        handler: handler.map(|name| name.as_bytes().into()),
        media_type: Some(media_type.as_bytes().into()),
        ..Content::default()
    };
    assert!(is_map(&content(Some("type-map"), "text/html")));
    assert!(is_map(&content(None, "application/x-type-map; a=b")));
    assert!(!is_map(&content(Some("other"), "application/x-type-map")));
    assert!(!is_map(&content(None, "text/html")));
}
