//! mod_setenvif: sets variables according to the attributes of a request. The rules run in their
//! order, and a rule sees the variables that the rules before it have set.

mod directives;
mod rule;
mod screen;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use rule::Rule;

use crate::settings::merged;
use crate::{CoreSettings, Merge, Shared};
use evenkeel_message::{Lists, Request};
use screen::Groups;
use std::sync::{Arc, OnceLock};

/// The rules of a server or of a section, in order; an inner one's follow an outer one's.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Sections that are merged with nothing share it: a process that copied a long list would
    /// count its references in memory that it shares with the other processes until then.
    pub(crate) list: Arc<Vec<Arc<Rule>>>,
    /// Their groups, made when a request first needs them.
    groups: OnceLock<Arc<Groups>>,
}

/// The long lists of rules in use.
static LISTS: Lists<Rule> = Lists::new();

/// The fewest rules of sections that are grouped. Sections may be merged anew for each request, and
/// for few rules that costs more than the groups save.
const LEAST_GROUPED: usize = 32;

impl Rules {
    fn push(&mut self, rule: Arc<Rule>) {
        Arc::make_mut(&mut self.list).push(rule);
        self.groups.take();
    }

    /// Whether [`Rules::prepare`] has nothing to do.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.list.len() < LEAST_GROUPED || self.groups.get().is_some()
    }

    /// Makes the groups of many rules before the server starts children: a process that made them
    /// itself would not share their memory. Equal lists become one.
    pub fn prepare(&mut self) {
        if !self.is_prepared() {
            LISTS.share(&mut self.list);
            self.groups.get_or_init(|| Groups::of(&self.list));
        }
    }

    /// Runs the rules, without those that a search for their texts rules out.
    fn run(&self, request: &mut Request, core: CoreSettings<'_>, is_early: bool) {
        let groups = self.groups.get_or_init(|| Groups::of(&self.list));
        for (place, screen) in groups.iter() {
            if screen.may_hold(request, is_early) {
                let rules = self.list.get(place).unwrap_or_default();
                rule::run(rules, request, core, is_early);
            }
        }
    }
}

/// The settings of a section.
pub type Directory = Rules;

/// The settings of a server, which hosts share.
pub type Server = Shared<Rules>;

crate::unsaid!(Rules);

impl Merge for Rules {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        match (self.list.is_empty(), over.list.is_empty()) {
            (true, _) => self.clone_from(over),
            (false, true) => {}
            (false, false) => {
                Arc::make_mut(&mut self.list).extend_from_slice(&over.list);
                self.groups.take();
            }
        }
    }
}

/// Runs the rules of a request's server, before its path is looked at (Apache: post_read_request).
pub fn set_by_server(request: &mut Request, server: &Rules, core: CoreSettings<'_>) {
    if !server.list.is_empty() {
        server.run(request, core, true);
    }
}

