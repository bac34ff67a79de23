//! Whether a request is in the very settings of the one that it is a subrequest of, or that was
//! redirected to it. Apache tells by the address of the merged configuration (per_dir_config),
//! which stays the same where the walks of both came to the same sections: the first walk of a kind
//! is compared with the first of the other request, the second with the second, and one without a
//! counterpart with the walk before it (request.c: prep_walk_cache). The walks note here what they
//! come to, and the id of the request's settings follows from that. Some modules keep Apache from
//! comparing sections (`Site::compares_sections`); folder, file name and path have to be the same
//! there.

use crate::site::Site;
use crate::walks::{Merged, parent};
use evenkeel_files::{Kind, Looked};
use evenkeel_message::{Request, Resource, SectionWalk, SectionWalks, SettingsId};
use std::any::Any;
use std::rc::Rc;

/// Whether the request is in the settings of the one before, so that access has been decided
/// (request.c: ap_process_request_internal compares the per_dir_config of `r->prev` and `r->main`).
pub(crate) fn are_settings_known(request: &Request) -> bool {
    request.resource.known_settings == Some(request.resource.settings)
}

/// Sets the settings from which a walk begins: those of the server outside of sections. The walks
/// that were noted before stay, to be compared with.
pub(crate) fn begin(request: &mut Request) {
    request.resource.settings = SettingsId::default();
}

/// Makes the settings of the request known to no other: whether it may be answered under them could
/// not be decided, so that the page of that error must be admitted by itself.
pub(crate) fn forget(request: &mut Request) {
    request.resource.settings = SettingsId::next(&mut request.merges);
}

/// What two walks of folders and files are compared by on a server that does not compare sections.
#[derive(Debug)]
pub(crate) struct FolderPlace {
    /// The folder, or the file if `<Files>` sections hold for it.
    path: Box<[u8]>,
    /// Whether nothing is there. Apache notes the folder of such a walk for later walks, but
    /// compares the walk itself with none (request.c: ap_directory_walk).
    is_absent: bool,
}

/// The place of a walk of folders and files; none where sections are compared.
pub(crate) fn place_of_file(
    site: &Site,
    request: &Request,
    looked: &Looked,
    merged: &Merged,
) -> Option<FolderPlace> {
    let file = request.resource.file.as_bytes();
    let kind = looked.found.kind();
    (!site.compares_sections).then(|| FolderPlace {
        path: match kind {
            Kind::Directory => [file.strip_suffix(b"/").unwrap_or(file), b"/"].concat().into(),
            // Apache ends the walk before it notes its folder.
            Kind::Other | Kind::Denied(_) => {
                [&b"\0"[..], &request.merges.to_ne_bytes()].concat().into()
            }
            Kind::File | Kind::Absent if merged.has_no_files() => parent(request).into(),
            Kind::File | Kind::Absent => file.into(),
        },
        is_absent: matches!(kind, Kind::Absent),
    })
}

/// The path that a walk of `<Location>` was for, where another walk for it is told by that.
pub(crate) fn place_of_path(site: &Site, request: &Request) -> Option<Box<[u8]>> {
    let has_one_form = site.server(request.server).uri_options().merge_slashes;
    let is_asked = !site.compares_sections || !has_one_form;
    is_asked.then(|| request.resource.path.merged()[..].into())
}

/// What holds for a request by the walk of `<Location>` that its next one is compared with, where
/// that was for the same path.
pub(crate) fn locations_of(request: &Request, place: Option<&[u8]>) -> Option<Rc<Merged>> {
    let Resource { known_walks, walks, .. } = &request.resource;
    let before = walk_before(&walks.locations, &known_walks.locations)?;
    let is_same = place.is_some() && before.place.as_deref() == place;
    Rc::clone(&before.held).downcast().ok().filter(|_| is_same)
}

/// Notes the sections of the folders and files that hold for a request (request.c:
/// ap_directory_walk, ap_file_walk).
pub(crate) fn note_folders(request: &mut Request, merged: &Rc<Merged>, place: Option<FolderPlace>) {
    let Resource { known_walks, walks, settings, .. } = &mut request.resource;
    let is_absent = place.as_ref().is_some_and(|place| place.is_absent);
    let place = place.map(|place| place.path);
    let is_same = |walk: &&SectionWalk<Rc<dyn Any>>| {
        !is_absent
            && walk.place == place
            && walk.held.downcast_ref::<Merged>().is_some_and(|it| it.has_folders_of(merged))
    };
    // Each walk of folders begins with the settings of the server, so that the bases are the same.
    let base = *settings;
    *settings = match known_walks.folders.as_ref().filter(is_same) {
        _ if merged.has_no_folders() => base,
        Some(known) => known.result,
        None => SettingsId::next(&mut request.merges),
    };
    let held = Rc::<Merged>::clone(merged);
    walks.folders = Some(SectionWalk { base: Some(base), held, result: *settings, place });
}

