//! Tests Digest authentication with clients that compute their responses: every exchange is played
//! to Debian's apache2 and to Evenkeel, and statuses, challenges, Authentication-Info, users and
//! the messages of the error log are compared. Also curl, wget and a headless browser log in.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::answer::Response;
use evenkeel_tests::digest::{Challenge, Login, line, quoted, send, without_nonces};
use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::play::without_denials;
use evenkeel_tests::server::{Kind, Server};
use rustix::process::Signal;
use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

const MODULES: [&str; 14] = [
    "authn_core",
    "authn_file",
    "auth_basic",
    "auth_digest",
    "authz_user",
    "authz_groupfile",
    "access_compat",
    "alias",
    "dir",
    "env",
    "setenvif",
    "headers",
    "autoindex",
    "mime",
];

const SITE: &str = "\
TypesConfig \"@ROOT@/mime.types\"
LogLevel auth_digest:info
Header always set X-User \"expr=%{REMOTE_USER} %{AUTH_TYPE}\"
ErrorDocument 400 bad
ErrorDocument 401 \"please log in\"
ErrorDocument 403 forbidden
ErrorDocument 500 broken
DirectoryIndex index.txt
<AuthnProviderAlias file second>
AuthUserFile \"@ROOT@/more\"
</AuthnProviderAlias>
Alias /plain \"@ROOT@/htdocs/files\"
Alias /nc \"@ROOT@/htdocs/files\"
Alias /once \"@ROOT@/htdocs/files\"
Alias /short \"@ROOT@/htdocs/files\"
Alias /eternal \"@ROOT@/htdocs/files\"
Alias /none \"@ROOT@/htdocs/files\"
Alias /rich \"@ROOT@/htdocs/files\"
Alias /two \"@ROOT@/htdocs/files\"
Alias /bob \"@ROOT@/htdocs/files\"
Alias /staff \"@ROOT@/htdocs/files\"
Alias /any \"@ROOT@/htdocs/files\"
Alias /document \"@ROOT@/htdocs/files\"
Alias /looped \"@ROOT@/htdocs/files\"
Alias /noname \"@ROOT@/htdocs/files\"
Alias /nofile \"@ROOT@/htdocs/files\"
Alias /absent \"@ROOT@/htdocs/files\"
Alias /hack \"@ROOT@/htdocs/files\"
Alias /quotes \"@ROOT@/htdocs/files\"
Alias /expression \"@ROOT@/htdocs/files\"
Alias /basic \"@ROOT@/htdocs/files\"
<LocationMatch \"^/(plain|nc|once|short|eternal|rich|\
  two|bob|staff|any|document|looped|absent|hack)\">
AuthType Digest
AuthName here
AuthUserFile \"@ROOT@/digests\"
</LocationMatch>
<LocationMatch \"^/(plain|once|short|eternal|rich|two|any|document|\
  looped|noname|nofile|absent|hack|quotes|expression|nc|basic)\">
Require valid-user
</LocationMatch>
<Location /nc>
AuthName here
AuthDigestNcCheck On
</Location>
<Location /once>
AuthName here
AuthDigestNonceLifetime 0
</Location>
<Location /short>
AuthName here
AuthDigestNonceLifetime 1
</Location>
<Location /eternal>
AuthName here
AuthDigestNonceLifetime -1
</Location>
<Location /rich>
AuthName here
AuthDigestQop auth AUTH
AuthDigestAlgorithm md5
AuthDigestDomain /rich /more
</Location>
<Location /two>
AuthName here
AuthDigestProvider file second
</Location>
<Location /two/inner>
AuthDigestQop auth
</Location>
<Location /bob>
Require user bob
</Location>
<Location /staff>
AuthGroupFile \"@ROOT@/groups\"
Require group staff
</Location>
<Location /any>
Order allow,deny
Allow from env=LET_IN
Satisfy Any
</Location>
SetEnvIf X-Let in LET_IN
<Location /document>
ErrorDocument 401 /open.txt
</Location>
<Location /looped>
ErrorDocument 401 /looped/x.txt
</Location>
<Location /noname>
AuthType Digest
AuthUserFile \"@ROOT@/digests\"
</Location>
<Location /nofile>
AuthType digest
AuthName here
</Location>
<Location /absent>
AuthUserFile \"@ROOT@/absent\"
</Location>
<Location /hack>
SetEnvIf User-Agent MSIE AuthDigestEnableQueryStringHack=On
</Location>
<Location /quotes>
AuthType Digest
AuthName 'the \"inner\" room'
AuthUserFile \"@ROOT@/digests\"
</Location>
<Location /expression>
AuthType Digest
AuthName \"%{HTTP_HOST}\"
AuthUserFile \"@ROOT@/digests\"
</Location>
<Location /basic>
AuthType Basic
AuthName here
AuthUserFile \"@ROOT@/digests\"
AuthBasicUseDigestAlgorithm MD5
</Location>
<Directory \"@ROOT@/htdocs/access\">
AllowOverride AuthConfig
</Directory>
";

