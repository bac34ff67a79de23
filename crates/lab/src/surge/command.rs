//! `evenkeel surge make DIR` and `evenkeel surge run URL`: words come in; the files of a workload
//! go to disk, or its users go to a server and a report of what they met goes to who asked.

use super::profile::Profile;
use super::user::{User, Workload};
use super::work::FileSet;
use crate::bench::figures_text;
use crate::load::{
    Bounds, Keep, Pace, Plan, Run, Target, Think, Timeouts, Trust, check_descriptors, check_owner,
    parse_time, put_reachable_first,
};
use crate::numbers::{count, time};
use crate::results::{About, Saving};
use crate::watching::watch;
use evenkeel_sys::connect::Local;
use evenkeel_sys::process;
use evenkeel_sys::signal::{Signal, Signals};
use lexopt::{Arg, Parser, ValueExt as _};
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What is asked for, whichever of the two commands it is.
struct Options {
    /// The folder or the URL.
    place: String,
    profile: Profile,
    files: usize,
    seed: u64,
    users: u32,
    think: Option<Think>,
    time: Option<Duration>,
    requests: Option<u64>,
    timeout: Duration,
    threads: usize,
    save: Option<PathBuf>,
    insecure: bool,
    own_server: bool,
}

/// Why nothing is done, with the exit status.
struct Complaint(String, i32);

/// How long users are at work where nothing else is said.
const USUAL_TIME: Duration = Duration::from_secs(60);
const MOST_FILES: usize = 1_000_000;
const MOST_USERS: u32 = 1_000_000;

const HELP: &str = "\
evenkeel surge: the SURGE workload (Barford and Crovella, SIGMETRICS 1998)

Usage:
  evenkeel surge make DIR [options]   write the files of the workload below DIR
  evenkeel surge run URL [options]    have users ask for them, where a server has them at URL

Options of both (the same ones give the same work):
  --profile NAME    surge98, surge-dist (the default) or modern
  --files N         how many files
  --seed N          from which everything is drawn (1)

Options of run:
  -u, --users N     user equivalents (50)
  -z, --duration T  for how long, such as 90s or 20m (60s where -n is not given)
  -n, --requests N  until so many requests were made
  --think PAUSE     pauses between pages in place of the profile's: 0, 1us, 1ms, exp:1s
  -t, --timeout T   how long a user waits for an answer (30s)
  --threads N       threads of users (one for each core)
  --save DIR        keep the results there, for `evenkeel report`
  --insecure        take any certificate
  --yes-this-is-my-server   needed where the server is on another machine
";

/// Runs one of the two commands; the exit status is 0, 1 where it could not be done or nothing was
/// answered, 2 where the words make no sense.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let (verb, rest) = match words.split_first() {
        Some((verb, rest)) if matches!(verb.as_str(), "make" | "run") => (verb.as_str(), rest),
        Some((word, _)) if matches!(word.as_str(), "-h" | "--help" | "help") => {
            say(HELP);
            return 0;
        }
        _ => return refuse(&Complaint(format!("make or run?\n\n{HELP}"), 2)),
    };
    let done = parse(rest).and_then(|options| match options {
        None => {
            say(HELP);
            Ok(0)
        }
        Some(options) if verb == "make" => make(&options),
        Some(options) => load(&options, words),
    });
    done.unwrap_or_else(|complaint| refuse(&complaint))
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _reader_is_gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn refuse(Complaint(text, status): &Complaint) -> i32 {
    let _reader_is_gone = writeln!(io::stderr().lock(), "evenkeel surge: {text}");
    *status
}

