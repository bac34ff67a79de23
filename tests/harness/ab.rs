//! Compares the lab's ab with Debian's: the same invocations against the same server print the same
//! lines in the same order, apart from figures that differ in every run, which are masked.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::House;
use evenkeel_tests::server::{command, lab, said_in};
use std::fs;
use std::path::{Path, PathBuf};

/// The invocations, with `@` for the server's URL and `#` for the scratch folder.
const INVOCATIONS: &[&str] = &[
    "-n 20 -c 3 @/small.txt",
    "-n 20 -c 3 -k @/small.txt",
    "-n 1 @/small.txt",
    "-n200 -c4 -k @/small.txt",
    "-n 1000 -c 10 @/small.txt",
    "-n 200 -q -k @/small.txt",
    "-kqn 10 @/small.txt",
    "-n 5 -d @/small.txt",
    "-n 5 -S @/small.txt",
    "-n 5 -d -S -k @/small.txt",
    "-n 5 -i @/small.txt",
    "-n 5 -i -k @/small.txt",
    "-n 5 @/absent",
    "-n 5 -k @/absent",
    "-n 5 -p #/body @/small.txt",
    "-n 5 -k -p #/body -T text/x @/small.txt",
    "-n 5 -u #/body @/small.txt",
    "-n 5 -m DELETE @/small.txt",
    "-n 5 -p #/body -m PATCH @/small.txt",
    "-m PATCH -p #/body @/small.txt",
    "-n 5 -l @/small.txt",
    "-n 5 -w @/small.txt",
    "-n 5 -w -k -x border=1 -y class=a -z align=left @/small.txt",
    "-n 5 -w @/absent",
    "-n 5 -C a=b -H X-A:1 -A u:p @/small.txt",
    "-n 3 -X ADDRESS http://example.org/small.txt",
    "-n 3 -v 2 @/absent",
    "-n 3 -v 4 @/absent",
    "-t 1 -n 20 @/small.txt",
    "-n 5 -s 5 -b 4096 -B 127.0.0.1 @/small.txt",
    "-n 4 -c 2 @/large.bin",
    "-n 5 http://127.0.0.1:1/x",
    "-n 0 @/",
    "-n 3 -c 5 @/",
    "@",
    "-Z",
    "-V",
    "-p /nonexistent -n 1 @/",
    "-p #/body -u #/body @/",
    "-i -p #/body @/",
    "-p #/body -i @/",
];

/// The invocations over TLS.
const SECURE: &[&str] = &[
    "-n 20 -c 3 @/small.txt",
    "-n 20 -c 3 -k @/small.txt",
    "-n 5 -w @/small.txt",
    "-n 5 -f TLS1.2 @/small.txt",
    "-n 5 -f TLS1.3 -k @/small.txt",
    "-n 5 -f tls1.2 -Z ECDHE-ECDSA-AES128-GCM-SHA256 @/small.txt",
    "-n 5 -f TLS1.2 -Z ECDHE+CHACHA20:!aRSA @/small.txt",
    "-n 5 -Z ECDHE-ECDSA-AES128-GCM-SHA256 @/small.txt",
    "-n 5 -Z NONSENSE @/small.txt",
    "-n 5 -I https://localhost:PORT/small.txt",
    "-n 5 https://localhost:PORT/small.txt",
    "-n 5 -H Host:other.example @/small.txt",
    "-n 5 -E #/user @/small.txt",
    "-n 5 -E #/user @/private/small.txt",
    "-n 5 @/private/small.txt",
];

/// The masked output of a program, and its exit status.
#[derive(Debug, PartialEq)]
struct Said {
    out: Vec<String>,
    complaint: String,
    status: Option<i32>,
}

/// Masks times and rates, which differ from run to run. The rows and the number of figures in them
/// stay.
fn mask(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let figure = word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
        words.push(if figure { "N".into() } else { word.to_owned() });
    }
    let row = ["Connect:", "Processing:", "Waiting:", "Total:"];
    let is_row = words.first().is_some_and(|word| row.contains(&word.as_str()));
    let percent = words.first().is_some_and(|word| word.ends_with('%'));
    if is_row || percent {
        for word in words.iter_mut().skip(1).filter(|word| word.parse::<u64>().is_ok()) {
            *word = "N".into();
        }
    }
    let masked = words.join(" ");
    if line.starts_with("<tr") { mask_cells(&masked) } else { masked }
}

/// Masks the figures in a row of the HTML report: those with a point, and the times below their
/// heading.
fn mask_cells(line: &str) -> String {
    let time = ["Connect:", "Processing:", "Total:"].iter().any(|name| line.contains(name));
    let mut masked = String::new();
    for (at, part) in line.split('>').enumerate() {
        let (value, tag) = part.split_once('<').unwrap_or((part, ""));
        let value = value.trim();
        let number = value.split(' ').next().is_some_and(|it| it.parse::<f64>().is_ok());
        let figure = number && (time || value.contains('.'));
        masked += if at > 0 { ">" } else { "" };
        masked += if figure { "N" } else { value };
        masked += if tag.is_empty() { "" } else { "<" };
        masked += tag;
    }
    masked
}

/// Whether a line is a warning that depends on the figures, or shows the current time.
fn is_chance(line: &str) -> bool {
    let starts = ["WARNING: The median", "ERROR: The median", "Date:", " "];
    let advice = line.contains("These results are") || line.starts_with("deviation apart");
    starts.iter().take(3).any(|start| line.starts_with(start)) || advice
}