/// A configuration for both servers, with its files. `more` follows the site.
fn lay_out(more: &str) -> House {
    let load =
        |name: &&str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules: String = MODULES.iter().map(load).collect();
    let house = House::lay_out(&format!("{modules}{SITE}{more}")).unwrap();
    for folder in ["htdocs/files/folder", "htdocs/access"] {
        fs::create_dir_all(house.path(folder)).unwrap();
    }
    let digests = [
        line("ann", "here", "secret"),
        line("bob", "here", "hidden"),
        line("ann", "the \"inner\" room", "secret"),
        line("ann", "localhost", "secret"),
        line("ann", "%{HTTP_HOST}", "secret"),
        line("ann", "there", "secret"),
        "bad:here:secret\nempty:here:\n".to_owned(),
    ];
    let htaccess =
        "AuthType Digest\nAuthName here\nAuthUserFile \"@ROOT@/digests\"\nRequire user ann\n";
    let htaccess =
        htaccess.replace("@ROOT@", house.path("").to_str().unwrap().trim_end_matches('/'));
    for (path, text) in [
        ("mime.types", "text/plain txt\n"),
        ("digests", &digests.concat()),
        ("more", &line("eve", "here", "more")),
        ("groups", "staff: ann\n"),
        ("htdocs/open.txt", "open\n"),
        ("htdocs/files/x.txt", "x\n"),
        ("htdocs/files/inner", "inner\n"),
        ("htdocs/files/folder/index.txt", "index\n"),
        ("htdocs/access/x.txt", "x\n"),
        ("htdocs/access/.htaccess", &htaccess),
    ] {
        fs::write(house.path(path), text).unwrap();
    }
    house
}

/// One exchange: a challenge is fetched, and the answer to it is sent after these changes.
#[derive(Clone, Copy)]
struct Try {
    title: &'static str,
    method: &'static str,
    target: &'static str,
    /// The `uri`, if it is not the target.
    uri: Option<&'static str>,
    user: &'static str,
    password: &'static str,
    realm: &'static str,
    count: Option<&'static str>,
    /// Where the challenge is fetched, if it is not the target.
    nonce_of: Option<&'static str>,
    /// Texts of the Authorization field and what they are replaced with, after the response was
    /// computed.
    edits: &'static [(&'static str, &'static str)],
    /// A further header line.
    more: &'static str,
    body: &'static str,
    /// Evenkeel's outcome where it differs by design.
    ours: Option<&'static str>,
}

const RIGHT: Try = Try {
    title: "the right password",
    method: "GET",
    target: "/plain/x.txt",
    uri: None,
    user: "ann",
    password: "secret",
    realm: "here",
    count: Some("00000001"),
    nonce_of: None,
    edits: &[],
    more: "X-None: 1",
    body: "",
    ours: None,
};