/// None where the help is asked for.
fn parse(words: &[String]) -> Result<Option<Options>, Complaint> {
    let usage = |text: String| Complaint(text, 2);
    let mut options = Options {
        place: String::new(),
        profile: Profile::named("surge-dist").map_err(usage)?,
        files: 0,
        seed: 1,
        users: 50,
        think: None,
        time: None,
        requests: None,
        timeout: Duration::from_secs(30),
        threads: process::usable_cores(),
        save: None,
        insecure: false,
        own_server: false,
    };
    let mut parser = Parser::from_args(words);
    while let Some(arg) = parser.next().map_err(|error| usage(error.to_string()))? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            Arg::Value(word) if options.place.is_empty() => {
                options.place = word.to_string_lossy().into_owned();
            }
            Arg::Value(word) => {
                return Err(usage(format!("{}: one place is enough", word.to_string_lossy())));
            }
            Arg::Long("insecure") => options.insecure = true,
            Arg::Long("yes-this-is-my-server") => options.own_server = true,
            Arg::Short(letter) => option(&mut options, &letter.to_string(), &mut parser)?,
            Arg::Long(name) => {
                let name = name.to_owned();
                option(&mut options, &name, &mut parser)?;
            }
        }
    }
    if options.place.is_empty() {
        return Err(usage("where? A folder to make, or the URL of a server".to_owned()));
    }
    if options.files == 0 {
        options.files = options.profile.files;
    }
    Ok(Some(options))
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Result<(), Complaint> {
    let value = parser.value().and_then(|value| value.string());
    let value = value.map_err(|error| Complaint(format!("{name}: {error}"), 2))?;
    let bad = |wanted: &str| Complaint(format!("{name} {value}: {wanted}"), 2);
    let number = |least: u64, most: u64| {
        let parsed = value.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        parsed.ok_or_else(|| bad(&format!("a number from {least} to {most}")))
    };
    let time = || {
        let seconds = parse_time(&value).filter(|seconds| *seconds > 0.0);
        seconds.map(Duration::from_secs_f64).ok_or_else(|| bad("a time such as 500ms, 90s or 20m"))
    };
    match name {
        "profile" => options.profile = Profile::named(&value).map_err(|text| bad(&text))?,
        "files" => options.files = number(1, MOST_FILES as u64)? as usize,
        "seed" => options.seed = number(0, u64::MAX)?,
        "u" | "users" => options.users = number(1, MOST_USERS.into())? as u32,
        "z" | "duration" => options.time = Some(time()?),
        "n" | "requests" => options.requests = Some(number(1, u64::MAX)?),
        "t" | "timeout" => options.timeout = time()?,
        "threads" => options.threads = number(1, 1024)? as usize,
        "think" => options.think = Some(Think::parse(&value).map_err(|text| Complaint(text, 2))?),
        "save" => options.save = Some(value.into()),
        _ => return Err(Complaint(format!("{name}: no such option; --help shows them"), 2)),
    }
    Ok(())
}

/// Writes the files of a workload.
fn make(options: &Options) -> Result<i32, Complaint> {
    let files = FileSet::draw(&options.profile, options.files, options.seed);
    let root = Path::new(&options.place);
    let told =
        |path: &Path, error: &io::Error| Complaint(format!("{}: {error}", path.display()), 1);
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    // What does not compress, so that no server gains from that: drawn once, used again.
    let mut noise = vec![0; 1 << 20];
    random.fill_bytes(&mut noise);
    for (number, size) in (0_u32..).zip(&files.sizes) {
        let path = root.join(FileSet::path(number));
        let folder = path.parent().unwrap_or(root);
        fs::create_dir_all(folder).map_err(|error| told(folder, &error))?;
        write_file(&path, *size, &noise).map_err(|error| told(&path, &error))?;
    }
    say(&format!(
        "{}: {} files, {} bytes, {} of them pages (profile {}, seed {})\n",
        root.display(),
        files.sizes.len(),
        files.bytes(),
        files.pages.len(),
        options.profile.name,
        options.seed
    ));
    Ok(0)
}

fn write_file(path: &Path, size: u64, noise: &[u8]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut left = size;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(noise.len());
        file.write_all(noise.get(..count).unwrap_or(noise))?;
        left -= count as u64;
    }
    file.flush()
}

