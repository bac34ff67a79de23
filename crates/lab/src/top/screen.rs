//! The live screen: draws samples, and reads the keys that end it, choose a panel and move within
//! it. A frame depends only on the samples and the size of the terminal.

use super::processes::Processes;
use super::sample::Sample;
use super::server::{Server, Share};
use super::text::{
    core_heading, core_lines, device_lines, process_lines, processes_lines, server_lines,
    share_line, system_lines,
};
use crate::numbers::{rate, time};
use crate::status::LETTERS;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline};
use ratatui::{DefaultTerminal, Frame};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

/// A terminal that shows samples. It is restored when this is dropped.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    view: View,
}

/// A signal is noticed within this time.
const GLANCE: Duration = Duration::from_millis(250);

impl Screen {
    /// Takes over the terminal.
    pub(super) fn open() -> io::Result<Self> {
        // https://no-color.org: the variable counts if it is set and not empty.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut screen = Self { terminal: ratatui::try_init()?, view: View::new(colours) };
        screen.draw()?;
        Ok(screen)
    }

    /// Shows a sample.
    pub(super) fn take(&mut self, sample: &Sample) -> io::Result<()> {
        self.view.take(sample);
        self.draw()
    }

    fn draw(&mut self) -> io::Result<()> {
        let Self { terminal, view } = self;
        terminal.draw(|frame| view.draw(frame)).map(drop)
    }

    /// Waits for a key for at most `most`, and acts on it. Returns false if the program is to end.
    pub(super) fn listen(&mut self, most: Duration) -> io::Result<bool> {
        if !event::poll(most.min(GLANCE))? {
            return Ok(true);
        }
        match event::read()? {
            Event::Resize(..) => self.draw()?,
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('c') if control => return Ok(false),
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(false),
                    code => self.view.press(code),
                }
                self.draw()?;
            }
            _ => {}
        }
        Ok(true)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The panels that can be scrolled, in their order on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Panel {
    Cores,
    Devices,
    Scoreboard,
    Processes,
    Vhosts,
    Clients,
    Urls,
}

impl Panel {
    const ALL: [Self; 7] = [
        Self::Cores,
        Self::Devices,
        Self::Scoreboard,
        Self::Processes,
        Self::Vhosts,
        Self::Clients,
        Self::Urls,
    ];

    /// Whether it has content.
    fn is_shown(self, sample: &Sample) -> bool {
        match self {
            Panel::Cores | Panel::Devices => true,
            Panel::Scoreboard => sample.server.is_some(),
            Panel::Processes => sample.processes.is_some(),
            Panel::Vhosts | Panel::Clients | Panel::Urls => {
                sample.server.as_ref().is_some_and(|server| server.tells_workers)
            }
        }
    }
}

/// A moment of the strips.
#[derive(Clone, Debug, Default)]
struct Past {
    states: BTreeMap<char, usize>,
    requests: u64,
    latency_us: u64,
    busy: u64,
}

/// The number of moments, as many as the widest terminals have columns.
const MOST_PAST: usize = 1000;

/// What is shown, and the position of the reader.
struct View {
    colours: bool,
    sample: Option<Sample>,
    past: VecDeque<Past>,
    focus: Panel,
    /// The number of lines that are scrolled away, by panel.
    above: BTreeMap<Panel, usize>,
}

const SERVER: u16 = 10;
/// With less height, only the chosen one of the scoreboard and the lists is shown.
const ENOUGH_HEIGHT: u16 = 32;
const PROCESSES_WIDTH: u16 = 43;
const CORES_WIDTH: u16 = 49;

impl View {
    fn new(colours: bool) -> Self {
        let (past, above) = (VecDeque::new(), BTreeMap::new());
        Self { colours, sample: None, past, focus: Panel::Cores, above }
    }

    fn take(&mut self, sample: &Sample) {
        let server = sample.server.as_ref();
        let number = |value: Option<f64>| value.unwrap_or_default().round() as u64;
        self.past.push_back(Past {
            states: server.map(|server| server.states.clone()).unwrap_or_default(),
            requests: number(server.and_then(|server| server.requests)),
            latency_us: number(server.and_then(|it| it.latency_ms).map(|ms| ms * 1e3)),
            busy: sample.machine.cpu.busy().round() as u64,
        });
        if self.past.len() > MOST_PAST {
            self.past.pop_front();
        }
        if !self.focus.is_shown(sample) {
            self.focus = Panel::Cores;
        }
        self.sample = Some(sample.clone());
    }

