//! Lines like those of real logs, usual and odd ones.

use super::*;

fn read(format: &str, line: &str) -> Record {
    Format::new(format).unwrap().parse(line.as_bytes()).unwrap().unwrap()
}

fn misfit(format: &str, line: &str) -> String {
    Format::new(format).unwrap().parse(line.as_bytes()).unwrap_err().to_string()
}

fn text(bytes: &Option<Vec<u8>>) -> &str {
    std::str::from_utf8(bytes.as_deref().unwrap_or_default()).unwrap()
}

const TIME: &str = "[10/Oct/2000:13:55:36 -0700]";
const SECOND: i64 = 971_211_336;

#[test]
fn common_lines_are_read() {
    let line = format!("127.0.0.1 - frank {TIME} \"GET /apache_pb.gif HTTP/1.0\" 200 2326");
    let record = read("common", &line);
    assert_eq!(text(&record.line), "GET /apache_pb.gif HTTP/1.0");
    assert_eq!((record.status, record.size), (Some(200), Some(2326)));
    assert_eq!(record.stamp, Some(Stamp { second: SECOND, nanos: None }));
    // User names may contain spaces, and zero bytes are a hyphen.
    let line = format!("::1 - John Q. Public {TIME} \"HEAD / HTTP/1.1\" 304 -");
    let record = read("common", &line);
    assert_eq!((text(&record.line), record.size), ("HEAD / HTTP/1.1", Some(0)));
}

#[test]
fn combined_lines_are_read() {
    let line = format!(
        "2001:db8::7 - - {TIME} \"GET /a?b=\\\"c\\\" HTTP/1.1\" 200 5 \
         \"http://x/\" \"A \\\"b\\\" c\""
    );
    let record = read("combined", &line);
    assert_eq!(text(&record.line), "GET /a?b=\"c\" HTTP/1.1");
    let field = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    let fields = [field("Referer", "http://x/"), field("User-Agent", "A \"b\" c")];
    assert_eq!(record.fields, fields);
    // A server that escapes nothing writes quotes within quotes, and further columns may follow.
    let line = format!("::1 - - {TIME} \"GET / HTTP/1.1\" 200 5 \"-\" \"A \"b\" c\" 1234 \"x\"");
    let record = read("combined", &line);
    assert_eq!(record.fields, [field("User-Agent", "A \"b")]);
    assert_eq!(Format::new("combined").unwrap().sizes(), Sizes::Unknown);
}