#[rustfmt::skip]
const TRIES: &[Try] = &[
    RIGHT,
    Try { title: "a wrong password", password: "Secret", ..RIGHT },
    Try { title: "an unknown user", user: "nobody", ..RIGHT },
    Try { title: "an empty user", user: "", ..RIGHT },
    Try { title: "a user of another realm", realm: "there", ..RIGHT },
    Try { title: "the nonce of another realm", nonce_of: Some("/expression/x.txt"), ..RIGHT },
    Try { title: "the nonce of another section of the realm", nonce_of: Some("/rich/x.txt"), ..RIGHT },
    Try { title: "no qop", count: None, ..RIGHT },
    Try { title: "no qop and a wrong password", count: None, password: "x", ..RIGHT },
    Try { title: "a short count", count: Some("1"), ..RIGHT },
    Try { title: "a count that is not checked", count: Some("zz"), ..RIGHT },
    Try { title: "HEAD", method: "HEAD", ..RIGHT },
    Try { title: "POST", method: "POST", body: "a=b", ..RIGHT },
    Try { title: "the response of another method", edits: &[("Authorization", "Authorization")], method: "OPTIONS", ..RIGHT },
    Try { title: "a query", target: "/plain/x.txt?a=b,c&d=%20", ..RIGHT },
    Try { title: "a uri without the query", target: "/plain/x.txt?a=b", uri: Some("/plain/x.txt"), ..RIGHT },
    Try { title: "a uri with another query", target: "/plain/x.txt?a=b", uri: Some("/plain/x.txt?a=c"), ..RIGHT },
    Try { title: "a uri with a query that was not asked for", uri: Some("/plain/x.txt?a"), ..RIGHT },
    Try { title: "a uri of another file", uri: Some("/plain/y.txt"), ..RIGHT },
    Try { title: "an escaped uri", uri: Some("/plain/%78.txt"), ..RIGHT },
    Try { title: "an escaped target", target: "/plain/%78.txt", uri: Some("/plain/x.txt"), ..RIGHT },
    Try { title: "an absolute uri of another port", uri: Some("http://localhost/plain/x.txt"), ..RIGHT },
    Try { title: "an absolute uri of another host", uri: Some("http://other/plain/x.txt"), ..RIGHT },
    Try { title: "an absolute uri with a bad port", uri: Some("http://localhost:x/plain/x.txt"), ..RIGHT },
    Try { title: "an absolute target", target: "http://localhost/plain/x.txt", ..RIGHT },
    Try { title: "an absolute target and its path", target: "http://localhost/plain/x.txt", uri: Some("/plain/x.txt"), ..RIGHT },
    Try { title: "an empty uri", uri: Some(""), ..RIGHT },
    Try { title: "a doubled slash", target: "//plain/x.txt", ..RIGHT },
    Try { title: "the algorithm MD5", edits: &[("qop=auth", "algorithm=md5, qop=auth")], ..RIGHT },
    Try { title: "another algorithm", edits: &[("qop=auth", "algorithm=SHA-256, qop=auth")], ..RIGHT },
    Try { title: "MD5-sess", edits: &[("qop=auth", "algorithm=\"MD5-sess\", qop=auth")], ..RIGHT },
    Try { title: "auth-int", edits: &[("qop=auth", "qop=auth-int")], ..RIGHT },
    Try { title: "a quoted qop", edits: &[("qop=auth", "qop=\"auth\"")], ..RIGHT },
    Try { title: "a changed nonce", edits: &[("nonce=\"", "nonce=\"x"), ("=", "=")], ..RIGHT },
    Try { title: "a forged nonce", edits: &[("nonce=\"A", "nonce=\"B"), ("nonce=\"", "nonce=\"")], ..RIGHT },
    Try { title: "a zero for opaque", edits: &[("qop=auth", "opaque=\"0\", qop=auth")], ..RIGHT },
    Try { title: "no number for opaque", edits: &[("qop=auth", "opaque=\"x\", qop=auth")], ..RIGHT },
    Try { title: "an empty opaque", edits: &[("qop=auth", "opaque=\"\", qop=auth")], ..RIGHT },
    Try { title: "an unknown opaque", edits: &[("qop=auth", "opaque=\"ffff\", qop=auth")], ..RIGHT },
    Try { title: "no cnonce", edits: &[("cnonce=", "c=")], ..RIGHT },
    Try { title: "no count", edits: &[("nc=", "n=")], ..RIGHT },
    Try { title: "no user", edits: &[("username=", "user=")], ..RIGHT },
    Try { title: "no realm", edits: &[("realm=", "real=")], ..RIGHT },
    Try { title: "no uri", edits: &[("uri=", "url=")], ..RIGHT },
    Try { title: "no response", edits: &[("response=", "answer=")], ..RIGHT },
    Try { title: "a short response", edits: &[("response=\"", "response=\"\" x=\"")], ..RIGHT },
    Try { title: "an upper-case scheme", edits: &[("Digest", "DIGEST")], ..RIGHT },
    Try { title: "names in upper case", edits: &[("username", "USERNAME"), ("nonce=", "NONCE=")], ..RIGHT },
    Try { title: "parameters without spaces", edits: &[(", ", ",")], ..RIGHT },
    Try { title: "spaces around the equals sign", edits: &[("realm=", "realm = ")], ..RIGHT },
    Try { title: "an unclosed quotation mark", edits: &[("cnonce=\"cn\"", "cnonce=\"cn")], ..RIGHT },
    Try { title: "a parameter twice", edits: &[("realm=\"here\"", "realm=\"x\", realm=\"here\"")], ..RIGHT },
    Try { title: "Basic", edits: &[("Authorization: Digest ", "Authorization: Basic YW5uOnNlY3JldA== ")], ..RIGHT },
    Try { title: "only the scheme", edits: &[("Digest username", "Digest\r\nX-Rest: ")], ..RIGHT },
    Try { title: "two fields", edits: &[("Authorization: ", "Authorization: Basic x\r\nAuthorization: ")], ..RIGHT },
    Try { title: "a password in plain text in the file", user: "bad", ours: Some("401 \"please log in\" user=bad Digest Digest realm=\"here\", nonce=\"*\", algorithm=MD5, qop=\"auth\" info=- [auth_digest:error 01791: user `bad' in realm `here' denied by provider: /plain/x.txt]"), ..RIGHT },
    Try { title: "an empty hash in the file", user: "empty", ours: Some("401 \"please log in\" user=empty Digest Digest realm=\"here\", nonce=\"*\", algorithm=MD5, qop=\"auth\" info=- [auth_digest:error 01790: user `empty' in realm `here' not found: /plain/x.txt]"), ..RIGHT },
    Try { title: "the word none for qop", edits: &[("qop=auth", "qop=none")], ..RIGHT },
    Try { title: "an upper-case qop", edits: &[("qop=auth", "qop=AUTH")], ..RIGHT },
    Try { title: "a provider that an inner section loses", target: "/two/inner", user: "eve", password: "more", ..RIGHT },
    Try { title: "the provider that an inner section keeps", target: "/two/inner", ..RIGHT },
    Try { title: "an index", target: "/plain/folder/", ..RIGHT },
    Try { title: "a folder without its slash", target: "/plain/folder", ..RIGHT },
    Try { title: "a file that is not there", target: "/plain/z.txt", ..RIGHT },
    Try { title: "several qops, an algorithm and a domain", target: "/rich/x.txt", ..RIGHT },
    Try { title: "a wrong password there", target: "/rich/x.txt", password: "x", ..RIGHT },
    Try { title: "the first provider", target: "/two/x.txt", ..RIGHT },
    Try { title: "the second provider", target: "/two/x.txt", user: "eve", password: "more", ..RIGHT },
    Try { title: "no provider knows the user", target: "/two/x.txt", user: "dan", ..RIGHT },
    Try { title: "a user that is required", target: "/bob/x.txt", user: "bob", password: "hidden", ..RIGHT },
    Try { title: "another user than required", target: "/bob/x.txt", ..RIGHT },
    Try { title: "a member of the group", target: "/staff/x.txt", ..RIGHT },
    Try { title: "no member of the group", target: "/staff/x.txt", user: "bob", password: "hidden", ..RIGHT },
    Try { title: "Satisfy Any with a password", target: "/any/x.txt", ..RIGHT },
    Try { title: "Satisfy Any with a wrong password", target: "/any/x.txt", password: "x", ..RIGHT },
    Try { title: "Satisfy Any with a wrong password from an allowed host", target: "/any/x.txt", password: "x", more: "X-Let: in", ..RIGHT },
    Try { title: "a document for the error", target: "/document/x.txt", password: "x", ..RIGHT },
    Try { title: "a document for the error that is protected", target: "/looped/x.txt", password: "x", ..RIGHT },
    Try { title: "no AuthName", target: "/noname/x.txt", nonce_of: Some("/plain/x.txt"), ..RIGHT },
    Try { title: "no AuthUserFile", target: "/nofile/x.txt", ..RIGHT },
    Try { title: "a file of users that is not there", target: "/absent/x.txt", ..RIGHT },
    Try { title: "a browser that leaves out the query", target: "/hack/x.txt?a", uri: Some("/hack/x.txt"), more: "User-Agent: MSIE 6", ..RIGHT },
    Try { title: "another browser that leaves out the query", target: "/hack/x.txt?a", uri: Some("/hack/x.txt"), ..RIGHT },
    Try { title: "quotation marks in the realm", target: "/quotes/x.txt", realm: "the \"inner\" room", ..RIGHT },
    Try { title: "an expression as realm", target: "/expression/x.txt", realm: "localhost", ..RIGHT },
    Try { title: "the text of an expression as realm", target: "/expression/x.txt", realm: "%{HTTP_HOST}", ..RIGHT },
    Try { title: "an .htaccess file", target: "/access/x.txt", ..RIGHT },
    Try { title: "a wrong password for an .htaccess file", target: "/access/x.txt", password: "x", ..RIGHT },
    Try { title: "another user than an .htaccess file requires", target: "/access/x.txt", user: "bob", password: "hidden", ..RIGHT },
    Try { title: "Basic with hashes of htdigest", target: "/basic/x.txt", edits: &[("Authorization: Digest ", "Authorization: Basic YW5uOnNlY3JldA==\r\nX-Rest: ")], ..RIGHT },
    Try { title: "the nonce of a section that counts", nonce_of: Some("/nc/x.txt"), ..RIGHT },
    Try { title: "the nonce of a section that does not count", target: "/nc/x.txt", nonce_of: Some("/plain/x.txt"), ..RIGHT },
    Try { title: "the first count", target: "/nc/x.txt", ..RIGHT },
    Try { title: "the count 0", target: "/nc/x.txt", count: Some("00000000"), ours: Some("401 \"please log in\" user=ann Digest Digest realm=\"here\", nonce=\"*\", algorithm=MD5, opaque=\"*\", qop=\"auth\" info=- [auth_digest:error 01774: Warning, possible replay attack: nonce-count check failed: 0 is not above 0 for nonce *]"), ..RIGHT },
    Try { title: "a count that is no number", target: "/nc/x.txt", count: Some("x"), ..RIGHT },
    Try { title: "a nonce for one request", target: "/once/x.txt", ..RIGHT },
    Try { title: "a nonce for one request and a count that is no number", target: "/once/x.txt", count: Some("x"), ..RIGHT },
    Try { title: "a nonce that never expires", target: "/eternal/x.txt", ..RIGHT },
    Try { title: "a nonce that expires soon", target: "/short/x.txt", ..RIGHT },
];

