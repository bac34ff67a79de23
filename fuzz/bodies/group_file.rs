//! Parses any bytes as a file of groups and compares the groups with a search through the lines, as
//! Apache does it for each request.

use evenkeel_modules::passwords::GroupFile;

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let file = GroupFile::parse(data);
    assert!(file.complaints.iter().all(|complaint| complaint.lines().count() <= 1));
    // The model below knows neither joined lines, long lines, NUL bytes nor quoted members. The
    // unit tests of GroupFile cover these.
    let is_special = |byte: &u8| matches!(byte, b'\\' | b'"' | b'\'' | 0) || !byte.is_ascii();
    if data.iter().any(is_special) || data.len() > 8_000 {
        return;
    }
    let lines: Vec<(&[u8], Vec<&[u8]>)> = data
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).trim_ascii())
        .filter(|line| !line.starts_with(b"#"))
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, members) = line.split_at(colon);
            let words = members.get(1..)?.split(|byte| is_space(*byte));
            Some((name.trim_ascii_end(), words.filter(|word| !word.is_empty()).collect()))
        })
        .collect();
    for (name, members) in &lines {
        for user in members {
            assert!(file.knows(user) && file.is_member(user, name));
        }
        for (other, _) in &lines {
            for user in members {
                let mut same = lines.iter().filter(|line| line.0.eq_ignore_ascii_case(other));
                let is_member = same.any(|line| line.1.contains(user));
                assert_eq!(file.is_member(user, other), is_member);
            }
        }
    }
    assert!(!lines.iter().any(|line| file.line(line.0).is_none()));
}

/// White space between the members, which is C's isspace.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}
