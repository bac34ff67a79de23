//! Compiles a LogFormat string to a pattern that matches the lines which mod_log_config would write
//! with it. The letters of items are Apache's. Items that say nothing about the request are only
//! skipped.

use super::record::Sizes;
use super::stamp::Shape;

/// A compiled format.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) pieces: Vec<Piece>,
    /// Whether a line may continue after the last piece, following a space.
    pub(super) goes_on: bool,
    sizes: Sizes,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Vec<u8>),
    Item(Item),
}

/// The content of a part of a line. Items without a form of their own end where the text after them
/// begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// %r
    RequestLine,
    /// %m
    Method,
    /// %U
    Path,
    /// %q
    Query,
    /// %U%q
    PathAndQuery,
    /// %v and %V
    Host,
    /// %{NAME}i
    Field(String),
    /// An item that is not repeated in the request.
    Word,
    /// %p
    Port,
    /// %s
    Status,
    /// %b, %B and %O
    Size,
    /// %t
    Time(Shape),
    /// %{end}t, beside a %t for the beginning of the request.
    End(Shape),
    /// %H
    Protocol,
    /// A number that is not used.
    Number,
}

impl Item {
    /// Whether it is recognised by its form and not by what follows it.
    pub(super) fn has_form(&self) -> bool {
        use Item::{End, Number, Port, Protocol, Size, Status, Time};
        matches!(self, Port | Status | Size | Time(_) | End(_) | Protocol | Number)
    }

    /// Its name, for a message about a line.
    pub(super) fn name(&self) -> String {
        match self {
            Item::RequestLine => "a request line (%r)".into(),
            Item::Method => "a method (%m)".into(),
            Item::Path | Item::PathAndQuery => "a path (%U)".into(),
            Item::Query => "a query (%q)".into(),
            Item::Host => "a host (%v)".into(),
            Item::Field(name) => format!("{name} (%{{{name}}}i)"),
            Item::Word => "a text".into(),
            Item::Port => "a port (%p)".into(),
            Item::Status => "a status (%s)".into(),
            Item::Size => "a size (%b)".into(),
            Item::Time(Shape::Common) => "a time like [10/Oct/2000:13:55:36 -0700]".into(),
            Item::Time(_) | Item::End(_) => "a time (%t)".into(),
            Item::Protocol => "a protocol (%H)".into(),
            Item::Number => "a number".into(),
        }
    }
}

/// An item as written, and its rank among items that say the same.
struct Written {
    item: Item,
    rank: u8,
    sizes: Sizes,
}

impl Pattern {
    /// Compiles a format string as it is in a configuration, with or without the backslashes before
    /// its quotes.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or why its lines cannot be parsed unambiguously.
    pub(super) fn compile(format: &str) -> Result<Self, String> {
        let mut written: Vec<Written> = Vec::new();
        let mut texts: Vec<Vec<u8>> = vec![Vec::new()];
        let mut rest = format;
        while let Some(first) = rest.chars().next() {
            let text = texts.last_mut().map_or_else(Vec::new, std::mem::take);
            let (item, text) = match first {
                '%' => {
                    let (item, after) = directive(rest)?;
                    rest = after;
                    (item, text)
                }
                _ => {
                    let (more, after) = literal(rest);
                    rest = after;
                    (None, [text, more].concat())
                }
            };
            match item {
                Some(Directive::Item(item)) => {
                    written.push(item);
                    put_back(&mut texts, text);
                    texts.push(Vec::new());
                }
                Some(Directive::Text(more)) => put_back(&mut texts, [text, more].concat()),
                None => put_back(&mut texts, text),
            }
        }
        let sizes = keep_preferred(&mut written);
        let pieces = join(written, texts);
        check(format, &pieces)?;
        Ok(Self { pieces, goes_on: false, sizes })
    }

    /// The same pattern, whose sizes may be those of %O or of %b.
    pub(super) fn of_unknown_sizes(mut self) -> Self {
        self.sizes = Sizes::Unknown;
        self
    }

    /// The same pattern, whose lines may have further columns.
    pub(super) fn and_more(mut self) -> Self {
        self.goes_on = true;
        self.of_unknown_sizes()
    }

    /// Whether lines have a time.
    pub(super) fn has_times(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Item(Item::Time(_))))
    }

    /// What the sizes count.
    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }
}

