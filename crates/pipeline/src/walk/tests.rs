//! A walker over real folders whose files are edited between its walks, and the bounds of what it
//! keeps.

use super::*;
use crate::site::Language;
use evenkeel_config::{Main, ModuleSet, Position, Start, Tables, Variables, Vocabulary};
use evenkeel_files::Policy;
use evenkeel_message::{FileName, Peer, RequestHead, UrlPath};
use evenkeel_modules::core::Tristate;
use evenkeel_modules::{OFFERS, Scope, active_tables, is_active};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The words of the modules that are active where none is named.
struct Words(ModuleSet, Tables<Scope>);

impl Words {
    fn usual() -> Self {
        let modules = ModuleSet::preset(OFFERS.to_vec());
        let tables = active_tables(&modules);
        Self(modules, tables)
    }
}

impl Vocabulary for Words {
    fn module_loaded(&self, name: &str) -> bool {
        is_active(&self.0, name)
    }

    fn load_module(
        &mut self,
        _: &str,
        _: &str,
        _: &str,
    ) -> Result<Option<evenkeel_config::Notice>, String> {
        Err("no module is loaded here".into())
    }

    fn directive_exists(&self, name: &str) -> bool {
        self.1.has(name)
    }

    fn server_version(&self) -> (u32, u32, u32) {
        (2, 4, 0)
    }

    fn version_matches(&self, _: &str) -> Option<bool> {
        None
    }
}

fn compile(text: &str) -> Site {
    let mut words = Words::usual();
    let start = Start {
        server_root: "/".into(),
        main: Main::Text { name: "test".into(), text: text.into() },
        before: Vec::new(),
        after: Vec::new(),
        variables: Variables::default(),
    };
    let mut notices = Vec::new();
    let tree = evenkeel_config::read(start, &mut words, &mut notices, &mut Vec::new()).unwrap();
    let language = Language {
        tables: active_tables(&words.0),
        variables: tree.variables,
        runtime_dir: None,
        roots_unchecked: true,
        vocabulary: Box::new(words),
    };
    let own_name = || "test".to_owned();
    Site::compile(&tree.nodes, language, Path::new("/"), &own_name, &mut notices).unwrap()
}

/// A folder whose .htaccess files may say everything, and a walker of it.
struct House {
    walker: Walker,
    site: Site,
    root: PathBuf,
    _folder: tempfile::TempDir,
}

