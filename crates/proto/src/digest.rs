//! Parses the Authorization field of Digest authentication (RFC 7616, section 3.4) as Apache does:
//! unknown parameters are ignored, the last of equal parameters counts, and a value may be a token
//! or a quoted string for any parameter (mod_auth_digest.c: get_digest_rec).

/// The parameters of the field. A parameter is `None` if the field lacks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestParameters {
    /// `username`: the user name.
    pub username: Option<Vec<u8>>,
    /// `realm`: the realm of the challenge.
    pub realm: Option<Vec<u8>>,
    /// `nonce`: the nonce of the challenge.
    pub nonce: Option<Vec<u8>>,
    /// `uri`: the request target.
    pub uri: Option<Vec<u8>>,
    /// `response`: the hash that proves the password.
    pub response: Option<Vec<u8>>,
    /// `algorithm`: the name of the hash function.
    pub algorithm: Option<Vec<u8>>,
    /// `cnonce`: the nonce of the client.
    pub cnonce: Option<Vec<u8>>,
    /// `opaque`: the text that the challenge asked to be returned.
    pub opaque: Option<Vec<u8>>,
    /// `qop`: the quality of protection.
    pub qop: Option<Vec<u8>>,
    /// `nc`: the number of requests with this nonce, in hexadecimal digits.
    pub count: Option<Vec<u8>>,
}

/// An Authorization field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestField<'a> {
    /// The field has another scheme: this one.
    OtherScheme(&'a [u8]),
    /// The parameters behind the scheme `Digest`.
    Parameters(Box<DigestParameters>),
}

impl<'a> DigestField<'a> {
    /// Parses the value of a field. Any bytes are accepted; the caller checks which parameters are
    /// present.
    #[must_use]
    pub fn parse(field: &'a [u8]) -> Self {
        let end = field.iter().position(is_space).unwrap_or(field.len());
        let (scheme, rest) = field.split_at(end);
        if !scheme.eq_ignore_ascii_case(b"Digest") {
            return DigestField::OtherScheme(scheme);
        }
        let mut parameters = DigestParameters::default();
        let mut cursor = Cursor(rest);
        while !cursor.0.is_empty() {
            let (name, value) = cursor.parameter();
            if let Some(place) = parameters.place(name) {
                *place = Some(value);
            }
        }
        DigestField::Parameters(Box::new(parameters))
    }
}

impl DigestParameters {
    /// The field of a parameter. Names are case-insensitive.
    fn place(&mut self, name: &[u8]) -> Option<&mut Option<Vec<u8>>> {
        let places = [
            (&b"username"[..], &mut self.username),
            (b"realm", &mut self.realm),
            (b"nonce", &mut self.nonce),
            (b"uri", &mut self.uri),
            (b"response", &mut self.response),
            (b"algorithm", &mut self.algorithm),
            (b"cnonce", &mut self.cnonce),
            (b"opaque", &mut self.opaque),
            (b"qop", &mut self.qop),
            (b"nc", &mut self.count),
        ];
        places.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, it)| it)
    }
}