fn put_back(texts: &mut [Vec<u8>], text: Vec<u8>) {
    if let Some(last) = texts.last_mut() {
        *last = text;
    }
}

enum Directive {
    Item(Written),
    Text(Vec<u8>),
}

/// The text up to the next directive. `\"` is a quote with the escape of the configuration's own
/// quoting.
fn literal(rest: &str) -> (Vec<u8>, &str) {
    let end = rest.find('%').unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let replaced = match (byte, bytes.peek()) {
            (b'\\', Some(b'\\')) => b'\\',
            (b'\\', Some(b'"')) => b'"',
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b't')) => b'\t',
            _ => {
                out.push(byte);
                continue;
            }
        };
        bytes.next();
        out.push(replaced);
    }
    (out, after)
}

/// Parses one directive, from its percent sign to its letter (mod_log_config.c: parse_log_item).
fn directive(rest: &str) -> Result<(Option<Directive>, &str), String> {
    let mut s = rest.strip_prefix('%').unwrap_or(rest);
    if let Some(after) = s.strip_prefix('%') {
        return Ok((Some(Directive::Text(vec![b'%'])), after));
    }
    let (mut original, mut argument) = (None, "");
    loop {
        let first = s.chars().next().ok_or("the format ends within a directive")?;
        let after = s.get(first.len_utf8()..).unwrap_or_default();
        s = match first {
            '!' | ',' | '0'..='9' => after,
            '<' | '>' => {
                original = Some(first == '<');
                after
            }
            '{' => {
                let end = after.find('}').ok_or("the format has a { without its }")?;
                argument = after.get(..end).unwrap_or_default();
                after.get(end + 1..).unwrap_or_default()
            }
            '^' => {
                let letters = after.get(..2).unwrap_or_default();
                let item = match letters {
                    "ti" | "to" => Item::Word,
                    "FB" => Item::Number,
                    _ => return Err(format!("%^{letters}: no directive of LogFormat")),
                };
                let written = Written { item, rank: 0, sizes: Sizes::None };
                return Ok((Some(Directive::Item(written)), after.get(2..).unwrap_or_default()));
            }
            letter => {
                return Ok((Some(Directive::Item(item(letter, argument, original)?)), after));
            }
        };
    }
}

fn item(letter: char, argument: &str, original: Option<bool>) -> Result<Written, String> {
    let (mut rank, mut sizes) = (1, Sizes::None);
    let item = match letter {
        'r' => Item::RequestLine,
        'm' => Item::Method,
        'U' => Item::Path,
        'q' => Item::Query,
        'v' => Item::Host,
        'V' => {
            rank = 2;
            Item::Host
        }
        'i' => Item::Field(argument.to_owned()),
        's' => {
            // The final status. %s without a modifier is that of the original request.
            rank = if original == Some(false) { 2 } else { 1 };
            Item::Status
        }
        'b' | 'B' => {
            (rank, sizes) = (2, Sizes::Bodies);
            Item::Size
        }
        'O' => {
            sizes = Sizes::Whole;
            Item::Size
        }
        't' => {
            let (shape, end) = Shape::new(argument);
            rank = if end { 1 } else { 2 };
            Item::Time(shape)
        }
        'p' if matches!(argument, "" | "canonical") => Item::Port,
        'p' | 'D' | 'T' | 'I' | 'S' | 'k' => Item::Number,
        'H' => Item::Protocol,
        'h' | 'a' | 'A' | 'l' | 'u' | 'f' | 'o' | 'n' | 'L' | 'e' | 'P' | 'X' | 'C' | 'R' => {
            Item::Word
        }
        unknown => return Err(format!("%{unknown}: no directive of LogFormat")),
    };
    Ok(Written { item, rank, sizes })
}

/// Tests the kind of an item.
type Same = fn(&Item) -> bool;

