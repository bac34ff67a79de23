//! The page of a listing: rows and what stands before and behind them go in, the HTML goes out,
//! byte by byte as mod_autoindex writes it (mod_autoindex.c: emit_head, output_directories,
//! emit_tail). It reads inserted text files, and so blocks.

use super::entry::{Entry, Row};
use super::options::Flags;
use super::order::sort;
use super::query::Asked;
use super::rows::Rows;
use super::settings::Said;
use crate::beside::SMALL;
use bytes::Bytes;
use evenkeel_message::Piece;
use evenkeel_proto::escape_html;
use evenkeel_sys::blocking_pool::Progress;
use evenkeel_sys::open;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

const HTML: &str = "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\" \
     \"http://www.w3.org/TR/html4/strict.dtd\">\n<html>\n";
const XHTML: &str = "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Transitional//EN\"\n\
     \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">\n\
     <html xmlns=\"http://www.w3.org/1999/xhtml\">\n";

/// Bytes of a text file that are read at once. Apache escapes as much at a time, and in each part
/// shows nothing between a NUL and the next character that is escaped.
const READ_AT_ONCE: usize = 8192;

/// About how long the pieces are in which a page is made, in bytes.
const PIECE: usize = 32 << 10;

/// A file that stands before or behind the rows (HeaderName, ReadmeName).
#[derive(Clone, Debug, Default)]
pub enum Insert {
    /// None, or none that can be shown.
    #[default]
    Nothing,
    /// HTML, sent as it is.
    Html(Piece),
    /// Text of another kind, sent as `<pre>`.
    Text(Piece),
}

/// All that a page is made of.
#[derive(Debug)]
pub struct Listing {
    /// The settings of the folder's sections.
    pub said: Arc<Said>,
    /// What the request asks for.
    pub asked: Asked,
    /// The path of the request.
    pub path: Vec<u8>,
    /// The folder.
    pub folder: PathBuf,
    /// Its entries that the client may see.
    pub entries: Vec<Entry>,
    /// What stands before the rows.
    pub header: Insert,
    /// What stands behind them.
    pub readme: Insert,
    /// The server's signature, without a rule above it.
    pub signature: String,
}

impl Listing {
    /// Makes the page; none where nobody wants a long one any more.
    pub(super) fn render(self, progress: &Progress) -> Option<Vec<Piece>> {
        let Self { said, asked, path, folder, entries, header, readme, signature } = self;
        let title = title(&path);
        let mut page = Page { pieces: Vec::new(), out: Vec::new() };
        page.head(&said, asked.flags, &title, header);
        let parent = Row::parent(&path, &folder, &said, &asked);
        let within = folder.join("").into_os_string().into_vec();
        let mut rows = Vec::with_capacity(entries.len());
        for (number, entry) in entries.into_iter().enumerate() {
            if !progress.report() && number >= SMALL {
                return None;
            }
            rows.push(Row::of(entry, &within, &said, &asked));
        }
        let mut rows: Vec<&Row<'_>> = parent.iter().chain(&rows).collect();
        if let Some(entries) = rows.get_mut(usize::from(parent.is_some())..) {
            sort(entries, asked.order, asked.flags);
        }
        Rows::new(&said, &asked, &rows).write(&mut page, &rows);
        page.tail(asked.flags, readme, &signature);
        Some(page.finish())
    }
}

/// The path without its slashes at the end, as HTML.
fn title(path: &[u8]) -> Vec<u8> {
    let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
    let end = (path.len() - slashes).max(1);
    let mut title = Vec::new();
    escape_html(&mut title, path.get(..end).unwrap_or_default());
    title
}

/// A page in the making.
pub(super) struct Page {
    pieces: Vec<Piece>,
    /// What is not part of a piece yet.
    pub out: Vec<u8>,
}