    fn press(&mut self, key: KeyCode) {
        let Some(sample) = &self.sample else { return };
        let panels: Vec<Panel> =
            Panel::ALL.into_iter().filter(|panel| panel.is_shown(sample)).collect();
        let at = panels.iter().position(|panel| *panel == self.focus).unwrap_or_default();
        let step = match key {
            KeyCode::Right | KeyCode::Tab => 1,
            KeyCode::Left | KeyCode::BackTab => panels.len() - 1,
            _ => 0,
        };
        self.focus = panels.get((at + step) % panels.len()).copied().unwrap_or(Panel::Cores);
        let above = self.above.entry(self.focus).or_default();
        match key {
            KeyCode::Up => *above = above.saturating_sub(1),
            // The end is known only when drawing, where there is a size.
            KeyCode::Down => *above += 1,
            KeyCode::Home => *above = 0,
            _ => {}
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let Some(sample) = self.sample.take() else {
            frame.render_widget(Paragraph::new("the first interval has begun"), frame.area());
            return;
        };
        let cores = sample.machine.cores.len() + 4;
        let devices = device_lines(&sample.machine).len() + system_lines(&sample.machine).len() + 2;
        let machine = u16::try_from(cores.max(devices)).unwrap_or(u16::MAX);
        let most = (frame.area().height / 3).max(7);
        let (has_server, has_lists) = (sample.server.is_some(), sample.processes.is_some());
        let has_lists = has_lists || Panel::Urls.is_shown(&sample);
        let is_low = has_server && has_lists && frame.area().height < ENOUGH_HEIGHT;
        let (has_board, has_lists) = match (is_low, self.focus >= Panel::Processes) {
            (true, on_lists) => (!on_lists, on_lists),
            (false, _) => (true, has_lists),
        };
        let parts = [
            Constraint::Length(1),
            if has_server { Constraint::Length(machine.min(most)) } else { Constraint::Fill(2) },
            Constraint::Length(if has_server { SERVER } else { 0 }),
            match (has_server, has_board) {
                (true, true) => Constraint::Fill(1),
                (true, false) => Constraint::Length(0),
                (false, _) => Constraint::Length(7),
            },
            if has_lists { Constraint::Fill(1) } else { Constraint::Length(0) },
            Constraint::Length(u16::try_from(sample.problems.len()).unwrap_or(1)),
        ];
        let [head, machine, server, board, lists, problems] =
            Layout::vertical(parts).areas(frame.area());
        let keys = "evenkeel top   q ends it, left and right choose a panel, up and down move";
        frame.render_widget(Paragraph::new(Line::styled(keys, bold())), head);
        self.draw_machine(frame, machine, &sample);
        match &sample.server {
            Some(shown) => {
                self.draw_server(frame, server, shown, sample.processes.as_ref());
                self.draw_board(frame, board, shown);
            }
            None => self.draw_strip(frame, board, "CPU busy", |it| it.busy, |it| format!("{it} %")),
        }
        self.draw_lists(frame, lists, &sample);
        let red = self.ink(Color::Red);
        let told = sample.problems.iter().map(|problem| Line::styled(problem.clone(), red));
        frame.render_widget(Paragraph::new(told.collect::<Vec<_>>()), problems);
        self.sample = Some(sample);
    }

    fn draw_machine(&mut self, frame: &mut Frame<'_>, area: Rect, sample: &Sample) {
        let columns = [Constraint::Length(CORES_WIDTH), Constraint::Min(0)];
        let [left, right] = Layout::horizontal(columns).areas(area);
        let machine = &sample.machine;
        let busy = std::iter::once(machine.cpu.busy())
            .chain(machine.cores.iter().map(|core| core.shares.busy()));
        let styled = core_lines(machine).into_iter().zip(busy).map(|(line, busy)| {
            let colour = match busy {
                90.0.. => Color::Red,
                70.0.. => Color::Yellow,
                _ => Color::Reset,
            };
            Line::styled(line, self.ink(colour))
        });
        let lines: Vec<Line<'static>> = styled.collect();
        self.draw_panel(
            frame,
            left,
            Panel::Cores,
            " CPU in % ".into(),
            Some(core_heading()),
            lines,
        );
        let lines = device_lines(machine).into_iter().chain(system_lines(machine));
        let lines = lines.map(Line::raw).collect();
        self.draw_panel(frame, right, Panel::Devices, " A second ".into(), None, lines);
    }

    fn draw_server(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        server: &Server,
        processes: Option<&Processes>,
    ) {
        let columns = [Constraint::Fill(3), Constraint::Fill(2)];
        let [left, right] = Layout::horizontal(columns).areas(area);
        let lines = server_lines(server).into_iter();
        let lines = lines.chain(processes.into_iter().flat_map(processes_lines));
        let lines: Vec<Line<'_>> = lines.map(Line::raw).collect();
        let block = self.block(format!(" {} ", server.url), false);
        frame.render_widget(Paragraph::new(lines).block(block), left);
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [upper, lower] = Layout::vertical(halves).areas(right);
        self.draw_strip(frame, upper, "Requests a second", |it| it.requests, |it| rate(it as f64));
        let latency = |it: &Past| it.latency_us;
        self.draw_strip(frame, lower, "Mean latency", latency, |us| time(us as f64 * 1e3));
    }

    fn draw_strip(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        name: &str,
        value: impl Fn(&Past) -> u64,
        shown: impl Fn(u64) -> String,
    ) {
        let room = usize::from(area.width.saturating_sub(2));
        let from = self.past.len().saturating_sub(room);
        let values: Vec<u64> = self.past.iter().skip(from).map(value).collect();
        let last = values.last().copied().unwrap_or_default();
        let most = values.iter().max().copied().unwrap_or_default();
        let title = format!(" {name}: {} (most {}) ", shown(last), shown(most));
        let strip = Sparkline::default().data(values).style(self.ink(Color::Cyan));
        frame.render_widget(strip.block(self.block(title, false)), area);
    }

    fn draw_board(&mut self, frame: &mut Frame<'_>, area: Rect, server: &Server) {
        let columns = [Constraint::Fill(3), Constraint::Fill(2)];
        let [left, right] = Layout::horizontal(columns).areas(area);
        let letters: Vec<char> = server.scoreboard.chars().collect();
        let width = usize::from(left.width.saturating_sub(2)).max(1);
        let lines = letters.chunks(width).map(|chunk| self.letters(chunk)).collect();
        let title = format!(" Scoreboard: {} slots ", letters.len());
        self.draw_panel(frame, left, Panel::Scoreboard, title, None, lines);
        let room = usize::from(right.width.saturating_sub(2));
        let height = usize::from(right.height.saturating_sub(2));
        let from = self.past.len().saturating_sub(room);
        let columns: Vec<Vec<char>> =
            self.past.iter().skip(from).map(|past| column(&past.states, height)).collect();
        // The first letter of a column is at its foot.
        let rows = (0..height).rev().map(|row| {
            let letters: Vec<char> =
                columns.iter().filter_map(|column| column.get(row).copied()).collect();
            self.letters(&letters)
        });
        let paragraph = Paragraph::new(rows.collect::<Vec<_>>());
        let block = self.block(" Its slots over time ".into(), false);
        frame.render_widget(paragraph.block(block), right);
    }

    /// Letters of a scoreboard in their colours, equal neighbours together.
    fn letters(&self, letters: &[char]) -> Line<'static> {
        let runs = letters.chunk_by(|a, b| a == b);
        let span = |run: &[char]| {
            let colour = match run.first() {
                Some('W') => Color::Green,
                Some('R') => Color::Cyan,
                Some('K') => Color::Blue,
                Some('_' | '.') => Color::DarkGray,
                _ => Color::Yellow,
            };
            Span::styled(run.iter().collect::<String>(), self.ink(colour))
        };
        Line::from(runs.map(span).collect::<Vec<_>>())
    }

