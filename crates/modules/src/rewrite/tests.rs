//! Tests of whole runs: apply rules of a configuration to a request and check the outcome.

use super::ProgramMap;
use super::*;
use crate::testing::{apply, apply_in, core_settings};
use crate::{CoreSettings, Place, RequestContext};
use evenkeel_expr::{Condition as Expression, Evaluation};
use evenkeel_message::{
    Allowance, Fields, Level, Peer, Request, RequestHead, Status, UriOptions, UrlPath,
};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// A server where only the path `/there` exists.
struct Stub;

impl Surroundings for Stub {
    fn look<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        ahead: Ahead,
        read: &'a dyn Fn(&RequestContext<'_>, &[u8]) -> Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Look> + 'a>> {
        let (Ahead::Url(path) | Ahead::File(path)) = ahead;
        let is_there = path == b"/there";
        let status = if is_there { Status::OK } else { Status::FORBIDDEN };
        let value = read(&RequestContext::new(request, core_settings()), &path);
        let is_undecided = path == b"/doubtful";
        Box::pin(async move { Look { status, file: path, value, is_undecided } })
    }

    fn decide<'a>(
        &'a self,
        request: &'a mut Box<Request>,
        filename: &'a [u8],
        condition: &'a Expression,
    ) -> Pin<Box<dyn Future<Output = Verdict> + 'a>> {
        let context = RequestContext::new(request, core_settings()).with_filename(filename);
        let mut evaluation = Evaluation::new(&context);
        let answer = evaluation.holds(condition);
        let captures = evaluation.captures().clone();
        Box::pin(async move { Verdict { answer, captures, vary: Fields::new() } })
    }

    fn ask_program<'a>(
        &'a self,
        _: &'a mut Box<Request>,
        _: &'a ProgramMap,
        key: &'a [u8],
    ) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + 'a>> {
        Box::pin(async move { Some(key.to_vec()) })
    }

    fn map_below_root(&self, request: &mut Request, path: &[u8]) -> Result<(), Status> {
        match path.windows(3).any(|part| part == b"/..") {
            true => Err(Status::FORBIDDEN),
            false => {
                request.resource.file.set(b"/docs", path);
                Ok(())
            }
        }
    }
}

/// Polls a future that must be ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

fn request(target: &str) -> Box<Request> {
    let (path, query) = target.split_once('?').map_or((target, None), |(a, b)| (a, Some(b)));
    let mut head = RequestHead { line: b"GET / HTTP/1.1".to_vec(), ..RequestHead::default() };
    head.fields.add("Host", "h");
    head.fields.add("User-Agent", "Robot/1");
    let address = "127.0.0.1:80".parse().unwrap();
    let peer = Peer { client: address, local: address };
    let mut request = Box::new(Request::new(head, peer, 1_577_836_800_000_000));
    request.resource.path = UrlPath::parse(path.as_bytes(), UriOptions::default()).unwrap();
    request.resource.query = query.map(Into::into);
    request.host = b"h".to_vec();
    request
}

/// Formats the outcome of a request.
fn shown(outcome: &Outcome, request: &Request) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let query = request.resource.query.as_deref().map(|query| format!("?{}", text(query)));
    let query = query.unwrap_or_default();
    match outcome {
        Outcome::Declined => format!("declined{query}"),
        Outcome::Passed(path) => format!("passed {}{query}", text(path)),
        Outcome::Mapped => format!("file {}{query}", text(request.resource.file.as_bytes())),
        Outcome::Redirected(path) => format!("redirected {}{query}", text(path)),
        Outcome::Proxied(target) => format!("proxied {}", text(&target.uri)),
        Outcome::Answered(Answer::Status(status, fields)) => {
            let fields = fields.as_deref().cloned().unwrap_or_default();
            format!("{} {}", status.code(), text(fields.first("Location").unwrap_or_default()))
        }
        Outcome::Answered(other) => format!("{other:?}"),
    }
}

/// Applies the rules of a server.
fn serve(rules: &str, request: &mut Box<Request>) -> Outcome {
    let scope = apply(MODULE, &format!("RewriteEngine On\n{rules}")).unwrap();
    let (server, section) = (&scope.server.rewrite, &scope.directory.rewrite);
    now(translate(request, server, section, core_settings(), &Stub))
}

fn served(rules: &str, target: &str) -> String {
    let mut request = request(target);
    let outcome = serve(rules, &mut request);
    shown(&outcome, &request)
}

