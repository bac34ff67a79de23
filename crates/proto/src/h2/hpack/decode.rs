//! The decoder of header blocks (RFC 7541, sections 5 and 6).

use super::fixed::{FIXED, KNOWN_OF_FIXED};
use super::huffman;
use super::table::Table;
use evenkeel_message::Name;

/// The block is malformed, or its receiver has stopped the decoding. The connection cannot be used
/// any more, because the dynamic tables of the two sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedBlock;

/// Decodes the blocks of a connection, in their order.
#[derive(Debug, Default)]
pub struct Decoder {
    table: Table,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// The bytes of a block that are not decoded yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Decodes an integer with a prefix of `bits` bits (section 5.1). At most four bytes may follow
    /// the first one, which is enough for every valid length and index.
    fn integer(&mut self, bits: u8) -> Result<usize, MalformedBlock> {
        let (first, rest) = self.0.split_first().ok_or(MalformedBlock)?;
        self.0 = rest;
        let most = (1_u8 << bits) - 1;
        let mut value = usize::from(first & most);
        if first & most < most {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let (byte, rest) = self.0.split_first().ok_or(MalformedBlock)?;
            self.0 = rest;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(MalformedBlock)
    }

    /// Decodes a string into `out`, whose contents it replaces (section 5.2).
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), MalformedBlock> {
        let is_coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(MalformedBlock)?;
        self.0 = rest;
        out.clear();
        if !is_coded {
            out.extend_from_slice(text);
            return Ok(());
        }
        huffman::decode(text, out).then_some(()).ok_or(MalformedBlock)
    }
}

