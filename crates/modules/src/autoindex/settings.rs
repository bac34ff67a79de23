//! What sections say of listings, and its merge: icons, texts and descriptions by file, names
//! that are left out, options, order. Requests read it; nothing here looks at a folder.

use super::options::{Changes, Flags};
use super::rule::{Description, Item};
use crate::Merge;
use crate::settings::merged;
use std::sync::Arc;

/// Characters of a column that nobody gave a width (DEFAULT_NAME_WIDTH, DEFAULT_DESC_WIDTH).
pub(super) const DEFAULT_WIDTH: usize = 23;

/// The settings of one section; nothing where it says nothing of listings, so that sections
/// without are merged for nothing.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<Said>>);

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        match (&mut self.0, &over.0) {
            (_, None) => {}
            (None, Some(_)) => *self = over.clone(),
            (Some(base), Some(over)) => Arc::make_mut(base).add(over),
        }
    }
}

impl Directory {
    /// Makes these the settings of a main server, over which every section's are merged, be it
    /// that nothing was said: only a merge lets `IndexOptions +Name` act.
    pub fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    /// What was said, to add to it.
    pub(super) fn change(&mut self) -> &mut Said {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// What was said, to be read on any thread.
    #[must_use]
    pub fn said(&self) -> Arc<Said> {
        self.0.clone().unwrap_or_default()
    }
}

/// The width of a column (NameWidth, DescriptionWidth).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// Characters.
    pub columns: usize,
    /// Whether it grows with what stands in the column (`*`).
    pub grows: bool,
}

impl Default for Width {
    fn default() -> Self {
        Self { columns: DEFAULT_WIDTH, grows: false }
    }
}

/// What entries are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// The name.
    #[default]
    Name,
    /// The last change.
    Modified,
    /// The size.
    Size,
    /// The description.
    Description,
}

/// The order of a listing (IndexOrderDefault, `C=` and `O=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// By what.
    pub key: Key,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// What was said of listings.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// DefaultIcon.
    pub default_icon: Option<Box<[u8]>>,
    /// IndexStyleSheet.
    pub style_sheet: Option<Box<[u8]>>,
    /// IndexHeadInsert.
    pub head_insert: Option<Box<[u8]>>,
    /// HeaderName.
    pub header_name: Option<Box<[u8]>>,
    /// ReadmeName.
    pub readme_name: Option<Box<[u8]>>,
    /// The switches of IndexOptions.
    pub options: Changes,
    /// `IndexOptions NameWidth=`.
    pub name_width: Option<Width>,
    /// `IndexOptions DescriptionWidth=`.
    pub description_width: Option<Width>,
    /// `IndexOptions IconWidth=`, in pixels; 0 where it is not told.
    pub icon_width: i32,
    /// `IndexOptions IconHeight=`, in pixels; 0 where it is not told.
    pub icon_height: i32,
    /// `IndexOptions Type=`.
    pub media_type: Option<Box<str>>,
    /// `IndexOptions Charset=`.
    pub charset: Option<Box<str>>,
    /// `IndexOptions UseOldDateFormat`.
    pub old_dates: bool,
    /// IndexOrderDefault.
    pub order: Option<Order>,
    /// AddIcon and its like.
    pub icons: Lines<Item>,
    /// AddAlt and its like.
    pub texts: Lines<Item>,
    /// AddDescription.
    pub descriptions: Lines<Description>,
    /// IndexIgnore.
    pub ignored: Lines<Item>,
    /// IndexIgnoreReset: outer sections' IndexIgnore does not count.
    pub ignore_reset: bool,
}

impl Said {
    /// Whether a switch is on.
    #[must_use]
    pub(super) fn has(&self, flag: Flags) -> bool {
        self.options.flags().has(flag)
    }
}

/// Lines of several sections. An inner section's come before the outer ones', those of one
/// section in their order: the first that fits counts.
#[derive(Clone, Debug)]
pub struct Lines<T>(Vec<Arc<Vec<T>>>);

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Lines<T> {
    /// Adds a line to those of the section at hand.
    pub(super) fn push(&mut self, line: T) {
        match self.0.last_mut() {
            Some(section) => Arc::make_mut(section).push(line),
            None => self.0.push(Arc::new(vec![line])),
        }
    }

    /// All lines, those that come first at the start.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().rev().flat_map(|section| section.iter())
    }

    fn add(&mut self, over: &Self) {
        self.0.extend(over.0.iter().cloned());
    }
}

impl Merge for Said {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        // Every field is named, so that a new one is not forgotten.
        let Self {
            default_icon,
            style_sheet,
            head_insert,
            header_name,
            readme_name,
            options,
            name_width,
            description_width,
            media_type,
            charset,
            order,
            old_dates,
            icon_width,
            icon_height,
            icons,
            texts,
            descriptions,
            ignored,
            ignore_reset,
        } = over;
        self.default_icon.add(default_icon);
        self.style_sheet.add(style_sheet);
        self.head_insert.add(head_insert);
        self.header_name.add(header_name);
        self.readme_name.add(readme_name);
        self.options.add(options);
        self.name_width.add(name_width);
        self.description_width.add(description_width);
        self.media_type.add(media_type);
        self.charset.add(charset);
        self.order.add(order);
        self.old_dates |= old_dates;
        if *icon_width != 0 {
            self.icon_width = *icon_width;
        }
        if *icon_height != 0 {
            self.icon_height = *icon_height;
        }
        self.icons.add(icons);
        self.texts.add(texts);
        self.descriptions.add(descriptions);
        if *ignore_reset {
            self.ignored.clone_from(ignored);
        } else {
            self.ignored.add(ignored);
        }
        // As in Apache, the word holds for its own section alone.
        self.ignore_reset = false;
    }
}
