//! The rows of a listing in their three forms: a plain list, columns in `<pre>`, and a table.
//! Rows in their order go in, HTML is appended (mod_autoindex.c: output_directories).

use super::cell;
use super::entry::Row;
use super::options::Flags;
use super::page::Page;
use super::query::Asked;
use super::rule::{BLANK, Subject, find};
use super::settings::{Key, Said};
use evenkeel_proto::{escape_html, escape_path};
use jiff::tz::TimeZone;

/// The columns that may be sorted by: letter in the query, key, heading.
const NAME: (char, Key, &str) = ('N', Key::Name, "Name");
const MODIFIED: (char, Key, &str) = ('M', Key::Modified, "Last modified");
const SIZE: (char, Key, &str) = ('S', Key::Size, "Size");
const DESCRIPTION: (char, Key, &str) = ('D', Key::Description, "Description");

/// What writes rows.
pub(super) struct Rows<'a> {
    pub said: &'a Said,
    pub asked: &'a Asked,
    pub name_width: usize,
    pub description_width: usize,
    zone: TimeZone,
}

impl<'a> Rows<'a> {
    pub fn new(said: &'a Said, asked: &'a Asked, rows: &[Row]) -> Self {
        let (name, description) =
            (said.name_width.unwrap_or_default(), said.description_width.unwrap_or_default());
        let grows = asked.flags.has(Flags::FANCY) && !asked.flags.has(Flags::TABLE);
        let widest = |least: usize, lengths: &mut dyn Iterator<Item = usize>| {
            lengths.fold(least, usize::max)
        };
        let mut names = rows.iter().map(|row| row.name.len());
        let mut texts = rows.iter().map(|row| row.description.as_ref().map_or(0, Vec::len));
        let name_width = match name.grows && grows {
            true => widest(name.columns, &mut names),
            false => name.columns,
        };
        let description_width = match description.grows && grows {
            true => widest(description.columns, &mut texts),
            false => description.columns,
        };
        Self { said, asked, name_width, description_width, zone: TimeZone::system() }
    }

    /// Writes all rows, and the headings where there are columns.
    pub fn write(&self, page: &mut Page, rows: &[Row]) {
        if self.has(Flags::TABLE) {
            self.write_table(page, rows);
        } else if self.has(Flags::FANCY) {
            self.write_columns(page, rows);
        } else {
            put(&mut page.out, "<ul>");
            for (index, row) in rows.iter().enumerate() {
                let out = &mut page.out;
                put(out, "<li><a href=\"");
                out.extend_from_slice(&anchor(row));
                put(out, "\"> ");
                escape_html(out, shown_name(index, row));
                put(out, "</a></li>\n");
                page.turn();
            }
            put(&mut page.out, "</ul>\n");
        }
    }

    pub fn has(&self, flag: Flags) -> bool {
        self.asked.flags.has(flag)
    }

    /// A heading, which is a link that sorts; by the column that is sorted by already, the other
    /// way round.
    fn heading(&self, out: &mut Vec<u8>, (letter, key, text): (char, Key, &str)) {
        if self.has(Flags::SUPPRESS_SORTING) {
            return put(out, text);
        }
        let order = self.asked.order;
        let direction = if order.key == key && !order.descending { 'D' } else { 'A' };
        put(out, &format!("<a href=\"?C={letter};O={direction}"));
        out.extend_from_slice(&self.asked.kept);
        put(out, &format!("\">{text}</a>"));
    }

    /// An image, `text` in brackets or as it is.
    fn image(&self, out: &mut Vec<u8>, url: &[u8], text: &[u8]) {
        put(out, "<img src=\"");
        escape_html(out, url);
        put(out, "\" alt=\"");
        out.extend_from_slice(text);
        put(out, "\"");
        for (name, pixels) in [("width", self.said.icon_width), ("height", self.said.icon_height)] {
            if pixels != 0 {
                put(out, &format!(" {name}=\"{pixels}\""));
            }
        }
        put(out, if self.has(Flags::XHTML) { " />" } else { ">" });
    }

    /// The icon of a row, or what stands where there is none.
    fn icon(&self, out: &mut Vec<u8>, row: &Row, none: &str) {
        match row.icon.as_deref().or(self.said.default_icon.as_deref()) {
            Some(url) => {
                let text = row.text.as_deref().unwrap_or(b"   ");
                self.image(out, url, &[b"[", text, b"]"].concat());
            }
            None => put(out, none),
        }
    }

    fn blank_icon(&self) -> Option<&[u8]> {
        find(&self.said.icons, &Subject::path(BLANK))
    }

