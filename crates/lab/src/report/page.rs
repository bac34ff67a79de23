//! Assembles a page from headings, paragraphs, tables and plots, and returns one HTML text that
//! contains everything it needs. All reports of the lab use it, so that they look alike.

use crate::plot::{STYLE, escape};
use std::fmt::Write as _;

const PAGE_STYLE: &str = "\
body{margin:0 auto;padding:1.5rem;max-width:1500px;background:var(--ground);color:var(--ink);\
font:15px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;\
margin:2rem 0 .6rem}.origin{color:var(--soft);margin:.2rem 0 1rem}\
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.8rem}\
.tiles div{border:1px solid var(--grid);border-radius:8px;padding:.6rem .8rem}\
.tiles b{display:block;font-size:1.35rem}.tiles span{color:var(--soft);font-size:.85rem}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(500px,100%),1fr));gap:1rem;\
align-items:start;margin:1rem 0}.plots>*{max-width:800px;border:1px solid var(--grid);\
border-radius:8px;padding:.4rem;min-width:0}\
.note{border-left:4px solid var(--c1);padding:.3rem .8rem;margin:.5rem 0}\
.wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;\
font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .8rem;text-align:right;border-bottom:1px solid var(--grid);\
white-space:nowrap}th:first-child,td:first-child{text-align:left}th{color:var(--soft);\
font-weight:600}code{overflow-wrap:anywhere}";

/// A page that is being assembled.
#[derive(Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page with its title, and a line on its origin below.
    pub fn new(title: &str, origin: &str) -> Self {
        let mut page = Self { title: title.to_owned(), body: String::new() };
        let (title, origin) = (escape(title), escape(origin));
        let _ = write!(page.body, "<h1>{title}</h1>\n<p class=\"origin\">{origin}</p>\n");
        page
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
        self
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
        self
    }

    /// Adds sentences that should not be missed.
    pub fn notes(&mut self, notes: &[String]) -> &mut Self {
        for note in notes {
            let _ = writeln!(self.body, "<p class=\"note\">{}</p>", escape(note));
        }
        self
    }

    /// Adds a few figures, in large type.
    pub fn tiles<'a>(&mut self, tiles: impl Iterator<Item = (&'a str, &'a str)>) -> &mut Self {
        self.body.push_str("<div class=\"tiles\">");
        for (name, value) in tiles {
            // A sign stays with its number.
            let (name, value) = (escape(&name.replace(" %", "\u{a0}%")), escape(value));
            let _ = write!(self.body, "<div><b>{value}</b><span>{name}</span></div>");
        }
        self.body.push_str("</div>\n");
        self
    }

    /// Adds plots beside each other, as texts of SVG.
    pub fn plots(&mut self, plots: impl IntoIterator<Item = String>) -> &mut Self {
        self.body.push_str("<div class=\"plots\">\n");
        for plot in plots {
            let _ = write!(self.body, "<div>{plot}</div>");
        }
        self.body.push_str("</div>\n");
        self
    }

    /// Adds a table.
    pub fn table(&mut self, heading: &[String], rows: &[Vec<String>]) -> &mut Self {
        self.body.push_str("<div class=\"wide\"><table>");
        let cells = |row: &[String], kind: &str| -> String {
            row.iter().map(|cell| format!("<{kind}>{}</{kind}>", escape(cell))).collect()
        };
        let _ = write!(self.body, "<tr>{}</tr>", cells(heading, "th"));
        for row in rows {
            let _ = write!(self.body, "\n<tr>{}</tr>", cells(row, "td"));
        }
        self.body.push_str("</table></div>\n");
        self
    }

    /// Adds words as they were typed.
    pub fn code(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.body, "<p><code>{}</code></p>", escape(text));
        self
    }

    /// The whole text.
    #[must_use]
    pub fn html(&self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <title>{}</title><style>{STYLE}{PAGE_STYLE}</style></head>\n<body>\n{}</body>\
             </html>\n",
            escape(&self.title),
            self.body
        )
    }
}