impl House {
    fn new(policy: Policy, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let (files, _) = Files::new(limits, policy);
        let text = format!("<Directory \"{}\">\nAllowOverride All\n</Directory>\n", root.display());
        Self { walker: Walker::new(files), site: compile(&text), root, _folder: folder }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn request(&self, name: &str) -> Request {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        let options = self.site.server(0).uri_options();
        request.resource.path = UrlPath::parse(format!("/{name}").as_bytes(), options).unwrap();
        request.resource.file = FileName::new(self.root.join(name).to_str().unwrap());
        request
    }

    fn arrive(&mut self, name: &str) -> Arrival {
        let mut request = self.request(name);
        self.walker.map(&self.site, &mut request).unwrap()
    }

    /// What a walk finds: the kind of what is there, and what ServerSignature says of it.
    fn walk(&mut self, name: &str) -> (Kind, Option<Tristate>) {
        let arrival = self.arrive(name);
        (arrival.looked.found.kind(), arrival.merged.plan.core.signature)
    }

    /// The walk that is known without asking for anything but whether it holds.
    fn known(&self, name: &str) -> Option<Rc<Walk>> {
        let (walk, _) = self.walker.kept(&self.request(name), None)?;
        Some(Rc::clone(walk))
    }

    fn knows(&self, name: &str, walk: &Rc<Walk>) -> bool {
        self.known(name).is_some_and(|known| Rc::ptr_eq(&known, walk))
    }
}

const ON: Option<Tristate> = Some(Tristate::On);
const OFF: Option<Tristate> = Some(Tristate::Off);

#[test]
fn an_edited_htaccess_file_ends_the_walks_below_it_and_no_others() {
    for policy in [Policy::Told, Policy::PerRequest] {
        let mut house = House::new(policy, Limits::default());
        for name in ["edited/below/page", "other/page"] {
            house.write(name, "text");
        }
        house.write("edited/.htaccess", "ServerSignature On\n");
        house.write("other/.htaccess", "ServerSignature On\n");
        for name in ["edited/below/page", "edited/below/none", "other/page"] {
            assert_eq!(house.walk(name).1, ON, "{name}");
        }
        // Where nobody tells of changes, a file that has just been written may change unseen: what
        // was made of it is asked for again.
        let is_told = policy == Policy::Told;
        let other = house.known("other/page");
        assert!(!is_told || other.is_some());
        // Longer, shorter, as long, gone, and there again.
        let texts = [
            ("ServerSignature Off", OFF),
            ("ServerSignature On", ON),
            ("ServerSignature oN", ON),
            ("", None),
            ("ServerSignature Off\n", OFF),
        ];
        for (text, wanted) in texts {
            let path = house.root.join("edited/.htaccess");
            match text {
                "" => fs::remove_file(path).unwrap(),
                text => fs::write(path, text).unwrap(),
            }
            for name in ["edited/below/page", "edited/below/none"] {
                assert!(house.known(name).is_none(), "{policy:?} {text:?} {name}");
                assert_eq!(house.walk(name).1, wanted, "{policy:?} {text:?} {name}");
                assert!(!is_told || house.known(name).is_some(), "{text:?} {name}");
            }
            assert!(other.iter().all(|it| house.knows("other/page", it)), "{text:?}");
        }
        // Of each folder with a file one, and that of the time without.
        assert_eq!(house.walker.plans.len(), 3);
    }
}

#[test]
fn an_edited_folder_ends_the_walks_that_it_changes_and_no_others() {
    for policy in [Policy::Told, Policy::PerRequest] {
        let mut house = House::new(policy, Limits::default());
        for name in ["edited/page", "edited/beside", "other/page", "third/page"] {
            house.write(name, "text");
        }
        house.write("third/.htaccess", "ServerSignature On\n");
        for name in ["edited/page", "edited/beside", "other/page"] {
            assert_eq!(house.walk(name), (Kind::File, None), "{name}");
        }
        assert_eq!(house.walk("edited/none").0, Kind::Absent);
        let [beside, other] = ["edited/beside", "other/page"].map(|it| house.known(it).unwrap());
        // A file goes, and another comes.
        fs::remove_file(house.root.join("edited/page")).unwrap();
        house.write("edited/none", "text");
        assert!(house.known("edited/page").is_none() && house.known("edited/none").is_none());
        assert_eq!(house.walk("edited/page").0, Kind::Absent);
        assert_eq!(house.walk("edited/none").0, Kind::File);
        assert!(house.knows("edited/beside", &beside) && house.knows("other/page", &other));
        // The folder gets an .htaccess file, which it had not.
        house.write("edited/.htaccess", "ServerSignature Off\n");
        assert!(house.known("edited/beside").is_none());
        assert_eq!(house.walk("edited/beside"), (Kind::File, OFF));
        assert!(house.knows("other/page", &other));
        // Another folder takes its place, and a link to one.
        fs::rename(house.root.join("edited"), house.root.join("old")).unwrap();
        assert!(house.known("edited/beside").is_none() && house.known("edited/page").is_none());
        assert_eq!(house.walk("edited/beside").0, Kind::Absent);
        symlink("third", house.root.join("edited")).unwrap();
        assert!(house.known("edited/beside").is_none());
        assert_eq!(house.walk("edited/page"), (Kind::File, ON));
        assert!(house.knows("other/page", &other));
    }
}

#[test]
fn sections_and_plans_of_htaccess_files_are_bounded_by_their_bytes() {
    let limits = Limits { access_bytes: 10_000, ..Limits::default() };
    let mut house = House::new(Policy::PerRequest, limits);
    for number in 0..12 {
        let name = format!("d{number}");
        house.write(&format!("{name}/page"), "text");
        let remark = "x".repeat(3000);
        house.write(&format!("{name}/.htaccess"), &format!("ServerSignature On\n#{remark}\n"));
        assert_eq!(house.walk(&format!("{name}/page")), (Kind::File, ON));
        let kept = 3.min(number + 1);
        assert_eq!((house.walker.access.len(), house.walker.plans.len()), (kept, kept));
    }
    // One that has no room alone holds, and is made anew for each request.
    let remark = format!("#{}\n", "x".repeat(5000));
    let text = format!("ServerSignature Off\n{}", remark.repeat(3));
    house.write("large/.htaccess", &text);
    house.write("large/page", "text");
    for _ in 0..2 {
        assert_eq!(house.walk("large/page"), (Kind::File, OFF));
        assert!(house.walker.walks.get(0, b"/large/page").is_none());
        assert_eq!((house.walker.access.len(), house.walker.plans.len()), (3, 3));
    }
}

#[test]
fn an_htaccess_file_that_is_asked_for_stays_parsed_while_others_come_and_go() {
    let limits = Limits { access_bytes: 10_000, ..Limits::default() };
    let mut house = House::new(Policy::PerRequest, limits);
    let text = format!("ServerSignature On\n#{}\n", "x".repeat(3000));
    house.write("often/.htaccess", &text);
    let section = |house: &mut House, name: &str| {
        house.write(name, "text");
        let sections = house.arrive(name).merged.sections.clone();
        sections.last().map(|section| section.id)
    };
    let often = section(&mut house, "often/page");
    for number in 0..20 {
        house.write(&format!("d{number}/.htaccess"), &text);
        assert_ne!(section(&mut house, &format!("d{number}/page")), often);
        assert_eq!(section(&mut house, &format!("often/page{number}")), often, "{number}");
    }
}

#[test]
fn what_clients_and_authors_can_make_without_end_is_not_kept() {
    let plans = Plans::new(4, 1000);
    let section = |bytes| {
        Arc::new(Section {
            id: 1,
            kind: evenkeel_modules::core::Kind::Directory,
            matches: Match::Else,
            settings: Plan::default(),
            position: Position { file: "test".into(), line: 1 },
            bytes,
        })
    };
    assert!(is_plan_kept(&plans, &vec![section(0); KEPT_SECTIONS]));
    assert!(!is_plan_kept(&plans, &vec![section(0); KEPT_SECTIONS + 1]));
    assert!(is_plan_kept(&plans, &[section(500), section(500)]));
    assert!(!is_plan_kept(&plans, &[section(500), section(501)]));
    assert!(is_worth_keeping(b"", Kind::File) && !is_worth_keeping(b"/a", Kind::File));
    assert!(is_worth_keeping(b"/a", Kind::Absent) && !is_worth_keeping(b"", Kind::Other));
}