/// Runs the rules of a request's sections (Apache: header_parser).
pub fn set_by_sections(request: &mut Request, sections: &Rules, core: CoreSettings<'_>) {
    match sections.list.len() < LEAST_GROUPED {
        true => rule::run(&sections.list, request, core, false),
        false => sections.run(request, core, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, core_settings};
    use evenkeel_message::{Peer, RequestHead, UriOptions, UrlPath, Version};

    fn variables(text: &str, fields: &[(&str, &str)]) -> String {
        let request = set(text, fields);
        let pair = |(name, value): (&[u8], &[u8])| {
            format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        request.resource.env.iter().map(pair).collect::<Vec<_>>().join(" ")
    }

    /// A request that the rules have been run on.
    fn set(text: &str, fields: &[(&str, &str)]) -> Request {
        let scope = apply(MODULE, text).unwrap();
        let mut head = RequestHead {
            line: b"GET /a.txt?a=77 HTTP/1.0".to_vec(),
            method_end: 3,
            target: (4, 15),
            version: Version::Http10,
            ..RequestHead::default()
        };
        for (name, value) in fields {
            head.fields.add(name, value.as_bytes());
        }
        let address = |text: &str| text.parse().unwrap();
        let peer = Peer { client: address("192.0.2.7:9"), local: address("127.0.0.1:80") };
        let mut request = Request::new(head, peer, 0);
        request.resource.path = UrlPath::parse(b"/a.txt", UriOptions::default()).unwrap();
        request.resource.query = Some(b"a=77".to_vec());
        set_by_server(&mut request, &scope.server.setenvif, core_settings());
        request
    }

    #[test]
    fn patterns_fill_variables_and_plain_texts_do_not() {
        let agent = [("User-Agent", "Robot/12")];
        assert_eq!(variables("SetEnvIf User-Agent ^Robot/([0-9]+) R V=$1", &agent), "R=1 V=12");
        assert_eq!(variables("SetEnvIf User-Agent Robot L=$0", &agent), "L=$0");
        assert_eq!(variables("SetEnvIf User-Agent ROBOT L", &agent), "");
        assert_eq!(variables("SetEnvIfNoCase User-Agent ROBOT L", &agent), "L=1");
        assert_eq!(variables("BrowserMatch ^R A= B=!x", &agent), "A=1");
        assert_eq!(variables("BrowserMatchNoCase ^r\\w+ W=$0", &agent), "W=Robot");
        assert_eq!(variables("SetEnvIf User-Agent Robot\\/1 S=$0", &agent), "S=Robot/1");
        assert_eq!(variables("SetEnvIf User-Agent Robot.1 S", &agent), "S=1");
    }

    #[test]
    fn what_is_absent_is_empty_and_later_rules_see_earlier_ones() {
        assert_eq!(variables("SetEnvIf X-None ^$ EMPTY", &[]), "EMPTY=1");
        let text = "SetEnvIf Request_URI txt A=x\nSetEnvIf A ^x$ B\nSetEnvIf B . !A C";
        assert_eq!(variables(text, &[]), "B=1 C=1");
    }

    #[test]
    fn rules_in_a_row_see_what_the_one_before_has_set() {
        let text = "SetEnvIf A b A=c\nSetEnvIf A ^$ A=b\nSetEnvIf A b A=x!A\nSetEnvIf A x C\n\
                    SetEnvIf A b D\nSetEnvIf B . E";
        assert_eq!(variables(text, &[]), "A=x!A C=1");
        let set = |value| variables(text, &[("A", value)]);
        assert_eq!(set("b"), "A=x!A D=1");
        assert_eq!(set("bx"), "A=x!A C=1 D=1");
    }

    #[test]
    fn fields_of_one_name_are_one_text() {
        let fields = [("X-A", "1"), ("X-B", "-"), ("x-a", "2")];
        assert_eq!(variables("SetEnvIf X-A ^1,.2$ A\nSetEnvIf X-A 1,\\x202 B", &fields), "A=1 B=1");
    }

    #[test]
    fn facts_of_the_request_have_names() {
        let text = "SetEnvIf Remote_Addr (.*) A=$1\nSetEnvIf server_addr ^127\\. S\n\
                    SetEnvIf Request_Method (.*) M=$1\nSetEnvIf Request_Protocol (.*) P=$1\n\
                    SetEnvIf Remote_Host (.*) H=$1";
        let expected = "A=192.0.2.7 S=1 M=GET P=HTTP/1.0 H=192.0.2.7";
        assert_eq!(variables(text, &[]), expected);
    }

    #[test]
    fn header_names_may_be_patterns() {
        let fields = [("X-Pattern", "v9"), ("Host", "h")];
        assert_eq!(variables("SetEnvIf ^X-Pa.*n$ v(.) P=$1", &fields), "P=9");
        assert_eq!(variables("SetEnvIf ^x-pa.*n$ v(.) P=$1", &fields), "");
        assert_eq!(variables("SetEnvIfNoCase ^x-pa.*n$ v(.) P=$1", &fields), "P=9");
        assert_eq!(variables("SetEnvIf ^x-pattern$ v(.) P=$1", &fields), "");
        assert_eq!(variables("SetEnvIfNoCase ^x-pattern$ v(.) P=$1", &fields), "P=9");
        assert_eq!(variables("SetEnvIfNoCase ^x-none$ (.+) P=$1", &fields), "");
        assert_eq!(variables("SetEnvIfNoCase ^x-none$ ^(.*)$ P=a$1", &fields), "P=a");
        // A variable is no header field.
        let text = "SetEnvIf X-Pattern v x-set=v\nSetEnvIfNoCase ^x-set$ v P";
        assert_eq!(variables(text, &fields), "x-set=v");
    }

    #[test]
    fn a_name_on_which_a_pattern_gives_up_leaves_the_request_undecided() {
        let name = "a".repeat(40) + "b";
        for wanted in ["v", "^$"] {
            let request = set(&format!("SetEnvIf ^(a+)+$ {wanted} A"), &[(&name, "v")]);
            assert!(request.undecided && !request.resource.env.contains(b"A"), "{wanted}");
            assert!(request.notices[0].text.contains("gave up"), "{:?}", request.notices);
        }
        assert!(!set("SetEnvIf ^(a+)+$ v A", &[("aaaa", "v")]).undecided);
    }

    #[test]
    fn expressions_give_their_groups() {
        let text = "SetEnvIfExpr \"%{QUERY_STRING} =~ /a=([0-9]+)/\" N=$1\nSetEnvIfExpr false F";
        assert_eq!(variables(text, &[]), "N=77");
    }

    #[test]
    fn inner_rules_follow_outer_ones() {
        let rules = |text: &str| apply(MODULE, text).unwrap().server.setenvif;
        let merged = Rules::merge(&rules("SetEnvIf A b c"), &rules("SetEnvIf D e f"));
        assert_eq!(merged.list.len(), 2);
        let nothing = Rules::default();
        for same in [Rules::merge(&nothing, &merged), Rules::merge(&merged, &nothing)] {
            assert!(Arc::ptr_eq(&same.list, &merged.list));
        }
    }

    #[test]
    fn rules_in_groups_hold_as_they_do_alone() {
        let text = "BrowserMatch \"Mozilla/2\" A\nBrowserMatch \"MSIE 4\\.0b2;\" B !A\n\
                    BrowserMatch \"^WebDAVFS/1\\.[012]\" C\nBrowserMatchNoCase robot D\n\
                    BrowserMatch . E\nBrowserMatch \"Mozilla\" F\nSetEnvIf X-A Mozilla/2 G\n\
                    SetEnvIf G 1 H\nSetEnvIf Referer \"^http://(a|b)/\" I=$1";
        let scope = apply(MODULE, text).unwrap();
        let groups = Groups::of(&scope.server.setenvif.list);
        let sizes: Vec<usize> = groups.iter().map(|(place, _)| place.len()).collect();
        assert_eq!(sizes, [4, 1, 4]);
        assert!(Arc::ptr_eq(&groups, &Groups::of(&scope.server.setenvif.list)));
        for (agent, expected) in [
            ("", ""),
            ("Mozilla/2.0 (compatible; MSIE 4.0b2; Windows 95)", "B=1 E=1 F=1"),
            ("Mozilla/2.0", "A=1 E=1 F=1"),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101", "E=1 F=1"),
            ("WebDAVFS/1.2 (01208000) Darwin/8.11.0", "C=1 E=1"),
            ("a WebDAVFS/1.2 Robot", "D=1 E=1"),
        ] {
            assert_eq!(variables(text, &[("User-Agent", agent)]), expected, "{agent}");
        }
        // Many rules of a section are grouped too.
        let many: String =
            (0..40).map(|n| format!("SetEnvIfNoCase X-B bot{n:02} B{n}\n")).collect();
        let section = apply(MODULE, &many).unwrap().server.setenvif.clone();
        for (field, expected) in [("A boT07; Bot31", "B7 B31"), ("robot", "")] {
            let mut request = set("", &[("X-B", field)]);
            set_by_sections(&mut request, &section, core_settings());
            let names = request.resource.env.iter().map(|(name, _)| String::from_utf8_lossy(name));
            assert_eq!(names.collect::<Vec<_>>().join(" "), expected);
        }
        let others = [("X-A", "a Mozilla/2 b"), ("Referer", "http://b/")];
        assert_eq!(variables(text, &others), "G=1 H=1 I=b");
    }
}
