//! The scenarios, named by the numbers of the goals. The contenders take turns, and each scenario
//! writes a section of the page.

use crate::Result;
use crate::contender::{CLIENT_CORE, Kind};
use crate::idle;
use crate::load::{Asked, Turn, Work};
use crate::memory;
use crate::passwords;
use crate::plan::Plan;
use crate::spread::Spread;
use crate::table::{self, Growth};
use evenkeel_lab::backend::Backend;
use evenkeel_lab::calls::{self, Calls};
use evenkeel_lab::peers::{Http2, Peer, Server, Site};
use std::io::Write as _;

/// What is measured.
pub struct Scenario {
    name: &'static str,
    /// The suffix of its name.
    bare: &'static str,
    /// Its description in one line.
    pub title: &'static str,
    measure: Measure,
    /// The servers beside Evenkeel, unless the command line names some.
    beside: &'static [Kind],
}

enum Measure {
    /// The server's CPU time for a request, and throughput.
    Load(Asked),
    /// How much more a request costs if many things are requested in turn than if few are.
    Growth { few: Asked, many: Asked },
    /// Memory of virtual hosts, and of reloads.
    Hosts(usize),
    /// Memory of idle connections.
    Idle,
    /// System calls of requests on kept connections and of connections of one request.
    Calls,
    /// The cost of passwords, right and wrong.
    Passwords,
}

/// The file of 1 KiB on 64 kept connections, from which the others differ: a browser, and a server
/// with Debian's stock configuration, which does not compress pictures.
pub const PLAIN: Asked = Asked {
    path: "/1k.png",
    connections: 64,
    close: false,
    conditional: false,
    wait_ms: 0,
    stock: true,
    browser: true,
    work: Work::Nothing,
    spread: None,
    http2: None,
};

/// The same file over HTTP/2 in clear text, on few connections with many streams.
pub const H2: Asked = Asked { connections: 8, http2: Some((Http2::ClearText, 32)), ..PLAIN };

/// The suffix of a scenario for the bare server.
const BARE: &str = "-bare";

/// A response that waits for 200 ms.
pub const WAIT: Asked = Asked { path: "/wait", wait_ms: 200, ..PLAIN };

/// The servers beside Evenkeel if none are named.
const PEERS: &[Kind] = &[
    Kind::Ceiling,
    Kind::Peer(Peer::Nginx),
    Kind::Peer(Peer::NginxTuned),
    Kind::Peer(Peer::H2o),
    Kind::Peer(Peer::Lighttpd),
    Kind::Peer(Peer::Apache),
];

/// The servers that serve files from disk, and the ceiling, which shows the client's part.
const FILED: &[Kind] = &[
    Kind::Ceiling,
    Kind::Peer(Peer::Nginx),
    Kind::Peer(Peer::NginxTuned),
    Kind::Peer(Peer::Lighttpd),
    Kind::Peer(Peer::Apache),
];

/// The servers that can wait for an application behind them.
const WAITING: &[Kind] = &[Kind::Ceiling, Kind::Peer(Peer::Nginx), Kind::Peer(Peer::H2o)];

/// The servers that speak HTTP/2.
const MULTIPLEXED: &[Kind] =
    &[Kind::Peer(Peer::Nginx), Kind::Peer(Peer::H2o), Kind::Peer(Peer::Apache)];

/// The servers that can be configured with many name-based hosts.
const HOSTED: &[Kind] = &[Kind::Ceiling, Kind::Peer(Peer::Nginx), Kind::Peer(Peer::Apache)];

/// Evenkeel's process models, and Apache's.
const MODELS: &[Kind] = &[
    Kind::Ceiling,
    Kind::Peer(Peer::EvenkeelWorker),
    Kind::Peer(Peer::EvenkeelPrefork),
    Kind::Peer(Peer::Apache),
    Kind::Peer(Peer::ApacheWorker),
    Kind::Peer(Peer::ApachePrefork),
];