/// Keeps only the most preferred of items that say the same. Returns what sizes count.
fn keep_preferred(written: &mut [Written]) -> Sizes {
    let is_host = |item: &Item| matches!(item, Item::Host | Item::Port);
    let has_host_field = written
        .iter()
        .any(|it| matches!(&it.item, Item::Field(name) if name.eq_ignore_ascii_case("host")));
    for written in written.iter_mut().filter(|it| has_host_field && is_host(&it.item)) {
        written.item = if written.item == Item::Host { Item::Word } else { Item::Number };
    }
    let is_time = |written: &Written| matches!(written.item, Item::Time(_));
    let has_beginning = written.iter().any(|it| is_time(it) && it.rank > 1);
    for written in written.iter_mut().filter(|it| has_beginning && it.rank == 1) {
        if let Item::Time(shape) = &written.item {
            written.item = Item::End(shape.clone());
        }
    }
    let best = |written: &[Written], same: Same| {
        written.iter().filter(|it| same(&it.item)).map(|it| it.rank).max()
    };
    let is_size = |item: &Item| *item == Item::Size;
    let best_size = best(written, is_size);
    let counted = written.iter().find(|it| is_size(&it.item) && Some(it.rank) == best_size);
    let sizes = counted.map_or(Sizes::None, |it| it.sizes);
    let kinds: [(Same, Item); 3] = [
        (|item| *item == Item::Host, Item::Word),
        (|item| *item == Item::Status, Item::Number),
        (|item| *item == Item::Size, Item::Number),
    ];
    for (same, instead) in kinds {
        let best = best(written, same);
        for written in written.iter_mut().filter(|it| same(&it.item) && Some(it.rank) != best) {
            written.item = instead.clone();
        }
    }
    sizes
}

/// The pieces in order: a text before each item and one after the last. A path directly followed by
/// the query is one piece.
fn join(written: Vec<Written>, texts: Vec<Vec<u8>>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut items = written.into_iter();
    for text in texts {
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        match (items.next().map(|written| written.item), pieces.last_mut()) {
            (Some(Item::Query), Some(Piece::Item(item @ Item::Path))) => {
                *item = Item::PathAndQuery;
            }
            (Some(item), _) => pieces.push(Piece::Item(item)),
            (None, _) => {}
        }
    }
    pieces
}

/// Checks that lines can be parsed, for which each item must have a form or be followed by a text,
/// and that the format contains the request.
fn check(format: &str, pieces: &[Piece]) -> Result<(), String> {
    let has = |wanted: fn(&Item) -> bool| {
        pieces.iter().any(|piece| matches!(piece, Piece::Item(item) if wanted(item)))
    };
    if !has(|item| matches!(item, Item::RequestLine | Item::Path | Item::PathAndQuery)) {
        return Err(format!("{format}: what was asked is not logged (%r, or %m %U%q)"));
    }
    for pair in pieces.windows(2) {
        if let [Piece::Item(first), Piece::Item(second)] = pair
            && !first.has_form()
        {
            let (first, second) = (first.name(), second.name());
            return Err(format!("{format}: nothing tells where {first} ends and {second} begins"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told() {
        let error = |format| Pattern::compile(format).unwrap_err();
        assert!(error("%h %>s").ends_with("what was asked is not logged (%r, or %m %U%q)"));
        assert!(error("%r%h").contains("nothing tells where"));
        assert_eq!(error("%r %Z"), "%Z: no directive of LogFormat");
        assert_eq!(error("%r %^xy"), "%^xy: no directive of LogFormat");
        assert_eq!(error("%r %"), "the format ends within a directive");
        assert_eq!(error("%r %{Referer"), "the format has a { without its }");
    }

    #[test]
    fn of_items_that_say_the_same_one_is_preferred() {
        let items = |format| {
            let pattern = Pattern::compile(format).unwrap();
            let item = |piece: &Piece| match piece {
                Piece::Item(item) => Some(item.clone()),
                Piece::Text(_) => None,
            };
            (pattern.pieces.iter().filter_map(item).collect::<Vec<_>>(), pattern.sizes())
        };
        let (found, sizes) = items("%r %s %>s %b %O");
        let wanted = [Item::RequestLine, Item::Number, Item::Status, Item::Size, Item::Number];
        assert_eq!((found.as_slice(), sizes), (&wanted[..], Sizes::Bodies));
        let (found, sizes) = items("%v:%p %U%q %{Host}i %!200,304O");
        let host = Item::Field("Host".into());
        let wanted = [Item::Word, Item::Number, Item::PathAndQuery, host, Item::Size];
        assert_eq!((found.as_slice(), sizes), (&wanted[..], Sizes::Whole));
        assert_eq!(items("%v %V %r").0, [Item::Word, Item::Host, Item::RequestLine]);
    }
}
