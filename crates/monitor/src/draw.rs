//! The graphical part of the page for people: the scoreboard as coloured cells, supply, demand and
//! queue of the last hour as a plot, and the limit that binds in words. It is complete without
//! scripts and loads nothing from elsewhere. If scripts may run, one requests `?json` from the same
//! page and updates it. It contains nothing that a client chose.

use crate::pool::Pool;
use crate::snapshot::Snapshot;
use crate::words;
use evenkeel_pool::{Account, Figure};
use std::fmt::{Result, Write};

/// The size of the plot, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 8.0;

/// The seconds that it shows.
const SECONDS: u64 = 3600;

/// The steps of the plot. A step shows the largest value of ten seconds.
const STEPS: usize = 360;

/// The curves: the figure, its name in JSON, its colour.
const CURVES: [(Figure, &str, &str); 3] = [
    (Figure::Supply, "supply", "#2a7f3f"),
    (Figure::Demand, "demand", "#1f5fbf"),
    (Figure::Queue, "queue", "#c02020"),
];

/// The cells in a row of the drawn scoreboard, the size of a cell, and the most rows.
const ROW: usize = 128;
const CELL: usize = 6;
const ROWS: usize = 64;

/// Writes this part. `moves` is false if the browser was told to load the page again.
pub(crate) fn write(snapshot: &Snapshot, pool: &Pool, moves: bool, page: &mut String) -> Result {
    page.write_str("<div id=\"evenkeel\">\n<h2>What limits this server</h2>\n")?;
    page.write_str("<ul id=\"ek-words\">\n")?;
    for line in words::lines(pool) {
        writeln!(page, "<li>{}</li>", line.replace('&', "&amp;").replace('<', "&lt;"))?;
    }
    page.write_str("</ul>\n")?;
    write_cells(&snapshot.slot_letters(), page)?;
    write_plot(pool, snapshot.now_us, page)?;
    if moves {
        writeln!(page, "<script>\n{SCRIPT}</script>")?;
    }
    page.write_str("</div>\n")
}

/// The scoreboard as cells. Neighbouring cells of one colour are one rectangle.
fn write_cells(letters: &str, page: &mut String) -> Result {
    let letters: Vec<char> = letters.chars().take(ROW * ROWS).collect();
    let rows = letters.len().div_ceil(ROW).max(1);
    write!(
        page,
        "<p><svg id=\"ek-cells\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         aria-label=\"scoreboard\" width=\"{}\" height=\"{}\">",
        ROW * CELL,
        rows * CELL
    )?;
    for (row, cells) in letters.chunks(ROW).enumerate() {
        let mut at = 0;
        for run in cells.chunk_by(|one, other| one == other) {
            let fill = colour(run.first().copied().unwrap_or('.'));
            write!(
                page,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"/>",
                at * CELL,
                row * CELL,
                run.len() * CELL,
                CELL - 1
            )?;
            at += run.len();
        }
    }
    page.write_str("</svg></p>\n")
}

/// The colour of a state with that letter.
const fn colour(letter: char) -> &'static str {
    match letter {
        'W' => "#1f5fbf",
        'R' => "#58a0e8",
        'K' => "#8fbf6f",
        'C' | 'L' | 'D' => "#b080d0",
        'G' | 'I' => "#d08030",
        'S' => "#e0c040",
        '_' => "#d4dcd4",
        _ => "#f2f2f2",
    }
}

fn write_plot(pool: &Pool, now_us: u64, page: &mut String) -> Result {
    let curves = CURVES.map(|(figure, ..)| steps(&pool.history, figure, now_us));
    let most = curves.iter().flatten().filter_map(|step| *step).max().unwrap_or(0).max(1);
    writeln!(
        page,
        "<p><svg id=\"ek-plot\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         aria-label=\"supply, demand and queue of the last hour\" width=\"{0}\" height=\"{1}\" \
         viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\">",
        WIDTH + 8.0,
        HEIGHT + 26.0
    )?;
    write_axes(most, page)?;
    for ((_, name, colour), curve) in CURVES.iter().zip(&curves) {
        writeln!(
            page,
            "<path id=\"ek-{name}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" \
             d=\"{}\"/>",
            path(curve, most)
        )?;
    }
    page.write_str("</svg><br />\n")?;
    for (at, (_, name, colour)) in CURVES.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        write!(page, "{comma}<font color=\"{colour}\">{name}</font>")?;
    }
    page.write_str(
        " in workers over the last hour (the largest of each ten seconds; the scale is \
         logarithmic)</p>\n",
    )
}