impl Page {
    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// All up to the rows. HTML is taken for a page's beginning where the usual one is
    /// suppressed.
    fn head(&mut self, said: &Said, flags: Flags, title: &[u8], header: Insert) {
        match header {
            Insert::Html(piece) => {
                if !flags.has(Flags::SUPPRESS_PREAMBLE) {
                    self.preamble(said, flags, title);
                }
                self.insert(piece);
            }
            Insert::Text(piece) => {
                self.preamble(said, flags, title);
                self.text(&piece);
            }
            Insert::Nothing => {
                self.preamble(said, flags, title);
                let (open, id) = match said.style_sheet {
                    Some(_) => ("  <h1", " id=\"indextitle\""),
                    None => ("<h1", ""),
                };
                self.put(&format!("{open}{id}>Index of "));
                self.out.extend_from_slice(title);
                self.put("</h1>\n");
            }
        }
    }

    fn preamble(&mut self, said: &Said, flags: Flags, title: &[u8]) {
        let xhtml = flags.has(Flags::XHTML);
        self.put(if xhtml { XHTML } else { HTML });
        self.put(" <head>\n  <title>Index of ");
        self.out.extend_from_slice(title);
        self.put("</title>\n");
        if let Some(sheet) = &said.style_sheet {
            let end = if xhtml { " />" } else { ">" };
            self.put("  <link rel=\"stylesheet\" href=\"");
            self.out.extend_from_slice(sheet);
            self.put(&format!("\" type=\"text/css\"{end}\n"));
        }
        self.out.extend_from_slice(said.head_insert.as_deref().unwrap_or_default());
        self.put(" </head>\n <body>\n");
    }

    /// All behind the rows.
    fn tail(&mut self, flags: Flags, readme: Insert, signature: &str) {
        let mut ends = true;
        match readme {
            Insert::Html(piece) => {
                self.insert(piece);
                ends = !flags.has(Flags::SUPPRESS_PREAMBLE);
            }
            Insert::Text(piece) => self.text(&piece),
            Insert::Nothing => self.put(signature),
        }
        if ends {
            self.put("</body></html>\n");
        }
    }

    /// Puts a file in its place without reading it.
    fn insert(&mut self, piece: Piece) {
        self.close_piece();
        self.pieces.push(piece);
    }

    /// Ends a piece where it has become long. Each is let go when it has been sent, so that a
    /// client that reads slowly holds no more than it has still to read.
    pub fn turn(&mut self) {
        if self.out.len() >= PIECE {
            self.close_piece();
        }
    }

    fn close_piece(&mut self) {
        if !self.out.is_empty() {
            self.pieces.push(Piece::Bytes(Bytes::from(std::mem::take(&mut self.out))));
        }
    }

    /// A text file, escaped. What cannot be read of it is left out.
    fn text(&mut self, piece: &Piece) {
        self.put("<pre>\n");
        match piece {
            Piece::Bytes(bytes) => {
                for part in bytes.chunks(READ_AT_ONCE) {
                    escape_text(&mut self.out, part);
                    self.turn();
                }
            }
            Piece::File { file, offset, length } => {
                let mut buffer = vec![0; READ_AT_ONCE];
                let mut done = 0;
                while done < *length {
                    let count = open::read_at(file, &mut buffer, offset + done).unwrap_or(0);
                    let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else {
                        break;
                    };
                    escape_text(&mut self.out, part);
                    self.turn();
                    done += count as u64;
                }
            }
        }
        self.put("</pre>\n");
    }

    fn finish(mut self) -> Vec<Piece> {
        self.close_piece();
        self.pieces
    }
}