const SCENARIOS: [Scenario; 22] = [
    scenario("P1", "keep-alive GET of 1 KiB, 64 connections", Measure::Load(PLAIN), PEERS),
    scenario(
        "P2",
        "304 for a file of 1 KiB, 64 connections",
        Measure::Load(Asked { conditional: true, ..PLAIN }),
        PEERS,
    ),
    scenario(
        "P3",
        "GET of 1 KiB, a connection per request, 64 at a time",
        Measure::Load(Asked { close: true, ..PLAIN }),
        PEERS,
    ),
    scenario(
        "P4",
        "keep-alive GET of 100 KiB, 16 connections",
        Measure::Load(Asked { path: "/100k.bin", connections: 16, ..PLAIN }),
        PEERS,
    ),
    scenario(
        "P4-1m",
        "keep-alive GET of 1 MiB, 8 connections",
        Measure::Load(Asked { path: "/1m.bin", connections: 8, ..PLAIN }),
        PEERS,
    ),
    scenario(
        "P4-10m",
        "keep-alive GET of 10 MiB, 4 connections",
        Measure::Load(Asked { path: "/10m.bin", connections: 4, ..PLAIN }),
        PEERS,
    ),
    scenario(
        "P6",
        "HTTP/2 in clear text: GET of 1 KiB, 8 connections of 32 streams",
        Measure::Load(H2),
        MULTIPLEXED,
    ),
    scenario(
        "P6-tls",
        "HTTP/2 over TLS: GET of 1 KiB, 8 connections of 32 streams",
        Measure::Load(Asked { http2: Some((Http2::Tls, 32)), ..H2 }),
        MULTIPLEXED,
    ),
    scenario(
        "P6-one",
        "HTTP/2 over TLS: GET of 1 KiB, one connection of 100 streams",
        Measure::Load(Asked { connections: 1, http2: Some((Http2::Tls, 100)), ..H2 }),
        MULTIPLEXED,
    ),
    scenario(
        "P6-many",
        "HTTP/2 over TLS: GET of 1 KiB, 64 connections of one stream",
        Measure::Load(Asked { connections: 64, http2: Some((Http2::Tls, 1)), ..H2 }),
        MULTIPLEXED,
    ),
    scenario(
        "P7-1000",
        "answers that wait 200 ms, 1,000 connections, MaxRequestWorkers auto; peers pass them on",
        Measure::Load(Asked { connections: 1_000, ..WAIT }),
        WAITING,
    ),
    scenario(
        "P7",
        "answers that wait 200 ms, 10,000 connections, MaxRequestWorkers auto; peers pass them on",
        Measure::Load(Asked { connections: 10_000, ..WAIT }),
        WAITING,
    ),
    scenario("P11", "idle keep-alive connections", Measure::Idle, PEERS),
    scenario("P12", "system calls a request", Measure::Calls, PEERS),
    scenario(
        "P13",
        "the process models: keep-alive GET of 1 KiB, 64 connections",
        Measure::Load(PLAIN),
        MODELS,
    ),
    scenario(
        "P13-short",
        "the process models: GET of 1 KiB, a connection per request, 64 at a time",
        Measure::Load(Asked { close: true, ..PLAIN }),
        MODELS,
    ),
    scenario(
        "P16",
        "keep-alive GET of a page of 8 KiB, compressed, 64 connections",
        Measure::Load(Asked { path: "/8k.html", ..PLAIN }),
        PEERS,
    ),
    scenario(
        "P16-plain",
        "keep-alive GET of a picture of 8 KiB, 64 connections",
        Measure::Load(Asked { path: "/8k.png", ..PLAIN }),
        PEERS,
    ),
    scenario(
        "P15-files",
        "keep-alive GET of 1 KiB, 64 connections: 100,000 files in turn, and 10",
        Measure::Growth {
            few: PLAIN.spread(Spread::Files(10)),
            many: PLAIN.spread(Spread::Files(100_000)),
        },
        FILED,
    ),
    scenario(
        "P15-hosts",
        "keep-alive GET of 1 KiB, 64 connections: 10,000 name-based hosts in turn, and 1",
        Measure::Growth {
            few: PLAIN.spread(Spread::Hosts(1)),
            many: PLAIN.spread(Spread::Hosts(10_000)),
        },
        HOSTED,
    ),
    scenario(
        "passwords",
        "users with bcrypt of cost 10, and a flood of wrong passwords",
        Measure::Passwords,
        &[Kind::Peer(Peer::Apache)],
    ),
    scenario(
        "P15-memory",
        "memory of 10,000 name-based hosts, and what reloads add to it",
        Measure::Hosts(10_000),
        &[Kind::Peer(Peer::Nginx), Kind::Peer(Peer::Apache)],
    ),
];

