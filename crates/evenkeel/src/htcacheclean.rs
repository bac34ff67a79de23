//! `evenkeel htcacheclean`: cleans and lists the files of mod_cache_disk, with the command line of
//! Apache's htcacheclean. With `-d` it goes on in the background.

use crate::terminal;
use evenkeel_cache::{Bounds, Entry, Found, Report, Run, clean, each, remove_url};
use evenkeel_sys::process::{self, Side};
use std::path::{Path, PathBuf};
use std::time::Duration;

const USAGE: &str = "\
htcacheclean -- program for cleaning the disk cache.
Usage: htcacheclean [-Dvtrn] -pPATH [-lLIMIT] [-LLIMIT] [-PPIDFILE]
       htcacheclean [-nti] -dINTERVAL -pPATH [-lLIMIT] [-LLIMIT] [-PPIDFILE]
       htcacheclean [-Dvt] -pPATH URL ...
       htcacheclean [-aA] -pPATH

Options:
  -d   Continue in the background and clean every INTERVAL minutes. Not
       with -D, -v, -r and -L.
  -D   Remove nothing and report what would be removed. Not with -d.
  -v   Print statistics. Not with -d.
  -r   Clean although no server runs. Implies -t. Not with -d.
  -n   Pause between files, in favour of other processes.
  -t   Remove empty folders.
  -p   The folder of the cache (CacheRoot).
  -P   Write the process id to this file.
  -R   Round the sizes of files up to a multiple of this number of bytes.
  -l   The most bytes of the cache; K, M or G may follow.
  -L   The most files and folders of the cache; K, M or G may follow.
  -i   Clean only if the cache was modified. Only with -d.
  -a   List the URLs in the cache.
  -A   List the URLs with: head bytes, body bytes, status, version, date,
       expiry, request time, response time, whether there is a body, and
       whether it is the response to HEAD.

The responses of a URL on the command line are removed. Its form is
http://HOST:PORT/PATH?QUERY; the question mark is always there.";

/// The pause of `-n` after each hundredth file.
const PAUSE: Duration = Duration::from_millis(100);

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    run: Run,
    interval: Option<Duration>,
    is_verbose: bool,
    is_thorough: bool,
    only_if_modified: bool,
    lists: Option<Detail>,
    root: Option<PathBuf>,
    pid_file: Option<PathBuf>,
    urls: Vec<String>,
}

/// How much a list tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Urls,
    All,
}

/// Runs htcacheclean with these arguments. Returns the exit status: 0; 1 after an error; 2 if
/// nothing is stored for a URL.
pub fn run(words: &[String]) -> i32 {
    match parse(words).and_then(|asked| act(&asked)) {
        Ok(status) => status,
        Err(text) if text.is_empty() => {
            terminal::complain(USAGE);
            1
        }
        Err(text) => {
            terminal::complain(&format!("htcacheclean error: {text}\n{USAGE}"));
            1
        }
    }
}

fn parse(words: &[String]) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let mut rest = words.iter();
    if words.is_empty() {
        return Err(String::new());
    }
    while let Some(word) = rest.next() {
        let Some(mut letters) = word.strip_prefix('-').filter(|it| !it.is_empty()) else {
            asked.urls.push(word.clone());
            asked.urls.extend(rest.cloned());
            break;
        };
        while let Some(letter) = letters.chars().next() {
            letters = letters.get(letter.len_utf8()..).unwrap_or_default();
            match letter {
                'i' => asked.only_if_modified = true,
                'D' => asked.run.is_dry = true,
                'n' => asked.run.rest = PAUSE,
                't' => asked.run.removes_folders = true,
                'r' => (asked.is_thorough, asked.run.removes_folders) = (true, true),
                'v' => asked.is_verbose = true,
                'a' => asked.lists = Some(Detail::Urls),
                'A' => asked.lists = Some(Detail::All),
                'd' | 'l' | 'L' | 'p' | 'P' | 'R' => {
                    let value = match std::mem::take(&mut letters) {
                        "" => rest.next().map(String::as_str),
                        value => Some(value),
                    };
                    let value = value.ok_or(format!("Option -{letter} needs a value"))?;
                    set(&mut asked, letter, value)?;
                }
                _ => return Err(format!("illegal option -- {letter}")),
            }
        }
    }
    check(&asked)?;
    Ok(asked)
}

