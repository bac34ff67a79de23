//! Macros: `<Macro>` stores lines under a name, and Use inserts them before the text that is read
//! next, with the arguments filled in. The lines are not interpreted, except that brackets are
//! counted to warn of those that do not match.
//!
//! Source: modules/core/mod_macro.c.

use std::collections::HashMap;

use crate::fault::Notice;
use crate::node::Position;
use crate::read::{Halt, Reader, Source};
use crate::words::{next_word, words};
use evenkeel_message::unquoted;

/// The most bytes of a macro's line, before and after the arguments are filled in.
const LINE_LIMIT: usize = 8192;

/// The description of a macro's use contains the names of all enclosing uses. Beyond this many
/// bytes, the uses are considered to be nested too deep.
const NAME_LIMIT: usize = 64 * 1024;

/// The characters that argument names should begin with. `@` quotes the value, the others insert it
/// as it is.
const PREFIXES: &str = "$%@";

/// The macros defined so far.
#[derive(Default)]
pub(crate) struct Macros {
    known: HashMap<String, Macro>,
    started: bool,
    pub(crate) ignore_empty: bool,
    pub(crate) ignore_bad_nesting: bool,
}

struct Macro {
    name: String,
    location: String,
    arguments: Vec<String>,
    lines: Vec<String>,
    ignore_empty: bool,
}

impl Macros {
    pub(crate) fn undefine(&mut self, name: &str) -> Result<(), String> {
        if !self.started {
            return Err("no macro defined before UndefMacro".into());
        }
        let name = name.to_ascii_lowercase();
        match self.known.remove(&name) {
            Some(_) => Ok(()),
            None => Err(format!("cannot remove undefined macro '{name}'")),
        }
    }
}

