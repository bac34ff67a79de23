//! The notes for the log about a body that was compressed or unpacked (DeflateFilterNote,
//! BrotliFilterNote).

use evenkeel_message::Variables;

/// The names of the notes. A note is not written if its name is `None`.
#[derive(Clone, Debug, Default)]
pub struct NoteNames {
    /// For the bytes that went in.
    pub input: Option<Box<str>>,
    /// For the bytes that came out.
    pub output: Option<Box<str>>,
    /// For the bytes that came out in percent of those that went in.
    pub ratio: Option<Box<str>>,
}

impl NoteNames {
    /// Sets the name of one note by the words of the directive: the kind and the name, or the name
    /// of the ratio alone. False if the kind is unknown.
    pub(crate) fn set(&mut self, first: &str, second: Option<&str>) -> bool {
        let (kind, name) = second.map_or(("ratio", first), |name| (first, name));
        let note = match kind.to_ascii_lowercase().as_str() {
            "ratio" => &mut self.ratio,
            "input" => &mut self.input,
            "output" => &mut self.output,
            _ => return false,
        };
        *note = Some(name.into());
        true
    }

    /// The notes to write. `None` if there are none.
    pub(crate) fn wanted(&self) -> Option<Notes> {
        let wanted = self.input.is_some() || self.output.is_some() || self.ratio.is_some();
        wanted.then(|| Notes(self.clone()))
    }
}

/// Notes that are written when the two lengths are known.
#[derive(Clone, Debug)]
pub(crate) struct Notes(pub(crate) NoteNames);

impl Notes {
    pub(crate) fn write(&self, (read, written): (u64, u64), notes: &mut Variables) {
        let ratio = written.saturating_mul(100).checked_div(read);
        let ratio = ratio.map_or("-".to_owned(), |ratio| ratio.to_string());
        let NoteNames { input, output, ratio: ratio_name } = &self.0;
        let values =
            [(input, read.to_string()), (output, written.to_string()), (ratio_name, ratio)];
        for (name, value) in values {
            if let Some(name) = name {
                notes.set(name.as_bytes(), value);
            }
        }
    }
}