fn set(asked: &mut Asked, letter: char, value: &str) -> Result<(), String> {
    match letter {
        'd' => {
            let minutes = value.parse::<u64>().ok().filter(|minutes| *minutes > 0);
            let minutes = minutes.ok_or(format!("Invalid interval: {value}"))?;
            asked.interval = Some(Duration::from_secs(minutes.saturating_mul(60)));
        }
        'l' => asked.run.bounds.bytes = number(value)?,
        'L' => asked.run.bounds.inodes = number(value)?,
        'R' => asked.run.bounds.rounding = number(value)?,
        'P' => asked.pid_file = Some(value.into()),
        _ => asked.root = Some(value.into()),
    }
    Ok(())
}

fn check(asked: &Asked) -> Result<(), String> {
    let Asked {
        run, interval, is_verbose, is_thorough, only_if_modified, lists, root, urls, ..
    } = asked;
    let Some(root) = root else { return Err("Option -p must be specified".into()) };
    if !root.is_dir() {
        return Err(format!("Could not set filepath to '{}': it is no folder", root.display()));
    }
    let limits = run.bounds.bytes > 0 || run.bounds.inodes > 0;
    if lists.is_some() {
        let is_alone = interval.is_none() && !run.is_dry && urls.is_empty();
        return is_alone.then_some(()).ok_or("Options -a and -A stand alone with -p".into());
    }
    if interval.is_some() && (*is_verbose || *is_thorough || run.is_dry || run.bounds.inodes > 0) {
        return Err("Option -d cannot be used with -v, -r, -L or -D".into());
    }
    if interval.is_none() && *only_if_modified {
        return Err("Option -i cannot be used without -d".into());
    }
    if !urls.is_empty() {
        return match interval.is_some() {
            true => Err("Option -d cannot be used with URLs".into()),
            false => Ok(()),
        };
    }
    match limits {
        true => Ok(()),
        false => Err("At least one of option -l or -L must be greater than zero".into()),
    }
}

/// A number with its unit.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default().to_ascii_uppercase().as_str() {
        "" | "B" => Some(1),
        "K" => Some(1_u64 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    let bytes = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or(format!("Invalid limit: {text}"))
}

