//! The words of a command in the configuration. No shell reads it.

/// Splits a command at white space outside of quotes, with a backslash before what stands for
/// itself (apr_strings.c: apr_tokenize_to_argv).
pub(crate) fn command_words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = command.chars().peekable();
    while let Some(char) = rest.next() {
        match (char, quote) {
            (char, Some(open)) if char == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (' ' | '\t', None) => words.extend(word.take()),
            ('\\', _) if rest.peek().is_some_and(|next| "\"'\\ \t".contains(*next)) => {
                word.get_or_insert_default().extend(rest.next());
            }
            (char, _) => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}