/// Notes the `<Location>` sections among those that hold for a request (request.c:
/// ap_location_walk). On a server without such sections there is no such walk.
pub(crate) fn note_locations(
    request: &mut Request,
    merged: &Rc<Merged>,
    place: Option<Box<[u8]>>,
    compares_sections: bool,
) {
    let Resource { known_walks, walks, settings, .. } = &mut request.resource;
    let base = *settings;
    let before = walk_before(&walks.locations, &known_walks.locations);
    let is_same = |walk: &&SectionWalk<Rc<dyn Any>>| {
        walk.base == Some(base)
            && (compares_sections || walk.place == place)
            && walk.held.downcast_ref::<Merged>().is_some_and(|it| it.has_locations_of(merged))
    };
    *settings = match before.filter(is_same) {
        Some(before) => before.result,
        None if merged.has_no_locations() => base,
        None => SettingsId::next(&mut request.merges),
    };
    let held = Rc::<Merged>::clone(merged);
    walks.locations.push(SectionWalk { base: Some(base), held, result: *settings, place });
}

/// What a request's next walk is compared with.
fn walk_before<'a, S>(
    own: &'a [SectionWalk<S>],
    known: &'a [SectionWalk<S>],
) -> Option<&'a SectionWalk<S>> {
    known.get(own.len()).or(own.last())
}

/// A walk of `<If>` sections that is under way (request.c: ap_if_walk_sub). What it has come to so
/// far is noted as it goes, since a condition may ask a question, whose walks are compared with
/// this one.
pub(crate) struct ConditionWalk {
    /// How many sections of the walk that it is compared with are still to be met.
    ahead: usize,
    /// Whether it has come to the sections of that walk and to no others so far.
    is_same: bool,
}

impl ConditionWalk {
    /// Begins a walk, which comes to nothing known unless sections are compared.
    pub(crate) fn begin(request: &mut Request, compares_sections: bool) -> Self {
        let Resource { known_walks, walks, .. } = &mut request.resource;
        let SectionWalks { conditions: own, .. } = walks;
        let before = walk_before(own, &known_walks.conditions).cloned();
        let is_same = before.is_some() && compares_sections;
        let walk = before.unwrap_or_else(|| SectionWalk {
            base: None,
            held: Vec::new(),
            result: SettingsId::default(),
            place: None,
        });
        let ahead = walk.held.len();
        own.push(walk);
        Self { ahead, is_same }
    }

    /// Notes that a section holds.
    pub(crate) fn note(&mut self, request: &mut Request, section: u64) {
        let Some(walk) = request.resource.walks.conditions.last_mut() else { return };
        let met = walk.held.len() - self.ahead;
        if walk.held.get(met) == Some(&section) {
            self.ahead -= 1;
            return;
        }
        walk.held.truncate(met);
        walk.held.push(section);
        (self.ahead, self.is_same) = (0, false);
    }

