//! The Huffman code of HPACK (RFC 7541, appendix B). It is canonical: the lengths of the codes
//! determine the codes. The compiler computes the tables for both directions.

/// The length of the code of each byte in bits, and that of the symbol EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The code of each symbol, right-aligned.
static CODES: [u32; 257] = codes();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn codes() -> [u32; 257] {
    let mut codes = [0; 257];
    let (mut code, mut length) = (0_u32, 1);
    while length <= 30 {
        code <<= 1;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    codes
}

/// A node of the tree of codes: for each bit, the next node, or [`LEAF`] and a symbol.
const LEAF: u16 = 0x8000;

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn tree() -> [[u16; 2]; 256] {
    let codes = codes();
    let mut nodes = [[0_u16; 2]; 256];
    let (mut used, mut symbol) = (1, 0);
    while symbol < 257 {
        let (mut node, mut left) = (0_usize, LENGTHS[symbol]);
        while left > 1 {
            left -= 1;
            let bit = (codes[symbol] >> left & 1) as usize;
            if nodes[node][bit] == 0 {
                nodes[node][bit] = used;
                used += 1;
            }
            node = nodes[node][bit] as usize;
        }
        nodes[node][(codes[symbol] & 1) as usize] = LEAF | symbol as u16;
        symbol += 1;
    }
    nodes
}

/// The transition from a node by four bits. No code is shorter than five bits, so four bits
/// complete at most one symbol.
#[derive(Clone, Copy)]
struct Step {
    next: u8,
    symbol: u8,
    emits: bool,
    /// The bits complete EOS, which no string may contain.
    fails: bool,
}

static STEPS: [[Step; 16]; 256] = steps();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn steps() -> [[Step; 16]; 256] {
    let nodes = tree();
    let none = Step { next: 0, symbol: 0, emits: false, fails: false };
    let mut steps = [[none; 16]; 256];
    let mut at = 0;
    while at < 256 {
        let mut bits = 0;
        while bits < 16 {
            let (mut node, mut left, mut step) = (at, 4, none);
            while left > 0 {
                left -= 1;
                let next = nodes[node][bits >> left & 1];
                if next & LEAF == 0 {
                    node = next as usize;
                } else if next == LEAF | 256 {
                    step.fails = true;
                    node = 0;
                } else {
                    step.emits = true;
                    step.symbol = next as u8;
                    node = 0;
                }
            }
            step.next = node as u8;
            steps[at][bits] = step;
            bits += 1;
        }
        at += 1;
    }
    steps
}

/// The nodes in which a string may end: fewer than eight bits follow the last symbol, all ones.
static ENDS: [bool; 256] = ends();

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn ends() -> [bool; 256] {
    let nodes = tree();
    let mut ends = [false; 256];
    let (mut node, mut depth) = (0_usize, 0);
    while depth < 8 {
        ends[node] = true;
        node = nodes[node][1] as usize;
        depth += 1;
    }
    ends
}

/// Appends the decoded string. False if it is malformed.
pub(crate) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let mut node = 0_u8;
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        for bits in [byte >> 4, byte & 15] {
            let steps = STEPS.get(usize::from(node));
            let Some(step) = steps.and_then(|steps| steps.get(usize::from(bits))) else {
                return false;
            };
            if step.fails {
                return false;
            }
            if step.emits {
                out.push(step.symbol);
            }
            node = step.next;
        }
    }
    ENDS.get(usize::from(node)).copied().unwrap_or(false)
}

/// The length of the encoded string in bytes.
pub(crate) fn encoded_length(bytes: &[u8]) -> usize {
    let bits = |byte: &u8| LENGTHS.get(usize::from(*byte)).map_or(30, |bits| usize::from(*bits));
    bytes.iter().map(bits).sum::<usize>().div_ceil(8)
}

/// Appends the encoded string.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut kept, mut count) = (0_u64, 0_u32);
    for byte in bytes {
        let symbol = usize::from(*byte);
        let (Some(code), Some(length)) = (CODES.get(symbol), LENGTHS.get(symbol)) else { return };
        kept = kept << length | u64::from(*code);
        count += u32::from(*length);
        while count >= 8 {
            count -= 8;
            out.push((kept >> count) as u8);
        }
        kept &= (1 << count) - 1;
    }
    if count > 0 {
        // The padding consists of the first bits of EOS, which are ones.
        out.push((kept << (8 - count)) as u8 | (0xff >> count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).then_some(out)
    }

    /// The codes that RFC 7541, appendix B, gives for these symbols.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, code) in [
            (0, 0x1ff8),
            (1, 0x007f_ffd8),
            (b'0', 0x0),
            (b'a', 0x3),
            (b'&', 0xf8),
            (b'z', 0x7b),
            (b'~', 0x1ffd),
            (128, 0x000f_ffe6),
            (249, 0x0fff_fffe),
            (255, 0x03ff_ffee),
        ] {
            assert_eq!(CODES[usize::from(symbol)], code, "{symbol}");
        }
        assert_eq!(CODES[256], 0x3fff_ffff);
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones() {
        let www = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(decoded(www).as_deref(), Some(&b"www.example.com"[..]));
        let longer = [&www[..], b"\xff"].concat();
        assert_eq!(decoded(&longer), None, "eight bits of padding");
        assert_eq!(decoded(b"\x18"), None, "padding of zeros");
        assert_eq!(decoded(b"\xff\xff\xff\xff"), None, "the symbol for the end");
        assert_eq!(decoded(b""), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            encode(&text, &mut out);
            prop_assert_eq!(out.len(), encoded_length(&text));
            prop_assert_eq!(decoded(&out), Some(text));
        }
    }
}
