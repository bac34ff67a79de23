//! Tests what a cache remembers of a large folder that is listed.

use super::*;

#[test]
fn a_listed_file_is_as_it_is_now_whatever_happened_to_it_since_the_listing_before() {
    each_policy(|site| {
        NOW_MS.set(0);
        site.write("d/file", "1");
        site.write("d/other", "1");
        site.write("elsewhere", "1");
        fs::hard_link(site.path("elsewhere"), site.path("d/linked")).unwrap();
        let folder = site.files.look_up(bytes(&site.path("d"))).found;
        let names = ["d/first", "d/file", "d/other", "d/linked"];
        let listed = || {
            site.files.begin_round(true);
            let size = |name| site.files.file_in(folder.folder(), bytes(&site.path(name)));
            let sizes = names.map(|name| size(name).map(|file| file.size));
            site.files.end_round();
            sizes
        };
        assert_eq!(listed(), [None, Some(1), Some(1), Some(1)]);
        assert_eq!(listed(), [None, Some(1), Some(1), Some(1)]);
        site.write("d/file", "12");
        site.write("elsewhere", "123");
        assert_eq!(listed(), [None, Some(2), Some(1), Some(3)]);
        fs::rename(site.path("d/other"), site.path("d/first")).unwrap();
        assert_eq!(listed(), [Some(1), Some(2), None, Some(3)]);
        symlink("file", site.path("d/other")).unwrap();
        assert_eq!(listed(), [Some(1), Some(2), None, Some(3)], "links get a look of their own");
    });
}

#[test]
fn a_cache_that_is_told_of_changes_remembers_a_listing_for_a_second() {
    for policy in [Policy::Told, Policy::ToldIfPossible, Policy::PerRequest] {
        NOW_MS.set(0);
        let site = Site::new(policy, Limits::default());
        site.write("d/a", "1");
        site.write("d/b", "1");
        let folder = site.files.look_up(bytes(&site.path("d"))).found;
        site.files.begin_round(true);
        for name in ["d/a", "d/b"] {
            assert!(site.files.file_in(folder.folder(), bytes(&site.path(name))).is_some());
        }
        site.files.end_round();
        let remembers = policy == Policy::ToldIfPossible;
        assert_eq!(site.files.grows_old(), remembers, "{policy:?}");
        NOW_MS.set(1000);
        site.files.drop_old();
        assert_eq!(site.files.grows_old(), remembers, "{policy:?}");
        NOW_MS.set(1001);
        site.files.drop_old();
        assert!(!site.files.grows_old(), "{policy:?}");
    }
}
