//! `--sweep`: runs the same load for each number of clients and each pause. It prints a line for
//! each pair, and a table and a page at the end.

use super::options::Options;
use super::prepare::Prepared;
use super::{Complaint, Desk};
use crate::load::{Same, Source};
use crate::numbers::{rate, time};
use crate::results::About;
use crate::sweep::{self, Cell, Grid};
use evenkeel_sys::signal::{Signal, Signals};
use std::sync::Arc;

/// Runs the sweep. The exit status is 1 if no pair was answered.
pub(super) fn sweep(
    options: &Options,
    grid: &Grid,
    prepared: &Prepared,
    words: &[String],
    desk: &mut Desk<'_>,
) -> Result<i32, Complaint> {
    let signals = Signals::catch(&[Signal::Interrupt, Signal::Terminate])
        .map_err(|error| Complaint::plain(format!("the system: {error}")))?;
    let about = About::now("bench", &options.url.to_string(), words).with("seed", options.seed);
    let save = options.save.as_deref().map(|folder| (folder, &about));
    let request = Arc::clone(&prepared.request);
    let mut source = move |_| -> Box<dyn Source> { Box::new(Same(Arc::clone(&request))) };
    let mut each = |cell: &Cell| {
        let Cell { clients, think, figures } = cell;
        let (pace, p99) = (rate(figures.rate()), figures.times.response.value_at_quantile(0.99));
        // It is not an error if the reader is gone, here and below.
        let _gone = writeln!(
            desk.err,
            "{clients:>7} clients, pause {}: {pace} a second, 99 % within {}",
            sweep::pause(think),
            time(p99 as f64)
        );
    };
    let mut is_over = || signals.next().is_some();
    let swept = sweep::run(grid, &prepared.plan, &mut source, save, &mut is_over, &mut each);
    let swept = swept.map_err(Complaint::plain)?;
    let pairs = grid.clients.len() * grid.thinks.len();
    let cut = if swept.cells.len() < pairs {
        "Interrupted: these are the pairs until then.\n\n"
    } else {
        ""
    };
    let _gone = write!(desk.out, "{}\n\n{cut}{}", options.url, swept.text());
    if let Some(path) = &options.html {
        let origin = format!("evenkeel bench {}", words_of(&about));
        std::fs::write(path, swept.html(&options.url.to_string(), &origin))
            .map_err(|error| Complaint::plain(format!("{}: {error}", path.display())))?;
    }
    Ok(i32::from(swept.cells.iter().all(|cell| cell.figures.answered() == 0)))
}

/// The command line, without secrets.
fn words_of(about: &About) -> String {
    about.words.join(" ")
}