impl Decoder {
    /// The decoder of a new connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a complete block. `take` receives each name with its value; the decoding stops if it
    /// returns false.
    ///
    /// # Errors
    /// The block is malformed, or `take` has stopped the decoding.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), MalformedBlock> {
        self.decode_known(block, |_, name, value| take(name, value))
    }

    /// The same. `take` receives the known name in front of its text. The tables store it, because
    /// a client sends most fields again with each request.
    pub(crate) fn decode_known(
        &mut self,
        block: &[u8],
        mut take: impl FnMut(Name, &[u8], &[u8]) -> bool,
    ) -> Result<(), MalformedBlock> {
        let (mut rest, mut has_fields) = (Rest(block), false);
        while let Some(first) = rest.0.first() {
            let goes_on = match first {
                0x80.. => {
                    let index = rest.integer(7)?;
                    let (known, name, value) = self.entry(index).ok_or(MalformedBlock)?;
                    take(known, name, value)
                }
                0x40..=0x7f => {
                    let known = self.literal(&mut rest, 6)?;
                    self.table.insert(known, &self.name, &self.value);
                    take(known, &self.name, &self.value)
                }
                0x20..=0x3f => {
                    // A size update is allowed only at the beginning of a block (section 4.2).
                    let most = rest.integer(5)?;
                    !has_fields && self.table.resize(most)
                }
                0x00..=0x1f => {
                    let known = self.literal(&mut rest, 4)?;
                    take(known, &self.name, &self.value)
                }
            };
            if !goes_on {
                return Err(MalformedBlock);
            }
            has_fields |= !matches!(first, 0x20..=0x3f);
        }
        Ok(())
    }

    /// Decodes a literal into `name` and `value`. Its name may be an index of a table.
    fn literal(&mut self, rest: &mut Rest<'_>, bits: u8) -> Result<Name, MalformedBlock> {
        let index = rest.integer(bits)?;
        let known = if index == 0 {
            rest.string(&mut self.name)?;
            Name::of(&self.name)
        } else {
            let mut text = std::mem::take(&mut self.name);
            text.clear();
            let entry = self.entry(index).map(|(known, name, _)| {
                text.extend_from_slice(name);
                known
            });
            self.name = text;
            entry.ok_or(MalformedBlock)?
        };
        rest.string(&mut self.value)?;
        Ok(known)
    }

    /// The entry of an index. The static table comes first, beginning with 1 (section 2.3.3).
    fn entry(&self, index: usize) -> Option<(Name, &[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        match FIXED.get(index).zip(KNOWN_OF_FIXED.get(index)) {
            Some(((name, value), known)) => Some((*known, name.as_bytes(), value.as_bytes())),
            None => self.table.entry(index - FIXED.len()),
        }
    }

    /// Frees the memory that is not needed between blocks.
    pub fn pack(&mut self) {
        self.table.pack();
        (self.name, self.value) = (Vec::new(), Vec::new());
    }

    /// The memory of the decoder in bytes, used or not.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.table.memory() + self.name.capacity() + self.value.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// The fields of a block, one in a line.
    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<String, MalformedBlock> {
        let mut text = String::new();
        decoder.decode(block, |name, value| {
            let field = [name, b": ", value, b"\n"].concat();
            text.push_str(std::str::from_utf8(&field).unwrap());
            true
        })?;
        Ok(text)
    }

    fn table(decoder: &Decoder) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let entry = |index| decoder.table.entry(index);
        (0..)
            .map_while(|at| entry(at).map(|(_, n, v)| format!("{}: {}", text(n), text(v))))
            .collect()
    }

    #[test]
    fn single_fields_of_rfc7541_c2() {
        let mut decoder = Decoder::new();
        let block = hex("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572");
        assert_eq!(decoded(&mut decoder, &block).unwrap(), "custom-key: custom-header\n");
        assert_eq!(table(&decoder), ["custom-key: custom-header"]);
        let mut decoder = Decoder::new();
        let block = hex("040c 2f73 616d 706c 652f 7061 7468");
        assert_eq!(decoded(&mut decoder, &block).unwrap(), ":path: /sample/path\n");
        let block = hex("1008 7061 7373 776f 7264 0673 6563 7265 74");
        assert_eq!(decoded(&mut decoder, &block).unwrap(), "password: secret\n");
        assert_eq!(decoded(&mut decoder, &hex("82")).unwrap(), ":method: GET\n");
        assert!(table(&decoder).is_empty());
    }

    const REQUESTS: [&str; 3] = [
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n",
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n\
         cache-control: no-cache\n",
        ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
         custom-key: custom-value\n",
    ];

    #[test]
    fn requests_of_rfc7541_c3_and_c4() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::new();
            for (block, fields) in blocks.iter().zip(REQUESTS) {
                assert_eq!(decoded(&mut decoder, &hex(block)).unwrap(), fields);
                decoder.pack();
            }
            let entries = [
                "custom-key: custom-value",
                "cache-control: no-cache",
                ":authority: www.example.com",
            ];
            assert_eq!(table(&decoder), entries);
        }
    }

    /// The examples of appendix C.5 and C.6 have a table of 256 bytes, which the first block sets.
    #[test]
    fn responses_of_rfc7541_c5_and_c6() {
        let plain = [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 \
             303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 \
             6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 \
             5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 \
             5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ];
        let coded = [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b \
             ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad \
             94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 \
             65c0 03ed 4ee5 b106 3d50 07",
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::new();
            assert_eq!(decoded(&mut decoder, &hex("3fe1 01")).unwrap(), "");
            let mut last = String::new();
            for block in blocks {
                last = decoded(&mut decoder, &hex(block)).unwrap();
            }
            assert_eq!(
                last,
                ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
                 location: https://www.example.com\ncontent-encoding: gzip\n\
                 set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n"
            );
            assert_eq!(
                table(&decoder),
                [
                    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                    "content-encoding: gzip",
                    "date: Mon, 21 Oct 2013 20:13:22 GMT",
                ]
            );
        }
    }

    #[test]
    fn malformed_blocks_are_errors() {
        for (block, what) in [
            ("80", "index 0"),
            ("be", "an index that the table does not have"),
            ("7e 01 61", "a name that the table does not have"),
            ("ff ff ff ff ff 0f", "an integer of five more bytes"),
            ("ff", "an integer without its end"),
            ("00 05 61", "a string without its end"),
            ("82 20", "a change of the size behind a field"),
            ("3f e2 1f", "a table of more than 4096 bytes"),
            ("00 81 18 01 61", "padding of zeros"),
        ] {
            assert_eq!(decoded(&mut Decoder::new(), &hex(block)), Err(MalformedBlock), "{what}");
        }
        let mut decoder = Decoder::new();
        assert_eq!(decoder.decode(&hex("82 82"), |_, _| false), Err(MalformedBlock));
    }
}