/// The running server, and where its error log has been read to.
struct Talk<'a> {
    house: &'a House,
    read: usize,
}

impl Talk<'_> {
    fn address(&self) -> SocketAddr {
        self.house.address
    }

    /// The messages since the last call, without what differs between runs.
    fn messages(&mut self) -> String {
        let log = self.house.error_log();
        let new = log[self.read..].to_owned();
        self.read = log.len();
        let number = |line: &str| {
            let (_, text) = line.split_once(": AH").or_else(|| line.split_once("] AH"))?;
            let level = line.split("] [").nth(1)?;
            let root = self.house.path("");
            let text = text.replace(root.to_str().unwrap(), "@ROOT@/");
            let text = text.replace(&self.house.address.port().to_string(), "PORT");
            Some(format!("{level} {}", without_nonces(&text)))
        };
        let new = without_denials(&new);
        let clients = new.lines().filter(|line| line.contains("[client "));
        clients.filter_map(number).collect::<Vec<_>>().join("; ")
    }

    fn challenge(&self, target: &str) -> Challenge {
        Challenge::of(&send(self.address(), "GET", target, &[], "").unwrap())
    }

    fn play(&mut self, one: &Try) -> String {
        let login = Login {
            method: one.method,
            uri: one.uri.unwrap_or(one.target),
            user: one.user,
            password: one.password,
            realm: one.realm,
            count: one.count,
        };
        let challenge = self.challenge(one.nonce_of.unwrap_or(one.target));
        let mut field = login.line(&challenge);
        for (old, new) in one.edits {
            field = field.replace(old, new);
        }
        self.messages();
        let lines = [field, one.more.to_owned()];
        let response = send(self.address(), one.method, one.target, &lines, one.body).unwrap();
        let outcome = outcome(&response, &login, &challenge);
        format!("{outcome} [{}]", self.messages())
    }
}

