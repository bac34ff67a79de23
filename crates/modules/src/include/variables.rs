//! The variables of a page and of the pages that it includes (mod_include.c: add_include_vars,
//! add_include_vars_lazy). Dates and the owner's name are found out when they are first asked for.

use super::text;
use evenkeel_message::Variables;

/// The variables that have no value before they are asked for.
const LAZY: [&str; 4] = ["DATE_LOCAL", "DATE_GMT", "LAST_MODIFIED", "USER_NAME"];

/// Those that are dates.
const DATES: [&str; 3] = ["DATE_LOCAL", "DATE_GMT", "LAST_MODIFIED"];

/// What the lazy variables are made of.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The time of the request, in microseconds since 1970.
    pub request_us: i64,
    /// The modification time of the page's file, in microseconds since 1970.
    pub modified_us: i64,
    /// The name of the owner of the page's file, once it is known.
    pub owner: Option<String>,
}

/// The path of a page, as its variables show it.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The path of the URL.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
    /// PATH_INFO.
    pub path_info: &'a [u8],
    /// The file.
    pub file: &'a [u8],
}

/// The variables of a page.
#[derive(Clone, Debug)]
pub struct PageVariables {
    variables: Variables,
    is_open: [bool; LAZY.len()],
    /// What the lazy ones are made of.
    pub facts: Facts,
}

impl PageVariables {
    /// The CGI variables of a request, and those of the page that it is for.
    #[must_use]
    pub fn new(cgi: Variables, document: &Document<'_>, facts: Facts) -> Self {
        let mut variables = cgi;
        for name in DATES {
            variables.set(name, "");
        }
        variables.set("DOCUMENT_URI", document.path);
        variables.set("DOCUMENT_ARGS", document.query.unwrap_or_default());
        if !document.path_info.is_empty() {
            variables.set("DOCUMENT_PATH_INFO", document.path_info);
        }
        variables.set("USER_NAME", "");
        let slash = document.file.iter().rposition(|byte| *byte == b'/');
        let name = slash.and_then(|slash| document.file.get(slash + 1..));
        variables.set("DOCUMENT_NAME", name.unwrap_or(document.path));
        Self { variables, is_open: [true; LAZY.len()], facts }
    }

    /// Sets QUERY_STRING and QUERY_STRING_UNESCAPED.
    pub fn set_query(&mut self, query: &[u8], escape: impl FnOnce(&[u8]) -> Vec<u8>) {
        self.variables.set("QUERY_STRING", query);
        self.variables.set("QUERY_STRING_UNESCAPED", escape(&text::decode_url(query)));
    }

    /// The name of a variable as it was first written: case does not count in names.
    fn known<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        if self.variables.contains(name) {
            return name;
        }
        let mut names = self.variables.iter().map(|(known, _)| known);
        names.find(|known| known.eq_ignore_ascii_case(name)).unwrap_or(name)
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        let name = &self.known(name).to_vec();
        if let Some(open) = self.open(name) {
            *open = false;
        }
        self.variables.set(name, value);
    }

    fn open(&mut self, name: &[u8]) -> Option<&mut bool> {
        let is = |known: &&str| known.as_bytes().eq_ignore_ascii_case(name);
        let at = LAZY.iter().position(is)?;
        self.is_open.get_mut(at)
    }

    /// Whether the name of the owner is still to be found out.
    #[must_use]
    pub fn lacks_owner(&self) -> bool {
        self.is_open.last() == Some(&true) && self.facts.owner.is_none()
    }

    /// The value of a variable. Dates are written in `format`.
    pub fn value(&mut self, name: &[u8], format: &[u8]) -> Option<Vec<u8>> {
        if self.open(name).is_some_and(std::mem::take) {
            let facts = &self.facts;
            let value = match name.to_ascii_uppercase().as_slice() {
                b"DATE_LOCAL" => text::time(facts.request_us, format, false),
                b"DATE_GMT" => text::time(facts.request_us, format, true),
                b"LAST_MODIFIED" => text::time(facts.modified_us, format, false),
                _ => facts.owner.as_deref().unwrap_or("<unknown>").as_bytes().to_vec(),
            };
            let name = self.known(name).to_vec();
            self.variables.set(name, value);
        }
        self.variables.value(self.known(name)).map(<[u8]>::to_vec)
    }

    /// Writes the dates in a format of the page (`config timefmt`).
    pub fn set_dates(&mut self, format: &[u8]) {
        for name in DATES {
            if let Some(open) = self.open(name.as_bytes()) {
                *open = true;
            }
            let _written = self.value(name.as_bytes(), format);
        }
    }

    /// All names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.variables.iter().map(|(name, _)| name.to_vec()).collect()
    }

    /// The variables as a program sees them: what nobody has asked for is empty.
    #[must_use]
    pub fn exported(&self) -> &Variables {
        &self.variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> PageVariables {
        let document =
            Document { path: b"/d/p.shtml", query: None, path_info: b"", file: b"/srv/d/p.shtml" };
        let facts = Facts { request_us: 0, modified_us: 86_400_000_000, owner: None };
        PageVariables::new(Variables::new(), &document, facts)
    }

    #[test]
    fn dates_are_written_when_they_are_asked_for() {
        let mut page = page();
        assert_eq!(page.exported().value("DATE_GMT"), Some(&b""[..]));
        assert_eq!(page.value(b"DATE_GMT", b"%Y").unwrap(), b"1970");
        assert_eq!(page.value(b"DATE_GMT", b"%d").unwrap(), b"1970");
        page.set_dates(b"%d.%m");
        assert_eq!(page.value(b"DATE_GMT", b"%Y").unwrap(), b"01.01");
        page.set(b"DATE_GMT", b"mine");
        assert_eq!(page.value(b"DATE_GMT", b"%Y").unwrap(), b"mine");
        assert!(page.lacks_owner());
        assert_eq!(page.value(b"USER_NAME", b"").unwrap(), b"<unknown>");
        assert!(!page.lacks_owner());
        page.set(b"document_name", b"other");
        assert_eq!(page.value(b"Document_Name", b"").unwrap(), b"other");
        page.set(b"DOCUMENT_NAME", b"p.shtml");
        assert_eq!(page.value(b"NONE", b""), None);
        assert_eq!(page.value(b"DOCUMENT_NAME", b"").unwrap(), b"p.shtml");
    }
}
