//! Watches a run until it ends or the user presses ^C, and shows its progress on a line of standard
//! error or on a live screen.

use super::Desk;
use super::options::Options;
use super::progress::Progress;
use super::screen::{Screen, Title};
use super::text::asked;
use crate::load::Live;
use crate::results::Saving;
use evenkeel_sys::epoll::{Epoll, Events};
use evenkeel_sys::signal::Signals;
use std::io;
use std::time::Duration;

/// The interval between two readings of the progress.
const GLANCE: Duration = Duration::from_millis(50);
/// The seconds between two lines of a log.
const SECONDS_A_LINE: u32 = 10;

/// A run that is being watched.
pub(super) struct Watch<'a> {
    pub(super) live: Live,
    pub(super) signals: Signals,
    /// Stores its seconds as they come.
    pub(super) saving: Option<&'a mut Saving>,
}

impl Watch<'_> {
    /// Watches the run to its end. Returns whether a signal or a key ended it. An error here ends
    /// the run too.
    pub(super) fn over(
        mut self,
        threads: usize,
        options: &Options,
        desk: &mut Desk<'_>,
    ) -> io::Result<bool> {
        let watched = if desk.screen && options.screen {
            self.on_screen(threads, options)
        } else {
            self.on_lines(threads, desk)
        };
        if watched.is_err() {
            self.live.stop();
        }
        watched
    }

    fn on_lines(&mut self, threads: usize, desk: &mut Desk<'_>) -> io::Result<bool> {
        let (epoll, mut events) = (Epoll::new()?, Events::with_capacity(1));
        epoll.add(&self.signals, 0)?;
        let mut progress = Progress::new(threads);
        let (mut interrupted, mut shown) = (false, 0);
        while self.live.is_running() {
            epoll.wait(&mut events, Some(GLANCE))?;
            interrupted |= self.hears_of_end(false);
            if self.take_news(&mut progress)? {
                show_line(&progress, desk, &mut shown);
            }
        }
        if desk.rewrites && shown > 0 {
            // The report begins in the place of the line.
            let _gone = write!(desk.err, "\r\x1b[K");
        }
        Ok(interrupted)
    }

    fn on_screen(&mut self, threads: usize, options: &Options) -> io::Result<bool> {
        let mut progress = Progress::new(threads);
        let mut screen = Screen::open(Title {
            url: options.url.to_string(),
            asked: asked(options, threads),
            bound: bound(options),
        })?;
        let mut interrupted = false;
        screen.draw(&progress)?;
        while self.live.is_running() {
            let (key, resized) = Screen::listen(GLANCE)?;
            interrupted |= self.hears_of_end(key);
            if self.take_news(&mut progress)? || resized {
                screen.draw(&progress)?;
            }
        }
        Ok(interrupted)
    }

    /// Ends the run if a signal or a key requests that.
    fn hears_of_end(&self, key: bool) -> bool {
        let end = key || self.signals.next().is_some();
        if end {
            self.live.stop();
        }
        end
    }

    /// Whether a second is now complete.
    fn take_news(&mut self, progress: &mut Progress) -> io::Result<bool> {
        let news = self.live.news();
        if let Some(saving) = &mut self.saving {
            saving.add(&news).map_err(io::Error::other)?;
        }
        Ok(progress.take(&news))
    }
}

/// When the run is to end.
fn bound(options: &Options) -> String {
    let time = options.time.map(|time| format!("{} s", time.as_secs_f64()));
    let requests = options.requests.map(|requests| format!("{requests} requests"));
    let bounds: Vec<String> = time.into_iter().chain(requests).collect();
    bounds.join(" or ")
}

/// Shows the last second. `shown` counts the lines so far. It is not an error if the reader is
/// gone.
fn show_line(progress: &Progress, desk: &mut Desk<'_>, shown: &mut u32) {
    if desk.rewrites {
        let _gone = write!(desk.err, "\r\x1b[K{}", progress.line());
    } else if progress.sum.number >= (*shown + 1) * SECONDS_A_LINE {
        let _gone = writeln!(desk.err, "{}", progress.line());
    } else {
        return;
    }
    let _gone = desk.err.flush();
    *shown += 1;
}