/// Applies the rules of the directory `/d/` to a file.
fn fix(rules: &str, request: &mut Box<Request>, core: CoreSettings<'_>) -> Outcome {
    let place = Place::Directory("/d/".into());
    let scope = apply_in(MODULE, place, &format!("RewriteEngine On\n{rules}")).unwrap();
    let (server, section) = (&scope.server.rewrite, &scope.directory.rewrite);
    now(fix_up(request, server, section, core, None, &Stub))
}

fn fixed(rules: &str, file: &str, path_info: &str) -> String {
    let mut request = request("/x?asked");
    request.resource.file.set(b"", file.as_bytes());
    request.resource.path_info = path_info.into();
    let root = Some(std::path::Path::new("/docs").into());
    let server = crate::core::Server { document_root: root, ..crate::core::Server::default() };
    let core = CoreSettings { server: &server, ..core_settings() };
    let outcome = fix(rules, &mut request, core);
    shown(&outcome, &request)
}

#[test]
fn substitutions_lead_to_files_below_document_root() {
    for (rules, expected) in [
        ("RewriteRule ^/a(.*) /b$1", "file /docs/b/x?q=1"),
        ("RewriteRule a b", "file /docs/b?q=1"),
        ("RewriteRule ^/none /b", "declined?q=1"),
        ("RewriteRule !^/none /b", "file /docs/b?q=1"),
        ("RewriteRule ^/A /b [NC]", "file /docs/b?q=1"),
        ("RewriteRule ^/a /b?own", "file /docs/b?own"),
        ("RewriteRule ^/a /b?own [QSA]", "file /docs/b?own&q=1"),
        ("RewriteRule ^/a /b?", "file /docs/b"),
        ("RewriteRule ^/a /b [QSD]", "file /docs/b"),
        ("RewriteRule ^/a /b?c?d [QSL]", "file /docs/b?c?d"),
        ("RewriteRule ^/a /b [PT]", "passed /b?q=1"),
        ("RewriteRule ^/a /../b", "403 "),
        ("RewriteRule ^/a //b", "file /docs/b?q=1"),
        ("RewriteRule ^/a -", "declined?q=1"),
        ("RewriteRule ^/a http://x/y%20", "302 http://x/y0?q=1"),
        (r"RewriteRule ^/a http://x/y\%20", "302 http://x/y%2520?q=1"),
        (r"RewriteRule ^/a http://x/y\%20 [NE]", "302 http://x/y%20?q=1"),
        ("RewriteRule ^/a /b [R]", "302 http://h/b?q=1"),
        ("RewriteRule ^/a b [R=permanent]", "301 http://h/b?q=1"),
        ("RewriteRule ^/a - [F]", "403 "),
        ("RewriteRule ^/a /b [G]", "410 "),
        ("RewriteRule ^/a - [R=404]", "404 "),
        ("RewriteRule ^/a http://x/y [P]", "proxied http://x/y"),
        ("RewriteRule ^/a mailto:a@b", "302 mailto:a@b?q=1"),
    ] {
        assert_eq!(served(rules, "/a/x?q=1"), expected, "{rules}");
    }
}

#[test]
fn rules_follow_each_other_as_their_flags_say() {
    let rest = "RewriteRule ^/b /c\nRewriteRule ^/c /d";
    for (first, expected) in [
        ("RewriteRule ^/a /b", "file /docs/d"),
        ("RewriteRule ^/a /b [L]", "file /docs/b"),
        ("RewriteRule ^/a /b [END]", "file /docs/b"),
        ("RewriteRule ^/a /b [S=1]", "file /docs/b"),
        ("RewriteRule ^/a /b [S=9]", "file /docs/b"),
        ("RewriteRule ^/none /b [C]", "declined"),
        ("RewriteRule ^/a /b [C]", "file /docs/d"),
    ] {
        assert_eq!(served(&format!("{first}\n{rest}"), "/a"), expected, "{first}");
    }
    let chain = "RewriteRule ^/none /b [C]\nRewriteRule ^/a /b [C]\nRewriteRule ^/a /c\n\
                 RewriteRule ^/a /d";
    assert_eq!(served(chain, "/a"), "file /docs/d");
}

