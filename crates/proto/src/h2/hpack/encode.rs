//! The encoder of header blocks. It adds nothing to the dynamic table: fields are indexes of the
//! static table, or literals without indexing (RFC 7541, section 6.2.2).

use super::fixed::{FIXED, index_of};
use super::huffman;
use evenkeel_message::{Name, Status};
use std::cell::RefCell;

/// Values that are longer than this are encoded anew each time.
const MOST_REMEMBERED: usize = 128;

/// The encoding of the last value of each known name. Most fields of a response have the same value
/// as in the response before it, such as Date and Server. All connections of a thread share it,
/// because the encoder is stateless: an encoded field means the same on each of them.
#[derive(Debug, Default)]
pub struct FieldMemo {
    /// By the number of the name.
    fields: Vec<Remembered>,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    value: Vec<u8>,
    /// The encoded field; empty if none is remembered.
    encoded: Vec<u8>,
}

/// Appends the fields of a block to a buffer.
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    memo: Option<&'a RefCell<FieldMemo>>,
}

impl<'a> Encoder<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, memo: None }
    }

    /// Appends to `out`, and takes from `memo` what was encoded before.
    pub fn with_memo(out: &'a mut Vec<u8>, memo: Option<&'a RefCell<FieldMemo>>) -> Self {
        Self { out, memo }
    }

    /// Appends a size update of 0 for the dynamic table (section 6.3). The block after a client's
    /// reduction of the table must begin with a size update.
    pub fn drop_table(&mut self) {
        self.out.push(0x20);
    }

    /// Appends the status.
    pub fn status(&mut self, status: Status) {
        let index = match status.code() {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            code => {
                self.integer(0x00, 4, 8);
                let mut text = itoa::Buffer::new();
                self.string(text.format(code).as_bytes());
                return;
            }
        };
        self.integer(0x80, 7, index);
    }

    /// Appends a field. `known` is the known name for `name`, which is sent in lower case.
    pub fn field(&mut self, known: Name, name: &[u8], value: &[u8]) {
        // A cookie is secret, and rarely the same again.
        let is_remembered =
            !matches!(known, Name::Other | Name::SetCookie) && value.len() <= MOST_REMEMBERED;
        let Some(memo) = self.memo.filter(|_| is_remembered) else {
            return self.encode(known, name, value);
        };
        let fields = &mut memo.borrow_mut().fields;
        if fields.len() <= known as usize {
            fields.resize_with(known as usize + 1, Remembered::default);
        }
        let Some(remembered) = fields.get_mut(known as usize) else { return };
        if remembered.value == value && !remembered.encoded.is_empty() {
            return self.out.extend_from_slice(&remembered.encoded);
        }
        let start = self.out.len();
        self.encode(known, name, value);
        remembered.value.clear();
        remembered.value.extend_from_slice(value);
        remembered.encoded.clear();
        remembered.encoded.extend_from_slice(self.out.get(start..).unwrap_or_default());
    }

    fn encode(&mut self, known: Name, name: &[u8], value: &[u8]) {
        match index_of(known, name) {
            Some(index) => {
                let fixed = FIXED.get(index - 1).map_or("", |(_, fixed)| fixed);
                if fixed.as_bytes() == value && !fixed.is_empty() {
                    return self.integer(0x80, 7, index);
                }
                self.integer(0x00, 4, index);
            }
            None => {
                self.out.push(0x00);
                self.string(&name.to_ascii_lowercase());
            }
        }
        self.string(value);
    }

    /// Appends an integer with a prefix of `bits` bits. `pattern` holds the other bits of its first
    /// byte.
    fn integer(&mut self, pattern: u8, bits: u8, value: usize) {
        let most = (1_usize << bits) - 1;
        if value < most {
            return self.out.push(pattern | value as u8);
        }
        self.out.push(pattern | most as u8);
        let mut rest = value - most;
        while rest >= 0x80 {
            self.out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.out.push(rest as u8);
    }

    /// Appends a string, Huffman-coded if that is shorter.
    fn string(&mut self, text: &[u8]) {
        let coded = huffman::encoded_length(text);
        if coded < text.len() {
            self.integer(0x80, 7, coded);
            huffman::encode(text, self.out);
        } else {
            self.integer(0x00, 7, text.len());
            self.out.extend_from_slice(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::*;
    use proptest::prelude::*;

    fn decoded(block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut decoder, mut fields) = (Decoder::new(), Vec::new());
        let taken = decoder.decode(block, |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
            true
        });
        assert_eq!(taken, Ok(()));
        fields
    }

    #[test]
    fn fields_of_the_static_table_are_short() {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out);
        encoder.status(Status::OK);
        encoder.field(Name::AcceptEncoding, b"Accept-Encoding", b"gzip, deflate");
        assert_eq!(out, b"\x88\x90");
        let mut out = Vec::new();
        Encoder::new(&mut out).status(Status::FORBIDDEN);
        assert_eq!(decoded(&out), [(b":status".to_vec(), b"403".to_vec())]);
        // An empty value is not that of the static table, which has a name only.
        let mut out = Vec::new();
        Encoder::new(&mut out).field(Name::Server, b"Server", b"");
        assert_eq!(decoded(&out), [(b"server".to_vec(), Vec::new())]);
    }

    #[test]
    fn a_remembered_field_is_that_of_its_value() {
        let memo = RefCell::new(FieldMemo::default());
        let fields: [(&str, &str); 7] = [
            ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("Date", "Thu, 01 Jan 1970 00:00:01 GMT"),
            ("Server", ""),
            ("Server", "Apache"),
            ("Vary", "Accept-Encoding"),
            ("X-Own", "1"),
            ("Set-Cookie", "a=1"),
        ];
        // The second time, all fields but those of Date are remembered.
        for _ in 0..2 {
            let mut out = Vec::new();
            let mut encoder = Encoder::with_memo(&mut out, Some(&memo));
            for (name, value) in fields {
                encoder.field(Name::of(name.as_bytes()), name.as_bytes(), value.as_bytes());
            }
            let expected = fields.map(|(name, value)| {
                (name.to_ascii_lowercase().into_bytes(), value.as_bytes().to_vec())
            });
            assert_eq!(decoded(&out), expected);
        }
        let kept = &memo.borrow().fields;
        assert!(kept.iter().all(|one| one.value != b"a=1" && one.value != b"1"));
        assert!(kept.iter().any(|one| one.value == b"Apache"));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            name in "[A-Za-z-]{1,20}|Content-(Type|Length)|Vary|ETag|Link",
            value in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut out = Vec::new();
            Encoder::new(&mut out).field(Name::of(name.as_bytes()), name.as_bytes(), &value);
            let name = name.to_ascii_lowercase().into_bytes();
            prop_assert_eq!(decoded(&out), [(name, value)]);
        }
    }
}