/// The bytes that are left to parse.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// Takes the bytes before the first one that `ends`.
    fn take_until(&mut self, ends: impl Fn(&u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(ends).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn skip_spaces(&mut self) {
        self.take_until(|byte| !is_space(byte));
    }

    /// Takes the byte if it is the next one.
    fn take(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes one parameter and the comma after it. A parameter without a value has an empty one.
    fn parameter(&mut self) -> (&'a [u8], Vec<u8>) {
        self.skip_spaces();
        let name = self.take_until(|byte| matches!(byte, b'=' | b',') || is_space(byte));
        self.skip_spaces();
        let mut value = Vec::new();
        if self.take(b'=') {
            self.skip_spaces();
            value = match self.take(b'"') {
                true => self.quoted(),
                false => self.take_until(|byte| *byte == b',' || is_space(byte)).to_vec(),
            };
        }
        self.take_until(|byte| *byte == b',');
        self.take(b',');
        (name, value)
    }

    /// Takes the rest of a quoted string. The closing quotation mark may be missing.
    fn quoted(&mut self) -> Vec<u8> {
        let mut value = Vec::new();
        loop {
            value.extend_from_slice(self.take_until(|byte| matches!(byte, b'"' | b'\\')));
            if !self.take(b'\\') {
                self.take(b'"');
                return value;
            }
            match self.0.split_first() {
                Some((escaped, rest)) => {
                    value.push(*escaped);
                    self.0 = rest;
                }
                None => value.push(b'\\'),
            }
        }
    }
}

/// White space of C's isspace.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(field: &str) -> DigestParameters {
        match DigestField::parse(field.as_bytes()) {
            DigestField::Parameters(parameters) => *parameters,
            DigestField::OtherScheme(scheme) => panic!("{scheme:?}"),
        }
    }

    fn text(bytes: &str) -> Option<Vec<u8>> {
        Some(bytes.as_bytes().to_vec())
    }

    #[test]
    fn a_field_of_a_browser_is_parsed() {
        let field = "Digest username=\"ann\", realm=\"a \\\"b\\\"\", nonce=\"n=\", \
                     uri=\"/x?a=1,2\", algorithm=MD5, response=\"0f\", opaque=\"1\", \
                     qop=auth, nc=00000001, cnonce=\"c\"";
        let want = DigestParameters {
            username: text("ann"),
            realm: text("a \"b\""),
            nonce: text("n="),
            uri: text("/x?a=1,2"),
            response: text("0f"),
            algorithm: text("MD5"),
            cnonce: text("c"),
            opaque: text("1"),
            qop: text("auth"),
            count: text("00000001"),
        };
        assert_eq!(parse(field), want);
    }

    #[test]
    fn odd_fields_are_parsed_as_in_apache() {
        for (field, username, realm) in [
            ("digest USERNAME=ann,Realm=x", text("ann"), text("x")),
            ("Digest username = \t\"ann\" junk , realm=x", text("ann"), text("x")),
            ("Digest username=a, username=b", text("b"), None),
            ("Digest username=, realm", text(""), text("")),
            ("Digest username=\"ann, realm=x", text("ann, realm=x"), None),
            ("Digest username=\"a\\", text("a\\"), None),
            ("Digest username=\"a\\\\\\\"b\"", text("a\\\"b"), None),
            ("Digest username=\"a\"b\"c\", realm=x", text("a"), text("x")),
            ("Digest ,,, =x, username=a", text("a"), None),
            ("Digest", None, None),
        ] {
            let parsed = parse(field);
            assert_eq!((parsed.username, parsed.realm), (username, realm), "{field}");
        }
        for (field, scheme) in
            [("Basic x", "Basic"), ("", ""), (" Digest x", ""), ("Digestx", "Digestx")]
        {
            let parsed = DigestField::parse(field.as_bytes());
            assert_eq!(parsed, DigestField::OtherScheme(scheme.as_bytes()), "{field}");
        }
    }

    proptest! {
        #[test]
        fn quoted_values_survive(
            user in proptest::collection::vec(any::<u8>(), 0..40),
            realm in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let quote = |value: &[u8]| -> Vec<u8> {
                let escape = |byte: &u8| match byte {
                    b'"' | b'\\' => vec![b'\\', *byte],
                    _ => vec![*byte],
                };
                value.iter().flat_map(escape).collect()
            };
            let field = [
                &b"Digest realm=\""[..], &quote(&realm), b"\", username=\"", &quote(&user), b"\"",
            ].concat();
            let DigestField::Parameters(parsed) = DigestField::parse(&field) else {
                return Err(TestCaseError::fail("another scheme"));
            };
            prop_assert_eq!(parsed.username, Some(user));
            prop_assert_eq!(parsed.realm, Some(realm));
        }

        #[test]
        fn no_value_is_longer_than_the_field(
            rest in proptest::collection::vec(
                prop_oneof![Just(b'"'), Just(b'\\'), Just(b','), Just(b'='), any::<u8>()],
                0..200,
            ),
        ) {
            let field = [b"Digest nc=1,username=", &rest[..]].concat();
            let DigestField::Parameters(parsed) = DigestField::parse(&field) else {
                return Err(TestCaseError::fail("another scheme"));
            };
            prop_assert!(parsed.count.is_some());
            prop_assert!(parsed.username.is_some_and(|it| it.len() <= rest.len()));
        }
    }
}