impl Reader<'_> {
    /// Executes `<Macro NAME ARGUMENTS...>`: reads up to `</Macro>`.
    pub(crate) fn define_macro(&mut self, text: &str, source: &mut Source) -> Result<(), Halt> {
        self.macros.started = true;
        let opened = source.position();
        let Some((text, behind)) = text.rsplit_once('>') else {
            return Err("<Macro> directive missing closing '>'".to_owned().into());
        };
        if text.is_empty() {
            return Err("<Macro macro definition: empty name".to_owned().into());
        }
        self.remark_behind(
            "AH02801: non blank chars found after <Macro closing '>'",
            behind,
            &opened,
        );
        let (name, rest) = next_word(text);
        if name.is_empty() {
            return Err("<Macro macro definition: name not found".to_owned().into());
        }
        let name = name.to_ascii_lowercase();
        let Position { file, line } = &opened;
        if let Some(old) = self.macros.known.get(&name) {
            let text = format!(
                "macro '{name}' multiply defined: {}, redefined on line {line} of \"{file}\"",
                old.location
            );
            self.warn(2802, text);
        }
        let location = format!("defined on line {line} of \"{file}\"");
        let place = format!("macro '{name}' ({location})");
        if name.starts_with(|first| PREFIXES.contains(first)) {
            let text = format!("{place} better prefix a macro name with any of '{PREFIXES}'");
            self.warn(2803, text);
        }
        let (flags, rest) = self.macro_flags(rest, &place);
        let (name, arguments) = (name.clone(), words(rest));
        self.check_arguments(&place, &arguments)?;
        let quiet = self.macros.ignore_bad_nesting || flags.bad_nesting;
        let lines = self
            .macro_lines(&place, quiet, source)
            .map_err(|error| format!("{place}\n\tcontents error: {error}"))?;
        self.check_lines(&place, &arguments, &lines);
        let known =
            Macro { name: name.clone(), location, arguments, lines, ignore_empty: flags.empty };
        self.macros.known.insert(name, known);
        Ok(())
    }

    /// Removes the flags from the front of a macro's arguments.
    fn macro_flags<'t>(&mut self, mut rest: &'t str, place: &str) -> (Flags, &'t str) {
        let mut flags = Flags::default();
        while rest.starts_with('/') {
            let (flag, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            if flag.eq_ignore_ascii_case("/IgnoreEmptyArgs") {
                flags.empty = true;
            } else if flag.eq_ignore_ascii_case("/IgnoreBadNesting") {
                flags.bad_nesting = true;
            } else {
                self.warn(2804, format!("{place}: unknown flag '{flag}'"));
            }
            rest = behind;
        }
        (flags, rest)
    }

    fn check_arguments(&mut self, place: &str, names: &[String]) -> Result<(), Halt> {
        for (at, name) in names.iter().enumerate() {
            let number = at + 1;
            if name.is_empty() {
                return Err(format!("{place}: empty argument #{number} name").into());
            }
            if !name.starts_with(|first| PREFIXES.contains(first)) {
                let text = format!(
                    "{place} argument name '{name}' (#{number}) without expected prefix, better \
                     prefix argument names with one of '{PREFIXES}'."
                );
                self.warn(2796, text);
            }
            if name.starts_with("${") {
                let text = format!(
                    "{place} argument name '{name}' (#{number}) clashes with 'Define' syntax \
                     '${{...}}', better use '$(...)'."
                );
                self.warn(2805, text);
            }
            for (other, next) in names.iter().zip(1..).skip(number) {
                if name == other {
                    return Err(format!(
                        "argument name conflict in {place}: argument '{name}': #{number} and \
                         #{next}, change argument names!"
                    )
                    .into());
                }
                let shorter = !other.is_empty()
                    && (name.starts_with(other.as_str()) || other.starts_with(name.as_str()));
                if shorter {
                    let text = format!(
                        "{place}: argument name prefix conflict ({name} #{number} and {other} \
                         #{next}), be careful about your macro definition!"
                    );
                    self.warn(2797, text);
                }
            }
        }
        Ok(())
    }

    /// The lines up to the `</Macro>` that closes this macro, without comments.
    fn macro_lines(
        &mut self,
        place: &str,
        quiet: bool,
        source: &mut Source,
    ) -> Result<Vec<String>, String> {
        let start = source.position().line;
        let (mut depth, mut nesting) = (1_u32, 1_i64);
        let mut lines = Vec::new();
        // A line that is too long ends the search, as the end of the text does.
        while let Ok(Some(line)) = self.line(source, LINE_LIMIT) {
            if line.starts_with('#') {
                continue;
            }
            let (first, _) = next_word(&line);
            if first.starts_with("</") {
                nesting -= 1;
                if !quiet && nesting < 0 {
                    let number = source.position().line.saturating_sub(start);
                    let text = format!("bad (negative) nesting on line {number} of {place}");
                    self.warn(2793, text);
                }
            } else if first.starts_with('<') {
                nesting += 1;
            }
            if first.eq_ignore_ascii_case("</Macro>") {
                let behind = line.rsplit_once('>').map_or("", |(_, behind)| behind);
                let what = "AH02794: non blank chars found after directive closing";
                self.remark_behind(what, behind, &source.position());
                depth -= 1;
                if depth == 0 {
                    if !quiet && nesting != 0 {
                        let text = format!("bad cumulated nesting ({nesting:+}) in {place}");
                        self.warn(2795, text);
                    }
                    return Ok(lines);
                }
            } else if first.eq_ignore_ascii_case("<Macro") {
                depth += 1;
            }
            lines.push(line);
        }
        Err("expected token not found: </Macro>".into())
    }

    fn check_lines(&mut self, place: &str, names: &[String], lines: &[String]) {
        if lines.is_empty() {
            self.warn(2799, format!("{place}: empty contents!"));
            return;
        }
        let mut used = vec![false; names.len()];
        for line in lines {
            let mut rest = line.as_str();
            while let Some((at, which)) = next_argument(rest, names) {
                if let Some(flag) = used.get_mut(which) {
                    *flag = true;
                }
                let end = at + names.get(which).map_or(1, String::len);
                rest = rest.get(end..).unwrap_or_default();
            }
        }
        for (at, name) in names.iter().enumerate() {
            if used.get(at) == Some(&false) {
                self.warn(2800, format!("{place}: argument '{name}' (#{}) never used", at + 1));
            }
        }
    }

    /// Executes `Use NAME VALUES...`.
    pub(crate) fn use_macro(&mut self, text: &str, source: &mut Source) -> Result<(), Halt> {
        if !self.macros.started {
            return Err("no macro defined before Use".to_owned().into());
        }
        let (name, rest) = next_word(text);
        let name = name.to_ascii_lowercase();
        if name.is_empty() {
            return Err("no macro name specified with Use".to_owned().into());
        }
        let Some(found) = self.macros.known.get(&name) else {
            return Err(format!("macro '{name}' undefined").into());
        };
        let Position { file, line } = source.position();
        if file.contains(&format!("macro '{name}'")) {
            return Err(format!("recursive use of macro '{name}' is invalid").into());
        }
        let values = words(rest);
        let place = format!("macro '{}' ({})", found.name, found.location);
        let (given, wanted) = (values.len(), found.arguments.len());
        if given != wanted {
            let text = format!("{place} used with {given} arguments instead of {wanted}");
            return Err(text.into());
        }
        let used = format!("{place} used on line {line} of \"{file}\"");
        if used.len() > NAME_LIMIT {
            return Err("macros are nested too deep".to_owned().into());
        }
        let mut expansion = String::new();
        for (number, line) in found.lines.iter().zip(1..).map(|(line, number)| (number, line)) {
            let filled = fill(line, &found.arguments, &values).ok_or_else(|| {
                format!(
                    "{used} error while substituting: while processing line {number} of {place} \
                     cannot substitute, buffer size too small"
                )
            })?;
            expansion.push_str(&filled);
            expansion.push('\n');
            if expansion.len() > self.budget.growth {
                break;
            }
        }
        let ignore_empty = self.macros.ignore_empty || found.ignore_empty;
        self.grow(expansion.len())?;
        if !ignore_empty {
            for (value, number) in values.iter().zip(1..) {
                if value.is_empty() {
                    self.warn(2798, format!("{used}: empty argument #{number}"));
                }
            }
        }
        source.put_in_front(used.into(), unquoted(&expansion).into_owned());
        Ok(())
    }

    fn warn(&mut self, number: u32, text: String) {
        self.remark_here(Notice::warn("macro", number, text));
    }

    /// Adds a notice about text after a closing bracket, unless it is a comment.
    fn remark_behind(&mut self, what: &str, behind: &str, at: &Position) {
        let text = behind.trim_start_matches([' ', '\t']);
        if !text.is_empty() && !text.starts_with('#') {
            let Position { file, line } = at;
            self.warn(2989, format!("{what} on line {line} of {file}: {behind}"));
        }
    }
}