/// Has users ask for the files.
fn load(options: &Options, words: &[String]) -> Result<i32, Complaint> {
    let target = Target::parse(&options.place).map_err(|text| Complaint(text, 2))?;
    let plain = |text: String| Complaint(text, 1);
    let mut remotes = target.resolve(None).map_err(plain)?;
    check_owner(&target.host, Target::is_loopback(&remotes), options.own_server)
        .map_err(|text| Complaint(text, 2))?;
    check_descriptors(options.users, 0).map_err(plain)?;
    let trust = Trust::of(&target, !options.insecure).map_err(plain)?;
    put_reachable_first(&mut remotes, trust.as_ref(), options.timeout).map_err(plain)?;
    let files = FileSet::draw(&options.profile, options.files, options.seed);
    let place = (&*target.authority(), &*target.path);
    let workload = Workload::new(options.profile, files, options.seed, options.think, place);
    let time = match (options.time, options.requests) {
        (None, None) => Some(USUAL_TIME),
        (time, _) => time,
    };
    let plan = Plan {
        remotes,
        local: Local::default(),
        trust,
        threads: options.threads,
        clients: options.users,
        stretches: Vec::new(),
        pace: Pace::Greedy,
        keep: Keep::Kept,
        bounds: Bounds { requests: options.requests, time, at_failure: false },
        timeouts: Timeouts { connect: options.timeout, answer: options.timeout },
        seed: options.seed,
        keep_exchanges: false,
        hear: false,
    };
    let system = |error: io::Error| Complaint(format!("the system: {error}"), 1);
    let about = About::now("surge", &target.to_string(), words)
        .with("profile", options.profile.name)
        .with("files", options.files)
        .with("seed", options.seed)
        .with("users", options.users);
    let about = match options.think {
        Some(think) => about.with("think", think),
        None => about,
    };
    let saving = options.save.as_deref().map(|folder| Saving::begin(folder, &about));
    let mut saving = saving.transpose().map_err(plain)?;
    // The threads take over the mask, so that this one hears of ^C.
    let signals = Signals::catch(&[Signal::Interrupt, Signal::Terminate]).map_err(system)?;
    let user = |number| -> Box<dyn crate::load::Source> { Box::new(User::new(&workload, number)) };
    let run = Run::start(plan, user).map_err(system)?;
    let mut err = io::stderr();
    let rewrites = err.is_terminal();
    let watched = watch(&run.live(), &signals, saving.as_mut(), &mut err, rewrites);
    let figures = run.wait().map_err(system)?;
    let interrupted = watched.map_err(plain)?;
    if let Some(saving) = saving {
        saving.finish(&figures).map_err(plain)?;
    }
    report(options, &target, &workload, &figures, interrupted);
    Ok(i32::from(figures.answered() == 0))
}

fn report(
    options: &Options,
    target: &Target,
    workload: &Arc<Workload>,
    figures: &crate::load::Figures,
    interrupted: bool,
) {
    let think = options.think.map_or_else(|| "the profile's".to_owned(), |it| it.to_string());
    let mut text = format!(
        "{target}\nprofile {}, {} files, seed {}: {} users, pauses: {think}\n\n",
        options.profile.name, options.files, options.seed, options.users
    );
    if interrupted {
        text += "Interrupted: these are the figures until then.\n\n";
    }
    text += &figures_text(figures);
    let pauses = &figures.times.pause;
    if !pauses.is_empty() {
        let at = |quantile| time(pauses.value_at_quantile(quantile) as f64);
        let mean = time(pauses.mean());
        text += &format!("  Pauses came about: mean {mean}, p50 {}, p99 {}\n", at(0.5), at(0.99));
    }
    let others = workload.other_sizes.load(Relaxed);
    if others > 0 {
        text += &format!(
            "\n{} answers were not the file that was made: was `evenkeel surge make` run with \
             the same profile, files and seed, and does the URL lead to its folder?\n",
            count(others)
        );
    }
    say(&text);
}