const fn scenario(
    name: &'static str,
    title: &'static str,
    measure: Measure,
    beside: &'static [Kind],
) -> Scenario {
    Scenario { name, bare: "", title, measure, beside }
}

impl Scenario {
    /// The scenario with that number.
    pub fn named(name: &str) -> Result<Self> {
        let (plain, bare) = match name.strip_suffix(BARE) {
            Some(plain) => (plain, BARE),
            None => (name, ""),
        };
        let unknown = || format!("{name}: no such scenario; there are: {}", Self::names());
        let named = |it: &Self| it.name.eq_ignore_ascii_case(plain);
        let mut found = SCENARIOS.into_iter().find(named).ok_or_else(unknown)?;
        match &mut found.measure {
            _ if bare.is_empty() => {}
            Measure::Load(asked) => *asked = asked.bare(),
            Measure::Growth { few, many } => (*few, *many) = (few.bare(), many.bare()),
            Measure::Idle | Measure::Calls | Measure::Hosts(_) | Measure::Passwords => {
                return Err(unknown());
            }
        }
        Ok(Self { bare, ..found })
    }

    /// All names, for messages.
    pub fn names() -> String {
        let names = SCENARIOS.map(|scenario| scenario.name).join(", ");
        format!("{names}; those that ask all the time also with {BARE} behind their names")
    }

    /// The number and the description.
    pub fn heading(&self) -> String {
        format!("{}{}: {}", self.name, self.bare, self.title)
    }
}

/// Runs a scenario and returns its section.
pub fn run(scenario: &Scenario, plan: &Plan) -> Result<String> {
    let site = Site::new()?;
    match &scenario.measure {
        Measure::Load(asked) => load(scenario, asked, plan, &site),
        Measure::Growth { few, many } => growth(scenario, few, many, plan),
        Measure::Hosts(count) => hosts(scenario, *count, plan, &site),
        Measure::Idle => held(scenario, plan, &site),
        Measure::Calls => count(scenario, plan, &site),
        Measure::Passwords => passwords::run(&scenario.heading(), scenario.beside, plan, &site),
    }
}

/// Loads all servers in turns.
fn load(scenario: &Scenario, asked: &Asked, plan: &Plan, site: &Site) -> Result<String> {
    let contenders = plan.contenders(scenario.beside);
    let earlier = Site::new()?;
    if asked.http2.is_some_and(|(how, _)| how == Http2::Tls) {
        site.add_certificate()?;
        earlier.add_certificate()?;
    }
    let place = |kind: &Kind| if kind.needs_own_site() { &earlier } else { site };
    let each: Vec<_> = contenders.iter().map(|kind| (*kind, *asked, place(kind))).collect();
    let rows = in_turns(&each, plan)?;
    let turns = rows.into_iter().map(|course| course.turns);
    let rows: Vec<_> = contenders.into_iter().zip(turns).collect();
    Ok(table::of_load(&scenario.heading(), &rows))
}

/// Each contender has two servers, which run one after the other in each round: one gets requests
/// for few things, the other for many.
fn growth(scenario: &Scenario, few: &Asked, many: &Asked, plan: &Plan) -> Result<String> {
    let contenders = plan.contenders(scenario.beside);
    let lay_out = || -> Result<[(Asked, Site); 2]> {
        let sites = [(*few, Site::new()?), (*many, Site::new()?)];
        for (asked, site) in &sites {
            asked.spread.map_or(Ok(()), |spread| spread.lay_out(site))?;
        }
        Ok(sites)
    };
    let sites = lay_out()?;
    let needs_own = contenders.iter().any(|kind| kind.needs_own_site());
    let earlier = if needs_own { Some(lay_out()?) } else { None };
    let place = |kind: &Kind| earlier.as_ref().filter(|_| kind.needs_own_site()).unwrap_or(&sites);
    let each =
        |kind: &Kind| place(kind).iter().map(|(asked, site)| (*kind, *asked, site)).collect();
    let each: Vec<_> = contenders.iter().flat_map::<Vec<_>, _>(each).collect();
    let mut asked = in_turns(&each, plan)?.into_iter();
    let mut rows = Vec::new();
    for kind in contenders {
        let (few, many) = (asked.next().unwrap_or_default(), asked.next().unwrap_or_default());
        let rounds = few.turns.into_iter().zip(many.turns).collect();
        rows.push(Growth { kind, first: many.first, rounds });
    }
    Ok(table::of_growth(&scenario.heading(), &rows))
}

