//! The testbed of an experiment: the peers, the cores for servers and for clients, the site, the
//! folder for results, and the handling of ^C. It starts servers, loads them, and returns what the
//! clients saw and what the server spent.

use super::{Fault, Options};
use crate::backend::Backend;
use crate::load::{Bounds, Figures, Keep, Live, Plan, Request, Run, Same, Source, Timeouts};
use crate::load::{Pace, Second, Think};
use crate::peers::{Peer, Server, Setup, Site};
use crate::report;
use crate::results::{About, Machine, Saved, Saving};
use bytes::Bytes;
use evenkeel_proto::response_field;
use evenkeel_sys::connect::{Local, Remote};
use evenkeel_sys::process;
use evenkeel_sys::signal::{Signal, Signals};
use std::borrow::Cow;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval between two looks at a run.
const GLANCE: Duration = Duration::from_millis(10);
/// A server that does not answer for this long has failed its clients.
const PATIENCE: Duration = Duration::from_secs(10);

/// The testbed.
pub struct Ground {
    /// The peers that take part, Evenkeel first.
    pub peers: Vec<Peer>,
    /// The peers that are not installed.
    pub missing: Vec<&'static str>,
    /// The peers that are installed but did not serve.
    silent: Vec<&'static str>,
    /// The files to serve.
    pub site: Site,
    /// The settings of servers at their start.
    pub setup: Setup,
    client_cores: Vec<usize>,
    runs: PathBuf,
    signals: Signals,
    about: About,
}

/// A request that is sent over and over.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The path.
    pub path: Cow<'static, str>,
    /// The number of clients.
    pub clients: u32,
    /// Their pauses.
    pub think: Think,
    /// Whether each connection is for one request.
    pub close: bool,
    /// Whether the clients already have the file.
    pub conditional: bool,
}

/// The result of a turn.
#[derive(Clone, Debug)]
pub struct Turn {
    /// What the clients saw.
    pub figures: Figures,
    /// The user and system time of the server's processes, in microseconds.
    pub cpu_us: u64,
}

impl Turn {
    /// The CPU time of the server for each answer, in nanoseconds.
    pub fn cpu_each_ns(&self) -> f64 {
        self.cpu_us as f64 * 1e3 / self.figures.answered().max(1) as f64
    }

    /// A percentile of the response time, in nanoseconds.
    pub fn latency_ns(&self, quantile: f64) -> f64 {
        let times = &self.figures.times.response;
        times.value_at_quantile(quantile).min(times.max()) as f64
    }
}

impl Ground {
    /// Divides the cores, makes the site and begins to handle ^C.
    pub fn prepare(
        peers: Vec<Peer>,
        missing: Vec<&'static str>,
        out: &Path,
        options: &Options,
    ) -> Result<Self, Fault> {
        let told = |error: io::Error| Fault::Told(format!("the system: {error}"));
        let signals = Signals::catch(&[Signal::Interrupt, Signal::Terminate]).map_err(told)?;
        let _bound = process::raise_descriptor_limit();
        let command = format!("lab {}", options.experiment.name());
        let words = options.words.get(1..).unwrap_or_default();
        // Record this before the cores are divided, because the machine has all of them.
        let about = About::now(&command, "", words);
        let cores = process::allowed_cores();
        let half = cores.len() / 2;
        let (servers, clients) = cores.split_at(half);
        if half > 0 {
            process::run_on(clients).map_err(told)?;
        }
        Ok(Self {
            peers,
            missing,
            silent: Vec::new(),
            site: Site::new()?,
            setup: Setup { cores: servers.to_vec(), ..Setup::default() },
            client_cores: clients.to_vec(),
            runs: out.join("runs"),
            signals,
            about,
        })
    }

    /// Starts all peers, in order. Those that do not serve take no part.
    pub fn start_all(&mut self) -> Result<Vec<(Peer, Server)>, Fault> {
        let mut servers = Vec::new();
        for peer in self.peers.clone() {
            self.heed()?;
            servers.extend(self.start(peer)?.map(|server| (peer, server)));
        }
        Ok(servers)
    }

