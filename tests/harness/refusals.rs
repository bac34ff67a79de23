//! Tests what the error log says about refused clients at the default LogLevel: Apache's text,
//! which fail2ban matches, and behind it the lines of the configuration and of the file of users.
//! Also tests files of users and groups that are missing or malformed: they let nobody in, and one
//! line of the error log names the file and the line.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_tests::digest::{Challenge, Login, line, send};
use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::load::{answer, connect};
use pcre2::bytes::Regex;
use std::fs;
use std::io::Write as _;
use std::process::Command;

const CONFIGURATION: &str = "\
LoadModule authn_core_module /usr/lib/apache2/modules/mod_authn_core.so
LoadModule authn_file_module /usr/lib/apache2/modules/mod_authn_file.so
LoadModule auth_basic_module /usr/lib/apache2/modules/mod_auth_basic.so
LoadModule auth_digest_module /usr/lib/apache2/modules/mod_auth_digest.so
LoadModule authz_user_module /usr/lib/apache2/modules/mod_authz_user.so
LoadModule authz_host_module /usr/lib/apache2/modules/mod_authz_host.so
LoadModule authz_owner_module /usr/lib/apache2/modules/mod_authz_owner.so
LoadModule authz_groupfile_module /usr/lib/apache2/modules/mod_authz_groupfile.so
LoadModule access_compat_module /usr/lib/apache2/modules/mod_access_compat.so
<Location />
AuthType Basic
AuthName here
AuthUserFile \"@ROOT@/users\"
AuthGroupFile \"@ROOT@/groups\"
</Location>
<Location /denied>
Require all denied
</Location>
<Location /none>
<RequireAll>
Require all granted
<RequireNone>
Require ip 192.0.2.1
Require ip 127.0.0.1
</RequireNone>
</RequireAll>
</Location>
<Location /old>
Order deny,allow
Deny from 127.0.0.0/8
</Location>
<Location /order>
Order allow,deny
Allow from 192.0.2.1
</Location>
<Location /valid>
Require valid-user
</Location>
<Location /user>
Require user bob cat
</Location>
<Location /group>
Require group staff guests
</Location>
<Location /owner>
Require file-owner
</Location>
<Location /digest>
AuthType Digest
AuthUserFile \"@ROOT@/digests\"
Require user bob
</Location>
";

/// The users; each has the password `password`.
const USERS: &str = "\
# people
ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=
bob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=
cat:secret
";

const GROUPS: &str = "\
others: ann
staff: bob
";

/// The bcrypt hash of `password` with the cost 5.
const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstu.B8Deq84zEQE0rdrKy/x2.BrczsEjqYe";

/// The users of the test that logs in many users at once.
const USERS_AT_ONCE: usize = 60;

const ANN: &str = "Basic YW5uOnBhc3N3b3Jk";
const ANN_WRONG: &str = "Basic YW5uOndyb25n";
const ZOE: &str = "Basic em9lOnBhc3N3b3Jk";
const CAT: &str = "Basic Y2F0OnNlY3JldA==";

/// The patterns of Debian's fail2ban 1.0.2, /etc/fail2ban/filter.d/apache-auth.conf and
/// apache-common.conf, in the syntax of PCRE: fail2ban cuts the time out of a line, and replaces
/// `<HOST>`, `<F-USER>` and `<F-CONTENT>` with groups.
const PREFIX: &str = concat!(
    r"^\[\]\s\[(:?error|(?!evasive)\S+:\S+)\]( \[pid \d+(:\S+ \d+)?\])?",
    r" \[client (?P<host>\S+?)(:\d{1,5})?\] (?:AH\d+: )?(?P<content>.+)$"
);
const PATTERNS: [&str; 11] = [
    r"^client (?:denied by server configuration|used wrong authentication scheme)\b",
    concat!(
        r"^user (?!`)(?P<user>(?:\S*|.*?))",
        r" (?:auth(?:oriz|entic)ation failure|not found|denied by provider)\b"
    ),
    r"^Authorization of user (?P<user>(?:\S*|.*?)) to access .*? failed\b",
    r"^([A-Z]\w+: )?user (?P<user>(?:\S*|.*?)): password mismatch\b",
    concat!(
        r"^([A-Z]\w+: )?user `(?P<user>(?:[^']*|.*?))' in realm `.+'",
        r" (auth(?:oriz|entic)ation failure|not found|denied by provider)\b"
    ),
    r"^([A-Z]\w+: )?invalid nonce .* received - length is not\b",
    r"^([A-Z]\w+: )?realm mismatch - got `(?:[^']*|.*?)' but expected\b",
    r"^([A-Z]\w+: )?unknown algorithm `(?:[^']*|.*?)' received\b",
    r"^invalid qop `(?:[^']*|.*?)' received\b",
    r"^([A-Z]\w+: )?invalid nonce .*? received - user attempted time travel\b",
    concat!(
        r"^(?:No h|H)ostname \S+ provided via SNI(?:, but no hostname provided|",
        r" and hostname \S+ provided| for a name based virtual host)\b"
    ),
];

