//! Writes the results as tables in Markdown, with medians, spreads and ratios.

use crate::contender::Kind;
use crate::idle::Held;
use crate::load::Turn;
use crate::memory::{RELOADS, Taken};
use crate::plan::Plan;
use evenkeel_lab::calls::Calls;
use std::fmt::Write as _;

/// The head of the page: how it was made, and on which machine.
pub fn heading(plan: &Plan, arguments: &[String]) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "# Benchmarks beside the peers\n\n\
         Made by `bench/run {}` on {cores} cores, Linux {}. The contenders took turns, {} rounds \
         of {} s each after a second of warming (where much is asked for in turn: until all was \
         asked for eight times); the figures are medians. Servers had one core to themselves and \
         the client the other. `CPU` is user and system time of all the server's \
         processes, in microseconds a request: a slow client does not distort it. All but the \
         ceiling serve files from disk with the access log on and sections or locations for \
         folders; Evenkeel and apache2 have Debian's stock configuration, all its modules \
         enabled, and the client (wrk, or h2load for HTTP/2) sends a browser's fields (where a \
         scenario's name ends in \
         `-bare`: a short configuration with ExtendedStatus, and next to no fields). \
         `ceiling` is a bare epoll loop with httparse and a fixed answer in memory; `nginx-ofc` \
         has open_file_cache, deferred accept and a buffered log. Compare ratios, not absolute \
         figures: they hold on any machine, microseconds only on this one.\n",
        arguments.join(" "),
        kernel.trim(),
        plan.rounds,
        plan.seconds,
    )
}

/// The table of a scenario with continuous load.
pub fn of_load(heading: &str, rows: &[(Kind, Vec<Turn>)]) -> String {
    let cpu = |turns: &[Turn]| median(turns.iter().map(|turn| turn.cpu_us));
    let of =
        |wanted: Kind| rows.iter().find(|(kind, _)| *kind == wanted).map(|(_, turns)| cpu(turns));
    let (own, ceiling) = (of(Kind::EVENKEEL), of(Kind::Ceiling));
    let mut text = format!(
        "## {heading}\n\n\
         | server | CPU | least to most | x ceiling | x Evenkeel | requests/s | client busy \
         | errors |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    for (kind, turns) in rows {
        let each = cpu(turns);
        let least = turns.iter().map(|turn| turn.cpu_us).fold(f64::INFINITY, f64::min);
        let most = turns.iter().map(|turn| turn.cpu_us).fold(0.0, f64::max);
        let rate = median(turns.iter().map(|turn| turn.rate));
        let client = median(turns.iter().map(|turn| turn.client)) * 100.0;
        let errors: u64 = turns.iter().map(|turn| turn.errors).sum();
        let _ = writeln!(
            text,
            "| {} | {each:.2} | {least:.2} to {most:.2} | {} | {} | {rate:.0} | {client:.0} % | \
             {errors} |",
            kind.name(),
            ratio(each, ceiling),
            ratio(each, own),
        );
    }
    text
}

/// The cost of a request for few things in turn, and for many.
pub struct Growth {
    pub kind: Kind,
    /// The first second with many things, if nothing was requested twice in it.
    pub first: Option<Turn>,
    pub rounds: Vec<(Turn, Turn)>,
}

/// The table of these.
pub fn of_growth(heading: &str, rows: &[Growth]) -> String {
    let of = |rounds: &[(Turn, Turn)], figure: fn(&(Turn, Turn)) -> f64| {
        median(rounds.iter().map(figure))
    };
    let mut text = format!(
        "## {heading}\n\n\
         In each round a server is asked for little and then one for much; `growth` is the ratio \
         of the two, the median of the rounds, after all was asked for eight times. `first` is the \
         same of the first second, in which all is asked for the first time; a server that gets \
         through all within it has none. The ceiling answers the same from memory whatever is \
         asked: its growth is the client's and the machine's.\n\n\
         | server | CPU, few | CPU, many | growth | least to most | CPU, first | requests/s, few \
         | many | client busy | errors |\n\
         |---|---|---|---|---|---|---|---|---|---|\n"
    );
    for Growth { kind, first, rounds } in rows {
        let ratio = |(few, many): &(Turn, Turn)| many.cpu_us / few.cpu_us;
        let least = rounds.iter().map(ratio).fold(f64::INFINITY, f64::min);
        let most = rounds.iter().map(ratio).fold(0.0, f64::max);
        let errors: u64 = rounds.iter().map(|(few, many)| few.errors + many.errors).sum();
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {least:.2} to {most:.2} | {} | {:.0} | {:.0} \
             | {:.0} % | {errors} |",
            kind.name(),
            of(rounds, |(few, _)| few.cpu_us),
            of(rounds, |(_, many)| many.cpu_us),
            median(rounds.iter().map(ratio)),
            first.map_or("-".to_owned(), |first| format!("{:.2}", first.cpu_us)),
            of(rounds, |(few, _)| few.rate),
            of(rounds, |(_, many)| many.rate),
            of(rounds, |(_, many)| many.client * 100.0),
        );
    }
    text
}