/// The turns of one server.
#[derive(Default)]
struct Course {
    /// The first second, if nothing was requested twice in it.
    first: Option<Turn>,
    turns: Vec<Turn>,
}

/// All servers run at the same time. Each is loaded in its turn, round after round.
fn in_turns(each: &[(Kind, Asked, &Site)], plan: &Plan) -> Result<Vec<Course>> {
    // The client inherits the limit, and has thousands of connections in some scenarios.
    let _ = evenkeel_sys::process::raise_descriptor_limit();
    let needs_backend = |(kind, asked, _): &(Kind, Asked, &Site)| kind.needs_backend(asked);
    let backend = match each.iter().any(needs_backend) {
        true => Some(Backend::start(&[CLIENT_CORE]).map_err(|it| format!("the backend: {it}"))?),
        false => None,
    };
    let backend = backend.as_ref().map(|backend| backend.address);
    let start = |(kind, asked, site): &(Kind, Asked, &Site)| kind.start(site, asked, backend);
    let servers: Vec<Server> = each.iter().map(start).collect::<Result<_>>()?;
    let mut courses = Vec::with_capacity(servers.len());
    for (server, (_, asked, _)) in servers.iter().zip(each) {
        courses.push(Course { first: asked.warm(server)?, turns: Vec::new() });
    }
    for round in 1..=plan.rounds {
        for ((server, (_, asked, _)), course) in servers.iter().zip(each).zip(&mut courses) {
            let turn = asked.ask(server, plan.seconds)?;
            let name = asked.spread.map_or(server.name.clone(), |it| it.label(&server.name));
            let (cpu, rate) = (turn.cpu_us, turn.rate);
            let _ = writeln!(std::io::stderr(), "round {round} {name}: {cpu:.2} us, {rate:.0}/s");
            course.turns.push(turn);
        }
    }
    Ok(courses)
}

/// Measures one contender after the other.
fn one_by_one<T>(
    scenario: &Scenario,
    plan: &Plan,
    look: impl Fn(Kind) -> Result<T>,
) -> Result<Vec<(Kind, T)>> {
    let contenders = plan.contenders(scenario.beside).into_iter();
    contenders.map(|kind| Ok((kind, look(kind)?))).collect()
}

/// Measures one server at a time, with one host and with all of them.
fn hosts(scenario: &Scenario, count: usize, plan: &Plan, site: &Site) -> Result<String> {
    site.add_hosts(count)?;
    let rows = one_by_one(scenario, plan, |kind| memory::of_hosts(kind, site, count))?;
    Ok(table::of_hosts(&scenario.heading(), &rows))
}

/// One server at a time holds the connections, so that the kernel's memory is for that server only.
fn held(scenario: &Scenario, plan: &Plan, site: &Site) -> Result<String> {
    let rows = one_by_one(scenario, plan, |kind| {
        idle::hold(&kind.start(site, &PLAIN, None)?, PLAIN.path, plan.idle)
    })?;
    Ok(table::of_idle(&scenario.heading(), plan.idle, &rows))
}

/// Counts the system calls of requests on kept connections, and of connections of one request.
fn count(scenario: &Scenario, plan: &Plan, site: &Site) -> Result<String> {
    let rows = one_by_one(scenario, plan, |kind| {
        let server = kind.start(site, &PLAIN, None)?;
        PLAIN.ask(&server, 1)?;
        let kept = traced(&server, &PLAIN, site)?;
        Ok((kept, traced(&server, &Asked { close: true, ..PLAIN }, site)?))
    })?;
    Ok(table::of_calls(&scenario.heading(), &rows))
}

fn traced(server: &Server, asked: &Asked, site: &Site) -> Result<Calls> {
    let load = || asked.ask(server, 1).map(|turn| turn.requests);
    calls::count(server.family, &site.path().join("logs"), load)
}