/// A part of a text file (mod_autoindex.c: do_emit_plain).
fn escape_text(out: &mut Vec<u8>, part: &[u8]) {
    for run in part.split_inclusive(|byte| matches!(byte, b'<' | b'>' | b'&')) {
        let (text, special) = match run.split_last() {
            Some((last, text)) if matches!(last, b'<' | b'>' | b'&') => (text, Some(last)),
            _ => (run, None),
        };
        out.extend_from_slice(text.split(|byte| *byte == 0).next().unwrap_or_default());
        if let Some(special) = special {
            escape_html(out, &[*special]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Candidate, MODULE};
    use super::*;
    use crate::testing::apply;
    use evenkeel_message::Content;

    fn page(directives: &str, header: Insert, readme: Insert) -> String {
        let said = apply(MODULE, directives).unwrap().directory.autoindex.said();
        let listing = Listing {
            asked: Asked::parse(&said, None),
            said,
            path: b"/a&b//".to_vec(),
            folder: "/srv/a&b/".into(),
            entries: Vec::new(),
            header,
            readme,
            signature: "SIGN\n".into(),
        };
        let pieces = listing.render(&Progress::new("a test")).unwrap();
        let bytes = pieces.into_iter().flat_map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.to_vec(),
            Piece::File { .. } => panic!("no file was given"),
        });
        String::from_utf8(bytes.collect()).unwrap()
    }

    fn bytes(text: &'static str) -> Piece {
        Piece::Bytes(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_page_has_its_title_and_signature() {
        let got = page("", Insert::Nothing, Insert::Nothing);
        assert!(got.contains("<title>Index of /a&amp;b</title>\n </head>\n <body>\n<h1>"));
        assert!(got.ends_with("</ul>\nSIGN\n</body></html>\n"), "{got}");
        let styled = "IndexStyleSheet /s.css\nIndexHeadInsert \"<x>\"\nIndexOptions XHTML";
        let got = page(styled, Insert::Nothing, Insert::Nothing);
        let link = "  <link rel=\"stylesheet\" href=\"/s.css\" type=\"text/css\" />\n<x> </head>";
        assert!(got.contains(link) && got.contains("  <h1 id=\"indextitle\">Index"), "{got}");
        assert_eq!((title(b"//"), title(b"/a/")), (b"/".to_vec(), b"/a".to_vec()));
    }

    #[test]
    fn a_long_page_is_made_of_pieces_that_are_let_go_one_by_one() {
        let entry = |number: usize| Entry {
            candidate: Candidate { name: format!("{number:05}.txt").into(), is_folder: false },
            size: 1,
            modified_ns: 0,
            file: None,
            seen: None,
            content: Content::default(),
            passed: true,
        };
        for directives in ["", "IndexOptions FancyIndexing", "IndexOptions HTMLTable"] {
            let said = apply(MODULE, directives).unwrap().directory.autoindex.said();
            let listing = || Listing {
                asked: Asked::parse(&said, None),
                said: Arc::clone(&said),
                path: b"/".to_vec(),
                folder: "/srv".into(),
                entries: (0..10_000).map(entry).collect(),
                header: Insert::Text(Piece::Bytes(Bytes::from(vec![b'<'; 100_000]))),
                readme: Insert::Nothing,
                signature: String::new(),
            };
            let gone = Progress::new("a test");
            gone.cancel();
            assert!(listing().render(&gone).is_none());
            let pieces = listing().render(&Progress::new("a test")).unwrap();
            let longest = pieces.iter().map(Piece::len).max().unwrap();
            assert!(longest < 2 * PIECE as u64, "{longest}");
            assert!(pieces.iter().all(|piece| piece.held() == piece.len()));
            let whole = pieces.iter().map(Piece::len).sum::<u64>();
            assert!(whole > 800_000, "{whole}");
        }
    }

    #[test]
    fn html_takes_the_place_of_heading_and_signature() {
        let (header, readme) = (Insert::Html(bytes("H\n")), Insert::Html(bytes("R\n")));
        let got = page("", header.clone(), readme.clone());
        assert!(got.contains(" <body>\nH\n<ul>") && got.ends_with("</ul>\nR\n</body></html>\n"));
        let got = page("IndexOptions SuppressHTMLPreamble", header, readme);
        assert!(got.starts_with("H\n<ul>") && got.ends_with("</ul>\nR\n"), "{got}");
    }

    #[test]
    fn text_is_escaped_and_loses_what_follows_a_nul() {
        let text = Insert::Text(bytes("a<b\0c&d\"\n"));
        let got = page("IndexOptions SuppressHTMLPreamble", text.clone(), text);
        let shown = "<pre>\na&lt;b&amp;d\"\n</pre>\n";
        assert!(got.contains(&format!(" <body>\n{shown}<ul>")), "{got}");
        assert!(got.ends_with(&format!("</ul>\n{shown}</body></html>\n")), "{got}");
    }
}
