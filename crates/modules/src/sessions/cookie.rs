//! One cookie among those of a request, and the fields without it (util_cookies.c:
//! extract_cookie_line).

use evenkeel_message::Fields;

/// A cookie of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    /// The value of the cookie; none if it is not there.
    pub value: Option<Vec<u8>>,
    /// Whether the cookie is there with different values.
    pub is_ambiguous: bool,
    /// The fields Cookie and Cookie2 without the cookie.
    others: Vec<(&'static str, Vec<u8>)>,
}

impl Cookies {
    /// Looks for a cookie. As in Apache, commas separate cookies too.
    #[must_use]
    pub fn find(fields: &Fields, name: &str) -> Self {
        let mut found = Self::default();
        for field in ["Cookie", "Cookie2"] {
            for line in fields.all(field) {
                found.read(field, line, name.as_bytes());
            }
        }
        found
    }

    fn read(&mut self, field: &'static str, line: &[u8], name: &[u8]) {
        let (mut others, mut count, mut is_of_it, mut separator) = (Vec::new(), 0, false, None);
        for list in line.split(|byte| *byte == b',').filter(|list| !list.is_empty()) {
            for pair in list.split(|byte| *byte == b';').filter(|pair| !pair.is_empty()) {
                let trimmed = pair.trim_ascii_start();
                let own = trimmed.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"="));
                if let Some(value) = own {
                    self.is_ambiguous |= self.value.as_deref().is_some_and(|it| it != value);
                    self.value = Some(value.to_vec());
                    is_of_it = true;
                } else {
                    if !trimmed.starts_with(b"$") {
                        count += 1;
                        is_of_it = false;
                    }
                    if !is_of_it {
                        others.extend(separator);
                        others.extend_from_slice(pair);
                    }
                }
                separator = Some(b';');
            }
            separator = Some(b',');
        }
        if count > 0 {
            self.others.push((field, others));
        }
    }

    /// Replaces the cookies of a request by the others, so that no application sees this one.
    pub fn remove(&self, fields: &mut Fields) {
        fields.remove("Cookie");
        fields.remove("Cookie2");
        self.others.iter().for_each(|(field, line)| fields.add(*field, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[(&str, &str)]) -> (Cookies, Vec<String>) {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.add(*name, value));
        let cookies = Cookies::find(&fields, "session");
        cookies.remove(&mut fields);
        let rest = fields.iter().map(|(_, value)| String::from_utf8(value.to_vec()).unwrap());
        (cookies.clone(), rest.collect())
    }

    #[test]
    fn a_cookie_is_found_and_taken_out() {
        let (cookies, rest) = found(&[("Cookie", "a=1; session=x=y&z; b=2")]);
        assert_eq!(cookies.value.as_deref(), Some(&b"x=y&z"[..]));
        assert_eq!(rest, ["a=1; b=2"]);
        let (cookies, rest) = found(&[("Cookie", "session=x; $Path=/; a=1")]);
        assert_eq!(cookies.value.as_deref(), Some(&b"x"[..]));
        assert_eq!(rest, ["; a=1"]);
        let (cookies, rest) = found(&[("Cookie", "session=x"), ("Cookie2", "$Version=1")]);
        assert_eq!((cookies.value.as_deref(), rest.len()), (Some(&b"x"[..]), 0));
        let (cookies, _) = found(&[("Cookie", "Session=x; mysession=y")]);
        assert_eq!(cookies.value, None);
    }

    #[test]
    fn two_values_are_ambiguous() {
        let is_ambiguous = |line| found(&[("Cookie", line)]).0.is_ambiguous;
        assert!(is_ambiguous("session=x; session=y") && is_ambiguous("session=x, session=y"));
        assert!(!is_ambiguous("session=x; session=x"));
    }
}
