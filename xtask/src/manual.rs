//! The reference manual, docs/manual: the pages derive from the modules' declarations.

use crate::pages::{Page, Pages};

/// All pages of the manual.
pub fn manual() -> Pages {
    let pages = evenkeel_modules::manual().into_iter();
    let pages = pages.map(|page| Page { file: page.file, text: page.text }).collect();
    Pages { folder: "docs/manual", task: "manual", pages }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_manual_is_up_to_date() {
        let mut faults = Vec::new();
        super::manual().check(&crate::root(), &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
