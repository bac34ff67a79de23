//! Writes every response of a run as a line of comma-separated values, ordered by their ends. Times
//! are in seconds; `start` and `intended` count from the beginning of the run.

use crate::load::{Exchange, Figures};
use std::fmt::Write as _;

const HEADING: &str = "\
start,intended,response,service,connect,wait,status,body_bytes,client,reused,handshake
";

/// The lines.
pub(super) fn report(figures: &Figures) -> String {
    let mut text = String::with_capacity(HEADING.len() + figures.exchanges.len() * 80);
    text.push_str(HEADING);
    for exchange in &figures.exchanges {
        // Writing to a string cannot fail.
        let _whole = line(&mut text, exchange);
    }
    text
}

fn line(text: &mut String, it: &Exchange) -> std::fmt::Result {
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    writeln!(
        text,
        "{:.9},{:.9},{:.9},{:.9},{:.9},{:.9},{},{},{},{},{:.9}",
        seconds(0, it.start_ns),
        seconds(0, it.intended_ns),
        seconds(it.intended_ns, it.end_ns),
        seconds(it.start_ns, it.end_ns),
        seconds(it.start_ns, it.connected_ns),
        seconds(it.sent_ns, it.first_ns),
        it.status,
        it.body_bytes,
        it.client,
        u8::from(it.reused),
        seconds(0, it.handshake_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_line() {
        let exchange = Exchange {
            client: 3,
            intended_ns: 1_000_000_000,
            start_ns: 1_500_000_000,
            connected_ns: 1_600_000_000,
            sent_ns: 1_600_000_000,
            handshake_ns: 20_000_000,
            first_ns: 1_900_000_000,
            end_ns: 2_000_000_000,
            status: 200,
            body_bytes: 5,
            ..Exchange::default()
        };
        let figures = Figures { exchanges: vec![exchange], ..Figures::default() };
        let wanted = "1.500000000,1.000000000,1.000000000,0.500000000,0.100000000,0.300000000,\
                      200,5,3,0,0.020000000";
        assert_eq!(report(&figures).lines().nth(1), Some(wanted));
    }
}