/// The client that fail2ban would ban for a line of the error log, and its user.
fn banned(line: &str) -> Option<(String, String)> {
    let (time, rest) = line.split_once("] ")?;
    assert!(time.starts_with('['), "{line}");
    let prefix = Regex::new(PREFIX).unwrap();
    let line = format!("[] {rest}");
    let captures = prefix.captures(line.as_bytes()).unwrap()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let content = captures.name("content")?.as_bytes();
    let host = text(captures.name("host")?.as_bytes());
    PATTERNS.iter().find_map(|pattern| {
        let pattern = Regex::new(pattern).unwrap();
        let captures = pattern.captures(content).unwrap()?;
        let user = pattern.capture_names().iter().flatten().any(|name| name == "user");
        let user = user.then(|| text(captures.name("user").unwrap().as_bytes()));
        Some((host.clone(), user.unwrap_or_default()))
    })
}

fn open(users: &str, groups: &str) -> House {
    let mut house = House::lay_out(CONFIGURATION).unwrap();
    fs::write(house.path("users"), users).unwrap();
    fs::write(house.path("groups"), groups).unwrap();
    let digests = format!("{}{}cat:here:x\n", line("ann", "here", "a"), line("bob", "here", "b"));
    fs::write(house.path("digests"), digests).unwrap();
    for folder in ["denied", "none", "old", "order", "valid", "user", "group", "owner", "digest"] {
        fs::create_dir(house.path(&format!("htdocs/{folder}"))).unwrap();
        fs::write(house.path(&format!("htdocs/{folder}/x.txt")), "x").unwrap();
    }
    house.start(&[]).unwrap();
    house
}

/// The status of a request, with the given Authorization field unless it is empty.
fn ask(house: &House, path: &str, login: &str) -> u16 {
    let mut stream = connect(house.address).unwrap();
    let login = match login {
        "" => String::new(),
        login => format!("Authorization: {login}\r\n"),
    };
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nReferer: http://from.test/\r\n\
         {login}Connection: close\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    answer(stream).unwrap().status()
}

