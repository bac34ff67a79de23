//! The live screen of a run: rate, latencies, statuses and failures of the last second and since
//! the beginning, and a strip of seconds. It also reads the keys that end the run.

use super::progress::Progress;
use crate::histogram::{Row, bar, rows};
use crate::load::{Second, Sketch};
use crate::numbers::{bytes, count, rate, share, time};
use hdrhistogram::Histogram;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Sparkline};
use ratatui::{DefaultTerminal, Frame};
use std::io;
use std::time::Duration;

/// The text at the top of the screen.
#[derive(Clone, Debug)]
pub(super) struct Title {
    pub(super) url: String,
    pub(super) asked: String,
    /// When the run ends: `30 s`, `200 requests`.
    pub(super) bound: String,
}

/// A terminal that shows a run. It is restored when this is dropped.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    title: Title,
    colours: bool,
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn open(title: Title) -> io::Result<Self> {
        // https://no-color.org: the variable counts if it is set and not empty.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Ok(Self { terminal: ratatui::try_init()?, title, colours })
    }

    /// Draws the progress.
    pub(super) fn draw(&mut self, progress: &Progress) -> io::Result<()> {
        let Self { terminal, title, colours } = self;
        terminal.draw(|frame| draw(frame, title, progress, *colours)).map(drop)
    }

    /// Waits for a key for at most `most`. Returns whether the run is to end, and whether the
    /// screen was resized.
    pub(super) fn listen(most: Duration) -> io::Result<(bool, bool)> {
        if !event::poll(most)? {
            return Ok((false, false));
        }
        Ok(match event::read()? {
            Event::Resize(..) => (false, true),
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                let end = match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => true,
                    KeyCode::Char('c') => control,
                    _ => false,
                };
                (end, false)
            }
            _ => (false, false),
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

const HEAD: u16 = 3;
const RATE: u16 = 7;
/// Strips are low if there is little room, so that statuses and failures stay visible.
const LOW_RATE: u16 = 4;
const LITTLE_HEIGHT: u16 = 28;
const LATENCY: u16 = 11;
/// Strips need this much room, and are omitted if there is less.
const WIDTH_OF_PERCENTILES: u16 = 36;

fn draw(frame: &mut Frame<'_>, title: &Title, progress: &Progress, colours: bool) {
    let ink = Ink { colours };
    let strips = if frame.area().height < LITTLE_HEIGHT { LOW_RATE } else { RATE };
    let parts = [
        Constraint::Length(HEAD),
        Constraint::Length(strips),
        Constraint::Length(LATENCY),
        Constraint::Min(3),
    ];
    let [head, strip, latency, rest] = Layout::vertical(parts).areas(frame.area());
    draw_head(frame, head, title, progress, ink);
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let [left, right] = Layout::horizontal(halves).areas(strip);
    let answered = |second: &Second| second.answered;
    draw_strip(frame, left, "Answers a second", progress, &answered, &|it| rate(it as f64), ink);
    let slow = |second: &Second| second.response.at_ns(0.99);
    draw_strip(frame, right, "99 % within", progress, &slow, &|it| time(it as f64), ink);
    let columns = [Constraint::Length(WIDTH_OF_PERCENTILES), Constraint::Min(0)];
    let [left, right] = Layout::horizontal(columns).areas(latency);
    draw_percentiles(frame, left, progress, ink);
    draw_histogram(frame, right, &progress.sum.response.histogram(), ink);
    draw_outcomes(frame, rest, progress, ink);
}

/// The colours, if they are wanted.
#[derive(Clone, Copy)]
struct Ink {
    colours: bool,
}

impl Ink {
    fn of(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn block(self, title: String) -> Block<'static> {
        let style = self.of(Color::DarkGray);
        Block::bordered().border_style(style).title(Line::styled(title, Style::reset()))
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, title: &Title, progress: &Progress, ink: Ink) {
    let sum = &progress.sum;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let ended = format!("{} s of {}   q ends it", sum.number, title.bound);
    let mean = sum.answered as f64 / f64::from(sum.number.max(1));
    let failed = if sum.failed > 0 { ink.of(Color::Red) } else { Style::new() };
    let counts = format!(
        "{} answered, {} a second, {} a second received",
        count(sum.answered),
        rate(mean),
        bytes(sum.read_bytes as f64 / f64::from(sum.number.max(1)))
    );
    let lines = vec![
        Line::styled(title.url.clone(), bold),
        Line::raw(format!("{}; {ended}", title.asked)),
        Line::from(vec![counts.into(), "  ".into()])
            + ratatui::text::Span::styled(format!("{} failed", count(sum.failed)), failed),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_strip(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    progress: &Progress,
    value: &dyn Fn(&Second) -> u64,
    shown: &dyn Fn(u64) -> String,
    ink: Ink,
) {
    let room = usize::from(area.width.saturating_sub(2));
    let from = progress.seconds.len().saturating_sub(room);
    let values: Vec<u64> = progress.seconds.iter().skip(from).map(value).collect();
    let last = values.last().copied().unwrap_or_default();
    let most = values.iter().max().copied().unwrap_or_default();
    let title = format!(" {name}: {} (most {}) ", shown(last), shown(most));
    let strip = Sparkline::default().data(values).style(ink.of(Color::Cyan));
    frame.render_widget(strip.block(ink.block(title)), area);
}

fn draw_percentiles(frame: &mut Frame<'_>, area: Rect, progress: &Progress, ink: Ink) {
    let last = progress.last().map(|second| &second.response);
    let all = &progress.sum.response;
    let mut lines = vec![Line::raw(format!("{:<8}{:>12}{:>12}", "", "last second", "so far"))];
    let at = |times: &Sketch, quantile: f64| time(times.at_ns(quantile) as f64);
    for (name, quantile) in [
        ("50 %", 0.5),
        ("75 %", 0.75),
        ("90 %", 0.9),
        ("95 %", 0.95),
        ("99 %", 0.99),
        ("99.9 %", 0.999),
        ("most", 1.0),
    ] {
        let last = last.map_or_else(String::new, |it| at(it, quantile));
        lines.push(Line::raw(format!("{name:<8}{last:>12}{:>12}", at(all, quantile))));
    }
    let last = last.map_or_else(String::new, |it| time(it.mean_ns()));
    lines.push(Line::raw(format!("{:<8}{last:>12}{:>12}", "mean", time(all.mean_ns()))));
    let block = ink.block(" Response times ".to_owned());
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_histogram(frame: &mut Frame<'_>, area: Rect, response: &Histogram<u64>, ink: Ink) {
    let all = rows(response);
    let room = usize::from(area.height.saturating_sub(2));
    let all = bulk(&all, room);
    let most = all.iter().map(|row| row.count).max().unwrap_or_default();
    let width = usize::from(area.width).saturating_sub(28);
    let line = |row: &Row| {
        let (until, number) = (time(row.most_ns as f64), count(row.count));
        let style = ink.of(Color::Green);
        Line::from(vec![
            format!("<= {until:<8}{number:>12}  ").into(),
            ratatui::text::Span::styled(bar(row.count, most, width), style),
        ])
    };
    let lines: Vec<Line<'_>> = all.iter().map(line).collect();
    let block = ink.block(" How many took how long ".to_owned());
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// As many adjacent rows as fit. Rows with fewer responses are dropped at either end.
fn bulk(mut rows: &[Row], room: usize) -> &[Row] {
    while let [first, between @ .., last] = rows
        && rows.len() > room
    {
        rows = match first.count < last.count {
            true => rows.get(1..).unwrap_or_default(),
            false => rows.get(..between.len() + 1).unwrap_or_default(),
        };
    }
    rows
}

fn draw_outcomes(frame: &mut Frame<'_>, area: Rect, progress: &Progress, ink: Ink) {
    let sum = &progress.sum;
    let all = sum.answered + sum.failed;
    let row = |name: String, number: u64, last: u64, style: Style| {
        let text =
            format!("{name:<20}{:>14}{:>9}{:>14}", count(number), share(number, all), count(last));
        Line::styled(text, style)
    };
    let heading = format!("{:<20}{:>14}{:>9}{:>14}", "", "so far", "", "last second");
    let mut lines = vec![Line::raw(heading)];
    let last =
        |find: &dyn Fn(&Second) -> Option<u64>| progress.last().and_then(find).unwrap_or_default();
    for (status, number) in &sum.statuses {
        let style = match status {
            200..300 => ink.of(Color::Green),
            400.. => ink.of(Color::Yellow),
            _ => Style::new(),
        };
        let now = last(&|second| second.statuses.get(status).copied());
        lines.push(row(format!("status {status}"), *number, now, style));
    }
    for (failure, number) in &sum.failures {
        let now = last(&|second| second.failures.get(failure).copied());
        lines.push(row(failure.name().to_owned(), *number, now, ink.of(Color::Red)));
    }
    if sum.waiting > 0 {
        lines.push(Line::raw(format!("{} arrivals wait for a free client", count(sum.waiting))));
    }
    let block = ink.block(" Statuses and failures ".to_owned());
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Failure;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn title() -> Title {
        let text = |text: &str| text.to_owned();
        Title { url: text("http://a/"), asked: text("9 clients"), bound: text("30 s") }
    }

    fn shown(width: u16, height: u16, colours: bool, progress: &Progress) -> TestBackend {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &title(), progress, colours)).unwrap();
        terminal.backend().clone()
    }

    fn progress() -> Progress {
        let mut progress = Progress::new(1);
        for number in 0..90 {
            let mut second = Second::new(number);
            second.answered = 1000 + u64::from(number);
            second.statuses = [(200, second.answered - 7), (503, 7)].into();
            (second.failed, second.waiting) = (2, 4);
            second.failures = [(Failure::Reset, 2)].into();
            for at in 1..100 {
                second.response.record(at * 50_000);
            }
            progress.take(&[second]);
        }
        progress
    }

    #[test]
    fn a_screen_shows_rates_times_statuses_and_failures() {
        let text = shown(100, 30, true, &progress()).to_string();
        for part in [
            "http://a/",
            "9 clients; 90 s of 30 s   q ends it",
            "94,005 answered, 1,045 a second",
            "180 failed",
            "Answers a second: 1,089 (most 1,089)",
            "99 % within: 4.9",
            "50 %         2.5",
            "<= 5.00 ms",
            "status 200                  93,375   99.1 %         1,082",
            "status 503                     630",
            "reset                          180    0.2 %             2",
            "4 arrivals wait for a free client",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn statuses_and_failures_fit_into_the_smallest_of_usual_screens() {
        let text = shown(80, 24, true, &progress()).to_string();
        for part in ["mean ", "status 200", "status 503", "reset "] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn the_rows_with_most_answers_are_those_that_are_seen() {
        let all: Vec<Row> =
            [3, 90, 20, 0, 5].iter().map(|count| Row { most_ns: 1, count: *count }).collect();
        let counts = |room| bulk(&all, room).iter().map(|row| row.count).collect::<Vec<_>>();
        assert_eq!((counts(9).len(), counts(4)), (5, vec![90, 20, 0, 5]));
        assert_eq!((counts(3), counts(1)), (vec![90, 20, 0], vec![90]));
        assert!(bulk(&[], 0).is_empty());
    }

    #[test]
    fn a_small_screen_and_an_empty_run_are_drawn() {
        for (width, height) in [(1, 1), (20, 5), (80, 24)] {
            shown(width, height, true, &progress());
            shown(width, height, true, &Progress::new(1));
        }
    }

    #[test]
    fn without_colours_nothing_is_coloured() {
        let coloured = |colours| {
            let backend = shown(100, 30, colours, &progress());
            backend.buffer().content().iter().any(|cell| cell.fg != Color::Reset)
        };
        assert!(coloured(true) && !coloured(false));
    }
}