    /// Starts a peer; none if it does not serve, which the report says. Without Evenkeel there is
    /// no experiment.
    pub fn start(&mut self, peer: Peer) -> Result<Option<Server>, Fault> {
        match peer.start(&self.site, &self.setup) {
            Ok(server) => Ok(Some(server)),
            Err(fault) if peer.is_own() => Err(fault.into()),
            Err(fault) => {
                self.tell(&fault);
                self.silent.push(peer.name());
                self.peers.retain(|other| *other != peer);
                Ok(None)
            }
        }
    }

    /// Prints what is being done, on standard error.
    pub fn tell(&self, text: &str) {
        let _gone = writeln!(io::stderr().lock(), "{text}");
    }

    /// Whether the user pressed ^C.
    pub fn is_over(&self) -> bool {
        self.signals.next().is_some()
    }

    /// Ends the experiment if the user pressed ^C.
    pub fn heed(&self) -> Result<(), Fault> {
        if self.is_over() { Err(Fault::Interrupted) } else { Ok(()) }
    }

    /// Runs a turn. It is saved if there is a name for it.
    pub fn ask(
        &self,
        server: &Server,
        asked: &Asked,
        long: Duration,
        name: Option<&str>,
    ) -> Result<Turn, Fault> {
        let tag = if asked.conditional { Some(self.validator(server, asked)?) } else { None };
        let bounds = Bounds { time: Some(long), ..Bounds::default() };
        let mut saving = match name {
            Some(name) => {
                Some(Saving::begin(&self.runs.join(name), &self.about_of(server, asked))?)
            }
            None => None,
        };
        let before_us = server.family.cpu_us();
        let figures = self.load(server, asked, tag.as_deref(), bounds, saving.as_mut())?;
        let cpu_us = server.family.cpu_us().saturating_sub(before_us);
        if let Some(saving) = saving {
            saving.finish(&figures)?;
        }
        Ok(Turn { figures, cpu_us })
    }

    fn about_of(&self, server: &Server, asked: &Asked) -> About {
        let title = format!("{} {}", server.name, asked.path);
        let about = About { title, target: asked.path.to_string(), ..self.about.clone() };
        let about = About { started_us: evenkeel_sys::clock::realtime_us(), ..about };
        let keep = if asked.close { "one request a connection" } else { "kept" };
        let about = about.with("server", &server.name).with("connections", keep);
        about.with("clients", asked.clients).with("think", asked.think)
    }

    fn load(
        &self,
        server: &Server,
        asked: &Asked,
        tag: Option<&str>,
        bounds: Bounds,
        saving: Option<&mut Saving>,
    ) -> Result<Figures, Fault> {
        let plan = self.plan(server, asked, bounds);
        self.drive(plan, &mut source(asked, tag), saving, &mut |_| Ok(true))
    }

    /// Has the clients of a plan do what `source` says. In the meantime `look` is called every few
    /// milliseconds with the seconds since the beginning, and returns whether to continue.
    pub fn drive(
        &self,
        plan: Plan,
        source: &mut dyn FnMut(u32) -> Box<dyn Source>,
        mut saving: Option<&mut Saving>,
        look: &mut dyn FnMut(f64) -> Result<bool, Fault>,
    ) -> Result<Figures, Fault> {
        let told = |error: io::Error| Fault::Told(format!("the system: {error}"));
        let run = Run::start(plan, source).map_err(told)?;
        let begun = Instant::now();
        let interrupted = self.wait(&run.live(), &mut |live| {
            if !look(begun.elapsed().as_secs_f64())? {
                live.stop();
            }
            match &mut saving {
                Some(saving) => Ok(saving.add(&live.news())?),
                None => Ok(()),
            }
        })?;
        let figures = run.wait().map_err(told)?;
        if interrupted { Err(Fault::Interrupted) } else { Ok(figures) }
    }