#[test]
fn vhost_combined_lines_name_their_host() {
    let host = |front: &str| {
        let line = format!("{front} ::1 - - {TIME} \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"");
        text(&read("vhost_combined", &line).host).to_owned()
    };
    assert_eq!(host("www.example.org:80"), "www.example.org");
    assert_eq!(host("www.example.org:8080"), "www.example.org:8080");
}

#[test]
fn requests_that_are_none_are_understood() {
    let line = |request| format!("::1 - - {TIME} \"{request}\" 400 226 \"-\" \"-\"");
    assert_eq!(text(&read("combined", &line("-")).line), "-");
    let tls = read("combined", &line(r"\x16\x03\x01\x02\\x"));
    assert_eq!(tls.line.unwrap(), b"\x16\x03\x01\x02\\x");
    assert_eq!(text(&read("combined", &line("")).line), "");
    assert_eq!(text(&read("combined", &line(r#"GET /\" x"#)).line), "GET /\" x");
}

#[test]
fn any_format_is_read() {
    let format =
        r#"%{%Y-%m-%dT%H:%M:%S}t.%{usec_frac}t%{%z}t %D %m %U%q %H %s %>s %B \"%{Host}i\""#;
    let line = "2000-10-10T13:55:36.250000-0700 1234 POST /a b?c=d HTTP/1.1 302 200 17 \"h:81\"";
    let record = read(format, line);
    assert_eq!(record.stamp, Some(Stamp { second: SECOND, nanos: Some(250_000_000) }));
    assert_eq!((text(&record.method), text(&record.target)), ("POST", "/a%20b?c=d"));
    assert_eq!((record.status, record.size, text(&record.host)), (Some(200), Some(17), "h:81"));
    assert_eq!(Format::new(format).unwrap().sizes(), Sizes::Bodies);
    let tabs = read("%h\\t%{usec}t\\t%r\\t%>s\\t%O", "::1\t971211336000001\tGET /\t200\t99");
    assert_eq!(tabs.stamp, Some(Stamp { second: SECOND, nanos: Some(1000) }));
    assert_eq!((text(&tabs.line), tabs.size), ("GET /", Some(99)));
    let both = read("%{begin:sec}t %{end:sec}t %r", "971211336 971211399 GET /");
    assert_eq!(both.stamp, Some(Stamp { second: SECOND, nanos: None }));
    let depends = read("%!200,304{X-A}i \"%r\" %400,501{User-Agent}i", "- \"GET / HTTP/1.1\" -");
    assert_eq!(depends.fields, []);
}

#[test]
fn lines_of_json_are_read() {
    let record = read(
        "json",
        r#"{"time":"2000-10-10T13:55:36-07:00","method":"GET","path":"/a","query":"?b",
        "status":"404",
        "bytes":12,"vhost":"h","userAgent":"x \"y\"","referer":"-"}"#,
    );
    assert_eq!((text(&record.method), text(&record.target)), ("GET", "/a?b"));
    assert_eq!((record.status, record.size, text(&record.host)), (Some(404), Some(12), "h"));
    assert_eq!(record.fields, [("User-Agent".to_owned(), b"x \"y\"".to_vec())]);
    assert_eq!(record.stamp.unwrap().second, SECOND);
    let caddy = read(
        "json",
        r#"{"ts":971211336.5,"request":{"method":"GET","host":"h:81","uri":"/a?b",
        "headers":{"User-Agent":["x"]}},"bytes_read":0,"size":5,"status":200}"#,
    );
    assert_eq!((text(&caddy.method), text(&caddy.target)), ("GET", "/a?b"));
    assert_eq!((caddy.size, text(&caddy.host), caddy.fields.len()), (Some(5), "h:81", 1));
    assert_eq!(caddy.stamp, Some(Stamp { second: SECOND, nanos: Some(500_000_000) }));
    let whole = read("json", r#"{"request":"GET /x HTTP/1.1"}"#);
    assert_eq!(text(&whole.line), "GET /x HTTP/1.1");
    assert!(misfit("json", "[1]").ends_with("an object of JSON is expected"));
    assert!(misfit("json", "{\"a\":1}").contains("uri"));
}

#[test]
fn lists_of_urls_are_read() {
    let url = |line| {
        let record = read("urls", line);
        [text(&record.method), text(&record.host), text(&record.target)].join(" ")
    };
    assert_eq!(url("/a?b"), "  /a?b");
    assert_eq!(url("POST /a"), "POST  /a");
    assert_eq!(url("http://h:81/a#b"), " h:81 /a");
    assert_eq!(url("HTTPS://me:pw@h?b\r"), " h /?b");
    let urls = Format::new("urls").unwrap();
    assert_eq!((urls.parse(b"# none"), urls.parse(b"  ")), (Ok(None), Ok(None)));
    assert!(misfit("urls", "index.html").starts_with("column 1: a path"));
    assert!(misfit("urls", "GET /a HTTP/1.1").starts_with("column 5: a path"));
}

#[test]
fn lines_that_do_not_fit_say_where() {
    let good = format!("::1 - - {TIME} \"GET / HTTP/1.1\" 200 5");
    assert_eq!(
        misfit("combined", &good),
        format!("column {}: \" \\\"\" is expected", good.len() + 1)
    );
    let wanted = "column 9: a time like [10/Oct/2000:13:55:36 -0700] is expected";
    assert_eq!(misfit("common", &good.replace("Oct", "Okt")), wanted);
    assert!(misfit("common", &good.replace(" 200 ", " x ")).ends_with("a status (%s) is expected"));
    assert!(misfit("common", &format!("{good} x")).ends_with("the line's end is expected"));
    assert!(misfit("common", &good[..50]).ends_with("\"\\\" \" is expected"));
    assert_eq!(misfit("common", ""), "column 1: a text is expected");
}

#[test]
fn no_line_keeps_a_reader_busy() {
    let spaces = " ".repeat(60_000);
    assert!(misfit("combined", &spaces).contains("quotes or spaces"));
    let quotes = format!("::1 - - {TIME} \"{}", "\" 200 5 \"".repeat(6_000));
    assert!(misfit("combined", &quotes).contains("is expected"));
}

#[test]
fn names_and_strings_are_told_apart() {
    let error = Format::new("apache").unwrap_err();
    assert_eq!(
        error,
        "apache: neither json, vhost_combined, combined, common, urls nor a string as \
         LogFormat has it"
    );
    assert!(Format::new("%r").unwrap().name() == "%r" && !Format::new("%r").unwrap().has_times());
}