/// The warnings that a macro suppresses.
#[derive(Default)]
struct Flags {
    empty: bool,
    bad_nesting: bool,
}

/// The first argument name in `text`, or the longest if several begin there: its offset and its
/// index.
fn next_argument(text: &str, names: &[String]) -> Option<(usize, usize)> {
    let mut first: Option<(usize, usize, usize)> = None;
    for (which, name) in names.iter().enumerate() {
        let Some(at) = text.find(name.as_str()) else { continue };
        let earlier = first.is_none_or(|(old, _, len)| at < old || (at == old && len < name.len()));
        if earlier {
            first = Some((at, which, name.len()));
        }
    }
    first.map(|(at, which, _)| (at, which))
}

/// The `line` with the argument names replaced by their values. None if it becomes too long.
fn fill(line: &str, names: &[String], values: &[String]) -> Option<String> {
    let mut filled = String::new();
    let mut rest = line;
    while let Some((at, which)) = next_argument(rest, names) {
        let (name, value) = (names.get(which)?, values.get(which)?);
        filled.push_str(rest.get(..at)?);
        if name.starts_with('@') {
            filled.push('"');
            for character in value.chars() {
                if matches!(character, '"' | '\\') {
                    filled.push('\\');
                }
                filled.push(character);
            }
            filled.push('"');
        } else {
            filled.push_str(value);
        }
        rest = rest.get(at + name.len()..)?;
        if filled.len() >= LINE_LIMIT {
            return None;
        }
    }
    filled.push_str(rest);
    // The line end counts too, as in Apache's buffer.
    (filled.len() + 1 < LINE_LIMIT).then_some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn arguments_are_filled_in() {
        let names = owned(&["$a", "$ab", "@q"]);
        let values = owned(&["1", "$a", "x\"\\"]);
        let filled = fill("X $ab$a @q", &names, &values).unwrap();
        assert_eq!(filled, r#"X $a1 "x\"\\""#);
    }

    #[test]
    fn a_line_may_not_outgrow_the_buffer() {
        let names = owned(&["$a"]);
        let values = owned(&[&"x".repeat(4000)]);
        assert!(fill("$a $a", &names, &values).is_some());
        assert!(fill("$a $a $a", &names, &values).is_none());
        assert!(fill(&"x".repeat(8190), &[], &[]).is_some());
        assert!(fill(&"x".repeat(8191), &[], &[]).is_none());
    }
}