#[test]
fn rounds_end_where_the_rule_says_and_at_their_bound() {
    let text = "RewriteRule ^(.*)x(.*)$ $1y$2 [N]";
    assert_eq!(served(text, "/axbxcx"), "file /docs/aybycy");
    let mut endless = request("/a");
    let outcome = serve("RewriteRule ^/a /a [N=5]", &mut endless);
    assert_eq!(shown(&outcome, &endless), "500 ");
    let expected = "RewriteRule '^/a' and URI '/a' exceeded maximum number of rounds (5) via the \
                    [N] flag";
    assert_eq!(endless.notices[0].text, expected);
    let mut growing = request("/a");
    let outcome = serve("RewriteRule ^(.*)$ $1/longer [N]", &mut growing);
    assert_eq!(shown(&outcome, &growing), "500 ");
    assert!(growing.notices[0].text.contains("exceeded maximum length (16380)"));
}

#[test]
fn conditions_hold_together_or_one_by_one() {
    let rule = "\nRewriteRule ^/a /b/%1";
    for (conditions, holds) in [
        ("RewriteCond %{REQUEST_URI} ^/(a)", true),
        ("RewriteCond %{REQUEST_URI} !^/(a)", false),
        ("RewriteCond $0 =/a", true),
        ("RewriteCond %{HTTP_USER_AGENT} robot [NC]", true),
        ("RewriteCond %{HTTP_USER_AGENT} none\nRewriteCond a a", false),
        ("RewriteCond b a [OR]\nRewriteCond a a", true),
        ("RewriteCond a a [OR]\nRewriteCond b a\nRewriteCond a a", true),
        ("RewriteCond a a [OR]\nRewriteCond b a [OR]\nRewriteCond b a\nRewriteCond b a", false),
        ("RewriteCond a a [OR]", true),
        ("RewriteCond / -d", true),
        ("RewriteCond / !-f", true),
        ("RewriteCond /there -U", true),
        ("RewriteCond /other -U", false),
        ("RewriteCond 12 -gt9", true),
        ("RewriteCond expr \"%{REQUEST_URI} =~ m#^/(a)#\"", true),
        ("RewriteCond expr \"! %{REQUEST_URI} == '/a'\"", false),
        ("RewriteCond %{ENV:NONE} =\"\"", true),
        ("RewriteCond %{LA-U:REQUEST_URI} ^/a$", true),
    ] {
        let is_rewritten = served(&format!("{conditions}{rule}"), "/a") != "declined";
        assert_eq!(is_rewritten, holds, "{conditions}");
    }
    assert_eq!(served("RewriteCond %{REQUEST_URI} (/.)\nRewriteRule ^ %1b", "/a"), "file /docs/ab");
    let expression = "RewriteCond expr \"%{REQUEST_URI} =~ m#(/.)#\"\nRewriteRule ^ %1b";
    assert_eq!(served(expression, "/a"), "file /docs/ab");
}

#[test]
fn variables_fields_and_cookies_are_set() {
    let rules = "RewriteCond %{HTTP_USER_AGENT} (Robot)\nRewriteCond %{HTTP:Host} h\n\
                 RewriteRule ^/(a) - [E=A:$1%{ENV:B}%1,E=B:b,E=C,E=!D,CO=n:$1:x,CO=n:2:x,T=A/$1]";
    let mut asked = request("/a");
    asked.resource.env.set("D", "d");
    assert!(matches!(serve(rules, &mut asked), Outcome::Declined));
    let env = |name: &str| asked.resource.env.value(name).map(|v| String::from_utf8_lossy(v));
    // `%N` refers to the groups of the last condition.
    assert_eq!(env("A").as_deref(), Some("a"));
    assert_eq!((env("B").as_deref(), env("C").as_deref(), env("D")), (Some("b"), Some(""), None));
    assert_eq!(env("SCRIPT_URL").as_deref(), Some("/a"));
    assert_eq!(env("SCRIPT_URI").as_deref(), Some("http://h/a"));
    assert_eq!(asked.resource.fields.first("Vary"), Some(&b"User-Agent"[..]));
    let cookies: Vec<_> = asked.resource.always.all("Set-Cookie").collect();
    assert_eq!(cookies, [b"n=a; path=/; domain=x"]);
    force_content(&mut asked, core_settings());
    assert_eq!(asked.resource.content.media_type.as_deref(), Some(&b"a/a"[..]));
}

