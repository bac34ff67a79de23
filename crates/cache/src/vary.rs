//! Vary: which fields of a request select a stored response (RFC 9111, section 4.1).

use crate::control::words;
use evenkeel_message::{Fields, Name, trim};

/// The names of the selecting fields: in lower case, sorted, each once. None for `Vary: *`, which
/// selects nothing that could be stored, and for a member that is no name of a field. Blanks
/// separate names too, as in Apache.
#[must_use]
pub fn selecting_names(response: &Fields) -> Option<Vec<Box<str>>> {
    let mut names = Vec::new();
    for name in response.all(Name::Vary).flat_map(words) {
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        if !name.iter().all(is_name) {
            return None;
        }
        names.push(String::from_utf8_lossy(name).to_ascii_lowercase().into_boxed_str());
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// The values of the selecting fields of a request, as a text that is the same for two requests
/// exactly if they select the same response. White space around the members of lists does not
/// count, unless there are quoted strings, in which it may mean something.
#[must_use]
pub fn selecting_values(names: &[Box<str>], request: &Fields) -> Vec<u8> {
    let mut text = Vec::new();
    for name in names {
        text.extend_from_slice(name.as_bytes());
        match request.contains(name.as_bytes()) {
            false => text.push(0),
            true => {
                let mut separator = b':';
                for value in request.all(name.as_bytes()) {
                    let is_quoted = value.contains(&b'"');
                    for member in value.split(|byte| *byte == b',' && !is_quoted) {
                        text.push(separator);
                        text.extend_from_slice(trim(member));
                        separator = b',';
                    }
                }
                text.push(0);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.add(*name, value));
        fields
    }

    #[test]
    fn names_are_sorted_and_without_case() {
        let names = selecting_names(&fields(&[("Vary", "B, a"), ("Vary", "b,,C")])).unwrap();
        assert_eq!(names, ["a".into(), "b".into(), "c".into()]);
        for none in ["a, *", "a *", "* a", "a:b", "\"a\""] {
            assert_eq!(selecting_names(&fields(&[("Vary", none)])), None, "{none}");
        }
        let blanks = selecting_names(&fields(&[("Vary", "Foo Cookie")])).unwrap();
        assert_eq!(blanks, ["cookie".into(), "foo".into()]);
        assert_eq!(selecting_names(&fields(&[])), Some(vec![]));
    }

    #[test]
    fn values_are_the_same_for_the_same_lists_only() {
        let names: [Box<str>; 2] = ["accept-encoding".into(), "x".into()];
        let of = |lines: &[(&str, &str)]| selecting_values(&names, &fields(lines));
        let plain = of(&[("Accept-Encoding", "gzip, br")]);
        assert_eq!(plain, of(&[("accept-encoding", "gzip"), ("Accept-Encoding", " br ")]));
        let quoted = |text| of(&[("X", text)]);
        assert_ne!(quoted("\"a, b\""), quoted("\"a,b\""));
        for other in [
            &[][..],
            &[("Accept-Encoding", "gzip")],
            &[("Accept-Encoding", "")],
            &[("Accept-Encoding", "gzip, br"), ("X", "")],
            &[("Accept-Encoding", "br, gzip")],
        ] {
            assert_ne!(plain, of(other), "{other:?}");
        }
    }
}