/// The lines of the error log with this text.
fn told(house: &House, text: &str) -> Vec<String> {
    let is_told = || house.error_log().contains(text);
    wait_for(text, is_told).unwrap();
    house.error_log().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// A line of the configuration, as a refusal cites it.
fn cited(house: &House, line: &str) -> String {
    let path = house.path("httpd.conf");
    let text = fs::read_to_string(&path).unwrap();
    let number = text.lines().position(|other| other == line).unwrap() + 1;
    format!("{line} ({}:{number})", path.display())
}

#[test]
fn a_refusal_names_its_lines_and_fail2ban_bans_the_client() {
    let house = open(USERS, GROUPS);
    let users = house.path("users").display().to_string();
    let groups = house.path("groups").display().to_string();
    let line = |text: &str| cited(&house, text);
    let valid = format!("needed for {}", line("Require valid-user"));
    let old = |text: &str| line(text).replacen(&text[..1], &text[..1].to_lowercase(), 1);
    for (path, login, status, number, user, end) in [
        ("/denied/x.txt", "", 403, "AH01630: ", "", line("Require all denied")),
        ("/none/x.txt", "", 403, "AH01630: ", "", line("Require ip 127.0.0.1")),
        ("/old/x.txt", "", 403, "AH01797: ", "", old("Deny from 127.0.0.0/8")),
        ("/order/x.txt", "", 403, "AH01797: ", "", old("Order allow,deny")),
        (
            "/valid/x.txt",
            ANN_WRONG,
            401,
            "AH01617: ",
            "ann:",
            format!("the password of the user ({users}:2); {valid}"),
        ),
        ("/valid/x.txt", ZOE, 401, "AH01618: ", "zoe", format!("the users of {users}; {valid}")),
        ("/user/x.txt", ANN, 401, "AH01631: ", "ann:", line("Require user bob cat")),
        (
            "/group/x.txt",
            ANN,
            401,
            "AH01631: ",
            "ann:",
            format!(
                "{}: not in the groups staff ({groups}:2), guests (not in {groups})",
                line("Require group staff guests")
            ),
        ),
        ("/owner/x.txt", ANN, 401, "AH01631: ", "ann:", line("Require file-owner")),
    ] {
        fs::write(house.path("logs/error.log"), "").unwrap();
        assert_eq!(ask(&house, path, login), status, "{path}");
        let lines = told(&house, number);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let expected = format!("denied by {end}, referer: http://from.test/");
        assert!(lines[0].ends_with(&expected), "{}\n{expected}", lines[0]);
        assert_eq!(banned(&lines[0]), Some(("127.0.0.1".into(), user.into())), "{}", lines[0]);
    }
}

#[test]
fn a_refusal_of_digest_names_its_lines_and_fail2ban_bans_the_client() {
    let house = open(USERS, GROUPS);
    let digests = house.path("digests").display().to_string();
    let required = cited(&house, "Require user bob");
    let needed = format!("needed for {required}");
    let known = |line: u8| format!("the password of the user ({digests}:{line}); {needed}");
    for (user, password, realm, number, banned_user, end) in [
        ("bob", "wrong", "here", "AH01794: ", "bob", Some(known(2))),
        ("zoe", "z", "here", "AH01790: ", "zoe", Some(format!("the users of {digests}; {needed}"))),
        ("cat", "c", "here", "AH01791: ", "cat", Some(known(3))),
        ("ann", "a", "here", "AH01631: ", "ann:", Some(required.clone())),
        ("bob", "b", "there", "AH01788: ", "", None),
    ] {
        let challenge =
            Challenge::of(&send(house.address, "GET", "/digest/x.txt", &[], "").unwrap());
        let uri = "/digest/x.txt";
        let login = Login { method: "GET", uri, user, password, realm, count: Some("00000001") };
        fs::write(house.path("logs/error.log"), "").unwrap();
        let fields = [login.line(&challenge)];
        assert_eq!(send(house.address, "GET", uri, &fields, "").unwrap().status(), 401, "{user}");
        let lines = told(&house, number);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let end = end.map(|end| format!("denied by {end}")).unwrap_or_default();
        assert!(lines[0].ends_with(&end), "{}\n{end}", lines[0]);
        let banned_client = Some(("127.0.0.1".into(), banned_user.into()));
        assert_eq!(banned(&lines[0]), banned_client, "{}", lines[0]);
    }
}

/// Each child logs what is wrong with a file once for each version of it, with its line.
#[test]
fn a_bad_file_lets_nobody_in_and_is_named_with_its_line() {
    let house = open(USERS, "staff bob\nstaff: bob\n");
    let users = house.path("users").display().to_string();
    let groups = house.path("groups").display().to_string();
    let unknown = format!("{users}: line 4: the password of cat is hashed with an unknown scheme");
    for _ in 0..8 {
        assert_eq!(ask(&house, "/valid/x.txt", CAT), 401);
        assert_eq!(ask(&house, "/group/x.txt", ANN), 401);
    }
    let no_group = format!("{groups}: line 1: the line is no name of a group");
    for text in [&unknown, &no_group] {
        assert!(told(&house, text).len() <= house.children().len(), "{}", house.error_log());
    }
    fs::remove_file(house.path("groups")).unwrap();
    assert_eq!(ask(&house, "/group/x.txt", ANN), 401);
    assert!(told(&house, "AH01665: ")[0].contains(&groups));
    // A pipe without a writer holds nobody up.
    let pipe = Command::new("mkfifo").arg(house.path("groups")).status().unwrap();
    assert!(pipe.success());
    assert_eq!(ask(&house, "/group/x.txt", ANN), 401);
    assert_eq!(ask(&house, "/valid/x.txt", ANN), 200);
    fs::remove_file(house.path("users")).unwrap();
    assert_eq!(ask(&house, "/valid/x.txt", ANN), 500);
    assert!(told(&house, "AH01620: ")[0].contains(&users));
    let pipe = Command::new("mkfifo").arg(house.path("users")).status().unwrap();
    assert!(pipe.success());
    assert_eq!(ask(&house, "/valid/x.txt", ANN), 500);
    fs::remove_file(house.path("users")).unwrap();
    fs::write(house.path("users"), USERS).unwrap();
    assert_eq!(ask(&house, "/valid/x.txt", ANN), 200);
}

/// The requests begin while the file of users is read: some hold a permit for that and wait for
/// their hash, and some come later and have no permit.
#[test]
fn all_of_many_first_logins_at_once_are_answered() {
    let more = format!("{CONFIGURATION}StartServers 1\nServerLimit 1\n");
    let mut house = House::lay_out(&more).unwrap();
    let entry = |user| format!("user{user}:{BCRYPT}\n");
    let users: String = (0..USERS_AT_ONCE).map(entry).collect();
    fs::write(house.path("users"), &users).unwrap();
    fs::create_dir(house.path("htdocs/valid")).unwrap();
    fs::write(house.path("htdocs/valid/x.txt"), "x").unwrap();
    house.start(&[]).unwrap();
    for round in 0..5 {
        // A new version of the file is read, and no login is cached.
        fs::write(house.path("users"), format!("# {round}\n{users}")).unwrap();
        std::thread::scope(|scope| {
            for user in 0..USERS_AT_ONCE {
                let house = &house;
                scope.spawn(move || {
                    let login = STANDARD.encode(format!("user{user}:password"));
                    assert_eq!(ask(house, "/valid/x.txt", &format!("Basic {login}")), 200);
                });
            }
        });
    }
}
