//! `evenkeel surge make DIR` writes the files of a workload. `evenkeel surge run URL` has its users
//! request them from a server and reports the results.

use super::profile::Profile;
use super::user::{User, Workload};
use super::work::FileSet;
use crate::bench::figures_text;
use crate::load::{
    Bounds, Keep, Pace, Plan, Run, Target, Think, Timeouts, Trust, Wishes, check_descriptors,
    check_owner, put_reachable_first,
};
use crate::numbers::{count, time};
use crate::results::{About, Saving};
use crate::watching::watch;
use crate::words::{self, answer, duration, number, target, think};
use clap::{Args, Parser, Subcommand};
use evenkeel_sys::connect::Local;
use evenkeel_sys::process;
use evenkeel_sys::signal::{Signal, Signals};
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Puts the SURGE workload on a server (Barford and Crovella, SIGMETRICS 1998)
#[derive(Debug, Parser)]
#[command(
    name = "surge",
    bin_name = "evenkeel surge",
    subcommand_required = true,
    after_help = "The same profile, number of files and seed give the same work."
)]
struct Words {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Writes the files of the workload below DIR
    Make {
        /// The folder
        #[arg(value_name = "DIR")]
        root: PathBuf,
        #[command(flatten)]
        work: Work,
    },
    /// Has users ask for the files, where a server has them at URL
    Run {
        /// Where the server has the files
        #[arg(value_name = "URL", value_parser = target)]
        url: Target,
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        load: Load,
    },
}

/// What determines the files.
#[derive(Debug, Args)]
struct Work {
    /// surge98, surge-dist or modern
    #[arg(
        long,
        value_name = "NAME",
        value_parser = Profile::named,
        default_value = "surge-dist"
    )]
    profile: Profile,
    /// How many files (as the profile has it)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST_FILES))]
    files: Option<usize>,
    /// The seed from which everything is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Work {
    fn files(&self) -> usize {
        self.files.unwrap_or(self.profile.files)
    }
}

/// How users ask for them.
#[derive(Debug, Args)]
struct Load {
    /// User equivalents
    #[arg(
        short,
        long,
        value_name = "N",
        value_parser = number::<u32>(1, MOST_USERS),
        default_value = "50"
    )]
    users: u32,
    /// For how long, such as 90s or 20m (60s where --requests is not given)
    #[arg(short = 'z', long = "duration", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Until so many requests were made
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<u64>(1, u64::MAX))]
    requests: Option<u64>,
    /// Pauses between pages in place of the profile's: 0, 1us, 1ms, exp:1s
    #[arg(long, value_name = "DIST", value_parser = think)]
    think: Option<Think>,
    /// How long a user waits for an answer
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    timeout: Duration,
    /// Threads of users (one for each core)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, 1024))]
    threads: Option<usize>,
    /// Keeps the results there, for `evenkeel report`
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Takes any certificate
    #[arg(long)]
    insecure: bool,
    /// Makes every TLS handshake in full, as a user does who has never been there
    #[arg(long)]
    full_handshakes: bool,
    /// Says that a server on another machine is yours
    #[arg(long = "yes-this-is-my-server")]
    own_server: bool,
}

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Words>()
}

/// Why nothing is done, with the exit status.
struct Complaint(String, i32);

/// How long a run takes by default.
const USUAL_TIME: Duration = Duration::from_secs(60);
const MOST_FILES: usize = 1_000_000;
const MOST_USERS: u32 = 1_000_000;

/// Runs one of the two commands. The exit status is 0; 1 if it could not be done or no request was
/// answered; 2 if the words make no sense.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let done = match words::parse::<Words>(words) {
        Ok(Words { verb: Verb::Make { root, work } }) => make(&root, &work),
        Ok(Words { verb: Verb::Run { url, work, load } }) => ask(&url, &work, &load, words),
        Err(stop) => return answer("surge", stop),
    };
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

/// Writes the files of a workload.
fn make(root: &Path, work: &Work) -> Result<i32, Complaint> {
    let files = FileSet::draw(&work.profile, work.files(), work.seed);
    let told =
        |path: &Path, error: &io::Error| Complaint(format!("{}: {error}", path.display()), 1);
    let mut random = ChaCha8Rng::seed_from_u64(work.seed);
    // Incompressible bytes, so that no server benefits from compression. They are drawn once and
    // reused.
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
        work.profile.name,
        work.seed
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

/// Has users request the files.
fn ask(target: &Target, work: &Work, load: &Load, words: &[String]) -> Result<i32, Complaint> {
    let plain = |text: String| Complaint(text, 1);
    let mut remotes = target.resolve(None).map_err(plain)?;
    check_owner(&target.host, Target::is_loopback(&remotes), load.own_server)
        .map_err(|text| Complaint(text, 2))?;
    check_descriptors(load.users, 0).map_err(plain)?;
    let wishes = Wishes { verify: !load.insecure, full: load.full_handshakes, ..Wishes::default() };
    let trust = Trust::of(target, &wishes).map_err(plain)?;
    put_reachable_first(&mut remotes, trust.as_ref(), load.timeout).map_err(plain)?;
    let files = FileSet::draw(&work.profile, work.files(), work.seed);
    let place = (&*target.authority(), &*target.path);
    let workload = Workload::new(work.profile, files, work.seed, load.think, place);
    let time = match (load.time, load.requests) {
        (None, None) => Some(USUAL_TIME),
        (time, _) => time,
    };
    let plan = Plan {
        remotes,
        local: Local::default(),
        trust,
        threads: load.threads.unwrap_or_else(process::usable_cores),
        clients: load.users,
        stretches: Vec::new(),
        pace: Pace::Greedy,
        keep: Keep::Kept,
        bounds: Bounds { requests: load.requests, time, at_failure: false },
        timeouts: Timeouts { connect: load.timeout, answer: load.timeout },
        seed: work.seed,
        keep_exchanges: false,
        hear: false,
    };
    let system = |error: io::Error| Complaint(format!("the system: {error}"), 1);
    let about = About::now("surge", &target.to_string(), words)
        .with("profile", work.profile.name)
        .with("files", work.files())
        .with("seed", work.seed)
        .with("users", load.users);
    let about = match load.think {
        Some(think) => about.with("think", think),
        None => about,
    };
    let saving = load.save.as_deref().map(|folder| Saving::begin(folder, &about));
    let mut saving = saving.transpose().map_err(plain)?;
    // The threads inherit the mask, so that this one receives ^C.
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
    report(target, work, load, &workload, &figures, interrupted);
    Ok(i32::from(figures.answered() == 0))
}

fn report(
    target: &Target,
    work: &Work,
    load: &Load,
    workload: &Arc<Workload>,
    figures: &crate::load::Figures,
    interrupted: bool,
) {
    let think = load.think.map_or_else(|| "the profile's".to_owned(), |it| it.to_string());
    let mut text = format!(
        "{target}\nprofile {}, {} files, seed {}: {} users, pauses: {think}\n\n",
        work.profile.name,
        work.files(),
        work.seed,
        load.users
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