    /// The same for a run that is not saved: `look` is given the answers of each second that has
    /// ended, and the run ends when it says so, so that the last second is incomplete.
    pub fn follow(
        &self,
        plan: Plan,
        source: &mut dyn FnMut(u32) -> Box<dyn Source>,
        look: &mut dyn FnMut(&[u64]) -> bool,
    ) -> Result<(), Fault> {
        let told = |error: io::Error| Fault::Told(format!("the system: {error}"));
        let threads = plan.threads.clamp(1, (plan.clients as usize).max(1));
        let mut seconds = Seconds { threads, ..Seconds::default() };
        let run = Run::start(plan, source).map_err(told)?;
        let interrupted = self.wait(&run.live(), &mut |live| {
            if !look(seconds.take(&live.news())) {
                live.stop();
            }
            Ok(())
        })?;
        let _figures = run.wait().map_err(told)?;
        if interrupted { Err(Fault::Interrupted) } else { Ok(()) }
    }

    fn wait(
        &self,
        live: &Live,
        look: &mut dyn FnMut(&Live) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        let mut interrupted = false;
        while live.is_running() {
            if self.is_over() {
                interrupted = true;
                live.stop();
            }
            if let Err(fault) = look(live) {
                live.stop();
                return Err(fault);
            }
            std::thread::sleep(GLANCE);
        }
        Ok(interrupted)
    }

    /// The number of cores that the servers run on.
    pub fn server_cores(&self) -> usize {
        match self.setup.cores.len() {
            0 => process::usable_cores(),
            count => count,
        }
    }

    /// Where to save a run with this name.
    pub fn save(&self, name: &str, server: &Server, what: &str) -> Result<Saving, Fault> {
        let about = About {
            title: format!("{} {what}", server.name),
            target: what.to_owned(),
            started_us: evenkeel_sys::clock::realtime_us(),
            ..self.about.clone()
        };
        Ok(Saving::begin(&self.runs.join(name), &about.with("server", &server.name))?)
    }

    /// The folder for the results of a run with this name.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.runs.join(name)
    }

    /// Starts the application behind `/wait` and `/burn`, on the servers' cores.
    pub fn start_backend(&mut self) -> Result<Backend, Fault> {
        let told = |error: io::Error| Fault::Told(format!("the application: {error}"));
        let backend = Backend::start(&self.setup.cores).map_err(told)?;
        self.setup.backend = Some(backend.address);
        Ok(backend)
    }

    /// The plan of a load.
    pub fn plan(&self, server: &Server, asked: &Asked, bounds: Bounds) -> Plan {
        let think = asked.think;
        Plan {
            remotes: vec![Remote::Internet(server.address)],
            local: Local::default(),
            trust: None,
            threads: self.client_cores.len().max(1),
            clients: asked.clients,
            stretches: Vec::new(),
            pace: if think.is_none() { Pace::Greedy } else { Pace::Think(think) },
            keep: if asked.close { Keep::Once } else { Keep::Kept },
            bounds,
            timeouts: Timeouts { connect: PATIENCE, answer: PATIENCE },
            seed: 1,
            keep_exchanges: false,
            hear: false,
        }
    }

    /// The entity tag that the server gives the file.
    fn validator(&self, server: &Server, asked: &Asked) -> Result<String, Fault> {
        let bounds = Bounds { requests: Some(1), ..Bounds::default() };
        let figures =
            self.load(server, &Asked { clients: 1, ..asked.clone() }, None, bounds, None)?;
        let head = figures.sample.map(|sample| sample.head).unwrap_or_default();
        let tag =
            response_field(&head, b"etag").map(|tag| String::from_utf8_lossy(tag).into_owned());
        let (name, path) = (&server.name, &asked.path);
        tag.ok_or_else(|| format!("{name}: {path} comes without an entity tag").into())
    }

    /// Where a sweep saves its runs, and their description.
    pub fn saving_of(&self, peer: Peer, name: &str) -> (PathBuf, About) {
        let about = self.about.clone().with("server", peer.name());
        (self.runs.join(name), About { target: "/1k.html".into(), ..about })
    }

    /// When, where and with which programs the experiment was made.
    pub fn origin(&self) -> String {
        let run = Saved { about: self.about.clone(), ..Saved::default() };
        let machine = Machine::here();
        let cores =
            |cores: &[usize]| cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let divided = match self.setup.cores.as_slice() {
            [] => "servers and clients share the one core".to_owned(),
            own => {
                format!("servers on core {}, clients on {}", cores(own), cores(&self.client_cores))
            }
        };
        let memory = crate::numbers::bytes(machine.memory_bytes as f64);
        format!("{} · {divided} · {memory}", report::origin(&run))
    }

    /// The versions of the peers, and which are missing.
    pub fn who(&self) -> String {
        let versions = self.peers.iter().map(|peer| {
            let version = peer.version();
            if version.is_empty() {
                peer.name().to_owned()
            } else {
                format!("{} ({version})", peer.name())
            }
        });
        let mut text = format!("Measured: {}.", versions.collect::<Vec<_>>().join(", "));
        if !self.silent.is_empty() {
            text.push_str(&format!(" Did not serve here: {}.", self.silent.join(", ")));
        }
        if !self.missing.is_empty() {
            text.push_str(&format!(" Not installed: {}.", self.missing.join(", ")));
        }
        text
    }

    /// The command line.
    pub fn words(&self) -> String {
        format!("evenkeel {} {}", self.about.command, self.about.words.join(" "))
    }
}

