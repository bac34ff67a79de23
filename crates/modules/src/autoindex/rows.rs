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
    pub fn new(said: &'a Said, asked: &'a Asked, rows: &[&Row<'_>]) -> Self {
        let (name, description) =
            (said.name_width.unwrap_or_default(), said.description_width.unwrap_or_default());
        let grows = asked.flags.has(Flags::FANCY) && !asked.flags.has(Flags::TABLE);
        let widest = |least: usize, lengths: &mut dyn Iterator<Item = usize>| {
            lengths.fold(least, usize::max)
        };
        let mut names = rows.iter().map(|row| row.name.len());
        let mut texts =
            rows.iter().map(|row| row.description.as_ref().map_or(0, |text| text.len()));
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
    pub fn write(&self, page: &mut Page, rows: &[&Row<'_>]) {
        if self.has(Flags::TABLE) {
            self.write_table(page, rows);
        } else if self.has(Flags::FANCY) {
            self.write_columns(page, rows);
        } else {
            put(&mut page.out, "<ul>");
            for (index, row) in rows.iter().enumerate() {
                let out = &mut page.out;
                put(out, "<li><a href=\"");
                put_anchor(out, row);
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

    /// An image with a text of several parts.
    fn image(&self, out: &mut Vec<u8>, url: &[u8], text: &[&[u8]]) {
        put(out, "<img src=\"");
        escape_html(out, url);
        put(out, "\" alt=\"");
        text.iter().for_each(|part| out.extend_from_slice(part));
        put(out, "\"");
        for (name, pixels) in [("width", self.said.icon_width), ("height", self.said.icon_height)] {
            if pixels != 0 {
                for part in [" ", name, "=\"", itoa::Buffer::new().format(pixels), "\""] {
                    put(out, part);
                }
            }
        }
        put(out, if self.has(Flags::XHTML) { " />" } else { ">" });
    }

    /// The icon of a row, or what stands where there is none.
    fn icon(&self, out: &mut Vec<u8>, row: &Row<'_>, none: &str) {
        match row.icon.or(self.said.default_icon.as_deref()) {
            Some(url) => self.image(out, url, &[b"[", row.text.unwrap_or(b"   "), b"]"]),
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
    fn name(&self, out: &mut Vec<u8>, index: usize, row: &Row<'_>) {
        let name = shown_name(index, row);
        let cut = cell::cut_name(name, self.name_width);
        put(out, "<a href=\"");
        put_anchor(out, row);
        put(out, "\">");
        escape_html(out, &cut);
        put(out, "</a>");
        out.resize(out.len() + self.name_width.saturating_sub(cut.len()), b' ');
    }

    /// The date with two spaces behind it, or `none`.
    fn date(&self, out: &mut Vec<u8>, row: &Row<'_>, none: &str) {
        if row.modified_us == -1 {
            return put(out, none);
        }
        cell::put_date(out, row.modified_us, &self.zone, self.said.old_dates);
        put(out, "  ");
    }

    fn write_columns(&self, page: &mut Page, rows: &[&Row<'_>]) {
        let out = &mut page.out;
        put(out, "<pre>");
        if !self.has(Flags::SUPPRESS_ICON) {
            match self.blank_icon() {
                Some(url) => {
                    self.image(out, url, &[b"Icon "]);
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

    fn columns(&self, out: &mut Vec<u8>, index: usize, row: &Row<'_>) {
        if !self.has(Flags::SUPPRESS_ICON) {
            let linked = self.has(Flags::ICONS_ARE_LINKS);
            self.linked(out, row, linked, |out| self.icon(out, row, "     "));
            put(out, " ");
        }
        self.name(out, index, row);
        put(out, " ");
        if !self.has(Flags::SUPPRESS_LAST_MODIFIED) {
            // As wide as a date and two spaces.
            self.date(out, row, "                   ");
        }
        if !self.has(Flags::SUPPRESS_SIZE) {
            out.extend_from_slice(&crate::size::abbreviated(row.size));
            put(out, "  ");
        }
        if let (false, Some(text)) = (self.has(Flags::SUPPRESS_DESCRIPTION), &row.description) {
            out.extend_from_slice(&self.cut_description(text));
        }
        put(out, "\n");
    }

    /// What `inner` writes, as a link to the row's entry where that is wanted.
    fn linked(&self, out: &mut Vec<u8>, row: &Row<'_>, wanted: bool, inner: impl Fn(&mut Vec<u8>)) {
        if wanted {
            put(out, "<a href=\"");
            put_anchor(out, row);
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

    fn write_table(&self, page: &mut Page, rows: &[&Row<'_>]) {
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
                Some(url) => self.image(out, url, &[b"[ICO]"]),
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
            Some(_) => {
                [open, " class=\"indexcol", class, "\">"].iter().for_each(|part| put(out, part));
            }
            None => [open, attribute, ">"].iter().for_each(|part| put(out, part)),
        }
    }

    fn table_row(&self, out: &mut Vec<u8>, index: usize, row: &Row<'_>) {
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
            let attribute = if row.modified_us == -1 { "" } else { " align=\"right\"" };
            self.cell(out, "</td><td", "lastmod", attribute);
            self.date(out, row, "&nbsp;");
        }
        if !self.has(Flags::SUPPRESS_SIZE) {
            self.cell(out, "</td><td", "size", " align=\"right\"");
            out.extend_from_slice(&crate::size::abbreviated(row.size));
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
    fn open_row(&self, out: &mut Vec<u8>, index: usize, row: &Row<'_>) {
        if self.said.style_sheet.is_none() {
            return put(out, "<tr>");
        }
        let parity = if index % 2 == 1 { "odd" } else { "even" };
        match row.text.filter(|_| self.has(Flags::ADD_ALT_CLASS)) {
            Some(text) => {
                ["   <tr class=\"", parity, "-"].iter().for_each(|part| put(out, part));
                out.extend_from_slice(&text.to_ascii_lowercase());
                put(out, "\">");
            }
            None => ["   <tr class=\"", parity, "\">"].iter().for_each(|part| put(out, part)),
        }
    }
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Appends what a link to the row's entry says. Most names consist of characters that neither a
/// path nor HTML escapes.
fn put_anchor(out: &mut Vec<u8>, row: &Row<'_>) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./".contains(byte);
    if row.name.iter().all(is_plain) {
        return out.extend_from_slice(&row.name);
    }
    let mut path = Vec::new();
    escape_path(&mut path, &row.name);
    escape_html(out, &path);
}

/// The name as it is read: that of the parent is no path.
fn shown_name<'a>(index: usize, row: &'a Row<'_>) -> &'a [u8] {
    if index == 0 && row.name.starts_with(b"/") { b"Parent Directory" } else { &row.name }
}