/// The parts of a response that are compared.
fn outcome(response: &Response, login: &Login<'_>, challenge: &Challenge) -> String {
    let header = |name: &str| without_nonces(response.header(name).unwrap_or("-"));
    let proof = login.proof(&challenge.nonce);
    let info = header("Authentication-Info").replace(&proof, "PROOF");
    let body = String::from_utf8_lossy(&response.body).into_owned();
    let body = body.lines().next().unwrap_or_default().to_owned();
    let (status, user) = (response.status(), header("X-User"));
    format!("{status} {body:?} user={user} {} info={info}", header("WWW-Authenticate"))
}

/// Starts a server, runs `play`, and stops the server.
fn with<T>(house: &House, kind: Kind, play: impl FnOnce(&mut Talk<'_>) -> T) -> T {
    let _ = fs::remove_file(house.path("logs/error.log"));
    let server = Server::start(kind, &house.path(""), house.address.port()).unwrap();
    let result = play(&mut Talk { house, read: 0 });
    server.stop().unwrap();
    result
}

/// A login of the user of most exchanges.
fn ann<'a>(uri: &'a str, count: &'a str) -> Login<'a> {
    let (method, user, password, realm) = ("GET", "ann", "secret", "here");
    Login { method, uri, user, password, realm, count: Some(count) }
}

impl Talk<'_> {
    /// Sends one login, and notes its outcome under a title.
    fn log_in(
        &mut self,
        told: &mut Vec<(String, String)>,
        title: &str,
        login: &Login<'_>,
        challenge: &Challenge,
    ) -> Response {
        self.messages();
        let field = login.line(challenge);
        let response = send(self.address(), login.method, login.uri, &[field], "").unwrap();
        let outcome = outcome(&response, login, challenge);
        told.push((title.to_owned(), format!("{outcome} [{}]", self.messages())));
        response
    }

    /// Waits until the server has begun a new generation.
    fn reload(&self, server: &Server) {
        let resumed = || self.house.error_log().matches("resuming normal operations").count();
        let before = resumed();
        evenkeel_tests::house::send(server.pid(), Signal::USR1);
        wait_for("the new generation", || resumed() > before).unwrap();
    }
}