fn act(asked: &Asked) -> Result<i32, String> {
    let root = asked.root.as_deref().unwrap_or(Path::new("."));
    let told = |error: std::io::Error| format!("{}: {error}", root.display());
    if let Some(detail) = asked.lists {
        each(root, |found| list(&found, detail)).map_err(told)?;
        return Ok(0);
    }
    if !asked.urls.is_empty() {
        let mut removed = 0;
        for url in &asked.urls {
            let count = remove_url(root, url.as_bytes(), asked.run.is_dry).map_err(told)?;
            if asked.is_verbose {
                let what = if count > 0 { "Removed" } else { "Not cached" };
                terminal::say(&format!("{what}: {url}"));
            }
            removed += count;
        }
        return Ok(if removed > 0 { 0 } else { 2 });
    }
    if asked.interval.is_some() {
        let forked = process::fork().map_err(|error| format!("fork: {error}"))?;
        if matches!(forked, Side::Parent(_)) {
            return Ok(0);
        }
        process::leave_terminal().map_err(|error| format!("setsid: {error}"))?;
    }
    if let Some(path) = &asked.pid_file {
        let text = format!("{}\n", process::own_pid());
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let mut last = None;
    loop {
        let modified = std::fs::metadata(root).and_then(|it| it.modified()).ok();
        let is_due = !asked.only_if_modified || last.is_none() || modified != last;
        if is_due {
            let report = clean(root, &asked.run).map_err(told)?;
            if asked.is_verbose {
                terminal::say(&statistics(root, &asked.run, &report));
            }
        }
        last = modified;
        match asked.interval {
            Some(interval) => std::thread::sleep(interval),
            None => return Ok(0),
        }
    }
}

fn list(found: &Found, detail: Detail) {
    let (Some(entry), Some(url)) = (found.entry(), found.url()) else { return };
    let url = String::from_utf8_lossy(url).escape_debug().to_string();
    terminal::say(&match detail {
        Detail::Urls => url,
        Detail::All => format!("{url} {}", attributes(found, entry)),
    });
}

fn attributes(found: &Found, entry: &Entry) -> String {
    let head = found.size.saturating_sub(entry.body_length);
    let us = |seconds: i64| seconds.saturating_mul(1_000_000);
    let received = entry.times.received;
    let date = received.saturating_sub_unsigned(entry.times.initial_age);
    let expiry = date.saturating_add_unsigned(entry.times.lifetime);
    let status = entry.status.code();
    let has_body = u8::from(entry.body_length > 0);
    format!(
        "{head} {} {status} 1 {} {} {} {} {has_body} 0",
        entry.body_length,
        us(date),
        us(expiry),
        us(received),
        us(received)
    )
}

fn statistics(root: &Path, run: &Run, report: &Report) -> String {
    let kib = |bytes: u64| match bytes {
        0..1_048_576 => format!("{}.{}K", bytes >> 10, (bytes & 1023) * 10 / 1024),
        1_048_576..1_073_741_824 => {
            format!("{}.{}M", bytes >> 20, (bytes >> 10 & 1023) * 10 / 1024)
        }
        _ => format!("{}.{}G", bytes >> 30, (bytes >> 20 & 1023) * 10 / 1024),
    };
    let Bounds { bytes, inodes, .. } = run.bounds;
    let Report { removed: (future, stale, fresh), entries, .. } = *report;
    format!(
        "Cleaned {}. Statistics:\nsize limit {}\ninodes limit {inodes}\ntotal size was {}, total \
         size now {}\ntotal inodes was {}, total inodes now {}\ntotal entries was {}, total \
         entries now {}\n{} entries deleted ({future} from future, {stale} expired, {fresh} fresh)",
        root.display(),
        kib(bytes),
        kib(report.bytes.0),
        kib(report.bytes.1),
        report.inodes.0,
        report.inodes.1,
        entries.0,
        entries.1,
        future + stale + fresh
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, String> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_as_apaches() {
        let read = asked("-nt -p/tmp -l300M -d 120").unwrap();
        assert_eq!(read.run.bounds.bytes, 300 << 20);
        assert_eq!(read.interval, Some(Duration::from_secs(7_200)));
        assert!(read.run.removes_folders && read.run.rest == PAUSE);
        assert_eq!(asked("-p /tmp http://a/? b").unwrap().urls, ["http://a/?", "b"]);
        assert!(asked("-r -p/tmp -L1K").unwrap().run.removes_folders);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for (line, text) in [
            ("-l1", "Option -p must be specified"),
            ("-p/tmp", "At least one of option -l or -L"),
            ("-p/tmp -l1 -d5 -D", "Option -d cannot be used with"),
            ("-p/tmp -l1 -i", "Option -i cannot be used without -d"),
            ("-p/tmp -l 1X", "Invalid limit: 1X"),
            ("-p/tmp -l1 -d0", "Invalid interval: 0"),
            ("-x", "illegal option -- x"),
            ("-p/tmp/not/there -l1", "Could not set filepath"),
            ("-a -p/tmp http://a/?", "stand alone"),
            ("-l", "Option -l needs a value"),
        ] {
            let error = asked(line).unwrap_err();
            assert!(error.contains(text), "{line}: {error}");
        }
    }

    #[test]
    fn statistics_are_worded_as_apaches() {
        let run = Run { bounds: Bounds { bytes: 10 << 20, ..Bounds::default() }, ..Run::default() };
        let report =
            Report { bytes: (2_560, 0), inodes: (3, 2), entries: (1, 0), removed: (0, 1, 0) };
        let text = statistics(Path::new("/c"), &run, &report);
        for line in [
            "size limit 10.0M\n",
            "total size was 2.5K, total size now 0.0K\n",
            "total inodes was 3, total inodes now 2\n",
            "1 entries deleted (0 from future, 1 expired, 0 fresh)",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
