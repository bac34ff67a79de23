//! The sentences about a limit and its readings. Every number in them is one of the readings; if it
//! is unknown, the sentence says so.

use crate::pool::{Pool, Split};
use evenkeel_pool::{Account, Constraint, Cost, Figure, Limit, cores_left};
use std::fmt::Write;

/// The word for an unknown number.
pub(crate) const UNKNOWN: &str = "unknown";
/// The reason why nothing is known.
pub(crate) const UNKNOWN_WHY: &str = "unknown: no account of the last seconds was kept (a server \
                                      in its first seconds, or one process under -X, keeps none).";
pub(crate) const UNKNOWN_REMEDY: &str = "Look again in a few seconds.";

/// Why a limit binds.
pub(crate) fn why(limit: Limit, account: &Account) -> String {
    let text = match limit {
        Limit::None => none(account),
        Limit::Cpu => cpu(account),
        Limit::Wait => wait(account),
        Limit::Workers => format!(
            "{} of {} workers are at work and {} requests wait for one.",
            busy(account),
            number(account.value(Figure::Workers)),
            standing(account)
        ),
        Limit::Application => format!(
            "{} of {} workers are at work and {} requests wait for one, but more at a time brought \
             no more answers: what they wait for is at its limit.",
            busy(account),
            number(account.value(Figure::Workers)),
            standing(account)
        ),
        Limit::Disk => format!(
            "all {} threads for work that blocks are held and {} pieces of such work stand in \
             line; disks are what they usually wait for.",
            number(account.value(Figure::BlockingThreads)),
            number(account.rate(Figure::QueueUs).map(|rate| rate / 1e6))
        ),
        Limit::Clients => format!(
            "{} responses wait until their clients have read what was sent, {} workers are at \
             work: the clients' bandwidth, or clients that read slowly.",
            number(account.value(Figure::WritingMilli).map(|milli| milli / 1000.0)),
            busy(account)
        ),
        Limit::Network => format!(
            "a network interface sends at {} of its speed.",
            percent(account.value(Figure::NetworkMilli).map(|milli| milli / 1000.0))
        ),
        Limit::Memory if account.of(Figure::Constraint) == Some(Constraint::Memory as u64) => {
            format!(
                "{} of {} workers are at work and {} requests wait for one; memory is left for no more \
             of them ({} of {} MiB are free).",
                busy(account),
                number(account.value(Figure::Workers)),
                standing(account),
                number(account.value(Figure::MemoryFree).map(mebibytes)),
                number(account.value(Figure::MemoryLimit).map(mebibytes))
            )
        }
        Limit::Memory => format!(
            "{} of {} MiB of memory are left; processes waited for memory in {} of the last 10 \
             seconds.",
            number(account.value(Figure::MemoryFree).map(mebibytes)),
            number(account.value(Figure::MemoryLimit).map(mebibytes)),
            percent(account.value(Figure::MemoryPressure).map(|hundredths| hundredths / 1e4))
        ),
        Limit::Descriptors => format!(
            "{} connections are open and the children may have {} descriptors for them.",
            number(account.value(Figure::Connections)),
            number(account.value(Figure::Descriptors))
        ),
        Limit::Backlog => format!(
            "the kernel's queue of connections that wait to be accepted was full {} times a \
             second: whom it refuses tries again a second later. {} workers are at work.",
            number(account.rate(Figure::Refused)),
            busy(account)
        ),
    };
    format!("{}: {text}", limit.name())
}