/// Logins that depend on those before them. `old` is a challenge of another server.
fn sequences(talk: &mut Talk<'_>, server: &Server, old: &Challenge) -> Vec<(String, String)> {
    let mut told = Vec::new();
    let counting = talk.challenge("/nc/x.txt");
    for (title, count) in [
        ("count 1", "00000001"),
        ("count 2", "00000002"),
        ("count 2 again", "00000002"),
        ("count 5", "00000005"),
        ("count 5 again", "00000005"),
        ("count 3 after 5", "00000003"),
        ("count 3 again", "00000003"),
        ("count 100", "00000064"),
        ("count 4 after 100", "00000004"),
    ] {
        talk.log_in(&mut told, title, &ann("/nc/x.txt", count), &counting);
    }
    let wrong = Login { password: "x", ..ann("/nc/x.txt", "00000065") };
    talk.log_in(&mut told, "a wrong password of a known client", &wrong, &counting);
    talk.log_in(&mut told, "count 102 after it", &ann("/nc/x.txt", "00000066"), &counting);
    let index = ann("/nc/folder/", "00000067");
    talk.log_in(&mut told, "an index of a section that counts", &index, &counting);
    let mut once = talk.challenge("/once/x.txt");
    for title in ["the first nonce", "the second nonce", "the third nonce"] {
        let login = ann("/once/x.txt", "00000001");
        let response = talk.log_in(&mut told, title, &login, &once);
        talk.log_in(&mut told, &format!("{title} again"), &login, &once);
        let info = response.header("Authentication-Info").unwrap_or_default();
        once.nonce = quoted(info, "nextnonce").unwrap_or_default();
    }
    let without = Challenge { opaque: None, ..talk.challenge("/once/x.txt") };
    let login = ann("/once/x.txt", "00000001");
    talk.log_in(&mut told, "a nonce for one request without its opaque value", &login, &without);
    let plain = talk.challenge("/plain/x.txt");
    talk.log_in(&mut told, "a nonce with a lifetime for one request", &login, &plain);
    let short = talk.challenge("/short/x.txt");
    let login = ann("/short/x.txt", "00000001");
    wait_for("a nonce that has expired", || {
        let response = send(talk.address(), "GET", login.uri, &[login.line(&short)], "").unwrap();
        response.status() == 401
    })
    .unwrap();
    talk.log_in(&mut told, "an expired nonce", &login, &short);
    talk.log_in(&mut told, "the nonce of another server", &ann("/plain/x.txt", "1"), old);
    talk.reload(server);
    talk.read = 0;
    talk.log_in(&mut told, "a nonce from before a reload", &ann("/plain/x.txt", "1"), &plain);
    told
}