    /// Ends the walk. It says whether the request has come to settings that are known: the
    /// conditions nested in those that hold are asked no more then.
    pub(crate) fn end(self, request: &mut Request) -> bool {
        let Resource { walks, settings, .. } = &mut request.resource;
        let Some(walk) = walks.conditions.last_mut() else { return false };
        walk.held.truncate(walk.held.len() - self.ahead);
        let is_known = self.is_same && self.ahead == 0 && walk.base == Some(*settings);
        if !is_known {
            walk.base = Some(*settings);
            walk.result = match walk.held.is_empty() {
                true => *settings,
                false => SettingsId::next(&mut request.merges),
            };
        }
        *settings = walk.result;
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walks::tests::{merged, request};
    use evenkeel_message::UrlPath;

    /// A subrequest of the request.
    fn below(request: &Request) -> Request {
        let mut below = request.question();
        below.resource = request.resource.of_subrequest(UrlPath::default(), None);
        below
    }

    /// Walks conditions of which these hold.
    fn walk(request: &mut Request, sections: &[u64]) -> bool {
        let mut walk = ConditionWalk::begin(request, true);
        sections.iter().for_each(|section| walk.note(request, *section));
        walk.end(request)
    }

    /// Walks folders, locations and conditions.
    fn map(request: &mut Request, folders: &[u64], locations: &[u64], conditions: &[u64]) -> bool {
        begin(request);
        let merged = merged(folders, locations);
        note_folders(request, &merged, None);
        note_locations(request, &merged, None, true);
        walk(request, conditions)
    }

    #[test]
    fn settings_are_known_where_all_walks_come_to_the_same_sections() {
        let mut first = request();
        assert!(!map(&mut first, &[1, 2], &[3], &[4, 5]) && !are_settings_known(&first));
        let mut same = below(&first);
        assert!(map(&mut same, &[1, 2], &[3], &[4, 5]) && are_settings_known(&same));
        for (folders, locations, conditions) in [
            (&[1][..], &[3][..], &[4, 5][..]),
            (&[1, 2, 6], &[3], &[4, 5]),
            (&[1, 2], &[], &[4, 5]),
            (&[1, 2], &[6], &[4, 5]),
            (&[1, 2], &[3], &[4]),
            (&[1, 2], &[3], &[5, 4]),
            (&[1, 2], &[3], &[4, 5, 6]),
        ] {
            let mut other = below(&first);
            assert!(!map(&mut other, folders, locations, conditions), "{folders:?}");
            assert!(!are_settings_known(&other), "{folders:?} {locations:?} {conditions:?}");
        }
    }

    #[test]
    fn settings_of_no_sections_are_those_of_the_server() {
        let mut first = request();
        map(&mut first, &[], &[], &[]);
        let mut other = below(&first);
        map(&mut other, &[1], &[], &[]);
        assert!(!are_settings_known(&other));
        let mut third = below(&other);
        assert!(!map(&mut third, &[], &[], &[]) && !are_settings_known(&third));
        assert_eq!(third.resource.settings, first.resource.settings);
    }

    #[test]
    fn a_walk_is_compared_with_that_of_its_number_and_else_with_the_last_of_its_own() {
        let mut first = request();
        assert!(!walk(&mut first, &[1]));
        // Its second walk is compared with its first, the third with the second.
        begin(&mut first);
        assert!(walk(&mut first, &[1]));
        begin(&mut first);
        assert!(!walk(&mut first, &[2]));
        begin(&mut first);
        assert!(!walk(&mut first, &[1]));
        let mut second = below(&first);
        for (sections, is_known) in [(1, true), (1, true), (1, false), (2, false), (2, true)] {
            begin(&mut second);
            assert_eq!(walk(&mut second, &[sections]), is_known, "{sections}");
        }
    }

    #[test]
    fn a_nested_walk_begins_with_the_settings_of_the_one_around_it() {
        let mut first = request();
        assert!(!walk(&mut first, &[1]));
        assert!(!walk(&mut first, &[2]));
        // The nested walk had number 1; so has the next walk from the server's settings, which
        // comes to the same section from others.
        let mut second = below(&first);
        assert!(!walk(&mut second, &[3]));
        begin(&mut second);
        assert!(!walk(&mut second, &[2]));
    }

    #[test]
    fn where_sections_are_not_compared_the_places_are() {
        let place = |name: &str| Some(name.as_bytes().into());
        let folder = |name: &str, is_absent: bool| {
            Some(FolderPlace { path: name.as_bytes().into(), is_absent })
        };
        let mut first = request();
        // A file that is not there leaves its folder for later walks.
        note_folders(&mut first, &merged(&[1], &[2]), folder("/d/", true));
        note_locations(&mut first, &merged(&[1], &[2]), place("/d/a"), false);
        for (file, is_absent, path, is_known) in [
            ("/d/", false, "/d/a", true),
            ("/d/", true, "/d/a", false),
            ("/e/", false, "/d/a", false),
            ("/d/", false, "/d/b", false),
        ] {
            let mut other = below(&first);
            note_folders(&mut other, &merged(&[1], &[2]), folder(file, is_absent));
            note_locations(&mut other, &merged(&[1], &[2]), place(path), false);
            assert_eq!(are_settings_known(&other), is_known, "{file} {is_absent} {path}");
        }
        walk(&mut first, &[3]);
        let mut other = below(&first);
        let mut walk = ConditionWalk::begin(&mut other, false);
        walk.note(&mut other, 3);
        assert!(!walk.end(&mut other));
    }

    #[test]
    fn a_question_sees_what_the_walk_has_come_to_so_far() {
        let mut first = request();
        walk(&mut first, &[1, 2, 3]);
        begin(&mut first);
        let mut under_way = ConditionWalk::begin(&mut first, true);
        under_way.note(&mut first, 1);
        let held = |asked: &Request| asked.resource.known_walks.conditions[1].held.clone();
        assert_eq!(held(&below(&first)), [1, 2, 3]);
        under_way.note(&mut first, 3);
        assert_eq!(held(&below(&first)), [1, 3]);
        assert!(!under_way.end(&mut first));
        // A first walk has come to nothing that could be known.
        let mut alone = request();
        let _walk = ConditionWalk::begin(&mut alone, true);
        let mut asked = below(&alone);
        assert!(!walk(&mut asked, &[]));
    }
}