#[test]
fn what_a_client_sends_cannot_begin_a_query_or_split_a_line() {
    let rule = "RewriteRule ^/(.*)$ /x/$1";
    assert_eq!(served(rule, "/a%3Fb"), "403 ");
    assert_eq!(served(&format!("{rule} [UnsafeAllow3F]"), "/a%3Fb"), "file /docs/x/a?b");
    assert_eq!(served(&format!("{rule} [B]"), "/a%3Fb"), "file /docs/x/a%3fb");
    assert_eq!(served("RewriteRule ^/(.*)$ /x?y=$1", "/a%20b"), "403 ");
    assert_eq!(served("RewriteRule ^/(.*)$ /x?y=$1 [B]", "/a%20b"), "file /docs/x?y=a+b");
    assert_eq!(served("RewriteRule ^/(.*)$ http://x/?y=$1", "/a%0ab"), "302 http://x/?y=a%0ab");
}

#[test]
fn a_pattern_that_explodes_ends_the_run_and_names_its_line() {
    let bad = "RewriteRule ^/b -\nRewriteRule ^(/a+)+$ /x";
    let mut asked = request(&format!("/{}/b", "a".repeat(60)));
    let outcome = serve("RewriteRule (/(a+)+)+$ /x [F]", &mut asked);
    let _any = shown(&outcome, &asked);
    let mut asked = request(&format!("/{}b", "a".repeat(60)));
    asked.allowance = Allowance::default();
    assert!(asked.allowance.spend(u64::from(Allowance::STEPS)));
    let outcome = serve(bad, &mut asked);
    assert_eq!(shown(&outcome, &asked), "500 ");
    let text = &asked.notices[0].text;
    assert!(text.contains("gave up") && text.contains("test.conf:2"), "{text}");
    let condition = "RewriteCond %{REQUEST_URI} ^(/|(a+))+$\nRewriteRule ^ - [F]";
    let mut asked = request(&format!("/{}b", "a".repeat(60)));
    let outcome = serve(condition, &mut asked);
    assert_eq!(shown(&outcome, &asked), "500 ");
    assert!(asked.notices[0].text.contains("test.conf:3"), "{:?}", asked.notices);
    assert_eq!(served("RewriteCond /doubtful !-U\nRewriteRule ^ /b", "/a"), "500 ");
}

#[test]
fn texts_that_double_are_bounded() {
    let rules = "RewriteRule ^ - [E=A:x]\nRewriteRule ^ - [E=A:%{ENV:A}%{ENV:A}%{ENV:A},N]";
    let mut asked = request("/a");
    let outcome = serve(rules, &mut asked);
    assert_eq!(shown(&outcome, &asked), "500 ");
}

#[test]
fn folders_are_cut_off_and_put_before_again() {
    for (rules, file, expected) in [
        ("RewriteRule ^a$ b", "/d/a", "redirected /d/b?asked"),
        ("RewriteBase /u\nRewriteRule ^a$ b", "/d/a", "redirected /u/b?asked"),
        ("RewriteBase /u/\nRewriteRule ^a$ /b", "/d/a", "redirected /b?asked"),
        ("RewriteRule ^a$ b?own", "/d/a", "redirected /d/b?own"),
        ("RewriteRule ^(.*)$ $1", "/d/a", "declined?asked"),
        ("RewriteRule ^(.*)$ $1?own", "/d/a", "declined?own"),
        ("RewriteRule ^a$ - [F]", "/d/a", "403 "),
        ("RewriteBase /u\nRewriteRule ^a$ b [R=303]", "/d/a", "303 http://h/u/b?asked"),
        ("RewriteRule ^$ /index", "/d/", "redirected /index?asked"),
        ("RewriteRule ^ /x", "/d", "declined?asked"),
        ("RewriteOptions AllowNoSlash\nRewriteRule ^ /x", "/d", "redirected /x?asked"),
        ("RewriteRule ^a$ /d/b [PT]", "/d/a", "redirected /d/b?asked"),
        ("RewriteRule ^a$ http://x/y", "/d/a", "302 http://x/y?asked"),
    ] {
        assert_eq!(fixed(rules, file, ""), expected, "{rules}");
    }
    assert_eq!(fixed("RewriteRule ^a(.*)$ b$1", "/d/a", "/info"), "redirected /d/b/info?asked");
    let discards = "RewriteRule ^a c [DPI]\nRewriteRule ^c$ e";
    assert_eq!(fixed(discards, "/d/a", "/info"), "redirected /d/e?asked");
}