    fn draw_lists(&mut self, frame: &mut Frame<'_>, area: Rect, sample: &Sample) {
        let lists = [Panel::Processes, Panel::Vhosts, Panel::Clients, Panel::Urls];
        let shown: Vec<Panel> = lists.into_iter().filter(|panel| panel.is_shown(sample)).collect();
        let widths = shown.iter().map(|panel| match panel {
            Panel::Processes if shown.len() > 1 => Constraint::Length(PROCESSES_WIDTH),
            _ => Constraint::Fill(1),
        });
        let areas = Layout::horizontal(widths).split(area);
        for (panel, area) in shown.iter().zip(areas.iter()) {
            let server = sample.server.as_ref();
            let shares = |list: fn(&Server) -> &Vec<Share>| -> Vec<Line<'static>> {
                let shares = server.map(list).into_iter().flatten();
                shares.map(|share| Line::raw(share_line(share))).collect()
            };
            let (title, lines) = match panel {
                Panel::Vhosts => (" Busiest vhosts ".to_owned(), shares(|it| &it.vhosts)),
                Panel::Clients => (" Busiest clients ".to_owned(), shares(|it| &it.clients)),
                Panel::Urls => (" Busiest URLs ".to_owned(), shares(|it| &it.urls)),
                _ => {
                    let Some(processes) = &sample.processes else { continue };
                    // With a server, this is already shown.
                    let title = match server {
                        Some(_) => " Processes ".to_owned(),
                        None => format!(" {} ", processes_lines(processes).join("; ")),
                    };
                    let lines = process_lines(processes).into_iter().map(Line::raw).collect();
                    (title, lines)
                }
            };
            self.draw_panel(frame, *area, *panel, title, None, lines);
        }
    }

    /// Draws lines as far as there is room, from the position of the reader on.
    fn draw_panel(
        &mut self,
        frame: &mut Frame<'_>,
        area: Rect,
        panel: Panel,
        title: String,
        heading: Option<String>,
        lines: Vec<Line<'static>>,
    ) {
        let room = usize::from(area.height.saturating_sub(2 + u16::from(heading.is_some())));
        let above = self.above.entry(panel).or_default();
        *above = (*above).min(lines.len().saturating_sub(room));
        let hidden = lines.len().saturating_sub(*above + room);
        let more =
            if *above + hidden > 0 { format!("(+{}) ", *above + hidden) } else { String::new() };
        let shown = lines.into_iter().skip(*above).take(room);
        let all: Vec<Line<'_>> =
            heading.map(|text| Line::styled(text, bold())).into_iter().chain(shown).collect();
        let block = self.block(title + &more, self.focus == panel);
        frame.render_widget(Paragraph::new(all).block(block), area);
    }

    fn ink(&self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn block(&self, title: String, is_chosen: bool) -> Block<'static> {
        let title = if is_chosen {
            Line::styled(title, bold().add_modifier(Modifier::REVERSED))
        } else {
            Line::styled(title, Style::reset())
        };
        Block::bordered().border_style(self.ink(Color::DarkGray)).title(title)
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A scoreboard as a column of `height` letters, busy ones at its foot. Each cell shows the busiest
/// of the slots that it stands for, so that a single busy slot is visible.
fn column(states: &BTreeMap<char, usize>, height: usize) -> Vec<char> {
    let total: usize = states.values().sum();
    if total == 0 {
        return vec![' '; height];
    }
    let at_rank = |rank: usize| {
        let mut before = 0;
        let found = LETTERS.iter().find(|(letter, _)| {
            before += states.get(letter).copied().unwrap_or_default();
            rank < before
        });
        found.map_or('?', |(letter, _)| *letter)
    };
    (0..height).map(|cell| at_rank(cell * total / height)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Core, Disk, Link, Shares};
    use super::super::processes::Process;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn sample() -> Sample {
        let mut sample = Sample::default();
        let shares = Shares { usr: 91.5, idl: 8.5, ..Shares::default() };
        sample.machine.cpu = shares;
        sample.machine.cores = (0..8).map(|core| Core { core, shares }).collect();
        let name = |name: &str| name.to_owned();
        sample.machine.disks = vec![Disk { name: name("sda"), busy: 12.0, ..Disk::default() }];
        let link = Link { name: name("eth0"), sent_bytes: 1_230_000.0, ..Link::default() };
        sample.machine.network = vec![link];
        sample
    }

    fn served() -> Sample {
        let text = |text: &str| text.to_owned();
        let process = Process { pid: 77, name: text("httpd"), state: 'S', ..Process::default() };
        let share = |name: &str| Share { name: text(name), percent: 62.5 };
        Sample {
            processes: Some(Processes { pid: 77, each: vec![process], ..Processes::default() }),
            server: Some(Server {
                url: text("http://a/server-status?json"),
                requests: Some(4321.0),
                latency_ms: Some(1.5),
                states: [('W', 3), ('K', 2), ('_', 5)].into(),
                scoreboard: text("WWWKK_____"),
                limit: "none".into(),
                tells_workers: true,
                vhosts: vec![share("example.org:80")],
                urls: vec![share("/index.html")],
                ..Server::default()
            }),
            ..sample()
        }
    }

    fn shown(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_machine_alone_and_with_a_server_is_shown() {
        let mut view = View::new(true);
        assert!(shown(&mut view, 80, 24).contains("the first interval has begun"));
        view.take(&sample());
        let text = shown(&mut view, 120, 30);
        for part in ["core    usr", "91.5", "sda  ", "12 % busy", "1.23 MB", "CPU busy: 92 %"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("Scoreboard"));
        for _ in 0..3 {
            view.take(&served());
        }
        let text = shown(&mut view, 140, 40);
        for part in [
            "http://a/server-status?json",
            "4,321 requests/s, ",
            "Requests a second: 4,321 (most 4,321)",
            "Mean latency: 1.50 ms",
            "WWWKK_____",
            "Busiest vhosts",
            "62.5 %  example.org:80",
            "62.5 %  /index.html",
            "process 77 and below",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn on_a_low_screen_the_chosen_panel_is_shown() {
        let mut view = View::new(true);
        view.take(&served());
        let text = shown(&mut view, 120, 24);
        assert!(text.contains("WWWKK_____") && !text.contains("Busiest URLs"), "{text}");
        view.press(KeyCode::Left);
        let text = shown(&mut view, 120, 24);
        assert!(!text.contains("WWWKK_____") && text.contains("/index.html"), "{text}");
    }

    #[test]
    fn every_size_can_be_drawn() {
        let mut view = View::new(false);
        view.take(&served());
        for (width, height) in [(1, 1), (5, 200), (200, 5), (60, 10), (80, 24)] {
            shown(&mut view, width, height);
        }
    }

    #[test]
    fn arrows_choose_and_move() {
        let mut view = View::new(true);
        view.press(KeyCode::Down);
        view.take(&served());
        let first_core = |text: &str| text.contains("all    91.5");
        assert!(first_core(&shown(&mut view, 120, 24)));
        view.press(KeyCode::Down);
        assert!(!first_core(&shown(&mut view, 120, 24)));
        view.press(KeyCode::Up);
        assert!(first_core(&shown(&mut view, 120, 24)));
        // Scrolling stops where the last line is visible.
        for _ in 0..99 {
            view.press(KeyCode::Down);
        }
        assert!(shown(&mut view, 120, 24).contains("7      91.5"));
        view.press(KeyCode::Right);
        assert_eq!(view.focus, Panel::Devices);
        view.press(KeyCode::Left);
        view.press(KeyCode::Left);
        assert_eq!(view.focus, Panel::Urls);
        // A panel that has disappeared cannot be chosen.
        view.take(&sample());
        assert_eq!(view.focus, Panel::Cores);
    }

    #[test]
    fn a_column_shows_what_is_busy_at_its_foot() {
        let text = |states: &[(char, usize)], height| -> String {
            column(&states.iter().copied().collect(), height).into_iter().collect()
        };
        assert_eq!(text(&[('W', 1), ('_', 99), ('.', 300)], 4), "W...");
        assert_eq!(text(&[('W', 5), ('K', 5)], 4), "WWKK");
        assert_eq!(text(&[('_', 2)], 5), "_____");
        assert_eq!(text(&[], 2), "  ");
    }
}
