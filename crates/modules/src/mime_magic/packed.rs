//! The beginning of what a compressed file holds, by which its media type is found. Apache has gzip
//! unpack the file; here nothing is executed.

use super::BEGINNING;
use flate2::read::MultiGzDecoder;
use std::io::Read as _;

/// The widest code of compress(1), in bits.
const WIDEST: u32 = 16;

/// The first code of compress(1) that stands for more than a byte, and the one that empties the
/// table.
const FIRST_FREE: usize = 257;
const CLEAR: usize = 256;

/// The Content-Encoding of a file that is compressed; none if it is not (mod_mime_magic.c: compr).
pub(super) fn encoding(beginning: &[u8]) -> Option<&'static str> {
    match beginning {
        [0x1f, 0x9d, ..] => Some("x-compress"),
        [0x1f, 0x8b, ..] => Some("x-gzip"),
        _ => None,
    }
}

/// The beginning of the contents of a compressed file, as far as the beginning of the file leads.
/// Empty if it cannot be unpacked.
pub(super) fn unpack(beginning: &[u8], encoding: &str) -> Vec<u8> {
    if encoding == "x-compress" {
        return expand(beginning);
    }
    let mut unpacked = vec![0; BEGINNING];
    let mut decoder = MultiGzDecoder::new(beginning);
    let mut length = 0;
    while let Some(rest) = unpacked.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest) {
            // Behind the beginning of the file an error is its end.
            Ok(0) | Err(_) => break,
            Ok(count) => length += count,
        }
    }
    unpacked.truncate(length);
    unpacked
}

/// Expands what compress(1) has written.
fn expand(packed: &[u8]) -> Vec<u8> {
    let [_, _, flags, data @ ..] = packed else { return Vec::new() };
    let (most_bits, clears) = (u32::from(flags & 0x1f), flags & 0x80 != 0);
    if !(9..=WIDEST).contains(&most_bits) {
        return Vec::new();
    }
    let mut out: Vec<u8> = Vec::new();
    // Each entry is a range of what was written: that of a code, and the byte behind it.
    let mut table: Vec<(usize, usize)> = Vec::new();
    let first = if clears { FIRST_FREE } else { CLEAR };
    let (mut bits, mut position, mut previous) = (9, 0_usize, None::<(usize, usize)>);
    let mut group = 0_usize;
    while out.len() < BEGINNING {
        let Some(code) = code_at(data, position, bits) else { break };
        position += bits as usize;
        group += 1;
        let start = out.len();
        let is_clear = clears && code == CLEAR;
        if is_clear {
            table.clear();
            previous = None;
        } else {
            let known = table.get(code.wrapping_sub(first)).copied();
            match (known, previous) {
                _ if code < 256 => out.push(code as u8),
                (Some((from, length)), _) => append(&mut out, from, length),
                // The entry that is made at this moment.
                (None, Some((from, length))) if code == first + table.len() => {
                    append(&mut out, from, length + 1);
                }
                _ => break,
            }
            if let Some((from, length)) = previous
                && first + table.len() < 1 << most_bits
            {
                table.push((from, length + 1));
            }
            previous = Some((start, out.len() - start));
        }
        // compress(1) writes groups of eight codes; a change of the width begins a new group.
        let wanted = match is_clear {
            true => 9,
            false if first + table.len() >= 1 << bits && bits < most_bits => bits + 1,
            false => bits,
        };
        if wanted != bits || is_clear {
            position += (group.next_multiple_of(8) - group) * bits as usize;
            (bits, group) = (wanted, 0);
        }
    }
    out.truncate(BEGINNING);
    out
}

/// Repeats bytes that were written, which may reach into those that are written by that.
fn append(out: &mut Vec<u8>, from: usize, length: usize) {
    for index in from..from + length {
        let Some(byte) = out.get(index).copied() else { return };
        out.push(byte);
    }
}

/// The code at a position in bits.
fn code_at(data: &[u8], position: usize, bits: u32) -> Option<usize> {
    let needed = (position + bits as usize).div_ceil(8);
    let bytes = data.get(position / 8..needed)?;
    let number = bytes.iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
    Some(number >> (position % 8) & ((1 << bits) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    #[test]
    fn gzip_is_unpacked_as_far_as_it_is_there() {
        let text: Vec<u8> = (0..9000_u32).map(|index| (index * index % 251) as u8).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&text).unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(encoding(&packed), Some("x-gzip"));
        assert_eq!(unpack(&packed, "x-gzip"), text[..BEGINNING]);
        let part = unpack(&packed[..100], "x-gzip");
        assert!(text.starts_with(&part), "{part:?}");
        assert_eq!(unpack(b"\x1f\x8bnonsense", "x-gzip"), b"");
        assert_eq!(encoding(b"\x1f"), None);
    }

    /// Written by ncompress for `aaaaaaaaaabab\n`, and by hand for a table that is emptied.
    #[test]
    fn compress_is_expanded() {
        let packed = code_bytes(&[97, 257, 258, 259, 98, 97, 98, 10], 9);
        assert_eq!(expand(&packed), b"aaaaaaaaaabab\n");
        assert_eq!(encoding(&packed), Some("x-compress"));
        let mut cleared = code_bytes(&[97, 98, 256, 0, 0, 0, 0, 0], 9);
        cleared.extend_from_slice(&code_bytes(&[99, 257, 0, 0, 0, 0, 0, 0], 9)[3..]);
        assert!(expand(&cleared).starts_with(b"abccc"));
        assert_eq!(expand(b"\x1f\x9d\x90"), b"");
        assert_eq!(expand(&code_bytes(&[97, 300], 9)), b"a");
    }

    fn code_bytes(codes: &[usize], bits: usize) -> Vec<u8> {
        let mut bytes = vec![0x1f, 0x9d, 0x90];
        let mut data = vec![0_u8; (codes.len() * bits).div_ceil(8)];
        for (index, code) in codes.iter().enumerate() {
            for bit in (0..bits).filter(|bit| code >> bit & 1 == 1) {
                let position = index * bits + bit;
                data[position / 8] |= 1 << (position % 8);
            }
        }
        bytes.append(&mut data);
        bytes
    }
}