fn run(program: &Path, invocation: &str, house: &House) -> Said {
    run_at(&format!("http://{}", house.address), program, invocation, house)
}

fn run_at(url: &str, program: &Path, invocation: &str, house: &House) -> Said {
    let folder = house.path("");
    let line = invocation.replace('@', url).replace('#', folder.to_str().unwrap());
    let line = line.replace("ADDRESS", &house.address.to_string());
    let line = line.replace("PORT", &house.address.port().to_string());
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = command(program, &words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let complaint = text(&output.stderr).replace(program.to_str().unwrap(), "ab");
    let lines = text(&output.stdout);
    Said {
        out: lines.lines().filter(|line| !is_chance(line.trim())).map(mask).collect(),
        complaint: complaint.lines().next().unwrap_or_default().to_owned(),
        status: output.status.code(),
    }
}

fn own(house: &House) -> PathBuf {
    let named = house.path("ab");
    if !named.exists() {
        std::os::unix::fs::symlink(lab(), &named).unwrap();
    }
    named
}

/// A complaint about the command line without the usage, whose text differs from ab's.
fn without_usage(said: Said) -> Said {
    let usage = said.out.first().is_some_and(|line| line.starts_with("Usage:"));
    let out = if usage { Vec::new() } else { said.out };
    Said { out, complaint: said.complaint.replace("/usr/bin/ab", "ab"), ..said }
}

/// The differences of the reports for each invocation.
fn differences(url: &str, invocations: &[&str], house: &House) -> Vec<String> {
    let own = own(house);
    let mut differing = Vec::new();
    for invocation in invocations {
        let said = |program: &Path| without_usage(run_at(url, program, invocation, house));
        let (wanted, found) = (said(Path::new("/usr/bin/ab")), said(&own));
        let heads = (&wanted.complaint, wanted.status, wanted.out.len());
        if heads != (&found.complaint, found.status, found.out.len()) {
            let ours = (&found.complaint, found.status, found.out.len());
            differing.push(format!("ab {invocation}: {heads:?}, ours {ours:?}"));
        }
        for (wanted, found) in wanted.out.iter().zip(&found.out) {
            if wanted != found {
                differing.push(format!("ab {invocation}: {wanted:?}, ours {found:?}"));
            }
        }
    }
    differing
}

#[test]
fn reports_are_those_of_ab() {
    let house = House::open("", &[]).unwrap();
    fs::write(house.path("body"), "some=body").unwrap();
    let differing = differences(&format!("http://{}", house.address), INVOCATIONS, &house);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn reports_over_tls_are_those_of_ab() {
    let private = "SSLCACertificateFile @ROOT@/tls/ca.pem\nSSLVerifyClient optional\n\
                   SSLStrictSNIVHostCheck off\nAlias /private @ROOT@/htdocs\n\
                   LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so\n\
                   <Location /private>\nRequire ssl-verify-client\n</Location>\n";
    let house = House::open_tls(private).unwrap();
    let read = |name: &str| fs::read_to_string(house.path(&format!("tls/{name}"))).unwrap();
    fs::write(house.path("user"), read("user.pem") + &read("user.key")).unwrap();
    let differing = differences(&format!("https://{}", house.address), SECURE, &house);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn refused_connections_are_counted_or_end_the_run() {
    let house = House::open("", &[]).unwrap();
    let own = own(&house);
    let few = run(&own, "-n 5 -r http://127.0.0.1:1/x", &house);
    assert!(few.status == Some(0) && few.out.contains(&"Failed requests: 5".to_owned()));
    let many = run(&own, "-n 20 -r http://127.0.0.1:1/x", &house);
    assert_eq!(many.status, Some(111));
    let one = run(&own, "-n 20 http://127.0.0.1:1/x", &house);
    let wanted = "apr_socket_recv: Connection refused (111)";
    assert_eq!((one.status, one.complaint.as_str()), (Some(111), wanted));
}

#[test]
fn files_have_the_shape_of_abs() {
    let house = House::open("", &[]).unwrap();
    let shape = |program: &Path| {
        let said = run(program, "-n 7 -g #/g -e #/e @/small.txt", &house);
        assert_eq!(said.status, Some(0), "{program:?} {said:?}\n{}", said_in(&house.path("")));
        let read = |name: &str| fs::read_to_string(house.path(name)).unwrap();
        let masked = |text: String| -> Vec<String> {
            let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
            let line = |line: &str| line.chars().map(digits).collect::<String>();
            text.lines().map(|it| line(it).replace("00", "0").replace("00", "0")).collect()
        };
        (masked(read("g")), masked(read("e")))
    };
    let (gnuplot, csv) = shape(&own(&house));
    let (wanted_gnuplot, wanted_csv) = shape(Path::new("/usr/bin/ab"));
    assert_eq!((gnuplot.len(), gnuplot.first()), (8, wanted_gnuplot.first()));
    assert_eq!((csv.len(), csv.first()), (102, wanted_csv.first()));
    let fields = |line: &String| line.split('\t').count();
    assert!(gnuplot.iter().zip(&wanted_gnuplot).all(|(own, other)| fields(own) == fields(other)));
    let percentages = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.split(',').next().unwrap().to_owned()).collect()
    };
    assert_eq!(percentages(&csv), percentages(&wanted_csv));
}