/// Lines at 0, 1, 10, 100 and so on, and every ten minutes.
fn write_axes(most: u64, page: &mut String) -> Result {
    page.write_str("<g id=\"ek-axes\" stroke=\"#dddddd\" fill=\"#555555\">")?;
    let tens = std::iter::successors(Some(1_u64), |ten| ten.checked_mul(10));
    for value in std::iter::once(0).chain(tens.take_while(|ten| *ten <= most)) {
        let y = height(value, most);
        write!(
            page,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" stroke=\"none\">{value}</text>",
            LEFT - 4.0,
            y + 4.0
        )?;
    }
    for minutes in (0..=60).step_by(10) {
        let x = WIDTH - (WIDTH - LEFT) * f64::from(minutes) / 60.0;
        let text = if minutes == 0 { "now".to_owned() } else { format!("-{minutes} min") };
        write!(
            page,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{HEIGHT}\"/>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\" stroke=\"none\">{text}</text>",
            HEIGHT + 16.0
        )?;
    }
    page.write_str("</g>\n")
}

/// The largest value of each step; none if nothing was read.
fn steps(history: &[(u64, Account)], figure: Figure, now_us: u64) -> Vec<Option<u64>> {
    let mut steps = vec![None; STEPS];
    let step_s = SECONDS as usize / STEPS;
    for (when_us, account) in history {
        let age_s = (now_us.saturating_sub(*when_us) / 1_000_000) as usize;
        let Some(at) = (STEPS - 1).checked_sub(age_s / step_s) else { continue };
        if let Some(step) = steps.get_mut(at) {
            *step = (*step).max(account.of(figure));
        }
    }
    steps
}

fn height(value: u64, most: u64) -> f64 {
    let share = (1.0 + value as f64).ln() / (1.0 + most as f64).ln();
    HEIGHT - (HEIGHT - TOP) * share
}

/// A curve with gaps where nothing was read.
fn path(curve: &[Option<u64>], most: u64) -> String {
    let mut path = String::new();
    let mut is_down = false;
    let wide = (WIDTH - LEFT) / (STEPS - 1) as f64;
    for (at, value) in curve.iter().enumerate() {
        let Some(value) = value else {
            is_down = false;
            continue;
        };
        let command = if is_down { 'L' } else { 'M' };
        let (x, y) = (LEFT + wide * at as f64, height(*value, most));
        // Writing to a string cannot fail. A single point is drawn as a short stroke.
        let _ = write!(path, "{command}{x:.1} {y:.1}");
        if !is_down {
            let _ = write!(path, "h.1");
        }
        is_down = true;
    }
    path
}

/// The script that updates the page. It requests the page's own address and draws as the functions
/// above do.
const SCRIPT: &str = include_str!("live.js");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::second;
    use crate::snapshot::tests::sample;

    fn drawn(moves: bool) -> String {
        let moments: Vec<_> = (1..=100).map(second).collect();
        let pool = Pool::new(&moments, 100_500_000);
        let snapshot = Snapshot { now_us: 100_500_000, ..sample() };
        let mut page = String::new();
        write(&snapshot, &pool, moves, &mut page).unwrap();
        page
    }

    #[test]
    fn the_hour_is_drawn_and_the_letters_are() {
        let page = drawn(false);
        assert!(page.contains("<li>Limit: cpu: "), "{page}");
        let supply = page.split("id=\"ek-supply\"").nth(1).unwrap();
        let path = supply.split("d=\"").nth(1).unwrap().split('"').next().unwrap();
        // A hundred seconds are at most eleven steps, the newest at the right edge.
        assert!((10..=11).contains(&path.matches(['M', 'L']).count()), "{path}");
        assert_eq!(path.matches('M').count(), 1);
        assert!(path.contains("720.0 8.0"), "{path}");
        // W, two of _, G, four open ones.
        let cells = page.split("id=\"ek-cells\"").nth(1).unwrap().split("</svg>").next().unwrap();
        assert_eq!(cells.matches("<rect").count(), 4);
        assert!(page.is_ascii() && !page.contains("<script"));
    }

    #[test]
    fn a_gap_breaks_the_curve() {
        assert_eq!(path(&[None, Some(0), None, Some(1)], 1).matches('M').count(), 2);
        assert_eq!(path(&[None; 3], 1), "");
        assert!((height(0, 9) - HEIGHT).abs() < 1e-9 && (height(9, 9) - TOP).abs() < 1e-9);
    }

    #[test]
    fn the_script_asks_nobody_else() {
        let page = drawn(true);
        let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
        assert!(script.contains("location.pathname + \"?json&pool&last=\""));
        assert!(script.contains("if (document.hidden)"));
        assert!(!script.contains("//") && script.is_ascii());
        for elsewhere in ["src=", "@import", "url(", "https:"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }
}