/// A turn in whole seconds, at least one.
pub fn whole_seconds(turn: Duration) -> usize {
    turn.as_secs_f64().ceil().max(1.0) as usize
}

/// The answers a second over `count` seconds from `from` on. Seconds after that do not count,
/// because the last one that a run reports is incomplete.
pub fn mean(seconds: &[u64], from: usize, count: usize) -> f64 {
    let counted = seconds.iter().skip(from).take(count);
    counted.clone().sum::<u64>() as f64 / counted.len().max(1) as f64
}

/// The answers of each second, summed over the threads of clients.
#[derive(Default)]
struct Seconds {
    threads: usize,
    answered: Vec<u64>,
    /// How many threads have reported it.
    told: Vec<usize>,
}

impl Seconds {
    /// Takes parts of seconds, and returns those that all threads have reported.
    fn take(&mut self, news: &[Second]) -> &[u64] {
        for second in news {
            let number = second.number as usize;
            let count = self.told.len().max(number + 1);
            self.told.resize(count, 0);
            self.answered.resize(count, 0);
            if let (Some(told), Some(answered)) =
                (self.told.get_mut(number), self.answered.get_mut(number))
            {
                *told += 1;
                *answered += second.answered;
            }
        }
        let whole = self.told.iter().take_while(|told| **told >= self.threads).count();
        self.answered.get(..whole).unwrap_or_default()
    }
}

/// Makes the requests of each client.
pub fn source(asked: &Asked, tag: Option<&str>) -> impl FnMut(u32) -> Box<dyn Source> + use<> {
    let mut text = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n", asked.path);
    if asked.close {
        text.push_str("Connection: close\r\n");
    }
    if let Some(tag) = tag {
        text.push_str(&format!("If-None-Match: {tag}\r\n"));
    }
    text.push_str("\r\n");
    let request = Arc::new(Request { bytes: Bytes::from(text), ..Request::default() });
    move |_| Box::new(Same(Arc::clone(&request)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_counts_once_all_threads_have_told_of_it() {
        let part = |number, answered| Second { answered, ..Second::new(number) };
        let mut seconds = Seconds { threads: 2, ..Seconds::default() };
        assert_eq!(seconds.take(&[part(0, 5), part(1, 6)]), [0; 0]);
        assert_eq!(seconds.take(&[part(0, 1)]), [6]);
        assert_eq!(seconds.take(&[part(2, 9), part(2, 9)]), [6]);
        assert_eq!(seconds.take(&[part(1, 0)]), [6, 6, 18]);
        // The last one is only a part of a second.
        assert_eq!(mean(&[1, 100, 102, 2], 1, 2), 101.0);
        assert_eq!((mean(&[], 3, 1), whole_seconds(Duration::from_millis(1_500))), (0.0, 2));
    }
}