/// Evenkeel's outcomes of sequences where they differ from Apache's by design.
const OURS: &[(&str, &str)] = &[(
    // Browsers send requests out of order.
    "count 3 after 5",
    "200 \"x\" user=ann Digest - info=rspauth=\"PROOF\", cnonce=\"cn\", nc=00000003, qop=auth []",
)];

#[test]
fn sequences_of_logins_end_as_with_apache() {
    let house = lay_out("");
    let play = |kind, old: &Challenge| {
        let _ = fs::remove_file(house.path("logs/error.log"));
        let server = Server::start(kind, &house.path(""), house.address.port()).unwrap();
        let mut talk = Talk { house: &house, read: 0 };
        let told = sequences(&mut talk, &server, old);
        let challenge = talk.challenge("/plain/x.txt");
        server.stop().unwrap();
        (told, challenge)
    };
    let foreign = Challenge { nonce: format!("{:=<52}", "AAAAAAAAAAA="), opaque: None };
    let (oracle, challenge) = play(Kind::Apache, &foreign);
    let (ours, _) = play(Kind::Evenkeel, &challenge);
    let mut faults = Vec::new();
    for ((title, oracle), (_, ours)) in oracle.iter().zip(&ours) {
        let special = OURS.iter().find(|(known, _)| known == title).map(|(_, outcome)| *outcome);
        if special.unwrap_or(oracle) != ours || special == Some(oracle) {
            faults.push(format!("{title}:\n  apache2  {oracle}\n  evenkeel {ours}"));
        }
    }
    if std::env::var_os("SHOW").is_some() {
        for (title, oracle) in &oracle {
            println!("{title}: {oracle}");
        }
    }
    assert!(oracle.len() == ours.len() && faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_exchange_ends_as_with_apache() {
    let house = lay_out("");
    let play = |talk: &mut Talk<'_>| TRIES.iter().map(|it| talk.play(it)).collect::<Vec<_>>();
    let oracle = with(&house, Kind::Apache, play);
    let ours = with(&house, Kind::Evenkeel, play);
    if std::env::var_os("SHOW").is_some() {
        for (one, oracle) in TRIES.iter().zip(&oracle) {
            println!("{}: {oracle}", one.title);
        }
    }
    let mut faults = Vec::new();
    for ((one, oracle), ours) in TRIES.iter().zip(&oracle).zip(&ours) {
        let want = one.ours.unwrap_or(oracle);
        if ours != want {
            faults.push(format!("{}:\n  apache2  {oracle}\n  evenkeel {ours}", one.title));
        }
        if one.ours == Some(oracle) {
            faults.push(format!("{}: does not differ", one.title));
        }
    }
    assert!(TRIES.len() > 80 && faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_count_is_used_once_in_all_children_and_generations() {
    let model = "\
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
StartServers 4
MinSpareServers 4
LogFormat \"%P %>s\" processes
CustomLog \"@ROOT@/logs/processes.log\" processes
";
    let mut house = lay_out(model);
    house.start(&[]).unwrap();
    let talk = Talk { house: &house, read: 0 };
    let challenge = talk.challenge("/nc/x.txt");
    let once = talk.challenge("/once/x.txt");
    let tries = |path: &'static str, count: &'static str, challenge: &Challenge| {
        let field = ann(path, count).line(challenge);
        let ask = || {
            let response = send(house.address, "GET", path, std::slice::from_ref(&field), "");
            response.unwrap().status()
        };
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| [ask(), ask(), ask()])).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(statuses.iter().all(|status| matches!(status, 200 | 401)), "{statuses:?}");
        statuses.iter().filter(|status| **status == 200).count()
    };
    assert_eq!(tries("/nc/x.txt", "00000001", &challenge), 1);
    assert_eq!(tries("/once/x.txt", "00000001", &once), 1);
    house.reload().unwrap();
    assert_eq!(tries("/nc/x.txt", "00000001", &challenge), 0);
    assert_eq!(tries("/once/x.txt", "00000001", &once), 0);
    assert_eq!(tries("/nc/x.txt", "00000002", &challenge), 1);
    let log = fs::read_to_string(house.path("logs/processes.log")).unwrap();
    let processes: HashSet<&str> = log.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(processes.len() > 1, "one process has served everything: {log}");
}

/// Runs a program that fetches a page. Returns its standard output.
fn run(program: &str, arguments: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env("HOME", home.path()).stdin(Stdio::null());
    let output = command.output();
    let output = output.map_err(|error| format!("{program} is not installed: {error}")).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A browser that shows a page without a window.
fn browse(url: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let profile = format!("--user-data-dir={}", profile.path().display());
    let quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"];
    let more = ["--disable-background-networking", "--disable-dev-shm-usage", "--dump-dom"];
    run("chromium", &[&quiet[..], &more, &[&profile, url]].concat())
}

/// The users and the statuses of the requests so far.
const LOG: &str = "\
LogFormat \"%U %u %>s\" users
CustomLog \"@ROOT@/logs/users.log\" users
";

#[test]
fn curl_wget_and_a_browser_log_in() {
    let mut house = lay_out(LOG);
    fs::write(house.path("htdocs/files/page.html"), "<p id=in>logged in</p>").unwrap();
    fs::write(house.path("mime.types"), "text/html html\ntext/plain txt\n").unwrap();
    house.start(&[]).unwrap();
    let address = house.address;
    let url = |path: &str| format!("http://{address}{path}");
    let as_user = |path: &str| format!("http://ann:secret@{address}{path}");
    for path in ["/plain/page.html", "/nc/page.html?a=b", "/once/page.html", "/basic/page.html"] {
        let basic = path.starts_with("/basic");
        let curl_way = if basic { "--basic" } else { "--digest" };
        let page =
            run("curl", &["-qsS", "--noproxy", "*", curl_way, "-u", "ann:secret", &url(path)]);
        assert!(page.contains("logged in"), "curl {path}: {page}\n{}", house.error_log());
        let wrong = run("curl", &["-qsS", "--noproxy", "*", curl_way, "-u", "ann:x", &url(path)]);
        assert_eq!(wrong, "please log in", "curl {path}");
        let user = ["--user=ann", "--password=secret", "--no-proxy", "-qO-"];
        let page = run("wget", &[&user[..], &[&url(path)]].concat());
        assert!(page.contains("logged in"), "wget {path}: {page}\n{}", house.error_log());
        let page = browse(&as_user(path));
        assert!(page.contains("logged in"), "chromium {path}: {page}\n{}", house.error_log());
    }
    let log = || fs::read_to_string(house.path("logs/users.log")).unwrap_or_default();
    for path in ["/plain/page.html", "/nc/page.html", "/once/page.html", "/basic/page.html"] {
        let line = format!("{path} ann 200");
        wait_for("the log lines", || log().matches(&line).count() >= 3).unwrap();
    }
}
