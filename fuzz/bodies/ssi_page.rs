//! Parses a page with server-side includes as a whole and in pieces, which must give the same
//! elements and text, and acts on the elements. The first byte of the input chooses the size of the
//! pieces and the parser of expressions. Nothing may panic.

use evenkeel_message::{Notice, Variables};
use evenkeel_modules::include::{
    Document, Element, Expression, Facts, Page, PageSettings, PageVariables, Tags, Wait,
};

/// A part of a page.
#[derive(Debug, PartialEq)]
enum Part {
    Text(Vec<u8>),
    Element(String),
}

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let (mut whole, mut elements) = (Vec::new(), Vec::new());
    parse(text, text.len().max(1), &mut whole, &mut elements);
    let mut pieces = Vec::new();
    parse(text, usize::from(choice % 16) + 1, &mut pieces, &mut Vec::new());
    assert_eq!(whole, pieces);
    act(elements, choice % 2 == 0);
}

/// Parses as the pipeline does: what may be the beginning of a tag waits for more.
fn parse(text: &[u8], piece: usize, parts: &mut Vec<Part>, elements: &mut Vec<Element>) {
    let tags = Tags::new(b"<!--#", b"-->");
    let (mut at_hand, mut rest) = (Vec::new(), text);
    let mut more = |at_hand: &mut Vec<u8>| {
        let (next, behind) = rest.split_at(piece.min(rest.len()));
        at_hand.extend_from_slice(next);
        rest = behind;
        !next.is_empty()
    };
    loop {
        let Some(at) = tags.find(&at_hand) else {
            let length = at_hand.len() - tags.begun(&at_hand);
            add(parts, at_hand.drain(..length));
            if !more(&mut at_hand) {
                return add(parts, at_hand.drain(..));
            }
            continue;
        };
        add(parts, at_hand.drain(..at));
        at_hand.drain(..tags.start().len());
        let element = loop {
            if let Some((length, element)) = tags.element(&at_hand) {
                at_hand.drain(..length);
                break element;
            }
            if !more(&mut at_hand) {
                return;
            }
        };
        parts.push(Part::Element(format!("{element:?}")));
        elements.push(element);
    }
}

fn add(parts: &mut Vec<Part>, bytes: impl Iterator<Item = u8>) {
    let mut bytes = bytes.peekable();
    if bytes.peek().is_none() {
        return;
    }
    match parts.last_mut() {
        Some(Part::Text(text)) => text.extend(bytes),
        _ => parts.push(Part::Text(bytes.collect())),
    }
}

fn act(elements: Vec<Element>, is_legacy: bool) {
    let settings = PageSettings {
        error_message: b"[error]".to_vec(),
        time_format: b"%A, %d-%b-%Y %H:%M:%S %Z".to_vec(),
        undefined: b"(none)".to_vec(),
        is_legacy,
        may_exec: true,
        knows_exec: true,
        file: b"/page".to_vec(),
    };
    let document = Document { path: b"/p", query: Some(b"a=b"), path_info: b"/i", file: b"/p" };
    let mut variables = PageVariables::new(Variables::default(), &document, Facts::default());
    let mut page = Page::new(settings);
    let (mut out, mut notices): (Vec<u8>, Vec<Notice>) = (Vec::new(), Vec::new());
    for element in elements.into_iter().take(200) {
        match page.act(element, &mut variables, &mut out, &mut notices) {
            None => {}
            Some(Wait::Condition(text)) => {
                let expanded = page.expanded(&text, &mut variables, &mut notices);
                let _parsed = Expression::parse(&expanded).is_ok();
                page.decide(Some(expanded.len().is_multiple_of(2)), &mut out);
            }
            Some(
                Wait::Include(list) | Wait::Exec(list) | Wait::Size(list) | Wait::Modified(list),
            ) => {
                for argument in list {
                    let _expanded = page.expanded(
                        &argument.value.unwrap_or_default(),
                        &mut variables,
                        &mut notices,
                    );
                }
            }
        }
        out.truncate(1 << 16);
    }
    page.end(false, &mut out, &mut notices);
}