/// The table of the memory of virtual hosts and of reloads.
pub fn of_hosts(heading: &str, rows: &[(Kind, Taken)]) -> String {
    let columns: String = RELOADS.iter().map(|count| format!(" after {count} |")).collect();
    let mut text = format!(
        "## {heading}\n\n\
         Anonymous and shared memory of all the server's processes, in MB, on all cores: with one \
         host, and with all after so many reloads. `a host` is how much each of the others adds, \
         in bytes, before a reload and after the last.\n\n\
         | server | one host |{columns} a host | in the end |\n|---|---|{}---|---|\n",
        "---|".repeat(RELOADS.len()),
    );
    for (kind, taken) in rows {
        let each = taken.each();
        let mb = |bytes: &u64| format!(" {:.1} |", *bytes as f64 / 1e6);
        let _ = writeln!(
            text,
            "| {} |{}{} {:.0} | {:.0} |",
            kind.name(),
            mb(&taken.one),
            taken.all.iter().map(mb).collect::<String>(),
            each.first().copied().unwrap_or_default(),
            each.last().copied().unwrap_or_default(),
        );
    }
    text
}

/// The table of idle connections.
pub fn of_idle(heading: &str, asked: usize, rows: &[(Kind, Held)]) -> String {
    let mut text = format!(
        "## {heading}\n\n\
         {asked} connections were opened, one request answered on each. User bytes are anonymous \
         and shared memory of the server's processes, the kernel's are its slabs for both ends.\n\n\
         | server | held | user bytes each | kernel bytes each |\n|---|---|---|---|\n"
    );
    for (kind, held) in rows {
        let Held { open, user_bytes, kernel_bytes } = held;
        let _ =
            writeln!(text, "| {} | {open} | {user_bytes:.0} | {kernel_bytes:.0} |", kind.name());
    }
    text
}

/// The table of system calls, on kept connections and on connections of one request.
pub fn of_calls(heading: &str, rows: &[(Kind, (Calls, Calls))]) -> String {
    let mut text = format!(
        "## {heading}\n\n\
         Counted by `strace -c -f` over about a second of 64 connections; strace slows the server, \
         so fewer requests share a wait.\n\n\
         | server | requests | calls each | failed | opens | by name |\n|---|---|---|---|---|---|\n"
    );
    for (kind, (kept, short)) in rows {
        for (calls, how) in [(kept, "kept"), (short, "one request a connection")] {
            let _ = writeln!(
                text,
                "| {}, {how} | {} | {:.2} | {:.2} | {:.2} | {} |",
                kind.name(),
                calls.requests,
                calls.each(),
                calls.failed(),
                calls.each_of("open"),
                calls.told(),
            );
        }
    }
    text
}

fn ratio(each: f64, base: Option<f64>) -> String {
    base.map_or("-".to_owned(), |base| format!("{:.2}", each / base))
}

/// The median; 0 if there are no values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    if values.len() % 2 == 1 { at(half) } else { (at(half.saturating_sub(1)) + at(half)) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn first_looks_have_a_column_of_their_own() {
        let turn = |cpu_us| Turn { requests: 1, rate: 10.0, cpu_us, client: 0.5, errors: 0 };
        let row = |kind, first: Option<f64>| Growth {
            kind,
            first: first.map(turn),
            rounds: vec![(turn(5.0), turn(6.0))],
        };
        let rows = [row(Kind::EVENKEEL, Some(25.0)), row(Kind::Ceiling, None)];
        let text = of_growth("P15-files: a", &rows);
        let figures = "| 5.00 | 6.00 | 1.20 | 1.20 to 1.20 |";
        assert!(text.contains(&format!("| evenkeel {figures} 25.00 | 10 | 10 |")), "{text}");
        assert!(text.contains(&format!("| ceiling {figures} - | 10 | 10 |")), "{text}");
    }

    #[test]
    fn ratios_stand_beside_the_figures() {
        let turn = |cpu_us| Turn { requests: 1, rate: 10.0, cpu_us, client: 0.5, errors: 0 };
        let rows = [(Kind::EVENKEEL, vec![turn(6.0)]), (Kind::Ceiling, vec![turn(5.0)])];
        let text = of_load("P1: a", &rows);
        assert!(text.contains("| evenkeel | 6.00 | 6.00 to 6.00 | 1.20 | 1.00 |"), "{text}");
    }
}
