//! The text of refusals in the error log: the file that was refused, and the lines of the
//! configuration that refuse it. These lines follow Apache's own text, whose beginning log parsers
//! such as fail2ban match.

use evenkeel_config::Position;
use evenkeel_message::{Request, quoted};
use std::os::unix::ffi::OsStrExt;

/// The most lines that one refusal names.
const LINES: usize = 4;

/// The most bytes of a directive in a refusal.
const DIRECTIVE: usize = 100;

/// What a refusal names: the file, or the path where there is none.
#[must_use]
pub fn refused_target(request: &Request) -> String {
    let file = request.resource.file.as_os_str().as_bytes();
    if file.is_empty() {
        return format!("uri {}", quoted(&request.resource.path));
    }
    quoted(file).into_owned()
}

/// A directive with its file and line number. A long directive is cut.
#[must_use]
pub fn cited(directive: &str, position: &Position) -> String {
    let directive = directive.trim_end();
    let end = directive.char_indices().map(|(start, _)| start).find(|start| *start >= DIRECTIVE);
    match end.and_then(|end| directive.get(..end)) {
        Some(start) => format!("{start}... ({position})"),
        None => format!("{directive} ({position})"),
    }
}

/// The lines that refuse a request, as the end of a message: `denied by A, B and 2 more`. Empty
/// without lines.
#[must_use]
pub fn denied_by(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        lines => format!("denied by {}", listed(lines)),
    }
}

/// The first few of these lines: `A, B and 2 more`.
#[must_use]
pub fn listed(lines: &[String]) -> String {
    let named = lines.get(..LINES).unwrap_or(lines).join(", ");
    match lines.len() {
        count if count > LINES => format!("{named} and {} more", count - LINES),
        _ => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_a_few_lines_in_short() {
        let position = Position { file: "a.conf".into(), line: 7 };
        assert_eq!(cited("Require all denied ", &position), "Require all denied (a.conf:7)");
        let long = cited(&"ü".repeat(DIRECTIVE), &position);
        assert_eq!(long, format!("{}... (a.conf:7)", "ü".repeat(DIRECTIVE / 2)));
        let lines: Vec<String> = (0..LINES + 2).map(|number| number.to_string()).collect();
        assert_eq!(denied_by(&lines), "denied by 0, 1, 2, 3 and 2 more");
        assert_eq!(denied_by(&lines[..2]), "denied by 0, 1");
        assert_eq!(denied_by(&[]), "");
    }
}
