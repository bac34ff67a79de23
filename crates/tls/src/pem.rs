//! PEM files: the blocks in them, with their line numbers. Text between blocks is ignored, as
//! OpenSSL does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A block of a PEM file.
#[derive(Clone, PartialEq, Eq)]
pub struct Block {
    /// What it says it is, such as `CERTIFICATE`.
    pub label: String,
    /// Its contents in DER.
    pub der: Vec<u8>,
    /// The line of its beginning, from 1.
    pub line: usize,
    /// Whether it is encrypted in OpenSSL's old way (`Proc-Type: 4,ENCRYPTED`).
    pub old_encryption: bool,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("label", &self.label).field("line", &self.line).finish()
    }
}

/// A block that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub text: String,
}

/// All blocks of a file.
///
/// # Errors
/// A block has no end or is not in Base64.
pub fn blocks(text: &[u8]) -> Result<Vec<Block>, Damaged> {
    let mut blocks = Vec::new();
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    while let Some((start, line)) = lines.next() {
        let Some(label) = marker(line, b"-----BEGIN ") else { continue };
        let damaged = |text: String| Damaged { line: start + 1, text };
        let (mut data, mut old_encryption, mut ended) = (Vec::new(), false, false);
        for (_, line) in lines.by_ref() {
            if let Some(end) = marker(line, b"-----END ") {
                if end != label {
                    return Err(damaged(format!("BEGIN {label} ends with END {end}")));
                }
                ended = true;
                break;
            }
            if line.contains(&b':') {
                old_encryption |= line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED");
                continue;
            }
            data.extend_from_slice(line);
        }
        if !ended {
            return Err(damaged(format!("BEGIN {label} has no END")));
        }
        let der = STANDARD
            .decode(&data)
            .map_err(|_| damaged(format!("the contents of {label} are not valid Base64")))?;
        blocks.push(Block { label, der, line: start + 1, old_encryption });
    }
    Ok(blocks)
}

fn marker(line: &[u8], before: &[u8]) -> Option<String> {
    let label = line.strip_prefix(before)?.strip_suffix(b"-----")?;
    std::str::from_utf8(label).ok().map(str::to_owned)
}

/// DER as PEM, in lines of 64 characters.
#[must_use]
pub fn write(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_and_text_between_them_is_ignored() {
        let text = b"subject=x\n-----BEGIN EC PARAMETERS-----\r\nBggqhkjOPQMBBw==\r\n\
            -----END EC PARAMETERS-----\n\n-----BEGIN A B-----\nAAEC\n-----END A B-----";
        let blocks = blocks(text).unwrap();
        let read: Vec<_> = blocks.iter().map(|block| (&block.label[..], block.line)).collect();
        assert_eq!(read, [("EC PARAMETERS", 2), ("A B", 6)]);
        assert_eq!(blocks[1].der, [0, 1, 2]);
        assert_eq!(super::blocks(write("A B", &[0, 1, 2]).as_bytes()).unwrap()[0].der, [0, 1, 2]);
    }

    #[test]
    fn damage_names_its_line() {
        for (text, line) in [
            ("\n-----BEGIN A-----\nAAEC\n", 2),
            ("-----BEGIN A-----\n!!\n-----END A-----\n", 1),
            ("-----BEGIN A-----\nAAEC\n-----END B-----\n", 1),
        ] {
            assert_eq!(blocks(text.as_bytes()).unwrap_err().line, line);
        }
    }

    #[test]
    fn the_old_encryption_is_seen() {
        let text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,00\n\n\
            AAEC\n-----END RSA PRIVATE KEY-----\n";
        assert!(blocks(text.as_bytes()).unwrap()[0].old_encryption);
    }
}
