//! Guesses the format of a log: the one that most of its first lines match. If none of the first
//! lines matches any format, the log is not replayed.

use super::lines::Stream;
use super::log::{Format, Misfit};
use std::io::{self, BufRead as _, Cursor, Read as _};

/// The number of lines that are examined, and the most bytes.
const LINES: usize = 1000;
const BYTES: usize = 1 << 20;

/// A log whose format is known, from its beginning.
pub(super) struct Guessed {
    pub(super) format: Format,
    pub(super) stream: Stream,
}

/// Examines the first lines of a log. `wanted` is the format that the user named.
///
/// # Errors
///
/// Those of the system; there are no lines; or which line does not match what, and why.
pub(super) fn guess(
    name: &str,
    mut stream: Stream,
    wanted: Option<Format>,
) -> Result<Guessed, String> {
    let head = first_lines(&mut stream).map_err(|error| format!("{name}: {error}"))?;
    let mut lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    // The last line is empty, or may continue.
    if head.len() >= BYTES || lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    if lines.is_empty() {
        return Err(format!("{name}: there is no line in it"));
    }
    let formats = match wanted {
        Some(format) => vec![format],
        None => Format::NAMES.iter().map(|name| Format::new(name)).collect::<Result<_, _>>()?,
    };
    let format = choose(name, &lines, formats)?;
    Ok(Guessed { format, stream: Box::new(Cursor::new(head).chain(stream)) })
}

fn first_lines(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let (mut head, mut lines) = (Vec::new(), 0);
    while lines < LINES && head.len() < BYTES {
        let most = (BYTES - head.len()) as u64;
        if stream.take(most).read_until(b'\n', &mut head)? == 0 {
            break;
        }
        lines += 1;
    }
    Ok(head)
}

fn choose(name: &str, lines: &[&[u8]], formats: Vec<Format>) -> Result<Format, String> {
    let mut best: Option<(usize, Format)> = None;
    // Why the first line that is not empty does not match, for the format that matches the longest
    // part of it.
    let mut nearest: Option<(usize, Misfit, String)> = None;
    let several = formats.len() > 1;
    for format in formats {
        let mut fitting = 0;
        let mut first = None;
        for (index, line) in lines.iter().enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match format.parse(line) {
                Ok(found) => fitting += usize::from(found.is_some()),
                Err(misfit) => first = first.or(Some((index + 1, misfit))),
            }
        }
        if let Some((number, misfit)) = first {
            let farther = nearest.as_ref().is_none_or(|(_, it, _)| misfit.column > it.column);
            if farther {
                nearest = Some((number, misfit, format.name().to_owned()));
            }
        }
        if fitting > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((fitting, format));
        }
    }
    match (best, nearest) {
        (Some((_, format)), _) => Ok(format),
        (None, Some((number, misfit, format))) => {
            let known = if several {
                format!(
                    "a format that is known ({}); say it with --format",
                    Format::NAMES.join(", ")
                )
            } else {
                format.clone()
            };
            Err(format!(
                "{name}:{number}: {misfit}, if it is {format}; none of the first {} lines fits \
                 {known}",
                lines.len()
            ))
        }
        (None, None) => Err(format!("{name}: there is no request in its first lines")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(text: &str, wanted: Option<&str>) -> Result<String, String> {
        let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
        let wanted = wanted.map(|name| Format::new(name).unwrap());
        let mut guessed = guess("log", stream, wanted)?;
        // Examining the log loses nothing of it.
        let mut whole = String::new();
        guessed.stream.read_to_string(&mut whole).unwrap();
        assert_eq!(whole, text);
        Ok(guessed.format.name().to_owned())
    }

    const COMMON: &str = "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 5";

    #[test]
    fn the_format_that_fits_most_lines_is_the_logs() {
        let combined = format!("{COMMON} \"-\" \"x\"");
        let found = |text: String| guessed(&text, None).unwrap();
        assert_eq!(found(format!("{COMMON}\n")), "common");
        assert_eq!(found(format!("junk\n{COMMON}\n{combined}\n{combined}")), "combined");
        assert_eq!(found(format!("h:80 {combined}\r\n")), "vhost_combined");
        assert_eq!(found("{\"uri\":\"/\"}\n".into()), "json");
        assert_eq!(found("# a list\n/a\n/b\n".into()), "urls");
        assert_eq!(found(format!("{combined}\n").repeat(5000)), "combined");
    }

    #[test]
    fn a_log_of_another_format_names_its_first_bad_line() {
        let error = |text: &str, wanted| guessed(text, wanted).unwrap_err();
        let one = error("\u{7f}ELF\n\n", None);
        assert!(one.starts_with("log:1: column ") && one.contains("--format"), "{one}");
        let urls = error("# a list\nGET /a HTTP/1.1\n", Some("urls"));
        let wanted = "log:2: column 5: a path (/index.html) or a URL (http://host/index.html) is \
                      expected, if it is urls; none of the first 2 lines fits urls";
        assert_eq!(urls, wanted);
        assert_eq!(error("", None), "log: there is no line in it");
        assert_eq!(error("# none\n", Some("urls")), "log: there is no request in its first lines");
        assert!(error(&format!("{COMMON}\n"), Some("combined")).starts_with("log:1: column 60: "));
    }
}
