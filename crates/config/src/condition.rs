//! The conditions that act while the text is read: IfModule, IfDefine, IfFile, IfDirective,
//! IfSection, IfVersion. If a condition holds, the nodes within it are added to the tree; otherwise
//! its text is skipped, and only its sections must be closed. A missing module ([`crate::Missing`])
//! counts as loaded. If a condition about it contains directives of other modules, the condition
//! becomes a node of the tree, and `apply` refuses that node.

use crate::keyword::{self, Keyword, Reserved};
use crate::node::Node;
use crate::path::absolute;
use crate::read::{Halt, Reader, Source};
use crate::version;
use crate::words::next_word;

impl Reader<'_> {
    /// Evaluates a condition by its first word, which a `!` negates.
    ///
    /// Source: server/core.c, start_cond_section.
    pub(crate) fn condition(
        &mut self,
        reserved: &'static Reserved,
        arguments: &str,
        source: &mut Source,
    ) -> Result<Vec<Node>, Halt> {
        let name = reserved.name;
        let Some((text, _)) = arguments.rsplit_once('>') else {
            return Err(format!("{name}> directive missing closing '>'").into());
        };
        let (negated, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (word, _) = next_word(text);
        if word.is_empty() {
            return Err(format!("{name}> directive requires additional arguments").into());
        }
        let is_missing = self.is_missing(reserved.keyword, &word);
        if (is_missing || self.holds(reserved.keyword, &word)) == negated {
            self.skip(name, source)?;
            return Ok(Vec::new());
        }
        if !is_missing {
            return self.contents(name, source);
        }
        let (position, acts) = (source.position(), self.acts);
        self.missing_depth += 1;
        let contents = self.contents(name, source);
        self.missing_depth -= 1;
        let contents = contents?;
        if self.acts == acts {
            return Ok(contents);
        }
        let (name, arguments) = (name.into(), format!("{word}>").into());
        Ok(vec![Node { name, arguments, position, section: Some(contents) }])
    }

    /// Whether a condition is about a missing module.
    fn is_missing(&self, keyword: Keyword, word: &str) -> bool {
        let known = self.terms.known();
        match keyword {
            Keyword::IfModule => {
                !known.module_loaded(word) && known.missing().module(word).is_some()
            }
            Keyword::IfDirective => {
                !self.directive_exists(word) && known.missing().of_directive(word).is_some()
            }
            Keyword::IfSection => {
                let section = format!("<{word}");
                !self.directive_exists(&section) && known.missing().of_directive(&section).is_some()
            }
            _ => false,
        }
    }

    fn holds(&self, keyword: Keyword, word: &str) -> bool {
        match keyword {
            Keyword::IfDefine => self.variables.is_defined(word),
            Keyword::IfFile => std::fs::metadata(absolute(&self.server_root, word)).is_ok(),
            Keyword::IfDirective => self.directive_exists(word),
            Keyword::IfSection => self.directive_exists(&format!("<{word}")),
            _ => self.terms.known().module_loaded(word),
        }
    }

    fn directive_exists(&self, name: &str) -> bool {
        match keyword::find(name) {
            Some(reserved) if reserved.keyword == Keyword::Error => true,
            Some(_) => self.reserved(name).is_some(),
            None => self.terms.known().directive_exists(name),
        }
    }

    /// Evaluates `<IfVersion>`.
    pub(crate) fn if_version(
        &mut self,
        words: &[&str],
        source: &mut Source,
    ) -> Result<Vec<Node>, Halt> {
        let known = self.terms.known();
        let matches = |pattern: &str| known.version_matches(pattern);
        if version::holds(words, known.server_version(), &matches)? {
            return self.contents("<IfVersion", source);
        }
        self.skip("<IfVersion", source)?;
        Ok(Vec::new())
    }

    /// Skips to the line that closes `name`. The sections within must close each other properly,
    /// but nothing in them is evaluated, not even `${}`.
    ///
    /// Source: server/config.c, ap_soak_end_container.
    fn skip(&mut self, name: &str, source: &mut Source) -> Result<(), Halt> {
        let mut open = vec![name.to_owned()];
        while let Some(innermost) = open.last() {
            let expected = innermost.get(1..).unwrap_or_default().to_owned();
            let Some(line) = self.line(source, self.budget.line)? else {
                return Err(format!("Expected </{expected}> before end of configuration").into());
            };
            let (mut word, rest) = next_word(&line);
            if let Some(closed) = word.strip_prefix("</") {
                let mut closed = closed.to_owned();
                closed.pop();
                if !closed.eq_ignore_ascii_case(&expected) {
                    return Err(format!("Expected </{expected}> but saw </{closed}>").into());
                }
                open.pop();
            } else if word.starts_with('<') {
                if rest.is_empty() && word.ends_with('>') {
                    word.pop();
                }
                open.push(word);
            }
        }
        Ok(())
    }
}