    fn rule(&self) -> &'static str {
        if self.has(Flags::XHTML) { "<hr />" } else { "<hr>" }
    }

    /// The name in the width of its column, and the spaces behind it.
    fn name(&self, out: &mut Vec<u8>, index: usize, row: &Row) {
        let name = shown_name(index, row);
        let cut = cell::cut_name(name, self.name_width);
        put(out, "<a href=\"");
        out.extend_from_slice(&anchor(row));
        put(out, "\">");
        escape_html(out, &cut);
        put(out, "</a>");
        out.resize(out.len() + self.name_width.saturating_sub(cut.len()), b' ');
    }

    fn date(&self, row: &Row) -> Option<String> {
        (row.modified_us != -1)
            .then(|| cell::date(row.modified_us, &self.zone, self.said.old_dates))
    }

    fn write_columns(&self, page: &mut Page, rows: &[Row]) {
        let out = &mut page.out;
        put(out, "<pre>");
        if !self.has(Flags::SUPPRESS_ICON) {
            match self.blank_icon() {
                Some(url) => {
                    self.image(out, url, b"Icon ");
                    put(out, " ");
                }
                None => put(out, "      "),
            }
        }
        self.heading(out, NAME);
        // The heading's four characters, and the space between columns.
        out.resize(out.len() + self.name_width.saturating_sub(4) + 1, b' ');
        if !self.has(Flags::SUPPRESS_LAST_MODIFIED) {
            self.heading(out, MODIFIED);
            put(out, "      ");
        }
        if !self.has(Flags::SUPPRESS_SIZE) {
            self.heading(out, SIZE);
            put(out, "  ");
        }
        if !self.has(Flags::SUPPRESS_DESCRIPTION) {
            self.heading(out, DESCRIPTION);
        }
        let rules = !self.has(Flags::SUPPRESS_RULES);
        put(out, if rules { self.rule() } else { "\n" });
        for (index, row) in rows.iter().enumerate() {
            self.columns(&mut page.out, index, row);
            page.turn();
        }
        put(&mut page.out, if rules { self.rule() } else { "" });
        put(&mut page.out, "</pre>\n");
    }

    fn columns(&self, out: &mut Vec<u8>, index: usize, row: &Row) {
        if !self.has(Flags::SUPPRESS_ICON) {
            let linked = self.has(Flags::ICONS_ARE_LINKS);
            self.linked(out, row, linked, |out| self.icon(out, row, "     "));
            put(out, " ");
        }
        self.name(out, index, row);
        put(out, " ");
        if !self.has(Flags::SUPPRESS_LAST_MODIFIED) {
            // As wide as a date and two spaces.
            let date = self.date(row).map_or_else(|| " ".repeat(19), |date| date + "  ");
            put(out, &date);
        }
        if !self.has(Flags::SUPPRESS_SIZE) {
            put(out, &crate::size::abbreviated(row.size));
            put(out, "  ");
        }
        if let (false, Some(text)) = (self.has(Flags::SUPPRESS_DESCRIPTION), &row.description) {
            out.extend_from_slice(&self.cut_description(text));
        }
        put(out, "\n");
    }

    /// What `inner` writes, as a link to the row's entry where that is wanted.
    fn linked(&self, out: &mut Vec<u8>, row: &Row, wanted: bool, inner: impl Fn(&mut Vec<u8>)) {
        if wanted {
            put(out, "<a href=\"");
            out.extend_from_slice(&anchor(row));
            put(out, "\">");
        }
        inner(out);
        put(out, if wanted { "</a>" } else { "" });
    }

    /// The description in the width of its column; where nobody gave one, it takes the room of
    /// the columns that are left out.
    fn cut_description(&self, text: &[u8]) -> Vec<u8> {
        let mut width = self.description_width;
        if self.said.description_width.is_none() {
            let freed = [
                (Flags::SUPPRESS_ICON, 6),
                (Flags::SUPPRESS_LAST_MODIFIED, 19),
                (Flags::SUPPRESS_SIZE, 7),
            ];
            width +=
                freed.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, it)| it).sum::<usize>();
        }
        cell::cut_description(text, width)
    }

    fn write_table(&self, page: &mut Page, rows: &[Row]) {
        let out = &mut page.out;
        let styled = self.said.style_sheet.is_some();
        put(
            out,
            if styled {
                "  <table id=\"indexlist\">\n   <tr class=\"indexhead\">"
            } else {
                "  <table>\n   <tr>"
            },
        );
        let mut columns = 1;
        if !self.has(Flags::SUPPRESS_ICON) {
            self.cell(out, "<th", "icon", " valign=\"top\"");
            match self.blank_icon() {
                Some(url) => self.image(out, url, b"[ICO]"),
                None => put(out, "&nbsp;"),
            }
            put(out, "</th>");
            columns += 1;
        }
        self.cell(out, "<th", "name", "");
        self.heading(out, NAME);
        let others = [
            (Flags::SUPPRESS_LAST_MODIFIED, "lastmod", MODIFIED),
            (Flags::SUPPRESS_SIZE, "size", SIZE),
            (Flags::SUPPRESS_DESCRIPTION, "desc", DESCRIPTION),
        ];
        for (flag, class, column) in others {
            if !self.has(flag) {
                self.cell(out, "</th><th", class, "");
                self.heading(out, column);
                columns += 1;
            }
        }
        put(out, "</th></tr>\n");
        let rule = self.table_rule(columns);
        put(out, &rule);
        for (index, row) in rows.iter().enumerate() {
            self.table_row(&mut page.out, index, row);
            page.turn();
        }
        put(&mut page.out, &rule);
        put(&mut page.out, "</table>\n");
    }

    fn table_rule(&self, columns: usize) -> String {
        if self.has(Flags::SUPPRESS_RULES) {
            return String::new();
        }
        let class = if self.said.style_sheet.is_some() { " class=\"indexbreakrow\"" } else { "" };
        format!("   <tr{class}><th colspan=\"{columns}\">{}</th></tr>\n", self.rule())
    }

    /// The beginning of a cell: with a style sheet it has a class, without one an attribute.
    fn cell(&self, out: &mut Vec<u8>, open: &str, class: &str, attribute: &str) {
        match self.said.style_sheet {
            Some(_) => put(out, &format!("{open} class=\"indexcol{class}\">")),
            None => put(out, &format!("{open}{attribute}>")),
        }
    }

    fn table_row(&self, out: &mut Vec<u8>, index: usize, row: &Row) {
        self.open_row(out, index, row);
        if !self.has(Flags::SUPPRESS_ICON) {
            self.cell(out, "<td", "icon", " valign=\"top\"");
            let linked = self.has(Flags::ICONS_ARE_LINKS);
            self.linked(out, row, linked, |out| self.icon(out, row, "&nbsp;"));
            put(out, "</td>");
        }
        self.cell(out, "<td", "name", "");
        if self.said.name_width.is_some_and(|width| width.grows) {
            self.linked(out, row, true, |out| escape_html(out, shown_name(index, row)));
        } else {
            self.name(out, index, row);
        }
        if !self.has(Flags::SUPPRESS_LAST_MODIFIED) {
            let date = self.date(row);
            let attribute = if date.is_some() { " align=\"right\"" } else { "" };
            self.cell(out, "</td><td", "lastmod", attribute);
            put(out, &date.map_or_else(|| "&nbsp;".to_owned(), |date| date + "  "));
        }
        if !self.has(Flags::SUPPRESS_SIZE) {
            self.cell(out, "</td><td", "size", " align=\"right\"");
            put(out, &crate::size::abbreviated(row.size));
        }
        if !self.has(Flags::SUPPRESS_DESCRIPTION) {
            self.cell(out, "</td><td", "desc", "");
            let whole = self.said.description_width.is_some_and(|width| width.grows);
            match &row.description {
                Some(text) if whole => out.extend_from_slice(text),
                Some(text) => out.extend_from_slice(&self.cut_description(text)),
                None => put(out, "&nbsp;"),
            }
        }
        put(out, "</td></tr>\n");
    }

    /// With a style sheet, rows can be told apart by their class.
    fn open_row(&self, out: &mut Vec<u8>, index: usize, row: &Row) {
        if self.said.style_sheet.is_none() {
            return put(out, "<tr>");
        }
        let parity = if index % 2 == 1 { "odd" } else { "even" };
        match row.text.as_deref().filter(|_| self.has(Flags::ADD_ALT_CLASS)) {
            Some(text) => {
                put(out, &format!("   <tr class=\"{parity}-"));
                out.extend_from_slice(&text.to_ascii_lowercase());
                put(out, "\">");
            }
            None => put(out, &format!("   <tr class=\"{parity}\">")),
        }
    }
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// What a link to the row's entry says.
fn anchor(row: &Row) -> Vec<u8> {
    let (mut path, mut anchor) = (Vec::new(), Vec::new());
    escape_path(&mut path, &row.name);
    escape_html(&mut anchor, &path);
    anchor
}

/// The name as it is read: that of the parent is no path.
fn shown_name(index: usize, row: &Row) -> &[u8] {
    if index == 0 && row.name.starts_with(b"/") { b"Parent Directory" } else { &row.name }
}