/// What would move a limit.
pub(crate) const fn remedy(limit: Limit) -> &'static str {
    match limit {
        Limit::None => "Nothing needs to be moved.",
        Limit::Cpu => {
            "More cores, a higher CPU quota of the cgroup, or less CPU time a request; more \
             workers would not help."
        }
        Limit::Wait => {
            "Nothing in the server: a request takes as long as what it waits for. More clients at \
             the same time are served as well."
        }
        Limit::Workers => "MaxRequestWorkers (with ServerLimit and ThreadsPerChild), or auto.",
        Limit::Application => {
            "The application or database behind the server: its workers, its connections, its \
             queries."
        }
        Limit::Disk => "Faster disks, or memory enough that the files stay in the page cache.",
        Limit::Clients => {
            "Smaller or compressed responses (mod_deflate); RequestReadTimeout and Timeout bound \
             how long a slow client is waited for."
        }
        Limit::Network => "A faster network, or smaller or compressed responses (mod_deflate).",
        Limit::Memory => "More memory or a higher limit of the cgroup; else fewer workers.",
        Limit::Descriptors => {
            "The limit of open files (ulimit -n, LimitNOFILE), or KeepAliveTimeout."
        }
        Limit::Backlog => "ListenBacklog and net.core.somaxconn, or more children that accept.",
    }
}

/// All sentences, one in each line.
pub(crate) fn lines(pool: &Pool) -> Vec<String> {
    let mut lines = vec![format!("Limit: {}", pool.why)];
    let maximum = match pool.maximum_rps {
        Some(most) => format!("at most about {} as it stands", number(Some(most))),
        None => "the maximum is unknown (too few requests, or no figure for this limit)".to_owned(),
    };
    lines.push(format!("Now: {} requests a second; {maximum}.", number(pool.rps)));
    if let Some(next) = &pool.next {
        let which = if pool.limit == "none" { "The first limit would be" } else { "Behind it" };
        let rps = number(Some(next.rps));
        lines.push(format!("{which}: {}, at about {rps} requests a second.", next.limit));
    }
    lines.push(format!("What would move it: {}", pool.remedy));
    if let Some(split) = &pool.request_us {
        lines.push(request(split));
    }
    lines.push(machine(&pool.now));
    lines
}

fn request(split: &Split) -> String {
    let parts = [
        ("CPU", split.cpu),
        ("waiting for a core", split.run_queue),
        ("in line for a thread", split.line),
        ("blocked, as by disks", split.blocking),
        ("waiting for its client", split.clients),
        ("waiting for the rest, as applications", split.rest),
    ];
    let mut text = format!(
        "A request takes {} from its head to its end; divided among the requests were:",
        time(Some(split.total))
    );
    for (at, (what, part)) in parts.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma} {} {what}", time(part));
    }
    text.push('.');
    text
}

fn machine(account: &Account) -> String {
    format!(
        "Cores: {} for the server, of which it uses {} and others {}; memory free: {} MiB; \
         children: {} serving, {} parked.",
        number(account.value(Figure::CoresMilli).map(|milli| milli / 1000.0)),
        number(cores_used(account, Figure::CpuUs)),
        number(cores_used(account, Figure::OthersUs)),
        number(account.value(Figure::MemoryFree).map(mebibytes)),
        number(account.value(Figure::Active)),
        number(account.value(Figure::Parked))
    )
}

fn none(account: &Account) -> String {
    format!(
        "{} of {} workers are at work and the server uses {} of its CPU.",
        busy(account),
        number(account.value(Figure::Workers)),
        percent(share_of_cpu(account))
    )
}

fn cpu(account: &Account) -> String {
    let mut text = format!(
        "the server uses {} of {} cores",
        number(cores_used(account, Figure::CpuUs)),
        number(account.value(Figure::CoresMilli).map(|milli| milli / 1000.0))
    );
    if cores_used(account, Figure::OthersUs).is_some_and(|others| others >= 0.2) {
        let others = number(cores_used(account, Figure::OthersUs));
        let left = number(cores_left(account));
        let _ = write!(text, ", other processes {others}, which leaves it {left}");
    }
    if account.of(Figure::ThrottledUs).is_some_and(|held| held > 0) {
        let held = account.rate(Figure::ThrottledUs).map(|rate| rate / 1e6);
        let _ = write!(text, "; its quota held it back in {} of the time", percent(held));
    }
    if let Some(cost) = Cost::of(account) {
        let _ = write!(text, "; a request takes {} of CPU", time(Some(cost.cpu)));
    }
    text.push('.');
    text
}