#[test]
fn without_an_option_about_links_rules_of_folders_are_refused() {
    let mut directory = crate::core::Directory::default();
    let nothing = crate::core::Options::NONE;
    directory.options.apply(&["None"], crate::core::Options::EVERY).unwrap();
    assert_eq!(directory.options.effective(), nothing);
    let core = CoreSettings { directory: &directory, ..core_settings() };
    let mut asked = request("/d/a");
    asked.resource.file.set(b"", b"/d/a");
    let outcome = fix("RewriteRule ^ - [L]", &mut asked, core);
    assert_eq!(shown(&outcome, &asked), "403 ");
    assert_eq!((asked.notices[0].number, asked.notices[0].level), (Some(670), Level::Error));
}

#[test]
fn end_holds_for_what_follows_and_subrequests_skip_redirects() {
    let mut asked = request("/a");
    serve("RewriteRule ^/a /b [END]", &mut asked);
    assert!(asked.resource.is_rewriting_over);
    assert!(matches!(serve("RewriteRule ^ - [F]", &mut asked), Outcome::Declined));
    let mut below = request("/a");
    below.resource.depth = 1;
    let rules = "RewriteRule ^ - [F,NS]\nRewriteRule ^ http://x/ [R]\nRewriteRule ^ /c";
    let outcome = serve(rules, &mut below);
    assert_eq!(shown(&outcome, &below), "file /docs/c");
}

#[test]
fn sections_and_hosts_inherit_rules_as_their_options_say() {
    let section = |text: &str| {
        let place = Place::Directory("/d/".into());
        apply_in(MODULE, place, text).unwrap().directory.rewrite.clone()
    };
    let order = |base: &str, over: &str| {
        let merged = Directory::merge(&section(base), &section(over));
        let rules = merged.0.map(|said| said.rules.clone()).unwrap_or_default();
        rules.iter().map(|rule| rule.pattern.text().to_owned()).collect::<String>()
    };
    let (base, over) = ("RewriteRule a -", "RewriteRule b -");
    let with = |options: &str, rules: &str| format!("RewriteOptions {options}\n{rules}");
    assert_eq!(order(base, over), "b");
    assert_eq!(order(base, ""), "a");
    assert_eq!(order(base, "RewriteEngine On"), "");
    assert_eq!(order(base, &with("Inherit", over)), "ba");
    assert_eq!(order(base, &with("InheritBefore", over)), "ab");
    assert_eq!(order(&with("InheritDown", base), over), "ba");
    assert_eq!(order(&with("InheritDownBefore", base), over), "ab");
    assert_eq!(order(&with("InheritDown", base), &with("IgnoreInherit", over)), "b");
    let base_url = |base: &str, over: &str| {
        let merged = Directory::merge(&section(base), &section(over));
        merged.0.and_then(|said| said.base.clone())
    };
    assert_eq!(base_url("RewriteBase /u", "RewriteEngine On"), None);
    let merges = "RewriteOptions MergeBase\nRewriteEngine On";
    assert_eq!(base_url("RewriteBase /u", merges).as_deref(), Some(&b"/u"[..]));
    let host = |text: &str| apply(MODULE, text).unwrap().server.rewrite.clone();
    let main = host("RewriteEngine On\nRewriteRule a -\nRewriteMap m int:tolower");
    let silent = Server::merge(&main, &Server::default());
    assert!(main.has_rules() && !silent.has_rules() && silent.map("m").is_some());
    let own = Server::merge(&main, &host("RewriteEngine On"));
    assert!(own.has_rules() && own.map("m").is_none());
}

#[test]
fn maps_are_asked_with_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    std::fs::write(&path, "a 1\nrandom x|x\n").unwrap();
    let maps = format!(
        "RewriteMap lower int:tolower\nRewriteMap t txt:{0}\nRewriteMap r rnd:{0}\n\
         RewriteMap plain {0}\n",
        path.display()
    );
    let value = |text: &str| served(&format!("{maps}RewriteRule ^/(.*) /v/{text}"), "/A");
    assert_eq!(value("${lower:$1}"), "file /docs/v/a");
    assert_eq!(value("${t:${lower:$1}|none}"), "file /docs/v/1");
    assert_eq!(value("${t:$1|none-$1}"), "file /docs/v/none-A");
    assert_eq!(value("${plain:a}${t:$1}${absent:a|d}"), "file /docs/v/1d");
    assert_eq!(value("${r:random}"), "file /docs/v/x");
}
