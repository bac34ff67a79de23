//! Parses any bytes as a file of users and compares the entries with a search through the lines, as
//! Apache does it for each login.

use evenkeel_modules::passwords::PasswordFile;

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let file = PasswordFile::parse(data);
    assert!(file.complaints.iter().all(|complaint| complaint.lines().count() <= 1));
    // Lines that are joined, too long or cut by a NUL are left to the other tests.
    if data.iter().any(|byte| matches!(byte, b'\\' | 0)) || data.len() > 8_000 {
        return;
    }
    let lines: Vec<Vec<&[u8]>> = data
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).trim_ascii())
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .map(|line| line.split(|byte| *byte == b':').collect())
        .collect();
    let field =
        |line: &[&[u8]], index: usize| line.get(index).copied().unwrap_or_default().to_vec();
    for line in &lines {
        let (user, realm) = (field(line, 0), field(line, 1));
        let first = lines.iter().find(|other| field(other, 0) == user).map(|it| field(it, 1));
        assert_eq!(file.user(&user).map(|entry| entry.hash.to_vec()), first);
        let of_realm = |other: &&Vec<&[u8]>| {
            field(other, 0) == user && field(other, 1) == realm && !field(other, 2).is_empty()
        };
        let first = lines.iter().find(of_realm).map(|it| field(it, 2));
        assert_eq!(file.user_of_realm(&user, &realm).map(|entry| entry.hash.to_vec()), first);
    }
}