fn wait(account: &Account) -> String {
    let share = Cost::of(account).map(|cost| cost.wait / (cost.cpu + cost.queued + cost.wait));
    format!(
        "requests spend {} of their time waiting for something outside, with {} of {} workers at \
         work and none in line.",
        percent(share),
        busy(account),
        number(account.value(Figure::Workers))
    )
}

fn busy(account: &Account) -> String {
    number(account.value(Figure::BusyMilli).map(|milli| milli / 1000.0))
}

fn standing(account: &Account) -> String {
    let queue = account.value(Figure::Queue);
    let runnable = account.value(Figure::RunnableMilli).map(|milli| milli / 1000.0);
    number(queue.zip(runnable).map(|(queue, runnable)| queue + runnable))
}

fn cores_used(account: &Account, figure: Figure) -> Option<f64> {
    account.rate(figure).map(|rate| rate / 1e6)
}

fn share_of_cpu(account: &Account) -> Option<f64> {
    let cores = account.value(Figure::CoresMilli).filter(|cores| *cores > 0.0)?;
    Some(cores_used(account, Figure::CpuUs)? / cores * 1000.0)
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}

/// A number: whole if it is whole or large, otherwise with three significant digits.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if value.fract() == 0.0 || value >= 99.95 => format!("{value:.0}"),
        Some(value) if value >= 9.995 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| number(Some(share * 100.0)) + " %")
}

/// Microseconds, in the unit that is easiest to read.
fn time(us: Option<f64>) -> String {
    match us {
        None => UNKNOWN.to_owned(),
        Some(us) if us >= 1e6 => number(Some(us / 1e6)) + " s",
        Some(us) if us >= 1e3 => number(Some(us / 1e3)) + " ms",
        Some(us) => number(Some(us)) + " us",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::second;

    #[test]
    fn a_busy_server_is_explained() {
        let moments: Vec<_> = (1..=10).map(second).collect();
        let told = lines(&Pool::new(&moments, 10_500_000));
        assert_eq!(
            told.join("\n"),
            "Limit: cpu: the server uses 1.96 of 2 cores; a request takes 20 ms of CPU.\n\
             Now: 98 requests a second; at most about 100 as it stands.\n\
             Behind it: workers, at about 13415 requests a second.\n\
             What would move it: More cores, a higher CPU quota of the cgroup, or less CPU time a \
             request; more workers would not help.\n\
             A request takes 50 ms from its head to its end; divided among the requests were: \
             20 ms CPU, 1 ms waiting for a core, 10 ms in line for a thread, 20.4 us blocked, as \
             by disks, 1 ms waiting for its client, 18.0 ms waiting for the rest, as \
             applications.\n\
             Cores: 2 for the server, of which it uses 1.96 and others 0; memory free: unknown \
             MiB; children: 2 serving, 0 parked."
        );
    }

    #[test]
    fn every_limit_has_words_and_none_makes_numbers_up() {
        for limit in Limit::ALL {
            let told = why(limit, &Account::default());
            assert!(told.starts_with(&format!("{}: ", limit.name())), "{told}");
            assert!(told.contains(UNKNOWN), "{told}");
            assert!(!remedy(limit).is_empty());
        }
        assert!(lines(&Pool::default())[0].starts_with("Limit: unknown: "));
    }

    #[test]
    fn numbers_keep_three_digits() {
        let all = [0.0, 0.034, 9.99, 9.999, 99.9, 99.99, 12345.6, 7.0];
        let told: Vec<_> = all.iter().map(|value| number(Some(*value))).collect();
        assert_eq!(told, ["0", "0.03", "9.99", "10.0", "99.9", "100", "12346", "7"]);
        assert_eq!((time(Some(250.0)), time(Some(2.5e6))), ("250 us".into(), "2.50 s".into()));
    }
}
