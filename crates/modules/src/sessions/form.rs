//! The fields of a form that a client sends (application/x-www-form-urlencoded), as Apache reads
//! them (util.c: ap_parse_form_data).

/// The longest name of a field, in bytes (HUGE_STRING_LEN).
const LONGEST_NAME: usize = 8192;

/// The fields of a form, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(Vec<u8>, Vec<u8>)>);

/// A form that is larger than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Name,
    Value,
}

impl Form {
    /// Parses the body of a request. Names and values may have `limit` bytes together.
    ///
    /// # Errors
    /// They have more.
    pub fn parse(body: &[u8], limit: usize) -> Result<Self, TooLong> {
        let (mut fields, mut state) = (Vec::new(), State::Name);
        let (mut name, mut value, mut size) = (Vec::new(), Vec::new(), 0);
        let mut bytes = body.iter().copied();
        while let Some(byte) = bytes.next() {
            let byte = match byte {
                b'&' => {
                    if state == State::Value {
                        fields.push((std::mem::take(&mut name), std::mem::take(&mut value)));
                    }
                    name.clear();
                    state = State::Name;
                    continue;
                }
                b'+' => b' ',
                b'%' => {
                    let (Some(high), Some(low)) = (bytes.next(), bytes.next()) else { break };
                    let byte = digit(high).wrapping_mul(16).wrapping_add(digit(low));
                    // Apache separates fields at an ampersand in an escape, and only there.
                    if high == b'&' || low == b'&' {
                        if state == State::Value {
                            fields.push((std::mem::take(&mut name), std::mem::take(&mut value)));
                        }
                        name.clear();
                        state = State::Name;
                        continue;
                    }
                    byte
                }
                byte => byte,
            };
            match state {
                State::Name if byte == b'=' => {
                    state = State::Value;
                    continue;
                }
                State::Name if name.len() >= LONGEST_NAME => return Err(TooLong),
                State::Name => name.push(byte),
                State::Value => value.push(byte),
            }
            size += 1;
            if size > limit {
                return Err(TooLong);
            }
        }
        if state == State::Value {
            fields.push((name, value));
        }
        Ok(Self(fields))
    }

    /// The value of the first field with a name, up to a NUL.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Vec<u8>> {
        let value = self.value(name)?;
        Some(value.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
    }

    /// The value of the first field with a name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let is_it = |field: &&(Vec<u8>, Vec<u8>)| field.0 == name.as_bytes();
        self.0.iter().find(is_it).map(|(_, value)| &**value)
    }
}

/// The value of a hexadecimal digit; that of another byte is as odd as in Apache (x2c).
fn digit(byte: u8) -> u8 {
    match byte {
        b'A'.. => (byte & 0xdf).wrapping_sub(b'A').wrapping_add(10),
        _ => byte.wrapping_sub(b'0'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_the_first_of_a_name_counts() {
        let form = Form::parse(b"user=an%6E&pw=a+b%26c%3d&none&empty=&user=x&%70=q", 8192).unwrap();
        assert_eq!(form.text("user").as_deref(), Some(&b"ann"[..]));
        assert_eq!(form.value("pw"), Some(&b"a b&c="[..]));
        assert_eq!(form.value("none"), None);
        assert_eq!(form.value("empty"), Some(&b""[..]));
        assert_eq!(form.value("p"), Some(&b"q"[..]));
        let nul = Form::parse(b"user=a%00b&pw=a%00b", 8192).unwrap();
        assert_eq!(nul.text("user").as_deref(), Some(&b"a"[..]));
        assert_eq!(nul.value("pw"), Some(&b"a\0b"[..]));
    }

    #[test]
    fn a_form_is_bounded() {
        assert!(Form::parse(b"ab=cd", 4).is_ok());
        assert_eq!(Form::parse(b"ab=cde", 4), Err(TooLong));
        assert_eq!(Form::parse(&[b'a'; LONGEST_NAME + 1], usize::MAX), Err(TooLong));
        assert!(Form::parse(b"a=%", 9).is_ok() && Form::parse(b"a=%4", 9).is_ok());
    }
}
